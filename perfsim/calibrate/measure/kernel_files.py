"""Kernel files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from perfsim.calibrate.measure.journals import KernelJournal, KernelPoint
from perfsim.calibrate.measure.kernel_benches import PASSES, RATES, Bench, Size
from perfsim.compute.device import (
    ANY,
    DEVICE_SCHEMA,
    KERNELS_COLUMNS,
    KERNELS_SCHEMA,
    POINTS,
    Device,
    read_kernels,
)
from perfsim.compute.kernel import FLOAT
from perfsim.data.tables import read_table, scatter
from perfsim.quantity import SPREAD
from perfsim.units import format_count, format_seconds

__all__ = [
    "NEEDED_FIGURES",
    "NOISY",
    "DeviceFigures",
    "KernelLine",
    "check_points",
    "device_figures",
    "device_text",
    "kernel_lines",
    "kernel_report",
    "noisy_points",
    "other_rows",
    "points_text",
]

OWN = {"kind": "measured"}


LARGE = 4
"""Streams count from a quarter of the largest size on: past caches, if that size is."""


NEEDED_FIGURES = ("memory_bandwidth", "launch", "fp32")
"""Without these a device file says nothing."""


DeviceFigures = dict[str, tuple[float, float | None, str]]
"""Name -> value [B/s, s, FLOP/s], its spread, and where it was read off."""


def device_figures(journal: KernelJournal) -> DeviceFigures:
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
    ...     device_figures(journal)["memory_bandwidth"][:2]
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
    measured : see `device_figures`
    source : of the measurement
    known : a device file as read; its aliases, power, references and rates of a data sheet stay
    """
    import tomli_w

    if not measured.keys() >= set(NEEDED_FIGURES):
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
    names = path.name.removesuffix(POINTS), ANY
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


def kernel_lines(
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


def noisy_points(points: Iterable[KernelPoint]) -> list[str]:
    """Return the points that are known badly, worst first: too few repeats, or far apart.

    Examples
    --------
    >>> steady, lone = KernelPoint("qr", 64, 1, (1.0,) * 5), KernelPoint("qr", 256, 1, (1.0,))
    >>> noisy_points([steady, lone, KernelPoint("qr", 1024, 1, (1.0, 1.0, 1.0, 9.0, 9.0))])
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


def kernel_report(table: Sequence[KernelLine]) -> str:
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
