"""``perfsim predict``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsim.cli.flags import (
    ChakraFlag,
    EpochsOfFlag,
    HtmlFlag,
    PngFlag,
    TimelineFlag,
    TraceFlag,
    VerboseFlag,
)
from perfsim.cli.output import Outputs, print_answer
from perfsim.cli.progress import progress
from perfsim.cli.scenario_flags import ScenarioFlags, scenario_command
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog
    from perfsim.prediction import Prediction
    from perfsim.ranking import Ranking
    from perfsim.scenario import Scenario
    from perfsim.session import Session

__all__ = ["chakra", "predict_command", "ranking_of", "timeline_png", "trace"]

_MAX_METHODS_ON_PAGE = 5
"""Methods of a ranking that its page shows, beside the baseline."""


@scenario_command()
def predict_command(
    asked: ScenarioFlags,
    out: Path | None,
    json: bool,
    timeline: TimelineFlag = False,
    trace: TraceFlag = None,
    chakra: ChakraFlag = None,
    html: HtmlFlag = None,
    png: PngFlag = None,
    epochs_of: EpochsOfFlag = None,
    verbose: VerboseFlag = False,
) -> None:
    """Predict one iteration: its time and interval, where it goes, what holds it back, and why."""
    from perfsim.scenario import make_scenario
    from perfsim.session import Session

    if timeline and json:
        raise RequestError(
            "timeline", "it is text for a terminal; leave out `json`, or take `trace` FILE."
        )
    outputs = Outputs(out=out, trace=trace, chakra=chakra, html=html, png=png)
    outputs.check()
    catalog = Session(asked.profiles)
    fields, notes = asked.fields()
    scenario = make_scenario(fields)
    ranking = ranking_of(scenario, catalog, epochs_of)
    prediction = _predicted(scenario, ranking, catalog)
    if asked.scenario is not None:
        _add_file_notes(prediction, notes, asked.scenario, catalog, None if ranking else fields)
    _write(outputs, prediction, scenario, catalog, ranking)
    print_answer(
        (ranking or prediction).to_dict,
        None,
        json,
        lambda: _show(prediction, ranking, timeline=timeline, verbose=verbose),
    )


def ranking_of(
    scenario: Scenario, catalog: Catalog, epochs_of: list[str] | None = None
) -> Ranking | None:
    """Rank all methods where ``--method auto`` asks for it; None elsewhere.

    Raises
    ------
    RequestError
        If epochs are stated where no methods are ranked.
    """
    from perfsim.methods import AUTO_METHOD

    if scenario.method.lower() != AUTO_METHOD:
        if epochs_of:
            raise RequestError(
                "epochs_of",
                "is for ranking methods: `perfsim predict --method auto`, `perfsim compare` or"
                " `perfsim plan`.",
            )
        return None
    from perfsim.ranking import rank
    from perfsim.time_to_accuracy import parse_epochs_of

    factors = parse_epochs_of(epochs_of or [])
    with progress() as show_progress:
        return rank(scenario, catalog, show_progress, factors)


def _predicted(scenario: Scenario, ranking: Ranking | None, catalog: Session) -> Prediction:
    """Return the prediction of the scenario, or of the first method of a ranking."""
    if ranking is not None:
        return ranking.predictions[ranking.winner]
    from perfsim.prediction import predict

    return predict(scenario, catalog)


def _add_file_notes(
    prediction: Prediction,
    notes: list[str],
    scenario: str,
    catalog: Session,
    fields: dict[str, Any] | None,
) -> None:
    """Add the notes on a scenario file: on its options first, on its claims last."""
    from perfsim.validate.claims import claim_notes

    prediction.notes[:0] = notes
    prediction.notes += claim_notes(scenario, catalog, fields)


def _show(
    prediction: Prediction, ranking: Ranking | None, *, timeline: bool, verbose: bool
) -> None:
    """Print the answer, and the text timeline if that was asked for."""
    from perfsim.report.prediction_screen import print_prediction
    from perfsim.report.terminal import print_lines

    if ranking is not None:
        from perfsim.report.comparison_screen import print_ranking

        print_ranking(ranking, verbose=verbose)
    print_prediction(prediction, verbose=verbose)
    if timeline:
        from perfsim.report.timeline import text_timeline

        print()
        key, *lines = text_timeline(prediction)
        print_lines([key], most=80)
        print("\n".join(lines))


def _write(
    outputs: Outputs,
    prediction: Prediction,
    scenario: Scenario,
    catalog: Catalog,
    ranking: Ranking | None,
) -> None:
    """Write the files that were asked for."""

    def out() -> str:
        from perfsim.report.terminal import json_text

        return json_text((ranking or prediction).to_dict()) + "\n"

    outputs.write(
        trace=lambda: trace(prediction),
        chakra=lambda: chakra(prediction),
        png=lambda: timeline_png(prediction),
        html=lambda: _page(prediction, scenario, catalog, ranking),
        out=out,
    )


def trace(prediction: Prediction) -> str:
    """Return a prediction's trace as text."""
    from perfsim.report.chrome_trace import trace_of, trace_text

    return trace_text(trace_of(prediction))


def chakra(prediction: Prediction) -> str:
    """Return a prediction's Chakra trace as text."""
    from perfsim.report.chakra import chakra_text

    return chakra_text(prediction)


def timeline_png(prediction: Prediction) -> bytes:
    """Return a prediction's timeline as a PNG."""
    from perfsim.report.html.figure import figure_label, png_of
    from perfsim.report.html.pages import title_of
    from perfsim.report.html.prediction_figures import timeline_figure
    from perfsim.units import format_seconds

    words = f"{title_of(prediction)}: {format_seconds(prediction.iteration_s)} an iteration"
    return png_of(timeline_figure(prediction), figure_label(words))


def _page(
    prediction: Prediction, scenario: Scenario, catalog: Catalog, ranking: Ranking | None
) -> str:
    """Return the HTML page of a prediction, with other methods and scalings around it."""
    from perfsim.methods.fusion_settings import for_method
    from perfsim.planning.neighbours import report_context
    from perfsim.report.html.pages import prediction_page

    names = None
    notes: list[str] = []
    if ranking is not None:
        scenario = for_method(scenario, ranking.winner)[0]
        names = list(ranking.predictions)[:_MAX_METHODS_ON_PAGE]
        notes = [ranking.verdict()]
    with progress() as show_progress:
        near = report_context(scenario, prediction, catalog, names, show_progress)
    return prediction_page(prediction, near, notes)
