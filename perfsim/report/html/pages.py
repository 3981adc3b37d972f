"""The HTML reports of predict, compare, explain, tune and sweep: which figures, in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfsim.errors import RequestError
from perfsim.planning.sweep import most_of, shortest_of
from perfsim.ranking import CAVEAT
from perfsim.report.html.figure import CellText, Figure
from perfsim.report.html.page import Page, PageTable, page_text, question_of, sources_of
from perfsim.report.html.planning_figures import (
    DRAWN_COLUMNS,
    crossing_figure,
    exposed_figure,
    parallelism_figure,
    path_figure,
    rows_figure,
    sensitivity_figure,
    tuned_figure,
)
from perfsim.report.html.prediction_figures import (
    breakdown_figure,
    map_figure,
    ranking_figure,
    savings_figure,
    scaling_figure,
    timeline_figure,
)
from perfsim.report.parallelism import best_words, count_words
from perfsim.report.planning import (
    TUNABLE_NAMES,
    break_even_words,
    exchange_summary,
    explanation_verdict,
    tuned_verdict,
)
from perfsim.report.terminal import cluster_words
from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from perfsim.planning import sweep
    from perfsim.planning.compare import Comparison
    from perfsim.planning.explain import Explanation
    from perfsim.planning.neighbours import ReportContext
    from perfsim.planning.tune import Tuning
    from perfsim.prediction import Prediction

__all__ = [
    "MAX_PAGE_ROWS",
    "answer_of",
    "check_rows",
    "comparison_figures",
    "comparison_page",
    "explanation_figures",
    "explanation_page",
    "prediction_figures",
    "prediction_page",
    "sweep_figures",
    "sweep_page",
    "title_of",
    "tuning_figures",
    "tuning_page",
]

Curves = Mapping[str, Mapping[int, "Prediction"]]

MAX_PAGE_ROWS = 5000
"""Rows of a page: a browser has to lay out all of them."""

_MAX_REASONS = 12


def comparison_figures(comparison: Comparison, curves: Curves) -> list[Figure]:
    """Return the figures of the report, in the page's order."""
    figures = [
        ranking_figure(comparison),
        breakdown_figure(comparison.ranking.predictions, {}, shares=True),
    ]
    if any(len(curve) > 1 for curve in curves.values()):
        figures.append(scaling_figure(curves, None, ""))
    return figures


def comparison_page(comparison: Comparison, curves: Curves) -> str:
    """Return the page as text; ``curves`` are predictions of some methods by GPUs.

    It holds the comparison as JSON (the element "comparison").
    """
    scenario = comparison.rows[0].scenario
    verdict, *others = comparison.verdict()
    left_out = comparison.ranking.left_out()
    return page_text(
        Page(
            f"{len(comparison.rows)} methods: {scenario.model}, {scenario.gpus} GPUs,"
            f" {scenario.net}",
            f"{scenario.model}, {cluster_words(scenario)}; batch {scenario.batch} a GPU,"
            f" {scenario.precision}, {'overlap' if scenario.overlap else 'no overlap'}.",
            {
                "fastest": verdict,
                "S-SGD": format_seconds(comparison.baseline.iteration_s),
                "also": " ".join([*others, CAVEAT]),
            },
            comparison_figures(comparison, curves),
            [
                *comparison.notes,
                *(f"Left out: {', '.join(names)}: {why}." for why, names in left_out.items()),
            ],
            "comparison",
            comparison.to_dict(),
        )
    )


def prediction_figures(prediction: Prediction, context: ReportContext) -> list[Figure]:
    """Return the figures of the report, in the page's order."""
    asked = prediction.scenario.method
    figures = [
        timeline_figure(prediction),
        breakdown_figure(context.methods, context.refused),
        scaling_figure(context.scaling, context.measured, asked),
    ]
    if context.cells:
        figures.append(map_figure(context.cells, context.mapped, context.notes))
    return [*figures, savings_figure(prediction)]


def prediction_page(
    prediction: Prediction, context: ReportContext, notes: Sequence[str] = ()
) -> str:
    """Return the page as text; ``notes`` come before those of the prediction.

    It holds Plotly's script, the figures' numbers as JSON and as tables, and the prediction as
    JSON (the element "prediction").
    """
    return page_text(
        Page(
            title_of(prediction),
            question_of(prediction.scenario),
            answer_of(prediction),
            prediction_figures(prediction, context),
            [*notes, *prediction.notes, *(() if context.cells else context.notes)],
            "prediction",
            prediction.to_dict(),
            sources_of(prediction),
        )
    )


def title_of(prediction: Prediction) -> str:
    """Return the heading of a prediction's page."""
    scenario = prediction.scenario
    return f"{scenario.model}, {scenario.method}, {scenario.gpus} GPUs, {scenario.net}"


def answer_of(prediction: Prediction) -> dict[str, str]:
    """Return the answer in a few lines, as in the terminal."""
    low, high = prediction.iteration_s_interval
    sent = prediction.communication
    cause = prediction.bottleneck
    iteration = format_seconds(prediction.iteration_s)
    known = f"90 % interval {format_seconds(low)} to {format_seconds(high)}"
    return {
        "iteration": f"{iteration} ({known if low < high else '90 % interval not known'})",
        "throughput": f"{prediction.samples_per_s:,.0f} samples/s, scaling efficiency"
        f" {prediction.scaling_efficiency:.1%}",
        "against S-SGD": f"{prediction.speedup:.2f} times as fast (S-SGD"
        f" {format_seconds(prediction.baseline_s)})",
        "held back by": f"{cause.replace('_', ' ')} (twice as fast would save"
        f" {prediction.worth[cause]:.0%})",
        "sent by each GPU": f"{format_bytes(sent['bytes_per_gpu'])} in {sent['calls']:g} calls",
        "memory held": format_bytes(sum(prediction.memory_bytes.values())),
    }


def explanation_figures(explanation: Explanation) -> list[Figure]:
    """Return the figures of the report, in the page's order; empty ones are left out."""
    scenario = explanation.prediction.scenario
    figures = [
        path_figure(path, number, len(explanation.paths))
        for number, path in enumerate(explanation.paths, 1)
        if path.steps
    ]
    if explanation.exposed:
        figures.append(exposed_figure(explanation.exposed))
    if explanation.improvements:
        figures.append(sensitivity_figure(explanation))
    figures += [
        crossing_figure(one, scenario.method, here)
        for one, here in ((explanation.bandwidth, 1.0), (explanation.gpus, float(scenario.gpus)))
        if not one.why_not
    ]
    return figures


def explanation_page(explanation: Explanation) -> str:
    """Return the page as text, with the explanation as JSON (the element "explanation")."""
    prediction = explanation.prediction
    method = prediction.scenario.method
    even = " ".join(
        words
        for one in (explanation.bandwidth, explanation.gpus)
        for words in break_even_words(one, method)
    )
    apart = explanation.apart
    rare = {} if apart is None else {"exchange every H iterations": exchange_summary(apart)}
    return page_text(
        Page(
            f"Why it takes so long: {title_of(prediction)}",
            question_of(prediction.scenario),
            answer_of(prediction)
            | {"what pays": explanation_verdict(explanation), "break-even with S-SGD": even}
            | rare,
            explanation_figures(explanation),
            [*explanation.notes, *prediction.notes],
            "explanation",
            explanation.to_dict(),
            sources_of(prediction),
        )
    )


def check_rows(count: int, field: str = "html") -> None:
    """Check, before any work, that a page can hold the rows of a sweep.

    Raises
    ------
    RequestError
        If it has too many rows.
    """
    if count > MAX_PAGE_ROWS:
        raise RequestError(
            field,
            f"{count:,} rows, and it holds at most {MAX_PAGE_ROWS:,}. Give fewer values, or"
            " `out` FILE.csv.",
        )


def sweep_figures(table: sweep.SweepTable) -> list[Figure]:
    """Return the figures of the report, in the page's order."""
    fields = {axis.field: axis.values for axis in table.sweep.grid.axes}
    rows = list(table.records())
    return [
        rows_figure(what, fields, rows)
        for what in DRAWN_COLUMNS
        if any(row.get(what.column) is not None for row in rows)
    ]


def sweep_page(table: sweep.SweepTable) -> str:
    """Return the page as text, with the sweep as JSON (the element "sweep")."""
    grid = table.sweep.grid
    results = list(table.results())
    done = [result for result in results if not result.reason]
    reasons = Counter(result.reason for result in results if result.reason)
    stays = ", ".join(f"{name} {_words(value)}" for name, value in grid.base.items())
    varies = "; ".join(f"{one.field}: {_listed(one.values)}" for one in grid.axes)
    answer = {
        "rows": f"{len(results):,}, {len(results) - len(done):,} of them without a prediction"
    }
    fastest, most = shortest_of(done), most_of(done)
    if fastest is not None and most is not None:
        answer |= {
            "shortest iteration": f"{format_seconds(fastest.iteration_s)} with {fastest.words}",
            "most samples a second": f"{most.samples_per_s:,.0f} with {most.words}",
        }
    return page_text(
        Page(
            f"Sweep of {table.question}",
            f"{stays}. Varies: {varies}.",
            answer,
            sweep_figures(table),
            [
                *(f"{n:,} without: {text}" for text, n in reasons.most_common(_MAX_REASONS)),
                "Predicted time only; lossy methods may need more iterations.",
            ],
            "sweep",
            table.to_dict(),
            PageTable(
                "Rows", table.columns, [[_cell(cell) for cell in line] for line in table.lines()]
            ),
        )
    )


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return str(value)


def _listed(values: tuple[Any, ...]) -> str:
    shown = [str(value) for value in values]
    if len(shown) > _MAX_REASONS:
        return f"{', '.join(shown[:3])} ... {shown[-1]} ({len(shown)} values)"
    return ", ".join(shown)


def _cell(value: Any) -> CellText:
    if value is None:
        return ""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return value if plain else str(value)


def tuning_figures(tuning: Tuning) -> list[Figure]:
    """Return the figures of the report: one for each thing that makes a difference."""
    if tuning.parallelism is not None:
        return [parallelism_figure(tuning.parallelism)]
    return [tuned_figure(one) for one in tuning.tuned if not one.idle]


def tuning_page(tuning: Tuning) -> str:
    """Return the page as text, with the tuning as JSON (the element "tuning")."""
    scenario = tuning.scenario
    named = f"{scenario.model}, {scenario.method}, {scenario.gpus} GPUs, {scenario.net}"
    answer = {TUNABLE_NAMES[one.tunable.name]: " ".join(tuned_verdict(one)) for one in tuning.tuned}
    if tuning.iteration_s is not None:
        answer = {"as asked": f"{format_seconds(tuning.iteration_s)} an iteration"} | answer
    searched = tuning.parallelism
    if searched is not None:
        named = f"{scenario.model}, {scenario.gpus} GPUs, {scenario.net}: parallelism"
        answer = {"best": " ".join(best_words(searched)), "tried": count_words(searched)} | answer
    return page_text(
        Page(
            f"Tuning {named}",
            question_of(scenario),
            answer,
            tuning_figures(tuning),
            tuning.notes,
            "tuning",
            tuning.to_dict(),
        )
    )
