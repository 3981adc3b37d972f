"""Comparisons of methods that tests look at: one of a few methods, and pairs made by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from perfsim.planning.compare import Comparison, compare
from perfsim.scenario import make_scenario

__all__ = ["FIELDS", "NO_ERROR", "SOME", "pair", "some"]

FIELDS = {"model": "resnet50", "gpus": 16, "net": "1gbe"}
SOME = ["ssgd", "topk", "powersgd", "lbsgd", "localsgd", "byteps"]
NO_ERROR = {"topk": 0.0, "powersgd": 0.0}


@cache
def some() -> Comparison:
    """Return the comparison that most tests look at."""
    return compare(make_scenario(FIELDS), SOME)


def pair(behind: float, *, errors: dict[str, float], known: bool = True) -> Comparison:
    """Return a comparison of two that rest on the same, the second so much behind the first."""
    found = some()
    first = found.ranking.predictions["topk"]
    low, high = first.iteration_s_interval
    factor = 1 + behind
    second = replace(
        found.ranking.predictions["powersgd"],
        iteration_s=first.iteration_s * factor,
    ).stating(iteration_s_interval=(low * factor, high * factor), moves=first.moves)
    ranking = replace(
        found.ranking,
        predictions={"topk": first, "powersgd": second},
        errors=errors,
        known=found.ranking.known if known else None,
    )
    return replace(found, ranking=ranking, rows=[first, second])
