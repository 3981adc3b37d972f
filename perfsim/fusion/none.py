"""No fusion: every gradient is a message of its own, sent as soon as it is ready.

This is wait-free backpropagation as Zhang et al. describe it.

References
----------
Zhang et al., "Poseidon: An Efficient Communication Architecture for Distributed Deep Learning on
GPU Clusters", USENIX ATC 2017, section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.compute.profile import Gradient
from perfsim.fusion.bucket import Bucket, FusionContext

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "one message a tensor"
OPTIONS: Mapping[str, str] = {}
LIMIT_BYTES = None


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return one bucket a gradient."""
    return [Bucket.of([gradient]) for gradient in gradients]
