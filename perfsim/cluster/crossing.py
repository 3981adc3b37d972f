"""How much of a message's time is spent on the link between nodes, and how much of it that takes.

With a part f of that link a message takes T(f). Where f is small the link is what holds it up, so
that T(f) = off + wire / f: two such f tell both. With all of the link it takes T(1), so that it is
there for T(1) - off, and needs wire / (T(1) - off) of it. T is what ``background`` makes of it.
"""

from __future__ import annotations

from collections.abc import Callable

from perfsim.simulate.crossing import Crossing

__all__ = ["SMALL", "crossing"]

SMALL = (2.0**-11, 2.0**-12)
"""Parts of the link so small that no link inside a node is as slow."""

NOTHING = 1e-9
"""Part of a message below which adding and taking away may leave a rest."""


def crossing(seconds: Callable[[float], float]) -> Crossing | None:
    """Return how a message uses the link between nodes, None where it does not.

    Parameters
    ----------
    seconds : what it takes with a part of that link [s]

    Examples
    --------
    1 s of latency, then 2 s on the wire; and 4 s where the links inside the nodes are as slow:

    >>> crossing(lambda part: 1.0 + 2.0 / part)
    Crossing(off_s=1.0, need=1.0)
    >>> crossing(lambda part: 1.0 + max(4.0, 2.0 / part))
    Crossing(off_s=1.0, need=0.5)
    """
    one, other = (seconds(part) for part in SMALL)
    wire_s = (other - one) / (1.0 / SMALL[1] - 1.0 / SMALL[0])
    whole_s = seconds(1.0)
    if wire_s <= NOTHING * whole_s:
        return None
    off_s = min(max(0.0, one - wire_s / SMALL[0]), whole_s - min(wire_s, whole_s))
    return Crossing(off_s, min(1.0, wire_s / (whole_s - off_s)))
