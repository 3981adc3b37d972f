"""Horovod timeline (HOROVOD_TIMELINE, Chrome JSON).

Every tensor is a process of the trace (horovod/common/timeline.cc): ``NEGOTIATE_ALLREDUCE`` with a
tick a rank that is ready, then ``ALLREDUCE`` with its activities, of which ``NCCL_ALLREDUCE``,
``MPI_ALLREDUCE``, ``GLOO_ALLREDUCE`` and the like are the collective itself; the end says type and
shape. Tensors fused into one message begin and end such an activity together.
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

SIGNS = ("NEGOTIATE_", "start_time_since_epoch_in_micros")
CALL = re.compile(r"(NCCL|MPI|GLOO|CCL)_([A-Z]+)$")
WORDS = {"BCAST": "broadcast"}
SHAPE = re.compile(r"\d{1,15}")
MOST_AXES = 32
MOST_CALLS = 500_000
"""Messages in memory, each with the names of its tensors."""


def matches(head: str) -> bool:
    """Say whether a trace begins as Horovod's does."""
    return any(sign in head for sign in SIGNS)


def read(path: Path) -> TrainingTrace:
    """Read a timeline: its collectives, and when each tensor was ready; it shows no passes.

    Raises
    ------
    DataError
        If it is damaged or shows no collective.
    """
    lines = _Timeline(path)
    for count, (key, event) in enumerate(trace_entries(path), 1):
        if key == EVENTS:
            lines.take(event, count)
    seen = [call.seen(lines.ranks) for call in lines.calls if call.seconds > 0]
    if not seen:
        raise DataError(
            "shows no collective: no NCCL_, MPI_ or GLOO_ activity begins and ends", path=path
        )
    libraries = {call.library for call in lines.calls}
    return TrainingTrace(
        step=None,
        seen=tuple(seen),
        library=libraries.pop() if len(libraries) == 1 else "",
        world=lines.ranks,
        ready_s=lines.ready_s(),
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
        found = CALL.search(self.activity)
        return found[1].lower() if found else ""

    @property
    def seconds(self) -> float:
        return 0.0 if self.ended is None else (self.ended - self.begun) / 1e6

    def seen(self, ranks: int | None) -> TracedCollective:
        found = CALL.search(self.activity)
        word = found[2] if found else self.activity
        name = WORDS.get(word) or traced_collective_name(word) or word.lower()
        # Parts of a hierarchical collective run on ranks that the timeline does not name.
        return TracedCollective(
            name, self.size_bytes or None, ranks if self.alone else None, self.seconds
        )


class _Timeline:
    """Events in the order of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, list[tuple[str, _Call | None]]] = {}
        self._of: dict[str, list[_Call]] = {}
        self._begun = ""
        self._names: dict[str, str] = {}
        self._asked: list[dict[str, float]] = [{}]
        self._ranks = -1
        self.calls: list[_Call] = []

    @property
    def ranks(self) -> int | None:
        """Ranks that were ever seen ready."""
        return self._ranks + 1 if self._ranks >= 0 else None

    def take(self, event: Any, count: int) -> None:
        if not isinstance(event, dict):
            raise DataError(f"is a damaged trace: event {count} is no object", path=self._path)
        phase, tensor, name = event.get("ph"), str(event.get("pid")), str(event.get("name", ""))
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        place = f"{self._path}: event {count}"
        if phase == "M" and name == "process_name" and "name" in args:
            self._names[tensor] = printable(str(args["name"]))
        elif phase == "X" and name.isdecimal() and len(name) < 8:
            self._ranks = max(self._ranks, int(name))
        elif phase == "B":
            self._begin(tensor, name, microseconds(event, "ts", place))
        elif phase == "E":
            self._end(tensor, microseconds(event, "ts", place), args)

    def _begin(self, tensor: str, name: str, moment: float) -> None:
        if name.startswith("NEGOTIATE_"):
            known = self._names.get(tensor, tensor)
            if known in self._asked[-1]:
                self._asked.append({})
            self._asked[-1][known] = moment
        call = None
        if CALL.search(name):
            last = self.calls[-1] if self.calls else None
            fused = last and self._begun == name and last.ended is None and last.activity == name
            call = last if last and fused else _Call(name, moment)
            if call is not last:
                self.calls.append(call)
                if len(self.calls) > MOST_CALLS:
                    told = f"holds more than {MOST_CALLS:,} messages; record fewer steps"
                    raise DataError(told, path=self._path)
            call.begun = moment
            call.tensors.append(tensor)
            self._of.setdefault(tensor, []).append(call)
        self._begun = name
        self._open.setdefault(tensor, []).append((name, call))

    def _end(self, tensor: str, moment: float, args: Mapping[str, Any]) -> None:
        held = self._open.get(tensor)
        if not held:
            return
        _, call = held.pop()
        if call is not None and call.ended is None:
            call.ended = moment
        if not held:
            self._settle(self._of.pop(tensor, []), args)

    def _settle(self, calls: list[_Call], args: Mapping[str, Any]) -> None:
        """Add a tensor's bytes to the calls that it was part of."""
        each, shape = element_bytes(args.get("dtype")), args.get("shape")
        size = None
        if each and isinstance(shape, str):
            size = each * math.prod(map(int, SHAPE.findall(shape)[:MOST_AXES]))
            size = size if size < MESSAGE_LIMIT.most else None
        for call in calls:
            known = size is not None and call.size_bytes is not None
            call.size_bytes = (call.size_bytes or 0) + (size or 0) if known else None
            call.alone = call.alone and len(calls) == 1

    def ready_s(self) -> dict[str, float]:
        """Return the median moment at which each tensor was first ready, from the first one [s]."""
        rounds = [one for one in self._asked if one]
        most = max(map(len, rounds), default=0)
        found: dict[str, list[float]] = {}
        for one in rounds:
            if len(one) == most:
                first = min(one.values())
                for name, moment in one.items():
                    found.setdefault(name, []).append((moment - first) / 1e6)
        return {name: median(moments) for name, moments in found.items()}
