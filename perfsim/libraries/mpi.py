"""Open MPI: picks by message size and number of ranks, by fixed rules of its `tuned` component."""

from __future__ import annotations

from perfsim.libraries import Library

__all__ = ["LIBRARY", "choose", "hop_factor"]

MPI_ALGORITHMS = {
    "all_reduce": ("ring", "doubling", "halving_doubling"),
    "reduce_scatter": ("ring", "halving"),
    "all_gather": ("ring", "neighbor", "doubling", "bruck"),
    "broadcast": ("chain", "binomial", "split_binary"),
    "reduce": ("chain", "binomial"),
    "all_to_all": ("pairwise", "bruck"),
    "send_recv": ("direct",),
    "push": ("sharded", "one_way"),
    "pull": ("sharded", "one_way"),
}

# Thresholds of ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, v3.1.0 and v4.0.5 alike [B].
ALL_REDUCE_DOUBLING_BELOW = 10000
ALL_GATHER_SMALL_BELOW = 50000
BROADCAST_BINOMIAL_BELOW, BROADCAST_SPLIT_BELOW = 2048, 370728
BROADCAST_LINE = (1.6134e-6, 2.1102)
"""Fewer ranks than a n + b, or 13 and more, go down a chain (its segments differ)."""
SPLIT_RANKS_BELOW = 13
REDUCE_SMALL_JOB_RANKS, REDUCE_SMALL_JOB_BELOW, REDUCE_BINOMIAL_BELOW = 8, 20480, 2048
REDUCE_LINE = (0.6016 / 1024.0, 1.3496)
"""More ranks than a n + b reduce over a binomial tree."""
SCATTER_SMALL, SCATTER_LARGE, SCATTER_LINE = 12 * 1024, 256 * 1024, (0.0012, 8.0)
ALL_TO_ALL_SMALL_BLOCK, ALL_TO_ALL_RANKS = 200, 12


def choose(collective: str, size_bytes: float, ranks: int, /) -> str | None:
    """Return what Open MPI's fixed rules take.

    Segmented forms count as the unsegmented ones; a linear reduce of few bytes as the binomial
    tree, its 32 KiB binary tree as the chain, the linear all-to-all as the pairwise one. Of its
    two reduce-scatters the rule is MPI_Reduce_scatter's. The rules of 4.1 differ.

    References
    ----------
    github.com/open-mpi/ompi, ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, v4.0.5 (v3.1.0 has
    the same thresholds), coll_tuned_component.c for those of all-to-all.

    Examples
    --------
    >>> choose("all_reduce", 9999, 8), choose("all_reduce", 10000, 8)
    ('doubling', 'ring')
    >>> [choose("broadcast", size, 32) for size in (1e3, 1e5, 25e6)]
    ['binomial', 'split_binary', 'chain']
    """
    rule = _RULES.get(collective)
    return MPI_ALGORITHMS[collective][0] if rule is None else rule(size_bytes, ranks)


def hop_factor(collective: str, algorithm: str, /) -> float:
    """Return 1: a step costs one message."""
    return 1.0


def _all_reduce(size_bytes: float, ranks: int) -> str:
    # The other branch asks for more elements than ranks, which 10000 B of gradients have up to
    # 2500 ranks; beyond, Open MPI reduces and broadcasts.
    return "doubling" if size_bytes < ALL_REDUCE_DOUBLING_BELOW else "ring"


def _reduce_scatter(size_bytes: float, ranks: int) -> str:
    slope, offset = SCATTER_LINE
    even = _is_power_of_two(ranks) and size_bytes <= SCATTER_LARGE
    halving = size_bytes <= SCATTER_SMALL or even or ranks >= slope * size_bytes + offset
    return "halving" if halving else "ring"


def _all_gather(size_bytes: float, ranks: int) -> str:
    if ranks == 2:
        return "ring"
    if size_bytes < ALL_GATHER_SMALL_BELOW:
        return "doubling" if _is_power_of_two(ranks) else "bruck"
    return "ring" if ranks % 2 else "neighbor"


def _broadcast(size_bytes: float, ranks: int) -> str:
    if size_bytes < BROADCAST_BINOMIAL_BELOW:
        return "binomial"
    if size_bytes < BROADCAST_SPLIT_BELOW:
        return "split_binary"
    slope, offset = BROADCAST_LINE
    few = SPLIT_RANKS_BELOW > ranks >= slope * size_bytes + offset
    return "split_binary" if few else "chain"


def _reduce(size_bytes: float, ranks: int) -> str:
    small = REDUCE_SMALL_JOB_BELOW if ranks < REDUCE_SMALL_JOB_RANKS else REDUCE_BINOMIAL_BELOW
    slope, offset = REDUCE_LINE
    binomial = size_bytes < small or ranks > slope * size_bytes + offset
    return "binomial" if binomial else "chain"


def _all_to_all(size_bytes: float, ranks: int) -> str:
    small = size_bytes / ranks < ALL_TO_ALL_SMALL_BLOCK and ranks > ALL_TO_ALL_RANKS
    return "bruck" if small else "pairwise"


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0


_RULES = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_to_all": _all_to_all,
}

LIBRARY = Library(
    name="mpi",
    summary="Open MPI 3.0 to 4.0: by size and ranks, the fixed rules of coll_tuned",
    has=MPI_ALGORITHMS,
    choose=choose,
    hop_factor=hop_factor,
    protocols=False,
    # One cluster of 32 RTX 2080 Ti, measured with both: 1.5 times as long as NCCL over 10 Gbit/s
    # Ethernet, 3.5 times over InfiniBand, for the gradients of ResNet-50 in buckets of 25 MiB
    # (networks hkbu-2080ti-10gbe, -ib100, and the same with -mpi; dexhunter/allreduce-experiments).
    own_links=True,
)
