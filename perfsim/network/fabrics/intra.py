"""A fabric inside a node: how a ring's rate changes with the GPUs that take part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from perfsim.errors import RequestError
from perfsim.network.fabrics.kinds import FabricValue, load
from perfsim.network.routing import Graph, ring_flows, route

__all__ = ["NodeFabric"]


@dataclass(frozen=True, slots=True)
class NodeFabric:
    """How the GPUs of a node are joined.

    Parameters
    ----------
    kind : name of the fabric: "nvswitch", "nvlink-mesh" or "pcie-tree"
    gpus : GPUs of the node
    nics : NICs of the node
    options : what its file reads from the ``[node]`` table, as pairs
    source : where it is stated

    Examples
    --------
    >>> mesh = NodeFabric("nvlink-mesh", 4, options=(("links_per_pair", 4),))
    >>> mesh.slowdown(2, of=4)  # 4 of the 12 links of a GPU lead to the other one
    3.0
    """

    kind: str
    gpus: int
    nics: int = 1
    options: tuple[tuple[str, FabricValue], ...] = ()
    source: str = ""

    def graph(self, gpus: int | None = None) -> Graph:
        """Return the graph of the first ``gpus`` GPUs, all by default."""
        count = self.gpus if gpus is None else gpus
        return load("intra", self.kind).build(count, **dict(self.options))

    def slowdown(self, gpus: int, of: int) -> float:
        """Return how many times longer a byte takes in a ring over ``gpus`` GPUs than over ``of``.

        That is the bus bandwidth of the ring over ``of`` GPUs, which was measured, over that of
        the ring over ``gpus``: below 1 where fewer GPUs share less. The GPUs are the first of
        the node, as CUDA counts them. 1 where either is a single GPU, which sends nothing.

        Parameters
        ----------
        gpus : GPUs of a node that take part
        of : GPUs in what was measured

        Raises
        ------
        RequestError
            If the node has fewer GPUs, or too little is stated of its links.
        """
        for count in (gpus, of):
            if not 1 <= count <= self.gpus:
                raise RequestError(
                    f"the network's node: it has {self.gpus} GPUs, {count} are asked for."
                )
        if gpus == of or 1 in (gpus, of):
            return 1.0
        return _ring_rate(self, of) / _ring_rate(self, gpus)

    def words(self) -> str:
        """Return the fabric in a few words."""
        return load("intra", self.kind).words(**dict(self.options))


@lru_cache(maxsize=256)
def _ring_rate(node: NodeFabric, gpus: int) -> float:
    """Return the bus bandwidth of a ring over the first GPUs, in the unit of the fabric."""
    kind = load("intra", node.kind)
    if kind.ring_rate is not None:
        return kind.ring_rate(gpus, **dict(node.options))
    graph = node.graph(gpus)
    return 1.0 / route(graph, graph.graph["hosts"], ring_flows((1,) * gpus)).seconds_per_byte
