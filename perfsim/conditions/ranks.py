"""Stragglers and jitter: run a round on ranks that differ.

Where ranks differ in the same way all the time, the slowest one is run alone: the others wait for
it. Where chance decides who is slow (jitter), all ranks are run, over many draws.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from math import floor, sqrt
from typing import TYPE_CHECKING, NamedTuple

from perfsim.conditions.spec import Conditions
from perfsim.errors import RequestError
from perfsim.methods.base import LOCAL_ITERATION, Job, Method, Round, Send
from perfsim.schedule.costed_graph import CostedGraph, TaskCost
from perfsim.simulate.array import NO_FACTOR, meets_all, simulate_draws
from perfsim.simulate.task import Task
from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MAX_APART",
    "Joined",
    "check_issue_order",
    "drawn",
    "exchanges",
    "joined_rounds",
    "merge_rounds",
    "over_draws",
    "rounds_under",
    "sample",
    "shown_draws",
    "slowed",
    "under",
]

MAX_APART = 256
"""Iterations before an exchange that are run one by one with it; those without any message count
once. Where there are more between two exchanges, the others count at their mean by themselves: how
long ranks wait at an exchange grows with the root of their number, so that little is missing."""

_NEGLIGIBLE = 1e-9


class Joined(NamedTuple):
    """A round, and how many iterations in a row each of its own is."""

    round: Round
    repeats: tuple[int, ...]


def exchanges(jobs: Sequence[Job], nodes: int) -> bool:
    """Tell whether ranks of different nodes wait for each other in these jobs."""
    return any(
        isinstance(stage, Send) and (stage.group != "node" or nodes == 1)
        for job in jobs
        for stage in job.stages
    )


def merge_rounds(rounds: Sequence[Round], exchanging: Callable[[int], bool]) -> list[Joined]:
    """Put rounds that exchange nothing into the one that exchanges after them.

    Where their number is not a multiple of that of exchanges, some exchanges come after fewer and
    some after more, so that the mean is right. Where there are more than `MAX_APART` for each
    exchange, and ranks of a node exchange in them, the others stay a round of their own.

    Examples
    --------
    >>> rounds = [Round((LOCAL_ITERATION,), 3), Round((0,), 1)]
    >>> merge_rounds(rounds, lambda iteration: iteration != LOCAL_ITERATION)[0]
    Joined(round=Round(iterations=(-1, 0), count=1.0), repeats=(3, 1))
    """
    joined: list[Joined] = []
    apart: Round | None = None
    for one in rounds:
        if not any(exchanging(iteration) for iteration in one.iterations):
            apart = one
            continue
        joined += [_plain(one)] if apart is None else _after(apart, one)
        apart = None
    return joined + ([] if apart is None else [_plain(apart)])


def _plain(one: Round) -> Joined:
    return Joined(one, (1,) * len(one.iterations))


def _after(apart: Round, one: Round) -> list[Joined]:
    each = apart.count * len(apart.iterations) / one.count
    few = floor(each + _NEGLIGIBLE)
    shares = {few: 1.0 - (each - few), few + 1: each - few}
    joined, left = [], 0.0
    for count, share in shares.items():
        if share <= _NEGLIGIBLE:
            continue
        before, repeats = _iterations(apart, count)
        left += one.count * share * (count - sum(repeats))
        whole = Round((*before, *one.iterations), one.count * share)
        joined.append(Joined(whole, (*repeats, *(1,) * len(one.iterations))))
    if left:
        joined.insert(0, _plain(Round(apart.iterations, left / len(apart.iterations))))
    return joined


def _iterations(apart: Round, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the last of ``count`` iterations before an exchange, and how often each is run."""
    if count == 0:
        return (), ()
    if apart.iterations == (LOCAL_ITERATION,):
        return (LOCAL_ITERATION,), (count,)
    kinds, followed = apart.iterations, min(count, MAX_APART)
    return tuple(kinds[at % len(kinds)] for at in range(followed)), (1,) * followed


def rounds_under(
    conditions: Conditions,
    method: Method,
    build: Callable[[Round], CostedGraph],
    exchanging: Callable[[int], bool],
) -> list[CostedGraph]:
    """Build a method's rounds under conditions.

    Parameters
    ----------
    build : builds one round
    exchanging : whether ranks wait for each other in an iteration of this number

    Raises
    ------
    RequestError
        If the ranks vary by chance and cannot be simulated one by one.
    """
    if not conditions.varies:
        return [under(build(one), conditions) for one in method.rounds()]
    rounds = joined_rounds(conditions, method, build, exchanging)
    check_issue_order(rounds, method)
    return rounds


def joined_rounds(
    conditions: Conditions | None,
    method: Method,
    build: Callable[[Round], CostedGraph],
    exchanging: Callable[[int], bool],
) -> list[CostedGraph]:
    """Build a method's rounds where it counts at which moment an iteration exchanges.

    Iterations without exchange come in one graph with the one after them that exchanges. The
    parameters are those of `rounds_under`.
    """
    return [
        under(build(one.round), conditions, one.repeats)
        for one in merge_rounds(method.rounds(), exchanging)
    ]


def under(
    costed: CostedGraph, conditions: Conditions | None, repeats: tuple[int, ...] = ()
) -> CostedGraph:
    """Return a round under conditions; each of its iterations may be several in a row."""
    if all(count == 1 for count in repeats):
        return replace(costed, conditions=conditions)
    tasks = list(costed.graph.tasks)
    ends = [*costed.begins[1:], len(tasks)]
    for begin, end, count in zip(costed.begins, ends, repeats, strict=True):
        for index in range(begin, end):
            tasks[index] = tasks[index]._replace(duration_s=tasks[index].duration_s * count)
    graph = replace(costed.graph, tasks=tasks, iterations=sum(repeats))
    return replace(costed, graph=graph, conditions=conditions, repeats=repeats)


def check_issue_order(rounds: Sequence[CostedGraph], method: Method) -> None:
    """Check that streams take their tasks in issue order, as draws over ranks need.

    Raises
    ------
    RequestError
        If what goes first is decided while it runs.
    """
    name = type(method).__module__.rpartition(".")[2]
    if any(costed.order == "priority" for costed in rounds):
        raise RequestError(
            "method",
            f"{name} sends by priority, and `jitter` follows messages in the order in"
            " which they are issued only.",
        )
    if any(costed.graph.contended for costed in rounds):
        raise RequestError(
            "method",
            f"{name} sends several messages at once over a link that they share, and"
            " `jitter` follows one after the other only.",
        )


_ON_GPU = ("compute", "compression", "second_order")
"""Causes of tasks that run on a GPU: a slow one takes longer for all of them."""

OTHER_RANK = "rank "
"""Prefix of the streams of ranks other than the one shown; these run at normal speed."""

_MAX_DRAWS = 128
_MAX_VALUES = 2**14
"""Draws x ranks: 128 KiB an array."""

_MAX_KEPT_FACTORS = 2**21
"""Factors that are drawn once for all runs of a prediction: 16 MiB."""

_COUNTED = 256
"""Periods counted, over all draws, where all ranks wait for each other in each period; each draw
has 4 to 16 of them."""

_SPREADING = 32
"""Periods counted, and as many before them, where a delay spreads from neighbour to neighbour."""

_SHOWN = 16
"""Draws whose time is divided among its causes; fewer of large graphs."""

_SHOWN_TASKS = 4000
"""Tasks of a period in all of these."""


def slowed(costed: CostedGraph, durations: Sequence[float] | None = None) -> list[float]:
    """Return the durations of tasks on the slowest rank [s].

    It is run alone, which is exact: its tasks end last, so that no collective waits for another
    rank. A rank that waits for some others only is as late as the slowest in the long run.
    """
    spent = _seconds(costed, durations)
    factor = costed.conditions.slowest if costed.conditions else 1.0
    if factor == 1.0:
        return spent
    return [
        seconds * factor if _own(task, charge) else seconds
        for seconds, task, charge in zip(spent, costed.graph.tasks, costed.charges, strict=True)
    ]


def drawn(
    costed: CostedGraph, durations: Sequence[float] | None = None, *, brief: bool = False
) -> Timeline:
    """Run a round whose ranks vary by chance; the timeline has an axis of draws.

    ``durations`` [s] are taken in place of the tasks' own.
    """
    conditions = costed.conditions
    assert conditions is not None
    draws, warm_up, counted = sample(costed)
    repeats = costed.repeats or (1,) * len(costed.begins)
    periods = warm_up + counted + costed.graph.depth + 1
    drawn_once = periods * len(repeats) * draws * conditions.ranks <= _MAX_KEPT_FACTORS
    factors = (
        iter(_kept_factors(conditions, draws, repeats, periods))
        if drawn_once
        else _factors(conditions, draws, repeats)
    )
    which = [
        _factor_of(task, bisect_right(costed.begins, index) - 1, len(repeats), conditions)
        if _own(task, charge)
        else NO_FACTOR
        for index, (task, charge) in enumerate(zip(costed.graph.tasks, costed.charges, strict=True))
    ]
    return simulate_draws(
        costed.graph,
        _seconds(costed, durations),
        which,
        lambda period: next(factors),
        warm_up=warm_up,
        counted=counted,
        brief=brief,
    )


_SAMPLES = ("forward", "backward", "other")
"""Kinds of tasks that work on samples, or wait for other stages that do (the bubble of a pipeline):
those that a measured distribution is of."""


def _factor_of(task: Task, iteration: int, iterations: int, conditions: Conditions) -> int:
    """Return which of a period's factors (see `_factors`) holds for what a GPU runs itself."""
    if conditions.measured is None or task.kind in _SAMPLES:
        return iteration
    return iterations


def _factors(
    conditions: Conditions, draws: int, repeats: tuple[int, ...]
) -> Iterator[list[NDArray[np.float64]]]:
    """Yield, period by period, how many times as long each iteration's computation takes.

    Of a measured distribution, there is one more: of what takes as long in all of them.
    """
    import numpy as np

    slower = conditions.factors()
    chance = np.random.default_rng(conditions.seed)

    def drawn_once() -> NDArray[np.float64]:
        if conditions.each == 1:
            return chance.standard_normal((draws, conditions.ranks))
        values = chance.standard_normal((draws, conditions.ranks, conditions.each))
        slowest: NDArray[np.float64] = values.max(axis=-1)
        return slowest

    def factors(count: int) -> NDArray[np.float64]:
        """Draw how many times as long the mean of so many independent iterations takes."""
        if conditions.measured is None:
            # It varies by the square root less.
            return np.maximum(0.0, 1.0 + conditions.jitter / sqrt(count) * drawn_once())
        shape = draws, conditions.ranks // conditions.alike
        values = conditions.measured.draw(chance, shape, count)
        return values.repeat(conditions.alike, axis=-1)

    always = [] if conditions.measured is None else [slower * np.ones((draws, 1))]
    while True:
        yield [*(slower * factors(count) for count in repeats), *always]


@lru_cache(maxsize=1)  # random numbers of a seed: they cannot go stale
def _kept_factors(
    conditions: Conditions, draws: int, repeats: tuple[int, ...], periods: int
) -> list[list[NDArray[np.float64]]]:
    """Return the factors of all runs of a prediction: its what-ifs meet the same chance."""
    return list(islice(_factors(conditions, draws, repeats), periods))


def sample(costed: CostedGraph) -> tuple[int, int, int]:
    """Return how many draws are run, and how many periods of each are left out and counted."""
    ranks = costed.conditions.ranks if costed.conditions else 1
    draws = max(4, min(_MAX_DRAWS, _MAX_VALUES // ranks))
    if meets_all(costed.graph, ranks):
        return draws, costed.graph.depth + 1, max(4, min(16, _COUNTED // draws))
    return min(draws, _SPREADING), _SPREADING, _SPREADING


def shown_draws(timeline: Timeline) -> list[Timeline]:
    """Return the draws whose time is divided among its causes, the one nearest to the mean first.

    Without draws it is the timeline itself.
    """
    if not timeline.shape:
        return [timeline]
    import numpy as np

    away = np.abs(np.asarray(timeline.period_s) - timeline.mean_period_s)
    count = max(2, min(_SHOWN, _SHOWN_TASKS // len(timeline.graph.tasks)))
    nearest = int(away.argmin())
    others = [draw for draw in range(min(count, timeline.shape[0])) if draw != nearest]
    return [timeline.select(draw) for draw in (nearest, *others)]


def over_draws(
    draws: Sequence[Timeline], mean_period_s: float, part: Callable[[Timeline], dict[str, float]]
) -> dict[str, float]:
    """Return what an iteration spends on each part [s]: some draws, scaled to the mean of all."""
    if len(draws) == 1:
        return part(draws[0])
    scale = mean_period_s / sum(one.mean_period_s for one in draws)
    parts = [part(one) for one in draws]
    return {key: scale * sum(one[key] for one in parts) for key in parts[0]}


def _seconds(costed: CostedGraph, durations: Sequence[float] | None) -> list[float]:
    if durations is not None:
        return list(durations)
    return [float(task.duration_s) for task in costed.graph.tasks]


def _own(task: Task, charge: TaskCost) -> bool:
    """Tell whether a task is what the GPU of the rank itself runs."""
    return charge.cause in _ON_GPU and not task.stream.startswith(OTHER_RANK)
