"""Clusters: GPUs on nodes, the links between them, and what a collective costs there."""

from __future__ import annotations

from perfsim.cluster.cluster import Cluster
from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link, custom_link
from perfsim.cluster.make import make_cluster
from perfsim.cluster.network import Network, load_network, read_network

__all__ = [
    "Cluster",
    "Latency",
    "Link",
    "Network",
    "custom_link",
    "load_network",
    "make_cluster",
    "read_network",
]
