"""``perfsim compare``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from perfsim.cli.like_predict import Asked, like_predict
from perfsim.cli.options import answer, settings
from perfsim.cli.working import working

__all__ = ["compare_command"]

WORDS = {
    "method": "The method that you have or have in mind: compared in any case, and its place told.",
    "set_": "Option for all methods that have it, such as density=0.01; METHOD.NAME=VALUE for one"
    " method; fusion.NAME=VALUE for fusion policies. May be repeated.",
    "single_gpu_kernels": "What the kernels of --method add to it on one GPU, as you measured it:"
    " 10ms.",
    "scenario": "Scenario file (TOML) or shipped scenario; flags override it. Its options are for"
    " its own method.",
}


@partial(like_predict, words=WORDS)
def compare_command(
    asked: Asked,
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
            help="Order of the rows: time, high (upper end of the interval), exposed"
            " (communication), sent (bytes), memory or name; ranks stay those by time."
        ),
    ] = "time",
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE", help="Also write the rows here, units in the columns' names."
        ),
    ] = None,
) -> None:
    """Compare methods side by side: who is fastest, how sure that is, and where the time goes."""
    from perfsim.errors import RequestError
    from perfsim.planning.compare import compare
    from perfsim.scenario import make_scenario
    from perfsim.session import Session

    if csv is not None and out is not None and csv.resolve() == out.resolve():
        raise RequestError(f"--csv: {str(csv)!r} is the file of --out already.")
    options, fusion = settings(asked.pairs)
    pairs = [f"fusion.{name}={value}" for name, value in fusion.items()]
    fields, notes = replace(asked, pairs=pairs).fields()
    try:
        with working() as tell:
            found = compare(
                make_scenario(fields),
                methods,
                options=options,
                sort=sort,
                catalog=Session(asked.profiles),
                tell=tell,
            )
    except RequestError as error:
        # What is wrong may stand in the file rather than in a flag.
        raise RequestError(f"{asked.scenario}: {error}" if asked.scenario else str(error)) from None
    found.notes[:0] = notes
    if csv is not None:
        from perfsim.files import write_text
        from perfsim.records import csv_text

        write_text(csv, csv_text(found.records()), "--csv")

    def show() -> None:
        from perfsim.report.comparison import print_comparison

        print_comparison(found)

    answer(found.to_dict(), out, json, show)
