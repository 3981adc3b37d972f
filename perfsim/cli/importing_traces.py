"""``perfsim calibrate import`` of a trace: what is printed of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfsim.cli.options import answer
from perfsim.cli.written import written
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.calibrate.importing_traces import Imported

__all__ = ["import_one_trace"]


def import_one_trace(
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
    from perfsim.calibrate.importing_traces import import_trace

    if len(files) > 1:
        raise RequestError("FILE: a trace is imported alone, each rank's is a profile of its own.")
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
    answer(made.to_dict(), None, json, lambda: _print(made))


def _print(made: Imported) -> None:
    _print_step(made)
    _print_calls(made)
    if made.profile or made.collectives:
        typer.echo(written(made.profile, made.collectives))


def _print_step(made: Imported) -> None:
    from perfsim.units import format_seconds

    step = made.traced.step
    if step is None:
        last = max(made.traced.ready_s.values(), default=0.0)
        typer.echo(
            f"{len(made.traced.ready_s)} tensors, ready within {format_seconds(last)}; the trace"
            " shows no forward or backward pass, so there is no profile"
        )
        return
    typer.echo(
        f"{step.count} steps, {len(step.layers)} layers, {len(step.ready_s)} gradients: forward"
        f" {format_seconds(step.forward_s)}, backward {format_seconds(step.backward_s)}, optimizer"
        f" {format_seconds(step.update_s)}, whole step {format_seconds(step.whole_s)}, of it only"
        f" collectives {format_seconds(step.waiting_s)}; device busy in {step.busy:.0%} of the"
        " passes"
    )


def _print_calls(made: Imported) -> None:
    from perfsim.units import format_bytes, format_seconds

    for row in made.by_size:
        size = "size not said" if row["size_bytes"] is None else format_bytes(row["size_bytes"])
        ranks = "ranks not said" if row["ranks"] is None else f"{row['ranks']} ranks"
        typer.echo(
            f"{row['collective']}, {ranks}, {size}: {row['calls']} calls, median"
            f" {format_seconds(row['median_s'])}, least {format_seconds(row['least_s'])}"
        )
    if made.by_size and made.collectives is None:
        typer.echo(
            "with --nodes N the collectives are written too, as a table that calibrate import"
            " --name NAME fits a network to; their times hold the wait for the slowest rank"
        )
