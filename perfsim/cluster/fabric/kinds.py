"""The fabrics that there are, as the files of this folder give them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal, Protocol

from perfsim.cluster.fabric.option import Option
from perfsim.cluster.routing import Graph
from perfsim.errors import unknown

__all__ = ["Kind", "Place", "Value", "fabrics", "load"]

NOT_FABRICS = ("inter", "intra", "kinds", "option", "wire")

Place = Literal["inter", "intra"]
Value = int | float | bool | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


class Builder(Protocol):
    """The function of a fabric's file that builds its graph."""

    def __call__(self, *shape: float, **options: Value) -> Graph:
        """Return the graph."""


class Words(Protocol):
    """The function of a fabric's file that describes it."""

    def __call__(self, **options: Value) -> str:
        """Return the fabric in a few words."""


class RingRate(Protocol):
    """The function of an intra fabric's file that knows its rings without routing."""

    def __call__(self, gpus: int, /, **options: Value) -> float:
        """Return the bus bandwidth of a ring."""


class Kind:
    """A fabric's file."""

    def __init__(self, name: str) -> None:
        from importlib import import_module

        module = import_module(f"{__package__}.{name}")
        self.place: Place = module.PLACE
        self.summary: str = module.SUMMARY
        self.options: Mapping[str, Option] = module.OPTIONS
        self.build: Builder = getattr(module, name)
        self.words: Words = module.words
        self.ring_rate: RingRate | None = getattr(module, "ring_rate", None)


@cache
def fabrics(place: Place) -> dict[str, Kind]:
    """Return name -> fabric of one place.

    Examples
    --------
    >>> list(fabrics("intra"))
    ['nvlink-mesh', 'nvswitch', 'pcie-tree']
    """
    import pkgutil
    from pathlib import Path

    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    kinds = {name.replace("_", "-"): Kind(name) for name in names if name not in NOT_FABRICS}
    return {name: kind for name, kind in kinds.items() if kind.place == place}


def load(place: Place, name: str) -> Kind:
    """Return a fabric by its name.

    Raises
    ------
    RequestError
        If there is none; the message gives the nearest match.

    Examples
    --------
    >>> load("inter", "leaf-spine").place
    'inter'
    """
    known = fabrics(place)
    if name not in known:
        raise unknown("fabric", name, known)
    return known[name]
