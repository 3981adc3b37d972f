"""Measured points of a kernel over its size, and how they are read between and beyond."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from perfsim.errors import DataError
from perfsim.limits import COUNT, ELEMENTS, TIME
from perfsim.quantity import Kind, Quantity, weakest
from perfsim.table import kind_of, number, read_table, scatter

__all__ = ["ANY", "Curve", "grown", "log_between", "read_kernels", "read_off"]

SCHEMA = "perfsim/kernels/1"
COLUMNS = ("kernel", "elements", "width", "time_us", "kind", "software", "source", "note")
ANY = "any"
"""What a file's header says where its points serve every GPU."""
NEAR = 4.0
"""How far from a lone point its flat-below, linear-above rule counts as inside its range."""


class Curve(NamedTuple):
    """Measured times of one kernel at one width, sizes rising; repeats of a size merged.

    Between points the time is a straight line in log size and log time; below the smallest it
    stays flat (bound by launches); above the largest it grows linearly: proportionally from a
    lone point, along the last two points otherwise.

    Examples
    --------
    >>> twice = ("measured",) * 2, ("here",) * 2, (None,) * 2
    >>> curve = Curve(0, (100.0, 400.0), (1e-5, 2e-5), *twice)
    >>> [round(curve.at(size) * 1e6, 3) for size in (10, 200, 400, 700)]
    [10.0, 14.142, 20.0, 30.0]
    """

    width: int
    sizes: tuple[float, ...]
    times_s: tuple[float, ...]
    kinds: tuple[Kind, ...]
    sources: tuple[str, ...]
    spreads: tuple[float | None, ...]

    def at(self, size: float, least_s_per_element: float = 0.0) -> float:
        """Return the time [s] at ``size``; beyond the top it grows at least as fast as told."""
        sizes, times = self.sizes, self.times_s
        if size <= sizes[0]:
            return times[0]
        if size >= sizes[-1]:
            if len(sizes) == 1:
                return times[0] * size / sizes[0]
            slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
            return times[-1] + (size - sizes[-1]) * max(slope, least_s_per_element)
        above = next(place for place, known in enumerate(sizes) if known >= size)
        return log_between(size, sizes[above - 1 : above + 1], times[above - 1 : above + 1])

    def near(self, size: float) -> slice:
        """Return the places of the points that decide the time at ``size``."""
        for place, known in enumerate(self.sizes):
            if known == size or (known > size and place == 0):
                return slice(place, place + 1)
            if known > size:
                return slice(place - 1, place + 1)
        return slice(-1, None)

    def covers(self, size: float) -> bool:
        """Say whether ``size`` lies in the range that the points speak for."""
        high = self.sizes[-1] * (NEAR if len(self.sizes) == 1 else 1.0)
        return self.sizes[0] / NEAR <= size <= high


def log_between(at: float, ends: tuple[float, ...], times: tuple[float, ...]) -> float:
    """Return the time [s] at ``at`` on the line through two points in log size and log time."""
    share = math.log(at / ends[0]) / math.log(ends[1] / ends[0])
    return times[0] * math.pow(times[1] / times[0], share)


def grown(curve: Curve, curves: tuple[Curve, ...], size: float, least: float) -> float:
    """Return a width's time [s]; past its last point it grows as the width measured furthest.

    ``least`` is the least growth [s per element] that bandwidth and matrix rate allow.
    """
    top = curve.sizes[-1]
    further = [other for other in curves if other.sizes[-1] > top and other.width > 0]
    if size <= top or not further or curve.width <= 0:
        return curve.at(size, least)
    furthest = max(other.sizes[-1] for other in further)
    far = [other for other in further if other.sizes[-1] == furthest]
    other = min(far, key=lambda other: abs(math.log(other.width / curve.width)))
    return curve.times_s[-1] * max(1.0, other.at(size, least) / other.at(top, least))


def read_off(
    curves: tuple[Curve, ...], size: float, width: int, least: float
) -> tuple[float, Quantity, bool]:
    """Return a kernel's time [s], what it rests on, and whether it lies outside the points.

    Between two widths the time is a line in log width and log time; beyond the widest it grows
    linearly, below the narrowest that one counts. ``least`` is the least growth [s per element].
    """
    above = next((i for i, curve in enumerate(curves) if curve.width >= width), len(curves))
    if above < len(curves) and (above == 0 or curves[above].width == width):
        used = curves[above : above + 1]
    else:
        used = curves[max(0, above - 1 - (above == len(curves))) : above + 1]
    times = [grown(curve, curves, size, least) for curve in used]
    widths = tuple(float(curve.width) for curve in used)
    if len(used) == 1:
        wider = width > widths[0] > 0
        seconds = times[0] * (width / widths[0] if wider else 1.0)
    elif above == len(curves):
        least_s = [curve.times_s[0] for curve in used]
        slope = max(0.0, 1 - least_s[0] / least_s[1]) / (widths[1] - widths[0])
        seconds = times[1] * (1 + slope * (width - widths[1]))
    else:
        seconds = log_between(float(width), widths, (times[0], times[1]))
    near = [(curve, curve.near(size)) for curve in used]
    kinds = [kind for curve, places in near for kind in curve.kinds[places]]
    exact = len(kinds) == 1 and used[0].width == width and size in used[0].sizes
    spreads = [s for curve, places in near for s in curve.spreads[places] if s is not None]
    quantity = Quantity(
        seconds,
        "s",
        kinds[0] if exact else weakest([*kinds, "derived"]),
        "; ".join(dict.fromkeys(s for curve, places in near for s in curve.sources[places])),
        max(spreads) if spreads else None,
        min(curve.sizes[0] for curve in used),
        max(curve.sizes[-1] for curve in used),
        "elements",
    )
    inside = curves[0].width <= width <= curves[-1].width
    return seconds, quantity, not (inside and all(curve.covers(size) for curve in used))


def read_kernels(path: Path) -> dict[str, tuple[Curve, ...]]:
    """Read measured kernel points; several of one size become their geometric mean.

    A larger size never costs less: where noise says so, the smaller size's time is kept.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    grouped: dict[str, dict[int, dict[float, list[tuple[float, Kind, str]]]]] = {}
    gpu = path.name.removesuffix(".kernels.csv")
    for row, cells in read_table(path, SCHEMA, COLUMNS, tuple(dict.fromkeys((gpu, ANY)))):
        for column in ("kernel", "source"):
            if not cells[column]:
                raise DataError("is empty", path=path, row=row, column=column)
        size = number(
            cells["elements"], "elements", path, row, positive=True, whole=True, within=ELEMENTS
        )
        width = int(number(cells["width"] or "0", "width", path, row, whole=True, within=COUNT))
        time_s = 1e-6 * number(
            cells["time_us"], "time_us", path, row, positive=True, within=TIME, unit=1e-6
        )
        kind = kind_of(cells["kind"], path, row)
        widths = grouped.setdefault(cells["kernel"], {})
        if widths and (width == 0) != (0 in widths):
            raise DataError(
                f"{width} beside {next(iter(widths))} further up: either no row of"
                f" {cells['kernel']!r} has a width, or each",
                path=path,
                row=row,
                column="width",
            )
        widths.setdefault(width, {}).setdefault(size, []).append((time_s, kind, cells["source"]))
    return {
        name: tuple(_curve(width, widths[width]) for width in sorted(widths))
        for name, widths in grouped.items()
    }


def _curve(width: int, sizes: Mapping[float, list[tuple[float, Kind, str]]]) -> Curve:
    known = sorted(sizes)
    times: list[float] = []
    for size in known:
        mean = math.exp(sum(math.log(time) for time, _, _ in sizes[size]) / len(sizes[size]))
        times.append(max(mean, times[-1]) if times else mean)
    return Curve(
        width,
        tuple(known),
        tuple(times),
        tuple(weakest([kind for _, kind, _ in sizes[size]]) for size in known),
        tuple("; ".join(dict.fromkeys(told for _, _, told in sizes[size])) for size in known),
        tuple(scatter([time for time, _, _ in sizes[size]]) for size in known),
    )
