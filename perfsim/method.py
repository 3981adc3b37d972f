"""What a training method is to perfsim: checked options, and the stages each bucket goes through.

A method knows gradients, buckets, kernels and collectives by their interfaces only. Its file in
``perfsim/methods`` is all there is to it: the file name is the method's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from perfsim.fusion.bucket import Bucket
from perfsim.kernel import Kernel
from perfsim.profile import Gradient

__all__ = ["Compute", "Method", "Moment", "Send", "Stage"]

Moment = Literal["ready", "backward"]


@dataclass(frozen=True, slots=True)
class Compute:
    """Kernels that a method runs on a bucket, one after the other.

    Parameters
    ----------
    kernels : what is run
    kind : what the time counts as
    stream : "compute" (contends with the backward pass) or a stream of the method's own
    earliest : "ready" (in the hook, as soon as what it needs is there) or "backward" (once the
        backward pass is over)
    blocks : the host waits for it where it stands, so that what follows in the backward pass is
        issued behind it; else kernels on "compute" that need a collective's result are issued
        after the backward pass
    """

    kernels: tuple[Kernel, ...]
    kind: Literal["compress", "decompress", "second_order"]
    stream: str = "compute"
    earliest: Moment = "ready"
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """One collective on a bucket's message.

    ``size_bytes`` is the full size: of the buffer for an all-reduce, of all ranks' blocks
    together for an all-gather. ``awaited`` tells whether the next stage needs its result; the
    update always does.
    """

    collective: str
    size_bytes: float
    earliest: Moment = "ready"
    awaited: bool = True


Stage = Compute | Send


class Method(BaseModel):
    """A published training scheme: its options are the checked fields of the subclass.

    Class facts: ``summary`` (one line), ``citation``, ``fusion`` (policy used when none is
    asked for), ``period`` (iterations after which what it does repeats), ``lossy`` (whether it
    changes what is learnt, so that time alone cannot rank it).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: ClassVar[str]
    citation: ClassVar[str]
    fusion: ClassVar[str] = "size"
    period: ClassVar[int] = 1
    lossy: ClassVar[bool] = True

    def stages(self, bucket: Bucket, ranks: int, iteration: int) -> list[Stage]:
        """Return what happens to one bucket, in order; each stage waits for the one before it."""
        raise NotImplementedError

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes that a rank puts into the bucket's message for one gradient."""
        return gradient.size_bytes

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the extra memory that a rank keeps from one iteration to the next."""
        return 0.0

    def default_fusion(self) -> str:
        """Return the fusion policy used when none is asked for."""
        return self.fusion
