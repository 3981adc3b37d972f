"""``perfsim calibrate network``, ``compute`` and ``kernels``: measure on the machine itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfsim.cli.flags import JsonFlag, ProfilesFlag
from perfsim.cli.output import print_answer, print_network, tell_written
from perfsim.cli.progress import progress
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.calibrate.measure.kernel_runs import MeasuredKernels
    from perfsim.calibrate.measure.profile import MeasuredProfile

__all__ = ["compute_command", "kernels_command", "network_command"]

_POINTS_A_LINE = 20
_KERNEL_POINTS_A_LINE = 50
"""Points between two lines of progress, where standard error is no terminal."""

_MAX_NOISY_NAMED = 5
"""Kernels with noisy times that the report names."""


def network_command(
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
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Time of the sweep, such as 10min; starting, checks and slow points come on top.",
        ),
    ] = None,
    tolerance: Annotated[
        str,
        typer.Option(
            "--tolerance",
            metavar="SHARE",
            help="Half-width of a median's 90 % interval to reach, 0.01% to 50%.",
        ),
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
        bool,
        typer.Option("--force", help="Replace a network file; write one whose fit is poor."),
    ] = False,
    profiles: ProfilesFlag = None,
    json: JsonFlag = False,
) -> None:
    """Measure the collectives of this job's ranks and fit a network file to them.

    Every rank runs it: under torchrun, or srun, or mpirun. Rank 0 prints and writes.

    An interrupted run goes on where it was, on the same hosts, interfaces and versions alone, and
    only if some of its points, measured again, take as long as before. While it measures, one
    message of each curve is measured again and again, and neighbouring hosts exchange messages in
    pairs. A time that changes, a slow host, stalled calls and repeats that differ by more than a
    factor 2 are told at the end, in the file, and by every prediction on it. A fit that misses
    its points by far more than their repeats differ is refused, unless by --force.
    """
    from perfsim.calibrate.measure import network_sweep
    from perfsim.calibrate.measure.repeats import parse_tolerance
    from perfsim.units import parse_bytes, parse_seconds

    request = network_sweep.NetworkRequest(
        out=out,
        backend=backend,
        collectives=_names(collectives),
        most_bytes=int(parse_bytes(most, "max_size")),
        budget_s=None if budget is None else parse_seconds(budget, "budget"),
        tolerance=parse_tolerance(tolerance),
        patience_s=parse_seconds(patience, "patience"),
        nics_per_node=nics_per_node,
        transport=transport,
        title=title,
        fresh=fresh,
        force=force,
    )
    with progress("points", every=_POINTS_A_LINE) as show:
        made = network_sweep.measure_network(request, show, profiles=profiles)
    if made is None:
        return
    print_network(made, json)


def compute_command(
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
    json: JsonFlag = False,
) -> None:
    """Measure a model's training step on this machine, layer by layer, with fake data."""
    from perfsim.calibrate.measure.profile import calibrate_compute

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
    tell_written(made.profile, made.positions)
    print_answer(made.to_dict, None, json, lambda: _print(made, batch))


def _print(made: MeasuredProfile, batch: int) -> None:
    from perfsim.units import format_seconds

    measured = made.measured
    moments = measured.moments
    typer.echo(
        f"whole step {format_seconds(measured.iteration_s)} (+-{measured.spread:.1%}),"
        f" {batch / measured.iteration_s:.4g} samples/s; with marks {measured.marked:.3f} times"
        f" that: forward {format_seconds(moments.forward_s)}, backward"
        f" {format_seconds(moments.backward_s)}, optimizer {format_seconds(moments.update_s)}"
    )
    for warning in made.warnings():
        typer.echo(f"warning: {warning}")
    if measured.unused:
        typer.echo(f"left out, as they have no gradient: {', '.join(measured.unused)}")


def kernels_command(
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
            "--max-values",
            "--max",
            metavar="N",
            help="fp32 values of the largest input, such as 1048576; of a GPU 2^28, a CPU 2^24.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", help="Time of all kernels, such as 10min."),
    ] = None,
    kernel_budget: Annotated[
        str, typer.Option("--kernel-budget", metavar="TIME", help="Time of one kernel.")
    ] = "20s",
    tolerance: Annotated[
        str,
        typer.Option(
            "--tolerance",
            metavar="SHARE",
            help="Half-width of a median's 90 % interval to reach, 0.01% to 50%.",
        ),
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
    json: JsonFlag = False,
) -> None:
    """Time the kernels that methods use on this machine, over sizes, into a device's files."""
    from perfsim.calibrate.measure.kernel_runs import KernelRequest, TimingRule, calibrate_kernels
    from perfsim.calibrate.measure.repeats import parse_tolerance
    from perfsim.units import parse_seconds

    if beside:
        _beside(device, json)
        return
    if most is not None and most < 1:
        raise RequestError("max", f"{most} is not allowed: it must be 1 or more.", value=most)
    rule = TimingRule(
        tolerance=parse_tolerance(tolerance),
        kernel_s=parse_seconds(kernel_budget, "kernel_budget"),
        budget_s=None if budget is None else parse_seconds(budget, "budget"),
    )
    chosen = _names(names)
    request = KernelRequest(out, gpu, device, chosen, most, rule, device_file, title, fresh, force)
    with progress("points", every=_KERNEL_POINTS_A_LINE) as show:
        made = calibrate_kernels(request, show)
    tell_written(made.points, made.device)
    print_answer(made.to_dict, None, json, lambda: _print_kernels(made))


def _print_kernels(made: MeasuredKernels) -> None:
    from perfsim.calibrate.measure.kernel_files import kernel_report
    from perfsim.data.files import escaped
    from perfsim.units import format_rate, format_seconds

    typer.echo(kernel_report(made.table))
    typer.echo("counted: by bytes, operations and launches, as where no point is known")
    for name, (value, _, what) in made.figures.items():
        write = {"memory_bandwidth": format_rate, "launch": format_seconds}.get(name, _flops)
        typer.echo(f"{name}: {write(value)} ({what})")
    if made.noisy:
        more = (
            f" and {len(made.noisy) - _MAX_NOISY_NAMED} more"
            if len(made.noisy) > _MAX_NOISY_NAMED
            else ""
        )
        typer.echo(f"noisy, is the machine idle? {'; '.join(made.noisy[:_MAX_NOISY_NAMED])}{more}")
    for line in made.stopped:
        typer.echo(f"left out: {line}")
    if made.cut:
        typer.echo(f"out of time: {', '.join(made.cut)}; the same command goes on from here")
    if made.missing:
        lacks = ", ".join(made.missing)
        typer.echo(f"no device file written: {lacks} must be measured too")
        return  # no prediction can be on this device yet
    folder = made.points.parent.parent
    typer.echo()
    typer.echo(escaped(f"use: perfsim predict --gpu {made.gpu} --profiles {folder} ..."))


def _beside(device: str | None, json: bool) -> None:
    from perfsim.calibrate.measure.overlap import measure_overlap

    measured = measure_overlap(device)
    if measured is None:
        return
    print_answer(measured.to_dict, None, json, lambda: typer.echo(measured.report()))


def _flops(rate: float) -> str:
    return f"{rate / 1e12:.4g} TFLOP/s"


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names of a list with commas, each once.

    Examples
    --------
    >>> _names("all_reduce, all_gather,all_reduce,"), _names(None)
    (('all_reduce', 'all_gather'), ())
    """
    parts = (part.strip() for part in (text or "").split(","))
    return tuple(dict.fromkeys(filter(None, parts)))
