"""``perfsim calibrate network`` and ``compute``: measuring, on the machines themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfsim.cli.options import Json, Profiles, answer
from perfsim.cli.working import Tell, working
from perfsim.cli.written import print_network, written

if TYPE_CHECKING:
    from perfsim.calibrate.compute.compute import Profiled
    from perfsim.calibrate.sweep.journal import Point
    from perfsim.calibrate.sweep.sweep import Asked

__all__ = ["compute", "network"]

EVERY = 20
"""Points between two lines, where standard error is no terminal."""


def network(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The network file, NAME.toml.")
    ],
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend", metavar="WORD", help="nccl, gloo, mpi; default: nccl where GPUs are."
        ),
    ] = None,
    collectives: Annotated[
        str | None,
        typer.Option("--collectives", metavar="LIST", help="all_reduce,all_gather,...; all."),
    ] = None,
    most: Annotated[
        str, typer.Option("--max-size", "--max", metavar="SIZE", help="Largest message.")
    ] = "256MiB",
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="Time of the whole sweep, such as 10min."),
    ] = None,
    tolerance: Annotated[
        str,
        typer.Option("--tolerance", metavar="SHARE", help="Half a median's 90 % interval."),
    ] = "2%",
    patience: Annotated[
        str,
        typer.Option("--patience", metavar="TIME", help="A call that takes longer is an error."),
    ] = "300s",
    nics_per_node: Annotated[
        int, typer.Option("--nics-per-node", help="NICs that the GPUs of a node share.")
    ] = 1,
    transport: Annotated[
        str, typer.Option("--transport", help="What carries the bytes: tcp, ib, efa, nvlink, ...")
    ] = "unknown",
    title: Annotated[
        str | None, typer.Option("--title", help="One line on what the cluster is.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Do not go on from an interrupted run.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a network file that is there.")
    ] = False,
    profiles: Profiles = None,
    json: Json = False,
) -> None:
    """Measure the collectives of this job's ranks and fit a network file to them.

    Every rank runs it: under torchrun, or srun, or mpirun. Rank 0 prints and writes.
    """
    from perfsim.calibrate.sweep.network import Wanted, measure_network
    from perfsim.units import parse_bytes, parse_fraction, parse_seconds

    wanted = Wanted(
        out=out,
        backend=backend,
        collectives=tuple(filter(None, (collectives or "").split(","))),
        most_bytes=int(parse_bytes(most, "--max")),
        budget_s=None if budget is None else parse_seconds(budget, "--budget"),
        tolerance=parse_fraction(tolerance, "--tolerance"),
        patience_s=parse_seconds(patience, "--patience"),
        nics_per_node=nics_per_node,
        transport=transport,
        title=title,
        fresh=fresh,
        force=force,
    )
    with working("points", every=EVERY) as tell:
        made = measure_network(wanted, lambda points: _each(tell, len(points)), profiles=profiles)
    if made is None:
        return
    print_network(made, json)


def _each(tell: Tell, total: int) -> Callable[[Asked, Point | None], None]:
    """Return what is told of each point: before it is measured, and with what was found."""
    from perfsim.units import format_bytes, format_seconds

    done = 0

    def told(asked: Asked, point: Point | None) -> None:
        nonlocal done
        done += point is not None
        what = f"{asked.collective}, {asked.group.name}, {format_bytes(asked.size_bytes)}"
        tell(done, total, f"{what}: {format_seconds(point.median_s)}" if point else what)

    return told


def compute(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="NAME",
            help="torchvision:resnet50, transformers:gpt2, timm:NAME, or module:factory.",
        ),
    ],
    batch: Annotated[int, typer.Option("--batch", help="Samples a GPU.")],
    precision: Annotated[
        str, typer.Option("--precision", metavar="WORD", help="fp32, tf32, amp-fp16, amp-bf16.")
    ] = "fp32",
    sequence: Annotated[
        int | None, typer.Option("--sequence", help="Tokens a sample; language models: 128.")
    ] = None,
    optimizer: Annotated[
        str, typer.Option("--optimizer", metavar="WORD", help="sgd, adam, adamw.")
    ] = "sgd",
    repeats: Annotated[int, typer.Option("--repeats", help="Steps of each kind measured.")] = 20,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="WORD", help="cuda or cpu; default: a GPU if any."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="The device's name in the file.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The model's name in the file.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of profiles.")] = Path(
        "profiles"
    ),
    force: Annotated[
        bool, typer.Option("--force", help="Replace a profile that is there.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure a model's training step on this machine, layer by layer, with fake data."""
    from perfsim.calibrate.compute.compute import calibrate_compute

    made = calibrate_compute(
        model,
        batch,
        precision=precision,
        sequence=sequence,
        optimizer=optimizer,
        repeats=repeats,
        device=device,
        gpu=gpu,
        name=name,
        folder=out,
        force=force,
    )
    if made is None:
        return
    answer(made.to_dict(), None, json, lambda: _print(made, batch))


def _print(made: Profiled, batch: int) -> None:
    from perfsim.units import format_seconds

    measured = made.measured
    moments = measured.moments
    typer.echo(
        f"whole step {format_seconds(measured.iteration_s)} (+-{measured.spread:.1%}),"
        f" {batch / measured.iteration_s:.4g} samples/s; with marks {measured.marked:.3f} times"
        f" that: forward {format_seconds(moments.forward_s)}, backward"
        f" {format_seconds(moments.backward_s)}, optimizer {format_seconds(moments.update_s)}"
    )
    if measured.unused:
        typer.echo(f"left out, no gradient: {', '.join(measured.unused)}")
    typer.echo(written(made.profile, made.positions))
