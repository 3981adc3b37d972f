"""sweep(): predict every row of a grid, in order, in this process or on a Dask cluster."""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perfsim import __version__
from perfsim.data.catalog import FILE_SUFFIXES, RECORDS, Catalog, read_elsewhere
from perfsim.data.files import Stamp, as_written, noting, stamp
from perfsim.data.journal import Journal
from perfsim.display import Displayed
from perfsim.errors import DataError, MissingFileError, PerfsimError, RequestError, spelled
from perfsim.planning.axis_values import check_values, rows_tried
from perfsim.planning.grid import MAX_GRID_ROWS, Axis, SweepGrid, axes_of, sweep_grid
from perfsim.planning.kept_rows import KeptRows
from perfsim.planning.rows import (
    FULL_SWEEP_COLUMNS,
    SWEEP_COLUMNS,
    PredictionObject,
    SweepRow,
    flat_row,
    timing_only_object,
    whole_object,
)
from perfsim.planning.shared_rows import SharedRows
from perfsim.planning.sweep_journal import journal_rows
from perfsim.resolve import resolve
from perfsim.scenario import Scenario, as_scenario, given_fields, make_scenario
from perfsim.session import Session
from perfsim.units import format_seconds

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from perfsim.planning.vectorise import VectorisedRows

__all__ = [
    "SWEEP_JOURNAL_SCHEMA",
    "SWEEP_SCHEMA",
    "Chunk",
    "Engine",
    "Sweep",
    "SweepResult",
    "SweepRows",
    "SweepTable",
    "collecting_seldom",
    "finished",
    "journal_of",
    "most_of",
    "resumed",
    "serial",
    "shortest_of",
    "sweep",
]

SWEEP_SCHEMA = "perfsim/sweep/1"

SWEEP_JOURNAL_SCHEMA = "perfsim/sweep-journal/1"

MAX_OBJECTS = 100_000
"""Rows that are kept as objects; each takes about 5 kB of memory."""

_MAX_VECTOR_CHUNK = 16384
"""Rows of a chunk where arrays predict many at once."""

MAX_SINGLE_CHUNK = 512
"""Rows of a chunk where each is predicted by itself: about a quarter of a second's work."""

MAX_WHOLE_CHUNK = 32
"""The same of objects and of whole predictions, which take longer."""

_MAX_ROWS_READ = 10_000
"""Rows of a table up to which its one line names the shortest iteration."""

_MAX_VALUES_NAMED = 8
"""Values of a field that a refusal names."""

_FILE_ENDINGS = (".csv", ".json", ".toml", ".graphml")
"""Of values that name files: the rows depend on what these hold."""

Chunk = tuple[int, int]
"""Rows from the first number up to the second."""

ReportRows = Callable[[int], None]
"""Called with how many rows there are now."""


@dataclass(frozen=True)
class Sweep:
    """The question of a sweep: its grid, the user's profiles, and what its rows hold.

    Parameters
    ----------
    grid : the scenarios
    profiles : a folder of the user's data files
    full : rows are whole predictions, with interval, breakdown and bottleneck
    objects : rows are kept as prediction objects, for JSON, rather than as columns

    Raises
    ------
    RequestError
        If there are more rows than are kept as objects.
    """

    grid: SweepGrid
    profiles: str | None = None
    full: bool = False
    objects: bool = False

    def __post_init__(self) -> None:
        """Refuse more objects than fit into memory."""
        count = len(self.grid)
        if self.objects and count > MAX_OBJECTS:
            raise RequestError(
                "vary",
                f"{count:,} rows; at most {MAX_OBJECTS:,} as JSON objects, and"
                f" {MAX_GRID_ROWS:,} as CSV or Parquet. Give fewer values, or `out` FILE.csv.",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns: the fields that vary, then what is predicted, with units."""
        fields = (axis.field for axis in self.grid.axes)
        return (*fields, *(FULL_SWEEP_COLUMNS if self.full else SWEEP_COLUMNS))

    def chunks(self, start: int = 0) -> list[Chunk]:
        """Return the rows from ``start`` on in chunks, each of which is predicted as a whole."""
        from perfsim.planning.vectorise import VectorisedRows

        together = (
            not (self.full or self.objects)
            and VectorisedRows(self.grid, Session(self.profiles)).any
        )
        alone = MAX_WHOLE_CHUNK if self.full or self.objects else MAX_SINGLE_CHUNK
        size, count = _MAX_VECTOR_CHUNK if together else alone, len(self.grid)
        return [(first, min(first + size, count)) for first in range(start, count, size)]

    def digest(self) -> str:
        """Return a hash of what the rows depend on: grid, version and data files."""
        axes = [[axis.field, list(axis.values)] for axis in self.grid.axes]
        rows = [self.full, self.objects]
        question = [__version__, dict(self.grid.base), axes, list(self.grid.own), rows]
        files = [
            [path.name, path.stat().st_size, path.stat().st_mtime_ns]
            for folder in Catalog(self.profiles).folders
            for kind in sorted({*FILE_SUFFIXES, *RECORDS})
            for path in sorted((folder / kind).glob("*"))
        ]
        files += [[path, *(state or ())] for path, state in sorted(self._named_files().items())]
        text = json.dumps([question, files], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _named_files(self) -> dict[str, Stamp]:
        """Return the files that values name, and those that are read with them, as they are now."""
        axes, fixed = self.grid.axes, [*_file_names(self.grid.base.values())]
        varied = {
            (axis.field, value): names
            for axis in axes
            for value in axis.values
            if (names := [*_file_names([value])])
        }
        first = [(axes[0].field, axes[0].values[0])] if fixed else []
        files = {name: stamp(name) for name in [*fixed, *chain(*varied.values())]}
        session = Session(self.profiles)
        with noting(files):
            for field, value in [*first, *varied]:
                for row in rows_tried(self.grid, field, value):
                    with suppress(PerfsimError):
                        resolve(make_scenario(row), session)
        return files


def _file_names(values: Iterable[Any]) -> Iterator[str]:
    """Yield the texts among some values, and in their lists, that name files."""
    for value in values:
        if isinstance(value, str):
            if Path(value).suffix in _FILE_ENDINGS:
                yield value
        elif isinstance(value, list | tuple):
            yield from _file_names(value)


class SweepRows:
    """Predicts chunks of a sweep; what they share is computed once.

    Examples
    --------
    >>> grid = SweepGrid({"model": "resnet50", "gpus": 16}, axes_of({"net": "10gbe,1gbe,10Tbe"}))
    >>> [row[-1][:20] for row in SweepRows(Sweep(grid)).chunk(0, 3)]
    ['', '', "`net`: no '10Tbe'; a"]
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.session = sweep, Session(sweep.profiles)
        self._shared = SharedRows(sweep.grid, self.session)
        self._vectorised: VectorisedRows | None = None

    def chunk(self, start: int, stop: int) -> list[Any]:
        """Return rows ``start`` to ``stop``, in order: their predicted columns, or objects."""
        self.session.refresh()
        sweep = self.sweep
        if not (sweep.full or sweep.objects):
            return self._columns(start, stop)
        made = self.objects(range(start, stop))
        return list(made) if sweep.objects else [flat_row(one, FULL_SWEEP_COLUMNS) for one in made]

    def objects(self, rows: Iterable[int]) -> Iterator[PredictionObject]:
        """Yield rows as prediction objects."""
        make = whole_object if self.sweep.full else timing_only_object
        return (make(self.sweep.grid.fields(row), self.session) for row in rows)

    def _columns(self, start: int, stop: int) -> list[SweepRow]:
        predicted: dict[int, SweepRow] = {}
        for rows, columns in self.vectorised.columns(start, stop):
            reasons = [""] * len(rows)
            made = zip(*(column.tolist() for column in columns), reasons, strict=True)
            for row, figures in zip(rows.tolist(), made, strict=True):
                predicted[row] = figures
        missing = [row for row in range(start, stop) if row not in predicted]
        predicted |= self._shared.columns(missing)
        return [predicted[row] for row in range(start, stop)]

    @property
    def vectorised(self) -> VectorisedRows:
        """What predicts rows together that differ in numbers only."""
        from perfsim.planning.vectorise import VectorisedRows

        if self._vectorised is None:
            self._vectorised = VectorisedRows(self.sweep.grid, self.session)
        return self._vectorised


Engine = Callable[[Sweep, list[Chunk]], Iterator[list[Any]]]
"""A function that predicts chunks and yields their rows, in order."""


def serial(sweep: Sweep, chunks: Iterable[Chunk]) -> Iterator[list[Any]]:
    """Predict one chunk after another in this process."""
    with collecting_seldom():
        rows = SweepRows(sweep)
        for start, stop in chunks:
            yield rows.chunk(start, stop)
        del rows  # else Python looks through all that it keeps, as soon as it looks often again


_COLLECTS_AFTER = 500_000
"""New objects after which Python looks for garbage in a sweep, which leaves hardly any; by itself
it looks after 700, and takes a fifth of the time of rows whose structures differ. To look through
200,000 takes as long as to predict 200 such rows. No source: chosen; they take some 50 MB."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Let Python look for garbage seldom, unless it does so more seldom already, or never."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], _COLLECTS_AFTER), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class SweepResult(NamedTuple):
    """One row of a sweep as a report reads it: the values that vary, and what they lead to.

    The figures are NaN where a ``reason`` says why there is no prediction. Interval and memory are
    those of whole predictions, NaN in others; there ``fits`` says whether the GPU has the memory.
    """

    values: Mapping[str, Any]
    iteration_s: float = nan
    iteration_s_low: float = nan
    iteration_s_high: float = nan
    samples_per_s: float = nan
    scaling_efficiency: float = nan
    sent_bytes_per_gpu: float = nan
    memory_bytes: float = nan
    fits: bool = True
    reason: str = ""

    @property
    def texts(self) -> dict[str, str]:
        """The values that vary, as files and flags write them."""
        return {field: as_written(value) for field, value in self.values.items()}

    @property
    def words(self) -> str:
        """The values that vary, in words."""
        return ", ".join(f"{field} {text}" for field, text in self.texts.items())


def shortest_of(results: Iterable[SweepResult]) -> SweepResult | None:
    """Return the row with the shortest iteration of those that fit, of all if none fits."""
    return min(_fitting(results), key=lambda result: result.iteration_s, default=None)


def most_of(results: Iterable[SweepResult]) -> SweepResult | None:
    """Return the row with the most samples a second of those that fit, of all if none fits."""
    return max(_fitting(results), key=lambda result: result.samples_per_s, default=None)


def _fitting(results: Iterable[SweepResult]) -> list[SweepResult]:
    """Return the rows with a prediction that fit into memory; all of them if none fits."""
    done = [result for result in results if not result.reason]
    return [result for result in done if result.fits] or done


@dataclass(frozen=True, repr=False)
class SweepTable(Displayed):
    """A sweep's rows in the order of its grid: the predicted columns of each, or its object."""

    sweep: Sweep
    rows: Sequence[Any]

    def __repr__(self) -> str:
        """Return the question and, of tables that are read in a moment, the best row."""
        count, best = len(self), ""
        if count <= _MAX_ROWS_READ:
            lost = sum(map(bool, map(self._reason, self.rows)))
            first = shortest_of(self.results())
            best = f", {lost} without a prediction" if lost else ""
            if first is not None:
                best += f"; shortest {format_seconds(first.iteration_s)} with {first.words}"
        return f"<SweepTable {self.question}: {count:,} row{'s' * (count != 1)}{best}>"

    @property
    def question(self) -> str:
        """The model and the fields that vary."""
        grid = self.sweep.grid
        model = grid.base.get("model", "a scenario")
        return f"{model} over {', '.join(axis.field for axis in grid.axes)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.sweep.columns

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.rows)

    def lines(self) -> Iterator[list[Any]]:
        """Yield each row: the values that vary, then its predicted columns."""
        names = FULL_SWEEP_COLUMNS if self.sweep.full else SWEEP_COLUMNS
        for index, row in enumerate(self.rows):
            *columns, reason = flat_row(row, names) if self.sweep.objects else row
            yield [*self.sweep.grid.values(index), *columns, spelled(reason)]

    def results(self) -> Iterator[SweepResult]:
        """Yield each row as an object."""
        count = len(self.sweep.grid.axes)
        figures = {
            name: place
            for place, name in enumerate(self.columns)
            if place >= count and name in SweepResult._fields
        }
        for line in self.lines():
            values = dict(zip(self.columns[:count], line, strict=False))
            if line[-1]:
                yield SweepResult(values, reason=line[-1])
            else:
                yield SweepResult(values, **{name: line[place] for name, place in figures.items()})

    def memory(self, row: int) -> tuple[float, bool]:
        """Return the bytes that one GPU holds in a row, and whether it has the memory.

        The row is predicted whole, and has a prediction.
        """
        (made,) = SweepRows(replace(self.sweep, full=True)).objects([row])
        held_bytes, fits = flat_row(made, ("memory_bytes", "fits"))
        return float(held_bytes or 0.0), bool(fits)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield each row by column."""
        for line in self.lines():
            yield dict(zip(self.columns, line, strict=True))

    def objects(self) -> Iterator[PredictionObject]:
        """Yield each row as a prediction object, or as a scenario and an ``error``.

        Rows that were kept as columns are predicted again, one by one.
        """
        rows: Iterable[PredictionObject] = self.rows
        if not self.sweep.objects:
            rows = SweepRows(self.sweep).objects(range(len(self.rows)))
        for row in rows:
            yield {**row, "error": spelled(row["error"])} if "error" in row else row

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data, by the contract perfsim/sweep/1.

        ``rows`` are prediction objects without provenance: all keys of perfsim/prediction/1 where
        the sweep is ``full``, else without ``iteration_s_interval``, ``bottleneck`` and ``notes``.
        """
        grid = self.sweep.grid
        return {
            "schema": SWEEP_SCHEMA,
            "scenario": dict(grid.base),
            "vary": {axis.field: list(axis.values) for axis in grid.axes},
            "rows": list(self.objects()),
        }

    def to_pandas(self) -> pandas.DataFrame:
        """Return the columns as a pandas table; numbers, true and false among the values are such.

        A row for each combination: the values that vary, then ``iteration_s`` and the others of
        ``columns``; rows without a prediction have no figures, and say why in ``reason``.

        Raises
        ------
        PerfsimError
            If pandas is not installed.
        """
        from perfsim.data.tables import as_typed, to_frame

        frame = to_frame(list(self.records()))
        for axis in self.sweep.grid.axes:
            frame[axis.field] = as_typed(list(frame[axis.field]))
        return frame

    def plot(
        self,
        kind: Literal["throughput", "iteration", "efficiency", "speedup"] = "throughput",
        over: str = "",
    ) -> Figure:
        """Draw a column of the rows with Plotly, a line for each combination of the other fields.

        Beside the lines stand what there would be without loss, and 90 % intervals where the sweep
        is ``full``.

        Parameters
        ----------
        kind : "throughput": samples a second; "iteration": its time (s, ms or us);
            "efficiency": of scaling, in per cent; "speedup": over S-SGD (``full`` sweeps have it)
        over : the field along the horizontal axis; "": ``gpus`` if it varies, else the field of
            numbers with most values

        Raises
        ------
        RequestError
            If Plotly is not installed, the rows have no such column, or the field does not vary.

        Examples
        --------
        >>> from perfsim import sweep
        >>> table = sweep({"model": "resnet50", "net": "10gbe"}, {"gpus": "8..32"})
        >>> [line.name for line in table.plot().data]
        ['throughput', 'ideal']
        """
        return self._plotted(kind, over)

    def refusal(self) -> str:
        """Say why no row could be predicted; '' where at least one was."""
        if not all(map(self._reason, self.rows)):
            return ""
        reasons = list(map(self._reason, self.rows))
        first, count = reasons[0], len(set(reasons))
        return (
            first
            if count == 1
            else f"none of {len(reasons):,} rows can be predicted; the first: {first}"
        )

    def refusal_error(self) -> PerfsimError | None:
        """Return the error where no row could be predicted: that of a file, if the first is one."""
        why = self.refusal()
        if not why:
            return None
        try:
            resolve(make_scenario(self.sweep.grid.fields(0)), Session(self.sweep.profiles))
        except DataError:
            return DataError(why)
        except MissingFileError:
            return MissingFileError("", why)
        except PerfsimError:
            pass
        return RequestError("", why)

    def _reason(self, row: Any) -> str:
        reason: str = row.get("error", "") if self.sweep.objects else row[-1]
        return reason


def sweep(
    base: Scenario | Mapping[str, Any],
    vary: Mapping[str, Any],
    *,
    profiles: str | Path | None = None,
    full: bool = False,
    objects: bool = False,
    engine: Engine = serial,
) -> SweepTable:
    """Predict every combination of the values that fields of a scenario take.

    Parameters
    ----------
    base : the scenario's fields that stay, or a scenario
    vary : field to values: a text such as ``8..64`` or ``1gbe,10gbe``, or a list, a range, an array
    full : rows as whole predictions, with interval, breakdown and bottleneck (slower)
    objects : keep rows as prediction objects, for ``to_dict`` (slower where only numbers vary)
    engine : what predicts the chunks, such as ``perfsim.planning.dask.DaskEngine``

    Raises
    ------
    RequestError
        If a field is unknown, has no value or one that no row could have, or no row can be
        predicted.
    DataError
        If a value names a file that is missing or damaged, or no row can be predicted for such a
        file.

    Examples
    --------
    >>> from perfsim import sweep
    >>> table = sweep({"model": "resnet50", "net": "10gbe"}, {"gpus": "8..32"})
    >>> [(row["gpus"], round(row["scaling_efficiency"], 2)) for row in table.records()]
    [('8', 0.54), ('16', 0.51), ('32', 0.5)]
    >>> [round(row["baseline"]["speedup"]) for row in table.objects()]
    [1, 1, 1]
    """
    where = None if profiles is None else str(profiles)
    asked = Sweep(sweep_grid(_base_fields(base), axes_of(vary)), where, full, objects)
    check_values(asked.grid, asked.profiles)
    rows = [row for part in engine(asked, asked.chunks()) for row in part]
    table = SweepTable(asked, rows)
    refused = table.refusal_error()
    if refused is not None:
        raise refused
    return table


def _base_fields(base: Scenario | Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that do not vary, of a scenario those that it was given."""
    if isinstance(base, Mapping):
        return dict(base)
    return given_fields(as_scenario(base, "base"))


def resumed(
    sweep: Sweep, engine: Engine, out: Path | None, tell: ReportRows, *, fresh: bool = False
) -> SweepTable:
    """Predict a sweep; with ``out``, keep each chunk in a journal and go on from the last one.

    The journal stands beside ``out``. Whoever has written ``out`` removes it (``finished``).

    Raises
    ------
    RequestError
        If a field has a value that no row could have (`perfsim.planning.axis_values`), or there is
        a journal of another grid or of other data.
    DataError
        If a value names a file that is missing or damaged, or a line of the journal holds what is
        no row of this grid, or no prediction.
    """
    check_values(sweep.grid, sweep.profiles)
    rows: Any = [] if sweep.objects else KeptRows()
    record = _record(out, sweep) if out is not None else None
    if record is not None:
        record.open(partial(_take, sweep, rows), fresh=fresh)
    if rows or engine is not serial:
        read_elsewhere()
    tell(len(rows))
    for part in _parts(sweep, engine, len(rows)):
        if record is not None:
            record.add({"start": len(rows), "rows": part})
        rows += part
        tell(len(rows))
    return SweepTable(sweep, rows)


def finished(out: Path) -> None:
    """Remove the journal of an output that has been written."""
    journal_of(out).unlink(missing_ok=True)


def journal_of(out: Path) -> Path:
    """Return the journal of an output, which stands beside it."""
    return out.with_name(f"{out.name}.journal")


def _parts(sweep: Sweep, engine: Engine, done: int) -> Iterator[list[Any]]:
    chunks = sweep.chunks(done)
    return engine(sweep, chunks) if chunks else iter(())


def _record(out: Path, sweep: Sweep) -> Journal:
    return Journal(
        journal_of(out),
        SWEEP_JOURNAL_SCHEMA,
        _setting(sweep),
        what="a sweep",
        anew="`fresh` begins anew",
    )


def _setting(sweep: Sweep) -> dict[str, Any]:
    """Return what must agree for rows to belong together: in words, and as a hash of it all."""
    whole = "whole predictions" if sweep.full else "iterations"
    return {
        "version": __version__,
        "scenario": " ".join(f"{name}={value}" for name, value in sweep.grid.base.items()),
        "vary": " ".join(_span(axis) for axis in sweep.grid.axes),
        "rows": f"{len(sweep.grid):,} {whole} as {'objects' if sweep.objects else 'columns'}",
        "grid and data": sweep.digest(),
    }


def _span(axis: Axis) -> str:
    values = list(map(str, axis.values))
    if len(values) > _MAX_VALUES_NAMED:
        values = [*values[: _MAX_VALUES_NAMED - 1], "...", values[-1]]
    return f"{axis.field}={','.join(values)}"


def _take(sweep: Sweep, rows: list[Any], line: Mapping[str, Any]) -> None:
    """Add the rows of a line of the journal, once they are checked."""
    rows += journal_rows(sweep.grid, line, len(rows), full=sweep.full, objects=sweep.objects)
