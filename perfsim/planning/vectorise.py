"""Predict many rows of a sweep in one pass, with arrays in place of numbers.

Rows may differ in the rate and latency of a link that the user gives (``net``, ``intra_net``), in
the iteration on one GPU (``single_gpu``) and in the slowdown of computation
(``overlap_slowdown``). The usual code runs once, on `BatchedFloat` numbers that hold the values of
all rows and compare as one of them does; a `BranchTrace` records for which rows every comparison
had the same answer. The result holds for these; the others take another pass, or go one by one.
What follows from one axis alone is worked out once for each of its values, not for each row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from perfsim.compute.transfer import pin_iteration
from perfsim.errors import PerfsimError
from perfsim.network.link import Latency, Link, custom_link
from perfsim.network.network_file import _LINK_CLASSES, Network
from perfsim.planning.grid import Axis, GridValue, SweepGrid
from perfsim.planning.rows import row_figures
from perfsim.quantity import TIME_LIMIT
from perfsim.resolve import Setup, resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import in_one_pass
from perfsim.session import Session, SessionWithNetworks
from perfsim.simulate.settled import settled_periods
from perfsim.sums import sum_in_order
from perfsim.units import parse_seconds

__all__ = ["BatchedFloat", "BranchTrace", "NotVectorisableError", "VectorisedRows"]

_LINK_FIELDS = ("net", "intra_net")

_MIN_BLOCK_ROWS = 8
"""With fewer rows, arrays cost more than they save."""

_MAX_PASSES = 8
"""Passes over one group of rows; what then has no result goes one by one."""

_MAX_BLOCK_ROWS = 16384
"""Rows of one pass: enough that its fixed cost hardly counts."""

_Operation = Callable[[Any, Any], Any]


class NotVectorisableError(TypeError):
    """An array cannot do what is asked of a number."""


class BranchTrace:
    """Records for which scenarios all comparisons so far had the same answer as for one of them.

    Parameters
    ----------
    count : scenarios
    shown : the scenario whose answers are taken

    Examples
    --------
    >>> trace = BranchTrace(3)
    >>> alpha = trace.number(np.array([1.0, 2.0, 3.0]))
    >>> max(4.0 - alpha, 1.5).at, trace.agreed().tolist()
    (3.0, [True, True, False])
    """

    def __init__(self, count: int, shown: int = 0) -> None:
        self.shown, self.closed = shown, False
        self._agree = np.ones(count, bool)
        self._keys: list[BatchedFloat] = []

    def number(self, values: Any, places: Any = None) -> BatchedFloat:
        """Return a number that has one value a scenario.

        With ``places`` it has fewer values than there are scenarios: they say which of them each
        scenario takes.
        """
        return BatchedFloat(self, values, places)

    def note(self, same: Any, places: Any = None) -> None:
        """Record for which scenarios a comparison had the same answer."""
        if not same.all():
            self._agree &= same if places is None else same[places]

    def key(self, number: BatchedFloat) -> None:
        """Record a number that was a key of a set or table, which may also have the key 0."""
        self.note((number.values == 0.0) == (number.at == 0.0), number.places)
        self._keys.append(number)

    def close(self) -> None:
        """End the pass: what is left of its numbers, as keys of a cache, equals nothing anymore."""
        self.closed = True

    def agreed(self) -> Any:
        """Return for which scenarios the pass holds: keys must differ there as they do here."""
        keys = sorted(self._keys, key=lambda number: number.at)
        for one, other in pairwise(keys):
            _ = one == other if one.at == other.at else one < other
        return self._agree


def _side_by_side(one: BatchedFloat, other: Any) -> tuple[Any, Any, Any]:
    """Return the values of two numbers that go together, and which of them each scenario takes."""
    if not isinstance(other, BatchedFloat):
        return one.values, float(other), one.places
    if one.places is other.places:
        return one.values, other.values, one.places
    return one.by_scenario, other.by_scenario, None


def _arithmetic(
    operation: _Operation, *, turned: bool = False
) -> Callable[[BatchedFloat, Any], Any]:
    def method(self: BatchedFloat, other: Any) -> Any:
        if not isinstance(other, _NUMBER_TYPES):
            return NotImplemented
        own, values, places = _side_by_side(self, other)
        pair = (values, own) if turned else (own, values)
        return BatchedFloat(self.trace, operation(*pair), places)

    return method


def _comparison(operation: _Operation) -> Callable[[BatchedFloat, Any], Any]:
    def method(self: BatchedFloat, other: Any) -> Any:
        if not isinstance(other, _NUMBER_TYPES):
            return NotImplemented
        at, trace = other, self.trace
        if isinstance(other, BatchedFloat):
            at, trace = other.at, other.trace
        if trace is not self.trace or trace.closed:
            if operation not in (operator.eq, operator.ne):
                raise NotVectorisableError("numbers of two passes are compared")
            return operation is operator.ne  # one of them is a key that a cache has kept
        answer = operation(self.at, at)
        own, values, places = _side_by_side(self, other)
        self.trace.note(operation(own, values) == answer, places)
        return np.bool_(answer)

    return method


class BatchedFloat:
    """The values of one number in many scenarios; ``at`` is the value in the one shown.

    There is one value for each scenario or, where ``places`` says which of them each scenario
    takes, one for each value of an axis.
    """

    __slots__ = ("at", "places", "trace", "values")
    __array_ufunc__ = None

    def __init__(self, trace: BranchTrace, values: Any, places: Any = None) -> None:
        self.trace, self.values, self.places = trace, values, places
        self.at = float(values[trace.shown if places is None else places[trace.shown]])

    @property
    def by_scenario(self) -> Any:
        """The value in each scenario."""
        return self.values if self.places is None else self.values[self.places]

    __add__ = _arithmetic(operator.add)
    __radd__ = _arithmetic(operator.add, turned=True)
    __sub__ = _arithmetic(operator.sub)
    __rsub__ = _arithmetic(operator.sub, turned=True)
    __mul__ = _arithmetic(operator.mul)
    __rmul__ = _arithmetic(operator.mul, turned=True)
    __truediv__ = _arithmetic(operator.truediv)
    __rtruediv__ = _arithmetic(operator.truediv, turned=True)
    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)
    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)

    def __neg__(self) -> BatchedFloat:
        """Return all values with the other sign."""
        return BatchedFloat(self.trace, -self.values, self.places)

    def __abs__(self) -> BatchedFloat:
        """Return all values without their signs."""
        return BatchedFloat(self.trace, np.abs(self.values), self.places)

    def __bool__(self) -> bool:
        """Say whether the value shown is not zero."""
        return bool(self != 0.0)

    def __hash__(self) -> int:
        """Return the hash of the value shown; the trace checks that keys differ alike."""
        self.trace.key(self)
        return hash(self.at)

    def __format__(self, spec: str) -> str:
        """Write the value shown."""
        return format(self.at, spec)

    def __float__(self) -> NoReturn:
        """Refuse: there are many values."""
        raise NotVectorisableError("a float is asked for")

    __int__ = __index__ = __ceil__ = __floor__ = __trunc__ = __float__

    def __round__(self, digits: int | None = None) -> NoReturn:
        """Refuse: there are many values."""
        raise NotVectorisableError("a rounded number is asked for")


_NUMBER_TYPES = (BatchedFloat, float, int, np.floating)


@dataclass
class _Numbers:
    """An axis as numbers: ``table`` has a row for each value, NaN where that is no number."""

    axis: Axis
    table: Any

    @property
    def known(self) -> Any:
        return ~np.isnan(self.table[:, 0])


class VectorisedRows:
    """Predicts rows of a grid together if they differ in numbers only."""

    def __init__(self, grid: SweepGrid, session: Session) -> None:
        self.grid, self.session = grid, session
        self.shape = tuple(len(axis.values) for axis in grid.axes)
        self.numbers = [_numbers(axis) for axis in grid.axes]

    @property
    def any(self) -> bool:
        """Whether any axis has numbers that arrays can follow."""
        return any(one is not None and one.known.sum() >= 2 for one in self.numbers)

    def columns(self, start: int, stop: int) -> Iterator[tuple[Any, list[Any]]]:
        """Yield row numbers and the figures of these rows, as arrays; the others go one by one."""
        if not self.any:
            return
        rows = np.arange(start, stop)
        indices = np.array(np.unravel_index(rows, self.shape))
        keys = indices.copy()
        for key, numbers in zip(keys, self.numbers, strict=True):
            if numbers is not None:  # rows that differ in numbers only get the key of one of them
                key[numbers.known[key]] = numbers.known.argmax()
        group = np.ravel_multi_index(tuple(keys), self.shape)
        order = np.argsort(group, kind="stable")
        edges = np.flatnonzero(np.diff(group[order])) + 1
        for members in np.split(order, edges):
            active = [
                index
                for index, numbers in enumerate(self.numbers)
                if numbers is not None and numbers.known[indices[index, members[0]]]
            ]
            if active:
                for first in range(0, len(members), _MAX_BLOCK_ROWS):
                    block = members[first : first + _MAX_BLOCK_ROWS]
                    yield from self._block(rows[block], indices[:, block], active)

    def _block(self, rows: Any, indices: Any, active: list[int]) -> Iterator[tuple[Any, list[Any]]]:
        left = np.ones(len(rows), bool)
        for _ in range(_MAX_PASSES):
            at = np.flatnonzero(left)
            if len(at) < _MIN_BLOCK_ROWS:
                return
            agreed, columns = self._pass(rows[at], indices[:, at], active)
            if columns is None:
                return
            yield rows[at[agreed]], [_picked(column, agreed) for column in columns]
            left[at[agreed]] = False

    def _pass(self, rows: Any, indices: Any, active: list[int]) -> tuple[Any, list[Any] | None]:
        """Return for which rows a pass holds, and the figures of all; None if it fails."""
        shown = len(rows) // 2
        trace = BranchTrace(len(rows), shown)
        tables: dict[str, Any] = {}
        for index in active:
            numbers = self.numbers[index]
            assert numbers is not None
            taken, places = _distinct(indices[index], len(numbers.table))
            columns = numbers.table[taken].T
            tables[numbers.axis.field] = [trace.number(column, places) for column in columns]
        try:
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                columns = self._figures(self.grid.fields(int(rows[shown])), tables)
                agreed = trace.agreed()
        except (
            NotVectorisableError,
            TypeError,
            FloatingPointError,
            ZeroDivisionError,
            PerfsimError,
        ):
            return None, None
        finally:
            trace.close()
        return agreed, columns

    def _figures(self, fields: dict[str, Any], tables: dict[str, Any]) -> list[Any]:
        scenario = make_scenario(fields)
        if "overlap_slowdown" in tables and not scenario.overlap:
            raise NotVectorisableError("a slowdown needs overlap")
        networks = {
            (name, fields[name]): _network(fields[name], *tables[name])
            for name in _LINK_FIELDS
            if name in tables
        }
        session = SessionWithNetworks(self.session, lambda *asked: networks.get(asked))
        own = scenario.single_gpu if "single_gpu" in tables else None
        asked = scenario if own is None else scenario.model_copy(update={"single_gpu": None})
        setup = resolve(asked, session)
        if own is not None:
            setup = _pinned(setup, own, *tables["single_gpu"])
        if "overlap_slowdown" in tables:
            (slowdown,) = tables["overlap_slowdown"]
            setup = _asked(setup, overlap_slowdown=slowdown)
        return _evaluated(setup)


def _distinct(indices: Any, count: int) -> tuple[Any, Any]:
    """Return which of ``count`` values are taken, and where each index finds its own among these.

    Where no two indices are the same, these are as they come, and there is nothing to find.
    """
    is_taken = np.zeros(count, bool)
    is_taken[indices] = True
    taken = np.flatnonzero(is_taken)
    if len(taken) == len(indices):
        return indices, None
    return taken, (np.cumsum(is_taken) - 1)[indices]


def _pinned(setup: Setup, shown: str, seconds: Any) -> Setup:
    """Return the setup with many times of its own on one GPU, of which one is shown."""
    if setup.split is not None:
        raise NotVectorisableError("a model is divided by its layers' times")
    transferred, ssgd = pin_iteration(setup.transferred, seconds), setup.ssgd
    if ssgd is not None:
        ssgd = ssgd._replace(transferred=pin_iteration(ssgd.transferred, seconds))
    return replace(_asked(setup, single_gpu=shown), transferred=transferred, ssgd=ssgd)


def _asked(setup: Setup, **fields: Any) -> Setup:
    return replace(setup, scenario=setup.scenario.model_copy(update=fields))


def _evaluated(setup: Setup) -> list[Any]:
    plans = build_rounds(setup, timing_only=True)
    total_s: Any = 0
    for plan in plans:
        if not in_one_pass(plan):
            raise NotVectorisableError("a run takes more than one pass")
        durations = [_values(task.duration_s) for task in plan.graph.tasks]
        total_s = total_s + plan.count * settled_periods(plan.graph, durations)
    iteration_s = total_s / sum_in_order(plan.iterations for plan in plans)
    return row_figures(setup, plans, iteration_s, _values(setup.alone_s))


def _values(number: Any) -> Any:
    return number.by_scenario if isinstance(number, BatchedFloat) else number


def _picked(column: Any, agreed: Any) -> Any:
    return np.broadcast_to(column, agreed.shape)[agreed]


def _network(text: str, rate: Any, alpha_s: Any) -> Network:
    """Return the network of a user's own link with many rates and latencies."""
    link = custom_link(text, "net")
    speed = link.rate._replace(value=rate)
    latency = Latency.constant(link.rate._replace(value=alpha_s, unit="s/hop"))
    many = Link(text, speed, speed, link.gamma, latency, latency)
    return Network(
        text, text, "custom", None, 1, {link_class: many for link_class in _LINK_CLASSES}
    )


@lru_cache(maxsize=8)
def _numbers(axis: Axis) -> _Numbers | None:
    """Return an axis as numbers; None if its field cannot be vectorised."""
    read = _READERS.get(axis.field)
    if read is None:
        return None
    rows = [_read(read, value) for value in axis.values]
    width = max(len(row) for row in rows)
    table = np.full((len(rows), width), np.nan)
    for index, row in enumerate(rows):
        if row:
            table[index] = row
    return _Numbers(axis, table) if width else None


def _read(read: Callable[[Any], tuple[float, ...]], value: GridValue) -> tuple[float, ...]:
    try:
        return read(value)
    except (PerfsimError, ValueError, TypeError, AttributeError):
        return ()


def _link(value: Any) -> tuple[float, ...]:
    """Return rate and latency; both are cached, as a grid combines few of each."""
    rate, latency = value.split(",")
    return _rate(rate), _latency(latency)


@lru_cache(maxsize=4096)
def _rate(text: str) -> float:
    return custom_link(f"{text},1us", "net").rate.value


@lru_cache(maxsize=4096)
def _latency(text: str) -> float:
    return custom_link(f"1GB/s,{text}", "net").ring.alpha_s[0]


def _iteration(value: Any) -> tuple[float, ...]:
    """Return the seconds; a rate in samples/s depends on the batch, so it is not read here."""
    seconds = parse_seconds(value)
    return (seconds,) if TIME_LIMIT.holds(seconds) else ()


def _factor(value: Any) -> tuple[float, ...]:
    factor = float(value)
    return (factor,) if 1.0 <= factor <= 10.0 and not isinstance(value, bool) else ()


_READERS: dict[str, Callable[[Any], tuple[float, ...]]] = {
    "net": _link,
    "intra_net": _link,
    "single_gpu": _iteration,
    "overlap_slowdown": _factor,
}
"""What reads a value of each field as numbers; others cannot be vectorised."""
