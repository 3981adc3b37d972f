"""Print comparisons and rankings of methods: a verdict, ten rows, and how much more there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from perfsim.conditions.words import condition_words
from perfsim.methods import method_class
from perfsim.planning.compare import BY_ACCURACY, Comparison
from perfsim.planning.equal_bytes import settings_of
from perfsim.prediction import Prediction
from perfsim.ranking import CAVEAT, Ranking
from perfsim.report.plain import is_plain
from perfsim.report.terminal import (
    ALL_COLUMNS,
    PAGE_COLUMNS,
    batch_words,
    bucket_size_words,
    cluster_words,
    interval_words,
    labelled,
    number_lines,
    page_columns,
    plain_rows,
    print_lines,
    print_notes,
)
from perfsim.resolve import ResolvedScenario
from perfsim.sums import sum_in_order
from perfsim.units import format_bytes, format_seconds

__all__ = ["MAX_ROWS", "print_comparison", "print_ranking"]

MAX_ROWS = 10
"""Methods that are shown where not everything was asked for."""

_MIN_APART = 3
"""Of these at least so many whose learning is not known, if there are."""

_MAX_LEFT_OUT = 2
"""Methods that are left out whose reasons are given where not everything was asked for."""

_BASELINE = "ssgd"
_KERNEL_PARTS = ("compression", "second_order")
_EXPOSED_PARTS = ("communication_exposed",)
"""The parts of an iteration that a comparison adds up to kernels and waiting."""

_APART = {
    (True, False): "no published result here says how many epochs",
    (False, True): "half or more of the published results fell short",
    (True, True): "epochs not known, or published results fell short",
}
"""Why methods stand apart, by whether some have no published result, and some fell short."""


def print_comparison(comparison: Comparison, *, verbose: bool = False) -> None:
    """Print the question, who is first, ten methods with what their time goes to, and warnings.

    ``verbose``: all methods, all columns, what they mean, who is left out and why, and all notes.
    """
    first, ranking = comparison.rows[0].scenario, comparison.ranking
    parallel = comparison.rows[0].parallel
    conditions = condition_words(first)
    unusual = [] if first.overlap else ["no overlap"]
    unusual += [f"all-reduce {first.algorithm}"] if first.algorithm != "auto" else []
    print_lines(
        [
            ", ".join([f"{first.model}; {batch_words(first)}", first.precision, *unusual]),
            cluster_words(first),
            *([parallel.words()] if parallel else []),
            *([f"conditions: {conditions}"] if conditions else []),
            "",
            *(comparison.verdict() if verbose else comparison.brief()),
            "",
        ],
        most=PAGE_COLUMNS,
    )
    ranked = comparison.sort == BY_ACCURACY
    must = {_BASELINE, comparison.own or _BASELINE}
    _print_methods(ranking, comparison.rows, must, ranked=ranked, verbose=verbose)
    if verbose:
        print()
        print_lines([CAVEAT, comparison.rule], most=PAGE_COLUMNS)
    _print_left_out(ranking, verbose=verbose)
    more = f"all {len(comparison.rows)} methods" if len(comparison.rows) > MAX_ROWS else ""
    print_notes(comparison.notes, verbose=verbose, more=more)


def print_ranking(ranking: Ranking, *, verbose: bool = False) -> None:
    """Print who is first, ten methods in order, and what the prediction that follows is of."""
    verdict = [CAVEAT, ranking.verdict(), *ranking.kept_words()] if verbose else ranking.brief()
    print_lines([*verdict, ""], most=PAGE_COLUMNS)
    rows = list(ranking.predictions.values())
    _print_methods(ranking, rows, {_BASELINE}, ranked=True, verbose=verbose)
    if verbose and (warnings := ranking.warnings()):
        print_lines(["", *warnings], most=PAGE_COLUMNS)
    _print_left_out(ranking, verbose=verbose)
    print(f"\nThe prediction of {ranking.winner}:\n")


class _Row(NamedTuple):
    """One method of a table: its prediction and what a ranking knows of it."""

    prediction: Prediction
    ranking: Ranking
    rank: int | None
    close: bool

    @property
    def name(self) -> str:
        return self.prediction.scenario.method

    @property
    def title(self) -> str:
        lossy = "*" if method_class(self.name).lossy else ""
        return f"{self.name}{lossy}{' !' if self.name in self.ranking.unfit else ''}"

    @property
    def epochs(self) -> str:
        factor = self.ranking.factor(self.name)
        return factor.words + ("+" if factor.known and factor.short else "")

    @property
    def sooner(self) -> str:
        if not self.ranking.factor(self.name).known:
            return "-"
        times = self.prediction.baseline_s / self.ranking.accuracy_s(self.name)
        return ("~" if self.close else "") + _times(times)

    def share(self, parts: Sequence[str]) -> str:
        """Return the share of some parts in the iteration [%]."""
        spent_s = sum_in_order(self.prediction.breakdown_s[part] for part in parts)
        return f"{100 * spent_s / self.prediction.iteration_s:.0f}%"


class _Column(NamedTuple):
    """One column of the table: its head, its cells, and what it means.

    The columns with the highest ``drop_order`` are left out first where all are too wide, 0 never.
    Those without a number stand only where everything was asked for.
    """

    head: str
    cell: Callable[[_Row], str]
    means: str = ""
    drop_order: int | None = 0
    left: bool = False


_COLUMNS = (
    _Column("#", lambda row: str(row.rank or "")),
    _Column("method", lambda row: row.title, left=True),
    _Column(
        "sends",
        lambda row: settings_of(row.prediction.scenario.options),
        "density, rank or bits",
        None,
        left=True,
    ),
    _Column("time", lambda row: format_seconds(row.prediction.iteration_s)),
    _Column(
        "90 % interval",
        lambda row: interval_words(*row.prediction.iteration_s_interval),
        drop_order=3,
    ),
    _Column(
        "speed",
        lambda row: _times(row.prediction.speedup),
        "an iteration is so many times as fast as S-SGD's",
        1,
    ),
    _Column(
        "epochs",
        lambda row: row.epochs,
        "that it needs, as a multiple of S-SGD's",
        2,
    ),
    _Column("acc", lambda row: row.sooner, "so many times sooner than S-SGD at its accuracy", 1),
    _Column(
        "kern",
        lambda row: row.share(_KERNEL_PARTS),
        "share of the method's kernels (compression, second order)",
        None,
    ),
    _Column("wait", lambda row: row.share(_EXPOSED_PARTS), "share of exposed communication", 4),
    _Column(
        "sent",
        lambda row: format_bytes(row.prediction.communication["bytes_per_gpu"], 3),
        "by each GPU in an iteration",
        None,
    ),
    _Column("fusion", lambda row: _fusion(row.prediction.scenario), drop_order=None, left=True),
    _Column("needs", lambda row: method_class(row.name).needs, drop_order=None, left=True),
)


def _print_methods(
    ranking: Ranking,
    predictions: Sequence[Prediction],
    must: set[str],
    *,
    ranked: bool,
    verbose: bool,
) -> None:
    """Print methods as a table, those whose learning is not known apart if ``ranked``.

    ``must``: methods that are shown wherever they stand.
    """
    places = {name: number for number, name in enumerate(ranking.ranked, 1)}
    undecided = set(ranking.undecided())
    rows = [
        _Row(one, ranking, places.get(one.scenario.method), one.scenario.method in undecided)
        for one in predictions
    ]
    known = [row for row in rows if row.rank is not None] if ranked else rows
    apart = [row for row in rows if row.rank is None] if ranked else []
    shown, others = known, apart
    if not verbose:
        room = min(len(apart), max(_MIN_APART, MAX_ROWS - len(known)))
        shown, others = _first(known, MAX_ROWS - room, must), _first(apart, room, must)
    both = [*shown, *others]
    columns = [
        one
        for one in _COLUMNS
        if (verbose or one.drop_order is not None) and any(map(one.cell, both))
    ]
    drop = sorted(
        (one for one in columns if one.drop_order), key=lambda one: -(one.drop_order or 0)
    )
    head, *lines = _lines_of(columns, both, [] if verbose else [one.head for one in drop])
    print(head)
    _print_rows(known, shown, lines)
    if others:
        short = [row.ranking.factor(row.name).fell_short for row in apart]
        why = _APART[not all(short), any(short)]
        print_lines([f"iteration time only: {why}"], "    ", "    ", PAGE_COLUMNS)
    _print_rows(apart, others, lines[len(shown) :])
    print()
    heads = {part.strip() for part in head.split("  ")}
    seen = columns if is_plain() else [one for one in columns if one.head in heads]
    print_lines([_legend(seen, both)], rest="", most=PAGE_COLUMNS)


def _first(rows: list[_Row], room: int, must: set[str]) -> list[_Row]:
    """Return the first rows, with those that must be there in place of the last of them."""
    wanted = [row for row in rows[room:] if row.name in must]
    kept = rows[: max(room - len(wanted), 0)]
    return [*kept, *wanted]


def _lines_of(columns: Sequence[_Column], rows: Sequence[_Row], drop: Sequence[str]) -> list[str]:
    """Return the head and a line for each method; columns of ``drop`` go where all are too wide."""
    told = [{one.head: one.cell(row) for one in columns} for row in rows]
    if is_plain():
        return ["methods", *plain_rows(told)]
    words = ",".join(one.head for one in columns if one.left)
    return number_lines(told, page_columns() if drop else ALL_COLUMNS, left=words, drop=drop)


def _print_rows(rows: Sequence[_Row], shown: Sequence[_Row], lines: Sequence[str]) -> None:
    """Print the lines of the rows that are shown, and where others are left out, how many."""
    places = [rows.index(row) for row in shown]
    for before, place, line in zip([-1, *places], places, lines, strict=False):
        _print_counted(place - before - 1)
        print(line)
    _print_counted(len(rows) - 1 - (places[-1] if places else -1))


def _print_counted(count: int) -> None:
    if count > 0:
        print(f"    and {count} more")


def _legend(columns: Sequence[_Column], rows: Sequence[_Row]) -> str:
    """Say what the columns and the marks that stand in them mean."""
    heads = [f"{one.head}: {one.means}." for one in columns if one.means]
    epochs = [row.epochs for row in rows]
    marks = {
        "* learns differently from S-SGD.": any("*" in row.title for row in rows),
        "! does not fit into memory.": any("!" in row.title for row in rows),
        "~ may be as soon as the first.": any(row.close for row in rows),
        "? not known.": "?" in epochs,
        "short: half or more of the published results fell short.": "short" in epochs,
        "+ some published results fell short.": any(one.endswith("+") for one in epochs),
    }
    return " ".join([*heads, *(mark for mark, seen in marks.items() if seen)])


def _times(ratio: float) -> str:
    """Write how many times as fast, in four places at most."""
    return f"{ratio:.{2 if ratio < 10 else 1 if ratio < 100 else 0}f}"


def _fusion(scenario: ResolvedScenario) -> str:
    size = f" {bucket_size_words(scenario.bucket_bytes)}" if scenario.bucket_bytes else ""
    return f"{scenario.fusion}{size}"


def _print_left_out(ranking: Ranking, *, verbose: bool) -> None:
    """Print which methods are left out: by reason, or how many where there are many."""
    count = len(ranking.refused)
    if not count:
        return
    print()
    if not verbose and count > _MAX_LEFT_OUT:
        for line in labelled("left out", f"{count} methods do not apply here", page_columns()):
            print(line)
        return
    print(f"left out, {count} of {count + len(ranking.predictions)}:")
    print_lines(list(_reasons(ranking)), "  ", "    ", PAGE_COLUMNS)


def _reasons(ranking: Ranking) -> Iterator[str]:
    return (f"{', '.join(names)}: {why}" for why, names in ranking.left_out().items())
