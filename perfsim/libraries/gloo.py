"""gloo: rings whose steps wait for the receiver, and trees of whole messages."""

from __future__ import annotations

from perfsim.libraries import Library

__all__ = ["LIBRARY", "choose", "hop_factor"]

GLOO_ALGORITHMS = {
    "all_reduce": ("ring", "halving_doubling"),
    "reduce_scatter": ("halving",),
    "all_gather": ("ring",),
    "broadcast": ("binomial",),
    "reduce": ("ring_gather",),
    "all_to_all": ("pairwise",),
    "send_recv": ("direct",),
    "push": ("sharded", "one_way"),
    "pull": ("sharded", "one_way"),
}
"""The first is what gloo takes: gloo/allreduce.cc, ring unless asked for another, which PyTorch
does not; gloo/allgather.cc, broadcast.cc, reduce.cc, alltoall.cc; reduce_scatter.h. Commit
cc441984208d. Its bcube is left out; halving_doubling is the older interface's."""

GLOO_RUNS_AS = {"reduce_scatter": "all_reduce"}
"""PyTorch all-reduces a copy of the whole message, of which each rank keeps its block
(pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, reduce_scatter_tensor_coalesced;
of 2.13 four ranks send 1.5 times the message each, 2 (P-1)/P). Horovod takes gloo's halving."""

ROUND_TRIPS = {("all_reduce", "ring"), ("all_gather", "ring"), ("reduce", "ring_gather")}


def choose(collective: str, size_bytes: float, ranks: int, /) -> str | None:
    """Return gloo's one choice for a collective, whatever the size.

    Examples
    --------
    >>> choose("all_reduce", 1e3, 8), choose("broadcast", 1e9, 8)
    ('ring', 'binomial')
    """
    return GLOO_ALGORITHMS[collective][0]


def hop_factor(collective: str, algorithm: str, /) -> float:
    """Return the latencies a step costs: 2 in rings, whose receivers post one step at a time.

    A sender may send only after the notice that the receiver is ready for it has come
    (gloo/transport/tcp/pair.cc, Pair::send and Pair::recv); a ring's rank gives that notice when
    it has finished an earlier step. So a hop between nodes holds up every step, also where most
    steps of a chunk stay inside a node. In a broadcast or all-to-all all notices go out at the
    start.

    Examples
    --------
    >>> hop_factor("all_reduce", "ring"), hop_factor("broadcast", "binomial")
    (2.0, 1.0)
    """
    return 2.0 if (collective, algorithm) in ROUND_TRIPS else 1.0


LIBRARY = Library(
    name="gloo",
    summary="gloo: rings at a round trip a step, binomial broadcast of whole messages",
    has=GLOO_ALGORITHMS,
    choose=choose,
    hop_factor=hop_factor,
    protocols=False,
    runs_as=GLOO_RUNS_AS,
)
