"""What ships, read once for all tests."""

from __future__ import annotations

import csv

from perfsim.data.catalog import shipped
from perfsim.network.cluster import read_network
from perfsim.session import Session

__all__ = ["NETWORKS", "SHIPPED", "shipped_rows"]

SHIPPED = Session()


NETWORKS = {
    path.stem: read_network(path) for path in sorted((shipped() / "networks").glob("*.toml"))
}


def shipped_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table that ships, given its path below ``profiles``."""
    lines = (shipped() / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))
