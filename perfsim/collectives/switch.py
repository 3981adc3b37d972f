"""What a sum inside switches costs at the least: NCCL's own figures for the start of a call.

A link's latency is fitted on rings of many hops, over which the start of a call is spread; of the
two or three hops of these algorithms too little of it is left.

References
----------
github.com/NVIDIA/nccl, src/graph/tuning.cc, hwLat: v2.21.5-1 for NVLS on NVLink, v2.19.3-1 to
v2.30.7-1 for CollNet between nodes.
"""

from __future__ import annotations

__all__ = ["COLLNET_CHAIN_S", "COLLNET_DIRECT_S", "NVLS_S"]

NVLS_S = 25e-6
"""NVLS inside a node: switch multicast set up, one reduction, one broadcast."""

COLLNET_DIRECT_S = 31e-6
"""CollNet direct between nodes: up to the switches that add, and back."""

COLLNET_CHAIN_S = 30e-6
"""CollNet chain between nodes."""
