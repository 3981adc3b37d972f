"""DeAR's groups: whole layers in forward order, filled below the limit from the first layer on.

A layer joins the group before it while the group stays below the limit (25 MiB unless
``--bucket`` says otherwise); a layer is never cut. Since the groups fill from the front, the one
that is left over holds the last layers, whose gradients come first. DeAR's search for a better
limit (Bayesian, over 1 to 256 MB, while it trains) is left to ``--bucket``.

References
----------
Zhang et al., "Decoupling the All-Reduce Primitive for Accelerating Distributed Deep Learning",
2023 (arXiv 2302.12445). Code: lzhangbv/dear_pytorch at 43138d8b, dear/dear_dopt.py,
``_generate_groups_with_threshold``; dear/dopt_rsag_bo.py and dear/tuner.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from perfsim.compute.profile import Gradient
from perfsim.fusion.bucket import Bucket, FusionContext

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "DeAR: whole layers, filled below 25 MiB from the first layer on"
OPTIONS: Mapping[str, str] = {}

LIMIT_BYTES = 25 * 2.0**20


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return DeAR's groups."""
    limit = LIMIT_BYTES if context.limit_bytes is None else context.limit_bytes
    layers = [list(one) for _, one in groupby(gradients, lambda gradient: gradient.layer)]
    groups: list[list[Gradient]] = []
    total_bytes = 0.0
    for layer in reversed(layers):
        size_bytes = sum(map(context.message_bytes, layer))
        if groups and total_bytes + size_bytes < limit:
            groups[-1] = layer + groups[-1]
            total_bytes += size_bytes
        else:
            groups.append(layer)
            total_bytes = size_bytes
    return [Bucket.of(group) for group in reversed(groups)]
