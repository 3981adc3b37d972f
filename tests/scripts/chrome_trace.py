"""`python tests/scripts/chrome_trace.py out.json` prints why a trace is wrong, exit code 1.

The format: "Trace Event Format", Chromium project, the JSON object form.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

COMPLETE = {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"}
METADATA = {
    "process_name": "name",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
    "process_sort_index": "sort_index",
}
NANOSECONDS = 1000


def problems(trace: dict[str, Any]) -> list[str]:
    """Return what is wrong with a trace of a prediction."""
    events = trace.get("traceEvents")
    if not isinstance(events, list):
        return ["traceEvents is no list"]
    found = []
    complete = [event for event in events if event.get("ph") == "X"]
    for event in events:
        found += _event_problems(event)
    if found:
        return found
    if not complete:
        found.append("there is no complete event")
    found += _order(complete)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    found += [
        f"thread {place} has no name"
        for place in sorted({(event["pid"], event["tid"]) for event in complete} - named)
    ]
    return found + _sums(trace, complete)


def _event_problems(event: dict[str, Any]) -> list[str]:
    kind = event.get("ph")
    if kind == "M":
        key = METADATA.get(event.get("name", ""))
        wrong = key is None or key not in event.get("args", {})
        return [f"metadata event {event} names nothing"] if wrong else []
    if kind != "X":
        return [f"event {event} is neither complete (X) nor metadata (M)"]
    missing = sorted(COMPLETE - set(event))
    if missing:
        return [f"event {event.get('name')!r} lacks {', '.join(missing)}"]
    numbers = {key: event[key] for key in ("ts", "dur", "pid", "tid")}
    wrong = [key for key, value in numbers.items() if not _is_number(value) or value < 0]
    return [f"event {event['name']!r} has {key} {event[key]!r}" for key in wrong]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _order(complete: list[dict[str, Any]]) -> list[str]:
    found = []
    if any(one["ts"] > other["ts"] for one, other in pairwise(complete)):
        found.append("the events are not sorted by ts")
    threads: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in complete:
        threads.setdefault((event["pid"], event["tid"]), []).append(event)
    for events in threads.values():
        for one, other in pairwise(sorted(events, key=lambda event: event["ts"])):
            end_ns = round(one["ts"] * NANOSECONDS) + round(one["dur"] * NANOSECONDS)
            if end_ns > round(other["ts"] * NANOSECONDS):
                found.append(f"{one['name']!r} and {other['name']!r} overlap on one thread")
    return found


def _sums(trace: dict[str, Any], complete: list[dict[str, Any]]) -> list[str]:
    """Say where the runs do not add up to a prediction, or a task leaves the runs."""
    told = trace["otherData"]
    every = told.get("predictions", [told])
    pids = [part["pid"] for one in every for part in one["rounds"]]
    found = []
    if len(set(pids)) < len(pids) or set(pids) != {event["pid"] for event in complete}:
        found.append("the processes are not those of the predictions, one for each round")
        return found
    for one in every:
        found += _sum(one, complete)
    return found


def _sum(told: dict[str, Any], complete: list[dict[str, Any]]) -> list[str]:
    period_us = iterations = 0.0
    found = []
    for part in told["rounds"]:
        runs = [e for e in complete if (e["pid"], e["tid"]) == (part["pid"], 0)]
        tasks = [e for e in complete if e["pid"] == part["pid"] and e["tid"]]
        start, end = runs[0]["ts"], runs[-1]["ts"] + runs[-1]["dur"]
        period_us += part["count"] * sum(run["dur"] for run in runs) / len(runs)
        iterations += part["count"] * part["iterations"]
        found += [
            f"{task['name']!r} is outside the runs of its round"
            for task in tasks
            if task["ts"] < start - 1e-3 or task["ts"] + task["dur"] > end + 1e-3
        ]
    predicted_us = told["iteration_s"] * 1e6
    if abs(period_us / iterations - predicted_us) > 1e-6 * predicted_us:
        found.append(
            f"{told['method']}: runs add up to {period_us / iterations} us,"
            f" predicted {predicted_us} us"
        )
    return found


if __name__ == "__main__":
    wrong = problems(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print("\n".join(wrong) or "a Chrome trace whose spans add up to the prediction")
    sys.exit(1 if wrong else 0)
