"""EF-SignSGD: signs scaled by their mean magnitude, with error feedback."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import ONE_GROUP, JobStage, MethodContext, OnlyWith
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.gathers_through_horovod import GathersThroughHorovod
from perfsim.methods.building.quantise import (
    SIGN_WIRE,
    Packing,
    between_nodes,
    gathered_from_all,
    sign_bytes,
    sign_decode,
    sign_encode,
    sign_fusion,
    summed,
    two_step,
)
from perfsim.sums import sum_in_order

_FEEDBACK = {"bits": (14.0, 6), "bit2byte": (14.0, 6), "bytes": (8.0, 3)}
"""Passes and launches of the residual, besides one decode. MergeComp copies the gradient, decays
the residual, scales, adds, subtracts and copies. GRACE scales, adds and subtracts."""


class Efsignsgd(GathersThroughHorovod):
    """Sends one bit a value and one scale, the mean magnitude; error feedback keeps what is lost.

    By default this is the loop of GRACE and MergeComp: each tensor by itself, decoded after the
    backward pass. Its hook is a tensor's, not that of DDP's buckets. The hook runs on the compute
    stream. The residual is added, and signs and mean are taken. The rank decodes its own message
    for the new residual (one decode, and the residual's passes). One all-gather of the signs and
    one of the scales follow. After the backward pass a loop decodes the P messages, then these are
    summed (3 P - 1 passes, P launches), so decoding grows with P. Kernels: ``efsign_encode`` and
    ``efsign_decode`` as measured, which hold neither residual nor sum. Each message after the first
    costs its launches, not the measured floor once more (see
    `perfsim.methods.building.queued_kernels`).

    ``exchange`` "two_step" is the compressed all-reduce of 1-bit Adam, after the backward pass.
    After an all-to-all each rank unpacks all pieces by one kernel, adds them up and encodes 1/P of
    the values with a residual of its own. An all-gather follows; decoding does not grow with P.

    "between_nodes" is how Espresso runs HiPress, and how Cupcake's code works on several nodes
    (``least`` 1). Messages are fp32 inside the nodes. Each GPU compresses its share of large
    tensors towards the other nodes and decodes a message a node, all on the communication stream.
    Tensors of fewer than ``least`` values are all-reduced dense.

    Bytes a rank: (P-1) (n/8 + 4); in two steps 2 (P-1)/P n/8 + 8 (P-1).
    Memory: the residual; in two steps 1/P of another (between nodes it is a share only, but counted
    whole).
    Left out: the learning rate inside the residual (it takes no time); padding to whole bytes a
    rank; cupy's hand-over on the host except for the first message.

    ``packing``: MergeComp, Espresso and DeepSpeed pack bits; GRACE sends a byte a sign ("bytes").
    Messages: a tensor each, or in two steps all in one (``sign_fusion``). Tensors merged by
    `fusion` share one scale.
    """

    summary: ClassVar[str] = "signs and one scale a tensor, error feedback (EF-SignSGD)"
    citation: ClassVar[str] = (
        "Karimireddy et al. 2019, Error Feedback Fixes SignSGD, ICML, Algorithm 1; code"
        " zhuangwang93/mergeComp@82bc96c3 mergeComp_dl/torch/compressor/poolefsignsgd.py and"
        " memory/residual.py; sands-lab/grace@fd3a7f42 grace_dl/torch; two steps:"
        " deepspeedai/DeepSpeed@edaa7221 deepspeed/runtime/comm/nccl.py, compressed_allreduce;"
        " between nodes: zhuangwang93/Espresso@a0294e3a ddp_hipress.py"
    )
    family: ClassVar[str] = "quantisation"
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with exchange between_nodes fp32 sums inside a node, bits across nodes"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * 4 * n if exchange == 'between_nodes' and n < least else"
        f" 2 * (P - 1) / P * {SIGN_WIRE} + 8 * (P - 1) if exchange == 'two_step' else"
        f" (P - 1) * ({SIGN_WIRE} + 4)"
    )

    exchange: Literal["all_gather", "two_step", "between_nodes"] = Field(
        "all_gather", description="every rank decodes all, its share, or a message a node"
    )
    least: Annotated[int, OnlyWith(exchange="between_nodes")] = Field(
        2**20, ge=1, description="between_nodes: tensors of fewer values go dense"
    )
    packing: Packing = Field("bits", description="how signs travel: packed, or a byte each")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the encode with error feedback, the exchange, and the decoding."""
        n, ranks = bucket.elements, world.ranks
        encode, decode = self.encode(n), self.decode(n)
        if self.exchange == "between_nodes":
            return between_nodes(n, world, self.parts, self.encode, self.decode, self.least)
        if self.exchange == "all_gather":
            # MergeComp divides by P, GRACE by the learning rate.
            mean = [summed(n, ranks), elementwise(n, 2)]
            return gathered_from_all(encode, self.parts(n), [decode], ranks, mean)
        piece = -(-n // ranks)
        again = sign_encode(piece, self.packing, scaled=True)
        # The server's residual: added, signs made floats and scaled (in 7 launches), subtracted.
        server = elementwise(piece, 3 + 12.5 + 3, 9)
        middle = (decode, elementwise(n, 1 + 1 / ranks), again, server)
        return two_step(encode, self.parts(n)[:1], FLOAT, middle, (decode,), ranks)

    def parts(self, elements: int) -> list[float]:
        """Return the bytes of signs and scale."""
        return [float(sign_bytes(elements, self.packing)), float(FLOAT)]

    def encode(self, elements: int) -> list[Kernel]:
        """Return the kernels that make a message and its residual."""
        feedback = elementwise(elements, *_FEEDBACK[self.packing])
        own = sign_encode(elements, self.packing, scaled=True)
        return [feedback, own, self.decode(elements)]

    def decode(self, elements: int) -> Kernel:
        """Return the decoding of one message."""
        return sign_decode(elements, self.packing, scaled=True)

    def default_fusion(self) -> str:
        """Return the fusion: one message a tensor, or one in all for two steps."""
        return sign_fusion(self.exchange)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one gradient's signs and their scale."""
        return sum_in_order(self.parts(gradient.elements))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual and, in two steps, of that of the rank's share."""
        share = 1.0 / ranks if self.exchange == "two_step" else 0.0
        return (1.0 + share) * fp32_bytes(gradients)
