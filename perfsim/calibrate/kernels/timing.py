"""One kernel at one size: repeated until its median is known, or its time is spent."""

from __future__ import annotations

import time
from dataclasses import dataclass

from perfsim.calibrate.compute.clock import Clock
from perfsim.calibrate.kernels.bench import Call
from perfsim.calibrate.sweep.steady import FEWEST, settled

__all__ = ["Rule", "measure"]

WARM_UP = 3
"""Calls thrown away, where they are short: the first allocates, loads code and picks algorithms."""
PATIENCE = 3
"""So many times a point's time it may take to get `FEWEST` repeats, lest one stall be its time."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When a point is done, and when a kernel is.

    Parameters
    ----------
    tolerance : half the median's 90 % interval over the median that is tight enough
    kernel_s : a kernel's time over all its sizes [s]
    budget_s : time of the whole run [s]; None for no end
    most : repeats at most
    """

    tolerance: float = 0.02
    kernel_s: float = 20.0
    budget_s: float | None = None
    most: int = 200


def measure(call: Call, clock: Clock, rule: Rule, budget_s: float, loop: int = 1) -> list[float]:
    """Return the seconds of one call, for each repeat.

    Before each repeat the device is waited for, so that a repeat holds what a kernel costs on its
    own: the launches that the host still has to make, too. With ``loop`` the calls between two
    marks wait behind one another and only the first one waits for the host.

    Parameters
    ----------
    call : what is timed
    clock : of the device
    rule : tolerance and repeats at most
    budget_s : time of this point [s]; a call that takes longer is repeated once, after one that
        may have loaded a library
    loop : calls between two marks
    """
    begun = time.perf_counter()

    def spent_s() -> float:
        return time.perf_counter() - begun

    def once() -> float:
        clock.wait()
        first = clock.mark()
        for _ in range(loop):
            call()
        last = clock.mark()
        clock.wait()
        return clock.between(first, last) / loop

    for _ in range(WARM_UP):
        once()
        if spent_s() > budget_s / 4:
            break
    seconds = [once()]
    while not (
        settled(seconds, rule.tolerance)
        or seconds[-1] * loop >= budget_s
        or len(seconds) >= rule.most
        or (spent_s() >= budget_s and len(seconds) >= FEWEST)
        or spent_s() >= PATIENCE * budget_s
    ):
        seconds.append(once())
    return seconds
