"""Sign-SGD with majority vote."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from perfsim.bits import (
    SIGN_WIRE,
    Packing,
    gathered_from_all,
    majority,
    sign_bytes,
    sign_decode,
    sign_encode,
    sign_fusion,
    two_step,
)
from perfsim.fusion.bucket import Bucket
from perfsim.kernel import FLOAT, elementwise
from perfsim.method import SGD_LAUNCHES, Compute, Method, Send, Stage, World
from perfsim.profile import Gradient
from perfsim.queued import in_turn, summed


class Signsgd(Method):
    """Sends one bit a value; the majority of all ranks' signs is the update.

    ``exchange`` "all_gather", the form of the later frameworks: in the hook, on the compute
    stream, signs are packed, 8 a byte; one all-gather of n/8 bytes from each rank, since signs
    cannot be summed on the way without widening; after the backward pass a loop unpacks the P
    messages, then these are summed (3 P - 1 passes, P launches) and the sign of the sum is taken
    (4.5 passes), so decoding grows with P. "server", the authors' code, after the backward pass:
    gradients all-reduced in fp32 inside each node, packed, sent by the node's first GPU to rank 0,
    one node after the other; the vote there, its broadcast to the nodes and inside them.
    "two_step": each rank votes on 1/P of the values (all-to-all; one kernel unpacks all pieces),
    then all-gathers its part, as 1-bit Adam's compressed all-reduce. Bytes a rank: (P-1) n/8; in
    two steps 2 (P-1)/P n/8; to the server n/8, while rank 0, which is counted, hears all others
    and sends its part of the broadcast. Memory: none between iterations.

    ``packing`` "bits" takes EF-SignSGD's measured kernels (V100), whose encode also takes the mean
    magnitude and whose decode also multiplies by it; "bit2byte" is what the authors' code
    launches, "bytes" what GRACE sends: a byte a sign. Messages: a tensor each, as GRACE and
    MergeComp run it, all in one in the other two forms (``sign_fusion``); the same for signum and
    efsignsgd. Decoding costs launches a message and rank, so compare with other methods at one
    ``--fusion``. Left out: momentum (see signum), barriers between the authors' steps.
    """

    summary: ClassVar[str] = "one bit a value, all-gathered, majority vote (Sign-SGD)"
    citation: ClassVar[str] = (
        "Bernstein et al. 2019, signSGD with Majority Vote, ICLR, Algorithm 1; code"
        " jiaweizzhao/signSGD-with-Majority-Vote@5bebcd0f main/Signum_SGD.py (server); all-gather"
        " form: uw-mad-dash/GradCompressionUtility@b73b3303 gradient_reducers.py,"
        " SignSGDwithMajorityVoteReducer; two steps: deepspeedai/DeepSpeed@edaa7221"
        " deepspeed/runtime/comm/nccl.py"
    )
    family: ClassVar[str] = "quantisation"
    wire: ClassVar[str] = (
        f"(P - 1) * {SIGN_WIRE} if exchange == 'all_gather'"
        f" else (2 if exchange == 'two_step' else P + 1) * (P - 1) / P * {SIGN_WIRE}"
    )

    exchange: Literal["all_gather", "server", "two_step"] = Field(
        "all_gather", description="who counts the votes: every rank, rank 0, each rank its share"
    )
    packing: Packing = Field("bits", description="how signs travel: packed, or a byte each")

    def stages(self, bucket: Bucket, world: World, iteration: int) -> list[Stage]:
        """Return pack, the exchange, and the counting of votes."""
        n, ranks = bucket.elements, world.ranks
        sent = float(sign_bytes(n, self.packing))
        encode, decode = sign_encode(n, self.packing), sign_decode(n, self.packing)
        if self.exchange == "all_gather":
            vote = [summed(n, ranks), majority(n)]
            return gathered_from_all([encode], [sent], [decode], ranks, vote)
        if self.exchange == "two_step":
            # A piece is n / P of each of P messages: as many values to decode as one message has.
            again = [elementwise(n, 1 + 1 / ranks), sign_encode(-(-n // ranks), self.packing)]
            return two_step([encode], [sent], 0.0, [decode, *again], [decode], ranks)
        inside, votes = world.gpus_per_node, world.nodes
        stages: list[Stage] = []
        if inside > 1:
            stages = [Send("all_reduce", float(FLOAT * n), earliest="backward", group="node")]
        if votes > 1:
            stages.append(Compute((encode,), "compress", earliest="backward"))
            one = Send("send_recv", sent, earliest="backward", group="leaders")
            stages += [one] * (votes - 1)
            counted = (*in_turn([decode], votes), summed(n, votes), encode)
            stages.append(Compute(counted, "compress", earliest="backward"))
            stages.append(Send("broadcast", sent, earliest="backward", group="leaders"))
            if inside > 1:
                stages.append(Send("broadcast", sent, earliest="backward", group="node"))
            stages.append(Compute((decode,), "decompress", earliest="backward"))
        return stages

    def default_fusion(self) -> str:
        """Return a message a tensor for the frameworks' form, one message for the others."""
        return sign_fusion(self.exchange)

    def late_launches(self) -> int:
        """Return the launches of the update, which Horovod's optimizer runs behind its wait."""
        return SGD_LAUNCHES if self.exchange == "all_gather" else 0

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the signs of one gradient."""
        return float(sign_bytes(gradient.elements, self.packing))
