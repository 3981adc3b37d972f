"""Robust fits of measured times, with standard errors, and the two shapes of a message's time.

`fit` fits any model to points: it minimises weighted squares with `scipy.optimize.least_squares`,
gives points that lie far off less weight, and refuses parameters that the points do not determine.
`fit_line` fits c + b m to the times of messages of m bytes, `fit_hinge` max(a, c + b m) where the
points call for a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from perfsim.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = [
    "FitResult",
    "Model",
    "Parameter",
    "Unidentified",
    "fit",
    "fit_hinge",
    "fit_line",
    "hinge",
    "line_and_hinge",
]

LOSSES = ("soft_l1", "cauchy", "linear")
"""Losses, by the names of `scipy.optimize.least_squares`."""

_MAX_ROUNDS = 60
"""Renewals of the weights, at most. No source: most fits need fewer than 20; where the median
residual jumps between two points, no number of rounds ends it."""

_CONVERGED = 1e-10
"""A relative change of the parameters below this ends the rounds. No source: chosen so that the
rounds add nothing to the digits that a network file keeps (4)."""

_TOLERANCE = 1e-12
"""Of `least_squares`, within a round. No source: chosen so that it is finer than `_CONVERGED`."""

_MIN_SPREAD = 1e-9
"""Residuals below this are rounding. It keeps the weights of an exact fit finite."""

_MIN_SLOPE = 1e-7
"""A direction that moves the model this much less than the steepest one is not determined.

No source: chosen some ten times above the error of a numerical derivative (about 1e-8).
"""

_MAD_TO_SIGMA = 1.4826
"""Standard deviation over the median absolute deviation of normal residuals: 1 / 0.6745."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a model: where the search starts, its limits, and after a fit its error.

    ``stderr`` is the standard error [unit]: None before a fit and for a number that was held fixed.
    """

    name: str
    value: float
    unit: str = ""
    stderr: float | None = None
    low: float = -math.inf
    high: float = math.inf
    fixed: bool = False

    def __post_init__(self) -> None:
        """Refuse a start outside the limits."""
        if not (math.isfinite(self.value) and self.low <= self.value <= self.high):
            raise ValueError(f"{self.name}: start {self.value} is not in {self.low} to {self.high}")


class Unidentified(DataError):  # noqa: N818 - it names a property of the data
    """The points do not determine some parameters.

    ``names`` lists them; the message says which measurement would determine them.
    """

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names


Model = Callable[..., Any]
"""Times that a model gives for x, its parameters by name: ``model(x, alpha=..., beta=...)``."""


@dataclass(frozen=True)
class FitResult:
    """A fitted model: values with errors, how far it is off, and the range it was fitted in.

    ``residuals`` are log(model / measured) of a relative fit, else model - measured; ``median``,
    ``p90`` and ``worst`` are absolute relative errors of the model; ``correlation`` has a pair of
    names as key; ``aicc`` compares models fitted to the same points (lower is better); ``rounds``
    counts how often the weights were set.
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
        return {parameter.name: parameter.value for parameter in self.parameters}

    def stderr(self, name: str) -> float | None:
        """Return the standard error of one parameter, None where it was held fixed."""
        return next(one.stderr for one in self.parameters if one.name == name)

    def at(self, x: Any) -> Any:
        """Return the fitted model's value at x."""
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
    parameters : start, limits, and which are held fixed
    relative : residuals are log(model / y); else model - y
    loss : soft_l1 or cauchy (outliers lose weight), or linear
    needs : name -> sentence that says which measurement would determine this parameter
    refuse : raise where the data do not determine a parameter; else report it with its error
    title : of the model, for the report

    Raises
    ------
    Unidentified
        If the standard error of a parameter that cannot be negative exceeds its value, or a
        direction of the parameters leaves the model unchanged.
    ValueError
        If there are fewer points than free parameters, or a value is not finite and positive.

    Notes
    -----
    Iteratively reweighted least squares (Holland & Welsch 1977). The scale of the residuals is
    renewed in every round from their median absolute deviation.

    Examples
    --------
    >>> size = [1e3, 1e4, 1e5, 1e6]
    >>> line = lambda x, alpha, beta: [alpha + beta * one for one in x]
    >>> start = [Parameter("alpha", 1e-5, "s", low=0), Parameter("beta", 1e-9, "s/B", low=0)]
    >>> result = fit(line, size, line(size, 2e-5, 5e-10), start)
    >>> [float(f"{value:.6g}") for value in result.values.values()]
    [2e-05, 5e-10]
    """
    import numpy as np

    if loss not in LOSSES:
        raise ValueError(f"loss {loss!r}; allowed: {', '.join(LOSSES)}")
    free = [parameter for parameter in parameters if not parameter.fixed]
    measured = _measured(y, len(free), relative)
    held = {parameter.name: parameter.value for parameter in parameters if parameter.fixed}
    names = [parameter.name for parameter in free]

    def residual(values: Array) -> Array:
        given = dict(zip(names, values.tolist(), strict=True))
        modelled = np.asarray(model(x, **held, **given), dtype=float)
        if not relative:
            return modelled - measured
        logs: Array = np.log(np.maximum(modelled, 1e-300) / measured)
        return logs

    best = _minimise(residual, free, loss)
    errors, correlation = _errors(best.residuals, best.jacobian, loss)
    pairs = iter(zip(best.values.tolist(), errors, strict=True))
    fitted = []
    for parameter in parameters:
        if parameter.fixed:
            fitted.append(parameter)
        else:
            value, error = next(pairs)
            fitted.append(replace(parameter, value=value, stderr=error))
    if refuse:
        slopes = best.jacobian * best.sizes
        _refuse_unidentified([one for one in fitted if not one.fixed], slopes, needs or {})
    off = np.abs(np.expm1(best.residuals)) if relative else np.abs(best.residuals / measured)
    low, high = _range(x, measured.size)
    return FitResult(
        title=title,
        model=model,
        parameters=tuple(fitted),
        correlation={
            (name, other): float(correlation[i, j])
            for (i, name), (j, other) in combinations(enumerate(names), 2)
        },
        residuals=tuple(best.residuals.tolist()),
        median=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        worst=float(np.max(off)),
        low=low,
        high=high,
        loss=loss,
        aicc=_aicc(best.residuals, len(free)),
        rounds=best.rounds,
    )


def _measured(y: Any, free: int, relative: bool) -> Array:
    """Return the measured values, checked."""
    import numpy as np

    measured = np.asarray(y, dtype=float)
    if measured.ndim != 1 or measured.size < max(1, free):
        raise ValueError(f"{measured.size} points for {free} free parameters")
    if not np.all(np.isfinite(measured)) or (relative and np.any(measured <= 0)):
        raise ValueError("measured values must be finite, and positive for a relative fit")
    return measured


def _range(x: Any, count: int) -> tuple[float, float] | tuple[None, None]:
    """Return the smallest and the largest x, or None twice where x is no list of numbers."""
    import numpy as np

    try:
        numbers = np.asarray(x, dtype=float)
    except (TypeError, ValueError):
        return None, None
    if numbers.shape != (count,):
        return None, None
    return float(numbers.min()), float(numbers.max())


@dataclass(frozen=True, slots=True)
class _Minimum:
    """Where a search ended: values, residuals, their derivatives, and each parameter's size."""

    values: Array
    residuals: Array
    jacobian: Array
    sizes: Array
    rounds: int


def _minimise(residual: Callable[[Array], Array], free: Sequence[Parameter], loss: str) -> _Minimum:
    """Return the minimum of a robust loss over the free parameters, within their limits.

    Each round is a weighted least-squares fit; the weights are those of its residuals.
    """
    import numpy as np
    from scipy.optimize import least_squares

    start = np.array([parameter.value for parameter in free], dtype=float)
    low = np.array([parameter.low for parameter in free], dtype=float)
    high = np.array([parameter.high for parameter in free], dtype=float)
    # Parameters differ by orders of magnitude (5e-5 s, 1e-10 s/B): search in units of each.
    smallest = np.where(start != 0, np.abs(start) * 1e-3, 1e-12)

    def sizes_of(values: Array) -> Array:
        return np.maximum(np.abs(values), smallest)

    values = start
    residuals = residual(values)
    if not free:
        return _Minimum(values, residuals, np.zeros((residuals.size, 0)), values, 1)
    weights = np.ones(residuals.size)
    for rounds in range(1, _MAX_ROUNDS + 1):
        sizes, root = sizes_of(values), np.sqrt(weights)

        def weighted(scaled: Array, sizes: Array = sizes, root: Array = root) -> Array:
            return root * residual(scaled * sizes)

        # dogbox, not trf: a parameter may end on its limit, such as a start-up time of 0.
        result = least_squares(
            weighted,
            values / sizes,
            jac="3-point",
            bounds=(low / sizes, high / sizes),
            method="dogbox",
            ftol=_TOLERANCE,
            xtol=_TOLERANCE,
            gtol=_TOLERANCE,
        )
        before, values = values, np.clip(result.x * sizes, low, high)
        moved = float(np.max(np.abs(values - before) / sizes_of(values)))
        residuals = residual(values)
        jacobian = result.jac / root[:, None] / sizes
        if rounds > 1 and (moved < _CONVERGED or loss == "linear"):
            break
        weights = _weights(residuals / _spread(residuals), loss)
    return _Minimum(values, residuals, jacobian, sizes_of(values), rounds)


def _spread(residuals: Array) -> float:
    """Estimate the standard deviation of residuals from their median absolute value."""
    import numpy as np

    return max(float(np.median(np.abs(residuals))) * _MAD_TO_SIGMA, _MIN_SPREAD)


def _weights(scaled: Array, loss: str) -> Array:
    """Return the weight of each residual, given in spreads: 1 near zero, less the further off."""
    import numpy as np

    if loss == "linear":
        return np.ones_like(scaled)
    weights: Array = (1.0 + scaled**2) ** (-0.5 if loss == "soft_l1" else -1.0)
    return weights


def _errors(residuals: Array, jacobian: Array, loss: str) -> tuple[list[float], Array]:
    """Return standard errors and correlations of an M-estimate (Huber 1981, equation 6.5)."""
    import numpy as np

    count, size = jacobian.shape
    scaled = residuals / _spread(residuals)
    square = scaled**2
    influence = _weights(scaled, loss) * residuals
    if loss == "linear":
        gain = 1.0
    elif loss == "soft_l1":
        gain = float(np.mean((1.0 + square) ** -1.5))
    else:
        # A cauchy loss may bend down everywhere; the least value keeps the error finite.
        gain = max(float(np.mean((1.0 - square) / (1.0 + square) ** 2)), 0.1)
    variance = float(np.sum(influence**2)) / max(count - size, 1) / gain**2
    lengths = np.linalg.norm(jacobian, axis=0)
    unit = jacobian / np.where(lengths > 0, lengths, 1.0)
    inverse = np.linalg.pinv(unit.T @ unit, rcond=1e-14)
    root = np.sqrt(np.maximum(np.diag(inverse), 0.0))
    errors = np.where(lengths > 0, np.sqrt(variance) * root / np.maximum(lengths, 1e-300), np.inf)
    correlation = inverse / np.maximum(np.outer(root, root), 1e-300)
    return [float(error) for error in errors], correlation


def _refuse_unidentified(
    free: Sequence[Parameter], slopes: Array, needs: Mapping[str, str]
) -> None:
    """Refuse parameters that the points do not determine.

    Parameters
    ----------
    free : the fitted parameters, with their errors
    slopes : derivative of the residuals by each of them, per relative change of the parameter
    needs : name -> sentence that says which measurement would determine it

    Raises
    ------
    Unidentified
        If one or several together leave the residuals unchanged, or a standard error exceeds
        the value of a parameter that cannot be negative.
    """
    import numpy as np

    if not free:
        return
    lengths = np.linalg.norm(slopes, axis=0)
    steepest = float(lengths.max(initial=0.0))
    reason = "changing it changes the model at no point"
    unknown = [
        parameter
        for parameter, length in zip(free, lengths, strict=True)
        if length <= _MIN_SLOPE * steepest
    ]
    if not unknown:
        _, singular, directions = np.linalg.svd(slopes / lengths, full_matrices=False)
        if singular[-1] < _MIN_SLOPE * singular[0]:
            reason = "changing them together changes the model at no point"
            parts = zip(free, np.abs(directions[-1]), strict=True)
            unknown = [parameter for parameter, part in parts if part > 0.3]
    if not unknown:
        reason = "its standard error is larger than its value"
        unknown = [
            parameter
            for parameter in free
            if parameter.low >= 0
            and parameter.stderr is not None
            and parameter.stderr > abs(parameter.value)
        ]
    if unknown:
        names = tuple(parameter.name for parameter in unknown)
        values = "; ".join(
            f"{one.name} = {one.value:.3g} +- {one.stderr:.2g} {one.unit}".rstrip()
            for one in unknown
        )
        advice = " ".join(needs[name] for name in names if name in needs)
        raise Unidentified(
            f"the points do not determine {' and '.join(names)} ({values}): {reason}."
            f" {advice or 'Measure where it has more weight, or hold it fixed.'}",
            names,
        )


def _aicc(residuals: Array, size: int) -> float:
    """Return Akaike's criterion for Laplace-distributed residuals, corrected for few points.

    Hurvich & Tsai 1989; the mean absolute residual is the maximum-likelihood scale.
    """
    import numpy as np

    count, estimated = residuals.size, size + 1
    if count <= estimated + 1:
        return math.inf
    mean = max(float(np.mean(np.abs(residuals))), _MIN_SPREAD)
    return 2 * count * math.log(mean) + 2 * estimated * count / (count - estimated - 1)


# The two shapes of a message's time

_NEEDS = {
    "a": "Measure several small messages, where the time is still flat.",
    "c": "Measure smaller messages, down to where the time no longer falls with size.",
    "b": "Measure larger messages, up to where the time doubles with size.",
}

_AICC_LEAD = 2.0
"""How much lower the hinge's AICc must be. Below 2, two models are about as well supported
(Burnham & Anderson 2002, section 2.6)."""

_MIN_HINGE_POINTS = 6
"""Points that a hinge needs: three parameters, and as many to check them."""


def hinge(m: Any, a: float, c: float, b: float) -> Any:
    """Return the time of a message, max(a, c + b m) [s].

    Parameters
    ----------
    m : message size [B], a number or an array
    a : floor [s]; 0 makes it a line
    c : start-up time of the line [s], negative where the line starts below the floor
    b : time of a byte [s/B]

    Examples
    --------
    >>> [float(hinge(m, 1e-5, 0.0, 1e-9)) for m in (1e3, 1e5)]
    [1e-05, 0.0001]
    """
    import numpy as np

    return np.maximum(a, c + b * np.asarray(m, dtype=float))


def fit_line(size: Sequence[float], seconds: Sequence[float]) -> FitResult:
    """Fit c + b m [s] to sizes m [bytes] with relative errors, robustly; a is held at 0.

    Raises
    ------
    Unidentified
        If these sizes do not determine c or b; says which further size would.

    Examples
    --------
    >>> sizes = [1e3, 1e4, 1e5, 1e6, 1e7]
    >>> result = fit_line(sizes, [3e-5 + 2e-9 * size for size in sizes])
    >>> f"{result.values['c']:.3g} {result.values['b']:.3g}"
    '3e-05 2e-09'
    """
    sizes, times = _points(size, seconds)
    return _line(sizes, times, refuse=True)


def fit_hinge(size: Sequence[float], seconds: Sequence[float]) -> FitResult:
    """Fit max(a, c + b m), or the line alone where AICc does not call for the floor.

    Sizes m are in bytes, the fitted times in seconds. The result's ``a`` is held at 0 where the
    line is enough.

    Raises
    ------
    Unidentified
        If the points determine neither.

    Examples
    --------
    >>> sizes = [2.0**power for power in range(3, 24)]
    >>> result = fit_hinge(sizes, [max(2e-5, -1e-4 + 1e-9 * size) for size in sizes])
    >>> {name: float(f"{value:.3g}") for name, value in result.values.items()}
    {'a': 2e-05, 'c': -0.0001, 'b': 1e-09}
    """
    return line_and_hinge(size, seconds)[2]


def line_and_hinge(
    size: Sequence[float], seconds: Sequence[float]
) -> tuple[FitResult, FitResult | None, FitResult]:
    """Return the line, the hinge (None where there is none), and the one that AICc prefers.

    Sizes are in bytes, the times fitted to in seconds.

    Raises
    ------
    Unidentified
        If the points do not determine the preferred one.
    """
    sizes, times = _points(size, seconds)
    line = _line(sizes, times, refuse=False)
    bent = _hinge(sizes, times) if sizes.size >= _MIN_HINGE_POINTS else None
    if bent is not None and bent.aicc < line.aicc - _AICC_LEAD:
        return line, bent, bent
    line = _line(sizes, times, refuse=True)
    return line, bent, line


def _points(size: Sequence[float], seconds: Sequence[float]) -> tuple[Array, Array]:
    """Return sizes and times in the order of the sizes."""
    import numpy as np

    sizes, times = np.asarray(size, dtype=float), np.asarray(seconds, dtype=float)
    if sizes.shape != times.shape or sizes.ndim != 1 or sizes.size < 2:
        raise ValueError(f"{sizes.size} sizes and {times.size} times; at least 2 of each")
    order = np.argsort(sizes, kind="stable")
    return sizes[order], times[order]


def _line(sizes: Array, times: Array, *, refuse: bool) -> FitResult:
    c, b = _least_squares_line(sizes, times)
    start = (
        Parameter("a", 0.0, "s", fixed=True),
        Parameter("c", max(c, float(times.min()) * 1e-3), "s", low=0.0),
        Parameter("b", max(b, float(times.min() / sizes.max()) * 1e-3), "s/B", low=0.0),
    )
    return fit(hinge, sizes, times, start, needs=_NEEDS, refuse=refuse, title="line c + b m")


def _hinge(sizes: Array, times: Array) -> FitResult | None:
    """Fit the hinge from its best start; None where no start gives a proper hinge.

    A start takes the points below one of the sizes as the floor and a line through the others.
    """
    import numpy as np

    best: tuple[float, float, float, float] | None = None
    for knee in range(2, sizes.size - 2):
        a = float(np.median(times[:knee]))
        c, b = _least_squares_line(sizes[knee:], times[knee:])
        modelled = np.maximum(hinge(sizes, a, c, b), 1e-300)
        off = float(np.sum(np.abs(np.log(modelled / times))))
        if b > 0 and (best is None or off < best[0]):
            best = (off, a, c, b)
    if best is None:
        return None
    _, a, c, b = best
    start = (
        Parameter("a", a, "s", low=0.0),
        Parameter("c", c, "s"),
        Parameter("b", b, "s/B", low=0.0),
    )
    try:
        return fit(hinge, sizes, times, start, needs=_NEEDS, title="hinge max(a, c + b m)")
    except Unidentified:
        return None


def _least_squares_line(sizes: Array, times: Array) -> tuple[float, float]:
    """Return c, b of the line with the least squares of relative errors."""
    import numpy as np

    rows = np.column_stack((1.0 / times, sizes / times))
    (c, b), *_ = np.linalg.lstsq(rows, np.ones(sizes.size), rcond=None)
    return float(c), float(b)
