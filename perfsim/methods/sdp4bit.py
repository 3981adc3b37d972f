"""SDP4Bit: Megatron-LM's distributed optimizer with 4-bit weight differences and gradients."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, moved
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Compute,
    Group,
    Job,
    JobStage,
    MethodContext,
    OnlyWith,
    Send,
)
from perfsim.methods.building.layerwise import LayerStarts
from perfsim.methods.building.quantised_shards import (
    ACROSS,
    INSIDE,
    Levels,
    QuantisedShards,
    sent,
    summed_in_two_steps,
    uneven,
)
from perfsim.methods.building.sharded_parameters import gathered_width, in_forward_order
from perfsim.methods.distributed_optimizer import DistributedOptimizer
from perfsim.simulate.task import COMPUTE

__all__ = ["Sdp4bit"]


class Sdp4bit(QuantisedShards):
    """Gathers differences of weights in 4 bits; sums gradients in 8 bits in nodes, 4 bits across.

    This is `distributed_optimizer` (without ``check_nan``, which its Megatron-LM has not) with two
    parts, each of which can be turned off. Without any it is that method.

    ``quantise_gradients``: a bucket, divided by P, is quantised to ``inner_bits`` with a scale for
    each ``gradient_block`` values (1 launch). Levels and scales go in two all-to-alls inside the
    node; one kernel decodes, adds up and quantises to ``outer_bits``; two all-to-alls go between
    the ranks with the same place on all nodes; one kernel decodes and adds up in fp32. With
    ``chunks`` the message is cut into so many parts, each on a stream of its own, so that one part
    is sent across nodes while the next is sent inside them. On one node there is the first
    all-to-all alone, and with one data-parallel rank a node the second alone, in ``outer_bits``.
    With ``overlap_grad_reduce`` the first kernel is on a stream of its own, else on the compute
    stream after the backward pass.

    ``quantise_weights``: after the update the buffer of parameters is filled with zeros (1 pass)
    and takes the new share. One kernel subtracts the weights from it and quantises the difference
    to ``weight_bits`` with a scale for each ``weight_block`` values; levels and scales are gathered
    over all ranks in two messages; one kernel decodes and adds the weights (on a stream of its
    own). Each tensor is copied out of the buffer (2 passes, a launch a tensor) on the compute
    stream.

    The Hadamard transform (--hadamard-transform) is part of the kernels that quantise and decode:
    it moves no byte and launches nothing, so that there is no option for it. Gradients are read in
    fp32.

    Bytes a rank, a parameter: 1/2 (P-1)/P for weights; of gradients 1 (g-1)/g in a node of g ranks
    and 1/2 1/g (N-1)/N across N nodes; 4 bytes a block more.
    Memory: that of `distributed_optimizer`; the gathered differences with their scales.
    Left out: what `distributed_optimizer` leaves out; that its authors' kernels reach half of what
    their bytes give here (table 5, A100; whether of fp32 or bf16 values is not stated), which takes
    3 to 8 % of an iteration on 100 Gbit/s; padding to whole blocks on each rank; copies
    of pointers to the GPU before both kernels of the weights; messages of gradients, which take the
    place of activations; its buckets of 4e7 values whatever the ranks (`bucket` 160MB).
    """

    summary: ClassVar[str] = "4-bit weight differences, gradients in 8 and 4 bits (SDP4Bit)"
    citation: ClassVar[str] = (
        "Jia et al. 2024, SDP4Bit: Toward 4-bit Communication Quantization in Sharded Data"
        " Parallelism for LLM Training, NeurIPS (arXiv 2410.15526); code"
        " hpdps-group/SDP4Bit@25e219d megatron/quantization_helper.py, megatron/optimizer/"
        "distrib_optimizer.py, megatron/core/distributed/grad_buffer.py, tools/jet_quant_cuda/"
        "quantization"
    )
    family: ClassVar[str] = "quantisation"
    levels: ClassVar[str] = (
        "inside a node gradients go in 8 bits by an all-to-all; across nodes the shares go in 4"
        " bits by another; all ranks are one group for weights, and without quantise_gradients for"
        " gradients too"
    )
    wire: ClassVar[str] = (
        "(P - 1) / P * ((weight_bits / 8 * n + 4 * P * ceil(ceil(n / P) / weight_block)"
        " if quantise_weights else 4 * n)"
        " + (outer_bits / 8 * n + 4 * max(ceil(n / gradient_block), P)"
        " if quantise_gradients else 4 * n))"
    )
    holds_gathers: ClassVar[bool] = False

    quantise_weights: bool = Field(True, description="gather quantised differences of weights")
    weight_bits: Annotated[Literal[4, 8], OnlyWith(quantise_weights=True)] = Field(
        4, description="bits of a weight's difference"
    )
    weight_block: Annotated[int, OnlyWith(quantise_weights=True)] = Field(
        2048, ge=8, le=2**20, description="differences that share a scale"
    )
    quantise_gradients: bool = Field(True, description="sum quantised gradients by all-to-alls")
    inner_bits: Annotated[Literal[4, 8], OnlyWith(quantise_gradients=True)] = Field(
        8, description="bits of a gradient inside nodes"
    )
    outer_bits: Annotated[Literal[4, 8], OnlyWith(quantise_gradients=True)] = Field(
        4, description="bits of a gradient across nodes"
    )
    gradient_block: Annotated[int, OnlyWith(quantise_gradients=True)] = Field(
        512, ge=8, le=2**20, description="gradients that share a scale"
    )
    chunks: Annotated[int, OnlyWith(quantise_gradients=True)] = Field(
        1, ge=1, le=64, description="parts of a bucket whose two steps overlap"
    )
    overlap_grad_reduce: bool = Field(
        False, description="reduce buckets beside the last micro-batch's backward pass"
    )
    overlap_param_gather: Annotated[bool, OnlyWith(overlap_grad_reduce=True)] = Field(
        False, description="gather buckets beside the next forward pass"
    )
    clip: bool = Field(True, description="clip gradients by their norm (--clip-grad)")

    def base(self) -> DistributedOptimizer:
        """Return the method that this one quantises."""
        overlap = {"overlap_grad_reduce": self.overlap_grad_reduce}
        if self.overlap_grad_reduce:
            overlap["overlap_param_gather"] = self.overlap_param_gather
        return DistributedOptimizer.model_validate(
            {"check_nan": False, "clip": self.clip} | overlap
        )

    def default_fusion(self) -> str:
        """Return buckets where gradients are reduced beside the backward pass, else one buffer."""
        return self.base().default_fusion()

    def refusal(self, world: MethodContext) -> str:
        """Return why gradients cannot be summed in two steps, or ""."""
        return uneven(world) if self.quantise_gradients and world.nodes > 1 else ""

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the jobs of each bucket's sum, and the gathers of the weights."""
        jobs = self.base().jobs(buckets, world, iteration)
        sums, gathers = jobs[: len(buckets)], jobs[len(buckets) :]
        if self.quantise_gradients:
            pairs = zip(sums, buckets, strict=True)
            sums = list(chain.from_iterable(self._summed(*pair, world) for pair in pairs))
        if self.quantise_weights:
            brought: list[Sequence[Bucket]] = [buckets]
            if self.overlap_param_gather:
                brought = [[one] for one in in_forward_order(buckets, LayerStarts.of(world))[0]]
            elements = sum(bucket.elements for bucket in buckets)
            gathers = [
                self._gathered(job, sum(len(bucket.gradients) for bucket in some), elements, world)
                for job, some in zip(gathers, brought, strict=True)
            ]
        return [*sums, *gathers]

    def _summed(self, job: Job, bucket: Bucket, world: MethodContext) -> list[Job]:
        """Return the jobs that sum a bucket: one quantises it, one for each chunk sends it."""
        *passes, scatter = job.stages
        assert isinstance(scatter, Send)
        earliest, n, parts = scatter.earliest, bucket.elements, self.chunks
        nodes, inside = world.nodes, world.gpus_per_node
        blocks = max(-(-n // self.gradient_block), world.ranks)
        message = Levels(n, blocks, self.inner_bits if inside > 1 else self.outer_bits)
        stream = "reduction" if self.overlap_grad_reduce else COMPUTE
        quantise = moved(n, FLOAT * n + message.size_bytes)
        encode = Compute((quantise,), "compress", stream, earliest)
        if nodes == 1 or inside == 1:
            group: Group = "node" if nodes == 1 else "across"
            sends = sent(message, "all_to_all", group, INSIDE if nodes == 1 else ACROSS, earliest)
            add = moved(n / world.ranks, message.size_bytes + FLOAT * n / world.ranks)
            decode = Compute((add,), "decompress", stream, earliest)
            return [replace(job, stages=(*passes, encode, *sends, decode))]
        jobs = [replace(job, stages=(*passes, encode))]
        near = message.part(parts)
        far = near.part(inside, self.outer_bits)
        share = far.values / nodes
        for number in range(parts):
            merge = Compute(
                (moved(far.values, near.size_bytes + far.size_bytes),),
                "compress",
                f"chunk {number}",
                earliest,
            )
            add = moved(share, far.size_bytes + FLOAT * share)
            decode = merge._replace(kernels=(add,), kind="decompress")
            stages = (*summed_in_two_steps(near, far, merge, world, earliest), decode)
            jobs.append(
                replace(job, name=f"{job.name} chunk {number}", stages=stages, needs=(job.name,))
            )
        return jobs

    def _gathered(self, job: Job, tensors: int, elements: int, world: MethodContext) -> Job:
        """Return the gather of so many tensors of the model as quantised differences.

        The first one fills the whole buffer, of all ``elements``, with zeros.
        """
        *before, send = job.stages
        assert isinstance(send, Send)
        width, earliest = gathered_width("auto", world), send.earliest
        n = round(send.size_bytes / width)
        shard = -(-n // world.ranks)
        own = self._differences(shard)
        whole = Levels(n, world.ranks * own.blocks, self.weight_bits)
        encode = moved(shard, 2 * width * shard + own.size_bytes)
        decode = moved(n, whole.size_bytes + 2 * width * n)
        stages: list[JobStage] = []
        for step in before:
            assert isinstance(step, Compute)
            fill = moved(elements, width * elements)
            stages.append(step._replace(kernels=(*step.kernels, fill)))
        stages += [
            Compute((encode,), "compress", "weights", earliest),
            *sent(whole, "all_gather", earliest=earliest),
            Compute((decode,), "decompress", "weights", earliest),
        ]
        out = Compute((moved(n, 2 * width * n, tensors),), "decompress")
        return replace(job, stages=tuple(stages), after=(out,))

    def _differences(self, values: int) -> Levels:
        """Return so many differences of weights, quantised."""
        return Levels(values, -(-values // self.weight_block), self.weight_bits)

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of the buffer into which differences are gathered."""
        if not self.quantise_weights or world.profile is None:
            return 0.0
        return self._differences(world.profile.elements).size_bytes
