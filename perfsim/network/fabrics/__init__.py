"""Fabrics: how nodes are joined (inter) and how the GPUs of a node are (intra), one a file.

The file name is the fabric's name, with ``-`` for ``_``; nothing else lists it. A fabric's file
holds ``PLACE`` ("inter" or "intra"), ``SUMMARY`` (one line), ``OPTIONS`` (the keys it reads from a
network file's ``[fabric]`` or ``[node]`` table), a function of its own name that builds the graph,
and ``words`` with the same options. ``ring_rate`` (intra only) replaces routing a ring.
"""

from __future__ import annotations

from perfsim.network.fabrics.inter import Fabric, oversubscribed
from perfsim.network.fabrics.intra import NodeFabric
from perfsim.network.fabrics.kinds import fabrics, load

__all__ = ["Fabric", "NodeFabric", "fabrics", "load", "oversubscribed"]
