"""The report of a network's fit, in the order of lmfit's: statistics, variables, what is untold."""

from __future__ import annotations

from perfsim.calibrate.link_fit import LinkFit
from perfsim.calibrate.network_fit import NetworkFit
from perfsim.quantity import Quantity
from perfsim.units import format_bytes, format_seconds

__all__ = ["network_report"]

PLACES = {"inter": "between nodes", "intra": "between the GPUs of a node"}


def network_report(fit: NetworkFit, name: str) -> str:
    """Return what was fitted: every value with unit, error, range and residual."""
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
    return "\n".join([f"network {name}", *lines])


def _link(fit: LinkFit) -> list[str]:
    link, found = fit.link, fit.rate_fit
    error = found.stderr("b")
    lines = [
        f"[[Link {PLACES[fit.of]}]]",
        f"    points             {len(found.residuals)} large messages,"
        f" error median {found.median:.1%}, p90 {found.p90:.1%}, worst {found.worst:.1%}",
        f"    rate               {_value(link.rate, (error or 0.0) / found.values['b'])}",
        f"    tree rate          {_value(link.tree_rate)}",
        f"    gamma              {_value(link.gamma)}",
    ]
    for name, curve in (("ring", link.ring), ("tree", link.tree)):
        knots = ", ".join(
            f"{format_seconds(alpha, 3)} at {format_bytes(size, 3)}"
            for size, alpha in zip(curve.size_bytes, curve.alpha_s, strict=True)
        )
        residual = f" (residual p90 {curve.spread:.1%})" if curve.spread is not None else ""
        lines.append(f"    alpha, {name:<4}        {knots}{residual}")
    return lines


def _value(quantity: Quantity, error: float | None = None) -> str:
    told = str(quantity).partition(" +-")[0]
    if error is not None:
        told += f" +/- {error:.2%}"
    if quantity.spread is not None:
        told += f"  residual p90 {quantity.spread:.1%}"
    if quantity.low is not None and quantity.high is not None:
        told += f"  {format_bytes(quantity.low)} to {format_bytes(quantity.high)}"
    return f"{told}  [{quantity.kind}]"
