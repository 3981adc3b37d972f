"""Time messages between neighbouring hosts, to name a host that is slower than the others.

A collective takes as long as its slowest host and cannot tell which that is. The hosts stand in a
ring, and every neighbouring pair exchanges two messages there and back, which one clock times.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from perfsim.calibrate.measure.job import Backend
from perfsim.calibrate.measure.stability import quartiles, slow_hosts, smallest_difference_s
from perfsim.network.network_file import Noticed

__all__ = ["host_ring", "measure_pairs"]

SMALL_PAIR_BYTES, LARGE_PAIR_BYTES = 1024, 256 * 2**10
"""A message whose latency shows, and one whose rate does on slow links. No source: chosen."""
LARGER, SHORT_S = 16, 0.005
"""Where the large message takes less than `SHORT_S` there and back, one `LARGER` times as large is
tried too: on fast links the rate shows there. No source: chosen."""

_Pair = tuple[int, int]


def host_ring(hosts: Sequence[str]) -> list[list[_Pair]]:
    """Return the pairs of ranks that time messages at the same moment, moment by moment.

    Neighbours on the ring of hosts are paired, once for each rank of a host. No rank is in two
    pairs of one moment. Fewer than three hosts have nothing to be compared with.

    Parameters
    ----------
    hosts : host name of each rank; every host holds as many

    Examples
    --------
    >>> host_ring(["a", "b", "c", "d"])
    [[(0, 1), (2, 3)], [(1, 2), (0, 3)]]
    >>> host_ring(["a", "b", "c"])
    [[(0, 1)], [(1, 2)], [(0, 2)]]
    >>> host_ring(["a", "a", "b", "b"])
    []
    """
    by_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    nodes = list(by_host.values())
    count = len(nodes)
    if count < 3:
        return []
    even = [(at, at + 1) for at in range(0, count - 1, 2)]
    odd = [(at, (at + 1) % count) for at in range(1, count - count % 2, 2)]
    last = [(count - 1, 0)] if count % 2 else []
    moments = []
    for local in range(len(nodes[0])):
        for links in (even, odd, last):
            pairs = [(nodes[one][local], nodes[other][local]) for one, other in links]
            if pairs:
                moments.append([(min(pair), max(pair)) for pair in pairs])
    return moments


def measure_pairs(
    wire: Backend, hosts: Sequence[str], largest_bytes: int, budget_s: float, when: str
) -> list[Noticed]:
    """Time messages between neighbours and return which hosts are slow; all ranks call it.

    Parameters
    ----------
    wire : carries the messages
    hosts : host name of each rank
    largest_bytes : of the sweep's messages; none is larger here [B]
    budget_s : of one message of one pair [s]
    when : "at first" or "at last", for the sentences
    """
    moments = host_ring(hosts)
    if not moments:
        return []
    least_s = smallest_difference_s(wire.device)

    def slow(size: int) -> tuple[list[Noticed], float]:
        times = _pair_times(wire, hosts, moments, size, budget_s)
        return slow_hosts(times, size, when, least_s), median(times.values())

    size = min(LARGE_PAIR_BYTES, largest_bytes)
    noticed, usual_s = slow(size)
    while not noticed and usual_s < SHORT_S and size * LARGER <= largest_bytes:
        size *= LARGER
        noticed, usual_s = slow(size)
    # A host that is slow with large messages need not be named twice.
    return noticed or slow(SMALL_PAIR_BYTES)[0]


def _pair_times(
    wire: Backend,
    hosts: Sequence[str],
    moments: Sequence[Sequence[_Pair]],
    size_bytes: int,
    budget_s: float,
) -> dict[tuple[str, str], float]:
    """Return the time of a message there and back by the two hosts, of their slowest ranks [s]."""
    own: dict[_Pair, float] = {}
    for pairs in moments:
        wire.wait_for_all()
        for pair in pairs:
            if wire.rank in pair:
                trips = wire.round_trips(sum(pair) - wire.rank, size_bytes, budget_s)
                if trips:
                    # The lower quartile: what disturbs a message only makes it longer.
                    own[pair] = quartiles(trips)[0]
    times: dict[tuple[str, str], float] = {}
    for word in wire.gather(own):
        for (first, other), time_s in word.items():
            ends = hosts[first], hosts[other]
            between = min(ends), max(ends)
            times[between] = max(times.get(between, 0.0), time_s)
    return times
