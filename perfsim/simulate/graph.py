"""The periodic task graph: what one period of a training method does, on which streams.

A stream runs its tasks in the order in which they are added, as a CUDA stream does and as NCCL
needs (every rank the same). This order is part of the model: a task that is ready waits for an
earlier task of its stream that is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from perfsim.simulate.bursts import Bursts, bursts_of, single_bursts
from perfsim.simulate.sync import Neighbours, SyncGroups, SyncScope
from perfsim.simulate.task import TASK_KINDS, Credit, Duration, Shared, Task, TaskKind
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Moments: TypeAlias = NDArray[np.float64]

__all__ = [
    "Kinds",
    "ServiceOrder",
    "TaskGraph",
    "by_kind",
    "checked_durations",
]


_NEVER = (-(10**9), -1)
"""Before any task of any period."""


_Edges: TypeAlias = Sequence[Sequence[tuple[int, int]]]
"""Pairs (task, periods back) that each task waits for."""


def _last_to_look_back(edges: _Edges) -> int:
    """Return the last task that waits for one of an earlier period; the first where none does."""
    for index in range(len(edges) - 1, -1, -1):
        for _, back in edges[index]:
            if back:
                return index
    return 0


def _waited_for(edges: _Edges, tasks: Iterable[int]) -> list[bool]:
    """Tell of each task whether it is one of some or whether these wait for it in their period."""
    found = [False] * len(edges)
    for index in tasks:
        found[index] = True
    for index in range(len(edges) - 1, -1, -1):
        if found[index]:
            for other, back in edges[index]:
                if not back:
                    found[other] = True
    return found


def _all_tied(edges: _Edges, before: Sequence[bool], follows: Sequence[bool]) -> bool:
    """Tell whether each task waits for the regeneration point that it is not before."""
    for inside, pairs in zip(before, edges, strict=True):
        since = 1 if inside else 0  # what follows the point before, or this one
        for other, back in pairs:
            if (back == since and follows[other]) or (inside and not back):
                break
        else:
            return False
    return True


def _settled_after(edges: _Edges, point: int, closing: int) -> int:
    """Return the first period as long as all later ones if a task is a regeneration point, else 0.

    A period's tasks are those that the point waits for, which must each wait for one another or
    for what follows the point before; and those that follow, which must each wait for the point.
    The next point must wait for all of these.
    """
    before = _waited_for(edges, [point])
    follows = [not one for one in before]
    follows[point] = True
    if not _all_tied(edges, before, follows):
        return 0
    if all(before):  # the first one begins as all others do
        return 1 if point == closing else 2
    inside = (pairs for one, pairs in zip(before, edges, strict=True) if one)
    awaited = _waited_for(edges, [other for pairs in inside for other, back in pairs if back == 1])
    if not all(map(or_, before, awaited)):
        return 0
    return 2 if follows[closing] else 3


class ServiceOrder:
    """What tasks wait for: the part of a graph that does not depend on how long they take.

    Each part is worked out when it is first asked for, and holds for every run of the graph and
    for graphs with the same tasks at other durations.

    Parameters
    ----------
    tasks : of one period; their dependencies must not change any more
    """

    def __init__(self, tasks: tuple[Task, ...]) -> None:
        self.tasks = tasks
        self._ancestors: dict[int, frozenset[int]] = {}
        self._scopes: dict[int, frozenset[SyncScope | None]] = {}
        self._settled: dict[tuple[int, bool], int] = {}

    @cached_property
    def depth(self) -> int:
        """The most periods that a dependency points back (at least 1, by stream order)."""
        return max([back for task in self.tasks for _, back in task.after], default=1) or 1

    @cached_property
    def streams(self) -> list[str]:
        """The stream of each task."""
        return [task.stream for task in self.tasks]

    @cached_property
    def final(self) -> dict[str, int]:
        """The last task of each stream."""
        return {stream: index for index, stream in enumerate(self.streams)}

    @cached_property
    def collective(self) -> list[bool]:
        """Whether each task is a collective."""
        return [task.collective for task in self.tasks]

    @cached_property
    def waited_for(self) -> list[SyncScope | None]:
        """The ranks that each task waits for."""
        return [task.scope for task in self.tasks]

    @cached_property
    def contended(self) -> bool:
        """Whether tasks of several streams share a link."""
        streams: dict[str, str] = {}
        sharing = [(task.shares.name, task.stream) for task in self.tasks if task.shares]
        return any([streams.setdefault(link, stream) != stream for link, stream in sharing])

    @cached_property
    def waits(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Pairs (task, periods back) that each task waits for: its stream's last task first.

        When the stream is free, its earlier tasks have ended, and so has what these waited for:
        such dependencies are left out.
        """
        streams = self.streams
        before = {stream: (index, 1) for stream, index in self.final.items()}
        # By stream: the latest task of each other stream that it has waited for in this period.
        passed: dict[str, dict[str, tuple[int, int]]] = {stream: {} for stream in before}
        found = []
        for index, task in enumerate(self.tasks):
            own = streams[index]
            ended = passed[own]
            pairs = [before[own]]
            for pair in reversed(task.after):  # the latest first: those before it are implied
                other, back = pair
                its_stream = streams[other]
                if its_stream != own and (-back, other) > ended.get(its_stream, _NEVER):
                    ended[its_stream] = (-back, other)
                    pairs.append(pair)
            before[own] = (index, 0)
            found.append(tuple(pairs))
        return tuple(found)

    @cached_property
    def reaches(self) -> list[tuple[int, tuple[int, ...]]]:
        """The same as offsets in a list of all ends so far: the stream's last task, the others."""
        width = len(self.tasks)
        found: list[tuple[int, tuple[int, ...]]] = []
        for index, pairs in enumerate(self.waits):
            own, back = pairs[0]
            far: tuple[int, ...] = ()
            if len(pairs) > 1:  # most tasks wait for their stream alone
                far = tuple([other - index - behind * width for other, behind in pairs[1:]])
            found.append((own - index - back * width, far))
        return found

    @cached_property
    def dependents(self) -> list[list[tuple[int, int]]]:
        """Pairs (task, periods later) that wait for each task, whatever its stream."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.tasks]
        for index, task in enumerate(self.tasks):
            for other, back in task.after:
                found[other].append((index, back))
        return found

    @cached_property
    def awaited(self) -> list[list[int]]:
        """How many tasks each one waits for: in each of the first periods, then in all others."""
        always = [len(task.after) for task in self.tasks]
        found = [[*always] for _ in range(self.depth)]
        for index, task in enumerate(self.tasks):
            for _, back in task.after:
                for period in range(back):
                    found[period][index] -= 1
        return [*found, always]

    @cached_property
    def bursts(self) -> Bursts:
        """The tasks that run back to back on their stream, as one."""
        return bursts_of(self.tasks, self.dependents, self.awaited)

    @cached_property
    def single_bursts(self) -> Bursts:
        """Each task as a burst by itself."""
        return single_bursts(self.tasks, self.dependents, self.awaited)

    def ancestors(self, closing: int) -> frozenset[int]:
        """Return the tasks that can delay one, in its period or a later one, and that one."""
        known = self._ancestors.get(closing)
        if known is None:
            known = self._ancestors[closing] = self._before(closing)
        return known

    def _before(self, closing: int) -> frozenset[int]:
        seen, todo = {closing}, [closing]
        while todo:
            for other, _ in self.waits[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return frozenset(seen)

    def scopes(self, closing: int) -> frozenset[SyncScope | None]:
        """Return by whom ranks wait for each other on the way to a closing; None: by all."""
        known = self._scopes.get(closing)
        if known is None:
            tasks = [self.tasks[index] for index in self.ancestors(closing)]
            known = frozenset(task.scope for task in tasks if task.collective)
            self._scopes[closing] = known
        return known

    def settled_after(self, closing: int, *, in_order: bool) -> int:
        """Return the number of the first period as long as all later ones; 0 if not known.

        It is known where a task is a regeneration point, whatever tasks take: when it ends, all
        that was issued before has ended, and all that follows waits for it. Each period is then
        that of before, shifted in time.

        Parameters
        ----------
        closing : the task whose end closes the period
        in_order : whether streams run their tasks in the order in which they are issued

        References
        ----------
        Crane & Lemoine, An Introduction to the Regenerative Method for Simulation Analysis, 1977,
        chapter 1.
        """
        asked = closing, in_order
        known = self._settled.get(asked)
        if known is None:
            after = [task.after for task in self.tasks]
            edges = self.waits if in_order else after
            known = _settled_after(edges, closing, closing)
            for some in (after, edges):
                known = known or _settled_after(edges, _last_to_look_back(some), closing)
            self._settled[asked] = known
        return known

    def working(self, works: Sequence[object]) -> list[int]:
        """Return the last task of every stream that has a task with work to do."""
        return [
            self.final[stream]
            for stream in {stream for stream, one in zip(self.streams, works, strict=True) if one}
        ]


@dataclass
class TaskGraph:
    """The template of one period: tasks in issue order.

    Parameters
    ----------
    iterations : training iterations in a period
    last : index of the task whose end closes the period; None: the task added last

    Examples
    --------
    >>> graph = TaskGraph()
    >>> update = 2  # known before it is added, as forward waits for the update of the period before
    >>> forward = graph.add("forward", "compute", "forward", 0.010, after=[(update, 1)])
    >>> reduce = graph.add("all_reduce", "communication", "communicate", 0.004, after=[forward])
    >>> graph.add("update", "compute", "update", 0.001, after=[reduce])
    2
    """

    iterations: int = 1
    last: int | None = None
    tasks: list[Task] = field(default_factory=list)
    _order: ServiceOrder | None = field(default=None, init=False, repr=False, compare=False)
    _ordered: list[Task] | None = field(default=None, init=False, repr=False, compare=False)

    def add(
        self,
        name: str,
        stream: str,
        kind: TaskKind,
        duration_s: Duration,
        after: Iterable[int | tuple[int, int]] = (),
        *,
        collective: bool = False,
        priority: int = 0,
        shares: Shared | None = None,
        latency_s: float = 0.0,
        credit: Credit | None = None,
        scope: SyncScope | None = None,
        size_bytes: float = 0.0,
        group: str | int | tuple[int, int] = "all",
    ) -> int:
        """Append a task and return its index.

        An entry of ``after`` that is a bare index means the same period.

        Raises
        ------
        ValueError
            As `append`.
        """
        pairs = [(one, 0) if isinstance(one, int) else one for one in after]
        return self.append(
            Task(
                name,
                stream,
                kind,
                duration_s,
                tuple(dict.fromkeys(pairs)),
                collective,
                priority,
                shares,
                latency_s,
                credit,
                scope,
                size_bytes,
                group,
            )
        )

    def append(self, task: Task) -> int:
        """Append a task, which names each dependency once, and return its index.

        Raises
        ------
        ValueError
            If the kind is unknown, the duration is negative or not finite, a dependency within
            the period does not point to an earlier task, or one points to a later period.
        """
        index = len(self.tasks)
        _check_task(index, task)
        self.tasks.append(task)
        return index

    def with_tasks(self, tasks: list[Task]) -> TaskGraph:
        """Return the graph with the same tasks at other durations: they wait for the same ones."""
        made = TaskGraph(self.iterations, self.last, tasks)
        made._order, made._ordered = self.order(), tasks
        return made

    def link(self, index: int, other: int, back: int) -> None:
        """Let a task wait for another one, ``back`` periods ago, after both were added.

        Raises
        ------
        ValueError
            If there is no such task, or it does not come before within the period.
        """
        self.link_all({index: [(other, back)]})

    def link_all(self, links: Mapping[int, Iterable[tuple[int, int]]]) -> None:
        """Let each task wait for others, pairs (task, periods back), after all were added.

        Raises
        ------
        ValueError
            As `link`.
        """
        for index, pairs in links.items():
            task = self.tasks[index]
            waits = dict.fromkeys(task.after)
            for other, back in pairs:
                if back < 0 or not 0 <= other < len(self.tasks) or (back == 0 and other >= index):
                    raise ValueError(f"task {task.name!r} cannot wait for {(other, back)}")
                waits[other, back] = None
            if len(waits) > len(task.after):
                self.tasks[index] = task._replace(after=tuple(waits))
                self._order = None

    @property
    def closing(self) -> int:
        """Index of the task whose end closes the period."""
        return len(self.tasks) - 1 if self.last is None else self.last

    @property
    def depth(self) -> int:
        """The most periods that a dependency points back (at least 1, by stream order)."""
        return self.order().depth

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams, in order of first use."""
        return tuple(dict.fromkeys(task.stream for task in self.tasks))

    @property
    def contended(self) -> bool:
        """Whether tasks of several streams share a link, so that they slow each other down."""
        return self.order().contended

    def check(self) -> None:
        """Check all tasks, and what can only be seen once they are there.

        Raises
        ------
        ValueError
            As `append`, or if the graph is empty, a dependency or ``last`` points to no task,
            ``iterations`` is below 1, or a shared link has a capacity below 1 or more than one.
        """
        count = len(self.tasks)
        if count == 0:
            raise ValueError("the task graph has no task")
        if self.iterations < 1:
            raise ValueError(f"the task graph has {self.iterations} iterations; at least 1")
        if not 0 <= self.closing < count:
            raise ValueError(f"last = {self.last} points to no task; there are {count}")
        kinds = {task.kind for task in self.tasks}
        if not kinds.issubset(TASK_KINDS) or not _all_hold([one.duration_s for one in self.tasks]):
            for index, task in enumerate(self.tasks):
                _check_task(index, task)
        links: dict[str, float] = {}
        for task, link in [(task, task.shares) for task in self.tasks if task.shares]:
            known = links.setdefault(link.name, link.capacity)
            if not 1.0 <= link.capacity == known:
                raise ValueError(
                    f"task {task.name!r}: link {link.name!r} has a capacity of"
                    f" {link.capacity:g}; at least 1, and one for all (before: {known:g})"
                )
        for index, task in enumerate(self.tasks):
            for other, back in task.after:
                if 0 <= other < (count if back else index) and back >= 0:
                    continue
                _check_task(index, task)
                raise ValueError(
                    f"task {task.name!r}: dependency {(other, back)} points to no task;"
                    f" there are {count}"
                )

    def order(self) -> ServiceOrder:
        """Return the order of the tasks, checked and worked out once for all runs.

        Tasks that were replaced since may have other durations, but wait for the same ones.
        """
        known = self._order if self._ordered is self.tasks else None
        if known is None or len(known.tasks) != len(self.tasks):
            self.check()
            known = self._order = ServiceOrder(tuple(self.tasks))
            self._ordered = self.tasks
        return known

    def waits(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return, task by task, all that it waits for: its dependencies and its stream.

        The first pair is the task before it on its stream (for the first one: the stream's last
        task, one period back). Dependencies that stream order implies are left out.
        """
        return self.order().waits

    def ancestors(self) -> frozenset[int]:
        """Return the tasks that can delay the end of a period, in this period or a later one."""
        return self.order().ancestors(self.closing)

    def settled_after(self, *, in_order: bool) -> int:
        """Return the first period as long as all later ones (see `ServiceOrder`)."""
        return self.order().settled_after(self.closing, in_order=in_order)

    @property
    def margin(self) -> int:
        """Periods to run before and behind those that count, where ranks vary by chance.

        One where all of a period ends before the next begins: then ranks differ by its last tasks
        alone.
        """
        return 1 if self.settled_after(in_order=True) == 1 else self.depth + 1

    def scopes(self) -> frozenset[SyncScope | None]:
        """Return by whom ranks wait for each other in a period; None is all ranks."""
        return self.order().scopes(self.closing)


def _check_task(index: int, task: Task) -> None:
    """Check one task by itself: its kind, its duration, and that it waits for earlier ones.

    Raises
    ------
    ValueError
        As `TaskGraph.append`.
    """
    name = task.name
    if task.kind not in TASK_KINDS:
        kinds = ", ".join(TASK_KINDS)
        raise ValueError(f"task {name!r}: kind {task.kind!r} is not one of {kinds}")
    if not _holds(task.duration_s):
        raise ValueError(f"task {name!r}: duration {task.duration_s!r} is negative or not finite")
    for other, back in task.after:
        if back < 0 or other < 0:
            raise ValueError(f"task {name!r}: dependency {(other, back)} has a negative part")
        if back == 0 and other >= index:
            raise ValueError(
                f"task {name!r} (index {index}) waits within its period for task {other},"
                " which is not added before it"
            )


def _holds(duration_s: Duration) -> bool:
    if isinstance(duration_s, (float, int)):  # a union takes three times as long to look at
        return 0.0 <= duration_s < math.inf
    return bool(((duration_s >= 0.0) & (duration_s < math.inf)).all())


def _all_hold(durations: Sequence[Duration]) -> bool:
    if {float, int}.issuperset(map(type, durations)):
        # A sum is finite where all are; where it is not, it may only be too large.
        finite = math.isfinite(sum_in_order(durations)) or all(map(math.isfinite, durations))
        return finite and bool(min(durations) >= 0.0)
    return all(map(_holds, durations))


def checked_durations(graph: TaskGraph, durations: Sequence[Duration] | None) -> list[Duration]:
    """Return one duration a task: the given ones, or the tasks' own.

    Raises
    ------
    ValueError
        If there is not one for every task, or one is negative or not finite; names the task.
    """
    if durations is None:
        return [task.duration_s for task in graph.tasks]
    if len(durations) != len(graph.tasks):
        raise ValueError(f"{len(durations)} durations for {len(graph.tasks)} tasks")
    if not _all_hold(durations):
        wrong = next(at for at, duration_s in enumerate(durations) if not _holds(duration_s))
        raise ValueError(
            f"task {graph.tasks[wrong].name!r}: duration {durations[wrong]!r} is negative or not"
            " finite"
        )
    return list(durations)


@dataclass(frozen=True, slots=True)
class Kinds(SyncGroups):
    """Kinds of ranks, by the group in which they wait for each other; a row of arrays is a kind."""

    groups: tuple[int, ...]

    def labels(self, ranks: int) -> Sequence[int]:
        """Return the group of each kind."""
        return self.groups


def by_kind(graph: TaskGraph, kinds: Sequence[int]) -> TaskGraph:
    """Return the graph for arrays with a row for each kind of rank, instead of each rank.

    Parameters
    ----------
    kinds : the kind of each rank, 0 and up

    Examples
    --------
    >>> from perfsim.simulate.sync import Groups
    >>> graph = TaskGraph()
    >>> for name, which in (("in", "node"), ("out", "across")):
    ...     _ = graph.add(name, "wire", "communicate", 1.0, collective=True,
    ...                   scope=Groups((2, 2), which))
    >>> [task.scope for task in by_kind(graph, [0, 0, 1, 1]).tasks]
    [Kinds(groups=(0, 1)), None]
    """
    scopes: dict[SyncScope, Kinds | None] = {}
    for task in graph.tasks:
        if task.scope is not None and task.scope not in scopes:
            scopes[task.scope] = _among(task.scope, kinds)
    tasks = [
        task if task.scope is None else task._replace(scope=scopes[task.scope])
        for task in graph.tasks
    ]
    return replace(graph, tasks=tasks)


def _among(scope: SyncScope, kinds: Sequence[int]) -> Kinds | None:
    """Return which kinds wait for each other; None where all do."""
    count = max(kinds) + 1
    groups = list(range(count))
    if isinstance(scope, Neighbours):
        return None
    first: dict[int, int] = {}
    for rank, label in enumerate(scope.labels(len(kinds))):
        one, other = groups[first.setdefault(label, kinds[rank])], groups[kinds[rank]]
        groups = [min(one, other) if group in (one, other) else group for group in groups]
    return None if len(set(groups)) == 1 else Kinds(tuple(groups))
