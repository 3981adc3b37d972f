"""SigNUM: the sign of the momentum, with majority vote."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, MethodContext
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.majority_vote import Voting
from perfsim.methods.building.quantise import SIGN_WIRE, QuantisedExchange, sign_encode


class Signum(Voting):
    """Sends the signs of the momentum, one bit a value; the majority of all ranks is the update.

    In the hook, on the compute stream, the gradient is added to the momentum (7 passes: two
    products and a sum), and the momentum's signs are packed. One all-gather takes n/8 bytes from
    each rank. After the backward pass a loop unpacks the P messages. These are summed (3 P - 1
    passes, P launches), so decoding grows with P, and the sign of the sum is taken (4.5 passes).
    Packing and unpacking are EF-SignSGD's measured kernels, as for signsgd. ``exchange``
    "two_step": each rank votes on 1/P of the values, after the backward pass. The authors' code, in
    buffers of 100 MB over a server, is signsgd's ``exchange`` "server" with 7 passes more.
    Messages: as for signsgd, all in one (`fusion` none: a tensor each). Bytes a rank: (P-1)
    n/8; in two steps 2 (P-1)/P n/8. Memory: the momentum.

    ``packing``: MergeComp and the authors pack bits, GRACE sends a byte a sign ("bytes"). Left out:
    the mean magnitude that MergeComp gathers with the signs and does not use.
    """

    summary: ClassVar[str] = "one bit a value of the momentum, majority vote (SigNUM)"
    citation: ClassVar[str] = (
        "Bernstein et al. 2018, signSGD, ICML, Algorithm 2, and 2019, ICLR, Algorithm 1; code"
        " sands-lab/grace@fd3a7f42 grace_dl/torch/compressor/signum.py,"
        " zhuangwang93/mergeComp@82bc96c3 mergeComp_dl/torch/compressor/poolsignum.py"
    )
    family: ClassVar[str] = "quantisation"
    wire: ClassVar[str] = (
        f"(P - 1) * {SIGN_WIRE} if exchange == 'all_gather' else 2 * (P - 1) / P * {SIGN_WIRE}"
    )

    exchange: QuantisedExchange = Field(
        "all_gather", description="every rank counts all votes, or a share"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return momentum and pack, the exchange, and the counting of votes."""
        n = bucket.elements
        encode = [elementwise(n, 7, 3), sign_encode(n, self.packing)]
        return self.voted(n, world.ranks, encode)

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the momentum: one fp32 value a parameter."""
        return fp32_bytes(gradients)
