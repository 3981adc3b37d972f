"""Communication libraries: NCCL, gloo and Open MPI, one a file, and what each chooses.

A new file of one word in this folder is a new library; nothing else lists it. It holds
``SUMMARY``; ``ALGORITHMS``, what it has for each collective (None: every algorithm by name, those
with AUTOMATIC by itself); ``choose``, the algorithm that it takes for a collective, size and
number of ranks (None: the one with the least predicted time); ``hop_factor``, how many latencies
a step costs; and ``PROTOCOLS``, whether it has LL, LL128 and Simple. Its parts, if any, follow it:
``nccl_tuner.py`` belongs to ``nccl.py``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import NamedTuple, Protocol

from perfsim.collectives import Algorithm, Hops, Parts, find_algorithm
from perfsim.collectives import algorithms as find_algorithms
from perfsim.errors import RequestError, unknown

__all__ = ["AUTO", "DEFAULT_LIBRARY", "Library", "libraries", "library"]

AUTO = "auto"
"""In place of an algorithm's or protocol's name: what the library takes itself."""

DEFAULT_LIBRARY = "nccl"
"""The one on which the links of network files were fitted, where they name no other."""

NO_LIBRARY = ("protocols",)


class Choose(Protocol):
    """The form of a library's ``choose``."""

    def __call__(self, collective: str, size_bytes: float, ranks: int, /) -> str | None:
        """Return the algorithm that the library takes, None for the least predicted time."""


class HopFactor(Protocol):
    """The form of a library's ``hop_factor``."""

    def __call__(self, collective: str, algorithm: str, /) -> float:
        """Return how many latencies of a link a step costs."""


class Library(NamedTuple):
    """One library: what it has, what it takes, and what a hop costs it."""

    name: str
    summary: str
    has: Mapping[str, tuple[str, ...]] | None
    choose: Choose
    hop_factor: HopFactor
    protocols: bool

    def names(self, collective: str) -> tuple[str, ...]:
        """Return the algorithms that may be named."""
        known = find_algorithms().get(collective, ())
        return known if self.has is None else self.has.get(collective, ())

    def considered(self, collective: str) -> tuple[str, ...]:
        """Return the algorithms that stand for choice when none is named."""
        return _considered(self.name, collective)

    def algorithm(self, collective: str, name: str) -> Algorithm:
        """Return an algorithm as this library runs it: the latency of its hops times the factor.

        Raises
        ------
        RequestError
            If there is no such collective or algorithm, or this library does not have it.
        """
        found = find_algorithm(collective, name)
        if found.name not in self.names(collective):
            error = unknown("algorithm", name, (*self.names(collective), "auto"))
            raise RequestError(f"{collective} of {self.name}, {error}")
        factor = self.hop_factor(collective, found.name)
        return found if factor == 1.0 else _slowed(found, factor)


def _slowed(one: Algorithm, factor: float) -> Algorithm:
    """Return the algorithm with ``factor`` latencies a hop."""

    def formula(size_bytes: float, hops: Hops, /) -> Parts:
        slow = hops._replace(
            alpha_intra_s=factor * hops.alpha_intra_s,
            alpha_inter_s=factor * hops.alpha_inter_s,
        )
        return one.formula(size_bytes, slow)

    return one._replace(formula=formula)


@cache
def _considered(library_name: str, collective: str) -> tuple[str, ...]:
    of = library(library_name)
    names = of.names(collective)
    if of.has is not None:
        return names
    return tuple(name for name in names if find_algorithm(collective, name).automatic)


@cache
def libraries() -> tuple[str, ...]:
    """Return the names of the libraries, as the files of this folder give them.

    Examples
    --------
    >>> libraries()
    ('gloo', 'mpi', 'nccl')
    """
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if "_" not in name and name not in NO_LIBRARY))


@cache
def library(name: str, field: str = "library") -> Library:
    """Return one library.

    Raises
    ------
    RequestError
        If there is none of that name; lists those there are.

    Examples
    --------
    >>> ring = library("gloo").algorithm("all_reduce", "ring")
    >>> round(ring.formula(0.0, Hops.flat(4, 1e-5, 0.0)).latency_s * 1e6)  # 6 round trips
    120
    """
    if name not in libraries():
        raise unknown(field, name, libraries())
    module = import_module(f"{__name__}.{name}")
    return Library(
        name,
        module.SUMMARY,
        module.ALGORITHMS,
        module.choose,
        module.hop_factor,
        module.PROTOCOLS,
    )
