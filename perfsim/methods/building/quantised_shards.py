"""Quantised collectives of sharded training: gathers of shards, sums by two all-to-alls.

Kernels quantise blocks of neighbouring values: each block is sent as levels of a few bits and one
fp32 scale. Levels and scales go in two messages. A sum of gradients, of which each rank keeps a
share, is made in two steps: an all-to-all inside nodes, whose messages one kernel decodes, adds up
and quantises again, and an all-to-all between the ranks with the same place on all nodes.

References
----------
Wang et al., "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", 2023
(arXiv 2306.10209); Jia et al., "SDP4Bit", NeurIPS 2024 (arXiv 2410.15526). Code: deepspeedai/
DeepSpeed at edaa7221, deepspeed/runtime/comm/coalesced_collectives.py; hpdps-group/SDP4Bit at
25e219d, megatron/quantization_helper.py.
"""

from typing import ClassVar, NamedTuple

from perfsim.compute.kernel import FLOAT
from perfsim.methods.base import (
    Compute,
    Group,
    JobStage,
    Method,
    MethodContext,
    MethodState,
    Moment,
    Send,
)

__all__ = ["ACROSS", "INSIDE", "Levels", "QuantisedShards", "sent", "summed_in_two_steps", "uneven"]

INSIDE, ACROSS = "inside nodes", "across nodes"
"""Streams of the two all-to-alls: their groups have communicators of their own."""


class Levels(NamedTuple):
    """Values as levels of ``bits`` bits, with an fp32 scale for each of the ``blocks``.

    Examples
    --------
    >>> message = Levels(1000, 4, 4)
    >>> message.level_bytes, message.scale_bytes, message.size_bytes
    (500.0, 16.0, 516.0)
    """

    values: float
    blocks: float
    bits: int

    @property
    def level_bytes(self) -> float:
        """Bytes of the levels."""
        return self.bits / 8 * self.values

    @property
    def scale_bytes(self) -> float:
        """Bytes of the scales."""
        return float(FLOAT * self.blocks)

    @property
    def size_bytes(self) -> float:
        """Bytes of both."""
        return self.level_bytes + self.scale_bytes

    def part(self, parts: int, bits: int = 0) -> "Levels":
        """Return one of several equal parts, in as many bits a level unless others are given.

        Examples
        --------
        >>> Levels(1000, 8, 8).part(4, bits=4)
        Levels(values=250.0, blocks=2.0, bits=4)
        """
        return Levels(self.values / parts, self.blocks / parts, bits or self.bits)


def sent(
    message: Levels,
    collective: str,
    group: Group = "all",
    stream: str = "communication",
    earliest: Moment = "ready",
) -> list[Send]:
    """Return the two sends of levels and scales."""
    return [
        Send(collective, size_bytes, earliest, stream=stream, group=group)
        for size_bytes in (message.level_bytes, message.scale_bytes)
    ]


def summed_in_two_steps(
    inside: Levels, across: Levels, merge: Compute, world: MethodContext, earliest: Moment = "ready"
) -> list[JobStage]:
    """Return the all-to-all inside nodes, the merge, and the all-to-all across nodes.

    ``inside`` is the rank's message; ``across`` is what it sends of the sum over its node. Where a
    node has one GPU nothing is sent inside it.

    Examples
    --------
    >>> from perfsim.compute.kernel import moved
    >>> merge = Compute((moved(250, 645.0),), "compress")
    >>> message = Levels(1000, 4, 4)
    >>> stages = summed_in_two_steps(message, message.part(4), merge, MethodContext(8, 2, 4))
    >>> [(one.group, one.size_bytes) for one in stages if isinstance(one, Send)]
    [('node', 500.0), ('node', 16.0), ('across', 125.0), ('across', 4.0)]
    """
    near = sent(inside, "all_to_all", "node", INSIDE, earliest) if world.gpus_per_node > 1 else []
    return [*near, merge, *sent(across, "all_to_all", "across", ACROSS, earliest)]


def uneven(world: MethodContext) -> str:
    """Return why nodes with different numbers of GPUs cannot sum in two steps, or ""."""
    if world.ranks == world.nodes * world.gpus_per_node:
        return ""
    return "needs as many GPUs on every node for its two all-to-alls"


class QuantisedShards(Method):
    """A method that sends quantised what another one, its `base`, sends as it is.

    What a rank keeps, and when it exchanges, is as in that method. All of these keep 16 bits.
    """

    keeps_half: ClassVar[bool] = True

    def base(self) -> Method:
        """Return the method that this one quantises, with the same limits and waits."""
        raise NotImplementedError

    def exchanges_each(self, asked: bool | None) -> bool:
        """Tell whether gradients are exchanged after each micro-batch."""
        return self.base().exchanges_each(asked)

    def kept_share(self, world: MethodContext) -> dict[str, float]:
        """Return the share of parameters, gradients and optimizer state that a rank keeps."""
        return self.base().kept_share(world)

    def host_s(self, world: MethodContext, recompute: str) -> float:
        """Return what hooks around modules or units take."""
        return self.base().host_s(world, recompute)

    def state(self, world: MethodContext, *, each: bool) -> MethodState:
        """Return how wide a rank keeps them."""
        return self.base().state(world, each=each)
