"""What a trace of training says, whoever wrote it: steps, layers, gradients, collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Seen", "Step", "Traced", "TracedLayer"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TracedLayer:
    """A layer with parameters: its kind and its gradients' names and shapes (None: not said)."""

    name: str
    kind: str
    gradients: tuple[tuple[str, Shape | None], ...]


@dataclass(frozen=True, slots=True)
class Step:
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
class Seen:
    """One call of a collective: its perfsim name, bytes and ranks (None: not said), seconds."""

    collective: str
    size_bytes: int | None
    ranks: int | None
    seconds: float


@dataclass(frozen=True)
class Traced:
    """All that a trace says.

    Parameters
    ----------
    step : None where the trace holds collectives only
    seen : collectives
    device : name of the GPU as its driver says it, "cpu", or "" where it is not said
    library : that carried the collectives: nccl, gloo, mpi; "" where there were none
    version : of it, "" where it is not said
    world : ranks of the job, None where it is not said
    ready_s : gradient -> seconds after the first, of traces that have no passes
    """

    step: Step | None
    seen: tuple[Seen, ...]
    device: str = ""
    library: str = ""
    version: str = ""
    world: int | None = None
    ready_s: Mapping[str, float] = field(default_factory=dict)
