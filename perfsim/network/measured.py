"""Curves: measured times of one collective by message size, as nccl-tests and its like give them.

A curve is kept as measured, also where time falls as size grows; `CollectiveCurve.falls` names such
sizes. Below are the curve itself, the merging of repeats, and the CSV files that hold curves.
"""

from __future__ import annotations

import csv
import io
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from perfsim.collectives import COLLECTIVES
from perfsim.data.files import write_text
from perfsim.data.tables import cell_number, check_word, read_lines, read_table
from perfsim.errors import DataError, shown
from perfsim.libraries import libraries
from perfsim.quantity import (
    COUNT_LIMIT,
    MESSAGE_LIMIT,
    SPREAD_LIMIT,
    TIME_LIMIT,
    Kind,
    NumberLimit,
    weakest,
)

__all__ = [
    "CURVES_COLUMNS",
    "CURVES_HEADER",
    "CURVES_SCHEMA",
    "CURVE_KINDS",
    "CURVE_LIBRARIES",
    "MIN_FALL",
    "CollectiveCurve",
    "merge",
    "read_curves",
    "write_curves",
]

CURVE_KINDS: tuple[Kind, ...] = ("measured", "published", "fitted")
"""Kinds of number that a measured curve may be."""

CURVE_LIBRARIES = libraries()

MIN_FALL = 0.1
"""Where time falls by more than this fraction as size grows, a warning says so.

No source: chosen."""

_LARGE_SHARE = 1 / 16
"""Messages from this share of the largest on show a rate: the steps of the middle are over.

No source: chosen."""

_MIN_REPEATS_OF_QUANTILES = 20
"""From so many repeats on, the spread is the 5 % to 95 % range and not that of the extremes.

No source: chosen; one repeat in 20 lies outside at each end."""

_REPEAT_FIELDS = (
    "collective",
    "ranks",
    "nodes",
    "gpus_per_node",
    "series",
    "algorithm",
    "protocol",
    "library",
    "version",
    "gpu",
    "fabric",
)
"""Two curves that agree in these are repeats of one measurement."""


@dataclass(frozen=True, slots=True)
class CollectiveCurve:
    """Measured times of one collective on one set of ranks, by size.

    Parameters
    ----------
    collective : all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, send_recv
    ranks, nodes : GPUs (or processes) that took part, and the nodes they stand on
    gpus_per_node : ranks on the fullest node
    size_bytes : rising; for all_gather, reduce_scatter and all_to_all the blocks of all ranks,
        else the buffer of one rank [B]
    seconds : time at each size [s]
    kind : "measured" or "published"
    source : where the numbers come from
    spread : relative half-width that repeats show; None where nothing was repeated
    series : name that curves of one cluster at several node counts share
    algorithm, protocol : what the run was held to ("ring", "simple"); "" is the library's choice
    library : nccl, rccl, gloo or mpi
    version : of the library, as stated ("2.18.3")
    gpu, fabric : as stated
    widest : size at which repeats are furthest apart [B], and half their range over their median
        there; None where no repeats were merged

    Raises
    ------
    DataError
        If a field is not allowed, the sizes do not rise, or a number lies outside its limits.

    Examples
    --------
    >>> curve = CollectiveCurve("all_reduce", 4, 1, 4, (1e3, 4e3), (1e-5, 2e-5), "measured", "here")
    >>> round(curve.at(2e3) * 1e6, 3), curve.inside(8e3), curve.falls()
    (13.333, False, [])
    """

    collective: str
    ranks: int
    nodes: int
    gpus_per_node: int
    size_bytes: tuple[float, ...]
    seconds: tuple[float, ...]
    kind: Kind
    source: str
    spread: float | None = None
    series: str = ""
    algorithm: str = ""
    protocol: str = ""
    library: str = "nccl"
    version: str = ""
    gpu: str = ""
    fabric: str = ""
    widest: tuple[float, float] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse what no measurement can be."""
        self._check_words()
        self._check_ranks()
        self._check_points()

    @property
    def name(self) -> str:
        """What the curve is, in a few words: all_reduce on 32 GPUs (8 x 4)."""
        even = self.ranks == self.nodes * self.gpus_per_node
        shape = f"{self.nodes} x {self.gpus_per_node}" if even else f"{self.nodes} nodes"
        held = " ".join(word for word in (self.algorithm, self.protocol) if word)
        return f"{self.collective} on {self.ranks} GPUs ({shape}){f', {held}' if held else ''}"

    def large(self) -> list[tuple[float, float]]:
        """Return size and time of messages so large that they show a rate (`_LARGE_SHARE`).

        Examples
        --------
        >>> sizes, times = (8.0, 8e6, 64e6), (1.0, 2.0, 9.0)
        >>> CollectiveCurve("reduce", 2, 2, 1, sizes, times, "measured", "x").large()
        [(8000000.0, 2.0), (64000000.0, 9.0)]
        """
        least = _LARGE_SHARE * self.size_bytes[-1]
        points = zip(self.size_bytes, self.seconds, strict=True)
        return [point for point in points if point[0] >= least]

    def inside(self, size_bytes: float) -> bool:
        """Say whether a size lies in the range measured."""
        return self.size_bytes[0] <= size_bytes <= self.size_bytes[-1]

    def at(self, size_bytes: float) -> float:
        """Return the time at a size [s].

        Between measured points it is a straight line in size and time, alpha + beta n. Of every
        second size read from its neighbours, four times apart, the median error is then 1.8 %,
        where a line in the logarithms has 2.3 % (``perfsim validate nccl``, in_range). Between
        fitted knots it is the line in the logarithms that they were chosen for (`log_at`).

        Raises
        ------
        ValueError
            If the size lies outside the range measured (ask `inside` first).
        """
        if self.kind != "measured":
            return self.log_at(size_bytes)
        before, share = self._before(size_bytes)
        if share == 0.0:
            return self.seconds[before]
        size, after = self.size_bytes[before], self.size_bytes[before + 1]
        start_s, end_s = self.seconds[before], self.seconds[before + 1]
        return start_s + (size_bytes - size) / (after - size) * (end_s - start_s)

    def log_at(self, size_bytes: float) -> float:
        """Return the time at a size [s] by a straight line in log size and log time.

        Raises
        ------
        ValueError
            If the size lies outside the range measured (ask `inside` first).
        """
        before, share = self._before(size_bytes)
        if share == 0.0:
            return self.seconds[before]
        start_s, end_s = self.seconds[before], self.seconds[before + 1]
        return start_s * math.pow(end_s / start_s, share)

    def _before(self, size_bytes: float) -> tuple[int, float]:
        """Return the point at or before a size, and how far in log size it is to the next."""
        sizes = self.size_bytes
        if not self.inside(size_bytes):
            raise ValueError(
                f"{size_bytes!r} B lies outside {sizes[0]:g} to {sizes[-1]:g} B, where"
                f" {self.name} was measured"
            )
        index = bisect_left(sizes, size_bytes)
        if sizes[index] == size_bytes:
            return index, 0.0
        low, high = sizes[index - 1], sizes[index]
        return index - 1, math.log(size_bytes / low) / math.log(high / low)

    def falls(self, fraction: float = MIN_FALL) -> list[tuple[float, float, float]]:
        """Return where time falls by more than ``fraction`` as size grows.

        Each entry is the size before [B], the size after [B] and the fraction of the time lost
        from the first to the second; steps that fall one after another are one entry.

        Examples
        --------
        >>> times = (4e-5, 3e-5, 2e-5, 9e-5)
        >>> CollectiveCurve("reduce", 2, 2, 1, (1, 2, 4, 8), times, "measured", "here").falls()
        [(1, 4, 0.5)]
        """
        falls: list[tuple[float, float, float]] = []
        start, times = 0, self.seconds
        for index in range(1, len(times) + 1):
            if index < len(times) and times[index] < times[index - 1]:
                continue
            lost = 1.0 - times[index - 1] / times[start]
            if lost > fraction:
                falls.append((self.size_bytes[start], self.size_bytes[index - 1], lost))
            start = index
        return falls

    def _check_words(self) -> None:
        for name, given, allowed in (
            ("collective", self.collective, COLLECTIVES),
            ("kind", self.kind, CURVE_KINDS),
            ("library", self.library, CURVE_LIBRARIES),
        ):
            if given not in allowed:
                raise DataError(
                    f"a measured curve's {name} is {shown(given)}; allowed: {', '.join(allowed)}"
                )
        if not self.source.strip():
            raise DataError("a measured curve has no source; say where its numbers come from")

    def _check_ranks(self) -> None:
        counts = (self.ranks, self.nodes, self.gpus_per_node)
        if min(counts) < 1 or not self.nodes <= self.ranks <= self.nodes * self.gpus_per_node:
            raise DataError(
                f"{self.collective}: {self.ranks} ranks on {self.nodes} nodes of"
                f" {self.gpus_per_node} GPUs cannot be; every node holds 1 to gpus_per_node ranks"
            )

    def _check_points(self) -> None:
        sizes, seconds = self.size_bytes, self.seconds
        if not sizes or len(sizes) != len(seconds):
            raise DataError(f"{self.name}: {len(sizes)} sizes and {len(seconds)} times")
        for before, after in zip((0.0, *sizes), sizes, strict=False):
            if not (MESSAGE_LIMIT.holds(after) and after > before):
                raise DataError(
                    f"{self.name}: size {shown(after)} B after {shown(before)} B; sizes must"
                    f" rise and be {MESSAGE_LIMIT.words}"
                )
        for size, time_s in zip(sizes, seconds, strict=True):
            if not TIME_LIMIT.holds(time_s):
                raise DataError(
                    f"{self.name}: {shown(time_s)} s at {size:g} B is not allowed: it must be"
                    f" {TIME_LIMIT.words}"
                )
        if self.spread is not None and not (math.isfinite(self.spread) and self.spread >= 0):
            raise DataError(
                f"{self.name}: spread {shown(self.spread)} is not allowed: it must be 0 or more"
            )


def merge(curves: Iterable[CollectiveCurve]) -> list[CollectiveCurve]:
    """Return one curve for each measurement: repeats become their median at each size.

    Curves are repeats when all but points, kind, source and spread agree. At each repeated size
    half the range of the times is divided by their median (from 20 repeats on, half the 5 % to
    95 % range). The spread is the median of that over the sizes, or a curve's own if that is more;
    ``widest`` is the most.

    Examples
    --------
    >>> one = CollectiveCurve("all_reduce", 2, 2, 1, (8.0,), (1.0,), "measured", "run 1")
    >>> two = CollectiveCurve("all_reduce", 2, 2, 1, (8.0, 16.0), (1.2, 3.0), "measured", "run 2")
    >>> both, = merge([one, two])
    >>> both.seconds, round(both.spread, 3), both.source
    ((1.1, 3.0), 0.091, 'run 1; run 2')
    """
    grouped: dict[tuple[object, ...], list[CollectiveCurve]] = {}
    for curve in curves:
        grouped.setdefault(tuple(getattr(curve, field) for field in _REPEAT_FIELDS), []).append(
            curve
        )
    return [_median(same) if len(same) > 1 else same[0] for same in grouped.values()]


def _median(curves: Sequence[CollectiveCurve]) -> CollectiveCurve:
    times: dict[float, list[float]] = {}
    for curve in curves:
        for size, time_s in zip(curve.size_bytes, curve.seconds, strict=True):
            times.setdefault(size, []).append(time_s)
    sizes = sorted(times)
    known = [curve.spread for curve in curves if curve.spread is not None]
    repeated = {size: _half_range(times[size]) for size in sizes if len(times[size]) > 1}
    if repeated:
        known.append(median(repeated.values()))
    apart = [*repeated.items(), *(curve.widest for curve in curves if curve.widest)]
    return replace(
        curves[0],
        size_bytes=tuple(sizes),
        seconds=tuple(median(times[size]) for size in sizes),
        kind=weakest([curve.kind for curve in curves]),
        source="; ".join(dict.fromkeys(curve.source for curve in curves)),
        spread=max(known, default=None),
        widest=max(apart, key=lambda one: one[1], default=None),
    )


def _half_range(times: Sequence[float]) -> float:
    """Return half the range of repeats over their median."""
    if len(times) < _MIN_REPEATS_OF_QUANTILES:
        low, high = min(times), max(times)
    else:
        from numpy import quantile  # not at the top: a prediction reads curves, and needs no numpy

        low, high = map(float, quantile(times, (0.05, 0.95)))
    return (high - low) / 2 / median(times)


# Files of curves


CURVES_SCHEMA = "perfsim/curves/1"
CURVES_HEADER = (
    "network",
    "title",
    "gpu",
    "intra",
    "inter",
    "library",
    "version",
    "source",
    "licence",
    "date",
)
"""Lines that a file of curves has besides ``schema``; only ``version`` may be empty."""

_COUNT_COLUMNS = ("ranks", "nodes", "gpus_per_node")
CURVES_COLUMNS = (
    "collective",
    *_COUNT_COLUMNS,
    "algorithm",
    "protocol",
    "size_bytes",
    "time_us",
    "spread",
    "source_id",
)


class _Point(NamedTuple):
    """One row of a file: its curve, and what was measured [B, s]."""

    row: int
    shape: tuple[str, int, int, int, str, str, float | None]
    size_bytes: float
    time_s: float


def read_curves(path: Path) -> list[CollectiveCurve]:
    """Read the measured curves of one network.

    Returns
    -------
    list of CollectiveCurve, in the order of the file; ``series`` is the name of the network.

    Raises
    ------
    DataError
        If the file cannot be read, a header line or column lacks, a cell is not what its column
        asks for, or a size does not rise within its curve.
    """
    points = [
        _point(cells, path, row) for row, cells in read_table(path, CURVES_SCHEMA, CURVES_COLUMNS)
    ]
    head = _header(path)
    if not points:
        raise DataError("holds no point; give at least one row", path=path)
    curves = []
    seen: set[object] = set()
    for shape, group in groupby(points, lambda point: point.shape):
        curve = list(group)
        if shape in seen:
            raise DataError(
                "goes back to a curve that ended above; keep the points of a curve together",
                path=path,
                row=curve[0].row,
            )
        seen.add(shape)
        curves.append(_curve(curve, head, path))
    return curves


def write_curves(
    path: Path, curves: Sequence[CollectiveCurve], head: Mapping[str, str], source_id: str
) -> None:
    """Write measured curves of one network, times to 4 digits.

    Parameters
    ----------
    path : file to write, by custom ``<network>.curves.csv``
    curves : at least one, of one source
    head : value of each key of `CURVES_HEADER`, and ``notes`` if there are any
    source_id : the source's name in ``sources.csv``
    """
    text = io.StringIO()
    keys = (*CURVES_HEADER, "notes") if head.get("notes") else CURVES_HEADER
    for key, value in (("schema", CURVES_SCHEMA), *((key, head[key]) for key in keys)):
        text.write(f"# {key}: {value}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(CURVES_COLUMNS)
    for curve in curves:
        shape = (curve.collective, curve.ranks, curve.nodes, curve.gpus_per_node)
        spread = "" if curve.spread is None else f"{curve.spread:.3g}"
        for size, time_s in zip(curve.size_bytes, curve.seconds, strict=True):
            point = (f"{size:.17g}", f"{float(f'{time_s * 1e6:.4g}'):.12g}", spread, source_id)
            table.writerow((*shape, curve.algorithm, curve.protocol, *point))
    write_text(path, text.getvalue())


def _header(path: Path) -> dict[str, str]:
    head: dict[str, str] = {}
    for row, line in enumerate(read_lines(path), 1):
        if not line.startswith("#"):
            break
        key, _, value = line[1:].partition(":")
        if key.strip() in head:
            raise DataError(f"'# {key.strip()}:' is there twice", path=path, row=row)
        head[key.strip()] = value.strip()
    for key in CURVES_HEADER:
        if not head.get(key) and (key != "version" or key not in head):
            shape = "is empty" if key in head else "is missing"
            raise DataError(f"the header's '# {key}:' {shape}", path=path, row=1)
    if path.name != f"{head['network']}.curves.csv":
        raise DataError(
            f"the header's network is {shown(head['network'])}, the file's name says otherwise;"
            " they must agree",
            path=path,
            row=1,
        )
    if head["library"] not in CURVE_LIBRARIES:
        raise DataError(
            f"the header's library is {shown(head['library'])}; allowed:"
            f" {', '.join(CURVE_LIBRARIES)}",
            path=path,
            row=1,
        )
    return head


def _point(cells: Mapping[str, str], path: Path, row: int) -> _Point:
    check_word(cells["collective"], COLLECTIVES, "collective", path, row)

    def value(column: str, within: NumberLimit, unit: float = 1.0, least: bool = True) -> float:
        whole = column in _COUNT_COLUMNS
        text = cells[column]
        found = cell_number(
            text, column, path, row, positive=least, whole=whole, within=within, unit=unit
        )
        return found * unit

    ranks, nodes, gpus = (int(value(column, COUNT_LIMIT)) for column in _COUNT_COLUMNS)
    spread = value("spread", SPREAD_LIMIT, least=False) if cells["spread"] else None
    return _Point(
        row=row,
        shape=(
            cells["collective"],
            ranks,
            nodes,
            gpus,
            cells["algorithm"],
            cells["protocol"],
            spread,
        ),
        size_bytes=value("size_bytes", MESSAGE_LIMIT),
        time_s=value("time_us", TIME_LIMIT, 1e-6),
    )


def _curve(points: Sequence[_Point], head: Mapping[str, str], path: Path) -> CollectiveCurve:
    for before, after in pairwise(points):
        if after.size_bytes <= before.size_bytes:
            raise DataError(
                f"{after.size_bytes:.12g} after {before.size_bytes:.12g}; sizes rise in a curve",
                path=path,
                row=after.row,
                column="size_bytes",
            )
    collective, ranks, nodes, gpus, algorithm, protocol, spread = points[0].shape
    try:
        return CollectiveCurve(
            collective=collective,
            ranks=ranks,
            nodes=nodes,
            gpus_per_node=gpus,
            size_bytes=tuple(point.size_bytes for point in points),
            seconds=tuple(point.time_s for point in points),
            kind="measured",
            source=head["source"],
            spread=spread,
            series=head["network"],
            algorithm=algorithm,
            protocol=protocol,
            library=head["library"],
            version=head["version"],
            gpu=head["gpu"],
            fabric=f"{head['intra']}; {head['inter']}",
        )
    except DataError as error:
        raise DataError(str(error), path=path, row=points[0].row) from None
