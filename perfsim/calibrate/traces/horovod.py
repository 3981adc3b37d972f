"""Horovod timeline (HOROVOD_TIMELINE, Chrome JSON).

Every tensor is a process of the trace (horovod/common/timeline.cc). It shows
``NEGOTIATE_ALLREDUCE`` with a tick for each rank that is ready, then ``ALLREDUCE`` with its
activities. Of these ``NCCL_ALLREDUCE``, ``MPI_ALLREDUCE``, ``GLOO_ALLREDUCE`` and the like are the
collective itself; its end gives type and shape. Tensors that are fused into one message begin and
end such an activity together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from perfsim.calibrate.traces.chrome_json import EVENTS, microseconds, trace_entries
from perfsim.calibrate.traces.training_trace import (
    TracedCollective,
    TrainingTrace,
    element_bytes,
    traced_collective_name,
)
from perfsim.data.files import printable
from perfsim.errors import DataError
from perfsim.quantity import MESSAGE_LIMIT

__all__ = ["matches", "read"]

MAX_CALLS = 500_000
"""Messages in memory, each with the names of its tensors. No source: chosen, some hundred MB."""
MAX_AXES = 32
"""Axes of a tensor that count. No source: chosen."""
_SIGNS = ("NEGOTIATE_", "start_time_since_epoch_in_micros")
_ACTIVITY = re.compile(r"(NCCL|MPI|GLOO|CCL)_([A-Z]+)$")
"""Library and collective of an activity that is a message."""
_OTHER_NAMES = {"BCAST": "broadcast"}
_AXIS = re.compile(r"\d{1,15}")


def matches(head: str) -> bool:
    """Say whether a trace begins as Horovod's does."""
    return any(sign in head for sign in _SIGNS)


def read(path: Path) -> TrainingTrace:
    """Read a timeline: its collectives, and when each tensor was ready; it shows no passes.

    Raises
    ------
    DataError
        If it is damaged or shows no collective.
    """
    timeline = _Timeline(path)
    for count, (key, event) in enumerate(trace_entries(path), 1):
        if key == EVENTS:
            timeline.take(event, count)
    collectives = [call.collective(timeline.ranks) for call in timeline.calls if call.seconds > 0]
    if not collectives:
        raise DataError(
            "shows no collective: no NCCL_, MPI_ or GLOO_ activity begins and ends", path=path
        )
    libraries = {call.library for call in timeline.calls}
    return TrainingTrace(
        step=None,
        collectives=tuple(collectives),
        library=libraries.pop() if len(libraries) == 1 else "",
        world=timeline.ranks,
        ready_s=timeline.ready_s(),
    )


@dataclass
class _Call:
    """One message: the tensors in it, when its activity began and ended [us]."""

    activity: str
    begun: float
    tensors: list[str] = field(default_factory=list)
    ended: float | None = None
    size_bytes: int | None = 0
    alone: bool = True

    @property
    def library(self) -> str:
        found = _ACTIVITY.search(self.activity)
        return found[1].lower() if found else ""

    @property
    def seconds(self) -> float:
        return 0.0 if self.ended is None else (self.ended - self.begun) / 1e6

    def collective(self, ranks: int | None) -> TracedCollective:
        found = _ACTIVITY.search(self.activity)
        word = found[2] if found else self.activity
        name = _OTHER_NAMES.get(word) or traced_collective_name(word) or word.lower()
        # Parts of a hierarchical collective run on ranks that the timeline does not name.
        group = ranks if self.alone else None
        return TracedCollective(name, self.size_bytes or None, group, self.seconds)


class _Timeline:
    """The state of reading: events are taken in the order of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, list[tuple[str, _Call | None]]] = {}
        self._calls_of: dict[str, list[_Call]] = {}
        self._last_begun = ""
        self._names: dict[str, str] = {}
        self._negotiations: list[dict[str, float]] = [{}]
        self._greatest_rank = -1
        self.calls: list[_Call] = []

    @property
    def ranks(self) -> int | None:
        """Ranks that were ready at least once."""
        return self._greatest_rank + 1 if self._greatest_rank >= 0 else None

    def take(self, event: Any, count: int) -> None:
        """Take one event; ``count`` is its number in the file."""
        if not isinstance(event, dict):
            raise DataError(f"is a damaged trace: event {count} is no object", path=self._path)
        phase, tensor = event.get("ph"), printable(str(event.get("pid")))
        name = printable(str(event.get("name", "")))
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        where = f"{self._path}: event {count}"
        if phase == "M" and name == "process_name" and "name" in args:
            self._names[tensor] = printable(str(args["name"]))
        elif phase == "X" and name.isdecimal() and len(name) < 8:
            self._greatest_rank = max(self._greatest_rank, int(name))
        elif phase == "B":
            self._begin(tensor, name, microseconds(event, "ts", where))
        elif phase == "E":
            self._end(tensor, microseconds(event, "ts", where), args)

    def _begin(self, tensor: str, name: str, moment: float) -> None:
        if name.startswith("NEGOTIATE_"):
            tensor_name = self._names.get(tensor, tensor)
            if tensor_name in self._negotiations[-1]:
                self._negotiations.append({})
            self._negotiations[-1][tensor_name] = moment
        call = None
        if _ACTIVITY.search(name):
            call = self._call(name, moment)
            call.begun = moment
            call.tensors.append(tensor)
            self._calls_of.setdefault(tensor, []).append(call)
        self._last_begun = name
        self._open.setdefault(tensor, []).append((name, call))

    def _call(self, activity: str, moment: float) -> _Call:
        """Return the message that an activity is part of: the last one if they are fused."""
        last = self.calls[-1] if self.calls else None
        if last and self._last_begun == activity == last.activity and last.ended is None:
            return last
        call = _Call(activity, moment)
        self.calls.append(call)
        if len(self.calls) > MAX_CALLS:
            why = f"holds more than {MAX_CALLS:,} messages; record fewer steps"
            raise DataError(why, path=self._path)
        return call

    def _end(self, tensor: str, moment: float, args: Mapping[str, Any]) -> None:
        activities = self._open.get(tensor)
        if not activities:
            return
        _, call = activities.pop()
        if call is not None and call.ended is None:
            call.ended = moment
        if not activities:
            self._add_bytes(self._calls_of.pop(tensor, []), args)

    def _add_bytes(self, calls: list[_Call], args: Mapping[str, Any]) -> None:
        """Add a tensor's bytes to the calls that it was part of."""
        each, shape = element_bytes(args.get("dtype")), args.get("shape")
        size = None
        if each and isinstance(shape, str):
            size = each * math.prod(map(int, _AXIS.findall(shape)[:MAX_AXES]))
            size = size if size < MESSAGE_LIMIT.most else None
        for call in calls:
            known = size is not None and call.size_bytes is not None
            call.size_bytes = (call.size_bytes or 0) + (size or 0) if known else None
            call.alone = call.alone and len(calls) == 1

    def ready_s(self) -> dict[str, float]:
        """Return each tensor's median ready moment, from the first tensor of its round [s]."""
        rounds = [moments for moments in self._negotiations if moments]
        most = max(map(len, rounds), default=0)
        ready: dict[str, list[float]] = {}
        for moments in rounds:
            if len(moments) == most:
                first = min(moments.values())
                for name, moment in moments.items():
                    ready.setdefault(name, []).append((moment - first) / 1e6)
        return {name: median(own) for name, own in ready.items()}
