"""Fitting measured points: what `perfsim calibrate` and network files rest on, in one place.

`fit` is the core (`robust`), `fit_line` and `fit_hinge` the two shapes of a message's time
(`hinge`), `segments` the knots of a curve that has no formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from perfsim.calibrate.knots import Segments, segments
from perfsim.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = [
    "LEAST_SPREAD",
    "LOSSES",
    "FitResult",
    "Model",
    "Parameter",
    "Search",
    "Segments",
    "Unidentified",
    "both_shapes",
    "fit",
    "fit_hinge",
    "fit_line",
    "hinge",
    "identify",
    "segments",
    "spread_of",
    "weights_of",
]

FLAT = 1e-7
"""A direction in which the curve moves this much less than in the steepest cannot be told."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a model: where the search starts, its limits, and afterwards its error.

    ``stderr`` is the standard error [unit], None before a fit and for a number that was held.
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


class Unidentified(DataError):  # noqa: N818 - it says what the data leave open
    """The points cannot tell a parameter; ``names`` says which, the message what would tell it."""

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names


def identify(
    fitted: Sequence[Parameter], jacobian: Array, scale: Array, needs: Mapping[str, str]
) -> None:
    """Refuse what the points leave open.

    Parameters
    ----------
    fitted : all parameters, with their errors
    jacobian, scale : derivative of the residuals by each free one, and the size of each
    needs : name -> sentence that says which measurement would tell it

    Raises
    ------
    Unidentified
        If one or several together leave the residuals as they are, or a standard error exceeds
        the value of a parameter that cannot be negative.
    """
    import numpy as np

    free = [one for one in fitted if not one.fixed]
    if not free:
        return
    slopes = jacobian * scale
    lengths = np.linalg.norm(slopes, axis=0)
    steepest = float(lengths.max(initial=0.0))
    open_ = [one for one, length in zip(free, lengths, strict=True) if length <= FLAT * steepest]
    why = "changing it leaves every point where it is"
    if not open_:
        _, singular, directions = np.linalg.svd(slopes / lengths, full_matrices=False)
        if singular[-1] < FLAT * singular[0]:
            parts = zip(free, np.abs(directions[-1]), strict=True)
            open_ = [one for one, part in parts if part > 0.3]
            why = "changing them together leaves every point where it is"
    if not open_:
        open_ = [
            one
            for one in free
            if one.low >= 0 and one.stderr is not None and one.stderr > abs(one.value)
        ]
        why = "its standard error is larger than its value"
    if open_:
        told = "; ".join(
            f"{one.name} = {one.value:.3g} +- {one.stderr:.2g} {one.unit}".rstrip() for one in open_
        )
        extra = " ".join(needs[one.name] for one in open_ if one.name in needs)
        names = tuple(one.name for one in open_)
        raise Unidentified(
            f"the points cannot tell {' and '.join(names)} ({told}): {why}."
            f" {extra or 'Measure where it has more weight, or hold it.'}",
            names,
        )


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


NEEDS = {
    "a": "Measure several small messages, where the time is still flat.",
    "c": "Measure smaller messages, down to where the time no longer falls with size.",
    "b": "Measure larger messages, up to where the time doubles with size.",
}
CLEARER = 2.0
"""How much lower the hinge's AICc must be: below this two models are as good as each other."""
FEWEST = 6
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
    """Fit c + b m [s] of sizes m [bytes] with relative errors, robustly; a is held at 0.

    Raises
    ------
    Unidentified
        If c or b cannot be told from these sizes; says which further size would.

    Examples
    --------
    >>> sizes = [1e3, 1e4, 1e5, 1e6, 1e7]
    >>> found = fit_line(sizes, [3e-5 + 2e-9 * size for size in sizes])
    >>> f"{found.values['c']:.3g} {found.values['b']:.3g}"
    '3e-05 2e-09'
    """
    sizes, times = _points(size, seconds)
    return _line(sizes, times, refuse=True)


def _line(sizes: Array, times: Array, *, refuse: bool) -> FitResult:
    c, b = _straight(sizes, times)
    start = (
        Parameter("a", 0.0, "s", fixed=True),
        Parameter("c", max(c, float(times.min()) * 1e-3), "s", low=0.0),
        Parameter("b", max(b, float(times.min() / sizes.max()) * 1e-3), "s/B", low=0.0),
    )
    return fit(hinge, sizes, times, start, needs=NEEDS, refuse=refuse, title="line c + b m")


def fit_hinge(size: Sequence[float], seconds: Sequence[float]) -> FitResult:
    """Fit max(a, c + b m), or the line alone where AICc does not call for the floor.

    Sizes m are in bytes, the fitted times in seconds. The result's ``a`` is held at 0 where the
    line is enough.

    Raises
    ------
    Unidentified
        If neither can be told from these points.

    Examples
    --------
    >>> sizes = [2.0**power for power in range(3, 24)]
    >>> found = fit_hinge(sizes, [max(2e-5, -1e-4 + 1e-9 * size) for size in sizes])
    >>> {name: float(f"{value:.3g}") for name, value in found.values.items()}
    {'a': 2e-05, 'c': -0.0001, 'b': 1e-09}
    """
    return both_shapes(size, seconds)[2]


def both_shapes(
    size: Sequence[float], seconds: Sequence[float]
) -> tuple[FitResult, FitResult | None, FitResult]:
    """Return the line, the hinge or None where none is found, and which of the two AICc takes.

    Sizes are in bytes, the times fitted to in seconds.

    Raises
    ------
    Unidentified
        If the one taken cannot be told from these points.
    """
    sizes, times = _points(size, seconds)
    line = _line(sizes, times, refuse=False)
    bent = _bent(sizes, times) if sizes.size >= FEWEST else None
    if bent is not None and bent.aicc < line.aicc - CLEARER:
        return line, bent, bent
    line = _line(sizes, times, refuse=True)
    return line, bent, line


def _bent(sizes: Array, times: Array) -> FitResult | None:
    """Return the hinge from its best knee, None where no knee or no proper hinge is found."""
    import numpy as np

    best: tuple[float, float, float, float] | None = None
    for knee in range(2, sizes.size - 2):
        a = float(np.median(times[:knee]))
        c, b = _straight(sizes[knee:], times[knee:])
        told = np.maximum(a, c + b * sizes)
        off = float(np.sum(np.abs(np.log(np.maximum(told, 1e-300) / times))))
        if b > 0 and (best is None or off < best[0]):
            best = (off, a, c, b)
    if best is None:
        return None
    start = (
        Parameter("a", best[1], "s", low=0.0),
        Parameter("c", best[2], "s"),
        Parameter("b", best[3], "s/B", low=0.0),
    )
    try:
        return fit(hinge, sizes, times, start, needs=NEEDS, title="hinge max(a, c + b m)")
    except Unidentified:
        return None


def _points(size: Sequence[float], seconds: Sequence[float]) -> tuple[Array, Array]:
    import numpy as np

    sizes, times = np.asarray(size, dtype=float), np.asarray(seconds, dtype=float)
    if sizes.shape != times.shape or sizes.ndim != 1 or sizes.size < 2:
        raise ValueError(f"{sizes.size} sizes and {times.size} times; at least 2 of each")
    order = np.argsort(sizes, kind="stable")
    return sizes[order], times[order]


def _straight(sizes: Array, times: Array) -> tuple[float, float]:
    """Return c, b of the line with the least squares of relative errors."""
    import numpy as np

    rows = np.column_stack((1.0 / times, sizes / times))
    (c, b), *_ = np.linalg.lstsq(rows, np.ones(sizes.size), rcond=None)
    return float(c), float(b)
