"""Networks of known numbers, and the curves that perfsim's own formulas make of them."""

from __future__ import annotations

from dataclasses import replace

from perfsim.network.cluster import Cluster
from perfsim.network.link import Latency, Link
from perfsim.network.measured import CollectiveCurve
from perfsim.quantity import Quantity

__all__ = [
    "GATHER",
    "RING",
    "SCATTER",
    "SIZES",
    "TREE",
    "flat",
    "held",
    "link",
    "measure",
    "no_preset",
]

SIZES = tuple(8.0 * 2**power for power in range(26))  # to 256 MiB
RING, TREE = ("all_reduce", "ring", "ring"), ("all_reduce", "tree", "tree")
GATHER, SCATTER = ("all_gather", "ring", ""), ("reduce_scatter", "ring", "")
"""Collective, perfsim's algorithm, and what the curve says was held fixed."""


def link(rate: float, alpha_s: float, gamma: float = 0.0, tree_rate: float | None = None) -> Link:
    """Return a link of these numbers; its tree's rate is its rate where none is given."""

    def given(value: float, unit: str) -> Quantity:
        return Quantity(value, unit, "derived", "made up")

    latency = Latency.constant(given(alpha_s, "s/hop"))
    tree = given(tree_rate or rate, "B/s")
    return Link("made", given(rate, "B/s"), tree, given(gamma, "s/B"), latency, latency)


def measure(
    cluster: Cluster, what: tuple[str, str, str], sizes: tuple[float, ...] = SIZES
) -> CollectiveCurve:
    """Return what perfsim's own formula says for a cluster, as if it had been measured."""
    collective, algorithm, held = what
    return CollectiveCurve(
        collective,
        cluster.gpus,
        cluster.nodes,
        cluster.gpus_per_node,
        sizes,
        tuple(cluster.cost(collective, size, algorithm).seconds for size in sizes),
        "measured",
        "made up",
        algorithm=held,
        gpu="V100-SXM2",
        version="2.18.3",
        library=cluster.library,
    )


def flat(nodes: int, wire: Link) -> Cluster:
    """Return nodes of one GPU on a link."""
    return Cluster(nodes, (1,) * nodes, wire, None)


def no_preset(name: str) -> Link | None:
    """Fail: a fit of nodes with one GPU asks for no link inside them."""
    raise AssertionError(f"{name} was asked for, and no node has two GPUs")


def held(protocol: str, rate: float, alpha_s: float, nodes: int = 8) -> CollectiveCurve:
    """Return the curve of a ring on a link of these numbers, held to a protocol."""
    return replace(measure(flat(nodes, link(rate, alpha_s)), RING), protocol=protocol)
