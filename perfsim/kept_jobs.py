"""Jobs, and the order of their tasks, kept for other scenarios where they are the same.

Jobs are those of a model, method and ranks as long as what they asked of costs has the same
answers; their plan is then only timed anew, at what things cost here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from perfsim.charging import retimed
from perfsim.costs import Costs
from perfsim.plan import Plan
from perfsim.stage import Job
from perfsim.world import World

__all__ = ["Asked", "KeptJobs"]

MOST = 40_000
MOST_KEYS = 64
"""So many jobs are kept, and so many tasks of plans, some 60 MB; and of so many rounds. The oldest
make room."""


class Asked:
    """What is asked of costs while jobs are made, and what they answer.

    Parameters
    ----------
    world : what the method is told
    all_reduce_s : what the fusion policy is told of an all-reduce of a size

    Examples
    --------
    >>> asked = Asked(World(2, kernel_s=lambda kernel: 1e-3))
    >>> asked.world.kernel_s("a kernel"), asked.answers
    (0.001, {('kernel', 'a kernel'): 0.001})
    """

    def __init__(self, world: World, all_reduce_s: Callable[[float], float] = float) -> None:
        self._ask: dict[str, Callable[..., float]] = {
            "collective": world.collective_s,
            "kernel": world.kernel_s,
            "all_reduce": all_reduce_s,
        }
        self.answers: dict[tuple[Any, ...], float] = {}
        self.all_reduce_s = partial(self._told, "all_reduce")
        self.world = replace(
            world,
            collective_s=partial(self._told, "collective"),
            kernel_s=partial(self._told, "kernel"),
        )

    def _told(self, what: str, *about: Any) -> float:
        question = (what, *about)
        answer = self.answers.get(question)
        if answer is None:
            answer = self.answers[question] = self._ask[what](*about)
        return answer

    def alike(self, answers: dict[tuple[Any, ...], float]) -> bool:
        """Tell whether the same questions have the same answers here."""
        return all(self._ask[what](*about) == told for (what, *about), told in answers.items())


class _KeptPlan(NamedTuple):
    plan: Plan
    jobs: list[list[Job]]
    alive: Any

    def of(self, jobs: list[list[Job]]) -> bool:
        """Tell whether it is of these very jobs."""
        pairs = zip(jobs, self.jobs, strict=True)
        return all(one is kept or not (one or kept) for one, kept in pairs)


class _Kept(NamedTuple):
    jobs: list[Job]
    answers: dict[tuple[Any, ...], float]
    alive: Any


T = TypeVar("T")


class _Latest(Generic[T]):
    """What was kept last by its key: so many keys, as far as their sizes sum to ``MOST``."""

    def __init__(self) -> None:
        self._found: dict[tuple[Hashable, ...], tuple[T, int]] = {}
        self._size = 0

    def get(self, key: tuple[Hashable, ...]) -> T | None:
        """Return what is kept of a key, if anything."""
        found = self._found.get(key)
        return found[0] if found else None

    def keep(self, key: tuple[Hashable, ...], value: T, size: int) -> None:
        """Keep a value, and drop the oldest where there is too much."""
        _, before = self._found.pop(key, (None, 0))
        self._found[key] = (value, size)
        self._size += size - before
        while (self._size > MOST or len(self._found) > MOST_KEYS) and len(self._found) > 1:
            _, dropped = self._found.pop(next(iter(self._found)))
            self._size -= dropped


class KeptJobs:
    """Jobs by all that they depend on besides costs, and what costs answered when they were made.

    Examples
    --------
    >>> kept, slow = KeptJobs(), lambda kernel: 2e-3
    >>> def made(world):
    ...     asked = Asked(world)
    ...     return kept.of(("bsp", 8), None, asked, lambda: [asked.world.kernel_s("a kernel")])
    >>> made(World(8)) is made(World(8)), made(World(8, kernel_s=slow))
    (True, [0.002])
    """

    def __init__(self) -> None:
        self._kept = _Latest[_Kept]()
        self._plans = _Latest[_KeptPlan]()

    def plan(
        self,
        key: tuple[Hashable, ...],
        alive: Any,
        jobs: list[list[Job]],
        costs: Costs,
        make: Callable[[], Plan],
    ) -> Plan:
        """Return the plan of some jobs: one that is kept at what things cost here, or a new one.

        ``key`` has all that the order of its tasks depends on, and what passes and updates take.
        """
        found = self._plans.get(key)
        if found is not None and found.of(jobs):
            return retimed(found.plan, costs)
        plan = make()
        self._plans.keep(key, _KeptPlan(plan, jobs, alive), len(plan.graph.tasks))
        return plan

    def of(
        self, key: tuple[Hashable, ...], alive: Any, asked: Asked, make: Callable[[], list[Job]]
    ) -> list[Job]:
        """Return the jobs of a key; ``alive`` is what the key names by identity."""
        found = self._kept.get(key)
        if found is not None and asked.alike(found.answers):
            return found.jobs
        asked.answers = {}
        jobs = make()
        self._kept.keep(key, _Kept(jobs, asked.answers, alive), 1 + len(jobs))
        return jobs
