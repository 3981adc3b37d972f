"""The critical path of the steady iteration, by stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsim.report.page.figure import Figure, axis, names, plain
from perfsim.report.page.timeline import bars
from perfsim.report.spans import Span
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.planning.critical_path import Step
    from perfsim.planning.explain import Path

__all__ = ["path_figure"]

MOST = 2000
"""Steps that are drawn, the longest ones."""

NOBODY = "nothing runs"
"""Where the path waits and no task of this worker runs."""


def path_figure(path: Path, number: int, paths: int) -> Figure:
    """Return the figure of one round's path; a table row is a step."""
    kept = sorted(path.steps, key=lambda step: step.start_s - step.end_s)[:MOST]
    kept.sort(key=lambda step: step.start_s)
    left = len(path.steps) - len(kept)
    shares = ", ".join(
        f"{kind.replace('_', ' ')} {spent_s / path.length_s:.0%}"
        for kind, spent_s in path.by_kind().items()
    )
    many = f"{path.iterations} iteration{'s' if path.iterations > 1 else ''}"
    times = "once" if path.count == 1 else f"{path.count:g} times"
    round_ = f" (round {number} of {paths}, run {times})" if paths > 1 else ""
    streams = list(dict.fromkeys(step.stream or NOBODY for step in kept))
    return Figure(
        f"path{number}",
        f"Critical path{round_}",
        f"The {len(path.steps):,} steps that {many} of {format_seconds(path.length_s)} cannot do"
        f" without, each on its stream: {shares}.",
        bars([(0.0, _span(step)) for step in kept]),
        {
            "barmode": "overlay",
            "bargap": 0.25,
            "xaxis": axis("time [ms]", range=[0.0, path.length_s * 1e3]),
            "yaxis": names([plain(name) for name in streams]),
            "height": 180 + 45 * len(streams),
        },
        ("task", "stream", "kind", "start [ms]", "length [ms]"),
        [
            (
                step.task,
                step.stream or NOBODY,
                step.kind,
                step.start_s * 1e3,
                (step.end_s - step.start_s) * 1e3,
            )
            for step in kept
        ],
        [f"The {left:,} shortest steps are left out; --json has all."] if left else [],
    )


def _span(step: Step) -> Span:
    kind = step.kind if step.stream else "other"
    return Span(step.task, step.stream or NOBODY, kind, step.start_s, step.end_s, 0.0)
