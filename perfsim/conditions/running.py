"""A plan run on ranks that differ: the slowest one alone, or draws over all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from math import sqrt
from typing import TYPE_CHECKING

from perfsim.conditions.conditions import Conditions
from perfsim.plan import Charge, Plan
from perfsim.simulate.draws import UNCHANGED, meets_all, simulate_draws
from perfsim.simulate.task import Task
from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["drawn", "over_draws", "sample", "shown", "slowed"]

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


def slowed(plan: Plan, durations: Sequence[float] | None = None) -> list[float]:
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


def drawn(plan: Plan, durations: Sequence[float] | None = None, *, brief: bool = False) -> Timeline:
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


def sample(plan: Plan) -> tuple[int, int, int]:
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


def _seconds(plan: Plan, durations: Sequence[float] | None) -> list[float]:
    if durations is not None:
        return list(durations)
    return [float(task.duration_s) for task in plan.graph.tasks]


def _own(task: Task, charge: Charge) -> bool:
    """Tell whether a task is what the GPU of the rank itself runs."""
    return charge.cause in ON_GPU and not task.stream.startswith(OTHER_RANK)
