"""What Typer refuses, said as all other refusals are: what was given, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from perfsim.errors import RequestError, nearest, rule, shown, unknown

__all__ = ["usage_refusal"]

_NO_COMMAND = re.compile(r"No such command '(.*?)'\.", re.DOTALL)


def usage_refusal(error: Any) -> str:
    """Return the sentence for one of Typer's usage errors (it bundles click: known by what it has).

    What needs no other words is said as Typer says it.
    """
    command = _NO_COMMAND.match(error.message)
    if command:
        group = error.ctx.command
        field = "" if error.ctx.parent is None else str(group.name)
        return str(unknown(field or "command", command[1], group.commands))
    if hasattr(error, "possibilities"):
        return _no_option(error)
    checked = getattr(error.__cause__, "errors", None)
    if checked is not None and error.param is not None:
        return _not_allowed(_flag(error.param), checked()[0])
    if type(error).__name__ == "MissingParameter":
        return _needed(error.param)
    return " ".join(error.format_message().split())


def _flag(param: Any) -> str:
    """Return how an option or an argument is written."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    return str(max(param.opts, key=len))


def _no_option(error: Any) -> str:
    """Return the sentence for an option that the command does not have."""
    given = error.option_name
    flags = {flag.lstrip("-"): flag for one in error.ctx.command.params for flag in one.opts}
    match = _as_others_say(given, flags) or nearest(given.lstrip("-"), flags)
    near = f"; did you mean {flags[match]}?" if match else "."
    return f"no option {shown(given)}{near} `{error.ctx.command_path} --help` shows all."


_OTHER_WORDS = {
    "accumulate": ("gradient-accumulation", "grad-accum", "micro-batches", "microbatches"),
    "batch": ("micro-batch", "mbs", "local-batch"),
    "cp": ("context-parallel",),
    "dataset": ("tokens", "samples", "train-tokens"),
    "document-tokens": ("packing", "packed", "sample-packing", "padding-free", "document-length"),
    "ep": ("expert-parallel", "expert-model-parallel"),
    "etp": ("expert-tensor-parallel",),
    "gpu": ("device", "accelerator", "hardware"),
    "gpus": ("world", "nproc", "ranks", "workers", "dp", "data-parallel"),
    "method": ("compression", "compressor", "scheme", "strategy", "fsdp", "zero", "zero-stage"),
    "net": ("bandwidth", "latency", "interconnect", "fabric"),
    "pp": ("pipeline-parallel", "pipeline-model-parallel", "stages"),
    "precision": ("dtype", "bf16", "fp16", "fp8", "amp", "mixed-precision"),
    "recompute": (
        *("activation-checkpointing", "checkpointing", "recompute-granularity"),
        "recompute-modules",
    ),
    "seq": ("seq-length", "sequence-length", "context", "context-length", "tokens"),
    "tp": ("tensor-parallel", "tensor-model-parallel"),
    "virtual-stages": ("virtual-pipeline-model-parallel", "vpp", "interleave"),
}
"""What Megatron-LM, DeepSpeed, torchtitan, torchrun and people call it, by flag; without -size."""


def _as_others_say(given: str, flags: Iterable[str]) -> str:
    """Return the flag that an option is called elsewhere, the first that a command has, or ""."""
    word = given.lstrip("-").replace("_", "-").lower().removesuffix("-size")
    if word in flags:
        return word
    known = (flag for flag, words in _OTHER_WORDS.items() if word in words)
    return next((flag for flag in known if flag in flags), "")


def _not_allowed(flag: str, first: dict[str, Any]) -> str:
    """Return the sentence for a value that pydantic refuses."""
    if first["type"] == "value_error":  # a choice: it says itself what is allowed
        return str(RequestError(flag, str(first["ctx"]["error"])))
    return str(RequestError(flag, f"{shown(first['input'])} is not allowed: {rule(first)}."))


def _needed(param: Any) -> str:
    """Return the sentence for an option or argument that is missing."""
    help_ = f": {param.help.rstrip('.')}" if param.help else ""
    return f"{_flag(param)} is needed{help_}."
