"""DaSGD: local SGD whose averages are merged some iterations after they began."""

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from perfsim.compute.kernel import elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    LOCAL_ITERATION,
    Compute,
    HeldState,
    Job,
    JobStage,
    Method,
    MethodContext,
    OptionError,
    PassPoint,
    Round,
    Send,
)
from perfsim.methods.building.averaging import NOTHING_BETWEEN, fp32_bytes


class Dasgd(Method):
    """Begins to average models every ``interval`` iterations and continues computing meanwhile.

    At the start of an iteration the models are concatenated and divided by P (4 passes, 2
    launches), and their all-reduce starts. ``late`` iterations later, computation waits for the
    result. It merges the result with the model that was updated locally since (scale and add: 5
    passes, 2 launches a tensor).

    The waiting rule is from the paper's abstract (local SGD with delayed averaging). The kernels,
    and ``late`` as a whole interval, are those of the nearest public code: Overlap-Local-SGD
    without global momentum.

    Bytes a rank: 2 (P-1)/P x 4 / interval a parameter.
    Memory: the buffer that is averaged while training continues.
    Left out: batch-norm statistics.
    """

    summary: ClassVar[str] = "models averaged in the background, merged late (DaSGD)"
    citation: ClassVar[str] = (
        "Zhou et al. 2020, DaSGD, arXiv 2006.00441, abstract; Wang, Liang & Joshi 2020, Overlap"
        " Local-SGD, ICASSP, code JYWa/Overlap_Local_SGD@2d711c64 distoptim/OverlapLocalSGD.py"
    )
    family: ClassVar[str] = "fewer exchanges"
    levels: ClassVar[str] = NOTHING_BETWEEN
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n / interval"
    fusion: ClassVar[str] = "whole"
    interval_option: ClassVar[str] = "interval"

    interval: int = Field(4, ge=1, le=1000, description="iterations between two averagings")
    late: int = Field(
        0, ge=0, description="iterations until an average is merged; 0 for the whole interval"
    )

    @model_validator(mode="after")
    def _one_at_a_time(self) -> Self:
        if self.late > self.interval:
            raise OptionError(
                "late",
                self.late,
                f"is over interval={self.interval}: an average is merged before the next begins",
            )
        return self

    @property
    def overlapped(self) -> int:
        """Number of iterations that an averaging overlaps."""
        return self.late or self.interval

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the averaging, which begins with the forward pass, and the merging."""
        if iteration == LOCAL_ITERATION:
            return []
        merges = PassPoint("update", later=self.overlapped - 1)
        jobs = []
        for number, bucket in enumerate(buckets):
            pack = Compute((elementwise(bucket.elements, 4, 2),), "compress")
            merge = elementwise(bucket.elements, 5, 2 * len(bucket.gradients))
            stages: tuple[JobStage, ...] = (pack, Send("all_reduce", fp32_bytes(bucket.gradients)))
            after = (Compute((merge,), "decompress"),)
            jobs.append(Job(f"{number}", stages, PassPoint("forward"), merges, after=after))
        return jobs

    def rounds(self) -> list[Round]:
        """Return one round of an interval, since averaging continues across iterations."""
        return [Round((0, *[LOCAL_ITERATION] * (self.interval - 1)))]

    def interval_from(self, least: int) -> int:
        """Return the shortest interval that has the iterations an averaging may take."""
        return max(1, least, self.late)

    def outer_state(self, world: MethodContext) -> list[HeldState]:
        """Return the buffer that is averaged."""
        held = self.memory_in(world)
        return [HeldState("average under way", held, ranks=world.gpus_per_node)] if held else []

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the buffer: one fp32 value a parameter."""
        return fp32_bytes(gradients)
