"""A backward pass beside messages: computation is slowed while they are under way, no longer.

A message that starts while the pass computes slows it until it ends, or until the pass does. So
what the pass loses is at most what its messages take, and nothing where they start after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perfsim.methods.base import Job, Send
from perfsim.schedule.costs import Costs

__all__ = ["UNSLOWED", "SlowedBackward", "slowed_backward"]


class SlowedBackward(NamedTuple):
    """From where in the backward pass [s] computation takes how many times as long."""

    from_s: float
    factor: float

    def factor_at(self, seconds: float) -> float:
        """Return how many times as long computation takes from a moment of the pass on."""
        return self.factor if seconds >= self.from_s else 1.0


UNSLOWED = SlowedBackward(0.0, 1.0)


def slowed_backward(
    jobs: Sequence[Job], backward_s: float, costs: Costs, slowdown: float
) -> SlowedBackward:
    """Return how an iteration's messages slow its backward pass.

    With a message under way, computation takes ``slowdown`` times as long. A message that starts b
    into a pass of w, and takes c, is beside it for at most min(c, slowdown (w - b)); all of them
    together for at most slowdown (w - b) of the first. Of that time the share 1 - 1 / slowdown is
    lost. The loss is spread evenly over the pass from the first start on.

    Messages that start earlier, as those of the iteration before that nothing waits for, count
    from the beginning of the pass. Left out: that a message may wait for the one before it, and
    kernels between messages; both move messages out of the pass.

    Parameters
    ----------
    backward_s : length of the pass without messages [s]
    """
    starts_s = list[float]()
    beside_s: float = 0.0
    for job in jobs:
        begin_s = _begin_s(job)
        if begin_s is None or begin_s >= backward_s:
            continue
        messages_s = _messages_s(job, costs)
        if messages_s > 0.0:
            starts_s.append(begin_s)
            beside_s = beside_s + min(messages_s, slowdown * (backward_s - begin_s))
    if not starts_s:
        return UNSLOWED
    first_s = min(starts_s)
    beside_s = min(beside_s, slowdown * (backward_s - first_s))
    lost_s = (1.0 - 1.0 / slowdown) * beside_s
    return SlowedBackward(first_s, 1.0 + lost_s / (backward_s - first_s))


def _begin_s(job: Job) -> float | None:
    """Return from where in a backward pass messages of a job may run [s]; None: not in one."""
    held = job.holds
    goes_on = held is not None and held.later > 0
    if goes_on or (job.begins.phase == "forward" and (held is None or held.phase != "forward")):
        return 0.0
    return max(0.0, job.begins.seconds) if job.begins.phase == "backward" else None


def _messages_s(job: Job, costs: Costs) -> float:
    """Return how long the messages take that a job sends as soon as it can [s]."""
    total_s: float = 0.0
    for stage in job.stages:
        if stage.earliest != "ready":
            break
        if isinstance(stage, Send):
            total_s = total_s + stage.repeats * costs.timing(stage).seconds
    return total_s
