"""``perfsim calibrate kernels``: measuring, on the GPU itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfsim.cli.options import Json, answer
from perfsim.cli.working import working
from perfsim.cli.written import written

if TYPE_CHECKING:
    from perfsim.calibrate.kernels.kernels import Measured

__all__ = ["kernels"]

SHOWN = 5
EVERY = 50
"""Points between two lines, where standard error is no terminal."""


def kernels(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="Folder of profiles; files go to its devices/."),
    ] = Path("profiles"),
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="The device's name in the files.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="WORD", help="cuda or cpu; default: a GPU if any."),
    ] = None,
    names: Annotated[
        str | None, typer.Option("--kernels", metavar="LIST", help="topk_new,qr,...; all.")
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--max", metavar="N", help="fp32 values of the largest input; GPU 2^28, CPU 2^24."
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Time of it all, such as 10min.")
    ] = None,
    kernel_budget: Annotated[
        str, typer.Option("--kernel-budget", metavar="TIME", help="Time of one kernel.")
    ] = "20s",
    tolerance: Annotated[
        str,
        typer.Option("--tolerance", metavar="SHARE", help="Half a median's 90 % interval."),
    ] = "2%",
    title: Annotated[
        str | None, typer.Option("--title", help="One line on what the device is.")
    ] = None,
    device_file: Annotated[
        bool,
        typer.Option("--device-file", help="Write NAME.toml too where the device is known."),
    ] = False,
    beside: Annotated[
        bool,
        typer.Option("--beside", help="Measure computation beside an all-reduce, under torchrun."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Do not go on from an interrupted run.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace points of these kernels that are there.")
    ] = False,
    json: Json = False,
) -> None:
    """Time the kernels that methods use on this machine, over sizes, into a device's files."""
    from perfsim.calibrate.kernels.kernels import Wanted, calibrate_kernels
    from perfsim.calibrate.kernels.timing import Rule
    from perfsim.errors import RequestError
    from perfsim.units import parse_fraction, parse_seconds

    if beside:
        _beside(device, json)
        return
    if most is not None and most < 1:
        raise RequestError(f"--max: {most} is too few; at least 1 value is needed.")
    rule = Rule(
        tolerance=parse_fraction(tolerance, "--tolerance"),
        kernel_s=parse_seconds(kernel_budget, "--kernel-budget"),
        budget_s=None if budget is None else parse_seconds(budget, "--budget"),
    )
    chosen = tuple(filter(None, (names or "").split(",")))
    wanted = Wanted(out, gpu, device, chosen, most, rule, device_file, title, fresh, force)
    with working("points", every=EVERY) as tell:
        made = calibrate_kernels(wanted, tell)
    answer(made.to_dict(), None, json, lambda: _print(made))


def _print(made: Measured) -> None:
    from perfsim.calibrate.kernels.report import report
    from perfsim.letters import escaped
    from perfsim.units import format_rate, format_seconds

    typer.echo(report(made.table))
    typer.echo("counted: by bytes, operations and launches, as where no point is known")
    for name, (value, _, what) in made.figures.items():
        told = {"memory_bandwidth": format_rate, "launch": format_seconds}.get(name, _flops)
        typer.echo(f"{name}: {told(value)} ({what})")
    if made.noisy:
        more = f" and {len(made.noisy) - SHOWN} more" if len(made.noisy) > SHOWN else ""
        typer.echo(f"noisy, is the machine idle? {'; '.join(made.noisy[:SHOWN])}{more}")
    for line in made.stopped:
        typer.echo(f"left out: {line}")
    if made.cut:
        typer.echo(f"out of time: {', '.join(made.cut)}; the same command goes on from here")
    if made.missing:
        lacks = ", ".join(made.missing)
        typer.echo(f"no device file written: {lacks} must be measured too")
    typer.echo(f"\n{written(made.points, made.device)}")
    folder = made.points.parent.parent
    typer.echo(escaped(f"use: perfsim predict --gpu {made.gpu} --profiles {folder} ..."))


def _beside(device: str | None, json: bool) -> None:
    from perfsim.calibrate.kernels.beside import measure_beside

    found = measure_beside(device)
    if found is None:
        return
    answer(found.to_dict(), None, json, lambda: typer.echo(found.report()))


def _flops(rate: float) -> str:
    return f"{rate / 1e12:.4g} TFLOP/s"
