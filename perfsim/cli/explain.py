"""``perfsim explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfsim.cli.flags import EpochsOfFlag, PngFlag, TraceFlag, VerboseFlag
from perfsim.cli.output import Outputs, print_answer
from perfsim.cli.predict import ranking_of, timeline_png
from perfsim.cli.predict import trace as trace_of
from perfsim.cli.scenario_flags import ScenarioFlags, scenario_command

__all__ = ["explain_command"]


@scenario_command()
def explain_command(
    asked: ScenarioFlags,
    out: Path | None,
    json: bool,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a page that opens in any browser: critical path, exposed buckets, what"
            " pays, break-even.",
        ),
    ] = None,
    trace: TraceFlag = None,
    png: PngFlag = None,
    epochs_of: EpochsOfFlag = None,
    verbose: VerboseFlag = False,
) -> None:
    """Explain one iteration: critical path, exposed buckets, what pays, break-even with S-SGD."""
    from perfsim.planning.explain import explain
    from perfsim.report.terminal import json_text
    from perfsim.scenario import make_scenario
    from perfsim.session import Session

    outputs = Outputs(out=out, html=html, trace=trace, png=png)
    outputs.check()
    catalog = Session(asked.profiles)
    fields, notes = asked.fields()
    scenario = make_scenario(fields)
    ranking = ranking_of(scenario, catalog, epochs_of)
    if ranking is not None:
        from perfsim.methods.fusion_settings import for_method

        notes.append(f"{ranking.winner} is explained, as --method auto asks. {ranking.verdict()}")
        scenario = for_method(scenario, ranking.winner)[0]
    explanation = explain(scenario, catalog)
    explanation.notes[:0] = notes

    def page() -> str:
        from perfsim.report.html.pages import explanation_page

        return explanation_page(explanation)

    outputs.write(
        out=lambda: json_text(explanation.to_dict()) + "\n",
        html=page,
        trace=lambda: trace_of(explanation.prediction),
        png=lambda: timeline_png(explanation.prediction),
    )

    def show() -> None:
        from perfsim.report.planning import print_explanation

        print_explanation(explanation, verbose=verbose)

    print_answer(explanation.to_dict, None, json, show)
