"""Pictures of networks and node types for `show`: what is drawn, by their files and data sheets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, Any

from perfsim.data.catalog import Catalog
from perfsim.inventory import describe_node, named_algorithm, nics_words
from perfsim.units import format_bit_rate, format_rate, format_seconds

if TYPE_CHECKING:
    from perfsim.network.network_file import Network
    from perfsim.network.node_network import DerivedCollectives
    from perfsim.network.node_type import InsideLink, NodeType
    from perfsim.report.network_drawing import Picture
    from perfsim.report.node_drawing import LineRate, NodeFact, NodePicture, RateCurve

__all__ = ["network_picture", "node_picture"]

_DRAWN_NODES = 8
"""Nodes of a picture where a file states a fabric but no number of nodes: enough to show it."""


def network_picture(name: str, catalog: Catalog) -> Picture:
    """Return the picture of a network: its links, nodes and switches, to be drawn.

    Raises
    ------
    RequestError
        If there is no such network.
    """
    from perfsim.network.node_network import load_any_network
    from perfsim.report.network_drawing import DrawnLink, Picture

    network = load_any_network(name, catalog, "net")
    wires = {
        link_class: DrawnLink(
            format_rate(link.rate.value), f"{format_seconds(link.ring.at(1e3), 3)} a hop"
        )
        for link_class, link in network.links.items()
    }
    curves = network.known.curves if network.known else ()
    nodes = max((curve.nodes for curve in curves), default=2) if "inter" in wires else 1
    fabric = network.fabric if "inter" in wires else None
    if fabric is not None:
        nodes = max(nodes, _DRAWN_NODES)
    rate = network.links["inter"].rate.value if "inter" in network.links else 1.0
    picture = Picture(
        f"{network.name}: {network.title}",
        wires.get("inter"),
        wires.get("intra"),
        nodes,
        network.gpus_per_node,
        network.nics_per_node,
        fabric.words() if fabric else "switches not stated",
        network.node.words() if network.node else "not stated",
        fabric.graph(nodes, network.nics_per_node, rate) if fabric else None,
        (f"latency is that of a hop for 1 kB; inside the nodes: {network.inside}",)
        if network.inside
        else (),
    )
    return _with_node_type(picture, network, catalog)


def _with_node_type(picture: Picture, network: Network, catalog: Catalog) -> Picture:
    """Return the picture with what the data sheet of its nodes says, where it has a node type."""
    from perfsim.network.node_type import load_node_type
    from perfsim.report.network_drawing import DrawnLink

    node = network.node_type
    if node is None and network.stated_node:
        node = load_node_type(network.stated_node, catalog, "node_type")
    if node is None:
        return picture
    inside, nics = node.inside, node.nics
    says = [f"{inside.link} {format_rate(inside.rate)} a GPU one way"] if inside.rate else []
    says += [f"{nics_words(node)}, {_CARRIERS[nics.transport]}"] if nics else []
    whose = (
        "its data sheet" if network.node_type else f"its nodes are {node.name}, whose data sheet"
    )
    stated = DrawnLink(f"{format_rate(inside.rate)} a GPU one way by data sheet")
    picture = replace(
        picture,
        intra=picture.intra or (stated if inside.rate else None),
        intra_kind=network.node.words() if network.node else _inside_kind(inside)[0],
        notes=(*picture.notes, f"{whose} says: {'; '.join(says)}"),
    )
    if nics is None or picture.inter is None or network.gpus_per_node != node.gpus:
        return picture
    # The link's rate is that of a GPU's NICs where it has several, or of all of a node's.
    used = min(network.nics_per_node, node.gpus)
    share, rest = divmod(nics.number, used)
    if rest or share <= 1:
        return picture
    return replace(picture, nics_per_node=nics.number, per=f"{share} NICs together")


def _inside_kind(inside: InsideLink) -> tuple[str, str]:
    """Return what joins the GPUs of a node, and whether it is drawn as switch, mesh or host."""
    generation = inside.link[-1]
    if inside.link == "none":
        return "", "mesh"
    if inside.link == "xgmi":
        return ("xGMI switch", "switch") if inside.switch else ("xGMI mesh", "mesh")
    if inside.link.startswith("nvlink"):
        if inside.switch:
            return f"NVSwitch, NVLink {generation}", "switch"
        return f"NVLink {generation} mesh, no switch", "mesh"
    if not inside.peer_access:
        return f"PCIe {generation} via host, no peer access", "host"
    return f"PCIe {generation}, peer access", "switch" if inside.switch else "mesh"


_CARRIERS = {
    "infiniband": "RDMA over InfiniBand",
    "roce": "RDMA over Ethernet (RoCE)",
    "efa": "AWS EFA (SRD)",
    "slingshot": "RDMA over Slingshot",
    "tcp": "TCP sockets",
    "tcpx": "GPUDirect-TCPX or TCPXO",
}
"""What carries messages between nodes, by the transport of their NICs."""

_CURVE_COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"),
)
_CURVE_NODES = (1, 2, 4, 16, 64)
_CURVE_SIZES = tuple(2.0**power for power in range(10, 33))
"""What the page of a node type draws."""


def node_picture(name: str, catalog: Catalog) -> NodePicture:
    """Return the picture of a node type: its parts with sources, and what collectives reach.

    Raises
    ------
    RequestError
        If there is no such node type or file.
    DataError
        If the file is damaged.
    """
    from perfsim.hardware.nodes import node_facts
    from perfsim.network.node_network import DerivedCollectives
    from perfsim.network.node_type import load_node_type
    from perfsim.report.node_drawing import NodePicture
    from perfsim.scenario import DEFAULT_GPU

    node = load_node_type(name, catalog, "node")
    description = describe_node(name, catalog)
    derived = DerivedCollectives(node.name, node_facts(node, catalog))
    curves = [
        _rate_curve(derived, node, collective, nodes)
        for collective in _CURVE_COLLECTIVES
        for nodes in (_CURVE_NODES if node.nics else (1,))
        if nodes * node.gpus > 1
    ]
    kind, style = _inside_kind(node.inside)
    nics = node.nics
    measured = ", ".join(description.measured_like_it) or "none"
    facts = _node_sheet(node)
    return NodePicture(
        name=node.name,
        title=node.title,
        gpu=node.gpu or f"any GPU; rates with {DEFAULT_GPU}",
        gpus=node.gpus,
        inside_kind=kind,
        inside_style=style,
        inside_rate=format_rate(node.inside.rate) if kind else "",
        nics=nics.number if nics else 0,
        nic_rate=format_bit_rate(nics.rate) if nics else "",
        carrier=_carrier(node) if nics else "",
        facts=facts,
        curves=curves,
        line_rates={collective: _line_rates(node, collective) for collective in _CURVE_COLLECTIVES},
        notes=[
            "Times follow from the data sheet and from what measured clusters reach of theirs"
            " (profiles/nodes/README.md); they are derived, not measured here. A band holds 90 %:"
            " it is the error of the same law on clusters left out of its fit.",
            f"Measured networks of this node type or one like it: {measured}.",
            *node.notes,
        ],
        result={
            "schema": "perfsim/show/1",
            "kind": "node",
            **description.to_dict(),
            "facts": [fact._asdict() for fact in facts],
            "curves": [_curve_record(curve) for curve in curves],
        },
    )


def _carrier(node: NodeType) -> str:
    assert node.nics is not None
    direct = "GPUDirect" if node.nics.gpudirect else "through the host's memory"
    return f"{_CARRIERS[node.nics.transport]}, {direct}"


def _rate_curve(
    derived: DerivedCollectives, node: NodeType, collective: str, nodes: int
) -> RateCurve:
    from perfsim.calibrate.formats.rows import busbw_factor
    from perfsim.report.node_drawing import RateCurve, RatePoint

    points = []
    for size in _CURVE_SIZES:
        cost = derived.cost(collective, size, (node.gpus,) * nodes, node.library)
        assert cost is not None
        times = exp(cost.spread or 0.0)
        seconds = cost.seconds
        points.append(
            RatePoint(size, seconds, seconds / times, seconds * times, named_algorithm(cost))
        )
    gpus = nodes * node.gpus
    return RateCurve(collective, nodes, gpus, busbw_factor(collective, gpus), points)


def _curve_record(curve: RateCurve) -> dict[str, Any]:
    """Return a curve as JSON has it."""
    return {
        "collective": curve.collective,
        "nodes": curve.nodes,
        "gpus": curve.gpus,
        "bus_factor": curve.bus_factor,
        "points": [point._asdict() for point in curve.points],
    }


def _line_rates(node: NodeType, collective: str) -> list[LineRate]:
    """Return the rates of the data sheet beside which a collective is drawn."""
    from perfsim.report.node_drawing import LineRate

    inside, nics, rates = node.inside, node.nics, []
    if node.gpus > 1:
        rates.append(LineRate("links inside, of a GPU", inside.rate))
    if nics is None:
        return rates
    if collective == "send_recv":
        own = max(1.0, nics.number / node.gpus)
        return [*rates, LineRate("NICs of a GPU, one at least", own * nics.rate)]
    if collective == "all_to_all":
        return [*rates, LineRate("a GPU's share of the NICs", nics.number * nics.rate / node.gpus)]
    return [*rates, LineRate("NICs of a node", nics.number * nics.rate)]


def _node_sheet(node: NodeType) -> list[NodeFact]:
    """Return what is known of a node, and what was not looked up, with sources."""
    from perfsim.report.node_drawing import NodeFact

    def facts(source: str, values: Mapping[str, str]) -> list[NodeFact]:
        derived, _, rest = source.partition("derived: ")
        known = ("derived", rest) if rest and not derived else ("stated", source)
        return [NodeFact(what, value, *known) for what, value in values.items()]

    inside, nics = node.inside, node.nics
    rows = facts(
        node.source,
        {
            "GPU": node.gpu or "any",
            "GPUs of a node": str(node.gpus),
            "library": node.library,
        },
    )
    if inside.link != "none":
        rows += facts(
            inside.source,
            {
                "links inside": inside.link,
                "rate inside, of a GPU, one way": format_rate(inside.rate),
                "a switch joins all GPUs": "yes" if inside.switch else "no",
                "GPUs read each other's memory": "yes" if inside.peer_access else "no",
            },
        )
    if nics is not None:
        rows += facts(
            nics.source,
            {
                "NICs of a node": str(nics.number),
                "rate of a NIC, one way": f"{format_bit_rate(nics.rate)}, {format_rate(nics.rate)}",
                "all NICs of a node": format_rate(nics.number * nics.rate),
                "what carries messages": _CARRIERS[nics.transport],
                "GPUDirect": "yes" if nics.gpudirect else "no",
            },
        )
    missing = "not looked up: "
    rows += [
        NodeFact(note.removeprefix(missing), "-", "not looked up", "-")
        for note in node.notes
        if note.startswith(missing)
    ]
    return rows
