"""The timeline of the steady iteration, or of every round of the method's period, by stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfsim.report.page.figure import COLOURS, Figure, axis, marker, plain, upright
from perfsim.report.spans import Span, steady_rounds, streams_of
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = ["bars", "timeline"]

KINDS = {
    "forward": (COLOURS["sky"], ""),
    "backward": (COLOURS["blue"], ""),
    "compress": (COLOURS["purple"], ""),
    "decompress": (COLOURS["purple"], "x"),
    "communicate": (COLOURS["vermilion"], "/"),
    "update": (COLOURS["green"], ""),
    "second_order": (COLOURS["yellow"], "."),
    "other": (COLOURS["grey"], ""),
}
MOST = 2000
"""Spans that are drawn, the longest ones."""

LINE = 18
"""Pixels of a line of text."""

EDGE = {"width": 1, "dash": "dot", "color": COLOURS["grey"]}
"""Where an iteration ends."""

GAP = 0.03
"""Between two rounds, as a part of the longest."""

HOVER = "%{customdata[0]}<br>%{customdata[1]:.4f} ms from %{base:.4f} ms<br>%{customdata[2]}"


def timeline(prediction: Prediction) -> Figure:
    """Return the figure; a table row is a task."""
    rounds = steady_rounds(prediction)
    gap_ms = GAP * max(one.window_s for one in rounds) * 1e3
    spans: list[tuple[float, str, Span]] = []
    shapes: list[dict[str, Any]] = []
    names: list[dict[str, Any]] = []
    offset_ms = 0.0
    for number, one in enumerate(rounds, 1):
        words = one.words(number, len(rounds))
        spans += [(offset_ms, words, span) for span in one.spans]
        names.append(_label(words, offset_ms, number))
        shapes += [upright(offset_ms + end_s * 1e3, **EDGE) for end_s in (0.0, *one.closes_s)]
        offset_ms += one.window_s * 1e3 + gap_ms
    kept = sorted(spans, key=lambda item: item[2].start_s - item[2].end_s)[:MOST]
    kept.sort(key=lambda item: (item[0], item[2].start_s))
    left = len(spans) - len(kept)
    busy = prediction.communication
    return Figure(
        "timeline",
        "Timeline by stream",
        f"What each stream does in {'; '.join(one['text'] for one in names)}: the mean iteration is"
        f" {format_seconds(prediction.iteration_s)}; communication is busy for"
        f" {format_seconds(busy['busy_s'])} of it, of which computation hides"
        f" {format_seconds(busy['hidden_s'])}.",
        bars([(offset_ms, span) for offset_ms, _, span in kept]),
        {
            "barmode": "overlay",
            "bargap": 0.25,
            "xaxis": axis("time [ms]", range=[0.0, offset_ms - gap_ms]),
            "yaxis": axis("", categoryarray=list(map(plain, streams_of(rounds)[::-1]))),
            "shapes": shapes,
            "annotations": names if len(rounds) > 1 else [],
            "margin": {"t": 20 + LINE * len(rounds)},
            "height": 180 + LINE * len(rounds) + 45 * len(streams_of(rounds)),
        },
        ("round", "stream", "task", "kind", "start [ms]", "length [ms]", "message [B]"),
        [_row(words, span) for _, words, span in kept],
        [f"The {left:,} shortest tasks are left out; the trace has all."] if left else [],
    )


def _row(words: str, span: Span) -> tuple[str | float, ...]:
    start_ms, size_bytes = span.start_s * 1e3, span.size_bytes or ""
    return (words, span.stream, span.name, span.kind, start_ms, _length_ms(span), size_bytes)


def _length_ms(span: Span) -> float:
    return (span.end_s - span.start_s) * 1e3


def bars(spans: Sequence[tuple[float, Span]]) -> list[dict[str, Any]]:
    """Return a bar a span, that much later [ms], in a trace a kind."""
    found = []
    for kind, (colour, hatch) in KINDS.items():
        own = [(offset_ms, span) for offset_ms, span in spans if span.kind == kind]
        if not own:
            continue
        found.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": kind.replace("_", " "),
                "y": [plain(span.stream) for _, span in own],
                "base": [offset_ms + span.start_s * 1e3 for offset_ms, span in own],
                "x": [_length_ms(span) for _, span in own],
                "marker": marker(colour, hatch),
                "customdata": [
                    [plain(span.name), _length_ms(span), _message(span)] for _, span in own
                ],
                "hovertemplate": HOVER,
            }
        )
    return found


def _message(span: Span) -> str:
    return f"message of {span.size_bytes:,.0f} B" if span.size_bytes else ""


def _label(words: str, at_ms: float, number: int) -> dict[str, Any]:
    # A line each, as a short round leaves no room before the next one.
    return {
        "yshift": LINE * (number - 1),
        "text": words,
        "x": at_ms,
        "y": 1.0,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }
