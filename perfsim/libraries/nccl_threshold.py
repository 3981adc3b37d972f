"""How NCCL 2.4 chooses: a tree up to a threshold in bytes, and LL for few bytes a thread."""

from __future__ import annotations

import math

__all__ = ["line_s", "low_latency_bytes", "tree_threshold_bytes"]

RING_BYTES_PER_US = 5000.0
"""What 2.4 takes a ring to move: a channel over NVLink, in all without it (MB/s)."""

RING_HOP_US, TREE_INTRA_HOP_US, TREE_INTER_HOP_US = 6.0, 4.0, 15.0
LEAST_THREADS, MOST_THREADS = 64, 256
BYTES_BEFORE_MORE = 8
"""Bytes a thread before 2.4 takes more threads, then more channels."""


def line_s(
    algorithm: str, size_bytes: float, ranks: int, nodes: int, nvlink: bool, channels: int
) -> float | None:
    """Return the time that 2.4's threshold takes a ring or a tree to need [s].

    ring 6 us (P-1) + n / R, tree 15 us log2 N + 4 us (P/N - 1) + n / T, where R is 5 GB/s a channel
    (5 in all without NVLink) and T 3/4 of it (2/3 without NVLink; 3/2 on two nodes with it). None
    where 2.4 takes no tree: on one node, and where its latency is not below the ring's.

    References
    ----------
    github.com/NVIDIA/nccl v2.4.7-1, src/init.cc, ncclTreeThreshold.

    Examples
    --------
    >>> round(line_s("ring", 50e3, 8, 8, False, 1) * 1e6)  # 6 x 7 + 50000 / 5000
    52
    """
    ring_rate = RING_BYTES_PER_US * (channels if nvlink else 1)
    ring_us = RING_HOP_US * (ranks - 1)
    if algorithm == "ring":
        return (ring_us + size_bytes / ring_rate) * 1e-6
    share = 2 / 3 if not nvlink else 3 / 2 if nodes == 2 else 3 / 4
    tree_us = TREE_INTER_HOP_US * math.log2(nodes) + TREE_INTRA_HOP_US * (ranks // nodes - 1)
    if nodes < 2 or ring_us <= tree_us:
        return None
    return (tree_us + size_bytes / (ring_rate * share)) * 1e-6


def tree_threshold_bytes(ranks: int, nodes: int, nvlink: bool, channels: int) -> float:
    """Return the size up to which 2.4 reduces over trees: where the two lines of `line_s` meet [B].

    R T / (R - T) (ring latency - tree latency); 0 where no tree is taken, infinite where the tree
    is taken to be the faster at every size.

    Examples
    --------
    >>> tree_threshold_bytes(8, 8, nvlink=False, channels=1)  # latencies 42 and 45 us
    0.0
    >>> tree_threshold_bytes(32, 8, nvlink=False, channels=1)  # 10000 x (186 - 57)
    1290000.0
    >>> tree_threshold_bytes(16, 2, nvlink=True, channels=2)
    inf
    """
    at_zero, at_one = (
        [line_s(name, size, ranks, nodes, nvlink, channels) for name in ("ring", "tree")]
        for size in (0.0, 1e12)
    )
    if at_zero[1] is None or at_one[1] is None or at_zero[0] is None or at_one[0] is None:
        return 0.0
    gain_s = at_zero[0] - at_zero[1]
    loss_s_per_byte = ((at_one[1] - at_zero[1]) - (at_one[0] - at_zero[0])) / 1e12
    return math.inf if loss_s_per_byte <= 0 else round(gain_s / loss_s_per_byte, 3)


def low_latency_bytes(
    algorithm: str, size_bytes: float, ranks: int, nodes: int, channels: int, capability: int
) -> float:
    """Return the size up to which 2.4 sends a message of this size by LL [B].

    channels x threads x chunks x 64 B (32 B before Volta), twice that on several nodes, four times
    for trees; as many threads (64 to 256) and channels as 8 B a thread and chunk need. A ring has
    one chunk a rank.

    References
    ----------
    github.com/NVIDIA/nccl v2.4.7-1, src/enqueue.cc, getKernelInfo; src/init.cc,
    ncclThreadThreshold.

    Examples
    --------
    >>> low_latency_bytes("ring", 1e6, 8, 2, channels=2, capability=70)  # 2 x 256 x 8 x 128
    524288.0
    """
    chunks = 1 if algorithm == "tree" else ranks
    threads = LEAST_THREADS
    while math.ceil(size_bytes / (threads * chunks)) > BYTES_BEFORE_MORE and threads < MOST_THREADS:
        threads *= 2
    used = min(channels, max(1, math.ceil(size_bytes / (threads * chunks * BYTES_BEFORE_MORE))))
    a_thread = (64 if capability >= 70 else 32) * (2 if nodes > 1 else 1)
    return float(used * threads * chunks * a_thread * (4 if algorithm == "tree" else 1))
