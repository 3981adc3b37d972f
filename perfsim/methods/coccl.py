"""COCCL: all-reduces whose messages are compressed inside the library."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import ONE_GROUP, JobStage, MethodContext, OnlyWith, Send
from perfsim.methods.building import compressed_collectives as compressed
from perfsim.methods.building.compressed_collectives import Codec, Fused, Separate, largest_message
from perfsim.methods.building.ddp_buffers import DdpBuckets

RECIPES = {
    "two_shot": compressed.two_shot,
    "one_shot": compressed.one_shot,
    "triple_shot": compressed.triple_shot,
    "ring": compressed.compressed_ring,
}
"""The steps of each recipe. "auto" chooses among those before "ring"; ties go to the first."""


class Coccl(DdpBuckets):
    """Compresses gradients in the all-reduce itself, on NCCL's stream, hop by hop or in two steps.

    In the hook the bucket is cut into P chunks and coded. Kernels and sends then take turns on the
    communication stream.

    ``recipe`` "two_shot": all-to-all of the chunks; P parts decoded, added up and coded again;
    all-gather; decoding. "one_shot": all-gather of everything, P parts decoded and added up.
    "triple_shot": all-to-all inside nodes, merge, all-to-all between the GPUs with the same local
    rank on all nodes, merge, all-gather, decoding. "ring", of the paper's artefact: P-1 hops, each
    a copy, the merge of 2 parts, and a send; then coding, all-gather, decoding. "auto", the
    library's default, takes the cheapest of the first three.

    ``codec`` "sdp4bit" has a fixed rate: ``bits`` a value and one scale a ``group``, in kernels
    that stream. "dietgpu" is lossless: exponents are entropy-coded to ``exponent_bits``, the other
    3 bytes stay as they are, and sizes go before each message. Messages below ``threshold`` bytes
    are not compressed.

    dietGPU was measured with bf16 values; 1 pass is added for the other 2 bytes of fp32.

    Bytes a rank: 2 (P-1) p for coded chunks of p bytes; one_shot P (P-1) p; triple_shot less than 3
    P p.
    Memory: DDP's buckets (see `ssgd`); two compressed messages, P + 1 in one_shot.
    Left out: ZFP, whose speed by size was not found; Hadamard rotation; pipelines deeper than 1;
    the host's wait for sizes; messages that P does not divide, which the library sends dense.
    """

    summary: ClassVar[str] = "all-reduce that compresses inside: fixed-rate or lossless (COCCL)"
    citation: ClassVar[str] = (
        "Liu et al. 2026, COCCL, PPoPP, 384-397; code hpdps-group/COCCL@5276074 src/coccl-extend/"
        "extensions/primitives/coccl_allreduce.cc, README; ring and sdp4bit:"
        " maomaohpp/COCCL_PPoPP_AE@cc629ee7 src/coccl-extend/primitive/reduce_scatter_comp.cc"
    )
    family: ClassVar[str] = "beyond one cluster"
    decides: ClassVar[bool] = True
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with recipe triple_shot, which auto may take, an all-to-all inside a node"
        " and one across nodes come first"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * 4 * n if 4 * n < threshold else"
        " 2 * (P - 1) * ceil(ceil(n / P) / group) * (group * bits / 8 + 4)"
    )

    recipe: Literal["two_shot", "one_shot", "triple_shot", "ring", "auto"] = Field(
        "auto", description="how the compressed all-reduce is carried out"
    )
    codec: Literal["sdp4bit", "dietgpu"] = Field(
        "sdp4bit", description="fixed rate (levels and scales), or lossless"
    )
    bits: Annotated[int, OnlyWith(codec="sdp4bit")] = Field(
        4, ge=4, le=8, multiple_of=4, description="bits a level, 4 or 8 (sdp4bit)"
    )
    group: Annotated[int, OnlyWith(codec="sdp4bit")] = Field(
        128, ge=8, le=4096, description="values that share a scale (sdp4bit)"
    )
    exponent_bits: Annotated[float, OnlyWith(codec="dietgpu")] = Field(
        2.7, gt=0, le=8, description="entropy of an exponent (dietgpu; its authors' figure)"
    )
    threshold: int = Field(8 * 2**20, ge=0, description="bytes from which messages are compressed")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return coding, sends and merges of the recipe, or a dense all-reduce."""
        n = bucket.elements
        if FLOAT * n < self.threshold:
            return [Send("all_reduce", float(FLOAT * n))]
        if self.recipe != "auto":
            return RECIPES[self.recipe](n, world, self.compressor())
        levels = world.nodes > 1 and world.gpus_per_node > 1 and not nodes_differ(world)
        names = ["two_shot", "one_shot", *(["triple_shot"] if levels else [])]
        ways = [RECIPES[name](n, world, self.compressor()) for name in names]
        return min(ways, key=lambda way: compressed.serial_s(way, world))

    def compressor(self) -> Codec:
        """Return the chosen codec; dietGPU does not code the 24 bits of sign and significand."""
        if self.codec == "sdp4bit":
            return Fused(self.bits, self.group)
        return Separate("dietgpu", (24 + self.exponent_bits) / 32, extra_passes=1.0, framed=True)

    def refusal(self, world: MethodContext) -> str:
        """Return why triple_shot cannot run on these nodes, or ""."""
        if self.recipe == "triple_shot" and nodes_differ(world):
            return "needs as many GPUs on every node (recipe=triple_shot)"
        return ""

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the send and receive buffers of DDP's largest bucket."""
        return self._buffers_bytes(largest_message(gradients), ranks)

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of the send and receive buffers of the largest bucket."""
        gradients = world.profile.gradients if world.profile else ()
        return self._buffers_bytes(largest_message(gradients, world.bucket_bytes), world.ranks)

    def _buffers_bytes(self, elements: int, ranks: int) -> float:
        chunk = -(-elements // ranks)
        messages = ranks + 1 if self.recipe == "one_shot" else 2
        return messages * ranks * self.compressor().packed_bytes(chunk)


def nodes_differ(world: MethodContext) -> bool:
    """Tell whether nodes differ in their number of GPUs."""
    return world.ranks != world.nodes * world.gpus_per_node
