"""``perfsim show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfsim.cli import complete
from perfsim.cli.options import Json, Profiles
from perfsim.errors import RequestError

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
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write a network's picture as a page."),
    ] = None,
    json: Json = False,
) -> None:
    """Show all that is known of one model, GPU, network, method or scenario, with sources."""
    from perfsim.catalog import Catalog
    from perfsim.inventory import describe, network_picture

    catalog = Catalog(profiles)
    found = describe(kind, name, catalog)
    if html is not None:
        if kind != "net":
            raise RequestError(f"--html: only a network has a picture, not a {kind}.")
        from perfsim.report.network import draw_html

        draw_html(network_picture(name, catalog), html)
    if json:
        from perfsim.report.files import json_text

        typer.echo(json_text({"schema": "perfsim/show/1", "kind": kind, **found}))
    elif kind == "method":
        from perfsim.report.method import print_method

        print_method(found)
    elif kind == "scenario":
        from perfsim.report.scenarios import print_scenario

        print_scenario(found)
    else:
        from perfsim.report.terminal import print_description

        if kind == "net":
            from perfsim.report.network import draw_text

            typer.echo(draw_text(network_picture(name, catalog)) + "\n")
        print_description(found)
