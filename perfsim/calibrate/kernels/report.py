"""The table that a run ends with: what was measured, and what perfsim would have taken instead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from perfsim.calibrate.kernels.bench import Bench, Size
from perfsim.calibrate.kernels.journal import Journal, Point
from perfsim.device import Device
from perfsim.units import format_count, format_seconds

__all__ = ["NOISY", "Line", "lines", "noisy", "report"]

HEAD = ("kernel", "points", "width", "elements", "time", "elements", "time", "counted", "over it")
NONE = "-"
NOISY = 0.25
"""Half the 90 % interval of a median over it, above which a point is called noisy."""


@dataclass(frozen=True, slots=True)
class Line:
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


def lines(benches: Sequence[Bench], journal: Journal, device: Device | None) -> list[Line]:
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
            found.append(Line(bench.name, width, len(of), elements, seconds, counted_s))
    return found


def noisy(points: Iterable[Point]) -> list[str]:
    """Return the points that are known badly, worst first: too few repeats, or far apart.

    Examples
    --------
    >>> steady, lone = Point("qr", 64, 1, (1.0,) * 5), Point("qr", 256, 1, (1.0,))
    >>> noisy([steady, lone, Point("qr", 1024, 1, (1.0, 1.0, 1.0, 9.0, 9.0))])
    ['qr at 256, width 1 (1 repeat)', 'qr at 1,024, width 1 (+-400%)']
    """
    found = sorted(
        (one for one in points if one.spread > NOISY), key=lambda one: one.spread, reverse=True
    )
    return [f"{_place(one)} ({_doubt(one)})" for one in found]


def _place(point: Point) -> str:
    return f"{point.kernel} at {point.elements:,}" + (
        f", width {point.width}" if point.width else ""
    )


def _doubt(point: Point) -> str:
    if math.isfinite(point.spread):
        return f"+-{point.spread:.0%}"
    return f"{len(point.seconds)} repeat{'s' if len(point.seconds) > 1 else ''}"


def report(table: Sequence[Line]) -> str:
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


def _cells(line: Line) -> tuple[str, ...]:
    ends = zip(line.elements, line.seconds, strict=True)
    points = [word for size, time in ends for word in (format_count(size), format_seconds(time, 3))]
    counted = NONE if line.counted_s is None else format_seconds(line.counted_s, 3)
    over = NONE if line.over is None else f"{line.over:.2f}"
    return line.kernel, str(line.points), str(line.width or NONE), *points, counted, over


def _counted_s(bench: Bench, size: Size | None, device: Device | None) -> float | None:
    if bench.counted is None or size is None or device is None:
        return None
    return sum(device.cost(kernel).seconds for kernel in bench.counted(size))
