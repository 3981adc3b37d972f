"""1-bit Adam: momentum sent as signs and one scale, after a stage of dense Adam."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Job, MethodContext, PassPoint, Round
from perfsim.methods.building.averaging import by_share
from perfsim.methods.building.one_bit_optimizer import (
    DENSE,
    DENSE_WIRE,
    ONE_BIT,
    ONE_BIT_WIRE,
    OneBitOptimizer,
)


class OnebitAdam(OneBitOptimizer):
    """Sends gradients dense in a first share of training, then momentum in one bit a value.

    In the first stage (``dense_share``, freeze_step of all steps) all gradients are all-reduced
    after the backward pass: flattened, divided by P, sent in messages of up to 5e8 values, and
    copied back. They are sent in 16 bits in half precision. Then that all-reduce is off and the
    variance is frozen. The step updates the momentum and exchanges it: one all-to-all and one
    all-gather of signs among all ranks, each with an all-gather of scales, nodes or not. Errors of
    both are kept and added to the next step's values. Nothing overlaps the backward pass, and the
    update waits for all of it. `perfsim.methods.building.one_bit_optimizer` counts the kernels:
    46 passes over fp32 values on many ranks, in 53 launches and 4 more a rank.

    The default share is that of the authors' BERT-Large pre-training. 1 is DeepSpeed's dense Adam,
    which speed-ups are stated against; 0 is the compressed stage alone.

    Messages: one, as in half precision, where DeepSpeed makes one tensor of all parameters of a
    group. In fp32 it exchanges tensor by tensor (`fusion` none).

    Bytes a rank: 2 (P-1)/P x 4 a parameter in the dense share (half of it in half precision), then
    2 (P-1)/P x 1/8 a parameter and 8 (P-1).
    Memory: the worker's error, 4 bytes a parameter, and the server's, 1/P of it.
    Left out: the update's own operations, which count as those of the model's optimizer (the code
    runs some 20 passes unfused, and leaves the variance alone); norm, overflow check and casts of
    half precision, which dense Adam has too; a further exchange for each further group of
    parameters; masks of momenta that stay zero; the backend on MPI, which the authors' first
    speed-ups were measured with.
    """

    summary: ClassVar[str] = "dense Adam first, then momentum in one bit a value (1-bit Adam)"
    citation: ClassVar[str] = (
        "Tang et al. 2021, 1-bit Adam, ICML, arXiv 2102.02888; code"
        " deepspeedai/DeepSpeed@edaa7221 deepspeed/runtime/fp16/onebit/adam.py,"
        " runtime/comm/nccl.py, runtime/engine.py; the share of the dense stage:"
        " docs/_posts/2020-09-09-onebit-adam-blog-post.md"
    )
    wire: ClassVar[str] = f"dense_share * {DENSE_WIRE} + (1 - dense_share) * ({ONE_BIT_WIRE})"

    dense_share: float = Field(
        0.15, ge=0, le=1, description="share of iterations before momentum is compressed"
    )

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the dense all-reduce, or the exchange of the momentum."""
        if iteration == DENSE:
            return [self.dense(buckets, world)]
        return [Job("momentum", tuple(self.compressed(buckets, world)), PassPoint("backward"))]

    def rounds(self) -> list[Round]:
        """Return the iterations of both stages, weighted by their share."""
        return by_share({DENSE: self.dense_share, ONE_BIT: 1 - self.dense_share})
