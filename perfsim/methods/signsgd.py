"""Sign-SGD: one bit a value, with majority vote."""

from typing import ClassVar

from perfsim.compute.kernel import FLOAT
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import ONE_GROUP, Compute, JobStage, MethodContext, Send
from perfsim.methods.building.majority_vote import Voting
from perfsim.methods.building.quantise import (
    SIGN_WIRE,
    sign_bytes,
    sign_decode,
    sign_encode,
    summed,
)
from perfsim.methods.building.queued_kernels import in_turn


class Signsgd(Voting):
    """Sends one bit a value; the majority of all ranks' signs is the update.

    ``exchange`` "all_gather" is the form of the later frameworks. In the hook, on the compute
    stream, signs are packed, 8 a byte. One all-gather takes n/8 bytes from each rank, since signs
    cannot be summed on the way without widening. After the backward pass a loop unpacks the P
    messages. These are summed (3 P - 1 passes, P launches) and the sign of the sum is taken (4.5
    passes), so decoding grows with P. "server" is the authors' code, after the backward pass.
    Gradients are all-reduced in fp32 inside each node and packed. Each node's first GPU sends them
    to rank 0, one node after the other. Rank 0 takes the vote; it is broadcast to the nodes and
    inside them. "two_step": each rank votes on 1/P of the values (all-to-all; one kernel unpacks
    all pieces), then all-gathers its part, as 1-bit Adam's compressed all-reduce. Bytes a rank:
    (P-1) n/8; in two steps 2 (P-1)/P n/8; to the server n/8, while rank 0, which is counted,
    receives from all others and sends its part of the broadcast. Memory: none between iterations.

    ``packing`` "bits" takes EF-SignSGD's measured kernels (V100), whose encode also takes the mean
    magnitude and whose decode also multiplies by it. "bit2byte" is what the authors' code launches.
    "bytes" is what GRACE sends: a byte a sign. Messages: all in one, as the authors run it, after
    the backward pass (`perfsim.methods.building.majority_vote`); the same for signum. `fusion` none
    sends a tensor each in its hook, as GRACE and MergeComp do. Decoding costs launches a message
    and rank, so compare with other methods at one `fusion`. Left out: momentum (see signum),
    barriers between the authors' steps.
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
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with exchange server fp32 sums inside a node, bits across nodes to rank 0"
        " and back"
    )
    wire: ClassVar[str] = (
        f"(P - 1) * {SIGN_WIRE} if exchange == 'all_gather'"
        f" else (2 if exchange == 'two_step' else P + 1) * (P - 1) / P * {SIGN_WIRE}"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return pack, the exchange, and the counting of votes."""
        n = bucket.elements
        encode = sign_encode(n, self.packing)
        if self.exchange != "server":
            return self.voted(n, world.ranks, [encode])
        sent, decode = float(sign_bytes(n, self.packing)), sign_decode(n, self.packing)
        inside, votes = world.gpus_per_node, world.nodes
        stages: list[JobStage] = []
        if inside > 1:
            stages = [Send("all_reduce", float(FLOAT * n), earliest="backward", group="node")]
        if votes > 1:
            stages.append(Compute((encode,), "compress", earliest="backward"))
            one = Send("send_recv", sent, earliest="backward", group="leaders")
            stages += [one] * (votes - 1)
            counted = in_turn([decode], votes).then(summed(n, votes), encode)
            stages.append(Compute(counted, "compress", earliest="backward"))
            stages.append(Send("broadcast", sent, earliest="backward", group="leaders"))
            if inside > 1:
                stages.append(Send("broadcast", sent, earliest="backward", group="node"))
            stages.append(Compute((decode,), "decompress", earliest="backward"))
        return stages
