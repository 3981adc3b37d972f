"""The spans of a PyTorch profile that show layers, kernels and collectives; others are dropped.

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
from typing import Any, NamedTuple, Protocol

from perfsim.calibrate.traces.chrome_json import EVENTS, microseconds, trace_entries
from perfsim.data.files import printable
from perfsim.errors import DataError
from perfsim.sums import sum_in_order

__all__ = [
    "ACCUMULATE",
    "BACKWARD_OPERATOR",
    "COMMUNICATION_KERNEL",
    "ENGINE_NODE",
    "HostClock",
    "KernelClock",
    "LaunchedKernel",
    "RecordedSpan",
    "Recording",
    "TraceClock",
    "covered_length",
    "merge_spans",
    "read_recording",
    "trace_clock",
]

ACCUMULATE = "torch::autograd::AccumulateGrad"
"""Autograd's node that adds to a parameter's gradient."""
ENGINE_NODE = "autograd::engine::evaluate_function: "
"""What autograd's engine puts before the name of a node that it runs."""
BACKWARD_OPERATOR = re.compile(r"^(?!aten::|autograd::engine).*Backward\d*$")
COMMUNICATION_KERNEL = re.compile(r"^(nccl|rccl)", re.IGNORECASE)
MAX_SPANS = 1_500_000
"""Spans in memory, about 500 bytes each. No source: chosen."""
_MODULE = "nn.Module: "
_NOTES = ("ProfilerStep#", "Optimizer.", "nccl:", "gloo:", "mpi:", "record_param_comms")
_HOST_CATEGORIES = {"cpu_op", "operator", "user_annotation"}
_DEVICE_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
_LAUNCH_CATEGORIES = {"cuda_runtime", "cuda_driver", "runtime", "hip_runtime"}
_COLLECTIVE_ARGUMENTS = (
    "Collective name",
    "In msg nelems",
    "Out msg nelems",
    "dtype",
    "Group size",
)
_SHAPE_ARGUMENTS = ("Input Dims", "Input dims")


@dataclass(slots=True)
class RecordedSpan:
    """Something that ran from ``start`` to ``end`` [us] on a thread or stream.

    ``sequence`` joins an operator to its backward node; ``arguments`` describe a collective.
    """

    name: str
    start: float
    end: float
    thread: str
    sequence: int | None = None
    shapes: list[Any] | None = None
    arguments: dict[str, Any] | None = None


class LaunchedKernel(NamedTuple):
    """Work of a device: when [us] and on which thread it was launched, and when it ran."""

    launched: float
    thread: str
    span: RecordedSpan


@dataclass
class Recording:
    """One profile's spans, each list in the order of their starts.

    Parameters
    ----------
    operations : spans with a sequence number: forward and backward operators, autograd's nodes
    accumulations : additions to gradients
    modules : calls of modules
    notes : steps, optimizers and collectives that the host noted
    kernels : in the order of their launches
    settings : everything of the file but its events
    backward : whether any autograd node ran, with a sequence number or without
    """

    operations: list[RecordedSpan] = field(default_factory=list)
    accumulations: list[RecordedSpan] = field(default_factory=list)
    modules: list[RecordedSpan] = field(default_factory=list)
    notes: list[RecordedSpan] = field(default_factory=list)
    kernels: list[LaunchedKernel] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    backward: bool = False

    @property
    def host_spans(self) -> int:
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
        If it is no JSON trace, holds no event that is read, or an event lacks its time; names
        which.
    """
    reader = _Reader()
    count = 0
    for key, value in trace_entries(path):
        if key != EVENTS:
            reader.recording.settings[key] = value
            continue
        count += 1
        if not isinstance(value, dict):
            raise DataError(f"is a damaged trace: event {count} is no object", path=path)
        if value.get("ph") == "X":
            if reader.spans > MAX_SPANS:
                why = f"holds more than {MAX_SPANS:,} spans of training; record fewer steps"
                raise DataError(why, path=path)
            reader.take(value, f"{path}: event {count}")
    if not count:
        raise DataError("is an empty trace: it has no events", path=path)
    if not reader.read_any:
        why = f"none of its {count:,} events is an operator, kernel or launch of PyTorch"
        raise DataError(why, path=path)
    return reader.finish()


class _Reader:
    """Sorts events into the lists of a recording, and joins kernels to their launches."""

    def __init__(self) -> None:
        self.recording = Recording()
        self.read_any = False
        self._launches: dict[str, tuple[float, str]] = {}
        self._device_spans: list[tuple[str, RecordedSpan]] = []

    @property
    def spans(self) -> int:
        """Count the spans in memory."""
        return len(self._launches) + len(self._device_spans) + self.recording.host_spans

    def take(self, event: Mapping[str, Any], where: str) -> None:
        """Take one complete event; ``where`` names it in errors."""
        category = str(event.get("cat", "")).lower()
        name = printable(str(event.get("name", "")))
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        correlation = str(arguments.get("correlation"))
        if category in _LAUNCH_CATEGORIES:
            self._launches[correlation] = (microseconds(event, "ts", where), _thread(event))
        elif category == "python_function":
            if name.startswith(_MODULE):
                span = _span(event, name.removeprefix(_MODULE), where)
                self.recording.modules.append(span)
        elif category in _DEVICE_CATEGORIES:
            span = _span(event, name, where)
            if COMMUNICATION_KERNEL.match(name):
                span.arguments = _of_collective(arguments)
            self._device_spans.append((correlation, span))
        elif category in _HOST_CATEGORIES:
            self._take_host(event, name, arguments, where)
        else:
            return
        self.read_any = True

    def _take_host(
        self, event: Mapping[str, Any], name: str, arguments: Mapping[str, Any], where: str
    ) -> None:
        shapes = (arguments.get(key) for key in _SHAPE_ARGUMENTS)
        shape = next((value for value in shapes if isinstance(value, list)), None)
        if name == ACCUMULATE:
            self.recording.backward = True
            span = _span(event, name, where)
            span.shapes = shape
            self.recording.accumulations.append(span)
        elif name.startswith(_NOTES):
            span = _span(event, name, where)
            span.shapes = shape
            span.arguments = _of_collective(arguments) | {"types": arguments.get("Input type")}
            self.recording.notes.append(span)
        else:
            node = name.startswith(ENGINE_NODE) or bool(BACKWARD_OPERATOR.match(name))
            self.recording.backward = self.recording.backward or node
            sequence = arguments.get("Sequence number")
            if type(sequence) is int and sequence >= 0:
                span = _span(event, name, where)
                span.sequence = sequence
                self.recording.operations.append(span)

    def finish(self) -> Recording:
        """Return the recording, sorted."""
        made = self.recording
        for correlation, span in self._device_spans:
            launched, thread = self._launches.get(correlation, (span.start, ""))
            made.kernels.append(LaunchedKernel(launched, thread, span))
        for spans in (made.operations, made.accumulations, made.modules, made.notes):
            spans.sort(key=lambda span: (span.start, -span.end))
        made.kernels.sort(key=lambda kernel: (kernel.launched, kernel.span.start))
        return made


def _of_collective(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: arguments[key] for key in _COLLECTIVE_ARGUMENTS if key in arguments}


def _span(event: Mapping[str, Any], name: str, where: str) -> RecordedSpan:
    start = microseconds(event, "ts", where)
    # The profiler writes a negative length where it never saw the end.
    end = start + max(0.0, microseconds(event, "dur", where))
    return RecordedSpan(sys.intern(name), start, end, _thread(event))


def _thread(event: Mapping[str, Any]) -> str:
    return sys.intern(f"{event.get('pid')}/{event.get('tid')}")


# When the work that the host asked for was done


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
    """The clock of a CPU: work is done where it is asked for."""

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
    """The clock of a GPU: its kernels and copies by thread and moment of launch, without NCCL's."""

    def __init__(self, kernels: Iterable[LaunchedKernel]) -> None:
        by_thread: dict[str, list[LaunchedKernel]] = {}
        for kernel in kernels:
            if kernel.thread and not COMMUNICATION_KERNEL.match(kernel.span.name):
                by_thread.setdefault(kernel.thread, []).append(kernel)
        self._launched: dict[str, list[float]] = {}
        self._spans: dict[str, list[tuple[float, float]]] = {}
        self._done: dict[str, list[float]] = {}
        for thread, own in by_thread.items():
            self._launched[thread] = [kernel.launched for kernel in own]
            self._spans[thread] = [(kernel.span.start, kernel.span.end) for kernel in own]
            self._done[thread] = list(accumulate((kernel.span.end for kernel in own), max))

    def begins(self, moment: float, thread: str) -> float:
        """Return the start of the first kernel launched from a moment on."""
        index = bisect_left(self._launched.get(thread, []), moment)
        spans = self._spans.get(thread, [])
        if index == len(spans):
            raise LookupError(moment)
        return spans[index][0]

    def done(self, moment: float, thread: str) -> float:
        """Return when the last kernel launched up to a moment ended."""
        count = bisect_right(self._launched.get(thread, []), moment)
        if not count:
            raise LookupError(moment)
        return self._done[thread][count - 1]

    def work(self, start: float, end: float, thread: str) -> list[tuple[float, float]]:
        """Return the kernels launched between two moments."""
        launched = self._launched.get(thread, [])
        first, last = bisect_left(launched, start), bisect_right(launched, end)
        return self._spans.get(thread, [])[first:last]


def trace_clock(recording: Recording, path: Path) -> TraceClock:
    """Return the clock of the device that a profile shows.

    Raises
    ------
    DataError
        If it shows kernels, but not who launched them.
    """
    if not recording.kernels:
        return HostClock()
    if not any(kernel.thread for kernel in recording.kernels):
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
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def covered_length(spans: Sequence[tuple[float, float]]) -> float:
    """Return the time that spans cover together.

    Examples
    --------
    >>> covered_length([(0, 2), (1, 3), (5, 6)])
    4
    """
    return sum_in_order(end - start for start, end in merge_spans(spans))
