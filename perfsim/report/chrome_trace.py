"""Write predictions as a Chrome trace, which Perfetto and chrome://tracing open.

The format: "Trace Event Format" of the Chromium project, JSON object form. A round of the method's
period is a process, a stream a thread, a task a complete event ("X"); the thread "runs" has one
event a run of the round. Rounds follow each other; of several predictions each has its own
processes. Times are microseconds with three decimals.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from perfsim.report.timeline import SteadyRound, TimelineSpan, steady_rounds

if TYPE_CHECKING:
    from perfsim.prediction import Prediction

__all__ = ["RUNS_THREAD", "trace_of", "trace_of_all", "trace_text"]

CHROME_TRACE_SCHEMA = "perfsim/trace/1"

RUNS_THREAD = "runs"
"""Name of the thread that shows how long each run of a round is."""

_TRACE_COLOURS = {
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
    >>> trace = trace_of(predict(Scenario(model="resnet50", gpus=8, net="10gbe")))
    >>> [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"]
    ['runs', 'compute', 'communication']
    """
    names, events, rounds = _processes(prediction, 1)
    return _trace(names, events, _other_data(prediction, rounds))


def trace_of_all(predictions: Mapping[str, Prediction]) -> dict[str, Any]:
    """Return one trace of several predictions, by name: the processes of each, all from time 0.

    ``otherData`` has, for each, what ``trace_of`` has of one.

    Examples
    --------
    >>> from perfsim import Scenario, compare
    >>> found = compare(Scenario(model="resnet50", gpus=8), ["ssgd", "localsgd"])
    >>> trace = trace_of_all(found.ranking.predictions)
    >>> [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    ['ssgd, 1 iteration', 'localsgd, round 1 of 2: 7 times 1 iteration', \
'localsgd, round 2 of 2: once 1 iteration']
    """
    names: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    records = []
    for name, one in predictions.items():
        first = 1 + sum(event["name"] == "process_name" for event in names)
        own, its, rounds = _processes(one, first, f"{name}, ")
        names += own
        events += its
        records.append(_other_data(one, rounds))
    return _trace(names, events, {"schema": CHROME_TRACE_SCHEMA, "predictions": records})


def _trace(
    names: list[dict[str, Any]], events: list[dict[str, Any]], other: dict[str, Any]
) -> dict[str, Any]:
    events.sort(key=lambda event: (event["ts"], event["pid"], event["tid"]))
    return {"traceEvents": names + events, "displayTimeUnit": "ms", "otherData": other}


def _other_data(prediction: Prediction, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    scenario = prediction.scenario
    return {
        "schema": CHROME_TRACE_SCHEMA,
        "model": scenario.model,
        "method": scenario.method,
        "gpus": scenario.gpus,
        "net": scenario.net,
        "iteration_s": prediction.iteration_s,
        "rounds": rounds,
    }


def _processes(
    prediction: Prediction, first: int, before: str = ""
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return metadata events, events, and a record of each round; ``first`` is the first pid."""
    names: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    rounds = steady_rounds(prediction)
    start_ns = 0
    for number, one in enumerate(rounds, 1):
        pid = first + number - 1
        names += _names(pid, one, before + one.words(number, len(rounds)))
        events += _events(pid, one, start_ns)
        records.append({"pid": pid, "count": one.count, "iterations": one.iterations})
        start_ns += _ns(one.window_s)
    return names, events, records


def _names(pid: int, steady: SteadyRound, words: str) -> list[dict[str, Any]]:
    """Return the metadata events that name and order a round's process and threads."""
    named: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": words}},
        {
            "name": "process_sort_index",
            "ph": "M",
            "pid": pid,
            "tid": 0,
            "args": {"sort_index": pid},
        },
    ]
    for tid, stream in enumerate((RUNS_THREAD, *steady.streams)):
        for what, value in (("thread_name", {"name": stream}), ("thread_sort_index", tid)):
            args = value if isinstance(value, dict) else {"sort_index": value}
            named.append({"name": what, "ph": "M", "pid": pid, "tid": tid, "args": args})
    return named


def _events(pid: int, steady: SteadyRound, start_ns: int) -> list[dict[str, Any]]:
    tids = {stream: tid for tid, stream in enumerate(steady.streams, 1)}
    ends = [0.0, *steady.closes_s]
    runs = [
        TimelineSpan(
            f"run {number} of {len(steady.closes_s)}", RUNS_THREAD, "other", low_s, high_s, 0.0
        )
        for number, (low_s, high_s) in enumerate(pairwise(ends), 1)
    ]
    events = [_event(pid, 0, span, start_ns) for span in runs]
    events += [_event(pid, tids[span.stream], span, start_ns) for span in steady.spans]
    return [event for event in events if event["dur"] > 0]


def _event(pid: int, tid: int, span: TimelineSpan, start_ns: int) -> dict[str, Any]:
    low_ns, high_ns = _ns(span.start_s), _ns(span.end_s)
    event: dict[str, Any] = {
        "name": span.name,
        "cat": span.kind,
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": (start_ns + low_ns) / 1000,
        "dur": (high_ns - low_ns) / 1000,
        "cname": _TRACE_COLOURS[span.kind],
        "args": {"kind": span.kind},
    }
    if span.size_bytes:
        event["args"] |= {"message": span.name.partition(" ")[2], "bytes": span.size_bytes}
    return event


def _ns(seconds: float) -> int:
    # Whole nanoseconds, so that an event ends exactly where the next one starts.
    return round(seconds * 1e9)


def trace_text(trace: Mapping[str, Any]) -> str:
    """Return a trace as JSON, an event a line."""
    rest = dict(trace)
    events = ",\n".join(json.dumps(event, allow_nan=False) for event in rest.pop("traceEvents"))
    return f'{{"traceEvents": [\n{events}\n],\n{json.dumps(rest, allow_nan=False)[1:]}\n'
