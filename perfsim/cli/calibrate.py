"""``perfsim calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfsim.cli.flags import JsonFlag, ProfilesFlag
from perfsim.cli.help import OVERVIEW, examples
from perfsim.cli.measure import compute_command, kernels_command, network_command
from perfsim.cli.output import print_answer, print_network, tell_written
from perfsim.errors import RequestError, unknown

if TYPE_CHECKING:
    from perfsim.calibrate.traces.import_trace import ImportedTrace

__all__ = ["calibrate_commands"]

_REPORTS = ("short", "full")

calibrate_commands = typer.Typer(
    help="Measure a cluster, or read what was measured, into files that predictions use.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@calibrate_commands.callback()
def _group(context: typer.Context) -> None:
    """Measure a cluster, or read what was measured, into files that predictions use."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@calibrate_commands.command(
    "import",
    short_help=OVERVIEW["calibrate import"],
    epilog=examples("calibrate import"),
)
def import_measurements(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help=(
                "nccl-tests output (text, JSON, CSV), PyTorch-style CSV, perfsim's own CSV; or a"
                " trace of training: PyTorch profiler (JSON, .gz), Horovod timeline."
            ),
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="The network's name; needed except for a trace."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help=(
                "Folder for NAME.toml and NAME.curves.csv; default: profiles/networks. Of a trace:"
                " folder of profiles; default: profiles."
            ),
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
        typer.Option("--collective", help="The collective, where a file does not name it."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="GPUs, where a file does not state them.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="Nodes, where a file does not state them.")
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option("--gpus-per-node", help="GPUs a node, where a file does not state them."),
    ] = None,
    nics_per_node: Annotated[
        int, typer.Option("--nics-per-node", help="NICs that the GPUs of a node share.")
    ] = 1,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="NODE|FILE", help="Node type; shows the files beside its data sheet."
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave damaged lines out and name them.")
    ] = False,
    report: Annotated[
        str,
        typer.Option("--report", metavar="WORD", help="short, or full: with every fit."),
    ] = "short",
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Of a trace: the model's name.")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Of a trace: samples a GPU.")] = None,
    precision: Annotated[
        str,
        typer.Option(
            "--precision", metavar="WORD", help="Of a trace: fp32, tf32, amp-fp16, amp-bf16."
        ),
    ] = "fp32",
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu", metavar="NAME", help="Of a trace: the GPU; default: the one it names."
        ),
    ] = None,
    sequence: Annotated[
        int | None, typer.Option("--sequence", help="Of a trace: tokens a sample.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a network or profile of your own.")
    ] = False,
    profiles: ProfilesFlag = None,
    json: JsonFlag = False,
) -> None:
    """Fit a network file to measured collectives, or make a profile of a trace of training."""
    from perfsim.calibrate.import_logs import import_files
    from perfsim.calibrate.traces.chrome_json import is_trace

    if any(is_trace(file) for file in files):
        _import_one_trace(
            files,
            model=model,
            batch=batch,
            precision=precision,
            gpu=gpu,
            sequence=sequence,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            out=out,
            force=force,
            json=json,
        )
        return
    made = import_files(
        files,
        _named(name, report),
        folder=out,
        title=title,
        transport=transport,
        collective=collective,
        ranks=ranks,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        nics_per_node=nics_per_node,
        node=node,
        skip_bad=skip_bad,
        full=report == "full",
        force=force,
        profiles=profiles,
    )
    for line in made.skipped:
        typer.echo(f"perfsim: left out: {line}", err=True)
    print_network(made, json)


def _named(name: str | None, report: str) -> str:
    """Return the name of the network; refuse a missing one, and an unknown kind of report."""
    if name is None:
        raise RequestError("name", "is needed, the name of the network.")
    if report not in _REPORTS:
        raise unknown("report", report, _REPORTS)
    return name


for _name, _command in (
    ("network", network_command),
    ("compute", compute_command),
    ("kernels", kernels_command),
):
    calibrate_commands.command(
        _name,
        short_help=OVERVIEW[f"calibrate {_name}"],
        epilog=examples(f"calibrate {_name}"),
    )(_command)


def _import_one_trace(
    files: list[Path],
    *,
    model: str | None,
    batch: int | None,
    precision: str,
    gpu: str | None,
    sequence: int | None,
    nodes: int | None,
    gpus_per_node: int | None,
    out: Path | None,
    force: bool,
    json: bool,
) -> None:
    """Read a trace, write what it shows and print it.

    Raises
    ------
    RequestError
        If there are several files: each trace is a profile of its own.
    """
    from perfsim.calibrate.traces.import_trace import import_trace

    if len(files) > 1:
        raise RequestError(
            "files", "a trace is imported alone; each rank's is a profile of its own."
        )
    made = import_trace(
        files[0],
        model=model,
        batch=batch,
        precision=precision,
        gpu=gpu,
        sequence=sequence,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        folder=out or Path("profiles"),
        force=force,
    )
    tell_written(made.profile, made.collectives)
    print_answer(made.to_dict, None, json, lambda: _print_trace(made))


def _print_trace(made: ImportedTrace) -> None:
    _print_step(made)
    _print_calls(made)
    if made.warning:
        typer.echo(f"perfsim: {made.warning}.", err=True)


def _print_step(made: ImportedTrace) -> None:
    from perfsim.units import format_seconds

    step = made.trace.step
    if step is None:
        last = max(made.trace.ready_s.values(), default=0.0)
        typer.echo(
            f"{len(made.trace.ready_s)} tensors, ready within {format_seconds(last)}; the trace"
            " shows no forward or backward pass, so there is no profile"
        )
        return
    typer.echo(
        f"{step.count} steps, {len(step.layers)} layers, {len(step.ready_s)} gradients: forward"
        f" {format_seconds(step.forward_s)}, backward {format_seconds(step.backward_s)}, optimizer"
        f" {format_seconds(step.update_s)}, whole step {format_seconds(step.whole_s)}, collectives"
        f" alone {format_seconds(step.waiting_s)}; device busy in {step.busy:.0%} of the"
        " passes"
    )


def _print_calls(made: ImportedTrace) -> None:
    from perfsim.units import format_bytes, format_seconds

    for same in made.by_size:
        size = "size not stated" if same.size_bytes is None else format_bytes(same.size_bytes)
        ranks = "ranks not stated" if same.ranks is None else f"{same.ranks} ranks"
        typer.echo(
            f"{same.collective}, {ranks}, {size}: {same.calls} calls, median"
            f" {format_seconds(same.median_s)}, shortest {format_seconds(same.least_s)}"
        )
    if made.by_size and made.collectives is None:
        typer.echo(
            "with --nodes N the collectives are written too, as a table that calibrate import"
            " --name NAME fits a network to; their times hold the wait for the slowest rank"
        )
