"""Fabrics as a network file's tables state them."""

from __future__ import annotations

from pathlib import Path

from perfsim.cluster.fabric import Fabric, NodeFabric
from perfsim.cluster.fabric_file import read_fabric, read_node
from perfsim.toml_file import Table

__all__ = ["node", "read"]


def read(tmp_path: Path, **keys: object) -> Fabric:
    """Return the fabric of a table with these keys."""
    return read_fabric(Table({"source": "a test", **keys}, tmp_path / "net.toml", "fabric."))


def node(**keys: object) -> NodeFabric:
    """Return the node of a table with these keys."""
    return read_node(Table({"source": "a test", **keys}, Path("net.toml"), "node."))
