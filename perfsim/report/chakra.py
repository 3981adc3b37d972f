"""Write a prediction as an execution trace of MLCommons Chakra, in JSON.

The schema: ``et_def.proto`` of mlcommons/chakra (commit 21585d8), its messages GlobalMetadata and
Node, each in the JSON that Protocol Buffers define for them (64-bit numbers are texts). The trace
is rank 0's: every task of the method's period is a node, a collective a COMM_COLL_NODE, all else a
COMP_NODE. ``dataDeps`` are what a task waits for, ``ctrlDeps`` the task before it on its stream.
What waits for the period before has no node to depend on, as in a recording that begins there.

Chakra counts whole microseconds: starts and ends are rounded, so that the tasks of a stream leave
no gap that is not there; ``duration_s`` has the length as it was predicted. ``comm_size`` is what
Chakra's converter takes it to be, the bytes of a rank's input: for an all-gather the rank's own
block. ``pg_name`` names the ranks that take part, which the metadata list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perfsim.errors import RequestError
from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    from perfsim.prediction import Prediction
    from perfsim.simulate.task import Task

__all__ = ["CHAKRA_SCHEMA", "chakra_of", "chakra_text"]

CHAKRA_SCHEMA = "perfsim/chakra/1"

CHAKRA_COLLECTIVES = {
    "all_reduce": "ALL_REDUCE",
    "reduce": "REDUCE",
    "all_gather": "ALL_GATHER",
    "broadcast": "BROADCAST",
    "all_to_all": "ALL_TO_ALL",
    "reduce_scatter": "REDUCE_SCATTER",
}
"""perfsim's collectives, and their names in the enum CollectiveCommType."""

_COLLECTIVE_NUMBERS = {
    "ALL_REDUCE": 0,
    "REDUCE": 1,
    "ALL_GATHER": 2,
    "BROADCAST": 5,
    "ALL_TO_ALL": 6,
    "REDUCE_SCATTER": 7,
}
"""The enum's numbers, which the attribute ``comm_type`` holds."""

_CHAKRA_VERSION = "1.0.0"
"""The version of the schema, as Chakra's own generator states it."""

_MAX_NODES = 1_000_000
"""Nodes of a trace; a longer period is refused."""


def chakra_of(prediction: Prediction) -> dict[str, Any]:
    """Return the trace of the steady period: its metadata, then a node a task.

    Raises
    ------
    RequestError
        If the schema has no word for something that the method does.

    Examples
    --------
    >>> from perfsim.prediction import predict
    >>> from perfsim.scenario import Scenario
    >>> trace = chakra_of(predict(Scenario(model="resnet50", gpus=8)))
    >>> [node["name"] for node in trace["nodes"]][:2], trace["nodes"][0]["type"]
    (['forward 0', 'backward 0.0'], 'COMP_NODE')
    """
    if prediction.parallel is not None:
        raise _refused(prediction, "runs on a divided model, whose groups of ranks are not written")
    rounds = [_Round(prediction, timeline) for timeline in prediction.timelines]
    times = [int(count) for count in prediction.counts]
    if times != list(prediction.counts):
        raise _refused(prediction, "does not run its rounds a whole number of times in a period")
    total = sum(
        count * len(one.timeline.graph.tasks) for count, one in zip(times, rounds, strict=True)
    )
    if total > _MAX_NODES:
        raise _refused(
            prediction, f"has {total:,} tasks in a period, and {_MAX_NODES:,} are allowed"
        )
    nodes: list[dict[str, Any]] = []
    last: dict[str, int] = {}
    start_s = 0.0
    for count, one in zip(times, rounds, strict=True):
        for _ in range(count):
            nodes += one.nodes(len(nodes), start_s, last)
            start_s += one.length_s
    iterations = sum(
        c * one.timeline.graph.iterations for c, one in zip(times, rounds, strict=True)
    )
    return {
        "schema": CHAKRA_SCHEMA,
        "metadata": _metadata(prediction, iterations, rounds),
        "nodes": nodes,
    }


def chakra_text(prediction: Prediction) -> str:
    """Return the trace as JSON, a node a line."""
    trace = chakra_of(prediction)
    nodes = ",\n".join(json.dumps(node, allow_nan=False) for node in trace.pop("nodes"))
    return f'{json.dumps(trace, allow_nan=False)[:-1]},\n"nodes": [\n{nodes}\n]}}\n'


class _Round:
    """The last steady period of one round of a method, on rank 0."""

    def __init__(self, prediction: Prediction, timeline: Timeline) -> None:
        self.prediction = prediction
        self.timeline = timeline.select() if timeline.ranks or timeline.shape else timeline
        self.length_s = float(self.timeline.period_s)
        at = self.timeline.periods - 1
        self.starts = [float(moment) for moment in self.timeline.starts[at]]
        self.ends = [float(moment) for moment in self.timeline.ends[at]]
        self.groups: dict[str, list[int]] = {}
        self.collectives = {
            index: self._collective(task)
            for index, task in enumerate(self.timeline.graph.tasks)
            if task.kind == "communicate"
        }
        others = {task.stream for task in self.timeline.graph.tasks} & {
            *_streams_of_other_ranks(self.timeline)
        }
        if others:
            raise _refused(prediction, "waits for the computation of other ranks")

    def _collective(self, task: Task) -> tuple[str, str, float]:
        """Return the enum's word for a collective, its group's name and a rank's input [B]."""
        what = CHAKRA_COLLECTIVES.get(task.name.partition(" ")[0], "")
        if not what or hasattr(task.scope, "distances"):
            name = task.name.partition(" ")[0]
            raise _refused(self.prediction, f"sends by {name}, which Chakra has no name for")
        name, ranks = self._group(task.group)
        self.groups[name] = ranks
        return what, name, task.size_bytes / (len(ranks) if what == "ALL_GATHER" else 1)

    def _group(self, group: str | int | tuple[int, int]) -> tuple[str, list[int]]:
        """Return the name and the ranks of the group that rank 0 is in."""
        scenario = self.prediction.scenario
        gpus = int(scenario.gpus)
        placed = scenario.placement or [scenario.gpus_per_node] * scenario.nodes
        firsts = [sum(placed[:node]) for node in range(len(placed))]
        if isinstance(group, tuple):
            count, stride = group
            return f"{count} ranks {stride} apart", [index * stride for index in range(count)]
        if isinstance(group, int):
            return f"{group} ranks together", list(range(group))
        return group, {
            "all": list(range(gpus)),
            "node": list(range(placed[0])),
            "leaders": firsts,
            "across": firsts,
        }[group]

    def nodes(self, first: int, start_s: float, last: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Yield the tasks as nodes from a number on, in the order in which they start.

        ``last`` has the node before on each stream, and is kept up to date.
        """
        tasks = self.timeline.graph.tasks
        low = start_s - min(self.starts)
        order = sorted(range(len(tasks)), key=lambda at: (self.starts[at], self.ends[at], at))
        ids = {index: first + number for number, index in enumerate(order)}
        streams = {name: number for number, name in enumerate(self.timeline.graph.streams)}
        for index in order:
            task = tasks[index]
            begin, end = (round((low + row[index]) * 1e6) for row in (self.starts, self.ends))
            before = last.get(task.stream)
            node = {
                "id": str(ids[index]),
                "name": task.name,
                "type": "COMM_COLL_NODE" if index in self.collectives else "COMP_NODE",
                "ctrlDeps": [] if before is None else [str(before)],
                "dataDeps": sorted(
                    {str(ids[other]) for other, back in task.after if back == 0}, key=int
                ),
                "startTimeMicros": str(begin),
                "durationMicros": str(end - begin),
                "attr": [
                    *self._attributes(index, task),
                    _integer_attribute("stream", streams[task.stream]),
                ],
            }
            last[task.stream] = ids[index]
            yield node

    def _attributes(self, index: int, task: Task) -> Iterator[dict[str, Any]]:
        yield {"name": "is_cpu_op", "boolVal": False}
        yield {"name": "kind", "stringVal": task.kind}
        yield {"name": "stream_name", "stringVal": task.stream}
        yield {"name": "duration_s", "doubleVal": self.ends[index] - self.starts[index]}
        if index in self.collectives:
            what, group, size_bytes = self.collectives[index]
            yield _integer_attribute("comm_type", _COLLECTIVE_NUMBERS[what])
            yield _integer_attribute("comm_size", round(size_bytes))
            yield {"name": "pg_name", "stringVal": group}


def _streams_of_other_ranks(timeline: Timeline) -> Iterator[str]:
    for name in timeline.graph.streams:
        if name.startswith("rank "):
            yield name


def _integer_attribute(name: str, value: int) -> dict[str, Any]:
    return {"name": name, "int64Val": str(value)}


def _refused(prediction: Prediction, why: str) -> RequestError:
    method = prediction.scenario.method
    return RequestError("chakra", f"{method} {why}; `trace` FILE writes the same timeline.")


def _metadata(prediction: Prediction, iterations: int, rounds: list[_Round]) -> dict[str, Any]:
    scenario = prediction.scenario
    groups = {name: ranks for one in rounds for name, ranks in one.groups.items()}
    return {
        "version": _CHAKRA_VERSION,
        "attr": [
            {"name": "generator", "stringVal": "perfsim (predicted, not recorded)"},
            {"name": "model", "stringVal": scenario.model},
            {"name": "method", "stringVal": scenario.method},
            {"name": "rank", "int64Val": "0"},
            _integer_attribute("ranks", scenario.gpus),
            _integer_attribute("iterations", iterations),
            {"name": "iteration_s", "doubleVal": prediction.iteration_s},
            *(
                {"name": f"pg_name {name}", "int64List": {"values": [str(one) for one in ranks]}}
                for name, ranks in groups.items()
            ),
        ],
    }
