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
from perfsim.scenario import SCHEDULE_FIELDS, make_scenario, with_checked
from perfsim.schedule.costs import times_by
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import in_one_pass, mean_s, run
from perfsim.session import Session
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.schedule.costed_graph import RoundTimes
    from perfsim.simulate.graph import ServiceOrder

__all__ = ["SharedRows", "SharedSetups"]

_MIN_TOGETHER = 4
"""With fewer rows of one graph, arrays take longer than one run after the other."""

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
        # What more follows from stays longer: setups, then jobs, then tasks.
        follows = {"method": 0, "options": 1}
        others = [at for at in free if names[at] not in _PRICED_BY]
        others.sort(key=lambda at: follows.get(names[at], 2))
        self._tasks = [*self._bound, *others]
        self._checked: dict[tuple[int, int], Any] = {}
        self._agreed: set[tuple[str | None, tuple[str, str]]] = set()
        self._latest: tuple[list[int], Setup] | None = None

    def by_tasks(self, rows: Iterable[int]) -> Iterator[list[int]]:
        """Yield rows in lists that differ in algorithm and protocol alone, those alike in turn.

        The latest setup is forgotten before, as its files may have changed.
        """
        self._latest = None

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
        bound = [indices[at] for at in self._bound]
        fields = self.grid.fields(row)
        setup = None
        if self._latest is not None and self._latest[0] == bound:
            setup = self._like(self._latest[1], indices, fields)
        if setup is None:
            scenario = make_scenario(fields)
            for at, field in self._single:
                self._checked[at, indices[at]] = getattr(scenario, field)
            setup = resolve(scenario, self.session)
        self._latest = bound, setup
        return setup

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

        None where they have to be checked first.
        """
        values = self._known(self._priced_by, self.grid.indices(row))
        if values is None:
            return None
        asked = like.scenario
        asked_for = values.get("algorithm", asked.algorithm), values.get("protocol", asked.protocol)
        if (asked.library, asked_for) not in self._agreed:
            try:
                with_checked(asked, values)
            except PerfsimError:
                return None
            self._agreed.add((asked.library, asked_for))
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
        for alike in self.setups.by_tasks(rows):
            left = alike
            while left:
                done = self._predict(left)
                left = [row for row in left if row not in done]
        for same in self._waiting.values():
            for (row, setup, rounds), iteration_s in zip(same, _means_s(same), strict=True):
                self._found[row] = *row_figures(setup, rounds, iteration_s, setup.alone_s), ""
        return self._found

    def _predict(self, rows: Sequence[int]) -> set[int]:
        """Predict the first of some rows and those that share its tasks; return which these are.

        They differ in algorithm and protocol alone.
        """
        first, *others = rows
        try:
            setup = self.setups.of(first)
            rounds = build_rounds(setup, self.session.jobs, timing_only=True)
            if not all(map(in_one_pass, rounds)):
                iteration_s = mean_s(rounds, [run(costed, brief=True) for costed in rounds])
                self._found[first] = *row_figures(setup, rounds, iteration_s, setup.alone_s), ""
                return {first}
        except PerfsimError as error:
            self._found[first] = refused_row(error)
            return {first}
        made = [_Waiting(first, setup, [costed.times for costed in rounds])]
        if all(costed.fixed_jobs for costed in rounds):
            for row in others:
                asked = self.setups.algorithm_and_protocol(setup, row)
                try:
                    if asked is not None:
                        times = [times_by(costed, *asked) for costed in rounds]
                        made.append(_Waiting(row, setup, times))
                except PerfsimError:  # the row by itself says why
                    continue
        orders = tuple([costed.graph.order() for costed in rounds])
        self._waiting.setdefault(orders, []).extend(made)
        return {row for row, *_ in made}


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
