"""Which draws of ranks that vary by chance are run: how many, of which ranks, and their factors.

An exchange waits for the slowest of all ranks. Only ranks that were slow in what is computed
between exchanges can be that one, so that few of thousands are run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from math import ceil, log, pi, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.conditions.spec import Conditions
from perfsim.schedule.costed_graph import CostedGraph, TaskCost
from perfsim.simulate.array import meets_all
from perfsim.simulate.sync import Blocks, Neighbours, SyncScope, largest_of_blocks
from perfsim.simulate.task import Task
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Factors = NDArray[np.float64]

__all__ = [
    "OTHER_RANK",
    "DrawnRanks",
    "Sample",
    "drawn_factors",
    "drawn_ranks",
    "runs_on_gpu",
    "sample",
]

_ON_GPU = ("compute", "compression", "second_order")
"""Causes of tasks that run on a GPU: a slow one takes longer for all of them."""

OTHER_RANK = "rank "
"""Prefix of the streams of ranks other than the one shown; these run at normal speed."""

_STANDARD_ERROR = 0.001
"""Of the mean iteration, as a share of what is computed in it: so many periods are drawn."""

_MIN_PERIODS, _MIN_ITERATIONS, _MAX_PERIODS = 4, 256, 512
"""Periods that are drawn in all draws at least and at most, and iterations in these at least. No
source: chosen, by what their standard errors came to."""

_MIN_DRAWS, _MIN_SPREAD_DRAWS = 4, 2
"""Draws from which a standard error is worked out; fewer where each is a mean over many ranks."""

_COUNTED = 4
"""Iterations of a draw that are counted, at least, where all ranks wait for each other."""

_SPREADING = 32
"""Periods counted, and as many before them, where a delay spreads from neighbour to neighbour."""

_SPREAD_VALUES = 2**12
"""Draws x ranks where a delay spreads: the mean is over all ranks, so that few draws do."""

_VALUES_AT_ONCE = 2**21
"""Factors that are drawn before those that matter are picked: 16 MiB. Where one draw has more, they
have seven digits."""


def runs_on_gpu(task: Task, charge: TaskCost) -> bool:
    """Tell whether a task is what the GPU of the rank itself runs, not its host alone."""
    on_gpu = charge.cause in _ON_GPU and charge.device > 0.0
    return on_gpu and not task.stream.startswith(OTHER_RANK)


class Sample(NamedTuple):
    """How many draws are run, and how many periods of each are left out and counted."""

    draws: int
    warm_up: int
    counted: int


class DrawnRanks(NamedTuple):
    """The ranks that are run of each draw.

    Parameters
    ----------
    sample : how many draws there are, and how many periods of each are left out and counted
    periods : for each period the factors on the computation of its iterations, arrays over
        (draw, rank); of a measured distribution one more, of what takes as long in all of them
    replaced : for each scope in the whole cluster, the one among the ranks that are run
    """

    sample: Sample
    periods: list[list[Factors]]
    replaced: Mapping[SyncScope, SyncScope]


def sample(costed: CostedGraph) -> Sample:
    """Return how many draws of a round are run.

    The slowest of P ranks varies by some pi / sqrt(12 ln P) standard deviations of one rank, as the
    largest of normal numbers does (David & Nagaraja, Order Statistics, 2003, section 10.5); the sum
    of n iterations by the square root of n less than n of them.
    """
    conditions = costed.conditions
    assert conditions is not None
    place = _place(costed, conditions)
    if place.spreads:
        draws = min(_SPREADING, _SPREAD_VALUES // (place.circle or conditions.ranks))
        return Sample(max(_MIN_SPREAD_DRAWS, draws), _SPREADING, _SPREADING)
    iterations = costed.graph.iterations
    spread = conditions.measured.spread if conditions.measured else conditions.jitter
    ranks = place.unit if place.alone else conditions.ranks
    varies = spread * min(1.0, pi / sqrt(12.0 * log(max(2, ranks)))) / sqrt(iterations)
    least = max(_MIN_PERIODS, _MIN_ITERATIONS // iterations)
    periods = min(_MAX_PERIODS, max(least, ceil((varies / _STANDARD_ERROR) ** 2)))
    counted = ceil(_COUNTED / len(costed.begins))
    return Sample(max(_MIN_DRAWS, ceil(periods / counted)), costed.graph.margin, counted)


class _Place(NamedTuple):
    """How the ranks of a round wait for each other.

    Parameters
    ----------
    unit : neighbouring ranks that are picked together (those of a node); 0 if all must be run
    inside, across : scopes within each unit, and of one place of every unit
    alone : whether units never wait for each other, so that one of them says what all do
    circle : ranks of a circle of neighbours whose times are those of all; 0 for none
    spreads : whether a delay goes on to other ranks period after period
    """

    unit: int
    inside: tuple[SyncScope, ...] = ()
    across: tuple[SyncScope, ...] = ()
    alone: bool = False
    circle: int = 0
    spreads: bool = False


def _place(costed: CostedGraph, conditions: Conditions) -> _Place:
    """Return how the ranks of a round wait for each other."""
    joined = meets_all(costed.graph, conditions.ranks)
    return _place_of(costed.graph.scopes(), joined, conditions)


@lru_cache(maxsize=64)  # scopes and conditions never change
def _place_of(scopes: frozenset[SyncScope | None], joined: bool, conditions: Conditions) -> _Place:
    import numpy as np

    named = [one for one in scopes if one]
    ranks = conditions.ranks
    groups = [one for one in named if not isinstance(one, Neighbours)]
    labels = {one: np.asarray(one.labels(ranks)) for one in groups}
    first = [int((label == label[0]).cumprod().sum()) for label in labels.values()]
    unit = min((size for size in first if size > 1), default=1)
    if len(groups) < len(named) or ranks % unit:
        circle = 0 if joined else _circle(named, conditions)
        return _Place(0, circle=circle, spreads=not joined)
    inside, across = [], []
    for one, label in labels.items():
        table = label.reshape(-1, unit)
        same = (table == table[:, :1]).all()
        if same and len(set(table[:, 0].tolist())) == len(table):
            inside.append(one)
        elif (table == table[:1]).all() and len(set(table[0].tolist())) == unit:
            across.append(one)
        else:
            return _Place(0, spreads=not joined)
    found = _Place(unit, tuple(inside), tuple(across))
    if joined:
        return found
    if conditions.stragglers or unit % conditions.alike:
        return _Place(0, spreads=True)
    return found._replace(alone=True)


def _circle(scopes: Sequence[SyncScope], conditions: Conditions) -> int:
    """Return how many ranks of a circle of neighbours do for all; 0 where all are needed.

    In so many periods a delay goes no further than to them on either side.
    """
    reach = 2 * (2 * _SPREADING + 2) + 1
    one = scopes[0]
    if len(scopes) > 1 or not isinstance(one, Neighbours) or one.by_turns or one.placement:
        return 0
    circle = reach * max(one.distances, default=1)
    few = conditions.stragglers or conditions.alike > 1 or circle >= conditions.ranks
    return 0 if few else circle


def drawn_ranks(costed: CostedGraph) -> DrawnRanks:
    """Draw the factors of the ranks that can be the slowest."""
    conditions = costed.conditions
    assert conditions is not None
    place = _place(costed, conditions)
    drawn = sample(costed)
    repeats = costed.repeats or (1,) * len(costed.begins)
    periods = drawn.warm_up + drawn.counted
    if place.circle:
        conditions = conditions._replace(ranks=place.circle)
    if place.alone:
        conditions = conditions._replace(ranks=place.unit)
        place = place._replace(unit=0)
        replaced: dict[SyncScope, SyncScope] = {
            one: Blocks(conditions.ranks) for one in place.inside
        }
        kept = _kept_factors(conditions, drawn.draws, repeats, periods)
        return DrawnRanks(drawn, kept, replaced)
    shares = _shares(costed, place) if place.unit else ()
    kept = _kept_factors(conditions, drawn.draws, repeats, periods, place.unit, shares)
    ranks = kept[0][0].shape[-1]
    if ranks == conditions.ranks:
        return DrawnRanks(drawn, kept, {})
    inside = dict.fromkeys(place.inside, Blocks(place.unit))
    across = dict.fromkeys(place.across, Blocks(ranks // place.unit, place.unit))
    return DrawnRanks(drawn, kept, {**inside, **across})


class _Share(NamedTuple):
    """What a GPU computes in an iteration before its last exchange and after it.

    Both are shares of an iteration's mean, in thirds, as rounds that differ little meet the same
    chance. ``after`` is None where there is no exchange.
    """

    before: float
    after: float | None


def _shares(costed: CostedGraph, place: _Place) -> tuple[_Share, ...]:
    """Return what a GPU computes before and after the exchanges among units."""
    tasks, begins = costed.graph.tasks, costed.begins
    last: dict[int, int] = {}
    for index in costed.graph.ancestors():
        if tasks[index].collective and tasks[index].scope not in place.inside:
            number = bisect_right(begins, index) - 1
            last[number] = max(index, last.get(number, 0))
    spent = []
    for number, (begin, end) in enumerate(zip(begins, [*begins[1:], len(tasks)], strict=True)):
        cut = last.get(number, end)
        spent.append((_own_s(costed, begin, cut), _own_s(costed, cut, end)))
    mean_s = sum_in_order(map(sum_in_order, spent)) / len(spent) or 1.0
    return tuple(
        _Share(_thirds(before / mean_s), _thirds(after / mean_s) if number in last else None)
        for number, (before, after) in enumerate(spent)
    )


def _thirds(share: float) -> float:
    return round(3.0 * share) / 3.0


def _own_s(costed: CostedGraph, begin: int, end: int) -> float:
    """Return how long the GPU's own tasks among some take [s]."""
    return sum_in_order(
        float(costed.graph.tasks[index].duration_s)
        for index in range(begin, end)
        if runs_on_gpu(costed.graph.tasks[index], costed.charges[index])
    )


@lru_cache(maxsize=32)  # random numbers of a seed: they cannot go stale
def _kept_factors(
    conditions: Conditions,
    draws: int,
    repeats: tuple[int, ...],
    periods: int,
    unit: int = 0,
    shares: tuple[_Share, ...] = (),
) -> list[list[Factors]]:
    """Return the factors of each period, of those ranks that can be the slowest.

    All runs of a prediction take them: its what-ifs meet the same chance.
    """
    import numpy as np

    chance = np.random.default_rng(conditions.seed)
    once = max(1, _VALUES_AT_ONCE // (conditions.ranks * periods * len(repeats)))
    parts = []
    for first in range(0, draws, once):
        some = drawn_factors(conditions, chance, min(once, draws - first), repeats, periods)
        parts.append(_slow_ones(some, shares, unit) if unit else some)
    if len(parts) == 1:
        return parts[0]
    ranks = max(part[0][0].shape[-1] for part in parts)
    return [
        [
            np.concatenate([_as_many(one, ranks, max(1, unit)) for one in same])
            for same in zip(*period, strict=True)
        ]
        for period in zip(*parts, strict=True)
    ]


def _as_many(values: Factors, ranks: int, unit: int) -> Factors:
    """Return the factors of so many ranks, the last unit again where there are fewer."""
    import numpy as np

    missing = (ranks - values.shape[-1]) // unit
    return np.concatenate([values, *[values[:, -unit:]] * missing], axis=-1)


def drawn_factors(
    conditions: Conditions,
    chance: np.random.Generator,
    draws: int,
    repeats: tuple[int, ...],
    periods: int,
) -> list[list[Factors]]:
    """Draw, period by period, how many times as long each iteration's computation takes.

    Of a measured distribution, there is one more: of what takes as long in all of them.
    """
    import numpy as np

    slower = conditions.factors()
    many = conditions.ranks * periods * len(repeats) > _VALUES_AT_ONCE
    digits: Any = np.float32 if many else np.float64

    def factors(count: int) -> Factors:
        """Draw how many times as long the mean of so many independent iterations takes."""
        if conditions.measured is not None:
            shape = draws, conditions.ranks // conditions.alike
            alike = conditions.measured.draw(chance, shape, count)
            return slower * alike.repeat(conditions.alike, axis=-1)
        each = (conditions.each,) if conditions.each > 1 else ()
        values: Factors = chance.standard_normal((draws, conditions.ranks, *each), dtype=digits)
        if each:
            values = values.max(axis=-1)
        # It varies by the square root less.
        values *= conditions.jitter / sqrt(count)
        values += 1.0
        np.maximum(values, 0.0, out=values)
        if conditions.stragglers:
            values *= slower
        return values

    always = [] if conditions.measured is None else [slower * np.ones((draws, 1))]
    return [[*map(factors, repeats), *always] for _ in range(periods)]


def _slow_ones(
    periods: list[list[Factors]], shares: tuple[_Share, ...], unit: int
) -> list[list[Factors]]:
    """Return the factors of the ranks that are the slowest before some exchange of a draw.

    They are those whose computation takes longest in an iteration with exchanges, since the last
    exchange before it, or since some before that: what is exchanged late is waited for late. The
    end of the run counts as an exchange.
    """
    import numpy as np

    draws, ranks = periods[0][0].shape
    waited: list[NDArray[np.intp]] = []
    latest: list[Factors] = []
    since = np.zeros((draws, ranks // unit))
    for values, share in chain.from_iterable(
        zip(period, shares, strict=False) for period in periods
    ):
        slowest = largest_of_blocks(values, unit)[..., 0]
        since = since + share.before * slowest
        if share.after is None:
            continue
        latest = [since, *(one + since for one in latest[:_LATE])]
        waited += [one.argmax(axis=-1) for one in (slowest, *latest)]
        since = share.after * slowest
    waited += [one.argmax(axis=-1) for one in (since, *(one + since for one in latest))]
    picked = _each_once(np.stack(waited, axis=-1))
    if picked.shape[-1] * unit >= ranks:
        return periods
    if unit > 1:
        picked = (picked[:, :, None] * unit + np.arange(unit)).reshape(draws, -1)
    return [[np.take_along_axis(one, picked, axis=-1) for one in period] for period in periods]


def _each_once(picked: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return what was picked in each draw without repetition, the last again where it is less."""
    import numpy as np

    ordered = np.sort(picked, axis=-1)
    again = np.zeros(ordered.shape, bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    count = int((~again).sum(axis=-1).max())
    return np.take_along_axis(ordered, again.argsort(axis=-1, kind="stable")[:, :count], axis=-1)


_LATE = 4
"""Exchanges before the last one that a rank may not have waited for yet."""
