"""A session: a catalog that keeps what it has read, for questions of many predictions."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from perfsim.data.catalog import FILE_SUFFIXES, Catalog, Made
from perfsim.data.files import files_changed, noting, stamp
from perfsim.methods.base import Job, MethodContext
from perfsim.schedule.costs import Costs, retimed
from perfsim.schedule.plan import CostedGraph

__all__ = ["JobCache", "RecordedCosts", "Session", "default_session", "jobs_of", "uncollected"]

MAX_KEPT_TASKS = 40_000
MAX_KEPT_ROUNDS = 64
"""So many jobs are kept, and so many tasks of plans, some 60 MB; and of so many rounds. The oldest
make room."""


class RecordedCosts:
    """What is asked of costs while jobs are made, and what they answer.

    Parameters
    ----------
    world : what the method is told
    all_reduce_s : what the fusion policy is told of an all-reduce of a size

    Examples
    --------
    >>> asked = RecordedCosts(MethodContext(2, kernel_s=lambda kernel: 1e-3))
    >>> asked.world.kernel_s("a kernel"), asked.answers
    (0.001, {('kernel', 'a kernel'): 0.001})
    """

    def __init__(
        self, world: MethodContext, all_reduce_s: Callable[[float], float] = float
    ) -> None:
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
    plan: CostedGraph
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
    """What was kept last by its key: so many keys, as far as their sizes sum to ``MAX_KEPT_TASKS``."""

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
        while (self._size > MAX_KEPT_TASKS or len(self._found) > MAX_KEPT_ROUNDS) and len(
            self._found
        ) > 1:
            _, dropped = self._found.pop(next(iter(self._found)))
            self._size -= dropped


class JobCache:
    """Jobs by all that they depend on besides costs, and what costs answered when they were made.

    Examples
    --------
    >>> kept, slow = JobCache(), lambda kernel: 2e-3
    >>> def made(world):
    ...     asked = RecordedCosts(world)
    ...     return kept.of(("bsp", 8), None, asked, lambda: [asked.world.kernel_s("a kernel")])
    >>> made(MethodContext(8)) is made(MethodContext(8)), made(MethodContext(8, kernel_s=slow))
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
        make: Callable[[], CostedGraph],
    ) -> CostedGraph:
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
        self,
        key: tuple[Hashable, ...],
        alive: Any,
        asked: RecordedCosts,
        make: Callable[[], list[Job]],
    ) -> list[Job]:
        """Return the jobs of a key; ``alive`` is what the key names by identity."""
        found = self._kept.get(key)
        if found is not None and asked.alike(found.answers):
            return found.jobs
        asked.answers = {}
        jobs = make()
        self._kept.keep(key, _Kept(jobs, asked.answers, alive), 1 + len(jobs))
        return jobs


P = ParamSpec("P")


def uncollected(work: Callable[P, T]) -> Callable[P, T]:
    """Return a function that does the same with garbage collection paused, if it was on.

    A prediction makes tens of thousands of objects and no cycles: Python would look through them
    dozens of times, and now and then through all that profiles and networks hold, for nothing.

    Examples
    --------
    >>> uncollected(gc.isenabled)(), gc.isenabled()
    (False, True)
    """

    @wraps(work)
    def paused(*args: P.args, **named: P.kwargs) -> T:
        if not gc.isenabled():
            return work(*args, **named)
        gc.disable()
        try:
            return work(*args, **named)
        finally:
            gc.enable()

    return paused


MAX_KEPT = 512
"""So many things are kept (a cluster with its costs is the largest); then all are dropped."""


class Session(Catalog):
    """A catalog that reads each file once, and keeps profiles, devices, networks and clusters.

    Predictions with it are those of a plain catalog. Files that change meanwhile are not seen,
    unless `outdated` is asked.

    Examples
    --------
    >>> from perfsim.prediction import predict
    >>> from perfsim.scenario import make_scenario
    >>> asked, session = make_scenario({"model": "resnet50", "gpus": 16}), Session()
    >>> predict(asked, session).iteration_s == predict(asked).iteration_s
    True
    """

    def __init__(self, profiles: str | Path | None = None) -> None:
        super().__init__(profiles)
        self._kept: dict[tuple[Hashable, ...], Any] = {}
        self._files: dict[str, dict[str, Path]] = {}
        self.jobs = JobCache()
        looked = [Path("profiles"), *(one / kind for one in self.folders for kind in FILE_SUFFIXES)]
        self._read = {str(path): stamp(str(path)) for path in looked}

    def once(self, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
        """Return what ``make`` made the first time that ``key`` was asked for."""
        if key in self._kept:
            kept: Made = self._kept[key]
            return kept
        with noting(self._read):
            made = make()
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[key] = made
        return made

    def files(self, kind: str) -> dict[str, Path]:
        """Return file stem -> path for one kind, as found the first time."""
        if kind not in self._files:
            self._files[kind] = super().files(kind)
        return self._files[kind]

    def outdated(self) -> bool:
        """Tell whether a file that was read, or what a folder holds, is another now."""
        return files_changed(self._read)


_STANDING: dict[tuple[str, str], Session] = {}


def default_session() -> Session:
    """Return the session of this process, a new one where files have changed.

    It is what ``predict()`` takes where it is given no catalog. Another folder or ``PERFSIM_PATH``
    has a session of its own.

    Examples
    --------
    >>> default_session() is default_session()
    True
    """
    here = os.getcwd() if os.path.exists(".") else "", os.environ.get("PERFSIM_PATH", "")
    found = _STANDING.get(here)
    if found is None or found.outdated():
        _STANDING.clear()
        found = _STANDING[here] = Session()
    return found


def jobs_of(catalog: Catalog) -> JobCache | None:
    """Return the jobs that a session keeps for other scenarios; a plain catalog keeps none."""
    return catalog.jobs if isinstance(catalog, Session) else None
