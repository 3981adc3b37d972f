"""Measured collectives beside the data sheet of the nodes that they ran on."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.device import load_device
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import NodeFacts, node_law
from perfsim.network.node_type import NodeType, generation_of
from perfsim.scenario import DEFAULT_GPU
from perfsim.units import format_bit_rate, format_bytes, format_rate, format_seconds

__all__ = ["beside_data_sheet", "check_nodes"]


def check_nodes(node: NodeType, curves: Sequence[CollectiveCurve]) -> None:
    """Refuse curves of more GPUs a node than a node type has, or between nodes without NICs.

    Raises
    ------
    RequestError
        If the curves cannot have run on such nodes.
    """
    most = max(curve.gpus_per_node for curve in curves)
    if most > node.gpus:
        why = f"{node.name} has {node.gpus} GPUs a node, the files say {most}."
        raise RequestError("node", why, value=node.name)
    if node.nics is None and any(curve.nodes > 1 for curve in curves):
        raise RequestError("node", f"{node.name} has no NICs, the files say several nodes.")


def beside_data_sheet(
    node: NodeType, curves: Sequence[CollectiveCurve], catalog: Catalog
) -> list[str]:
    """Return lines on each curve's smallest and largest message beside what the law says of them.

    The law knows the node type's data sheet alone. What a log reaches far below it hints at NICs,
    transport or settings other than stated.
    """
    architecture = load_device(node.gpu or DEFAULT_GPU, catalog).architecture
    facts = node.facts(generation_of(architecture))
    nics = node.nics
    between = f"{nics.count_words()} between nodes" if nics else "one node"
    inside = f"{node.inside.link} {format_rate(node.inside.rate)} inside"
    lines = [f"Beside the data sheet of {node.name} ({between}, {inside})"]
    for curve in curves:
        lines += [f"    {line}" for line in _curve_lines(facts, curve)]
    if nics:
        lines.append(
            f"    a node's NICs: {format_bit_rate(nics.number * nics.rate)}, which is"
            f" {format_rate(nics.number * nics.rate)}"
        )
    return lines


def _curve_lines(facts: NodeFacts, curve: CollectiveCurve) -> list[str]:
    version = f", {curve.library} {curve.version}" if curve.version else ""
    lines = [f"{curve.name}{version}"]
    for index in (0, -1):
        size, seconds = curve.size_bytes[index], curve.seconds[index]
        call = node_law().call(
            facts, curve.collective, curve.ranks, curve.nodes, size, curve.algorithm
        )
        if call is None:
            return [f"{curve.name}: the law has no such algorithm"]
        lines.append(
            f"    {format_bytes(size, 3)}: {format_seconds(seconds, 3)}, by data sheet"
            f" {format_seconds(call.seconds, 3)} ({call.algorithm}):"
            f" {seconds / call.seconds:.2f} times"
        )
    return lines
