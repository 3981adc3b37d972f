"""InternEvo's hybrid ZeRO-1: gradients all-reduced over all, whole tensors broadcast by owners."""

from collections.abc import Sequence
from dataclasses import replace
from heapq import heapreplace
from typing import ClassVar, NamedTuple

from pydantic import Field

from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import HYBRID_ZERO_BUCKET_BYTES
from perfsim.methods.base import (
    ONE_GROUP,
    Compute,
    Group,
    Job,
    JobStage,
    Method,
    MethodContext,
    MethodState,
    Moment,
    PassPoint,
    Send,
)
from perfsim.methods.building.layerwise import LayerStarts
from perfsim.methods.building.sharded_parameters import gathered_width, in_half, streamed

_STEP_BYTES = 20.0
"""Bytes of an owned value that the step moves before the update: gradients are flattened (2 + 2),
cast (2 + 4), unscaled (4 + 4), and their norm is taken (2)."""
_MASTER_BYTES = 6.0
"""Bytes of an owned value that is cast from its fp32 copy after the update (4 + 2)."""


class _Owned(NamedTuple):
    """What one rank of a group owns: its values, and the first layer that needs one of them."""

    elements: int
    layer: int


class HybridZero(Method):
    """All-reduces gradients in large buckets; owners of whole tensors broadcast what they updated.

    A bucket of up to 512 Mi values is flattened (2 passes) on the compute stream and all-reduced
    over all ranks. When the next one goes, computation waits for its result and copies it back (2
    passes). The last goes after the backward pass. ``overlap`` (overlap_sync_grad) does so beside
    the last micro-batch's backward pass, else all of it comes after. Each of the ``shards`` ranks
    that share an optimizer (zero1's size; all unless given) owns whole tensors, dealt out from the
    largest, each to the rank with the fewest values. It flattens, casts and unscales its gradients,
    updates an fp32 copy, casts that back and broadcasts it in one message. The messages go one
    after the other, as many as there are ranks that own a tensor. With ``overlap_broadcast``
    (overlap_sync_param) tensors are dealt out in the order of the model, and each layer of the next
    forward pass waits for its owners alone; else the pass waits for all.

    In half precision gradients and parameters are sent in 16 bits.

    Bytes a rank: 2 (P-1)/P x 4 a parameter for gradients, (S-1)/S x 4 for S ranks that share an
    optimizer (a chain of broadcasts, all ranks' mean); half of it in half precision.
    Memory: the optimizer's state of what the rank with most owns, with an fp32 copy of 16-bit
    parameters; two buckets of gradients.
    Left out: the check for overflow; waits of the host; weight-parallel groups (ISP).
    """

    summary: ClassVar[str] = "gradients all-reduced, tensors broadcast by owners (InternEvo ZeRO-1)"
    citation: ClassVar[str] = (
        "Chen et al. 2024, InternEvo: Efficient Long-Sequence Large Language Model Training via"
        " Hybrid Parallelism and Redundant Sharding (arXiv 2401.09149); code"
        " InternLM/InternEvo@c628a8c8 internlm/solver/optimizer/hybrid_zero_optim.py,"
        " internlm/core/communication/utils.py"
    )
    family: ClassVar[str] = "dense"
    keeps_half: ClassVar[bool] = True
    owns_whole_tensors: ClassVar[bool] = True
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with shards each so many neighbours broadcast parameters, inside a node if"
        " it has as many GPUs, and gradients still go across nodes"
    )
    wire: ClassVar[str] = "3 * (P - 1) / P * 4 * n"
    fusion: ClassVar[str] = "hybrid_zero"
    lossy: ClassVar[bool] = False

    shards: int = Field(0, ge=0, le=10**6, description="ranks that share an optimizer; 0: all")
    overlap: bool = Field(True, description="reduce while the backward pass goes on")
    overlap_broadcast: bool = Field(False, description="broadcast beside the next forward pass")

    def refusal(self, world: MethodContext) -> str:
        """Return why so many ranks cannot share an optimizer, or ""."""
        if self.shards == 0 or (self.shards > 1 and world.ranks % self.shards == 0):
            return ""
        return f"needs two or more shards that divide {world.ranks} GPUs, not {self.shards}"

    def _sharers(self, world: MethodContext) -> int:
        """Return S, the ranks that share one optimizer."""
        return min(self.shards, world.ranks) or world.ranks

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return a reduction of each bucket with its copy back, and the owners' broadcasts."""
        earliest: Moment = "ready" if self.overlap else "backward"
        reductions, copies = list[Job](), list[Job]()
        for number, bucket in enumerate(buckets):
            begins = PassPoint("backward", bucket.ready_s)
            width = self._width(bucket, world)
            pack = streamed(bucket.elements, 2 * width)._replace(earliest=earliest)
            back = pack._replace(kind="decompress", blocks=True)
            send = Send("all_reduce", width * bucket.elements, earliest)
            reductions.append(Job(f"{number}", (pack, send), begins))
            copies.append(Job(f"back {number}", (back,), begins, needs=(f"{number}",)))
        # A bucket is copied back when the next one has gone, the last when the pass is over.
        jobs = reductions[:1]
        for copy, following in zip(copies, reductions[1:], strict=False):
            jobs += [following, replace(copy, begins=following.begins)]
        owned = _dealt(world, self._sharers(world), in_order=self.overlap_broadcast)
        most = max(one.elements for one in owned)
        step = streamed(most, _STEP_BYTES)
        jobs.append(replace(copies[-1], after=(step,) if in_half(world) else ()))
        return jobs + self._broadcasts(owned, most, world)

    def _broadcasts(self, owned: Sequence[_Owned], most: int, world: MethodContext) -> list[Job]:
        """Return the broadcasts of what ranks own, one after the other."""
        starts, width = LayerStarts.of(world), gathered_width("auto", world)
        shards = self._sharers(world)
        group: Group = "all" if shards == world.ranks else shards
        cast = streamed(most, _MASTER_BYTES)._replace(kind="decompress", earliest="update")
        jobs: list[Job] = []
        for number, one in enumerate(owned):
            send = Send("broadcast", width * one.elements, "update", group=group)
            first: tuple[Compute, ...] = (cast,) if in_half(world) and not number else ()
            stages: tuple[JobStage, ...] = (*first, send)
            needed_s = starts.forward_s[one.layer] if self.overlap_broadcast else 0.0
            jobs.append(
                Job(f"owner {number}", stages, PassPoint("backward"), PassPoint("next", needed_s))
            )
        return jobs

    def _width(self, bucket: Bucket, world: MethodContext) -> float:
        """Return the width of a gradient that is sent [bytes]."""
        return min(bucket.gradients[0].value_bytes, gathered_width("auto", world))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of two buckets, no more than all gradients, in fp32."""
        elements = sum(gradient.elements for gradient in gradients)
        return _two_buckets(elements, HYBRID_ZERO_BUCKET_BYTES)

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of two buckets, no more than all gradients."""
        elements = world.profile.elements if world.profile else 0
        held_bytes = _two_buckets(elements, world.bucket_bytes or HYBRID_ZERO_BUCKET_BYTES)
        return held_bytes * gathered_width("auto", world) / 4.0

    def kept_share(self, world: MethodContext) -> dict[str, float]:
        """Return the share of the optimizer that the rank with most keeps."""
        share = 1.0 / self._sharers(world)
        if world.profile is not None:
            owned = _dealt(world, self._sharers(world), in_order=self.overlap_broadcast)
            share = max(one.elements for one in owned) / world.profile.elements
        return {"parameters": 1.0, "gradients": 1.0, "optimizer": share}

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return that half precision keeps 16-bit gradients."""
        return MethodState(gradient_bytes=2.0)


def _two_buckets(elements: int, bucket_bytes: float) -> float:
    """Return the bytes of two buckets in fp32, no more than all gradients."""
    return min(2 * bucket_bytes, 4.0 * elements)


_FILLED = 1.01
"""Share of an even part at which the next rank takes over, where tensors are dealt out in order."""


def _dealt(world: MethodContext, ranks: int, *, in_order: bool) -> list[_Owned]:
    """Deal whole tensors out to ranks; return what each rank that got any owns.

    Raises
    ------
    ValueError
        If the context has no profile.
    """
    profile = world.given_profile()
    gradients = profile.gradients
    elements, layers = [0] * ranks, [len(profile.layers)] * ranks
    least = [(0, rank) for rank in range(ranks)]  # a heap: the rank with the least first
    even = profile.elements // ranks
    rank = filled = 0
    if not in_order:
        gradients = tuple(sorted(gradients, key=lambda gradient: -gradient.elements))
    for gradient in gradients:
        if in_order:
            filled += gradient.elements
            if filled > even * _FILLED and rank < ranks - 1:
                rank, filled = rank + 1, 0
        else:
            values, rank = least[0]
            heapreplace(least, (values + gradient.elements, rank))
        elements[rank] += gradient.elements
        layers[rank] = min(layers[rank], gradient.layer)
    return [_Owned(values, layer) for values, layer in zip(elements, layers, strict=True) if values]
