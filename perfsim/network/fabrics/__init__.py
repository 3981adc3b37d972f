"""Fabrics: how the nodes of a cluster are joined, and how the GPUs of a node are.

`base` tells how to add one.
"""

from __future__ import annotations

from perfsim.network.fabrics.base import Fabric, NodeFabric, fabric_kind, fabrics, oversubscribed

__all__ = ["Fabric", "NodeFabric", "fabric_kind", "fabrics", "oversubscribed"]
