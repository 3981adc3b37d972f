"""The spans of a PyTorch profile that tell layers, kernels and collectives; the rest is dropped.

Kineto's output (pytorch/kineto, libkineto/src/output_json.cpp) names categories cpu_op,
user_annotation, python_function, kernel, gpu_memcpy, gpu_memset, cuda_runtime, cuda_driver;
before PyTorch 1.12 it wrote Operator, Kernel, Memcpy, Memset, Runtime.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from perfsim.calibrate.traces.chrome_json import EVENTS, microseconds, trace_entries
from perfsim.data.files import printable
from perfsim.errors import DataError

__all__ = [
    "ACCUMULATE",
    "NODE",
    "HostClock",
    "KernelClock",
    "RecordedSpan",
    "Recording",
    "TraceClock",
    "covered_length",
    "merge_spans",
    "read_recording",
    "trace_clock",
]

ACCUMULATE = "torch::autograd::AccumulateGrad"
NODE = "autograd::engine::evaluate_function: "
MODULE = "nn.Module: "
NOTED = ("ProfilerStep#", "Optimizer.", "nccl:", "gloo:", "mpi:", "record_param_comms")
BACKWARD = re.compile(r"^(?!aten::|autograd::engine).*Backward\d*$")
HOST = {"cpu_op", "operator", "user_annotation"}
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
LAUNCH = {"cuda_runtime", "cuda_driver", "runtime", "hip_runtime"}
COMMUNICATION = re.compile(r"^(nccl|rccl)", re.IGNORECASE)
MOST_KEPT = 1_500_000
"""Spans in memory: about 500 bytes each."""
KEPT = ("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size")
ARGUMENTS = ("Input Dims", "Input dims")


@dataclass(slots=True)
class RecordedSpan:
    """Something that ran from ``start`` to ``end`` [us] on a thread or stream."""

    name: str
    start: float
    end: float
    thread: str
    sequence: int | None = None
    shapes: list[Any] | None = None
    told: dict[str, Any] | None = None


@dataclass
class Recording:
    """One profile's spans, each list in the order of their starts.

    ``operations`` have a sequence number: forward and backward operators and autograd's nodes;
    ``kernels`` hold (launched [us], thread that launched, span) in the order of their launches.
    """

    operations: list[RecordedSpan] = field(default_factory=list)
    accumulations: list[RecordedSpan] = field(default_factory=list)
    modules: list[RecordedSpan] = field(default_factory=list)
    notes: list[RecordedSpan] = field(default_factory=list)
    kernels: list[tuple[float, str, RecordedSpan]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    backward: bool = False
    """Whether any autograd node ran, with a sequence number or without."""
    other: int = 0
    """Spans that are none of these."""

    @property
    def kept(self) -> int:
        """Count the spans of the host."""
        return sum(map(len, (self.operations, self.accumulations, self.modules, self.notes)))

    def noted(self, start: str) -> list[RecordedSpan]:
        """Return the notes whose name starts so."""
        return [note for note in self.notes if note.name.startswith(start)]


def read_recording(path: Path) -> Recording:
    """Read a profile's file.

    Raises
    ------
    DataError
        If it is no JSON trace, or an event lacks its time; names which.
    """
    made = Recording()
    launches: dict[str, tuple[float, str]] = {}
    worked: list[tuple[str, RecordedSpan]] = []
    count = 0
    for key, value in trace_entries(path):
        if key != EVENTS:
            made.settings[key] = value
            continue
        count += 1
        if not isinstance(value, dict):
            raise DataError(f"is a damaged trace: event {count} is no object", path=path)
        if value.get("ph") == "X":
            if len(launches) + len(worked) + made.kept > MOST_KEPT:
                told = f"holds more than {MOST_KEPT:,} spans of training; record fewer steps"
                raise DataError(told, path=path)
            _keep(made, value, launches, worked, f"{path}: event {count}")
    for correlation, span in worked:
        moment, thread = launches.get(correlation, (span.start, ""))
        made.kernels.append((moment, thread, span))
    for spans in (made.operations, made.accumulations, made.modules, made.notes):
        spans.sort(key=lambda span: (span.start, -span.end))
    made.kernels.sort(key=lambda kernel: (kernel[0], kernel[2].start))
    return made


def _keep(
    made: Recording,
    event: Mapping[str, Any],
    launches: dict[str, tuple[float, str]],
    worked: list[tuple[str, RecordedSpan]],
    place: str,
) -> None:
    """Sort one event into the list that it belongs to."""
    sort, name = str(event.get("cat", "")).lower(), printable(str(event.get("name", "")))
    told = event.get("args")
    told = told if isinstance(told, dict) else {}
    if sort in LAUNCH:
        launches[str(told.get("correlation"))] = (microseconds(event, "ts", place), _thread(event))
        return
    if sort == "python_function":
        if name.startswith(MODULE):
            made.modules.append(_span(event, name.removeprefix(MODULE), place))
        return
    if sort in DEVICE:
        span = _span(event, name, place)
        if COMMUNICATION.match(name):
            span.told = {key: told[key] for key in KEPT if key in told}
        worked.append((str(told.get("correlation")), span))
        return
    if sort not in HOST:
        made.other += 1
        return
    _keep_host(made, event, name, told, place)


def _keep_host(
    made: Recording, event: Mapping[str, Any], name: str, told: Mapping[str, Any], place: str
) -> None:
    shapes = next((told[key] for key in ARGUMENTS if isinstance(told.get(key), list)), None)
    if name == ACCUMULATE:
        made.backward = True
        span = _span(event, name, place)
        span.shapes = shapes
        made.accumulations.append(span)
    elif name.startswith(NOTED):
        span = _span(event, name, place)
        span.shapes = shapes
        kinds = told.get("Input type")
        span.told = {key: told[key] for key in KEPT if key in told} | {"types": kinds}
        made.notes.append(span)
    else:
        node = name.startswith(NODE) or bool(BACKWARD.match(name))
        made.backward = made.backward or node
        sequence = told.get("Sequence number")
        if type(sequence) is int and sequence >= 0:
            span = _span(event, name, place)
            span.sequence = sequence
            made.operations.append(span)


def _span(event: Mapping[str, Any], name: str, place: str) -> RecordedSpan:
    start = microseconds(event, "ts", place)
    # The profiler writes a negative length where it never saw the end.
    end = start + max(0.0, microseconds(event, "dur", place))
    return RecordedSpan(sys.intern(name), start, end, _thread(event))


def _thread(event: Mapping[str, Any]) -> str:
    return sys.intern(f"{event.get('pid')}/{event.get('tid')}")


class TraceClock(Protocol):
    """When work that the host asked for began and was done [us]."""

    def begins(self, moment: float, thread: str) -> float:
        """Return when the first work asked for from a moment on began.

        Raises
        ------
        LookupError
            If there is none.
        """
        ...

    def done(self, moment: float, thread: str) -> float:
        """Return when all work asked for up to a moment was done.

        Raises
        ------
        LookupError
            If there is none.
        """
        ...

    def work(self, start: float, end: float, thread: str) -> list[tuple[float, float]]:
        """Return the spans of work asked for between two moments."""
        ...


class HostClock:
    """Work on a CPU is done where it is asked for."""

    def begins(self, moment: float, thread: str) -> float:
        """Return the moment itself."""
        del thread
        return moment

    def done(self, moment: float, thread: str) -> float:
        """Return the moment itself."""
        del thread
        return moment

    def work(self, start: float, end: float, thread: str) -> list[tuple[float, float]]:
        """Return the whole span."""
        del thread
        return [(start, end)]


class KernelClock:
    """Kernels and copies of a GPU by the thread and moment that launched them; none of NCCL's."""

    def __init__(self, kernels: Iterable[tuple[float, str, RecordedSpan]]) -> None:
        by_thread: dict[str, list[tuple[float, float, float]]] = {}
        for moment, thread, span in kernels:
            if thread and not COMMUNICATION.match(span.name):
                by_thread.setdefault(thread, []).append((moment, span.start, span.end))
        self._launched = {name: [one[0] for one in of] for name, of in by_thread.items()}
        self._spans = {name: [one[1:] for one in of] for name, of in by_thread.items()}
        self._done = {
            name: list(accumulate((one[2] for one in of), max)) for name, of in by_thread.items()
        }

    def begins(self, moment: float, thread: str) -> float:
        """Return the start of the first kernel launched from a moment on."""
        place = bisect_left(self._launched.get(thread, []), moment)
        spans = self._spans.get(thread, [])
        if place == len(spans):
            raise LookupError(moment)
        return spans[place][0]

    def done(self, moment: float, thread: str) -> float:
        """Return the end of the last kernel launched up to a moment."""
        place = bisect_right(self._launched.get(thread, []), moment)
        if not place:
            raise LookupError(moment)
        return self._done[thread][place - 1]

    def work(self, start: float, end: float, thread: str) -> list[tuple[float, float]]:
        """Return the kernels launched between two moments."""
        launched = self._launched.get(thread, [])
        return self._spans.get(thread, [])[
            bisect_left(launched, start) : bisect_right(launched, end)
        ]


def trace_clock(recording: Recording, path: Path) -> TraceClock:
    """Return the clock of the device that a profile shows.

    Raises
    ------
    DataError
        If it shows kernels, but not who launched them.
    """
    if not recording.kernels:
        return HostClock()
    if not any(thread for _, thread, _ in recording.kernels):
        raise DataError(
            "shows GPU kernels but no launches of them (cuda_runtime): record CPU and CUDA"
            " activities together",
            path=path,
        )
    return KernelClock(recording.kernels)


def merge_spans(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans merged where they meet.

    Examples
    --------
    >>> merge_spans([(3, 4), (0, 2), (1, 3), (5, 6)])
    [(0, 4), (5, 6)]
    """
    made: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((start, end))
    return made


def covered_length(spans: Sequence[tuple[float, float]]) -> float:
    """Return the time that spans cover together.

    Examples
    --------
    >>> covered_length([(0, 2), (1, 3), (5, 6)])
    4
    """
    return sum(end - start for start, end in merge_spans(spans))
