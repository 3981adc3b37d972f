"""DOC"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perfsim.network.measured import CollectiveCurve

__all__ = [
    "BANDS",
    "NcclRow",
    "PlainRing",
]

BANDS = (("up to 64 KiB", 65536.0), ("to 4 MiB", 4194304.0), ("above", float("inf")))
"""Message sizes by their upper end [B]."""


@dataclass(frozen=True, slots=True)
class NcclRow:
    """One time predicted and measured [s].

    Parameters
    ----------
    question : scale_2x, in_range, ...
    cluster : series or file of the measurement
    what : the curve, in a few words
    size_bytes : message
    measured_s, predicted_s : times
    plain_s : what a two-parameter alpha-beta ring fit gives from the same data
    others : further predictions by name, for comparison
    collective : of the message, where the question tells several apart
    """

    question: str
    cluster: str
    what: str
    size_bytes: float
    measured_s: float
    predicted_s: float
    plain_s: float | None = None
    others: dict[str, float] = field(default_factory=dict)
    collective: str = ""

    @property
    def error(self) -> float:
        """Absolute relative error of the prediction."""
        return abs(self.predicted_s / self.measured_s - 1.0)

    @property
    def band(self) -> str:
        """The size band that the message falls in."""
        return next(name for name, most in BANDS if self.size_bytes <= most)


class PlainRing:
    """alpha steps + beta bytes of a ring, fitted to curves with relative least squares.

    Steps are 2 (P-1) for all_reduce, P-1 for the gathering collectives and the rooted ones, 1 for
    send_recv; bytes 2 (P-1)/P n, (P-1)/P n, n and n. Neither may be negative.

    Examples
    --------
    >>> fit = PlainRing([CollectiveCurve("send_recv", 2, 2, 1, (8.0, 1e6), (1e-5, 1e-3), "measured", "x")])
    >>> f"{fit.alpha_s * 1e6:.1f} us", f"{1e-9 / fit.beta_s_per_byte:.2f} GB/s"
    ('10.0 us', '1.01 GB/s')
    """

    def __init__(self, curves: Sequence[CollectiveCurve]) -> None:
        import numpy as np

        rows = []
        for curve in curves:
            for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
                steps, wire = _counts(curve.collective, curve.ranks)
                rows.append((steps / seconds, wire * size / seconds))
        table = np.asarray(rows)
        ones = np.ones(len(rows))
        (alpha, beta), *_ = np.linalg.lstsq(table, ones, rcond=None)
        if alpha < 0 or beta < 0:
            # One of the two alone, whichever leaves less over.
            alone = [float(column @ ones / (column @ column)) for column in table.T]
            left = [float(np.sum((table[:, i] * alone[i] - 1.0) ** 2)) for i in (0, 1)]
            alpha, beta = (alone[0], 0.0) if left[0] < left[1] else (0.0, alone[1])
        self.alpha_s, self.beta_s_per_byte = float(alpha), float(beta)

    def seconds(self, collective: str, ranks: int, size_bytes: float) -> float:
        """Return the time of a collective over ``ranks`` [s]."""
        steps, wire = _counts(collective, ranks)
        return steps * self.alpha_s + wire * size_bytes * self.beta_s_per_byte


def _counts(collective: str, ranks: int) -> tuple[float, float]:
    if collective == "all_reduce":
        return 2.0 * (ranks - 1), 2.0 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "all_to_all"):
        return ranks - 1.0, (ranks - 1.0) / ranks
    return (1.0, 1.0) if collective == "send_recv" else (ranks - 1.0, 1.0)
