"""Levenberg-Marquardt within limits, its weights renewed until outliers have lost their pull.

References
----------
Marquardt 1963, An algorithm for least-squares estimation of nonlinear parameters; Holland &
Welsch 1977, Robust regression using iteratively reweighted least-squares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["LEAST_SPREAD", "LOSSES", "Search", "spread_of", "weights_of"]

LOSSES = ("soft_l1", "cauchy", "linear")
ROUNDS = 60
"""Renewals of the weights, and steps within one, at most."""
STEP = 1e-6
"""Relative step of the numerical derivative."""
STILL = 1e-10
"""A relative change of the parameters below this ends the search."""
LEAST_SPREAD = 1e-9
"""Residuals below this are rounding; it keeps the weights of an exact fit finite."""


class Search:
    """Levenberg-Marquardt over free parameters, scaled by their size and kept in their limits."""

    def __init__(
        self, residual: Callable[[Array], Array], start: Array, low: Array, high: Array
    ) -> None:
        self.residual, self.start, self.low, self.high = residual, start, low, high

    def scale(self, values: Array) -> Array:
        """Return the size of each parameter: its own, or a part of its start's."""
        import numpy as np

        floor = np.where(self.start != 0, np.abs(self.start) * 1e-3, 1e-12)
        return np.maximum(np.abs(values), floor)

    def jacobian(self, values: Array) -> Array:
        """Return the derivative of the residuals by each parameter, central inside the limits."""
        import numpy as np

        columns = []
        for place, width in enumerate(self.scale(values) * STEP):
            up, down = values.copy(), values.copy()
            up[place] = min(values[place] + width, self.high[place])
            down[place] = max(values[place] - width, self.low[place])
            gap = up[place] - down[place]
            change = self.residual(up) - self.residual(down)
            columns.append(change / gap if gap > 0 else np.zeros_like(change))
        return np.column_stack(columns) if columns else np.zeros((self.residual(values).size, 0))

    def run(self, loss: str) -> tuple[Array, int]:
        """Return the best values, and how often the weights were renewed."""
        import numpy as np

        values = self.start.copy()
        weights = np.ones(self.residual(values).size)
        for turn in range(1, ROUNDS + 1):
            before = values
            values = self.descend(values, weights)
            moved = np.max(np.abs(values - before) / self.scale(values), initial=0.0)
            if turn > 1 and (moved < STILL or loss == "linear"):
                return values, turn
            found = self.residual(values)
            weights = weights_of(found, spread_of(found), loss)
        return values, ROUNDS

    def descend(self, values: Array, weights: Array) -> Array:
        """Return the minimum of the weighted sum of squares."""
        import numpy as np

        damping, root = 1e-3, np.sqrt(weights)
        cost = float(np.sum((root * self.residual(values)) ** 2))
        for _ in range(ROUNDS):
            scale = self.scale(values)
            slopes = root[:, None] * self.jacobian(values) * scale
            pull = slopes.T @ (root * self.residual(values))
            inside = ~(((values <= self.low) & (pull > 0)) | ((values >= self.high) & (pull < 0)))
            if not inside.any():
                return values
            bend = (slopes.T @ slopes)[np.ix_(inside, inside)]
            for _ in range(30):
                damped = bend + damping * np.diag(np.maximum(np.diag(bend), 1e-12))
                step = np.zeros_like(values)
                step[inside] = -np.linalg.solve(damped, pull[inside])
                trial = np.clip(values + step * scale, self.low, self.high)
                lower = float(np.sum((root * self.residual(trial)) ** 2))
                if lower < cost:
                    break
                damping *= 4.0
            else:
                return values
            moved = float(np.max(np.abs(trial - values) / scale))
            values, cost, damping = trial, lower, max(damping / 9.0, 1e-12)
            if moved < STILL:
                return values
        return values


def spread_of(residuals: Array) -> float:
    """Return the standard deviation that the median of the absolute residuals stands for."""
    import numpy as np

    return max(float(np.median(np.abs(residuals))) * 1.4826, LEAST_SPREAD)


def weights_of(residuals: Array, spread: float, loss: str) -> Array:
    """Return the weight of each residual: 1 near zero, less the further it is off."""
    square = (residuals / spread) ** 2
    if loss == "linear":
        return square * 0.0 + 1.0
    weight: Array = (1.0 + square) ** (-0.5 if loss == "soft_l1" else -1.0)
    return weight
