"""Names of a scenario's fields, as a sweep and a map of measurements write them."""

from __future__ import annotations

from perfsim.scenario import FLAGS

__all__ = ["GROUPS", "is_field"]

GROUPS = ("options", "fusion_options")
"""Fields that hold others, named ``options.density``."""


def is_field(name: str) -> bool:
    """Tell whether a name is a field that takes one value: itself, or one of a group.

    Examples
    --------
    >>> [is_field(name) for name in ("gpus", "options.density", "options", "gpus.x", "options.")]
    [True, True, False, False, False]
    """
    group, dot, option = name.partition(".")
    return group in FLAGS and (group in GROUPS) == bool(dot) == bool(option)
