"""Comparison: methods side by side, their standings, and what is sure of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfsim.methods import method_class
from perfsim.prediction import Prediction
from perfsim.ranking import CAVEAT, Ranking
from perfsim.records import record, to_frame
from perfsim.scenario import Scenario

if TYPE_CHECKING:
    import pandas

__all__ = ["BASELINE", "SCHEMA", "Comparison"]

SCHEMA = "perfsim/compare/1"

BASELINE = "ssgd"


@dataclass(frozen=True)
class Comparison:
    """Predictions of several methods on one scenario.

    ``ranking`` has them fastest first, who is left out and why; ``rows`` as they are sorted;
    ``own`` is the method that the scenario states, if any; ``baseline`` is S-SGD with DDP's
    buckets and overlap, which times are relative to; ``asked`` has each method's scenario.
    """

    ranking: Ranking
    rows: list[Prediction]
    sort: str
    own: str | None
    baseline: Prediction
    notes: list[str]
    asked: Mapping[str, Scenario] = field(default_factory=dict)

    @property
    def rule(self) -> str:
        """When two methods are told apart, in words."""
        error = "the median error of such predictions of either beside published runs"
        if self.ranking.known is None:
            rule = "their 90 % intervals do not overlap, and the slower is behind by more than"
            return f"Two methods are told apart where {rule} {error}."
        return (
            "Two methods are told apart where the slower is behind by more than the 90 % interval"
            " of their ratio, in which what both rest on (computation, links) moves both and only"
            f" the difference counts, and by more than {error}. Each method's own interval is wider"
            " than that and may overlap."
        )

    def standings(self) -> list[dict[str, Any]]:
        """Return each method's rank, margins and what is sure, fastest first.

        ``next_behind_ratio`` is how much longer the next takes, ``told_apart`` whether that is
        sure; both are None for the last. ``may_be_fastest``: not told apart from the first.
        """
        ones = list(self.ranking.predictions.values())
        near = {self.ranking.winner, *self.ranking.undecided()}
        found = []
        for place, (name, one) in enumerate(self.ranking.predictions.items()):
            after = ones[place + 1] if place + 1 < len(ones) else None
            found.append(
                {
                    "method": name,
                    "rank": place + 1,
                    "behind_first_ratio": one.iteration_s / ones[0].iteration_s - 1.0,
                    "next_behind_ratio": after and after.iteration_s / one.iteration_s - 1.0,
                    "told_apart": after and self.ranking.apart(one, after),
                    "may_be_fastest": name in near,
                    "against_ssgd": self._side(one),
                    "learns_as_ssgd": not method_class(name).lossy,
                }
            )
        return found

    def _side(self, one: Prediction) -> str | None:
        """Return faster, slower, or not told apart: against S-SGD, for all but S-SGD itself."""
        if one.scenario["method"] == BASELINE and one.iteration_s == self.baseline.iteration_s:
            return None
        ahead = one.iteration_s < self.baseline.iteration_s
        pair = (one, self.baseline) if ahead else (self.baseline, one)
        if not self.ranking.apart(*pair):
            return "not told apart"
        return "faster" if ahead else "slower"

    def sides(self) -> dict[str, list[str]]:
        """Return the methods that are faster than S-SGD, not told apart from it, and slower."""
        found: dict[str, list[str]] = {"faster": [], "not told apart": [], "slower": []}
        for row in self.standings():
            if row["against_ssgd"] is not None:
                found[row["against_ssgd"]].append(row["method"])
        return found

    def verdict(self) -> list[str]:
        """Return who is fastest and how sure that is, who beats S-SGD, and the scenario's own."""
        sides = self.sides()
        others = sum(map(len, sides.values()))
        lines = [self.ranking.verdict()]
        if others:
            close = sides["not told apart"]
            lines.append(
                f"Against S-SGD: {len(sides['faster'])} of {others} are faster,"
                f" {len(sides['slower'])} slower, {len(close)} cannot be told apart from it"
                + (f": {', '.join(close)}." if close else ".")
            )
        return lines + self._own_place()

    def _own_place(self) -> list[str]:
        own, ranking = self.own, self.ranking
        if own is None or len(ranking.predictions) == 1:
            return []
        if own not in ranking.predictions:
            return [f"{own}, which the scenario states, is left out: {ranking.refused[own]}."]
        row = next(row for row in self.standings() if row["method"] == own)
        text = f"{own}, which the scenario states, has rank {row['rank']} of {len(self.rows)}"
        if row["rank"] == 1:
            return [f"{text}."]
        times = f"{1.0 + row['behind_first_ratio']:.2f} times as long as {ranking.winner}"
        sure = ", from which it cannot be told apart" if row["may_be_fastest"] else ""
        return [f"{text}, {times}{sure}."]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as flat records: the standing, then the prediction (see ``record``)."""
        standings = {row["method"]: row for row in self.standings()}
        return [
            {**standings[one.scenario["method"]], **record(one.to_dict(provenance=False))}
            for one in self.rows
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """Return the records as a pandas table.

        Raises
        ------
        PerfsimError
            If pandas is not installed.
        """
        return to_frame(self.records())

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, by the contract perfsim/compare/1."""
        return {
            "schema": SCHEMA,
            "caveat": CAVEAT,
            "verdict": self.verdict(),
            "rule": self.rule,
            "winner": self.ranking.winner,
            "margin": self.ranking.margin,
            "undecided": self.ranking.undecided(),
            "same_learning": self.ranking.same_learning,
            "own": self.own,
            "baseline": {"method": BASELINE, "iteration_s": self.baseline.iteration_s},
            "standings": self.standings(),
            "sort": self.sort,
            "rows": [one.to_dict(provenance=False) for one in self.rows],
            "left_out": self.ranking.refused,
            "kept_own_fusion": self.ranking.kept,
            "notes": self.notes,
        }
