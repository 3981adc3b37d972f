"""The networks that ship, by name, read once."""

from __future__ import annotations

from perfsim.data.catalog import shipped
from perfsim.network.cluster import read_network

__all__ = ["NETWORKS"]

NETWORKS = {
    path.stem: read_network(path) for path in sorted((shipped() / "networks").glob("*.toml"))
}
