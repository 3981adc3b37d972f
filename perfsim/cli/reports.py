"""What ``predict`` writes besides its answer: a text timeline, a trace, a page, a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfsim.cli.working import working
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.catalog import Catalog
    from perfsim.prediction import Prediction
    from perfsim.ranking import Ranking
    from perfsim.scenario import Scenario

__all__ = ["Reports"]

SHOWN = 5
"""Methods of a ranking that its page shows, beside the baseline."""


@dataclass(frozen=True)
class Reports:
    """The reports that are asked for."""

    timeline: bool = False
    trace: Path | None = None
    html: Path | None = None
    png: Path | None = None

    def check(self, out: Path | None, json: bool) -> None:
        """Refuse what cannot be, before anything is predicted.

        Raises
        ------
        RequestError
            If two reports go to one file, ``--timeline`` comes with ``--json``, or Plotly or
            Kaleido is missing where it is needed.
        """
        if self.timeline and json:
            raise RequestError(
                "--timeline: it is text for a terminal; leave out --json, or take --trace FILE."
            )
        paths = {"--out": out, "--trace": self.trace, "--html": self.html, "--png": self.png}
        seen: dict[Path, str] = {}
        for flag, path in paths.items():
            if path is None:
                continue
            place = path.resolve()
            if place in seen and not (place.exists() and not place.is_file()):
                raise RequestError(f"{flag}: {str(path)!r} is the file of {seen[place]} already.")
            seen[place] = flag
        if self.html:
            from perfsim.report.page.page import need_plotly

            need_plotly("--html")
        if self.png:
            from perfsim.report.page.png import need_kaleido

            need_kaleido()

    def write(
        self,
        prediction: Prediction,
        scenario: Scenario,
        catalog: Catalog,
        ranking: Ranking | None = None,
    ) -> None:
        """Write the files; ``scenario`` is what was asked, a ranking where that was for all."""
        from perfsim.files import write_bytes, write_text

        if self.trace:
            from perfsim.report.trace import trace_text

            write_text(self.trace, trace_text(prediction), "--trace")
        if self.png:
            from perfsim.report.page.png import png_of
            from perfsim.report.page.timeline import timeline

            write_bytes(self.png, png_of(timeline(prediction), _title(prediction)), "--png")
        if self.html:
            write_text(self.html, _page(prediction, scenario, catalog, ranking), "--html")

    def show(self, prediction: Prediction) -> None:
        """Print the text timeline if that is asked for."""
        if self.timeline:
            from perfsim.report.terminal import print_lines
            from perfsim.report.text_timeline import text_timeline

            print()
            key, *lines = text_timeline(prediction)
            print_lines([key], most=80)
            print("\n".join(lines))


def _title(prediction: Prediction) -> str:
    from perfsim.report.page.figure import plain
    from perfsim.units import format_seconds

    scenario = prediction.scenario
    named = f"{scenario['model']}, {scenario['method']}, {scenario['gpus']} GPUs, {scenario['net']}"
    return plain(f"{named}: {format_seconds(prediction.iteration_s)} an iteration")


def _page(
    prediction: Prediction, scenario: Scenario, catalog: Catalog, ranking: Ranking | None
) -> str:
    from perfsim.own_fusion import for_method
    from perfsim.planning.around import around
    from perfsim.report.page.page import prediction_page

    names = None
    notes: list[str] = []
    if ranking is not None:
        scenario = for_method(scenario, ranking.winner)[0]
        names = list(ranking.predictions)[:SHOWN]
        notes = [ranking.verdict()]
    with working() as tell:
        near = around(scenario, prediction, catalog, names, tell)
    return prediction_page(prediction, near, notes)
