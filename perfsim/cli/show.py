"""``perfsim list`` and ``perfsim show``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfsim.cli.completion import complete_shown_name
from perfsim.cli.flags import JsonFlag, ProfilesFlag, VerboseFlag
from perfsim.cli.output import Outputs
from perfsim.errors import RequestError
from perfsim.inventory import (
    DESCRIBED_KINDS,
    LISTED_KINDS,
    MethodDescription,
    ScenarioDescription,
    ScenarioRow,
    describe_thing,
    list_rows,
)
from perfsim.pictures import network_picture, node_picture
from perfsim.report.plain import is_plain

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog

__all__ = ["list_command", "show_command"]


def list_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"What to list: {', '.join(LISTED_KINDS)}.",
            autocompletion=lambda incomplete: [k for k in LISTED_KINDS if k.startswith(incomplete)],
        ),
    ],
    profiles: ProfilesFlag = None,
    json: JsonFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """List what perfsim knows of one kind, with where it comes from."""
    from perfsim.data.catalog import Catalog

    rows = list_rows(kind, Catalog(profiles))
    if json:
        from perfsim.report.terminal import json_text

        listed = [row.to_dict() for row in rows]
        typer.echo(json_text({"schema": "perfsim/list/1", "kind": kind, "rows": listed}))
    elif kind == "scenarios":
        from perfsim.report.terminal import print_scenarios

        print_scenarios([row for row in rows if isinstance(row, ScenarioRow)])
    else:
        from perfsim.report.terminal import print_next, print_table

        print_table([row.shown(brief=not verbose) for row in rows])
        if not verbose and rows and rows[0].BRIEF_COLUMNS:
            one = "net" if kind == "networks" else kind.removesuffix("s")
            shown = f"; perfsim show {one} NAME: all of one" if one in DESCRIBED_KINDS else ""
            print_next(f"more columns{shown}")


def show_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"What to show: {', '.join(DESCRIBED_KINDS)}.",
            autocompletion=lambda incomplete: [
                k for k in DESCRIBED_KINDS if k.startswith(incomplete)
            ],
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Its name (`perfsim list` shows them); of a model also a profile CSV, a"
            " config.json or numbers.",
            autocompletion=complete_shown_name,
        ),
    ],
    profiles: ProfilesFlag = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also draw a network or a node as a page."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show all that is known of one model, GPU, network, node type, method or scenario."""
    from perfsim.data.catalog import Catalog

    outputs = Outputs(html=html)
    outputs.check()
    catalog = Catalog(profiles)
    description = describe_thing(kind, name, catalog)
    outputs.write(html=lambda: _page(kind, name, catalog))
    if json:
        from perfsim.report.terminal import json_text

        typer.echo(json_text({"schema": "perfsim/show/1", "kind": kind, **description.to_dict()}))
    elif isinstance(description, MethodDescription):
        from perfsim.report.terminal import print_method

        print_method(description)
    elif isinstance(description, ScenarioDescription):
        from perfsim.report.terminal import print_scenario

        print_scenario(description)
    else:
        from perfsim.report.terminal import print_description

        if kind == "net" and not is_plain():
            from perfsim.report.network_drawing import draw_text

            typer.echo(draw_text(network_picture(name, catalog)) + "\n")
        elif kind == "node" and not is_plain():
            from perfsim.report.node_drawing import node_text

            typer.echo(node_text(node_picture(name, catalog)) + "\n")
        print_description(description.to_dict(numbers=False))


def _page(kind: str, name: str, catalog: Catalog) -> str:
    """Return the page of a network or of a node type.

    Raises
    ------
    RequestError
        If another kind of thing is asked for.
    """
    if kind == "net":
        from perfsim.report.network_drawing import network_page

        return network_page(network_picture(name, catalog))
    if kind == "node":
        from perfsim.report.html.node_page import node_page

        return node_page(node_picture(name, catalog))
    raise RequestError("html", f"only networks and nodes have a picture, not a {kind}.", value=kind)
