"""RCCL: AMD's port of NCCL, with NCCL's algorithms, protocols and way of choosing."""

from __future__ import annotations

from perfsim.libraries import nccl

__all__ = ["LIBRARY"]

LIBRARY = nccl.LIBRARY._replace(
    name="rccl", summary="RCCL: AMD's port of NCCL, the same algorithms and the same choice"
)
"""It compares predicted times as NCCL does. Its tuner has figures of its own
(github.com/ROCm/rccl, src/graph/tuning.cc), which are not here: NCCL's stand in for them."""
