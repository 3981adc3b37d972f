"""A job on its way through an iteration, and waiting for one that is not planned yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from perfsim.simulate.task import COMPUTE
from perfsim.stage import Compute, Job, Moment, Stage

__all__ = ["Course", "Late"]

MOMENTS: tuple[Moment, ...] = get_args(Moment)
"""Earliest moments of stages, in the order in which they come."""


@dataclass
class Course:
    """A job on its way: stages left, the tasks that the next one waits for, and loose sends."""

    job: Job
    name: str
    stages: list[Stage]
    tail: tuple[int, ...] = ()
    loose: list[int] = field(default_factory=list)
    needs: tuple[str, ...] = ()

    @property
    def ends(self) -> list[int]:
        """The tasks after which the job is over."""
        return sorted({*self.tail, *self.loose})

    def goes(self, moments: int, *, moved: bool, sent: bool) -> bool:
        """Tell whether the next stage can be issued now.

        Parameters
        ----------
        moments : how many of these are past: the end of the backward pass, that of the update
        moved : another stage of the job was issued in this turn
        sent : the stage may need what other ranks sent
        """
        if not self.stages:
            return False
        stage = self.stages[0]
        if sent and _would_hold_up(stage) and (moments == 0 or moved):
            return False
        return moments >= MOMENTS.index(stage.earliest)


def _would_hold_up(stage: Stage) -> bool:
    """Tell whether a stage that needs a result is kept out of the backward pass's way."""
    return isinstance(stage, Compute) and stage.stream == COMPUTE and not stage.blocks


class Late(NamedTuple):
    """A job of an iteration that may not be planned yet: whose ends are waited for."""

    place: int
    job: str
    back: int
