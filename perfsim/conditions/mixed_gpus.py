"""Several types of GPU in one job: a round for each type, run together.

Every GPU trains the same batch. A collective starts when its last rank has arrived, so that an
iteration of a synchronous method takes what its slowest GPUs need between exchanges. All types
must run the same tasks in the same order. What a fusion policy decides by times is decided on the
slowest type; a method that decides otherwise on another type is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket, FusionContext, FusionPolicy
from perfsim.quantity import Term
from perfsim.schedule.costed_graph import CostedGraph, Mixed, term_subject, terms_of
from perfsim.simulate.graph import by_kind
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.simulate.task import Duration

__all__ = ["mixed_rounds", "run_mixed"]

_SLIVER = 1e-12
"""Share of a round's time below which a part of a pass is a rounding error."""
_SLIVER_KINDS = ("forward", "backward", "other")
"""Kinds of tasks that cut a pass, or wait for a moment beyond it."""


def run_mixed(costed: CostedGraph, durations: Sequence[float] | None = None) -> Timeline:
    """Run a round on all types of GPU, and return the timeline of the type that ends last.

    ``durations`` [s] are taken in place of those of the round's own type.
    """
    import numpy as np

    mixed = costed.mixed
    assert mixed is not None
    rows = [durations or costed.task_s, *(mixed.spent_s or [one.task_s for one in mixed.rounds])]
    spent: list[Duration] = [
        float(column[0]) if len(set(column)) == 1 else np.array(column, float)
        for column in zip(*rows, strict=True)
    ]
    graph = by_kind(costed.graph, mixed.kinds)
    if graph.contended or costed.order == "priority":
        from perfsim.simulate.events import simulate_events

        timeline = simulate_events(graph, spent, ranks=True, order=costed.order)
    else:
        from perfsim.simulate.array import simulate

        timeline = simulate(graph, spent, ranks=True)
    return timeline.select() if timeline.ranks else timeline


def mixed_rounds(
    schedulers: Sequence[tuple[str, Callable[[FusionPolicy], list[CostedGraph]]]],
    fuse: FusionPolicy,
    kinds: tuple[int, ...],
    method: str,
) -> list[CostedGraph]:
    """Build the rounds of a cluster of several types of GPU, each with those of the other types.

    Parameters
    ----------
    schedulers : by type of GPU, the slowest first: what builds its rounds with a fusion policy
    fuse : the policy
    kinds : the type of each rank, by its position in ``schedulers``
    method : its name, for messages

    Raises
    ------
    RequestError
        If the method does other things on one type than on another.
    """
    shared = _SharedBuckets(fuse)
    (slowest, schedule_slowest), *others = schedulers
    rounds = [_without_slivers(costed) for costed in schedule_slowest(shared.decide)]
    other_rounds = []
    for name, schedule_other in others:
        shared.turn = 0
        its = [_without_slivers(costed) for costed in schedule_other(shared.follow)]
        if [_shape(costed) for costed in its] != [_shape(costed) for costed in rounds]:
            raise RequestError(
                "gpu",
                f"{method} runs other tasks on {name} than on {slowest}, because it decides by"
                " times or because their profiles differ. Such GPUs cannot be in one job; take one"
                " type.",
            )
        other_rounds.append((name, its))
    for number, costed in enumerate(rounds):
        costed.mixed = Mixed(tuple(its[number] for _, its in other_rounds), kinds)
        _name_types(costed, slowest, [(name, its[number]) for name, its in other_rounds])
    return rounds


def _without_slivers(costed: CostedGraph) -> CostedGraph:
    """Return a round without parts of passes, and waits, that are rounding errors.

    Where a bucket is ready at the end of a pass, rounding may leave a last part of the pass, or a
    wait beyond it, on one type and none on another.
    """
    tasks = costed.graph.tasks
    least_s = _SLIVER * sum_in_order(float(task.duration_s) for task in tasks)
    slivers = {
        index
        for index, task in enumerate(tasks)
        if task.kind in _SLIVER_KINDS and 0.0 < float(task.duration_s) <= least_s
    }
    if not slivers:
        return costed
    closing = costed.graph.closing
    stream = tasks[closing].stream
    kept = [index for index in range(len(tasks)) if index not in slivers]
    position = {index: new for new, index in enumerate(kept)}

    def waits(pair: tuple[int, int]) -> list[tuple[int, int]]:
        index, back = pair
        if index not in slivers:
            return [(position[index], back)]
        return [one for other, more in tasks[index].after for one in waits((other, back + more))]

    graph = replace(
        costed.graph,
        tasks=[
            task._replace(after=tuple(sorted({one for pair in task.after for one in waits(pair)})))
            for task in (tasks[index] for index in kept)
        ],
        # A pass ends with the part before a sliver of it.
        last=position[max(i for i in kept if i <= closing and tasks[i].stream == stream)],
    )
    begins = [sum(index < begin for index in kept) for begin in costed.begins]
    charges = [costed.charges[index] for index in kept]
    work = [costed.work[index] for index in kept]
    return replace(costed, graph=graph, charges=charges, work=work, begins=begins)


def _shape(costed: CostedGraph) -> tuple[object, ...]:
    """Return what a round does, without how long it takes."""
    tasks = tuple(
        (task.stream, task.kind, frozenset(task.after), task.size_bytes, task.priority)
        for task in costed.graph.tasks
    )
    return costed.order, costed.count, costed.repeats, tasks


def _name_types(
    costed: CostedGraph, slowest: str, others: Sequence[tuple[str, CostedGraph]]
) -> None:
    """Name the type of GPU in the round's terms where types differ."""
    own = {term_subject(term): term for term in terms_of([costed])}
    differ: set[str] = set()
    more: list[tuple[float, Term]] = []
    for name, other in others:
        theirs = {term_subject(term): term for term in terms_of([other])}
        apart = {what for what, term in theirs.items() if own.get(what) != term}
        more += [
            (size, _on(term, name)) for size, term in other.terms if term_subject(term) in apart
        ]
        differ |= apart
    kept = [
        (size, _on(term, slowest) if term_subject(term) in differ else term)
        for size, term in costed.terms
    ]
    costed.replace_terms([*kept, *more])


def _on(term: Term, name: str) -> Term:
    what, at, size = term.term.partition(" at ")
    return term._replace(term=f"{what} on {name}{at}{size}")


@dataclass(frozen=True, slots=True)
class _DecidedBucket:
    """A bucket as decided on the slowest type: its tensors, and when it is ready.

    ``ready_share`` is that moment over the length of the backward pass, None where the bucket is
    ready as soon as its tensors are.
    """

    names: tuple[str, ...]
    ready_share: float | None

    def of(self, known: dict[str, Gradient], backward_s: float) -> Bucket:
        """Return the bucket in another profile."""
        bucket = Bucket.of([known[name] for name in self.names])
        if self.ready_share is None:
            return bucket
        return replace(bucket, ready_s=self.ready_share * backward_s)


@dataclass
class _SharedBuckets:
    """A fusion policy that decides on the slowest type, and repeats its buckets on the others."""

    fuse: FusionPolicy
    decided: list[list[_DecidedBucket]] = field(default_factory=list)
    turn: int = 0

    def decide(self, gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
        buckets = list(self.fuse(gradients, context))
        groups = []
        for bucket in buckets:
            own = bucket.ready_s == Bucket.of(bucket.gradients).ready_s
            share = None if own else bucket.ready_s / context.backward_s
            groups.append(_DecidedBucket(tuple(one.name for one in bucket.gradients), share))
        self.decided.append(groups)
        return buckets

    def follow(self, gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
        known = {gradient.name: gradient for gradient in gradients}
        groups = self.decided[self.turn] if self.turn < len(self.decided) else []
        self.turn += 1
        if {name for group in groups for name in group.names} != set(known):
            return list(self.fuse(gradients, context))  # the rounds will differ, which is refused
        return [group.of(known, context.backward_s) for group in groups]
