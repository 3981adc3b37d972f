"""From residuals to the deviation of each part that an iteration rests on: 90 % of new rows inside.

Row i: its residual r_i (log of measured over predicted time) has a two-piece Student t distribution
of scale s_i = sqrt(sum over parts of (move x deviation)^2) on the side where it lies; parts such as
hidden communication move an iteration up but not down. Deviations are fitted by maximum likelihood.
Every source has the same weight, however many rows; a third of a source more says of each part that
it is as far off as all rows are together, so that what few sources show is not taken for sure.
Weaker evidence adds a deviation of its own to that of stronger evidence. All are then multiplied by
the least number that has 90 % of the rows inside, each row measured by a fit without its source.

References
----------
Two-piece distributions: John 1982, Communications in Statistics 11, 879-885. Variance components by
minorisation: Zhou, Hu, Zhou & Lange 2019, JCGS 28, 350-361. Rows grouped by source, with the same
weight a source: Dunn, Wasserman & Ramdas 2023, JASA 118, 2491-2502, method of pooled CDFs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfsim.errors import RequestError
from perfsim.interval import GRADES, NO_METHOD, UNCERTAINTY_PARTS, Uncertainty
from perfsim.validate.measurements.residuals import Residual

__all__ = ["ScaleTable", "fit", "left_out", "multiple"]

Array = NDArray[np.float64]

COVERAGE = 0.9
FREEDOM = 10.0
"""Degrees of freedom of the t distribution: a row far off counts less the further it is."""
ROUNDS = 200
LEAST = 1e-4
"""Least deviation: a hundredth of a per cent, below any measurement's own."""
UNSEEN = 1.0 / 3.0
"""Weight, in sources, of what is said of every part without a look at rows that show it."""
FEWEST = 3
"""Fewest sources: one left out, one to hold the scale against, one to fit it on."""
STRONGEST = [
    UNCERTAINTY_PARTS.index(part)
    for part in (*(f"{cause}_{grades[0]}" for cause, grades in GRADES.items()), "hidden", "other")
]
"""Parts that this is said of; what weaker evidence adds may be nothing."""
CAUSES = [
    [UNCERTAINTY_PARTS.index(f"{cause}_{grade}") for grade in grades]
    for cause, grades in GRADES.items()
]


@dataclass(frozen=True)
class ScaleTable:
    """Residuals as arrays; ``faster`` and ``slower`` have a squared move a row and part."""

    names: tuple[str, ...]
    sources: NDArray[np.str_]
    log: Array
    faster: Array
    slower: Array

    @classmethod
    def of(cls, residuals: Sequence[Residual]) -> ScaleTable:
        """Return residuals as a table."""
        moves = np.array(
            [[one.moves.get(part, (0.0, 0.0)) for part in UNCERTAINTY_PARTS] for one in residuals]
        ).reshape(len(residuals), len(UNCERTAINTY_PARTS), 2)
        sources = np.array([one.source for one in residuals])
        logs = np.array([one.log for one in residuals])
        names = tuple(sorted(set(sources.tolist())))
        return cls(names, sources, logs, moves[:, :, 0] ** 2, moves[:, :, 1] ** 2)

    def without(self, away: Collection[str]) -> ScaleTable:
        """Return the rows of all other sources."""
        names = tuple(name for name in self.names if name not in away)
        keep = np.isin(self.sources, names)
        faster, slower = self.faster[keep], self.slower[keep]
        return ScaleTable(names, self.sources[keep], self.log[keep], faster, slower)

    @cached_property
    def weights(self) -> Array:
        """A row's weight: every source has the same, together 1."""
        _, which, counts = np.unique(self.sources, return_inverse=True, return_counts=True)
        weights: Array = 1.0 / (counts[which] * len(counts))
        return weights

    def scores(self, variances: Array) -> Array:
        """Return each row's residual in its own deviations."""
        own = np.where(self.log > 0, self.slower @ variances, self.faster @ variances)
        return np.abs(self.log) / np.sqrt(own)


def fit(table: ScaleTable) -> Array:
    """Return the variance of each part that makes the residuals most likely."""
    faster, slower = _nested(table.faster), _nested(table.slower)
    above = table.log > 0
    own = np.where(above[:, None], slower, faster)
    squares, weights = table.log**2, table.weights
    whole = max(LEAST**2, float(weights @ squares))
    told = np.zeros(len(UNCERTAINTY_PARTS))
    told[STRONGEST] = UNSEEN / len(table.names)
    variances = np.full(len(UNCERTAINTY_PARTS), whole)
    for _ in range(ROUNDS):
        ups, downs = np.sqrt(slower @ variances), np.sqrt(faster @ variances)
        mine = np.where(above, ups, downs) ** 2
        trust = (FREEDOM + 1.0) / (FREEDOM + squares / mine)
        pull = own.T @ (weights * trust * squares / mine**2) + told * whole / variances**2
        both = weights / (ups + downs)
        push = slower.T @ (both / ups) + faster.T @ (both / downs) + told / variances
        found = variances * np.sqrt(pull / np.where(push > 0, push, np.inf))
        variances = np.maximum(found, LEAST**4)
    for columns in CAUSES:
        variances[columns] = np.cumsum(variances[columns])
    return variances


def multiple(scores: Array, weights: Array) -> float:
    """Return the least score that 90 % of the weight does not exceed."""
    order = np.argsort(scores, kind="stable")
    held = np.cumsum(weights[order])
    place = int(np.searchsorted(held, COVERAGE * held[-1] - 1e-12))
    return float(scores[order[place]])


def left_out(residuals: Sequence[Residual]) -> dict[str, Uncertainty]:
    """Return what is fitted without each source, and ``none``, by what is left out.

    Raises
    ------
    RequestError
        If there are too few sources.
    """
    table = ScaleTable.of(residuals)
    if len(table.names) < FEWEST:
        raise RequestError(
            f"{len(table.names)} sources of whole iterations; at least {FEWEST} are needed."
        )
    fits: dict[frozenset[str], Array] = {}

    def variances(*away: str) -> Array:
        key = frozenset(away) & frozenset(table.names)
        if key not in fits:
            fits[key] = fit(table.without(key))
        return fits[key]

    found = {}
    for name in (NO_METHOD, *table.names):
        others = table.without((name,))
        scores = np.empty(len(others.log))
        for other in others.names:
            here = others.sources == other
            scores[here] = others.scores(variances(name, other))[here]
        sizes = multiple(scores, others.weights) * np.sqrt(variances(name))
        named = dict(zip(UNCERTAINTY_PARTS, sizes.tolist(), strict=True))
        found[name] = Uncertainty(name, len(others.log), len(others.names), named)
    return found


def _nested(moves: Array) -> Array:
    """Return squared moves of what each grade adds: what is weaker has it too."""
    found = moves.copy()
    for columns in CAUSES:
        found[:, columns] = np.cumsum(moves[:, columns][:, ::-1], axis=1)[:, ::-1]
    return found
