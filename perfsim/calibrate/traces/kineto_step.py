"""The median step of a PyTorch profile."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import median

from perfsim.calibrate.traces.kineto_collectives import collective_spans
from perfsim.calibrate.traces.kineto_recording import (
    ACCUMULATE,
    BACKWARD,
    NODE,
    HostClock,
    RecordedSpan,
    Recording,
    TraceClock,
    covered_length,
    merge_spans,
    trace_clock,
)
from perfsim.calibrate.traces.training_trace import (
    TensorShape,
    TracedLayer,
    TracedStep,
)
from perfsim.errors import DataError

__all__ = [
    "LayerSpans",
    "OperatorLayer",
    "StepPasses",
    "StepWindow",
    "gradient_names",
    "gradient_shape",
    "layer_kind",
    "layers_of_operations",
    "median_step",
    "named_layers",
    "spans_inside",
    "step_passes",
    "step_windows",
]


VIEWS = {f"aten::{name}" for name in ("t", "transpose", "to", "_to_copy", "permute", "view")}
"""Operators that only turn a weight for the next one; PyTorch before 1.9 calls them apart."""
ODD = re.compile(r"[^A-Za-z0-9_.-]")
"""What a layer's name does not hold."""
WORDS = ("conv", "batchnorm", "layernorm", "embedding", "lstm", "linear")
ALIASES = {"addmm": "linear", "matmul": "linear", "mm": "linear", "baddbmm": "linear"}


class OperatorLayer:
    """A layer: the innermost module around an operator, else its outermost operator."""

    __slots__ = ("begun", "end", "name", "word")

    def __init__(self, name: str, word: str, begun: float, end: float) -> None:
        self.name, self.word, self.begun, self.end = name, word, begun, end


def layers_of_operations(
    operations: Sequence[RecordedSpan], modules: Sequence[RecordedSpan]
) -> list[OperatorLayer]:
    """Return the home of each operator of one thread, both lists sorted by start.

    A module's layer begins with its first operator. Without modules, layers are called after
    their operators and numbered in the order that they run: conv2d_0, linear_0, conv2d_1.
    """
    outer = _outermost(operations)
    around = _innermost(operations, modules)
    known: dict[str, OperatorLayer] = {}
    numbers: Counter[str] = Counter()
    made = []
    for top, module in zip(outer, around, strict=True):
        key = module.name if module else f"{top.name} {top.start}"
        if key not in known:
            name = ODD.sub("_", module.name if module else top.name.rpartition("::")[2])
            if module is None:
                number, numbers[name] = numbers[name], numbers[name] + 1
                known[key] = OperatorLayer(f"{name}_{number}", name, top.start, top.end)
            else:
                known[key] = OperatorLayer(name, name, top.start, top.end)
        known[key].end = max(known[key].end, top.end)
        made.append(known[key])
    return made


def layer_kind(word: str) -> str:
    """Return the kind of layer that a module's or operator's name tells.

    Examples
    --------
    >>> layer_kind("BatchNorm2d_3"), layer_kind("native_layer_norm"), layer_kind("addmm"), layer_kind("mul")
    ('batchnorm', 'layernorm', 'linear', 'parameter')
    """
    plain = word.lower().replace("_", "")
    return next((one for one in WORDS if one in plain), ALIASES.get(plain, "parameter"))


def _outermost(operations: Sequence[RecordedSpan]) -> list[RecordedSpan]:
    """Return the outermost operator around each; of one that only turns, the one after it."""
    tops: list[RecordedSpan] = []
    places = []
    for operation in operations:
        if not tops or operation.start >= tops[-1].end:
            tops.append(operation)
        places.append(len(tops) - 1)
    target = list(range(len(tops)))
    for place in range(len(tops) - 2, -1, -1):
        if tops[place].name in VIEWS:
            target[place] = target[place + 1]
    return [tops[target[place]] for place in places]


def _innermost(
    operations: Sequence[RecordedSpan], modules: Sequence[RecordedSpan]
) -> list[RecordedSpan | None]:
    """Return the innermost module around each operator, None outside of all."""
    found: list[RecordedSpan | None] = []
    stack: list[RecordedSpan] = []
    place = 0
    for operation in operations:
        while place < len(modules) and modules[place].start <= operation.start:
            while stack and stack[-1].end <= modules[place].start:
                stack.pop()
            stack.append(modules[place])
            place += 1
        while stack and stack[-1].end <= operation.start:
            stack.pop()
        found.append(stack[-1] if stack else None)
    return found


STEP = "ProfilerStep#"
UPDATE = "Optimizer.step#"


@dataclass(frozen=True, slots=True)
class StepWindow:
    """One step on the host [us], and the thread that runs its forward pass."""

    start: float
    end: float
    thread: str

    @property
    def span(self) -> tuple[float, float]:
        """Its start and end [us]."""
        return self.start, self.end


def step_windows(recording: Recording, path: Path) -> list[StepWindow]:
    """Return the steps: ``ProfilerStep#`` annotations, else from one optimizer's end to the next.

    Raises
    ------
    DataError
        If there are neither.
    """
    steps = recording.noted(STEP)
    if steps:
        return [StepWindow(step.start, step.end, step.thread) for step in steps]
    ends = recording.noted(UPDATE)
    if not ends or not recording.operations:
        raise DataError(
            "holds no training step: neither ProfilerStep# (profiler.step() after each) nor"
            " Optimizer.step#",
            path=path,
        )
    starts = [recording.operations[0].start, *(end.end for end in ends)]
    return [
        StepWindow(start, end.end, end.thread) for start, end in zip(starts, ends, strict=False)
    ]


def spans_inside(
    spans: list[RecordedSpan], window: StepWindow, thread: str | None = None
) -> list[RecordedSpan]:
    """Return the spans, sorted by start, that begin inside a step, on one thread or on all."""
    first = bisect_left(spans, window.start, key=attrgetter("start"))
    last = bisect_left(spans, window.end, key=attrgetter("start"))
    return [span for span in spans[first:last] if thread in (None, span.thread)]


START = attrgetter("start")


@dataclass
class LayerSpans:
    """A layer with parameters: when it begins [us], and the accumulations of its gradients."""

    name: str
    kind: str
    begun: float
    gradients: list[RecordedSpan] = field(default_factory=list)


@dataclass(frozen=True)
class StepPasses:
    """Both passes of one step on the host [us], the thread of each, layers by their beginning."""

    forward: tuple[float, float]
    backward: tuple[float, float]
    threads: tuple[str, str]
    layers: tuple[LayerSpans, ...]


def step_passes(recording: Recording, window: StepWindow, path: Path) -> StepPasses | None:
    """Return a step's passes, None where it has no backward pass.

    Raises
    ------
    DataError
        If forward passes follow a backward pass in one step, or nodes cannot be told apart.
    """
    gradients = spans_inside(recording.accumulations, window)
    if not gradients:
        return None
    thread = gradients[0].thread
    nodes = _nodes(spans_inside(recording.operations, window, thread))
    if not nodes:
        raise DataError(
            "has no 'Sequence number' on its backward operators, which joins them to the layers:"
            " record it with PyTorch 1.9 or newer",
            path=path,
        )
    begun = nodes[0].start
    own = [
        operation
        for operation in spans_inside(recording.operations, window, window.thread)
        if not _is_node(operation)
    ]
    ahead = own[: bisect_right(own, begun, key=START)]
    numbers = {node.sequence for node in nodes}
    _check_once(own[len(ahead) :], nodes if thread == window.thread else [], numbers, path)
    modules = spans_inside(recording.modules, window, window.thread)
    by_number: dict[int | None, OperatorLayer] = {}
    for operation, home in zip(ahead, layers_of_operations(ahead, modules), strict=True):
        by_number[operation.sequence] = home
    made = [by_number[number] for number in numbers if number in by_number]
    if not made:
        return None
    layers = _layers(gradients, nodes, by_number)
    first = min(home.begun for home in made)
    forward = (first, min(max(home.end for home in made), begun))
    # What waits for collectives after the last node (DDP's last hook) is no part of the pass.
    backward = (begun, max(nodes[-1].end, gradients[-1].end))
    return StepPasses(forward, backward, (window.thread, thread), layers)


def _is_node(span: RecordedSpan) -> bool:
    return span.name.startswith(NODE) or bool(BACKWARD.match(span.name))


def _nodes(operations: Sequence[RecordedSpan]) -> list[RecordedSpan]:
    """Return autograd's nodes that made gradients, as the engine ran them."""
    engine = [span for span in operations if span.name.startswith(NODE)]
    engine = [span for span in engine if not span.name.endswith(ACCUMULATE)]
    return engine or [span for span in operations if BACKWARD.match(span.name)]


def _layers(
    gradients: Sequence[RecordedSpan],
    nodes: Sequence[RecordedSpan],
    by_number: dict[int | None, OperatorLayer],
) -> tuple[LayerSpans, ...]:
    """Return the layers that own gradients, by their beginning."""
    held: dict[str, LayerSpans] = {}
    for gradient in gradients:
        place = bisect_right(nodes, gradient.start, key=START) - 1
        while place >= 0 and nodes[place].sequence not in by_number:
            place -= 1
        if place < 0:
            continue
        home = by_number[nodes[place].sequence]
        layer = held.setdefault(home.name, LayerSpans(home.name, layer_kind(home.word), home.begun))
        layer.gradients.append(gradient)
    return tuple(sorted(held.values(), key=attrgetter("begun")))


def _check_once(
    later: Sequence[RecordedSpan],
    nodes: Sequence[RecordedSpan],
    numbers: set[int | None],
    path: Path,
) -> None:
    """Refuse steps whose forward operators go on after the backward pass began."""
    for operation in later:
        place = bisect_right(nodes, operation.start, key=START) - 1
        nested = place >= 0 and operation.start < nodes[place].end
        if operation.sequence in numbers and not nested:
            raise DataError(
                "holds several backward passes in one step (gradient accumulation): trace steps"
                " of one pass each",
                path=path,
            )


NORMS = ("batchnorm", "layernorm")


def named_layers(
    layers: Sequence[LayerSpans],
) -> tuple[tuple[TracedLayer, ...], dict[str, RecordedSpan]]:
    """Return the layers with their gradients named, and gradient -> its accumulation."""
    made: list[TracedLayer] = []
    accumulated: dict[str, RecordedSpan] = {}
    for layer in layers:
        spans = sorted(layer.gradients, key=lambda span: -len(gradient_shape(span) or ()))
        shapes = [gradient_shape(span) for span in spans]
        names = [f"{layer.name}.{word}" for word in gradient_names(shapes, layer.kind)]
        made.append(TracedLayer(layer.name, layer.kind, tuple(zip(names, shapes, strict=True))))
        accumulated.update(zip(names, spans, strict=True))
    return tuple(made), accumulated


def gradient_shape(span: RecordedSpan) -> TensorShape | None:
    """Return the shape of an accumulated gradient, None where it is not said."""
    first = span.shapes[0] if span.shapes else None
    if not isinstance(first, list) or not all(type(axis) is int and axis > 0 for axis in first):
        return None
    return tuple(first)


def gradient_names(shapes: Sequence[TensorShape | None], kind: str) -> list[str]:
    """Return the gradients' names in their layer: matrices are weights, vectors biases.

    A normalising layer's first vector is its weight. Further ones of a kind are numbered.

    Examples
    --------
    >>> gradient_names([(8, 3, 3, 3), (8,)], "conv"), gradient_names([(8,), (8,)], "batchnorm")
    (['weight', 'bias'], ['weight', 'bias'])
    >>> gradient_names([(8, 4), (8, 2), (8,), (8,)], "lstm")
    ['weight', 'weight_2', 'bias', 'bias_2']
    """
    counted: Counter[str] = Counter()
    words = []
    for place, shape in enumerate(shapes):
        vector = shape is not None and len(shape) < 2 and not (kind in NORMS and not place)
        word = "bias" if vector else "weight"
        counted[word] += 1
        words.append(word if counted[word] == 1 else f"{word}_{counted[word]}")
    return words


MICRO = 1e-6


@dataclass
class _Moments:
    """One step on its device [us]."""

    window: StepWindow
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


def median_step(recording: Recording, path: Path) -> TracedStep:
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
    steps = step_windows(recording, path)
    clock = trace_clock(recording, path)
    found = [(window, step_passes(recording, window, path)) for window in steps]
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


def _moments(
    recording: Recording, window: StepWindow, one: StepPasses, clock: TraceClock
) -> _Moments | None:
    """Return a step's moments; None where the device's part of it is missing."""
    main, back = one.threads
    layers, accumulated = named_layers(one.layers)
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
        min(1.0, covered_length(worked) / covered_length([forward, backward, *update])),
    )


def _within(moment: float, span: tuple[float, float]) -> float:
    """Return a moment from the start of a pass, no later than its end."""
    return min(max(0.0, moment - span[0]), span[1] - span[0])


def _updates(
    recording: Recording, window: StepWindow, clock: TraceClock
) -> list[tuple[float, float]]:
    """Return when the device ran the optimizer's steps and clearings of gradients."""
    noted = [
        clock.work(note.start, note.end, note.thread)
        for note in spans_inside(recording.noted("Optimizer."), window, window.thread)
    ]
    return [(min(start for start, _ in of), max(end for _, end in of)) for of in noted if of]


def _outside(
    spans: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return the parts of spans that lie in none of the others."""
    left = merge_spans(spans)
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


def _periods(recording: Recording, steps: list[_Moments], clock: TraceClock) -> None:
    """Set how long each step took, and how long of it only collectives ran."""
    calls = [(span.start, span.end) for span in collective_spans(recording)]
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
        step.waiting = covered_length(_outside(inside, step.passes))


def _median(steps: list[_Moments]) -> TracedStep:
    first = steps[0]
    return TracedStep(
        layers=first.layers,
        begun_s={name: MICRO * median(s.begun[name] for s in steps) for name in first.begun},
        ready_s={name: MICRO * median(s.ready[name] for s in steps) for name in first.ready},
        forward_s=MICRO * median(step.forward[1] - step.forward[0] for step in steps),
        backward_s=MICRO * median(step.backward[1] - step.backward[0] for step in steps),
        update_s=MICRO * median(covered_length(step.update) for step in steps),
        whole_s=MICRO * median(step.whole for step in steps),
        waiting_s=MICRO * median(step.waiting for step in steps),
        busy=median(step.busy for step in steps),
        count=len(steps),
    )
