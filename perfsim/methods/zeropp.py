"""ZeRO++: ZeRO-3 with quantised gathers, a second copy in nodes, and gradients of 4 bits."""

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import HALF, Kernel, moved
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Compute,
    Group,
    Job,
    JobStage,
    MethodContext,
    PassPoint,
    Send,
)
from perfsim.methods.building.leaf_gathers import (
    GatherLimits,
    LeafFetch,
    MaxLive,
    MaxReuseDistance,
    PersistenceThreshold,
    PrefetchBucket,
    fetch_jobs,
    leaf_fetches,
    leaf_modules,
    persistent_elements,
)
from perfsim.methods.building.quantised_shards import (
    Levels,
    QuantisedShards,
    sent,
    summed_in_two_steps,
    uneven,
)
from perfsim.methods.building.sharded_parameters import gathered_width
from perfsim.methods.zero import Zero
from perfsim.sums import sum_in_order

__all__ = ["TwoSteps", "Zeropp"]

_WEIGHT_BLOCK = 8000
"""Values of a shard that share a scale (CUDAQuantizer.target_group_size)."""
_GATHERS = "gathers"
"""DeepSpeed's stream for what surrounds a gather."""
_PARTITION = "partition"
"""Stream of gathers of the second copy, whose group has a communicator of its own."""


class TwoSteps:
    """The messages and kernels that sum one matrix of gradients in 4 bits, in two steps.

    A rank's message has as many blocks as the matrix has rows or columns, whichever are more, and
    no fewer than there are ranks.

    Parameters
    ----------
    gradient : of the matrix
    width : bytes of one of its values
    """

    def __init__(self, gradient: Gradient, world: MethodContext, width: float) -> None:
        self.world, self.width, self.values = world, width, gradient.elements
        self.inside = Levels(self.values, max(*gradient.shape[:2], world.ranks), bits=4)
        self.across = self.inside.part(world.gpus_per_node)

    def encode(self) -> list[Kernel]:
        """Return the kernel that quantises and puts the shares into the order of the ranks."""
        return [moved(self.values, self.width * self.values + self.inside.size_bytes)]

    def merge(self) -> list[Kernel]:
        """Return the kernel that decodes the node's messages, adds them up and quantises."""
        return [moved(self.across.values, self.inside.size_bytes + self.across.size_bytes)]

    def decode(self) -> list[Kernel]:
        """Return the kernels that decode the nodes' messages, add them up and divide the sum.

        Python adds one node after the other: the first to zero (2 passes), each other to the sum so
        far (3 passes). The division takes 2 more.
        """
        nodes, share = self.world.nodes, self.across.values / self.world.nodes
        values_bytes = HALF * self.across.values
        return [
            moved(self.across.values, self.across.size_bytes + values_bytes),
            moved(share, HALF * (3 * nodes - 1) * share, nodes),
            moved(share, HALF * 2 * share),
        ]


class Zeropp(QuantisedShards):
    """Gathers parameters in a byte a value, backward ones inside nodes; sums gradients in 4 bits.

    This is `zero` of stage 3 with three parts, each of which can be turned off. Without any it is
    that method.

    ``quantise_weights`` (qwZ): a shard is quantised in blocks of 8000 values (1 launch), levels of
    a byte and fp32 scales are gathered in two messages, and all of it is decoded (1 launch). Unless
    parameters are fp16, the shard is cast before (1 launch) and each tensor after. These kernels
    run on the stream of the gathers. Tensors that are never sharded are gathered as in `zero`.

    ``partition`` (hpZ): once the forward pass has gathered a tensor, each rank keeps its part of a
    second copy, which the ``partition`` neighbouring ranks share, the GPUs of a node unless given
    (filled with zeros, then copied: 3 passes over a part, 2 launches a tensor; priced together
    behind the forward pass). What this iteration gathers again comes from that copy: in the
    backward pass, and with several micro-batches in both passes from the second one on, until the
    update. These gathers are quantised too.

    ``quantise_gradients`` (qgZ), on several nodes: each matrix of a full bucket is sent by itself,
    one after the other. It is quantised to 4 bits in as many blocks as its longer side (1 launch);
    levels and scales go in two all-to-alls inside the node; one kernel decodes, adds up and
    quantises again; two all-to-alls go between the GPUs with the same place on all nodes; then come
    decoding (1 launch), a sum over the N nodes (3 N - 1 passes over a share in N launches) and the
    division (2 passes). Vectors, and matrices that 2 P does not divide, are divided and
    reduce-scattered, each by itself.

    The streams and waits are those of `zero`. All-to-alls and gathers of the second copy have
    communicators, and so streams, of their own.

    Bytes a rank, a parameter: 1 (P-1)/P for the forward gather, 1 (z-1)/z in the node for another
    with z ranks in a partition; of gradients 1/2 (g-1)/g in a node of g GPUs and 1/2 1/g (N-1)/N
    across N nodes; 4 bytes a block more.
    Memory: that of `zero` of stage 3; 1/z of the parameters once more, as wide as they are kept.
    Left out: the search for a number of blocks that divides a shard; the host, which waits for the
    compute stream before a part of the second copy may be gathered and issues four all-to-alls a
    matrix; what messages of different groups take from each other's links: each group has them to
    itself, and without a second copy (``partition`` 1, or one GPU a node) gathers beside the
    all-to-alls across nodes may end before the NICs could carry both.
    """

    summary: ClassVar[str] = "ZeRO-3, int8 gathers, backward ones in nodes, int4 gradients (ZeRO++)"
    citation: ClassVar[str] = (
        "Wang et al. 2023, ZeRO++: Extremely Efficient Collective Communication for Giant Model"
        " Training (arXiv 2306.10209); code deepspeedai/DeepSpeed@edaa7221 deepspeed/runtime/zero/"
        "partition_parameters.py, partitioned_param_coordinator.py, stage3.py, deepspeed/runtime/"
        "comm/coalesced_collectives.py, csrc/quantization/swizzled_quantize.cu, quant_reduce.cu"
    )
    family: ClassVar[str] = "quantisation"
    levels: ClassVar[str] = (
        "inside a node parameters are gathered again and gradients go in 4 bits by an all-to-all;"
        " across nodes the shares go by another, and the first gathers by all ranks as one group"
    )
    wire: ClassVar[str] = (
        "(P - 1) / P * (((n + 4 * P * ceil(ceil(n / P) / 8000) if n > persistence_threshold"
        " else 4 * n) if quantise_weights else 4 * n)"
        " + ((n / 2 + 4 * max(rows, columns, P) if n % (2 * P) == 0 else 4 * n)"
        " if quantise_gradients else 4 * n))"
    )
    fusion: ClassVar[str] = "zero"
    holds_gathers: ClassVar[bool] = False

    quantise_weights: bool = Field(True, description="gather parameters in a byte a value (qwZ)")
    partition: int = Field(
        0,
        ge=0,
        le=10**6,
        description="ranks that share a second copy of the parameters (hpZ); 0: the GPUs of a node;"
        " 1: no second copy",
    )
    quantise_gradients: bool = Field(
        True, description="sum gradients in 4 bits by two all-to-alls (qgZ)"
    )
    overlap_comm: bool = Field(True, description="reduce while the backward pass goes on")
    prefetch_bucket: PrefetchBucket = GatherLimits().prefetch
    persistence_threshold: PersistenceThreshold = GatherLimits().persistence
    max_live: MaxLive = GatherLimits().live
    max_reuse_distance: MaxReuseDistance = GatherLimits().reuse

    def base(self) -> Zero:
        """Return ZeRO of stage 3 with the same limits."""
        limits = ("prefetch_bucket", "persistence_threshold", "max_live", "max_reuse_distance")
        same = {name: getattr(self, name) for name in (*limits, "overlap_comm")}
        return Zero.model_validate({"stage": 3} | same)

    def sharers(self, world: MethodContext) -> int:
        """Return how many ranks share the second copy; 1: there is none."""
        return min(self.partition or world.gpus_per_node, world.ranks)

    def refusal(self, world: MethodContext) -> str:
        """Return why it cannot run on these ranks, or ""."""
        sharers = self.sharers(world)
        if world.ranks % sharers:
            return f"needs a partition that divides {world.ranks} GPUs, not {sharers}"
        if world.stages > 1:
            return "shards parameters, which DeepSpeed's pipeline engine does not allow"
        return uneven(world) if self._in_two_steps(world) else ""

    def _in_two_steps(self, world: MethodContext) -> bool:
        """Tell whether gradients are sent one by one, matrices among them in two steps."""
        return self.quantise_gradients and world.nodes > 1

    def quantises(self, gradient: Gradient, world: MethodContext) -> bool:
        """Tell whether a gradient is summed in two steps: a matrix that all ranks can share."""
        shared = gradient.elements % (2 * world.ranks) == 0
        return self._in_two_steps(world) and len(gradient.shape) > 1 and shared

    def two_steps(self, gradient: Gradient, world: MethodContext, width: float) -> TwoSteps:
        """Return the kernels that sum a matrix of gradients in two steps."""
        return TwoSteps(gradient, world, width)

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the gathers of both passes, and a job for each bucket of gradients."""
        width = gathered_width("auto", world)
        sums = super().jobs(buckets, world, iteration)
        return [*self._gathers(world, width), *sums, *self.base().kept_gathers(world, width)]

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the copies of one bucket and the sums of its gradients, one after the other."""
        zero = self.base()
        into, *reduced, out = zero.stages(bucket, world, iteration)
        if not self._in_two_steps(world):
            return [into, *reduced, out]
        assert isinstance(out, Compute)
        width = zero.sent_width(bucket.gradients[0].value_bytes, world)
        sums = [self._summed(gradient, world, width, out) for gradient in bucket.gradients]
        return [into, *chain.from_iterable(sums), out]

    def _summed(
        self, gradient: Gradient, world: MethodContext, width: float, place: Compute
    ) -> list[JobStage]:
        """Return the sum of one gradient of a full bucket, its kernels at a place.

        One that is not quantised is padded if it must be (2 passes), divided (2 passes) and
        reduce-scattered.
        """
        n = gradient.elements
        if not self.quantises(gradient, world):
            kernels = [moved(n, 2 * width * n)] * (2 if n % world.ranks else 1)
            divide = place._replace(kernels=tuple(kernels), kind="compress")
            return [divide, Send("reduce_scatter", width * n)]
        way = self.two_steps(gradient, world, width)
        encode, merge = (
            place._replace(kernels=tuple(kernels), kind="compress")
            for kernels in (way.encode(), way.merge())
        )
        middle = summed_in_two_steps(way.inside, way.across, merge, world)
        return [encode, *middle, place._replace(kernels=tuple(way.decode()))]

    def _gathers(self, world: MethodContext, width: float) -> list[Job]:
        """Return the gathers of leaf modules, from afar or from the second copy."""
        limits, modules = self.base().limits(), leaf_modules(world)
        sharers = self.sharers(world)

        def gather(fetch: LeafFetch) -> list[JobStage]:
            if sharers > 1 and fetch.again:
                return near(fetch)
            return self._gather(fetch, world, width, world.ranks, "all")

        def near(fetch: LeafFetch) -> list[JobStage]:
            group: Group = "node" if sharers == world.gpus_per_node else sharers
            return self._gather(fetch, world, width, sharers, group)

        if sharers == 1:
            return fetch_jobs(world, leaf_fetches(modules, limits), gather)
        first = fetch_jobs(world, leaf_fetches(modules, limits, apart=True), gather, repeats="once")
        later = fetch_jobs(world, leaf_fetches(modules, limits), near, "later", "later")
        return [*first, self._second_copy(world, modules, width), *later]

    def _gather(
        self, fetch: LeafFetch, world: MethodContext, width: float, ranks: int, group: Group
    ) -> list[JobStage]:
        """Return the stages of one gather among so many ranks."""
        stream = "communication" if group == "all" else _PARTITION
        if not self.quantise_weights:
            return [Send("all_gather", width * fetch.elements, stream=stream, group=group)]
        shard = -(-fetch.elements // ranks)
        own = Levels(shard, -(-shard // _WEIGHT_BLOCK), bits=8)
        whole = Levels(fetch.elements, ranks * own.blocks, bits=8)
        encode = [moved(shard, HALF * shard + own.size_bytes)]
        decode = [moved(fetch.elements, whole.size_bytes + HALF * fetch.elements)]
        if world.profile is not None and world.profile.precision != "amp-fp16":
            # The kernels know 16-bit floats of one kind alone.
            cast_bytes = width + HALF
            encode = [moved(shard, cast_bytes * shard), *encode]
            decode += [moved(fetch.elements, cast_bytes * fetch.elements, fetch.tensors)]
        return [
            Compute(tuple(encode), "compress", _GATHERS),
            *sent(whole, "all_gather", group, stream),
            Compute(tuple(decode), "decompress", _GATHERS),
        ]

    def _second_copy(
        self, world: MethodContext, modules: Sequence[Sequence[int]], width: float
    ) -> Job:
        """Return the filling of the second copy, once an iteration, behind the forward pass.

        A rank's part of each tensor is filled with zeros and copied (3 passes, 2 launches).
        """
        part = self._sharded(world) // self.sharers(world)
        limit = self.persistence_threshold
        tensors = sum(size > limit for sizes in modules for size in sizes)
        kernel = moved(part, 3 * width * part, 2 * tensors)
        forward_s = (
            sum_in_order(layer.forward_s for layer in world.profile.layers)
            if world.profile
            else 0.0
        )
        begins = PassPoint("forward", forward_s)
        stage = Compute((kernel,), "decompress")
        return Job("second copy", (stage,), begins, PassPoint("backward"), repeats="once")

    def _sharded(self, world: MethodContext) -> int:
        """Return the values of the tensors that are sharded."""
        modules = leaf_modules(world)
        return sum(map(sum, modules)) - persistent_elements(modules, self.base().limits())

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of buffers and of one rank's master copy, as of ZeRO-3."""
        return self.base().memory_bytes(gradients, ranks)

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of buffers and of a rank's part of the second copy."""
        held_bytes = self.base().memory_in(world)
        if world.profile is None:
            return held_bytes
        sharers = self.sharers(world)
        if sharers > 1:
            held_bytes += gathered_width("auto", world) * self._sharded(world) / sharers
        return held_bytes
