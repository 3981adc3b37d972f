"""The perfsim command: its subcommands, and errors as one sentence with an exit code."""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import sys
from importlib import import_module
from typing import Any

import typer

from perfsim.cli.examples import examples
from perfsim.cli.overview import OVERVIEW, PAGE, QUESTIONS
from perfsim.errors import PerfsimError
from perfsim.limits import LONGEST, shown

__all__ = ["COMMANDS", "application", "code", "run"]

COMMANDS = {
    "predict": "predicting.predict_command",
    "compare": "comparing.compare_command",
    "sweep": "sweeping.sweep_command",
    "tune": "tuning.tune_command",
    "explain": "explaining.explain_command",
    "plan": "planning.plan_command",
    "list": "listing.list_things",
    "show": "showing.show_thing",
    "pipeline": "pipelining.pipeline_command",
    "calibrate": "calibrating.calibrate",
    "validate": "validating.validate",
}
"""Each command, and where it is; `overview.py` and `examples.py` hold what is said of it."""

INTERRUPTED = 130
"""What Typer makes of Ctrl-C."""


def application(only: str = "", overview: bool = False) -> typer.Typer:
    """Return the command line with all commands, or with one alone: the others are not imported.

    With ``overview`` none is: what ``--help`` lists, and nothing that runs.
    """
    made = typer.Typer(
        name="perfsim",
        help=QUESTIONS,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=PAGE,
    )
    made.callback(invoke_without_command=True)(main)
    for name, where in COMMANDS.items():
        if only not in ("", name):
            continue
        if overview:
            made.command(name, short_help=OVERVIEW[name])(lambda: None)
            continue
        module, _, attribute = where.rpartition(".")
        found = getattr(import_module(f"perfsim.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            made.add_typer(found, name=name, short_help=OVERVIEW[name], epilog=examples(name))
        else:
            made.command(name, short_help=OVERVIEW[name], epilog=examples(name))(found)
    return made


def main(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
) -> None:
    """Predict the iteration time of distributed data-parallel training."""
    if version:
        from perfsim import __version__

        typer.echo(f"perfsim {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def __getattr__(name: str) -> Any:
    """Return ``app``, the whole command line, made when it is asked for."""
    if name == "app":
        return application()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run() -> None:
    """Run the command line and leave with its exit code.

    0 done; 2 the request is wrong; 3 a file is missing or damaged; 1 anything else.
    """
    # Imports make some 100,000 objects that stay: looking through them finds no garbage.
    gc.set_threshold(200_000, 20, 20)
    left = code()
    gc.freeze()  # Python looks through all of them again as it ends, unless they are set aside
    sys.exit(left)


def code(arguments: list[str] | None = None) -> int:
    """Run the command line on ``arguments`` (default: the process's) and return its exit code."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            # A file may have a name that is no text: it is printed with escapes.
            sys.stdout.reconfigure(errors="backslashreplace")
        given = sys.argv[1:] if arguments is None else arguments
        left = int(_application(given)(arguments, standalone_mode=False) or 0)
        if left == INTERRUPTED:
            raise KeyboardInterrupt
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        sentence, left = _verdict(error)
        if sentence:
            _complain(sentence)
    return left


def _application(given: list[str]) -> typer.Typer:
    """Return the command line with no more than the arguments need."""
    first = given[0] if given else "--help"
    if first in ("--help", "--version") and "_PERFSIM_COMPLETE" not in os.environ:
        return application(overview=True)
    return application(first if first in COMMANDS else "")


def _verdict(error: BaseException) -> tuple[str, int]:
    """Return what to say of an error, and the exit code."""
    if isinstance(error, PerfsimError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "stopped.", 1
    if isinstance(error, BrokenPipeError):
        # The reader went away (`perfsim ... | head`): nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "", 1
    if isinstance(error, OSError | UnicodeEncodeError):
        return _of_a_file(error)
    # Typer bundles click, so usage errors are known by their method.
    if hasattr(error, "format_message"):
        return " ".join(error.format_message().split()), int(getattr(error, "exit_code", 2))
    if os.environ.get("PERFSIM_DEBUG"):
        raise error
    said = f"internal error ({type(error).__name__}: {error}); set PERFSIM_DEBUG=1 to see where."
    return said, 1


def _of_a_file(error: OSError | UnicodeEncodeError) -> tuple[str, int]:
    """Return the same for what the system says of a file, or of the standard output."""
    if isinstance(error, UnicodeEncodeError):
        return f"{shown(error.object[error.start])} is no character that a file can hold.", 2
    if error.filename is None:
        return f"the output cannot be written: {error.strerror}.", 1
    named = f"{shown(os.fsdecode(error.filename))}: {error.strerror}."
    return named, 2 if error.errno == errno.ENAMETOOLONG else 3


def _complain(sentence: str) -> None:
    from perfsim.letters import escaped

    # A word of thousands of letters is a slip; the longest path is shorter.
    short = re.sub(r"\S{4500,}", lambda match: f"{match[0][:LONGEST]}...", sentence)
    typer.echo(f"perfsim: {escaped(short)}", err=True)
