"""Stragglers and jitter: run a round on ranks that differ.

Where ranks differ in the same way all the time, the slowest one is run alone: the others wait for
it. Where chance decides who is slow (jitter), all ranks are run, over many draws.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from perfsim.conditions.draws import DrawnRanks, drawn_ranks, runs_on_gpu
from perfsim.conditions.spec import Conditions
from perfsim.errors import RequestError
from perfsim.methods.base import LOCAL_ITERATION, Job, Method, Round, Send
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.simulate.array import drawn_closes, simulate_draws
from perfsim.simulate.chains import NO_FACTOR, Chains, chains_of
from perfsim.simulate.task import Duration, Task
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MAX_APART",
    "Joined",
    "check_issue_order",
    "drawn",
    "drawn_means",
    "exchanges",
    "factor_numbers",
    "joined_rounds",
    "merge_rounds",
    "over_draws",
    "rounds_under",
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


_OF_DRAWS, _MIN_CHANGED = 8, 1
"""What-ifs take one of so many draws, and at least so many."""

_MAX_VALUES = 2**20
"""Tasks x lists of durations x draws x ranks that are run at once: some 25 MB."""

_SHOWN = 16
"""Draws whose time is divided among its causes; fewer of large graphs."""

_SHOWN_TASKS = 4000
"""Tasks of a period in all of these."""

_SHOWN_OF_RANKS = 4
"""Draws of ranks that are divided, those nearest to the mean; two of graphs of many tasks."""


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
        seconds * factor if runs_on_gpu(task, charge) else seconds
        for seconds, task, charge in zip(spent, costed.graph.tasks, costed.charges, strict=True)
    ]


def drawn(
    costed: CostedGraph, durations: Sequence[float] | None = None, *, brief: bool = False
) -> Timeline:
    """Run a round whose ranks vary by chance; the timeline has an axis of draws.

    ``durations`` [s] are taken in place of the tasks' own.
    """
    spent_s, chosen, numbers = (
        _seconds(costed, durations),
        drawn_ranks(costed),
        factor_numbers(costed),
    )
    used = chosen.sample
    chains = chains_of(costed.graph, numbers)
    closes: list[Duration] = list(_closes(chains, [spent_s], chosen, used.draws)[:, 0])
    whole = Timeline(
        graph=costed.graph,
        starts=[],
        ends=[],
        closes=closes,
        averaged=used.counted,
        steady=True,
        shape=(used.draws,),
    )
    if brief:
        return whole
    some = _nearest(whole)
    shown = simulate_draws(
        costed.graph,
        spent_s,
        numbers,
        # Periods after those that count only run to see the last tasks of these end.
        lambda period: [one[some] for one in chosen.periods[period % len(chosen.periods)]],
        warm_up=used.warm_up,
        counted=used.counted,
        replaced=chosen.replaced,
    )
    return replace(whole, shown=tuple(shown.each()))


def _closes(
    chains: Chains,
    durations: Sequence[Sequence[float]],
    chosen: DrawnRanks,
    draws: int,
) -> NDArray[np.float64]:
    """Return when periods close [s], over (period, list of durations, draw).

    Parameters
    ----------
    durations : lists of what tasks take [s]
    draws : run so many of those that are chosen
    """
    import numpy as np

    room = _MAX_VALUES // (len(chains.which) * chosen.periods[0][0].shape[-1])
    some_lists = max(1, min(len(durations), room // draws))
    some_draws = max(1, min(draws, room // some_lists))

    def part(first_list: int, first_draw: int) -> NDArray[np.float64]:
        span = slice(first_draw, min(draws, first_draw + some_draws))
        closes = drawn_closes(
            chains,
            np.transpose(durations[first_list : first_list + some_lists]),
            lambda period: [one[span] for one in chosen.periods[period]],
            warm_up=chosen.sample.warm_up,
            counted=chosen.sample.counted,
            replaced=chosen.replaced,
        )
        return np.stack(closes)

    rows = [
        np.concatenate([part(first, draw) for draw in range(0, draws, some_draws)], axis=-1)
        for first in range(0, len(durations), some_lists)
    ]
    return np.concatenate(rows, axis=1)


def drawn_means(costed: CostedGraph, durations: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean period with each of several lists of durations [s].

    Some of the draws are run: what differs between the lists varies less than a period does.
    """
    chosen = drawn_ranks(costed)
    used = chosen.sample
    draws = max(_MIN_CHANGED, used.draws // _OF_DRAWS)
    chains = chains_of(costed.graph, factor_numbers(costed))
    closes = _closes(chains, durations, chosen, draws)
    lengths = (closes[-1] - closes[used.warm_up - 1]) / used.counted
    return [float(one) for one in lengths.mean(axis=-1)]


def factor_numbers(costed: CostedGraph) -> list[int]:
    """Return by which of a period's factors the duration of each task is multiplied."""
    conditions = costed.conditions
    assert conditions is not None
    iterations = len(costed.begins)
    return [
        _factor_of(task, bisect_right(costed.begins, index) - 1, iterations, conditions)
        if runs_on_gpu(task, charge)
        else NO_FACTOR
        for index, (task, charge) in enumerate(zip(costed.graph.tasks, costed.charges, strict=True))
    ]


_SAMPLES = ("forward", "backward", "other")
"""Kinds of tasks that work on samples, or wait for other stages that do (the bubble of a pipeline):
those that a measured distribution is of."""


def _factor_of(task: Task, iteration: int, iterations: int, conditions: Conditions) -> int:
    """Return which of a period's factors (see `DrawnRanks`) holds for what a GPU runs itself."""
    if conditions.measured is None or task.kind in _SAMPLES:
        return iteration
    return iterations


def shown_draws(timeline: Timeline) -> list[Timeline]:
    """Return the draws whose time is divided among its causes, the one nearest to the mean first.

    Without draws it is the timeline itself.
    """
    if not timeline.shape:
        return [timeline]
    if timeline.shown:
        return list(timeline.shown)
    return [timeline.select(int(draw)) for draw in _nearest_first(timeline)]


def _nearest(timeline: Timeline) -> NDArray[np.intp]:
    """Return the draws of ranks whose time is divided, the nearest to the mean first."""
    import numpy as np

    count = max(2, min(_SHOWN_OF_RANKS, _SHOWN_TASKS // 4 // len(timeline.graph.tasks)))
    away = np.abs(np.asarray(timeline.period_s) - timeline.mean_period_s)
    return away.argsort(kind="stable")[:count]


def _nearest_first(timeline: Timeline) -> NDArray[np.intp]:
    """Return the draws whose time is divided."""
    import numpy as np

    count = max(2, min(_SHOWN, _SHOWN_TASKS // len(timeline.graph.tasks)))
    away = np.abs(np.asarray(timeline.period_s) - timeline.mean_period_s)
    nearest, order = int(away.argmin()), np.arange(min(count, timeline.shape[0]))
    return np.concatenate(([nearest], order[order != nearest]))


def over_draws(
    draws: Sequence[Timeline], mean_period_s: float, part: Callable[[Timeline], dict[str, float]]
) -> dict[str, float]:
    """Return what an iteration spends on each part [s]: some draws, scaled to the mean of all."""
    if len(draws) == 1:
        return part(draws[0])
    scale = mean_period_s / sum_in_order(one.mean_period_s for one in draws)
    parts = [part(one) for one in draws]
    return {key: scale * sum_in_order(one[key] for one in parts) for key in parts[0]}


def _seconds(costed: CostedGraph, durations: Sequence[float] | None) -> list[float]:
    if durations is not None:
        return list(durations)
    return [*costed.task_s]
