"""The node type that a scenario names, and what its data sheet says of collectives."""

from __future__ import annotations

from perfsim.compute.device import Device, load_device
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError, shown, unknown_in_file
from perfsim.libraries import library as find_library
from perfsim.network.node_law import NodeFacts
from perfsim.network.node_network import DerivedCollectives, node_network
from perfsim.network.node_type import (
    STAND_IN_GENERATION,
    NodeType,
    generation_of,
    load_node_type,
)
from perfsim.scenario import DEFAULT_GPU, Scenario, parse_types
from perfsim.units import parse_rate

__all__ = [
    "check_node",
    "derived_collectives",
    "named_node_type",
    "names_network",
    "node_facts",
    "with_usual_network",
]


def named_node_type(scenario: Scenario, catalog: Catalog) -> NodeType | None:
    """Return the node type that a scenario names as `node`, or as its network; None if neither."""
    if scenario.node is None:
        of = catalog.files("networks"), catalog.files("nodes")
        if scenario.net in of[0] or scenario.net not in of[1]:
            return None
    name, field = (scenario.node, "node") if scenario.node else (scenario.net, "net")
    node = _node_type(name, field, catalog)
    rate = None if scenario.nic is None else parse_rate(scenario.nic, "nic")
    return node.with_nics(scenario.nics_per_node, rate)


def _node_type(name: str, field: str, catalog: Catalog) -> NodeType:
    """Return the node type of a name or a file."""
    return catalog.once(("node", field, name), lambda: load_node_type(name, catalog, field))


def names_network(scenario: Scenario) -> bool:
    """Tell whether a scenario names a network between nodes, or a node type, which has one."""
    return "net" in scenario.model_fields_set or scenario.node is not None


def with_usual_network(scenario: Scenario, device: Device, catalog: Catalog) -> Scenario:
    """Return the scenario with the network of the nodes that its GPU usually is in.

    It is for scenarios on several nodes. Those that name a network or a node type, with more GPUs
    on a node than these nodes have, with a library of links of its own (MPI), of several types of
    GPU or of a GPU whose file names no usual node stay as they are.

    Raises
    ------
    DataError
        If there is no such node type as the GPU's file names.
    """
    if names_network(scenario) or not device.usual_node or len(parse_types(scenario.gpu)) > 1:
        return scenario
    nodes = catalog.files("nodes")
    if device.usual_node not in nodes:
        path = catalog.files("devices")[device.name]
        raise unknown_in_file(path, "usual_node", device.usual_node, nodes, "nodes")
    node = _node_type(device.usual_node, "net", catalog)
    if max(scenario.placement or (scenario.gpus_per_node or 0,)) > node.gpus:
        return scenario
    own = node_network(node).library
    if scenario.library not in (None, own) and find_library(scenario.library or own).own_links:
        return scenario  # which says nothing of this library
    # Not among the fields that are set, so that whoever resolves the scenario again says it too.
    fields = {**dict(scenario), "net": node.name}
    return type(scenario).model_construct(scenario.model_fields_set, **fields)


def check_node(scenario: Scenario, node: NodeType, device: Device) -> None:
    """Refuse a GPU that nodes of a type do not have, and more GPUs a node than they have.

    Raises
    ------
    RequestError
        If the scenario contradicts the node type.
    """
    types = parse_types(scenario.gpu)
    if scenario.node and node.gpu and (len(types) > 1 or device.name != node.gpu):
        raise RequestError(
            "gpu",
            f"{node.name} has {node.gpu}, found {shown(scenario.gpu or device.name)}; leave one of"
            f" the two out, or join other GPUs by its links: `net` {node.name} and `gpus_per_node`"
            f" {node.gpus} without `node`.",
            value=scenario.gpu,
        )
    field = "placement" if scenario.placement else "gpus_per_node"
    most = max(scenario.placement or (scenario.gpus_per_node or 0,))
    if most > node.gpus:
        raise RequestError(
            field, f"{node.name} has {node.gpus} GPUs a node, found {most}.", value=most
        )


def node_facts(
    node: NodeType,
    catalog: Catalog,
    device: Device | None = None,
    version: tuple[int, ...] = (),
) -> NodeFacts:
    """Return what the law of node types needs of a node with its GPU.

    A GPU of an architecture that the law has no numbers of counts as an Ampere; predictions say so.

    Parameters
    ----------
    device : its GPU where that is known; else that of the node type, or the default GPU where the
        node is sold with any
    version : of the library, () where it is not known

    Raises
    ------
    RequestError
        If there is no such GPU as the node type's.

    Examples
    --------
    >>> node_facts(load_node_type("p5en", Catalog(), "node"), Catalog()).generation
    'hopper'
    """
    try:
        device = device or load_device(node.gpu or DEFAULT_GPU, catalog)
    except RequestError as error:
        raise error.of_file(node.path or node.name) from None
    return node.facts(generation_of(device.architecture) or STAND_IN_GENERATION, version)


def derived_collectives(node: NodeType, device: Device, catalog: Catalog) -> DerivedCollectives:
    """Return what the data sheet of a node with a GPU says of collectives."""
    return DerivedCollectives(node.name, node_facts(node, catalog, device))
