"""One iteration of a pipeline: fill, steady state and drain, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfsim.pipeline.link import Link

__all__ = ["Stage", "iteration_s", "masked_iteration_s", "pass_s"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One GPU's part of the model.

    Parameters
    ----------
    forward_s, backward_s : computation of one micro-batch [s], with selecting and restoring Top-k
        messages on this GPU if that is to count
    """

    forward_s: float
    backward_s: float


def pass_s(times_s: Sequence[float], micro_batches: int) -> float:
    """Return the time of M equal micro-batches through stages and links in line [s].

    sum p + (M-1) max p: the first micro-batch passes all of them, the others follow it out at the
    pace of the slowest. Exact where each stage or link takes one micro-batch at a time, in order,
    and may leave results waiting before the next.

    Parameters
    ----------
    times_s : p, of each stage and link, for one micro-batch [s]
    micro_batches : M

    Examples
    --------
    >>> pass_s([1.0, 3.0, 2.0], micro_batches=4)
    15.0

    References
    ----------
    Huang et al. 2019, GPipe, section 2.3: with S equal stages and free links M + S - 1 steps, a
    bubble of (S-1) / (M + S - 1).
    """
    return sum(times_s) + (micro_batches - 1) * max(times_s)


def iteration_s(
    stages: Sequence[Stage],
    links: Sequence[Link],
    micro_batches: int,
    ratios: Sequence[float] | None = None,
) -> float:
    """Return the time of one iteration, without the update [s].

    A forward pass of all micro-batches, then a backward pass of all (GPipe): the last stage starts
    backward after its last forward, and every other stage is through with its own by then.

    Parameters
    ----------
    stages : S, in the model's order
    links : S - 1, from each stage to the next
    micro_batches : M
    ratios : Top-k ratio of each link in both directions; None sends dense messages

    Examples
    --------
    >>> equal = [Stage(1.0, 2.0)] * 4
    >>> iteration_s(equal, [Link(0.0, 0.0, 1000)] * 3, micro_batches=8)  # (8 + 3) x 3
    33.0
    """
    ratios = [1.0] * len(links) if ratios is None else ratios
    if len(ratios) != len(links):
        raise ValueError(f"{len(links)} links need as many ratios, got {len(ratios)}")
    sent_s = [link.message_s(ratio) for link, ratio in zip(links, ratios, strict=True)]
    return _both_passes_s(stages, sent_s, sent_s, micro_batches)


def masked_iteration_s(
    stages: Sequence[Stage], links: Sequence[Link], micro_batches: int, share: float
) -> float:
    """Return the time of one iteration whose links carry thresholded activations [s].

    As ``iteration_s``, with ``Link.masked_s``: values and mask forward, values alone backward.

    Parameters
    ----------
    stages : S, in the model's order
    links : S - 1, from each stage to the next
    micro_batches : M
    share : of each micro-batch's activations, and of their gradients, that crosses every link

    Examples
    --------
    Forward 1 + 0.325 + 1, backward 2 + 0.2 + 2:

    >>> round(masked_iteration_s([Stage(1.0, 2.0)] * 2, [Link(0.0, 1e-3, 1000)], 1, 0.05), 3)
    6.525

    References
    ----------
    Gupta et al. 2021, KDD; arXiv 2010.08899, Algorithm 2 (DCT-MP), which it says applies to
    pipelines such as GPipe.
    """
    sent_s = [link.masked_s(share) for link in links]
    there_s, back_s = [there for there, _ in sent_s], [back for _, back in sent_s]
    return _both_passes_s(stages, there_s, back_s, micro_batches)


def _both_passes_s(
    stages: Sequence[Stage], there_s: Sequence[float], back_s: Sequence[float], micro_batches: int
) -> float:
    """Return a forward pass and the backward pass after it, each message's time given [s]."""
    if len(there_s) != len(stages) - 1:
        raise ValueError(f"{len(stages)} stages need {len(stages) - 1} links, got {len(there_s)}")
    if micro_batches < 1:
        raise ValueError(f"micro_batches is {micro_batches}, must be at least 1")
    forward_s = pass_s([*(stage.forward_s for stage in stages), *there_s], micro_batches)
    return forward_s + pass_s([*(stage.backward_s for stage in stages), *back_s], micro_batches)
