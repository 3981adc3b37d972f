"""The link between two stages: what crosses it, dense or Top-k, and how far each is compressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

__all__ = [
    "INDEX_BYTES",
    "VALUE_BYTES",
    "Link",
    "adaptive_ratios",
    "masked_bytes",
    "top_k_bytes",
]

VALUE_BYTES = 4
"""A value in fp32."""

INDEX_BYTES = 8
"""An index as torch.topk returns it (int64)."""


def top_k_bytes(elements: int, ratio: float) -> float:
    """Return the bytes of the largest 1 / ratio of the values with their places [B].

    (value + index) ceil(n / ratio); the dense n x value where that is no more.

    Parameters
    ----------
    elements : n
    ratio : values over values kept, at least 1; 1 is dense

    Examples
    --------
    >>> [top_k_bytes(1000, ratio) for ratio in (1, 2, 3, 10)]
    [4000.0, 4000.0, 4000.0, 1200.0]
    """
    if ratio < 1:
        raise ValueError(f"ratio is {ratio}, must be at least 1")
    pairs = (VALUE_BYTES + INDEX_BYTES) * ceil(elements / ratio)
    return float(min(VALUE_BYTES * elements, pairs))


def masked_bytes(elements: int, share: float) -> tuple[float, float]:
    """Return the bytes of thresholded activations forward, and of their gradients backward [B].

    Forward ceil(share n) values and the mask, a bit an activation; backward the values in the
    same places, whose mask both sides have. Dense n x value both ways where values and mask are
    no less than that.

    Parameters
    ----------
    elements : n
    share : of the activations that is kept, over 0 and at most 1

    Notes
    -----
    Sending values and mask forward, values alone backward is the paper's; it gives no format, and
    counts 1 / share as the compression. A bit an activation is the mask as it stands. Its
    thresholds are of each sample's row, so that each row's count is rounded up; here the sum is.

    Examples
    --------
    >>> masked_bytes(1000, 0.05), masked_bytes(1000, 1.0)
    ((325.0, 200.0), (4000.0, 4000.0))

    References
    ----------
    Gupta et al. 2021, KDD; arXiv 2010.08899, Algorithm 2 (DCT-MP), section 2.2.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, must be over 0 and at most 1")
    values, mask = VALUE_BYTES * ceil(elements * share), ceil(elements / 8)
    dense = float(VALUE_BYTES * elements)
    return (float(values + mask), float(values)) if values + mask < dense else (dense, dense)


def adaptive_ratios(dense_s: Sequence[float], reduction: float) -> list[float]:
    """Return the Top-k ratio of each link, in proportion to its time.

    max(1, (value + index) / value x reduction x t / max t): the slowest link sends ``reduction``
    times fewer bytes, indices counted (3 times as many values are dropped as bytes are saved with
    fp32 values and int64 indices); a link far from the slowest sends dense messages.

    Parameters
    ----------
    dense_s : t, what each link takes for a message that is not compressed [s]
    reduction : bytes before over after on the slowest link, at least 1

    Notes
    -----
    That the slowest links are compressed most is from the paper's abstract. The proportion and
    the factor for indices are our reading of it: its equation could not be checked.

    Examples
    --------
    >>> adaptive_ratios([0.001, 0.1, 1.0], reduction=100)
    [1.0, 30.0, 300.0]

    References
    ----------
    Tang et al. 2024, FusionLLM, arXiv 2410.12707, AdaTopK.
    """
    if reduction < 1:
        raise ValueError(f"reduction is {reduction}, must be at least 1")
    slowest_s = max(dense_s, default=0.0)
    if slowest_s <= 0 or reduction == 1:
        return [1.0] * len(dense_s)
    most = (VALUE_BYTES + INDEX_BYTES) / VALUE_BYTES * reduction
    return [max(1.0, most * link_s / slowest_s) for link_s in dense_s]


@dataclass(frozen=True, slots=True)
class Link:
    """A link from one stage to the next, and what one micro-batch sends over it.

    Parameters
    ----------
    latency_s : alpha [s]
    s_per_byte : beta [s/B]
    elements : fp32 values of the activations forward, and of their gradients backward
    """

    latency_s: float
    s_per_byte: float
    elements: int

    @property
    def dense_s(self) -> float:
        """Time of a message that is not compressed [s]."""
        return self.message_s(1.0)

    def message_s(self, ratio: float) -> float:
        """Return alpha + bytes x beta of one micro-batch in one direction [s].

        Examples
        --------
        >>> link = Link(latency_s=0.01, s_per_byte=1e-6, elements=1000)
        >>> round(link.message_s(1) * 1e3, 3), round(link.message_s(10) * 1e3, 3)
        (14.0, 11.2)
        """
        return self.latency_s + self.s_per_byte * top_k_bytes(self.elements, ratio)

    def masked_s(self, share: float) -> tuple[float, float]:
        """Return alpha + bytes x beta of one thresholded micro-batch, forward and backward [s].

        Examples
        --------
        >>> there_s, back_s = Link(0.01, 1e-6, 1000).masked_s(0.05)
        >>> round(there_s * 1e3, 3), round(back_s * 1e3, 3)
        (10.325, 10.2)
        """
        there, back = masked_bytes(self.elements, share)
        return self.latency_s + self.s_per_byte * there, self.latency_s + self.s_per_byte * back
