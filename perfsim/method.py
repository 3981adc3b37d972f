"""What a training method is to perfsim: checked options, and the stages each bucket goes through.

A method knows gradients, buckets, kernels and collectives by their interfaces only. Its file in
``perfsim/methods`` is all there is to it: the file name is the method's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from perfsim.fusion.bucket import Bucket
from perfsim.option import SET, OnlyWith, choices_read, truth_for_number
from perfsim.profile import Gradient
from perfsim.stage import Compute, Job, Moment, Point, Round, Send, Stage
from perfsim.world import World

__all__ = [
    "FAMILIES",
    "SET",
    "SGD_LAUNCHES",
    "Compute",
    "Job",
    "Method",
    "Moment",
    "OnlyWith",
    "Point",
    "Round",
    "Send",
    "Stage",
    "World",
]

SGD_LAUNCHES = 5
"""Kernels a tensor of a step of SGD with momentum and weight decay, parameter by parameter."""

FAMILIES = (
    "dense",
    "quantisation",
    "sparsification",
    "low rank",
    "fewer exchanges",
    "second order",
    "beyond one cluster",
)
"""The families of methods, in the order in which they are listed."""


class Method(BaseModel):
    """A published training scheme: its options are the checked fields of the subclass.

    Class facts: ``summary`` (one line), ``citation``, ``family`` (one of ``FAMILIES``), ``wire``
    (see below), ``fusion`` (policy used when none is asked for), ``lossy`` (whether it changes
    what is learnt, so that time alone cannot rank it), ``needs`` (what it takes besides GPUs and a
    network, "" for nothing), ``decides`` (what it does depends on what things cost, so that a
    faster network need not make it faster), ``order`` ("priority": messages overtake each other
    by their priority), ``first_needed_first`` (what is issued after the backward pass goes in the
    order of the next forward pass), ``waits`` (the host waits for what is exchanged before it
    launches the update, as in code built on Horovod's optimizer).

    ``wire`` gives the bytes that a rank sends an iteration for one matrix, as an expression of P
    (ranks, on equal hops), n = rows * columns, k (values kept of n), r (rank, no more than either
    side), the method's options by name, and log2, ceil, min and max.

    An option without effect unless others have certain values says so by ``OnlyWith``; where it is
    given all the same it is refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    summary: ClassVar[str]
    citation: ClassVar[str]
    family: ClassVar[str]
    wire: ClassVar[str]
    fusion: ClassVar[str] = "size"
    lossy: ClassVar[bool] = True
    needs: ClassVar[str] = ""
    decides: ClassVar[bool] = False
    order: ClassVar[Literal["issue", "priority"]] = "issue"
    first_needed_first: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_numbers(cls, values: Any) -> Any:
        wrong = truth_for_number(cls, values)
        if wrong:
            given = f"{wrong}={str(values[wrong]).lower()}"
            raise ValueError(f"{given} is not allowed: a number is needed")
        return choices_read(cls, values) if isinstance(values, Mapping) else values

    @model_validator(mode="after")
    def _given_options_have_an_effect(self) -> Self:
        for option in type(self).model_fields:
            for mark in self.only_with(option):
                unmet = mark.unmet(self)
                if unmet and option in self.model_fields_set:
                    given = f"{option}={getattr(self, option)}"
                    raise ValueError(f"{given} has no effect {unmet}, or leave {option} out")
        return self

    @classmethod
    def only_with(cls, option: str) -> list[OnlyWith]:
        """Return what an option needs of others to have an effect."""
        return [mark for mark in cls.model_fields[option].metadata if isinstance(mark, OnlyWith)]

    def in_effect(self) -> dict[str, Any]:
        """Return the options that have an effect, with their values."""
        return {
            option: value
            for option, value in self.model_dump().items()
            if not any(mark.unmet(self) for mark in self.only_with(option))
        }

    def stages(self, bucket: Bucket, world: World, iteration: int) -> list[Stage]:
        """Return what happens to one bucket, in order; each stage waits for the one before it."""
        raise NotImplementedError

    def jobs(self, buckets: Sequence[Bucket], world: World, iteration: int) -> list[Job]:
        """Return the jobs of an iteration in issue order: one a bucket, when it is ready."""
        return [
            Job(f"{number}", tuple(stages), Point("backward", bucket.ready_s))
            for number, bucket in enumerate(buckets)
            if (stages := self.stages(bucket, world, iteration))
        ]

    def rounds(self) -> list[Round]:
        """Return the iterations of the method's period."""
        return [Round()]

    def delay(self) -> int:
        """Return how many updates may pass before an exchange's result is needed."""
        return 0

    def refusal(self, world: World) -> str:
        """Return why it cannot run on these ranks or this model, or ""."""
        return ""

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes that a rank puts into the bucket's message for one gradient."""
        return gradient.size_bytes

    def agreement_s(self, tensors: int, world: World) -> float:
        """Return how long the ranks agree on some tensors before these may be sent [s]."""
        return 0.0

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the extra memory that a rank keeps from one iteration to the next."""
        return 0.0

    def memory_in(self, world: World) -> float:
        """Return the same where it depends on more than the number of ranks: nodes, layers."""
        gradients = world.profile.gradients if world.profile else ()
        return self.memory_bytes(gradients, world.ranks)

    def kept_share(self, ranks: int) -> dict[str, float]:
        """Return the share of parameters, gradients and optimizer state that a rank keeps.

        The update runs on the optimizer's share.
        """
        return {"parameters": 1.0, "gradients": 1.0, "optimizer": 1.0}

    def late_launches(self) -> int:
        """Return the kernels a tensor of an update that the host issues after it has waited.

        0 where the host issues the update ahead of the GPU, as with DDP.
        """
        return SGD_LAUNCHES if self.waits else 0

    def default_fusion(self) -> str:
        """Return the fusion policy used when none is asked for."""
        return self.fusion
