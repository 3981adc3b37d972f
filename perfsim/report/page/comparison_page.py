"""The report of ``compare`` as one HTML page: ranks with intervals, where time goes, scaling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perfsim.ranking import CAVEAT
from perfsim.report.page.breakdown import breakdown
from perfsim.report.page.figure import Figure
from perfsim.report.page.frame import Page, page_text
from perfsim.report.page.ranked import ranked
from perfsim.report.page.scaling import scaling
from perfsim.report.terminal import cluster_words
from perfsim.units import format_seconds

if TYPE_CHECKING:
    from perfsim.planning.comparison import Comparison
    from perfsim.prediction import Prediction

__all__ = ["comparison_figures", "comparison_page"]

Curves = Mapping[str, Mapping[int, "Prediction"]]


def comparison_figures(comparison: Comparison, curves: Curves) -> list[Figure]:
    """Return the figures of the report, in the page's order."""
    found = [ranked(comparison), breakdown(comparison.ranking.predictions, {}, shares=True)]
    if any(len(curve) > 1 for curve in curves.values()):
        found.append(scaling(curves, None, ""))
    return found


def comparison_page(comparison: Comparison, curves: Curves) -> str:
    """Return the page as text; ``curves`` are predictions of some methods by GPUs.

    It holds the comparison as ``--json`` prints it (the element "comparison").
    """
    scenario = comparison.rows[0].scenario
    verdict, *others = comparison.verdict()
    left_out = comparison.ranking.left_out()
    return page_text(
        Page(
            f"{len(comparison.rows)} methods: {scenario['model']}, {scenario['gpus']} GPUs,"
            f" {scenario['net']}",
            f"{scenario['model']}, {cluster_words(scenario)}; batch {scenario['batch']} a GPU,"
            f" {scenario['precision']}, {'overlap' if scenario['overlap'] else 'no overlap'}.",
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
