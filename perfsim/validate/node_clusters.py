"""Measured clusters as node types: what a data sheet says of the nodes that were measured.

``profiles/nodes/clusters.csv`` names the node type of each measured network, and in what its nodes
differ from it. On these the numbers of `NodeLaw` are fitted and judged.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from perfsim.data.catalog import Catalog, shipped
from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.hardware.nodes import node_facts
from perfsim.libraries.nccl_versions import version_number
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import NodeFacts, NodeLaw, held_as
from perfsim.network.node_type import load_node_type
from perfsim.quantity import COUNT_LIMIT, RATE_LIMIT
from perfsim.session import Session
from perfsim.units import parse_rate

__all__ = [
    "CLUSTERS_COLUMNS",
    "CLUSTERS_FILE",
    "CLUSTERS_SCHEMA",
    "MeasuredNodes",
    "family",
    "family_of",
    "measured_nodes",
    "networks_of_files",
]

CLUSTERS_FILE = "nodes/clusters.csv"
CLUSTERS_SCHEMA = "perfsim/node-clusters/1"
CLUSTERS_COLUMNS = (
    *("network", "node", "generation", "gpus", "inside_rate", "switch", "peer_access"),
    "gpus_per_switch",
    *("nics", "nic_rate", "transport", "gpudirect", "in_network", "version"),
    *("algorithm", "protocol", "one_process", "stated", "family", "evidence"),
)


class MeasuredNodes(NamedTuple):
    """The nodes of a measured cluster.

    Parameters
    ----------
    node : the node type that they are, or are nearest to
    facts : of their data sheets
    algorithm, protocol : what its scripts hold NCCL to (``ring``, ``simple``), "" for NCCL's choice
    one_process : whether one process drove all GPUs of a node, which training does not
    stated : whether the source states what a data sheet would; else facts are assumed
    family : clusters that are one machine, or alike in hardware and place, which are left out
        together
    """

    node: str
    facts: NodeFacts
    one_process: bool
    stated: bool
    family: str
    algorithm: str = ""
    protocol: str = ""

    def of(self, curve: CollectiveCurve) -> NodeFacts:
        """Return the facts with the version of a curve."""
        if not curve.version or self.facts.version:
            return self.facts
        return self.facts._replace(version=version_number(curve.version))

    def seconds(self, law: NodeLaw, curve: CollectiveCurve, size_bytes: float) -> float:
        """Return the time by a law of a message of a curve, as its measurement was run [s]."""
        ranks, nodes = curve.ranks, curve.nodes
        held, protocol = held_as(curve.algorithm or self.algorithm), curve.protocol or self.protocol
        call = law.call(self.of(curve), curve.collective, ranks, nodes, size_bytes, held, protocol)
        if call is None:
            raise ValueError(f"the law has no {curve.name}")
        if self.one_process:
            return max(call.seconds, law.one_process_s(curve.ranks))
        return call.seconds


@cache
def measured_nodes() -> dict[str, MeasuredNodes]:
    """Return the nodes of each measured network by its name.

    Raises
    ------
    DataError
        If the table is damaged.
    """
    path, catalog = shipped() / CLUSTERS_FILE, Session()
    return {
        cells["network"]: _read(cells, path, row, catalog)
        for row, cells in read_table(path, CLUSTERS_SCHEMA, CLUSTERS_COLUMNS)
    }


def family_of(series: str, cluster: str) -> str:
    """Return the family of a cluster's curves: of its network if that is known, else the cluster.

    Parameters
    ----------
    series : the measured network that its curves name
    cluster : its own name
    """
    nodes = measured_nodes().get(series)
    return cluster if nodes is None else nodes.family


_FILES_FILE = "networks/clusters.csv"
_FILES_SCHEMA = "perfsim/clusters/1"
"""The collected files of each measured network."""


@cache
def networks_of_files() -> dict[str, str]:
    """Return the measured network of each collected file, by the file's stem.

    Files whose nodes a network counts differently (``stem@72``) are left out: their curves do not
    fit its node type.

    Raises
    ------
    DataError
        If the table is damaged.
    """
    rows = read_table(shipped() / _FILES_FILE, _FILES_SCHEMA, ("network", "data_files"))
    return {
        stem: cells["network"]
        for _, cells in rows
        for stem in cells["data_files"].split()
        if "@" not in stem
    }


def _read(cells: dict[str, str], path: Path, row: int, catalog: Catalog) -> MeasuredNodes:
    node = load_node_type(cells["node"], catalog, "node")
    facts = node_facts(node, catalog, version=version_number(cells["version"]))
    changed: dict[str, object] = {}
    for column in ("gpus", "gpus_per_switch", "nics"):
        if cells[column]:
            changed[column] = int(
                cell_number(cells[column], column, path, row, whole=True, within=COUNT_LIMIT)
            )
    for column in ("inside_rate", "nic_rate"):
        if cells[column]:
            rate = parse_rate(cells[column], column)
            assert RATE_LIMIT.holds(rate)
            changed[column] = rate
    for column in ("switch", "gpudirect"):
        if cells[column]:
            changed[column] = _yes(cells, column, path, row)
    for column in ("generation", "transport"):
        if cells[column]:
            changed[column] = cells[column]
    if cells["peer_access"] and not _yes(cells, "peer_access", path, row):
        changed["inside"] = "host"
    check_word(cells["algorithm"], ("", "ring", "tree"), "algorithm", path, row)
    check_word(cells["protocol"], ("", "ll", "simple"), "protocol", path, row)
    changed["adds_in_network"] = _yes(cells, "in_network", path, row)
    return MeasuredNodes(
        node.name,
        facts._replace(**changed),  # type: ignore[arg-type]
        _yes(cells, "one_process", path, row),
        _yes(cells, "stated", path, row),
        family(cells),
        cells["algorithm"],
        cells["protocol"],
    )


def _yes(cells: dict[str, str], column: str, path: Path, row: int) -> bool:
    check_word(cells[column] or "no", ("yes", "no"), column, path, row)
    return cells[column] == "yes"


def family(cells: dict[str, str]) -> str:
    """Return the family of a row, which is the network's own name where none is given."""
    return cells["family"] or cells["network"]
