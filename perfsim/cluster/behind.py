"""A link as traffic sees it behind a fabric: narrower where flows share, longer by its hops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.errors import RequestError
from perfsim.quantity import Quantity

if TYPE_CHECKING:
    from perfsim.cluster.fabric.inter import Fabric
    from perfsim.cluster.fabric.intra import NodeFabric

__all__ = ["behind", "beside", "inside"]


def behind(
    link: Link,
    fabric: Fabric,
    flows: str,
    placement: tuple[int, ...],
    nics: int,
    measured_through: bool = False,
) -> Link:
    """Return the link between nodes as an algorithm's flows see it through a fabric.

    A link that was measured alone takes all of the fabric's slowdown and latency. One that was
    measured through the fabric has some of it in its numbers: its rates take the slowdown of
    these flows over that of the ring, or the tree, of the nodes that were measured, and its
    latencies what these hops are longer.

    Parameters
    ----------
    link : what a NIC does, alone or through the fabric
    fabric : switches between the nodes
    flows : what an algorithm sends at once, one of `perfsim.cluster.flows.PATTERNS`
    placement, nics : GPUs on each node; NICs of a node
    measured_through : whether the link was measured through this fabric, by `Link.ranks` GPUs,
        as many a node as here; where they are not known it counts as measured alone

    Raises
    ------
    RequestError
        If there are no such flows, or the fabric does not hold the nodes.
    """
    slower = fabric.slowdown(flows, placement, nics)
    longer_s = fabric.extra_latency_s(flows, placement)
    why = f"behind {fabric.words()} (routed {flows} flows: {slower:.3g} times as long a byte"
    if not measured_through or link.ranks is None:
        return _changed(link, (slower, longer_s), (slower, longer_s), f"{why})")
    there = _measured_on(fabric, link.ranks[1], placement)
    ring, tree = (fabric.slowdown(one, there, nics) for one in ("ring", "tree"))
    ring_s, tree_s = (fabric.extra_latency_s(one, there) for one in ("ring", "tree"))
    return _changed(
        link,
        (slower / ring, max(0.0, longer_s - ring_s)),
        (slower / tree, max(0.0, longer_s - tree_s)),
        f"{why}; as measured, {ring:.3g} in a ring, {tree:.3g} in a tree)",
    )


def _measured_on(fabric: Fabric, ranks: int, placement: tuple[int, ...]) -> tuple[int, ...]:
    """Return the placement that was measured: full nodes, at least two, that the fabric holds."""
    gpus = max(placement)
    nodes = max(2, ranks // gpus)
    while nodes > len(placement):
        try:
            fabric.hosts(fabric.graph(nodes), nodes)
        except RequestError:  # so many nodes it has not: those measured had more GPUs each
            nodes //= 2
        else:
            break
    return (gpus,) * nodes


def beside(link: Link, background: float) -> Link:
    """Return the link between nodes beside other traffic that takes a share of it.

    Every byte takes as long as on a link with the rest of the rate; latency stays.

    Examples
    --------
    >>> from perfsim.cluster.link import custom_link
    >>> beside(custom_link("10Gbit/s,50us", "--net"), 0.2).rate.value
    1000000000.0
    """
    slower = 1.0 / (1.0 - background)
    why = f"{1.0 - background:.0%} of it, beside other traffic"
    changed = _changed(link, (slower, 0.0), (slower, 0.0), why)
    held = {
        name: one._replace(rate=one.rate._replace(value=one.rate.value / slower))
        for name, one in link.protocols.items()
    }
    return replace(changed, protocols=held)


def inside(link: Link, node: NodeFabric, gpus: int) -> Link:
    """Return the link inside a node for ``gpus`` of its GPUs, of those that were measured."""
    measured = link.ranks[1] if link.ranks else gpus
    if measured == gpus:
        return link
    slower = node.slowdown(gpus, measured)
    why = f"{gpus} GPUs of {node.words()} instead of {measured}: {slower:.3g} times as long a byte"
    return _changed(link, (slower, 0.0), (slower, 0.0), why)


Change = tuple[float, float]
"""How many times longer a byte takes, and how much longer a hop [s]."""


def _changed(link: Link, ring: Change, tree: Change, why: str) -> Link:
    def rate(quantity: Quantity, slower: float) -> Quantity:
        if slower == 1.0:
            return quantity
        source = f"{quantity.source}; {why}"
        return quantity._replace(value=quantity.value / slower, kind="derived", source=source)

    def curve(latency: Latency, longer_s: float) -> Latency:
        if longer_s == 0.0:
            return latency
        alphas = tuple(alpha_s + longer_s for alpha_s in latency.alpha_s)
        return replace(latency, alpha_s=alphas, kind="derived", source=f"{latency.source}; {why}")

    if ring == tree == (1.0, 0.0):
        return link
    return replace(
        link,
        rate=rate(link.rate, ring[0]),
        tree_rate=rate(link.tree_rate, tree[0]),
        ring=curve(link.ring, ring[1]),
        tree=curve(link.tree, tree[1]),
    )
