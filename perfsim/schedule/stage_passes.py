"""What a rank of a divided model does in its passes besides computing its layers.

`schedule.build` issues it with the passes. Collectives that hide nowhere stand on the compute
stream, in each part of a pass those of the layers that it computes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from perfsim.compute.profile import Layer
from perfsim.methods.base import Send

__all__ = ["AXIS_WORDS", "BUBBLE", "WHOLE_MODEL", "PassSends", "SharesByMoment", "StagePasses"]

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


class SharesByMoment(NamedTuple):
    """Which share of its messages a group has sent by a moment of a pass.

    Parameters
    ----------
    moments_s : ends of the layers of the pass, in the order in which it computes them
    shares : of all its messages, those that are sent by then
    """

    moments_s: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def of(cls, seconds: Sequence[float], sent: Sequence[float]) -> SharesByMoment:
        """Return the shares of layers that take so long and send so much, in the pass's order."""
        moments_s, sums, end_s, done = [0.0], [0.0], 0.0, 0.0
        for layer_s, size in zip(seconds, sent, strict=True):
            end_s, done = end_s + layer_s, done + size
            moments_s.append(end_s)
            sums.append(done)
        return cls(tuple(moments_s), tuple([one / done for one in sums]))

    def between(self, from_s: float, until_s: float) -> float:
        """Return the share that is sent between two moments.

        Examples
        --------
        A layer of one second that sends a quarter, and one of three that sends the rest:

        >>> shares = SharesByMoment.of([1.0, 3.0], [1.0, 3.0])
        >>> SharesByMoment.of([1.0, 3.0], [2.0, 2.0]).between(0.0, 1.0)
        0.5
        >>> shares.between(0.0, 2.0), shares.between(2.0, 4.0)
        (0.5, 0.5)
        """
        return self._by(until_s) - self._by(from_s)

    def _by(self, moment_s: float) -> float:
        at = bisect_left(self.moments_s, moment_s * (1.0 - _ROUNDING))
        if at == 0:
            return 0.0
        if at == len(self.moments_s):
            return 1.0
        before_s, after_s = self.moments_s[at - 1], self.moments_s[at]
        before, after = self.shares[at - 1], self.shares[at]
        if after_s - moment_s <= _ROUNDING * after_s:
            return after
        return before + (after - before) * (moment_s - before_s) / (after_s - before_s)


_ROUNDING = 1e-9
"""How far sums of the same times may differ."""


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
    places : groups, with what its layers send in a forward and in a backward pass [B]
    """

    exposed: PassSends = PassSends()
    beside: PassSends = PassSends()
    idle_s: float = 0.0
    idle_sends: tuple[Send, ...] = ()
    last: tuple[Send, ...] = ()
    experts: frozenset[str] = frozenset()
    stages: int = 1
    places: tuple[tuple[str, tuple[float, ...], tuple[float, ...]], ...] = ()

    def shares(self, layers: Sequence[Layer]) -> dict[tuple[str, str], SharesByMoment]:
        """Return by group and pass when messages are sent, of layers that take so long."""
        found: dict[tuple[str, str], SharesByMoment] = {}
        if not self.places:
            return found
        forward_s = [layer.forward_s for layer in layers]
        backward_s = [layer.backward_s for layer in reversed(layers)]
        for group, ahead, back in self.places:
            for kind, seconds, sent in (
                ("forward", forward_s, ahead),
                ("backward", backward_s, back[::-1]),
            ):
                if any(sent):
                    found[group, kind] = SharesByMoment.of(seconds, sent)
        return found


WHOLE_MODEL = StagePasses()
"""A rank that has the whole model."""
