"""The report of ``tune`` as one HTML page: a curve a thing tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsim.report.page.figure import Figure
from perfsim.report.page.frame import Page, page_text, question_of
from perfsim.report.page.tuned import tuned_figure
from perfsim.report.tune import NAMES, sentences
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.planning.tune import Tuning

__all__ = ["tuning_figures", "tuning_page"]


def tuning_figures(found: Tuning) -> list[Figure]:
    """Return the figures of the report: one for each thing that makes a difference."""
    return [tuned_figure(one) for one in found.tuned if not one.idle]


def tuning_page(found: Tuning) -> str:
    """Return the page as text, with the tuning as ``--json`` prints it (the element "tuning")."""
    scenario = found.scenario
    named = f"{scenario['model']}, {scenario['method']}, {scenario['gpus']} GPUs, {scenario['net']}"
    return page_text(
        Page(
            f"Tuning {named}",
            question_of(scenario),
            {"as asked": f"{format_seconds(found.iteration_s)} an iteration"}
            | {NAMES[one.knob.name]: " ".join(sentences(one)) for one in found.tuned},
            tuning_figures(found),
            found.notes,
            "tuning",
            found.to_dict(),
        )
    )
