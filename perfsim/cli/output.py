"""What a command prints, and the files that it writes besides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.calibrate.write_network import MadeNetwork
    from perfsim.data.catalog import OwnFiles

__all__ = [
    "Content",
    "Outputs",
    "arguments_known",
    "print_answer",
    "print_network",
    "tell_own_files",
    "tell_written",
]

Content = Callable[[], str | bytes]
"""Makes the content of a file."""

_ARGUMENTS: ContextVar[Sequence[str]] = ContextVar("_ARGUMENTS", default=())


@contextmanager
def arguments_known(arguments: Sequence[str]) -> Iterator[None]:
    """Let outputs know what the command line names: no file that is read is replaced."""
    token = _ARGUMENTS.set(arguments)
    try:
        yield
    finally:
        _ARGUMENTS.reset(token)


def _named() -> list[Path]:
    """Return what the arguments of the command line name, as paths."""
    values = [one.partition("=")[2] if one.startswith("--") else one for one in _ARGUMENTS.get()]
    return [Path(value) for value in values if value and "\0" not in value]


def print_answer(
    result: Callable[[], dict[str, Any]], out: Path | None, json: bool, show: Callable[[], None]
) -> None:
    """Write a result to ``out`` if that is given, then print it as JSON or as ``show`` does."""
    found = result() if json or out is not None else {}
    if out is not None:
        from perfsim.data.files import check_not_read
        from perfsim.report.terminal import write_json

        check_not_read(out, "out")
        write_json(out, found)
        tell_written(out)
    if json:
        from perfsim.report.terminal import json_text

        typer.echo(json_text(found))
    else:
        show()


class Outputs:
    """The files that were asked for, by flag.

    All contents are made before the first file is written: a failure leaves no file.

    Examples
    --------
    >>> outputs = Outputs(html=Path("a"), trace=None)
    >>> "html" in outputs, "trace" in outputs
    (True, False)
    >>> Outputs(html=Path("a"), trace=Path("a")).check()
    Traceback (most recent call last):
    perfsim.errors.RequestError: trace: 'a' is the file of html already.
    """

    def __init__(self, **paths: Path | None) -> None:
        self.paths = {name: path for name, path in paths.items() if path is not None}

    def __contains__(self, name: str) -> bool:
        """Say whether a flag was given."""
        return name in self.paths

    def check(self) -> None:
        """Refuse files that could not be written, before any work.

        Raises
        ------
        RequestError
            If two flags name one file, a file could not be written or is read by the command, or
            Kaleido is missing where it is needed.
        """
        from perfsim.data.files import being_read, check_writable, target_of

        for name, path in self.paths.items():
            check_writable(path, name)
            named = [one for one in _named() if path.is_file() and one.is_file()]
            if sum(target_of(one) == target_of(path) for one in named) > 1:
                raise being_read(path, name)
        seen: dict[Path, str] = {}
        for name, path in self.paths.items():
            whole = target_of(path)
            if whole in seen and not (whole.exists() and not whole.is_file()):
                raise RequestError(
                    name, f"{str(path)!r} is the file of `{seen[whole]}` already.", value=str(path)
                )
            seen[whole] = name
        if "png" in self:
            from perfsim.report.html.figure import need_kaleido

            need_kaleido()

    def write(self, **contents: Content) -> None:
        """Make the contents of the files that were asked for, then write them and say so."""
        from perfsim.data.files import check_not_read, write_bytes

        made = {name: contents[name]() for name in self.paths if name in contents}
        for name in made:
            check_not_read(self.paths[name], name)
        for name, content in made.items():
            data = content.encode() if isinstance(content, str) else content
            write_bytes(self.paths[name], data, name)
            tell_written(self.paths[name])


def tell_written(*files: Path | None) -> None:
    """Say on standard error which files were written, a line each: "wrote report.html".

    Control characters of a name are escaped; a file that is None is none.
    """
    from perfsim.data.files import escaped

    for file in files:
        if file is not None:
            typer.echo(escaped(f"wrote {file}"), err=True)


def tell_own_files(own: OwnFiles) -> None:
    """Say in a line on standard error which files of the user's take part in the answer.

    Copies of what ships are passed over in silence. Said once for each `OwnFiles`.
    """
    from perfsim.data.files import escaped

    files, passed_over = own.differing(), own.records_passed_over()
    said = [f"{_some(files)} of your own {_verb(files)} read"] if files else []
    if passed_over:
        why = "records and maps count where --profiles names their folder"
        said.append(f"{_some(passed_over)} {_verb(passed_over)} not read: {why}")
    if said and not own.told:
        own.told = True
        with suppress(OSError):  # a reader that went away
            typer.echo(escaped(f"perfsim: {'; '.join(said)}."), err=True)


def _some(paths: Sequence[Path]) -> str:
    """Name the first of some files, and count the others."""
    return f"{paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}"


def _verb(paths: Sequence[Path]) -> str:
    return "was" if len(paths) == 1 else "were"


def print_network(made: MadeNetwork, json: bool) -> None:
    """Print a fitted network as JSON, or its report, its files and how to use it.

    What makes it doubtful goes to standard error too.
    """
    from perfsim.data.files import escaped
    from perfsim.network.network_file import noticed_by_kind

    def show() -> None:
        typer.echo(f"{made.report}\n")
        typer.echo(escaped(made.use))

    for noticed in noticed_by_kind(made.noticed):
        typer.echo(escaped(f"perfsim: warning: {noticed.text}"), err=True)
    tell_written(made.network, made.curves)
    print_answer(made.to_dict, None, json, show)
