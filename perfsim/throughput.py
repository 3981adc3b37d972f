"""Samples, tokens and model FLOPs a second, and the share of the GPU's peak that they are (MFU).

Public tables count the same work in four ways; each is given by its name. The default counts the
products of the forward pass three times, attention without regard to its mask, no embedding and
nothing that is computed again, as torchtitan and nanotron do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from perfsim.compute.device import Device
from perfsim.models import is_defined, model_flops, takes_tokens
from perfsim.resolve import Setup
from perfsim.sums import sum_in_order

__all__ = ["CONVENTIONS", "Throughput", "setup_throughput", "throughput_of"]

CONVENTIONS = {
    "products": "3 x the forward pass, attention whole, no embedding (torchtitan, nanotron)",
    "causal": "the same, masked attention by half (Megatron-LM since March 2025)",
    "palm": "6 N + 12 layers x width x length a token (PaLM, llm-foundry)",
    "6n": "6 N a token, no attention",
}
"""Ways to count a model's work -> what each counts; N are the parameters that work for a token."""


class Throughput(NamedTuple):
    """What all GPUs train in a second.

    ``flops_per_sample`` are those of the model by convention, forward and backward; ``peak_flops``
    is the data sheet's peak of a GPU at the precision (0 where its file has none). Of several types
    it is the mean of all GPUs.
    """

    samples_per_s: float
    gpus: int
    tokens: int | None
    flops_per_sample: dict[str, float]
    peak_flops: float

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second on all GPUs; None for a model that takes none."""
        return None if self.tokens is None else self.samples_per_s * self.tokens

    def flops_per_gpu(self, convention: str = "products") -> float | None:
        """Return the model's operations a second on one GPU; None where they are not known."""
        work = self.flops_per_sample.get(convention)
        return None if work is None else work * self.samples_per_s / self.gpus

    def mfu(self, convention: str = "products") -> float | None:
        """Return the share of the peak of all GPUs that the model's operations are (MFU).

        PaLM (Chowdhery et al. 2022, arXiv 2204.02311, appendix B) divides what is observed by what
        the whole system would reach at its peak.
        """
        flops = self.flops_per_gpu(convention)
        return flops / self.peak_flops if flops and self.peak_flops else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        flops = self.flops_per_gpu()
        return {
            "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_gpu": self.tokens_per_s and self.tokens_per_s / self.gpus,
            "model_tflops_per_gpu": None if flops is None else flops / 1e12,
            "mfu": {name: self.mfu(name) for name in self.flops_per_sample},
        }


def throughput_of(
    model: str,
    tokens: int | None,
    device: Device,
    precision: str,
    samples_per_s: float,
    gpus: int,
    document_tokens: int | None = None,
) -> Throughput:
    """Return what is trained in a second, in samples, tokens and model FLOPs."""
    text = is_defined(model) and takes_tokens(model)
    return Throughput(
        samples_per_s,
        gpus,
        tokens if text else None,
        model_flops(model, tokens, document_tokens),
        device.peaks.get(precision, 0.0),
    )


def setup_throughput(setup: Setup, samples_per_s: float) -> Throughput:
    """Return what a setup trains in a second."""
    profile, gpus = setup.profile, setup.scenario.gpus
    tokens, precision = profile.sequence, profile.precision
    document = setup.scenario.document_tokens
    found = throughput_of(
        profile.model, tokens, setup.device, precision, samples_per_s, gpus, document
    )
    if not setup.parts:
        return found
    peaks = [(part.count, part.device.peaks.get(precision, 0.0)) for part in setup.parts]
    known = all(peak for _, peak in peaks)
    total = sum_in_order(count * peak for count, peak in peaks) if known else 0.0
    return found._replace(peak_flops=total / gpus)
