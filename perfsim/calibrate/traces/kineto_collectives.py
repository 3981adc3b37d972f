"""The collectives of a PyTorch profile: their names, bytes, ranks and times."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from perfsim.calibrate.traces.kineto_recording import (
    COMMUNICATION_KERNEL,
    RecordedSpan,
    Recording,
)
from perfsim.calibrate.traces.training_trace import (
    TracedCollective,
    element_bytes,
    traced_collective_name,
)

__all__ = ["MAX_ELEMENTS", "collective_spans", "recorded_collectives"]

MAX_ELEMENTS = 2**53
"""Elements of a message, or ranks: a number above is no count."""
MAX_NESTED_NOTES = 8
"""Notes back from a launch that may be around it: collectives hardly nest, but other threads' notes
lie between. No source: chosen."""
_PARAMETERS_NOTE = "record_param_comms"
_HOST_NOTES = ("gloo:", "mpi:")
_KERNEL_NAMES = ("allreduce", "allgather", "reducescatter", "broadcast", "sendrecv", "reduce")


def recorded_collectives(recording: Recording, world: int | None) -> list[TracedCollective]:
    """Return the collectives of a profile in the order of their starts.

    Parameters
    ----------
    recording : the profile
    world : ranks of the job, None if the profile does not say it
    """
    parameters = recording.noted(_PARAMETERS_NOTE)
    named = recording.noted("nccl:")
    calls: list[tuple[RecordedSpan, Mapping[str, Any], RecordedSpan | None]] = []
    for kernel in recording.kernels:
        span = kernel.span
        if COMMUNICATION_KERNEL.match(span.name):
            note = _note_around(parameters, kernel.launched, kernel.thread)
            arguments = _named(span.arguments) or _named(note.arguments if note else None) or {}
            calls.append((span, arguments, _note_around(named, kernel.launched, kernel.thread)))
    if not calls:
        calls = [(note, note.arguments or {}, note) for note in _host_notes(recording)]
    calls.sort(key=lambda call: call[0].start)
    return [_collective(span, arguments, note, world) for span, arguments, note in calls]


def collective_spans(recording: Recording) -> list[RecordedSpan]:
    """Return the spans in which collectives ran: NCCL's kernels, else gloo's or MPI's threads."""
    spans = (kernel.span for kernel in recording.kernels)
    return [span for span in spans if COMMUNICATION_KERNEL.match(span.name)] or _host_notes(
        recording
    )


def _host_notes(recording: Recording) -> list[RecordedSpan]:
    return [note for note in recording.notes if note.name.startswith(_HOST_NOTES)]


def _note_around(notes: Sequence[RecordedSpan], moment: float, thread: str) -> RecordedSpan | None:
    """Return the innermost note of a thread around a moment."""
    index = bisect_right(notes, moment, key=attrgetter("start")) - 1
    for note in reversed(notes[max(0, index - MAX_NESTED_NOTES) : index + 1]):
        if note.thread == thread and note.start <= moment <= note.end:
            return note
    return None


def _named(arguments: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return arguments that name a collective, None for others."""
    return arguments if arguments and "Collective name" in arguments else None


def _collective(
    span: RecordedSpan,
    arguments: Mapping[str, Any],
    note: RecordedSpan | None,
    world: int | None,
) -> TracedCollective:
    word = str(arguments.get("Collective name") or (note.name if note else span.name))
    plain = re.sub(r"[^a-z]", "", (word.partition(":")[2] or word).lower())
    plain = plain.removeprefix("nccldevkernel").removeprefix("ncclkernel")
    name = traced_collective_name(plain) or _name_of_kernel(plain) or plain or "unknown"
    ranks = arguments.get("Group size", world)
    ranks = ranks if type(ranks) is int and 0 < ranks < MAX_ELEMENTS else world
    seconds = (span.end - span.start) / 1e6
    return TracedCollective(name, _size_bytes(name, arguments, note, ranks), ranks, seconds)


def _name_of_kernel(plain: str) -> str:
    word = next((name for name in _KERNEL_NAMES if plain.startswith(name)), "")
    return traced_collective_name(word)


def _size_bytes(
    name: str, arguments: Mapping[str, Any], note: RecordedSpan | None, ranks: int | None
) -> int | None:
    """Return a call's bytes as perfsim sizes collectives, None if the profile does not say them."""
    counts = [arguments.get(key) for key in ("In msg nelems", "Out msg nelems")]
    elements = max((count for count in counts if type(count) is int), default=0)
    each = element_bytes(arguments.get("dtype"))
    if 0 < elements < MAX_ELEMENTS and each:
        return elements * each
    if note is None or not note.shapes or not note.arguments:
        return None
    try:
        elements = sum(math.prod(shape) for shape in _tensor_shapes(note.shapes))
    except (TypeError, IndexError):
        return None
    types = note.arguments.get("types")
    each = element_bytes(types[0]) if isinstance(types, list) and types else None
    if not isinstance(elements, int) or not 0 < elements < MAX_ELEMENTS or not each:
        return None
    return elements * each * (ranks or 1 if name == "all_gather" else 1)


def _tensor_shapes(shapes: Sequence[Any]) -> list[Any]:
    """Return the shapes of the first argument, one tensor or a list of them."""
    first = shapes[0]
    return first if first and isinstance(first[0], list) else [first]
