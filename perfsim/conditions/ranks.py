"""A plan run on ranks that differ: the slowest one alone, or draws over all of them."""

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
from perfsim.schedule.plan import CostedGraph, TaskCost
from perfsim.simulate.array import UNCHANGED, meets_all, simulate_draws
from perfsim.simulate.graph import Task
from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MOST_APART",
    "Joined",
    "check_followed",
    "drawn",
    "exchanges",
    "joined",
    "over_draws",
    "plans_joined",
    "plans_under",
    "sample",
    "shown",
    "slowed",
    "under",
]

MOST_APART = 256
"""Iterations between exchanges that are run one by one; local ones without any message are one."""

NEGLIGIBLE = 1e-9


class Joined(NamedTuple):
    """A round, and how many iterations each of its own stands for."""

    round: Round
    repeats: tuple[int, ...]


def exchanges(jobs: Sequence[Job], nodes: int) -> bool:
    """Tell whether ranks of different nodes wait for each other in these jobs."""
    return any(
        isinstance(stage, Send) and (stage.group != "node" or nodes == 1)
        for job in jobs
        for stage in job.stages
    )


def joined(
    rounds: Sequence[Round], exchanging: Callable[[int], bool], flag: str = "jitter"
) -> list[Joined]:
    """Return the rounds with those that exchange nothing put before the one that follows.

    Where there are not as many of them for each exchange, exchanges come after as few and as many
    as make the mean. ``flag`` is what asks for it.

    Raises
    ------
    RequestError
        If there are too many for each exchange to run them one by one.

    Examples
    --------
    >>> rounds = [Round((LOCAL_ITERATION,), 3), Round((0,), 1)]
    >>> joined(rounds, lambda iteration: iteration != LOCAL_ITERATION)[0]
    Joined(round=Round(iterations=(-1, 0), count=1.0), repeats=(3, 1))
    """
    found: list[Joined] = []
    apart: Round | None = None
    for one in rounds:
        if not any(exchanging(iteration) for iteration in one.iterations):
            apart = one
            continue
        found += [_plain(one)] if apart is None else _after(apart, one, flag)
        apart = None
    return found + ([] if apart is None else [_plain(apart)])


def _plain(one: Round) -> Joined:
    return Joined(one, (1,) * len(one.iterations))


def _after(apart: Round, one: Round, flag: str) -> list[Joined]:
    each = apart.count * len(apart.iterations) / one.count
    few = floor(each + NEGLIGIBLE)
    shares = {few: 1.0 - (each - few), few + 1: each - few}
    found = []
    for count, share in shares.items():
        if share <= NEGLIGIBLE:
            continue
        before, repeats = _iterations(apart, count, flag)
        whole = Round((*before, *one.iterations), one.count * share)
        found.append(Joined(whole, (*repeats, *(1,) * len(one.iterations))))
    return found


def _iterations(apart: Round, count: int, flag: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return so many iterations in a row, and how many each stands for."""
    if count == 0:
        return (), ()
    if apart.iterations == (LOCAL_ITERATION,):
        return (LOCAL_ITERATION,), (count,)
    if count > MOST_APART:
        raise RequestError(
            flag,
            f"{count} iterations between two exchanges are too many to follow, at most"
            f" {MOST_APART}; set a shorter interval.",
        )
    kinds = apart.iterations
    return tuple(kinds[at % len(kinds)] for at in range(count)), (1,) * count


def plans_under(
    conditions: Conditions,
    method: Method,
    planned: Callable[[Round], CostedGraph],
    exchanging: Callable[[int], bool],
) -> list[CostedGraph]:
    """Return the plans of a method's rounds under conditions.

    Parameters
    ----------
    planned : makes the plan of a round
    exchanging : whether ranks wait for each other in an iteration of this number

    Raises
    ------
    RequestError
        If the ranks vary by chance and cannot be followed.
    """
    rounds = method.rounds()
    if not conditions.varies:
        return [under(planned(one), conditions) for one in rounds]
    plans = [
        under(planned(one.round), conditions, one.repeats) for one in joined(rounds, exchanging)
    ]
    check_followed(plans, method)
    return plans


def plans_joined(
    conditions: Conditions | None,
    method: Method,
    planned: Callable[[Round], CostedGraph],
    exchanging: Callable[[int], bool],
    flag: str,
) -> list[CostedGraph]:
    """Return the plans of a method's rounds where it counts when an iteration exchanges.

    Iterations without exchange come before the one that exchanges. ``flag`` is what asks for it;
    the other arguments are those of ``plans_under``.
    """
    rounds = joined(method.rounds(), exchanging, flag)
    return [under(planned(one.round), conditions, one.repeats) for one in rounds]


def under(
    plan: CostedGraph, conditions: Conditions | None, repeats: tuple[int, ...] = ()
) -> CostedGraph:
    """Return the plan under conditions; some of its iterations may stand for several in a row."""
    if all(count == 1 for count in repeats):
        return replace(plan, conditions=conditions)
    tasks = list(plan.graph.tasks)
    ends = [*plan.begins[1:], len(tasks)]
    for begin, end, count in zip(plan.begins, ends, repeats, strict=True):
        for index in range(begin, end):
            tasks[index] = tasks[index]._replace(duration_s=tasks[index].duration_s * count)
    graph = replace(plan.graph, tasks=tasks, iterations=sum(repeats))
    return replace(plan, graph=graph, conditions=conditions, repeats=repeats)


def check_followed(plans: Sequence[CostedGraph], method: Method) -> None:
    """Check that ranks that vary by chance can be followed one by one.

    Raises
    ------
    RequestError
        If what goes first is decided while it runs.
    """
    name = type(method).__module__.rpartition(".")[2]
    if any(plan.order == "priority" for plan in plans):
        raise RequestError(
            "method",
            f"{name} sends by priority, and `jitter` follows messages in the order in"
            " which they are issued only.",
        )
    if any(plan.graph.contended for plan in plans):
        raise RequestError(
            "method",
            f"{name} sends several messages at once over a link that they share, and"
            " `jitter` follows one after the other only.",
        )


ON_GPU = ("compute", "compression", "second_order")
"""Causes of what a GPU runs, all of which a slow one runs more slowly."""

OTHER_RANK = "rank "
"""How the streams of ranks begin that are not the one shown; these compute as they should."""

MOST_DRAWS = 128
MOST_VALUES = 2**14
"""Draws x ranks: 128 KiB an array."""

MOST_KEPT = 2**21
"""Factors that are kept for the next run: 16 MiB."""

COUNTED = 256
"""Periods counted, over all draws, where all ranks wait for each other in each of them; each draw
counts 4 to 16 of them."""

SPREADING = 32
"""Periods that count, and as many before, where a delay spreads from neighbour to neighbour."""

SHOWN = 16
"""Draws whose time is divided among its causes, fewer of large graphs."""

SHOWN_TASKS = 4000
"""Tasks of a period in all of these."""


def slowed(plan: CostedGraph, durations: Sequence[float] | None = None) -> list[float]:
    """Return durations as the slowest rank has them [s].

    It is run alone. That is exact: every task of it ends last, so that no collective waits for
    any other rank, and a rank that waits for some others only is behind the slowest at last.
    """
    spent = _seconds(plan, durations)
    factor = plan.conditions.slowest if plan.conditions else 1.0
    if factor == 1.0:
        return spent
    return [
        seconds * factor if _own(task, charge) else seconds
        for seconds, task, charge in zip(spent, plan.graph.tasks, plan.charges, strict=True)
    ]


def drawn(
    plan: CostedGraph, durations: Sequence[float] | None = None, *, brief: bool = False
) -> Timeline:
    """Return the timeline of a plan whose ranks vary by chance, with an axis of draws.

    ``durations`` [s] stand in the place of the tasks' own.
    """
    conditions = plan.conditions
    assert conditions is not None
    draws, warm_up, counted = sample(plan)
    repeats = plan.repeats or (1,) * len(plan.begins)
    periods = warm_up + counted + plan.graph.depth + 1
    few = periods * len(repeats) * draws * conditions.ranks <= MOST_KEPT
    factors = (
        iter(_kept_factors(conditions, draws, repeats, periods))
        if few
        else _factors(conditions, draws, repeats)
    )
    which = [
        bisect_right(plan.begins, index) - 1 if _own(task, charge) else UNCHANGED
        for index, (task, charge) in enumerate(zip(plan.graph.tasks, plan.charges, strict=True))
    ]
    return simulate_draws(
        plan.graph,
        _seconds(plan, durations),
        which,
        lambda period: next(factors),
        warm_up=warm_up,
        counted=counted,
        brief=brief,
    )


def _factors(
    conditions: Conditions, draws: int, repeats: tuple[int, ...]
) -> Iterator[list[NDArray[np.float64]]]:
    """Yield, period by period, how many times longer each iteration's computation takes."""
    import numpy as np

    slower = conditions.factors()
    chance = np.random.default_rng(conditions.seed)
    while True:
        # The mean of so many independent iterations varies by the square root less.
        yield [
            slower
            * np.maximum(
                0.0,
                1.0
                + conditions.jitter
                / sqrt(count)
                * chance.standard_normal((draws, conditions.ranks)),
            )
            for count in repeats
        ]


@lru_cache(maxsize=1)
def _kept_factors(
    conditions: Conditions, draws: int, repeats: tuple[int, ...], periods: int
) -> list[list[NDArray[np.float64]]]:
    """Return them as they are for every run of a prediction: its what-ifs meet the same chance."""
    return list(islice(_factors(conditions, draws, repeats), periods))


def sample(plan: CostedGraph) -> tuple[int, int, int]:
    """Return how many draws there are, and how many periods of each are left out and counted."""
    ranks = plan.conditions.ranks if plan.conditions else 1
    draws = max(4, min(MOST_DRAWS, MOST_VALUES // ranks))
    if meets_all(plan.graph, ranks):
        return draws, plan.graph.depth + 1, max(4, min(16, COUNTED // draws))
    return min(draws, SPREADING), SPREADING, SPREADING


def shown(timeline: Timeline) -> list[Timeline]:
    """Return the draws whose time is divided among its causes, that nearest to the mean first.

    The timeline itself where there are no draws.
    """
    if not timeline.shape:
        return [timeline]
    import numpy as np

    away = np.abs(np.asarray(timeline.period_s) - timeline.mean_period_s)
    few = max(2, min(SHOWN, SHOWN_TASKS // len(timeline.graph.tasks)))
    nearest = int(away.argmin())
    others = [draw for draw in range(min(few, timeline.shape[0])) if draw != nearest]
    return [timeline.select(draw) for draw in (nearest, *others)]


def over_draws(
    draws: Sequence[Timeline], mean_period_s: float, part: Callable[[Timeline], dict[str, float]]
) -> dict[str, float]:
    """Return what an iteration spends on each part [s], of some draws scaled to the mean of all."""
    if len(draws) == 1:
        return part(draws[0])
    scale = mean_period_s / sum(one.mean_period_s for one in draws)
    parts = [part(one) for one in draws]
    return {key: scale * sum(one[key] for one in parts) for key in parts[0]}


def _seconds(plan: CostedGraph, durations: Sequence[float] | None) -> list[float]:
    if durations is not None:
        return list(durations)
    return [float(task.duration_s) for task in plan.graph.tasks]


def _own(task: Task, charge: TaskCost) -> bool:
    """Tell whether a task is what the GPU of the rank itself runs."""
    return charge.cause in ON_GPU and not task.stream.startswith(OTHER_RANK)
