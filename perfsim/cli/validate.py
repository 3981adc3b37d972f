"""``perfsim validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from perfsim.cli.flags import HtmlFlag, JsonFlag, OutFlag, ProfilesFlag, VerboseFlag
from perfsim.cli.help import OVERVIEW, examples
from perfsim.cli.output import Outputs, print_answer
from perfsim.cli.progress import progress

__all__ = ["validate_commands"]

_WORSE = 4
"""Exit code where predictions are worse than stored: a group of cases, a target of collectives."""

validate_commands = typer.Typer(
    help=(
        "Hold predictions against what was measured.\n\n"
        "Rows that cannot be predicted yet are counted by what perfsim lacks. Exit code 4 says that"
        " a group of what ships is worse than the stored record."
    ),
    invoke_without_command=True,
    rich_markup_mode=None,
)

MeasurementsFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--measurements",
        metavar="FILE",
        help="Table of measured runs (id, system, model, gpu, gpus, network, metric, value, ...),"
        " or of training runs (id, source, model, gpu, n_gpus, precision, strategy, tp, pp,"
        " micro_batch, global_batch, throughput_total, throughput_unit, step_time_s; a cell may be"
        " empty), told by its columns; default: what ships.",
    ),
]
ClusterFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="NAME", help="Only what ran on this network, or of this source."
    ),
]
MapFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--map",
        metavar="FILE",
        help="Rules of your own (TOML, as measurements/map.toml): they come after those that ship,"
        ' add to them, and lift an exclusion by exclude = "".',
    ),
]
MethodFlag: TypeAlias = Annotated[
    str | None, typer.Option("--method", metavar="NAME", help="Only this method.")
]


@validate_commands.callback()
@validate_commands.command(
    "measurements",
    short_help=OVERVIEW["validate measurements"],
    epilog=examples("validate measurements"),
)
def validate_cases(
    context: typer.Context,
    measurements: MeasurementsFlag = None,
    cluster: ClusterFlag = None,
    method: MethodFlag = None,
    map_: MapFlag = None,
    profiles: ProfilesFlag = None,
    out: OutFlag = None,
    html: HtmlFlag = None,
    json: JsonFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Predict what others measured of whole training runs, in three ways, and show the errors."""
    if context.invoked_subcommand is not None:
        return
    from perfsim.report.terminal import json_text
    from perfsim.session import Session
    from perfsim.validate.measurements import validate_measurements
    from perfsim.validate.record import stored_ways, worse_than_stored

    outputs = Outputs(out=out, html=html)
    outputs.check()
    catalog = Session(profiles)
    with progress("cases") as show_progress:
        report = validate_measurements(
            measurements,
            catalog,
            cluster=cluster,
            method=method,
            rules_path=map_,
            progress=show_progress,
        )
    whole = measurements is None and cluster is None and method is None and map_ is None
    worse = worse_than_stored(report, catalog) if whole else []
    collected = stored_ways(catalog) if whole else []

    def show() -> None:
        from perfsim.report.validation import print_measurements

        print_measurements(report, worse, collected, verbose=verbose)

    def page() -> str:
        from perfsim.report.validation import measurements_page

        return measurements_page(report)

    def found() -> dict[str, Any]:
        more = {
            "worse_than_stored": worse,
            "all_collected_ways": [one.to_dict() for one in collected],
        }
        return report.to_dict() | more

    outputs.write(out=lambda: json_text(found()) + "\n", html=page)
    print_answer(found, None, json, show)
    if worse:
        raise typer.Exit(_WORSE)


@validate_commands.command(
    "nccl",
    short_help=OVERVIEW["validate nccl"],
    epilog=examples("validate nccl"),
)
def validate_collectives(
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Folder of measured curves (nccl-tests output, JSON, CSV); a folder in it holds"
            " those of one cluster, and a file beside such folders is a cluster by itself unless"
            " it names its series; default: what ships.",
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave damaged lines out and name them.")
    ] = False,
    profiles: ProfilesFlag = None,
    out: OutFlag = None,
    json: JsonFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Predict measured collectives from the rest of what was measured, and show the errors."""
    from perfsim.data.catalog import Catalog
    from perfsim.validate.nccl import validate_nccl
    from perfsim.validate.nccl.report import curves_in_folder, shipped_curves

    left: list[str] = []
    if data is None:
        curves = shipped_curves(Catalog(profiles))
    else:
        curves, left = curves_in_folder(data, skip_bad=skip_bad)
    for line in left:
        typer.echo(f"perfsim: left out: {line}", err=True)
    with progress("questions") as show_progress:
        report = validate_nccl(curves, show_progress)

    def show() -> None:
        from perfsim.report.validation import print_nccl

        print_nccl(report, verbose=verbose)

    print_answer(report.to_dict, out, json, show)
    if report.misses():
        raise typer.Exit(_WORSE)


@validate_commands.command(
    "claims", short_help=OVERVIEW["validate claims"], epilog=examples("validate claims")
)
def validate_headlines(
    profiles: ProfilesFlag = None,
    out: OutFlag = None,
    json: JsonFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Show papers' headline claims beside what is predicted in the papers' own settings."""
    from perfsim.session import Session
    from perfsim.validate.claims import validate_claims

    with progress("scenarios") as show_progress:
        results = validate_claims(Session(profiles), show_progress)

    def show() -> None:
        from perfsim.report.validation import print_claims

        print_claims(results, verbose=verbose)

    def found() -> dict[str, Any]:
        return {
            "schema": "perfsim/claims/1",
            "claims": [result.to_dict() for result in results],
        }

    print_answer(found, out, json, show)
