"""The part of a message that needs a link on which other jobs send too, and each job's fair part.

Every job gets an equal part of the link, less where it needs less, and what it leaves goes to the
others: max-min fairness, which flows of TCP with equal round-trip times come near.

References
----------
Bertsekas & Gallager, Data Networks, 2nd edition, 1992, section 6.5.2 (max-min fair flow control).
Velho, Schnorr, Casanova & Legrand 2013, On the validity of flow-level TCP network models for grid
and cloud simulations, ACM TOMACS 23(4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Crossing", "fair_parts"]


class Crossing(NamedTuple):
    """How a message uses the link that jobs share.

    Parameters
    ----------
    off_s : seconds of it, at its start, in which it does not need the link (latency, hops inside
        nodes that come before or after) [s]
    need : part of the link that it takes while it is on it and nobody else is, above 0 to 1; below
        1 where something else, such as the links inside the nodes, holds it up
    """

    off_s: float
    need: float = 1.0


def fair_parts(needs: Sequence[float]) -> list[float]:
    """Return each job's part of a link, of what each would take of it alone.

    Parameters
    ----------
    needs : parts of the link, 0 to 1 each

    Examples
    --------
    Two that need all of it, two of which one needs little, and two that fit:

    >>> fair_parts([1.0, 1.0]), fair_parts([1.0, 0.2]), fair_parts([0.5, 0.4])
    ([0.5, 0.5], [0.8, 0.2], [0.5, 0.4])
    """
    parts = list(needs)
    left, many = 1.0, len(needs)
    for place in sorted(range(many), key=lambda place: needs[place]):
        parts[place] = min(needs[place], left / many)
        left, many = left - parts[place], many - 1
    return parts
