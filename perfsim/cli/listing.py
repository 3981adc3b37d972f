"""``perfsim list``."""

from __future__ import annotations

from typing import Annotated

import typer

from perfsim.cli.options import Json, Profiles

__all__ = ["list_things"]

KINDS = (
    "models",
    "gpus",
    "networks",
    "methods",
    "collectives",
    "fusion",
    "scenarios",
    "measurements",
)


def list_things(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="{" + "|".join(KINDS) + "}",
            help="What to list.",
            autocompletion=lambda incomplete: [k for k in KINDS if k.startswith(incomplete)],
        ),
    ],
    profiles: Profiles = None,
    json: Json = False,
) -> None:
    """List what perfsim knows of one kind, with where it comes from."""
    from perfsim.catalog import Catalog
    from perfsim.inventory import in_short, rows

    found = rows(kind, Catalog(profiles))
    if json:
        from perfsim.report.files import json_text

        typer.echo(json_text({"schema": "perfsim/list/1", "kind": kind, "rows": found}))
    elif kind == "scenarios":
        from perfsim.report.scenarios import print_scenarios

        print_scenarios(found)
    else:
        from perfsim.report.table import print_table

        print_table(in_short(kind, found))
