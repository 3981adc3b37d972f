"""The perfsim command: its subcommands, and errors as one sentence with an exit code."""

from __future__ import annotations

import os
import sys

import typer

from perfsim.cli.listing import list_things
from perfsim.cli.predicting import predict_command
from perfsim.cli.showing import show_thing
from perfsim.errors import PerfsimError

__all__ = ["app", "code", "run"]

app = typer.Typer(
    name="perfsim",
    help=(
        "Predict the iteration time of distributed data-parallel training from measured layer"
        " profiles and measured network costs."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Example: perfsim predict --model resnet50 --gpus 64 --net 1gbe --method dgc",
)


@app.callback(invoke_without_command=True)
def main(
    version: bool = typer.Option(False, "--version", help="Print the version and leave."),
) -> None:
    """Predict the iteration time of distributed data-parallel training."""
    if version:
        from perfsim import __version__

        typer.echo(f"perfsim {__version__}")
        raise typer.Exit


app.command(
    "predict",
    epilog="Example: perfsim predict --model resnet50 --gpus 64 --net 1gbe --method dgc",
)(predict_command)
app.command("list", epilog="Example: perfsim list methods")(list_things)
app.command("show", epilog="Example: perfsim show method dgc")(show_thing)


def run() -> None:
    """Run the command line and leave with its exit code.

    0 done; 2 the request is wrong; 3 a file is missing or damaged; 1 anything else.
    """
    sys.exit(code())


def code(arguments: list[str] | None = None) -> int:
    """Run the command line on ``arguments`` (default: the process's) and return its exit code."""
    try:
        return int(app(arguments, standalone_mode=False) or 0)
    except PerfsimError as error:
        _complain(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        _complain("stopped.")
        return 1
    except BrokenPipeError:
        # The reader went away (`perfsim ... | head`): nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        # Typer bundles click from 0.20 on, so usage errors are known by their method.
        if hasattr(error, "format_message"):
            _complain(" ".join(error.format_message().split()))
            return int(getattr(error, "exit_code", 2))
        if os.environ.get("PERFSIM_DEBUG"):
            raise
        _complain(
            f"internal error ({type(error).__name__}: {error}); set PERFSIM_DEBUG=1 to see where."
        )
        return 1


def _complain(sentence: str) -> None:
    typer.echo(f"perfsim: {sentence}", err=True)
