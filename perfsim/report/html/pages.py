"""The HTML reports of predict, compare, explain, tune and sweep: which figures, in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from perfsim.errors import RequestError
from perfsim.planning.capacity import HOUR_S
from perfsim.planning.sweep import most_of, shortest_of
from perfsim.ranking import CAVEAT
from perfsim.report.html.figure import CellText, Figure, TimeUnit, time_unit, varies
from perfsim.report.html.page import Page, PageTable, page_text, question_of, sources_of
from perfsim.report.html.planning_figures import (
    DRAWN_COLUMNS,
    EFFICIENCY,
    crossing_figure,
    exposed_figure,
    field_words,
    parallelism_figure,
    path_figure,
    plan_figure,
    rows_figure,
    sensitivity_figure,
    tuned_figure,
)
from perfsim.report.html.prediction_figures import (
    breakdown_figure,
    efficiency_figure,
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
    choice_words,
    exchange_summary,
    explanation_verdict,
    tuned_verdict,
)
from perfsim.report.terminal import cluster_words
from perfsim.sums import sum_in_order
from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from perfsim.planning import sweep
    from perfsim.planning.capacity import ClusterPlan, ParetoChoice
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
    "plan_figures",
    "plan_page",
    "prediction_figures",
    "prediction_page",
    "sweep_figures",
    "sweep_page",
    "title_of",
    "tuning_figures",
    "tuning_page",
]

Curves = Mapping[str, Mapping[int, "Prediction"]]

MAX_PAGE_ROWS = 2000
"""Rows of a sweep's page: its JSON has all, and a page stays below 1.5 MB."""

_MAX_TABLE_CELLS = 6000
"""Cells of the table of a sweep's rows."""

_MAX_REASONS = 12


def comparison_figures(comparison: Comparison, curves: Curves) -> list[Figure]:
    """Return the figures of the report, in the page's order."""
    figures = [
        ranking_figure(comparison),
        breakdown_figure(comparison.ranking.predictions, {}, shares=True),
    ]
    if any(len(curve) > 1 for curve in curves.values()):
        figures += [scaling_figure(curves, None, ""), efficiency_figure(curves)]
    return figures


def comparison_page(comparison: Comparison, curves: Curves) -> str:
    """Return the page as text; ``curves`` are predictions of some methods by GPUs.

    It holds the comparison as JSON (the element "comparison").
    """
    scenario = comparison.rows[0].scenario
    verdict, *others = comparison.brief()
    left_out = comparison.ranking.left_out()
    return page_text(
        Page(
            f"{len(comparison.rows)} methods: {scenario.model}, {scenario.gpus} GPUs,"
            f" {scenario.net}",
            f"{scenario.model}, {cluster_words(scenario)}; batch {scenario.batch} a GPU,"
            f" {scenario.precision}, {'overlap' if scenario.overlap else 'no overlap'}.",
            {
                "verdict": verdict,
                **({"also": " ".join(others)} if others else {}),
                "S-SGD": format_seconds(comparison.baseline.iteration_s),
            },
            comparison_figures(comparison, curves),
            [
                *comparison.verdict(),
                CAVEAT,
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
    figures = [timeline_figure(prediction), breakdown_figure(context.methods, context.refused)]
    if any(len(curve) > 1 for curve in context.scaling.values()):
        figures += [
            scaling_figure(context.scaling, context.measured, asked),
            efficiency_figure(context.scaling),
        ]
    if context.cells:
        figures.append(map_figure(context.cells, context.mapped, context.notes, context.between))
    if varies([0.0, *prediction.worth.values()]):
        figures.append(savings_figure(prediction))
    return figures


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
    cause, over = prediction.bottleneck, prediction.efficiency_words()
    iteration = format_seconds(prediction.iteration_s)
    known = f"90 % interval {format_seconds(low)} to {format_seconds(high)}"
    return {
        "iteration": f"{iteration} ({known if low < high else '90 % interval not known'})",
        "throughput": f"{prediction.samples_per_s:,.0f} samples/s, scaling efficiency"
        f" {prediction.scaling_efficiency:.1%}" + (f" ({over})" if over else ""),
        "against S-SGD": f"{prediction.speedup:.2f} times as fast (S-SGD"
        f" {format_seconds(prediction.baseline_s)}{prediction.baseline.unfit_words()})",
        "held back by": f"{cause.replace('_', ' ')} (twice as fast would save"
        f" {prediction.worth[cause]:.0%})",
        "sent by each GPU": f"{format_bytes(sent['bytes_per_gpu'])} in {sent['calls']:g} calls",
        "memory held": format_bytes(sum_in_order(prediction.memory_bytes.values())),
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
    if varies([0.0, *(one.saved for one in explanation.improvements)]):
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
    """Return the figures of the report, in the page's order; columns that do not vary have none.

    Where GPUs vary, how training scales comes first, with what it would be without loss.
    """
    fields = {axis.field: axis.values for axis in table.sweep.grid.axes}
    rows = list(table.records())
    scales = len(fields.get("gpus", ())) > 1
    iteration, throughput, speedup = DRAWN_COLUMNS
    scaling = (throughput, EFFICIENCY, iteration, speedup)
    return [
        rows_figure(what, fields, rows, "gpus" if scales else "", guides=scales)
        for what in (scaling if scales else DRAWN_COLUMNS)
        if what.drawn(rows)
    ]


def sweep_page(table: sweep.SweepTable) -> str:
    """Return the page as text, with the sweep as JSON (the element "sweep")."""
    grid = table.sweep.grid
    results = list(table.results())
    done = [result for result in results if not result.reason]
    reasons = Counter(result.reason for result in results if result.reason)
    stays = ", ".join(f"{name} {_words(value)}" for name, value in grid.base.items())
    varies = "; ".join(f"{one.field}: {_listed(one.values)}" for one in grid.axes)
    lost = len(results) - len(done)
    answer = {"rows": f"{len(results):,}{f', {lost:,} of them without a prediction' * (lost > 0)}"}
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
                *([] if table.sweep.full else ["Rows have no intervals; `full` adds them."]),
                "Predicted time only; lossy methods may need more iterations.",
            ],
            "sweep",
            table.to_dict(),
            _rows_table(table, done),
        )
    )


def _rows_table(table: sweep.SweepTable, done: Sequence[sweep.SweepResult]) -> PageTable:
    """Return all rows, in the units that suit them."""
    unit = time_unit(one.iteration_s for one in done)
    lines = list(table.lines())
    shown = max(1, _MAX_TABLE_CELLS // len(table.columns))
    columns = [
        (at, *_column(name, unit))
        for at, name in enumerate(table.columns)
        if name != "reason" or any(line[at] for line in lines)
    ]
    return PageTable(
        "Rows",
        [words for _, words, _ in columns],
        [[_cell(line[at], factor) for at, _, factor in columns] for line in lines[:shown]],
        f"The first {shown:,} of {len(lines):,} rows; `json` and `out` FILE.csv have all."
        if len(lines) > shown
        else "",
    )


_COLUMN_WORDS = {
    "samples_per_s": ("throughput [samples/s]", 1.0),
    "scaling_efficiency": ("scaling efficiency [%]", 100.0),
    "sent_bytes_per_gpu": ("sent by a GPU [MB]", 1e-6),
    "memory_bytes": ("memory [GB]", 1e-9),
    "speedup": ("times as fast as S-SGD", 1.0),
}
"""Heading of a column of a sweep, and what its values are multiplied by."""


def _column(name: str, unit: TimeUnit) -> tuple[str, float]:
    """Return the heading of a column, and what its values are multiplied by; 0: nothing."""
    if name in _COLUMN_WORDS:
        return _COLUMN_WORDS[name]
    time, seconds, end = name.partition("_s")
    ends = {"": "", "_low": ", 90 % from", "_high": ", 90 % to"}
    if seconds and end in ends:
        words = time.replace("_", " ").replace("ssgd", "S-SGD's")
        return unit.title(words + ends[end]), unit.per_second
    return field_words(name), 0.0


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return str(value)


def _listed(values: tuple[Any, ...]) -> str:
    shown = [str(value) for value in values]
    if len(shown) > _MAX_REASONS:
        return f"{', '.join(shown[:3])} ... {shown[-1]} ({len(shown)} values)"
    return ", ".join(shown)


def _cell(value: Any, factor: float) -> CellText:
    if value is None:
        return ""
    if isinstance(value, str | bool) or not isinstance(value, int | float):
        return str(value)
    return value * factor if factor else value


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


def plan_figures(plan: ClusterPlan) -> list[Figure]:
    """Return the figures of the report: time over cost, where there are several choices."""
    return [plan_figure(plan)] if len(plan.choices) > 1 else []


def plan_page(plan: ClusterPlan) -> str:
    """Return the page as text, with the plan as JSON (the element "plan")."""
    target, unit = plan.target, plan.unit
    models = ", ".join(dict.fromkeys(one.scenario.model for one in plan.choices))
    least = "least GPU hours" if unit == "GPU h" else "cheapest"
    reasons = [f"{name}: {why}" for name, why in sorted(plan.left_out.items())]
    left = len(reasons) - _MAX_REASONS
    return page_text(
        Page(
            f"Plan for training {models}",
            f"{target.words}.",
            {
                "fastest": choice_words(plan.fastest, unit),
                least: choice_words(plan.cheapest, unit),
                **(
                    {
                        "meet the target": f"{len(plan.within_target)} of {len(plan.choices)}"
                        " clusters and methods"
                    }
                    if target.limited
                    else {}
                ),
            },
            plan_figures(plan),
            [
                *plan.notes,
                *(f"Left out: {reason}" for reason in reasons[:_MAX_REASONS]),
                *([f"{left} more are left out; `json` lists all."] if left > 0 else []),
            ],
            "plan",
            plan.to_dict(),
            _choices_table(plan),
        )
    )


def _choices_table(plan: ClusterPlan) -> PageTable:
    """Return a row for each cluster and method: the front first, then others, fastest first."""
    front, known = set(plan.front), set(plan.known)

    def standing(one: ParetoChoice) -> str:
        if one in front:
            return f"on the {plan.front_title}"
        return "slower or dearer" if one in known else "iteration time only"

    divided = any(one.divided for one in plan.choices)
    order = sorted(plan.choices, key=lambda one: (one not in front, one.seconds, one.spent))
    return PageTable(
        "Choices",
        (
            *("method", "GPUs", "GPU", "network", *(["division"] * divided)),
            *("epochs, x S-SGD's", "hours"),
            *(
                "90 % from [h]",
                "90 % to [h]",
                f"cost [{plan.unit}]",
                "meets the target",
                "standing",
            ),
        ),
        [
            (
                one.scenario.method,
                one.scenario.gpus,
                one.scenario.gpu,
                "one node" if one.scenario.nodes == 1 else one.scenario.net,
                *([one.divided.division.words if one.divided else ""] * divided),
                one.learning.words,
                one.seconds / HOUR_S,
                *(end / HOUR_S if isfinite(end) else "and more" for end in one.interval_s),
                one.spent,
                "yes" if one.excess(plan.target) <= 1.0 else "no",
                standing(one),
            )
            for one in order
        ],
    )
