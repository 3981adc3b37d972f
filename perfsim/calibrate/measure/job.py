"""Job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perfsim.errors import RequestError

__all__ = ["Backend", "RankGroup", "rank_groups"]


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
    """Return the groups of a job, smallest first; rank 0 is in each.

    Inside the first node: two ranks, then all. Between nodes, 2, 4, 8, ... and all of them: with
    all ranks of each node; where nodes hold several ranks also one of each of two nodes, whose
    messages share no NIC, so that the NIC's own rate and its sharing can be told apart.

    Parameters
    ----------
    hosts : of each rank in order of ranks, a word a node

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
    nodes: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        nodes.setdefault(host, []).append(rank)
    sizes = {host: len(ranks) for host, ranks in nodes.items()}
    if len(set(sizes.values())) > 1:
        least, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        raise RequestError(
            f"calibrate network: {least} holds {sizes[least]} ranks and {most} {sizes[most]};"
            " start as many on every node."
        )
    of_node = list(nodes.values())
    each = len(of_node[0])
    shapes = {(1, 2), (1, each)} if each > 1 else set()
    counts = [2**step for step in range(1, len(of_node).bit_length())]
    if len(of_node) > 1:
        shapes |= {(2, 1), *((count, each) for count in (*counts, len(of_node)))}
    ordered = sorted(shapes, key=lambda shape: (shape[0] * shape[1], shape[0]))
    return [
        RankGroup(tuple(sorted(rank for node in of_node[:count] for rank in node[:g])), count, g)
        for count, g in ordered
        if count <= len(of_node)
    ]


class Backend(Protocol):
    """A library that carries collectives between the ranks of this job.

    ``library`` is nccl, gloo or mpi, ``version`` as it states itself, ``device`` what holds the
    buffers ("NVIDIA H200", "cpu"), ``held`` the algorithm of all_reduce that the user forced, else
    "".
    """

    library: str
    version: str
    device: str
    held: str
    rank: int
    ranks: list[dict[str, Any]]

    def collectives(self) -> tuple[str, ...]:
        """Return the collectives that the library really has."""
        ...

    def gather(self, word: Any) -> list[Any]:
        """Return every rank's word, in order of ranks; all ranks call it."""
        ...

    def together(self) -> None:
        """Wait, however long and without loading the CPU, until all ranks of the job call it."""
        ...

    def join(self, group: RankGroup) -> None:
        """Make ready for a group; all ranks of the job call it, also those outside."""
        ...

    def run(self, collective: str, group: RankGroup, size_bytes: int, repeats: int) -> list[float]:
        """Run a collective some times; return the slowest rank's seconds of each repeat.

        All ranks of the group call it and get the same numbers. ``size_bytes`` are the blocks of
        all ranks for all_gather, reduce_scatter and all_to_all, else one rank's buffer.
        """
        ...

    def agree(self, group: RankGroup, seconds: float) -> float:
        """Return the greatest of the group's values, so that all ranks decide alike."""
        ...

    def store(self) -> Any:
        """Return a connection of its own to the job's key-value store, None where there is none."""
        ...

    def close(self) -> None:
        """Leave the job in good order."""
        ...
