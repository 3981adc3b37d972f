"""The platform of a scenario: networks between and inside nodes, and GPUs on them."""

from __future__ import annotations

from perfsim.catalog import Catalog, is_own
from perfsim.cluster.cluster import Cluster
from perfsim.cluster.make import make_cluster
from perfsim.cluster.network import Network, load_network
from perfsim.cluster.placement import DEFAULT_GPUS_PER_NODE
from perfsim.device import Device
from perfsim.errors import RequestError
from perfsim.gpu_names import parse_types
from perfsim.scenario import DEFAULT_INTRA_NET, Scenario

__all__ = ["Platform", "platform"]

Platform = tuple[Network, Network | None, Cluster, list[str]]
"""The network between nodes, that inside them where it is another, the cluster, and what is to be
said."""

FIELDS = (
    "gpus",
    "gpus_per_node",
    "placement",
    "net",
    "intra_net",
    "gpu",
    "library",
    "oversubscription",
    "background",
)
"""The fields of a scenario that its cluster is made of."""

MOST_WARNINGS = 2
"""Warnings of a network that a prediction repeats; ``show net`` lists all."""


def platform(scenario: Scenario, device: Device, catalog: Catalog) -> Platform:
    """Return the platform that a scenario names.

    Raises
    ------
    RequestError
        If a network is unknown, or the GPUs cannot be put on nodes as asked.
    DataError
        If a network's file is damaged.
    """
    asked = tuple(getattr(scenario, name) for name in FIELDS)
    return catalog.once(("platform", *asked), lambda: _made(scenario, device, catalog))


def _made(scenario: Scenario, device: Device, catalog: Catalog) -> Platform:
    """Return the networks between and inside nodes, GPUs on them, and what is to be said."""
    notes: list[str] = []
    network = catalog.once(
        ("network", "--net", scenario.net), lambda: load_network(scenario.net, catalog, "--net")
    )
    intra_network = _intra_network(scenario, network, device, catalog, notes)
    types, each = parse_types(scenario.gpu), scenario.gpus_per_node
    if len(types) > 1 and each is None and scenario.placement is None:
        from perfsim.gpu_types import gpus_per_node

        each = gpus_per_node(types, network.gpus_per_node or DEFAULT_GPUS_PER_NODE)
    cluster = make_cluster(
        scenario.gpus,
        each,
        scenario.placement,
        network,
        intra_network,
        scenario.library,
        scenario.oversubscription,
        measured=scenario.intra_net in (None, network.inside or None),
        background=scenario.background,
    )
    notes += _placement_notes(scenario, network, cluster)
    notes += _network_warnings(network, intra_network, cluster)
    return network, intra_network, cluster, notes


def _placement_notes(scenario: Scenario, network: Network, cluster: Cluster) -> list[str]:
    if scenario.placement or scenario.gpus_per_node or scenario.gpus == 1:
        return []
    each, stated = cluster.gpus_per_node, network.gpus_per_node or DEFAULT_GPUS_PER_NODE
    origin = f"as {network.name} states" if network.gpus_per_node else "the default"
    if each < stated:
        counts = [count for _, count in parse_types(scenario.gpu)] or [scenario.gpus]
        of = " and ".join(map(str, dict.fromkeys(counts)))
        origin = f"the largest divisor of {of} up to {stated}"
    return [f"{each} GPUs a node ({origin}); set --gpus-per-node to change it."]


def _network_warnings(
    network: Network, intra_network: Network | None, cluster: Cluster
) -> list[str]:
    """Return what a user's own network files, and the curves in use, are to be warned of."""
    found = []
    for one in (network, intra_network):
        if one is None or not one.path or not (one.known or is_own(one.path)):
            continue
        from perfsim.cluster.selfcheck import self_check

        shape = (cluster.gpus, cluster.nodes) if cluster.known is not None else None
        warnings = self_check(one, shape)
        found += [f"{one.name}: {warning}" for warning in warnings[:MOST_WARNINGS]]
        more = len(warnings) - MOST_WARNINGS
        if more > 0:
            found.append(f"{one.name}: {more} more of that kind; `perfsim show net {one.name}`.")
    return found


def _intra_network(
    scenario: Scenario, network: Network, device: Device, catalog: Catalog, notes: list[str]
) -> Network | None:
    """Return the network inside a node; None where the network file has its own link for it."""
    if scenario.intra_net is None:
        if "intra" in network.links:
            return None
        inside = network.inside or DEFAULT_INTRA_NET
        return catalog.once(
            ("network", "--intra-net", inside), lambda: load_network(inside, catalog, "--intra-net")
        )
    if scenario.intra_net == "nvlink":
        families = {name.split("-")[0] for name, _ in parse_types(scenario.gpu)}
        if len(families) > 1:
            raise RequestError(
                f"--intra-net: 'nvlink' is after the GPU, and here are several types"
                f" ({scenario.gpu}); name one network for all nodes, such as pcie3."
            )
        family = device.name.split("-")[0]
        names = catalog.files("networks")
        if f"nvlink-{family}" not in names:
            measured = ", ".join(sorted(name for name in names if name.startswith("nvlink-")))
            raise RequestError(
                f"--intra-net: no measured NVLink of {device.name!r}; measured: {measured}."
            )
        notes.append(f"--intra-net nvlink is nvlink-{family}, after the GPU.")
        return load_network(f"nvlink-{family}", catalog, "--intra-net")
    named = scenario.intra_net
    return catalog.once(
        ("network", "--intra-net", named), lambda: load_network(named, catalog, "--intra-net")
    )
