"""`--help` in groups of options, and `-h` with those that most questions need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from typer.core import TyperCommand

__all__ = ["COMMON", "HELP_GROUPS", "GroupedCommand", "brief_help"]

HELP_GROUPS = {
    "What trains": (
        *("model", "batch", "seq", "document_tokens", "precision", "autocast", "accumulate"),
        *("recompute", "optimizer"),
        *("lora", "lora_layers", "lora_base", "lora_dtype", "lora_dropout", "residual_dtype"),
        *("master_weights", "reduce_dtype"),
        *("exchange_each", "chunked_loss", "offload"),
        *("input", "software"),
    ),
    "Cluster": (
        *("gpus", "node", "gpu", "gpus_per_node", "net", "intra_net", "placement", "nics_per_node"),
        *("nic", "oversubscription", "site", "wan"),
    ),
    "Method": ("method", "set_", "fusion", "bucket", "overlap", "epochs_of"),
    "Parallelism": (
        *(
            "tp",
            "pp",
            "cp",
            "cp_comm",
            "ep",
            "etp",
            "schedule",
            "virtual_stages",
            "stage_layers",
            "layout",
        ),
        *("sequence_parallel", "tp_overlap", "imbalance", "dispatcher", "ep_overlap"),
    ),
    "Communication library": ("library", "algorithm", "protocol"),
    "Conditions": ("straggler", "jitter", "background", "beside", "seed"),
    "Your own measurements and files": (
        *("single_gpu", "single_gpu_kernels", "scenario", "profiles"),
    ),
    "Output": (
        *("verbose", "json", "out", "html", "png", "csv", "trace", "chakra", "timeline", "format_"),
        "help",
    ),
}
"""Options by what they are about, by parameter; a command's own stand before them."""

_OWN = "This command"

COMMON = (
    *("model", "gpus", "node", "gpu", "net", "batch", "precision", "method", "set_", "scenario"),
    *("vary", "over", "methods", "dataset", "epochs", "deadline", "budget"),
    *("verbose", "json", "html", "help"),
)
"""Options that `-h` shows."""

_MANY = 20
"""A command with fewer options has one list, and shows all of them on `-h` too."""

_BRIEF: ContextVar[bool] = ContextVar("brief_help", default=False)


@contextmanager
def brief_help(asked: bool) -> Iterator[None]:
    """Show only common options in help, if ``asked``."""
    token = _BRIEF.set(asked)
    try:
        yield
    finally:
        _BRIEF.reset(token)


class GroupedCommand(TyperCommand):
    """A command whose help lists many options in groups, each with its title."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for one in self.params:
            vars(one)["process_value"] = partial(_read_given, one, one.process_value)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options: all by groups, or the common ones with a hint."""
        records = {}
        arguments = []
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is None:
                continue
            if one.param_type_name == "argument":
                arguments.append(record)
            else:
                records[str(one.name)] = (record[0], _plain_default(record[1]))
        brief = _BRIEF.get() and len(records) >= _MANY
        if arguments and not brief:
            _section(formatter, "Arguments", arguments)
        if brief:
            chosen = [(flag, _first(text)) for flag, text in _of(records, COMMON)]
            _section(formatter, "Common options", chosen)
            hint = f"{ctx.command_path} --help shows all {len(records)} options."
            formatter.write(f"\n  {hint}\n")
        elif len(records) < _MANY:
            _section(formatter, "Options", records.values())
        else:
            self._groups(formatter, records)

    @staticmethod
    def _groups(formatter: Any, records: dict[str, tuple[str, str]]) -> None:
        grouped = {name for names in HELP_GROUPS.values() for name in names}
        own = [name for name in records if name not in grouped]
        _section(formatter, _OWN, _of(records, own))
        for title, names in HELP_GROUPS.items():
            _section(formatter, title, _of(records, names))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, except on `-h`."""
        if not (_BRIEF.get() and len(self.get_params(ctx)) >= _MANY):
            super().format_epilog(ctx, formatter)


def _read_given(option: Any, read: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """Return the value of an option as its type reads it, and None unread where it is not given.

    Typer makes a reader of each option by pydantic, which takes longer than all else of a command
    line with few of some eighty options.
    """
    if value is None and option.callback is None and not option.required:
        return () if option.multiple or option.nargs == -1 else None
    return read(context, value)


def _of(records: dict[str, tuple[str, str]], names: Iterable[str]) -> list[tuple[str, str]]:
    return [records[name] for name in names if name in records]


def _section(formatter: Any, title: str, rows: Iterable[tuple[str, str]]) -> None:
    every = list(rows)
    if every:
        with formatter.section(title):
            formatter.write_dl(every)


def _plain_default(text: str) -> str:
    """Return a help text whose default has one pair of brackets.

    Examples
    --------
    >>> _plain_default("GPUs.  [default: (those of --gpu (all))]")
    'GPUs.  [default: those of --gpu (all)]'
    """
    return re.sub(r"\[default: \((.*)\)\]$", r"[default: \1]", text, flags=re.DOTALL)


def _first(text: str) -> str:
    """Return the first sentence of a help text.

    Examples
    --------
    >>> _first("Bucket size, such as 25MiB.  [default: 25MiB]"), _first("GPUs of a node; see b.")
    ('Bucket size, such as 25MiB.', 'GPUs of a node; see b.')
    """
    return re.split(r"(?<=[.])\s", text, maxsplit=1)[0]
