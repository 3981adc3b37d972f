"""Collectives: the algorithms of all-reduce, all-gather and the others, each a formula.

A formula is a function of a size and of `Hops` (ranks, nodes, latencies and bandwidths) that
returns `Parts` (latency and transfer time). The decorator `algorithm` enters it under its
collective and its name, with the facts that a formula does not tell. Every file of this folder is
imported once an algorithm is asked for, so that a new file with a decorated formula is a new
algorithm; nothing else lists it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import Literal, NamedTuple, Protocol, TypeVar

from perfsim.collectives.hops import Hops, Line, Parts
from perfsim.errors import RequestError, unknown

__all__ = [
    "COLLECTIVES",
    "HALVES",
    "Algorithm",
    "Hops",
    "Line",
    "Parts",
    "algorithm",
    "algorithms",
    "find_algorithm",
]

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
HALVES = ("all_gather", "reduce_scatter")
"""The two halves of a ring all-reduce."""


class Formula(Protocol):
    """The form of every algorithm's formula."""

    def __call__(self, size_bytes: float, hops: Hops, /) -> Parts:
        """Return the parts of the time for a size."""


class SentBytes(Protocol):
    """The form of every algorithm's ``sent_bytes``."""

    def __call__(self, size_bytes: float, hops: Hops, /) -> float:
        """Return the bytes that one GPU sends."""


class LineOver(Protocol):
    """The form of an algorithm's ``line``."""

    def __call__(self, hops: Hops, /) -> Line:
        """Return the time over the size; of the hops, latencies do not count."""


class RefusalRule(Protocol):
    """The form of an algorithm's ``refusal``."""

    def __call__(self, hops: Hops, /) -> str:
        """Return why ranks on such nodes cannot use it, or ""."""


def _never_refused(hops: Hops, /) -> str:
    return ""


class Algorithm(NamedTuple):
    """One algorithm of one collective.

    Parameters
    ----------
    collective : one of `COLLECTIVES`
    name : the algorithm, such as ring
    formula : size and hops to latency and transfer time; 0 among one rank
    sent_bytes : size and hops to the bytes that one GPU sends, as a mean where they differ
    latency : the latency curve of a link, ring or tree, that its hops follow
    automatic : whether it is considered when the user names no algorithm
    blocks : whether each step carries one rank's share of the message, n / P
    flows : which messages cross a fabric at once, one of `perfsim.network.routing.PATTERNS`
    one_rank : whether of a node's ranks one alone sends to another node, over its own NIC
    needs : what it needs of a cluster that a link does not tell
    refusal : why ranks on such nodes cannot use it, or ""
    line : hops to the straight line over the size that its time among several ranks is; None where
        it is none, or none is given
    """

    collective: str
    name: str
    formula: Formula
    sent_bytes: SentBytes
    latency: Literal["ring", "tree"] = "ring"
    automatic: bool = True
    blocks: bool = False
    flows: str = "ring"
    one_rank: bool = False
    needs: str = ""
    refusal: RefusalRule = _never_refused
    line: LineOver | None = None


_REGISTRY: dict[tuple[str, str], Algorithm] = {}

AnyFormula = TypeVar("AnyFormula", bound=Callable[..., Parts])


def algorithm(
    collective: str,
    name: str,
    *,
    sent_bytes: SentBytes,
    latency: Literal["ring", "tree"] = "ring",
    automatic: bool = True,
    blocks: bool = False,
    flows: str = "ring",
    one_rank: bool = False,
    needs: str = "",
    refusal: RefusalRule = _never_refused,
    line: LineOver | None = None,
) -> Callable[[AnyFormula], AnyFormula]:
    """Enter the decorated formula, in a file of this folder, as an algorithm of a collective.

    The parameters are those of `Algorithm`. The function itself stays as it is. One rank has
    nobody to send to: that case is answered here, and no formula needs to look for it.

    Raises
    ------
    ValueError
        If there is no such collective, or another file has an algorithm of that name.
    """
    if collective not in COLLECTIVES:
        raise ValueError(f"no collective {collective!r}; there are {', '.join(COLLECTIVES)}")

    def enter(formula: AnyFormula) -> AnyFormula:
        before = _REGISTRY.get((collective, name))
        if before and before.formula.__module__ != formula.__module__:
            files = f"{before.formula.__module__} and {formula.__module__}"
            raise ValueError(f"{collective} {name} is in two files: {files}")
        if formula.__module__.startswith(f"{__name__}."):
            _REGISTRY[collective, name] = Algorithm(
                collective,
                name,
                _time_unless_alone(formula),
                _bytes_unless_alone(sent_bytes),
                latency,
                automatic,
                blocks,
                flows,
                one_rank,
                needs,
                refusal,
                line,
            )
        return formula

    return enter


def _time_unless_alone(formula: Formula) -> Formula:
    @wraps(formula)
    def guarded(size_bytes: float, hops: Hops, /) -> Parts:
        return formula(size_bytes, hops) if hops.ranks > 1 else Parts(0.0, 0.0 * size_bytes)

    return guarded


def _bytes_unless_alone(sent_bytes: SentBytes) -> SentBytes:
    @wraps(sent_bytes)
    def guarded(size_bytes: float, hops: Hops, /) -> float:
        return sent_bytes(size_bytes, hops) if hops.ranks > 1 else 0.0 * size_bytes

    return guarded


@cache
def algorithms() -> dict[str, tuple[str, ...]]:
    """Return collective -> names of its algorithms, as the files of this folder give them.

    Examples
    --------
    >>> algorithms()["broadcast"]
    ('binomial', 'chain', 'split_binary')
    """
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    names: dict[str, list[str]] = {}
    for collective, name in sorted(_REGISTRY):
        names.setdefault(collective, []).append(name)
    return {one: tuple(names[one]) for one in COLLECTIVES if one in names}


@cache
def find_algorithm(collective: str, name: str, field: str = "algorithm") -> Algorithm:
    """Return one algorithm of one collective; dashes in its name count as underscores.

    Raises
    ------
    RequestError
        If there is no such collective or algorithm; lists those there are.

    Examples
    --------
    >>> find_algorithm("broadcast", "chain").latency
    'ring'
    """
    known = algorithms()
    if collective not in known:
        raise unknown("collective", collective, known, "collectives")
    plain = name.replace("-", "_")
    if plain not in known[collective]:
        error = unknown(field, name, (*known[collective], "auto"))
        raise RequestError(
            field, f"{collective} has {error.why}", value=name, nearest=error.nearest
        )
    return _REGISTRY[collective, plain]
