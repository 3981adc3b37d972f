"""The report of a network's fit, in the order of lmfit's: statistics, variables, what is untold."""

from __future__ import annotations

from collections.abc import Iterator

from perfsim.calibrate.fit_report import fit_report
from perfsim.calibrate.link_fit import LinkFit
from perfsim.calibrate.network_fit import NetworkFit
from perfsim.calibrate.robust import FitResult
from perfsim.calibrate.shape import Shape, shape_of
from perfsim.quantity import Quantity
from perfsim.units import format_bytes, format_seconds

__all__ = ["network_report"]

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


def _fits(fit: NetworkFit, shapes: list[tuple[str, Shape]]) -> Iterator[tuple[str, FitResult]]:
    for link in fit.links.values():
        yield f"rate of the link {PLACES[link.of]}", link.rate_fit
        for protocol, held in link.protocol_fits.items():
            yield f"protocol {protocol} {PLACES[link.of]}", held
    for of, shape in shapes:
        if shape.fit is not None:
            yield f"{shape.verdict}, {of}", shape.fit


def _shape(shape: Shape) -> str:
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
