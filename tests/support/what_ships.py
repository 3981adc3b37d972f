"""What ships, read once for all tests."""

from __future__ import annotations

from perfsim.data.catalog import shipped
from perfsim.network.cluster import read_network
from perfsim.session import Session

__all__ = ["NETWORKS", "SHIPPED"]

SHIPPED = Session()


NETWORKS = {
    path.stem: read_network(path) for path in sorted((shipped() / "networks").glob("*.toml"))
}
