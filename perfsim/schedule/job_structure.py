"""Task graphs taken over by other jobs of the same structure.

The order of a round's tasks, and what each waits for, depends on where jobs begin and what their
stages wait for: not on how much is sent, by whom, nor on which kernels run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import fields, replace
from operator import attrgetter, itemgetter

from perfsim.methods.base import Compute, Job, JobStage, Send
from perfsim.schedule.costed_graph import CostedGraph, KindsOfWork, TaskWork
from perfsim.schedule.costs import likeness, task_work
from perfsim.schedule.identity import ByIdentity

__all__ = ["GraphOfJobs", "structure_of"]


# A field that is added to one of these counts, until it is named here.
_JOB = attrgetter(*[one.name for one in fields(Job) if one.name not in ("stages", "after")])
_COMPUTE = itemgetter(*[at for at, name in enumerate(Compute._fields) if name != "kernels"])
_NOT_OF_ORDER = {
    *("size_bytes", "algorithm", "group", "servers"),
    *("distances", "by_turns", "between", "repeats"),
}
_SEND = itemgetter(*[at for at, name in enumerate(Send._fields) if name not in _NOT_OF_ORDER])


def structure_of(jobs: Sequence[Sequence[Job]]) -> Hashable:
    """Return all of some jobs, by iteration, that the order of their tasks depends on."""
    known = ByIdentity[Hashable]()

    def of_stage(stage: JobStage) -> Hashable:
        found = known.get(stage)
        return found if found is not None else known.keep(stage, _of_stage(stage))

    return tuple(
        [
            tuple(
                [
                    (
                        tuple(map(of_stage, job.stages)),
                        tuple(map(of_stage, job.after)),
                        _JOB(job),
                    )
                    for job in one
                ]
            )
            for one in jobs
        ]
    )


def _of_stage(stage: JobStage) -> Hashable:
    """Return a stage without its kernels, or without what it sends, to whom and how."""
    if isinstance(stage, Compute):
        return (_COMPUTE(stage),)
    # How far ahead a stream is handed messages depends on their sizes.
    return _SEND(stage), stage.size_bytes if stage.credit_bytes else 0.0


class GraphOfJobs:
    """The graph of some jobs, to be taken over by others of the same structure.

    Parameters
    ----------
    costed : the graph
    jobs : those that it was made of, by iteration
    """

    def __init__(self, costed: CostedGraph, jobs: Sequence[Sequence[Job]]) -> None:
        self.costed = costed
        places: dict[Hashable, list[int]] = {}
        by_stage = ByIdentity[list[int]]()
        for place, stage in enumerate(_stages(jobs)):
            alike = by_stage.get(stage)
            if alike is None:
                # A graph has one work for all stages alike.
                alike = by_stage.keep(stage, places.setdefault(likeness(stage), []))
            alike.append(place)
        self._alike = [some for some in places.values() if len(some) > 1]
        self._works = [*dict.fromkeys(work for work in costed.work if work is not None)]
        number_of = {work: number for number, work in enumerate(self._works)}
        # Where the stage of each work stands; None for what a pass of a divided model sends.
        found = [by_stage.get(work.stage) for work in self._works]
        self._stages = [None if alike is None else alike[0] for alike in found]
        # The work of each task, by number, and the tasks of each work.
        self._numbers = [None if work is None else number_of[work] for work in costed.work]
        self._tasks: list[list[int]] = [[] for _ in self._works]
        for task, number in enumerate(self._numbers):
            if number is not None:
                self._tasks[number].append(task)
        sends = {
            number: work.stage
            for number, work in enumerate(self._works)
            if isinstance(work.stage, Send)
        }
        self._sends = [number for number in self._numbers if number in sends]
        self._sent = [number for number in self._sends if sends[number].counted]

    def with_jobs(
        self,
        others: Sequence[Sequence[Job]],
        work_of_stage: Callable[[JobStage], TaskWork] = task_work,
    ) -> CostedGraph | None:
        """Return the graph with the work of other jobs of the same structure, not priced yet.

        None where stages that are alike in these jobs are not in the others.
        """
        stages = _stages(others)
        for places in self._alike:
            one = stages[places[0]]
            for place in places:
                if stages[place] is not one and stages[place] != one:
                    return None
        works = [
            work if place is None else work_of_stage(stages[place])
            for work, place in zip(self._works, self._stages, strict=True)
        ]
        made = [None if number is None else works[number] for number in self._numbers]
        graph = replace(self.costed, work=made, priced_on=None, _terms={})
        graph.sent_bytes, graph.calls, graph.gathered_bytes = 0.0, 0, 0.0
        for number in self._sends:
            stage = works[number].stage
            assert isinstance(stage, Send)
            graph.add_message(stage, 0.0)
        graph.kinds_of_work = KindsOfWork(works, self._tasks, self._sent)
        return graph


def _stages(jobs: Sequence[Sequence[Job]]) -> list[JobStage]:
    """Return the stages of all jobs, in order."""
    return [stage for one in jobs for job in one for stage in (*job.stages, *job.after)]
