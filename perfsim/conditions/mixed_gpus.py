"""Plans of a cluster with several types of GPU: one plan a type, run together, a row a type.

Every GPU trains the same batch. A collective starts when its last rank has arrived, so that an
iteration of a synchronous method is as long as its slowest GPUs need between exchanges. All types
must do the same in the same order: what a fusion policy decides by times is decided on the slowest
type, and a method that decides otherwise on another type is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion.bucket import Bucket, FusionContext, FusionPolicy
from perfsim.quantity import Term
from perfsim.schedule.costed_graph import CostedGraph, Mixed, term_subject, terms_of
from perfsim.simulate.graph import by_kind
from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    from perfsim.simulate.task import Duration

__all__ = ["mixed_rounds", "run_mixed"]

SLIVER = 1e-12
"""Part of all a plan's time below which a task is what rounding has left."""


def run_mixed(costed: CostedGraph, durations: Sequence[float] | None = None) -> Timeline:
    """Return the timeline of the type of GPU that ends last.

    ``durations`` [s] stand in the place of those of the plan's own type.
    """
    import numpy as np

    mixed = costed.mixed
    assert mixed is not None
    rows = [durations or _own(costed), *(mixed.spent_s or map(_own, mixed.rounds))]
    spent: list[Duration] = [
        float(column[0]) if len(set(column)) == 1 else np.array(column, float)
        for column in zip(*rows, strict=True)
    ]
    graph = by_kind(costed.graph, mixed.kinds)
    if graph.contended or costed.order == "priority":
        from perfsim.simulate.events import simulate_events

        found = simulate_events(graph, spent, ranks=True, order=costed.order)
    else:
        from perfsim.simulate.array import simulate

        found = simulate(graph, spent, ranks=True)
    return found.select() if found.ranks else found


def _own(costed: CostedGraph) -> list[float]:
    return [float(task.duration_s) for task in costed.graph.tasks]


def mixed_rounds(
    planned: Sequence[tuple[str, Callable[[FusionPolicy], list[CostedGraph]]]],
    fuse: FusionPolicy,
    kinds: tuple[int, ...],
    method: str,
) -> list[CostedGraph]:
    """Return the plans of a cluster of several types of GPU, each with those of the other types.

    Parameters
    ----------
    planned : by type of GPU, the slowest first: what makes its plans with a fusion policy
    fuse : the policy
    kinds : the type of each rank, by its place in ``planned``
    method : its name, for messages

    Raises
    ------
    RequestError
        If the method does other things on one type than on another.
    """
    agreed = _Agreed(fuse)
    (slowest, first), *others = planned
    whole = [_without_slivers(costed) for costed in first(agreed.decide)]
    found = []
    for name, make in others:
        agreed.turn = 0
        rounds = [_without_slivers(costed) for costed in make(agreed.follow)]
        if [_shape(costed) for costed in rounds] != [_shape(costed) for costed in whole]:
            raise RequestError(
                "gpu",
                f"{method} does other things on {name} than on {slowest}, as it decides by"
                " times or their profiles differ; such GPUs in one job cannot be followed, take one"
                " type.",
            )
        found.append((name, rounds))
    for number, costed in enumerate(whole):
        costed.mixed = Mixed(tuple(rounds[number] for _, rounds in found), kinds)
        _tell(costed, slowest, [(name, rounds[number]) for name, rounds in found])
    return whole


def _without_slivers(costed: CostedGraph) -> CostedGraph:
    """Return a plan without parts of passes that only rounding has made.

    Where a bucket is ready at the end of a pass, what adding up leaves of it is a task for one
    type and none for another.
    """
    tasks = costed.graph.tasks
    least_s = SLIVER * sum(float(task.duration_s) for task in tasks)
    slivers = {
        index
        for index, task in enumerate(tasks)
        if task.kind in ("forward", "backward") and 0.0 < float(task.duration_s) <= least_s
    }
    if not slivers:
        return costed
    closing = costed.graph.closing
    stream = tasks[closing].stream
    kept = [index for index in range(len(tasks)) if index not in slivers]
    places = {index: place for place, index in enumerate(kept)}

    def waits(pair: tuple[int, int]) -> list[tuple[int, int]]:
        index, back = pair
        if index not in slivers:
            return [(places[index], back)]
        return [one for other, more in tasks[index].after for one in waits((other, back + more))]

    graph = replace(
        costed.graph,
        tasks=[
            task._replace(after=tuple(sorted({one for pair in task.after for one in waits(pair)})))
            for task in (tasks[index] for index in kept)
        ],
        # A pass ends with the part before a sliver of it.
        last=places[max(i for i in kept if i <= closing and tasks[i].stream == stream)],
    )
    begins = [sum(index < begin for index in kept) for begin in costed.begins]
    charges = [costed.charges[index] for index in kept]
    return replace(costed, graph=graph, charges=charges, begins=begins)


def _shape(costed: CostedGraph) -> tuple[object, ...]:
    """Return what a plan does, whatever it takes."""
    tasks = tuple(
        (task.stream, task.kind, frozenset(task.after), task.size_bytes, task.priority)
        for task in costed.graph.tasks
    )
    return costed.order, costed.count, costed.repeats, tasks


def _tell(costed: CostedGraph, slowest: str, others: Sequence[tuple[str, CostedGraph]]) -> None:
    """Let the plan's terms name the type of GPU where types differ."""
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
class _Group:
    """A bucket as it was decided: its tensors and, where it waits for more than these, its place.

    ``place`` is its moment over the length of the backward pass.
    """

    names: tuple[str, ...]
    place: float | None

    def of(self, known: dict[str, Gradient], backward_s: float) -> Bucket:
        """Return the bucket in another profile."""
        found = Bucket.of([known[name] for name in self.names])
        return found if self.place is None else replace(found, ready_s=self.place * backward_s)


@dataclass
class _Agreed:
    """Buckets as the slowest type decides on them, and the same ones of another type's profile."""

    fuse: FusionPolicy
    decided: list[list[_Group]] = field(default_factory=list)
    turn: int = 0

    def decide(self, gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
        buckets = list(self.fuse(gradients, context))
        groups = []
        for bucket in buckets:
            own = bucket.ready_s == Bucket.of(bucket.gradients).ready_s
            place = None if own else bucket.ready_s / context.backward_s
            groups.append(_Group(tuple(one.name for one in bucket.gradients), place))
        self.decided.append(groups)
        return buckets

    def follow(self, gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
        known = {gradient.name: gradient for gradient in gradients}
        groups = self.decided[self.turn] if self.turn < len(self.decided) else []
        self.turn += 1
        if {name for group in groups for name in group.names} != set(known):
            return list(self.fuse(gradients, context))  # the plans will differ, which is refused
        return [group.of(known, context.backward_s) for group in groups]
