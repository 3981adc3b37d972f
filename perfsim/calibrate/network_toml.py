"""A fitted network as the text of its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsim.calibrate.link_fit import LinkFit
from perfsim.calibrate.network_fit import NetworkFit
from perfsim.cluster.latency import Latency
from perfsim.cluster.measured import Curve
from perfsim.limits import SPREAD
from perfsim.quantity import Quantity

__all__ = ["network_toml"]


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
    data["link"] = [_link(link) for link in fit.links.values()]
    if knots:
        data["curve"] = [_curve(one.curve) for one in fit.fits]
    return str(tomli_w.dumps(data))


def _link(fit: LinkFit) -> dict[str, Any]:
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
    if error is None or not error <= SPREAD.most * value:
        return {}
    return {"error": f"{error * scale:.2g}{unit}"}


def _origin(one: Quantity | Latency | Curve) -> dict[str, Any]:
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


def _curve(curve: Curve) -> dict[str, Any]:
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
