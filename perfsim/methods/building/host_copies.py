"""Parameters in the memory of the host: copies of shards to the GPU, and of gradients back.

A shard is copied from pinned memory before it is gathered, on a stream of its own. A rank's share
of summed gradients goes back behind the sum.

References
----------
PyTorch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_param.py (``all_gather_inputs``) and
_fsdp_collectives.py (``foreach_reduce``); torch/distributed/fsdp/_flat_param.py (``pre_unshard``)
and _runtime_utils.py (``_offload_grad``). deepspeedai/DeepSpeed at edaa7221, deepspeed/runtime/
zero/partition_parameters.py (``_all_gather_dtype``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from perfsim.compute.host_link import copied_in, copied_out
from perfsim.compute.profile import Profile
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, JobStage
from perfsim.methods.building.sharded_parameters import FROZEN_BYTES, in_half_precision

__all__ = ["COPY_IN", "behind_copies", "copy_in", "gradients_out", "shard_in"]

COPY_IN = "copy in"
"""The stream of copies to the GPU, and of what FSDP2 casts before a gather."""


def copy_in(size_bytes: float, copies: int = 1) -> Compute:
    """Return copies of parameters from the host, one after another."""
    return Compute((copied_in(size_bytes, copies),), "compress", COPY_IN)


def shard_in(unit: Bucket, shards: int, profile: Profile, *, flat: bool) -> Compute:
    """Return the copy of a rank's shard of a unit, as wide as it is kept.

    Trained parameters are as wide as the optimizer keeps them, frozen ones as values.

    Parameters
    ----------
    flat : whether a unit is one tensor; else each parameter is copied by itself
    """
    frozen = {one.name for one in profile.frozen}
    narrow = FROZEN_BYTES if in_half_precision(profile) else profile.kept_bytes
    size_bytes = sum(
        -(-one.elements // shards) * (narrow if one.name in frozen else profile.kept_bytes)
        for one in unit.gradients
    )
    return copy_in(size_bytes, 1 if flat else len(unit.gradients))


def gradients_out(
    unit: Bucket, shards: int, profile: Profile, stream: str, *, flat: bool
) -> Compute:
    """Return the copy of a rank's share of a unit's gradients, as wide as its parameters."""
    size_bytes = profile.kept_bytes * -(-unit.elements // shards)
    kernel = copied_out(size_bytes, 1 if flat else len(unit.gradients))
    return Compute((kernel,), "decompress", stream)


def behind_copies(jobs: Iterable[Job], copies: Sequence[JobStage]) -> list[Job]:
    """Return gathers, each behind the copy of what it gathers."""
    return [
        replace(job, stages=(copy, *job.stages)) for job, copy in zip(jobs, copies, strict=True)
    ]
