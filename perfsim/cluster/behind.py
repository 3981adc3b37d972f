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

__all__ = ["behind", "inside", "pattern"]

PATTERNS = {
    "tree": "tree",
    "nvls_tree": "tree",
    "binomial": "tree",
    "split_binary": "tree",
    "doubling": "halving_doubling",
    "halving_doubling": "halving_doubling",
    "halving": "halving_doubling",
    "pat": "halving_doubling",
    "pairwise": "all_to_all",
    "bruck": "all_to_all",
    "sharded": "all_to_all",
    "direct": "pairs",
}
"""Algorithm -> the flows that it sends over a fabric at once; all others go round a ring."""


def pattern(algorithm: str) -> str:
    """Return the pattern of flows that an algorithm sends between nodes.

    Examples
    --------
    >>> pattern("ring"), pattern("pairwise")
    ('ring', 'all_to_all')
    """
    return PATTERNS.get(algorithm, "ring")


def behind(
    link: Link, fabric: Fabric, algorithm: str, placement: tuple[int, ...], nics: int
) -> Link:
    """Return the link between nodes as an algorithm's flows see it through a fabric.

    Parameters
    ----------
    link : what a NIC does alone
    fabric : switches between the nodes
    algorithm : whose flows share the fabric's links
    placement, nics : GPUs on each node; NICs of a node
    """
    flows = pattern(algorithm)
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
