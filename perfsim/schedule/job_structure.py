"""Task graphs taken over by other jobs of the same structure.

The order of a round's tasks, and what each waits for, depends on where jobs begin and what their
stages wait for: not on how much is sent, by whom, nor on which kernels run. Where jobs cut passes
and do nothing else there, it depends on the order of their beginnings alone: then the parts of the
passes take another time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter, itemgetter
from typing import TypeAlias

from perfsim.methods.base import Compute, Job, JobStage, Send
from perfsim.schedule.costed_graph import CostedGraph, KindsOfWork, PartOfPass, TaskWork
from perfsim.schedule.costs import likeness, task_work
from perfsim.schedule.identity import ByIdentity

__all__ = ["GraphOfJobs", "PassSeconds", "structure_of"]


# A field that is added to one of these counts, until it is named here.
_WHOLE_JOB = [one.name for one in fields(Job) if one.name not in ("stages", "after")]
_JOB = attrgetter(*_WHOLE_JOB)
_JOB_ANYWHERE = attrgetter(*[name for name in _WHOLE_JOB if name != "begins"])
_COMPUTE = itemgetter(*[at for at, name in enumerate(Compute._fields) if name != "kernels"])
_NOT_OF_ORDER = {
    *("size_bytes", "algorithm", "group", "servers"),
    *("distances", "by_turns", "between", "repeats"),
}
_SEND = itemgetter(*[at for at, name in enumerate(Send._fields) if name not in _NOT_OF_ORDER])


PassSeconds: TypeAlias = Mapping[str, float]
"""How long the forward and the backward pass take [s]."""


_Edges: TypeAlias = list[dict[str, list[float]]]
"""Where the parts of each pass begin and end [s], by iteration."""


def _edges_of(jobs: Sequence[Sequence[Job]], passes_s: PassSeconds | None) -> _Edges | None:
    """Return the edges of passes that jobs cut where they begin.

    None where a job does more there: computation waits for it in a pass, or it begins behind the
    end.
    """
    if passes_s is None or not all(passes_s.values()):
        return None
    found: _Edges = []
    for one in jobs:
        edges = {phase: {0.0, seconds} for phase, seconds in passes_s.items()}
        for job in one:
            phase, seconds, *_ = job.begins
            if job.holds or not 0.0 <= seconds <= passes_s[phase]:
                return None
            edges[phase].add(seconds)
        found.append({phase: sorted(some) for phase, some in edges.items()})
    return found


def structure_of(jobs: Sequence[Sequence[Job]], passes_s: PassSeconds | None = None) -> Hashable:
    """Return all of some jobs, by iteration, that the order of their tasks depends on.

    Parameters
    ----------
    passes_s : what the passes take that they cut, where each iteration has one of each; None: when
        jobs begin counts in seconds
    """
    known = ByIdentity[Hashable]()

    def of_stage(stage: JobStage) -> Hashable:
        found = known.get(stage)
        return found if found is not None else known.keep(stage, _of_stage(stage))

    edges = _edges_of(jobs, passes_s)
    return tuple(
        [
            tuple(
                [
                    (
                        tuple(map(of_stage, job.stages)),
                        tuple(map(of_stage, job.after)),
                        when,
                    )
                    for job, when in zip(one, whens, strict=True)
                ]
            )
            for one, whens in zip(jobs, _whens(jobs, edges), strict=True)
        ]
    )


def _whens(jobs: Sequence[Sequence[Job]], edges: _Edges | None) -> list[list[Hashable]]:
    """Return what tells of each job when it runs: among edges, the place where it begins."""
    if edges is None:
        return [[_JOB(job) for job in one] for one in jobs]
    found: list[list[Hashable]] = []
    for one, passes in zip(jobs, edges, strict=True):
        places = {
            phase: {seconds: place for place, seconds in enumerate(some)}
            for phase, some in passes.items()
        }
        counts = tuple(map(len, places.values()))
        whens: list[Hashable] = []
        for job in one:
            phase, seconds, *rest = job.begins
            whens.append((_JOB_ANYWHERE(job), phase, places[phase][seconds], *rest, counts))
        found.append(whens)
    return found


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
    passes_s : that of `structure_of`
    """

    def __init__(
        self,
        costed: CostedGraph,
        jobs: Sequence[Sequence[Job]],
        passes_s: PassSeconds | None = None,
    ) -> None:
        self.costed, self._passes_s = costed, passes_s
        self._edges = edges = _edges_of(jobs, passes_s)
        # Of each part of a pass, where it begins among the edges of that pass.
        self._from = (
            [edges[part.step][part.kind].index(part.from_s) for part in costed.parts]
            if edges
            else []
        )
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
        counted = {number for number, send in sends.items() if send.counted}
        self._sent = [number for number in self._numbers if number in counted]

    def with_jobs(
        self,
        others: Sequence[Sequence[Job]],
        work_of_stage: Callable[[JobStage], TaskWork] = task_work,
    ) -> CostedGraph | None:
        """Return the graph with the work of other jobs of the same structure, not priced yet.

        Until then its tasks take what they took in the graph that it is taken from. None where
        stages that are alike in these jobs are not in the others.
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
        known = self._cut_by(others)
        graph = replace(known, work=made, priced_on=None, _terms={}, durations_s=known.task_s)
        graph.sent_bytes, graph.calls, graph.gathered_bytes = 0.0, 0, 0.0
        for number in self._sent:
            stage = works[number].stage
            assert isinstance(stage, Send)
            graph.add_message(stage, 0.0)
        graph.kinds_of_work = KindsOfWork(works, self._tasks, self._sent)
        return graph

    def _cut_by(self, others: Sequence[Sequence[Job]]) -> CostedGraph:
        """Return the graph with passes cut where other jobs begin."""
        edges = _edges_of(others, self._passes_s) if self._from else None
        if edges is None or edges == self._edges:
            return self.costed
        tasks, parts = [*self.costed.graph.tasks], []
        for (task, kind, step, *_), place in zip(self.costed.parts, self._from, strict=True):
            from_s, until_s = edges[step][kind][place : place + 2]
            tasks[task] = tasks[task].lasting(until_s - from_s)
            parts.append(PartOfPass(task, kind, step, from_s, until_s - from_s))
        return replace(self.costed, graph=self.costed.graph.with_tasks(tasks), parts=parts)


def _stages(jobs: Sequence[Sequence[Job]]) -> list[JobStage]:
    """Return the stages of all jobs, in order."""
    return [stage for one in jobs for job in one for stage in (*job.stages, *job.after)]
