"""Predict rows of a sweep that share a setup, jobs or a task graph, each of which is made once.

- Rows of one model, GPU and cluster share their setup: where a row differs from one before it in
  its method, options and schedule alone, only these are made anew, and of the fields only what
  depends on several is checked again.
- Rows that differ in algorithm and protocol alone share their tasks, which are priced anew.
- Rows of one task graph run together, as arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.errors import PerfsimError
from perfsim.planning.grid import SweepGrid
from perfsim.planning.rows import SweepRow, refused_row, row_figures
from perfsim.resolve import Setup, resolve, resolve_like
from perfsim.scenario import SCHEDULE_FIELDS, Scenario, make_scenario, with_checked
from perfsim.schedule.costs import times_by
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import in_one_pass, mean_s, run
from perfsim.session import Session
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.schedule.costed_graph import CostedGraph, RoundTimes
    from perfsim.simulate.graph import ServiceOrder

__all__ = ["SharedRows", "SharedSetups"]

_MIN_TOGETHER = 12
"""With fewer rows of one graph, arrays take longer than one run after the other: with fewer than 5
of 10 tasks, 10 of 86 and 16 of 325 (measured on one core of an AMD EPYC)."""

_PRICED_BY = ("algorithm", "protocol")
"""Fields that say how collectives are sent, and nothing else."""


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
        free = [at for at, name in enumerate(names) if name in SCHEDULE_FIELDS]
        self._bound = [at for at in range(len(names)) if at not in free]
        # Options are checked by their method, each time.
        self._single = [(at, names[at]) for at in free if names[at] != "options"]
        self._priced_by = [(at, name) for at, name in self._single if name in _PRICED_BY]
        # Rows of one method follow each other, on one cluster after another: what they run and
        # read is in the processor's caches then, which saves a fifth of the time.
        follows = {"method": 0, "options": 1}
        others = [at for at in free if names[at] not in _PRICED_BY]
        others.sort(key=lambda at: follows.get(names[at], 2))
        self._tasks = [*others, *self._bound]
        self._checked: dict[tuple[int, int], Any] = {}
        self._agreed: set[tuple[str | None, tuple[str, str]]] = set()
        self._latest: dict[tuple[int, ...], Setup] = {}  # by bound axes

    def by_tasks(self, rows: Iterable[int]) -> Iterator[list[int]]:
        """Yield rows in lists that differ in algorithm and protocol alone, those alike in turn.

        The latest setups are forgotten before, as their files may have changed.
        """
        self._latest = {}

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
        fields = self.grid.fields(row)
        like = self._latest.get(bound)
        setup = None if like is None else self._like(like, indices, fields)
        if setup is None:
            setup = resolve(self._checked_scenario(indices, fields), self.session)
        self._latest[bound] = setup
        return setup

    def _checked_scenario(self, indices: Sequence[int], fields: dict[str, Any]) -> Scenario:
        """Return the scenario of a row, and keep what its values are checked."""
        scenario = make_scenario(fields)
        for at, field in self._single:
            self._checked[at, indices[at]] = getattr(scenario, field)
        return scenario

    def _like(self, like: Setup, indices: Sequence[int], fields: dict[str, Any]) -> Setup | None:
        """Return a setup by one that differs in free fields; None where that does not do."""
        values = self._known(self._single, indices)
        if values is None:
            return None
        values["options"] = fields.get("options", {})
        try:
            return resolve_like(with_checked(like.scenario, values), like, self.session)
        except PerfsimError:  # the row by itself says why, in full
            return None

    def algorithm_and_protocol(self, like: Setup, row: int) -> tuple[str, str] | None:
        """Return algorithm and protocol of a row that differs in nothing else from another's setup.

        None where they are not allowed there.
        """
        indices, asked = self.grid.indices(row), like.scenario
        try:
            if self._known(self._priced_by, indices) is None:
                self._checked_scenario(indices, self.grid.fields(row))
            values = self._known(self._priced_by, indices) or {}
            algorithm = values.get("algorithm", asked.algorithm)
            asked_for = algorithm, values.get("protocol", asked.protocol)
            if (asked.library, asked_for) not in self._agreed:
                with_checked(asked, values)
                self._agreed.add((asked.library, asked_for))
        except PerfsimError:
            return None
        return asked_for

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
    """A row whose rounds wait to be run."""

    row: int
    setup: Setup
    rounds: list[RoundTimes]


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
        self._waiting: dict[tuple[ServiceOrder, ...], list[_Waiting]] = {}

    def columns(self, rows: Iterable[int]) -> dict[int, SweepRow]:
        """Return the columns of some rows."""
        self._found, self._waiting = {}, {}
        left = [*self.setups.by_tasks(rows)]
        while left:
            resolved = [(self._setup(alike[0]), alike) for alike in left]
            left = [
                rest
                for setup, alike in resolved
                if (rest := self._predict(setup, alike) if setup else alike[1:])
            ]
        for same in self._waiting.values():
            for (row, setup, rounds), iteration_s in zip(same, _means_s(same), strict=True):
                self._found[row] = *row_figures(setup, rounds, iteration_s, setup.alone_s), ""
        return self._found

    def _setup(self, row: int) -> Setup | None:
        """Return the setup of a row; None where it has none, and then its reason is found."""
        try:
            return self.setups.of(row)
        except PerfsimError as error:
            self._found[row] = refused_row(error)
            return None

    def _predict(self, setup: Setup, rows: Sequence[int]) -> list[int]:
        """Predict the first of some rows and those that share its tasks; return those left.

        They differ in algorithm and protocol alone, and the setup is that of the first.
        """
        first, *others = rows
        try:
            rounds = build_rounds(setup, self.session.jobs, timing_only=True)
            if not all(map(in_one_pass, rounds)):
                iteration_s = mean_s(rounds, [run(costed, brief=True) for costed in rounds])
                self._found[first] = *row_figures(setup, rounds, iteration_s, setup.alone_s), ""
                return others
        except PerfsimError as error:
            self._found[first] = refused_row(error)
            return others
        made = [_Waiting(first, setup, [costed.times for costed in rounds])]
        left = others
        if all(costed.fixed_jobs for costed in rounds):
            left = []
            for row in others:
                times = self._times_by(setup, rounds, row)
                if times is None:
                    left.append(row)
                else:
                    made.append(_Waiting(row, setup, times))
        orders = tuple([costed.graph.order() for costed in rounds])
        self._waiting.setdefault(orders, []).extend(made)
        return left

    def _times_by(
        self, setup: Setup, rounds: Sequence[CostedGraph], row: int
    ) -> list[RoundTimes] | None:
        """Return the times of a row that shares the tasks of some rounds.

        None where the row by itself says why it has none.
        """
        asked = self.setups.algorithm_and_protocol(setup, row)
        try:
            return None if asked is None else [times_by(costed, *asked) for costed in rounds]
        except PerfsimError:
            return None


def _means_s(same: Sequence[_Waiting]) -> list[float]:
    """Return the mean iteration of rows whose rounds have the same graphs [s]."""
    each = [rounds for *_, rounds in same]
    if len(same) >= _MIN_TOGETHER:
        return _together(each)
    from perfsim.simulate.array import simulate

    return [
        mean_s(rounds, [simulate(one.graph, one.durations_s, brief=True) for one in rounds])
        for rounds in each
    ]


def _together(each: Sequence[Sequence[RoundTimes]]) -> list[float]:
    """Return the mean iterations of some rounds, run as arrays [s]."""
    import numpy as np

    from perfsim.simulate.settled import settled_periods

    total_s: Any = 0.0
    for alike in zip(*each, strict=True):
        tasks_s = np.array([one.durations_s for one in alike]).T
        counts = np.array([one.count for one in alike])
        total_s = total_s + counts * settled_periods(alike[0].graph, [*tasks_s])
    iterations = np.array([sum_in_order(one.iterations for one in rounds) for rounds in each])
    means: list[float] = (total_s / iterations).tolist()
    return means
