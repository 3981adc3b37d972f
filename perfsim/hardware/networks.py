"""The networks between and inside nodes: those that a scenario names, else those of its GPUs."""

from __future__ import annotations

from dataclasses import replace

from perfsim.compute.device import Device, device_named
from perfsim.compute.software import NEWEST
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError, unknown_in_file
from perfsim.hardware.gpus import device_in_era
from perfsim.hardware.nodes import derived_collectives, node_facts
from perfsim.network.network_file import Network
from perfsim.network.node_network import DerivedCollectives, load_any_network, node_network
from perfsim.network.node_type import NodeType, load_node_type
from perfsim.note import assumption
from perfsim.scenario import DEFAULT_GPU, DEFAULT_INTRA_NET, Scenario, parse_types

__all__ = [
    "inside_as_measured",
    "intra_network_of",
    "intra_network_of_gpus",
    "measured_on",
    "named_network",
    "networks_of_nodes",
    "with_data_sheet",
]


_NVLINK = "nvlink"
"""The transport of an NVLink, and the word that asks for the NVLink of the GPU."""

_HOST_LIBRARIES = ("gloo", "mpi")
"""Libraries that sum in the host's memory."""


def named_network(name: str, field: str, catalog: Catalog) -> Network:
    """Return a network by its name, or by what the user writes for one."""
    return catalog.once(("network", field, name), lambda: load_any_network(name, catalog, field))


def measured_on(network: Network, catalog: Catalog) -> str | None:
    """Return the GPU that a network's curves were measured on; None if they say none or several."""
    words = {curve.gpu for curve in network.known.curves} if network.known else set()
    return device_named(words.pop(), catalog) if len(words) == 1 else None


def with_data_sheet(network: Network, catalog: Catalog) -> Network:
    """Return a measured network with the data sheet of the nodes that its file says it has."""
    if not network.stated_node or network.known is None:
        return network
    node = load_node_type(network.stated_node, catalog, "node_type")
    facts = node_facts(node, catalog)
    return network._replace(known=replace(network.known, facts=facts))


def network_between(scenario: Scenario, catalog: Catalog) -> Network:
    """Return the network between nodes that a scenario names, as its library drives it.

    Where a file says how another library does, that is 100gbe-mpi for 100gbe.
    """
    network, library = named_network(scenario.net, "net", catalog), scenario.library
    name = f"{network.name}-{library}"
    if library in (None, network.library) or name not in catalog.files("networks"):
        return network
    return named_network(name, "net", catalog)


def networks_of_nodes(
    scenario: Scenario, node: NodeType, device: Device, catalog: Catalog
) -> tuple[Network, Network | None, DerivedCollectives | None]:
    """Return the networks between and inside nodes of a type, and what their data sheet says.

    The second is None where the first has the link inside too. A network that is named besides the
    node type joins such nodes: each of their NICs is one of that network. But one of TCP joins
    nodes whose own NICs are of another kind by a NIC of its own, since what hosts have for Ethernet
    beside their RDMA NICs is one.

    Raises
    ------
    RequestError
        If the network was measured on nodes of another size, or is another node type.
    """
    own, inside = node_network(node), None
    if scenario.intra_net not in (None, scenario.node, node.name):
        inside, _ = intra_network_of(scenario, own, catalog)
    if scenario.net in (scenario.node, node.name):
        return own, inside, None if inside else derived_collectives(node, device, catalog)
    network = network_between(scenario, catalog)
    size = network.gpus_per_node
    if network.node_type is not None or size not in (None, node.gpus):
        why = "is a node type itself" if network.node_type else f"has nodes of {size} GPUs"
        raise RequestError(
            "net", f"{network.name} {why}, `node` {node.name} {node.gpus}; give one of the two."
        )
    beside = network.transport == "tcp" != own.transport and scenario.nics_per_node is None
    if network.nics_per_node == 1 and not beside:
        network = network._replace(nics_per_node=node.driven_nics)
    return network._replace(gpus_per_node=node.gpus), inside or own, None


def intra_network_of(
    scenario: Scenario, network: Network, catalog: Catalog
) -> tuple[Network | None, list[str]]:
    """Return the network inside a node, and notes; None where the network file has its own link.

    A link that the user writes as ``rate,latency`` for `net` is between nodes only.
    """
    asked = scenario.intra_net
    own = (None, scenario.net, network.name)
    if network.path and asked in own and "intra" in network.links:
        return None, []
    if asked is None and network.path:
        asked = network.inside or None
    if asked is None or asked == _NVLINK:
        library = None if asked else scenario.library or network.library
        name, why = intra_network_of_gpus(scenario.gpu, catalog, library, scenario.model)
        inside = named_network(name, "intra_net", catalog)
        if asked == _NVLINK and not _is_nvlink(inside):
            raise RequestError(
                "intra_net",
                f"the GPUs of a node have no NVLink ({scenario.gpu}: {name}); name a network, such"
                " as nvlink-a100.",
                value=asked,
            )
        if asked == _NVLINK:
            return inside, [f"`intra_net` {name}, after the GPU{why}."]
        return inside, [
            assumption(f"`intra_net` {name}, after the GPU{why}.", f"`intra_net` {name}")
        ]
    return named_network(asked, "intra_net", catalog), []


def inside_as_measured(
    scenario: Scenario,
    node: NodeType | None,
    network: Network,
    inside: Network | None,
    catalog: Catalog,
) -> bool:
    """Tell whether the GPUs of a node are joined as where the network was measured.

    That is the link that its file states, and where it states none, the one that they have where
    `intra_net` is left out. ``inside`` is None where the network's own link joins them.
    """
    own = (None,) if node is None else (None, scenario.node, node.name)
    if scenario.intra_net in own:
        return True
    if node is not None and not network.inside:
        return False
    stated = scenario.model_copy(update={"intra_net": network.inside or None})
    measured, _ = intra_network_of(stated, network, catalog)
    return (measured or network).name == (inside or network).name


def _is_nvlink(network: Network) -> bool:
    """Tell whether what joins GPUs inside a node is NVLink."""
    inside = network.links.get("intra")
    return inside is not None and inside.transport.startswith(_NVLINK)


def intra_network_of_gpus(
    gpu: str | None, catalog: Catalog, library: str | None = None, model: str = ""
) -> tuple[str, str]:
    """Return the network that joins the GPUs of a node by their files, and in words why.

    Of several types of GPU it is the slowest: it sets the pace of what all of them exchange.
    Libraries that copy through the host's memory use PCIe whatever else joins the GPUs.
    """
    names = [name for name, _ in parse_types(gpu)] or [gpu or DEFAULT_GPU]
    networks, found = catalog.files("networks").keys() | catalog.files("nodes").keys(), {}
    for device in (device_in_era(name, NEWEST, catalog, model) for name in names):
        if library in _HOST_LIBRARIES:
            name = f"pcie{device.pcie}"
            own = name if name in networks else DEFAULT_INTRA_NET
            found[own] = f": {library} copies through the host"
            continue
        if device.intra_net and device.intra_net not in networks:
            path = catalog.files("devices")[device.name]
            raise unknown_in_file(path, "intra_net", device.intra_net, networks, "networks")
        why = f": {device.link}" if device.link else ""
        why += f"; {device.intra_net_why}" if device.intra_net_why else ""
        if not device.intra_net:
            why = f", whose file names none: {DEFAULT_INTRA_NET} is an assumption"
        found[device.intra_net or DEFAULT_INTRA_NET] = why
    if len(found) == 1:
        return next(iter(found.items()))
    links = {
        name: named_network(name, "intra_net", catalog).link("intra", "intra_net") for name in found
    }
    slowest = min(links, key=lambda name: links[name].rate.value)
    return slowest, f", the slowest of {', '.join(found)}"
