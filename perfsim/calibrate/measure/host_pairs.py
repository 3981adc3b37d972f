"""Time messages between neighbouring hosts, to name a host that is slower than the others.

A collective takes as long as its slowest host and cannot tell which that is. The hosts stand in a
ring, and every neighbouring pair exchanges two messages there and back, which one clock times.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.calibrate.measure.job import Backend
from perfsim.calibrate.measure.stability import quartiles, slow_hosts
from perfsim.network.network_file import Noticed

__all__ = ["host_ring", "measure_pairs"]

SMALL_PAIR_BYTES, LARGE_PAIR_BYTES = 1024, 256 * 2**10
"""A message whose latency shows, and one whose rate does on links of up to some 10 Gbit/s.
No source: chosen."""
MIN_SMALL_DIFFERENCE_S = 20e-6
"""Small messages that differ by less than this say nothing of a host: switches of a data centre
differ by some microseconds. No source: chosen."""

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
    for size in (min(LARGE_PAIR_BYTES, largest_bytes), SMALL_PAIR_BYTES):
        own: dict[_Pair, float] = {}
        for pairs in moments:
            wire.wait_for_all()
            for pair in pairs:
                if wire.rank in pair:
                    trips = wire.round_trips(sum(pair) - wire.rank, size, budget_s)
                    if trips:
                        # The lower quartile: what disturbs a message only makes it longer.
                        own[pair] = quartiles(trips)[0]
        times = {pair: time_s for word in wire.gather(own) for pair, time_s in word.items()}
        noticed = _slow(times, hosts, size, when)
        if noticed:
            return noticed  # a host that is slow with one message need not be named twice
    return []


def _slow(
    times: dict[_Pair, float], hosts: Sequence[str], size_bytes: int, when: str
) -> list[Noticed]:
    """Return the slow hosts by times of ranks; two hosts are as slow as their slowest two ranks."""
    by_hosts: dict[tuple[str, str], float] = {}
    for (first, other), time_s in times.items():
        pair = hosts[first], hosts[other]
        by_hosts[pair] = max(by_hosts.get(pair, 0.0), time_s)
    if size_bytes <= SMALL_PAIR_BYTES:
        spread = max(by_hosts.values()) - min(by_hosts.values())
        if spread < MIN_SMALL_DIFFERENCE_S:
            return []
    return slow_hosts(by_hosts, size_bytes, when)
