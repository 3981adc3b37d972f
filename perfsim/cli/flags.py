"""Flags that several commands share, and how a message names a command's flags."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from typer.models import ArgumentInfo, OptionInfo

from perfsim.scenario import SCENARIO_FIELDS

__all__ = [
    "PLURALS",
    "ChakraFlag",
    "EpochsOfFlag",
    "GlobalBatchFlag",
    "HtmlFlag",
    "JsonFlag",
    "OutFlag",
    "PngFlag",
    "ProfilesFlag",
    "TimelineFlag",
    "TraceFlag",
    "VerboseFlag",
    "flag_of",
    "flags_of",
    "setting_of",
    "several_flags",
]

JsonFlag: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ProfilesFlag: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--profiles", metavar="DIR", help="Folder of your own profiles, searched before others."
    ),
]
OutFlag: TypeAlias = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Also write the JSON object here.")
]
HtmlFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a page that opens in any browser."),
]
TraceFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Also write the timeline as a Chrome trace (JSON), for ui.perfetto.dev or"
        " chrome://tracing.",
    ),
]
ChakraFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--chakra",
        metavar="FILE",
        help="Also write the steady period as an MLCommons Chakra execution trace (JSON): the tasks"
        " of rank 0 and their dependencies.",
    ),
]
GlobalBatchFlag: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Samples of an iteration over all GPUs, where parallelism is searched.",
        show_default="those of --batch and --accumulate on all replicas",
    ),
]
EpochsOfFlag: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METHOD=FACTOR",
        help="Epochs that a method needs, as a multiple of S-SGD's, in place of what is known of"
        " its learning: topk=1.2. May be repeated.",
    ),
]
PngFlag: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--png",
        metavar="FILE",
        help="Also draw the timeline as a PNG (needs 'perfsim[png]' and Chrome or Chromium).",
    ),
]
TimelineFlag: TypeAlias = Annotated[
    bool,
    typer.Option("--timeline", help="Also print the timeline as text: one line for each stream."),
]
VerboseFlag: TypeAlias = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="Print everything: all options, sources and notes."),
]

_GROUPS = {"options": "--set ", "fusion_options": "--set fusion.", "vary": "--vary "}
"""Fields that hold others, and how the flag begins that sets one of them."""


def flags_of(application: typer.Typer) -> dict[str, str]:
    """Return the flags and arguments of an application's commands, by their names in Python."""
    flags: dict[str, str] = {}
    for group in application.registered_groups:
        flags |= flags_of(group.typer_instance) if group.typer_instance else {}
    for command in application.registered_commands:
        if command.callback is None:
            continue
        for parameter in inspect.signature(command.callback, eval_str=True).parameters.values():
            for option in getattr(parameter.annotation, "__metadata__", ()):
                flags |= _written(parameter.name, option)
    return flags


def _written(name: str, option: object) -> dict[str, str]:
    """Return how a parameter is written on the command line, by the field that it gives."""
    if isinstance(option, ArgumentInfo):
        return {name: option.metavar or name.upper()}
    if not isinstance(option, OptionInfo):
        return {}
    given = (option.default, *(option.param_decls or ()))  # in Annotated, the first is `default`
    flags = [flag for flag in given if isinstance(flag, str) and flag.startswith("-")]
    flags = flags or ["--" + name.rstrip("_").replace("_", "-")]
    each = [part for flag in flags for part in flag.split("/")]
    return {flag.lstrip("-").replace("-", "_"): flag for flag in each}


def flag_of(field: str, flags: Mapping[str, str]) -> str:
    """Return how a command line writes a field; what has no flag (a key of a file) stays as it is.

    Parameters
    ----------
    flags : the command's own; fields of a scenario are written as flags in any command

    Examples
    --------
    >>> fields = ("gpus_per_node", "options.density", "fusion_options", "vary.gpus", "workers")
    >>> [flag_of(field, {"workers": "--workers"}) for field in (*fields, "alpha")]
    ['--gpus-per-node', '--set density', '--set', '--vary gpus', '--workers', 'alpha']
    """
    name, _, option = field.partition(".")
    if name in _GROUPS:
        return f"{_GROUPS[name]}{option}" if option else _GROUPS[name].split()[0]
    if field in SCENARIO_FIELDS and SCENARIO_FIELDS[field].flag:
        return "--" + field.replace("_", "-")
    return flags.get(field, field)


PLURALS = {"counts": "gpus", "gpu_types": "gpu", "nets": "net", "methods": "method"}
"""Each flag of ``plan`` that takes several values of a field, and the field."""


def setting_of(name: str) -> tuple[str, str]:
    """Return the field that holds what ``--set`` names, and its name there.

    Examples
    --------
    >>> setting_of("density"), setting_of("options.density"), setting_of("fusion.cycle_time")
    (('options', 'density'), ('options', 'density'), ('fusion_options', 'cycle_time'))
    """
    group, point, option = name.partition(".")
    if point and group in ("fusion", "fusion_options"):
        return "fusion_options", option
    return "options", name.removeprefix("options.")


def several_flags(arguments: Sequence[str]) -> dict[str, str]:
    """Return how fields are written that their own flag does not give, by the command line's words.

    ``--set`` gives options one by one, ``--vary`` and flags of ``plan`` several values of a field,
    ``--no-overlap`` says that `overlap` does not hold.
    ``plan`` refuses a field that its own flag gives too; that error names the flag.

    Examples
    --------
    >>> several_flags(["sweep", "--vary", "gpus=8,16", "--vary=options.density=1%,5%"])
    {'gpus': '--vary gpus', 'options.density': '--vary options.density'}
    >>> several_flags(["plan", "--nets", "1gbe,10gbe", "--counts", "8", "--gpus", "8"])
    {'net': '--nets'}
    >>> several_flags(["predict", "--set", "density=1%", "--set=fusion.cycle_time=2ms"])
    {'options.density': '--set density', 'fusion_options.cycle_time': '--set fusion.cycle_time'}
    >>> several_flags(["predict", "--no-overlap"])
    {'overlap': '--no-overlap'}
    """
    flags: dict[str, str] = {}
    for argument, after in zip(arguments, (*arguments[1:], ""), strict=True):
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if flag == "--vary":
            field = (value if equals else after).partition("=")[0].strip()
            flags[field] = f"{flag} {field}"
        elif flag == "--set":
            option = (value if equals else after).partition("=")[0].strip()
            flags[".".join(setting_of(option))] = f"{flag} {option}"
        elif flag.startswith("--no-") and name.removeprefix("no_") in SCENARIO_FIELDS:
            flags[name.removeprefix("no_")] = flag
        elif arguments[0] == "plan" and flag.startswith("--") and name in PLURALS:
            field = PLURALS[name]
            if not any(one.partition("=")[0] == flag_of(field, {}) for one in arguments):
                flags[field] = flag
    return flags
