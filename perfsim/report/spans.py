"""What ran when in a predicted period: the spans of each stream, round after round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = ["Span", "SteadyRound", "steady_rounds", "streams_of"]


@dataclass(frozen=True, slots=True)
class Span:
    """One task as it ran: seconds from the start of its round's window, clipped to it."""

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
    closes_s : end of each run in the window, which starts at 0 [s]
    streams : names, in order of first use
    spans : by start
    """

    count: float
    iterations: int
    closes_s: tuple[float, ...]
    streams: tuple[str, ...]
    spans: tuple[Span, ...]

    @property
    def window_s(self) -> float:
        """Length of all runs in the window [s]."""
        return self.closes_s[-1]

    @property
    def run_s(self) -> float:
        """Mean length of a run [s]."""
        return self.window_s / len(self.closes_s)

    def words(self, number: int, rounds: int) -> str:
        """Return what the round is, such as "round 2 of 2: 7 times 1 iteration"."""
        many = f"{self.iterations} iteration{'s' if self.iterations > 1 else ''}"
        if rounds == 1:
            return many
        times = "once" if self.count == 1 else f"{self.count:g} times"
        return f"round {number} of {rounds}: {times} {many}"


def steady_rounds(prediction: Prediction) -> list[SteadyRound]:
    """Return the steady window of each round of the predicted method's period.

    The mean iteration is that of the prediction: the sum over rounds of ``count`` times ``run_s``,
    over that of ``count`` times ``iterations``.

    Examples
    --------
    >>> from perfsim.prediction import predict
    >>> from perfsim.scenario import Scenario
    >>> rounds = steady_rounds(predict(Scenario(model="resnet50", gpus=8, method="localsgd")))
    >>> [(one.count, one.streams) for one in rounds]
    [(7, ('compute',)), (1, ('compute', 'communication'))]
    """
    pairs = zip(prediction.counts, prediction.timelines, strict=True)
    return [_round(count, timeline) for count, timeline in pairs]


def _round(count: float, timeline: Timeline) -> SteadyRound:
    if timeline.ranks or timeline.shape:
        timeline = timeline.select()  # the rank that ends last
    tasks = timeline.graph.tasks
    low = float(timeline.window[0])
    spans = [
        Span(
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
