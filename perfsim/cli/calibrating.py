"""``perfsim calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfsim.cli.options import Json, Profiles

__all__ = ["calibrate"]

REPORTS = ("short", "full")

calibrate = typer.Typer(
    help="Make network files from measurements.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@calibrate.callback()
def _group() -> None:
    """Make network files from measurements."""


@calibrate.command(
    "import",
    epilog="Example: perfsim calibrate import all_reduce.log --name our-cluster",
)
def import_measurements(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="nccl-tests output (text, JSON, CSV), PyTorch-style CSV, or perfsim's own CSV.",
        ),
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The network's name.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for NAME.toml and NAME.curves.csv; default: profiles/networks.",
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option("--title", help="One line on what the cluster is.")
    ] = None,
    transport: Annotated[
        str, typer.Option("--transport", help="What carries the bytes: tcp, ib, efa, nvlink, ...")
    ] = "unknown",
    collective: Annotated[
        str | None,
        typer.Option("--collective", help="The collective, where a file does not say it."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="GPUs, where a file does not say it.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="Nodes, where a file does not say it.")
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option("--gpus-per-node", help="GPUs a node, where a file does not say it."),
    ] = None,
    nics_per_node: Annotated[
        int, typer.Option("--nics-per-node", help="NICs that the GPUs of a node share.")
    ] = 1,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave damaged lines out and name them.")
    ] = False,
    report: Annotated[
        str,
        typer.Option("--report", metavar="WORD", help="short, or full: with each fit behind it."),
    ] = "short",
    force: Annotated[
        bool, typer.Option("--force", help="Replace a network of your own of that name.")
    ] = False,
    profiles: Profiles = None,
    json: Json = False,
) -> None:
    """Fit a network file to measured collectives and print the report of the fit."""
    from perfsim.calibrate.importing import import_files
    from perfsim.errors import unknown

    if report not in REPORTS:
        raise unknown("--report", report, REPORTS)
    made = import_files(
        files,
        name,
        folder=out,
        title=title,
        transport=transport,
        collective=collective,
        ranks=ranks,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        nics_per_node=nics_per_node,
        skip_bad=skip_bad,
        full=report == "full",
        force=force,
        profiles=profiles,
    )
    for line in made.skipped:
        typer.echo(f"perfsim: left out: {line}", err=True)
    if json:
        from perfsim.report.files import json_text

        typer.echo(json_text(made.as_dict()))
    else:
        typer.echo(made.report)
        typer.echo(f"\nwritten: {made.network}, {made.curves}")
        typer.echo(made.use)
