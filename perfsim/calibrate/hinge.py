"""A line, and a line with a floor: how the time of a message grows with its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfsim.calibrate.parameter import Parameter, Unidentified
from perfsim.calibrate.robust import FitResult, fit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["both_shapes", "fit_hinge", "fit_line", "hinge"]

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
