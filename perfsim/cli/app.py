"""``perfsim app``."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from perfsim.cli.flags import ProfilesFlag
from perfsim.cli.output import tell_own_files

__all__ = ["app_command"]

_NOT_ALONE = (
    "Others can reach this page, without a password. It reads no files that they name; stop it"
    " when you are done."
)


def app_command(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            help="Scenario file (TOML) or shipped scenario that the page begins with.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port; 0 takes any free one.")
    ] = 8050,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to bind to; others reach the page unless it is this computer's own.",
        ),
    ] = "127.0.0.1",
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open a browser on it.")
    ] = True,
    profiles: ProfilesFlag = None,
) -> None:
    """Open a what-if page in the browser: change a scenario, see its answer at once."""
    from perfsim.app.server import need_flask, serve

    need_flask()
    from perfsim.app.controls import texts_of
    from perfsim.app.security import is_loopback_host
    from perfsim.cli.scenario_flags import scenario_fields
    from perfsim.data.catalog import Catalog, read_elsewhere
    from perfsim.scenario import make_scenario

    fields, _ = scenario_fields(Catalog(profiles), scenario, {}, [])
    if fields:
        make_scenario(fields)

    def tell(where: str) -> None:
        typer.echo(f"perfsim app is on {where} (Ctrl-C ends it)")
        if not is_loopback_host(host):
            typer.echo(f"perfsim: {_NOT_ALONE}", err=True)

    own = read_elsewhere()  # each answer reads them in a thread of its own
    if own is not None:
        tell_own_files(own)
    gc.set_threshold(100_000, 20, 20)  # what requests leave is collected as long as it runs
    serve(texts_of(fields), host=host, port=port, browser=browser, tell=tell, profiles=profiles)
    typer.echo("", err=True)
