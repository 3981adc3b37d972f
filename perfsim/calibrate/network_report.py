"""The report of a fitted network for a person, and its network file (TOML).

The report lists the measured curves, each link's numbers with their standard errors, the shape of
each curve, NCCL's tuner, what the curves do not determine, and warnings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfsim.calibrate.fit import FitResult, Parameter, Unidentified, line_and_hinge
from perfsim.calibrate.link_fit import MIDDLE_BYTES, LinkFit
from perfsim.calibrate.network_fit import NetworkFit
from perfsim.network.link import Latency
from perfsim.network.measured import CollectiveCurve
from perfsim.quantity import SPREAD_LIMIT, Quantity
from perfsim.units import format_bytes, format_seconds

__all__ = ["FitShape", "fit_report", "line_or_hinge", "network_report", "network_toml"]

_MIN_CORRELATION = 0.1
"""Smaller correlations are left out. The value is lmfit's default in its fit_report."""

_WHERE = {"inter": "between nodes", "intra": "between the GPUs of a node"}


def fit_report(result: FitResult) -> str:
    """Return the report of a fit: every value with its unit, standard error, and limits.

    Examples
    --------
    >>> from perfsim.calibrate.fit import fit_line
    >>> size = [1e3, 1e4, 1e5, 1e6, 1e7]
    >>> print(fit_report(fit_line(size, [2e-5 + 1e-9 * one for one in size])).splitlines()[0])
    Fit
    """
    free = [parameter for parameter in result.parameters if not parameter.fixed]
    sizes = "not stated"
    if result.low is not None and result.high is not None:
        sizes = f"{result.low:.6g} to {result.high:.6g}"
        if result.unit == "B":
            sizes = f"{format_bytes(result.low)} to {format_bytes(result.high)}"
    statistics = {
        "model": result.title,
        "points": str(len(result.residuals)),
        "range of data": sizes,
        "free parameters": str(len(free)),
        "loss": f"{result.loss}, {result.rounds} rounds of weights",
        "error, median": f"{result.median:.2%}",
        "error, p90": f"{result.p90:.2%}",
        "error, worst": f"{result.worst:.2%}",
        "AICc": f"{result.aicc:.4g}",
    }
    width = max(len(name) for name in statistics)
    lines = ["Fit"]
    lines += [f"    {name:<{width}}  {value}" for name, value in statistics.items()]
    lines.append("Parameters")
    width = max((len(parameter.name) for parameter in result.parameters), default=0)
    lines += [
        f"    {parameter.name:<{width}}  {_parameter(parameter)}" for parameter in result.parameters
    ]
    lines.append(f"Correlations of at least {_MIN_CORRELATION}")
    correlations = sorted(result.correlation.items(), key=lambda item: -abs(item[1]))
    shown = [
        f"    C({name}, {other}) = {value:+.3f}"
        for (name, other), value in correlations
        if abs(value) >= _MIN_CORRELATION
    ]
    return "\n".join(lines + (shown or ["    none"]))


def _parameter(parameter: Parameter) -> str:
    """Return a parameter's value with its unit, standard error and limits."""
    shown = f"{parameter.value:.6g} {parameter.unit}".strip()
    if parameter.unit == "s":
        shown += f" ({Quantity(parameter.value, 's', 'fitted', 'fit')})"
    if parameter.fixed or parameter.stderr is None:
        return f"{shown}  held fixed"
    share = f" ({parameter.stderr / abs(parameter.value):.1%})" if parameter.value else ""
    limits = [
        f"at least {parameter.low:g}" if math.isfinite(parameter.low) else "",
        f"at most {parameter.high:g}" if math.isfinite(parameter.high) else "",
    ]
    within = ", ".join(limit for limit in limits if limit)
    return f"{shown}  +/- {parameter.stderr:.2g}{share}{f'  [{within}]' if within else ''}"


@dataclass(frozen=True)
class FitShape:
    """The shape that AICc prefers, line or hinge, with its fit, or why there is neither.

    ``lead`` is how much lower the AICc of the chosen one is; None where only one was possible.
    """

    verdict: str
    fit: FitResult | None
    lead: float | None = None
    why: str = ""


def line_or_hinge(curve: CollectiveCurve) -> FitShape:
    """Fit a line or hinge, max(a, c + b m), through a curve's points up to 4 MiB.

    Examples
    --------
    >>> sizes = tuple(2.0**power for power in range(3, 24))
    >>> times = tuple(max(2e-5, -1e-4 + 1e-9 * size) for size in sizes)
    >>> curve = CollectiveCurve("all_reduce", 2, 2, 1, sizes, times, "measured", "made up")
    >>> line_or_hinge(curve).verdict
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


def _repeats(curve: CollectiveCurve) -> str:
    """Say how far apart repeats of a curve are: in the median over its sizes, and at most."""
    if curve.spread is None:
        return "not repeated"
    if curve.widest is None:
        return f"repeats within {curve.spread:.1%}"
    size, most = curve.widest
    return f"repeats within {curve.spread:.1%} (median), at most {most:.1%} at {format_bytes(size)}"


def network_report(
    fit: NetworkFit, name: str, noticed: Sequence[str] = (), *, full: bool = False
) -> str:
    """Return what was fitted: every value with unit, standard error, range and residual.

    ``noticed`` are sentences on what makes the curves doubtful, which come first of the warnings.
    ``full`` adds the report of each fit behind it: of a link's rate, of each curve's shape.
    """
    shapes = [(curve.name, line_or_hinge(curve)) for curve in fit.curves]
    lines = [f"network {name}", "Measured curves"]
    for curve, knots in zip(fit.curves, fit.fits, strict=True):
        low, high = curve.size_bytes[0], curve.size_bytes[-1]
        lines.append(
            f"    {curve.name}: {len(curve.size_bytes)} sizes, {format_bytes(low)} to"
            f" {format_bytes(high)}, {format_seconds(curve.seconds[0])} to"
            f" {format_seconds(curve.seconds[-1])}, {_repeats(curve)};"
            f" {len(knots.curve.size_bytes)} knots, residual p90 {knots.curve.spread or 0:.1%}"
        )
    for link in fit.links.values():
        lines += _link_lines(link)
    lines.append("Shape up to 4 MiB (line c + b m, or hinge max(a, c + b m), by AICc)")
    lines += [f"    {title}: {_shape(shape)}" for title, shape in shapes]
    if fit.tuner is not None:
        tuner, of = fit.tuner, fit.tuner.of
        lines += [
            f"{of.library}'s tuner",
            f"    version            {of.version} ({of.architecture}, {of.intra})",
            f"    bus bandwidth      {tuner.bus_bandwidth:.4g} GB/s between nodes",
            f"    two nodes          {tuner.two_nodes:g} x that",
            f"    plain tree         {'yes' if tuner.plain_tree else 'no'}",
            f"    LL128 across nodes {'yes' if tuner.near_nic else 'no'}",
        ]
    if fit.inside:
        lines += ["Taken from a preset", f"    inside the nodes   {fit.inside}"]
    lines.append("Not determined by these curves")
    lines += [f"    {sentence}" for sentence in fit.undetermined] or ["    nothing"]
    lines.append("Warnings")
    lines += [f"    {sentence}" for sentence in (*noticed, *fit.warnings())] or ["    none"]
    for title, result in _fits(fit, shapes) if full else []:
        lines += ["", title, *(f"  {line}" for line in fit_report(result).splitlines())]
    return "\n".join(lines)


def _fits(fit: NetworkFit, shapes: list[tuple[str, FitShape]]) -> Iterator[tuple[str, FitResult]]:
    """Give title and result of every fit: of links, protocols, and the curves' shapes."""
    for link_class, link in fit.links.items():
        yield f"rate of the link {_WHERE[link_class]}", link.rate_fit
        for protocol, result in link.protocol_fits.items():
            yield f"protocol {protocol} {_WHERE[link_class]}", result
    for title, shape in shapes:
        if shape.fit is not None:
            yield f"{shape.verdict}, {title}", shape.fit


def _shape(shape: FitShape) -> str:
    """Return a line's or hinge's parameters, in us and ns/kB, on one line."""
    if shape.fit is None:
        return f"not determined: {shape.why}"
    units = {"a": ("us", 1e6), "c": ("us", 1e6), "b": ("ns/kB", 1e12)}
    values = []
    for one in shape.fit.parameters:
        unit, scale = units[one.name]
        if one.stderr is not None:
            value, error = one.value * scale, one.stderr * scale
            values.append(f"{one.name} = {value:.4g} +/- {error:.2g} {unit}")
    lead = "" if shape.lead is None else f" (AICc lower by {shape.lead:.3g})"
    return f"{shape.verdict}{lead}, {', '.join(values)}, error p90 {shape.fit.p90:.1%}"


def _link_lines(fit: LinkFit) -> list[str]:
    """Return a link's part of the report."""
    link, rate_fit, errors = fit.link, fit.rate_fit, fit.errors
    lines = [
        f"Link {_WHERE[fit.link_class]}",
        f"    points             {len(rate_fit.residuals)} large messages, error median"
        f" {rate_fit.median:.1%}, p90 {rate_fit.p90:.1%}, worst {rate_fit.worst:.1%}",
        f"    rate               {_value(link.rate, errors.get('rate'))}",
        f"    tree rate          {_value(link.tree_rate, errors.get('tree_rate'))}",
        f"    gamma              {_value(link.gamma, errors.get('gamma'))}",
    ]
    for name, latency in (("ring", link.ring), ("tree", link.tree)):
        knots = ", ".join(
            f"{format_seconds(alpha, 3)} at {format_bytes(size, 3)}"
            for size, alpha in zip(latency.size_bytes, latency.alpha_s, strict=True)
        )
        residual = f" (residual p90 {latency.spread:.1%})" if latency.spread is not None else ""
        error = f" +/- {format_seconds(errors[name], 2)}" if name in errors else ""
        first = f"{format_seconds(latency.alpha_s[0], 3)}{error} a hop of a small message"
        lines.append(f"    alpha, {name:<4}        {first}{residual}")
        lines.append(f"                       {knots}")
    for name, held in link.protocols.items():
        result = fit.protocol_fits[name]
        rate_error = (result.stderr("beta") or 0.0) * held.rate.value**2
        lines.append(f"    {name:<7} rate       {_value(held.rate, rate_error)}")
        lines.append(f"    {name:<7} alpha      {_value(held.alpha, result.stderr('alpha'))}")
    return lines


def _value(quantity: Quantity, error: float | None = None) -> str:
    """Return a quantity with its standard error, residual, range and kind."""
    text = str(quantity).partition(" +-")[0]
    if error is not None and quantity.value:
        text += f" +/- {error / quantity.value:.2%}"
    if quantity.spread is not None:
        text += f"  residual p90 {quantity.spread:.1%}"
    if quantity.low is not None and quantity.high is not None:
        text += f"  {format_bytes(quantity.low)} to {format_bytes(quantity.high)}"
    return f"{text}  [{quantity.kind}]"


def network_toml(fit: NetworkFit, head: Mapping[str, Any], *, knots: bool) -> str:
    """Write the network file of a fit as TOML text.

    Parameters
    ----------
    fit : links, knots, tuner
    head : name, title, transport and, where known, gpus_per_node, nics_per_node, notes, noticed
    knots : write the knots of every curve; False where a file beside it holds the measured curves
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
        borrowed = library != tuner.of.library.lower()
        data["tuner"] = {
            "version": tuner.of.version,
            "architecture": tuner.of.architecture,
            "intra": tuner.of.intra,
            "bus_bandwidth": f"{tuner.bus_bandwidth:.4g}GB/s",
            "two_nodes": tuner.two_nodes,
            "plain_tree": tuner.plain_tree,
            "near_nic": tuner.near_nic,
            "kind": "fitted",
            "source": f"the settings under which {tuner.of.library}'s tuner switches where the"
            " curves step" + (f"; {library} has figures of its own" if borrowed else ""),
        }
    data["link"] = [_link_toml(link) for link in fit.links.values()]
    if knots:
        data["curve"] = [_curve(knots.curve) for knots in fit.fits]
    return str(tomli_w.dumps(data))


def _link_toml(fit: LinkFit) -> dict[str, Any]:
    """Return a ``[[link]]`` table."""
    link, errors = fit.link, fit.errors
    table: dict[str, Any] = {"class": fit.link_class}
    if link.ranks:
        table["ranks"] = list(link.ranks)
    table["rate"] = _rate(link.rate, errors.get("rate"))
    table["tree_rate"] = _rate(link.tree_rate, errors.get("tree_rate"))
    table["gamma"] = _quantity(link.gamma, 1.0, "s/B", errors.get("gamma"))
    table["segments"] = [
        {
            "algorithm": name,
            **_error(latency.alpha_s[0], errors.get(name), 1e6, "us"),
            **_origin(latency),
            "knots": [
                {"size": _size(size), "alpha": f"{alpha * 1e6:.4g}us"}
                for size, alpha in zip(latency.size_bytes, latency.alpha_s, strict=True)
            ],
        }
        for name, latency in (("ring", link.ring), ("tree", link.tree))
    ]
    if link.protocols:
        table["protocol"] = [_protocol(name, fit) for name in link.protocols]
    return table


def _protocol(name: str, fit: LinkFit) -> dict[str, Any]:
    """Return a ``[[link.protocol]]`` table: rate and alpha with the protocol held fixed."""
    held, result = fit.link.protocols[name], fit.protocol_fits[name]
    beta = result.stderr("beta")
    return {
        "protocol": name,
        "rate": _rate(held.rate, None if beta is None else beta * held.rate.value**2),
        "alpha": _quantity(held.alpha, 1e6, "us", result.stderr("alpha")),
    }


def _rate(rate: Quantity, error: float | None) -> dict[str, Any]:
    return _quantity(rate, 1e-9, "GB/s", error)


def _quantity(
    quantity: Quantity, scale: float, unit: str, error: float | None = None
) -> dict[str, Any]:
    """Return a value with its error, range, residual, kind and source."""
    value = {"value": f"{quantity.value * scale:.4g}{unit}"}
    return value | _error(quantity.value, error, scale, unit) | _origin(quantity)


def _error(value: float, error: float | None, scale: float, unit: str) -> dict[str, str]:
    """Return a standard error; none where it is not known, or far above the value."""
    if error is None or not error <= SPREAD_LIMIT.most * value:
        return {}
    return {"error": f"{error * scale:.2g}{unit}"}


def _origin(number: Quantity | Latency | CollectiveCurve) -> dict[str, Any]:
    """Return where a number comes from: range, residual, kind and source."""
    table: dict[str, Any] = {}
    ends = () if isinstance(number, CollectiveCurve) else (number.low, number.high)
    if ends and None not in ends:
        table["range"] = [_size(end) for end in ends if end is not None]
    if number.spread is not None:
        table["residual"] = f"{min(number.spread, SPREAD_LIMIT.most):.2%}"
    return table | {"kind": number.kind, "source": number.source}


def _curve(curve: CollectiveCurve) -> dict[str, Any]:
    """Return a ``[[curve]]`` table: the knots of a measured curve."""
    table: dict[str, Any] = {
        "collective": curve.collective,
        "ranks": curve.ranks,
        "nodes": curve.nodes,
        "gpus_per_node": curve.gpus_per_node,
    }
    for name in ("algorithm", "protocol", "library", "version", "gpu", "fabric"):
        value = getattr(curve, name)
        if value and not (name == "library" and value == "nccl"):
            table[name] = value
    table |= _origin(curve)
    table["knots"] = [
        {"size": _size(size), "time": f"{seconds * 1e6:.4g}us"}
        for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True)
    ]
    return table


def _size(size_bytes: float) -> str:
    return f"{size_bytes:.12g}B"
