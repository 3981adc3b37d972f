"""Scaling laws: how the measured time of a collective grows with ranks, nodes and message size.

A law takes curves measured on some numbers of nodes (`CollectiveCurve`) and gives the time on
another number. Each follows from how the algorithm sends its messages:

- ring (all_reduce, reduce_scatter, all_gather): a step with m bytes takes what it took before;
- chain, binomial tree, recursive doubling, all-to-all: hops, rounds or peers are counted;
- NCCL's all_reduce: a ring or a double binary tree as NCCL's tuner takes them (`TunedAllReduce`).

`ScalingLaw` picks the law of a set of curves. In the formulas P are ranks, N nodes, g GPUs a node,
n the bytes of the message and T(n) the measured time; a dash (P') marks what is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from perfsim.libraries import library
from perfsim.libraries.nccl_versions import VersionFigures
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import NVLS_GENERATIONS, NVLS_GPUS
from perfsim.network.tuner_fit import (
    CHANNELS,
    Label,
    TunedChoice,
    bus_bandwidth,
    communicator,
    fit_tuner,
    tuner_figures,
)
from perfsim.sums import sum_in_order

__all__ = [
    "DOUBLING_SMALL_BYTES",
    "FLOOR_BYTES",
    "SMALL_BYTES",
    "TREE_RATE_SHARE",
    "LinesByNodes",
    "MeasuredLine",
    "ScalingLaw",
    "TunedAllReduce",
    "call_seconds",
    "extrapolate",
    "inside_share",
    "least_seconds",
    "longer_chain",
    "longer_ring",
    "more_binomial_rounds",
    "more_doubling_rounds",
    "more_peers",
    "open_mpi_all_reduce",
    "peers_call_seconds",
    "read_lines_at",
    "ring_step",
    "simple_call_seconds",
    "simple_seconds",
    "small_message_seconds",
    "tree_nic_bytes",
    "without_spikes",
]


# Other message sizes


SMALL_BYTES = 65536.0
"""The time of a message up to this size is a latency. A curve that starts above shows none.

No source: chosen as in `Latency.stretched`; half or twice as much moves no error of a time
extrapolated to more nodes by 0.1 points."""


def extrapolate(curve: CollectiveCurve, size_bytes: float) -> float:
    """Return the time of a message of any size, inside a measured curve or beyond it [s].

    Inside the curve it is `CollectiveCurve.at`. Below the smallest size there are two cases. Where
    that size is at most `SMALL_BYTES` its time is a latency, which stays. Else the line through the
    first two points goes on down, to no less than the least that a message takes (`least_seconds`);
    its beta is at least 0 and at most the first point's time a byte. Above the largest size the
    line alpha + beta n through the last two points goes on; its beta is at most the last point's
    time a byte and at least half of that.

    Examples
    --------
    >>> sizes, times = (1e3, 1e6, 2e6), (1e-5, 1e-3, 2e-3)
    >>> curve = CollectiveCurve("all_reduce", 2, 2, 1, sizes, times, "measured", "x")
    >>> [round(extrapolate(curve, size) * 1e6) for size in (8.0, 2e6, 4e6)]
    [10, 2000, 4000]
    >>> large = CollectiveCurve("all_to_all", 2, 2, 1, (4e6, 8e6), (3e-3, 5e-3), "measured", "x")
    >>> round(extrapolate(large, 1e6) * 1e6)  # 1 ms beside 2 ms for every 4 MB
    1500
    """
    sizes, seconds = curve.size_bytes, curve.seconds
    if size_bytes <= sizes[0]:
        return seconds[0] if sizes[0] <= SMALL_BYTES else _below(curve, size_bytes)
    if size_bytes <= sizes[-1]:
        return curve.at(size_bytes)
    most = seconds[-1] / sizes[-1]
    rise = most
    if len(sizes) > 1:
        rise = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
    # A last step that is flat or falls is noise or a switch: bytes never come free beyond it.
    slope = min(max(rise, most / 2.0), most)
    return seconds[-1] + slope * (size_bytes - sizes[-1])


def without_spikes(curve: CollectiveCurve) -> CollectiveCurve:
    """Return a curve without sizes that take longer than both of their neighbours.

    Such a time becomes the larger of the neighbours'. What takes longer than less and than more
    bytes is a disturbed measurement, or a hump one size wide that sits elsewhere on other numbers
    of nodes: neither is to be multiplied. A time that rises or falls with size over two points or
    more stays as it was measured, and so do valleys. Fitted knots lie further apart, so that what
    stands out there is wider: they stay as well.

    The rule has no number. With it, 90th percentiles of times extrapolated to twice, four times and
    more nodes are 31.4, 36.2 and 36.7 % where they were 32.3, 37.0 and 37.9; no family of clusters
    loses more than 0.2 points. To cut valleys too makes them 33.6, 38.6 and 46.9 %; to cut humps of
    two sizes raises twice the nodes from two, 36.9 to 39.0 % (318 curves; ``growth_errors.py``).

    Examples
    --------
    >>> times = (1.0, 5.0, 3.0, 2.0, 4.0)
    >>> curve = CollectiveCurve("reduce", 2, 2, 1, (1, 2, 4, 8, 16), times, "measured", "here")
    >>> without_spikes(curve).seconds
    (1.0, 3.0, 3.0, 2.0, 4.0)
    """
    times = curve.seconds
    if curve.kind != "measured" or len(times) < 3:
        return curve
    inner = [
        min(time_s, max(before, after))
        for before, time_s, after in zip(times, times[1:], times[2:], strict=False)
    ]
    cut = (times[0], *inner, times[-1])
    return curve if cut == times else replace(curve, seconds=cut)


def _below(curve: CollectiveCurve, size_bytes: float) -> float:
    sizes, seconds = curve.size_bytes, curve.seconds
    most = seconds[0] / sizes[0]
    rise = most
    if len(sizes) > 1:
        rise = (seconds[1] - seconds[0]) / (sizes[1] - sizes[0])
    line_s = seconds[0] - min(max(rise, 0.0), most) * (sizes[0] - size_bytes)
    return max(line_s, min(least_seconds(curve), seconds[0]))


# Rings: all_reduce, reduce_scatter, all_gather


MIN_STEP_S = 1e-7
"""The shortest step of a ring [s]: it keeps logarithms finite.

No source: chosen below every step that was measured."""

_ROUNDS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
"""How often each of these goes round the ring (Thakur, Rabenseifner & Gropp, IJHPCA 2005)."""


def ring_step(curve: CollectiveCurve, size_bytes: float, call_s: float) -> float:
    """Return what one step of a measured ring took [s]: (T(n) - call) / (rounds (P-1)).

    Parameters
    ----------
    curve : of an all_reduce, reduce_scatter or all_gather that went round a ring
    size_bytes : n, the whole message
    call_s : what the call costs without any step [s]

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4: P-1 steps of n / P a round.

    Examples
    --------
    >>> curve = CollectiveCurve("all_reduce", 4, 4, 1, (8.0, 1e6), (2e-5, 6e-4), "measured", "x")
    >>> round(ring_step(curve, 1e6, 0.0) * 1e6)
    100
    """
    steps = _ROUNDS[curve.collective] * (curve.ranks - 1)
    return max((extrapolate(curve, size_bytes) - call_s) / steps, MIN_STEP_S)


def longer_ring(curve: CollectiveCurve, size_bytes: float, ranks: int, call_s: float) -> float:
    """Return the time of the same ring over more ranks [s].

    call + rounds (P'-1) s(n / P'). A step s(m) with m bytes takes what it took in the measured
    ring of P, whose steps carried m bytes at n = m P.

    Parameters
    ----------
    curve : measured over P ranks
    size_bytes : n, the whole message over P' ranks
    ranks : P'
    call_s : as for `ring_step`

    Notes
    -----
    On Alps (GH200) a step of 1 MiB takes 69 to 74 us on 4, 8 and 16 nodes and one of 2 MiB 43 to
    46 us on 4 to 64; on Polaris (A100) all_gather steps agree within 20 % between 2, 8 and 128
    nodes. Two nodes of Alps are quicker (22 and 31 us).

    Examples
    --------
    >>> curve = CollectiveCurve("all_gather", 2, 2, 1, (1e3, 1e6), (1e-5, 1e-3), "measured", "x")
    >>> round(longer_ring(curve, 2e6, 4, 0.0) * 1e6)  # three steps of half a megabyte
    3000
    """
    whole = size_bytes * curve.ranks / ranks
    return call_s + _ROUNDS[curve.collective] * (ranks - 1) * ring_step(curve, whole, call_s)


# Broadcast and reduce: chains and binomial trees


def longer_chain(curve: CollectiveCurve, size_bytes: float, ranks: int, call_s: float) -> float:
    """Return the time of a pipelined broadcast or reduce over a longer chain [s].

    T(n) + (P'-P) hop, with hop = (T(0) - call) / (P-1). With each rank more, every chunk crosses
    one hop more. The rate stays that of the slowest hop.

    References
    ----------
    Chan, Heimlich, Purkayastha & van de Geijn, Concurrency and Computation 2007, pipelined
    broadcast: (P-2+c) (alpha + n beta / c) for c chunks.

    Examples
    --------
    >>> curve = CollectiveCurve("broadcast", 3, 3, 1, (8.0, 1e6), (2e-5, 1e-3), "measured", "x")
    >>> round(longer_chain(curve, 1e6, 5, 0.0) * 1e6)
    1020
    """
    hop_s = max(curve.seconds[0] - call_s, 0.0) / (curve.ranks - 1)
    return extrapolate(curve, size_bytes) + (ranks - curve.ranks) * hop_s


def more_binomial_rounds(
    curve: CollectiveCurve, size_bytes: float, rounds: float, more: float
) -> float:
    """Return the time of a binomial tree of ``more`` rounds; ``rounds`` were measured [s].

    T(n) more / rounds, as each round sends the whole message.

    References
    ----------
    Chan, Heimlich, Purkayastha & van de Geijn, Concurrency and Computation 2007:
    ceil(log2 P) (alpha + n beta).

    Examples
    --------
    >>> curve = CollectiveCurve("broadcast", 4, 4, 1, (8.0, 1e6), (2e-5, 1e-3), "measured", "x")
    >>> round(more_binomial_rounds(curve, 1e6, 2, 3) * 1e6)
    1500
    """
    return extrapolate(curve, size_bytes) * more / rounds


# Open MPI's all_reduce: recursive doubling, then a ring


DOUBLING_SMALL_BYTES = 10_000.0
"""Smaller all-reduces go by recursive doubling in Open MPI.

Source: its fixed rules, coll_tuned_decision_fixed.c, version 4.0."""

CALL_ROUNDS = 0.5
"""What an Open MPI call costs beside its rounds, in rounds: copies into and out of the work buffer.

Source: small all-reduces on 2, 4 and 8 nodes of three clusters of CPUs give 0.3 to 0.8 (6.6, 11.6
and 16.4 us; 78, 128 and 169 us; 32 and 50 us)."""


def more_doubling_rounds(
    curve: CollectiveCurve, size_bytes: float, ranks: int, nodes: int
) -> float:
    """Return the time of recursive doubling over more ranks [s].

    T(n) (call + log2 N') / (call + log2 N), with ``call`` in rounds (`CALL_ROUNDS`) and N nodes.
    Rounds inside a node are left out: they take 0.5 us where those between nodes take 30 (1 GbE).
    On one node N counts its ranks.

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4.5: log2 P rounds of the whole message.

    Examples
    --------
    >>> curve = CollectiveCurve("all_reduce", 4, 4, 1, (8.0, 1e4), (2.5e-5, 5e-5), "measured", "x")
    >>> round(more_doubling_rounds(curve, 8.0, 16, 16) * 1e6)
    45
    """
    return (
        extrapolate(curve, size_bytes)
        * _doubling_rounds(ranks, nodes)
        / _doubling_rounds(curve.ranks, curve.nodes)
    )


def _doubling_rounds(ranks: int, nodes: int) -> float:
    return CALL_ROUNDS + math.ceil(math.log2(nodes if nodes > 1 else ranks))


def open_mpi_all_reduce(curve: CollectiveCurve, size_bytes: float, ranks: int, nodes: int) -> float:
    """Return the time of Open MPI's all-reduce over more ranks [s].

    Its fixed rules for sums take recursive doubling below 10 kB and a ring from there on.

    Examples
    --------
    >>> curve = CollectiveCurve("all_reduce", 2, 2, 1, (8.0, 1e6), (1e-5, 1e-3), "measured", "x")
    >>> [round(open_mpi_all_reduce(curve, size, 8, 8) * 1e6) for size in (8.0, 4e6)]
    [23, 7000]
    """
    if size_bytes < DOUBLING_SMALL_BYTES:
        return more_doubling_rounds(curve, size_bytes, ranks, nodes)
    first_ring = next(
        (size for size in curve.size_bytes if size >= DOUBLING_SMALL_BYTES), curve.size_bytes[-1]
    )
    if (
        size_bytes / ranks >= first_ring / curve.ranks
        or curve.size_bytes[0] >= DOUBLING_SMALL_BYTES
    ):
        return longer_ring(curve, size_bytes, ranks, 0.0)
    # The curve shows no step so short; a round of doubling that exchanges as many bytes does.
    round_s = extrapolate(curve, size_bytes / ranks) / _doubling_rounds(curve.ranks, curve.nodes)
    steps = _ROUNDS["all_reduce"] * (ranks - 1)
    return steps * min(round_s, ring_step(curve, first_ring, 0.0))


# all_to_all


def more_peers(
    curve: CollectiveCurve, size_bytes: float, ranks: int, gpus_per_node: int, call_s: float
) -> float:
    """Return the time of an all-to-all over more nodes [s].

    call + (P'-g) e(n / P'). Here e(m) is what one of the P-g peers on other nodes cost for m
    bytes, (T(n) - call) / (P-g) at n = m P. On one node all P-1 others are peers.

    Parameters
    ----------
    curve : an all_to_all measured over P ranks, g a node
    size_bytes : n, what one rank sends in all
    ranks, gpus_per_node : P' and g
    call_s : what the call costs without any of these peers [s] (`peers_call_seconds`)

    Notes
    -----
    Blocks to GPUs of the same node cross no NIC and hide behind those that do. On Polaris over
    TCP small messages take 77 us on 8 ranks, 441 us on 32 and 8.24 ms on 512: 16 us a peer.

    Examples
    --------
    >>> curve = CollectiveCurve("all_to_all", 4, 2, 2, (1e3, 1e6), (1e-5, 1e-3), "measured", "x")
    >>> round(more_peers(curve, 2e6, 8, 2, 0.0) * 1e6)  # six peers of a quarter megabyte
    3000
    """
    before = _peers(curve.ranks, curve.nodes, curve.gpus_per_node)
    after = ranks - (gpus_per_node if curve.nodes > 1 else 1)
    whole = size_bytes * curve.ranks / ranks
    return call_s + after / before * max(extrapolate(curve, whole) - call_s, 0.0)


def _peers(ranks: int, nodes: int, gpus_per_node: int) -> int:
    return ranks - (gpus_per_node if nodes > 1 else 1)


# Small messages


FLOOR_BYTES = 1024.0
"""Up to this size an all-reduce takes its floor.

No source: chosen; half or twice as much moves errors of extrapolated times by 0.1 points in the
median and 0.3 at the 90th percentile."""


def small_message_seconds(curve: CollectiveCurve) -> float:
    """Return what a small message takes [s]: the median of the times up to 1 KiB.

    Examples
    --------
    >>> sizes, times = (8.0, 64.0, 1e6), (3e-5, 2e-5, 1e-3)
    >>> small_message_seconds(CollectiveCurve("all_reduce", 2, 2, 1, sizes, times, "measured", "x"))
    3e-05
    """
    small = sorted(
        seconds
        for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True)
        if size <= FLOOR_BYTES
    )
    return small[len(small) // 2] if small else curve.seconds[0]


# NCCL's all_reduce: ring or tree as its tuner takes them


MeasuredLine = Sequence[tuple[float, float]]
"""(log of the size, log of the cost) as measured, sizes rising."""

LinesByNodes = Mapping[int, MeasuredLine]
"""Number of nodes -> what was measured on so many."""

_ROUNDED_LOG_SIZE = 0.01
"""A size so little outside a line, in log size, counts as on it: sizes are rounded.

No source: chosen; half or twice as much moves no error of an extrapolated time by 0.1 points
(``profiles/build/growth_errors.py --sensitivity``)."""

_FADE_LOG_SIZE = math.log(2.0)
"""So far past a line's end, in log size, the next line has taken over.

No source: chosen as one doubling, the usual grid of measured sizes. Without it no error of a time
extrapolated to more nodes moves by 0.1 points, but one node more may take 2.2 times as long
(Polaris over TCP, 16 MiB, 17 nodes); with twice as much, errors grow by up to 1.4 points."""


def read_lines_at(
    own: LinesByNodes, other: LinesByNodes, log_size: float, slope: float, wire_s_per_byte: float
) -> float | None:
    """Return the log cost of a message at a log size, None where no line is known.

    The first line that holds the size gives it. Lines come in this order: the label's own before
    those of the other protocol, and more nodes before fewer. Within a doubling past its end a line
    fades into the next, so that no step shows. A size that no line holds is read from the nearest
    end:

    - above it the cost grows with ``slope``, to at most what the label's larger sizes cost;
    - below it the cost is the first point's, less what the missing bytes take on the wire;
    - between the two labels' lines of the same nodes it is at most the line that joins them.

    Parameters
    ----------
    own, other : lines of the label, and of the same algorithm with the other protocols
    log_size : log of the size
    slope : by which the log cost grows with the log size above the largest
    wire_s_per_byte : of the cost, what a byte takes on the wire; 0 where it has no such part

    Examples
    --------
    >>> line = [(math.log(1e3), math.log(1e-5)), (math.log(1e5), math.log(1e-4))]
    >>> sizes = 1e4, 1e6, 10.0
    >>> [round(math.exp(read_lines_at({8: line}, {}, math.log(n), 1.0, 0.0)) * 1e6) for n in sizes]
    [32, 1000, 10]
    """
    lines = [points[nodes] for points in (own, other) for nodes in sorted(points, reverse=True)]
    if not lines:
        return None

    def from_line(first: int) -> float:
        if first == len(lines):
            return _beyond(own, other, log_size, slope, wire_s_per_byte)
        line = lines[first]
        away = _outside(line, log_size)
        if away <= _ROUNDED_LOG_SIZE:
            return _between(line, log_size)
        rest = from_line(first + 1)
        if away >= _FADE_LOG_SIZE:
            return rest
        (start, low), (_, high) = line[0], line[-1]
        edge = low if log_size < start else high + slope * away
        return edge + away / _FADE_LOG_SIZE * (rest - edge)

    return from_line(0)


def _beyond(
    own: LinesByNodes, other: LinesByNodes, log_size: float, slope: float, wire_s_per_byte: float
) -> float:
    line = min(
        (points[nodes] for points in (own, other) for nodes in sorted(points, reverse=True)),
        key=lambda line: _outside(line, log_size),
    )
    (start, low), (end, high) = line[0], line[-1]
    if log_size >= start:
        larger = (line[0][1] for line in own.values() if line[0][0] >= log_size)
        return min(high + slope * (log_size - end), *larger, math.inf)
    both = sorted(own.keys() & other.keys(), reverse=True)
    joined = (sorted((*own[nodes], *other[nodes])) for nodes in both)
    between = next(
        (_between(line, log_size) for line in joined if _outside(line, log_size) == 0.0), None
    )
    if between is not None:
        return min(low, between)
    less_s = wire_s_per_byte * (math.exp(start) - math.exp(log_size))
    return math.log(max(math.exp(low) - less_s, MIN_STEP_S))


def _outside(line: MeasuredLine, log_size: float) -> float:
    """Return how far outside a line a size lies, in log size."""
    return max(line[0][0] - log_size, log_size - line[-1][0], 0.0)


def _between(line: MeasuredLine, log_size: float) -> float:
    for (start, low), (end, high) in pairwise(line):
        if log_size <= end:
            return low + (high - low) * max(0.0, log_size - start) / (end - start)
    return line[-1][1]


_MIN_LEVEL_S = 1e-6
"""The shortest level of a tree between nodes [s]: it keeps logarithms finite.

No source: chosen below every level that was measured."""

_PIPELINED_SLOPE = 0.5
"""By which the log time of a tree's level grows with the log size, beyond what was measured.

Source: the optimum of a pipeline grows as the root of n (Chan et al. 2007: chunks
c = sqrt((P-2) n beta / alpha), time 2 sqrt(alpha n beta))."""

_FULL_BUFFERS_BYTES = CHANNELS * 4194304.0
"""A message that fills the buffers of every channel; larger ones make no level longer.

Source: NCCL_BUFFSIZE is 4 MiB a channel. What is beyond streams behind, at the wire's rate."""


TREE_RATE_SHARE = 0.73
"""Rate of a NIC in a tree of more than two nodes, over its rate in a ring, where switches inside
the nodes do not add (NVLS).

Source: between two that are not alike. NCCL's tuner counts on 0.92 (NVIDIA/nccl
src/graph/tuning.cc); B200 nodes with each algorithm forced reach 197 GB/s in a tree and 346 in a
ring on 4 nodes, 194 and 306 on 16: 0.57 to 0.63 (together_b200_use3a_tree and _ring, 16 GiB). It is
the geometric mean of 0.92 and 0.58. With 1 the 90th percentiles beyond four times the nodes, and
above 4 MiB at twice the nodes, are 41.3 and 36.3 % where they are 37.0 and 33.0; with 0.58 the
median beyond four times is 11.7 % where it is 10.4 (318 curves; ``growth_errors.py``)."""


def tree_nic_bytes(nodes: int, size_bytes: float) -> float:
    """Return what the busiest node's NICs carry each way for a double binary tree [B].

    On two nodes each tree is one edge with n / 2 up and n / 2 down: n together. On more, an inner
    node of one tree has two children and a parent, and is a leaf of the other: 2 n together.

    Examples
    --------
    >>> tree_nic_bytes(2, 1e6), tree_nic_bytes(8, 1e6)
    (1000000.0, 2000000.0)
    """
    return size_bytes * (1.0 if nodes == 2 else 2.0)


class TunedAllReduce:
    """NCCL's all-reduce on a cluster that was measured at some numbers of nodes, at any number.

    Each measured time counts for the algorithm and protocol (label) that NCCL's tuner takes there.
    From a ring follows the time of a step by its message n / P. From a tree follows the time of a
    level, (T - call - wire) / log2 N, by n. At another number of nodes 2 (P-1) steps or log2 N
    levels are added up, of the label that the tuner takes there.

    Parameters
    ----------
    curves : all-reduces on two or more nodes, all with the same GPUs a node
    choice : the cluster's tuner
    call_s : what a call costs without any hop between nodes [s]; a tree's under Simple costs
        `simple_call_seconds` more
    """

    def __init__(
        self, curves: Sequence[CollectiveCurve], choice: TunedChoice, call_s: float
    ) -> None:
        self.curves = sorted(curves, key=lambda curve: curve.nodes)
        self.choice, self.call_s = choice, call_s
        self.simple_call_s = call_s + simple_call_seconds(self.curves[-1])
        # These curves may show the wire to carry more than the tuner of an earlier fit says.
        shown = bus_bandwidth(self.curves, choice.two_nodes > 1.0)
        self.wire_s_per_byte = 1e-9 / max(choice.bus_bandwidth, shown)
        # There NVLSTree serves large messages, and two nodes show less than the NICs' rate.
        new = choice.of.architecture in NVLS_GENERATIONS and choice.of.intra == "nvlink"
        self._switches_add = new and self.curves[-1].gpus_per_node >= NVLS_GPUS
        self.points: dict[Label, dict[int, list[tuple[float, float]]]] = {}
        for curve in self.curves:
            for size, label in zip(curve.size_bytes, choice.labels(curve), strict=True):
                of_label = self.points.setdefault(label, {}).setdefault(curve.nodes, [])
                if label[0] == "ring":
                    cost = ring_step(curve, size, call_s)
                    of_label.append((math.log(size / curve.ranks), math.log(cost)))
                else:
                    of_label.append((math.log(size), math.log(self._level(label, curve, size))))

    def seconds(self, ranks: int, nodes: int, size_bytes: float) -> float:
        """Return the time over ``ranks`` on ``nodes`` [s]."""
        label = self.choice.label(ranks, nodes, size_bytes)
        time_s = self._ring if label[0] == "ring" else self._tree
        return time_s(label, ranks, nodes, size_bytes)

    def _ring(self, label: Label, ranks: int, nodes: int, size_bytes: float) -> float:
        steps = 2.0 * (ranks - 1)
        log_step = self._log_cost(label, size_bytes / ranks, 1.0, self.wire_s_per_byte)
        if log_step is None:
            last = self.curves[-1]
            log_step = math.log(ring_step(last, size_bytes * last.ranks / ranks, self.call_s))
        wire_s = steps / ranks * size_bytes * self.wire_s_per_byte
        return self.call_s + max(steps * math.exp(log_step), wire_s)

    def _tree(self, label: Label, ranks: int, nodes: int, size_bytes: float) -> float:
        # Where the curve shows no tree, what it shows is still an upper bound of a level.
        log_level = math.log(self._level(label, self.curves[-1], size_bytes))
        shown = (line[-1][0] for line in self.points.get(label, {}).values())
        full = max(_FULL_BUFFERS_BYTES, *map(math.exp, shown), 0.0)
        shown_log_level = self._log_cost(label, min(size_bytes, full), _PIPELINED_SLOPE, 0.0)
        if shown_log_level is not None:
            log_level = min(log_level, shown_log_level)
        levels_s = math.log2(nodes) * math.exp(log_level)
        return self._call_s(label) + self._wire_s(nodes, size_bytes) + levels_s

    def _call_s(self, label: Label) -> float:
        """Return what a tree costs without any hop between nodes [s]."""
        return self.simple_call_s if label[1] == "simple" else self.call_s

    def _level(self, label: Label, curve: CollectiveCurve, size_bytes: float) -> float:
        """Return what a level of a measured tree took [s]: no less than one of a small message."""
        rest_s = extrapolate(curve, size_bytes) - self._call_s(label)
        rest_s -= self._wire_s(curve.nodes, size_bytes)
        least_s = 0.0
        if curve.size_bytes[0] <= FLOOR_BYTES:
            least_s = min(small_message_seconds(curve), extrapolate(curve, size_bytes))
        return max(max(rest_s, least_s - self.call_s) / math.log2(curve.nodes), _MIN_LEVEL_S)

    def _wire_s(self, nodes: int, size_bytes: float) -> float:
        """Return what the bytes of a tree take on the busiest NIC [s]."""
        share = 1.0 if nodes == 2 or self._switches_add else TREE_RATE_SHARE
        return tree_nic_bytes(nodes, size_bytes) * self.wire_s_per_byte / share

    def _log_cost(
        self, label: Label, size_bytes: float, slope: float, wire_s_per_byte: float
    ) -> float | None:
        """Return the log of a label's step or level (see `read_lines_at`)."""
        other = (label[0], "simple" if label[1] == "low_latency" else "low_latency")
        own, others = self.points.get(label, {}), self.points.get(other, {})
        return read_lines_at(own, others, math.log(size_bytes), slope, wire_s_per_byte)


# The law of a set of curves


class ScalingLaw:
    """One collective of one cluster and library, measured at several numbers of ranks.

    Parameters
    ----------
    curves : of one collective, library, algorithm and protocol, with the same GPUs a node; or all
        on one node
    choice : NCCL's tuner on the cluster; None sets it from the curves

    Raises
    ------
    ValueError
        If there is no curve.
    """

    def __init__(
        self, curves: Sequence[CollectiveCurve], choice: TunedChoice | None = None
    ) -> None:
        if not curves:
            raise ValueError("no curve to grow from")
        self.curves = sorted(curves, key=lambda curve: curve.ranks)
        self.last = last = self.curves[-1]
        self._unspiked = [without_spikes(curve) for curve in self.curves]
        self.call_s = call_seconds(last)
        self._simple_s = simple_seconds(last)
        self._latency_shown = any(curve.size_bytes[0] <= SMALL_BYTES for curve in self.curves)
        tuned = (
            library(last.library).compares_times
            and last.collective == "all_reduce"
            and not last.algorithm
            and last.nodes > 1
        )
        self.tuned: TunedAllReduce | None = None
        if tuned:
            none_s = _without_levels(self._unspiked, self.call_s)
            self.tuned = TunedAllReduce(self._unspiked, choice or fit_tuner(self._unspiked), none_s)

    def measured(self, ranks: int, nodes: int) -> CollectiveCurve | None:
        """Return the curve of exactly these ranks and nodes, None where none was measured."""
        same = (curve for curve in self.curves if (curve.ranks, curve.nodes) == (ranks, nodes))
        return next(same, None)

    def seconds(self, ranks: int, nodes: int, size_bytes: float) -> float:
        """Return the time over ``ranks`` on ``nodes`` [s]; for measured ranks the curve's own.

        The law extrapolates the curves without their spikes (`without_spikes`). Near measured ranks
        its time is corrected by the factor that it misses there. The correction fades with the
        distance: it is gone at twice or half the ranks, or at the next ranks that were measured.
        Curves of large messages alone show no latency: a time by them is at least what NCCL's
        figures say (`least_seconds`).
        """
        there = self.measured(ranks, nodes)
        if there is not None:
            return extrapolate(there, size_bytes)
        seconds = self._law(ranks, nodes, size_bytes) * self._missed(ranks, size_bytes)
        return (
            seconds if self._latency_shown else max(seconds, least_seconds(self.last, ranks, nodes))
        )

    def _law(self, ranks: int, nodes: int, size_bytes: float) -> float:
        if self.tuned is not None:
            return self.tuned.seconds(ranks, nodes, size_bytes)
        return self._plain(ranks, nodes, size_bytes)

    def _missed(self, ranks: int, size_bytes: float) -> float:
        """Return measured time over the law's at the nearest ranks, faded by the distance."""
        fewer = [curve for curve in self.curves if curve.ranks < ranks][-1:]
        more = [curve for curve in self.curves if curve.ranks > ranks][:1]
        reached = 1.0
        if fewer and more:
            reached = min(reached, math.log2(more[0].ranks / fewer[0].ranks))
        missed = 0.0
        for curve in (*fewer, *more):
            share = 1.0 - abs(math.log2(ranks / curve.ranks)) / reached
            if share > 0.0:
                law_s = self._law(curve.ranks, curve.nodes, size_bytes)
                missed += share * math.log(extrapolate(curve, size_bytes) / law_s)
        return math.exp(missed)

    def choice(self, ranks: int, nodes: int, size_bytes: float) -> str:
        """Return in words what NCCL's tuner takes; "" where no tuner plays a part."""
        if self.tuned is None:
            return ""
        algorithm, protocol = self.tuned.choice.label(ranks, nodes, size_bytes)
        kind = "LL or LL128" if protocol == "low_latency" else "Simple"
        return f" as NCCL's tuner takes it: {algorithm}, {kind}"

    def _plain(self, ranks: int, nodes: int, size_bytes: float) -> float:
        last, call_s = self._unspiked[-1], self.call_s
        if last.collective in _ROUNDS:
            return self._round(ranks, nodes, size_bytes)
        if last.collective == "send_recv":
            return extrapolate(last, size_bytes)
        if last.collective == "all_to_all":
            shown = self._shown(ranks, size_bytes)
            if shown.nodes > 1:
                whole = size_bytes * shown.ranks / ranks
                call_s = peers_call_seconds(shown, whole, *self._simple_s)
            return more_peers(shown, size_bytes, ranks, shown.gpus_per_node, call_s)
        assert last.collective in ("broadcast", "reduce")
        if library(last.library).compares_times:
            return longer_chain(last, size_bytes, ranks, call_s)
        return more_binomial_rounds(last, size_bytes, _rounds(last.ranks), _rounds(ranks))

    def _round(self, ranks: int, nodes: int, size_bytes: float) -> float:
        """Return the time of an all_reduce, reduce_scatter or all_gather [s]."""
        last = self._shown(ranks, size_bytes)
        if last.library == "mpi" and last.collective == "all_reduce":
            # A run held to doubling or to a ring takes that at every size; else its rules choose.
            if last.algorithm == "doubling":
                return more_doubling_rounds(last, size_bytes, ranks, nodes)
            if last.algorithm != "ring":
                return open_mpi_all_reduce(last, size_bytes, ranks, nodes)
        if last.algorithm == "tree" and last.nodes > 1:
            return self._levels(nodes, size_bytes)
        return longer_ring(last, size_bytes, ranks, self.call_s)

    def _shown(self, ranks: int, size_bytes: float) -> CollectiveCurve:
        """Return the curve of the most ranks that reaches messages as large a rank, n / P."""
        share = size_bytes / ranks
        fewer = reversed(self._unspiked)
        reaching = (one for one in fewer if share <= one.size_bytes[-1] / one.ranks)
        return next(reaching, self._unspiked[-1])

    def _levels(self, nodes: int, size_bytes: float) -> float:
        """Return the time of a tree held fixed: its levels by log2 N, its bytes as they are."""
        last = self._unspiked[-1]
        wire_s = size_bytes * last.seconds[-1] / last.size_bytes[-1]
        above_s = max(extrapolate(last, size_bytes) - wire_s - self.call_s, 0.0)
        more = tree_nic_bytes(nodes, size_bytes) / tree_nic_bytes(last.nodes, size_bytes)
        levels = math.log2(nodes) / math.log2(last.nodes)
        return self.call_s + more * wire_s + above_s * levels


def _without_levels(curves: Sequence[CollectiveCurve], call_s: float) -> float:
    """Return ``call`` of small all-reduces, T = call + level log2 N [s].

    Curves on two or more numbers of nodes give it, by least squares of the relative error. With
    fewer it is ``call_s``, from NCCL's figures.
    """
    small = [curve for curve in curves if curve.size_bytes[0] <= FLOOR_BYTES]
    points = [(math.log2(curve.nodes), small_message_seconds(curve)) for curve in small]
    if len({level for level, _ in points}) < 2:
        return call_s
    weights = [1.0 / time_s**2 for _, time_s in points]
    total = sum_in_order(weights)
    level = sum_in_order(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_s = sum_in_order(w * t for w, (_, t) in zip(weights, points, strict=True)) / total
    across = sum_in_order(w * (x - level) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    along = sum_in_order(
        w * (x - level) * (t - mean_s) for w, (x, t) in zip(weights, points, strict=True)
    )
    least_s = min(time_s for _, time_s in points)
    return min(max(mean_s - along / across * level, 0.0), least_s)


def _rounds(ranks: int) -> int:
    return max(1, math.ceil(math.log2(ranks)))


# NCCL's own figures


def call_seconds(curve: CollectiveCurve) -> float:
    """Return what a call costs without a hop between nodes [s]: 0 for gloo and Open MPI.

    For NCCL and RCCL it is the base latency of LL; on several nodes the chain inside a node and
    back, 2 (g-1) hops, comes on top. The figures are NCCL's.

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, baseLat and hwLat.
    """
    if not library(curve.library).compares_times:
        return 0.0
    known, intra = _figures(curve)
    base_us = known.base_us["tree"][0]
    if curve.nodes > 1:
        base_us += 2.0 * (curve.gpus_per_node - 1) * known.hop_us[intra]["tree"][0]
    return base_us * 1e-6


def simple_seconds(curve: CollectiveCurve) -> tuple[float, float]:
    """Return what Simple takes to start, and for a hop inside a node, by NCCL's figures [s].

    They are the ring's, which agree among versions: those of a tree's hop are 28 or 4 us by
    version, which weighs a choice and is no time. Both are 0 for gloo and Open MPI.

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, baseLat and hwLat.
    """
    if not library(curve.library).compares_times:
        return 0.0, 0.0
    known, intra = _figures(curve)
    return known.base_us["ring"][2] * 1e-6, known.hop_us[intra]["ring"][2] * 1e-6


def simple_call_seconds(curve: CollectiveCurve) -> float:
    """Return by how much a call under Simple costs more than one under LL, before any network [s].

    Its start, and 2 (g-1) hops along the chain inside a node, cost more by NCCL's figures for a
    ring. Without it, what Simple costs inside a node counts as a level between nodes and is
    multiplied. Half or twice as much: 90th percentile from two nodes up to eight 33.1 and 30.9 %
    where it is 32.0 (39.2 with neither this nor `peers_call_seconds` nor `without_spikes`), and
    median beyond four times the nodes 10.7 and 10.2 where it is 10.4.

    Examples
    --------
    >>> times = (8.0,), (2e-5,)
    >>> curve = CollectiveCurve("all_reduce", 8, 2, 4, *times, "measured", "x", gpu="A100")
    >>> round(simple_call_seconds(curve) * 1e6, 1)  # 8.4 - 6.6 and six times 3.4 - 0.6
    18.6
    """
    if not library(curve.library).compares_times:
        return 0.0
    known, intra = _figures(curve)
    start_us, hop_us = known.base_us["ring"], known.hop_us[intra]["ring"]  # of LL, LL128, Simple
    hops = 2.0 * (curve.gpus_per_node - 1)
    return (start_us[2] - start_us[0] + hops * (hop_us[2] - hop_us[0])) * 1e-6


def peers_call_seconds(
    curve: CollectiveCurve, size_bytes: float, start_s: float, hop_s: float
) -> float:
    """Return what an all-to-all of several nodes costs without peers on other nodes [s].

    start + (g-1) hop, as NCCL sends and receives under Simple, to each peer inside a node too. But
    a peer on another node costs at least what the mean peer costs, (T(n) - start) / (P-1).

    Parameters
    ----------
    curve : an all_to_all over P ranks, g a node
    size_bytes : n, what one rank sends in all
    start_s, hop_s : as `simple_seconds` returns them [s]

    Notes
    -----
    All-to-alls of small messages inside one node take 16, 21 and 39 us on 2, 4 and 6 A100 with
    NVSwitch (12, 19 and 25 us by this formula), and 13 us on 2 RTX 2080 Ti (14). Half or twice the
    hop: median from two nodes up to eight 8.7 and 9.1 %, 90th percentile 33.4 and 31.8, where they
    are 8.1 and 32.0 %. Only one family of clusters has all-to-alls on several numbers of nodes.

    Examples
    --------
    >>> times = (8.0, 1e6), (5e-5, 1e-3)
    >>> curve = CollectiveCurve("all_to_all", 8, 2, 4, *times, "measured", "x", gpu="A100")
    >>> round(peers_call_seconds(curve, 8.0, *simple_seconds(curve)) * 1e6, 1)  # 8.4 + 3 x 3.4
    18.6
    """
    mean_peer_s = max(extrapolate(curve, size_bytes) - start_s, 0.0) / (curve.ranks - 1)
    return start_s + (curve.gpus_per_node - 1) * min(hop_s, mean_peer_s)


def least_seconds(
    curve: CollectiveCurve, ranks: int | None = None, nodes: int | None = None
) -> float:
    """Return what the smallest message takes by NCCL's figures for LL [s]; 0 for other libraries.

    It is the start of a call and its hops: for all_reduce those of a tree between nodes, or of a
    ring on one node; for collectives that go round once those of a ring; for all_to_all and
    send_recv a single hop. Real calls take longer, so it is a lower bound for a curve that was
    measured with large messages alone.

    Parameters
    ----------
    curve : says the collective, the library and the GPUs of a node
    ranks, nodes : those of the curve, unless given

    Examples
    --------
    >>> sizes, times = (4e6, 8e6), (3e-4, 6e-4)
    >>> large = CollectiveCurve("all_reduce", 16, 4, 4, sizes, times, "measured", "x")
    >>> round(least_seconds(large) * 1e6, 1), round(extrapolate(large, 8.0) * 1e6, 1)
    (30.4, 30.4)
    """
    if not library(curve.library).compares_times:
        return 0.0
    known, intra = _figures(curve)
    ranks, nodes = ranks or curve.ranks, nodes or curve.nodes
    inside, net = known.hop_us[intra], known.hop_us["net"]
    if curve.collective == "all_reduce" and nodes > 1:
        hops_us = (curve.gpus_per_node - 1) * inside["tree"][0] + math.log2(nodes) * net["tree"][0]
        return (known.base_us["tree"][0] + 2.0 * hops_us) * 1e-6
    if curve.collective in ("all_to_all", "send_recv"):
        hops_us = (net if nodes > 1 else inside)["ring"][0]
    else:
        around = (nodes - 1) * net["ring"][0] + (ranks - nodes) * inside["ring"][0]
        hops_us = _ROUNDS.get(curve.collective, 1) * around
    return (known.base_us["ring"][0] + hops_us) * 1e-6


def inside_share(curve: CollectiveCurve) -> float:
    """Return a ring's hop inside a node over a tree's between nodes, by NCCL's figures for LL."""
    known, intra = _figures(curve)
    return known.hop_us[intra]["ring"][0] / known.hop_us["net"]["tree"][0]


def _figures(curve: CollectiveCurve) -> tuple[VersionFigures, str]:
    of = communicator(curve)
    return tuner_figures(of)[1], of.intra
