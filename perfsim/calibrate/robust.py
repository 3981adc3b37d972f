"""Least squares with limits, standard errors and a refusal of what the data cannot tell.

Levenberg-Marquardt on residuals that are logarithms of model over measured (so that 5 us at
1 kB weigh as much as 5 ms at 1 MB), weights renewed until outliers have lost their pull.

References
----------
Marquardt 1963, An algorithm for least-squares estimation of nonlinear parameters; Huber 1981,
Robust Statistics, section 7.6 (standard errors); Hurvich & Tsai 1990, small-sample criteria for
L1 regression (AICc).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from perfsim.calibrate.parameter import Parameter, Unidentified, identify
from perfsim.calibrate.search import LEAST_SPREAD, LOSSES, Search, spread_of, weights_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["LOSSES", "FitResult", "Model", "Parameter", "Unidentified", "fit"]

Model = Callable[..., Any]
"""Times that parameters, given by name, say for x: ``model(x, alpha=..., beta=...)``."""


@dataclass(frozen=True)
class FitResult:
    """A fitted model: values with errors, how far it is off, and the range it was fitted in.

    ``residuals`` are log(model / measured) of a relative fit, else model - measured; ``median``,
    ``p90`` and ``worst`` are absolute relative errors of the model; ``correlation`` has a pair of
    names as key; ``aicc`` compares models fitted to the same points (lower is better).
    """

    title: str
    model: Model
    parameters: tuple[Parameter, ...]
    correlation: Mapping[tuple[str, str], float]
    residuals: tuple[float, ...]
    median: float
    p90: float
    worst: float
    low: float | None
    high: float | None
    loss: str
    aicc: float
    rounds: int
    unit: str = field(default="B")

    @property
    def values(self) -> dict[str, float]:
        """Name -> value of every parameter."""
        return {one.name: one.value for one in self.parameters}

    def stderr(self, name: str) -> float | None:
        """Return the standard error of one parameter, None where it was held."""
        return next(one.stderr for one in self.parameters if one.name == name)

    def at(self, x: Any) -> Any:
        """Return what the fitted model says for x."""
        return self.model(x, **self.values)


def fit(
    model: Model,
    x: Any,
    y: Any,
    parameters: Sequence[Parameter],
    *,
    relative: bool = True,
    loss: str = "soft_l1",
    needs: Mapping[str, str] | None = None,
    refuse: bool = True,
    title: str = "fit",
) -> FitResult:
    """Fit a model to measured values.

    Parameters
    ----------
    model : ``model(x, **values)`` -> array of the length of ``y``
    x : whatever the model reads; an array of sizes [B] gives the range of the data
    y : measured values, positive for a relative fit [s]
    parameters : start, limits, and which are held
    relative : residuals are log(model / y); else model - y
    loss : soft_l1 or cauchy (outliers lose weight), or linear
    needs : name -> sentence that says which measurement would tell this parameter
    refuse : raise where the data cannot tell a parameter; else report it with its error

    Raises
    ------
    Unidentified
        If the standard error of a parameter that cannot be negative exceeds its value, or a
        direction of the parameters leaves the model unchanged.
    ValueError
        If there are fewer points than free parameters, or a value is not finite and positive.

    Examples
    --------
    >>> size = [1e3, 1e4, 1e5, 1e6]
    >>> line = lambda x, alpha, beta: [alpha + beta * one for one in x]
    >>> start = [Parameter("alpha", 1e-5, "s", low=0), Parameter("beta", 1e-9, "s/B", low=0)]
    >>> found = fit(line, size, line(size, 2e-5, 5e-10), start)
    >>> [float(f"{value:.6g}") for value in found.values.values()]
    [2e-05, 5e-10]
    """
    import numpy as np

    if loss not in LOSSES:
        raise ValueError(f"loss {loss!r}; allowed: {', '.join(LOSSES)}")
    free = [one for one in parameters if not one.fixed]
    measured = _measured(y, len(free), relative)
    held = {one.name: one.value for one in parameters if one.fixed}
    names = [one.name for one in free]

    def residual(values: Array) -> Array:
        told = np.asarray(model(x, **held, **dict(zip(names, values.tolist(), strict=True))), float)
        off: Array = np.log(np.maximum(told, 1e-300) / measured) if relative else told - measured
        return off

    limits = [[one.value, one.low, one.high] for one in free]
    search = Search(residual, *np.array(limits, dtype=float).reshape(-1, 3).T)
    values, rounds = search.run(loss)
    found = residual(values)
    jacobian = search.jacobian(values)
    errors, correlation = _errors(found, jacobian, spread_of(found), loss)
    fitted = _fitted(parameters, values.tolist(), errors)
    if refuse:
        identify(fitted, jacobian, search.scale(values), dict(needs or {}))
    off = np.abs(np.expm1(found)) if relative else np.abs(found / measured)
    low, high = _range(x, measured.size)
    return FitResult(
        title=title,
        model=model,
        parameters=fitted,
        correlation=_by_names(correlation, names),
        residuals=tuple(found.tolist()),
        median=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        worst=float(np.max(off)),
        low=low,
        high=high,
        loss=loss,
        aicc=_aicc(found, len(free)),
        rounds=rounds,
    )


def _fitted(
    parameters: Sequence[Parameter], values: Sequence[float], errors: Sequence[float]
) -> tuple[Parameter, ...]:
    """Return the parameters with what was found for those that are free."""
    found = iter(zip(values, errors, strict=True))
    return tuple(
        one if one.fixed else replace(one, value=(pair := next(found))[0], stderr=pair[1])
        for one in parameters
    )


def _by_names(correlation: Array, names: Sequence[str]) -> dict[tuple[str, str], float]:
    pairs = combinations(enumerate(names), 2)
    return {(one, other): float(correlation[i, j]) for (i, one), (j, other) in pairs}


def _measured(y: Any, free: int, relative: bool) -> Array:
    """Return the measured values, checked."""
    import numpy as np

    measured = np.asarray(y, dtype=float)
    if measured.ndim != 1 or measured.size < max(1, free):
        raise ValueError(f"{measured.size} points for {free} free parameters")
    if not np.all(np.isfinite(measured)) or (relative and np.any(measured <= 0)):
        raise ValueError("measured values must be finite, and positive for a relative fit")
    return measured


def _errors(
    residuals: Array, jacobian: Array, spread: float, loss: str
) -> tuple[list[float], Array]:
    """Return standard errors and correlations of an M-estimate (Huber 1981, equation 6.5)."""
    import numpy as np

    count, size = jacobian.shape
    square = (residuals / spread) ** 2
    pull = weights_of(residuals, spread, loss) * residuals
    if loss == "linear":
        gain = 1.0
    elif loss == "soft_l1":
        gain = float(np.mean((1.0 + square) ** -1.5))
    else:
        gain = max(float(np.mean((1.0 - square) / (1.0 + square) ** 2)), 0.1)
    variance = float(np.sum(pull**2)) / max(count - size, 1) / gain**2
    lengths = np.linalg.norm(jacobian, axis=0)
    unit = jacobian / np.where(lengths > 0, lengths, 1.0)
    inverse = np.linalg.pinv(unit.T @ unit, rcond=1e-14)
    root = np.sqrt(np.maximum(np.diag(inverse), 0.0))
    errors = np.where(lengths > 0, np.sqrt(variance) * root / np.maximum(lengths, 1e-300), np.inf)
    correlation = inverse / np.maximum(np.outer(root, root), 1e-300)
    return [float(error) for error in errors], correlation


def _aicc(residuals: Array, size: int) -> float:
    """Return Akaike's criterion for Laplace-distributed residuals, corrected for few points."""
    import numpy as np

    count, told = residuals.size, size + 1
    if count <= told + 1:
        return math.inf
    mean = max(float(np.mean(np.abs(residuals))), LEAST_SPREAD)
    return 2 * count * math.log(mean) + 2 * told * count / (count - told - 1)


def _range(x: Any, count: int) -> tuple[float, float] | tuple[None, None]:
    """Return the least and the largest x, or None twice where x is no list of numbers."""
    import numpy as np

    try:
        places = np.asarray(x, dtype=float)
    except (TypeError, ValueError):
        return None, None
    return (float(places.min()), float(places.max())) if places.shape == (count,) else (None, None)
