"""What a notebook shows of each result: a card of HTML that needs nothing else, and figures.

A card has the question, the answer with its interval, where the time goes, and warnings, in about
3 kB; its colours are those of the notebook, light or dark. Figures are those of the HTML reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING

from perfsim.errors import RequestError, unknown
from perfsim.note import briefs
from perfsim.planning.capacity import HOUR_S, ClusterPlan, ParetoChoice
from perfsim.planning.compare import Comparison, Standing, scaling_of
from perfsim.planning.explain import Explanation
from perfsim.planning.parallelism import TriedDivision
from perfsim.planning.sweep import SweepTable, most_of, shortest_of
from perfsim.planning.tune import PARALLELISM, TunedValue, Tuning, value_words
from perfsim.prediction import Prediction
from perfsim.report.html.figure import (
    PALETTE,
    PART_STYLES,
    Figure,
    figure_label,
    need_plotly,
    plotly_figure,
)
from perfsim.report.html.pages import answer_of
from perfsim.report.html.planning_figures import (
    DRAWN_COLUMNS,
    EFFICIENCY,
    crossing_figure,
    exposed_figure,
    parallelism_figure,
    path_figure,
    plan_figure,
    rows_figure,
    sensitivity_figure,
    tuned_figure,
)
from perfsim.report.html.prediction_figures import (
    breakdown_figure,
    ranking_figure,
    savings_figure,
    scaling_figure,
    timeline_figure,
)
from perfsim.report.html.render import render
from perfsim.report.parallelism import best_words, count_words, division_words
from perfsim.report.planning import (
    TUNABLE_NAMES,
    break_even_words,
    choice_words,
    explanation_verdict,
    improvement_words,
    sweep_cells,
    tuned_verdict,
)
from perfsim.report.prediction_screen import asked_words
from perfsim.report.task_names import part_words
from perfsim.report.terminal import interval_words, rate_words
from perfsim.sums import SUM_ROUNDING
from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as PlotlyFigure

__all__ = ["Bar", "Card", "card_html", "card_of", "figures_of", "plotted"]

_MAX_ROWS = 8
"""Rows of a card's table; ``to_pandas`` has all."""

_MAX_WARNINGS = 4
"""Warnings of a card; ``warnings`` or ``notes`` has all."""

_MAX_READ = 10_000
"""Rows of a sweep that a card reads."""

_MAX_CELL = 40
"""Characters of a cell of a sweep's row."""

_MAX_CHARACTERS = 200
"""Characters of a text of a card: a model can be written in thousands."""

_BAR_EM = 16.0
"""Width of the longest bar, in the height of a letter."""


@dataclass(frozen=True)
class Bar:
    """One bar of a card: its name, its value in words, its width [em] and colour."""

    name: str
    words: str
    width: float
    colour: str


@dataclass(frozen=True)
class Card:
    """What a card holds.

    Parameters
    ----------
    kind : what kind of result it is, in a few words
    subject, question : what was asked, in a few words and in a sentence
    answer : lines of the answer by their names
    more : what to call for more
    head, rows : a table of words
    bars : where the time goes, or what pays
    warnings : what may change a decision
    """

    kind: str
    subject: str
    question: str
    answer: Mapping[str, str]
    more: str
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    bars: Sequence[Bar] = ()
    warnings: Sequence[str] = field(default=())


def card_html(result: object) -> str:
    """Return a result as a card of HTML; every text in it is escaped.

    Raises
    ------
    TypeError
        If it is no result of perfsim.
    """
    return render("result.html.j2", card=card_of(result))


@singledispatch
def card_of(result: object) -> Card:
    """Return what the card of a result holds.

    Raises
    ------
    TypeError
        If it is no result of perfsim.
    """
    raise TypeError(f"{type(result).__name__} is no result of perfsim")


Figures = Mapping[str, Callable[[], Figure]]
"""What draws each figure of a result, by its kind."""


@singledispatch
def figures_of(result: object, over: str = "") -> Figures:
    """Return what draws each figure of a result, by its kind; the first is the usual one.

    Parameters
    ----------
    over : of a sweep, the field along the horizontal axis

    Raises
    ------
    TypeError
        If it is no result of perfsim.
    """
    raise TypeError(f"{type(result).__name__} is no result of perfsim")


def plotted(result: object, kind: str, over: str = "") -> PlotlyFigure:
    """Return one figure of a result, drawn by Plotly; a ``kind`` of "" is the usual one.

    Raises
    ------
    RequestError
        If Plotly is missing, or the result has no such figure.
    """
    need_plotly("plot")
    figures = figures_of(result, over)
    if not figures:
        raise RequestError("kind", "there is nothing to draw: no value makes a difference.")
    chosen = kind or next(iter(figures))
    if chosen not in figures:
        raise unknown("kind", str(kind), figures)
    figure = figures[chosen]()
    return plotly_figure(figure, f"{figure.title}: {figure_label(card_of(result).subject)}")


def _short(text: str, most: int = _MAX_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _warned(notes: Iterable[str]) -> list[str]:
    """Return the warnings among notes in a few words each, as many as a card has room for."""
    every = [_short(text) for text in briefs(notes, "warning")]
    left = len(every) - _MAX_WARNINGS
    return [*every[:_MAX_WARNINGS], *([f"and {left} more warnings"] if left > 0 else [])]


def _counted(shown: int, count: int, what: str) -> str:
    return f"{shown} of {count:,} {what}; " if count > shown else ""


@card_of.register
def _(result: Prediction) -> Card:
    parts = {
        part_words(part, result.scenario.method): (
            seconds / result.iteration_s,
            seconds,
            PART_STYLES[part][0],
        )
        for part, seconds in result.breakdown_s.items()
        if seconds > SUM_ROUNDING * result.iteration_s
    }
    widest = max(share for share, *_ in parts.values())
    return Card(
        "Prediction",
        _short(result.scenario.words),
        _short(asked_words(result.scenario)),
        answer_of(result),
        ".plot(), .plot('timeline'), .warnings, .assumptions, .notes, .to_pandas(), .to_dict()",
        bars=[
            Bar(name, f"{format_seconds(seconds, 3)}, {share:.0%}", _BAR_EM * share / widest, tint)
            for name, (share, seconds, tint) in parts.items()
        ],
        warnings=_warned(result.notes),
    )


@figures_of.register
def _(result: Prediction, over: str = "") -> Figures:
    return {
        "breakdown": lambda: breakdown_figure({result.scenario.method: result}, {}),
        "timeline": lambda: timeline_figure(result),
        "savings": lambda: savings_figure(result),
    }


@card_of.register
def _(result: Comparison) -> Card:
    first, *others = result.brief()
    standings = {one.method: one for one in result.standings()}
    shown = result.rows[:_MAX_ROWS]
    asked = result.rows[0].scenario
    return Card(
        f"Comparison of {len(result.rows)} methods",
        _short(asked.place),
        f"batch {asked.batch} a GPU, {asked.precision};"
        f" S-SGD takes {format_seconds(result.baseline.iteration_s)}",
        {"verdict": first, "also": " ".join(others)} if others else {"verdict": first},
        f"{_counted(len(shown), len(result.rows), 'methods')}.plot(), .plot('breakdown'),"
        " .plot('scaling'), .verdict(), .notes, .to_pandas(), .to_dict()",
        ("rank", "method", "iteration", "90 % interval", "x S-SGD", "epochs, x S-SGD's"),
        [_compared(one, standings[one.scenario.method]) for one in shown],
        warnings=_warned(result.notes),
    )


def _compared(one: Prediction, standing: Standing) -> tuple[str, ...]:
    epochs = standing.epochs_ratio
    return (
        str(standing.rank or "-"),
        standing.method,
        format_seconds(one.iteration_s),
        interval_words(*one.iteration_s_interval),
        f"{one.speedup:.2f}",
        "?" if epochs is None else f"{epochs:.3g}",
    )


@figures_of.register
def _(result: Comparison, over: str = "") -> Figures:
    ones = result.ranking.predictions
    return {
        "ranking": lambda: ranking_figure(result),
        "breakdown": lambda: breakdown_figure(ones, {}, shares=True),
        "scaling": lambda: scaling_figure(scaling_of(result), None, ""),
    }


@card_of.register
def _(result: SweepTable) -> Card:
    results = list(islice(result.results(), _MAX_READ))
    lost = [one.reason for one in results if one.reason]
    unfit = sum(not one.fits for one in results)
    shown = [sweep_cells(one, full=result.sweep.full) for one in results[:_MAX_ROWS]]
    answer, shortest, most = {}, shortest_of(results), most_of(results)
    if shortest is not None and most is not None:
        answer = {
            "shortest iteration": f"{format_seconds(shortest.iteration_s)} with {shortest.words}",
            "most samples a second": f"{rate_words(most.samples_per_s)} with {most.words}",
        }
    if len(result) > len(results):
        answer["read"] = f"the first {len(results):,} rows"
    stays = ", ".join(f"{name} {value}" for name, value in result.sweep.grid.base.items())
    return Card(
        f"Sweep of {_rows(len(result))}",
        _short(result.question),
        _short(stays),
        {name: _short(text) for name, text in answer.items()},
        f"{_counted(len(shown), len(result), 'rows')}.plot(), .plot('efficiency'), .to_pandas(),"
        " .records(), .to_dict()",
        tuple(shown[0]),
        [[_short(text, _MAX_CELL) for text in row.values()] for row in shown],
        warnings=[
            *([f"{_rows(len(lost))} without a prediction: {_short(lost[0])}"] if lost else []),
            *(
                [f"{_rows(unfit)} of a model that does not fit into the GPU's memory (!)"]
                * (unfit > 0)
            ),
        ],
    )


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


@figures_of.register
def _(result: SweepTable, over: str = "") -> Figures:
    fields = {axis.field: axis.values for axis in result.sweep.grid.axes}
    rows = list(result.records())
    across = over or ("gpus" if "gpus" in fields else "")
    columns = {column.column: column for column in (*DRAWN_COLUMNS, EFFICIENCY)}
    kinds = {
        "throughput": "samples_per_s",
        "iteration": "iteration_s",
        "efficiency": "scaling_efficiency",
        "speedup": "speedup",
    }

    def drawing(name: str) -> Callable[[], Figure]:
        return lambda: rows_figure(columns[name], fields, rows, across, guides=True)

    return {kind: drawing(name) for kind, name in kinds.items() if name in result.columns}


@card_of.register
def _(result: Tuning) -> Card:
    searched = result.parallelism
    answer = {}
    if result.iteration_s is not None:
        answer["as asked"] = f"{format_seconds(result.iteration_s)} an iteration"
    if searched is None:
        kind, subject = "Tuning", result.scenario.words
        head: tuple[str, ...] = ("", "asked", "to take", "saves")
        rows = list(map(_tuned, result.tuned))
        for one in result.tuned:
            answer[TUNABLE_NAMES[one.tunable.name]] = " ".join(tuned_verdict(one))
    else:
        kind, subject = "Parallelism", result.scenario.place
        head = ("way", "iteration", "samples/s", "memory of a GPU")
        rows = [_way(one.tried) for one in searched.ranked[:_MAX_ROWS]]
        answer |= {"best": " ".join(best_words(searched)), "tried": count_words(searched)}
    return Card(
        kind,
        _short(subject),
        _short(asked_words(result.scenario)),
        answer,
        ".plot(), .tuned, .notes, .to_pandas(), .to_dict()",
        head,
        rows,
        warnings=_warned(result.notes),
    )


def _tuned(one: TunedValue) -> tuple[str, str, str, str]:
    return (
        TUNABLE_NAMES[one.tunable.name],
        f"{value_words(one, one.asked)}, {format_seconds(one.asked_s)}",
        f"{value_words(one, one.advised)}, {format_seconds(one.advised_s)}",
        f"{one.gain:.1%}",
    )


def _way(one: TriedDivision) -> tuple[str, str, str, str]:
    return (
        division_words(one),
        format_seconds(one.iteration_s),
        rate_words(one.samples_per_s),
        format_bytes(one.memory_bytes, 3),
    )


@figures_of.register
def _(result: Tuning, over: str = "") -> Figures:
    searched = result.parallelism
    if searched is not None:
        return {PARALLELISM: lambda: parallelism_figure(searched)}

    def drawing(at: int) -> Callable[[], Figure]:
        return lambda: tuned_figure(result.tuned[at])

    by_gain = sorted(range(len(result.tuned)), key=lambda at: -result.tuned[at].gain)
    return {result.tuned[at].tunable.name: drawing(at) for at in by_gain}


@card_of.register
def _(result: Explanation) -> Card:
    prediction, rows = result.prediction, result.improvements[:_MAX_ROWS]
    widest = max((row.saved for row in rows), default=1.0) or 1.0
    even = [
        words
        for one in (result.bandwidth, result.gpus)
        for words in break_even_words(one, prediction.scenario.method)
    ]
    answer = answer_of(prediction)
    kept = ("iteration", "against S-SGD", "held back by")
    return Card(
        "Explanation",
        _short(prediction.scenario.words),
        _short(asked_words(prediction.scenario)),
        {
            **{name: answer[name] for name in kept},
            "what pays": explanation_verdict(result),
            "break-even with S-SGD": " ".join(even),
        },
        ".plot(), .plot('path'), .plot('exposed'), .plot('bandwidth'), .plot('gpus'), .notes,"
        " .to_pandas(), .to_dict()",
        bars=[
            Bar(
                f"twice {improvement_words(row.what, prediction.scenario.method)}".replace(
                    "twice half", "half"
                ),
                f"{format_seconds(row.iteration_s)}, {-row.saved:+.1%}",
                _BAR_EM * max(row.saved, 0.0) / widest,
                PALETTE["sky"],
            )
            for row in rows
        ],
        warnings=_warned([*result.notes, *prediction.notes]),
    )


@figures_of.register
def _(result: Explanation, over: str = "") -> Figures:
    scenario = result.prediction.scenario
    paths = [path for path in result.paths if path.steps]
    found: dict[str, Callable[[], Figure]] = {}
    if result.improvements:
        found["improvements"] = lambda: sensitivity_figure(result)
    if paths:
        found["path"] = lambda: path_figure(paths[0], 1, len(result.paths))
    if result.exposed:
        found["exposed"] = lambda: exposed_figure(result.exposed)
    if not result.bandwidth.why_not:
        found["bandwidth"] = lambda: crossing_figure(result.bandwidth, scenario.method, 1.0)
    if not result.gpus.why_not:
        gpus = float(scenario.gpus)
        found["gpus"] = lambda: crossing_figure(result.gpus, scenario.method, gpus)
    return found


@card_of.register
def _(result: ClusterPlan) -> Card:
    target, front = result.target, result.front
    answer = {}
    if target.limited:
        answer["meet the target"] = f"{len(result.within_target)} of {len(result.choices)} choices"
    if result.within_target:
        least = "least GPU hours" if result.unit == "GPU h" else "cheapest"
        answer["fastest"] = choice_words(result.fastest, result.unit)
        answer[least] = choice_words(result.cheapest, result.unit)
    models = dict.fromkeys(one.scenario.model for one in result.choices)
    left = len(result.left_out)
    return Card(
        "Plan",
        _short(", ".join(models)),
        target.words,
        answer,
        f"{_counted(_MAX_ROWS, len(front), 'of the Pareto front')}.plot(), .left_out, .notes,"
        " .to_pandas(), .to_dict()",
        (result.front_title, "hours", "90 % interval", result.unit, "meets"),
        [_planned(one, result) for one in front[:_MAX_ROWS]],
        warnings=[
            *_warned(result.notes),
            *([f"{left} left out: {_short(next(iter(result.left_out.values())))}"] if left else []),
        ],
    )


def _planned(one: ParetoChoice, result: ClusterPlan) -> tuple[str, ...]:
    low, high = (end / HOUR_S for end in one.interval_s)
    return (
        one.words,
        f"{one.seconds / HOUR_S:.4g}",
        f"{low:.3g} to {high:.3g}" if isfinite(high) else f"{low:.3g} and more",
        f"{one.spent:,.4g}",
        "yes" if one.excess(result.target) <= 1.0 else "no",
    )


@figures_of.register
def _(result: ClusterPlan, over: str = "") -> Figures:
    return {"front": lambda: plan_figure(result)}
