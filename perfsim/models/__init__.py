"""Public network definitions by name: every file here that exports ``MODELS`` is a family.

``MODELS`` maps a model's name to a function of no arguments that returns its layers in forward
order. A new family is a new file; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from perfsim.errors import unknown
from perfsim.models.layer import ModelLayer

__all__ = ["ModelLayer", "build", "names"]

ModelBuilder = Callable[[], tuple[ModelLayer, ...]]


@cache
def _builders() -> dict[str, ModelBuilder]:
    found: dict[str, ModelBuilder] = {}
    for module in iter_modules(__path__):
        if not module.ispkg:
            family = import_module(f"{__name__}.{module.name}")
            found |= getattr(family, "MODELS", {})
    return found


def names() -> list[str]:
    """Return the names of all network definitions.

    Examples
    --------
    >>> "resnet50" in names()
    True
    """
    return sorted(_builders())


@cache
def build(name: str) -> tuple[ModelLayer, ...]:
    """Return the layers of one network in forward order.

    Raises
    ------
    RequestError
        If there is no such network; the message gives the nearest name.

    Examples
    --------
    >>> sum(layer.elements for layer in build("resnet50"))
    25557032
    """
    builders = _builders()
    if name not in builders:
        raise unknown("model", name, builders)
    return builders[name]()
