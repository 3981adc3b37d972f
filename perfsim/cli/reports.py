"""What ``predict`` writes besides its answer: a text timeline, a trace, a page, a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsim.cli.outputs import Outputs
from perfsim.cli.working import working
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.catalog import Catalog
    from perfsim.prediction import Prediction
    from perfsim.ranking import Ranking
    from perfsim.scenario import Scenario

__all__ = ["Reports", "timeline_png", "trace"]

SHOWN = 5
"""Methods of a ranking that its page shows, beside the baseline."""


class Reports:
    """The reports that are asked for."""

    def __init__(self, timeline: bool, outputs: Outputs) -> None:
        self.timeline, self.outputs = timeline, outputs

    def check(self, json: bool) -> None:
        """Refuse what cannot be, before anything is predicted.

        Raises
        ------
        RequestError
            If ``--timeline`` comes with ``--json``, or a file could not be written.
        """
        if self.timeline and json:
            raise RequestError(
                "--timeline: it is text for a terminal; leave out --json, or take --trace FILE."
            )
        self.outputs.check()

    def write(
        self,
        prediction: Prediction,
        scenario: Scenario,
        catalog: Catalog,
        ranking: Ranking | None = None,
    ) -> None:
        """Write the files; ``scenario`` is what was asked, a ranking where that was for all."""

        def page() -> str:
            return _page(prediction, scenario, catalog, ranking)

        def out() -> str:
            from perfsim.report.files import json_text

            return json_text((ranking or prediction).to_dict()) + "\n"

        self.outputs.write(
            trace=lambda: trace(prediction),
            chakra=lambda: chakra(prediction),
            png=lambda: timeline_png(prediction),
            html=page,
            out=out,
        )

    def show(self, prediction: Prediction, ranking: Ranking | None = None) -> None:
        """Print the answer, and the text timeline if that is asked for."""
        from perfsim.report.terminal import print_lines, print_prediction

        if ranking is not None:
            from perfsim.report.ranking import print_ranking

            print_ranking(ranking)
        print_prediction(prediction)
        if self.timeline:
            from perfsim.report.text_timeline import text_timeline

            print()
            key, *lines = text_timeline(prediction)
            print_lines([key], most=80)
            print("\n".join(lines))


def trace(prediction: Prediction) -> str:
    """Return a prediction's trace as text."""
    from perfsim.report.trace import trace_of, trace_text

    return trace_text(trace_of(prediction))


def chakra(prediction: Prediction) -> str:
    """Return a prediction's Chakra trace as text."""
    from perfsim.report.chakra import chakra_text

    return chakra_text(prediction)


def timeline_png(prediction: Prediction) -> bytes:
    """Return a prediction's timeline as a PNG."""
    from perfsim.report.page.figure import plain
    from perfsim.report.page.png import png_of
    from perfsim.report.page.prediction_page import title_of
    from perfsim.report.page.timeline import timeline
    from perfsim.units import format_seconds

    words = f"{title_of(prediction)}: {format_seconds(prediction.iteration_s)} an iteration"
    return png_of(timeline(prediction), plain(words))


def _page(
    prediction: Prediction, scenario: Scenario, catalog: Catalog, ranking: Ranking | None
) -> str:
    from perfsim.own_fusion import for_method
    from perfsim.planning.around import around
    from perfsim.report.page.prediction_page import prediction_page

    names = None
    notes: list[str] = []
    if ranking is not None:
        scenario = for_method(scenario, ranking.winner)[0]
        names = list(ranking.predictions)[:SHOWN]
        notes = [ranking.verdict()]
    with working() as tell:
        near = around(scenario, prediction, catalog, names, tell)
    return prediction_page(prediction, near, notes)
