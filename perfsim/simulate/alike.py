"""Ranks that do everything alike stand for each other: one row a kind of rank.

Two ranks with the same tasks that wait for the same others start and end everything together, so
that thousands of ranks of a few kinds are as many rows as there are kinds. It is exact where whom
a rank waits for depends on its kind alone (all ranks, its node, its place on every node); of ranks
that exchange with neighbours those stand for their kind that have neighbours of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.meeting import Meeting, Parted, Peers

__all__ = ["Kinds", "by_kind"]


@dataclass(frozen=True, slots=True)
class Kinds(Parted):
    """Kinds of ranks that meet, by group; one row stands for each kind."""

    groups: tuple[int, ...]

    def labels(self, ranks: int) -> Sequence[int]:
        """Return the group of each kind."""
        return self.groups


def by_kind(graph: TaskGraph, kinds: Sequence[int]) -> TaskGraph:
    """Return the graph for one row a kind of rank.

    Parameters
    ----------
    kinds : the kind of each rank, 0 and up

    Examples
    --------
    >>> from perfsim.simulate.meeting import Groups
    >>> graph = TaskGraph()
    >>> for name, which in (("in", "node"), ("out", "across")):
    ...     _ = graph.add(name, "wire", "communicate", 1.0, collective=True,
    ...                   meeting=Groups((2, 2), which))
    >>> [task.meeting for task in by_kind(graph, [0, 0, 1, 1]).tasks]
    [Kinds(groups=(0, 1)), None]
    """
    met: dict[Meeting, Kinds | None] = {}
    for task in graph.tasks:
        if task.meeting is not None and task.meeting not in met:
            met[task.meeting] = _among(task.meeting, kinds)
    tasks = [
        task if task.meeting is None else task._replace(meeting=met[task.meeting])
        for task in graph.tasks
    ]
    return replace(graph, tasks=tasks)


def _among(meeting: Meeting, kinds: Sequence[int]) -> Kinds | None:
    """Return which kinds meet; None where all do."""
    count = max(kinds) + 1
    groups = list(range(count))
    if isinstance(meeting, Peers):
        return None
    first: dict[int, int] = {}
    for rank, label in enumerate(meeting.labels(len(kinds))):
        one, other = groups[first.setdefault(label, kinds[rank])], groups[kinds[rank]]
        groups = [min(one, other) if group in (one, other) else group for group in groups]
    return None if len(set(groups)) == 1 else Kinds(tuple(groups))
