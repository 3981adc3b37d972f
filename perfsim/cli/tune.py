"""``perfsim tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfsim.cli.output import Outputs, print_answer
from perfsim.cli.predict import trace as trace_of
from perfsim.cli.scenario_flags import ScenarioFlags, naming, scenario_command
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.planning.tune import Tuning
    from perfsim.scenario import Scenario
    from perfsim.session import Session

__all__ = ["tune_command"]


@scenario_command()
def tune_command(
    asked: ScenarioFlags,
    out: Path | None,
    json: bool,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What to tune: bucket, density, rank, interval or algorithm. May be repeated.",
            show_default="all that the method has",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a page that opens in any browser: a curve for each thing tuned.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the timeline as a Chrome trace (JSON), with the one change that saves"
            " most.",
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also draw the curve of the one change that saves most as a PNG (needs"
            " 'perfsim[png]' and Chrome or Chromium).",
        ),
    ] = None,
    ignore_memory: Annotated[
        bool,
        typer.Option("--ignore-memory", help="Also tune what needs more memory than the GPU has."),
    ] = False,
) -> None:
    """Tune a scenario: the best bucket size, density, rank, interval and algorithm, with curves."""
    from perfsim.methods import AUTO_METHOD
    from perfsim.planning.tune import tune
    from perfsim.scenario import make_scenario
    from perfsim.session import Session

    outputs = Outputs(out=out, html=html, trace=trace, png=png)
    outputs.check()
    session = Session(asked.profiles)
    fields, notes = asked.fields()
    with naming(asked.scenario):
        scenario = make_scenario(fields)
        if scenario.method.lower() == AUTO_METHOD:
            raise RequestError(
                "method",
                "auto is no method to tune; `perfsim predict --method auto` ranks all,"
                " then tune one.",
                value=scenario.method,
            )
        tuning = tune(scenario, over or (), session, ignore_memory=ignore_memory)
        tuning.notes[:0] = notes

    _write(outputs, tuning, scenario, session)

    def show() -> None:
        from perfsim.report.planning import print_tuning

        print_tuning(tuning)

    print_answer(tuning.to_dict(), None, json, show)


def _write(outputs: Outputs, tuning: Tuning, scenario: Scenario, session: Session) -> None:
    """Write the files that were asked for."""

    def page() -> str:
        from perfsim.report.html.pages import tuning_page

        return tuning_page(tuning)

    def timeline() -> str:
        from perfsim.planning.tune import with_best

        return trace_of(with_best(scenario, tuning, session))

    def picture() -> bytes:
        from perfsim.report.html.figure import figure_label, png_of
        from perfsim.report.html.planning_figures import tuned_figure

        asked = tuning.scenario
        words = f"{asked.model}, {asked.method}, {asked.gpus} GPUs, {asked.net}"
        return png_of(
            tuned_figure(tuning.best), figure_label(f"{words}: {tuning.best.tunable.name}")
        )

    def out() -> str:
        from perfsim.report.terminal import json_text

        return json_text(tuning.to_dict()) + "\n"

    outputs.write(out=out, html=page, trace=timeline, png=picture)
