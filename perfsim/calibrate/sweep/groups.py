"""Groups of ranks to measure, so that links inside a node and between nodes separate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfsim.errors import RequestError

__all__ = ["Group", "groups"]


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that are measured together: ``nodes`` nodes of ``gpus_per_node`` ranks each."""

    ranks: tuple[int, ...]
    nodes: int
    gpus_per_node: int

    @property
    def name(self) -> str:
        """The shape in words.

        Examples
        --------
        >>> Group((0, 4), 2, 1).name
        '2 ranks (2 x 1)'
        """
        return f"{len(self.ranks)} ranks ({self.nodes} x {self.gpus_per_node})"


def groups(hosts: Sequence[str]) -> list[Group]:
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
    >>> [group.name for group in groups(["a"] * 4 + ["b"] * 4)]
    ['2 ranks (1 x 2)', '2 ranks (2 x 1)', '4 ranks (1 x 4)', '8 ranks (2 x 4)']
    >>> [group.name for group in groups(["a", "b", "c"])]
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
        Group(tuple(sorted(rank for node in of_node[:count] for rank in node[:g])), count, g)
        for count, g in ordered
        if count <= len(of_node)
    ]
