"""Task graphs taken over by other jobs of the same structure.

The order of a round's tasks, and what each waits for, depends on where jobs begin and what their
stages wait for: not on how much is sent, by whom, nor on which kernels run.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import fields, replace
from itertools import chain
from operator import attrgetter, itemgetter

from perfsim.methods.base import Compute, Job, JobStage, Send
from perfsim.schedule.costed_graph import CostedGraph, Work
from perfsim.schedule.costs import likeness, work_of

__all__ = ["structure_of", "with_other_jobs"]


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
    known: dict[int, Hashable] = {}

    def of_stage(stage: JobStage) -> Hashable:
        found = known.get(id(stage))
        if found is None:
            found = known[id(stage)] = _of_stage(stage)
        return found

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


def with_other_jobs(
    costed: CostedGraph, jobs: Sequence[Sequence[Job]], others: Sequence[Sequence[Job]]
) -> CostedGraph | None:
    """Return the graph of some jobs with the work of others of the same structure, not priced yet.

    None where stages that are alike in these jobs are not in the others.
    """
    stages: dict[int, JobStage] = {}
    alike: dict[Hashable, JobStage] = {}
    for job, other in zip(chain(*jobs), chain(*others), strict=True):
        for old, new in zip((*job.stages, *job.after), (*other.stages, *other.after), strict=True):
            known = stages.get(id(old))
            if known is new:
                continue
            if known is None:
                # A graph has one work for all stages alike.
                known = alike.setdefault(likeness(old), new)
            if known != new:
                return None
            stages[id(old)] = new
    works: dict[int, Work] = {}
    made: list[Work | None] = []
    for work in costed.work:
        if work is not None and id(work) not in works:
            stage = stages.get(id(work.stage))  # none for what a pass of a divided model sends
            works[id(work)] = work if stage is None else work_of(stage)
        made.append(None if work is None else works[id(work)])
    graph = replace(costed, work=made, priced_on=None, _terms={})
    graph.sent_bytes, graph.calls, graph.gathered_bytes = 0.0, 0, 0.0
    for work in made:
        if work is not None and isinstance(work.stage, Send):
            graph.add_message(work.stage, 0.0)
    return graph
