"""What a prediction says of its networks and of where its GPUs are: assumptions and warnings."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from perfsim.compute.device import Device
from perfsim.data.catalog import Catalog, is_own
from perfsim.network.cluster import DEFAULT_GPUS_PER_NODE, Cluster
from perfsim.network.network_file import CUSTOM, Network
from perfsim.network.node_type import STAND_IN_GENERATION, NodeType, generation_of
from perfsim.note import Note, assumption, warning
from perfsim.scenario import Scenario, parse_types
from perfsim.units import format_bit_rate, format_bytes, format_seconds

if TYPE_CHECKING:
    from perfsim.network.wide_link import SitePath

__all__ = [
    "network_warnings",
    "nics_notes",
    "node_notes",
    "one_nic_notes",
    "placement_notes",
    "site_notes",
    "unused_network",
]


def site_notes(scenario: Scenario, cluster: Cluster) -> list[str]:
    """Say how far sites are from each other, and what TCP reaches between them."""
    if scenario.site is None:
        return []
    if cluster.wide is None:
        return [warning("one site: nothing is sent over `wan`.")]
    from perfsim.network.wide_link import LINUX_WINDOW_BYTES

    paths = list(cluster.wide.paths())
    near, far = min(path.rtt_s for path in paths), max(path.rtt_s for path in paths)
    pings = (
        format_seconds(far) if near == far else f"{format_seconds(near)} to {format_seconds(far)}"
    )
    notes = [
        f"{len(scenario.site)} sites, whose round trip (ping) is {pings}: the sum of the delays of"
        " two sites."
    ]
    held = min(paths, key=lambda path: path.reached)
    if held.connection_rate < held.rate:
        notes.append(
            warning(
                f"TCP holds a connection between two sites at {_bit_rate(held.connection_rate)}"
                f" of {_bit_rate(held.rate)}: {_flow_words(held)}."
            )
        )
    if held.window_bytes is None and held.rtt_s > 0:
        usual = held._replace(window_bytes=float(LINUX_WINDOW_BYTES)).connection_rate
        if usual < held.reached:
            notes.append(
                assumption(
                    "The window of a TCP flow is taken to be large enough. Linux's own of"
                    f" {LINUX_WINDOW_BYTES // 2**20} MiB would hold a connection at"
                    f" {_bit_rate(usual)}; `wan` ...,window=3MiB shows it, flows=N helps.",
                    "TCP windows large enough",
                )
            )
    return notes


def _bit_rate(bytes_per_s: float) -> str:
    """Write a rate in bits, in three digits."""
    return format_bit_rate(float(f"{bytes_per_s:.3g}"))


def _flow_words(path: SitePath) -> str:
    """Say what holds a flow of a path, and how many flows there are."""
    words = [f"{100 * path.loss:.2g} % lost"] if path.loss else []
    words += [f"a window of {format_bytes(path.window_bytes)}"] if path.window_bytes else []
    words += [f"{_bit_rate(path.per_flow)} allowed a flow"] if path.per_flow else []
    flows = "one flow" if path.flows == 1 else f"{path.flows} flows"
    return f"{flows}, {', '.join(words)}, a round trip of {format_seconds(path.rtt_s)}"


def node_notes(node: NodeType, network: Network, device: Device) -> list[str]:
    """Return what a prediction on a node type says of where its network comes from."""
    notes = []
    if not generation_of(device.architecture):
        notes.append(
            warning(
                f"collectives start on {device.name} as on {STAND_IN_GENERATION.capitalize()} GPUs:"
                f" of {device.architecture or 'its architecture, which is not stated,'} none was"
                " measured."
            )
        )
    if network.node_type is None:
        return [
            *notes,
            f"inside nodes as {node.name}'s data sheet and clusters of other kinds say.",
        ]
    return [
        *notes,
        f"collectives on {node.name} are derived: by its data sheet, and by what clusters of other"
        f" kinds reach of theirs (`perfsim show node {node.name}`).",
    ]


def nics_notes(scenario: Scenario, node: NodeType, network: Network) -> list[str]:
    """Return how many NICs of a network that is named besides a node type each node is taken for.

    A measured network's own curves say what its NICs do.
    """
    count = network.nics_per_node
    if network.node_type or network.known or count is None or scenario.nics_per_node is not None:
        return []
    own = count == node.driven_nics
    whose = f"as many as {node.name} has" if own else f"beside those of {node.name}"
    nics = "1 NIC" if count == 1 else f"{count} NICs"
    text = f"{nics} of {network.name} a node ({whose}); set `nics_per_node` to change it."
    return [assumption(text, f"`nics_per_node` {count}")]


_CARDS = ("infiniband", "ib", "roce", "efa", "slingshot", "rdma")
"""Transports that often reach a node with several GPUs through several NICs."""


def _one_nic_assumed(
    scenario: Scenario, network: Network, inside: NodeType | None, cluster: Cluster
) -> bool:
    """Tell whether several GPUs of a node share one NIC that nobody stated.

    ``inside`` is the node type that the links inside nodes are taken from. Of a link that the user
    writes as ``rate,latency`` it is said only where that has several NICs.
    """
    if scenario.nics_per_node is not None or scenario.node is not None or network.known:
        return False
    if network.transport == CUSTOM:
        among_several = inside is not None and inside.driven_nics > 1
    else:
        among_several = network.transport in _CARDS and network.gpus_per_node is None
    return among_several and cluster.nodes > 1 and cluster.gpus_per_node > 1


def one_nic_notes(
    scenario: Scenario, network: Network, inside: NodeType | None, cluster: Cluster
) -> list[str]:
    """Say it where several GPUs of a node share one NIC that nobody stated.

    ``inside`` is the node type that the links inside nodes are taken from.
    """
    if not _one_nic_assumed(scenario, network, inside, cluster):
        return []
    return [_one_nic_note(network, inside, cluster)]


def _one_nic_note(network: Network, inside: NodeType | None, cluster: Cluster) -> Note:
    """Return what is said of one NIC that nobody stated.

    ``inside`` is the node type that the links inside nodes are taken from. Where it has several
    NICs, communication may be predicted several times too slow. A rate that the user writes may be
    that of all of them.
    """
    text = f"1 NIC for the {cluster.gpus_per_node} GPUs of a node ({network.name} states none)"
    if inside is None or inside.driven_nics == 1:
        fix = "set `nics_per_node`, or name a node type (`node`)."
        return assumption(f"{text}; {fix}", "`nics_per_node` 1")
    count = inside.driven_nics
    if network.transport == CUSTOM:
        text = f"1 NIC of {network.name} for the {cluster.gpus_per_node} GPUs of a node"
        fix = f"where {inside.name} has {count}; set `nics_per_node` to change it."
        return assumption(f"{text}, {fix}", "`nics_per_node` 1")
    return warning(
        f"{text}, where {inside.name} has {count}; set `nics_per_node` {count}, or 1 if it is so,"
        f" or `node` {inside.name}.",
        f"1 NIC a node assumed, {inside.name} has {count}; set `nics_per_node`",
    )


def placement_notes(
    scenario: Scenario, network: Network, stated_by: str, cluster: Cluster
) -> list[str]:
    """Say how many GPUs are on a node where that was not asked for."""
    if scenario.placement or scenario.gpus_per_node or scenario.gpus == 1:
        return []
    sizes, stated = set(cluster.placement), network.gpus_per_node or DEFAULT_GPUS_PER_NODE
    each = cluster.gpus_per_node
    gpus = "1 GPU" if each == 1 else f"{each} GPUs"
    if sizes == {stated}:
        origin = f"as {stated_by} states" if network.gpus_per_node else "the default"
        text = f"{gpus} a node ({origin}); set `gpus_per_node` to change it."
        return [text if network.gpus_per_node else assumption(text, f"`gpus_per_node` {each}")]
    counts = [count for _, count in parse_types(scenario.gpu)] or scenario.site or [scenario.gpus]
    of = f"{_numbers(counts)} up to {stated}"
    words, origin = f"{gpus} a node", f"the largest divisor of {of}"
    if len(sizes) > 1:
        words = f"nodes of {_numbers(cluster.placement)} GPUs"
        origin = f"the largest divisors of {of}"
    least = sum(-(-count // stated) for count in counts)
    if not network.gpus_per_node or cluster.nodes == least:
        text = f"{words} ({origin}); set `gpus_per_node` to change it."
        return [assumption(text, f"`gpus_per_node` {each}" if len(sizes) == 1 else words)]
    filled = ""
    if len(counts) == 1 and least <= _MAX_SHOWN_NODES:
        *full, last = range(0, scenario.gpus, stated)
        filled = f" {','.join([str(stated)] * len(full) + [str(scenario.gpus - last)])}"
    return [
        warning(
            f"{words} ({origin}, which {stated_by} has): {cluster.nodes} nodes where {least} would"
            f" do; set `placement`{filled} to fill them, or `gpus_per_node`.",
            f"{words}, {stated_by} has {stated}; `placement`{filled} fills nodes",
        )
    ]


_MAX_SHOWN_NODES = 8
"""Nodes that a note lists. No source: chosen, to keep it on two lines."""


def _numbers(values: Iterable[int]) -> str:
    """Write each of some numbers once, such as "8 and 6"."""
    return " and ".join(map(str, dict.fromkeys(values)))


_MAX_WARNINGS = 2
"""Warnings on a network that a prediction repeats; ``show net`` lists all of them."""


def under_library_notes(scenario: Scenario, network: Network, cluster: Cluster) -> list[str]:
    """Say that another network's links are taken, those of the one named under another library."""
    if cluster.nodes == 1 or network.name != f"{scenario.net}-{scenario.library}":
        return []
    said = f"`net` {network.name}: {scenario.net} under {scenario.library}"
    return [
        assumption(f"{said} (`perfsim show net {network.name}`).", f"`net` {network.name}"),
    ]


def network_warnings(
    network: Network, intra_network: Network | None, cluster: Cluster, catalog: Catalog
) -> list[str]:
    """Return the warnings on a user's own network files and on the measured curves in use."""
    notes: list[str] = []
    for used in (network, intra_network):
        if used is None or used.node_type or not used.path:
            continue
        own = catalog.once(("own file", used.path), partial(is_own, used.path))
        if not (used.known or own):
            continue
        from perfsim.network.self_check import self_check

        shape = (cluster.gpus, cluster.nodes) if cluster.known is not None else None
        warnings = self_check(used, shape)
        notes += [warning(f"{used.name}: {one}") for one in warnings[:_MAX_WARNINGS]]
        more = len(warnings) - _MAX_WARNINGS
        if more > 0:
            notes.append(f"{used.name}: {more} more of that kind; `perfsim show net {used.name}`.")
    return notes


def unused_network(
    named: str, scenario: Scenario, cluster: Cluster, intra_network: Network | None
) -> list[str]:
    """Say that the network between nodes counts for nothing, where it was named and all is in one.

    A network that has the links inside nodes too counts.
    """
    if not named or named == scenario.node or cluster.nodes > 1 or cluster.gpus == 1:
        return []
    if intra_network is None:
        return []
    return [
        warning(
            f"`net` {named} is not used: the {cluster.gpus} GPUs are in one node. With several"
            " machines, set `gpus_per_node`.",
            f"`net` {named} is not used: all {cluster.gpus} GPUs are in one node (`gpus_per_node`)",
        )
    ]
