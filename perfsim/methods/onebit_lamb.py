"""1-bit LAMB: all momentum sent as signs and one scale, and LAMB's coefficients from it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import Kernel, elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Job, MethodContext, PassPoint, Round
from perfsim.methods.building.averaging import by_share, merged_bucket
from perfsim.methods.building.code_bases import DEEPSPEED_LAMB, CodeBase
from perfsim.methods.building.one_bit_optimizer import (
    DENSE,
    DENSE_WIRE,
    ONE_BIT,
    ONE_BIT_WIRE,
    OneBitOptimizer,
    on_compute,
)

_NORMS = (6.0, 9)
"""Passes and launches a tensor of LAMB's coefficient: squares (2) and sum (1) of weights and of
update; two roots, two comparisons and a division on single values."""

_BEFORE = (4.0, 2)
"""Passes and launches a tensor: momentum of the last step kept (2), momentum scaled (2)."""

_AFTER = (23.0, 15)
"""Passes and launches a tensor: scaled back (2); gradient of all ranks from both momenta (7 in 3);
norm of the update (3 in 3), and of it without weight decay (3 in 4, with their ratio); root of the
fresh variance and epsilon (4 in 2), ratio to the frozen one (3) and its maximum (1)."""


class OnebitLamb(OneBitOptimizer):
    """Sends gradients dense in a first share of training, then momentum in one bit a value.

    It exchanges as `onebit_adam` does, after the backward pass, with all momenta in one buffer
    whatever the `fusion`, which has its padding already (46 passes less 2). Each tensor's momentum
    is scaled before that and scaled back behind it. Then the gradient of all ranks is rebuilt from
    the momenta of two steps, and gives a fresh variance; its ratio to the frozen one scales the
    coefficient of the first stage (23 passes, 15 launches a tensor). In the dense stage two norms a
    tensor give LAMB's own coefficient (6 passes, 9 launches). The host reads each coefficient, so
    that nothing of the update is launched ahead.

    The default share is that at which as many bytes are saved as the paper's abstract states (4.6
    times). 1 is DeepSpeed's dense LAMB; 0 is the compressed stage alone.

    Bytes a rank: 2 (P-1)/P x 4 a parameter in the dense share (half of it in half precision), then
    2 (P-1)/P x 1/8 a parameter and 8 (P-1).
    Memory: the worker's error and the fresh variance, 4 bytes a parameter each, and the server's
    error, 1/P of one.
    Left out: the update's own operations, which count as those of the model's optimizer; norm,
    overflow check and casts of half precision; how long the GPU idles while a coefficient travels
    to the host; masks of momenta that stay zero.
    """

    summary: ClassVar[str] = "dense LAMB first, then momentum in one bit a value (1-bit LAMB)"
    citation: ClassVar[str] = (
        "Li et al. 2021, 1-bit LAMB, HiPC 2022, arXiv 2104.06069; code"
        " deepspeedai/DeepSpeed@edaa7221 deepspeed/runtime/fp16/onebit/lamb.py,"
        " runtime/comm/nccl.py, runtime/engine.py, runtime/fp16/unfused_optimizer.py"
    )
    wire: ClassVar[str] = f"dense_share * {DENSE_WIRE} + (1 - dense_share) * ({ONE_BIT_WIRE})"
    runs_in: ClassVar[CodeBase] = DEEPSPEED_LAMB
    optimizers: ClassVar[tuple[str, ...]] = ("lamb",)
    buffers: ClassVar[int] = 1

    dense_share: float = Field(
        0.165, ge=0, le=1, description="share of iterations before momentum is compressed"
    )

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the dense all-reduce, or the exchange of the momentum, and the coefficients."""
        whole = merged_bucket(buckets)
        n, tensors = whole.elements, len(whole.gradients)

        def each(passes: float, launches: int) -> Kernel:
            return elementwise(n, passes, launches * tensors)

        if iteration == DENSE:
            dense = self.dense(buckets, world)
            norms = on_compute(each(*_NORMS), "decompress")
            return [replace(dense, stages=(*dense.stages, norms))]
        stages = (
            on_compute(each(*_BEFORE), "compress"),
            *self.compressed([whole], world, pad=False),
            on_compute(each(*_AFTER), "decompress"),
        )
        return [Job("momentum", stages, PassPoint("backward"))]

    def rounds(self) -> list[Round]:
        """Return the iterations of both stages, weighted by their share."""
        return by_share({DENSE: self.dense_share, ONE_BIT: 1 - self.dense_share})
