"""All gradients in one message, sent when the last is ready: nothing overlaps the backward pass.

Synchronous SGD without wait-free backpropagation; the baseline that MG-WFBP calls SyncEASGD.

References
----------
Shi, Chu & Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
Algorithms", INFOCOM 2019 (arXiv 1811.11141), section III.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.compute.profile import Gradient
from perfsim.fusion.bucket import Bucket, FusionContext

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "one message for the whole model, after the backward pass"
OPTIONS: Mapping[str, str] = {}
LIMIT_BYTES = None


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return the one bucket."""
    return [Bucket.of(gradients)] if gradients else []
