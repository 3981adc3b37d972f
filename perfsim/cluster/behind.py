"""A link as traffic sees it behind a fabric: narrower where flows share, longer by its hops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.quantity import Quantity

if TYPE_CHECKING:
    from perfsim.cluster.fabric.inter import Fabric
    from perfsim.cluster.fabric.intra import NodeFabric

__all__ = ["behind", "inside"]


def behind(link: Link, fabric: Fabric, flows: str, placement: tuple[int, ...], nics: int) -> Link:
    """Return the link between nodes as an algorithm's flows see it through a fabric.

    Parameters
    ----------
    link : what a NIC does alone
    fabric : switches between the nodes
    flows : what an algorithm sends at once: ring, tree, all_to_all, pairs, halving_doubling
    placement, nics : GPUs on each node; NICs of a node
    """
    slower = fabric.slowdown(flows, placement, nics)
    longer_s = fabric.extra_latency_s(flows, placement)
    if slower == 1.0 and longer_s == 0.0:
        return link
    why = f"behind {fabric.words()} (routed {flows} flows: {slower:.3g} times as long a byte)"
    return _changed(link, slower, longer_s, why)


def inside(link: Link, node: NodeFabric, gpus: int) -> Link:
    """Return the link inside a node for ``gpus`` of its GPUs, of those that were measured."""
    measured = link.ranks[1] if link.ranks else gpus
    if measured == gpus:
        return link
    slower = node.slowdown(gpus, measured)
    why = f"{gpus} GPUs of {node.words()} instead of {measured}: {slower:.3g} times as long a byte"
    return link if slower == 1.0 else _changed(link, slower, 0.0, why)


def _changed(link: Link, slower: float, longer_s: float, why: str) -> Link:
    def rate(quantity: Quantity) -> Quantity:
        source = f"{quantity.source}; {why}"
        return replace(quantity, value=quantity.value / slower, kind="derived", source=source)

    def curve(latency: Latency) -> Latency:
        if longer_s == 0.0:
            return latency
        alphas = tuple(alpha_s + longer_s for alpha_s in latency.alpha_s)
        return replace(latency, alpha_s=alphas, kind="derived", source=f"{latency.source}; {why}")

    return replace(
        link,
        rate=rate(link.rate),
        tree_rate=rate(link.tree_rate),
        ring=curve(link.ring),
        tree=curve(link.tree),
    )
