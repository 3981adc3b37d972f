"""``perfsim tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfsim.cli.like_predict import Asked, like_predict
from perfsim.cli.options import answer

__all__ = ["tune_command"]


@like_predict
def tune_command(
    asked: Asked,
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
) -> None:
    """Tune a scenario: the best bucket size, density, rank, interval and algorithm, with curves."""
    from perfsim.errors import RequestError
    from perfsim.methods import AUTO
    from perfsim.planning.tune import tune
    from perfsim.scenario import make_scenario
    from perfsim.session import Session

    fields, notes = asked.fields()
    try:
        scenario = make_scenario(fields)
        if scenario.method.lower() == AUTO:
            raise RequestError(
                "--method: auto is no method to tune; `perfsim predict --method auto` ranks all,"
                " then tune one."
            )
        found = tune(scenario, over or (), Session(asked.profiles))
        found.notes[:0] = notes
    except RequestError as error:
        # What is wrong may stand in the file rather than in a flag.
        raise RequestError(f"{asked.scenario}: {error}" if asked.scenario else str(error)) from None

    def show() -> None:
        from perfsim.report.tune import print_tuning

        print_tuning(found)

    answer(found.to_dict(), out, json, show)
