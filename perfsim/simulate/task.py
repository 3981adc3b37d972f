"""A task: one piece of work on one stream of a worker.

Methods name streams and shared links in these words; graphs and engines run them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from perfsim.simulate.sync import SyncScope

__all__ = ["COMPUTE", "TASK_KINDS", "Credit", "Duration", "LinkUse", "Shared", "Task", "TaskKind"]

TaskKind = Literal[
    "forward",
    "backward",
    "compress",
    "decompress",
    "communicate",
    "update",
    "second_order",
    "other",
]
TASK_KINDS: tuple[TaskKind, ...] = get_args(TaskKind)

COMPUTE = "compute"
"""The stream of forward, backward and update: time on it is never exposed communication."""

Duration: TypeAlias = "float | NDArray[np.float64]"
"""Seconds: one number, or an array that broadcasts over the axes (scenario, draw, rank)."""


class Shared(NamedTuple):
    """A link on which the tasks of several streams are under way at once.

    Parameters
    ----------
    name : tasks that name the same one share it
    capacity : how many tasks it carries at full speed; n of them advance at min(1, capacity / n)
    """

    name: str
    capacity: float = 1.0


class Credit(NamedTuple):
    """How much of a task its stream may be handed while others are under way.

    In priority order a stream is handed what is ready, the most urgent first, as long as the sizes
    of what it was handed and has not ended sum to less than ``limit``. One task is handed over in
    any case. The stream runs them in the order in which they were handed over, so that none of
    them is overtaken.
    """

    size: float
    limit: float


class Task(NamedTuple):
    """One piece of work on one stream of a worker.

    Parameters
    ----------
    name : what a timeline shows
    stream : the stream that runs it, one task at a time
    kind : what its time counts as
    duration_s : seconds; a float or an array over (scenario, draw, rank)
    after : pairs (index of a task in the template, periods back): 0 = this period, 1 = the one
        before; a dependency on a period before the first is void
    collective : starts when its last rank has arrived and ends for all ranks together
    priority : which ready task a free stream takes first, where an engine is asked to look
    shares : the link that it has to itself only while no other task is on it; ``duration_s`` is
        what it takes alone
    credit : how far ahead its stream is handed tasks, where an engine looks at priorities; None:
        one at a time, when the stream is free
    latency_s : the part of ``duration_s``, at its start, in which it does not need that link
    scope : for a collective, the ranks that one waits for; None: all of them
    size_bytes, group : what it sends, and who takes part (a ``Group``), for reports; nothing is
        timed by them
    """

    name: str
    stream: str
    kind: TaskKind
    duration_s: Duration
    after: tuple[tuple[int, int], ...] = ()
    collective: bool = False
    priority: int = 0
    shares: Shared | None = None
    latency_s: float = 0.0
    credit: Credit | None = None
    scope: SyncScope | None = None
    size_bytes: float = 0.0
    group: str | int | tuple[int, int] = "all"

    def lasting(self, duration_s: Duration) -> Task:
        """Return the task at another duration; ``_replace`` takes twice as long."""
        return Task(
            self.name,
            self.stream,
            self.kind,
            duration_s,
            self.after,
            self.collective,
            self.priority,
            self.shares,
            self.latency_s,
            self.credit,
            self.scope,
            self.size_bytes,
            self.group,
        )


class LinkUse(NamedTuple):
    """How a message uses the link that jobs share.

    Parameters
    ----------
    off_s : seconds of it, at its start, in which it does not need the link (latency, hops inside
        nodes that come before or after) [s]
    need : part of the link that it takes while it is on it and nobody else is, above 0 to 1; below
        1 where something else, such as the links inside the nodes, holds it up
    """

    off_s: float
    need: float = 1.0
