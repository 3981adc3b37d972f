"""Collectives: one algorithm a file, named ``<collective>_<algorithm>.py``, each a pure function.

A new file in this folder is a new algorithm; nothing else lists it. It holds a function of its
own name, ``sent_bytes`` with the same arguments, and ``LATENCY``, the curve of a link ("ring" or
"tree") that its hops follow. ``AUTOMATIC = False`` keeps it out of the automatic choice;
``FLOWS`` says which flows it sends between nodes at once ("ring" where it is not there; else
another of `perfsim.network.routing.PATTERNS`), for fabrics that they share;
``NEEDS`` says what a cluster must have for it that a link does not tell;
``BLOCKS = True`` says that each of its steps carries one rank's share of the message, n / P;
``refusal`` says why ranks placed in some way cannot use it.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Literal, NamedTuple, Protocol, cast

from perfsim.collectives.hops import Hops, Parts
from perfsim.errors import RequestError, unknown

__all__ = ["COLLECTIVES", "Algorithm", "Hops", "Parts", "algorithm", "algorithms"]

COLLECTIVES = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "all_to_all",
    "send_recv",
    "push",
    "pull",
)


class Formula(Protocol):
    """The form of every algorithm's function."""

    def __call__(self, size_bytes: float, hops: Hops, /) -> Parts:
        """Return the parts of the time for a size."""


class Sent(Protocol):
    """The form of every algorithm's ``sent_bytes``."""

    def __call__(self, size_bytes: float, hops: Hops, /) -> float:
        """Return the bytes that one GPU sends."""


class Refusal(Protocol):
    """The form of an algorithm's ``refusal``."""

    def __call__(self, hops: Hops, /) -> str:
        """Return why ranks placed so cannot use it, or ""."""


def never(hops: Hops, /) -> str:
    """Return "": any ranks can use it."""
    return ""


class Algorithm(NamedTuple):
    """One algorithm: its formula, what it sends, and the latency curve that its hops follow.

    ``automatic`` says whether it stands for choice when the user names no algorithm, ``blocks``
    whether a step carries n / P, ``flows`` what crosses a fabric at once, ``needs`` what it
    takes that no link tells, ``refusal`` why ranks placed in some way cannot use it.
    """

    collective: str
    name: str
    formula: Formula
    sent: Sent
    latency: Literal["ring", "tree"]
    automatic: bool = True
    blocks: bool = False
    flows: str = "ring"
    needs: str = ""
    refusal: Refusal = never


@cache
def algorithms() -> dict[str, tuple[str, ...]]:
    """Return collective -> names of its algorithms, as the files of this folder give them.

    Examples
    --------
    >>> algorithms()["broadcast"]
    ('binomial', 'chain', 'split_binary')
    """
    found: dict[str, list[str]] = {}
    # reduce_scatter_ring must not be taken for an algorithm "scatter_ring" of reduce.
    by_length = sorted(COLLECTIVES, key=len, reverse=True)
    for module in pkgutil.iter_modules(__path__):
        for collective in by_length:
            if module.name.startswith(collective + "_"):
                found.setdefault(collective, []).append(module.name[len(collective) + 1 :])
                break
    return {name: tuple(sorted(found[name])) for name in COLLECTIVES if name in found}


@cache
def algorithm(collective: str, name: str, field: str = "algorithm") -> Algorithm:
    """Return one algorithm of one collective.

    Raises
    ------
    RequestError
        If there is no such collective or algorithm; lists those there are.

    Examples
    --------
    >>> algorithm("broadcast", "chain").latency
    'ring'
    """
    known = algorithms()
    if collective not in known:
        raise unknown("collective", collective, known, "collectives")
    plain = name.replace("-", "_")
    if plain not in known[collective]:
        error = unknown(field, name, (*known[collective], "auto"))
        raise RequestError(f"{collective}, {error}")
    module = import_module(f"{__name__}.{collective}_{plain}")
    formula = cast(Formula, getattr(module, f"{collective}_{plain}"))
    return Algorithm(
        collective,
        plain,
        formula,
        module.sent_bytes,
        module.LATENCY,
        getattr(module, "AUTOMATIC", True),
        getattr(module, "BLOCKS", False),
        getattr(module, "FLOWS", "ring"),
        getattr(module, "NEEDS", ""),
        getattr(module, "refusal", never),
    )
