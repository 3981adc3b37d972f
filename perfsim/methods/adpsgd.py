"""ADPSGD: parameters averaged at intervals that grow as training goes on."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Compute,
    Job,
    Method,
    MethodContext,
    OnlyWith,
    PassPoint,
    Round,
    Send,
)
from perfsim.methods.building.averaging import (
    NOTHING_BETWEEN,
    averages,
    by_schedule,
    merged_bucket,
    periodic,
)


class Adpsgd(Method):
    """Averages models as `cpsgd` does, at intervals that follow the models' variance.

    After each averaging a rank takes the squared distance of its own model from the mean (subtract,
    3 passes; norm, 1). This one number is all-reduced. The host reads it to set the interval, so
    the next forward pass waits for it too. Time depends on how often models are averaged, not on
    when. ``schedule`` gives the intervals and the number of iterations that each lasts
    ("4x1000,8x500"). Without it, ``interval`` is the mean interval.

    The rule that sets the interval is not modelled: its outcome depends on what is learnt, and the
    text that was read does not give its constants. The mean interval of 8 is derived: the abstract
    gives half the communication of QSGD, taken as 8 bits for 32.

    Bytes a rank: 2 (P-1)/P x 4 (n + 1) / interval.
    Memory: none from one iteration to the next; a copy of the model while averaging.
    Left out: the rule that sets the interval; batch-norm statistics.
    """

    summary: ClassVar[str] = "models averaged at intervals that adapt to their variance (ADPSGD)"
    citation: ClassVar[str] = (
        "Jiang & Agrawal 2020, Adaptive Periodic Averaging, arXiv 2007.06134, abstract; buffer"
        " as pytorch/pytorch@03e7531c torch/distributed/algorithms/model_averaging/utils.py"
    )
    family: ClassVar[str] = "fewer exchanges"
    levels: ClassVar[str] = NOTHING_BETWEEN
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * (n + 1) / interval"
    fusion: ClassVar[str] = "whole"
    interval_option: ClassVar[str] = "interval"

    interval: Annotated[int, OnlyWith(schedule="")] = Field(
        8, ge=1, le=10**6, description="mean iterations between averagings"
    )
    schedule: str = Field("", description="interval x iterations, as 4x1000,8x500; else interval")

    @field_validator("schedule")
    @classmethod
    def _readable(cls, schedule: str) -> str:
        if schedule:
            by_schedule(schedule)
        return schedule

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the averaging after the update, and the exchange of the models' variance."""
        parts = averages(buckets)
        distance = (elementwise(merged_bucket(buckets).elements, 4, 2),)
        variance = Job(
            "variance",
            (
                Compute(distance, "decompress", earliest="update"),
                Send("all_reduce", float(FLOAT), earliest="update"),
            ),
            PassPoint("backward"),
            PassPoint("next"),
            needs=tuple(part.name for part in parts),
        )
        return [*parts, variance]

    def interval_rounds(self) -> list[Round]:
        """Return the iterations from one averaging to the next; none where a schedule says so."""
        return [] if self.schedule else self.rounds()

    def rounds(self) -> list[Round]:
        """Return the local iterations and those that average, in the schedule's proportions."""
        return by_schedule(self.schedule) if self.schedule else periodic(self.interval)
