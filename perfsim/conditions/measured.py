"""Measured distributions of jitter: how long replicas of a model compute, over their mean.

The tables are made of traces of production training by ``python profiles/build/jitter_record.py``,
which says what the traces show. A distribution is an inverse: shares of all values, and the value
that this share does not exceed; straight between them.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from perfsim.data.catalog import shipped
from perfsim.data.tables import cell_number, read_table
from perfsim.errors import MAX_QUOTED, RequestError, nearest, shown
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "JITTER_COLUMNS",
    "JITTER_FILE",
    "JITTER_SCHEMA",
    "MAX_SCALE",
    "TRACE_COLUMNS",
    "TRACE_FILE",
    "TRACE_SCHEMA",
    "MeasuredJitter",
    "TraceSummary",
    "measured_jitter",
    "measured_names",
    "read_jitter",
    "traces",
]

JITTER_FILE = "conditions/jitter.csv"
JITTER_SCHEMA = "perfsim/jitter/1"
JITTER_COLUMNS = ("distribution", "share", "factor")

TRACE_FILE = "conditions/jitter_traces.csv"
TRACE_SCHEMA = "perfsim/jitter-traces/1"
TRACE_COLUMNS = (
    *("distribution", "trace", "cause", "source", "licence", "kind", "steps", "replicas"),
    *("stages", "micro_batches", "spread", "stage_spread_low", "stage_spread_high"),
    *("slowed_gpus", "slowed_times", "persistent_share", "stage_correlation"),
    *("micro_batch_ratio", "slowest", "slowest_changing", "slowest_drawn"),
)

MAX_SCALE = 3.0
"""The largest multiple of a measured distribution. No source: chosen. A spread over 8 micro-batches
is that of one times 1/sqrt(8) = 1/2.8."""

_MAX_AVERAGED = 32
"""Draws that a mean of many is made of; of more the spread falls on, the form stays."""


class MeasuredJitter(NamedTuple):
    """A distribution of how many times as long as their mean replicas compute.

    Parameters
    ----------
    name : as the scenario's ``jitter`` names it
    shares : from 0 to 1, rising
    factors : at each share, what this share of all values does not exceed
    scale : how many times as far from 1 they are as they were measured
    """

    name: str
    shares: tuple[float, ...]
    factors: tuple[float, ...]
    scale: float = 1.0

    @property
    def mean(self) -> float:
        """Its mean."""
        return sum_in_order(width * (low + high) / 2 for width, low, high in self._pieces())

    @property
    def spread(self) -> float:
        """Its standard deviation."""
        mean = self.mean
        return sqrt(
            sum_in_order(
                width * ((low - mean) ** 2 + (low - mean) * (high - mean) + (high - mean) ** 2) / 3
                for width, low, high in self._pieces()
            )
        )

    def slowest(self, count: int) -> float:
        """Return the mean of the largest of so many independent values.

        The integral of u^n's slope n u^(n-1) times the inverse, piece by piece.

        Examples
        --------
        >>> flat = MeasuredJitter("flat", (0.0, 1.0), (0.8, 1.2))
        >>> round(flat.slowest(1), 9), round(flat.slowest(3), 9)
        (1.0, 1.1)
        """
        total = 0.0
        for at in range(len(self.shares) - 1):
            low, high = self.shares[at : at + 2]
            slope = (self.factors[at + 1] - self.factors[at]) / (high - low)
            whole = high**count - low**count
            upper = (high ** (count + 1) - low ** (count + 1)) * count / (count + 1)
            total += (self.factors[at] - slope * low) * whole + slope * upper
        return total

    def scaled(self, scale: float) -> MeasuredJitter:
        """Return the distribution whose values are so many times as far from 1, but not below 0."""
        factors = tuple(max(0.0, 1.0 + scale * (factor - 1.0)) for factor in self.factors)
        return self._replace(factors=factors, scale=self.scale * scale)

    def draw(
        self, chance: np.random.Generator, shape: tuple[int, ...], averaged: int = 1
    ) -> NDArray[np.float64]:
        """Draw values, each of them the mean of ``averaged`` independent ones.

        Of more than 32 the mean of 32 is drawn, with the spread of them all.
        """
        import numpy as np

        drawn = min(averaged, _MAX_AVERAGED)
        away = np.zeros(shape)
        for _ in range(drawn):
            away += np.interp(chance.random(shape), self.shares, self.factors) - 1.0
        values: NDArray[np.float64] = 1.0 + away / sqrt(drawn * averaged)
        return values

    def _pieces(self) -> list[tuple[float, float, float]]:
        """Return width and both ends of each straight piece."""
        ends = zip(self.shares, self.factors, strict=True)
        return [(upper - lower, low, high) for (lower, low), (upper, high) in pairwise(ends)]


class TraceSummary(NamedTuple):
    """What a trace is, as far as words need it; ``jitter_traces.csv`` has more."""

    trace: str
    source: str
    steps: int
    replicas: int
    micro_batches: int

    @property
    def repository(self) -> str:
        """The repository that it is from, at its commit in short."""
        where, _, commit = self.source.partition(":")[0].partition("@")
        return f"{where}@{commit[:8]}"


@cache
def _distributions() -> dict[str, MeasuredJitter]:
    """Read the shipped distributions, once a process."""
    path = shipped() / JITTER_FILE
    points: dict[str, list[tuple[float, float]]] = {}
    for row, cells in read_table(path, JITTER_SCHEMA, JITTER_COLUMNS):
        share = cell_number(cells["share"], "share", path, row)
        factor = cell_number(cells["factor"], "factor", path, row, positive=True)
        points.setdefault(cells["distribution"], []).append((share, factor))
    return {
        name: MeasuredJitter(
            name, tuple(share for share, _ in listed), tuple(factor for _, factor in listed)
        )
        for name, listed in points.items()
    }


@cache
def traces(name: str) -> tuple[TraceSummary, ...]:
    """Return the traces that a distribution was measured in."""
    path = shipped() / TRACE_FILE

    def whole(cells: dict[str, str], column: str, row: int) -> int:
        return int(cell_number(cells[column], column, path, row, positive=True, whole=True))

    return tuple(
        TraceSummary(
            cells["trace"],
            cells["source"],
            whole(cells, "steps", row),
            whole(cells, "replicas", row),
            whole(cells, "micro_batches", row),
        )
        for row, cells in read_table(path, TRACE_SCHEMA, TRACE_COLUMNS)
        if cells["distribution"] == name
    )


def measured_names() -> list[str]:
    """Return the names of the measured distributions."""
    return sorted(_distributions())


def measured_jitter(text: str, field: str = "jitter") -> MeasuredJitter:
    """Return the distribution that a text names, NAME or NAME:TIMES.

    Raises
    ------
    RequestError
        If there is none of that name, or it cannot be taken so many times.

    Examples
    --------
    >>> half = measured_jitter("sequence-lengths:0.5")
    >>> round(half.spread / measured_jitter("sequence-lengths").spread, 6)
    0.5
    """
    name, colon, times = (part.strip() for part in text.partition(":"))
    known = _distributions()
    if name not in known:
        match = nearest(name[:MAX_QUOTED], known)
        hint = f"; did you mean {match!r}?" if match else "."
        raise RequestError(
            field,
            f"{shown(name)} is neither a share such as 5% nor a measured distribution{hint}"
            f" Measured are {', '.join(measured_names())}.",
            value=text,
            nearest=match,
        )
    if not colon:
        return known[name]
    try:
        scale = float(times)
    except ValueError:
        scale = 0.0
    if not 0.0 < scale <= MAX_SCALE:
        raise RequestError(
            field,
            f"{shown(text)} is not allowed: after the colon stands how many times the measured"
            f" spread, above 0 and up to {MAX_SCALE:g}, such as {name}:0.5.",
            value=text,
        )
    return known[name].scaled(scale)


def read_jitter(text: str, field: str = "jitter") -> str:
    """Return the text that names a measured distribution, without what changes nothing.

    Raises
    ------
    RequestError
        If it names none.

    Examples
    --------
    >>> read_jitter(" steady:1.0"), read_jitter("steady: .5")
    ('steady', 'steady:0.5')
    """
    asked = measured_jitter(text, field)
    return asked.name if asked.scale == 1.0 else f"{asked.name}:{asked.scale:g}"
