"""A report as one HTML page that opens offline: the answer, figures with tables, notes, sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsim.report.drawing import Drawing
from perfsim.report.html.figure import CellText, Figure
from perfsim.report.html.render import render
from perfsim.report.terminal import network_words
from perfsim.scenario import gpu_words

if TYPE_CHECKING:
    from perfsim.prediction import Prediction
    from perfsim.resolve import ResolvedScenario

__all__ = ["Page", "PageTable", "page_text", "question_of", "sources_of"]


@dataclass(frozen=True)
class PageTable:
    """A table with its heading and a sentence above it; every column names its unit."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[CellText]]
    words: str = ""

    @property
    def name(self) -> str:
        """Its identifier in the page."""
        return self.title.lower()


@dataclass(frozen=True)
class Page:
    """What a page holds.

    Parameters
    ----------
    title, question : the heading, and what was asked in a sentence
    answer : lines of the answer by their names; the first is the main one
    figures : in their order; their numbers stand in the page as JSON and as tables
    notes : sentences below the figures
    kind, result : the result as plain data, and the id of the element that holds it as JSON; if
        it is long, the element holds gzip in base64 until the page has been opened
    table : below the notes: the sources of the numbers, or all rows
    drawing : above the figures: what is asked about, as boxes and wires
    """

    title: str
    question: str
    answer: Mapping[str, str]
    figures: Sequence[Figure]
    notes: Sequence[str]
    kind: str
    result: Mapping[str, Any]
    table: PageTable | None = None
    drawing: Drawing | None = None


def page_text(page: Page) -> str:
    """Return the page as text; it holds all that it needs, Plotly's script among it."""
    drawn = [{"name": one.name, "data": one.data, "layout": one.layout} for one in page.figures]
    return render("page.html.j2", title=f"perfsim: {page.title}", page=page, drawn=drawn)


def question_of(scenario: ResolvedScenario) -> str:
    """Say in a sentence what was asked."""
    given = ", ".join(f"{name} {value}" for name, value in scenario.options.items())
    return (
        f"{gpu_words(scenario.gpus, scenario.gpu)} on {scenario.nodes}"
        f" node{'s' * (scenario.nodes != 1)}, {network_words(scenario)}; batch {scenario.batch} a"
        f" GPU, {scenario.precision}; {scenario.method}{f' ({given})' if given else ''}, fusion"
        f" {scenario.fusion}, {'overlap' if scenario.overlap else 'no overlap'}."
    )


def sources_of(prediction: Prediction) -> PageTable:
    """Return the table of a prediction's terms with their sources."""
    return PageTable("Sources", ("term", "value", "kind", "source"), list(_source_rows(prediction)))


def _source_rows(prediction: Prediction) -> Iterator[tuple[str, ...]]:
    for term in prediction.terms:
        kind = f"{term.quantity.kind}, extrapolated" if term.extrapolated else term.quantity.kind
        yield term.term, str(term.quantity), kind, term.quantity.source
