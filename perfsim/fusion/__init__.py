"""Fusion: gradients in the order in which they become ready, to buckets in the order of sending.

A policy is a function from gradients and a `FusionContext` to buckets. The decorator `policy`
enters it under its name, with a summary, its options and its usual limit. Every file of this
folder is imported once a policy is asked for, so that a new file with a decorated function is a
new policy; nothing else lists it. Every gradient is in exactly one bucket, and neither buckets nor
gradients change their order.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import NamedTuple

from perfsim.errors import unknown
from perfsim.fusion.buckets import FusionPolicy

__all__ = ["Policy", "load_policy", "policy", "policy_names"]


class Policy(NamedTuple):
    """One fusion policy.

    Parameters
    ----------
    name : what the user calls it
    fuse : gradients in ready order and a context to buckets in the order of sending
    summary : one line
    options : name -> meaning, for the scenario's fusion_options
    limit_bytes : the bucket size where none is asked for; None: the policy has no such limit
    timed : whether buckets depend on how long passes and messages take
    """

    name: str
    fuse: FusionPolicy
    summary: str
    options: Mapping[str, str]
    limit_bytes: float | None
    timed: bool = False


_REGISTRY: dict[str, Policy] = {}


def policy(
    name: str,
    *,
    summary: str,
    options: Mapping[str, str] | None = None,
    limit_bytes: float | None = None,
    timed: bool = False,
) -> Callable[[FusionPolicy], FusionPolicy]:
    """Enter the decorated function, in a file of this folder, as the policy of a name.

    The parameters are those of `Policy`. The function itself stays as it is.

    Raises
    ------
    ValueError
        If another file has a policy of that name.
    """

    def enter(fuse: FusionPolicy) -> FusionPolicy:
        before = _REGISTRY.get(name)
        if before and before.fuse.__module__ != fuse.__module__:
            raise ValueError(
                f"fusion {name} is in two files: {before.fuse.__module__} and {fuse.__module__}"
            )
        if fuse.__module__.startswith(f"{__name__}."):
            _REGISTRY[name] = Policy(name, fuse, summary, options or {}, limit_bytes, timed)
        return fuse

    return enter


@cache
def policy_names() -> tuple[str, ...]:
    """Return the names of the fusion policies.

    Examples
    --------
    >>> "size" in policy_names(), "buckets" in policy_names()
    (True, False)
    """
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return tuple(sorted(_REGISTRY))


def load_policy(name: str) -> Policy:
    """Return the policy of one name.

    Raises
    ------
    RequestError
        If there is none; the message gives the nearest match.

    Examples
    --------
    >>> load_policy("none").summary
    'one message a tensor'
    """
    allowed = policy_names()
    if name not in allowed:
        raise unknown("fusion", name, allowed)
    return _REGISTRY[name]
