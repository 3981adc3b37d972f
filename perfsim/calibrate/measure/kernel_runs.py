"""``perfsim calibrate kernels``: from the device at hand to its files of kernels and rates."""

from __future__ import annotations

import csv
import io
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.calibrate.measure.kernel_benches import (
    PASSES,
    RATES,
    Bench,
    Call,
    KernelDevice,
    Size,
    chosen,
)
from perfsim.calibrate.measure.launch import device_name
from perfsim.calibrate.measure.repeats import FEWEST, KernelJournal, KernelPoint, Stop, settled
from perfsim.calibrate.measure.subject import CpuClock, DeviceClock
from perfsim.compute.device import (
    ANY_GPU,
    DEVICE_SCHEMA,
    KERNELS_COLUMNS,
    KERNELS_SCHEMA,
    KERNELS_SUFFIX,
    Device,
    read_device,
    read_kernels,
)
from perfsim.compute.kernel import FLOAT
from perfsim.data.catalog import Catalog
from perfsim.data.files import write_text
from perfsim.data.tables import read_table, scatter
from perfsim.errors import PerfsimError, RequestError
from perfsim.quantity import SPREAD
from perfsim.units import format_count, format_seconds

__all__ = [
    "NEEDED",
    "NOISY",
    "DeviceFigures",
    "KernelLine",
    "KernelRequest",
    "MeasuredKernels",
    "ReportKernel",
    "TimingRule",
    "calibrate_kernels",
    "check_points",
    "device_text",
    "figures",
    "lines",
    "measure",
    "noisy",
    "other_rows",
    "points_text",
    "report",
    "run",
]

OWN = {"kind": "measured"}
LARGE = 4
"""Streams count from a quarter of the largest size on: past caches, if that size is."""

NEEDED = ("memory_bandwidth", "launch", "fp32")
"""Without these a device file says nothing."""

DeviceFigures = dict[str, tuple[float, float | None, str]]
"""Name -> value [B/s, s, FLOP/s], its spread, and where it was read off."""


def figures(journal: KernelJournal) -> DeviceFigures:
    """Return what a device file states, as far as it was measured.

    ``memory_bandwidth``: bytes over time of large adds, copies and scalings, their median, with
    their scatter. ``launch``: of a chain of launches. A precision: 2 n^3 over the time of the
    square product that reaches most.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     journal = KernelJournal(Path(folder) / "a.jsonl", {})
    ...     journal.add(KernelPoint("stream_copy", 10**6, 0, (8e-6,)))
    ...     figures(journal)["memory_bandwidth"][:2]
    (1000000000000.0, None)
    """
    found: DeviceFigures = {}
    streams = [point for point in journal.points if point.kernel in PASSES]
    if streams:
        most = max(point.elements for point in streams)
        large = [point for point in streams if point.elements * LARGE >= most]
        rates = [PASSES[one.kernel] * FLOAT * one.elements / one.median_s for one in large]
        least = min(point.elements for point in large)
        what = f"add, copy and scale of {least:,} to {most:,} fp32 values"
        found["memory_bandwidth"] = median(rates), scatter(rates), what
    launches = [point for point in journal.points if point.kernel == "launch_queued"]
    if launches:
        found["launch"] = launches[0].median_s, None, "a chain of kernels on 1024 values"
    for precision, bench in RATES.items():
        squares = [point for point in journal.points if point.kernel == bench.name]
        if squares:
            best = max(squares, key=_flops)
            side = round(best.elements**0.5)
            found[precision] = _flops(best), None, f"product of {side} x {side} matrices"
    return found


def device_text(
    name: str,
    title: str,
    memory_bytes: float,
    measured: DeviceFigures,
    source: str,
    known: Mapping[str, Any] | None = None,
) -> str | None:
    """Return a device file's text; None where bandwidth, launch or the fp32 rate is missing.

    A matrix rate stands in the file's ``peak`` as kind measured: what products reached, since no
    data sheet is asked.

    Parameters
    ----------
    name, title : the device's
    memory_bytes : of the device
    measured : see `figures`
    source : of the measurement
    known : a device file as read; its aliases, power, references and rates of a data sheet stay
    """
    import tomli_w

    if not measured.keys() >= set(NEEDED):
        return None
    table: dict[str, Any] = {
        "schema": DEVICE_SCHEMA,
        "name": name,
        "title": title,
        "aliases": [],
        "memory": f"{memory_bytes / 1e9:.4g} GB",
        "references": [],
        **(known or {}),
    }
    bandwidth, spread, _ = measured["memory_bandwidth"]
    table["memory_bandwidth"] = {"value": f"{bandwidth / 1e9:.4g} GB/s"}
    table["launch"] = {"value": f"{measured['launch'][0] * 1e6:.3g} us"}
    if spread is not None:
        table["memory_bandwidth"]["spread"] = round(min(spread, SPREAD.most), 3)
    for key in ("memory_bandwidth", "launch"):
        table[key] |= {"kind": "measured", "source": f"{measured[key][2]}, {source}"}
    rates = dict((known or {}).get("rates", {}))
    for precision in RATES:
        if precision in measured and rates.get(precision, OWN).get("kind") == "measured":
            flops, _, what = measured[precision]
            rates[precision] = {
                "peak": f"{flops / 1e9:.4g} GFLOP/s",
                "kind": "measured",
                "source": f"reached, not a data sheet's: {what}, {source}",
            }
    table["rates"] = rates
    return tomli_w.dumps(table)


def _flops(point: KernelPoint) -> float:
    return float(2 * point.elements**1.5 / point.median_s)


def points_text(benches: Sequence[Bench], journal: KernelJournal, about: Mapping[str, str]) -> str:
    """Return the file's text: a row a point, with the median repeat.

    Parameters
    ----------
    benches : what was measured, in the order of rows
    journal : the points
    about : gpu, software, source, licence, date, and left out if anything is
    """
    text = io.StringIO()
    for key in ("gpu", "licence", "date", "left out"):
        if about.get(key):
            text.write(f"# {key}: {' '.join(about[key].split())}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(KERNELS_COLUMNS)
    for bench in benches:
        shapes = {(size.elements, size.width): size.shape for size in bench.sizes(10**18)}
        for point in journal.points:
            if point.kernel != bench.name:
                continue
            shape = shapes.get((point.elements, point.width), (point.elements,))
            note = f"{' x '.join(map(str, shape))}; {bench.does}; {_repeats(point.seconds)}"
            if math.isfinite(point.spread):
                note += f" +-{point.spread:.1%}"
            origin = ("measured", about["software"], about["source"], note)
            time_us = f"{point.median_s * 1e6:.4g}"
            table.writerow((point.kernel, point.elements, point.width, time_us, *origin))
    return f"# schema: {KERNELS_SCHEMA}\n{text.getvalue()}"


def other_rows(path: Path | None, measured: Collection[str]) -> str:
    """Return the rows of a file of kernels for names that were not measured, as they stand.

    The file written is read instead of that one: points that only it has (codecs that are no
    PyTorch kernels, say) would be lost.

    Raises
    ------
    DataError
        If the file breaks the format.
    """
    if path is None:
        return ""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    names = path.name.removesuffix(KERNELS_SUFFIX), ANY_GPU
    for _, cells in read_table(path, KERNELS_SCHEMA, KERNELS_COLUMNS, names):
        if cells["kernel"] not in measured:
            table.writerow([cells[column] for column in KERNELS_COLUMNS])
    return text.getvalue()


def check_points(text: str, gpu: str) -> None:
    """Read a file's text as predictions will.

    Raises
    ------
    DataError
        If it breaks the format: then nothing is written.
    """
    with TemporaryDirectory() as work:
        trial = Path(work) / f"{gpu}.kernels.csv"
        trial.write_text(text, encoding="utf-8")
        read_kernels(trial)


def _repeats(seconds: Sequence[float]) -> str:
    return "1 repeat" if len(seconds) == 1 else f"median of {len(seconds)}"


HEAD = ("kernel", "points", "width", "elements", "time", "elements", "time", "counted", "over it")
NONE = "-"
NOISY = 0.25
"""Half the 90 % interval of a median over it, above which a point is called noisy."""


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel at one width: its smallest and largest point.

    Parameters
    ----------
    kernel, width, points : which, and how many sizes
    elements, seconds : of the smallest and of the largest
    counted_s : what bytes, operations and launches say of the largest; None without such a rule
    """

    kernel: str
    width: int
    points: int
    elements: tuple[int, int]
    seconds: tuple[float, float]
    counted_s: float | None

    @property
    def over(self) -> float | None:
        """The largest point's time over the counted one."""
        return self.seconds[1] / self.counted_s if self.counted_s else None


def lines(
    benches: Sequence[Bench], journal: KernelJournal, device: Device | None
) -> list[KernelLine]:
    """Return a line for each kernel and width.

    Parameters
    ----------
    benches, journal : what was measured
    device : counts by its bandwidth, launch and rate, its points put aside; None counts nothing
    """
    plain = None if device is None else replace(device, points={}, references=())
    found = []
    for bench in benches:
        shapes = {(size.elements, size.width): size for size in bench.sizes(10**18)}
        points = [point for point in journal.points if point.kernel == bench.name]
        for width in sorted({point.width for point in points}):
            of = sorted((one for one in points if one.width == width), key=lambda one: one.elements)
            last = of[-1]
            counted_s = _counted_s(bench, shapes.get((last.elements, last.width)), plain)
            elements = of[0].elements, last.elements
            seconds = of[0].median_s, last.median_s
            found.append(KernelLine(bench.name, width, len(of), elements, seconds, counted_s))
    return found


def noisy(points: Iterable[KernelPoint]) -> list[str]:
    """Return the points that are known badly, worst first: too few repeats, or far apart.

    Examples
    --------
    >>> steady, lone = KernelPoint("qr", 64, 1, (1.0,) * 5), KernelPoint("qr", 256, 1, (1.0,))
    >>> noisy([steady, lone, KernelPoint("qr", 1024, 1, (1.0, 1.0, 1.0, 9.0, 9.0))])
    ['qr at 256, width 1 (1 repeat)', 'qr at 1,024, width 1 (+-400%)']
    """
    found = sorted(
        (one for one in points if one.spread > NOISY), key=lambda one: one.spread, reverse=True
    )
    return [f"{_place(one)} ({_doubt(one)})" for one in found]


def _place(point: KernelPoint) -> str:
    return f"{point.kernel} at {point.elements:,}" + (
        f", width {point.width}" if point.width else ""
    )


def _doubt(point: KernelPoint) -> str:
    if math.isfinite(point.spread):
        return f"+-{point.spread:.0%}"
    return f"{len(point.seconds)} repeat{'s' if len(point.seconds) > 1 else ''}"


def report(table: Sequence[KernelLine]) -> str:
    """Return the lines as a table in words with units."""
    rows = [HEAD, *map(_cells, table)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _cells(line: KernelLine) -> tuple[str, ...]:
    ends = zip(line.elements, line.seconds, strict=True)
    points = [word for size, time in ends for word in (format_count(size), format_seconds(time, 3))]
    counted = NONE if line.counted_s is None else format_seconds(line.counted_s, 3)
    over = NONE if line.over is None else f"{line.over:.2f}"
    return line.kernel, str(line.points), str(line.width or NONE), *points, counted, over


def _counted_s(bench: Bench, size: Size | None, device: Device | None) -> float | None:
    if bench.counted is None or size is None or device is None:
        return None
    return sum(device.cost(kernel).seconds for kernel in bench.counted(size))


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


def measure(
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


def run(
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
) -> KernelPoint | Stop:
    """Measure one size; memory, time or library that say no make a stop of it."""
    of = bench.name, size.elements, size.width
    expected_s = _expected_s(bench, size, journal)
    if ENOUGH * expected_s >= left_s:
        each = f", about {format_seconds(expected_s, 2)} a call" if expected_s else ""
        return Stop(*of, f"no time in {rule.kernel_s:g} s a kernel{each}", final=False)
    host = bench.only == "host"
    here, clock = (KernelDevice("cpu"), CpuClock()) if host else (place, place.clock)
    try:
        call = bench.make(here, size)
        seconds = measure(call, clock, rule, left_s / sizes_left, bench.loop)
    except (RuntimeError, MemoryError) as error:
        return Stop(*of, _why(error), final=True)
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
    benches = chosen(place, wanted.kernels)
    folder = wanted.out / "devices"
    journal = _journal(wanted, folder, name, place)
    try:
        most = wanted.most or MOST[place.device]
        cut = run(benches, place, most, wanted.rule, journal, tell)
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
    points = folder / f"{name}{KERNELS_SUFFIX}"
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
    path = wanted.out / "devices" / f"{name}{KERNELS_SUFFIX}"
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
    before = path if path.is_file() else known.beside("devices", name, KERNELS_SUFFIX)
    kept = other_rows(before, {point.kernel for point in journal.points})
    text = points_text(benches, journal, about) + kept
    check_points(text, name)
    found = figures(journal)
    toml = _device_file(wanted, place, known, name, found, source)
    write_text(path, text)
    device = None
    if toml:
        device = path.with_name(f"{name}.toml")
        write_text(device, toml)
    counts = lines(benches, journal, _device(known, name, device))
    asked = wanted.device_file or name not in known.files("devices")
    missing = tuple(word for word in NEEDED if word not in found) if asked else ()
    left = tuple(stopped), tuple(cut), missing, tuple(noisy(journal.points))
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
