"""From residuals to the deviations of each part and the multiples that hold 90 % of new rows.

Row i of source k: its residual r_i (log of measured over predicted time) has a two-piece Student t
distribution of scale s_i = sqrt(sum over parts of (move x deviation)^2), with a scale of its own on
either side, since parts may move an iteration up but not down. Deviations are fitted by maximum
likelihood, every source with the same weight; weaker evidence adds a deviation of its own to that
of stronger evidence, so it is never taken for the surer. The multiple is conformal: the quantile of
|r_i| / s_i, each s_i from a fit without row i's source, at the level that holds 90 % of a row of a
source that is new.

References
----------
Two-piece distributions: John 1982, Communications in Statistics 11, 879-885. Variance components by
minorisation: Zhou, Hu, Zhou & Lange 2019, JCGS 28, 350-361. Sources as groups: Lee, Barber &
Willett 2023, Distribution-free inference with hierarchical data, arXiv 2306.06342.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfsim.errors import RequestError
from perfsim.uncertainty import GRADES, PARTS, Uncertainty
from perfsim.validate.measurements.residuals import Residual

__all__ = ["Fit", "Table", "conformal", "fit", "left_out"]

Array = NDArray[np.float64]

COVERAGE = 0.9
FREEDOM = 4.0
"""Degrees of freedom of the t distribution: a row ten deviations off counts a twentieth."""
ROUNDS = 300
LEAST = 1e-4
"""Least deviation: a hundredth of a per cent, below any measurement's own."""
FEWEST = 3
"""Fewest sources: one left out, one to hold the scale against, one to fit it on."""


@dataclass(frozen=True)
class Table:
    """Residuals as arrays; ``faster`` and ``slower`` have a squared move a row and part."""

    sources: Array
    names: tuple[str, ...]
    log: Array
    faster: Array
    slower: Array

    @classmethod
    def of(cls, residuals: Sequence[Residual]) -> Table:
        """Return residuals as a table."""
        names = tuple(sorted({one.source for one in residuals}))
        place = {name: number for number, name in enumerate(names)}
        moves = np.array(
            [[one.moves.get(part, (0.0, 0.0)) for part in PARTS] for one in residuals]
        ).reshape(len(residuals), len(PARTS), 2)
        return cls(
            np.array([place[one.source] for one in residuals]),
            names,
            np.array([one.log for one in residuals]),
            moves[:, :, 0] ** 2,
            moves[:, :, 1] ** 2,
        )

    def without(self, names: Collection[str]) -> Table:
        """Return the rows of all other sources."""
        kept = tuple(name for name in self.names if name not in names)
        return self.only(kept)

    def only(self, names: Sequence[str]) -> Table:
        """Return the rows of some sources."""
        keep = np.isin(self.sources, [self.names.index(name) for name in names])
        place = {self.names.index(name): number for number, name in enumerate(names)}
        sources = np.array([place[one] for one in self.sources[keep]], dtype=int)
        return Table(
            sources, tuple(names), self.log[keep], self.faster[keep], self.slower[keep]
        )

    @cached_property
    def weights(self) -> Array:
        """A row's weight: every source has the same, together 1."""
        counts = np.bincount(self.sources, minlength=len(self.names))
        return 1.0 / (counts[self.sources] * len(self.names))


@dataclass(frozen=True)
class Fit:
    """Variances by part, and how much further real iterations reach above than below."""

    variances: Array
    skew: float

    def scores(self, table: Table) -> Array:
        """Return each row's residual in its own deviations, the skew taken out."""
        own = np.where(table.log > 0, table.slower @ self.variances, table.faster @ self.variances)
        lean = np.where(table.log > 0, self.skew, 1.0 / self.skew)
        return np.abs(table.log) / (np.sqrt(own) * lean)


def fit(table: Table) -> Fit:
    """Return the deviations that make the residuals most likely."""
    faster, slower = _nested(table.faster), _nested(table.slower)
    above = table.log > 0
    own = np.where(above[:, None], slower, faster)
    squares, weights = table.log**2, table.weights
    variances = np.full(len(PARTS), max(LEAST, float(np.sqrt(weights @ squares))) ** 2)
    for _ in range(ROUNDS):
        ups, downs = np.sqrt(slower @ variances), np.sqrt(faster @ variances)
        mine = np.where(above, ups, downs) ** 2
        trust = (FREEDOM + 1.0) / (FREEDOM + squares / mine)
        pull = own.T @ (weights * trust * squares / mine**2)
        both = weights / (ups + downs)
        push = slower.T @ (both / ups) + faster.T @ (both / downs)
        variances = variances * np.sqrt(pull / np.where(push > 0, push, np.inf))
        variances = np.maximum(variances, _floor())
    mine = own @ variances
    scores = weights * (FREEDOM + 1.0) / (FREEDOM + squares / mine) * squares / mine
    up, down = float(scores[above].sum()), float(scores[~above].sum())
    skew = (up / down) ** (1.0 / 6.0) if up > 0 and down > 0 else 1.0
    return Fit(_added(variances), skew)


def conformal(scores: Array, table: Table) -> float:
    """Return the score that holds 90 % of a row of a new source, every source weighing the same.

    With K sources known the share of theirs that it must hold is 90 % x (K + 1) / K; the largest
    score where that is more than all.
    """
    count = len(table.names)
    level = COVERAGE * (count + 1) / count
    order = np.argsort(scores, kind="stable")
    held = np.cumsum(table.weights[order])
    place = int(np.searchsorted(held, level - 1e-12))
    return float(scores[order[min(place, len(order) - 1)]])


def left_out(residuals: Sequence[Residual]) -> dict[str, Uncertainty]:
    """Return what is fitted without each source, and ``none``, by what is left out.

    Raises
    ------
    RequestError
        If there are too few sources.
    """
    table = Table.of(residuals)
    if len(table.names) < FEWEST:
        raise RequestError(
            f"{len(table.names)} sources of whole iterations; at least {FEWEST} are needed."
        )
    fits: dict[frozenset[str], Fit] = {}

    def known(*names: str) -> Fit:
        key = frozenset(names)
        if key not in fits:
            fits[key] = fit(table.without(key))
        return fits[key]

    found = {}
    for name in ("none", *table.names):
        others = table.without((name,))
        scores = np.empty(len(others.log))
        for place, other in enumerate(others.names):
            here = others.sources == place
            away = {name, other} & set(table.names)
            scores[here] = known(*away).scores(others.only((other,)))
        own = known(*({name} & set(table.names)))
        multiple = conformal(scores, others)
        sizes = dict(zip(PARTS, np.sqrt(own.variances).tolist(), strict=True))
        found[name] = Uncertainty(
            name,
            len(others.log),
            len(others.names),
            sizes,
            multiple / own.skew,
            multiple * own.skew,
        )
    return found


def _groups() -> list[list[int]]:
    """Return the columns of each cause, the strongest evidence first."""
    return [
        [PARTS.index(f"{cause}_{grade}") for grade in grades] for cause, grades in GRADES.items()
    ]


def _nested(moves: Array) -> Array:
    """Return squared moves of what each grade adds: what is weaker has it too."""
    found = moves.copy()
    for columns in _groups():
        found[:, columns] = np.cumsum(moves[:, columns][:, ::-1], axis=1)[:, ::-1]
    return found


def _added(variances: Array) -> Array:
    """Return the variance of each grade: what it and all stronger ones add."""
    found = variances.copy()
    for columns in _groups():
        found[columns] = np.cumsum(variances[columns])
    return found


def _floor() -> Array:
    """Return the least variances: what a weaker grade adds may be nothing."""
    found = np.full(len(PARTS), LEAST**2)
    for columns in _groups():
        found[columns[1:]] = 1e-12
    return found
