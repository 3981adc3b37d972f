"""What a calibration says of the files that it has written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfsim.cli.options import answer

if TYPE_CHECKING:
    from perfsim.calibrate.making import Made

__all__ = ["print_network", "written"]


def written(*files: Path | None) -> str:
    r"""Return the files that there are as a line to print, whatever letters their names have.

    Examples
    --------
    >>> written(Path("a.toml"), None, Path("b\x1b.csv"))
    'written: a.toml, b\\x1b.csv'
    """
    from perfsim.letters import escaped

    return escaped(f"written: {', '.join(str(file) for file in files if file)}")


def print_network(made: Made, json: bool) -> None:
    """Print a network that was fitted: as JSON, or its report, its files and how to use it."""

    def show() -> None:
        from perfsim.letters import escaped

        typer.echo(made.report)
        typer.echo(f"\n{written(made.network, made.curves)}")
        typer.echo(escaped(made.use))

    answer(made.to_dict(), None, json, show)
