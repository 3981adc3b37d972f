"""Predict rows of a sweep that share a setup, jobs or a task graph, each of which is made once.

- Rows of one model, GPU and cluster share their setup: where a row differs from one before it in
  its method, options and schedule alone, only these are made anew, and of the fields only what
  depends on several is checked again.
- Rows that differ in algorithm, protocol and overlap alone share their jobs: collectives are priced
  anew, and the jobs are laid out with and without overlap in graphs that earlier rows have.
- Rows that differ in their network alone share their rounds where nobody asked what collectives
  take: these are priced anew. So do rows that differ in how many GPUs they have, where nobody asked
  for that either.
- Rows of one task graph run together, as arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.errors import PerfsimError
from perfsim.planning.grid import SweepGrid
from perfsim.planning.rows import SweepRow, refused_row, row_figures
from perfsim.resolve import Setup, resolve, resolve_like
from perfsim.scenario import SCHEDULE_FIELDS, Scenario, make_scenario, with_checked
from perfsim.schedule.beside_messages import channels_beside
from perfsim.schedule.costs import likeness, work_times
from perfsim.schedule.identity import Identity
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import in_one_pass, mean_s, run
from perfsim.session import Session
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.network.cluster import Cluster
    from perfsim.schedule.costed_graph import CostedGraph, RoundTimes, WorkLayout, WorkTimes

__all__ = ["SentBy", "SharedRows", "SharedSetups"]

_MIN_TOGETHER = 12
"""With fewer rows of one graph, arrays take longer than one run after the other: with fewer than 5
of 10 tasks, 10 of 86 and 16 of 325 (measured on one core of an AMD EPYC)."""

_SAME_JOBS = ("algorithm", "protocol", "overlap")
"""Fields that say how collectives are sent and when jobs begin: setup and jobs depend on none,
unless the method or its fusion policy asks what collectives take."""

_NETWORK = ("net", "intra_net", "oversubscription", "background")
"""Fields that say what messages take. A network may also say where GPUs are, or which."""

_MAX_LATEST = 64
"""Setups that are kept from one chunk of rows to the next."""


class SentBy(NamedTuple):
    """How collectives are sent, and whether jobs begin before the pass that they belong to ends."""

    algorithm: str
    protocol: str
    overlap: bool


class SharedSetups:
    """The setups of a grid's rows, which are those of `resolve`.

    Examples
    --------
    >>> from perfsim.planning.grid import axes_of
    >>> varied = axes_of({"method": "topk,dgc", "options.density": "0.001..0.01:log9"})
    >>> setups = SharedSetups(SweepGrid({"model": "resnet50", "gpus": 16}, varied), Session())
    >>> one, other = setups.of(3), setups.of(12)
    >>> one.method != other.method, one.cluster is other.cluster
    (True, True)
    """

    def __init__(self, grid: SweepGrid, session: Session) -> None:
        self.grid, self.session = grid, session
        names = [axis.field.partition(".")[0] for axis in grid.axes]
        # Axes by their place in the grid: free ones leave model, GPU and cluster as they are.
        self._free = free = [at for at, name in enumerate(names) if name in SCHEDULE_FIELDS]
        self._bound = [at for at in range(len(names)) if at not in free]
        # Options are checked by their method, each time.
        self._single = [(at, names[at]) for at in free if names[at] != "options"]
        self._same_jobs = [(at, name) for at, name in self._single if name in _SAME_JOBS]
        # Rows of one method follow each other, on one cluster after another: what they run and
        # read is in the processor's caches then, which saves a fifth of the time.
        follows = {"method": 0, "options": 1}
        others = [at for at in free if names[at] not in _SAME_JOBS]
        others.sort(key=lambda at: follows.get(names[at], 2))
        # Rows that differ in their network alone follow each other too.
        last = {"gpus": 1, **dict.fromkeys(_NETWORK, 2)}
        self._tasks = [*others, *sorted(self._bound, key=lambda at: last.get(names[at], 0))]
        self._not_network = [at for at, name in enumerate(names) if name not in _NETWORK]
        self._not_cluster = [at for at in self._not_network if names[at] != "gpus"]
        self._checked: dict[tuple[int, int], Any] = {}
        self._sent_by: dict[tuple[Any, ...], SentBy | None] = {}
        self._latest: dict[tuple[int, ...], Setup] = {}  # by bound axes
        # Of the latest row: its place on the free axes, what is asked there, and its setup.
        self._place: tuple[int, ...] | None = None
        self._values: dict[str, Any] | None = None
        self._last: Setup | None = None
        self._of: object = None  # the jobs of the session when the latest setups were made

    def by_jobs(self, rows: Iterable[int]) -> Iterator[list[int]]:
        """Yield rows in lists that differ in `_SAME_JOBS` alone, those alike in turn.

        The latest setups are forgotten before where the session has dropped what they are made of.
        """
        if self._of is not self.session.jobs or len(self._latest) > _MAX_LATEST:
            self._of, self._latest, self._place = self.session.jobs, {}, None

        def tasks(row: int) -> list[int]:
            indices = self.grid.indices(row)
            return [indices[at] for at in self._tasks]

        keyed = sorted([(tasks(row), row) for row in rows])
        for _, some in groupby(keyed, itemgetter(0)):
            yield [row for _, row in some]

    def of(self, row: int) -> Setup:
        """Return the setup of one row.

        Raises
        ------
        RequestError, DataError
            As `make_scenario` and `resolve`.
        """
        indices = self.grid.indices(row)
        bound = tuple([indices[at] for at in self._bound])
        place = tuple([indices[at] for at in self._free])
        if place != self._place:
            self._place, self._values, self._last = place, None, None
        like = self._latest.get(bound)
        setup = None if like is None else self._like(like, indices, row)
        if setup is None:
            scenario = self._checked_scenario(indices, self.grid.fields(row))
            setup = resolve(scenario, self.session)
        self._latest[bound] = self._last = setup
        return setup

    def _checked_scenario(self, indices: Sequence[int], fields: dict[str, Any]) -> Scenario:
        """Return the scenario of a row, and keep what its values are checked."""
        scenario = make_scenario(fields)
        for at, field in self._single:
            self._checked[at, indices[at]] = getattr(scenario, field)
        return scenario

    def _like(self, like: Setup, indices: Sequence[int], row: int) -> Setup | None:
        """Return a setup by one that differs in free fields; None where that does not do."""
        if self._values is None:
            self._values = self._known(self._single, indices)
            if self._values is None:
                return None
            self._values["options"] = self.grid.fields(row).get("options", {})
        try:
            scenario = with_checked(like.scenario, self._values)
            return resolve_like(scenario, like, self.session, self._last)
        except PerfsimError:  # the row by itself says why, in full
            return None

    def sent_by(self, like: Setup, row: int) -> SentBy | None:
        """Return how a row sends that differs in `_SAME_JOBS` alone from another's setup.

        None where it is not allowed there.
        """
        indices, asked = self.grid.indices(row), like.scenario
        # What else of a scenario says whether it is allowed.
        key = *[indices[at] for at, _ in self._same_jobs], asked.library, asked.overlap_slowdown > 1
        if key not in self._sent_by:
            self._sent_by[key] = self._check_sent_by(asked, row)
        return self._sent_by[key]

    def same_but_network(self, row: int, other: int, *, any_gpus: bool = False) -> bool:
        """Tell whether two rows differ in their network alone, or in their number of GPUs too."""
        one, two = self.grid.indices(row), self.grid.indices(other)
        others = self._not_cluster if any_gpus else self._not_network
        return all([one[at] == two[at] for at in others])

    def _check_sent_by(self, asked: Scenario, row: int) -> SentBy | None:
        """Return how a row sends; None where that is not allowed in a scenario that is asked."""
        indices = self.grid.indices(row)
        try:
            if self._known(self._same_jobs, indices) is None:
                self._checked_scenario(indices, self.grid.fields(row))
            values = self._known(self._same_jobs, indices) or {}
            with_checked(asked, values)
        except PerfsimError:
            return None
        return SentBy(*[values.get(field, getattr(asked, field)) for field in _SAME_JOBS])

    def _known(
        self, axes: Sequence[tuple[int, str]], indices: Sequence[int]
    ) -> dict[str, Any] | None:
        """Return a row's values of some axes by field; None where one was in no scenario yet."""
        places = [(at, indices[at]) for at, _ in axes]
        if not self._checked.keys() >= set(places):
            return None
        pairs = zip(axes, places, strict=True)
        return {field: self._checked[place] for (_, field), place in pairs}


class _Waiting(NamedTuple):
    """A row whose rounds wait to be run.

    Parameters
    ----------
    alone_s : an iteration on one GPU [s]
    """

    row: int
    setup: Setup
    alone_s: float
    rounds: list[RoundTimes]


class _Layouts(NamedTuple):
    """How the works of some rounds are laid out, and what tells these from other layouts."""

    rounds: list[WorkLayout]
    key: tuple[Any, ...]

    @classmethod
    def of(cls, rounds: list[WorkLayout]) -> _Layouts:
        """Return some layouts with their key: their graphs, and where works are in these."""
        return cls(rounds, tuple([(one.graph.order(), Identity(one.tasks)) for one in rounds]))


class _Fixed(NamedTuple):
    """The rounds of a row, whose jobs are the same whatever collectives take, and their layouts.

    ``any_shape`` says whether they are the same on clusters of any shape too.
    """

    row: int
    setup: Setup
    rounds: list[CostedGraph]
    layouts: _Layouts
    any_shape: bool


class SharedRows:
    """Predicts rows of a grid as ``predict()`` does, and makes what they share once.

    A row that cannot be predicted has only its reason.

    Examples
    --------
    >>> from perfsim.planning.grid import axes_of
    >>> grid = SweepGrid({"model": "resnet50", "gpus": 0}, axes_of({"method": "topk,dgc"}))
    >>> SharedRows(grid, Session()).columns([1])
    {1: (None, None, None, None, '`gpus`: 0 is not allowed: it must be 1 or more.')}
    """

    def __init__(self, grid: SweepGrid, session: Session) -> None:
        self.session, self.setups = session, SharedSetups(grid, session)
        self._found: dict[int, SweepRow] = {}
        self._waiting: dict[tuple[Any, ...], list[_Waiting]] = {}
        # How works are laid out with overlap by how they are without it, and the other way.
        self._turned: dict[tuple[Any, ...], _Layouts] = {}
        self._fixed: _Fixed | None = None  # of the latest row that was predicted by itself

    def columns(self, rows: Iterable[int]) -> dict[int, SweepRow]:
        """Return the columns of some rows."""
        self._found, self._waiting, self._turned, self._fixed = {}, {}, {}, None
        for setup, alike in [(self._setup(some[0]), some) for some in self.setups.by_jobs(rows)]:
            self._predict(setup, alike)
        for same in self._waiting.values():
            for one, iteration_s in zip(same, _means_s(same), strict=True):
                figures = row_figures(one.setup, one.rounds, iteration_s, one.alone_s)
                self._found[one.row] = *figures, ""
        return self._found

    def _setup(self, row: int) -> Setup | None:
        """Return the setup of a row; None where it has none, and then its reason is found."""
        try:
            return self.setups.of(row)
        except PerfsimError as error:
            self._found[row] = refused_row(error)
            return None

    def _predict(self, setup: Setup | None, rows: Sequence[int]) -> None:
        """Predict rows that differ in `_SAME_JOBS` alone; the setup is that of the first."""
        if setup is not None and len(rows) == 1 and self._predict_elsewhere(setup, rows[0]):
            return
        before: list[tuple[Setup, list[CostedGraph]]] = []
        while True:
            first, *left = rows
            if setup is not None:
                rounds = self._predict_first(setup, first)
                if rounds is not None:
                    for known in before:
                        self._learn_turned(*known, rounds, overlap=setup.scenario.overlap)
                    before.append((setup, rounds))
                    left = self._predict_alike(setup, rounds, left) if left else left
            if not left:
                return
            rows, setup = left, self._setup(left[0])

    def _predict_elsewhere(self, setup: Setup, row: int) -> bool:
        """Predict a row by the rounds of the latest one; False where it may have others."""
        fixed = self._fixed
        if fixed is None:
            return False
        any_shape = fixed.any_shape
        if not self.setups.same_but_network(row, fixed.row, any_gpus=any_shape):
            return False
        if not _same_but_costs(setup, fixed.setup, any_shape=any_shape):
            return False
        asked = setup.scenario
        works = _work_times(fixed.rounds, asked.algorithm, asked.protocol, setup.data_cluster)
        if works is None:
            return False
        self._wait(row, setup, fixed.layouts, works, setup.alone_s)
        return True

    def _wait(
        self, row: int, setup: Setup, layouts: _Layouts, works: list[WorkTimes], alone_s: float
    ) -> None:
        """Let a row wait to be run, whose works take these times."""
        times = [one.times(taken) for one, taken in zip(layouts.rounds, works, strict=True)]
        self._waiting.setdefault(layouts.key, []).append(_Waiting(row, setup, alone_s, times))

    def _predict_first(self, setup: Setup, row: int) -> list[CostedGraph] | None:
        """Predict one row; return its rounds where rows that send otherwise have its jobs."""
        self._fixed = None
        try:
            rounds = build_rounds(setup, self.session.jobs, timing_only=True)
            if not all(map(in_one_pass, rounds)):
                iteration_s = mean_s(rounds, [run(costed, brief=True) for costed in rounds])
                self._found[row] = *row_figures(setup, rounds, iteration_s, setup.alone_s), ""
                return None
        except PerfsimError as error:
            self._found[row] = refused_row(error)
            return None
        times = [costed.times for costed in rounds]
        layouts = _Layouts.of([one.layout for one in times])
        waiting = _Waiting(row, setup, setup.alone_s, times)
        self._waiting.setdefault(layouts.key, []).append(waiting)
        if not all(costed.fixed_jobs for costed in rounds):
            return None
        any_shape = all(costed.any_shape for costed in rounds)
        self._fixed = _Fixed(row, setup, rounds, layouts, any_shape)
        return rounds

    def _predict_alike(
        self, setup: Setup, rounds: Sequence[CostedGraph], rows: Iterable[int]
    ) -> list[int]:
        """Predict rows that have the jobs of some rounds, and return those left.

        Left are those that say by themselves why they have no prediction, and those whose overlap
        nobody asked for in rounds like these.
        """
        own, alone_s = setup.scenario.overlap, setup.alone_s
        layouts = {own: _Layouts.of([costed.layout for costed in rounds])}
        turned = self._turned.get(_turned_key(setup, rounds, overlap=not own))
        if turned is not None:
            layouts[not own] = turned
        works: dict[tuple[str, str], list[WorkTimes] | None] = {}
        left = []
        for row in rows:
            sent = self.setups.sent_by(setup, row)
            if sent is None or sent.overlap not in layouts:
                left.append(row)
                continue
            by = sent.algorithm, sent.protocol
            if by not in works:
                works[by] = _work_times(rounds, *by)
            taken = works[by]
            if taken is None:
                left.append(row)
                continue
            self._wait(row, setup, layouts[sent.overlap], taken, alone_s)
        return left

    def _learn_turned(
        self,
        setup: Setup,
        rounds: list[CostedGraph],
        others: list[CostedGraph],
        *,
        overlap: bool,
    ) -> None:
        """Keep how the works of rounds are laid out in others of the same jobs."""
        found = [_turned(*pair) for pair in zip(rounds, others, strict=True)]
        layouts = [one for one in found if one is not None]
        if len(layouts) == len(found):
            self._turned[_turned_key(setup, rounds, overlap=overlap)] = _Layouts.of(layouts)


def _same_but_costs(setup: Setup, other: Setup, *, any_shape: bool) -> bool:
    """Tell whether setups that differ in the cluster alone differ in what messages take alone.

    ``any_shape`` says whether nothing else depends on how many GPUs are on how many nodes.
    """
    cluster, its = setup.cluster, other.cluster
    if setup.transferred is not other.transferred or setup.device is not other.device:
        return False
    if cluster.wide is not None or its.wide is not None:
        return False
    if cluster.placement != its.placement:
        several = cluster.gpus > 1 and its.gpus > 1
        if not (any_shape and several and setup.hooks_s == other.hooks_s):
            return False
    # What GPUs of a node cost each other, and what messages take from computation beside them.
    loads = setup.node_load == other.node_load and setup.slowest_gpu == other.slowest_gpu
    return loads and not channels_beside(setup.device, cluster)


def _work_times(
    rounds: Sequence[CostedGraph], algorithm: str, protocol: str, cluster: Cluster | None = None
) -> list[WorkTimes] | None:
    """Return what the works of some rounds take; None where they cannot be sent so."""
    try:
        return [work_times(costed, algorithm, protocol, cluster) for costed in rounds]
    except PerfsimError:
        return None


def _turned_key(setup: Setup, rounds: Sequence[CostedGraph], *, overlap: bool) -> tuple[Any, ...]:
    """Return all that the layout of some rounds with another overlap depends on."""
    graphs = [(Identity(one.graph), Identity(one.kinds_of_work.tasks)) for one in rounds]
    # Messages slow computation under overlap alone, on some GPUs and links.
    slowed_by = Identity(setup.device), Identity(setup.data_cluster)
    return (*graphs, *slowed_by, setup.scenario.overlap_slowdown, overlap)


def _turned(costed: CostedGraph, other: CostedGraph) -> WorkLayout | None:
    """Return the layout of another round by a round's kinds of work; None if its kinds differ."""
    layout, (others, tasks, sent) = other.layout, other.kinds_of_work
    works = costed.kinds_of_work.works
    kinds = {likeness(work.stage): kind for kind, work in enumerate(works)}
    places = [kinds.get(likeness(work.stage), -1) for work in others]
    if sorted(places) != [*range(len(works))]:
        return None
    by_kind = [tasks[places.index(kind)] for kind in range(len(works))]
    return replace(layout, tasks=by_kind, sent=[places[kind] for kind in sent])


def _means_s(same: Sequence[_Waiting]) -> list[float]:
    """Return the mean iteration of rows whose rounds are laid out alike [s]."""
    each = [one.rounds for one in same]
    if len(same) >= _MIN_TOGETHER:
        return _together(each)
    from perfsim.simulate.array import simulate

    return [
        mean_s(rounds, [simulate(one.layout.graph, one.durations_s, brief=True) for one in rounds])
        for rounds in each
    ]


def _together(each: Sequence[Sequence[RoundTimes]]) -> list[float]:
    """Return the mean iterations of some rounds, run as arrays [s]."""
    import numpy as np

    from perfsim.simulate.settled import settled_periods

    total_s: Any = 0.0
    for alike in zip(*each, strict=True):
        layout = alike[0].layout
        if all(one.layout.graph is layout.graph for one in alike):
            tasks_s = layout.durations_s([*np.array([one.works_s for one in alike]).T])
        else:  # passes are cut at other moments
            tasks_s = [*np.array([one.durations_s for one in alike]).T]
        counts = np.array([one.count for one in alike])
        total_s = total_s + counts * settled_periods(layout.graph, tasks_s)
    iterations = np.array([sum_in_order([one.iterations for one in rounds]) for rounds in each])
    means: list[float] = (total_s / iterations).tolist()
    return means
