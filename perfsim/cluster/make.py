"""A cluster made of a network: GPUs placed on nodes, links, fabric and measured curves."""

from __future__ import annotations

from perfsim.cluster.cluster import Cluster
from perfsim.cluster.network import Network
from perfsim.cluster.placement import place
from perfsim.errors import RequestError
from perfsim.library import library as find_library

__all__ = ["make_cluster"]


def make_cluster(
    gpus: int,
    gpus_per_node: int | None,
    placement: tuple[int, ...] | None,
    net: Network,
    intra_net: Network | None = None,
    library: str | None = None,
    oversubscription: float | None = None,
    measured: bool = True,
    background: float = 0.0,
) -> Cluster:
    """Return the cluster of ``gpus`` GPUs on a network.

    Parameters
    ----------
    gpus : all GPUs
    gpus_per_node : GPUs a node; None takes the network's, else 4, cut to a divisor of ``gpus``
    placement : GPUs on each node, instead of ``gpus_per_node``
    net : its ``inter`` link joins the nodes; its ``intra`` link, if any, the GPUs of a node
    intra_net : its ``intra`` link joins the GPUs of a node instead
    library : nccl, gloo or mpi; None is the one that the network was measured with
    oversubscription : how many times narrower than the nodes' NICs the uplinks are, instead of
        what the network's file says of its fabric
    measured : let curves measured on the network come before its links' formulas; those of
        another fabric than asked for, or with other links inside the nodes, do not
    background : share of the network between nodes that other traffic takes

    Raises
    ------
    RequestError
        If the numbers do not fit each other, there is no such library, or a network lacks the
        link that is needed.

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
    library = find_library(library or net.library).name  # raises, with the libraries there are
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
    fabric, node = net.fabric, net.node if intra_net is None else None
    narrowed = False
    if oversubscription is not None and oversubscription > 1.0 and len(nodes) > 1:
        from perfsim.cluster.fabric import oversubscribed

        fabric, narrowed = oversubscribed(oversubscription), True
    return Cluster(
        gpus,
        nodes,
        inter,
        intra,
        net.nics_per_node,
        library,
        net.library,
        net.known if measured else None,
        fabric if len(nodes) > 1 else None,
        node,
        narrowed=narrowed,
        background=background,
    )
