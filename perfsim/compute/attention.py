"""What fused attention kernels reach, by kernel and GPU architecture.

One number for each pair: no such number carries to another kernel or architecture (with one left
out, errors of 7 % grow to 20 % and more: profiles/measurements/kernels.csv).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from perfsim.compute.device import Device

__all__ = [
    "ATTENTION",
    "AttentionRate",
    "attended_share",
    "attention_rate",
    "known_attention",
    "usual_kernel",
]

BACKWARD_WORK = 2.5
"""Backward over forward work of fused attention: five products, one of them computed again, for two
(Dao et al., arXiv 2205.14135)."""


def attended_share(causal: bool, window: float = 1.0) -> float:
    """Return which share of all pairs of tokens attend to each other.

    Parameters
    ----------
    window : share of the tokens that a token attends to at most

    Examples
    --------
    >>> attended_share(causal=True), attended_share(causal=True, window=0.5)
    (0.5, 0.375)
    """
    return window - window**2 / 2.0 if causal else window


class AttentionRate(NamedTuple):
    """What a fused attention kernel reaches of the rate of large products on an architecture.

    ``forward`` and ``backward`` hold for long sequences. The edge of a mask costs as much as
    ``tokens`` / 2 more keys for each query, no mask half of that. Heads narrower than 128 are
    slower forward by (128 / width) to the power ``narrow``, backward ``narrow_backward``.
    """

    forward: float
    backward: float
    tokens: float
    narrow: float
    source: str
    narrow_backward: float = 0.0

    @property
    def both(self) -> float:
        """What both passes reach together."""
        return (1.0 + BACKWARD_WORK) / (1.0 / self.forward + BACKWARD_WORK / self.backward)

    def narrower(self, width: int) -> float:
        """Return how much longer both passes take for their work in heads of so many values.

        Examples
        --------
        >>> rate = AttentionRate(0.9, 0.9, 1000, 1.0, "by hand", 1.0)
        >>> rate.narrower(64), rate.narrower(128), rate.narrower(256)
        (2.0, 1.0, 1.0)
        """
        more = max(1.0, _FULL_WIDTH / width)
        forward, backward = 1.0 / self.forward, BACKWARD_WORK / self.backward
        slower: float = forward * more**self.narrow + backward * more**self.narrow_backward
        return slower / (forward + backward)

    def short(self, tokens: int, causal: bool, window: float = 1.0) -> float:
        """Return how much longer short sequences and windows take for their work.

        A causal mask has one edge, along which blocks of keys are computed and thrown away. A
        window has another, for all queries but those that it does not reach beyond; it never takes
        longer than no window. Below 512 tokens it is as at 512.

        Parameters
        ----------
        tokens : of the sequence, or of a document of it that attention stays within
        window : share of these that a token attends to at most

        Notes
        -----
        Fitted without windows, it tells those of 128 tokens on GB200 and GB300 and of 1024 on H200
        to 9 % forward and 13 % backward (medians; profiles/measurements/kernels.csv).

        Examples
        --------
        >>> rate = AttentionRate(0.9, 0.8, 1000, 0.4, "by hand")
        >>> rate.short(1000, causal=True), rate.short(1000, causal=False)
        (2.0, 1.25)
        >>> round(rate.short(100_000, causal=True, window=0.01), 2)  # 1000 keys more on 1000
        2.0
        """
        more = self.tokens / max(tokens, _SHORTEST)
        keys = attended_share(causal, window)
        if causal:
            edges, whole = 1.0 - window / 2.0, 0.5 + more / 2.0
        else:
            edges, whole = 1.0 - window + _UNMASKED * window, 1.0 + more * _UNMASKED
        return min(keys + more * edges, whole) / keys


_FULL_WIDTH = 128
"""Values of a head at which kernels reach their rates."""
_SHORTEST = 512
"""Tokens of the shortest sequences with measured times: BERT in MLPerf."""
_UNMASKED = 0.25
"""Fitted to attention with and without a mask, NVIDIA/cudnn-frontend@3929da2 (0.23 to 0.31)."""
_SERVING = "fitted to causal forward attention, ai-dynamo/aiconfigurator@095f58a (Apache-2.0)"
_CUDNN = "fitted to NVIDIA/cudnn-frontend@3929da2 benchmark/sdpa_benchmark_training (MIT), bf16"
_BACKWARD = "backward derived: cuDNN's share of forward"
_DAO = "fitted to bars of Dao-AILab/flash-attention@0251105a assets (BSD-3), both passes"
_SAGE = "fitted to forward bars of thu-ml/SageAttention@d1a57a54 assets (Apache-2.0)"
_AS_FORWARD = "backward derived: 0.96 of forward, as on the A100 and the H100"
_TRITON = (
    "fitted to whole iterations of mosaicml/llm-foundry@8c8dd48 scripts/train/benchmarking"
    " (Apache-2.0), PyTorch 2.0, FlashAttention in Triton; backward derived: cuDNN's share of"
    " forward"
)

ATTENTION: dict[tuple[str, str], AttentionRate] = {
    ("serving", "Ampere"): AttentionRate(0.58, 0.50, 550, 0.4, f"{_SERVING}; {_BACKWARD}"),
    ("serving", "Hopper"): AttentionRate(0.77, 0.67, 1200, 0.38, f"{_SERVING}; {_BACKWARD}"),
    ("serving", "Blackwell"): AttentionRate(0.815, 0.64, 1900, 0.61, f"{_SERVING}; {_BACKWARD}"),
    ("cudnn", "Hopper"): AttentionRate(0.93, 0.81, 730, 0.38, f"{_CUDNN}, H200"),
    ("cudnn", "Blackwell"): AttentionRate(1.05, 0.82, 730, 0.61, f"{_CUDNN}, GB200 and GB300"),
    ("triton", "Ampere"): AttentionRate(0.41, 0.355, 1075, 0.0, _TRITON),
    ("triton", "Hopper"): AttentionRate(0.255, 0.222, 1075, 0.0, _TRITON),
    ("flash2", "Ampere"): AttentionRate(0.765, 0.745, 450, 0.17, f"{_DAO} and {_SAGE}, A100", 0.17),
    ("flash2", "a6000"): AttentionRate(0.72, 0.69, 20, 0.17, f"{_SAGE}; {_AS_FORWARD}", 0.17),
    ("flash2", "rtx3090"): AttentionRate(0.85, 0.815, 60, 0.17, f"{_SAGE}; {_AS_FORWARD}", 0.17),
    ("flash2", "Ada Lovelace"): AttentionRate(
        1.01, 0.97, 115, 0.17, f"{_SAGE}, RTX 4090 and L20; {_AS_FORWARD}", 0.17
    ),
    ("flash2", "Hopper"): AttentionRate(0.46, 0.43, 460, 0.17, f"{_DAO} and {_SAGE}, H100", 0.17),
    ("flash2", "h20"): AttentionRate(0.646, 0.62, 250, 0.17, f"{_SAGE}; {_AS_FORWARD}", 0.17),
    ("flash2", "Blackwell"): AttentionRate(
        0.242,
        0.213,
        100,
        0.0,
        "fitted to meta-pytorch/tritonbench pull request 171, B200; backward derived: its share of"
        " forward in heads of 64, Dao-AILab/flash-attention issue 1589",
    ),
    ("flash2", "RTX Blackwell"): AttentionRate(
        0.893, 0.857, 257, 0.17, f"{_SAGE}, RTX 5090; {_AS_FORWARD}", 0.17
    ),
}
"""(kernel, architecture or GPU) -> what it reaches; over 1 where it beats the products there.

FlashAttention 2 uses no instruction that is newer than Ampere's: on boards whose tensor cores are
slow for their other units (RTX 4090, L20, RTX 5090) it keeps them busy, on the H100 and the B200 it
reaches no half of what large products do. The H20 is an H100 with tensor cores at a seventh.
In Triton heads of 64, 96 and 128 are alike: with one rate, iterations of llm-foundry's models at
32,768 tokens on an A100 are off by -0.3 to +1.1 % in each."""

_OTHER = AttentionRate(
    0.58, 0.50, 550, 0.4, "derived: the serving kernel's on Ampere; not measured here"
)


def usual_kernel(architecture: str) -> str:
    """Return the fused kernel that tuned software takes on an architecture.

    Examples
    --------
    >>> usual_kernel("Hopper"), usual_kernel("Ampere")
    ('cudnn', 'flash2')
    """
    return "cudnn" if ("cudnn", architecture) in ATTENTION else "flash2"


def known_attention(kernel: str, device: Device) -> AttentionRate | None:
    """Return what a kernel reaches on a GPU, or on its architecture; None where not measured."""
    own = ATTENTION.get((kernel, device.name))
    return own or ATTENTION.get((kernel, device.architecture))


def attention_rate(kernel: str, device: Device) -> AttentionRate:
    """Return what a kernel reaches on a GPU.

    Where it was not measured it is FlashAttention 2's there, else a serving kernel's on Ampere.
    """
    return known_attention(kernel, device) or known_attention("flash2", device) or _OTHER
