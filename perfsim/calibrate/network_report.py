"""The report of a network's fit, in the order of lmfit's: statistics, variables, what is untold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perfsim.calibrate.fit import FitResult, Parameter, Unidentified, line_and_hinge
from perfsim.calibrate.link_fit import MIDDLE_BYTES, LinkFit
from perfsim.calibrate.network_fit import NetworkFit
from perfsim.network.link import Latency
from perfsim.network.measured import CollectiveCurve
from perfsim.quantity import SPREAD_LIMIT, Quantity
from perfsim.units import format_bytes, format_seconds

__all__ = ["FitShape", "fit_report", "network_report", "network_toml", "shape_of"]

WORTH = 0.1
"""Correlations below this say nothing and are left out."""


def fit_report(result: FitResult) -> str:
    """Return the report of a fit: every value with its unit, standard error, and limits.

    Examples
    --------
    >>> from perfsim.calibrate.fit import fit_line
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


@dataclass(frozen=True)
class FitShape:
    """What AICc calls for, with the fit of it, or why neither is told.

    ``lead`` is how much lower the AICc of the chosen one is; None where only one was possible.
    """

    verdict: str
    fit: FitResult | None
    lead: float | None = None
    why: str = ""


def shape_of(curve: CollectiveCurve) -> FitShape:
    """Return line or hinge, max(a, c + b m), through a curve's points up to 4 MiB.

    Examples
    --------
    >>> sizes = tuple(2.0**power for power in range(3, 24))
    >>> times = tuple(max(2e-5, -1e-4 + 1e-9 * size) for size in sizes)
    >>> shape_of(CollectiveCurve("all_reduce", 2, 2, 1, sizes, times, "measured", "made up")).verdict
    'hinge'
    """
    points = [
        point
        for point in zip(curve.size_bytes, curve.seconds, strict=True)
        if point[0] <= MIDDLE_BYTES
    ]
    if len(points) <= 2:
        return FitShape("", None, why=f"{len(points)} sizes up to 4 MiB; at least 3")
    try:
        line, bent, chosen = line_and_hinge(*zip(*points, strict=True))
    except Unidentified as error:
        return FitShape("", None, why=str(error))
    lead = None if bent is None else abs(line.aicc - bent.aicc)
    return FitShape("hinge" if chosen is bent else "line", chosen, lead)


PLACES = {"inter": "between nodes", "intra": "between the GPUs of a node"}


def network_report(fit: NetworkFit, name: str, *, full: bool = False) -> str:
    """Return what was fitted: every value with unit, standard error, range and residual.

    ``full`` adds the report of each fit behind it: of a link's rate, of each curve's shape.
    """
    shapes = [(curve.name, shape_of(curve)) for curve in fit.curves]
    lines = ["[[Data]]"]
    for curve, knots in zip(fit.curves, fit.fits, strict=True):
        low, high = curve.size_bytes[0], curve.size_bytes[-1]
        spread = "not repeated" if curve.spread is None else f"repeats within {curve.spread:.1%}"
        lines.append(
            f"    {curve.name}: {len(curve.size_bytes)} sizes, {format_bytes(low)} to"
            f" {format_bytes(high)}, {format_seconds(curve.seconds[0])} to"
            f" {format_seconds(curve.seconds[-1])}, {spread};"
            f" {len(knots.curve.size_bytes)} knots, residual p90 {knots.curve.spread or 0:.1%}"
        )
    for link in fit.links.values():
        lines += _link(link)
    lines.append("[[Shape]] (up to 4 MiB: line c + b m, or hinge max(a, c + b m), by AICc)")
    lines += [f"    {title}: {_shape(shape)}" for title, shape in shapes]
    if fit.tuner is not None:
        tuner, of = fit.tuner, fit.tuner.of
        lines += [
            "[[NCCL's tuner]]",
            f"    version            {of.version} ({of.architecture}, {of.intra})",
            f"    bus bandwidth      {tuner.bus_bandwidth:.4g} GB/s between nodes",
            f"    two nodes          {tuner.two_nodes:g} x that",
            f"    plain tree         {'yes' if tuner.plain_tree else 'no'}",
            f"    LL128 across nodes {'yes' if tuner.near_nic else 'no'}",
        ]
    if fit.inside:
        lines += ["[[Taken from a preset]]", f"    inside the nodes   {fit.inside}"]
    lines.append("[[Not told by these data]]")
    lines += [f"    {sentence}" for sentence in fit.refused] or ["    nothing"]
    lines.append("[[Warnings]]")
    lines += [f"    {sentence}" for sentence in fit.warnings()] or ["    none"]
    for title, found in _fits(fit, shapes) if full else []:
        lines += ["", title, *(f"  {line}" for line in fit_report(found).splitlines())]
    return "\n".join([f"network {name}", *lines])


def _fits(fit: NetworkFit, shapes: list[tuple[str, FitShape]]) -> Iterator[tuple[str, FitResult]]:
    for link in fit.links.values():
        yield f"rate of the link {PLACES[link.of]}", link.rate_fit
        for protocol, held in link.protocol_fits.items():
            yield f"protocol {protocol} {PLACES[link.of]}", held
    for of, shape in shapes:
        if shape.fit is not None:
            yield f"{shape.verdict}, {of}", shape.fit


def _shape(shape: FitShape) -> str:
    if shape.fit is None:
        return f"not told: {shape.why}"
    units = {"a": ("us", 1e6), "c": ("us", 1e6), "b": ("ns/kB", 1e12)}
    told = []
    for one in shape.fit.parameters:
        unit, scale = units[one.name]
        if one.stderr is not None:
            told.append(f"{one.name} = {one.value * scale:.4g} +/- {one.stderr * scale:.2g} {unit}")
    lead = "" if shape.lead is None else f" (AICc lower by {shape.lead:.3g})"
    return f"{shape.verdict}{lead}, {', '.join(told)}, error p90 {shape.fit.p90:.1%}"


def _link(fit: LinkFit) -> list[str]:
    link, found, errors = fit.link, fit.rate_fit, fit.errors
    lines = [
        f"[[Link {PLACES[fit.of]}]]",
        f"    points             {len(found.residuals)} large messages,"
        f" error median {found.median:.1%}, p90 {found.p90:.1%}, worst {found.worst:.1%}",
        f"    rate               {_value(link.rate, errors.get('rate'))}",
        f"    tree rate          {_value(link.tree_rate, errors.get('tree_rate'))}",
        f"    gamma              {_value(link.gamma, errors.get('gamma'))}",
    ]
    for name, curve in (("ring", link.ring), ("tree", link.tree)):
        knots = ", ".join(
            f"{format_seconds(alpha, 3)} at {format_bytes(size, 3)}"
            for size, alpha in zip(curve.size_bytes, curve.alpha_s, strict=True)
        )
        residual = f" (residual p90 {curve.spread:.1%})" if curve.spread is not None else ""
        error = f" +/- {format_seconds(errors[name], 2)}" if name in errors else ""
        first = f"{format_seconds(curve.alpha_s[0], 3)}{error} a hop of a small message"
        lines.append(f"    alpha, {name:<4}        {first}{residual}")
        lines.append(f"                       {knots}")
    for name, held in link.protocols.items():
        values = fit.protocol_fits[name]
        rate_error = (values.stderr("beta") or 0.0) * held.rate.value**2
        lines.append(f"    {name:<7} rate       {_value(held.rate, rate_error)}")
        lines.append(f"    {name:<7} alpha      {_value(held.alpha, values.stderr('alpha'))}")
    return lines


def _value(quantity: Quantity, error: float | None = None) -> str:
    told = str(quantity).partition(" +-")[0]
    if error is not None and quantity.value:
        told += f" +/- {error / quantity.value:.2%}"
    if quantity.spread is not None:
        told += f"  residual p90 {quantity.spread:.1%}"
    if quantity.low is not None and quantity.high is not None:
        told += f"  {format_bytes(quantity.low)} to {format_bytes(quantity.high)}"
    return f"{told}  [{quantity.kind}]"


def network_toml(fit: NetworkFit, head: Mapping[str, Any], *, knots: bool) -> str:
    """Return the network file of a fit.

    Parameters
    ----------
    fit : links, knots, tuner
    head : name, title, transport and, where known, gpus_per_node, nics_per_node, notes
    knots : write the knots of every curve; False where measured curves stand in a file beside
    """
    import tomli_w

    data: dict[str, Any] = {"schema": "perfsim/network/1"}
    data |= {name: value for name, value in head.items() if value not in (None, "", [])}
    library = fit.curves[0].library
    if library != "nccl":
        data["library"] = library
    if fit.inside:
        data["inside"] = fit.inside
    if fit.tuner is not None:
        tuner = fit.tuner
        data["tuner"] = {
            "version": tuner.of.version,
            "architecture": tuner.of.architecture,
            "intra": tuner.of.intra,
            "bus_bandwidth": f"{tuner.bus_bandwidth:.4g}GB/s",
            "two_nodes": tuner.two_nodes,
            "plain_tree": tuner.plain_tree,
            "near_nic": tuner.near_nic,
            "kind": "fitted",
            "source": "the settings under which NCCL's tuner switches where the curves step",
        }
    data["link"] = [_link_toml(link) for link in fit.links.values()]
    if knots:
        data["curve"] = [_curve(one.curve) for one in fit.fits]
    return str(tomli_w.dumps(data))


def _link_toml(fit: LinkFit) -> dict[str, Any]:
    link, errors = fit.link, fit.errors
    found: dict[str, Any] = {"class": fit.of}
    if link.ranks:
        found["ranks"] = list(link.ranks)
    found["rate"] = _rate(link.rate, errors.get("rate"))
    found["tree_rate"] = _rate(link.tree_rate, errors.get("tree_rate"))
    found["gamma"] = _quantity(link.gamma, 1.0, "s/B", errors.get("gamma"))
    found["segments"] = [
        {
            "algorithm": name,
            **_error(curve.alpha_s[0], errors.get(name), 1e6, "us"),
            **_origin(curve),
            "knots": _knots(curve),
        }
        for name, curve in (("ring", link.ring), ("tree", link.tree))
    ]
    if link.protocols:
        found["protocol"] = [_held(name, fit) for name in link.protocols]
    return found


def _held(name: str, fit: LinkFit) -> dict[str, Any]:
    held, values = fit.link.protocols[name], fit.protocol_fits[name]
    beta = values.stderr("beta")
    return {
        "protocol": name,
        "rate": _rate(held.rate, None if beta is None else beta * held.rate.value**2),
        "alpha": _quantity(held.alpha, 1e6, "us", values.stderr("alpha")),
    }


def _rate(rate: Quantity, error: float | None) -> dict[str, Any]:
    return _quantity(rate, 1e-9, "GB/s", error)


def _quantity(
    quantity: Quantity, scale: float, unit: str, error: float | None = None
) -> dict[str, Any]:
    value = {"value": f"{quantity.value * scale:.4g}{unit}"}
    return value | _error(quantity.value, error, scale, unit) | _origin(quantity)


def _error(value: float, error: float | None, scale: float, unit: str) -> dict[str, str]:
    """Return a standard error, none where it is of no use: not told, or far above the value."""
    if error is None or not error <= SPREAD_LIMIT.most * value:
        return {}
    return {"error": f"{error * scale:.2g}{unit}"}


def _origin(one: Quantity | Latency | CollectiveCurve) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(one, Quantity | Latency) and one.low is not None and one.high is not None:
        found["range"] = [_size(one.low), _size(one.high)]
    if one.spread is not None:
        found["residual"] = f"{min(one.spread, 3.0):.2%}"
    return found | {"kind": one.kind, "source": one.source}


def _knots(curve: Latency) -> list[dict[str, str]]:
    return [
        {"size": _size(size), "alpha": f"{alpha * 1e6:.4g}us"}
        for size, alpha in zip(curve.size_bytes, curve.alpha_s, strict=True)
    ]


def _curve(curve: CollectiveCurve) -> dict[str, Any]:
    found: dict[str, Any] = {
        "collective": curve.collective,
        "ranks": curve.ranks,
        "nodes": curve.nodes,
        "gpus_per_node": curve.gpus_per_node,
    }
    for name in ("algorithm", "protocol", "library", "version", "gpu", "fabric"):
        value = getattr(curve, name)
        if value and not (name == "library" and value == "nccl"):
            found[name] = value
    found |= _origin(curve)
    found["knots"] = [
        {"size": _size(size), "time": f"{seconds * 1e6:.4g}us"}
        for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True)
    ]
    return found


def _size(size_bytes: float) -> str:
    return f"{size_bytes:.12g}B"
