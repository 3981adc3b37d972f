"""The timeline of a prediction as text: a line a stream, a letter by kind, a scale in ms."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from typing import TYPE_CHECKING

from perfsim.report.spans import Span, SteadyRound, steady_rounds

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = ["LETTERS", "text_timeline"]

LETTERS = {
    "forward": "F",
    "backward": "B",
    "compress": "C",
    "decompress": "D",
    "communicate": "=",
    "update": "U",
    "second_order": "S",
    "other": "o",
}
SMALL = {"=": "-", "o": ","}
"""Where a small letter is not the letter in lower case."""

IDLE = "."
WIDTH = 80
LONGEST_NAME = 16
TICKS = 5
"""About as many numbers stand on the scale."""


def text_timeline(prediction: Prediction, width: int = WIDTH) -> list[str]:
    """Return the lines of the steady iteration, or of every round of the method's period.

    A cell has the letter of what its stream does longest in it, a small one ("-" for "=") where it
    is idle for longer than that, and "." where it is idle throughout. Lines of the streams and
    their scales have ``width`` columns; the first line, which is the key, may have more.

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
    words = [f"{LETTERS[kind]} {kind.replace('_', ' ')}" for kind in LETTERS if kind in used]
    return ", ".join([*words, f"{IDLE} idle, small where mostly idle"])


def _drawn(one: SteadyRound, width: int) -> list[str]:
    """Return a line a stream and the scale below them."""
    names = {stream: _short(stream) for stream in one.streams}
    margin = max(len(name) for name in names.values()) + 1
    cells = width - margin
    by_stream: dict[str, list[Span]] = {stream: [] for stream in one.streams}
    for span in one.spans:
        by_stream[span.stream].append(span)
    lines = [
        f"{names[stream]:{margin}}{row(spans, one.window_s, cells)}"
        for stream, spans in by_stream.items()
    ]
    marks, numbers = _scale(one.window_s, cells)
    return [*lines, f"{'':{margin}}{marks}".rstrip(), f"{'ms':{margin}}{numbers}".rstrip()]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "~"


def row(spans: Sequence[Span], window_s: float, cells: int) -> str:
    """Return the cells of one stream.

    Examples
    --------
    >>> spans = [Span("b", "compute", "backward", 0.0, 2.0, 0.0)]
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
        return IDLE
    longest = max(kinds, key=lambda kind: kinds[kind])
    letter = LETTERS[longest]
    if kinds[longest] >= each_s - sum(kinds.values()):
        return letter
    return SMALL.get(letter, letter.lower())


def _scale(window_s: float, cells: int) -> tuple[str, str]:
    """Return the marks under the rows and the milliseconds under the marks."""
    step = _step(window_s * 1e3 / TICKS)
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
