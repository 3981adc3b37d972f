"""The report of a prediction as one HTML page that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfsim.report.page.breakdown import breakdown
from perfsim.report.page.breakeven import breakeven
from perfsim.report.page.figure import Figure
from perfsim.report.page.frame import Page, page_text, question_of, sources_of
from perfsim.report.page.scaling import scaling
from perfsim.report.page.timeline import timeline
from perfsim.report.page.worth import worth
from perfsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from perfsim.planning.around import Around
    from perfsim.prediction import Prediction

__all__ = ["answer_of", "figures_of", "prediction_page", "title_of"]


def figures_of(prediction: Prediction, near: Around) -> list[Figure]:
    """Return the figures of the report, in the page's order."""
    asked = prediction.scenario["method"]
    found = [
        timeline(prediction),
        breakdown(near.methods, near.refused),
        scaling(near.scaling, near.measured, asked),
    ]
    if near.cells:
        found.append(breakeven(near.cells, near.mapped, near.notes))
    return [*found, worth(prediction)]


def prediction_page(prediction: Prediction, near: Around, notes: Sequence[str] = ()) -> str:
    """Return the page as text; ``notes`` come before those of the prediction.

    It holds Plotly's script, the figures' numbers as JSON and as tables, and the prediction as
    ``--json`` prints it (the element "prediction").
    """
    return page_text(
        Page(
            title_of(prediction),
            question_of(prediction.scenario),
            answer_of(prediction),
            figures_of(prediction, near),
            [*notes, *prediction.notes, *(() if near.cells else near.notes)],
            "prediction",
            prediction.to_dict(),
            sources_of(prediction),
        )
    )


def title_of(prediction: Prediction) -> str:
    """Return the heading of a prediction's page."""
    scenario = prediction.scenario
    return f"{scenario['model']}, {scenario['method']}, {scenario['gpus']} GPUs, {scenario['net']}"


def answer_of(prediction: Prediction) -> dict[str, str]:
    """Return the answer in a few lines, as the terminal has it."""
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
        "memory held": f"{format_bytes(sum(prediction.memory_bytes.values()))} without activations",
    }
