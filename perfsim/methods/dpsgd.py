"""D-PSGD: every rank averages its model with its neighbours' in every iteration."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket, fill
from perfsim.methods.base import (
    HeldState,
    Job,
    MethodContext,
    OnlyWith,
    PassPoint,
    Round,
)
from perfsim.methods.building.averaging import (
    fp32_bytes,
    from_first_ranks,
    merged_bucket,
    periodic,
    with_neighbours,
)
from perfsim.methods.building.code_bases import BLUEFOG, DDP, CodeBase
from perfsim.methods.building.update_after_wait import UpdateAfterWait


class Dpsgd(UpdateAfterWait):
    """Sends the model to neighbours beside the backward pass; the update starts from their mean.

    When the forward pass is over, all parameters go out in fused buffers, first layers first. They
    are copied in (2 passes, a launch a tensor) on the stream of the sends; the update waits. After
    the backward pass the received values are copied out (2 passes) and averaged (3 passes a peer
    and 2).

    ``topology`` "ring": both neighbours at once. "one_peer": in each iteration one rank of a node
    sends to another node and each other rank inside its node, at distances that double (Bluefog's
    default on several nodes). "hierarchical": Bluefog's sum in each node, one message from its
    first rank to another node's, a broadcast in the node. "all": Bagua's default, one buffer from
    the start of the forward pass; the mean in the node, an all-reduce among first ranks, and after
    the backward pass a copy and the broadcast. Bluefog's host waits for each tensor before it
    launches the update (``update_launches``, see `horovod`).

    Bytes a rank: 4 a parameter and peer.
    Memory: the fusion buffer, and 4 bytes a parameter and peer for what is received. The mean is
    made in that place, which becomes the parameter's own without getting smaller: with two peers 4
    bytes a parameter more. With ``all`` Bagua's copy of the model alone.
    Left out: negotiation by MPI in each cycle; links between switches that messages at a distance
    share; Bagua's 8-bit ring.
    """

    summary: ClassVar[str] = "models averaged with neighbours beside backward (D-PSGD)"
    citation: ClassVar[str] = (
        "Lian et al. 2017, D-PSGD, NeurIPS, Algorithm 1; code Bluefog-Lib/bluefog@9ee376a7"
        " bluefog/torch/optimizers.py, mpi_ops.py (neighbor_allreduce_nonblocking), mpi_ops.cc"
        " (PerformNeighborAllreduceCallback), common/topology_util.py and nccl_controller.cc;"
        " BaguaSys/bagua@3e480d29 bagua/torch_api/algorithms/decentralized.py"
    )
    family: ClassVar[str] = "fewer exchanges"
    levels: ClassVar[str] = (
        "inside a node ranks exchange models as they do across nodes; with topology hierarchical"
        " or all a node adds up first, and one rank of it exchanges across nodes"
    )
    wire: ClassVar[str] = "min(2, P - 1) * 4 * n"
    fusion: ClassVar[str] = "whole"
    interval_option: ClassVar[str] = "interval"

    topology: Literal["ring", "one_peer", "hierarchical", "all"] = Field(
        "ring", description="who averages with whom"
    )
    interval: int = Field(1, ge=1, le=10**6, description="iterations from one exchange to the next")
    buffer_mib: Annotated[float, OnlyWith(topology=("ring", "one_peer", "hierarchical"))] = Field(
        8.0, gt=0, description="fusion buffer, own and received values"
    )

    update_launches: Annotated[
        int | None, OnlyWith(topology=("ring", "one_peer", "hierarchical"))
    ] = Field(
        None,
        ge=0,
        le=1000,
        description="kernels a tensor that the update launches after the wait; none: by optimizer",
    )

    def code_base(self) -> CodeBase:
        """Return Bluefog's, or for ``all`` Bagua's, whose host does not wait."""
        return DDP if self.topology == "all" else BLUEFOG

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return one job a fused buffer."""
        if self.topology == "all":
            return [
                Job(
                    "model",
                    tuple(from_first_ranks(merged_bucket(buckets), world)),
                    PassPoint("forward"),
                )
            ]
        peers = self.peers(world.ranks)
        hierarchical = self.topology == "hierarchical"

        def room(gradient: Gradient) -> float:
            return (1 + peers) * fp32_bytes([gradient])

        parts = [
            part
            for bucket in buckets
            for part in fill(bucket.gradients[::-1], room, self.buffer_mib * 2**20)
        ]
        return [
            Job(
                f"{number}",
                tuple(with_neighbours(part, world, peers, hierarchical=hierarchical)),
                PassPoint("backward"),
            )
            for number, part in enumerate(parts)
        ]

    def peers(self, ranks: int) -> int:
        """Return how many others a rank exchanges with at once."""
        return min(2 if self.topology == "ring" else 1, ranks - 1)

    def rounds(self) -> list[Round]:
        """Return the local iterations, if any, and the one that exchanges."""
        return periodic(self.interval)

    def refusal(self, world: MethodContext) -> str:
        """Return why Bluefog's pattern is not defined on these nodes, or ""."""
        if self.topology == "hierarchical" and (world.nodes == 1 or world.gpus_per_node == 1):
            return "with topology=hierarchical needs several nodes of several GPUs"
        if self.topology == "one_peer" and world.nodes > 1 and world.gpus_per_node == 2:
            return "with topology=one_peer needs one GPU a node or more than two"
        return ""

    def outer_state(self, world: MethodContext) -> list[HeldState]:
        """Return the buffers of the exchange."""
        return [HeldState("exchange buffers", self.memory_in(world), ranks=world.gpus_per_node)]

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the fusion buffer and of what peers send, or of Bagua's copy."""
        whole = fp32_bytes(gradients)
        if self.topology == "all":
            return whole
        # What is received now, and what the parameters' own places have too much.
        peers = self.peers(ranks)
        return self.buffer_mib * 2**20 + (peers + max(0, peers - 1)) * whole
