"""A ring that grows: its steps cost what messages of n / P cost, however many there are."""

from __future__ import annotations

from perfsim.cluster.growth.reach import reach
from perfsim.cluster.measured import Curve

__all__ = ["ring", "step"]

LEAST_S = 1e-7
"""No step of a ring was ever measured faster; it keeps logarithms finite."""

ROUNDS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
"""How often each of these goes round the ring."""


def step(curve: Curve, size_bytes: float, call_s: float) -> float:
    """Return what one step of a measured ring took [s]: (T(n) - call) / rounds (P-1).

    Parameters
    ----------
    curve : of an all_reduce, reduce_scatter or all_gather that went round a ring
    size_bytes : n, the whole message
    call_s : what the call costs without any step [s]

    References
    ----------
    Thakur, Rabenseifner & Gropp, IJHPCA 2005, section 4: P-1 steps of n / P a round.

    Examples
    --------
    >>> curve = Curve("all_reduce", 4, 4, 1, (8.0, 1e6), (2e-5, 6e-4), "measured", "x")
    >>> round(step(curve, 1e6, 0.0) * 1e6)
    100
    """
    steps = ROUNDS[curve.collective] * (curve.ranks - 1)
    return max((reach(curve, size_bytes) - call_s) / steps, LEAST_S)


def ring(curve: Curve, size_bytes: float, ranks: int, call_s: float) -> float:
    """Return the time of the same ring over more ranks [s].

    call + rounds (P'-1) s(n / P'), where s(m) is the step of the measured ring of P at n = m P.

    Parameters
    ----------
    curve : measured over P ranks
    size_bytes : n, the whole message over P' ranks
    ranks : P'
    call_s : as for `step`

    Notes
    -----
    On Alps (GH200) a step of 1 MiB takes 69 to 74 us on 4, 8 and 16 nodes and one of 2 MiB 43 to
    46 us on 4 to 64; on Polaris (A100) all_gather steps agree within 20 % between 2, 8 and 128
    nodes. Two nodes of Alps are quicker (22 and 31 us).

    Examples
    --------
    >>> curve = Curve("all_gather", 2, 2, 1, (1e3, 1e6), (1e-5, 1e-3), "measured", "x")
    >>> round(ring(curve, 2e6, 4, 0.0) * 1e6)  # three steps of half a megabyte
    3000
    """
    whole = size_bytes * curve.ranks / ranks
    return call_s + ROUNDS[curve.collective] * (ranks - 1) * step(curve, whole, call_s)
