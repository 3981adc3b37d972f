"""Communication libraries: NCCL, RCCL, gloo and Open MPI, one a file, and what each chooses.

A new file with a ``LIBRARY`` (a `Library`) in this folder is a new library, named as its file;
nothing else lists it. `NOT_LIBRARIES` are files that help one.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple, Protocol

from perfsim.collectives import Algorithm, Hops, Parts, find_algorithm
from perfsim.collectives import algorithms as find_algorithms
from perfsim.collectives.hops import maximum
from perfsim.errors import RequestError, unknown

__all__ = ["AUTO", "DEFAULT_LIBRARY", "Library", "libraries", "library"]

AUTO = "auto"
"""In place of an algorithm's or protocol's name: what the library takes by itself."""

DEFAULT_LIBRARY = "nccl"
"""The library on which a network file's links were fitted where it names no other."""

NOT_LIBRARIES = ("nccl_versions",)
"""Files of this folder that hold no library of their own."""


class Choose(Protocol):
    """The form of a library's ``choose``."""

    def __call__(self, collective: str, size_bytes: float, ranks: int, /) -> str | None:
        """Return the algorithm that the library takes, None for the least predicted time."""


class HopFactor(Protocol):
    """The form of a library's ``hop_factor``."""

    def __call__(self, collective: str, algorithm: str, /) -> float:
        """Return how many latencies of a link a step costs."""


class Library(NamedTuple):
    """One library: what it has, what it takes, and what a hop costs it.

    Parameters
    ----------
    name : that of its file
    summary : one line
    has : collective -> its algorithms; None: every algorithm by name, and by itself those that
        are ``automatic``
    choose : what it takes for a collective, size and number of ranks; None: the one with the
        least predicted time
    hop_factor : how many latencies of a link a step of an algorithm costs; where it is not 1, of
        the slowest link
    protocols : whether it has LL, LL128 and Simple
    own_links : whether it drives links so much otherwise that links measured with another library
        say nothing of it
    runs_as : collective -> the one that PyTorch runs on this library in its place
    """

    name: str
    summary: str
    has: Mapping[str, tuple[str, ...]] | None
    choose: Choose
    hop_factor: HopFactor
    protocols: bool
    own_links: bool = False
    runs_as: Mapping[str, str] = MappingProxyType({})

    @property
    def compares_times(self) -> bool:
        """Whether it takes the algorithm with the least predicted time: NCCL and its ports.

        Examples
        --------
        >>> [name for name in libraries() if library(name).compares_times]
        ['nccl', 'rccl']
        """
        return self.has is None

    def names(self, collective: str) -> tuple[str, ...]:
        """Return the algorithms that may be named."""
        known = find_algorithms().get(collective, ())
        return known if self.has is None else self.has.get(collective, ())

    def considered(self, collective: str) -> tuple[str, ...]:
        """Return the algorithms among which it chooses when none is named."""
        return _considered(self.name, collective)

    def algorithm(self, collective: str, name: str) -> Algorithm:
        """Return an algorithm as this library runs it: the latency of its hops times the factor.

        Raises
        ------
        RequestError
            If there is no such collective or algorithm, or this library does not have it.
        """
        algorithm = find_algorithm(collective, name)
        if algorithm.name not in self.names(collective):
            error = unknown("algorithm", name, (*self.names(collective), AUTO))
            raise RequestError(
                "algorithm",
                f"{collective} of {self.name} has {error.why}",
                value=name,
                nearest=error.nearest,
            )
        factor = self.hop_factor(collective, algorithm.name)
        return algorithm if factor == 1.0 else _slowed(algorithm, factor)


def _slowed(algorithm: Algorithm, factor: float) -> Algorithm:
    """Return the algorithm with ``factor`` latencies a step, which waits for the slowest hop.

    Receivers that post one step at a time hold up every step of every link, so that a chunk cannot
    run ahead over the faster ones.
    """

    def formula(size_bytes: float, hops: Hops, /) -> Parts:
        inside_s = hops.alpha_intra_s if hops.gpus_per_node > 1 else 0.0
        step_s = factor * maximum(hops.longest_s(), inside_s)
        return algorithm.formula(
            size_bytes, hops._replace(alpha_intra_s=step_s, alpha_inter_s=step_s)
        )

    return algorithm._replace(formula=formula, line=None)  # the line counts a latency a hop


@cache
def _considered(library_name: str, collective: str) -> tuple[str, ...]:
    chosen = library(library_name)
    names = chosen.names(collective)
    if chosen.has is not None:
        return names
    return tuple(name for name in names if find_algorithm(collective, name).automatic)


@cache
def libraries() -> tuple[str, ...]:
    """Return the names of the libraries, as the files of this folder give them.

    Examples
    --------
    >>> libraries()
    ('gloo', 'mpi', 'nccl', 'rccl')
    """
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if name not in NOT_LIBRARIES))


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
    found: Library = import_module(f"{__name__}.{name}").LIBRARY
    return found
