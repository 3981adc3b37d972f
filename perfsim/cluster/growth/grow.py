"""The law by which a collective's measured curves grow, by library and collective."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfsim.cluster.growth.chain import binomial, chain
from perfsim.cluster.growth.choice import TunedChoice, tune
from perfsim.cluster.growth.communicator import communicator, figures_of
from perfsim.cluster.growth.doubling import doubling, open_mpi
from perfsim.cluster.growth.exchange import exchange
from perfsim.cluster.growth.reach import reach
from perfsim.cluster.growth.ring import ROUNDS, ring
from perfsim.cluster.growth.sibling import FLOOR_BYTES, floor
from perfsim.cluster.growth.tuned import TunedAllReduce, wire_bytes
from perfsim.cluster.measured import Curve
from perfsim.library.nccl_record import Figures

__all__ = ["Growth", "call_seconds", "inside_share"]


class Growth:
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

    def __init__(self, curves: Sequence[Curve], choice: TunedChoice | None = None) -> None:
        if not curves:
            raise ValueError("no curve to grow from")
        self.curves = sorted(curves, key=lambda curve: curve.ranks)
        self.last = last = self.curves[-1]
        self.call_s = call_seconds(last)
        tuned = (
            last.library == "nccl"
            and last.collective == "all_reduce"
            and not last.algorithm
            and last.nodes > 1
        )
        self.tuned: TunedAllReduce | None = None
        if tuned:
            none_s = _without_levels(self.curves, self.call_s)
            self.tuned = TunedAllReduce(self.curves, choice or tune(self.curves), none_s)

    def measured(self, ranks: int, nodes: int) -> Curve | None:
        """Return the curve of exactly these ranks and nodes, None where none was measured."""
        same = (curve for curve in self.curves if (curve.ranks, curve.nodes) == (ranks, nodes))
        return next(same, None)

    def seconds(self, ranks: int, nodes: int, size_bytes: float) -> float:
        """Return the time over ``ranks`` on ``nodes`` [s]; for measured ranks the curve's own.

        Beside them the law's time bears what its own at the measured ranks misses: in full there,
        none of it at twice or half the ranks or at the next that were measured.
        """
        there = self.measured(ranks, nodes)
        if there is not None:
            return reach(there, size_bytes)
        return self._law(ranks, nodes, size_bytes) * self._missed(ranks, size_bytes)

    def _law(self, ranks: int, nodes: int, size_bytes: float) -> float:
        if self.tuned is not None:
            return self.tuned.seconds(ranks, nodes, size_bytes)
        return self._plain(ranks, nodes, size_bytes)

    def _missed(self, ranks: int, size_bytes: float) -> float:
        """Return measured over the law's time at the nearest ranks, faded by the distance."""
        fewer = [one for one in self.curves if one.ranks < ranks][-1:]
        more = [one for one in self.curves if one.ranks > ranks][:1]
        reached = 1.0
        if fewer and more:
            reached = min(reached, math.log2(more[0].ranks / fewer[0].ranks))
        missed = 0.0
        for one in (*fewer, *more):
            share = 1.0 - abs(math.log2(ranks / one.ranks)) / reached
            if share > 0.0:
                law_s = self._law(one.ranks, one.nodes, size_bytes)
                missed += share * math.log(reach(one, size_bytes) / law_s)
        return math.exp(missed)

    def choice(self, ranks: int, nodes: int, size_bytes: float) -> str:
        """Return in words what NCCL's tuner takes there; "" where no tuner plays a part."""
        if self.tuned is None:
            return ""
        algorithm, protocol = self.tuned.choice.label(ranks, nodes, size_bytes)
        kind = "LL or LL128" if protocol == "low_latency" else "Simple"
        return f" as NCCL's tuner takes it: {algorithm}, {kind}"

    def _plain(self, ranks: int, nodes: int, size_bytes: float) -> float:
        last, call_s = self.last, self.call_s
        if last.collective in ROUNDS:
            return self._round(ranks, nodes, size_bytes)
        if last.collective == "send_recv":
            return reach(last, size_bytes)
        if last.collective == "all_to_all":
            shown = self._shown(ranks, size_bytes)
            return exchange(shown, size_bytes, ranks, shown.gpus_per_node, call_s)
        assert last.collective in ("broadcast", "reduce")
        if last.library == "nccl":
            return chain(last, size_bytes, ranks, call_s)
        return binomial(last, size_bytes, _rounds(last.ranks), _rounds(ranks))

    def _round(self, ranks: int, nodes: int, size_bytes: float) -> float:
        """Return the time of an all_reduce, reduce_scatter or all_gather [s]."""
        last = self._shown(ranks, size_bytes)
        if last.library == "mpi" and last.collective == "all_reduce":
            # Held to doubling or to a ring it is that at every size; else as its rules choose.
            if last.algorithm == "doubling":
                return doubling(last, size_bytes, ranks, nodes)
            if last.algorithm != "ring":
                return open_mpi(last, size_bytes, ranks, nodes)
        if last.algorithm == "tree" and last.nodes > 1:
            return self._levels(nodes, size_bytes)
        return ring(last, size_bytes, ranks, self.call_s)

    def _shown(self, ranks: int, size_bytes: float) -> Curve:
        """Return the curve of the most ranks that reaches messages as large a rank, n / P."""
        share = size_bytes / ranks
        reaching = (one for one in reversed(self.curves) if share <= one.size_bytes[-1] / one.ranks)
        return next(reaching, self.last)

    def _levels(self, nodes: int, size_bytes: float) -> float:
        """Return the time of a tree held fixed: its levels by log2 N, its bytes as they are."""
        last = self.last
        wire_s = size_bytes * last.seconds[-1] / last.size_bytes[-1]
        above_s = max(reach(last, size_bytes) - wire_s - self.call_s, 0.0)
        more = wire_bytes(nodes, size_bytes) / wire_bytes(last.nodes, size_bytes)
        levels = math.log2(nodes) / math.log2(last.nodes)
        return self.call_s + more * wire_s + above_s * levels


def _without_levels(curves: Sequence[Curve], call_s: float) -> float:
    """Return what small all-reduces cost at no level, T = call + level log2 N [s].

    Told by two or more numbers of nodes (relative least squares); else NCCL's figures, ``call_s``.
    """
    small = [curve for curve in curves if curve.size_bytes[0] <= FLOOR_BYTES]
    points = [(math.log2(curve.nodes), floor(curve)) for curve in small]
    if len({level for level, _ in points}) < 2:
        return call_s
    weights = [1.0 / time_s**2 for _, time_s in points]
    total = sum(weights)
    level = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_s = sum(w * t for w, (_, t) in zip(weights, points, strict=True)) / total
    across = sum(w * (x - level) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    along = sum(w * (x - level) * (t - mean_s) for w, (x, t) in zip(weights, points, strict=True))
    least_s = min(time_s for _, time_s in points)
    return min(max(mean_s - along / across * level, 0.0), least_s)


def _rounds(ranks: int) -> int:
    return max(1, math.ceil(math.log2(ranks)))


def call_seconds(curve: Curve) -> float:
    """Return what a call costs without a hop between nodes [s]: 0 for gloo and Open MPI.

    NCCL's own figures: the base latency of LL, and for several nodes the chain inside a node and
    back, 2 (g-1) hops.

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, baseLat and hwLat.
    """
    if curve.library != "nccl":
        return 0.0
    known, intra = _figures(curve)
    base_us = known.base_us["tree"][0]
    if curve.nodes > 1:
        base_us += 2.0 * (curve.gpus_per_node - 1) * known.hop_us[intra]["tree"][0]
    return base_us * 1e-6


def inside_share(curve: Curve) -> float:
    """Return a ring's hop inside a node over a tree's hop between nodes, by NCCL's figures (LL)."""
    known, intra = _figures(curve)
    return known.hop_us[intra]["ring"][0] / known.hop_us["net"]["tree"][0]


def _figures(curve: Curve) -> tuple[Figures, str]:
    of = communicator(curve)
    return figures_of(of)[1], of.intra
