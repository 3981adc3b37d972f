"""Files that a command writes besides its answer: checked before the work, written after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfsim.cli.options import answer
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.calibrate.write_network import MadeNetwork

__all__ = ["Outputs", "print_network", "written"]

Content = Callable[[], str | bytes]


class Outputs:
    """The files that are asked for, by flag.

    All are made before the first is written, so that what cannot be made leaves no file.

    Examples
    --------
    >>> outputs = Outputs(html=Path("a"), trace=None)
    >>> "html" in outputs, "trace" in outputs
    (True, False)
    >>> Outputs(html=Path("a"), trace=Path("a")).check()
    Traceback (most recent call last):
    perfsim.errors.RequestError: --trace: 'a' is the file of --html already.
    """

    def __init__(self, **paths: Path | None) -> None:
        self.paths = {name: path for name, path in paths.items() if path is not None}

    def __contains__(self, name: str) -> bool:
        """Say whether a flag was given."""
        return name in self.paths

    def check(self) -> None:
        """Refuse what cannot be, before any work.

        Raises
        ------
        RequestError
            If two flags name one file, a file could not be written, or Plotly or Kaleido is
            missing where it is needed.
        """
        from perfsim.data.files import check_writable

        seen: dict[Path, str] = {}
        for name, path in self.paths.items():
            place = path.resolve()
            if place in seen and not (place.exists() and not place.is_file()):
                raise RequestError(
                    f"--{name}: {str(path)!r} is the file of --{seen[place]} already."
                )
            seen[place] = name
        for name, path in self.paths.items():
            check_writable(path, f"--{name}")
        if "html" in self:
            from perfsim.report.html.figure import need_plotly

            need_plotly("--html")
        if "png" in self:
            from perfsim.report.html.figure import need_kaleido

            need_kaleido()

    def write(self, **contents: Content) -> None:
        """Make the files that are asked for, then write them."""
        from perfsim.data.files import write_bytes

        made = {name: contents[name]() for name in self.paths if name in contents}
        for name, content in made.items():
            data = content.encode() if isinstance(content, str) else content
            write_bytes(self.paths[name], data, f"--{name}")


def written(*files: Path | None) -> str:
    r"""Return the files that there are as a line to print, whatever letters their names have.

    Examples
    --------
    >>> written(Path("a.toml"), None, Path("b\x1b.csv"))
    'written: a.toml, b\\x1b.csv'
    """
    from perfsim.data.files import escaped

    return escaped(f"written: {', '.join(str(file) for file in files if file)}")


def print_network(made: MadeNetwork, json: bool) -> None:
    """Print a network that was fitted: as JSON, or its report, its files and how to use it."""

    def show() -> None:
        from perfsim.data.files import escaped

        typer.echo(made.report)
        typer.echo(f"\n{written(made.network, made.curves)}")
        typer.echo(escaped(made.use))

    answer(made.to_dict(), None, json, show)
