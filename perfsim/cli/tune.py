"""``perfsim tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfsim.cli.flags import GlobalBatchFlag, VerboseFlag
from perfsim.cli.output import Outputs, print_answer
from perfsim.cli.predict import trace as trace_of
from perfsim.cli.progress import progress
from perfsim.cli.scenario_flags import ScenarioFlags, command_of, scenario_command
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
            help="What to tune: bucket, density, rank, interval or algorithm; may be repeated."
            " Or parallelism, by itself: tp, pp, cp, ep, etp, micro-batch, recompute and sharding"
            " that fit in memory, each unless its flag is given.",
            show_default="all of the former that the method has",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="What the best parallelism is best by: time or gpu-hours.",
            show_default="time",
        ),
    ] = None,
    global_batch: GlobalBatchFlag = None,
    gpus_up_to: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Also search parallelism on 2, 4, ... times --gpus, up to so many.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a page that opens in any browser: a figure for each thing tuned.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the timeline as a Chrome trace (JSON), with the one change that saves"
            " most, or best divided.",
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also draw the curve of the one change that saves most, or ways to divide, as a"
            " PNG (needs 'perfsim[png]' and Chrome or Chromium).",
        ),
    ] = None,
    ignore_memory: Annotated[
        bool,
        typer.Option("--ignore-memory", help="Also tune what needs more memory than the GPU has."),
    ] = False,
    verbose: VerboseFlag = False,
) -> None:
    """Tune a scenario: the best bucket size, density, rank, interval, algorithm or parallelism."""
    from perfsim.methods import AUTO_METHOD
    from perfsim.planning.tune import PARALLELISM, tune, tune_parallelism
    from perfsim.scenario import make_scenario
    from perfsim.session import Session

    outputs = Outputs(out=out, html=html, trace=trace, png=png)
    outputs.check()
    session = Session(asked.profiles)
    fields, notes = asked.fields()
    if over == [PARALLELISM]:
        from perfsim.planning.divisions import with_tp_of_experts

        fields = dict(with_tp_of_experts(fields))
    scenario = make_scenario(fields)
    if scenario.method.lower() == AUTO_METHOD:
        raise RequestError(
            "method",
            "auto is no method to tune; `perfsim predict --method auto` ranks all, then tune one.",
            value=scenario.method,
        )
    if over == [PARALLELISM]:
        with progress() as show_progress:
            tuning = tune_parallelism(
                scenario,
                session,
                by=by or "time",
                global_batch=global_batch,
                gpus_up_to=gpus_up_to,
                ignore_memory=ignore_memory,
                tell=show_progress,
            )
    else:
        given = {"by": by, "global_batch": global_batch, "gpus_up_to": gpus_up_to}
        for name, value in given.items():
            if value is not None:
                raise RequestError(name, "is for `over` parallelism.", value=value)
        tuning = tune(scenario, over or (), session, ignore_memory=ignore_memory)
    tuning.notes[:0] = notes
    command = _command(asked, tuning)

    _write(outputs, tuning, scenario, session, command)

    def show() -> None:
        from perfsim.report.planning import print_tuning

        print_tuning(tuning, command, verbose=verbose)

    print_answer(lambda: _with_command(tuning, command), None, json, show)


def _command(asked: ScenarioFlags, tuning: Tuning) -> str:
    """Return the command that predicts the best way to divide training; "" without one."""
    if tuning.parallelism is None:
        return ""
    best = tuning.parallelism.best.tried
    changes = best.division.fields()
    if best.division.sharding.method:
        changes |= {"method": best.method, "options": dict(best.division.sharding.options)}
    return command_of(asked, changes)


def _with_command(tuning: Tuning, command: str) -> dict[str, Any]:
    """Return a tuning as plain data, with the command that predicts the best where there is one."""
    result = tuning.to_dict()
    if command:
        result["parallelism"]["command"] = command
    return result


def _write(
    outputs: Outputs, tuning: Tuning, scenario: Scenario, session: Session, command: str
) -> None:
    """Write the files that were asked for."""

    def page() -> str:
        from perfsim.report.html.pages import tuning_page

        return tuning_page(tuning)

    def timeline() -> str:
        from perfsim.planning.tune import with_best

        return trace_of(with_best(scenario, tuning, session))

    def picture() -> bytes:
        from perfsim.report.html.figure import figure_label, png_of
        from perfsim.report.html.planning_figures import parallelism_figure, tuned_figure

        asked = tuning.scenario
        if tuning.parallelism is not None:
            title = f"{asked.model}, {asked.gpus} GPUs, {asked.net}: ways to divide training"
            return png_of(parallelism_figure(tuning.parallelism), figure_label(title))
        words = f"{asked.model}, {asked.method}, {asked.gpus} GPUs, {asked.net}"
        return png_of(
            tuned_figure(tuning.best), figure_label(f"{words}: {tuning.best.tunable.name}")
        )

    def out() -> str:
        from perfsim.report.terminal import json_text

        return json_text(_with_command(tuning, command)) + "\n"

    outputs.write(out=out, html=page, trace=timeline, png=picture)
