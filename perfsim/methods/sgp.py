"""SGP: stochastic gradient push; in each iteration a node sends its model to one peer."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, Method, MethodContext, PassPoint, Send
from perfsim.methods.building.averaging import fp32_bytes, merged_bucket, neighbours


class Sgp(Method):
    """Each node sends its model to one other node, at distances 1, 2, 4, ... by turns.

    After the update the model is copied (2 passes, a launch a tensor) and flattened (2 passes). The
    node's first rank sends it to one node and receives another's. The next forward pass waits for
    this exchange, for the copy out (2 passes) and for adding and scaling (5 passes). With
    ``overlapped`` (OSGP) the exchange begins with the forward pass, and the next forward pass waits
    for it. Before the exchange, adding, weighting, copying and removing the weight take 9 passes;
    after backward 2 more follow. On nodes of several GPUs gradients are flattened and all-reduced
    inside the node after the backward pass (4 passes). The model is broadcast there as the forward
    pass begins (2 passes). Bytes a rank: 4 a parameter from one rank of each node, and what stays
    in the node. Memory: three copies of the model (sent, received, placeholder). Left out: the
    push-sum weight, one number beside the model; links between switches that messages over a
    distance share.
    """

    summary: ClassVar[str] = "each node's model pushed to one other node in turn (SGP)"
    citation: ClassVar[str] = (
        "Assran et al. 2019, Stochastic Gradient Push, ICML, Algorithm 1; code"
        " facebookresearch/stochastic_gradient_push@12300367 gossip_module/distributed.py,"
        " gossiper.py and gossip_sgd.py"
    )
    family: ClassVar[str] = "fewer exchanges"
    levels: ClassVar[str] = (
        "inside a node gradients are all-reduced and the model is broadcast; across nodes one"
        " rank sends the model to one other node"
    )
    wire: ClassVar[str] = "4 * n"
    fusion: ClassVar[str] = "whole"

    overlapped: bool = Field(False, description="overlap the exchange with an iteration (OSGP)")

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the exchange, and the jobs that keep a node's ranks equal."""
        whole = merged_bucket(buckets)
        n, tensors, size = whole.elements, len(whole.gradients), fp32_bytes(whole.gradients)
        within: list[Job] = []
        if world.gpus_per_node > 1:
            grads = Compute((elementwise(n, 4, tensors + 1),), "compress", earliest="backward")
            reduce = Send("all_reduce", whole.size_bytes, earliest="backward", group="node")
            within.append(Job("gradients", (grads, reduce), PassPoint("backward")))
            flat = Compute((elementwise(n, 2),), "compress")
            spread = (flat, Send("broadcast", size, group="node"))
            within.append(Job("spread", spread, PassPoint("forward"), PassPoint("forward")))
        if self.overlapped:
            send = neighbours(size, world, nodes=True)._replace(stream="gossip")
            turn = Compute((elementwise(n, 9, 4 * tensors),), "compress")
            pack = Compute((elementwise(n, 2),), "compress", stream="gossip")
            out = Compute((elementwise(n, 2, tensors),), "decompress", stream="gossip")
            bias = Compute((elementwise(n, 2, tensors),), "decompress", earliest="backward")
            push = Job("push", (turn, pack, send, out), PassPoint("forward"), PassPoint("next"))
            return [push, *within, Job("bias", (bias,), PassPoint("backward"))]
        copy = Compute((elementwise(n, 4, tensors + 1),), "compress", earliest="update")
        late = neighbours(size, world, nodes=True)._replace(earliest="update")
        add = Compute((elementwise(n, 7, 3 * tensors),), "decompress", earliest="update")
        return [*within, Job("push", (copy, late, add), PassPoint("backward"), PassPoint("next"))]

    def refusal(self, world: MethodContext) -> str:
        """Return why one node, which has no peer, is refused, or ""."""
        return "needs several nodes: each is one peer" if world.nodes == 1 else ""

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of three copies of the model: three fp32 values a parameter."""
        return 3 * fp32_bytes(gradients)
