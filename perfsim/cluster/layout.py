"""What stands where: GPUs on nodes, the links that join them, and an algorithm's route there."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from perfsim.cluster.link import Link
from perfsim.cluster.route import Route
from perfsim.cluster.wiring import Wiring
from perfsim.collectives import algorithm as find_algorithm
from perfsim.collectives import algorithms
from perfsim.library import AUTO, DEFAULT_LIBRARY
from perfsim.library import library as find_library

if TYPE_CHECKING:
    from perfsim.cluster.fabric.inter import Fabric
    from perfsim.cluster.fabric.intra import NodeFabric
    from perfsim.cluster.known import Known

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """GPUs on nodes, the link between nodes and the one inside them.

    Parameters
    ----------
    gpus : P, all GPUs
    placement : GPUs on each node, uneven allowed
    inter : link between nodes; None when all GPUs stand on one
    intra : link between the GPUs of a node; None when every node has one GPU
    nics_per_node : NICs that the GPUs of a node share
    library : nccl, gloo or mpi: which algorithms there are, and which of them ``auto`` takes
    fitted_on : the library with which the links were measured
    known : curves measured on the network, which come before the links' formulas
    fabric, node : switches between the nodes, links inside one; None: only NICs and the fitted
        link count
    narrowed : whether the fabric is narrower than the one that the links were measured through
    servers : machines without GPUs, each with a node's NICs, that serve pushes and pulls
    background : share of every link between nodes that other traffic takes
    """

    gpus: int
    placement: tuple[int, ...]
    inter: Link | None
    intra: Link | None
    nics_per_node: int = 1
    library: str = DEFAULT_LIBRARY
    fitted_on: str = DEFAULT_LIBRARY
    known: Known | None = None
    fabric: Fabric | None = None
    node: NodeFabric | None = None
    narrowed: bool = False
    servers: int = 0
    background: float = 0.0
    _routes: dict[tuple[str, str, str], Route] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def nodes(self) -> int:
        """N, the nodes in use."""
        return len(self.placement)

    @cached_property
    def gpus_per_node(self) -> int:
        """g, the GPUs on the fullest node."""
        return max(self.placement)

    @cached_property
    def uneven(self) -> tuple[int, ...]:
        """GPUs on each node where nodes differ; () where all have as many."""
        return self.placement if min(self.placement) < self.gpus_per_node else ()

    @property
    def nics_in_use(self) -> int:
        """NICs of the scarcest node that carry traffic: a GPU drives at most one at a time."""
        return min(self.nics_per_node, *self.placement)

    @property
    def strange(self) -> bool:
        """Whether the network was measured between nodes, but none of so many GPUs."""
        if self.known is None or self.nodes == 1:
            return False
        across = [curve.gpus_per_node for curve in self.known.curves if curve.nodes > 1]
        return bool(across) and self.gpus_per_node not in across

    def choice(self, collective: str, size_bytes: float, protocol: str = AUTO) -> str:
        """Return the algorithm that ``auto`` takes for this collective and size."""
        if collective not in algorithms():
            find_algorithm(collective, AUTO)  # raises, with the collectives there are
        library = find_library(self.library)
        fixed_choice = library.choose(collective, size_bytes, self.gpus)
        if fixed_choice is not None:
            return fixed_choice
        names = library.considered(collective)
        if len(names) == 1:
            return names[0]
        return min(
            names, key=lambda name: self.route(collective, name, protocol).seconds(size_bytes)
        )

    def route(self, collective: str, name: str, protocol: str = AUTO) -> Route:
        """Return an algorithm of a collective over the links here, worked out once."""
        key = (collective, name, protocol)
        route = self._routes.get(key)
        if route is None:
            found = find_library(self.library).algorithm(collective, name)
            inter, intra = self._links(found.flows)
            if protocol != AUTO:
                inter, intra = self._held(inter, intra, protocol)
            wiring = Wiring(
                self.gpus,
                self.nodes,
                self.gpus_per_node,
                self.nics_in_use,
                inter,
                intra,
                self.servers,
            )
            route = Route(found, wiring, self.strange)
            self._routes[key] = route
        return route

    def _held(
        self, inter: Link | None, intra: Link | None, protocol: str
    ) -> tuple[Link | None, Link | None]:
        """Return the links as one of NCCL's protocols sees them."""
        from perfsim.cluster.protocol import fixed
        from perfsim.library.protocols import VERSION

        tuner = self.known.tuner if self.known is not None else None
        version = tuner.of.version if tuner is not None else VERSION
        return (
            fixed(inter, protocol, "inter", version) if inter else None,
            fixed(intra, protocol, "intra", version) if intra else None,
        )

    def _links(self, flows: str) -> tuple[Link | None, Link | None]:
        """Return the links between and inside nodes as flows of a pattern see them."""
        inter = self.inter if self.nodes > 1 else None
        intra = self.intra if self.gpus_per_node > 1 else None
        if inter is not None and self.fabric is not None:
            from perfsim.cluster.behind import behind

            inter = behind(
                inter,
                self.fabric,
                flows,
                self.placement,
                self.nics_in_use,
                measured_through=not self.narrowed,
            )
        if inter is not None and self.background > 0:
            from perfsim.cluster.behind import beside

            inter = beside(inter, self.background)
        if intra is not None and self.node is not None:
            from perfsim.cluster.behind import inside

            intra = inside(intra, self.node, self.gpus_per_node)
        return inter, intra
