"""A fit in words and columns, in the order of lmfit's report: statistics, variables, correlations.

References
----------
Newville et al., lmfit: Non-linear least-squares minimisation and curve-fitting for Python.
"""

from __future__ import annotations

import math

from perfsim.calibrate.parameter import Parameter
from perfsim.calibrate.robust import FitResult
from perfsim.quantity import Quantity
from perfsim.units import format_bytes

__all__ = ["fit_report"]

WORTH = 0.1
"""Correlations below this say nothing and are left out."""


def fit_report(result: FitResult) -> str:
    """Return the report of a fit: every value with its unit, standard error, and limits.

    Examples
    --------
    >>> from perfsim.calibrate.hinge import fit_line
    >>> size = [1e3, 1e4, 1e5, 1e6, 1e7]
    >>> print(fit_report(fit_line(size, [2e-5 + 1e-9 * one for one in size])).splitlines()[0])
    [[Fit Statistics]]
    """
    free = [one for one in result.parameters if not one.fixed]
    range_ = "not stated"
    if result.low is not None and result.high is not None:
        range_ = f"{result.low:.6g} to {result.high:.6g}"
        if result.unit == "B":
            range_ = f"{format_bytes(result.low)} to {format_bytes(result.high)}"
    statistics = {
        "model": result.title,
        "points": str(len(result.residuals)),
        "range of data": range_,
        "free parameters": str(len(free)),
        "loss": f"{result.loss}, {result.rounds} rounds of weights",
        "error, median": f"{result.median:.2%}",
        "error, p90": f"{result.p90:.2%}",
        "error, worst": f"{result.worst:.2%}",
        "AICc": f"{result.aicc:.4g}",
    }
    width = max(len(name) for name in statistics)
    lines = ["[[Fit Statistics]]"]
    lines += [f"    {name:<{width}}  {told}" for name, told in statistics.items()]
    lines.append("[[Variables]]")
    names = max((len(one.name) for one in result.parameters), default=0)
    lines += [f"    {one.name:<{names}}  {_variable(one)}" for one in result.parameters]
    told = [
        f"    C({one}, {other}) = {value:+.3f}"
        for (one, other), value in sorted(result.correlation.items(), key=lambda i: -abs(i[1]))
        if abs(value) >= WORTH
    ]
    lines.append(f"[[Correlations]] (below {WORTH} left out)")
    return "\n".join(lines + (told or ["    none"]))


def _variable(one: Parameter) -> str:
    value = str(Quantity(one.value, one.unit, "fitted", "fit")) if one.unit == "s" else ""
    shown = f"{one.value:.6g} {one.unit}".strip() + (f" ({value})" if value else "")
    if one.fixed or one.stderr is None:
        return f"{shown}  held"
    share = f" ({one.stderr / abs(one.value):.1%})" if one.value else ""
    limits = [
        f"at least {one.low:g}" if math.isfinite(one.low) else "",
        f"at most {one.high:g}" if math.isfinite(one.high) else "",
    ]
    within = ", ".join(limit for limit in limits if limit)
    return f"{shown}  +/- {one.stderr:.2g}{share}{f'  [{within}]' if within else ''}"
