"""One cluster and method of a plan: how long the run takes there, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfsim.planning.target import Target
from perfsim.prediction import Prediction

__all__ = ["HOUR_S", "Choice"]

HOUR_S = 3600.0


@dataclass(frozen=True)
class Choice:
    """One cluster and method: how long the run takes, and what it costs where that is known."""

    prediction: Prediction
    seconds: float
    interval_s: tuple[float, float]
    cost: float | None
    power_w: float | None = None

    @property
    def energy_kwh(self) -> float | None:
        """What the GPUs take in all, None where no power was given [kWh]."""
        return None if self.power_w is None else self.gpu_hours * self.power_w / 1000.0

    @property
    def scenario(self) -> dict[str, Any]:
        """What was predicted."""
        return self.prediction.scenario

    @property
    def gpu_hours(self) -> float:
        """GPUs times hours."""
        return int(self.scenario["gpus"]) * self.seconds / HOUR_S

    @property
    def spent(self) -> float:
        """What is paid for it: money where prices are known, else GPU hours."""
        return self.gpu_hours if self.cost is None else self.cost

    @property
    def words(self) -> str:
        """Return cluster and method in words."""
        told = self.scenario
        where = "in one node" if told["nodes"] == 1 else f"over {told['net']}"
        return f"{told['method']} on {told['gpus']} {told['gpu']} {where}"

    def excess(self, target: Target) -> float:
        """Return how many times over its limits it is, the worse of the two; up to 1 meets them."""
        late = self.seconds / target.deadline_s if target.deadline_s else 0.0
        dear = self.cost / target.budget if target.budget and self.cost is not None else 0.0
        return max(late, dear)

    def row(self, target: Target) -> dict[str, Any]:
        """Return it as a row of the plan, units in the names."""
        low, high = self.interval_s
        told = self.scenario
        return {
            "gpu": told["gpu"],
            "gpus": told["gpus"],
            "net": told["net"],
            "method": told["method"],
            "hours": self.seconds / HOUR_S,
            "hours_low": low / HOUR_S,
            "hours_high": high / HOUR_S,
            "gpu_hours": self.gpu_hours,
            "cost": self.cost,
            "energy_kwh": self.energy_kwh,
            "epochs": target.epochs_of.get(str(told["method"]), target.epochs),
            "iteration_s": self.prediction.iteration_s,
            "scaling_efficiency": self.prediction.scaling_efficiency,
            "meets": self.excess(target) <= 1.0,
            "surely_in_time": target.deadline_s is None or high <= target.deadline_s,
        }
