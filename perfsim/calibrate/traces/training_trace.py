"""What a trace of training says, whatever its format: steps, layers, gradients, collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfsim.calibrate.formats.rows import collective_name

__all__ = [
    "TensorShape",
    "TracedCollective",
    "TracedLayer",
    "TracedStep",
    "TrainingTrace",
    "element_bytes",
    "traced_collective_name",
]

TensorShape = tuple[int, ...]

_ELEMENT_TYPES = {
    8: ("double", "long", "longint", "float64", "int64"),
    4: ("float", "int", "float32", "int32"),
    2: ("half", "bfloat16", "short", "float16", "int16", "uint16", "c10half", "c10bfloat16"),
    1: ("byte", "char", "bool", "unsignedchar", "signedchar", "int8", "uint8"),
}
"""Bytes -> names of c10::ScalarType, C++ and Horovod's types, letters and digits only."""

_OTHER_COLLECTIVE_NAMES = {
    "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather",
    "allgathercoalesced": "all_gather",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensor": "reduce_scatter",
    "alltoallbase": "all_to_all",
    "alltoallv": "all_to_all",
    "send": "send_recv",
    "recv": "send_recv",
    "sendrecv": "send_recv",
}
"""Names that only traces use, letters only -> perfsim's name."""


@dataclass(frozen=True)
class TrainingTrace:
    """Everything that a trace says.

    Parameters
    ----------
    step : None if the trace holds collectives only
    collectives : every call, in the order of their starts
    device : name of the GPU as its driver gives it, "cpu", or "" if the trace does not say it
    library : that carried the collectives: nccl, gloo, mpi; "" if there were none
    version : of the library, "" if the trace does not say it
    world : ranks of the job, None if the trace does not say it
    ready_s : gradient -> seconds after the first, of traces that show no passes
    """

    step: TracedStep | None
    collectives: tuple[TracedCollective, ...]
    device: str = ""
    library: str = ""
    version: str = ""
    world: int | None = None
    ready_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TracedStep:
    """Medians over the steps of a trace [s].

    Parameters
    ----------
    layers : in the order that they begin
    begun_s : layer -> beginning, from the start of the forward pass
    ready_s : gradient -> moment, from the start of the backward pass
    forward_s, backward_s, update_s : the passes and the optimizer
    whole_s : the step as it ran
    waiting_s : part of it in which a collective ran and no pass did
    busy : share of the passes in which the device worked
    count : steps
    """

    layers: tuple[TracedLayer, ...]
    begun_s: Mapping[str, float]
    ready_s: Mapping[str, float]
    forward_s: float
    backward_s: float
    update_s: float
    whole_s: float
    waiting_s: float
    busy: float
    count: int


@dataclass(frozen=True, slots=True)
class TracedLayer:
    """A layer with parameters: its kind, its gradients' names and shapes (None: not said)."""

    name: str
    kind: str
    gradients: tuple[tuple[str, TensorShape | None], ...]


@dataclass(frozen=True, slots=True)
class TracedCollective:
    """One call of a collective: its perfsim name, bytes and ranks (None: not said), seconds."""

    collective: str
    size_bytes: int | None
    ranks: int | None
    seconds: float


def traced_collective_name(word: str) -> str:
    """Return perfsim's name of a collective that a trace names, '' if perfsim knows none.

    Examples
    --------
    >>> traced_collective_name("_allgather_base"), traced_collective_name("allreduce")
    ('all_gather', 'all_reduce')
    >>> traced_collective_name("barrier")
    ''
    """
    plain = "".join(letter for letter in word.lower() if letter.isalpha())
    return _OTHER_COLLECTIVE_NAMES.get(plain) or collective_name(plain)


def element_bytes(word: object) -> int | None:
    """Return the bytes of one element of a type, None if the type is not known.

    Examples
    --------
    >>> element_bytes("Float"), element_bytes("c10::Half"), element_bytes("long int")
    (4, 2, 8)
    >>> element_bytes(None)
    """
    plain = "".join(letter for letter in str(word).lower() if letter.isalnum())
    return next((size for size, names in _ELEMENT_TYPES.items() if plain in names), None)
