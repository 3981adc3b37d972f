"""``perfsim show``."""

from __future__ import annotations

from typing import Annotated

import typer

from perfsim.cli import complete
from perfsim.cli.options import Json, Profiles

__all__ = ["show_thing"]

KINDS = ("model", "gpu", "net", "method", "scenario")


def show_thing(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="{" + "|".join(KINDS) + "}",
            help="Kind of thing.",
            autocompletion=lambda incomplete: [k for k in KINDS if k.startswith(incomplete)],
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            help="Its name (`perfsim list` shows them).", autocompletion=complete.things
        ),
    ],
    profiles: Profiles = None,
    json: Json = False,
) -> None:
    """Show all that is known of one model, GPU, network, method or scenario, with sources."""
    from perfsim.catalog import Catalog
    from perfsim.inventory import describe

    found = describe(kind, name, Catalog(profiles))
    if json:
        from perfsim.report.files import json_text

        typer.echo(json_text({"schema": "perfsim/show/1", "kind": kind, **found}))
    else:
        from perfsim.report.terminal import print_description

        print_description(found)
