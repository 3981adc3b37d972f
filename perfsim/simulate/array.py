"""The default engine: one pass of ``end = max(stream free, ends of dependencies) + duration``.

It is exact for tasks in issue order. On floats it is plain Python, without numpy. On arrays the
same pass evaluates every scenario, draw and rank at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perfsim.simulate.chains import NO_FACTOR, Chains
from perfsim.simulate.graph import TaskGraph, checked_durations
from perfsim.simulate.sync import SyncScope, joins_all
from perfsim.simulate.task import Duration
from perfsim.simulate.timeline import Timeline, until_steady
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ArrayRun", "drawn_closes", "meets_all", "simulate", "simulate_draws"]


def simulate(
    graph: TaskGraph,
    durations: Sequence[Duration] | None = None,
    *,
    ranks: bool = False,
    periods: int | None = None,
    max_periods: int = 64,
    tolerance: float = 1e-9,
    brief: bool = False,
) -> Timeline:
    """Run the graph period after period until it repeats, and return when each task ran.

    Parameters
    ----------
    graph : the template of a period
    durations : seconds, one a task, in place of the tasks' own: floats, or arrays that broadcast
        over (scenario, draw, rank)
    ranks : the last axis of every array is ranks: a collective starts when its last rank has
        arrived, and lasts as long as its slowest rank; where its task names a ``scope``, only
        the ranks of that are waited for
    periods : count exactly this many periods instead of waiting for a steady state
    max_periods : give up on a steady state after this many; the mean is then over the later half
    tolerance : relative difference of period lengths that counts as none
    brief : run no periods after the last that counts, and keep no starts: only the length of
        periods can be asked for

    Raises
    ------
    ValueError
        If the graph or a duration is not valid; names the task. If streams share a link: then one
        pass cannot tell how long a task takes.

    Examples
    --------
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> reduce = graph.add("all_reduce", "communication", "communicate", 2.0, after=[backward])
    >>> _ = graph.add("update", "compute", "update", 1.0, after=[reduce])
    >>> simulate(graph).iteration_s
    6.0
    >>> simulate(graph, [3.0, 0.5, 1.0]).iteration_s
    4.5
    """
    if graph.contended:
        raise ValueError("several streams share a link: take simulate_events")
    given = checked_durations(graph, durations)
    settled = graph.settled_after(in_order=True)
    if brief and settled and periods is None and {float}.issuperset(map(type, given)):
        return Timeline(graph, [], [], _closes(graph, given, settled), 1, steady=True)
    run = ArrayRun(graph, given, ranks, brief=brief)
    if run.ranks:  # each begins its periods at another moment
        settled = 0
    closes, cycle = until_steady(
        graph,
        lambda _: run.step(),
        lambda _: run.ends,
        periods,
        max_periods,
        tolerance,
        run.ranks,
        settled,
    )
    # Tasks of later periods may begin before the last counted period closes.
    for _ in range(0 if brief or settled == 1 else max_periods):
        if run.passed(closes[-1]):
            break
        run.step()
    return Timeline(
        graph=graph,
        starts=[] if brief else run.begun(),
        ends=run.ends,
        closes=closes,
        averaged=cycle or max(1, len(closes) // 2),
        steady=cycle > 0,
        shape=run.shape,
        ranks=run.ranks,
    )


def _closes(graph: TaskGraph, durations: list[Any], periods: int) -> list[Duration]:
    """Return when each of some periods closed [s], on floats."""
    order = graph.order()
    ends = [0.0] * (len(durations) * order.depth)
    for _ in range(periods):
        _run_period(ends, durations, order.reaches)
    first = len(ends) - periods * len(durations) + graph.closing
    return [*ends[first :: len(durations)]]


def _run_period(
    ends: list[float], durations: Sequence[Any], reaches: Sequence[tuple[int, tuple[int, ...]]]
) -> None:
    """Append the ends of a period's tasks to those of all periods before."""
    ended = ends.append
    for duration, (first, others) in zip(durations, reaches, strict=True):
        start = ends[first]
        for other in others:
            end = ends[other]
            if end > start:  # noqa: PLR1730 (half the time of max())
                start = end
        ended(start + duration)


class ArrayRun:
    """The state of the pass; ``_ends[-b]`` is the end of the task ``b`` positions back.

    ``brief`` keeps no starts.
    """

    def __init__(
        self,
        graph: TaskGraph,
        durations: list[Duration],
        ranks: bool,
        replaced: Mapping[SyncScope, SyncScope] | None = None,
        *,
        brief: bool = False,
    ) -> None:
        self._brief = brief
        self._order = order = graph.order()
        self._scopes = _replaced(order.waited_for, replaced) if replaced else order.waited_for
        self.starts: list[list[Duration]] = []
        self.ends: list[list[Duration]] = []
        self.shape: tuple[int, ...] = ()
        self.ranks = False
        self._width = len(durations)
        self._closing = graph.closing
        self._floats = all(issubclass(one, (float, int)) for one in set(map(type, durations)))
        if not self._floats:
            self.ranks = ranks
            durations = self._as_arrays(durations)
        # Periods before the first are zeros, so that a void dependency never delays anything.
        self.periods = 0
        self._ends: list[Any] = [0.0] * (self._width * order.depth)
        self._durations = durations

    def _as_arrays(self, durations: list[Duration]) -> list[Duration]:
        import numpy as np

        arrays = [
            float(value) if np.ndim(value) == 0 else np.asarray(value, float) for value in durations
        ]
        shape = np.broadcast_shapes(*(np.shape(value) for value in arrays))
        self.shape = shape[:-1] if self.ranks else shape
        if not self.ranks:
            return arrays
        return [
            _together(value, scope) if collective and isinstance(value, np.ndarray) else value
            for value, collective, scope in zip(
                arrays, self._order.collective, self._scopes, strict=True
            )
        ]

    def step(self, durations: Iterable[Duration] | None = None) -> Duration:
        """Run one more period and return when it closed; with other durations in it if given."""
        if self._floats and durations is None:
            _run_period(self._ends, self._durations, self._order.reaches)
        else:
            self.starts.append(self._step_arrays(durations))
        self.periods += 1
        row = self._ends[-self._width :]
        self.ends.append(row)
        close: Duration = row[self._closing]
        return close.max(axis=-1) if self.ranks and not isinstance(close, float) else close

    def begun(self) -> list[list[Duration]]:
        """Return when tasks started, period by period; for floats only worked out here."""
        if self.starts:
            return self.starts
        ends, reaches, width = self._ends, self._order.reaches, self._width
        first = len(ends) - self.periods * width
        return [
            [
                max([ends[at + own], *[ends[at + other] for other in others]])
                if others
                else ends[at + own]
                for at, (own, others) in enumerate(reaches, first + period * width)
            ]
            for period in range(self.periods)
        ]

    def forget(self) -> None:
        """Drop what later periods do not need."""
        self.starts.clear()
        self.ends.clear()
        del self._ends[: -self._width * self._order.depth]

    def _step_arrays(self, durations: Iterable[Duration] | None) -> list[Duration]:
        import numpy as np

        ends = self._ends
        starts: list[Duration] = []
        order = self._order
        for (first, others), duration, together, scope in zip(
            order.reaches,
            self._durations if durations is None else durations,
            order.collective,
            self._scopes,
            strict=True,
        ):
            if together and self.ranks and scope is None:
                start = _all_there([ends[first], *[ends[other] for other in others]])
            else:
                start = ends[first]
                for other in others:
                    start = np.maximum(start, ends[other])
                if together and self.ranks and scope and isinstance(start, np.ndarray):
                    start = _all_arrived(start, scope, self.periods)
            if not self._brief:
                starts.append(start)
            ends.append(start + duration)
        return starts

    @cached_property
    def _last_working(self) -> list[int]:
        return self._order.working(
            [value if isinstance(value, (float, int)) else value.any() for value in self._durations]
        )

    def passed(self, moment: Duration) -> bool:
        """Return whether no task of a later period can start before ``moment``."""
        # The last task of every stream with work to do: when they have ended, a period is over.
        row = self.ends[-1]
        for index in self._last_working:
            end = row[index]
            if self.ranks and not isinstance(end, float):
                end = end.min(axis=-1)
            ahead = moment - end
            if ahead > 0.0 if isinstance(ahead, float) else (ahead > 0.0).any():
                return False
        return True


def _replaced(
    named: Sequence[SyncScope | None], replaced: Mapping[SyncScope, SyncScope]
) -> list[SyncScope | None]:
    """Return whom each task waits for in place of those that it names."""
    found: list[SyncScope | None] = []
    before: SyncScope | None = None
    now: SyncScope | None = None
    for one in named:
        if one is not None and one is not before:  # many in a row are the same, and slow to hash
            before, now = one, replaced.get(one, one)
        found.append(None if one is None else now)
    return found


def _together(seconds: NDArray[np.float64], scope: SyncScope | None) -> NDArray[np.float64]:
    """Return how long a collective takes on each rank: as long as on the slowest it waits for."""
    if scope is None:
        return seconds.max(axis=-1, keepdims=True)  # type: ignore[no-any-return]
    return scope.together(seconds) if seconds.shape[-1] > 1 else seconds


def _all_there(moments: Sequence[Duration]) -> Duration:
    """Return when the last of all ranks is there.

    It takes the latest rank of each moment, then the latest of these: the same as the latest rank
    of the moments' maximum, with less work.
    """
    import numpy as np

    last, *others = [
        one.max(axis=-1, keepdims=True)
        if isinstance(one, np.ndarray) and one.shape[-1] > 1
        else one
        for one in moments
    ]
    for other in others:
        last = np.maximum(last, other)
    return last


def _all_arrived(start: NDArray[np.float64], scope: SyncScope, period: int) -> NDArray[np.float64]:
    """Return when a collective starts on each rank: when the last one it waits for is there."""
    if start.shape[-1] == 1:  # all ranks are there at once
        return start
    return scope.meet(start, period)


def meets_all(
    graph: TaskGraph, ranks: int, replaced: Mapping[SyncScope, SyncScope] | None = None
) -> bool:
    """Tell whether all ranks wait for each other in every period.

    Parameters
    ----------
    replaced : whom ranks wait for in place of those that the graph names
    """
    if ranks == 1:
        return True
    scopes = graph.scopes()
    named = [one for one in scopes if one]
    run = [replaced.get(one, one) for one in named] if replaced else named
    return None in scopes or joins_all(frozenset(run), ranks)


def simulate_draws(
    graph: TaskGraph,
    durations: Sequence[float],
    which: Sequence[int],
    factors: Callable[[int], Sequence[NDArray[np.float64]]],
    *,
    warm_up: int,
    counted: int,
    replaced: Mapping[SyncScope, SyncScope] | None = None,
) -> Timeline:
    """Run the graph with durations drawn anew in every period, and return when tasks ran.

    Parameters
    ----------
    durations : seconds, one a task
    which : by which of the factors each task is multiplied; ``NO_FACTOR`` for none
    factors : period to factors, each over (draw, rank)
    warm_up : periods before those that count
    counted : periods over which means are taken
    replaced : whom ranks wait for in place of those that the graph names

    Returns
    -------
    Timeline
        With the axis of draws. In each period it shows the rank that works longest, which the
        others wait for, and a period ends with the last rank. Where not all ranks wait for each
        other (see `meets_all`) it shows the first rank, and a period ends at the mean over ranks:
        all advance at one pace in the long run, and the last one's delay behind the mean grows only
        at first.

    Examples
    --------
    >>> import numpy as np
    >>> graph = TaskGraph()
    >>> backward = graph.add("backward", "compute", "backward", 3.0)
    >>> reduce = graph.add("reduce", "wire", "communicate", 1.0, [backward], collective=True)
    >>> _ = graph.add("update", "compute", "update", 0.0, [reduce])
    >>> slower = np.array([[1.0, 2.0], [1.5, 1.0]])  # two draws of two ranks
    >>> run = simulate_draws(graph, [3.0, 1.0, 0.0], [0, NO_FACTOR, NO_FACTOR],
    ...                      lambda period: [slower], warm_up=1, counted=2)
    >>> run.iteration_s.tolist()
    [7.0, 5.5]
    """
    import numpy as np

    work_s = [
        sum_in_order(second for second, one in zip(durations, which, strict=True) if one == number)
        for number in range(1 + max(which))
    ]
    starts: list[list[Duration]] = []
    ends: list[list[Duration]] = []
    closes: list[Duration] = []
    draws = 0
    given = checked_durations(graph, list(durations))
    # Ranks begin the next periods before the last one of them has ended the last that counts.
    chance = _Chance(graph, given, which, factors, replaced, (warm_up, counted, graph.margin))
    for period, (drawn, run, close) in enumerate(chance.run()):
        draws, ranks = drawn[0].shape
        if period < warm_up + counted:
            closes.append(close)
        shown = 0
        if chance.everyone:
            busy = [work * factor for work, factor in zip(work_s, drawn, strict=False)]
            shown = ranks * np.arange(draws) + np.sum(busy, axis=0).argmax(axis=-1)
        starts.append([_of_rank(value, (draws, ranks), shown) for value in run.starts[-1]])
        ends.append([_of_rank(value, (draws, ranks), shown) for value in run.ends[-1]])
    return Timeline(
        graph=graph,
        starts=starts,
        ends=ends,
        closes=closes,
        averaged=counted,
        steady=True,
        shape=(draws,),
    )


def drawn_closes(
    chains: Chains,
    durations: NDArray[np.float64],
    factors: Callable[[int], Sequence[NDArray[np.float64]]],
    *,
    warm_up: int,
    counted: int,
    replaced: Mapping[SyncScope, SyncScope] | None = None,
) -> list[NDArray[np.float64]]:
    """Return when each period closed, with several lists of durations at once [s].

    The parameters are those of `simulate_draws`, but ``chains`` has the graph and by which factors
    its tasks are multiplied, and ``durations`` is an array over (task, list); each array returned
    is over (list, draw).
    """
    import numpy as np

    together = np.zeros((len(chains.which), *durations.shape[1:]))
    np.add.at(together, chains.of, durations)
    given: list[Duration] = list(together[:, :, None, None])
    spans = warm_up, counted, 0
    chance = _Chance(chains.graph, given, chains.which, factors, replaced, spans, brief=True)
    return [close for _, _, close in chance.run()]


class _Chance:
    """A run whose durations are drawn anew in every period, and which yields each of them.

    ``spans`` are the periods to leave out, to count and to run after these; ``brief`` is that of
    `ArrayRun`. A period ends with the last rank; where not all ranks wait for each other, at the
    mean over ranks.
    """

    def __init__(
        self,
        graph: TaskGraph,
        durations: list[Duration],
        which: Sequence[int],
        factors: Callable[[int], Sequence[NDArray[np.float64]]],
        replaced: Mapping[SyncScope, SyncScope] | None,
        spans: tuple[int, int, int],
        *,
        brief: bool = False,
    ) -> None:
        warm_up, counted, after = spans
        self._brief = brief
        if warm_up < 1 or counted < 1:
            raise ValueError(f"warm_up = {warm_up}, counted = {counted}; each at least 1")
        self._graph, self._durations, self._which = graph, durations, which
        self._factors, self._replaced, self._periods = factors, replaced, warm_up + counted + after
        self.everyone = False

    def run(self) -> Iterator[tuple[Sequence[NDArray[np.float64]], ArrayRun, NDArray[np.float64]]]:
        """Yield, period by period, the factors, the run, and when the period closed."""
        import numpy as np

        graph = self._graph
        run = ArrayRun(graph, self._durations, True, self._replaced, brief=self._brief)
        run.ranks = True
        for period in range(self._periods):
            drawn = self._factors(period)
            shape = np.broadcast_shapes(drawn[0].shape, np.shape(self._durations[0]))
            if period == 0:
                self.everyone = meets_all(graph, shape[-1], self._replaced)
            run.step(_multiplied(self._durations, self._which, drawn))
            last = np.broadcast_to(run.ends[-1][graph.closing], shape)
            yield drawn, run, last.max(axis=-1) if self.everyone else last.mean(axis=-1)
            run.forget()


def _multiplied(
    durations: Sequence[Duration], which: Sequence[int], factors: Sequence[NDArray[np.float64]]
) -> Iterator[Duration]:
    """Yield how long each task takes in a period: one array at a time stays in the caches."""
    for second, one in zip(durations, which, strict=True):
        yield second if one == NO_FACTOR else second * factors[one]


def _of_rank(value: Duration, shape: tuple[int, ...], places: NDArray[np.intp] | int) -> Duration:
    """Return a moment of one rank in each draw, by its place among all; 0 for the first rank."""
    if isinstance(value, float):
        return value
    if value.shape[-1] == 1 or isinstance(places, int):
        moments: NDArray[np.float64] = value[:, 0]
        return moments
    return value.take(places) if value.shape == shape else value[0].take(places % shape[1])
