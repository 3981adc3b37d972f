"""What a run of kernels leaves: the files of points and of the device, and the printed table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from perfsim.calibrate.measure.journals import KernelJournal, KernelPoint
from perfsim.calibrate.measure.kernel_benches import MATRIX_BENCHES, STREAM_PASSES, Bench, Size
from perfsim.compute.device import (
    ANY_GPU,
    DEVICE_SCHEMA,
    KERNELS_COLUMNS,
    KERNELS_SCHEMA,
    KERNELS_SUFFIX,
    Device,
    read_kernels,
)
from perfsim.compute.kernel import FLOAT
from perfsim.data.tables import read_table, repeat_spread
from perfsim.quantity import SPREAD_LIMIT
from perfsim.sums import sum_in_order
from perfsim.units import format_count, format_seconds

__all__ = [
    "NEEDED_FIGURES",
    "DeviceFigure",
    "KernelLine",
    "check_points",
    "device_figures",
    "device_text",
    "holds_points",
    "kernel_lines",
    "kernel_report",
    "noisy_points",
    "other_rows",
    "points_text",
]

NEEDED_FIGURES = ("memory_bandwidth", "launch", "fp32")
"""Without these a device file says too little for a prediction."""
LARGE_STREAM_SHARE = 4
"""Streams count from a quarter of the largest size on, beyond caches if the largest is.
No source: chosen."""
NOISY_SPREAD = 0.25
"""A point is called noisy where half its median's 90 % interval is above this share of it.
No source: chosen."""
_ALL_SIZES = 10**18
"""A limit of elements that no bench's sizes reach."""


class DeviceFigure(NamedTuple):
    """A figure of a device [B/s, s or FLOP/s], its spread, and what it was measured on."""

    value: float
    spread: float | None
    measured_on: str


def device_figures(journal: KernelJournal) -> dict[str, DeviceFigure]:
    """Return what a device file states, as far as it was measured.

    ``memory_bandwidth``: median of bytes over time of large adds, copies and scalings, and their
    scatter. ``launch``: one launch in a chain of them. A precision: 2 n^3 over the time of the
    square product that reaches the highest rate.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     journal = KernelJournal(Path(folder) / "a.jsonl", {})
    ...     journal.add_point(KernelPoint("stream_copy", 10**6, 0, (8e-6,)))
    ...     device_figures(journal)["memory_bandwidth"][:2]
    (1000000000000.0, None)
    """
    figures: dict[str, DeviceFigure] = {}
    streams = [point for point in journal.points if point.kernel in STREAM_PASSES]
    if streams:
        most = max(point.elements for point in streams)
        large = [point for point in streams if point.elements * LARGE_STREAM_SHARE >= most]
        rates = [
            STREAM_PASSES[point.kernel] * FLOAT * point.elements / point.median_s for point in large
        ]
        least = min(point.elements for point in large)
        what = f"add, copy and scale of {least:,} to {most:,} fp32 values"
        figures["memory_bandwidth"] = DeviceFigure(median(rates), repeat_spread(rates), what)
    launches = [point for point in journal.points if point.kernel == "launch_queued"]
    if launches:
        what = "a chain of kernels on 1024 values"
        figures["launch"] = DeviceFigure(launches[0].median_s, None, what)
    for precision, bench in MATRIX_BENCHES.items():
        squares = [point for point in journal.points if point.kernel == bench.name]
        if squares:
            best = max(squares, key=_flops)
            side = round(best.elements**0.5)
            what = f"product of {side} x {side} matrices"
            figures[precision] = DeviceFigure(_flops(best), None, what)
    return figures


def _flops(point: KernelPoint) -> float:
    """Return the rate of a product of square matrices [FLOP/s]."""
    return float(2 * point.elements**1.5 / point.median_s)


def device_text(
    name: str,
    title: str,
    memory_bytes: float,
    measured: Mapping[str, DeviceFigure],
    source: str,
    known: Mapping[str, Any] | None = None,
) -> str | None:
    """Return a device file's text; None if bandwidth, launch or the fp32 rate is missing.

    A matrix rate goes into the file's ``peak`` as kind measured: it is what products reached, not
    what a data sheet promises.

    Parameters
    ----------
    name, title : the device's
    memory_bytes : of the device, as PyTorch names it
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
    table["visible_memory"] = {
        "value": f"{memory_bytes / 2**30:.2f} GiB",
        "kind": "measured",
        "source": f"what PyTorch names as its memory, {source}",
    }
    bandwidth, launch = measured["memory_bandwidth"], measured["launch"]
    table["memory_bandwidth"] = {"value": f"{bandwidth.value / 1e9:.4g} GB/s"}
    table["launch"] = {"value": f"{launch.value * 1e6:.3g} us"}
    if bandwidth.spread is not None:
        table["memory_bandwidth"]["spread"] = round(min(bandwidth.spread, SPREAD_LIMIT.most), 3)
    for key in ("memory_bandwidth", "launch"):
        origin = f"{measured[key].measured_on}, {source}"
        table[key] |= {"kind": "measured", "source": origin}
    rates = dict((known or {}).get("rates", {}))
    for precision in MATRIX_BENCHES:
        replaceable = precision not in rates or rates[precision].get("kind") == "measured"
        if precision in measured and replaceable:
            rate = measured[precision]
            rates[precision] = {
                "peak": f"{rate.value / 1e9:.4g} GFLOP/s",
                "kind": "measured",
                "source": f"reached, not a data sheet's: {rate.measured_on}, {source}",
            }
    table["rates"] = rates
    return tomli_w.dumps(table)


def points_text(benches: Sequence[Bench], journal: KernelJournal, about: Mapping[str, str]) -> str:
    """Return the text of the file of points: a row a point, with its median.

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
        shapes = {(size.elements, size.width): size.shape for size in bench.sizes(_ALL_SIZES)}
        for point in journal.points:
            if point.kernel != bench.name:
                continue
            shape = shapes.get((point.elements, point.width), (point.elements,))
            count = len(point.seconds)
            repeats = "1 repeat" if count == 1 else f"median of {count}"
            note = f"{' x '.join(map(str, shape))}; {bench.does}; {repeats}"
            if math.isfinite(point.spread):
                note += f" +-{point.spread:.1%}"
            origin = ("measured", about["software"], about["source"], note)
            time_us = f"{point.median_s * 1e6:.4g}"
            table.writerow((point.kernel, point.elements, point.width, time_us, *origin))
    return f"# schema: {KERNELS_SCHEMA}\n{text.getvalue()}"


def other_rows(path: Path | None, measured: Collection[str]) -> str:
    """Return the rows of a file of kernels for names that were not measured, unchanged.

    Predictions read the written file instead of that one. Without these rows they would lose the
    points that only that one has, such as codecs that are no PyTorch kernels.

    Parameters
    ----------
    path : the file there is, None for none
    measured : names of the kernels that were measured

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


def holds_points(path: Path, points: Iterable[KernelPoint]) -> bool:
    """Tell whether a file of kernels has a row for each of some points."""
    names = path.name.removesuffix(KERNELS_SUFFIX), ANY_GPU
    rows = read_table(path, KERNELS_SCHEMA, KERNELS_COLUMNS, names)
    held = {tuple(cells[name] for name in ("kernel", "elements", "width")) for _, cells in rows}
    wanted = {(point.kernel, str(point.elements), str(point.width)) for point in points}
    return wanted <= held


def check_points(text: str, gpu: str) -> None:
    """Read the text of a file of points as predictions will.

    Raises
    ------
    DataError
        If it breaks the format: then nothing is written.
    """
    with TemporaryDirectory() as work:
        trial = Path(work) / f"{gpu}.kernels.csv"
        trial.write_text(text, encoding="utf-8")
        read_kernels(trial)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel at one width: its smallest and its largest point.

    Parameters
    ----------
    kernel, width, points : which, and how many sizes
    elements, seconds : of the smallest and of the largest
    counted_s : the largest point's cost by bytes, operations and launches; None without such a rule
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
    device : its bandwidth, launch and rate count costs, without its points; None counts nothing
    """
    plain = None if device is None else replace(device, points={}, references=())
    lines = []
    for bench in benches:
        shapes = {(size.elements, size.width): size for size in bench.sizes(_ALL_SIZES)}
        measured = [point for point in journal.points if point.kernel == bench.name]
        for width in sorted({point.width for point in measured}):
            points = [point for point in measured if point.width == width]
            points.sort(key=lambda point: point.elements)
            first, last = points[0], points[-1]
            counted_s = _counted_s(bench, shapes.get((last.elements, last.width)), plain)
            elements = first.elements, last.elements
            seconds = first.median_s, last.median_s
            lines.append(KernelLine(bench.name, width, len(points), elements, seconds, counted_s))
    return lines


def _counted_s(bench: Bench, size: Size | None, device: Device | None) -> float | None:
    if bench.counted is None or size is None or device is None:
        return None
    return sum_in_order(device.cost(kernel).seconds for kernel in bench.counted(size))


def noisy_points(points: Iterable[KernelPoint]) -> list[str]:
    """Return the points whose time is badly known, worst first: few repeats, or a wide interval.

    Examples
    --------
    >>> steady, lone = KernelPoint("qr", 64, 1, (1.0,) * 5), KernelPoint("qr", 256, 1, (1.0,))
    >>> noisy_points([steady, lone, KernelPoint("qr", 1024, 1, (1.0, 1.0, 1.0, 9.0, 9.0))])
    ['qr at 256, width 1 (1 repeat)', 'qr at 1,024, width 1 (+-400%)']
    """
    noisy = [point for point in points if point.spread > NOISY_SPREAD]
    noisy.sort(key=lambda point: point.spread, reverse=True)
    return [f"{_point_words(point)} ({_doubt(point)})" for point in noisy]


def _point_words(point: KernelPoint) -> str:
    width = f", width {point.width}" if point.width else ""
    return f"{point.kernel} at {point.elements:,}{width}"


def _doubt(point: KernelPoint) -> str:
    if math.isfinite(point.spread):
        return f"+-{point.spread:.0%}"
    return f"{len(point.seconds)} repeat{'s' if len(point.seconds) > 1 else ''}"


_HEAD = ("kernel", "points", "width", "elements", "time", "elements", "time", "counted", "over it")
_EMPTY = "-"


def kernel_report(table: Sequence[KernelLine]) -> str:
    """Return the lines as a table in words with units."""
    rows = [_HEAD, *map(_cells, table)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _cells(line: KernelLine) -> tuple[str, ...]:
    ends = zip(line.elements, line.seconds, strict=True)
    points = [word for size, time in ends for word in (format_count(size), format_seconds(time, 3))]
    counted = _EMPTY if line.counted_s is None else format_seconds(line.counted_s, 3)
    over = _EMPTY if line.over is None else f"{line.over:.2f}"
    return line.kernel, str(line.points), str(line.width or _EMPTY), *points, counted, over
