"""The median step of a PyTorch profile."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

from perfsim.calibrate.traces.kineto_recording import (
    ACCUMULATE,
    BACKWARD,
    COMMUNICATION,
    NODE,
    HostClock,
    RecordedSpan,
    Recording,
    TraceClock,
    clock_of,
    length,
    union,
)
from perfsim.calibrate.traces.traced import (
    Seen,
    TensorShape,
    TracedLayer,
    TracedStep,
    bytes_of,
    called,
)
from perfsim.errors import DataError

__all__ = [
    "Home",
    "LayerSpans",
    "Passes",
    "Window",
    "calls",
    "homes",
    "inside",
    "kind_of",
    "layers_of",
    "median_step",
    "passes",
    "shape_of",
    "spans_of_calls",
    "windows",
    "words_of",
]

PARAMETERS = "record_param_comms"
ON_HOST = ("gloo:", "mpi:")
MOST = 2**53
"""Elements of a message: more are no count."""


def spans_of_calls(recording: Recording) -> list[RecordedSpan]:
    """Return the spans in which collectives ran: NCCL's kernels, else gloo's or MPI's threads."""
    kernels = [span for _, _, span in recording.kernels if COMMUNICATION.match(span.name)]
    return kernels or [note for note in recording.notes if note.name.startswith(ON_HOST)]


def calls(recording: Recording, world: int | None) -> list[Seen]:
    """Return the collectives in the order of their starts."""
    asked = recording.noted(PARAMETERS)
    named = recording.noted("nccl:")
    found: list[tuple[RecordedSpan, Mapping[str, Any], RecordedSpan | None]] = []
    for moment, thread, span in recording.kernels:
        if COMMUNICATION.match(span.name):
            told = span.told if span.told and "Collective name" in span.told else None
            told = told or _around(asked, moment, thread)
            found.append((span, told or {}, _around_span(named, moment, thread)))
    if not found:
        on_host = [note for note in recording.notes if note.name.startswith(ON_HOST)]
        found = [(note, note.told or {}, note) for note in on_host]
    found.sort(key=lambda one: one[0].start)
    return [_seen(span, told, note, world) for span, told, note in found]


def _around_span(notes: Sequence[RecordedSpan], moment: float, thread: str) -> RecordedSpan | None:
    """Return the innermost note of a thread around a moment."""
    place = bisect_right(notes, moment, key=attrgetter("start")) - 1
    # Collectives do not nest deeply; a few notes back is enough to pass other threads.
    for note in reversed(notes[max(0, place - 8) : place + 1]):
        if note.thread == thread and note.start <= moment <= note.end:
            return note
    return None


def _around(notes: Sequence[RecordedSpan], moment: float, thread: str) -> dict[str, Any] | None:
    note = _around_span(notes, moment, thread)
    return note.told if note and note.told and "Collective name" in note.told else None


def _seen(
    span: RecordedSpan, told: Mapping[str, Any], note: RecordedSpan | None, world: int | None
) -> Seen:
    word = str(told.get("Collective name") or (note.name if note else span.name))
    plain = re.sub(r"[^a-z]", "", (word.partition(":")[2] or word).lower())
    plain = plain.removeprefix("nccldevkernel").removeprefix("ncclkernel")
    name = called(plain) or _from_kernel(plain) or plain or "unknown"
    ranks = told.get("Group size", world)
    ranks = ranks if type(ranks) is int and 0 < ranks < MOST else world
    return Seen(name, _bytes(name, told, note, ranks), ranks, (span.end - span.start) / 1e6)


def _from_kernel(plain: str) -> str:
    words = ("allreduce", "allgather", "reducescatter", "broadcast", "sendrecv", "reduce")
    found = next((word for word in words if plain.startswith(word)), "")
    return called(found)


def _bytes(
    name: str, told: Mapping[str, Any], note: RecordedSpan | None, ranks: int | None
) -> int | None:
    """Return a call's bytes as perfsim sizes collectives, None where they are not said."""
    counts = [told.get(key) for key in ("In msg nelems", "Out msg nelems")]
    elements = max((count for count in counts if type(count) is int), default=0)
    each = bytes_of(told.get("dtype"))
    if 0 < elements < MOST and each:
        return elements * each
    if note is None or not note.shapes or not note.told:
        return None
    try:
        elements = sum(math.prod(shape) for shape in _tensors(note.shapes))
    except (TypeError, IndexError):
        return None
    types = note.told.get("types")
    each = bytes_of(types[0]) if isinstance(types, list) and types else None
    if not isinstance(elements, int) or not 0 < elements < MOST or not each:
        return None
    return elements * each * (ranks or 1 if name == "all_gather" else 1)


def _tensors(shapes: Sequence[Any]) -> list[Any]:
    """Return the shapes of the first argument, one tensor or a list of them."""
    first = shapes[0]
    return first if first and isinstance(first[0], list) else [first]


VIEWS = {f"aten::{name}" for name in ("t", "transpose", "to", "_to_copy", "permute", "view")}
"""Operators that only turn a weight for the next one; PyTorch before 1.9 calls them apart."""
ODD = re.compile(r"[^A-Za-z0-9_.-]")
"""What a layer's name does not hold."""
WORDS = ("conv", "batchnorm", "layernorm", "embedding", "lstm", "linear")
ALIASES = {"addmm": "linear", "matmul": "linear", "mm": "linear", "baddbmm": "linear"}


class Home:
    """A layer: the innermost module around an operator, else its outermost operator."""

    __slots__ = ("begun", "end", "name", "word")

    def __init__(self, name: str, word: str, begun: float, end: float) -> None:
        self.name, self.word, self.begun, self.end = name, word, begun, end


def homes(operations: Sequence[RecordedSpan], modules: Sequence[RecordedSpan]) -> list[Home]:
    """Return the home of each operator of one thread, both lists sorted by start.

    A module's layer begins with its first operator. Without modules, layers are called after
    their operators and numbered in the order that they run: conv2d_0, linear_0, conv2d_1.
    """
    outer = _outermost(operations)
    around = _innermost(operations, modules)
    known: dict[str, Home] = {}
    numbers: Counter[str] = Counter()
    made = []
    for top, module in zip(outer, around, strict=True):
        key = module.name if module else f"{top.name} {top.start}"
        if key not in known:
            name = ODD.sub("_", module.name if module else top.name.rpartition("::")[2])
            if module is None:
                number, numbers[name] = numbers[name], numbers[name] + 1
                known[key] = Home(f"{name}_{number}", name, top.start, top.end)
            else:
                known[key] = Home(name, name, top.start, top.end)
        known[key].end = max(known[key].end, top.end)
        made.append(known[key])
    return made


def kind_of(word: str) -> str:
    """Return the kind of layer that a module's or operator's name tells.

    Examples
    --------
    >>> kind_of("BatchNorm2d_3"), kind_of("native_layer_norm"), kind_of("addmm"), kind_of("mul")
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


def inside(
    spans: list[RecordedSpan], window: Window, thread: str | None = None
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
class Passes:
    """Both passes of one step on the host [us], the thread of each, layers by their beginning."""

    forward: tuple[float, float]
    backward: tuple[float, float]
    threads: tuple[str, str]
    layers: tuple[LayerSpans, ...]


def passes(recording: Recording, window: Window, path: Path) -> Passes | None:
    """Return a step's passes, None where it has no backward pass.

    Raises
    ------
    DataError
        If forward passes follow a backward pass in one step, or nodes cannot be told apart.
    """
    gradients = inside(recording.accumulations, window)
    if not gradients:
        return None
    thread = gradients[0].thread
    nodes = _nodes(inside(recording.operations, window, thread))
    if not nodes:
        raise DataError(
            "has no 'Sequence number' on its backward operators, which joins them to the layers:"
            " record it with PyTorch 1.9 or newer",
            path=path,
        )
    begun = nodes[0].start
    own = [
        operation
        for operation in inside(recording.operations, window, window.thread)
        if not _is_node(operation)
    ]
    ahead = own[: bisect_right(own, begun, key=START)]
    numbers = {node.sequence for node in nodes}
    _check_once(own[len(ahead) :], nodes if thread == window.thread else [], numbers, path)
    modules = inside(recording.modules, window, window.thread)
    by_number: dict[int | None, Home] = {}
    for operation, home in zip(ahead, homes(ahead, modules), strict=True):
        by_number[operation.sequence] = home
    made = [by_number[number] for number in numbers if number in by_number]
    if not made:
        return None
    layers = _layers(gradients, nodes, by_number)
    first = min(home.begun for home in made)
    forward = (first, min(max(home.end for home in made), begun))
    # What waits for collectives after the last node (DDP's last hook) is no part of the pass.
    backward = (begun, max(nodes[-1].end, gradients[-1].end))
    return Passes(forward, backward, (window.thread, thread), layers)


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
    by_number: dict[int | None, Home],
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
        layer = held.setdefault(home.name, LayerSpans(home.name, kind_of(home.word), home.begun))
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


def layers_of(
    layers: Sequence[LayerSpans],
) -> tuple[tuple[TracedLayer, ...], dict[str, RecordedSpan]]:
    """Return the layers with their gradients named, and gradient -> its accumulation."""
    made: list[TracedLayer] = []
    accumulated: dict[str, RecordedSpan] = {}
    for layer in layers:
        spans = sorted(layer.gradients, key=lambda span: -len(shape_of(span) or ()))
        shapes = [shape_of(span) for span in spans]
        names = [f"{layer.name}.{word}" for word in words_of(shapes, layer.kind)]
        made.append(TracedLayer(layer.name, layer.kind, tuple(zip(names, shapes, strict=True))))
        accumulated.update(zip(names, spans, strict=True))
    return tuple(made), accumulated


def shape_of(span: RecordedSpan) -> TensorShape | None:
    """Return the shape of an accumulated gradient, None where it is not said."""
    first = span.shapes[0] if span.shapes else None
    if not isinstance(first, list) or not all(type(axis) is int and axis > 0 for axis in first):
        return None
    return tuple(first)


def words_of(shapes: Sequence[TensorShape | None], kind: str) -> list[str]:
    """Return the gradients' names in their layer: matrices are weights, vectors biases.

    A normalising layer's first vector is its weight. Further ones of a kind are numbered.

    Examples
    --------
    >>> words_of([(8, 3, 3, 3), (8,)], "conv"), words_of([(8,), (8,)], "batchnorm")
    (['weight', 'bias'], ['weight', 'bias'])
    >>> words_of([(8, 4), (8, 2), (8,), (8,)], "lstm")
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


def _moments(
    recording: Recording, window: Window, one: Passes, clock: TraceClock
) -> _Moments | None:
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


def _updates(recording: Recording, window: Window, clock: TraceClock) -> list[tuple[float, float]]:
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


def _periods(recording: Recording, steps: list[_Moments], clock: TraceClock) -> None:
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


def _median(steps: list[_Moments]) -> TracedStep:
    first = steps[0]
    return TracedStep(
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
