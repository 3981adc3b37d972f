"""The perfsim command: its subcommands, and errors as one sentence with an exit code."""

from __future__ import annotations

import errno
import os
import sys

import typer

from perfsim.cli.calibrating import calibrate
from perfsim.cli.comparing import compare_command
from perfsim.cli.explaining import explain_command
from perfsim.cli.listing import list_things
from perfsim.cli.pipelining import pipeline_command
from perfsim.cli.planning import plan_command
from perfsim.cli.predicting import predict_command
from perfsim.cli.showing import show_thing
from perfsim.cli.sweeping import sweep_command
from perfsim.cli.tuning import tune_command
from perfsim.cli.validating import validate
from perfsim.errors import PerfsimError

__all__ = ["app", "code", "run"]

app = typer.Typer(
    name="perfsim",
    help=(
        "Predict the iteration time of distributed data-parallel training from measured layer"
        " profiles and measured network costs."
    ),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="Example: perfsim predict --model resnet50 --gpus 64 --net 1gbe --method dgc",
)


@app.callback(invoke_without_command=True)
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


app.command(
    "predict",
    epilog="Example: perfsim predict --model resnet50 --gpus 64 --net 1gbe --method dgc",
)(predict_command)
app.command(
    "sweep",
    epilog="Example: perfsim sweep --model resnet50 --vary gpus=8..1024 --vary net=1gbe,ib100",
)(sweep_command)
app.command(
    "compare",
    epilog="Example: perfsim compare --model bert-large --gpus 32 --net 10gbe --methods"
    " ssgd,topk,dgc,powersgd",
)(compare_command)
app.command(
    "tune",
    epilog="Example: perfsim tune --model resnet50 --gpus 64 --net 10gbe --method topk"
    " --over bucket",
)(tune_command)
app.command(
    "explain",
    epilog="Example: perfsim explain --model resnet50 --gpus 64 --net 10gbe --method topk",
)(explain_command)
app.command(
    "plan",
    epilog="Example: perfsim plan --model resnet50 --dataset imagenet --epochs 90 --deadline 24h",
)(plan_command)
app.command("list", epilog="Example: perfsim list methods")(list_things)
app.command("show", epilog="Example: perfsim show method dgc")(show_thing)
app.command("pipeline", epilog="Example: perfsim pipeline two-sites.toml")(pipeline_command)
app.add_typer(calibrate, name="calibrate")
app.add_typer(validate, name="validate")


def run() -> None:
    """Run the command line and leave with its exit code.

    0 done; 2 the request is wrong; 3 a file is missing or damaged; 1 anything else.
    """
    sys.exit(code())


def code(arguments: list[str] | None = None) -> int:
    """Run the command line on ``arguments`` (default: the process's) and return its exit code."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        left = int(app(arguments, standalone_mode=False) or 0)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        sentence, left = _verdict(error)
        if sentence:
            _complain(sentence)
    return left


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
    if isinstance(error, OSError):
        return f"the output cannot be written: {error.strerror}.", 1
    # Typer bundles click, so usage errors are known by their method.
    if hasattr(error, "format_message"):
        return " ".join(error.format_message().split()), int(getattr(error, "exit_code", 2))
    if os.environ.get("PERFSIM_DEBUG"):
        raise error
    said = f"internal error ({type(error).__name__}: {error}); set PERFSIM_DEBUG=1 to see where."
    return said, 1


def _complain(sentence: str) -> None:
    typer.echo(f"perfsim: {sentence}", err=True)
