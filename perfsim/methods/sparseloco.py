"""SparseLoCo: workers train by themselves and exchange the largest parts of their changes.

Launches are the operations of templar's code, counted while it ran on PyTorch 2.13; passes are
counted from what each of them reads and writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, Kernel, moved
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    HeldState,
    Job,
    JobStage,
    MethodContext,
    OnlyWith,
    PassPoint,
    Send,
)
from perfsim.methods.building.averaging import fp32_bytes, merged_bucket
from perfsim.methods.building.cpu_offload import to_gpu, to_host
from perfsim.methods.building.outer_step import (
    OR_RANKS,
    OuterSteps,
    Workers,
    after_update,
)
from perfsim.sums import sum_in_order


@dataclass(frozen=True, slots=True)
class _Work:
    """What a part of the code does: passes over all values, over kept ones, and launches."""

    passes: float
    kept_passes: float
    launches: int

    def __add__(self, other: "_Work") -> "_Work":
        """Return both parts."""
        return _Work(
            self.passes + other.passes,
            self.kept_passes + other.kept_passes,
            self.launches + other.launches,
        )

    def times(self, count: int) -> "_Work":
        """Return the part run ``count`` times."""
        return _Work(count * self.passes, count * self.kept_passes, count * self.launches)

    def kernel(self, elements: int, kept: int, tensors: int) -> Kernel:
        """Return it as a kernel on some tensors of so many values in all."""
        moved_bytes = FLOAT * (self.passes * elements + self.kept_passes * kept)
        return moved(elements, moved_bytes, self.launches * tensors)


_COPY = _Work(2, 0, 1)
"""A copy of all values; chunks of a matrix are made and undone by one each."""
_RESTORE = _Work(3 + 3, 0, 2)
"""The parameters are subtracted from the old ones; the difference is added to them."""
_FEEDBACK = _Work(2 + 3, 0, 2)
"""The error is scaled, and the difference added to it."""
_SELECT = _Work(2 + 7, 2 + 1 + 1, 3)
"""Magnitudes; the largest of each chunk, as many passes as exact selection takes from one large
slice; the values at their indices of 8 bytes."""
_PACK = _Work(0, 17, 17)
"""Indices to 12 bits: their maximum, a cast to 4 bytes, zeros, and 14 operations on every second
index or byte."""
_ROUND = _Work(0, 25, 25)
"""Values to bins: mean, difference, norm, scale (6 launches of one value), then scaled, shifted,
rounded, clamped, cast; last the mean of each bin by two scattered sums."""
_UNPACK = _Work(0, 23, 13)
"""Indices from 12 bits: three casts to 8 bytes, zeros, and 9 operations on every second index."""
_LOOK_UP = _Work(0, 7.25, 3)
"""Values from bins: cast to indices, looked up, shifted."""
_SCATTER = _Work(1 + 1 + 1.25 + 2.25 + 3, 3 + 5 + 1 + 5, 9)
"""The mean of values at their indices: zeros; values set, then added up; counts from zeros, which
are compared with 0 and filled; the division."""
_CLIP = _Work(0, 1 + 2, 5)
"""A message's norm, its limit (3 launches of one value) and its values scaled to it."""
_JOIN = _Work(0, 4 + 2, 0)
"""A message's indices and values joined with those of others."""
_SUBTRACT = _STEP = _Work(3, 0, 1)
"""What is sent is subtracted from the error; SGD without momentum takes as much."""


class Sparseloco(OuterSteps):
    """Every ``interval`` iterations workers exchange the ``topk`` largest changes of each chunk.

    Workers and what their ranks do in every iteration (``worker``, ``inner``) are those of
    `diloco`. After the update of every ``interval``-th iteration each tensor's difference from the
    last outer step is taken, and parameters are set back (6 passes, 2 launches). It is added to the
    error (5 passes). Matrices are cut into chunks of ``chunk`` x ``chunk`` values, vectors of
    ``chunk``, or the largest parts that divide them (2 passes). The ``topk`` largest of each chunk
    are selected (9 passes), all of a smaller chunk. What is sent is decoded (10.5 passes) and
    subtracted from the error (3). Indices are packed to 12 bits, values rounded to 4 bins: some 90
    passes over what is kept, and 75 launches a tensor. Each worker gets the messages of the others,
    decodes each (21 launches a tensor and message, a loop in Python), takes the mean of what is
    there at each index (10.5 passes) and updates the parameters by it (3 passes). The next forward
    pass waits for all of it.

    Between nodes, each tensor is the work of one rank of the node, in turn; with ``inner`` fsdp its
    ranks first gather the differences. The first rank of the node exchanges and decodes all
    messages and broadcasts the mean in the node, from where each rank updates its own parameters.
    ``offload``: old parameters and the error are kept on the host, and copied there and back.

    ``exchange`` all_gather: tensor by tensor, indices, values and the bins' means (20 bytes) by an
    all-gather each; of nodes one message of all tensors. object_store: one message up, and the
    messages of ``peers`` workers down, which wait for the worker's own NIC alone.

    ``value_bits`` 8: a byte a value, as both codes send the 4 bins. 2 is the paper's count, 32
    leaves rounding out. ``index_bits`` 64 is what CCLoco sends, without packing. The defaults are
    those of templar's hparams.json. Templar as a whole is ``inner`` fsdp, ``exchange`` object_store
    and ``offload`` yes. Its authors' experiments (CCLoco) are ``worker`` rank, ``index_bits`` 64
    and ``interval`` 15; they keep as large a share of a vector as of a matrix, templar all of it.

    Bytes a rank: (N-1) x ((12 + 8) / 8 k + 20 a tensor) / interval among N workers, with k values
    kept, n topk / chunk^2 of matrices that chunks divide; with the object store once in place of
    N-1 times, and as often received as there are peers. Memory: the error and the old parameters,
    4 bytes a parameter each, unless offloaded (a shard with FSDP); FSDP's gathered units, DDP's
    buckets. Left out: a host that waits for single values; the store's own rate, windows of time,
    and the search for peers; the inner optimizer's state, which templar copies to the host and back
    too; the collection of a node's messages at its first rank; DCT; the outer optimizer's momentum.
    """

    summary: ClassVar[str] = "local AdamW steps, then the largest changes of each chunk by all"
    citation: ClassVar[str] = (
        "Sarfi et al. 2025, Communication Efficient LLM Pre-training with SparseLoCo, arXiv"
        " 2508.15706, abstract; code tplr-ai/templar@c2397ac5 src/tplr/compress.py, neurons.py,"
        " distributed.py, neurons/miner.py, hparams/hparams.json; tplr-y/CCLoco@5bfce528"
        " src/tplr/ccloco.py, strategies.py; scatter_reduce: pytorch/pytorch"
        " aten/src/ATen/native/TensorAdvancedIndexing.cpp (no commit stored)"
    )
    published_intervals: ClassVar[Mapping[int, str]] = {15: "CCLoco", 30: "templar"}
    levels: ClassVar[str] = (
        "inside a node (or site) gradients are averaged in every iteration; across nodes first"
        " ranks gather the largest changes every interval iterations, then broadcast their mean"
        f" inside a node{OR_RANKS}"
    )
    wire: ClassVar[str] = (
        "(P - 1 if exchange == 'all_gather' else 1) * (n * min(topk, chunk ** 2) / chunk ** 2"
        " * (index_bits + value_bits) / 8 + (20 if value_bits < 32 else 0)) / interval"
    )

    interval: int = Field(30, ge=1, le=10**6, description="iterations from one outer step to next")
    topk: int = Field(64, ge=2, le=4096, multiple_of=2, description="values kept of each chunk")
    chunk: int = Field(64, ge=2, le=64, description="values along each side of a chunk, at most")
    index_bits: Literal[12, 64] = Field(12, description="bits of an index in its chunk")
    value_bits: Literal[2, 8, 32] = Field(
        8, description="bits of a value; below 32 it is one of 4 bins"
    )
    exchange: Literal["all_gather", "object_store"] = Field(
        "all_gather", description="messages go to all workers, or up to a store and down from it"
    )
    peers: Annotated[int, OnlyWith(exchange="object_store")] = Field(
        20, ge=1, le=10**4, description="workers whose messages are fetched, no more than there are"
    )
    offload: bool = Field(
        False, description="the error and the old parameters are kept on the host"
    )

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return what a worker's ranks exchange and, where it is due, the outer step."""
        inner = self.inner_jobs(buckets, world)
        if iteration == self.between or not buckets:
            return inner
        workers = self.workers(world)
        if self.worker == "rank":
            stages = [
                stage for bucket in buckets for stage in self._of_ranks(bucket, workers, world)
            ]
        else:
            stages = self._of_nodes(merged_bucket(buckets), workers)
        return [*inner, Job("outer step", tuple(stages), PassPoint("backward"), PassPoint("next"))]

    def workers(self, world: MethodContext) -> Workers:
        """Return who exchanges; of a node it is the first rank, with shards too."""
        found = super().workers(world)
        return replace(found, group="leaders") if found.group == "across" else found

    def _of_ranks(self, bucket: Bucket, workers: Workers, world: MethodContext) -> list[JobStage]:
        """Return the outer step of some tensors, where each rank is a worker."""
        n, k, tensors = bucket.elements, self.kept(bucket), len(bucket.gradients)
        # The store is outside, so that the ranks of a node share its NICs.
        outside = replace(workers, group="across" if world.nodes > 1 else "all")
        by_store = self.exchange == "object_store"
        return [
            after_update(*self._restored(n, tensors), *self._encoded(n, k, tensors)),
            *(self._stored(bucket, outside) if by_store else self._gathered(bucket, workers)),
            after_update(self._decoded(n, k, tensors, workers), undo=True),
            after_update(*self._updated(n, tensors), undo=True),
        ]

    def _of_nodes(self, bucket: Bucket, workers: Workers) -> list[JobStage]:
        """Return the outer step of all tensors, where each node is a worker."""
        n, k, tensors = bucket.elements, self.kept(bucket), len(bucket.gradients)
        own, size = workers.values(n), float(FLOAT * n)
        inside = max(1, workers.inside)
        share = (ceil(each / inside) for each in (n, k, tensors))
        collect = [Send("all_gather", size, "update", group="node")] if workers.shards > 1 else []
        spread = [Send("broadcast", size, "update", group="node")] if inside > 1 else []
        by_store = self.exchange == "object_store"
        return [
            after_update(*self._restored(own, tensors)),
            *collect,
            after_update(*self._encoded(*share)),
            *(self._stored(bucket, workers) if by_store else self._gathered_once(bucket, workers)),
            after_update(self._decoded(n, k, tensors, workers), undo=True),
            *spread,
            after_update(*self._updated(own, tensors), undo=True),
        ]

    def _restored(self, elements: int, tensors: int) -> tuple[Kernel, ...]:
        """Return the difference from the old parameters, which take their place."""
        if self.offload:
            return to_gpu(elements), _RESTORE.kernel(elements, 0, tensors)
        return ((_COPY + _RESTORE).kernel(elements, 0, tensors),)

    def _encoded(self, elements: int, kept: int, tensors: int) -> tuple[Kernel, ...]:
        """Return the selection of what is sent, and the error that is left."""
        decode = _SCATTER + self._read() + _COPY + _SUBTRACT
        work = _FEEDBACK + _COPY + _SELECT + decode
        if self.index_bits == 12:
            work += _PACK
        if self.value_bits < 32:
            work += _ROUND
        kernel = work.kernel(elements, kept, tensors)
        if self.offload:
            return to_gpu(elements), kernel, to_host(elements)
        return (kernel,)

    def _read(self) -> _Work:
        """Return the decoding of one message's indices and values."""
        unpack = _UNPACK if self.index_bits == 12 else _Work(0, 0, 0)
        return unpack + _LOOK_UP if self.value_bits < 32 else unpack

    def _decoded(self, elements: int, kept: int, tensors: int, workers: Workers) -> Kernel:
        """Return the mean of all messages as a dense gradient."""
        each = self._read() + _CLIP + _JOIN + _Work(0, _SCATTER.kept_passes, 0)
        once = _Work(_SCATTER.passes, 0, _SCATTER.launches + 2) + _COPY
        return (each.times(self._messages(workers)) + once).kernel(elements, kept, tensors)

    def _messages(self, workers: Workers) -> int:
        """Return how many messages a worker decodes."""
        return min(self.peers, workers.count) if self.exchange == "object_store" else workers.count

    def _updated(self, elements: int, tensors: int) -> tuple[Kernel, ...]:
        """Return the update of parameters, and their copy, to which the next changes refer."""
        work = _STEP if self.offload else _STEP + _COPY
        step = work.kernel(elements, 0, tensors)._replace(outer=True)
        return (step, to_host(elements)) if self.offload else (step,)

    def _gathered(self, bucket: Bucket, workers: Workers) -> list[JobStage]:
        """Return the all-gathers of indices, values and bins of some tensors."""
        parts = self._parts(bucket)
        return [
            Send("all_gather", workers.count * part, "update", group=workers.group)
            for part in parts
            if part
        ]

    def _gathered_once(self, bucket: Bucket, workers: Workers) -> list[JobStage]:
        """Return the all-gather of one message of each node."""
        size = workers.count * sum_in_order(self._parts(bucket))
        return [Send("all_gather", size, "update", group=workers.group)]

    def _stored(self, bucket: Bucket, workers: Workers) -> list[JobStage]:
        """Return a message to the store, and those of other workers from it."""
        size = sum_in_order(self._parts(bucket))
        up = Send("send_recv", size, "update", group=workers.group)
        return [up, up._replace(size_bytes=size * self._messages(workers), counted=False)]

    def _parts(self, bucket: Bucket) -> tuple[float, float, float]:
        """Return the bytes of a message's indices, of its values, and of its bins."""
        kept = self.kept(bucket)
        bins = 20.0 * len(bucket.gradients) if self.value_bits < 32 else 0.0
        return kept * self.index_bits / 8, kept * self.value_bits / 8, bins

    def kept(self, bucket: Bucket) -> int:
        """Return the values kept of some tensors."""
        return sum(kept_values(one, self.topk, self.chunk) for one in bucket.gradients)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one tensor's message."""
        return sum_in_order(self._parts(Bucket.of([gradient])))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the error and of the old parameters."""
        return 0.0 if self.offload else 2 * fp32_bytes(gradients)

    def memory_in(self, world: MethodContext) -> float:
        """Return a rank's part of them: the error of the tensors that are its work alone."""
        workers, held = self.workers(world), super().memory_in(world)
        if self.worker == "rank" or self.offload or world.profile is None:
            return held
        error = fp32_bytes(world.profile.gradients)
        return held + error / workers.inside - error / workers.shards

    def outer_state(self, world: MethodContext) -> list[HeldState]:
        """Return the old parameters, and the error of the tensors that are a rank's work."""
        if world.profile is None:
            return []
        workers, whole = self.workers(world), fp32_bytes(world.profile.gradients)
        shares = {"old parameters": workers.shards, "error": max(1, workers.inside)}
        return [
            HeldState(
                what,
                0.0 if self.offload else whole / parts,
                whole / parts if self.offload else 0.0,
                world.gpus_per_node,
            )
            for what, parts in shares.items()
        ]


def kept_values(gradient: Gradient, topk: int, chunk: int) -> int:
    """Return the values kept of a tensor: an even number of each chunk.

    A chunk's sides are the largest divisors of the tensor's that are no longer than ``chunk``.

    Examples
    --------
    >>> kept_values(Gradient("w", (384, 256), 0.0, 0), 64, 64)  # 24 chunks of 4096
    1536
    >>> kept_values(Gradient("w", (100,), 0.0, 0), 64, 64)  # 2 chunks of 50
    100
    """
    rows, columns = gradient.matrix
    size = _part(rows, chunk) * (_part(columns, chunk) if len(gradient.shape) > 1 else 1)
    each = min(max(min(topk, size) // 2 * 2, 2), size)
    return gradient.elements // size * each


def _part(side: int, most: int) -> int:
    """Return the largest divisor of a side that is no longer than ``most``."""
    return next(part for part in range(min(side, most), 0, -1) if side % part == 0)
