"""A network as ``show`` describes it: links, curves, tuner; and what a drawing of it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsim.catalog import Catalog
from perfsim.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from perfsim.cluster.growth.choice import TunedChoice
    from perfsim.cluster.link import Link
    from perfsim.cluster.measured import Curve
    from perfsim.report.network import Picture

__all__ = ["network", "network_picture"]

DRAWN_NODES = 8
"""Nodes of a picture where a file states a fabric but no number of nodes: enough to show it."""


def network(name: str, catalog: Catalog) -> dict[str, Any]:
    """Return all that is known of one network.

    Raises
    ------
    RequestError
        If there is no such network.
    """
    from perfsim.cluster.network import load_network
    from perfsim.cluster.selfcheck import self_check

    network = load_network(name, catalog, "show net")
    found: dict[str, Any] = {
        "network": network.name,
        "title": network.title,
        "transport": network.transport,
        "library": network.library,
        "gpus_per_node": network.gpus_per_node or "not stated",
        "nics_per_node": network.nics_per_node,
        "fabric_between_nodes": network.fabric.words() if network.fabric else "not stated",
        "fabric_inside_nodes": network.node.words() if network.node else "not stated",
        "inside": network.inside or ("its own" if "intra" in network.links else "not stated"),
        "ranks_measured": {
            of: f"{link.ranks[0]} to {link.ranks[1]}" if link.ranks else "none"
            for of, link in network.links.items()
        },
    }
    if network.known is not None:
        found["curves"] = [_curve(curve) for curve in network.known.curves]
        if network.known.tuner is not None:
            found["nccl_tuner"] = _tuner(network.known.tuner)
    return found | {
        "values": [value for of, link in network.links.items() for value in _values(of, link)],
        "warnings": self_check(network),
        "notes": list(network.notes),
    }


def _values(of: str, link: Link) -> list[dict[str, str]]:
    """Return every number of a link with its range and source."""
    quantities = [("rate", link.rate), ("tree rate", link.tree_rate), ("gamma", link.gamma)]
    for algorithm, curve in (("ring", link.ring), ("tree", link.tree)):
        quantities += [
            (f"{algorithm} latency at {format_bytes(size)}", curve.quantity(alpha_s))
            for size, alpha_s in zip(curve.size_bytes, curve.alpha_s, strict=True)
        ]
    return [
        {
            "link": of,
            "what": what,
            "value": str(quantity),
            "kind": quantity.kind,
            "range": _range(quantity.low, quantity.high),
            "source": quantity.source,
        }
        for what, quantity in quantities
    ]


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "collective": curve.collective,
        "ranks": curve.ranks,
        "nodes": curve.nodes,
        "held": " ".join(word for word in (curve.algorithm, curve.protocol) if word) or "auto",
        "points": len(curve.size_bytes),
        "range": _range(curve.size_bytes[0], curve.size_bytes[-1]),
        "time": f"{format_seconds(curve.seconds[0])} to {format_seconds(curve.seconds[-1])}",
        "kind": curve.kind,
        "spread": "" if curve.spread is None else f"{curve.spread:.1%}",
        "source": curve.source,
    }


def _tuner(tuner: TunedChoice) -> dict[str, Any]:
    return {
        "version": tuner.of.version,
        "GPUs": tuner.of.architecture,
        "inside": tuner.of.intra,
        "bus bandwidth between nodes": f"{tuner.bus_bandwidth:.4g} GB/s",
        "on two nodes": f"{tuner.two_nodes:g} times that",
        "plain tree": "yes" if tuner.plain_tree else "no",
        "LL128 between nodes": "yes" if tuner.near_nic else "no",
    }


def network_picture(name: str, catalog: Catalog) -> Picture:
    """Return what a drawing of a network shows.

    Raises
    ------
    RequestError
        If there is no such network.
    """
    from perfsim.cluster.network import load_network
    from perfsim.report.network import Picture, Wire

    network = load_network(name, catalog, "show net")
    wires = {
        of: Wire(format_rate(link.rate.value), f"{format_seconds(link.ring.at(1e3), 3)} a hop")
        for of, link in network.links.items()
    }
    curves = network.known.curves if network.known else ()
    nodes = max((curve.nodes for curve in curves), default=2) if "inter" in wires else 1
    fabric = network.fabric if "inter" in wires else None
    if fabric is not None:
        nodes = max(nodes, DRAWN_NODES)
    rate = network.links["inter"].rate.value if "inter" in network.links else 1.0
    return Picture(
        f"{network.name}: {network.title}",
        wires.get("inter"),
        wires.get("intra"),
        nodes,
        network.gpus_per_node,
        network.nics_per_node,
        fabric.words() if fabric else "switches not stated",
        network.node.words() if network.node else "not stated",
        fabric.graph(nodes, network.nics_per_node, rate) if fabric else None,
        (f"latency is that of a hop for 1 kB; inside the nodes: {network.inside}",)
        if network.inside
        else (),
    )


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{format_bytes(low)} to {format_bytes(high)}"
