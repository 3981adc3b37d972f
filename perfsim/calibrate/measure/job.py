"""The ranks of a job: which groups of them are measured, and what a library must be able to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perfsim.errors import RequestError

__all__ = ["MAX_ROUND_TRIPS", "MIN_ROUND_TRIPS", "Backend", "RankGroup", "rank_groups"]

MIN_ROUND_TRIPS, MAX_ROUND_TRIPS = 5, 25
"""Of one message between two ranks: enough for quartiles, and no more than they need.
No source: chosen."""


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that are measured together: ``nodes`` nodes of ``gpus_per_node`` ranks each."""

    ranks: tuple[int, ...]
    nodes: int
    gpus_per_node: int

    @property
    def name(self) -> str:
        """The shape in words.

        Examples
        --------
        >>> RankGroup((0, 4), 2, 1).name
        '2 ranks (2 x 1)'
        """
        return f"{len(self.ranks)} ranks ({self.nodes} x {self.gpus_per_node})"


def rank_groups(hosts: Sequence[str]) -> list[RankGroup]:
    """Return the groups of a job to measure, smallest first; rank 0 is in each.

    Inside the first node: two ranks, then all. Between nodes: all ranks of 2, 4, 8, ... nodes and
    of all nodes. Where nodes hold several ranks, one rank of each of two nodes comes on top: its
    messages share no NIC, which separates the NIC's own rate from its sharing.

    Parameters
    ----------
    hosts : host name of each rank, in order of ranks

    Raises
    ------
    RequestError
        If nodes hold different numbers of ranks.

    Examples
    --------
    >>> [group.name for group in rank_groups(["a"] * 4 + ["b"] * 4)]
    ['2 ranks (1 x 2)', '2 ranks (2 x 1)', '4 ranks (1 x 4)', '8 ranks (2 x 4)']
    >>> [group.name for group in rank_groups(["a", "b", "c"])]
    ['2 ranks (2 x 1)', '3 ranks (3 x 1)']
    """
    by_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    sizes = {host: len(ranks) for host, ranks in by_host.items()}
    if len(set(sizes.values())) > 1:
        smallest, largest = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        raise RequestError(
            "",
            f"{smallest} holds {sizes[smallest]} ranks and {largest} {sizes[largest]};"
            " start as many on every node.",
            source="calibrate network",
        )
    nodes = list(by_host.values())
    per_node = len(nodes[0])
    shapes = {(1, 2), (1, per_node)} if per_node > 1 else set()
    counts = [2**step for step in range(1, len(nodes).bit_length())]
    if len(nodes) > 1:
        shapes |= {(2, 1), *((count, per_node) for count in (*counts, len(nodes)))}
    ordered = sorted(shapes, key=lambda shape: (shape[0] * shape[1], shape[0]))
    return [
        RankGroup(tuple(sorted(rank for node in nodes[:count] for rank in node[:g])), count, g)
        for count, g in ordered
        if count <= len(nodes)
    ]


class Backend(Protocol):
    """A library that carries collectives between the ranks of this job.

    ``library`` is nccl, gloo or mpi, ``version`` what the library says of itself, ``software`` what
    drives it ("PyTorch 2.13.0"), ``device`` what holds the buffers ("NVIDIA H200", "cpu").
    """

    library: str
    version: str
    software: str
    device: str
    rank: int
    ranks: list[dict[str, Any]]

    def collectives(self) -> tuple[str, ...]:
        """Return the collectives that the library itself offers."""
        ...

    def held(self, collective: str) -> tuple[str, str]:
        """Return the algorithm and protocol that the user holds a collective to, "" for none."""
        ...

    def gather(self, word: Any) -> list[Any]:
        """Return every rank's word, in order of ranks; all ranks call it."""
        ...

    def wait_for_all(self) -> None:
        """Wait until all ranks of the job call it: without a limit and without loading the CPU."""
        ...

    def join(self, group: RankGroup) -> None:
        """Prepare a group; all ranks of the job call it, also those outside the group."""
        ...

    def run(self, collective: str, group: RankGroup, size_bytes: int, repeats: int) -> list[float]:
        """Run a collective some times; return the slowest rank's seconds of each repeat.

        All ranks of the group call it and get the same numbers. ``size_bytes`` counts the blocks
        of all ranks for all_gather, reduce_scatter and all_to_all, else one rank's buffer.
        """
        ...

    def round_trips(self, peer: int, size_bytes: int, budget_s: float) -> list[float]:
        """Send a message to another rank and back some times; both ranks call it.

        The lower rank gets the seconds of each round trip by its own clock, the other one none.
        It ends after ``budget_s`` seconds, but not before `MIN_ROUND_TRIPS`.
        """
        ...

    def greatest(self, group: RankGroup, seconds: float) -> float:
        """Return the greatest of the group's values, so that all ranks decide alike."""
        ...

    def waited_s(self, group: RankGroup) -> float:
        """Return how long a process has been ready without a core since the last call [s].

        It is that of the group's rank that waited most; all ranks of the group call it.
        """
        ...

    def store(self) -> Any:
        """Return a separate connection to the job's key-value store, None without a store."""
        ...

    def close(self) -> None:
        """Leave the job in good order."""
        ...
