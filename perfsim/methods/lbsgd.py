"""LB-SGD: the last batch's gradient is reduced while the next one is computed."""

from collections.abc import Sequence
from typing import ClassVar

from perfsim.compute.kernel import elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, Method, MethodContext, PassPoint, Send
from perfsim.sums import sum_in_order

SWAP_PASSES, SWAP_LAUNCHES = 8, 4
"""Passes and launches that swap a tensor: division by P, clone, and two copies."""


class Lbsgd(Method):
    """Applies each gradient one iteration late, so that its all-reduce overlaps a whole iteration.

    At the end of the backward pass the rank waits for the all-reduce of the last batch's gradients.
    It swaps them, tensor by tensor, with the ones just computed (divide by P, clone, copy, copy: 8
    passes, 4 launches a tensor). Then the buffer's all-reduce starts on a stream of its own and
    runs beside the update and the next forward and backward pass. The update uses the swapped-in
    gradient. By default one buffer holds all gradients. Bytes a rank: 2 (P-1)/P x 4 a parameter.
    Memory: the buffer, 4 bytes a parameter. Left out: the synchronous epochs at the start of
    training, and gradient accumulation.
    """

    summary: ClassVar[str] = "gradients applied one iteration late, fully overlapped (LB-SGD)"
    citation: ClassVar[str] = (
        "Zhang, Shi & Li 2022, Last Batch Optimization for Distributed DNN Training, section 2;"
        " code lzhangbv/last-batch-ddl@d24a3579 opt/fpdp.py"
    )
    family: ClassVar[str] = "fewer exchanges"
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n"
    fusion: ClassVar[str] = "whole"

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return each buffer's swap at the end of the backward pass, and its all-reduce."""
        end = PassPoint(
            "backward", world.profile.backward_s if world.profile else buckets[-1].ready_s
        )
        swaps: list[Job] = []
        for number, bucket in enumerate(buckets):
            swap = elementwise(bucket.elements, SWAP_PASSES, SWAP_LAUNCHES * len(bucket.gradients))
            # On the stream of the sends: the swap waits for the last all-reduce, as the host does.
            kernels = Compute((swap,), "compress", stream="communication")
            swaps.append(Job(f"swap {number}", (kernels,), end, end))
        last = swaps[-1].name
        return swaps + [
            Job(f"{number}", (Send("all_reduce", bucket.size_bytes),), end, needs=(last,))
            for number, bucket in enumerate(buckets)
        ]

    def delay(self) -> int:
        """Return 1: the update uses the last iteration's result."""
        return 1

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the buffer: one fp32 value a parameter."""
        return sum_in_order(gradient.size_bytes for gradient in gradients)
