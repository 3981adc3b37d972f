"""Fusion: gradients in the order in which they become ready, to buckets in the order of sending.

One policy a file; the file name is the policy's name and nothing else registers it. A policy file
holds ``SUMMARY`` (one line), ``OPTIONS`` (name -> meaning, for ``--set fusion.NAME=VALUE``) and
``fuse``. Every gradient is in exactly one bucket, and neither buckets nor gradients change their
order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol, cast

from perfsim.compute.profile import Gradient
from perfsim.errors import unknown
from perfsim.fusion.bucket import Bucket, FusionContext

__all__ = ["Policy", "load", "policies"]

NOT_POLICIES = ("bucket",)


class Policy(Protocol):
    """What a policy file offers."""

    SUMMARY: str
    OPTIONS: Mapping[str, str]
    LIMIT_BYTES: float | None

    def fuse(self, gradients: Sequence[Gradient], context: FusionContext) -> list[Bucket]:
        """Return the buckets of ``gradients`` (given in ready order)."""
        ...


@cache
def policies() -> tuple[str, ...]:
    """Return the names of the fusion policies.

    Examples
    --------
    >>> "size" in policies(), "bucket" in policies()
    (True, False)
    """
    import pkgutil

    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if name not in NOT_POLICIES))


def load(name: str) -> Policy:
    """Return the policy of one name.

    Raises
    ------
    RequestError
        If there is none; the message gives the nearest match.

    Examples
    --------
    >>> load("none").SUMMARY
    'one message a tensor'
    """
    import importlib

    allowed = policies()
    if name not in allowed:
        raise unknown("fusion", name, allowed)
    return cast(Policy, importlib.import_module(f"{__name__}.{name}"))
