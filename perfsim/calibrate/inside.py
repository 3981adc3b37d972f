"""The link between the GPUs of a node that was not measured: a preset's."""

from __future__ import annotations

from collections.abc import Callable

from perfsim.catalog import Catalog
from perfsim.cluster.link import Link
from perfsim.cluster.network import load_network

__all__ = ["inside_link"]


def inside_link(catalog: Catalog) -> Callable[[str], Link | None]:
    """Return what gives a preset's link between the GPUs of a node.

    Examples
    --------
    >>> inside_link(Catalog())("pcie3").rate.unit
    'B/s'
    """
    return lambda name: load_network(name, catalog, "inside").links.get("intra")
