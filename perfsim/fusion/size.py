"""PyTorch DistributedDataParallel's buckets: fill in ready order, close at the limit.

A gradient is added first and the bucket closed when it holds at least the limit, so that the
gradient that crosses the limit stays in. Sizes are those of the fp32 gradients, whatever a
communication hook makes of the bucket.

Without ``--bucket`` the limit is 25 MiB and that of the first bucket 1 MiB, so that communication
starts early. A limit that the user gives holds for the first bucket too; versions of PyTorch
before the cap's default became ``None`` began with 1 MiB in any case
(``--set fusion.first_bucket=1MiB``).

References
----------
Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020,
section 3.2.3. Code: pytorch/pytorch, torch/csrc/distributed/c10d/reducer.cpp,
``compute_bucket_assignment_by_size`` and ``rebuild_buckets`` (ready order from the second
iteration on); reducer.hpp, ``kDefaultFirstBucketBytes`` and ``kDefaultBucketBytesCap``;
torch/nn/parallel/distributed.py, ``bucket_bytes_cap_default``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.compute.profile import Gradient
from perfsim.fusion.bucket import Bucket, FusionContext
from perfsim.units import parse_bytes

__all__ = ["LIMIT_BYTES", "OPTIONS", "SUMMARY", "fuse"]

SUMMARY = "PyTorch DDP: a bucket closes with the tensor that reaches 25 MiB (the first: 1 MiB)"
OPTIONS: Mapping[str, str] = {
    "first_bucket": "limit of the first bucket (a size; default 1MiB, or `bucket` where given)"
}

LIMIT_BYTES = 25 * 2.0**20
FIRST_LIMIT_BYTES = 2.0**20


def fuse(gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
    """Return DDP's buckets.

    Raises
    ------
    RequestError
        If the option ``first_bucket`` is not a size.
    """
    if context.limit_bytes is None:
        limit, first = LIMIT_BYTES, FIRST_LIMIT_BYTES
    else:
        limit = first = context.limit_bytes
    if "first_bucket" in context.options:
        first = parse_bytes(context.options["first_bucket"], "fusion.first_bucket")
    buckets: list[Bucket] = []
    group: list[Gradient] = []
    total_bytes = 0.0
    for gradient in gradients:
        group.append(gradient)
        total_bytes += gradient.size_bytes
        if total_bytes >= (limit if buckets else first):
            buckets.append(Bucket.of(group))
            group, total_bytes = [], 0.0
    return [*buckets, Bucket.of(group)] if group else buckets
