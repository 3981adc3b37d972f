"""Fabrics as a network file's tables state them."""

from __future__ import annotations

from pathlib import Path

from perfsim.network.fabrics.slowdown import Fabric, NodeFabric
from perfsim.network.fabrics.tables import read_fabric, read_node

__all__ = ["node", "read"]


def read(tmp_path: Path, **keys: object) -> Fabric:
    """Return the fabric of a table with these keys."""
    return read_fabric({"source": "a test", **keys}, tmp_path / "net.toml")


def node(**keys: object) -> NodeFabric:
    """Return the node of a table with these keys."""
    return read_node({"source": "a test", **keys}, Path("net.toml"))
