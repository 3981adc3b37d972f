"""Chains: tasks that follow each other without a gap whatever they take, run as one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.sync import Neighbours
from perfsim.simulate.task import Task

__all__ = ["NO_FACTOR", "Chains", "chains_of"]

NO_FACTOR = -1
"""In place of a factor's number: the task takes the same time on every rank in every period."""


class Chains(NamedTuple):
    """A graph whose tasks are chains of those of another, and closes when that does.

    Parameters
    ----------
    graph : the chains, in the order of their first tasks; their durations are not set
    of : the chain of each task of the other graph
    which : by which factor each chain is multiplied
    """

    graph: TaskGraph
    of: list[int]
    which: list[int]


def chains_of(graph: TaskGraph, which: Sequence[int]) -> Chains:
    """Return the chains of a graph whose tasks are multiplied by factors that vary by rank.

    A task goes on with the chain of the one before it on its stream if it waits for that alone and
    nothing else does, and if no rank waits for another one between the two. Their durations add up
    where the same factor multiplies both.

    Parameters
    ----------
    which : the number of each task's factor, or ``NO_FACTOR``

    Examples
    --------
    >>> graph = TaskGraph()
    >>> forward = graph.add("forward", "compute", "forward", 1.0)
    >>> backward = graph.add("backward", "compute", "backward", 2.0, [forward])
    >>> reduce = graph.add("reduce", "wire", "communicate", 1.0, [backward], collective=True)
    >>> _ = graph.add("update", "compute", "update", 0.5, [reduce])
    >>> chains_of(graph, [0, 0, NO_FACTOR, 0]).of
    [0, 0, 1, 2]
    """
    tasks, waits = graph.tasks, graph.order().waits
    awaited = [0] * len(tasks)
    for pairs in waits:
        for other, _ in pairs:
            awaited[other] += 1
    awaited[graph.closing] += 1  # by whoever reads when the period closes
    of: list[int] = []
    first: list[int] = []
    for index, ((before, back), *others) in enumerate(waits):
        alone = not back and not others and awaited[before] == 1
        if (
            alone
            and which[index] == which[before]
            and _go_on(tasks[before], tasks[index], which[index])
        ):
            of.append(of[before])
        else:
            of.append(len(first))
            first.append(index)
    chains = [
        tasks[index]._replace(after=tuple((of[other], back) for other, back in waits[index][1:]))
        for index in first
    ]
    made = TaskGraph(graph.iterations, of[graph.closing], chains)
    return Chains(made, of, [which[index] for index in first])


def _go_on(before: Task, task: Task, factor: int) -> bool:
    """Tell whether each rank begins a task as soon as it has ended the one before."""
    if not before.collective:
        return not task.collective
    # A collective takes as long as on the slowest of its ranks; the same ranks are there already.
    alike = before.scope == task.scope and not isinstance(task.scope, Neighbours)
    return factor == NO_FACTOR and (alike or not task.collective)
