"""Published training schemes, one a file; the file name is the method's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import ValidationError

from perfsim.compute.host_offload import (
    ACTIVATIONS,
    CHECKPOINTS,
    OPTIMIZER,
    PARAMETERS,
    offloaded,
)
from perfsim.data.files import as_written
from perfsim.errors import (
    RequestError,
    UnknownNameError,
    rule,
    shown,
    unknown,
    unknown_option,
)
from perfsim.fusion import load_policy, policy_names
from perfsim.methods.base import Method, OptionError

__all__ = [
    "ALIASES",
    "AUTO_METHOD",
    "ELSEWHERE",
    "host_options",
    "load_method",
    "method_class",
    "method_name",
    "method_names",
]

AUTO_METHOD = "auto"
"""The method name that makes ``perfsim predict`` rank all methods."""

ALIASES = {"ddp": "ssgd", "redsynctrim": "trimmed_topk", "dgcsampling": "dgc_k", "zero++": "zeropp"}
"""Other names of methods: PyTorch's DDP, compressors as HKBU's code calls them, and ZeRO++."""

ELSEWHERE: dict[str, tuple[str, str]] = {
    "megatron": ("distributed_optimizer", ""),
    "megatronlm": ("distributed_optimizer", ""),
    "deepspeed": ("zero", "stage=1 to 3"),
    "zero1": ("zero", "stage=1"),
    "zero2": ("zero", "stage=2"),
    "zero3": ("zero", "stage=3"),
    "fsdp1": ("fsdp", "version=1"),
    "fsdp2": ("fsdp", "version=2"),
    "hsdp": ("fsdp", "shard=hybrid"),
    "hybridshard": ("fsdp", "shard=hybrid"),
    "shardgradop": ("fsdp", "shard=grad"),
    "muon": ("distributed_muon", ""),
}
"""What other tools call a method with some of its options: ours, and these options."""

NOT_METHODS = ("base", "building", "describe", "fusion_settings", "learning")
"""Modules of this folder that hold no method."""


def method_names() -> list[str]:
    """Return the names of all methods."""
    return list(_module_names(tuple(__path__)))


@cache
def _module_names(folders: tuple[str, ...]) -> tuple[str, ...]:
    names = (module.name for module in pkgutil.iter_modules(folders))
    return tuple(sorted(name for name in names if name not in NOT_METHODS))


def method_class(name: str) -> type[Method]:
    """Return the class of one method; letter case, - and _ in its name do not matter.

    Raises
    ------
    RequestError
        If there is no method of that name.

    Examples
    --------
    >>> method_class("ACP-SGD").__name__
    'Acpsgd'
    """
    return _class_in(method_name(name))


@cache  # a module never changes
def _class_in(module_name: str) -> type[Method]:
    """Return the class of the method that one file describes."""
    module = importlib.import_module(f"{__name__}.{module_name}")
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and issubclass(value, Method)
            and value.__module__ == module.__name__
        ):
            return value
    raise TypeError(f"perfsim/methods/{module_name}.py defines no Method")


def method_name(name: str, field: str = "method") -> str:
    """Return a method's own name for any way of writing it or an alias; errors name ``field``.

    Raises
    ------
    RequestError
        If there is no method of that name.

    Examples
    --------
    >>> method_name("SPD-KFAC")
    'spd_kfac'
    >>> method_name("DDP")
    'ssgd'
    """
    asked, known = _plain(name), _by_plain_name(tuple(__path__))
    if asked == AUTO_METHOD:
        raise RequestError(
            field, "auto is no method; `perfsim predict` takes it to rank all methods."
        )
    if asked in known:
        return known[asked]
    if asked in ELSEWHERE:
        ours, options = ELSEWHERE[asked]
        with_options = f" with `options` {options}" if options else ""
        why = f"no {shown(name)}; it is {ours}{with_options} here (`perfsim show method {ours}`)."
        raise UnknownNameError(field, why, value=name, nearest=ours)
    more = (AUTO_METHOD,) if field == "method" else ()
    raise unknown(field, name, (*method_names(), *ALIASES, *more), "methods")


@cache
def _by_plain_name(folders: tuple[str, ...]) -> dict[str, str]:
    own = {_plain(known): known for known in _module_names(folders)}
    return ALIASES | own


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


_FUSION = "`fusion_options.{0}`, as it is the fusion policy's."


def host_options(name: str, offload: str) -> dict[str, Any]:
    """Return the options with which a method's code keeps on the host what ``offload`` names.

    Checkpoints and activations are the model's, whatever the method.

    Raises
    ------
    RequestError
        If no code of the method is known that does.
    """
    known, options = method_class(name).on_host, {}
    for word in sorted(offloaded(offload) - {ACTIVATIONS, CHECKPOINTS}):
        if word not in known:
            ours, why = method_name(name), f"is known of {_OFFLOADS[word]}, or leave it out."
            if PARAMETERS in known and PARAMETERS in offloaded(offload):
                why = f"goes with parameters in {ours}; leave {word} out."
            raise RequestError("offload", f"{word} {why.format(ours)}", value=offload)
        options[known[word]] = True
    return options


_OFFLOADS = {
    OPTIMIZER: "DeepSpeed alone: set `method` zero in place of {0}",
    PARAMETERS: (
        "codes that shard them: set `method` fsdp, or zero with `options` stage=3, in place of {0}"
    ),
}
"""What can be on the host besides what blocks keep -> by which methods, in words."""


def load_method(name: str, options: Mapping[str, Any]) -> Method:
    """Return a method with its options checked.

    Raises
    ------
    RequestError
        If the method or an option is unknown, or a value is not allowed.

    Examples
    --------
    >>> load_method("topk", {"density": "0.01"}).density
    0.01
    """
    cls = method_class(name)
    if not options:
        return _with_defaults(cls)
    for option in options:
        if option not in cls.model_fields:
            error = unknown_option(f"method {name!r}", option, cls.model_fields, field="options")
            of_fusion = any(option in load_policy(one).options for one in policy_names())
            raise error.or_else(_FUSION.format(option)) if of_fusion else error
    try:
        return cls(**options)
    except ValidationError as error:
        raise _refused(name, options, error) from None


@cache  # it is frozen, and cannot go stale
def _with_defaults(cls: type[Method]) -> Method:
    """Return a method with the defaults of its options, which need no check."""
    return cls.model_construct()


def _refused(name: str, options: Mapping[str, Any], error: ValidationError) -> RequestError:
    """Return the error for an option whose value is not allowed, as it was written."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, OptionError):
        why = f"{as_written(cause.value)} {cause.why} (method {name!r})."
        return RequestError(f"options.{cause.option}", why, value=cause.value)
    option = str(first["loc"][0])
    given = options[option] if first["loc"] == (option,) else first["input"]
    why = f"{shown(given)} is not allowed for method {name!r}: {rule(first)}."
    return RequestError(f"options.{option}", why, value=given)
