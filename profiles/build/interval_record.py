r"""Fit the record that prediction intervals are made of, on published iterations.

To be run again whenever predictions or rows change::

    python profiles/build/interval_record.py --measurements FILE [FILE ...] \
        --out profiles/measurements/uncertainty.csv --date DATE [--residuals FILE]

Without ``--measurements`` it takes the tables that ship. It predicts every row once;
``--residuals`` keeps the residuals, and ``--from-residuals FILE`` in place of ``--measurements``
fits again from that file, in seconds. It prints how many rows of each source lie in the intervals
that were fitted without that source. The file it writes is not read for the fit. ``--choices``
chooses what has no source (`FitChoices`) again for each source, without it.

Row i: its residual r_i (log of measured over predicted time), and the half widths of its interval
on both sides, h = sqrt(sum over parts of (move x size)^2). A part is a cause of error (network,
kernels, ...) and the grade of its evidence; the move is how far the prediction moves with it. Parts
such as hidden communication move an iteration up but not down. The sizes minimise, each side by
itself, ::

    mean over rows of  h + OUTSIDE_COST x sigmoid(ln(r / h) / SOFTNESS)

that is the width, and a price for each row outside that does not grow with how far outside it is.
So a source whose misfit has no cause among the parts counts as outside and does not make every
other interval useless. A source weighs as the square root of its rows in each way of asking, half
way between rows that weigh alike and sources that do. Weaker evidence adds a size of its own to
that of stronger evidence. Sizes stay within bounds of their own (`_BOUNDS`).

References
----------
Width against softened coverage: Pearce et al. 2018, ICML, PMLR 80, 4075-4084, section 3.2. Rows
grouped by source: Dunn, Wasserman & Ramdas 2023, JASA 118, 2491-2502.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import exp, log1p
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

import one_gpu_errors
from perfsim.data.catalog import shipped
from perfsim.data.files import write_text
from perfsim.data.tables import read_table
from perfsim.errors import RequestError
from perfsim.interval import (
    GRADES,
    NO_METHOD,
    SIZE,
    UNCERTAINTY_COLUMNS,
    UNCERTAINTY_PARTS,
    UNCERTAINTY_SCHEMA,
    UNCERTAINTY_SIDES,
    Moves,
    Uncertainty,
)
from perfsim.validate.cases import same_source
from perfsim.validate.groups import PredictedCase, rank_correlation
from perfsim.validate.measurements import validate_measurements

__all__ = [
    "FitChoices",
    "Residual",
    "ResidualTable",
    "chosen_left_out",
    "fit_left_out",
    "fit_of",
    "fit_sizes",
    "held_out",
    "read_residuals",
    "residuals_of",
    "residuals_text",
    "uncertainty_text",
]

_RESIDUALS_SCHEMA = "perfsim/residuals/1"
_SIDES = ("faster", "slower")
_RESIDUALS_COLUMNS = (
    "id",
    "source",
    "way",
    "residual",
    *(f"{part}_{side}" for part in UNCERTAINTY_PARTS for side in _SIDES),
)


class Residual(NamedTuple):
    """One row: its source, log of measured over predicted time, and its moves by part.

    ``way`` is how it was asked.
    """

    id: str
    source: str
    way: str
    log: float
    moves: Moves


def residuals_of(rows: Iterable[PredictedCase]) -> list[Residual]:
    """Return the residuals of rows that are whole iterations."""
    rows = list(rows)
    names = same_source([row.case for row in rows])
    # The error of a time is predicted over measured less 1, that of a rate the same of its time.
    return [
        Residual(row.case.id, names[row.case.origin], row.way, -log1p(row.error), row.moves)
        for row in rows
    ]


def residuals_text(residuals: Sequence[Residual], date: str) -> str:
    """Return residuals as the text of a file, from which the fit can be made again."""
    out = io.StringIO()
    out.write(f"# schema: {_RESIDUALS_SCHEMA}\n# date: {date}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_RESIDUALS_COLUMNS)
    for residual in residuals:
        moves = [residual.moves.get(part, (0.0, 0.0)) for part in UNCERTAINTY_PARTS]
        cells = [repr(float(value)) for move in moves for value in move]
        writer.writerow(
            [residual.id, residual.source, residual.way, repr(float(residual.log)), *cells]
        )
    return out.getvalue()


def read_residuals(path: Path) -> list[Residual]:
    """Return the residuals of a file that `residuals_text` made.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    return [
        Residual(
            cells["id"],
            cells["source"],
            cells["way"],
            float(cells["residual"]),
            {
                part: (float(cells[f"{part}_faster"]), float(cells[f"{part}_slower"]))
                for part in UNCERTAINTY_PARTS
            },
        )
        for _, cells in read_table(path, _RESIDUALS_SCHEMA, _RESIDUALS_COLUMNS)
    ]


_Array = NDArray[np.float64]


class FitChoices(NamedTuple):
    """What no source states, chosen so that intervals hold 90 % of the rows of sources left out.

    Parameters
    ----------
    outside_cost : half widths, in natural logarithm, that a row outside costs
    node, kernels, hidden : greatest sizes of ``node``, of what modelled kernels add on the slower
        side, and of hidden communication on a known network
    """

    outside_cost: float = 14.0
    node: float = 0.022
    kernels: float = 0.7
    hidden: float = 2.0


_CHOICES = tuple(
    FitChoices(*values)
    for values in product((10.0, 14.0, 18.0), (0.011, 0.022, 0.033), (0.7, 1.5), (1.0, 2.0))
)
"""Choices among which `chosen_left_out` takes the best for each source."""
_SOFTNESS = 0.2
"""Width in ln(r / h) over which a row comes to count as outside, so that the sum has a gradient.

No source: chosen; 0.3 and 0.5 put 1 to 3 % more rows inside."""
_STARTS = (0.15, 0.4, 0.05)
"""Sizes from which the search starts; the best end counts, and a part that no row shows keeps that
start. No source: chosen, about the errors of measured, carried and given parts."""
_CONVERGED = {"ftol": 1e-14, "gtol": 1e-9, "maxiter": 2000}
"""Where the search ends, so that the record's digits do not hang on the last ones of residuals."""
_REPEAT, _RUNS, _SUBMITTERS = 0.025, 0.045, 0.087
_BETWEEN_SIZES, _CARRIED, _SCALED_KERNEL = 0.185, 0.380, 0.32
_CARRIED_MORE = math.sqrt(_CARRIED**2 - _BETWEEN_SIZES**2)
_ON_ONE_GPU = one_gpu_errors.read_sizes(shipped() / "measurements" / "one_gpu_errors.csv")
_SLOWER, _FASTER = ({name: both[side] for name, both in _ON_ONE_GPU.items()} for side in range(2))
_LEAST = 1e-3
_BOUNDS = dict.fromkeys(UNCERTAINTY_PARTS, (_LEAST, 3.0)) | {
    "compute_given": (_REPEAT, _SUBMITTERS),
    "compute_measured": (_SUBMITTERS, 3.0),
    "compute_same_gpu": (math.hypot(_SUBMITTERS, _SLOWER["between"]),) * 2,
    "batch": (_SLOWER["beyond"],) * 2,
    "network_measured": (_BETWEEN_SIZES, _BETWEEN_SIZES),
    "network_carried": (_CARRIED_MORE, _CARRIED_MORE),
    "kernels_measured": (_REPEAT, 0.2),
    "hidden_derived": (_LEAST, 1.0),
    "era": (1.0, 1.0),
    "other": (0.01, _SUBMITTERS),
}
_FASTER_BOUNDS = _BOUNDS | {
    "compute_given": (_REPEAT, _RUNS),
    "compute_same_gpu": (math.hypot(_SUBMITTERS, _FASTER["between"]),) * 2,
    "batch": (_FASTER["beyond"],) * 2,
    "kernels_modelled": (_SCALED_KERNEL, 1.5),
    "other": (0.01, _RUNS),
}
"""Least and greatest size of what each part adds, on the slower and on the faster side.

- A measured time is worth what repeating it gives: 2.5 % is the median spread of MLPerf submitters
  at the same GPU, round and batch, 8.7 % its 90th percentile (public MLPerf Training logs, not
  verified by MLCommons). On several GPUs nothing makes an iteration faster but this scatter, within
  4.5 % for 90 % of runs (`RUN_SPREAD` of perfsim.validate.calibration, as that of a normal).
- How far off a time of one GPU is at a batch that was not measured there, and where nothing of its
  model was, is in profiles/measurements/one_gpu_errors.csv and taken from there: iterations of
  several GPUs show what else is wrong with them. In the fit a time at another batch is worth that
  beside the scatter of submitters, in the record beside the size of measured iterations.
- Reading a measured curve between its sizes is 18.5 % off at the 90th percentile, carrying it to
  more than four times the ranks was 38.0 % when this was set (37.0 since;
  profiles/networks/growth_errors.csv). Both are taken from there: hardly any training in the
  tables has measured curves.
- A kernel scaled to another GPU is 32 % off: exact Top-k between P100 and V100, the only one
  measured on two GPUs (profiles/devices). The greatest sizes of kernels have no source (one of
  them is in `FitChoices`): one source's misfit must not widen every method with kernels.
- Hidden communication on nodes of a known type: size 1 reaches the iteration in which all of it
  shows; what is slower than that is the network's part. Without the bound it reached 3, where the
  source had other misfits; with it as many rows of sources left out are inside (92.4 %), and
  intervals are narrower: the mean half width of calibrated ones falls from 35 to 20 %.
- Era: size 1 reaches the iteration with the other version's kernels.
- Node: 2.2 % a doubling of GPUs in a node more or less than `perfsim.compute.node_load` says, the
  most that a quartile of its sources is off (tokens: 3.2 %, upper quartile 5.4).
- 3 bounds the search only: hidden communication of size 3 that is as long as the iteration shows as
  if it took eight times as long."""
_MIN_SOURCES = 3
"""One source left out, one to check the scale against, one to fit it on."""
_MEASURED, _SAME_GPU, _ONE_GPU = (
    UNCERTAINTY_PARTS.index(f"compute_{grade}") for grade in ("measured", "same_gpu", "one_gpu")
)
_CAUSES = [
    [UNCERTAINTY_PARTS.index(f"{cause}_{grade}") for grade in grades]
    for cause, grades in GRADES.items()
]
_NESTED = [
    [column for column in columns if column not in (_SAME_GPU, _ONE_GPU)] for columns in _CAUSES
]
"""Parts by cause whose weaker grades include the stronger ones; two have sizes of their own."""


@dataclass(frozen=True)
class ResidualTable:
    """Residuals as arrays; ``faster`` and ``slower`` hold a squared move a row and part."""

    names: tuple[str, ...]
    sources: NDArray[np.str_]
    ways: NDArray[np.str_]
    log: _Array
    faster: _Array
    slower: _Array

    @classmethod
    def from_residuals(cls, residuals: Sequence[Residual]) -> ResidualTable:
        """Return residuals as a table."""
        moves = np.array(
            [[one.moves.get(part, (0.0, 0.0)) for part in UNCERTAINTY_PARTS] for one in residuals]
        ).reshape(len(residuals), len(UNCERTAINTY_PARTS), 2)
        sources = np.array([one.source for one in residuals])
        logs = np.array([one.log for one in residuals])
        names = tuple(sorted(set(sources.tolist())))
        ways = np.array([one.way for one in residuals])
        return cls(names, sources, ways, logs, moves[:, :, 0] ** 2, moves[:, :, 1] ** 2)

    def without(self, away: Collection[str]) -> ResidualTable:
        """Return the rows of all other sources."""
        names = tuple(name for name in self.names if name not in away)
        keep = np.isin(self.sources, names)
        faster, slower = self.faster[keep], self.slower[keep]
        ways, log = self.ways[keep], self.log[keep]
        return ResidualTable(names, self.sources[keep], ways, log, faster, slower)

    @cached_property
    def weights(self) -> _Array:
        """Weights of rows, together 1: a source's goes with the root of its rows a way."""
        asked = np.char.add(np.char.add(self.ways, " "), self.sources)
        _, which, counts = np.unique(asked, return_inverse=True, return_counts=True)
        roots = counts[which] ** -0.5
        weights: _Array = roots / roots.sum()
        return weights


def fit_sizes(
    table: ResidualTable, side: str = "slower", choices: FitChoices | None = None
) -> _Array:
    """Return the size of each part, on one side, that minimises width and price of rows outside."""
    choices = choices or FitChoices()
    squared = _nested(table.slower if side == "slower" else table.faster)
    log, weights = table.log if side == "slower" else -table.log, table.weights

    logs = np.log(np.maximum(log, 1e-6))

    def price(sizes: _Array) -> tuple[float, _Array]:
        squares = np.exp(2 * sizes)
        half = np.sqrt(squared @ squares + 1e-9)
        outside = 1 / (1 + np.exp(np.clip((np.log(half) - logs) / _SOFTNESS, -50, 50)))
        value = weights @ (half + choices.outside_cost * outside)
        steep = choices.outside_cost * outside * (1 - outside) / (_SOFTNESS * half)
        return float(value), (squared.T @ (weights * (1 - steep) / (2 * half))) * 2 * squares

    within = _bounds(side, choices)
    bounds = np.log([within[part] for part in UNCERTAINTY_PARTS])
    starts = [np.clip(np.log(start), bounds[:, 0], bounds[:, 1]) for start in _STARTS]
    ends = [
        minimize(price, start, jac=True, method="L-BFGS-B", bounds=bounds, options=_CONVERGED)
        for start in starts
    ]
    squares = np.exp(2 * min(ends, key=lambda end: round(float(end.fun), 9)).x)
    for columns in _NESTED:
        squares[columns] = np.cumsum(squares[columns])
    own = _SLOWER if side == "slower" else _FASTER
    squares[_SAME_GPU] = squares[_MEASURED] + own["between"] ** 2
    squares[_ONE_GPU] = own["carried"] ** 2
    for columns in _CAUSES:
        squares[columns] = np.maximum.accumulate(squares[columns])
    sizes: _Array = np.sqrt(squares)
    return sizes


def fit_left_out(residuals: Sequence[Residual]) -> dict[str, Uncertainty]:
    """Return the fit without each source, and of all sources (``none``), by what is left out.

    Raises
    ------
    RequestError
        If there are too few sources.
    """
    table = ResidualTable.from_residuals(residuals)
    if len(table.names) < _MIN_SOURCES:
        raise RequestError(
            "measurements",
            f"{len(table.names)} sources of whole iterations; at least {_MIN_SOURCES} are needed.",
        )
    return {name: fit_of(table.without((name,)), name) for name in (NO_METHOD, *table.names)}


def fit_of(table: ResidualTable, left_out: str = NO_METHOD) -> Uncertainty:
    """Return the fit of a table that has been left without a source."""
    slower, faster = (
        dict(zip(UNCERTAINTY_PARTS, fit_sizes(table, side).tolist(), strict=True))
        for side in UNCERTAINTY_SIDES
    )
    return Uncertainty(left_out, len(table.log), len(table.names), slower, faster)


def _bounds(side: str, choices: FitChoices) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest size of what each part adds on one side."""
    chosen = {"node": (_LEAST, choices.node), "hidden_carried": (_LEAST, choices.hidden)}
    if side == "slower":
        return _BOUNDS | chosen | {"kernels_modelled": (_SCALED_KERNEL, choices.kernels)}
    return _FASTER_BOUNDS | chosen


def chosen_left_out(
    residuals: Sequence[Residual], choices: Sequence[FitChoices] = _CHOICES
) -> dict[str, float]:
    """Return the share of rows inside by way, each source judged by choices made without it.

    For each source, the choices are taken with which intervals come nearest to 90 % in each way on
    the rows of all others, each fitted without its own source and without the one that is judged.
    """
    table = ResidualTable.from_residuals(residuals)
    moves = np.stack([table.faster, table.slower])

    @cache
    def inside(choice: FitChoices, away: frozenset[str], source: str) -> NDArray[np.bool_]:
        others, rows = table.without(away), table.sources == source
        faster, slower = (
            np.sqrt(moves[index, rows] @ fit_sizes(others, side, choice) ** 2)
            for index, side in enumerate(_SIDES)
        )
        held: NDArray[np.bool_] = (table.log[rows] <= slower) & (table.log[rows] >= -faster)
        return held

    def miss(choice: FitChoices, judged: str) -> float:
        """Return how far the shares of the other sources' rows are from 90 %, over all ways."""
        names = [name for name in table.names if name != judged]
        held = np.concatenate([inside(choice, frozenset((judged, name)), name) for name in names])
        ways = np.concatenate([table.ways[table.sources == name] for name in names])
        return sum(abs(float(held[ways == way].mean()) - 0.9) for way in set(ways.tolist()))

    held, ways = [], []
    for name in table.names:
        best = min(choices, key=lambda choice: miss(choice, name))
        held.append(inside(best, frozenset((name,)), name))
        ways.append(table.ways[table.sources == name])
    every, asked = np.concatenate(held), np.concatenate(ways)
    return {way: float(every[asked == way].mean()) for way in sorted(set(asked.tolist()))}


def _nested(moves: _Array) -> _Array:
    """Return the squared moves of what each grade adds; weaker grades include it."""
    sums = moves.copy()
    for columns in _NESTED:
        sums[:, columns] = np.cumsum(moves[:, columns][:, ::-1], axis=1)[:, ::-1]
    return sums


def uncertainty_text(fits: Mapping[str, Uncertainty], date: str) -> str:
    """Return the record of intervals as the text of its file."""
    every = fits[NO_METHOD]
    out = io.StringIO()
    out.write(
        f"# schema: {UNCERTAINTY_SCHEMA}\n"
        "# title: How far measured iterations lie from predicted ones, by what moves these\n"
        "# unit: natural logarithm of measured over predicted time (0.1: about 10 %): how far the"
        " 90 % interval reaches, on the side where measured times are slower or faster, of an"
        " iteration that moves with that part alone\n"
        "# source: python profiles/build/interval_record.py;"
        f" {every.rows} iterations of {every.sources} sources\n"
        f"# date: {date}\n"
    )
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(UNCERTAINTY_COLUMNS)
    for name, fit in fits.items():
        for side, sizes in zip(
            UNCERTAINTY_SIDES, (fit.sizes, fit.faster or fit.sizes), strict=True
        ):
            cells = [f"{sizes[part]:.4f}" for part in UNCERTAINTY_PARTS]
            writer.writerow([name, side, fit.rows, fit.sources, *cells])
    return out.getvalue()


def held_out(
    residuals: Sequence[Residual], fits: Mapping[str, Uncertainty]
) -> list[dict[str, str]]:
    """Return how intervals that were fitted without each source do: by way, then by source.

    ``coverage`` is the share of rows inside, ``alike`` where every source weighs the same,
    ``rank`` the rank correlation of half width and error.
    """
    judged = [_judged(row, fits[row.source].interval(row.moves, 1.0)) for row in residuals]
    ways = sorted({row.way for row in residuals})
    names = sorted({row.source for row in residuals})
    chosen = {
        "all rows": judged,
        **{way: [one for one in judged if one.way == way] for way in ways},
        **{name: [one for one in judged if one.source == name] for name in names},
    }
    return [{"rows": name, **_held(rows)} for name, rows in chosen.items()]


class _Judged(NamedTuple):
    """A row beside its interval: whether it is inside, half the interval, its absolute error."""

    source: str
    way: str
    inside: bool
    half_width: float
    error: float


def _judged(row: Residual, interval: tuple[float, float]) -> _Judged:
    low, high = interval
    measured = exp(row.log)
    error = abs(1.0 / measured - 1.0)
    return _Judged(row.source, row.way, low <= measured <= high, (high - low) / 2.0, error)


def _held(rows: Sequence[_Judged]) -> dict[str, str]:
    sources = sorted({row.source for row in rows})
    alike = mean(mean(row.inside for row in rows if row.source == one) for one in sources)
    widths, errors = [row.half_width for row in rows], [row.error for row in rows]
    rank = rank_correlation(widths, errors)
    return {
        "count": str(len(rows)),
        "coverage": f"{mean(row.inside for row in rows):.1%}",
        "alike": f"{alike:.1%}",
        "half width": f"{median(widths):.1%}",
        "rank": "-" if rank is None else f"{rank:.2f}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict measured iterations, fit the record of intervals on the residuals, and write it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--measurements", type=Path, nargs="+", help="tables of cases")
    parser.add_argument("--from-residuals", type=Path, help="residuals kept by an earlier run")
    parser.add_argument("--residuals", type=Path, help="file to keep the residuals in")
    parser.add_argument("--out", type=Path, required=True, help="record to write")
    parser.add_argument("--date", required=True, help="date of the record, such as 2026-11-21")
    parser.add_argument(
        "--choices", action="store_true", help="also judge what has no source, chosen (minutes)"
    )
    given = parser.parse_args(arguments)
    if given.from_residuals:
        residuals = read_residuals(given.from_residuals)
    else:
        reports = [validate_measurements(path) for path in given.measurements or [None]]
        rows = {
            (row.case.id, row.way): row
            for report in reversed(reports)
            for row in report.rows
            if row.whole
        }
        residuals = residuals_of(rows.values())
    if given.residuals:
        write_text(given.residuals, residuals_text(residuals, given.date))
    furthest = max(residuals, key=lambda row: abs(row.log))
    if not SIZE.holds(abs(furthest.log)):
        parser.error(
            f"{furthest.id} is off by a factor of {exp(abs(furthest.log)):.3g}, more than any"
            " cluster is; is a unit wrong?"
        )
    fits = fit_left_out(residuals)
    write_text(given.out, uncertainty_text(fits, given.date))
    for row in held_out(residuals, fits):
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    if given.choices:
        shares = chosen_left_out(residuals).items()
        print("chosen without each source: " + ", ".join(f"{way} {one:.1%}" for way, one in shares))


if __name__ == "__main__":
    main()
