"""What-ifs: an iteration with one of its causes twice as fast, twice as slow, or uncertain."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import fsum, hypot, log, log2, sqrt
from typing import NamedTuple, TypeVar

from perfsim.compute.kernel import Kernel
from perfsim.conditions.ranks import drawn_means
from perfsim.quantity import Grade
from perfsim.schedule.costed_graph import CostedGraph, TaskCost
from perfsim.schedule.run import mean_s, run, varies_by_chance
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order

__all__ = [
    "BOTTLENECKS",
    "ChangedTimes",
    "Stretched",
    "bottleneck",
    "changed_durations",
    "changed_to",
    "faster",
    "halved",
    "has_kernels",
    "kernels_of",
    "moves",
    "seconds_by_grade",
    "spread_interval",
    "steady_s",
]

BOTTLENECKS = ("compute", "host", "bandwidth", "latency", "compression", "second_order")
"""The causes that can hold an iteration back."""


_PART_OF_CAUSE = {
    "compute": "compute",
    "network": "network",
    "compression": "kernels",
    "second_order": "kernels",
}
"""By cause of a task, the part of the uncertainty that it belongs to."""


CostChange = Mapping[str, Callable[[float, TaskCost], float]]
"""By cause, what makes another duration of a task's duration [s] and what that is made of."""


def steady_s(rounds: Sequence[CostedGraph], change: CostChange | None = None) -> float:
    """Return the mean iteration of all rounds [s], with the tasks' durations changed if asked."""
    timelines = [
        run(costed, brief=True) if change is None else _run_changed(costed, change)
        for costed in rounds
    ]
    return mean_s(rounds, timelines)


Ask = Callable[[CostedGraph], tuple[CostedGraph, list[float]]]
"""Makes of a round what to run, and the durations of its tasks [s]."""


K = TypeVar("K", bound=Hashable)


class Stretched(NamedTuple):
    """The key of a change that makes all tasks of a cause so many times as long."""

    cause: str
    times: float


class ChangedTimes:
    """The mean iteration of some rounds with changes; each change is run once.

    Where all that takes time has one of two causes, one of them twice as long is the other half as
    long in other units of time: of `Stretched` causes that are each other's mirror image, one is
    run.

    Where ranks vary by chance, all changes meet the same few draws, and each is scaled by what
    these give without a change. Changes that are asked for together cost little more than one.

    Parameters
    ----------
    rounds : of a method's period
    iteration_s : the mean iteration without a change [s]
    """

    def __init__(self, rounds: Sequence[CostedGraph], iteration_s: float) -> None:
        self.rounds, self.iteration_s = rounds, iteration_s
        self._times: dict[Hashable, float] = {}

    def ask(self, changes: Mapping[K, Ask]) -> dict[K, float]:
        """Return the mean iteration with each change, by its key [s]."""
        new: dict[Hashable, Ask] = {}
        for key, change in changes.items():
            alike = {key, self._mirrored(key)}
            if alike.isdisjoint(self._times) and alike.isdisjoint(new):
                new[key] = change
        if new and any(varies_by_chance(costed) for costed in self.rounds):
            self._times.update(zip(new, self._drawn_s(list(new.values())), strict=True))
        elif new:
            self._times.update((key, self._run_s(change)) for key, change in new.items())
        return {key: self._known_s(key) for key in changes}

    def _known_s(self, key: Hashable) -> float:
        """Return the mean iteration with a change that was run, or whose mirror image was [s]."""
        if isinstance(key, Stretched) and key not in self._times:
            self._times[key] = key.times * self._times[self._mirrored(key)]
        return self._times[key]

    def _mirrored(self, key: Hashable) -> Hashable:
        """Return the key of the change that gives the same in other units of time, else ``key``."""
        if isinstance(key, Stretched) and key.cause in self._pair:
            return Stretched(self._pair[key.cause], 1.0 / key.times)
        return key

    @cached_property
    def _pair(self) -> dict[str, str]:
        """Where all that takes time has one of two causes: the other cause, by each."""
        causes = {
            cause
            for costed in _on_all_types(self.rounds)
            for (cause, _), seconds in costed.seconds_by_charge.items()
            if seconds
        }
        return dict(zip(causes, reversed([*causes]), strict=True)) if len(causes) == 2 else {}

    def _run_s(self, change: Ask) -> float:
        timelines = [run(*change(costed), brief=True) for costed in self.rounds]
        return mean_s(self.rounds, timelines)

    def _drawn_s(self, changes: Sequence[Ask]) -> list[float]:
        total_s = [0.0] * (1 + len(changes))
        for costed in self.rounds:
            lists = [costed.task_s, *(change(costed)[1] for change in changes)]
            for number, mean in enumerate(drawn_means(costed, lists)):
                total_s[number] += costed.count * mean
        return [self.iteration_s * changed / total_s[0] for changed in total_s[1:]]


def changed_durations(costed: CostedGraph, change: CostChange) -> list[float]:
    """Return the durations of a round's tasks, each as ``change`` makes it [s]."""
    durations_s, charges = [*costed.task_s], costed.charges
    for cause, changed in change.items():
        for index in costed.by_cause.get(cause, ()):
            durations_s[index] = changed(durations_s[index], charges[index])
    return durations_s


def _run_changed(costed: CostedGraph, change: CostChange) -> Timeline:
    return run(*changed_to(costed, change), brief=True)


def changed_to(costed: CostedGraph, change: CostChange) -> tuple[CostedGraph, list[float]]:
    """Return a round to run with changed durations [s], and these."""
    if costed.mixed is not None:
        spent_s = tuple(changed_durations(other, change) for other in costed.mixed.rounds)
        costed = replace(costed, mixed=replace(costed.mixed, spent_s=spent_s))
    durations_s = changed_durations(costed, change)
    if costed.graph.contended:
        # What a message takes before it needs the shared link changes as its duration does.
        tasks = [
            task._replace(latency_s=change[charge.cause](task.latency_s, charge))
            if task.shares and charge.cause in change
            else task
            for task, charge in zip(costed.graph.tasks, costed.charges, strict=True)
        ]
        costed = replace(costed, graph=replace(costed.graph, tasks=tasks))
    return costed, durations_s


def halved(cause: str) -> CostChange:
    """Return the change that makes one cause twice as fast.

    Bandwidth halves what a collective spends on bytes, latency what it spends on hops. Computation
    takes the later of the GPU (compute) and the host's launches (host).
    """
    return faster(2.0, cause)


def faster(factor: float, *causes: str) -> CostChange:
    """Return the change that makes some causes ``factor`` times as fast (see `halved`)."""
    saved = 1.0 - 1.0 / factor

    def network(duration_s: float, charge: TaskCost) -> float:
        latency_s = charge.latency_s if "latency" in causes else 0.0
        bytes_s = duration_s - charge.latency_s if "bandwidth" in causes else 0.0
        return duration_s - (latency_s + bytes_s) * saved

    def compute(duration_s: float, charge: TaskCost) -> float:
        if not charge.host:
            return shorter(duration_s, charge) if "compute" in causes else duration_s
        device = charge.device / factor if "compute" in causes else charge.device
        return duration_s * max(device, charge.host / factor if "host" in causes else charge.host)

    def shorter(duration_s: float, _: TaskCost) -> float:
        return duration_s - duration_s * saved

    by_part = {"latency": network, "bandwidth": network, "compute": compute, "host": compute}
    charged_to = {"latency": "network", "bandwidth": "network", "host": "compute"}
    return {charged_to.get(cause, cause): by_part.get(cause, shorter) for cause in causes}


def bottleneck(times: ChangedTimes) -> tuple[str, dict[str, float]]:
    """Return the cause that holds the iteration back most, and each cause's worth.

    The worth of a cause is the share of the iteration that would be saved if it were twice as
    fast; the bottleneck is the cause worth most.
    """
    worth = dict.fromkeys(BOTTLENECKS, 0.0)
    for (cause, _), seconds in times.ask(_halvings(times.rounds)).items():
        worth[cause] = 1.0 - seconds / times.iteration_s
    return max(worth, key=lambda cause: worth[cause]), worth


def _halvings(rounds: Sequence[CostedGraph]) -> dict[tuple[str, float | str], Ask]:
    """Return the change that makes each cause twice as fast that anything is charged to.

    A cause whose tasks take half as long then has a key of `moves`, which may have asked for it.
    """
    causes = [cause for cause in BOTTLENECKS if _charged(rounds, cause)]
    bound = any(costed.host_share > _HALF for costed in _on_all_types(rounds))
    whole = {"compression", "second_order"} if bound else _PART_OF_CAUSE.keys()
    return {
        Stretched(cause, 0.5) if cause in whole else (cause, "faster"): partial(
            changed_to, change=halved(cause)
        )
        for cause in causes
    }


_HALF = 0.5
"""Share of a pass beyond which launches bind once the GPU, or they, are twice as fast."""


def _charged(rounds: Sequence[CostedGraph], cause: str) -> bool:
    """Tell whether any task is charged to a cause: else halving it changes nothing."""
    if cause == "host":
        return any(costed.host_share > _HALF for costed in rounds)
    charged_to = "network" if cause in ("bandwidth", "latency") else cause
    return any(charged_to in costed.by_cause for costed in rounds)


def spread_interval(
    rounds: Sequence[CostedGraph], iteration_s: float, compute_spread: float | None
) -> tuple[float, float]:
    """Return the interval that the spreads of costs give [s], where there is no record of errors.

    Computation, network and kernels are moved by their spread one at a time, all tasks of a cause
    together. The deviations add in quadrature, each side by itself.
    """
    below = above = 0.0
    causes = [
        cause
        for cause in _PART_OF_CAUSE
        if any(
            charge.cause == cause and _spread(charge, compute_spread)
            for costed in rounds
            for charge in costed.charges
        )
    ]
    moved = {
        (cause, sign): partial(changed_to, change=_moved(cause, sign, compute_spread))
        for cause in causes
        for sign in (-1.0, 1.0)
    }
    times = ChangedTimes(rounds, iteration_s).ask(moved)
    for cause in causes:
        ends = times[cause, -1.0], times[cause, 1.0]
        below = hypot(below, max(0.0, iteration_s - min(ends)))
        above = hypot(above, max(0.0, max(ends) - iteration_s))
    return max(0.0, iteration_s - below), iteration_s + above


def moves(
    times: ChangedTimes, compute: Grade, eras: Sequence[Mapping[Kernel, float]] = ()
) -> dict[str, tuple[float, float]]:
    """Return how far an iteration moves with the errors of its causes (see ``Moves``).

    All tasks of a cause are made half and twice as long. What the iteration loses or gains, in
    powers of two, is divided among the grades of evidence in proportion to time, as variances are.
    Other software eras move it to the faster and to the slower side.

    Parameters
    ----------
    compute : the grade of evidence for computation
    eras : for each era how much longer kernels take in it [s]; of several types of GPU, on the
        slowest
    """
    rounds, iteration_s = times.rounds, times.iteration_s
    by_cause = {cause: seconds_by_grade(rounds, cause, compute) for cause in _PART_OF_CAUSE}
    total_s = {
        cause: seconds for cause in by_cause if (seconds := sum_in_order(by_cause[cause].values()))
    }
    stretched: dict[Hashable, Ask] = {
        Stretched(cause, factor): partial(changed_to, change=_stretched(cause, factor))
        for factor in (2.0, 0.5)
        for cause in total_s
    }
    in_eras: dict[Hashable, Ask] = {
        ("era", at): partial(_in_era, longer_s=longer_s) for at, longer_s in enumerate(eras)
    }
    changed = times.ask(stretched | in_eras)
    found: dict[str, tuple[float, float]] = {}
    for cause, whole_s in total_s.items():
        name = _PART_OF_CAUSE[cause]
        saved = 1.0 - changed[Stretched(cause, 0.5)] / iteration_s
        longer = changed[Stretched(cause, 2.0)] / iteration_s
        for grade, part_s in by_cause[cause].items():
            share = sqrt(part_s / whole_s)
            faster, slower = found.get(f"{name}_{grade}", (0.0, 0.0))
            found[f"{name}_{grade}"] = (
                hypot(faster, share * max(0.0, -log2(1.0 - saved))),
                hypot(slower, share * max(0.0, log2(longer))),
            )
    times_s = [iteration_s, *(changed[key] for key in in_eras)]
    era = log(iteration_s / min(times_s)), log(max(times_s) / iteration_s)
    return found | ({"era": era} if any(era) else {})


def _on_all_types(rounds: Sequence[CostedGraph]) -> list[CostedGraph]:
    """Return some rounds, and the same on the other types of GPU."""
    return [*rounds, *(other for one in rounds if one.mixed for other in one.mixed.rounds)]


def has_kernels(rounds: Sequence[CostedGraph]) -> bool:
    """Tell whether methods run kernels in some rounds, on any type of GPU."""
    return any(work and work.kernels for costed in _on_all_types(rounds) for work in costed.work)


def kernels_of(rounds: Sequence[CostedGraph]) -> set[Kernel]:
    """Return the kernels that methods run in some rounds, on all types of GPU."""
    # Most tasks do the work of others, and kernels are slow to hash.
    works = {
        work for costed in _on_all_types(rounds) for work in costed.work if work and work.kernels
    }
    return {kernel for work in works for kernel, _ in work.kernels}


def _in_era(
    costed: CostedGraph, longer_s: Mapping[Kernel, float]
) -> tuple[CostedGraph, list[float]]:
    """Return a round to run with another era's kernels, and its durations [s]."""
    return _with_other_types(costed, longer_s), _era_s(costed, longer_s)


def _with_other_types(costed: CostedGraph, longer_s: Mapping[Kernel, float]) -> CostedGraph:
    """Return a round whose other types of GPU, if any, run the other era's kernels too."""
    if costed.mixed is None:
        return costed
    spent_s = tuple(_era_s(other, longer_s) for other in costed.mixed.rounds)
    return replace(costed, mixed=replace(costed.mixed, spent_s=spent_s))


def _era_s(costed: CostedGraph, longer_s: Mapping[Kernel, float]) -> list[float]:
    """Return how long each task takes where kernels take so much longer in another era [s]."""
    durations_s = [*costed.task_s]
    for index, work in enumerate(costed.work):
        if work and work.kernels:
            more_s = fsum(count * longer_s.get(kernel, 0.0) for kernel, count in work.kernels)
            durations_s[index] = max(0.0, durations_s[index] + more_s)
    return durations_s


def _stretched(cause: str, factor: float) -> CostChange:
    return {cause: lambda duration_s, _: duration_s * factor}


def seconds_by_grade(
    rounds: Sequence[CostedGraph], cause: str, compute: Grade = "measured"
) -> dict[str, float]:
    """Return how long the tasks of a cause take, by grade of evidence [s].

    Parameters
    ----------
    compute : the grade of evidence for computation
    """
    found: dict[str, float] = {}
    for costed in rounds:
        for (charged_to, known), seconds in costed.seconds_by_charge.items():
            if charged_to == cause:
                grade = compute if cause == "compute" else known
                found[grade] = found.get(grade, 0.0) + costed.count * seconds
    return found


def _moved(cause: str, sign: float, compute_spread: float | None) -> CostChange:
    def change(duration_s: float, charge: TaskCost) -> float:
        return duration_s * max(0.0, 1.0 + sign * _spread(charge, compute_spread))

    return {cause: change}


def _spread(charge: TaskCost, compute_spread: float | None) -> float:
    spread = compute_spread if charge.cause == "compute" else charge.spread
    return spread or 0.0
