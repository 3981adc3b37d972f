"""The platform of a scenario: its networks, and its GPUs on nodes and at sites."""

from __future__ import annotations

from dataclasses import replace

from perfsim.compute.device import Device
from perfsim.data.catalog import Catalog
from perfsim.hardware.networks import (
    inside_as_measured,
    intra_network_of,
    network_between,
    networks_of_nodes,
    with_data_sheet,
)
from perfsim.hardware.nodes import check_node, derived_collectives, named_node_type
from perfsim.hardware.notes import (
    network_warnings,
    nics_notes,
    node_notes,
    one_nic_notes,
    placement_notes,
    site_notes,
    under_library_notes,
)
from perfsim.hardware.placement import at_sites, place_gpus
from perfsim.network.cluster import DEFAULT_GPUS_PER_NODE, Cluster, make_cluster
from perfsim.network.network_file import Network
from perfsim.scenario import Scenario, parse_types, values_read_by
from perfsim.session import RememberingCluster

__all__ = ["Platform", "platform"]


Platform = tuple[Network, Network | None, Cluster, list[str]]
"""The network between nodes, the one inside them where it is another, the cluster, and notes."""


def platform(scenario: Scenario, device: Device, catalog: Catalog) -> Platform:
    """Load the networks that a scenario names, and put its GPUs on nodes.

    Raises
    ------
    RequestError
        If a network is unknown, or the GPUs cannot be put on nodes as asked.
    DataError
        If a network's file is damaged.
    """
    asked = "platform", *values_read_by("network", scenario)
    return catalog.once(asked, lambda: _make(scenario, device, catalog))


def _make(scenario: Scenario, device: Device, catalog: Catalog) -> Platform:
    """Make the platform of a scenario: read all of its files, so that pricing reads none."""
    from perfsim.network.known import growth_errors

    growth_errors()
    notes: list[str] = []
    node, derived = named_node_type(scenario, catalog), None
    if node is None:
        network = with_data_sheet(network_between(scenario, catalog), catalog)
        if scenario.nics_per_node is not None:
            network = network._replace(nics_per_node=scenario.nics_per_node)
        intra_network, intra_notes = intra_network_of(scenario, network, catalog)
    else:
        check_node(scenario, node, device)
        network, intra_network, derived = networks_of_nodes(scenario, node, device, catalog)
        intra_notes = node_notes(node, network, device)
    inside = intra_network.node_type if intra_network else None
    sized = network
    if network.gpus_per_node is None and inside is not None and inside.gpu:
        sized = network._replace(gpus_per_node=inside.gpus)
    types, each = parse_types(scenario.gpu), scenario.gpus_per_node
    if len(types) > 1 and each is None and scenario.placement is None:
        from perfsim.compute.gpu_types import gpus_per_node

        each = gpus_per_node(types, sized.gpus_per_node or DEFAULT_GPUS_PER_NODE)
    placement, each = place_gpus(scenario, each, sized)
    cluster = make_cluster(
        scenario.gpus,
        each,
        placement,
        sized,
        intra_network,
        scenario.library,
        scenario.oversubscription,
        measured=inside_as_measured(scenario, node, network, intra_network, catalog),
        background=scenario.background,
        derived=derived,
    )
    if inside is not None and derived is None and cluster.nodes == 1:
        cluster = replace(cluster, derived=derived_collectives(inside, device, catalog))
    cluster = at_sites(scenario, cluster)
    notes += site_notes(scenario, cluster)
    stated_by = inside.name if inside is not None and sized is not network else network.name
    notes += placement_notes(scenario, sized, node.name if node else stated_by, cluster)
    if node is not None and cluster.nodes > 1 and cluster.gpus_per_node > 1:
        notes += nics_notes(scenario, node, network)
    notes += one_nic_notes(scenario, network, inside, cluster)
    notes += under_library_notes(scenario, network, cluster)
    if cluster.intra is not None or (derived is not None and cluster.gpus > 1):
        notes += intra_notes
    notes += network_warnings(network, intra_network, cluster, catalog)
    return network, intra_network, RememberingCluster.like(cluster), notes
