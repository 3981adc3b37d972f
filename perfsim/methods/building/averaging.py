"""Fewer exchanges: local iterations, averaging of parameters, and averaging with neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError, shown
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    LOCAL_ITERATION,
    ONE_GROUP,
    Compute,
    Group,
    Job,
    JobStage,
    MethodContext,
    PassPoint,
    Round,
    Send,
)

__all__ = [
    "INNER_ITERATION",
    "NOTHING_BETWEEN",
    "averages",
    "by_schedule",
    "by_share",
    "fp32_bytes",
    "from_first_ranks",
    "merged_bucket",
    "neighbours",
    "periodic",
    "with_neighbours",
]

INNER_ITERATION = -2
"""Number of an iteration in which only the ranks of a node or site exchange."""

NOTHING_BETWEEN = f"{ONE_GROUP}; between two exchanges nothing is sent, not inside a node either"
"""What methods say of both levels (`Method.levels`) whose workers are ranks."""


def periodic(interval: int, between: int = LOCAL_ITERATION) -> list[Round]:
    """Return ``interval`` - 1 iterations between two exchanges and one that exchanges, numbered 0.

    ``between`` is the number of the former, where something is exchanged in them too.

    Examples
    --------
    >>> [(one.iterations, one.count) for one in periodic(4)]
    [((-1,), 3), ((0,), 1)]
    """
    exchange = Round((0,), 1)
    return [Round((between,), interval - 1), exchange] if interval > 1 else [exchange]


def by_share(shares: Mapping[int, float]) -> list[Round]:
    """Return a round for each kind of iteration that occurs, weighted by its share or number.

    Examples
    --------
    >>> [(one.iterations, one.count) for one in by_share({1: 0.25, 2: 0.0, 0: 0.75})]
    [((1,), 0.25), ((0,), 0.75)]
    """
    return [Round((kind,), share) for kind, share in shares.items() if share > 0]


def by_schedule(schedule: str) -> list[Round]:
    """Return the rounds of a schedule "interval x iterations, interval x iterations, ...".

    Examples
    --------
    >>> [(one.iterations, one.count) for one in by_schedule("4x1000,8x400")]
    [((-1,), 1100.0), ((0,), 300.0)]

    Raises
    ------
    RequestError
        If a part is not two whole numbers of at least 1.
    """
    iterations = exchanges = 0.0
    for part in schedule.split(","):
        interval, cross, count = part.strip().partition("x")
        if not cross or not interval.isdecimal() or not count.isdecimal():
            raise _bad_schedule(schedule)
        if int(interval) < 1 or int(count) < 1:
            raise _bad_schedule(schedule)
        iterations += int(count)
        exchanges += int(count) / int(interval)
    exchange = Round((0,), exchanges)
    if exchanges == iterations:
        return [exchange]
    return [Round((LOCAL_ITERATION,), iterations - exchanges), exchange]


def _bad_schedule(schedule: str) -> RequestError:
    return RequestError(
        "options.schedule",
        f"{shown(schedule)} is not allowed: give intervals and iterations, as in 4x1000,8x500.",
    )


def _copied_to_buffer(bucket: Bucket) -> Compute:
    """Return the copy of parameters into a flat buffer after the update, and the division by P.

    This takes 4 passes in 2 launches. A single tensor is only divided. Parameters are then views
    of the buffer, so that nothing is copied back.
    """
    passes = 4 if len(bucket.gradients) > 1 else 2
    kernel = elementwise(bucket.elements, passes, passes // 2)
    return Compute((kernel,), "compress", earliest="update")


def fp32_bytes(gradients: Sequence[Gradient]) -> float:
    """Return the bytes of one fp32 value a parameter, whatever type gradients are sent in.

    Examples
    --------
    >>> fp32_bytes([Gradient("w", (250,), 0.0, 0, value_bytes=2.0)])
    1000.0
    """
    return float(FLOAT * sum(gradient.elements for gradient in gradients))


def averages(buckets: Sequence[Bucket]) -> list[Job]:
    """Return the jobs that average all parameters after the update.

    The next forward pass waits for them.
    """
    return [
        Job(
            f"average {number}",
            (
                _copied_to_buffer(bucket),
                Send("all_reduce", fp32_bytes(bucket.gradients), earliest="update"),
            ),
            PassPoint("backward"),
            PassPoint("next"),
        )
        for number, bucket in enumerate(buckets)
    ]


def merged_bucket(buckets: Sequence[Bucket]) -> Bucket:
    """Merge all buckets into one, which is ready when the last of them is."""
    return Bucket.of([gradient for bucket in buckets for gradient in bucket.gradients])


def neighbours(
    size_bytes: float, world: MethodContext, peers: int = 1, *, nodes: bool = False
) -> Send:
    """Return the exchange of a message with ``peers`` ranks at once, by all ranks at the same time.

    Two peers are a rank's neighbours on a ring. A single peer is another rank in every iteration,
    at distances that double. A rank waits for these peers only. Distances count ranks, or nodes
    where one rank of each node exchanges (``nodes``).

    Ranks are numbered node by node. Each node has as many outgoing messages as a rank has peers:
    with one peer, a single rank of the node at a time exchanges outside; on a ring, those at the
    two ends do. These messages share one NIC. Messages inside a node run in parallel with them.

    Examples
    --------
    >>> neighbours(1e6, MethodContext(8, gpus_per_node=4), peers=2).group
    'leaders'
    >>> neighbours(1e6, MethodContext(4, gpus_per_node=4)).group
    'all'
    """
    group: Group = "leaders" if world.nodes > 1 else "all"
    count = world.nodes if nodes else world.ranks
    distances = (1,) if peers > 1 else tuple(2**turn for turn in range((count - 1).bit_length()))
    return Send(
        "send_recv",
        peers * size_bytes,
        group=group,
        distances=distances,
        by_turns=peers == 1,
        between="nodes" if nodes else "ranks",
    )


def with_neighbours(
    bucket: Bucket, world: MethodContext, peers: int = 1, *, hierarchical: bool = False
) -> list[JobStage]:
    """Return Bluefog's neighbour all-reduce of one fused buffer.

    Tensors are copied into the buffer (2 passes) on the stream of the sends. A single tensor is
    not copied. After the backward pass each peer's values are copied out (2 passes, unless there
    is a single tensor), weighted and added. The first peer's weight takes 2 passes; each addition
    takes 3, that of the rank's own values included.

    ``hierarchical``: the buffer is summed in the node, exchanged by its first rank and broadcast
    in the node. The node's own sum is also copied out, and the mean divided by the node's ranks (2
    passes each).

    Examples
    --------
    >>> one = Bucket.of([Gradient("w", (1000,), 0.0, 0)])
    >>> send, mean = with_neighbours(one, MethodContext(4), peers=2)
    >>> send.size_bytes, mean.kernels[0].moved_bytes  # 2 + 3 + 3 passes of 4000 B
    (8000.0, 32000.0)
    """
    n, tensors = bucket.elements, len(bucket.gradients)
    fused = int(tensors > 1)
    size = fp32_bytes(bucket.gradients)
    exchange: list[JobStage] = [neighbours(size, world, peers, nodes=hierarchical)]
    extra_copies = fused * peers
    if hierarchical:
        inside = Send("all_reduce", size, group="node")
        exchange = [inside, *exchange, Send("broadcast", size, group="node")]
        extra_copies += fused + 1
    mean = elementwise(n, 3 * peers + 2 + 2 * extra_copies, (peers + 1 + extra_copies) * tensors)
    unpack = Compute((mean,), "decompress", earliest="backward")
    if not fused:
        return [*exchange, unpack]
    pack = Compute((elementwise(n, 2, tensors),), "compress", stream="communication")
    return [pack, *exchange, unpack]


def from_first_ranks(bucket: Bucket, world: MethodContext) -> list[JobStage]:
    """Return Bagua's hierarchical averaging of one buffer with all nodes.

    The node's first rank takes the mean, copies it (2 passes) and all-reduces it with the other
    first ranks. After the backward pass it is copied back (2 passes) and broadcast in the node.
    """
    size, copy = fp32_bytes(bucket.gradients), (elementwise(bucket.elements, 2),)
    several = world.gpus_per_node > 1
    stages: list[JobStage] = [Send("reduce", size, group="node")] if several else []
    stages.append(Compute(copy, "compress", stream="communication"))
    if world.nodes > 1:
        stages.append(Send("all_reduce", size, group="leaders"))
    stages.append(Compute(copy, "decompress", stream="communication", earliest="backward"))
    if several:
        stages.append(Send("broadcast", size, earliest="backward", group="node"))
    return stages
