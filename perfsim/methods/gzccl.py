"""gZCCL: error-bounded lossy compression inside the all-reduce of a GPU-aware MPI."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.collectives.hops import floor_log2
from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, MethodContext, Send
from perfsim.methods.building.compressed_collectives import (
    Separate,
    inside_collective,
    largest_message,
)
from perfsim.methods.building.ddp_buffers import DdpBuckets


class Gzccl(DdpBuckets):
    """Compresses what each step of a recursive doubling or of a ring sends, with cuSZp.

    All of it runs in the hook, on the communication stream. ``exchange`` "doubling", the paper's,
    takes log2 P steps, nearest ranks first. In each step the whole sum so far is compressed,
    exchanged with the partner's, decompressed and added (3 passes). Every step then works on a
    message that fills the GPU. "ring": P-1 times compress a chunk of n/P, send it, decompress, add.
    The result is compressed once and all-gathered, and P-1 chunks are decompressed. Below about 5
    MB a chunk the kernels cost as much as at 5 MB.

    ``ratio`` depends on the values and the error bound. The default is cuSZp's own example (uniform
    random values, error 0.01), not a gradient's. Without measured points cuSZp streams at memory
    bandwidth, several times faster than it ran on the A100.

    Bytes a rank: log2(P) x 4 n / ratio, or 2 (P-1)/P x 4 n / ratio.
    Memory: DDP's buckets (see `ssgd`); two compressed messages and a decompressed one, allocated
    beforehand.
    Left out: ranks that are no power of two in the doubling, which fold first; several streams in
    the ring's last step; the host's wait for compressed sizes; MPI's own latencies (links are as
    the network file has them).
    """

    summary: ClassVar[str] = "error-bounded compression in each step of an MPI all-reduce (gZCCL)"
    citation: ClassVar[str] = (
        "Huang et al. 2024, gZCCL, ICS, arXiv 2308.05199 (abstract; steps and the 5 MB as in a"
        " reader's summary, rajatbisht.net 0022_gZCCL); cuSZp: szcompressor/cuSZp@6ab90a55"
        " src/cuSZp_entry_1D_f32.cu, README, python/example-torch.py"
    )
    family: ClassVar[str] = "beyond one cluster"
    levels: ClassVar[str] = (
        "inside a node come the first steps of the doubling, across nodes the others; with"
        " exchange ring all ranks are one group"
    )
    wire: ClassVar[str] = "log2(P) * 4 * n / ratio"
    needs: ClassVar[str] = "a GPU-aware MPI with it"

    exchange: Literal["doubling", "ring"] = Field(
        "doubling", description="steps of whole messages, or of one rank's share"
    )
    ratio: float = Field(
        4.42, ge=1.0, description="bytes before over after compression; depends on the data"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the kernels and the exchange of each step."""
        ranks, codec = world.ranks, self.codec()
        n = bucket.elements if self.exchange == "doubling" else -(-bucket.elements // ranks)
        sent = codec.packed_bytes(n)
        compress = inside_collective(codec.encode(n))
        add = inside_collective((*codec.decode(n), elementwise(n, 3)), undo=True)
        if self.exchange == "doubling":
            near = floor_log2(world.gpus_per_node)
            far = floor_log2(ranks) - near
            inside: list[JobStage] = [compress, Send("send_recv", sent, group="node"), add]
            across: list[JobStage] = [compress, Send("send_recv", sent, group="across"), add]
            return inside * near + across * far
        hop: list[JobStage] = [compress, Send("send_recv", sent), add]
        return [
            *(hop * (ranks - 1)),
            compress,
            Send("all_gather", sent * ranks, algorithm="ring"),
            inside_collective(codec.decode(n) * (ranks - 1), undo=True),
        ]

    def codec(self) -> Separate:
        """Return cuSZp at the given ratio."""
        return Separate("cuszp", 1 / self.ratio)

    def refusal(self, world: MethodContext) -> str:
        """Return why the doubling cannot pair these ranks, or ""."""
        even = world.ranks == world.nodes * world.gpus_per_node
        powers = world.ranks & (world.ranks - 1) == 0
        if self.exchange == "doubling" and not (even and powers):
            return (
                "needs a power of two of GPUs, as many on every node;"
                " or give `options` exchange=ring"
            )
        return ""

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the buffers of DDP's largest bucket."""
        return self._buffers_bytes(largest_message(gradients))

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of the buffers of the largest bucket."""
        gradients = world.profile.gradients if world.profile else ()
        return self._buffers_bytes(largest_message(gradients, world.bucket_bytes))

    def _buffers_bytes(self, elements: int) -> float:
        return FLOAT * elements * (1 + 2 / self.ratio)
