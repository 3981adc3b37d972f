"""All questions asked of a set of measured curves, and what they come to."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from statistics import median
from types import ModuleType
from typing import Any

from perfsim.network.measured import CollectiveCurve
from perfsim.validate.nccl.row import BANDS, NcclRow
from perfsim.validate.score import Score, score

__all__ = ["ORDER", "SCHEMA", "NcclReport", "asked", "questions", "validate_nccl"]

SCHEMA = "perfsim/validation-nccl/1"

ORDER = ("in_range", "scale_2x", "scale_4x", "scale_beyond", "other_collective", "choice")
"""Questions as they are printed; those of further files come after them."""


OVER = " / "
"""Of two predictions' names in a limit: the errors of the first over those of the second."""


@cache
def questions() -> dict[str, ModuleType]:
    """Return name -> module of every question, as the files of this folder give them."""
    package = __name__.rpartition(".")[0]
    found = {}
    for module in pkgutil.iter_modules(import_module(package).__path__):
        loaded = import_module(f"{package}.{module.name}")
        if hasattr(loaded, "QUESTION"):
            found[module.name] = loaded
    return found


def asked() -> tuple[str, ...]:
    """Return the name of every question in the order of print.

    Examples
    --------
    >>> asked()[0]
    'in_range'
    """
    return tuple(dict.fromkeys((*ORDER, *_limits())))


@dataclass(frozen=True)
class NcclReport:
    """The rows of all questions on a set of curves."""

    curves: tuple[tuple[str, CollectiveCurve], ...]
    rows: tuple[NcclRow, ...]

    def of(self, question: str, band: str | None = None) -> list[NcclRow]:
        """Return the rows of one question, of one size band if named."""
        return [
            row
            for row in self.rows
            if row.question == question and (band is None or row.band == band)
        ]

    def score(self, question: str, band: str | None = None) -> Score:
        """Return the errors of one question."""
        return score(row.error for row in self.of(question, band))

    def plain(self, question: str) -> Score:
        """Return the errors that a plain alpha-beta ring fit makes on the same rows."""
        return score(
            abs(row.plain_s / row.measured_s - 1.0)
            for row in self.of(question)
            if row.plain_s is not None
        )

    def others(self, question: str, collective: str | None = None) -> dict[str, Score]:
        """Return the errors of each further prediction on the same rows, of one collective's."""
        found: dict[str, list[float]] = {}
        for row in self.of(question):
            if collective is not None and row.collective != collective:
                continue
            for name, seconds in row.others.items():
                found.setdefault(name, []).append(abs(seconds / row.measured_s - 1.0))
        return {name: score(errors) for name, errors in found.items()}

    def misses(self) -> list[str]:
        """Return a sentence a limit that the errors are outside of."""
        found = []
        for question, limits in _limits().items():
            rows = self.of(question)
            if not rows:
                continue
            for what, limit in limits.items():
                reached = self._reached(question, what)
                low = what == "right"
                if reached is not None and (reached < limit if low else reached > limit):
                    bound = "at least" if low else "at most"
                    found.append(
                        f"{question}: {what} is {reached:.1%}, the target is {bound} {limit:.0%}"
                    )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``validate nccl --json`` prints; errors are fractions."""
        return {
            "schema": SCHEMA,
            "questions": {question: self._question(question) for question in asked()},
            "clusters": self.clusters(),
            "falls": self.falls(),
            "misses": self.misses(),
        }

    def clusters(self) -> list[dict[str, Any]]:
        """Return the errors of every cluster by question, with their size bands."""
        found = []
        for cluster in dict.fromkeys(name for name, _ in self.curves):
            rows = [row for row in self.rows if row.cluster == cluster]
            for question in asked():
                mine = [row for row in rows if row.question == question]
                if mine and question != "choice":
                    plain = [abs((row.plain_s or 0.0) / row.measured_s - 1.0) for row in mine]
                    found.append(
                        {
                            "cluster": cluster,
                            "question": question,
                            **score(row.error for row in mine).to_dict(),
                            "bands": {
                                band: score(r.error for r in mine if r.band == band).to_dict()
                                for band, _ in BANDS
                            },
                            "plain_median": median(plain),
                        }
                    )
        return found

    def falls(self) -> list[dict[str, Any]]:
        """Return where a measured time falls by more than 10 % as size grows."""
        return [
            {"cluster": cluster, "curve": curve.name, "from_bytes": a, "to_bytes": b, "drop": drop}
            for cluster, curve in self.curves
            for a, b, drop in curve.falls()
        ]

    def _question(self, question: str) -> dict[str, Any]:
        if question == "choice":
            return self._choice()
        return {
            **self.score(question).to_dict(),
            "bands": {band: self.score(question, band).to_dict() for band, _ in BANDS},
            "plain_ring": self.plain(question).to_dict(),
            "others": {name: one.to_dict() for name, one in self.others(question).items()},
            "collectives": self._collectives(question),
            "limits": _limits().get(question, {}),
        }

    def _collectives(self, question: str) -> dict[str, Any]:
        """Return the errors by collective, of the prediction and of each further one."""
        rows = self.of(question)
        found: dict[str, Any] = {}
        for name in dict.fromkeys(row.collective for row in rows if row.collective):
            others = self.others(question, name)
            found[name] = {
                **score(row.error for row in rows if row.collective == name).to_dict(),
                "others": {other: one.to_dict() for other, one in others.items()},
            }
        return found

    def _choice(self) -> dict[str, Any]:
        rows = self.of("choice")
        return {
            "count": len(rows),
            "right": sum(row.error == 0.0 for row in rows),
            "always_ring_right": sum(row.plain_s == row.measured_s for row in rows),
            "tuner_right": sum(row.others["NCCL's tuner"] == row.measured_s for row in rows),
            "regret_median": median(row.error for row in rows) if rows else None,
            "limits": _limits()["choice"],
        }

    def _reached(self, question: str, what: str) -> float | None:
        if what == "right":
            found = self._choice()
            return float(found["right"] / found["count"])
        if OVER in what:
            names, _, part = what.partition(", ")
            others = self.others(question)
            one, other = (getattr(others.get(name), part, None) for name in names.split(OVER))
            if one is None or other is None:
                return None
            return 1.0 if one == other else one / other if other else math.inf
        band = "above" if what.endswith(" above") else None
        return getattr(self.score(question, band), what.partition(" ")[0], None)


def _limits() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for module in questions().values():
        found.update(module.LIMITS)
    return found


def validate_nccl(curves: Sequence[tuple[str, CollectiveCurve]]) -> NcclReport:
    """Ask every question of measured curves.

    Parameters
    ----------
    curves : (cluster, curve): curves of several node counts share their cluster's name
    """
    rows = [row for module in questions().values() for row in module.rows(curves)]
    return NcclReport(tuple(curves), tuple(rows))
