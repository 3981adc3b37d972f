"""Plan: the task graph of some iterations, and what each task's duration is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from perfsim.compute.kernel import Kernel
from perfsim.conditions.spec import Conditions
from perfsim.methods.base import Compute, Send
from perfsim.quantity import Grade, Term
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.shared_link import LinkUse

__all__ = ["WAIT", "WORK", "CostedGraph", "Mixed", "TaskCost", "Work", "terms_of", "what_of"]


class TaskCost(NamedTuple):
    """What one task's duration is made of, for what-ifs and intervals.

    ``cause`` is compute, network, compression, second_order or waiting; ``latency_s`` is the part
    that no bandwidth shrinks; ``spread`` the relative 90 % half-width of the duration; ``grade``
    whether such a cost was measured, carried or modelled (see ``Cost``).
    """

    cause: str
    latency_s: float = 0.0
    spread: float | None = None
    grade: Grade = "modelled"


class Work(NamedTuple):
    """What a task does of a method: a stage, and how often it runs each of its kernels."""

    stage: Send | Compute
    kernels: tuple[tuple[Kernel, int], ...]


WORK = TaskCost("compute")
WAIT = TaskCost("waiting")


@dataclass
class CostedGraph:
    """The task graph of a round with each task's charge, and what a GPU sends in it.

    ``count`` is how many times the round is run in the method's period, ``order`` the order in
    which streams take their tasks, ``gathered_bytes`` what all-gathers bring to a GPU in it;
    ``begins`` the first task of each of its iterations, ``repeats`` how many iterations each of
    these stands for (() for one each), ``conditions`` how its ranks differ, if they do; ``work``
    what each task does of the method, None for passes and updates.
    """

    graph: TaskGraph
    charges: list[TaskCost] = field(default_factory=list)
    sent_bytes: float = 0.0
    calls: int = 0
    gathered_bytes: float = 0.0
    buckets: int = 0
    count: float = 1.0
    order: Literal["issue", "priority"] = "issue"
    begins: list[int] = field(default_factory=list)
    repeats: tuple[int, ...] = ()
    conditions: Conditions | None = None
    crossings: dict[int, LinkUse] = field(default_factory=dict)
    beside: tuple[CostedGraph, ...] = ()
    mixed: Mixed | None = None
    work: list[Work | None] = field(default_factory=list)
    _noted: dict[tuple[int, float], tuple[Term, ...]] = field(default_factory=dict, repr=False)

    @property
    def iterations(self) -> float:
        """Training iterations that the round stands for in the period."""
        return self.count * self.graph.iterations

    def note(self, terms: tuple[Term, ...], size: float) -> None:
        """Remember where a cost of some size came from."""
        self._noted[id(terms), size] = terms  # kept, so that no other has its id

    def renote(self, noted: Iterable[tuple[float, Term]]) -> None:
        """Let costs rest on other numbers than noted: sizes of what cost them, and the numbers."""
        pairs = [(size, (term,)) for size, term in noted]
        self._noted.clear()
        for size, terms in pairs:
            self.note(terms, size)

    @property
    def noted(self) -> Iterator[tuple[float, Term]]:
        """Every number that a cost rests on, with the size of what cost it."""
        return ((size, term) for (_, size), terms in self._noted.items() for term in terms)


@dataclass(frozen=True)
class Mixed:
    """The same plan on the other types of GPU of a cluster with several.

    Parameters
    ----------
    plans : one for each other type
    kinds : the type of each rank; 0 is that of the plan itself, the slowest
    spent_s : seconds of their tasks where these were changed, one list a plan
    """

    plans: tuple[CostedGraph, ...]
    kinds: tuple[int, ...]
    spent_s: tuple[list[float], ...] = ()

    def changed(self, change: Callable[[float, TaskCost], float]) -> Mixed:
        """Return the same with every task's duration changed."""
        return replace(
            self,
            spent_s=tuple(
                [
                    change(float(task.duration_s), charge)
                    for task, charge in zip(plan.graph.tasks, plan.charges, strict=True)
                ]
                for plan in self.plans
            ),
        )


def what_of(term: Term) -> str:
    """Return what a term is of, whatever the size."""
    return term.term.partition(" at ")[0]


def terms_of(plans: Iterable[CostedGraph]) -> list[Term]:
    """Return where the costs of all rounds came from: once a term, at the largest size.

    A term is named "what at size" where its value depends on the size; a use outside its range
    wins over one inside.
    """
    found: dict[str, tuple[bool, float, Term]] = {}
    for plan in plans:
        for size, term in plan.noted:
            what = what_of(term)
            known = found.get(what)
            if known is None or (term.extrapolated, size) > known[:2]:
                found[what] = (term.extrapolated, size, term)
    return [term for _, _, term in found.values()]
