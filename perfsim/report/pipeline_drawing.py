"""Draw one iteration of a pipeline as text: a line a stage, time from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Protocol

from perfsim.sums import sum_in_order
from perfsim.units import format_seconds

__all__ = ["DrawnPass", "DrawnRun", "draw_pipeline"]

_GLYPHS = {"F": "0123456789", "B": "abcdefghij", "W": "w"}
"""Of passes, by kind and the last digit of the micro-batch's number."""

_IDLE = "."

_MIN_COLUMNS = 10
"""Columns of time that a drawing has at least, whatever the width."""


class DrawnPass(Protocol):
    """What is drawn of a pass (`perfsim.schedule.pipeline.PipelinePass`)."""

    @property
    def stage(self) -> int:
        """Return which stage runs it."""

    @property
    def chunk(self) -> int:
        """Return the number of its chunk of the stage."""

    @property
    def micro_batch(self) -> int:
        """Return the number of its micro-batch."""

    @property
    def kind(self) -> str:
        """Return F for forward, B for backward, W for gradients of weights."""

    @property
    def start_s(self) -> float:
        """Return when it begins [s]."""

    @property
    def end_s(self) -> float:
        """Return when it ends [s]."""


class DrawnRun(Protocol):
    """What is drawn of an iteration (`perfsim.schedule.pipeline.PipelineRun`)."""

    @property
    def stages(self) -> int:
        """Return how many stages there are."""

    @property
    def chunks(self) -> int:
        """Return how many chunks a stage has."""

    @property
    def micro_batches(self) -> int:
        """Return how many micro-batches there are."""

    @property
    def total_s(self) -> float:
        """Return when the last stage ends [s]."""

    def passes(self) -> Sequence[DrawnPass]:
        """Return all passes."""


def draw_pipeline(run: DrawnRun, width: int = 80) -> list[str]:
    """Draw when each stage computes, in at most ``width`` columns, then what the glyphs mean.

    A column shows what has most of its time, a pass or none. Digits and letters are the last digit
    of the micro-batch's number.

    Examples
    --------
    >>> from perfsim.schedule.pipeline import StageTimes, pipeline_run
    >>> run = pipeline_run("1f1b", [[StageTimes(1.0, 2.0)] * 3], 4, 0.0)
    >>> for line in draw_pipeline(run, 26):
    ...     print(line)
    stage 0 012....aa3bb.cc.dd
    stage 1 .01..aa2bb3cc.dd..
    stage 2 ..0aa1bb2cc3dd....
    0-9 forward, a-j backward
    (last digit), . idle; 1 s
    a column
    """
    passes = run.passes()
    room = len(f"stage {run.stages - 1} ")
    columns = max(width - room, _MIN_COLUMNS)
    each_s = run.total_s / columns or 1.0
    lines = [
        f"stage {stage} ".ljust(room)
        + _drawn((one for one in passes if one.stage == stage), columns, each_s)
        for stage in range(run.stages)
    ]
    split = ", w weights" if any(one.kind == "W" for one in passes) else ""
    legend = (
        f"0-9 forward, a-j backward (last digit){split}, {_IDLE} idle; "
        f"{format_seconds(each_s, 3)} a column"
    )
    return [*lines, *wrap(legend, max(width, _MIN_COLUMNS), break_on_hyphens=False)]


def _drawn(passes: Iterable[DrawnPass], columns: int, each_s: float) -> str:
    """Return a stage's columns: of each, the glyph with the largest share of its time."""
    shares: list[dict[str, float]] = [{} for _ in range(columns)]
    for one in passes:
        glyphs = _GLYPHS[one.kind]
        glyph = glyphs[one.micro_batch % len(glyphs)]
        start, end = one.start_s / each_s, one.end_s / each_s
        for column in range(int(start), min(int(end) + 1, columns)):
            share = min(end, column + 1) - max(start, column)
            shares[column][glyph] = shares[column].get(glyph, 0.0) + share
    for share_of in shares:
        share_of[_IDLE] = 1.0 - sum_in_order(share_of.values())
    return "".join(max(share_of, key=lambda glyph: share_of[glyph]) for share_of in shares)
