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

from perfsim.errors import MAX_QUOTED, PerfsimError, shown, spelling

__all__ = [
    "COMMANDS",
    "EXAMPLES",
    "OVERVIEW",
    "PAGE",
    "QUESTIONS",
    "application",
    "code",
    "examples",
    "run",
]

EXAMPLES = {
    "predict": (
        "perfsim predict --model resnet50 --gpus 64 --net 1gbe --method dgc",
        "perfsim predict --model bert-base --gpus 32 --net 10gbe --method auto",
        "perfsim predict --model vgg16 --gpus 8 --net 10Gbit/s,50us --method topk \\\n"
        "    --set density=0.01 --timeline",
        "perfsim predict --scenario what_if_dgc_1gbe --gpus 128 --json",
    ),
    "compare": (
        "perfsim compare --model bert-large --gpus 32 --net 10gbe \\\n"
        "    --methods ssgd,topk,dgc,powersgd",
        "perfsim compare --scenario what_if_dgc_1gbe --csv methods.csv",
    ),
    "sweep": (
        "perfsim sweep --model resnet50 --vary gpus=8..1024 --vary net=1gbe,ib100",
        "perfsim sweep --model resnet50 --gpus 16 --method topk \\\n"
        "    --vary net=1Gbit/s..100Gbit/s:log5,50us --out rows.csv",
    ),
    "tune": (
        "perfsim tune --model resnet50 --gpus 64 --net 10gbe --over bucket",
        "perfsim tune --model resnet50 --gpus 64 --net 10gbe --method topk",
    ),
    "explain": ("perfsim explain --model resnet50 --gpus 64 --net 10gbe --method topk",),
    "plan": (
        "perfsim plan --model resnet50 --dataset imagenet --epochs 90 --deadline 24h",
        "perfsim plan --model bert-base --dataset 1000000samples --epochs 3 \\\n"
        "    --nets 10gbe,ib100 --methods ssgd,powersgd --deadline 2h",
    ),
    "list": ("perfsim list methods", "perfsim list networks --json"),
    "show": ("perfsim show method dgc", "perfsim show net 10gbe --html 10gbe.html"),
    "pipeline": ("perfsim pipeline two-sites.toml",),
    "calibrate": (
        "perfsim calibrate import all_reduce.log --name our-cluster",
        "perfsim calibrate compute --model torchvision:resnet50 --batch 64",
    ),
    "calibrate import": (
        "perfsim calibrate import all_reduce.log all_gather.log --name our-cluster",
        "perfsim calibrate import trace.json.gz --model resnet50 --batch 64",
    ),
    "calibrate network": (
        "torchrun --nnodes 4 --nproc-per-node 8 \\\n"
        "    -m perfsim calibrate network --out our-cluster.toml",
        "mpirun -n 32 python -m perfsim calibrate network \\\n"
        "    --backend mpi --out our-cluster.toml --budget 10min",
    ),
    "calibrate compute": (
        "perfsim calibrate compute --model torchvision:resnet50 --batch 64",
        "perfsim calibrate compute --model mine:model --batch 8 --precision amp-bf16",
    ),
    "calibrate kernels": (
        "perfsim calibrate kernels --out profiles",
        "torchrun --nproc-per-node 2 -m perfsim calibrate kernels --beside",
    ),
    "validate": (
        "perfsim validate --method dgc",
        "perfsim validate --measurements cases.csv --json",
    ),
    "validate measurements": (
        "perfsim validate measurements --measurements cases.csv --html errors.html",
    ),
    "validate nccl": ("perfsim validate nccl --data my_curves/",),
    "validate claims": ("perfsim validate claims",),
}
"""By command; a line that goes on ends in a backslash, as a shell takes it."""


def examples(command: str) -> str:
    """Return what stands below a command's options: its examples, as they are typed.

    Examples
    --------
    >>> print(examples("validate claims").removeprefix(chr(8)).strip())
    Example:
      perfsim validate claims
    """
    shown = EXAMPLES[command]
    lines = "\n".join(shown).replace("\n", "\n  ")
    return f"\b\nExample{'s' if len(shown) > 1 else ''}:\n  {lines}"


OVERVIEW = {
    "predict": (
        "Predict one iteration: its time and interval, where it goes, what holds it back, and why."
    ),
    "compare": (
        "Compare methods side by side: who is fastest, how sure that is, and where the time goes."
    ),
    "sweep": "Predict every combination of what varies: GPUs, networks, methods, options, ...",
    "tune": (
        "Tune a scenario: the best bucket size, density, rank, interval and algorithm, with curves."
    ),
    "explain": (
        "Explain one iteration: critical path, exposed buckets, what pays, break-even with S-SGD."
    ),
    "plan": (
        "Plan a training run: the cheapest and the fastest cluster and method that meet a target."
    ),
    "list": "List what perfsim knows of one kind, with where it comes from.",
    "show": "Show all that is known of one model, GPU, network, method or scenario, with sources.",
    "pipeline": "Predict an iteration of a pipeline over slow links, its messages dense or Top-k.",
    "calibrate": "Measure a cluster, or read what was measured, into files that predictions use.",
    "validate": "Hold predictions against what was measured.",
    "calibrate import": (
        "Fit a network file to measured collectives, or make a profile of a trace of training."
    ),
    "calibrate network": (
        "Measure the collectives of this job's ranks and fit a network file to them."
    ),
    "calibrate compute": (
        "Measure a model's training step on this machine, layer by layer, with fake data."
    ),
    "calibrate kernels": (
        "Time the kernels that methods use on this machine, over sizes, into a device's files."
    ),
    "validate measurements": (
        "Predict what others measured of whole training runs, and show the errors."
    ),
    "validate nccl": (
        "Predict measured collectives from the rest of what was measured, and show the errors."
    ),
    "validate claims": (
        "Show papers' headline claims beside what is predicted in the papers' own settings."
    ),
}
"""The first sentence of each command, as lists of commands show it whole; a test compares."""

QUESTIONS = """\
Predict the iteration time of distributed data-parallel training from measured layer profiles
and measured network costs.

\b
How long is one iteration, and why?             perfsim predict
Which method is fastest here, how sure?         perfsim compare
What holds it back, and what would help?        perfsim explain
Which bucket size, density, rank, interval?     perfsim tune
What if GPUs, network or method vary?           perfsim sweep
Which cluster meets a deadline or a budget?     perfsim plan
Which models, GPUs, networks, methods?          perfsim list, show
How wrong is it?                                perfsim validate
What of my own cluster, GPU and model?          perfsim calibrate
"""

PAGE = """\
\b
Examples:
  perfsim predict --model resnet50 --gpus 64 --net 1gbe --method dgc
  perfsim compare --model bert-large --gpus 32 --methods ssgd,topk,powersgd
  perfsim explain --model resnet50 --gpus 64 --net 10gbe --method topk
  perfsim sweep --model resnet50 --vary gpus=8..64 --vary net=1gbe,ib100
  perfsim plan --model resnet50 --dataset imagenet --epochs 90 --deadline 24h

\b
Files and environment:
  ./profiles      your own models/, devices/ and networks/; found before
                  those that ship
  PERFSIM_PATH    more such folders, with a colon between; found before
                  ./profiles
  --profiles DIR  one such folder, found first
  PERFSIM_DEBUG   when set, an internal error shows where it happened

\b
Units (a bare number is refused where one is needed):
  time  ns, us, ms, s, min, h    size  kB, MB, GB (1e9 B), KiB, MiB (2^20 B)
  rate  Gbit/s (1e9 bit/s), GB/s (1e9 B/s)    share  5% or 0.05

\b
Exit codes:
  0  done
  1  anything else: stopped, output cannot be written, internal error
  2  the request is wrong; one sentence says what is allowed
  3  a file is missing or damaged
  4  `validate` found a group of errors outside its limit

Results go to standard output, progress and warnings to standard error. Every command takes
--json, and ends its --help with examples.
"""


COMMANDS = {
    "predict": "predict.predict_command",
    "compare": "compare.compare_command",
    "sweep": "sweep.sweep_command",
    "tune": "tune.tune_command",
    "explain": "explain.explain_command",
    "plan": "plan.plan_command",
    "list": "show.list_things",
    "show": "show.show_thing",
    "pipeline": "pipeline.pipeline_command",
    "calibrate": "calibrate.calibrate",
    "validate": "validate.validate",
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
    with spelling(_flag):
        return _code(arguments)


def _flag(field: str) -> str:
    """Return the flag of a field (see `perfsim.cli.options.flag_of`, imported where one is named)."""
    from perfsim.cli.options import flag_of

    return flag_of(field)


def _code(arguments: list[str] | None) -> int:
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
    from perfsim.data.files import escaped

    # A word of thousands of letters is a slip; the longest path is shorter.
    short = re.sub(r"\S{4500,}", lambda match: f"{match[0][:MAX_QUOTED]}...", sentence)
    typer.echo(f"perfsim: {escaped(short)}", err=True)
