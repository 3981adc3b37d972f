"""OneBit: signs, one mean of the negative values and one of the others, with error feedback."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, Kernel, elementwise, method_code
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import ONE_GROUP, JobStage, MethodContext, OnlyWith
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.gathers_through_horovod import GathersThroughHorovod
from perfsim.methods.building.quantise import (
    SIGN_WIRE,
    between_nodes,
    gathered_from_all,
    sign_bytes,
    summed,
)
from perfsim.sums import sum_in_order

_ENCODE = (10.0, 18)
"""Passes and launches without packing: compare (1.25); for each sign the indices of its mask
(1.5 in 3 launches), the values there (2) and their sum (0.5); count (0.25) and other mask (0.5)."""

_DECODE = (6.0, 4)
"""Passes and launches: mask times mean (1.25), other mask (0.5), times mean (1.25), added (3)."""


class Onebit(GathersThroughHorovod):
    """Sends one bit a value and two means, one for each sign; error feedback keeps what is lost.

    By default this is the loop of GRACE and MergeComp: each tensor by itself, decoded after the
    backward pass. Its hook is a tensor's, not that of DDP's buckets. In the hook, on the compute
    stream, the residual is added (7 passes: decay, scale, add). Then signs and the two means are
    taken, and the rank decodes its own message and subtracts it (one decode, 3 passes). Signs and
    means are all-gathered. After the backward pass a loop decodes the P messages; these are then
    summed and divided (3 P + 1 passes, P + 1 launches), so decoding grows with P. Kernels:
    ``onebit_encode`` and ``onebit_decode`` as measured (V100, packed). Each message after the first
    costs its launches, not the measured floor once more (see
    `perfsim.methods.building.queued_kernels`). ``exchange`` "between_nodes" is how Espresso runs
    HiPress: see efsignsgd. Bytes a rank: (P-1) (n/8 + 8). Memory: the residual.

    ``packing``: MergeComp and Espresso pack bits and send both means in one message; "bytes" is
    GRACE, which sends a byte a sign and two scalars. BytePS's onebit has one scale and runs on the
    CPU: see efsignsgd for its bytes. Messages: a tensor each, as GRACE and MergeComp run it;
    tensors merged by `fusion` share one pair of means, where Seide et al. take one a column. Left
    out: the host's waiting for the size of each mask; the paper's aggregation by shares on its
    cluster (two steps over MPI).
    """

    summary: ClassVar[str] = "signs and two means a tensor, error feedback (1-bit SGD)"
    citation: ClassVar[str] = (
        "Seide et al. 2014, 1-Bit SGD, Interspeech; code"
        " zhuangwang93/mergeComp@82bc96c3 mergeComp_dl/torch/compressor/poolonebit.py,"
        " sands-lab/grace@fd3a7f42 grace_dl/torch/compressor/onebit.py and memory/residual.py;"
        " between nodes: zhuangwang93/Espresso@a0294e3a ddp_hipress.py"
    )
    family: ClassVar[str] = "quantisation"
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with exchange between_nodes fp32 sums inside a node, bits across nodes"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * 4 * n if exchange == 'between_nodes' and n < least else"
        f" (P - 1) * ({SIGN_WIRE} + 8)"
    )
    fusion: ClassVar[str] = "none"

    exchange: Literal["all_gather", "between_nodes"] = Field(
        "all_gather", description="every rank decodes all messages, or one a node"
    )
    least: Annotated[int, OnlyWith(exchange="between_nodes")] = Field(
        2**20, ge=1, description="between_nodes: tensors of fewer values go dense"
    )
    packing: Literal["bits", "bytes"] = Field(
        "bits", description="how signs travel: packed, or a byte each"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return encode with error feedback, the all-gathers, and P decodes."""
        n = bucket.elements
        if self.exchange == "between_nodes":
            return between_nodes(n, world, self.parts, self.encode, self.decode, self.least)
        mean = [summed(n, world.ranks), elementwise(n, 2)]
        parts = self.parts(n)
        return gathered_from_all(self.encode(n), parts, [self.decode(n)], world.ranks, mean)

    def parts(self, elements: int) -> list[float]:
        """Return the bytes of the signs and of the means."""
        means = [2.0 * FLOAT] if self.packing == "bits" else [float(FLOAT)] * 2
        return [float(sign_bytes(elements, self.packing)), *means]

    def encode(self, elements: int) -> list[Kernel]:
        """Return the kernels that make a message and its residual."""
        residual = elementwise(elements, 7 + 3, 4)
        if self.packing == "bits":
            own = _measured("onebit_encode", elements, _ENCODE)
        else:
            own = elementwise(elements, _ENCODE[0] + 0.5, _ENCODE[1] + 1)
        return [residual, own, self.decode(elements)]

    def decode(self, elements: int) -> Kernel:
        """Return the kernel that decodes one message."""
        if self.packing == "bits":
            return _measured("onebit_decode", elements, _DECODE)
        return elementwise(elements, *_DECODE)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of one gradient's signs and of both means."""
        return sum_in_order(self.parts(gradient.elements))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual: one fp32 value a parameter."""
        return fp32_bytes(gradients)


def _measured(name: str, elements: int, counted: tuple[float, int]) -> Kernel:
    """Return a measured kernel; its counted passes include packing (9/32 passes, a launch)."""
    passes = counted[0] + 9 / 32
    return method_code(name, elements, elementwise(elements, passes, counted[1] + 1))
