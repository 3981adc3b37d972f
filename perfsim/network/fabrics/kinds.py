"""The fabrics that there are, as the files of this folder give them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal, Protocol

from perfsim.errors import unknown
from perfsim.network.fabrics.option import Option
from perfsim.network.routing import Graph

__all__ = ["FabricKind", "FabricPlace", "FabricValue", "fabrics", "load"]

NOT_FABRICS = ("inter", "intra", "kinds", "option", "wire")

FabricPlace = Literal["inter", "intra"]
FabricValue = int | float | bool | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


class FabricBuilder(Protocol):
    """The function of a fabric's file that builds its graph."""

    def __call__(self, *shape: float, **options: FabricValue) -> Graph:
        """Return the graph."""


class Words(Protocol):
    """The function of a fabric's file that describes it."""

    def __call__(self, **options: FabricValue) -> str:
        """Return the fabric in a few words."""


class RingRate(Protocol):
    """The function of an intra fabric's file that knows its rings without routing."""

    def __call__(self, gpus: int, /, **options: FabricValue) -> float:
        """Return the bus bandwidth of a ring."""


class FabricKind:
    """A fabric's file."""

    def __init__(self, name: str) -> None:
        from importlib import import_module

        module = import_module(f"{__package__}.{name}")
        self.place: FabricPlace = module.PLACE
        self.summary: str = module.SUMMARY
        self.options: Mapping[str, Option] = module.OPTIONS
        self.build: FabricBuilder = getattr(module, name)
        self.words: Words = module.words
        self.ring_rate: RingRate | None = getattr(module, "ring_rate", None)


@cache
def fabrics(place: FabricPlace) -> dict[str, FabricKind]:
    """Return name -> fabric of one place.

    Examples
    --------
    >>> list(fabrics("intra"))
    ['nvlink-mesh', 'nvswitch', 'pcie-tree']
    """
    import pkgutil
    from pathlib import Path

    names = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    kinds = {name.replace("_", "-"): FabricKind(name) for name in names if name not in NOT_FABRICS}
    return {name: kind for name, kind in kinds.items() if kind.place == place}


def load(place: FabricPlace, name: str) -> FabricKind:
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
