"""What tests of conditions share: predictions and plans of small scenarios."""

from __future__ import annotations

from typing import Any

from perfsim.prediction import Prediction, predict
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule import rounds
from perfsim.schedule.costed_graph import CostedGraph
from support.what_ships import SHIPPED

__all__ = ["PLAIN", "ask", "build_rounds", "computed_s"]

PLAIN = {"model": "resnet50", "gpus": 8, "net": "10Gbit/s,30us", "intra_net": "100Gbit/s,5us"}


def ask(**fields: Any) -> Prediction:
    """Return the prediction of a scenario given by its fields."""
    return predict(make_scenario({**PLAIN, **fields}), SHIPPED)


def build_rounds(**fields: Any) -> list[CostedGraph]:
    """Return the plans of a scenario."""
    return rounds.build_rounds(resolve(make_scenario({**PLAIN, **fields}), SHIPPED))


def computed_s(found: Prediction) -> float:
    """Return what an iteration computes [s]."""
    return sum(found.breakdown_s[part] for part in ("forward", "backward", "update"))
