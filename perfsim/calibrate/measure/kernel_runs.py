"""``perfsim calibrate kernels``: time the kernels of the device at hand and write its files."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perfsim.calibrate.measure.device import CpuClock, DeviceClock, KernelDevice, device_name
from perfsim.calibrate.measure.journals import KernelJournal, KernelPoint, KernelStop
from perfsim.calibrate.measure.kernel_benches import Bench, Call, Size, select_benches
from perfsim.calibrate.measure.kernel_files import (
    NEEDED_FIGURES,
    DeviceFigure,
    KernelLine,
    check_points,
    device_figures,
    device_text,
    holds_points,
    kernel_lines,
    noisy_points,
    other_rows,
    points_text,
)
from perfsim.calibrate.measure.repeats import MIN_REPEATS, ReportProgress, settled
from perfsim.compute.device import KERNELS_SUFFIX, Device, read_device
from perfsim.data.catalog import Catalog
from perfsim.data.files import today, write_text
from perfsim.errors import PerfsimError, RequestError, StoppedError
from perfsim.units import format_seconds

__all__ = [
    "DeviceFailedError",
    "KernelRequest",
    "MeasuredKernels",
    "TimingRule",
    "calibrate_kernels",
    "run_benches",
    "time_call",
]

CALIBRATE_KERNELS_SCHEMA = "perfsim/calibrate-kernels/1"
MAX_INPUT_ELEMENTS = {"cuda": 2**28, "cpu": 2**24}
"""fp32 values of the largest input: 1 GiB of a GPU, 64 MiB of a CPU. No source: chosen, beyond the
caches of either."""
WARM_UP_CALLS = 3
"""Calls thrown away where they are short: the first ones allocate, load code and pick algorithms.
No source: chosen."""
MAX_BUDGET_OVERRUN = 3
"""A point may take this many times its budget to get `MIN_REPEATS` repeats, so that one stall does
not become its time. No source: chosen."""
MIN_CALLS_LEFT = 2
"""Calls of the expected length that must fit into what is left of a kernel's time.
No source: chosen."""
_DEVICE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class DeviceFailedError(PerfsimError):
    """The device failed in the middle of a run; the sentence says what is kept of it."""


@dataclass(frozen=True, slots=True)
class TimingRule:
    """When a point is done, and when a kernel is.

    Parameters
    ----------
    tolerance : half the median's 90 % interval over the median at which a point is done
    kernel_s : a kernel's time over all its sizes [s]
    budget_s : time of the whole run [s]; None for no end
    most : repeats at most
    """

    tolerance: float = 0.02
    kernel_s: float = 20.0
    budget_s: float | None = None
    most: int = 200


@dataclass(frozen=True)
class KernelRequest:
    """What the user asked for.

    Parameters
    ----------
    out : folder of profiles; files go below its devices/
    gpu : the device's name in perfsim's words; None follows from what the driver says
    device : cuda or cpu; None is a GPU if there is one
    kernels : names of kernels; empty is all
    most : fp32 values of the largest input; None is `MAX_INPUT_ELEMENTS`
    rule : when points, kernels and the run are done
    device_file : write GPU.toml even if that GPU is known, with its rates and new figures
    title : one line on what the device is; None is what the driver calls it
    fresh : measure anew what an interrupted run has left
    force : replace points of these kernels that are there
    """

    out: Path = Path("profiles")
    gpu: str | None = None
    device: str | None = None
    kernels: tuple[str, ...] = ()
    most: int | None = None
    rule: TimingRule = field(default_factory=TimingRule)
    device_file: bool = False
    title: str | None = None
    fresh: bool = False
    force: bool = False


@dataclass(frozen=True)
class MeasuredKernels:
    """The files written, and what they say.

    Parameters
    ----------
    gpu : the device's name in perfsim's words
    points, device : files; None if no device file was to be written or too little was measured
    table, figures : what was measured
    stopped : kernels that ended before their largest size, and why
    cut : kernels that no time was left for
    noisy : points with few repeats or a wide interval
    missing : figures that the device file lacked, so that it was not written
    """

    gpu: str
    points: Path
    device: Path | None
    table: tuple[KernelLine, ...]
    figures: Mapping[str, DeviceFigure]
    stopped: tuple[str, ...]
    cut: tuple[str, ...]
    missing: tuple[str, ...]
    noisy: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that the command prints as JSON."""
        return {
            "schema": CALIBRATE_KERNELS_SCHEMA,
            "gpu": self.gpu,
            "points": str(self.points),
            "device": str(self.device) if self.device else None,
            "figures": {name: figure.value for name, figure in self.figures.items()},
            "kernels": [{**asdict(line), "over": line.over} for line in self.table],
            "stopped": list(self.stopped),
            "out_of_time": list(self.cut),
            "noisy": list(self.noisy),
        }


def calibrate_kernels(request: KernelRequest, report_progress: ReportProgress) -> MeasuredKernels:
    """Measure kernels on this machine, write their points, and a device file if there is none.

    Parameters
    ----------
    request : what was asked for
    report_progress : called after each point

    Raises
    ------
    RequestError
        If the request cannot be met, or a file cannot be written.
    StoppedError, DeviceFailedError
        If the user stops it, or the device fails: what was measured is kept.
    """
    device = KernelDevice(request.device)
    catalog = Catalog(request.out if (request.out / "devices").is_dir() else None)
    name = request.gpu
    if name is None:
        name = device_name(device.driver_name, catalog)
    if not _DEVICE_NAME.fullmatch(name) or name == "any":
        why = f"{name!r} is no name; lower-case letters, digits and '-'."
        raise RequestError("gpu", why, value=name)
    benches = select_benches(device, request.kernels)
    journal = _open_journal(request, name, device)
    try:
        most = request.most or MAX_INPUT_ELEMENTS[device.device]
        cut = run_benches(benches, device, most, request.rule, journal, report_progress)
    except (KeyboardInterrupt, RuntimeError) as error:
        stopped = isinstance(error, KeyboardInterrupt)
        why = "stopped" if stopped else f"the device failed ({error})"
        raise (StoppedError if stopped else DeviceFailedError)(
            f"calibrate kernels: {why.splitlines()[0]}; {len(journal.points)} points are kept in"
            f" {journal.path}, and the same command goes on from there."
        ) from None
    # An interrupted run may have left points of other kernels.
    names = {bench.name for bench in benches}
    if not any(point.kernel in names for point in journal.points):
        if not journal.points:
            journal.remove()
        stops = [stop.why for stop in journal.stops if stop.kernel in names]
        why = f": {stops[0]}" if stops else " in the time given"
        why = f"no kernel could be measured{why}."
        raise RequestError("", why, source="calibrate kernels")
    written = _write(request, device, catalog, name, benches, journal, cut)
    if not cut and holds_points(written.points, journal.points):
        journal.remove()
    return written


def _open_journal(request: KernelRequest, name: str, device: KernelDevice) -> KernelJournal:
    """Return the journal of this run, or of the interrupted run that it resumes."""
    folder = request.out / "devices"
    path = folder / f"{name}.kernels.jsonl"
    points = folder / f"{name}{KERNELS_SUFFIX}"
    if points.exists() and not (request.force or path.exists()):
        raise RequestError(
            "out",
            f"{str(points)!r} is there already; `force` measures anew, and keeps the points"
            " of kernels that are not measured.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError("out", f"{str(folder)!r}: {error.strerror}.") from None
    setting = {"device": device.driver_name, "software": device.software}
    return KernelJournal(path, setting, fresh=request.fresh)


def run_benches(
    benches: Sequence[Bench],
    device: KernelDevice,
    most: int,
    rule: TimingRule,
    journal: KernelJournal,
    report_progress: ReportProgress,
) -> list[str]:
    """Measure what the journal lacks; return the kernels that the whole run's time cut short.

    A kernel ends at the size (of that width) where memory or time runs out or its library
    refuses; the journal says why.

    Parameters
    ----------
    benches : what to measure
    device : where
    most : fp32 values that an input may hold
    rule : when points, kernels and the run are done
    journal : takes every point
    report_progress : called after each point
    """
    begun = time.perf_counter()
    total = sum(len(bench.sizes(most)) for bench in benches)
    done, cut = 0, []
    for bench in benches:
        sizes = bench.sizes(most)
        end = time.perf_counter() + rule.kernel_s
        for index, size in enumerate(sizes):
            key = bench.name, size.elements, size.width
            if not (journal.has(*key) or journal.stopped(*key)):
                now = time.perf_counter()
                if rule.budget_s is not None and now - begun >= rule.budget_s:
                    cut.append(bench.name)
                    break
                left = len(sizes) - index
                journal.add_point(_point(bench, device, size, rule, journal, end - now, left))
            done += 1
            report_progress(done, total, _words(bench, size, journal))
        device.free_memory()
    return cut


def _point(
    bench: Bench,
    device: KernelDevice,
    size: Size,
    rule: TimingRule,
    journal: KernelJournal,
    left_s: float,
    sizes_left: int,
) -> KernelPoint | KernelStop:
    """Measure one size; return a stop where memory, time or the library does not allow it."""
    key = bench.name, size.elements, size.width
    expected_s = _expected_s(bench, size, journal)
    if MIN_CALLS_LEFT * expected_s >= left_s:
        each = f", about {format_seconds(expected_s, 2)} a call" if expected_s else ""
        return KernelStop(*key, f"no time in {rule.kernel_s:g} s a kernel{each}", final=False)
    on_host = bench.only == "host"
    where, clock = (KernelDevice("cpu"), CpuClock()) if on_host else (device, device.clock)
    try:
        call = bench.make(where, size)
        seconds = time_call(call, clock, rule, left_s / sizes_left, bench.loop)
    except (RuntimeError, MemoryError) as error:
        return KernelStop(*key, _why(error), final=True)
    finally:
        call = None  # type: ignore[assignment]  # frees the inputs
        device.free_memory()
    return KernelPoint(*key, tuple(seconds))


def _expected_s(bench: Bench, size: Size, journal: KernelJournal) -> float:
    """Return the expected time of a call, by the largest smaller size; 0 where there is none."""
    smaller = [
        point
        for point in journal.points
        if (point.kernel, point.width) == (bench.name, size.width)
        and point.elements < size.elements
    ]
    if not smaller:
        return 0.0
    last = max(smaller, key=lambda point: point.elements)
    return last.median_s * math.pow(size.elements / last.elements, bench.growth) * bench.loop


def time_call(
    call: Call, clock: DeviceClock, rule: TimingRule, budget_s: float, loop: int = 1
) -> list[float]:
    """Return the seconds of one call, for each repeat.

    The device is idle before each repeat, so that a repeat holds all that a kernel costs on its
    own, with the launches that the host still has to make. With ``loop`` the calls between two
    marks wait behind one another and only the first one waits for the host.

    Parameters
    ----------
    call : what is timed
    clock : of the device
    rule : tolerance and repeats at most
    budget_s : time of this point [s]; a call that takes longer is repeated once, after one that
        may have loaded a library
    loop : calls between two marks
    """
    begun = time.perf_counter()

    def spent_s() -> float:
        return time.perf_counter() - begun

    def repeat_s() -> float:
        clock.wait()
        first = clock.mark()
        for _ in range(loop):
            call()
        last = clock.mark()
        clock.wait()
        return clock.between(first, last) / loop

    for _ in range(WARM_UP_CALLS):
        repeat_s()
        if spent_s() > budget_s / 4:
            break
    seconds = [repeat_s()]
    while not (
        settled(seconds, rule.tolerance)
        or seconds[-1] * loop >= budget_s
        or len(seconds) >= rule.most
        or (spent_s() >= budget_s and len(seconds) >= MIN_REPEATS)
        or spent_s() >= MAX_BUDGET_OVERRUN * budget_s
    ):
        seconds.append(repeat_s())
    return seconds


def _why(error: Exception) -> str:
    """Return in a few words why a kernel did not run."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    lack = isinstance(error, MemoryError) or "out of memory" in first or "allocate memory" in first
    return "out of memory" if lack else f"refused: {first[:160]}"


def _words(bench: Bench, size: Size, journal: KernelJournal) -> str:
    words = f"{bench.name}, {' x '.join(map(str, size.shape))}"
    key = bench.name, size.elements, size.width
    for point in reversed(journal.points):
        if (point.kernel, point.elements, point.width) == key:
            return f"{words}: {format_seconds(point.median_s)}"
    return f"{words}: left out"


def _write(
    request: KernelRequest,
    device: KernelDevice,
    catalog: Catalog,
    name: str,
    benches: Sequence[Bench],
    journal: KernelJournal,
    cut: Sequence[str],
) -> MeasuredKernels:
    """Write the files, each whole and only if it reads back."""
    path = request.out / "devices" / f"{name}{KERNELS_SUFFIX}"
    stopped = tuple(map(str, journal.stops))
    day = today()
    source = f"perfsim calibrate kernels on {device.driver_name}, {day}"
    about = {
        "gpu": name,
        "software": device.software,
        "source": source,
        "licence": "the measurer's own",
        "date": day,
        "left out": "; ".join([*stopped, *(f"{kernel}: no time left" for kernel in cut)]),
    }
    before = path if path.is_file() else catalog.beside("devices", name, KERNELS_SUFFIX)
    measured = {bench.name for bench in benches} & {point.kernel for point in journal.points}
    kept = other_rows(before, measured)
    text = points_text(benches, journal, about) + kept
    check_points(text, name)
    figures = device_figures(journal)
    toml = _device_file(request, device, catalog, name, figures, source)
    write_text(path, text)
    device_path = None
    if toml:
        device_path = path.with_name(f"{name}.toml")
        write_text(device_path, toml)
    wanted = request.device_file or name not in catalog.files("devices")
    return MeasuredKernels(
        gpu=name,
        points=path,
        device=device_path,
        table=tuple(kernel_lines(benches, journal, _known_device(catalog, name, device_path))),
        figures=figures,
        stopped=stopped,
        cut=tuple(cut),
        missing=tuple(word for word in NEEDED_FIGURES if word not in figures) if wanted else (),
        noisy=tuple(noisy_points(journal.points)),
    )


def _device_file(
    request: KernelRequest,
    device: KernelDevice,
    catalog: Catalog,
    name: str,
    figures: Mapping[str, DeviceFigure],
    source: str,
) -> str | None:
    """Return the text of a device file if one is to be written and enough was measured."""
    from perfsim.data.toml import parse_toml

    path = catalog.files("devices").get(name)
    if path and not request.device_file:
        return None
    before: Mapping[str, Any] | None = parse_toml(path)[0] if path else None
    title = request.title or device.driver_name
    return device_text(name, title, device.memory_bytes, figures, source, before)


def _known_device(catalog: Catalog, name: str, written: Path | None) -> Device | None:
    path = written or catalog.files("devices").get(name)
    return read_device(path) if path else None
