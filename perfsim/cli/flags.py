"""Flags that several commands share, and how a message names a command's flags."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from typer.models import ArgumentInfo, OptionInfo

__all__ = [
    "ChakraFlag",
    "HtmlFlag",
    "JsonFlag",
    "OutFlag",
    "PngFlag",
    "ProfilesFlag",
    "TimelineFlag",
    "TraceFlag",
    "flag_of",
    "flags_of",
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

_GROUPS = {
    "options": ("set", "--set "),
    "fusion_options": ("set", "--set fusion."),
    "vary": ("vary", "--vary "),
}
"""Fields that hold others: the flag that sets one of them, and how it is written there."""


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
    if isinstance(option, ArgumentInfo) and (option.metavar or "").endswith("..."):
        return {name: (option.metavar or "").removesuffix("...")}
    if not isinstance(option, OptionInfo):
        return {}
    flags = option.param_decls or ["--" + name.rstrip("_").replace("_", "-")]
    each = [part for flag in flags for part in flag.split("/")]
    return {flag.lstrip("-").replace("-", "_"): flag for flag in each}


def flag_of(field: str, flags: Mapping[str, str]) -> str:
    """Return how a command with such flags writes a field; what it has no flag for stays as it is.

    Examples
    --------
    >>> flags = {"gpus_per_node": "--gpus-per-node", "set": "--set", "vary": "--vary"}
    >>> [flag_of(one, flags) for one in ("gpus_per_node", "options.density", "vary.gpus", "alpha")]
    ['--gpus-per-node', '--set density', '--vary gpus', 'alpha']
    """
    name, _, option = field.partition(".")
    if name in _GROUPS:
        flag, written = _GROUPS[name]
        return f"{written}{option}".strip() if flag in flags else field
    return field if option else flags.get(name, field)
