"""The order of a graph's tasks, worked out once for all of its runs: what waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from perfsim.simulate.meeting import Meeting
from perfsim.simulate.task import Task

__all__ = ["Order"]

NEVER = (-(10**9), -1)
"""Before any task of any period."""


@dataclass(frozen=True)
class Order:
    """What does not depend on how long tasks take.

    Parameters
    ----------
    tasks : of one period, as they stood when it was worked out
    """

    tasks: tuple[Task, ...]

    @cached_property
    def depth(self) -> int:
        """Largest number of periods that a dependency points back (at least 1: stream order)."""
        return max((back for task in self.tasks for _, back in task.after), default=1) or 1

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
    def meeting(self) -> list[Meeting | None]:
        """Whom each task waits for on other ranks."""
        return [task.meeting for task in self.tasks]

    @cached_property
    def contended(self) -> bool:
        """Whether tasks of several streams share a link."""
        streams: dict[str, str] = {}
        return any(
            streams.setdefault(task.shares.name, task.stream) != task.stream
            for task in self.tasks
            if task.shares
        )

    @cached_property
    def waits(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Pairs (task, periods back) that each task waits for: its stream's last one first.

        What stands earlier on the same stream, and what that has waited for, has ended when the
        stream is free.
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
            for pair in reversed(task.after):  # the latest first: it stands for those before
                other, back = pair
                place = streams[other]
                if place != own and (-back, other) > ended.get(place, NEVER):
                    ended[place] = (-back, other)
                    pairs.append(pair)
            before[own] = (index, 0)
            found.append(tuple(pairs))
        return tuple(found)

    @cached_property
    def reaches(self) -> list[tuple[int, tuple[int, ...]]]:
        """The same as places back in a list of all ends so far: the stream's, and the others."""
        width = len(self.tasks)
        found = []
        for index, ((own, back), *others) in enumerate(self.waits):
            far = [other - index - behind * width for other, behind in others]
            found.append((own - index - back * width, tuple(far)))
        return found

    @cached_property
    def _heads(self) -> dict[int, frozenset[int]]:
        return {}

    def ancestors(self, closing: int) -> frozenset[int]:
        """Return the tasks that can delay one, in its period or a later one, and that one."""
        known = self._heads.get(closing)
        return self._heads.setdefault(closing, self._before(closing)) if known is None else known

    def _before(self, closing: int) -> frozenset[int]:
        seen, todo = {closing}, [closing]
        while todo:
            for other, _ in self.waits[todo.pop()]:
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return frozenset(seen)

    def working(self, works: Sequence[object]) -> list[int]:
        """Return the last task of every stream that has a task with work to do."""
        return [
            self.final[stream]
            for stream in {stream for stream, one in zip(self.streams, works, strict=True) if one}
        ]
