"""``perfsim calibrate kernels``: from the device at hand to its files of kernels and rates."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from perfsim.calibrate.measure.device import CpuClock, DeviceClock, KernelDevice, device_name
from perfsim.calibrate.measure.journals import KernelJournal, KernelPoint, KernelStop
from perfsim.calibrate.measure.kernel_benches import Bench, Call, Size, select_benches
from perfsim.calibrate.measure.kernel_files import (
    NEEDED_FIGURES,
    DeviceFigures,
    KernelLine,
    check_points,
    device_figures,
    device_text,
    kernel_lines,
    noisy_points,
    other_rows,
    points_text,
)
from perfsim.calibrate.measure.repeats import FEWEST, settled
from perfsim.compute.device import (
    POINTS,
    Device,
    read_device,
)
from perfsim.data.catalog import Catalog
from perfsim.data.files import write_text
from perfsim.errors import PerfsimError, RequestError
from perfsim.units import format_seconds

__all__ = [
    "KernelRequest",
    "MeasuredKernels",
    "ReportKernel",
    "TimingRule",
    "calibrate_kernels",
    "run_benches",
    "time_call",
]


WARM_UP = 3
"""Calls thrown away, where they are short: the first allocates, loads code and picks algorithms."""
PATIENCE = 3
"""So many times a point's time it may take to get `FEWEST` repeats, lest one stall be its time."""


@dataclass(frozen=True, slots=True)
class TimingRule:
    """When a point is done, and when a kernel is.

    Parameters
    ----------
    tolerance : half the median's 90 % interval over the median that is tight enough
    kernel_s : a kernel's time over all its sizes [s]
    budget_s : time of the whole run [s]; None for no end
    most : repeats at most
    """

    tolerance: float = 0.02
    kernel_s: float = 20.0
    budget_s: float | None = None
    most: int = 200


def time_call(
    call: Call, clock: DeviceClock, rule: TimingRule, budget_s: float, loop: int = 1
) -> list[float]:
    """Return the seconds of one call, for each repeat.

    Before each repeat the device is waited for, so that a repeat holds what a kernel costs on its
    own: the launches that the host still has to make, too. With ``loop`` the calls between two
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

    def once() -> float:
        clock.wait()
        first = clock.mark()
        for _ in range(loop):
            call()
        last = clock.mark()
        clock.wait()
        return clock.between(first, last) / loop

    for _ in range(WARM_UP):
        once()
        if spent_s() > budget_s / 4:
            break
    seconds = [once()]
    while not (
        settled(seconds, rule.tolerance)
        or seconds[-1] * loop >= budget_s
        or len(seconds) >= rule.most
        or (spent_s() >= budget_s and len(seconds) >= FEWEST)
        or spent_s() >= PATIENCE * budget_s
    ):
        seconds.append(once())
    return seconds


ReportKernel = Callable[[int, int, str], None]
"""Told how many of how many points are behind, and the last one in words."""

ENOUGH = 2
"""Calls of the expected length that must fit into what is left of a kernel's time."""


def run_benches(
    benches: Sequence[Bench],
    place: KernelDevice,
    most: int,
    rule: TimingRule,
    journal: KernelJournal,
    tell: ReportKernel,
) -> list[str]:
    """Measure what the journal does not have; return the kernels that the whole time cut short.

    A kernel that runs out of memory or time at a size, or is refused by its library, ends there
    (at that width), and the journal says why.

    Parameters
    ----------
    benches : what to measure
    place : the device
    most : fp32 values that an input may hold
    rule : when points, kernels and the run are done
    journal : takes every point
    tell : is told of progress
    """
    begun = time.perf_counter()
    total = sum(len(bench.sizes(most)) for bench in benches)
    behind, cut = 0, []
    for bench in benches:
        sizes = bench.sizes(most)
        ends = time.perf_counter() + rule.kernel_s
        for at, size in enumerate(sizes):
            of = bench.name, size.elements, size.width
            if not (journal.has(*of) or journal.stopped(*of)):
                now = time.perf_counter()
                if rule.budget_s is not None and now - begun >= rule.budget_s:
                    cut.append(bench.name)
                    break
                journal.add(_point(bench, place, size, rule, journal, ends - now, len(sizes) - at))
            behind += 1
            tell(behind, total, _words(bench, size, journal))
        place.empty()
    return cut


def _point(
    bench: Bench,
    place: KernelDevice,
    size: Size,
    rule: TimingRule,
    journal: KernelJournal,
    left_s: float,
    sizes_left: int,
) -> KernelPoint | KernelStop:
    """Measure one size; memory, time or library that say no make a stop of it."""
    of = bench.name, size.elements, size.width
    expected_s = _expected_s(bench, size, journal)
    if ENOUGH * expected_s >= left_s:
        each = f", about {format_seconds(expected_s, 2)} a call" if expected_s else ""
        return KernelStop(*of, f"no time in {rule.kernel_s:g} s a kernel{each}", final=False)
    host = bench.only == "host"
    here, clock = (KernelDevice("cpu"), CpuClock()) if host else (place, place.clock)
    try:
        call = bench.make(here, size)
        seconds = time_call(call, clock, rule, left_s / sizes_left, bench.loop)
    except (RuntimeError, MemoryError) as error:
        return KernelStop(*of, _why(error), final=True)
    finally:
        call = None  # type: ignore[assignment]
        place.empty()
    return KernelPoint(*of, tuple(seconds))


def _expected_s(bench: Bench, size: Size, journal: KernelJournal) -> float:
    """Return what a call is expected to take, from the size before; 0 where there is none."""
    before = [
        point
        for point in journal.points
        if (point.kernel, point.width) == (bench.name, size.width)
        and point.elements < size.elements
    ]
    if not before:
        return 0.0
    last = max(before, key=lambda point: point.elements)
    return last.median_s * math.pow(size.elements / last.elements, bench.growth) * bench.loop


def _why(error: Exception) -> str:
    """Return in a few words why a kernel did not run."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    lack = isinstance(error, MemoryError) or "out of memory" in first or "allocate memory" in first
    return "out of memory" if lack else f"refused: {first[:160]}"


def _words(bench: Bench, size: Size, journal: KernelJournal) -> str:
    words = f"{bench.name}, {' x '.join(map(str, size.shape))}"
    of = bench.name, size.elements, size.width
    for point in reversed(journal.points):
        if (point.kernel, point.elements, point.width) == of:
            return f"{words}: {format_seconds(point.median_s)}"
    return f"{words}: left out"


CALIBRATE_KERNELS_SCHEMA = "perfsim/calibrate-kernels/1"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
MOST = {"cuda": 2**28, "cpu": 2**24}
"""fp32 values of the largest input: 1 GiB of a GPU, 64 MiB of a CPU, past the caches of either."""


class StoppedError(PerfsimError):
    """The user stopped a run, or the device failed."""


@dataclass(frozen=True)
class KernelRequest:
    """What the user asked for.

    Parameters
    ----------
    out : folder of profiles; files go below its devices/
    gpu : the device's name in perfsim's words; None is found from what the driver says
    device : cuda or cpu; None is a GPU if there is one
    kernels : which; empty is all
    most : fp32 values of the largest input; None is `MOST`
    rule : when points, kernels and the run are done
    device_file : write GPU.toml even where that GPU is known, with its rates and new figures
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
    """The files written, and what stands in them.

    Parameters
    ----------
    gpu : the device's name in perfsim's words
    points, device : files; None where no device file was to be written or too little was measured
    table, figures : what was found
    stopped : kernels that ended before their largest size, and why
    cut : kernels for which no time was left
    noisy : points with few repeats or a wide interval
    missing : figures without which the device file that was to be written was not
    """

    gpu: str
    points: Path
    device: Path | None
    table: tuple[KernelLine, ...]
    figures: DeviceFigures
    stopped: tuple[str, ...]
    cut: tuple[str, ...]
    missing: tuple[str, ...]
    noisy: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``calibrate kernels --json`` prints."""
        return {
            "schema": CALIBRATE_KERNELS_SCHEMA,
            "gpu": self.gpu,
            "points": str(self.points),
            "device": str(self.device) if self.device else None,
            "figures": {name: value for name, (value, _, _) in self.figures.items()},
            "kernels": [{**asdict(line), "over": line.over} for line in self.table],
            "stopped": list(self.stopped),
            "out_of_time": list(self.cut),
            "noisy": list(self.noisy),
        }


def calibrate_kernels(wanted: KernelRequest, tell: ReportKernel) -> MeasuredKernels:
    """Measure kernels on this machine and write their points, and a device file where none is.

    Parameters
    ----------
    wanted : what was asked for
    tell : is told of progress

    Raises
    ------
    RequestError
        If the request cannot be met, or a file cannot be written.
    StoppedError
        If the user stops it or the device fails: what was measured is kept.
    """
    place = KernelDevice(wanted.device)
    known = Catalog(wanted.out if (wanted.out / "devices").is_dir() else None)
    name = wanted.gpu or device_name(place.word, known.files("devices"))
    if not NAME.fullmatch(name) or name == "any":
        raise RequestError("gpu", f"{name!r} is no name; lower-case letters, digits and '-'.")
    benches = select_benches(place, wanted.kernels)
    folder = wanted.out / "devices"
    journal = _journal(wanted, folder, name, place)
    try:
        most = wanted.most or MOST[place.device]
        cut = run_benches(benches, place, most, wanted.rule, journal, tell)
    except (KeyboardInterrupt, RuntimeError) as error:
        why = "stopped" if isinstance(error, KeyboardInterrupt) else f"the device failed ({error})"
        raise StoppedError(
            f"calibrate kernels: {why.splitlines()[0]}; {len(journal.points)} points are kept in"
            f" {journal.path}, and the same command goes on from there."
        ) from None
    if not journal.points:
        journal.remove()
        why = f": {journal.stops[0].why}" if journal.stops else " in the time given"
        raise RequestError(f"calibrate kernels: no kernel could be measured{why}.")
    made = _write(wanted, place, known, name, benches, journal, cut)
    if not cut:
        journal.remove()
    return made


def _journal(wanted: KernelRequest, folder: Path, name: str, place: KernelDevice) -> KernelJournal:
    """Return the record of this run, or of the one to go on with."""
    path = folder / f"{name}.kernels.jsonl"
    points = folder / f"{name}{POINTS}"
    if points.exists() and not (wanted.force or path.exists()):
        raise RequestError(
            "out",
            f"{str(points)!r} is there already; `force` measures anew, and keeps the points"
            " of kernels that are not measured.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError("out", f"{str(folder)!r}: {error.strerror}.") from None
    setting = {"device": place.word, "software": place.software}
    return KernelJournal(path, setting, fresh=wanted.fresh)


def _write(
    wanted: KernelRequest,
    place: KernelDevice,
    known: Catalog,
    name: str,
    benches: Sequence[Bench],
    journal: KernelJournal,
    cut: Sequence[str],
) -> MeasuredKernels:
    """Write the files, each whole and only if it reads back."""
    path = wanted.out / "devices" / f"{name}{POINTS}"
    stopped = list(map(str, journal.stops))
    today = date.today().isoformat()
    source = f"perfsim calibrate kernels on {place.word}, {today}"
    about = {
        "gpu": name,
        "software": place.software,
        "source": source,
        "licence": "the measurer's own",
        "date": today,
        "left out": "; ".join([*stopped, *(f"{one}: no time left" for one in cut)]),
    }
    before = path if path.is_file() else known.beside("devices", name, POINTS)
    kept = other_rows(before, {point.kernel for point in journal.points})
    text = points_text(benches, journal, about) + kept
    check_points(text, name)
    found = device_figures(journal)
    toml = _device_file(wanted, place, known, name, found, source)
    write_text(path, text)
    device = None
    if toml:
        device = path.with_name(f"{name}.toml")
        write_text(device, toml)
    counts = kernel_lines(benches, journal, _device(known, name, device))
    asked = wanted.device_file or name not in known.files("devices")
    missing = tuple(word for word in NEEDED_FIGURES if word not in found) if asked else ()
    left = tuple(stopped), tuple(cut), missing, tuple(noisy_points(journal.points))
    return MeasuredKernels(name, path, device, tuple(counts), found, *left)


def _device_file(
    wanted: KernelRequest,
    place: KernelDevice,
    known: Catalog,
    name: str,
    found: DeviceFigures,
    source: str,
) -> str | None:
    """Return the text of a device file where one is to be written and enough was measured."""
    from perfsim.data.toml import read_toml

    path = known.files("devices").get(name)
    if path and not wanted.device_file:
        return None
    before: Mapping[str, Any] | None = read_toml(path).values if path else None
    title = wanted.title or place.word
    return device_text(name, title, place.memory_bytes, found, source, before)


def _device(known: Catalog, name: str, written: Path | None) -> Device | None:
    path = written or known.files("devices").get(name)
    return read_device(path) if path else None
