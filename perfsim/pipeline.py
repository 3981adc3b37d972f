"""Pipelines of stages over links of very different speed, with compression on each link.

This model stands beside the data-parallel scenarios: ``perfsim pipeline FILE`` asks it, or Python.
A pipeline is no method, so ``perfsim list methods`` does not show it.

It covers the GPipe schedule (all micro-batches forward, then all backward), one GPU a stage. Links
carry one message at a time, beside the computation; the next follows while the latency of the one
before passes. Messages are dense; or Top-k, with a ratio
of each link in proportion to its time (AdaTopK); or activations thresholded sample by sample, whose
gradients cross at the same positions (DCT-MP).

It leaves out the choice of stages (FusionLLM's OP-Fence) and of GPUs; stages of several GPUs and
their all-reduce (DCT's data-parallel part is the method `dct`); models that are no chain of stages,
such as embedding tables apart from the layers; selection and restoring on the GPU where the caller
gives no times for them; stragglers, lost connections, and links that share a wire; the effect of
compression on training.

References
----------
Tang et al. 2024, FusionLLM: A Decentralized LLM Training System on Geo-distributed GPUs with
Adaptive Compression, arXiv 2410.12707 (abstract); Gupta et al. 2021, KDD, arXiv 2010.08899,
section 2.2; Huang et al. 2019, GPipe, NeurIPS, section 2.

Examples
--------
Two sites, two GPUs each; between the sites 100 Mbit/s and 20 ms, inside them 10 Gbit/s:

>>> from perfsim.pipeline import PipelineLink, PipelineStage, adaptive_ratios, iteration_s
>>> stages = [PipelineStage(0.02, 0.04)] * 4
>>> lan, wan = PipelineLink(1e-4, 8e-10, 2**20), PipelineLink(0.02, 8e-8, 2**20)
>>> links = [lan, wan, lan]
>>> round(iteration_s(stages, links, micro_batches=8), 2)
5.66
>>> ratios = adaptive_ratios([link.dense_s for link in links], reduction=100)
>>> [round(ratio, 1) for ratio in ratios]
[2.9, 300.0, 2.9]
>>> round(iteration_s(stages, links, 8, ratios), 2)
0.72
>>> round(masked_iteration_s(stages, links, 8, share=0.05), 2)
0.8
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from perfsim.data.toml import (
    BytesPerSecond,
    HopSeconds,
    MessageBytes,
    Seconds,
    Tables,
    TomlModel,
    WholeNumber,
    WrongValue,
    plain_number,
    read_toml,
)
from perfsim.quantity import NumberLimit
from perfsim.sums import sum_in_order
from perfsim.units import format_seconds

__all__ = [
    "INDEX_BYTES",
    "PIPELINE_ANSWER_SCHEMA",
    "PIPELINE_SCHEMA",
    "VALUE_BYTES",
    "LinkFigures",
    "Pipeline",
    "PipelineAnswer",
    "PipelineLink",
    "PipelineStage",
    "adaptive_ratios",
    "iteration_s",
    "masked_bytes",
    "masked_iteration_s",
    "pass_s",
    "predict_pipeline",
    "read_pipeline",
    "top_k_bytes",
]

VALUE_BYTES = 4
"""A value in fp32."""

INDEX_BYTES = 8
"""An index as torch.topk returns it (int64)."""


def top_k_bytes(elements: int, ratio: float) -> float:
    """Count the bytes of the largest 1 / ratio of the values, with their indices [B].

    (value + index) ceil(n / ratio), or n x value (dense) where that is less.

    Parameters
    ----------
    elements : n
    ratio : all values over those kept, at least 1; 1 is dense

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
    """Count the bytes of thresholded activations forward and of their gradients backward [B].

    Forward: ceil(share n) values and a mask of one bit for each activation. Backward: the values of
    the same positions; both sides have the mask already. Both are dense, n x value, where values
    and mask are no smaller.

    Parameters
    ----------
    elements : n
    share : share of the activations that is kept, above 0 and at most 1

    Notes
    -----
    The paper sends values and mask forward and values alone backward. It gives no format and counts
    1 / share as the compression; here the mask is not compressed. The paper's threshold is one of
    each sample's row, so that each row's count is rounded up; here the sum is.

    Examples
    --------
    >>> masked_bytes(1000, 0.05), masked_bytes(1000, 1.0)
    ((325.0, 200.0), (4000.0, 4000.0))

    References
    ----------
    Gupta et al. 2021, KDD; arXiv 2010.08899, Algorithm 2 (DCT-MP), section 2.2.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, must be above 0 and at most 1")
    values, mask = VALUE_BYTES * ceil(elements * share), ceil(elements / 8)
    dense = float(VALUE_BYTES * elements)
    return (float(values + mask), float(values)) if values + mask < dense else (dense, dense)


def adaptive_ratios(dense_s: Sequence[float], reduction: float) -> list[float]:
    """Choose the Top-k ratio of each link in proportion to its time.

    max(1, (value + index) / value x reduction x t / max t). The slowest link sends ``reduction``
    times fewer bytes, indices included: with fp32 values and int64 indices its ratio is 3 times
    that. A link much faster than the slowest sends dense messages.

    Parameters
    ----------
    dense_s : t, the time of a dense message on each link [s]
    reduction : bytes before over bytes after on the slowest link, at least 1

    Notes
    -----
    The paper's abstract says that the slowest links are compressed most. The proportion and the
    factor for indices are our reading of it: its equation could not be checked.

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
    largest = (VALUE_BYTES + INDEX_BYTES) / VALUE_BYTES * reduction
    return [max(1.0, largest * link_s / slowest_s) for link_s in dense_s]


@dataclass(frozen=True, slots=True)
class PipelineLink:
    """A link from one stage to the next, and the size of what one micro-batch sends over it.

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
        """Time of a dense message [s]."""
        return self.message_s(1.0)

    def message_s(self, ratio: float) -> float:
        """Price one micro-batch in one direction: alpha + bytes x beta [s].

        Examples
        --------
        >>> link = PipelineLink(latency_s=0.01, s_per_byte=1e-6, elements=1000)
        >>> round(link.message_s(1) * 1e3, 3), round(link.message_s(10) * 1e3, 3)
        (14.0, 11.2)
        """
        return self.latency_s + self.s_per_byte * top_k_bytes(self.elements, ratio)

    def masked_s(self, share: float) -> tuple[float, float]:
        """Price one thresholded micro-batch, forward and backward: alpha + bytes x beta [s].

        Examples
        --------
        >>> forward_s, backward_s = PipelineLink(0.01, 1e-6, 1000).masked_s(0.05)
        >>> round(forward_s * 1e3, 3), round(backward_s * 1e3, 3)
        (10.325, 10.2)
        """
        forward, backward = masked_bytes(self.elements, share)
        return (
            self.latency_s + self.s_per_byte * forward,
            self.latency_s + self.s_per_byte * backward,
        )


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One GPU's part of the model.

    Parameters
    ----------
    forward_s, backward_s : computation of one micro-batch [s], including the selection and
        restoring of Top-k messages on this GPU where these are to count
    """

    forward_s: float
    backward_s: float


def pass_s(
    times_s: Sequence[float], micro_batches: int, latencies_s: Sequence[float] = ()
) -> float:
    """Return the time of M equal micro-batches through a chain of stages and links [s].

    sum p + sum alpha + (M-1) max p: the first micro-batch passes all of them, the others follow at
    the pace of the slowest. This is exact where each stage or link takes one micro-batch at a time,
    in order, and results may wait before the next.

    Parameters
    ----------
    times_s : p, the time for which each stage and link has one micro-batch [s]
    micro_batches : M
    latencies_s : alpha, by which each link's messages arrive later [s]

    Examples
    --------
    >>> pass_s([1.0, 3.0, 2.0], micro_batches=4), pass_s([1.0, 3.0, 2.0], 4, latencies_s=[5.0])
    (15.0, 20.0)

    References
    ----------
    Huang et al. 2019, GPipe, section 2.3: S equal stages and free links take M + S - 1 steps, of
    which (S-1) / (M + S - 1) are idle.
    """
    first_s = sum_in_order(times_s) + sum_in_order(latencies_s)
    return first_s + (micro_batches - 1) * max(times_s)


def iteration_s(
    stages: Sequence[PipelineStage],
    links: Sequence[PipelineLink],
    micro_batches: int,
    ratios: Sequence[float] | None = None,
) -> float:
    """Return the time of one iteration, without the update [s].

    All micro-batches go forward, then all backward (GPipe). The last stage starts backward after
    its last forward; every other stage has finished its own forward by then.

    Parameters
    ----------
    stages : S, in the model's order
    links : S - 1, from each stage to the next
    micro_batches : M
    ratios : Top-k ratio of each link in both directions; None sends dense messages

    Examples
    --------
    >>> equal = [PipelineStage(1.0, 2.0)] * 4
    >>> iteration_s(equal, [PipelineLink(0.0, 0.0, 1000)] * 3, micro_batches=8)  # (8 + 3) x 3
    33.0
    """
    ratios = [1.0] * len(links) if ratios is None else ratios
    if len(ratios) != len(links):
        raise ValueError(f"{len(links)} links need as many ratios, got {len(ratios)}")
    sent_s = [link.message_s(ratio) for link, ratio in zip(links, ratios, strict=True)]
    return _both_passes_s(stages, links, (sent_s, sent_s), micro_batches)


def masked_iteration_s(
    stages: Sequence[PipelineStage], links: Sequence[PipelineLink], micro_batches: int, share: float
) -> float:
    """Return the time of one iteration whose links carry thresholded activations [s].

    As ``iteration_s``, with values and mask forward and values alone backward
    (``PipelineLink.masked_s``).

    Parameters
    ----------
    stages : S, in the model's order
    links : S - 1, from each stage to the next
    micro_batches : M
    share : share of each micro-batch's activations, and of their gradients, that crosses a link

    Examples
    --------
    Forward 1 + 0.325 + 1, backward 2 + 0.2 + 2:

    >>> stages, links = [PipelineStage(1.0, 2.0)] * 2, [PipelineLink(0.0, 1e-3, 1000)]
    >>> round(masked_iteration_s(stages, links, 1, 0.05), 3)
    6.525

    References
    ----------
    Gupta et al. 2021, KDD; arXiv 2010.08899, Algorithm 2 (DCT-MP), which it says applies to
    pipelines such as GPipe.
    """
    sent_s = [link.masked_s(share) for link in links]
    forward_s, backward_s = zip(*sent_s, strict=True) if sent_s else ((), ())
    return _both_passes_s(stages, links, (forward_s, backward_s), micro_batches)


def _both_passes_s(
    stages: Sequence[PipelineStage],
    links: Sequence[PipelineLink],
    sent_s: tuple[Sequence[float], Sequence[float]],
    micro_batches: int,
) -> float:
    """Return the time of a forward pass and of the backward pass after it [s].

    ``sent_s`` are the times of messages by link, forward and backward [s].
    """
    if len(links) != len(stages) - 1:
        needed = len(stages) - 1
        raise ValueError(f"{len(stages)} stages need {needed} links, got {len(links)}")
    if micro_batches < 1:
        raise ValueError(f"micro_batches is {micro_batches}, must be at least 1")
    latencies_s = [link.latency_s for link in links]

    def through_s(computed_s: Sequence[float], messages_s: Sequence[float]) -> float:
        pairs = zip(messages_s, latencies_s, strict=True)
        carried_s = [message_s - latency_s for message_s, latency_s in pairs]
        return pass_s([*computed_s, *carried_s], micro_batches, latencies_s)

    forward_s = through_s([stage.forward_s for stage in stages], sent_s[0])
    return forward_s + through_s([stage.backward_s for stage in stages], sent_s[1])


PIPELINE_SCHEMA = "perfsim/pipeline/1"
"""The version of pipeline files that is read."""

_REDUCTION_LIMIT = NumberLimit(1.0, 1e6, "1 to 1e6")

_KEPT_LIMIT = NumberLimit(1e-6, 1.0, "1e-6 to 1")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as its file describes it.

    Parameters
    ----------
    reduction : bytes before over bytes after on the slowest link (Top-k)
    kept : share of the activations that thresholding keeps; None where it is not asked for
    """

    stages: tuple[PipelineStage, ...]
    links: tuple[PipelineLink, ...]
    micro_batches: int
    reduction: float
    kept: float | None = None


class PipelineStageTable(TomlModel):
    """A ``[[stage]]``: the passes of one micro-batch."""

    forward: Seconds
    backward: Seconds


class PipelineLinkTable(TomlModel):
    """A ``[[link]]`` between two stages, and what a micro-batch sends over it."""

    rate: BytesPerSecond
    latency: HopSeconds
    activation: MessageBytes


class PipelineFile(TomlModel):
    """The keys of a pipeline file; one stage has no link."""

    SCHEMA = PIPELINE_SCHEMA
    micro_batches: WholeNumber
    reduction: Annotated[float, plain_number(_REDUCTION_LIMIT)]
    kept: Annotated[float, plain_number(_KEPT_LIMIT)] | None = None
    stage: Tables[PipelineStageTable]
    link: list[PipelineLinkTable] = Field(default_factory=list)

    @model_validator(mode="after")
    def _a_link_between_any_two_stages(self) -> Self:
        links, stages = len(self.link), len(self.stage)
        if links != stages - 1:
            raise WrongValue(f"found {links}, {stages} stages need {stages - 1}", "link")
        return self


def read_pipeline(path: Path) -> Pipeline:
    """Read and check one pipeline file.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format; names file and key.
    """
    file = read_toml(path, PipelineFile)
    return Pipeline(
        tuple(PipelineStage(stage.forward, stage.backward) for stage in file.stage),
        tuple(
            PipelineLink(
                link.latency, 1.0 / link.rate, max(1, round(link.activation / VALUE_BYTES))
            )
            for link in file.link
        ),
        file.micro_batches,
        file.reduction,
        file.kept,
    )


PIPELINE_ANSWER_SCHEMA = "perfsim/pipeline-answer/1"

_LEFT_OUT = "selecting values on the GPU, stragglers, the update, convergence"


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """One link: the time of a dense message [s], its ratio, and the message's time at it [s]."""

    dense_s: float
    ratio: float
    message_s: float


@dataclass(frozen=True, slots=True)
class PipelineAnswer:
    """What `pipeline` answers: the links, and the iteration by how messages are sent [s].

    ``kept`` is the share of activations that ``thresholded`` messages hold, if it was asked for.
    """

    stages: int
    micro_batches: int
    links: tuple[LinkFigures, ...]
    iteration_s: dict[str, float]
    kept: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "schema": PIPELINE_ANSWER_SCHEMA,
            "stages": self.stages,
            "micro_batches": self.micro_batches,
            "links": [asdict(link) for link in self.links],
            "iteration_s": self.iteration_s,
            "kept_ratio": self.kept,
            "left_out": _LEFT_OUT,
        }

    def text(self) -> str:
        """Return the links and the iterations as lines of text."""
        lines = [f"{self.stages} stages, {self.micro_batches} micro-batches (GPipe)"]
        lines += [
            f"link {number}: dense {format_seconds(link.dense_s)}, 1 of {link.ratio:.4g} values"
            f" kept, then {format_seconds(link.message_s)} a message"
            for number, link in enumerate(self.links, 1)
        ]
        if any(link.ratio > 1 for link in self.links):
            kept = f"a kept value takes {VALUE_BYTES + INDEX_BYTES} bytes with its index"
            lines.append(f"{kept}, a dense one {VALUE_BYTES}")
        for name, seconds in self.iteration_s.items():
            thresholded = name == "thresholded"
            words = f"{self.kept:g} kept (DCT-MP)" if thresholded else name.replace("_", " ")
            lines.append(f"iteration, {words}: {format_seconds(seconds)}")
        return "\n".join([*lines, f"left out: {_LEFT_OUT}"])


def predict_pipeline(pipeline: Pipeline) -> PipelineAnswer:
    """Predict an iteration with dense messages, with equal ratios and with adaptive ones."""
    stages, links, count = pipeline.stages, pipeline.links, pipeline.micro_batches
    ratios = adaptive_ratios([link.dense_s for link in links], pipeline.reduction)
    equal = [max(ratios, default=1.0)] * len(links)
    iterations = {
        "dense": iteration_s(stages, links, count, None),
        "equal_ratios": iteration_s(stages, links, count, equal),
        "adaptive_ratios": iteration_s(stages, links, count, ratios),
    }
    if pipeline.kept is not None:
        masked_s = masked_iteration_s(stages, links, count, pipeline.kept)
        iterations["thresholded"] = masked_s
    figures = (
        LinkFigures(link.dense_s, ratio, link.message_s(ratio))
        for link, ratio in zip(links, ratios, strict=True)
    )
    return PipelineAnswer(len(stages), count, tuple(figures), iterations, pipeline.kept)
