"""Bursts: tasks that a stream runs back to back, so that an engine can start them as one."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise
from typing import NamedTuple

from perfsim.simulate.task import Credit, Task

__all__ = ["Bursts", "bursts_of", "single_bursts"]

_Waits = list[list[tuple[int, int]]]
"""Pairs (task, periods later) that wait for each task."""


class Bursts(NamedTuple):
    """Tasks in bursts: each is ready as a whole, and nothing waits for a part of it.

    A stream that took the first task of a burst takes the next one as soon as that has ended,
    unless a more urgent task is ready then.

    Parameters
    ----------
    first : the first task of each burst, and behind the last burst the number of tasks
    dependents : by burst, what waits for it: (burst, periods later, for how many of its tasks)
    streams : names of the streams, in order of first use
    stream, rank, credit : of each burst: the number of its stream, the more urgent the lower, and
        how far ahead it may be handed over
    awaited : for how many tasks each waits in each of the first periods, then in all others
    several : whether each has more than one task
    inside : the tasks of those that have
    """

    first: list[int]
    dependents: list[list[tuple[int, int, int]]]
    streams: tuple[str, ...]
    stream: list[int]
    rank: list[int]
    credit: list[Credit | None]
    awaited: list[list[int]]
    several: list[bool]
    inside: list[int]


def single_bursts(
    tasks: Sequence[Task], dependents: _Waits, awaited: Sequence[Sequence[int]]
) -> Bursts:
    """Return each task as a burst by itself; the parameters are those of `bursts_of`."""
    outside = [[(index, back, 1) for index, back in some] for some in dependents]
    return _made(tasks, [*range(len(tasks) + 1)], outside, awaited)


def bursts_of(
    tasks: Sequence[Task], dependents: _Waits, awaited: Sequence[Sequence[int]]
) -> Bursts:
    """Return the bursts of a graph; a task that waits for nothing is one by itself.

    Parameters
    ----------
    dependents : what waits for each task
    awaited : for how many tasks each waits in each of the first periods, then in all others
    """
    count = len(tasks)
    first, at = list[int](), 0
    while at < count:
        first.append(at)
        at = _burst_end(tasks, dependents, awaited[-1], at)
    first.append(count)
    burst_of = [0] * count
    for burst, (begin, end) in enumerate(pairwise(first)):
        burst_of[begin:end] = [burst] * (end - begin)
    outside: list[list[tuple[int, int, int]]] = []
    for begin, end in pairwise(first):
        counted: dict[tuple[int, int], int] = {}
        for index in range(begin, end):
            for dependent, back in dependents[index]:
                burst = burst_of[dependent]
                # What the others of a burst wait for, the first of it waits for too.
                if dependent == first[burst]:
                    counted[burst, back] = counted.get((burst, back), 0) + 1
        outside.append([(burst, back, times) for (burst, back), times in counted.items()])
    return _made(tasks, first, outside, awaited)


def _made(
    tasks: Sequence[Task],
    first: list[int],
    dependents: list[list[tuple[int, int, int]]],
    awaited: Sequence[Sequence[int]],
) -> Bursts:
    """Return the bursts that begin with some tasks."""
    streams = {name: at for at, name in enumerate(dict.fromkeys(task.stream for task in tasks))}
    heads = [tasks[index] for index in first[:-1]]
    ends = [*pairwise(first)]
    return Bursts(
        first,
        dependents,
        tuple(streams),
        [streams[task.stream] for task in heads],
        [-task.priority for task in heads],
        [task.credit for task in heads],
        [[counts[index] for index in first[:-1]] for counts in awaited],
        [end > begin + 1 for begin, end in ends],
        [index for begin, end in ends if end > begin + 1 for index in range(begin, end)],
    )


_MAX_WAITING = 64
"""Tasks that wait for parts of a burst, beyond which no end of it is looked for."""


def _burst_end(tasks: Sequence[Task], dependents: _Waits, waits: Sequence[int], begin: int) -> int:
    """Return the task behind the burst that begins with a task."""
    head = tasks[begin]
    if not waits[begin] or head.credit:
        return begin + 1
    ready, waiting = set(head.after), set(dependents[begin])
    end = begin + 1
    for index in range(begin + 1, len(tasks)):
        task = tasks[index]
        if task.stream != head.stream or task.priority != head.priority or task.credit:
            break
        if not waits[index] or not _ready_with(task.after, begin, ready):
            break
        waiting.discard((index, 0))
        own = dependents[index]
        if waiting.issubset(own):
            end = index + 1
        waiting.update(own)
        if len(waiting) > _MAX_WAITING:
            break
    return end


def _ready_with(
    after: Sequence[tuple[int, int]], begin: int, ready: Container[tuple[int, int]]
) -> bool:
    """Tell whether a task waits for nothing but tasks from ``begin`` on and what is ready."""
    for pair in after:  # noqa: SIM110 (half the time of all())
        if (pair[1] or pair[0] < begin) and pair not in ready:
            return False
    return True
