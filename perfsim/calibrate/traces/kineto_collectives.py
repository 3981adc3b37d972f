"""Kineto collectives."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from perfsim.calibrate.traces.kineto_recording import (
    COMMUNICATION,
    RecordedSpan,
    Recording,
)
from perfsim.calibrate.traces.training_trace import (
    TracedCollective,
    element_bytes,
    traced_collective_name,
)

__all__ = ["collective_spans", "recorded_collectives"]

PARAMETERS = "record_param_comms"


ON_HOST = ("gloo:", "mpi:")


MOST = 2**53
"""Elements of a message: more are no count."""


def collective_spans(recording: Recording) -> list[RecordedSpan]:
    """Return the spans in which collectives ran: NCCL's kernels, else gloo's or MPI's threads."""
    kernels = [span for _, _, span in recording.kernels if COMMUNICATION.match(span.name)]
    return kernels or [note for note in recording.notes if note.name.startswith(ON_HOST)]


def recorded_collectives(recording: Recording, world: int | None) -> list[TracedCollective]:
    """Return the collectives in the order of their starts."""
    asked = recording.noted(PARAMETERS)
    named = recording.noted("nccl:")
    found: list[tuple[RecordedSpan, Mapping[str, Any], RecordedSpan | None]] = []
    for moment, thread, span in recording.kernels:
        if COMMUNICATION.match(span.name):
            told = span.told if span.told and "Collective name" in span.told else None
            told = told or _around(asked, moment, thread)
            found.append((span, told or {}, _around_span(named, moment, thread)))
    if not found:
        on_host = [note for note in recording.notes if note.name.startswith(ON_HOST)]
        found = [(note, note.told or {}, note) for note in on_host]
    found.sort(key=lambda one: one[0].start)
    return [_seen(span, told, note, world) for span, told, note in found]


def _around_span(notes: Sequence[RecordedSpan], moment: float, thread: str) -> RecordedSpan | None:
    """Return the innermost note of a thread around a moment."""
    place = bisect_right(notes, moment, key=attrgetter("start")) - 1
    # Collectives do not nest deeply; a few notes back is enough to pass other threads.
    for note in reversed(notes[max(0, place - 8) : place + 1]):
        if note.thread == thread and note.start <= moment <= note.end:
            return note
    return None


def _around(notes: Sequence[RecordedSpan], moment: float, thread: str) -> dict[str, Any] | None:
    note = _around_span(notes, moment, thread)
    return note.told if note and note.told and "Collective name" in note.told else None


def _seen(
    span: RecordedSpan, told: Mapping[str, Any], note: RecordedSpan | None, world: int | None
) -> TracedCollective:
    word = str(told.get("Collective name") or (note.name if note else span.name))
    plain = re.sub(r"[^a-z]", "", (word.partition(":")[2] or word).lower())
    plain = plain.removeprefix("nccldevkernel").removeprefix("ncclkernel")
    name = traced_collective_name(plain) or _from_kernel(plain) or plain or "unknown"
    ranks = told.get("Group size", world)
    ranks = ranks if type(ranks) is int and 0 < ranks < MOST else world
    return TracedCollective(
        name, _bytes(name, told, note, ranks), ranks, (span.end - span.start) / 1e6
    )


def _from_kernel(plain: str) -> str:
    words = ("allreduce", "allgather", "reducescatter", "broadcast", "sendrecv", "reduce")
    found = next((word for word in words if plain.startswith(word)), "")
    return traced_collective_name(found)


def _bytes(
    name: str, told: Mapping[str, Any], note: RecordedSpan | None, ranks: int | None
) -> int | None:
    """Return a call's bytes as perfsim sizes collectives, None where they are not said."""
    counts = [told.get(key) for key in ("In msg nelems", "Out msg nelems")]
    elements = max((count for count in counts if type(count) is int), default=0)
    each = element_bytes(told.get("dtype"))
    if 0 < elements < MOST and each:
        return elements * each
    if note is None or not note.shapes or not note.told:
        return None
    try:
        elements = sum(math.prod(shape) for shape in _tensors(note.shapes))
    except (TypeError, IndexError):
        return None
    types = note.told.get("types")
    each = element_bytes(types[0]) if isinstance(types, list) and types else None
    if not isinstance(elements, int) or not 0 < elements < MOST or not each:
        return None
    return elements * each * (ranks or 1 if name == "all_gather" else 1)


def _tensors(shapes: Sequence[Any]) -> list[Any]:
    """Return the shapes of the first argument, one tensor or a list of them."""
    first = shapes[0]
    return first if first and isinstance(first[0], list) else [first]
