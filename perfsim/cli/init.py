"""``perfsim init``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfsim.cli.flags import JsonFlag, ProfilesFlag
from perfsim.cli.output import Outputs, print_answer
from perfsim.cli.scenario_flags import field_flags
from perfsim.errors import PerfsimError, RequestError

if TYPE_CHECKING:
    from perfsim.first_scenario import Draft, Written
    from perfsim.machine import Machine

__all__ = ["init_command"]

_FLAGGED = (
    *("model", "gpus", "node", "gpu", "net", "gpus_per_node", "method", "batch", "precision"),
)
"""Fields whose answers flags give."""

_QUESTIONS = {
    "model": "Model (name, profile CSV, config.json, transformer:.., generic:..)",
    "gpus": "GPUs in all",
    "node": "Node type (`perfsim list nodes`), or none",
    "gpu": "GPU (`perfsim list gpus`)",
    "net": "Network between nodes (`perfsim list networks`, or rate,latency)",
    "method": "Method (`perfsim list methods`)",
    "batch": "Samples a GPU",
}
"""What a terminal is asked, in this order."""
_NONE = "none"


@field_flags(_FLAGGED)
def init_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="What you have: an nccl-tests log, a PyTorch profiler trace, a config.json, a"
            " profile CSV, a network or node type TOML; recognised by what is in it.",
        ),
    ] = None,
    given: Any = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The scenario to write.")
    ] = Path("my-scenario.toml"),
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            "-y",
            help="Ask nothing: take what is found and defaults, as where there is no terminal.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    profiles: ProfilesFlag = None,
    json: JsonFlag = False,
) -> None:
    """Write a first scenario: of your logs, trace or config.json, this job, and what you answer."""
    from perfsim.data.catalog import Catalog
    from perfsim.first_scenario import first_draft, write_draft
    from perfsim.machine import look_around

    if out.exists() and not force:
        raise RequestError("out", f"{str(out)!r} is there already; `force` replaces it.")
    Outputs(out=out).check()
    machine, asked = look_around(Catalog(profiles)), _on_terminal() and not yes
    if asked:
        given = given | _told_of_trace(files or [], given)
    with first_draft(files or [], given, machine.fields, out, profiles) as draft:
        if asked:
            _tell_found(machine, draft)
            _ask(draft)
        draft.complete()
        for remark in (*machine.remarks, *draft.remarks):
            typer.echo(f"perfsim: {remark}", err=True)
        written = write_draft(draft, force)
    print_answer(written.to_dict, None, json, lambda: _show(written))


def _on_terminal() -> bool:
    """Tell whether somebody is there to answer."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _told_of_trace(files: list[Path], given: dict[str, Any]) -> dict[str, Any]:
    """Ask what a trace does not say of its model, before its profile is made."""
    from perfsim.first_scenario import file_kind

    traces = [path for path in files if file_kind(path) == "trace"]
    told = {}
    for path in traces[:1]:
        for name, question in (("model", "name of the model"), ("batch", "samples a GPU")):
            if given[name] is None:
                told[name] = _prompt(f"{path.name}: {question}")
    return told


def _tell_found(machine: Machine, draft: Draft) -> None:
    """Say what files and machine have answered already."""
    from perfsim.data.files import escaped

    known = draft.fields | {
        name: found for name, found in machine.fields.items() if name in draft.defaults
    }
    for name, found in known.items():
        words = f"  {name.replace('_', ' ')}: {found.value}   ({found.source})"
        typer.echo(escaped(words.replace("`", "")), err=True)
    typer.echo("Enter takes what stands in brackets.", err=True)


def _ask(draft: Draft) -> None:
    """Ask for what is not known, and again where an answer is not allowed."""
    for name, question in _QUESTIONS.items():
        if name in draft.fields or _is_said(draft, name):
            continue
        while not _answered(draft, name, question):
            pass


def _is_said(draft: Draft, name: str) -> bool:
    """Tell whether other answers say a field: a node type says its GPU and its network."""
    fields = draft.fields
    said_by = {"node": ("net", "gpu"), "gpu": ("node",), "net": ("node",)}
    return any(other in fields for other in said_by.get(name, ()))


def _answered(draft: Draft, name: str, question: str) -> bool:
    """Ask one question; keep the answer if perfsim takes it, else say why not."""
    from perfsim.first_scenario import ANSWERED
    from perfsim.machine import Found

    default = draft.default(name)
    offered = default.value if default else _NONE if name == "node" else None
    told = _prompt(question, offered)
    if name == "node" and told.lower() == _NONE:
        draft.defaults.pop("node", None)
        return True
    same = default is not None and told == str(default.value)
    draft.fields[name] = default if same and default else Found(told, ANSWERED)
    try:
        draft.check()
    except PerfsimError as error:
        from perfsim.data.files import escaped

        del draft.fields[name]
        typer.echo(escaped(f"  {error}"), err=True)
        return False
    return True


def _prompt(question: str, default: Any = None) -> str:
    """Ask on standard error: standard output is for what was written."""
    with redirect_stdout(sys.stderr):
        told: str = typer.prompt(question, default=default, type=str)
    return told.strip()


def _show(written: Written) -> None:
    """Say what was written on standard error, and the next command on standard output."""
    from perfsim.data.files import escaped

    names = ", ".join(str(path) for path in (written.scenario, *written.files))
    typer.echo(escaped(f"wrote {names}"), err=True)
    typer.echo(escaped(written.next))
