"""NCCL: takes the algorithm and protocol that its tuner expects to be fastest."""

from __future__ import annotations

__all__ = ["ALGORITHMS", "PROTOCOLS", "SUMMARY", "choose", "hop_factor"]

SUMMARY = "NCCL: the algorithm with the least predicted time, rings and trees"

ALGORITHMS = None
"""Every algorithm by name, also those that NCCL lacks: what if it had them."""

PROTOCOLS = True


def choose(collective: str, size_bytes: float, ranks: int, /) -> str | None:
    """Return None: NCCL compares predicted times (src/graph/tuning.cc), and so does a cluster.

    `perfsim.libraries.nccl_tuner.NcclTuner` is NCCL's own prediction by version.

    Examples
    --------
    >>> choose("all_reduce", 1e6, 8)
    """
    return None


def hop_factor(collective: str, algorithm: str, /) -> float:
    """Return 1: the links' latencies were fitted on NCCL."""
    return 1.0
