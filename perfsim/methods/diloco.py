"""DiLoCo: workers train by themselves and exchange pseudo-gradients at long intervals."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Compute,
    HeldState,
    Job,
    JobStage,
    MethodContext,
    OnlyWith,
    PassPoint,
    Send,
)
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.cpu_offload import cpu_passes, to_gpu, to_host
from perfsim.methods.building.outer_step import (
    OR_RANKS,
    OUTER_UPDATE_PASSES,
    OuterSteps,
    Workers,
    after_update,
    outer_update,
    pseudo_gradient,
)

_HOST = "host"
"""Stream of the host's CPUs and of the copies between them and the GPU."""

_CPU_GRADIENT_PASSES = 7
"""Passes of the host for a pseudo-gradient: the old parameters are copied (2), the new ones
subtracted (3), and the difference divided by N (2)."""

_TABLE_BYTES, _BUFFERS = 4 * 256, 2
"""Bytes of the table of fp32 values that goes with each chunk of int8 values, and the chunks of a
worker in prime's ring."""

_QUANTISED, _ADDED, _LOOKED_UP, _COPIED = 3.5, 2.25, 1.25, 0.5
"""Passes over a chunk on the host. It is quantised: its norm is taken (4 bytes a value), values are
rounded to bytes (4 + 1), and the mean of each of 256 bins is taken (4 + 1). Received bytes are
looked up and added (1 + 8), or looked up (1 + 4), or copied to be sent on (1 + 1)."""

_FP16_PASSES = 25.0
"""Passes of the host over each value that is sent as fp16. It is copied, clamped, cast and
serialised (2 + 2 + 1.5 + 1) on the way there, cast back (1.5), added up (3), and subtracted from
the mean (3). The difference takes the same way back (6.5 + 1.5) and is added (3)."""

_SUM_PASSES = 3.0
"""Passes of the host over each value that is sent as fp32: it is added up."""

_WIDTHS = {"none": 4, "fp16": 2, "int8": 1}
"""Bytes of a value that is sent."""


class Diloco(OuterSteps):
    """Updates locally by AdamW; every ``interval`` iterations workers exchange pseudo-gradients.

    A worker is a node (``worker`` node) or a rank. Where a wide area network joins several sites,
    all that is said of a node holds for a site. In each iteration the ranks of a node average their
    gradients: by DDP in its buckets, in one message after the backward pass, or by FSDP
    (``inner``). Every ``interval`` iterations, after the update, each worker takes the difference
    between its parameters at the last outer step and now. Workers all-reduce these differences,
    message by message, tensor by tensor unless `fusion` says otherwise. An outer optimizer (SGD
    with Nesterov momentum) applies the mean to the old parameters, and all workers continue with
    the result. The next forward pass waits for all of it.

    Between nodes, the first rank of each node sends the whole difference, and broadcasts the new
    parameters in its node. With ``inner`` fsdp every rank sends its own shard at the same time, to
    the ranks with the same place in the other nodes.

    ``outer_device`` gpu: for each tensor the old parameters are copied to the GPU (4 bytes a
    parameter, or not with ``backup`` gpu) and subtracted (3 passes, 1 launch), and the difference
    is all-reduced. Then the outer optimizer runs (11 passes, 4 launches), and the new parameters
    are cloned (2 passes, 1 launch a tensor) and copied to the host.

    ``outer_device`` cpu: the parameters are copied to the host (4 bytes each), the difference is
    taken there (7 passes of the CPUs), exchanged from the host's memory, and the outer optimizer
    runs there (11 passes). The new parameters are copied to the GPU (4 bytes each). The ranks of a
    node share its CPUs. ``compression`` fp16 sends values as 16-bit floats, as hivemind's peers do
    (25 passes over what is sent, for 3 without). int8 is prime's ring: a chunk is quantised again
    before each hop while sums are made, and then sent on as it is (6 to 7.5 passes over all). With
    each of the 2 N chunks goes a table of 1 KiB. The CPUs work on one chunk while another is on the
    wire.

    The defaults are those of OpenDiLoCo's train_diloco_torch.py, but for the worker, which is a
    rank there (``worker`` rank). OpenDiLoCo over the internet (train_fsdp.py with hivemind):
    ``inner`` whole, ``outer_device`` cpu, ``compression`` none or fp16. INTELLECT-1 (prime):
    ``inner`` fsdp, ``outer_device`` cpu, ``compression`` int8, ``interval`` 100, `fusion` block, as
    prime sends a block at a time, and `reduce_dtype` bf16.

    With several micro-batches the last alone reduces gradients in a node, as in prime; FSDP gathers
    its units in each.

    Bytes a rank: 2 (N-1)/N x 4 / interval a parameter among N workers, half of it as fp16; as int8
    a quarter and the tables; and what stays in a node. Memory: fp32 copies of old parameters and of
    the outer momentum, 4 bytes a parameter each, where they are on the GPU (a shard of them with
    FSDP); FSDP's gathered units, DDP's buckets. Left out: copies from memory that is not pinned,
    which are slower; barriers before the exchange; repeated and failed exchanges, workers that come
    and go; hivemind's search for peers (15 s, most of it beside the inner steps), its averaging of
    parameters in the background, and its other 8-bit codes; the norm of gradients.
    """

    summary: ClassVar[str] = "local AdamW steps, then an outer Nesterov step by all (DiLoCo)"
    citation: ClassVar[str] = (
        "Douillard et al. 2023, DiLoCo: Distributed Low-Communication Training of Language Models,"
        " arXiv 2311.08105, abstract; code PrimeIntellect-ai/OpenDiloco@a5b7236b open_diloco/"
        "train_diloco_torch.py, train_fsdp.py, hivemind_diloco.py; PrimeIntellect-ai/prime@e0359220"
        " src/zeroband/diloco.py, @5cc57a0f collectives.py and C/csrc/collectives.cpp,"
        " compression.cpp (no commit stored), @34346045 configs/10B/H100_intellect1.toml;"
        " learning-at-home/hivemind@00b35289 averaging/allreduce.py, @12e8fc29"
        " compression/floating.py"
    )
    published_intervals: ClassVar[Mapping[int, str]] = {100: "INTELLECT-1", 500: "OpenDiLoCo"}
    levels: ClassVar[str] = (
        "inside a node (or site) gradients are averaged in every iteration; across nodes first"
        " ranks all-reduce parameters' differences every interval iterations, then broadcast inside"
        " a node (with inner fsdp each rank sends its shard across, and none is broadcast)"
        f"{OR_RANKS}"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * (4 * n if compression == 'none' else 2 * n if compression == 'fp16'"
        " else n + 2 * P * 1024) / interval"
    )

    outer_device: Literal["gpu", "cpu"] = Field(
        "gpu", description="where differences are exchanged and the outer optimizer runs"
    )
    backup: Annotated[Literal["cpu", "gpu"], OnlyWith(outer_device="gpu")] = Field(
        "cpu", description="where the parameters of the last outer step are kept"
    )
    compression: Annotated[Literal["none", "fp16", "int8"], OnlyWith(outer_device="cpu")] = Field(
        "none", description="how differences are sent: as they are, or coded on the host"
    )

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return what a worker's ranks exchange and, where it is due, the outer step."""
        inner = self.inner_jobs(buckets, world)
        if iteration == self.between:
            return inner
        workers = self.workers(world)
        on_gpu = self.outer_device == "gpu"
        return inner + (self._on_gpu if on_gpu else self._on_host)(buckets, workers)

    def _on_gpu(self, buckets: Sequence[Bucket], workers: Workers) -> list[Job]:
        """Return the outer step on the GPU, which goes through the messages one after another."""
        stages: list[JobStage] = []
        for bucket in buckets:
            values, tensors = workers.values(bucket.elements), len(bucket.gradients)
            fetched = (to_gpu(values),) if self.backup == "cpu" else ()
            stages += [
                after_update(*fetched, pseudo_gradient(values, tensors)),
                Send("all_reduce", float(FLOAT * values), "update", group=workers.group),
            ]
        values, tensors = _all_values(buckets, workers), _tensors(buckets)
        stored = (to_host(values),) if self.backup == "cpu" else ()
        last = (outer_update(values), elementwise(values, 2, tensors), *stored)
        stages += [after_update(*last, undo=True), *_spread(buckets, workers)]
        return [_outer("outer step", stages)]

    def _on_host(self, buckets: Sequence[Bucket], workers: Workers) -> list[Job]:
        """Return the outer step on the host: its preparation, its messages in turn, its end."""
        values = _all_values(buckets, workers)
        together = workers.on_host * values
        taken = (to_host(values), cpu_passes(together, _CPU_GRADIENT_PASSES))
        jobs = [_outer("outer gradient", [after_update(*taken, stream=_HOST)])]
        for number, bucket in enumerate(buckets):
            sent = self._exchange(workers.values(bucket.elements), workers)
            jobs.append(_outer(f"outer {number}", sent, jobs[-1].name))
        step = cpu_passes(together, OUTER_UPDATE_PASSES)._replace(outer=True)
        update = step, to_gpu(values)
        stages = [after_update(*update, stream=_HOST, undo=True), *_spread(buckets, workers)]
        return [*jobs, _outer("outer step", stages, jobs[-1].name)]

    def _exchange(self, values: int, workers: Workers) -> list[JobStage]:
        """Return the all-reduce of one message from the host's memory, and its work beside it."""
        count, size = workers.count, float(_WIDTHS[self.compression] * values)
        moved, others = _SUM_PASSES, (count - 1) / count
        algorithm = "auto"
        if self.compression == "fp16":
            moved = _FP16_PASSES
        passes = moved * others
        if self.compression == "int8":
            algorithm, size = "ring", size + _BUFFERS * count * _TABLE_BYTES
            hops = (count - 1) * (_QUANTISED + _ADDED + _LOOKED_UP)
            passes = (hops + _QUANTISED + _LOOKED_UP + max(count - 2, 0) * _COPIED) / count
        work = cpu_passes(workers.on_host * values, passes)
        return [
            Send(
                "all_reduce",
                size,
                "update",
                awaited=False,
                group=workers.group,
                algorithm=algorithm,
            ),
            after_update(work, stream=_HOST),
        ]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one parameter's difference as it is sent."""
        return float(_WIDTHS[self.compression] * gradient.elements)

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of old parameters and outer momentum that are on the GPU."""
        copies = 0 if self.outer_device == "cpu" else 1 if self.backup == "cpu" else 2
        return copies * fp32_bytes(gradients)

    def outer_state(self, world: MethodContext) -> list[HeldState]:
        """Return the old parameters and the momentum, on the host with the differences' buffers."""
        if world.profile is None:
            return []
        workers = self.workers(world)
        each, ranks = fp32_bytes(world.profile.gradients) / workers.shards, workers.on_host
        if self.outer_device == "cpu":
            kept = ("old parameters", "pseudo-gradients", "outer momentum")
            return [HeldState(what, host_bytes=each, ranks=ranks) for what in kept]
        on_gpu = self.backup == "gpu"
        old = HeldState("old parameters", on_gpu * each, (not on_gpu) * each, ranks)
        return [old, HeldState("outer momentum", each, ranks=ranks)]


def _outer(name: str, stages: Sequence[JobStage], after: str = "") -> Job:
    """Return a part of the outer step, which the next forward pass waits for."""
    needs = (after,) if after else ()
    return Job(name, tuple(stages), PassPoint("backward"), PassPoint("next"), needs)


def _all_values(buckets: Sequence[Bucket], workers: Workers) -> int:
    """Return the values that a rank sends at an outer step."""
    return sum(workers.values(bucket.elements) for bucket in buckets)


def _tensors(buckets: Sequence[Bucket]) -> int:
    return sum(len(bucket.gradients) for bucket in buckets)


def _spread(buckets: Sequence[Bucket], workers: Workers) -> list[Compute | Send]:
    """Return the broadcasts of new parameters in a node whose first rank alone exchanged them."""
    if not workers.one_sends:
        return []
    return [
        Send("broadcast", float(FLOAT * bucket.elements), "update", group="node")
        for bucket in buckets
    ]
