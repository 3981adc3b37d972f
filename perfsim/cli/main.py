"""The perfsim command: its subcommands, and errors as one sentence with an exit code."""

from __future__ import annotations

import errno
import gc
import io
import os
import re
import sys
from collections.abc import Callable
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from perfsim.cli.grouped_help import GroupedCommand, brief_help
from perfsim.cli.help import HELP_QUESTIONS, HELP_REFERENCE, OVERVIEW, examples
from perfsim.cli.origin import FileFields, file_fields_noted
from perfsim.cli.output import arguments_known
from perfsim.data.catalog import own_files_noted
from perfsim.data.files import noting
from perfsim.errors import MAX_QUOTED, PerfsimError, RequestError, shown, spelling
from perfsim.report.plain import plain_output

__all__ = ["COMMANDS", "application", "code", "run"]

COMMANDS = {
    "init": "init.init_command",
    "predict": "predict.predict_command",
    "compare": "compare.compare_command",
    "sweep": "sweep.sweep_command",
    "tune": "tune.tune_command",
    "explain": "explain.explain_command",
    "plan": "plan.plan_command",
    "list": "show.list_command",
    "show": "show.show_command",
    "pipeline": "pipeline.pipeline_command",
    "app": "app.app_command",
    "doctor": "doctor.doctor_command",
    "calibrate": "calibrate.calibrate_commands",
    "validate": "validate.validate_commands",
}
"""Each command, and where it is."""

_HELP_NAMES = {"help_option_names": ["-h", "--help"]}

_PLAIN = "--plain"
"""What every command takes, wherever it stands: it is about the printing, not the answer."""

_WORSE = 4
"""What `validate` leaves with where predictions are worse than stored: there is an answer too."""

_INTERRUPTED = 130
"""What Typer makes of Ctrl-C, and what perfsim leaves with."""


def application(only: str = "", overview: bool = False) -> typer.Typer:
    """Return the command line with all commands, or with ``only`` one: no other is imported.

    With ``overview`` it has no command that runs: only what ``--help`` lists.
    """
    made = typer.Typer(
        name="perfsim",
        help=HELP_QUESTIONS,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=HELP_REFERENCE,
        context_settings=_HELP_NAMES,
    )
    made.callback(invoke_without_command=True)(_main)
    for name, where in COMMANDS.items():
        if only not in ("", name):
            continue
        if overview:
            made.command(name, short_help=OVERVIEW[name])(lambda: None)
            continue
        module, _, attribute = where.rpartition(".")
        command = getattr(import_module(f"perfsim.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name, short_help=OVERVIEW[name], epilog=examples(name))
        else:
            made.command(
                name, short_help=OVERVIEW[name], epilog=examples(name), cls=GroupedCommand
            )(command)
    return made


def _main(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", "-V", help="Print the version and leave."),
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

    0 done; 2 the request is wrong; 3 a file is missing or damaged; 4 `validate` found predictions
    worse than stored; 130 stopped by Ctrl-C; 1 anything else.
    """
    # perfsim uses no plug-ins of pydantic: do not look for them in all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    left = code()
    gc.freeze()  # Python looks through all of them again as it ends, unless they are set aside
    sys.exit(left)


def code(arguments: list[str] | None = None) -> int:
    """Run the command line on ``arguments`` (default: the process's) and return its exit code."""
    line = _Line(sys.argv[1:] if arguments is None else arguments)
    brief = brief_help("-h" in line.arguments)
    with (
        noting({}),
        arguments_known(line.arguments),
        spelling(line.spell),
        brief,
        plain_output(line.plain),
        own_files_noted() as own,
        file_fields_noted() as given,
    ):
        try:
            if sys.stdout is None:
                raise OSError(errno.EBADF, "it is closed")
            if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
                # A file may have a name that is no text: it is printed with escapes.
                sys.stdout.reconfigure(errors="backslashreplace")
            left = int(
                line.command(line.arguments, prog_name="perfsim", standalone_mode=False) or 0
            )
            if left == _INTERRUPTED:
                raise KeyboardInterrupt
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:
            told = line.told(error, given) if isinstance(error, RequestError) else ""
            sentence, left = _verdict(error, told)
            if sentence:
                _complain(sentence)
        if own.folders and left in (0, _WORSE):
            from perfsim.cli.output import tell_own_files

            tell_own_files(own)
    return left


@cache
def _made_once(only: str, overview: bool) -> tuple[typer.Typer, Callable[..., Any]]:
    """Return the application with these commands (see `application`), and what runs it.

    A process that runs many command lines makes each of them once.
    """
    made = application(only, overview)
    return made, get_command(made)


class _Line:
    """One command line: its arguments, the application that reads them, and its flags."""

    def __init__(self, arguments: list[str]) -> None:
        self.plain = _PLAIN in arguments or bool(os.environ.get("PERFSIM_PLAIN"))
        self.arguments = [one for one in arguments if one != _PLAIN]

    @cached_property
    def command(self) -> Callable[..., Any]:
        """What runs the arguments: no more commands than they need."""
        return _made_once(*self._needs)[1]

    @property
    def _needs(self) -> tuple[str, bool]:
        first = self.arguments[0] if self.arguments else "--help"
        overview = first in ("-h", "--help", "-V", "--version")
        if overview and "_PERFSIM_COMPLETE" not in os.environ:
            return "", True
        return first if first in COMMANDS else "", False

    def spell(self, field: str) -> str:
        """Return how this command line writes a field: as the command's flag, if it has one."""
        from perfsim.cli.flags import flag_of

        return self._several.get(field) or flag_of(field, self._flags)

    def told(self, error: RequestError, given: FileFields) -> str:
        """Return a refusal: what the scenario file gives as the file's keys, all else as flags."""

        def in_file(field: str) -> bool:
            return field.partition(".")[0] in given.names and field not in self._several

        def spell(one: str) -> str:
            if one == flag and axis.startswith("--vary"):
                return axis
            return one + where if in_file(one) and one != flag else self.spell(one)

        # A refusal of another file says first which field names that file.
        field = (error.source or error.field or error.why).partition(":")[0].strip("`")
        axis = self._several.get(f"{field}.{error.value}", "")
        flag = field if axis else ""
        own = in_file(field) and not flag
        where = "" if own else f" of {given.file}"
        with spelling(spell):
            return str(error.within(given.file) if own else error)

    @cached_property
    def _flags(self) -> dict[str, str]:
        from perfsim.cli.flags import flags_of

        return flags_of(_made_once(*self._needs)[0])

    @cached_property
    def _several(self) -> dict[str, str]:
        from perfsim.cli.flags import several_flags

        return several_flags(self.arguments)


def _verdict(error: BaseException, told: str) -> tuple[str, int]:
    """Return the sentence for an error, ``told`` for a refusal, and the exit code."""
    if isinstance(error, PerfsimError):
        return told or str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        # A prompt aborts alike where Ctrl-C comes and where the answers end (Ctrl-D).
        ended = isinstance(error, typer.Abort) and isinstance(error.__context__, EOFError)
        return "stopped.", 1 if ended else _INTERRUPTED
    if isinstance(error, BrokenPipeError):
        # The reader went away (`perfsim ... | head`): nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "", 1
    if isinstance(error, OSError | UnicodeEncodeError):
        return _file_verdict(error)
    # Typer bundles click, so usage errors are known by their method.
    if hasattr(error, "format_message"):
        from perfsim.cli.usage import usage_refusal

        return usage_refusal(error), int(getattr(error, "exit_code", 2))
    if os.environ.get("PERFSIM_DEBUG"):
        raise error
    name = type(error).__name__
    return f"internal error ({name}: {error}); set PERFSIM_DEBUG=1 to see where.", 1


def _file_verdict(error: OSError | UnicodeEncodeError) -> tuple[str, int]:
    """Return the same for an error of the system, about a file or the standard output."""
    if isinstance(error, UnicodeEncodeError):
        return f"{shown(error.object[error.start])} is no character that a file can hold.", 2
    if error.filename is None:
        return f"the output cannot be written: {error.strerror}.", 1
    sentence = f"{shown(os.fsdecode(error.filename))}: {error.strerror}."
    return sentence, 2 if error.errno == errno.ENAMETOOLONG else 3


def _complain(sentence: str) -> None:
    """Print a sentence on standard error, without control characters."""
    from perfsim.data.files import escaped

    # A word of thousands of letters is a slip; the longest path is shorter.
    short = re.sub(r"\S{4500,}", lambda match: f"{match[0][:MAX_QUOTED]}...", sentence)
    typer.echo(f"perfsim: {escaped(short)}", err=True)
