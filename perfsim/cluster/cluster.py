"""A cluster: GPUs placed on nodes, the links that join them, and the cost of a collective."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfsim.cluster.link import Link
from perfsim.cluster.network import Network
from perfsim.cluster.placement import place
from perfsim.cluster.route import Route
from perfsim.cluster.wiring import Wiring
from perfsim.collectives import algorithm as find_algorithm
from perfsim.collectives import algorithms
from perfsim.errors import RequestError
from perfsim.quantity import Cost

__all__ = ["Cluster", "make_cluster"]

FREE = Cost(0.0)


@dataclass(frozen=True)
class Cluster:
    """GPUs on nodes, the link between nodes and the one inside them.

    Parameters
    ----------
    gpus : P, all GPUs
    placement : GPUs on each node, uneven allowed
    inter : link between nodes; None when all GPUs stand on one
    intra : link between the GPUs of a node; None when every node has one GPU
    nics_per_node : NICs that the GPUs of a node share
    """

    gpus: int
    placement: tuple[int, ...]
    inter: Link | None
    intra: Link | None
    nics_per_node: int = 1
    _routes: dict[tuple[str, str], Route] = field(default_factory=dict, repr=False, compare=False)
    _costs: dict[tuple[str, float, str], Cost] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def nodes(self) -> int:
        """N, the nodes in use."""
        return len(self.placement)

    @property
    def gpus_per_node(self) -> int:
        """g, the GPUs on the fullest node."""
        return max(self.placement)

    @property
    def nics_in_use(self) -> int:
        """NICs of the scarcest node that carry traffic: a GPU drives at most one at a time."""
        return min(self.nics_per_node, *self.placement)

    def cost(self, collective: str, size_bytes: float, algorithm: str = "auto") -> Cost:
        """Return what one collective of ``size_bytes`` costs.

        ``auto`` takes the algorithm with the least predicted time, as NCCL does, among those
        that NCCL considers (for all_reduce ring and tree; hierarchical only when named).

        Parameters
        ----------
        collective : all_reduce, reduce_scatter, all_gather, broadcast, reduce or send_recv
        size_bytes : the buffer of one rank; for reduce_scatter and all_gather the blocks of all
        algorithm : its name, or ``auto``

        Raises
        ------
        RequestError
            If there is no such collective or algorithm; lists those there are.
        """
        key = (collective, size_bytes, algorithm)
        cost = self._costs.get(key)
        if cost is None:
            cost = self._costs[key] = self._cost(collective, size_bytes, algorithm)
        return cost

    def choice(self, collective: str, size_bytes: float) -> str:
        """Return the algorithm that ``auto`` takes for this collective and size."""
        if collective not in algorithms():
            find_algorithm(collective, "auto")  # raises, with the collectives there are
        names = [
            name for name in algorithms()[collective] if find_algorithm(collective, name).automatic
        ]
        if len(names) == 1:
            return names[0]
        return min(names, key=lambda name: self._route(collective, name).seconds(size_bytes))

    def _cost(self, collective: str, size_bytes: float, algorithm: str) -> Cost:
        if algorithm == "auto":
            algorithm = self.choice(collective, size_bytes)
        route = self._route(collective, algorithm)
        return FREE if self.gpus == 1 else route.cost(size_bytes)

    def _route(self, collective: str, name: str) -> Route:
        route = self._routes.get((collective, name))
        if route is None:
            wiring = Wiring(
                self.gpus,
                self.nodes,
                self.gpus_per_node,
                self.nics_in_use,
                self.inter if self.nodes > 1 else None,
                self.intra if self.gpus_per_node > 1 else None,
            )
            route = Route(find_algorithm(collective, name), wiring)
            self._routes[collective, name] = route
        return route


def make_cluster(
    gpus: int,
    gpus_per_node: int | None,
    placement: tuple[int, ...] | None,
    net: Network,
    intra_net: Network | None = None,
) -> Cluster:
    """Return the cluster of ``gpus`` GPUs on a network.

    Parameters
    ----------
    gpus : all GPUs
    gpus_per_node : GPUs a node; None takes the network's, else 4, cut to a divisor of ``gpus``
    placement : GPUs on each node, instead of ``gpus_per_node``
    net : its ``inter`` link joins the nodes; its ``intra`` link, if any, the GPUs of a node
    intra_net : its ``intra`` link joins the GPUs of a node instead

    Raises
    ------
    RequestError
        If the numbers do not fit each other, or a network lacks the link that is needed.

    Examples
    --------
    >>> from perfsim.catalog import Catalog
    >>> from perfsim.cluster.network import load_network
    >>> net = load_network("10Gbit/s,50us", Catalog(), "--net")
    >>> cluster = make_cluster(8, 4, None, net)
    >>> cluster.placement
    (4, 4)
    >>> round(cluster.cost("all_reduce", 1e6, "ring").seconds * 1e6)
    2100
    """
    nodes = place(gpus, gpus_per_node, placement, net.gpus_per_node)
    intra = None
    if max(nodes) > 1:
        if intra_net is None and "intra" not in net.links:
            raise RequestError(
                f"--intra-net: {net.name!r} says nothing of the link between the GPUs of a node;"
                " name one, such as pcie3."
            )
        intra = (intra_net or net).link("intra", "--intra-net")
    inter = net.link("inter", "--net") if len(nodes) > 1 else None
    return Cluster(gpus, nodes, inter, intra, net.nics_per_node)
