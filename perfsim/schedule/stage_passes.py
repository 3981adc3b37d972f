"""What a rank of a divided model does in its passes besides computing its layers.

`schedule.build` issues it with the passes. Collectives that hide nowhere stand on the compute
stream, in each part of a pass the share of them that belongs to it.
"""

from __future__ import annotations

from typing import NamedTuple

from perfsim.methods.base import Send

__all__ = ["AXIS_WORDS", "BUBBLE", "WHOLE_MODEL", "PassSends", "StagePasses"]

BUBBLE = "pipeline bubble"
"""How the name of the task begins in which a stage waits for the computation of others."""


AXIS_WORDS = {
    "tp": "tensor-parallel messages",
    "cp": "context-parallel messages",
    "ep": "expert-parallel messages",
    "pp": "messages between stages",
    "ends": "gradients of the tied embedding",
}
"""What computation waits for beside the data-parallel exchange, by group."""


class PassSends(NamedTuple):
    """Collectives of both passes of one micro-batch."""

    forward: tuple[Send, ...] = ()
    backward: tuple[Send, ...] = ()

    def of(self, phase: str) -> tuple[Send, ...]:
        """Return those of one pass, "forward" or "backward"."""
        return self.forward if phase == "forward" else self.backward


class StagePasses(NamedTuple):
    """What a rank sends in a pass over its stage, and how long it waits for other stages.

    Parameters
    ----------
    exposed : collectives of one micro-batch that computation waits for; each ``repeats`` as often
        as nothing hides it
    beside : the same, those that run beside computation
    idle_s : time of an iteration in which it waits for the computation of other stages [s]
    idle_sends : collectives of other stages, and messages between stages, for which it waits
    last : collectives of an iteration before its update
    experts : names of gradients that only the ranks with the same experts have
    stages : of the pipeline
    """

    exposed: PassSends = PassSends()
    beside: PassSends = PassSends()
    idle_s: float = 0.0
    idle_sends: tuple[Send, ...] = ()
    last: tuple[Send, ...] = ()
    experts: frozenset[str] = frozenset()
    stages: int = 1


WHOLE_MODEL = StagePasses()
"""A rank that has the whole model."""
