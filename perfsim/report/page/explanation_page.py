"""The report of ``explain`` as one HTML page: the critical path, buckets, what pays, break-even."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsim.report.explain import break_even_words, verdict
from perfsim.report.page.crossing import crossing_figure
from perfsim.report.page.exposed import exposed_figure
from perfsim.report.page.figure import Figure
from perfsim.report.page.frame import Page, page_text, question_of, sources_of
from perfsim.report.page.path import path_figure
from perfsim.report.page.prediction_page import answer_of, title_of
from perfsim.report.page.sensitivity import sensitivity_figure

if TYPE_CHECKING:
    from perfsim.planning.explain import Explanation

__all__ = ["explanation_figures", "explanation_page"]


def explanation_figures(found: Explanation) -> list[Figure]:
    """Return the figures of the report, in the page's order; those that there is something for."""
    scenario = found.prediction.scenario
    figures = [
        path_figure(path, number, len(found.paths))
        for number, path in enumerate(found.paths, 1)
        if path.steps
    ]
    if found.exposed:
        figures.append(exposed_figure(found.exposed))
    if found.improvements:
        figures.append(sensitivity_figure(found))
    figures += [
        crossing_figure(one, scenario["method"], here)
        for one, here in ((found.bandwidth, 1.0), (found.gpus, float(scenario["gpus"])))
        if not one.why_not
    ]
    return figures


def explanation_page(found: Explanation) -> str:
    """Return the page as text, with the explanation as ``--json`` prints it ("explanation")."""
    prediction = found.prediction
    method = prediction.scenario["method"]
    even = " ".join(
        words for one in (found.bandwidth, found.gpus) for words in break_even_words(one, method)
    )
    return page_text(
        Page(
            f"Why it takes so long: {title_of(prediction)}",
            question_of(prediction.scenario),
            answer_of(prediction) | {"what pays": verdict(found), "break-even with S-SGD": even},
            explanation_figures(found),
            [*found.notes, *prediction.notes],
            "explanation",
            found.to_dict(),
            sources_of(prediction),
        )
    )
