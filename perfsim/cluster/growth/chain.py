"""Broadcast and reduce that grow: a pipeline gets longer, its bytes do not."""

from __future__ import annotations

from perfsim.cluster.growth.reach import reach
from perfsim.cluster.measured import Curve

__all__ = ["binomial", "chain"]


def chain(curve: Curve, size_bytes: float, ranks: int, call_s: float) -> float:
    """Return the time of a pipelined broadcast or reduce over a longer chain [s].

    T(n) + (P'-P) hop, a hop being (T(0) - call) / (P-1): each rank more lets every chunk cross
    one hop more, while the rate stays that of the slowest hop.

    References
    ----------
    Chan, Heimlich, Purkayastha & van de Geijn, Concurrency and Computation 2007, pipelined
    broadcast: (P-2+c) (alpha + n beta / c) for c chunks.

    Examples
    --------
    >>> curve = Curve("broadcast", 3, 3, 1, (8.0, 1e6), (2e-5, 1e-3), "measured", "x")
    >>> round(chain(curve, 1e6, 5, 0.0) * 1e6)
    1020
    """
    hop_s = max(curve.seconds[0] - call_s, 0.0) / (curve.ranks - 1)
    return reach(curve, size_bytes) + (ranks - curve.ranks) * hop_s


def binomial(curve: Curve, size_bytes: float, rounds: float, more: float) -> float:
    """Return the time of a binomial tree of ``more`` rounds, ``rounds`` of them measured [s].

    Each round sends the whole message: T(n) more / rounds.

    Examples
    --------
    >>> curve = Curve("broadcast", 4, 4, 1, (8.0, 1e6), (2e-5, 1e-3), "measured", "x")
    >>> round(binomial(curve, 1e6, 2, 3) * 1e6)
    1500
    """
    return reach(curve, size_bytes) * more / rounds
