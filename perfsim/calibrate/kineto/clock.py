"""Moments of the host as moments of the device that does the work."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from perfsim.calibrate.kineto.recording import COMMUNICATION, Recording, Span
from perfsim.errors import DataError

__all__ = ["Clock", "DeviceClock", "HostClock", "clock_of", "length", "union"]


class Clock(Protocol):
    """When work that the host asked for began and was done [us]."""

    def begins(self, moment: float, thread: str) -> float:
        """Return when the first work asked for from a moment on began.

        Raises
        ------
        LookupError
            If there is none.
        """
        ...

    def done(self, moment: float, thread: str) -> float:
        """Return when all work asked for up to a moment was done.

        Raises
        ------
        LookupError
            If there is none.
        """
        ...

    def work(self, start: float, end: float, thread: str) -> list[tuple[float, float]]:
        """Return the spans of work asked for between two moments."""
        ...


class HostClock:
    """Work on a CPU is done where it is asked for."""

    def begins(self, moment: float, thread: str) -> float:
        """Return the moment itself."""
        del thread
        return moment

    def done(self, moment: float, thread: str) -> float:
        """Return the moment itself."""
        del thread
        return moment

    def work(self, start: float, end: float, thread: str) -> list[tuple[float, float]]:
        """Return the whole span."""
        del thread
        return [(start, end)]


class DeviceClock:
    """Kernels and copies of a GPU by the thread and moment that launched them; none of NCCL's."""

    def __init__(self, kernels: Iterable[tuple[float, str, Span]]) -> None:
        by_thread: dict[str, list[tuple[float, float, float]]] = {}
        for moment, thread, span in kernels:
            if thread and not COMMUNICATION.match(span.name):
                by_thread.setdefault(thread, []).append((moment, span.start, span.end))
        self._launched = {name: [one[0] for one in of] for name, of in by_thread.items()}
        self._spans = {name: [one[1:] for one in of] for name, of in by_thread.items()}
        self._done = {
            name: list(accumulate((one[2] for one in of), max)) for name, of in by_thread.items()
        }

    def begins(self, moment: float, thread: str) -> float:
        """Return the start of the first kernel launched from a moment on."""
        place = bisect_left(self._launched.get(thread, []), moment)
        spans = self._spans.get(thread, [])
        if place == len(spans):
            raise LookupError(moment)
        return spans[place][0]

    def done(self, moment: float, thread: str) -> float:
        """Return the end of the last kernel launched up to a moment."""
        place = bisect_right(self._launched.get(thread, []), moment)
        if not place:
            raise LookupError(moment)
        return self._done[thread][place - 1]

    def work(self, start: float, end: float, thread: str) -> list[tuple[float, float]]:
        """Return the kernels launched between two moments."""
        launched = self._launched.get(thread, [])
        return self._spans.get(thread, [])[
            bisect_left(launched, start) : bisect_right(launched, end)
        ]


def clock_of(recording: Recording, path: Path) -> Clock:
    """Return the clock of the device that a profile shows.

    Raises
    ------
    DataError
        If it shows kernels, but not who launched them.
    """
    if not recording.kernels:
        return HostClock()
    if not any(thread for _, thread, _ in recording.kernels):
        raise DataError(
            "shows GPU kernels but no launches of them (cuda_runtime): record CPU and CUDA"
            " activities together",
            path=path,
        )
    return DeviceClock(recording.kernels)


def union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans merged where they meet.

    Examples
    --------
    >>> union([(3, 4), (0, 2), (1, 3), (5, 6)])
    [(0, 4), (5, 6)]
    """
    made: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((start, end))
    return made


def length(spans: Sequence[tuple[float, float]]) -> float:
    """Return the time that spans cover together.

    Examples
    --------
    >>> length([(0, 2), (1, 3), (5, 6)])
    4
    """
    return sum(end - start for start, end in union(spans))
