"""A prediction as a Chrome trace, which Perfetto and chrome://tracing open.

The format: "Trace Event Format" of the Chromium project, JSON object form. A round of the method's
period is a process, a stream a thread, a task a complete event ("X"); the thread "runs" has one
event a run of the round. Rounds follow each other. Times are microseconds with three decimals.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from perfsim.report.spans import Span, SteadyRound, steady_rounds

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = ["RUNS", "trace_of", "trace_text"]

RUNS = "runs"
"""Name of the thread that shows how long each run of a round is."""

COLOURS = {
    "forward": "thread_state_running",
    "backward": "thread_state_runnable",
    "compress": "rail_animation",
    "decompress": "rail_idle",
    "communicate": "rail_response",
    "update": "rail_load",
    "second_order": "thread_state_iowait",
    "other": "generic_work",
}
"""Reserved colour names that chrome://tracing knows."""


def trace_of(prediction: Prediction) -> dict[str, Any]:
    """Return the trace of the steady iteration, or of the method's whole period.

    ``otherData`` has, by process, how often the round is run and of how many iterations it is, so
    that the mean of the "runs" events is the predicted iteration.

    Examples
    --------
    >>> from perfsim.prediction import predict
    >>> from perfsim.scenario import Scenario
    >>> trace = trace_of(predict(Scenario(model="resnet50", gpus=8)))
    >>> [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"]
    ['runs', 'compute', 'communication']
    """
    names: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    told: list[dict[str, Any]] = []
    rounds = steady_rounds(prediction)
    start_ns = 0
    for pid, one in enumerate(rounds, 1):
        names += _names(pid, one, one.words(pid, len(rounds)))
        events += _events(pid, one, start_ns)
        told.append({"pid": pid, "count": one.count, "iterations": one.iterations})
        start_ns += _ns(one.window_s)
    events.sort(key=lambda event: (event["ts"], event["pid"], event["tid"]))
    scenario = prediction.scenario
    return {
        "traceEvents": names + events,
        "displayTimeUnit": "ms",
        "otherData": {
            "schema": "perfsim/trace/1",
            "model": scenario["model"],
            "method": scenario["method"],
            "gpus": scenario["gpus"],
            "net": scenario["net"],
            "iteration_s": prediction.iteration_s,
            "rounds": told,
        },
    }


def _names(pid: int, one: SteadyRound, words: str) -> list[dict[str, Any]]:
    """Return the metadata events that name and order a round's process and threads."""
    named = [{"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": words}}]
    for tid, stream in enumerate((RUNS, *one.streams)):
        for what, value in (("thread_name", {"name": stream}), ("thread_sort_index", tid)):
            args = value if isinstance(value, dict) else {"sort_index": value}
            named.append({"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args})
    return named


def _events(pid: int, one: SteadyRound, start_ns: int) -> list[dict[str, Any]]:
    place = {stream: tid for tid, stream in enumerate(one.streams, 1)}
    ends = [0.0, *one.closes_s]
    runs = [
        Span(f"run {number} of {len(one.closes_s)}", RUNS, "other", low_s, high_s, 0.0)
        for number, (low_s, high_s) in enumerate(pairwise(ends), 1)
    ]
    found = [_event(pid, 0, span, start_ns) for span in runs]
    found += [_event(pid, place[span.stream], span, start_ns) for span in one.spans]
    return [event for event in found if event["dur"] > 0]


def _event(pid: int, tid: int, span: Span, start_ns: int) -> dict[str, Any]:
    low_ns, high_ns = _ns(span.start_s), _ns(span.end_s)
    event: dict[str, Any] = {
        "name": span.name,
        "cat": span.kind,
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": (start_ns + low_ns) / 1000,
        "dur": (high_ns - low_ns) / 1000,
        "cname": COLOURS[span.kind],
        "args": {"kind": span.kind},
    }
    if span.size_bytes:
        event["args"] |= {"message": span.name.partition(" ")[2], "bytes": span.size_bytes}
    return event


def _ns(seconds: float) -> int:
    # Whole nanoseconds, so that an event ends exactly where the next one starts.
    return round(seconds * 1e9)


def trace_text(prediction: Prediction) -> str:
    """Return the trace as JSON, an event a line."""
    trace = trace_of(prediction)
    events = ",\n".join(json.dumps(event, allow_nan=False) for event in trace.pop("traceEvents"))
    rest = json.dumps(trace, allow_nan=False)
    return f'{{"traceEvents": [\n{events}\n],\n{rest[1:]}\n'
