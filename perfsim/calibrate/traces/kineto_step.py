"""The median training step of a PyTorch profile: its passes, layers and gradients.

Steps are found first. In each step autograd's nodes give the backward pass, and sequence numbers
join them to the forward operators, which belong to layers. The device's clock then says when the
work of each was done.
"""

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
    BACKWARD_OPERATOR,
    ENGINE_NODE,
    HostClock,
    RecordedSpan,
    Recording,
    TraceClock,
    covered_length,
    merge_spans,
    trace_clock,
)
from perfsim.calibrate.traces.training_trace import TensorShape, TracedLayer, TracedStep
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

_STEP_NOTE = "ProfilerStep#"
_UPDATE_NOTE = "Optimizer.step#"
_WEIGHT_VIEWS = {
    f"aten::{name}" for name in ("t", "transpose", "to", "_to_copy", "permute", "view")
}
"""Operators that only turn a weight for the next one; PyTorch before 1.9 calls them alone."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
_LAYER_KINDS = ("conv", "batchnorm", "layernorm", "embedding", "lstm", "linear")
_OPERATOR_KINDS = {"addmm": "linear", "matmul": "linear", "mm": "linear", "baddbmm": "linear"}
_NORMALISING_KINDS = ("batchnorm", "layernorm")
_SECONDS = 1e-6
"""A microsecond, a trace's unit of time [s]."""
_start = attrgetter("start")


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
    windows = step_windows(recording, path)
    clock = trace_clock(recording, path)
    with_passes = [(window, step_passes(recording, window, path)) for window in windows]
    steps = [
        moments
        for window, passes in with_passes
        if passes is not None
        and passes.layers
        and (moments := _moments(recording, window, passes, clock)) is not None
    ]
    if not steps:
        raise DataError(
            "holds no whole training step: forward, backward, torch::autograd::AccumulateGrad"
            + ("" if isinstance(clock, HostClock) else " and the kernels of all of them"),
            path=path,
        )
    # Steps of the commonest set of gradients.
    layers = Counter(step.layers for step in steps).most_common(1)[0][0]
    alike = [step for step in steps if step.layers == layers]
    _set_periods(recording, alike, clock)
    return _medians(alike)


# Steps


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
    steps = recording.noted(_STEP_NOTE)
    if steps:
        return [StepWindow(step.start, step.end, step.thread) for step in steps]
    ends = recording.noted(_UPDATE_NOTE)
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
    first = bisect_left(spans, window.start, key=_start)
    last = bisect_left(spans, window.end, key=_start)
    return [span for span in spans[first:last] if thread in (None, span.thread)]


# The passes of a step on the host


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
    """Return a step's passes, None if it has no backward pass.

    Raises
    ------
    DataError
        If forward passes follow a backward pass in one step, or nothing joins autograd's nodes to
        the layers.
    """
    gradients = spans_inside(recording.accumulations, window)
    if not gradients:
        return None
    thread = gradients[0].thread
    nodes = _gradient_nodes(spans_inside(recording.operations, window, thread))
    if not nodes:
        raise DataError(
            "has no 'Sequence number' on its backward operators, which joins them to the layers:"
            " record it with PyTorch 1.9 or newer",
            path=path,
        )
    begun = nodes[0].start
    operations = [
        operation
        for operation in spans_inside(recording.operations, window, window.thread)
        if not _is_node(operation)
    ]
    forward = operations[: bisect_right(operations, begun, key=_start)]
    numbers = {node.sequence for node in nodes}
    nodes_of_thread = nodes if thread == window.thread else []
    _check_one_backward_pass(operations[len(forward) :], nodes_of_thread, numbers, path)
    modules = spans_inside(recording.modules, window, window.thread)
    by_number: dict[int | None, OperatorLayer] = {}
    for operation, layer in zip(forward, layers_of_operations(forward, modules), strict=True):
        by_number[operation.sequence] = layer
    joined = [by_number[number] for number in numbers if number in by_number]
    if not joined:
        return None
    first = min(layer.begun for layer in joined)
    return StepPasses(
        forward=(first, min(max(layer.end for layer in joined), begun)),
        # What waits for collectives after the last node (DDP's last hook) is no part of the pass.
        backward=(begun, max(nodes[-1].end, gradients[-1].end)),
        threads=(window.thread, thread),
        layers=_layers_with_gradients(gradients, nodes, by_number),
    )


def _is_node(span: RecordedSpan) -> bool:
    return span.name.startswith(ENGINE_NODE) or bool(BACKWARD_OPERATOR.match(span.name))


def _gradient_nodes(operations: Sequence[RecordedSpan]) -> list[RecordedSpan]:
    """Return autograd's nodes that made gradients, as the engine ran them."""
    engine = [span for span in operations if span.name.startswith(ENGINE_NODE)]
    engine = [span for span in engine if not span.name.endswith(ACCUMULATE)]
    return engine or [span for span in operations if BACKWARD_OPERATOR.match(span.name)]


def _check_one_backward_pass(
    later: Sequence[RecordedSpan],
    nodes: Sequence[RecordedSpan],
    numbers: set[int | None],
    path: Path,
) -> None:
    """Refuse steps whose forward operators go on after the backward pass began."""
    for operation in later:
        index = bisect_right(nodes, operation.start, key=_start) - 1
        nested = index >= 0 and operation.start < nodes[index].end
        if operation.sequence in numbers and not nested:
            raise DataError(
                "holds several backward passes in one step (gradient accumulation): trace steps"
                " of one pass each",
                path=path,
            )


def _layers_with_gradients(
    gradients: Sequence[RecordedSpan],
    nodes: Sequence[RecordedSpan],
    by_number: dict[int | None, OperatorLayer],
) -> tuple[LayerSpans, ...]:
    """Return the layers that own gradients, by their beginning."""
    layers: dict[str, LayerSpans] = {}
    for gradient in gradients:
        index = bisect_right(nodes, gradient.start, key=_start) - 1
        while index >= 0 and nodes[index].sequence not in by_number:
            index -= 1
        if index < 0:
            continue
        layer = by_number[nodes[index].sequence]
        new = LayerSpans(layer.name, layer_kind(layer.word), layer.begun)
        layers.setdefault(layer.name, new).gradients.append(gradient)
    return tuple(sorted(layers.values(), key=attrgetter("begun")))


# The layers that operators belong to


class OperatorLayer:
    """The layer of an operator: the innermost module around it, else its outermost operator."""

    __slots__ = ("begun", "end", "name", "word")

    def __init__(self, name: str, word: str, begun: float, end: float) -> None:
        self.name, self.word, self.begun, self.end = name, word, begun, end


def layers_of_operations(
    operations: Sequence[RecordedSpan], modules: Sequence[RecordedSpan]
) -> list[OperatorLayer]:
    """Return the layer of each operator of one thread, both lists sorted by start.

    A module's layer begins with its first operator. Without modules, layers take the names of
    their operators, numbered in the order that they run: conv2d_0, linear_0, conv2d_1.
    """
    layers: dict[str, OperatorLayer] = {}
    numbers: Counter[str] = Counter()
    by_operation = []
    around = _innermost_modules(operations, modules)
    for top, module in zip(_outermost_operators(operations), around, strict=True):
        key = module.name if module else f"{top.name} {top.start}"
        if key not in layers:
            name = _NOT_IN_NAMES.sub("_", module.name if module else top.name.rpartition("::")[2])
            if module is None:
                number, numbers[name] = numbers[name], numbers[name] + 1
                layers[key] = OperatorLayer(f"{name}_{number}", name, top.start, top.end)
            else:
                layers[key] = OperatorLayer(name, name, top.start, top.end)
        layers[key].end = max(layers[key].end, top.end)
        by_operation.append(layers[key])
    return by_operation


def _outermost_operators(operations: Sequence[RecordedSpan]) -> list[RecordedSpan]:
    """Return the outermost operator around each; of one that only turns, the one after it."""
    tops: list[RecordedSpan] = []
    indices = []
    for operation in operations:
        if not tops or operation.start >= tops[-1].end:
            tops.append(operation)
        indices.append(len(tops) - 1)
    target = list(range(len(tops)))
    for index in range(len(tops) - 2, -1, -1):
        if tops[index].name in _WEIGHT_VIEWS:
            target[index] = target[index + 1]
    return [tops[target[index]] for index in indices]


def _innermost_modules(
    operations: Sequence[RecordedSpan], modules: Sequence[RecordedSpan]
) -> list[RecordedSpan | None]:
    """Return the innermost module around each operator, None outside of all."""
    innermost: list[RecordedSpan | None] = []
    stack: list[RecordedSpan] = []
    index = 0
    for operation in operations:
        while index < len(modules) and modules[index].start <= operation.start:
            while stack and stack[-1].end <= modules[index].start:
                stack.pop()
            stack.append(modules[index])
            index += 1
        while stack and stack[-1].end <= operation.start:
            stack.pop()
        innermost.append(stack[-1] if stack else None)
    return innermost


def layer_kind(word: str) -> str:
    """Return the kind of layer that a module's or operator's name tells.

    Examples
    --------
    >>> layer_kind("BatchNorm2d_3"), layer_kind("native_layer_norm"), layer_kind("addmm")
    ('batchnorm', 'layernorm', 'linear')
    >>> layer_kind("mul")
    'parameter'
    """
    plain = word.lower().replace("_", "")
    kind = next((kind for kind in _LAYER_KINDS if kind in plain), None)
    return kind or _OPERATOR_KINDS.get(plain, "parameter")


def named_layers(
    layers: Sequence[LayerSpans],
) -> tuple[tuple[TracedLayer, ...], dict[str, RecordedSpan]]:
    """Return the layers with their gradients named, and gradient -> its accumulation."""
    named: list[TracedLayer] = []
    accumulations: dict[str, RecordedSpan] = {}
    for layer in layers:
        spans = sorted(layer.gradients, key=lambda span: -len(gradient_shape(span) or ()))
        shapes = [gradient_shape(span) for span in spans]
        names = [f"{layer.name}.{word}" for word in gradient_names(shapes, layer.kind)]
        named.append(TracedLayer(layer.name, layer.kind, tuple(zip(names, shapes, strict=True))))
        accumulations.update(zip(names, spans, strict=True))
    return tuple(named), accumulations


def gradient_shape(span: RecordedSpan) -> TensorShape | None:
    """Return the shape of an accumulated gradient, None if the profile does not say it."""
    first = span.shapes[0] if span.shapes else None
    if not isinstance(first, list) or not all(type(axis) is int and axis > 0 for axis in first):
        return None
    return tuple(first)


def gradient_names(shapes: Sequence[TensorShape | None], kind: str) -> list[str]:
    """Return the gradients' names in their layer: matrices are weights, vectors biases.

    A normalising layer's first vector is its weight. Further ones of a kind are numbered.

    Parameters
    ----------
    shapes : of the gradients, matrices first
    kind : of the layer

    Examples
    --------
    >>> gradient_names([(8, 3, 3, 3), (8,)], "conv"), gradient_names([(8,), (8,)], "batchnorm")
    (['weight', 'bias'], ['weight', 'bias'])
    >>> gradient_names([(8, 4), (8, 2), (8,), (8,)], "lstm")
    ['weight', 'weight_2', 'bias', 'bias_2']
    """
    counts: Counter[str] = Counter()
    names = []
    for index, shape in enumerate(shapes):
        norm_weight = kind in _NORMALISING_KINDS and index == 0
        vector = shape is not None and len(shape) < 2 and not norm_weight
        word = "bias" if vector else "weight"
        counts[word] += 1
        names.append(word if counts[word] == 1 else f"{word}_{counts[word]}")
    return names


# The moments of a step on its device


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


def _moments(
    recording: Recording, window: StepWindow, passes: StepPasses, clock: TraceClock
) -> _Moments | None:
    """Return a step's moments; None if the device's part of it is missing."""
    main, back = passes.threads
    layers, accumulations = named_layers(passes.layers)
    try:
        forward = (clock.begins(passes.forward[0], main), clock.done(passes.forward[1], main))
        backward = (clock.begins(passes.backward[0], back), clock.done(passes.backward[1], back))
        begun = {layer.name: clock.begins(layer.begun, main) for layer in passes.layers}
        ready = {name: clock.done(span.end, back) for name, span in accumulations.items()}
    except LookupError:
        return None
    if not forward[0] < forward[1] or not backward[0] < backward[1]:
        return None
    update = _outside(_updates(recording, window, clock), (forward, backward))
    work = [span for thread in {main, back} for span in clock.work(*window.span, thread)]
    return _Moments(
        window,
        layers,
        {name: _within(moment, forward) for name, moment in begun.items()},
        {name: _within(moment, backward) for name, moment in ready.items()},
        forward,
        backward,
        update,
        min(1.0, covered_length(work) / covered_length([forward, backward, *update])),
    )


def _within(moment: float, span: tuple[float, float]) -> float:
    """Return a moment from the start of a pass, no later than its end."""
    return min(max(0.0, moment - span[0]), span[1] - span[0])


def _updates(
    recording: Recording, window: StepWindow, clock: TraceClock
) -> list[tuple[float, float]]:
    """Return when the device ran the optimizer's steps and clearings of gradients."""
    notes = spans_inside(recording.noted("Optimizer."), window, window.thread)
    work = [clock.work(note.start, note.end, note.thread) for note in notes]
    return [
        (min(start for start, _ in spans), max(end for _, end in spans)) for spans in work if spans
    ]


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


def _set_periods(recording: Recording, steps: list[_Moments], clock: TraceClock) -> None:
    """Set how long each step took, and how long of it only collectives ran."""
    collectives = [(span.start, span.end) for span in collective_spans(recording)]
    for index, step in enumerate(steps):
        start, end = step.window.start, step.window.end
        if not isinstance(clock, HostClock):
            following = steps[index + 1] if index + 1 < len(steps) else None
            start = step.forward[0]
            # The device runs behind the host: its step goes to the next step's first kernel.
            length = end - step.window.start
            if following is not None and following.window.start - end < length:
                end = following.forward[0]
            else:
                last = max(span[1] for span in step.passes)
                end = max(start + end - step.window.start, last)
        inside = [(max(start, s), min(end, e)) for s, e in collectives if s < end and e > start]
        step.whole = end - start
        step.waiting = covered_length(_outside(inside, step.passes))


def _medians(steps: list[_Moments]) -> TracedStep:
    first = steps[0]
    return TracedStep(
        layers=first.layers,
        begun_s={name: _SECONDS * median(s.begun[name] for s in steps) for name in first.begun},
        ready_s={name: _SECONDS * median(s.ready[name] for s in steps) for name in first.ready},
        forward_s=_SECONDS * median(step.forward[1] - step.forward[0] for step in steps),
        backward_s=_SECONDS * median(step.backward[1] - step.backward[0] for step in steps),
        update_s=_SECONDS * median(covered_length(step.update) for step in steps),
        whole_s=_SECONDS * median(step.whole for step in steps),
        waiting_s=_SECONDS * median(step.waiting for step in steps),
        busy=median(step.busy for step in steps),
        count=len(steps),
    )
