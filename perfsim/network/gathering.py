"""all_gather and reduce_scatter from the all_reduces of the same cluster.

An all_reduce over a ring is a reduce_scatter and an all_gather: 2 (P-1) steps of n / P bytes, where
either of these takes P-1. So the part of its time that grows with the bytes halves. What does not
grow with them stays: the call, and from some size on the start of another protocol.

Between nodes a small all_reduce goes over the log2 N levels of a tree, and the other two go round a
ring. There an all_reduce shows a bound: NCCL takes a tree because it beats the ring, so the ring
takes at least as long, and either half of it at least half. By how much it takes longer the law of
the node types tells (`NodeLaw`), where the data sheet of the nodes is known.

In the formulas T(n) is the all_reduce, F its time for a small message, L that of a small all_gather
or reduce_scatter, P ranks and N nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from statistics import median
from typing import NamedTuple

from perfsim.libraries import library
from perfsim.network.node_law import (
    IN_NETWORK,
    STEP_BYTES,
    CallTime,
    NodeFacts,
    NodeLaw,
    held_as,
)
from perfsim.network.scaling_laws import (
    FLOOR_BYTES,
    SMALL_BYTES,
    ScalingLaw,
    inside_share,
    small_message_seconds,
)

__all__ = [
    "Gathering",
    "NodeSheet",
    "gathering_floor",
    "growing_share",
    "keep_and_share",
    "with_own_floor",
]

_HALF = 0.5
"""What a ring all_gather sends of what a ring all_reduce sends: P-1 of 2 (P-1) steps."""

_SMALLEST_BYTES = 8.0
"""A message so small that it shows the latency alone [B]."""

_LARGE_BYTES = 2.0**23
"""Messages from this size on show a rate, as in `perfsim.network.node_extrapolation` [B]. Half or
twice as much moves the median and the 90th percentile of ``other_collective`` by at most 0.1 and
0.2 points. So does half or twice of `STEP_BYTES`."""

_FULL_RATE_BYTES = 2.0**34
"""A message at which every algorithm of the law runs at its full rate, under Simple [B]."""

_BEYOND_BOUND = 0.5
"""How far, in logs, a time between nodes goes from its bound to what the law of node types says.

Source: half way, the middle of a wide optimum; ``other_collective``, each cluster judged by a law
fitted without its family. From the bound alone (0) to the law alone (1), in quarters, the median of
all rows is 5.6, 5.6, 5.8, 5.9 and 6.2 %, their 90th percentile 36, 31, 29, 28 and 30 %. The two
families between nodes that state a data sheet have 51, 47, 38, 41 and 42 % (Polaris) and 44, 37,
31, 25 and 21 % (Sophia) at the 90th percentile."""

_ADDED_BY = ("nvls", "nvls_tree", IN_NETWORK)
"""Algorithms of all_reduce whose sums are made in switches: no half of them is an all_gather."""


class NodeSheet(NamedTuple):
    """The data sheet of a cluster's nodes and the law of node types that reads it."""

    facts: NodeFacts
    law: NodeLaw


def growing_share(seconds: Callable[[float], float], size_bytes: float) -> float:
    """Return which share of a time grows with the bytes: n T'(n) / T(n), between 0 and 1.

    The slope is that from half to twice the size, in logs. From a quarter to four times it moves
    the median and the 90th percentile of ``other_collective`` by 0.2 points; from the size to twice
    it alone by 0.5 and 0.9.

    Examples
    --------
    >>> growing_share(lambda size: 3.0, 1e6), growing_share(lambda size: 2e-9 * size, 1e6)
    (0.0, 1.0)
    """
    rise = math.log(seconds(2.0 * size_bytes) / seconds(size_bytes / 2.0))
    return min(max(rise / math.log(4.0), 0.0), 1.0)


def keep_and_share(time_s: float, grows: float, kept: float, share: float) -> float:
    """Return T ((1 - g) kept + g share): what stays and what grows, each with a factor [s].

    Parameters
    ----------
    time_s, grows : T, and g as in `growing_share`
    kept : factor on what does not grow with the bytes: L / F
    share : factor on what does: 1/2 of a ring

    Examples
    --------
    >>> keep_and_share(8.0, 0.25, 1.0, 0.5)
    7.0
    """
    return time_s * ((1.0 - grows) * kept + grows * share)


def with_own_floor(time_s: float, floor_s: float, latency_s: float) -> float:
    """Return L + (T - F) / 2, one half of an all-reduce with a floor of its own [s].

    Examples
    --------
    >>> with_own_floor(10.0, 2.0, 3.0)
    7.0
    """
    return latency_s + max(time_s - floor_s, 0.0) / 2.0


def gathering_floor(floor_s: float, ranks: int, nodes: int, call_s: float, inside: float) -> float:
    """Return what a small all_gather or reduce_scatter takes, by all_reduce and NCCL's figures [s].

    On one node it is the all-reduce's own floor. Between nodes it is once round the ring,
    call + (N-1) alpha + (P-N) alpha ``inside``, with alpha the hop of the all-reduce's tree,
    (F - call) / (2 log2 N).

    Parameters
    ----------
    floor_s : F, a small all-reduce on the same ranks
    ranks, nodes : P and N
    call_s : what a call costs without a hop between nodes
    inside : hop of a ring inside a node over hop of a tree between nodes, as NCCL's figures say

    Examples
    --------
    >>> round(gathering_floor(7e-5, 32, 8, 1e-5, 0.1) * 1e6)
    104
    """
    if nodes == 1:
        return floor_s
    alpha_s = max(floor_s - call_s, 0.0) / (2.0 * math.log2(nodes))
    return call_s + ((nodes - 1) + (ranks - nodes) * inside) * alpha_s


class Gathering:
    """An all_gather or reduce_scatter on a cluster whose all_reduces were measured.

    Parameters
    ----------
    whole : scaling law of the all_reduces
    collective : all_gather or reduce_scatter
    ranks, nodes : P and N
    sheet : of the nodes, of use to NCCL and RCCL alone; None where nobody states it
    latency_s : L where it was measured; None takes it from the all_reduce

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.5 (Rabenseifner's decomposition).

    Notes
    -----
    Errors on 1,250 all_gathers and reduce_scatters of 11 families of clusters, with the law of node
    types fitted without each: 5.8 % in the median and 29 % at the 90th percentile with L measured
    (25 % without Polaris), 8.6 and 50 % without L. ``L + (T - F) / 2`` everywhere misses by 8.4 and
    32 %, 11.6 and 50 %. On 8 to 368 B200, which are none of these, held to NVLS, rings or switches
    that add between nodes, 16 GiB miss by 0 to 10 %, where half of the all_reduce misses by 0 to 52
    (together_b200_use3a).
    """

    def __init__(
        self,
        whole: ScalingLaw,
        collective: str,
        ranks: int,
        nodes: int,
        sheet: NodeSheet | None = None,
        latency_s: float | None = None,
    ) -> None:
        self.whole, self.collective, self.ranks, self.nodes = whole, collective, ranks, nodes
        self.sheet = sheet if library(whole.last.library).compares_times else None
        self._measured_s = latency_s
        there = whole.measured(ranks, nodes)
        self.measured, self.nearest = there is not None, there or whole.last
        self.shows_latency = self.nearest.size_bytes[0] <= SMALL_BYTES
        self._held = held_as(self.nearest.algorithm)
        self.floor_s = self._whole_s(FLOOR_BYTES) if there is None else small_message_seconds(there)

    @cached_property
    def latency_s(self) -> float:
        """What a small message takes, L [s].

        On one node that is F, as launching bounds both where one process drives all GPUs, which
        single-node measurements mostly do. Between nodes the law of node types knows how a small
        message of this collective stands to one of all_reduce; without a data sheet NCCL's figures
        of a hop tell (`gathering_floor`).
        """
        if self._measured_s is not None:
            return self._measured_s
        if self.sheet is not None and self.nodes > 1:
            own = self._by_sheet(self.collective, _SMALLEST_BYTES).seconds
            return self.floor_s * own / self._by_sheet("all_reduce", _SMALLEST_BYTES).seconds
        inside = inside_share(self.nearest)
        return gathering_floor(self.floor_s, self.ranks, self.nodes, self.whole.call_s, inside)

    def seconds(self, size_bytes: float) -> float:
        """Return the time of a message [s].

        - On one node: T ((1 - g) L / F + g / 2), with g the share that grows with the bytes.
        - Between nodes with a data sheet at least L, call + (T - call) / 2 and what the NICs take,
          and half way, in logs, from there to what the law of node types says if that is longer.
        - Between nodes without one L + (T - F) / 2.
        - Where switches add in the all_reduce, the law's ratio of bytes takes the place of 1/2.
        - A curve that starts above `SMALL_BYTES` shows no F: L / F counts as 1 on one node. Between
          nodes the time is T / 2, or what the NICs take; below the curve it is the law's, on the
          level of the large messages, as nothing measured tells a latency there.

        Parameters
        ----------
        size_bytes : n, the blocks of all ranks
        """
        if self.nodes == 1:
            kept = self.latency_s / self.floor_s if self.shows_latency else 1.0
            grows = growing_share(self._whole_s, size_bytes)
            return keep_and_share(self._whole_s(size_bytes), grows, kept, self._share(size_bytes))
        if not self.shows_latency:
            return self._of_rates_s(size_bytes)
        if self.sheet is None:
            return with_own_floor(self._whole_s(size_bytes), self.floor_s, self.latency_s)
        bound_s = self._bound_s(size_bytes)
        by_law_s = self._levelled_s(size_bytes)
        if by_law_s is None or by_law_s <= bound_s:
            return bound_s
        return bound_s * math.pow(by_law_s / bound_s, _BEYOND_BOUND)

    def _of_rates_s(self, size_bytes: float) -> float:
        """Return the time by a curve of large messages alone, between nodes [s]."""
        if self.sheet is not None and size_bytes < self.nearest.size_bytes[0]:
            by_law_s = self._levelled_s(size_bytes)
            if by_law_s is not None:
                return max(by_law_s, self._by_nics_s(size_bytes))
        half_s = self._whole_s(size_bytes) * self._share(size_bytes)
        return max(half_s, self._by_nics_s(size_bytes))

    def _bound_s(self, size_bytes: float) -> float:
        """Return the least that a ring between nodes takes [s].

        The all_reduce was no slower than a ring, and no ring is faster than the nodes' NICs.
        """
        time_s, call_s = self._whole_s(size_bytes), self.whole.call_s
        half_s = call_s + max(time_s - call_s, 0.0) * self._share(size_bytes)
        return max(self.latency_s, half_s, self._by_nics_s(size_bytes))

    def _by_nics_s(self, size_bytes: float) -> float:
        """Return the least of a ring by the NICs' data sheet [s]; a tree of two nodes takes less.

        It is 0 without a data sheet, and where switches between nodes gather.
        """
        if self.sheet is None or self._held == IN_NETWORK:
            return 0.0
        facts, law = self.sheet
        return law.least_ring_s(facts, self.collective, self.ranks, self.nodes, size_bytes)

    def _share(self, size_bytes: float) -> float:
        """Return which share of the all_reduce's growing part this collective has."""
        if self.sheet is None:
            return _HALF
        added = self._by_sheet("all_reduce", size_bytes).algorithm in _ADDED_BY
        return self._share_of_added if added else _HALF

    @cached_property
    def _share_of_added(self) -> float:
        """Which share of a sum made in switches this collective takes, by the law, at full rate."""
        whole, own = (
            self._by_sheet(name, _FULL_RATE_BYTES) for name in ("all_reduce", self.collective)
        )
        share = (own.seconds - own.latency_s) / (whole.seconds - whole.latency_s)
        return max(share, _HALF)  # NCCL would else have taken a ring for the all_reduce

    def _levelled_s(self, size_bytes: float) -> float | None:
        """Return the law's time on the level of what is known; None if no large one is.

        Small messages put the law on the level of L, where one is known, large ones on that of the
        bound. Between them the level is straight in ln size, from where a step of the ring carries
        `STEP_BYTES`.
        """
        if self._large_level is None:
            return None
        start, end = self._level_ends
        place = min(max(math.log(size_bytes / start) / math.log(end / start), 0.0), 1.0)
        level = (1.0 - place) * self._small_level + place * self._large_level
        return self._by_sheet(self.collective, size_bytes).seconds * math.exp(level)

    @property
    def _level_ends(self) -> tuple[float, float]:
        start = STEP_BYTES * self.ranks
        return start, max(_LARGE_BYTES, 4.0 * start)

    @cached_property
    def _small_level(self) -> float:
        if not self.shows_latency and self._measured_s is None:
            return 0.0
        return math.log(self.latency_s / self._by_sheet(self.collective, _SMALLEST_BYTES).seconds)

    @cached_property
    def _large_level(self) -> float | None:
        large = [size for size in self.nearest.size_bytes if size >= self._level_ends[1]]
        known_s = self._bound_s if self.shows_latency else self._of_rates_s
        levels = [
            math.log(known_s(size) / self._by_sheet(self.collective, size).seconds)
            for size in large
        ]
        return median(levels) if levels else None

    def _whole_s(self, size_bytes: float) -> float:
        return self.whole.seconds(self.ranks, self.nodes, size_bytes)

    def _by_sheet(self, collective: str, size_bytes: float) -> CallTime:
        assert self.sheet is not None
        facts, law = self.sheet
        call = law.call(facts, collective, self.ranks, self.nodes, size_bytes, self._held)
        # What no law is of counts as NCCL's own choice.
        call = call or law.call(facts, collective, self.ranks, self.nodes, size_bytes)
        assert call is not None  # a ring runs anywhere
        return call
