"""``perfsim compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfsim.cli.flags import EpochsOfFlag, VerboseFlag
from perfsim.cli.output import Outputs, print_answer
from perfsim.cli.progress import progress
from perfsim.cli.scenario_flags import ScenarioFlags, scenario_command, split_settings

if TYPE_CHECKING:
    from perfsim.planning.compare import Comparison
    from perfsim.session import Session

__all__ = ["compare_command"]

COMPARE_HELP = {
    "method": "The method that you have or have in mind: compared in any case, with its rank.",
    "set_": "Option for all methods that have it, such as density=0.01; METHOD.NAME=VALUE for one"
    " method; fusion.NAME=VALUE for fusion policies. May be repeated.",
    "single_gpu_kernels": "What the kernels of --method add to it on one GPU, as you measured it:"
    " 10ms.",
    "scenario": "Scenario file (TOML) or shipped scenario; flags override it. Its options are for"
    " its own method.",
}


@scenario_command(COMPARE_HELP)
def compare_command(
    asked: ScenarioFlags,
    out: Path | None,
    json: bool,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME,...",
            help="Methods to compare, such as ssgd,topk,dgc (`perfsim list methods`).",
            show_default="all that apply",
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            help="Order of the rows: accuracy (time to the same accuracy), time (of an iteration),"
            " high (upper end of its interval), exposed (communication), sent (bytes), memory or"
            " name; ranks are always by accuracy."
        ),
    ] = "accuracy",
    equal_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD|RATIO",
            help="Set density, rank or bits of each method that compresses so that it sends as much"
            " as this method, or S-SGD's bytes over this ratio: dgc, or 100. Methods that cannot"
            " are left out.",
        ),
    ] = None,
    epochs_of: EpochsOfFlag = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE", help="Also write the rows here, units in the columns' names."
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a page that opens in any browser: ranks with intervals, breakdown by"
            " method, scaling.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the timelines as a Chrome trace (JSON), with each method as a process"
            " of its own.",
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also draw the ranks as a PNG (needs 'perfsim[png]' and Chrome or Chromium).",
        ),
    ] = None,
    verbose: VerboseFlag = False,
) -> None:
    """Compare methods side by side: who is first at the same accuracy, and where the time goes."""
    from perfsim.planning.compare import compare
    from perfsim.scenario import make_scenario
    from perfsim.session import Session
    from perfsim.time_to_accuracy import parse_epochs_of

    outputs = Outputs(out=out, csv=csv, html=html, trace=trace, png=png)
    outputs.check()
    options, fusion = split_settings(asked.pairs)
    pairs = [f"fusion.{name}={value}" for name, value in fusion.items()]
    fields, notes = asked._replace(pairs=pairs).fields()
    session = Session(asked.profiles)
    with progress() as show_progress:
        comparison = compare(
            make_scenario(fields),
            methods,
            options=options,
            sort=sort,
            catalog=session,
            tell=show_progress,
            equal_bytes=equal_bytes,
            epochs_of=parse_epochs_of(epochs_of or []),
        )
    comparison.notes[:0] = notes
    _write(outputs, comparison, session)

    def show() -> None:
        from perfsim.report.comparison_screen import print_comparison

        print_comparison(comparison, verbose=verbose)

    print_answer(comparison.to_dict, None, json, show)


def _write(outputs: Outputs, comparison: Comparison, session: Session) -> None:
    """Write the files that were asked for."""

    def page() -> str:
        from perfsim.planning.compare import scaling_of
        from perfsim.report.html.pages import comparison_page

        with progress() as show_progress:
            curves = scaling_of(comparison, session, show_progress)
        return comparison_page(comparison, curves)

    def picture() -> bytes:
        from perfsim.report.html.figure import figure_label, png_of
        from perfsim.report.html.prediction_figures import ranking_figure

        scenario = comparison.rows[0].scenario
        words = f"{scenario.model}, {scenario.gpus} GPUs, {scenario.net}"
        return png_of(ranking_figure(comparison), figure_label(words))

    def traces() -> str:
        from perfsim.report.chrome_trace import trace_of_all, trace_text

        return trace_text(trace_of_all(comparison.ranking.predictions))

    def rows() -> str:
        from perfsim.data.tables import to_csv

        return to_csv(comparison.records())

    def out() -> str:
        from perfsim.report.terminal import json_text

        return json_text(comparison.to_dict()) + "\n"

    outputs.write(out=out, csv=rows, html=page, trace=traces, png=picture)
