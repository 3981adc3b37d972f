"""The training steps of a PyTorch profile."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from perfsim.calibrate.kineto.recording import Recording, Span
from perfsim.errors import DataError

__all__ = ["Window", "inside", "windows"]

STEP = "ProfilerStep#"
UPDATE = "Optimizer.step#"


@dataclass(frozen=True, slots=True)
class Window:
    """One step on the host [us], and the thread that runs its forward pass."""

    start: float
    end: float
    thread: str

    @property
    def span(self) -> tuple[float, float]:
        """Its start and end [us]."""
        return self.start, self.end


def windows(recording: Recording, path: Path) -> list[Window]:
    """Return the steps: ``ProfilerStep#`` annotations, else from one optimizer's end to the next.

    Raises
    ------
    DataError
        If there are neither.
    """
    steps = recording.noted(STEP)
    if steps:
        return [Window(step.start, step.end, step.thread) for step in steps]
    ends = recording.noted(UPDATE)
    if not ends or not recording.operations:
        raise DataError(
            "holds no training step: neither ProfilerStep# (profiler.step() after each) nor"
            " Optimizer.step#",
            path=path,
        )
    starts = [recording.operations[0].start, *(end.end for end in ends)]
    return [Window(start, end.end, end.thread) for start, end in zip(starts, ends, strict=False)]


def inside(spans: list[Span], window: Window, thread: str | None = None) -> list[Span]:
    """Return the spans, sorted by start, that begin inside a step, on one thread or on all."""
    first = bisect_left(spans, window.start, key=attrgetter("start"))
    last = bisect_left(spans, window.end, key=attrgetter("start"))
    return [span for span in spans[first:last] if thread in (None, span.thread)]
