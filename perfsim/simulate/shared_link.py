"""The link that several jobs send over: flows of each under way, and when the next of them ends."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsim.simulate.task import LinkUse
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from simpy import Environment, Event

    from perfsim.simulate.task import Shared

__all__ = ["CrossedLink", "SharedLink", "max_min_shares"]


def max_min_shares(needs: Sequence[float]) -> list[float]:
    """Return each job's part of a link, of what each would take of it alone.

    Parameters
    ----------
    needs : parts of the link, 0 to 1 each

    Examples
    --------
    Two that need all of it, two of which one needs little, and two that fit:

    >>> max_min_shares([1.0, 1.0]), max_min_shares([1.0, 0.2]), max_min_shares([0.5, 0.4])
    ([0.5, 0.5], [0.8, 0.2], [0.5, 0.4])
    """
    parts = list(needs)
    left, many = 1.0, len(needs)
    for place in sorted(range(many), key=lambda place: needs[place]):
        parts[place] = min(needs[place], left / many)
        left, many = left - parts[place], many - 1
    return parts


_ROUNDING_LEFT = 1e-12
"""Share of a flow that may be left by rounding when its progress is added up."""


@dataclass
class _Flow:
    """A message on the link: seconds that it takes by itself, left and in all."""

    job: int
    left_s: float
    whole_s: float
    need: float
    shares: Shared | None
    speed: float = 1.0


class CrossedLink:
    """Flows of several jobs on one link, each job with its fair part of it.

    Flows of one job advance as they do where it is alone (see ``Shared``), together no faster
    than its part of the link allows.

    Examples
    --------
    Two messages of two jobs, of 2 s and 3 s by themselves, begin at once:

    >>> from simpy import Environment
    >>> env = Environment()
    >>> link, ends = CrossedLink(env), []
    >>> def send(job, seconds):
    ...     yield from link.carry(job, seconds, LinkUse(0.0))
    ...     ends.append(env.now)
    >>> for job, seconds in enumerate((2.0, 3.0)):
    ...     _ = env.process(send(job, seconds))
    >>> env.run()
    >>> ends
    [4.0, 5.0]
    """

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._flows: dict[Event, _Flow] = {}
        self._since = 0.0
        self._turn = 0

    def carry(
        self, job: int, seconds: float, crossing: LinkUse, shares: Shared | None = None
    ) -> Generator[Event, Any, None]:
        """Wait until what takes a job ``seconds`` on the link by itself has passed."""
        if seconds <= 0:
            return
        self._advance()
        done = self.env.event()
        self._flows[done] = _Flow(job, seconds, seconds, crossing.need, shares)
        self._plan()
        yield done

    def _advance(self) -> None:
        """Take from each flow what it has done since the flows last changed."""
        gone_s = self.env.now - self._since
        for flow in self._flows.values():
            flow.left_s -= gone_s * flow.speed
        self._since = self.env.now

    def _set_speeds(self) -> None:
        if len(self._flows) == 1:
            (only,) = self._flows.values()
            only.speed = 1.0
            return
        jobs: dict[int, list[_Flow]] = {}
        for flow in self._flows.values():
            jobs.setdefault(flow.job, []).append(flow)
        for flows in jobs.values():
            for flow in flows:
                flow.speed = _own_speed(flow, flows)
        needs = [
            min(1.0, sum_in_order(one.speed * one.need for one in flows)) for flows in jobs.values()
        ]
        for flows, need, part in zip(jobs.values(), needs, max_min_shares(needs), strict=True):
            if part < need:
                for flow in flows:
                    flow.speed *= part / need

    def _plan(self) -> None:
        """Wake up when the next flow ends, unless the flows change before."""
        self._turn += 1
        self._set_speeds()
        if self._flows:
            next_s = min(flow.left_s / flow.speed for flow in self._flows.values())
            turn = self._turn
            self.env.timeout(max(0.0, next_s)).callbacks.append(lambda _: self._end(turn))

    def _end(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._advance()
        least = min(flow.left_s / flow.speed for flow in self._flows.values())
        for done, flow in list(self._flows.items()):
            # The one that was waited for has ended even where rounding leaves some of it.
            if flow.left_s / flow.speed <= least or flow.left_s <= _ROUNDING_LEFT * flow.whole_s:
                del self._flows[done]
                done.succeed()
        self._plan()


def _own_speed(flow: _Flow, flows: list[_Flow]) -> float:
    """Return how fast a flow advances beside those of its own job, where that job is alone."""
    if flow.shares is None:
        return 1.0
    name = flow.shares.name
    beside = sum(one.shares is not None and one.shares.name == name for one in flows)
    return min(1.0, flow.shares.capacity / beside)


class SharedLink:
    """The flows under way on one link, and the moment at which the next of them ends.

    Parameters
    ----------
    env : the clock
    capacity : flows that it carries at full speed, at least 1

    Examples
    --------
    >>> from simpy import Environment
    >>> env = Environment()
    >>> link = SharedLink(env, capacity=4 / 3)
    >>> flows = [env.process(link.carry(seconds)) for seconds in (2.0, 2.0)]
    >>> env.run()
    >>> env.now
    3.0
    """

    def __init__(self, env: Environment, capacity: float) -> None:
        self.env, self.capacity = env, capacity
        self._left: dict[Event, list[float]] = {}
        self._since = 0.0
        self._turn = 0

    @property
    def speed(self) -> float:
        """How fast each flow advances, in seconds of its own a second."""
        return min(1.0, self.capacity / max(1, len(self._left)))

    def carry(self, seconds: float) -> Generator[Event, Any, None]:
        """Wait until a flow that takes ``seconds`` by itself has passed."""
        if seconds <= 0:
            return
        self._advance()
        done = self.env.event()
        # Seconds left, and seconds in all.
        self._left[done] = [seconds, seconds]
        self._plan()
        yield done

    def _advance(self) -> None:
        """Take from each flow what it has done since the flows last changed."""
        gone = (self.env.now - self._since) * self.speed
        for left in self._left.values():
            left[0] -= gone
        self._since = self.env.now

    def _plan(self) -> None:
        """Wake up when the flow with least left ends, unless the flows change before."""
        self._turn += 1
        if self._left:
            least = max(0.0, min(left for left, _ in self._left.values()))
            self.env.process(self._end(self._turn, least / self.speed))

    def _end(self, turn: int, delay_s: float) -> Generator[Event, Any, None]:
        yield self.env.timeout(delay_s)
        if turn != self._turn:
            return
        self._advance()
        least = min(left for left, _ in self._left.values())
        for done, (left, whole) in list(self._left.items()):
            # The one that was waited for has ended even where rounding leaves some of it.
            if left <= max(least, _ROUNDING_LEFT * whole):
                del self._left[done]
                done.succeed()
        self._plan()
