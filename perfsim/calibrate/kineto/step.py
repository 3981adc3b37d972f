"""The median step of a PyTorch profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from perfsim.calibrate.kineto.calls import spans_of_calls
from perfsim.calibrate.kineto.clock import Clock, HostClock, clock_of, length, union
from perfsim.calibrate.kineto.names import layers_of
from perfsim.calibrate.kineto.passes import Passes, passes
from perfsim.calibrate.kineto.recording import Recording
from perfsim.calibrate.kineto.window import Window, inside, windows
from perfsim.calibrate.traced import Step, TracedLayer
from perfsim.errors import DataError

__all__ = ["median_step"]

MICRO = 1e-6


@dataclass
class _Moments:
    """One step on its device [us]."""

    window: Window
    layers: tuple[TracedLayer, ...]
    begun: dict[str, float]
    ready: dict[str, float]
    forward: tuple[float, float]
    backward: tuple[float, float]
    update: list[tuple[float, float]]
    busy: float
    whole: float = 0.0
    waiting: float = 0.0

    @property
    def passes(self) -> list[tuple[float, float]]:
        return [self.forward, self.backward, *self.update]


def median_step(recording: Recording, path: Path) -> Step:
    """Return the medians over a profile's training steps.

    Raises
    ------
    DataError
        If it holds inference only, no step, no shapes where layers need them, or no whole step.
    """
    if not recording.backward:
        raise DataError(
            "holds inference only: no backward pass ran while it was recorded", path=path
        )
    steps = windows(recording, path)
    clock = clock_of(recording, path)
    found = [(window, passes(recording, window, path)) for window in steps]
    taken = [(window, one) for window, one in found if one is not None and one.layers]
    whole = [
        moments
        for window, one in taken
        if (moments := _moments(recording, window, one, clock)) is not None
    ]
    if not whole:
        raise DataError(
            "holds no whole training step: forward, backward, torch::autograd::AccumulateGrad"
            + ("" if isinstance(clock, HostClock) else " and the kernels of all of them"),
            path=path,
        )
    alike = _alike(whole)
    _periods(recording, alike, clock)
    return _median(alike)


def _moments(recording: Recording, window: Window, one: Passes, clock: Clock) -> _Moments | None:
    """Return a step's moments; None where the device's part of it is missing."""
    main, back = one.threads
    layers, accumulated = layers_of(one.layers)
    try:
        forward = (clock.begins(one.forward[0], main), clock.done(one.forward[1], main))
        backward = (clock.begins(one.backward[0], back), clock.done(one.backward[1], back))
        begun = {layer.name: clock.begins(layer.begun, main) for layer in one.layers}
        ready = {name: clock.done(span.end, back) for name, span in accumulated.items()}
    except LookupError:
        return None
    if not forward[0] < forward[1] or not backward[0] < backward[1]:
        return None
    update = _outside(_updates(recording, window, clock), (forward, backward))
    worked = [work for thread in {main, back} for work in clock.work(*window.span, thread)]
    return _Moments(
        window,
        layers,
        {name: _within(moment, forward) for name, moment in begun.items()},
        {name: _within(moment, backward) for name, moment in ready.items()},
        forward,
        backward,
        update,
        min(1.0, length(worked) / length([forward, backward, *update])),
    )


def _within(moment: float, span: tuple[float, float]) -> float:
    """Return a moment from the start of a pass, no later than its end."""
    return min(max(0.0, moment - span[0]), span[1] - span[0])


def _updates(recording: Recording, window: Window, clock: Clock) -> list[tuple[float, float]]:
    """Return when the device ran the optimizer's steps and clearings of gradients."""
    noted = [
        clock.work(note.start, note.end, note.thread)
        for note in inside(recording.noted("Optimizer."), window, window.thread)
    ]
    return [(min(start for start, _ in of), max(end for _, end in of)) for of in noted if of]


def _outside(
    spans: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the parts of spans that lie in none of the others."""
    left = union(spans)
    for start, end in others:
        left = [
            part
            for before, after in left
            for part in ((before, min(after, start)), (max(before, end), after))
            if part[0] < part[1]
        ]
    return left


def _alike(steps: list[_Moments]) -> list[_Moments]:
    """Return the steps of the commonest set of gradients."""
    often = Counter(step.layers for step in steps).most_common(1)[0][0]
    return [step for step in steps if step.layers == often]


def _periods(recording: Recording, steps: list[_Moments], clock: Clock) -> None:
    """Set how long each step took, and how long of it only collectives ran."""
    calls = [(span.start, span.end) for span in spans_of_calls(recording)]
    for place, step in enumerate(steps):
        start, end = step.window.start, step.window.end
        if not isinstance(clock, HostClock):
            after = steps[place + 1] if place + 1 < len(steps) else None
            start = step.forward[0]
            # The device runs behind the host: its step goes to the next step's first kernel.
            if after is not None and after.window.start - end < (end - step.window.start):
                end = after.forward[0]
            else:
                last = max(one[1] for one in step.passes)
                end = max(start + end - step.window.start, last)
        inside = [(max(start, s), min(end, e)) for s, e in calls if s < end and e > start]
        step.whole = end - start
        step.waiting = length(_outside(inside, step.passes))


def _median(steps: list[_Moments]) -> Step:
    first = steps[0]
    return Step(
        layers=first.layers,
        begun_s={name: MICRO * median(s.begun[name] for s in steps) for name in first.begun},
        ready_s={name: MICRO * median(s.ready[name] for s in steps) for name in first.ready},
        forward_s=MICRO * median(step.forward[1] - step.forward[0] for step in steps),
        backward_s=MICRO * median(step.backward[1] - step.backward[0] for step in steps),
        update_s=MICRO * median(length(step.update) for step in steps),
        whole_s=MICRO * median(step.whole for step in steps),
        waiting_s=MICRO * median(step.waiting for step in steps),
        busy=median(step.busy for step in steps),
        count=len(steps),
    )
