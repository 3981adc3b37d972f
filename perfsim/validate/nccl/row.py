"""One collective predicted beside its measurement, and the baseline: a plain alpha-beta ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perfsim.network.measured import CollectiveCurve

__all__ = [
    "SHOWN_BANDS",
    "NcclRow",
    "PlainRing",
]

SHOWN_BANDS = (("up to 64 KiB", 65536.0), ("to 4 MiB", 4194304.0), ("above", float("inf")))
"""Message sizes by their upper end [B]."""


@dataclass(frozen=True, slots=True)
class NcclRow:
    """One time predicted and measured [s].

    Parameters
    ----------
    question : scale_2x, in_range, ...
    cluster : series or file of the measurement
    what : name of the curve
    size_bytes : message
    measured_s, predicted_s : times
    plain_s : what a two-parameter alpha-beta ring fit gives from the same data
    others : further predictions by name, for comparison
    collective : which one was measured, where the question has several
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
        return next(name for name, end in SHOWN_BANDS if self.size_bytes <= end)


class PlainRing:
    """One alpha and one beta for a whole ring, as most simulators have it, fitted to curves.

    Fitted by relative least squares: alpha x steps + beta x bytes, neither negative. Steps are
    2 (P-1) for all_reduce, P-1 for the gathering collectives and the rooted ones, 1 for send_recv;
    bytes are 2 (P-1)/P n, (P-1)/P n, n and n.

    Examples
    --------
    >>> times = (8.0, 1e6), (1e-5, 1e-3)
    >>> fit = PlainRing([CollectiveCurve("send_recv", 2, 2, 1, *times, "measured", "x")])
    >>> f"{fit.alpha_s * 1e6:.1f} us", f"{1e-9 / fit.beta_s_per_byte:.2f} GB/s"
    ('10.0 us', '1.01 GB/s')
    """

    def __init__(self, curves: Sequence[CollectiveCurve]) -> None:
        import numpy as np
        from scipy.optimize import nnls

        rows = []
        for curve in curves:
            for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
                steps, share = _steps_and_share(curve.collective, curve.ranks)
                rows.append((steps / seconds, share * size / seconds))
        table = np.asarray(rows)
        scale = np.linalg.norm(table, axis=0)
        (alpha, beta), _ = nnls(table / scale, np.ones(len(rows)))
        self.alpha_s, self.beta_s_per_byte = float(alpha / scale[0]), float(beta / scale[1])

    def seconds(self, collective: str, ranks: int, size_bytes: float) -> float:
        """Return the time of a collective over ``ranks`` [s]."""
        steps, share = _steps_and_share(collective, ranks)
        return steps * self.alpha_s + share * size_bytes * self.beta_s_per_byte


def _steps_and_share(collective: str, ranks: int) -> tuple[float, float]:
    """Return the steps of a collective on a ring, and the share of its bytes that a rank sends."""
    if collective == "all_reduce":
        return 2.0 * (ranks - 1), 2.0 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "all_to_all"):
        return ranks - 1.0, (ranks - 1.0) / ranks
    return (1.0, 1.0) if collective == "send_recv" else (ranks - 1.0, 1.0)
