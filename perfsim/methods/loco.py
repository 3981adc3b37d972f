"""LoCo: ZeRO++ whose 4-bit gradients are corrected by the errors of earlier ones."""

from typing import ClassVar

from perfsim.compute.kernel import HALF, Kernel, moved
from perfsim.compute.profile import Gradient
from perfsim.methods.base import MethodContext
from perfsim.methods.building.quantised_shards import Levels
from perfsim.methods.zeropp import TwoSteps, Zeropp
from perfsim.sums import sum_in_order

__all__ = ["Loco"]


class _Corrected(TwoSteps):
    """A sum in two steps that keeps the errors of both quantisations in 8 bits.

    The errors are decoded first. Each quantising kernel adds its error to what it reads and writes
    the new one, a moving average. The new error is quantised behind the all-to-alls that follow.
    """

    def encode(self) -> list[Kernel]:
        """Return the decoding of both errors, and the kernel that corrects and quantises."""
        [quantise] = super().encode()
        both = [self.recoded(part) for part in self.errors()]
        return [*both, self.corrected(quantise, self.inside)]

    def merge(self) -> list[Kernel]:
        """Return the quantisation of the first error, and the merge, which corrects its sum."""
        [merge] = super().merge()
        first, _ = self.errors()
        return [self.recoded(first), self.corrected(merge, self.across)]

    def decode(self) -> list[Kernel]:
        """Return the quantisation of the second error, and the kernels of the last sum."""
        _, second = self.errors()
        return [self.recoded(second), *super().decode()]

    def errors(self) -> tuple[Levels, Levels]:
        """Return the errors as they are kept: of the rank's message, and of its node's sum."""
        return self.inside._replace(bits=8), self.across._replace(bits=8)

    @staticmethod
    def recoded(error: Levels) -> Kernel:
        """Return the kernel that decodes an error, or quantises it."""
        return moved(error.values, error.size_bytes + HALF * error.values)

    @staticmethod
    def corrected(kernel: Kernel, error: Levels) -> Kernel:
        """Return a kernel that also reads an error and writes the new one."""
        return kernel._replace(moved_bytes=kernel.moved_bytes + 2 * HALF * error.values)


class Loco(Zeropp):
    """Sends what `zeropp` sends; errors of its 4-bit gradients are added to the next ones.

    This is `zeropp` with DeepSpeed's ``zeropp_loco_param``. For each matrix that is summed in two
    steps a rank keeps two errors in 8 bits: of its own message, and of its share of the node's sum.
    Both are decoded before the matrix is quantised (2 launches). Both quantising kernels read the
    error, add it, and write the new one (2 passes of 2 bytes more each). The new errors are
    quantised again behind the all-to-alls of their step (2 launches).

    The update's other steps are those of `zeropp`. On one node, where nothing is summed in two
    steps, it is that method.

    Bytes a rank: those of `zeropp`.
    Memory: that of `zeropp`; for each such matrix of n values n + n/g bytes with g GPUs a node, and
    a scale a block.
    Left out: what `zeropp` leaves out; setting the errors of one matrix to zero after each 1024
    matrices (reset_T), which saves two kernels; LoCo inside Megatron-LM and FSDP, whose code the
    authors replaced by DeepSpeed's.
    """

    summary: ClassVar[str] = "ZeRO++ with errors of 4-bit gradients added to the next ones (LoCo)"
    citation: ClassVar[str] = (
        "Xie et al. 2024, LoCo: Low-Bit Communication Adaptor for Large-scale Model Training (arXiv"
        " 2407.04480); code deepspeedai/DeepSpeed@edaa7221 deepspeed/runtime/comm/"
        "coalesced_collectives.py (all_to_all_loco_quant_reduce), csrc/quantization/"
        "swizzled_quantize.cu, quant_reduce.cu; XingyuXie/LoCo@c3ec95a README.md names it"
    )

    def refusal(self, world: MethodContext) -> str:
        """Return why it cannot run on these ranks or without 4-bit gradients, or ""."""
        if not self.quantise_gradients:
            return "corrects the errors of 4-bit gradients: leave quantise_gradients out"
        return super().refusal(world)

    def two_steps(self, gradient: Gradient, world: MethodContext, width: float) -> TwoSteps:
        """Return the kernels that sum a matrix of gradients in two steps, corrected."""
        return _Corrected(gradient, world, width)

    def memory_in(self, world: MethodContext) -> float:
        """Return the bytes of `zeropp`, and those of both errors of each matrix."""
        gradients = world.profile.gradients if world.profile else ()
        errors = [
            error.size_bytes
            for gradient in gradients
            if self.quantises(gradient, world)
            for error in _Corrected(gradient, world, HALF).errors()
        ]
        return super().memory_in(world) + sum_in_order(errors)
