"""Streaming DiLoCo: fragments of the model exchanged in turn, beside the next inner steps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from perfsim.compute.kernel import FLOAT, elementwise, moved
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import block_units
from perfsim.methods.base import (
    Compute,
    HeldState,
    Job,
    JobStage,
    MethodContext,
    Moment,
    OnlyWith,
    OptionError,
    PassPoint,
    Round,
    Send,
)
from perfsim.methods.building.averaging import fp32_bytes, merged_bucket
from perfsim.methods.building.cpu_offload import to_gpu, to_host
from perfsim.methods.building.outer_step import (
    OR_RANKS,
    Inner,
    OuterSteps,
    Workers,
    outer_update,
    pseudo_gradient,
)

_STREAM = "outer"
"""Stream of what is exchanged between workers, beside what is exchanged inside them."""

_SCALE_BYTES = 4
"""Bytes of a row's scale. Rows are padded to as many bytes."""

_POINTER_COPIES = 4
"""Copies of pointers, shapes, strides and offsets to the GPU before each kernel of torchft's."""


class StreamingDiloco(OuterSteps):
    """Exchanges a fragment of the model every ``interval`` / ``fragments`` iterations, in turn.

    Each fragment has an outer step of its own every ``interval`` iterations, as in `diloco`. Its
    exchange begins ``sync_delay`` iterations before, right after the update. The old parameters of
    the fragment are copied to the GPU (4 bytes a parameter, not with ``backup`` gpu), and the new
    ones are subtracted (3 passes, 1 launch a tensor). The differences are all-reduced tensor by
    tensor on a stream of their own, while the next iterations run. At the outer step, after that
    iteration's update, the host waits for them (with ``sync_delay`` 0: at once). Then, on the
    compute stream, the sums are divided (2 passes), the parameters kept (2), the old ones restored
    (a copy from the host, or 2 passes), and the outer optimizer runs (11). Its result is cloned
    (2), copied to the backup (to the host, or 2), and mixed with what was kept (3).

    Fragments are runs of blocks, as many in each as can be: the embedding and what follows the last
    block count as one each. A model of fewer blocks has nothing to send in the turns of the other
    fragments.

    ``worker`` and ``inner`` are those of `diloco`; nodes shard by FSDP unless told otherwise, as in
    torchtitan. Each rank of a node exchanges with those that
    have the same place in the other nodes, its shard with ``inner`` fsdp, else all of the fragment,
    as torchft has a process group for each.

    ``wire_bits`` 8 is torchft's should_quantize. Each row of a tensor is scaled and rounded to 8
    bits, with a scale of 4 bytes; a vector's values are rows (8 bytes each), and so are those of
    tensors that `fusion` puts in one buffer. Rows are shared out by an all-to-all, added up and
    rounded again, and gathered. 4 is the paper's width by a summary of it (emergentmind.com), in
    the same exchange without scales: the paper's own exchange was not read.

    The defaults are those of torchft's train_diloco.py for streaming, but for the backup, which it
    keeps on the GPU. torchtitan's are ``interval`` 5, ``fragments`` 1 and ``sync_delay`` 0. Peak
    traffic falls with the number of fragments, the total does not.

    Bytes a rank: 2 (N-1)/N x 4 / interval a parameter among N workers; with 8 bits a quarter and
    the scales, with 4 an eighth. Memory: the outer momentum, 4 bytes a parameter, and as much for
    old parameters with ``backup`` gpu (a shard with FSDP); the differences of the largest fragment
    on their way; FSDP's gathered units, DDP's buckets. Left out: how much of the local parameters
    is kept (alpha, which takes the same time for any value); fragments of every so many blocks (the
    paper's strided pattern); parameters of 16 bits, which torchft sends as they are; the quorum and
    the vote before the outer step; failed exchanges; torchtitan's sums in each micro-batch (here in
    the last, as `diloco` says).
    """

    summary: ClassVar[str] = "DiLoCo by fragments in turn, overlapped with later iterations"
    citation: ClassVar[str] = (
        "Douillard et al. 2025, Streaming DiLoCo with Overlapping Communication, arXiv 2501.18512,"
        " abstract; code pytorch/torchft@73dafea4 torchft/local_sgd.py, manager.py, collectives.py,"
        " quantization.py, train_diloco.py; fragments: pytorch/torchtitan@b5bcd76c"
        " experiments/torchft/diloco/utils.py, distributed/pipeline_parallel.py"
    )
    published_intervals: ClassVar[Mapping[int, str]] = {5: "torchtitan", 20: "torchft"}
    levels: ClassVar[str] = (
        "inside a node (or site) FSDP gathers and scatters in every iteration (or what inner says);"
        " across nodes each rank all-reduces its part of a fragment's differences in its turn"
        f"{OR_RANKS}"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * (4 * n if wire_bits == 32 else n / 2 if wire_bits == 4"
        " else ceil(rows / P) * P * (4 * ceil(columns / 4) + 4)) / interval"
    )

    interval: int = Field(
        20, ge=1, le=10**6, description="iterations between two outer steps of a fragment"
    )
    inner: Annotated[Inner, OnlyWith(worker="node")] = Field(
        "fsdp", description=OuterSteps.model_fields["inner"].description
    )
    fragments: int = Field(2, ge=1, le=64, description="parts of the model, exchanged in turn")
    sync_delay: int = Field(
        5, ge=0, le=64, description="iterations that an exchange may take before it is waited for"
    )
    wire_bits: Literal[32, 8, 4] = Field(32, description="bits of a value that is sent")
    backup: Literal["cpu", "gpu"] = Field(
        "cpu", description="where the parameters of the last outer step are kept"
    )

    @model_validator(mode="after")
    def _one_fragment_at_a_time(self) -> Self:
        if self.interval % self.fragments:
            why = f"must divide interval={self.interval}, so that each has its turn"
            raise OptionError("fragments", self.fragments, why)
        if self.sync_delay >= self.turn:
            why = f"must be below interval / fragments = {self.turn}: one is exchanged at a time"
            raise OptionError("sync_delay", self.sync_delay, why)
        return self

    @property
    def turn(self) -> int:
        """Number of iterations between the outer steps of two fragments."""
        return self.interval // self.fragments

    def workers(self, world: MethodContext) -> Workers:
        """Return who exchanges: every rank, with those that have its place in other workers."""
        found = super().workers(world)
        return replace(found, group="across") if found.group == "leaders" else found

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return what a worker's ranks exchange, and the exchange of a fragment in its turn."""
        inner = self.inner_jobs(buckets, world)
        if iteration == self.between:
            return inner
        gradients = merged_bucket(buckets).gradients if buckets else ()
        members = {one.name for one in fragments_of(gradients, self.fragments)[iteration]}
        sent = [
            Bucket.of(some)
            for bucket in buckets
            if (some := [one for one in bucket.gradients if one.name in members])
        ]
        return [*inner, self._exchange(sent, self.workers(world))] if sent else inner

    def _exchange(self, buckets: Sequence[Bucket], workers: Workers) -> Job:
        """Return a fragment's exchange, and its outer step where computation waits for it."""
        values = sum(workers.values(bucket.elements) for bucket in buckets)
        tensors = sum(len(bucket.gradients) for bucket in buckets)
        copy = elementwise(values, 2, tensors)
        fetch, store = (to_gpu(values), to_host(values)) if self.backup == "cpu" else (copy, copy)
        fetched = (fetch,) if self.backup == "cpu" else ()
        earliest: Moment = "ready" if self.sync_delay else "update"
        prepare = Compute(
            (*fetched, pseudo_gradient(values, tensors)), "compress", "compute", earliest
        )
        stages: list[JobStage] = [prepare]
        for bucket in buckets:
            stages += self._summed(bucket, workers, earliest)
        # Divided, kept, restored, updated, cloned, stored, mixed.
        step = (
            copy,
            copy,
            fetch,
            outer_update(values),
            copy,
            store,
            elementwise(values, 3, tensors),
        )
        after = (Compute(step, "decompress"),)
        if self.sync_delay:
            # Right after the update is at the start of the next iteration.
            begins, holds = PassPoint("forward"), PassPoint("update", later=self.sync_delay - 1)
        else:
            begins, holds = PassPoint("backward"), PassPoint("next")
        return Job("fragment", tuple(stages), begins, holds, after=after)

    def _summed(self, bucket: Bucket, workers: Workers, earliest: Moment) -> list[JobStage]:
        """Return the sum of a message over all workers."""
        values = workers.values(bucket.elements)

        def send(collective: str, size_bytes: float) -> Send:
            return Send(collective, size_bytes, earliest, stream=_STREAM, group=workers.group)

        if self.wire_bits == 32:
            return [send("all_reduce", float(FLOAT * values))]
        size = self._rounded_bytes(bucket, workers)

        def kernel(moved_bytes: float, zeroed: int = 0) -> Compute:
            launches = 1 + _POINTER_COPIES + zeroed
            done = moved(values, moved_bytes + zeroed * size, launches)
            return Compute((done,), "compress", _STREAM, earliest)

        return [
            kernel(2 * FLOAT * values + size, zeroed=2),
            send("all_to_all", size),
            kernel(2 * size + size / workers.count),
            send("all_gather", size),
            kernel(size + FLOAT * values),
        ]

    def _rounded_bytes(self, bucket: Bucket, workers: Workers) -> float:
        """Return the bytes of a message of rounded values, with the scales of its rows."""
        if self.wire_bits == 4:
            return workers.values(bucket.elements) / 2
        rows, columns = bucket.gradients[0].matrix
        if len(bucket.gradients) > 1:
            rows, columns = bucket.elements, 1
        rows = ceil(workers.values(rows) / workers.count) * workers.count
        return float(rows * _SCALE_BYTES * (ceil(columns / _SCALE_BYTES) + 1))

    def rounds(self) -> list[Round]:
        """Return, for each fragment, the iterations before its exchange and those beside it."""
        before = self.turn - max(1, self.sync_delay)
        beside = (self.between,) * (self.sync_delay - 1)
        rounds = []
        for fragment in range(self.fragments):
            rounds += [Round((self.between,), before)] if before else []
            rounds.append(Round((fragment, *beside)))
        return rounds

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one parameter's difference as it is sent, without scales."""
        return self.wire_bits / 8 * gradient.elements

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of outer momentum and old parameters, and of the largest fragment."""
        copies = 1 if self.backup == "cpu" else 2
        largest = max(map(fp32_bytes, fragments_of(gradients, self.fragments)))
        return copies * fp32_bytes(gradients) + (largest if self.sync_delay else 0.0)

    def interval_from(self, least: int) -> int:
        """Return the next multiple of the fragments that leaves each exchange its delay."""
        turns = max(ceil(least / self.fragments), self.sync_delay + 1)
        return turns * self.fragments

    def outer_state(self, world: MethodContext) -> list[HeldState]:
        """Return old parameters, the momentum, and the differences of a fragment on their way."""
        if world.profile is None:
            return []
        gradients, shards = world.profile.gradients, self.workers(world).shards
        each, on_gpu, ranks = (
            fp32_bytes(gradients) / shards,
            self.backup == "gpu",
            world.gpus_per_node,
        )
        state = [
            HeldState("old parameters", on_gpu * each, (not on_gpu) * each, ranks),
            HeldState("outer momentum", each, ranks=ranks),
        ]
        if self.sync_delay:
            largest = max(map(fp32_bytes, fragments_of(gradients, self.fragments))) / shards
            state.append(HeldState("pseudo-gradients", largest, ranks=ranks))
        return state


def fragments_of(gradients: Sequence[Gradient], count: int) -> list[list[Gradient]]:
    """Divide a model into ``count`` runs of blocks, the first ones larger by a block if need be.

    What comes before, between or after blocks counts as a block.

    Examples
    --------
    >>> names = ["embed.w", "h.0.a.w", "h.1.a.w", "h.2.a.w", "head.w"]
    >>> made = [Gradient(name, (1,), 9.0 - at, at) for at, name in enumerate(names)]
    >>> [[one.name for one in part] for part in fragments_of(made, 2)]
    [['embed.w', 'h.0.a.w', 'h.1.a.w'], ['h.2.a.w', 'head.w']]
    """
    forward = sorted(gradients, key=lambda one: -one.ready_s)
    units = block_units(forward)
    each, larger = divmod(len(units), count)
    parts, at = [], 0
    for number in range(count):
        end = at + each + (number < larger)
        parts.append([one for unit in units[at:end] for one in unit.gradients])
        at = end
    return parts
