"""NVSwitch: every GPU of a node on switches that let all of them send at full rate at once."""

from __future__ import annotations

from collections.abc import Mapping

from perfsim.network.fabrics.option import Option
from perfsim.network.fabrics.wire import join, new_graph
from perfsim.network.routing import Graph

__all__ = ["OPTIONS", "PLACE", "SUMMARY", "nvswitch", "words"]

PLACE = "intra"
SUMMARY = "GPUs on a non-blocking switch: a ring is as fast over two of them as over all"
OPTIONS: Mapping[str, Option] = {}


def nvswitch(gpus: int) -> Graph:
    """Return a star of GPUs around one switch, each joined at rate 1.

    Left out: NVLink SHARP (NVLS), in which the switch adds; it is an algorithm of its own.

    Examples
    --------
    >>> sorted(nvswitch(2))
    ['GPU 0', 'GPU 1', 'NVSwitch']
    """
    graph = new_graph()
    graph.add_node("NVSwitch", kind="switch", level=1)
    for index in range(gpus):
        graph.add_node(f"GPU {index}", kind="host")
        graph.graph["hosts"].append(f"GPU {index}")
        join(graph, f"GPU {index}", "NVSwitch", 1.0)
    return graph


def words() -> str:
    """Return the fabric in a few words."""
    return "NVSwitch"
