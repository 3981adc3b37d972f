"""``perfsim sweep``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perfsim.cli.completion import COMPLETIONS
from perfsim.cli.output import Outputs, tell_written
from perfsim.cli.progress import progress
from perfsim.cli.scenario_flags import ScenarioFlags, scenario_command
from perfsim.errors import RequestError, StoppedError

if TYPE_CHECKING:
    from perfsim.planning.grid import SweepGrid
    from perfsim.planning.sweep import Engine, Sweep, SweepTable

__all__ = ["sweep_command"]

_SWEEP_HELP = {
    "set_": "Option of the method, such as density=0.01; METHOD.NAME=VALUE for the rows of one"
    " method; fusion.NAME=VALUE for the fusion policy. May be repeated.",
    "method": "Training method (`perfsim list methods`); --vary method=all takes every one.",
    "out": "Write the rows here; the name says how: .csv, .jsonl or .parquet. An interrupted run"
    " goes on from FILE.journal.",
    "json": "Print one JSON object. Its rows, as those of .jsonl, are the objects of `predict"
    " --json`, without interval, bottleneck and notes, which take more runs (--full has them).",
}


@scenario_command(_SWEEP_HELP)
def sweep_command(
    asked: ScenarioFlags,
    out: Path | None,
    json: bool,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            help="Scenario file (TOML) or shipped scenario, with a table [sweep] of what varies"
            " if it has one; flags override it.",
            autocompletion=COMPLETIONS["scenarios"],
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUES",
            help="A field of the scenario (gpus, net, method, bucket, options.density,"
            " fusion_options.NAME, ...) and its values: a list 8,16,64; 8..64 doubles; 8..64:8"
            " adds 8; 1ms..1s:log5 and 1ms..1s:lin5 are five values; method=all. Semicolons stand"
            " between values with commas: site=8,8;8,8,16. May be repeated: every combination is a"
            " row, the last field fastest.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Also interval, breakdown, bottleneck, speedup over ssgd, memory and whether it"
            " fits (slower).",
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew, whatever an interrupted run left.")
    ] = False,
    format_: Annotated[
        Literal["table", "csv", "jsonl"] | None,
        typer.Option(
            "--format",
            help="What standard output gets, without --out.",
            show_default="table on a terminal, else csv",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=1024, metavar="N", help="Spread over N processes here, by Dask."),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Spread over the Dask cluster of this scheduler."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a page that opens in any browser: the rows drawn over what varies.",
        ),
    ] = None,
    trace: Annotated[Path | None, typer.Option(hidden=True)] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also draw throughput over GPUs beside the ideal line, or else iterations over"
            " what varies, as a PNG (needs 'perfsim[png]' and Chrome or Chromium).",
        ),
    ] = None,
) -> None:
    """Predict every combination of what varies: GPUs, networks, methods, options, ...

    A combination that does not go together is a row without figures; its column `reason` says why.
    """
    from perfsim.planning.sweep import Sweep

    if trace is not None:
        raise RequestError(
            "trace",
            "a sweep has no timeline, as its rows are many scenarios; `perfsim predict` and"
            " `perfsim compare` write one.",
        )
    outputs = Outputs(out=out, html=html, png=png)
    outputs.check()
    if file is not None and asked.scenario is not None:
        raise RequestError("scenario", "a scenario file is given already, before the flags.")
    asked = asked._replace(scenario=file or asked.scenario)
    lines = out is not None and out.suffix.lower() == ".jsonl"
    objects = json or lines or html is not None or (out is None and format_ == "jsonl")
    sweep = Sweep(_grid(asked, vary or []), asked.profiles, full, objects)
    if out is not None:
        from perfsim.report.sweep_files import check_format

        check_format(out)
    if html is not None or png is not None:
        from perfsim.report.html.pages import check_rows

        check_rows(len(sweep.grid), "html" if html else "png")
    table = _table(sweep, _engine(workers, dask), out, fresh=fresh)

    def page() -> str:
        from perfsim.report.html.pages import sweep_page

        return sweep_page(table)

    outputs.write(html=page, png=lambda: _picture(table))
    if out is not None:
        _write(table, out)
    _show(table, format_, json=json, written=out is not None)


def _table(sweep: Sweep, engine: Engine, out: Path | None, *, fresh: bool) -> SweepTable:
    """Predict the rows; an interrupted run says how to go on."""
    from perfsim.planning.sweep import finished, journal_of, resumed

    count, done = len(sweep.grid), 0
    journal = None if out is None else journal_of(out)
    begun = journal is not None and journal.exists()

    def tell(now: int) -> None:
        nonlocal done
        done = now
        show(done, count)

    try:
        with progress("rows") as show:
            table = resumed(sweep, engine, out, tell, fresh=fresh)
    except KeyboardInterrupt:
        if out is None:
            raise StoppedError("stopped; with --out, the rows so far would be kept.") from None
        if not (done or begun):
            finished(out)
            raise StoppedError("stopped before the first rows were there.") from None
        kept = f"the rows so far are in {journal}, and the same command goes on from there"
        raise StoppedError(f"stopped; {kept}.") from None
    refused = table.refusal_error()
    if refused is not None:
        if out is not None:
            finished(out)
        raise refused
    return table


def _write(table: SweepTable, out: Path) -> None:
    """Write the rows, then remove the journal."""
    from perfsim.data.files import check_not_read
    from perfsim.planning.sweep import finished, journal_of
    from perfsim.report.sweep_files import write_sweep

    try:
        check_not_read(out, "out")
        write_sweep(table, out)
    except RequestError as error:
        kept = f"all rows are in {journal_of(out)}, and the same command goes on from there"
        why = f"{error.why.rstrip('.')}; {kept}."
        raise RequestError(error.field, why, value=error.value) from None
    finished(out)
    tell_written(out)


def _picture(table: SweepTable) -> bytes:
    """Draw the first figure of the sweep's page as a PNG."""
    from perfsim.report.html.figure import figure_label, png_of
    from perfsim.report.html.pages import sweep_figures

    figures = sweep_figures(table)
    if not figures:
        raise RequestError("png", "all rows have the same values, so there is nothing to draw.")
    first = figures[0]
    return png_of(
        first, figure_label(f"{table.sweep.grid.base.get('model', 'sweep')}: {first.title}")
    )


def _grid(asked: ScenarioFlags, vary: list[str]) -> SweepGrid:
    """Return the grid that file and flags describe: fields that are fixed, fields that vary."""
    from perfsim.data.catalog import Catalog
    from perfsim.planning.grid import axes_of, parse_vary, sweep_grid
    from perfsim.scenario_file import read_scenario

    fields, notes = asked.fields()
    own: tuple[str, ...] = ()
    table: dict[str, Any] = {}
    scenario = asked.scenario
    if scenario is not None:
        stored = read_scenario(Catalog(asked.profiles).scenario(scenario))
        table = stored.get("sweep", {})
        set_here = {pair.partition("=")[0].strip() for pair in asked.pairs}
        own = tuple(sorted(set(stored["scenario"].get("options", {})) - set_here))
        if not isinstance(table, dict):
            raise RequestError(
                "", "[sweep] is not a table of fields and values.", source=str(scenario)
            )
    for note in notes:
        typer.echo(f"perfsim: {note}", err=True)
    axes = {axis.field: axis for axis in axes_of(table, f"{scenario}: [sweep]")}
    axes |= {axis.field: axis for axis in axes_of(parse_vary(vary))}
    if not axes:
        raise RequestError("vary", "nothing varies; give a field and values such as gpus=8..64.")
    return sweep_grid(fields, tuple(axes.values()), own)


def _engine(workers: int | None, dask: str | None) -> Engine:
    """Return what predicts the rows: this process, processes here, or a Dask cluster."""
    from perfsim.planning.sweep import serial

    if workers is not None and dask is not None:
        raise RequestError("workers", "not with `dask`, whose cluster has its own.")
    if workers is None and dask is None:
        return serial
    from perfsim.planning.dask import DaskEngine

    return DaskEngine(workers, dask)


def _show(table: SweepTable, format_: str | None, *, json: bool, written: bool) -> None:
    """Print the rows as asked; of rows that are in a file only the summary."""
    from perfsim.report.planning import print_sweep
    from perfsim.report.sweep_files import sweep_csv, sweep_jsonl
    from perfsim.report.terminal import json_text

    if json:
        typer.echo(json_text(table.to_dict()))
        return
    chosen = format_ or ("table" if sys.stdout.isatty() else "csv")
    if chosen == "table" or (written and format_ is None):
        print_sweep(table, rows=not written or format_ is not None)
    else:
        sys.stdout.write(sweep_csv(table) if chosen == "csv" else sweep_jsonl(table))
