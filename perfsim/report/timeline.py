"""The steady timeline of a prediction: its tasks as spans, and as text with a line a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from typing import TYPE_CHECKING

from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.prediction import Prediction
    from perfsim.report.pipeline_drawing import DrawnRun

__all__ = [
    "KIND_LETTERS",
    "SteadyRound",
    "TimelineSpan",
    "steady_rounds",
    "streams_of",
    "text_timeline",
]

KIND_LETTERS = {
    "forward": "F",
    "backward": "B",
    "compress": "C",
    "decompress": "D",
    "communicate": "=",
    "update": "U",
    "second_order": "S",
    "other": "o",
}

_PARTLY_IDLE = {"=": "-", "o": ","}
"""Small letters that are not the letter in lower case."""

_IDLE_LETTER = "."

_TIMELINE_COLUMNS = 80

_MAX_STREAM_NAME = 16

_TICKS = 5
"""Numbers on the scale, about."""


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """One task as it ran: seconds from the start of its round's window, clipped to that."""

    name: str
    stream: str
    kind: str
    start_s: float
    end_s: float
    size_bytes: float


@dataclass(frozen=True, slots=True)
class SteadyRound:
    """The steady periods of one round of a method.

    Parameters
    ----------
    count : how many times the round is run in the method's period
    iterations : training iterations in one run of it
    closes_s : end of each run in the window, which begins at 0 [s]
    streams : names, in order of first use
    spans : by start
    """

    count: float
    iterations: int
    closes_s: tuple[float, ...]
    streams: tuple[str, ...]
    spans: tuple[TimelineSpan, ...]

    @property
    def window_s(self) -> float:
        """Length of all runs in the window [s]."""
        return self.closes_s[-1]

    def words(self, number: int, rounds: int) -> str:
        """Describe the round, such as "round 2 of 2: 7 times 1 iteration"."""
        many = f"{self.iterations} iteration{'s' if self.iterations > 1 else ''}"
        if rounds == 1:
            return many
        times = "once" if self.count == 1 else f"{self.count:g} times"
        return f"round {number} of {rounds}: {times} {many}"


def steady_rounds(prediction: Prediction) -> list[SteadyRound]:
    """Return the steady window of each round of the predicted method's period.

    The mean iteration is that of the prediction: the sum over rounds of ``count`` times the mean
    run, over that of ``count`` times ``iterations``.

    Examples
    --------
    >>> from perfsim.prediction import predict
    >>> from perfsim.scenario import Scenario
    >>> rounds = steady_rounds(predict(Scenario(model="resnet50", gpus=8, method="localsgd")))
    >>> [(one.count, one.streams) for one in rounds]
    [(7, ('compute',)), (1, ('compute', 'communication'))]
    """
    pairs = zip(prediction.counts, prediction.timelines, strict=True)
    rounds = [_round(count, timeline) for count, timeline in pairs]
    parallel = prediction.parallel
    if parallel is None or parallel.run is None:
        return rounds
    return [*rounds[:-1], _with_stages(rounds[-1], parallel.run)]


_MAX_PASSES = 20_000
"""Passes of a pipeline that are drawn; of a longer iteration none."""
_PASS_KINDS = {"F": "forward", "B": "backward", "W": "backward"}
_PASS_WORDS = {"F": "forward", "B": "backward", "W": "weights of"}


def _with_stages(steady: SteadyRound, run: DrawnRun) -> SteadyRound:
    """Add a stream for each stage of a pipeline, with its passes in the first iteration."""
    passes = run.passes() if run.micro_batches * run.stages * run.chunks <= _MAX_PASSES else []
    names = [f"stage {stage}" for stage in range(run.stages)] if passes else []
    spans = [
        TimelineSpan(
            f"{_PASS_WORDS[one.kind]} {one.micro_batch}"
            + (f", chunk {one.chunk}" if run.chunks > 1 else ""),
            names[one.stage],
            _PASS_KINDS[one.kind],
            one.start_s,
            one.end_s,
            0.0,
        )
        for one in passes
    ]
    every = sorted([*steady.spans, *spans], key=lambda span: (span.start_s, span.end_s))
    return replace(steady, streams=(*steady.streams, *names), spans=tuple(every))


def _round(count: float, timeline: Timeline) -> SteadyRound:
    if timeline.ranks or timeline.shape:
        timeline = timeline.select()  # the rank that ends last
    tasks = timeline.graph.tasks
    low = float(timeline.window[0])
    spans = [
        TimelineSpan(
            tasks[index].name,
            tasks[index].stream,
            tasks[index].kind,
            start - low,
            end - low,
            tasks[index].size_bytes,
        )
        for index, start, end in timeline.intervals()
        if end > start
    ]
    closes = [float(close) - low for close in timeline.closes[-timeline.averaged :]]
    return SteadyRound(
        count,
        timeline.graph.iterations,
        tuple(closes),
        timeline.graph.streams,
        tuple(sorted(spans, key=lambda span: (span.start_s, span.end_s))),
    )


def streams_of(rounds: Sequence[SteadyRound]) -> list[str]:
    """Return the streams of all rounds, in order of first use."""
    return list(dict.fromkeys(stream for one in rounds for stream in one.streams))


def text_timeline(prediction: Prediction, width: int = _TIMELINE_COLUMNS) -> list[str]:
    """Return the lines of the steady iteration, or of every round of the method's period.

    A cell has the letter of what its stream does longest in it, a small letter ("-" for "=") if it
    is idle for longer, and "." if it is idle throughout. Streams and scales have ``width``
    columns; the first line, the key, may have more.

    Examples
    --------
    >>> from perfsim.prediction import predict
    >>> from perfsim.scenario import Scenario
    >>> for line in text_timeline(predict(Scenario(model="resnet50", gpus=8, net="1gbe")))[1:]:
    ...     print(line)
    compute       FFBB.............................................................u
    communication .-================================================================
                  |-----------------|----------------|-----------------|------------
    ms            0                 500              1000              1500
    """
    rounds = steady_rounds(prediction)
    lines = [f"timeline: {_key(rounds)}"]
    for number, one in enumerate(rounds, 1):
        if len(rounds) > 1 or one.iterations * len(one.closes_s) > 1:
            mean = f", mean of {len(one.closes_s)} runs" if len(one.closes_s) > 1 else ""
            lines.append(f"{one.words(number, len(rounds))}{mean}")
        lines += _drawn(one, width)
    return lines


def _key(rounds: Sequence[SteadyRound]) -> str:
    used = {span.kind for one in rounds for span in one.spans}
    words = [
        f"{KIND_LETTERS[kind]} {kind.replace('_', ' ')}" for kind in KIND_LETTERS if kind in used
    ]
    return ", ".join([*words, f"{_IDLE_LETTER} idle, small where mostly idle"])


def _drawn(steady: SteadyRound, width: int) -> list[str]:
    """Return a line a stream and the scale below them."""
    names = {stream: _short(stream) for stream in steady.streams}
    margin = max(len(name) for name in names.values()) + 1
    cells = width - margin
    by_stream: dict[str, list[TimelineSpan]] = {stream: [] for stream in steady.streams}
    for span in steady.spans:
        by_stream[span.stream].append(span)
    lines = [
        f"{names[stream]:{margin}}{row(spans, steady.window_s, cells)}"
        for stream, spans in by_stream.items()
    ]
    marks, numbers = _scale(steady.window_s, cells)
    return [*lines, f"{'':{margin}}{marks}".rstrip(), f"{'ms':{margin}}{numbers}".rstrip()]


def _short(name: str) -> str:
    return name if len(name) <= _MAX_STREAM_NAME else name[: _MAX_STREAM_NAME - 1] + "~"


def row(spans: Sequence[TimelineSpan], window_s: float, cells: int) -> str:
    """Return the cells of one stream.

    Examples
    --------
    >>> spans = [TimelineSpan("b", "compute", "backward", 0.0, 2.0, 0.0)]
    >>> row(spans, 4.0, 8)
    'BBBB....'
    """
    spent: list[dict[str, float]] = [{} for _ in range(cells)]
    each_s = window_s / cells
    for span in spans:
        cell = min(int(span.start_s / each_s), cells - 1)
        while cell < cells and cell * each_s < span.end_s:
            inside = min(span.end_s, (cell + 1) * each_s) - max(span.start_s, cell * each_s)
            kinds = spent[cell]
            kinds[span.kind] = kinds.get(span.kind, 0.0) + inside
            cell += 1
    return "".join(_letter(kinds, each_s) for kinds in spent)


def _letter(kinds: dict[str, float], each_s: float) -> str:
    if not kinds:
        return _IDLE_LETTER
    longest = max(kinds, key=lambda kind: kinds[kind])
    letter = KIND_LETTERS[longest]
    if kinds[longest] >= each_s - sum_in_order(kinds.values()):
        return letter
    return _PARTLY_IDLE.get(letter, letter.lower())


def _scale(window_s: float, cells: int) -> tuple[str, str]:
    """Return the marks under the rows and the milliseconds under the marks."""
    step = _step(window_s * 1e3 / _TICKS)
    marks, numbers = ["-"] * cells, [" "] * cells
    count = 0
    while count * step <= window_s * 1e3:
        at = round(count * step / (window_s * 1e3) * (cells - 1))
        marks[at] = "|"
        text = f"{count * step:g}"
        start = min(at, cells - len(text))
        if all(letter == " " for letter in numbers[max(start - 1, 0) : start + len(text)]):
            numbers[start : start + len(text)] = text
        count += 1
    return "".join(marks), "".join(numbers)


def _step(least: float) -> float:
    """Return the first of 1, 2 or 5 times a power of ten that is not below ``least``.

    Examples
    --------
    >>> _step(3.0), _step(0.11), _step(10.0)
    (5.0, 0.2, 10.0)
    """
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least)
