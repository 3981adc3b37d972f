"""What fused attention kernels reach, by kernel and GPU architecture.

One number for each pair: no such number carries to another kernel or architecture (with one left
out, errors of 7 % grow to 20 % and more: profiles/measurements/kernels.csv). ``fused_attention``
says which kernel runs at a precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perfsim.compute.software import EFFICIENT, WITH, software_era, stated_kernel
from perfsim.errors import RequestError

if TYPE_CHECKING:
    from perfsim.compute.device import Device

__all__ = [
    "ATTENTION",
    "MASKED",
    "AttentionRate",
    "attended_share",
    "attention_rate",
    "check_kernel",
    "check_kernel_precision",
    "fused_attention",
    "known_attention",
    "multiprocessor_cycles",
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
        forward, backward = 1.0 / self.forward, BACKWARD_WORK / self.backward
        slower = forward * self.narrower_pass(width)
        slower += backward * self.narrower_pass(width, backward=True)
        return slower / (forward + backward)

    def narrower_pass(self, width: int, *, backward: bool = False) -> float:
        """Return how much longer one pass takes for its work in heads of so many values."""
        more = max(1.0, _FULL_WIDTH / width)
        slower: float = more ** (self.narrow_backward if backward else self.narrow)
        return slower

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
_AITER = (
    "fitted to ROCm/aiter@e4048607 op_tests/cpp/mha/README.md (MIT), both passes, and to {}, each"
    " source weighed alike; backward sums in {}"
)
_TURBO = (
    "AMD-AGI/Primus-Turbo@221d75f1 output/baseline_attention.csv (MIT, 2026-04), where it is 12 %"
    " slower forward"
)
_HIPKITTENS = (
    "HazyResearch/HipKittens@f09e9685 analysis/attn (MIT, AITER of 2025-10), where it is 10 %"
    " slower forward"
)
_AS_FORWARD = "backward derived: 0.96 of forward, as on the A100 and the H100"
_SHAH = (
    "fitted to bars of Shah et al., arXiv 2407.08608, figures 5 and 6, H100, heads of 64 and 128"
)
_FOUR = (
    "fitted to Dao-AILab/flash-attention pull requests 2280 and 2605 (BSD-3), B200, heads of 128"
    " and 64; backward to 8,192 tokens in heads of 128 of the first; narrow heads backward derived:"
    " by FlashAttention 3's share of forward on Hopper"
)
_XFORMERS = (
    "fitted to facebookresearch/xformers pull requests 439, 480 and 587 (forward), 467 (backward,"
    " its 256 blocks in whole waves; BSD-3), A100"
)
_CANDLE = (
    "fitted to SDPA on 240 tokens in mi-for-the-rust-of-us/candle-fused-attn@4112001 bench/results"
    " (MIT or Apache-2.0), by the 256 x 256 scores that blocks of 64 compute"
)
_TRITON = (
    "fitted to whole iterations of mosaicml/llm-foundry@8c8dd48 scripts/train/benchmarking"
    " (Apache-2.0), PyTorch 2.0, FlashAttention in Triton; backward derived: cuDNN's share of"
    " forward"
)

_H20 = AttentionRate(0.646, 0.62, 250, 0.17, f"{_SAGE}, H20 of 96 GB; {_AS_FORWARD}", 0.17)

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
    ("flash2", "h20"): _H20,
    ("flash2", "h20-3e"): _H20,
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
    ("flash3", "Hopper"): AttentionRate(0.93, 0.76, 680, 0.45, _SHAH, 0.25),
    ("flash3", "h20"): AttentionRate(
        1.02, 0.83, 380, 0.03, f"{_SAGE}; backward derived: its share of forward on the H100", 0.03
    ),
    ("flash4", "Blackwell"): AttentionRate(0.94, 0.82, 1020, 0.70, _FOUR, 0.39),
    (EFFICIENT, "Ampere"): AttentionRate(0.60, 0.43, 100, 0.0, _XFORMERS),
    (EFFICIENT, "rtx3090"): AttentionRate(0.72, 0.60, 100, 0.0, _CANDLE),
    (EFFICIENT, "Ada Lovelace"): AttentionRate(0.80, 0.60, 100, 0.0, f"{_CANDLE}, RTX 4090"),
    (EFFICIENT, "RTX Blackwell"): AttentionRate(0.94, 0.65, 100, 0.0, f"{_CANDLE}, RTX 5090"),
    (EFFICIENT, "Hopper"): AttentionRate(
        0.336,
        0.241,
        100,
        0.0,
        "derived: the A100's time, by the 180 and 111 TFLOP/s that this kernel reaches in fp16 on"
        " the H100 and the A100 (bars of xformers, thu-ml/SageAttention@d1a57a54 assets)",
    ),
    (EFFICIENT, "Blackwell"): AttentionRate(
        0.177, 0.127, 100, 0.0, "derived: Hopper's, times the ratio of FlashAttention 2's"
    ),
    ("flash2", "CDNA 3"): AttentionRate(
        0.595,
        0.348,
        800,
        0.34,
        "fitted to ROCm/flash-attention issue 142, MI300X, ROCm 6.3.2, sequences of 16,384 tokens;"
        " shorter ones and narrower heads derived: as AITER's",
        0.13,
    ),
    ("aiter", "CDNA 3"): AttentionRate(
        0.95, 0.75, 800, 0.34, f"{_AITER.format(_TURBO, 'fp32')}, MI300X", 0.13
    ),
    ("aiter", "CDNA 4"): AttentionRate(
        0.90,
        0.755,
        900,
        0.89,
        f"{_AITER.format(_HIPKITTENS, '16 bits')}, MI355X; narrow heads backward as on CDNA 3",
        0.13,
    ),
}
"""(kernel, architecture or GPU) -> what it reaches; over 1 where it beats the products there.

FlashAttention 2 uses no instruction that is newer than Ampere's: on boards whose tensor cores are
slow for their other units (RTX 4090, L20, RTX 5090) it keeps them busy, on the H100 and the B200 it
reaches no half of what large products do. The H20 is an H100 with tensor cores at a seventh.
In Triton heads of 64, 96 and 128 are alike: with one rate, iterations of llm-foundry's models at
32,768 tokens on an A100 are off by -0.3 to +1.1 % in each.

FlashAttention 3 is written for Hopper's instructions. Heads of 256 are faster forward than those
of 128, by 17 % without a mask and 4 % with one, which no number here tells. Left out, on the H100,
with heads of 128 and 4,096 tokens or more, its rate is off by -12 to +7 % forward and -2 to +9 %
backward (meta-pytorch/tritonbench pull requests 1254, 1256, 1267), by +10 to +16 % forward with a
mask and +40 % without (SageAttention's bars); 1,024 tokens are +39 and +57 % off backward.

FlashAttention 4 is written for the instructions of the B200 and its kin. Three machines with a B200
differ by a fifth in the same table, so its rate is their geometric mean. It runs on Hopper too, of
which no rate was found.
"efficient" is PyTorch's memory-efficient attention of fp32 values: its share is of a third of the
rate that large products reach in tf32 (`fused_attention`).

AITER has AMD's kernels in assembly. The backward pass adds up in fp32 on the MI300X and in 16 bits
on the MI355X, as the scripts that AMD trains with set it (ROCm/MAD and AMD-AGI/Primus@fd1eeabb
docs/02-user-guide/megatron-lm-training.md, NVTE_CK_IS_V3_ATOMIC_FP32)."""

MASKED = AttentionRate(
    358.0,
    415.0,
    100,
    0.6,
    "fitted to thuml/FlashBias@254a8b87 (MIT), A100, pytorch/pytorch pull request 121845 (BSD-3),"
    " sgl-project/sglang-omni issue 2067 (Apache-2.0) and jamaliki/Protenix@675b35be (Apache-2.0),"
    " H100: profiles/build/masked_attention.csv; backward the first alone; widths derived: a bias"
    " adds as much to a score whatever the head, and without it heads of 128 take 1.6 times as long"
    " as those of 64 (facebookresearch/xformers issue 712, by its rates an A100)",
    0.6,
)
"""What PyTorch's memory-efficient kernel reaches with a mask or a bias in 16 bits: operations that
a multiprocessor does in a cycle, of all scores, whatever the mask.

It is no share of the rate of large products: by as many cycles a score an A100 reaches twice the
share that an H100 does. Left out, sources are 3 to 31 % off forward; the backward pass has one
(profiles/build/masked_attention.py). Three sources without a licence, which have no part in it,
tell whether it carries: with heads of 64 an RTX 4090 is 2 and 0 % off, an RTX PRO 6000 +9 % forward
and -18 % backward; with heads of 128 a B200, whose kernel is not named, +26 % forward. Dropout in
the kernel is left out: on an A100 the backward pass of BERT, 384 tokens, takes 1.8 times as long.
Of heads wider than 128 nothing is known.

FlashAttention refuses a mask, and PyTorch tries this kernel next. On Hopper, the B200 and the B300
it tries cuDNN's first in 2.5.0, 2.9 and, where it finds cuDNN newer than 9.15.0, which its wheels
bring, from 2.11 on (pytorch/pytorch pull requests 138522, 162073 and 171895, issue 196678;
huggingface/transformers pull request 48163). Of cuDNN's with a mask too little is known for
a rate: forward, on an H100, T5's bias leaves 0.885 of what it reaches without (pytorch/pytorch
issue 138493), and with a key mask it takes 0.74 of this kernel's time (sglang-omni issue 2067)."""

_LANES = (64.0, 128.0)
"""Operations of fp32 that a multiprocessor starts in a cycle: 64 on the A100 and before, 128."""
_SLOWEST_CLOCK = 1e9
"""No GPU with 128 of them has a boost clock below it [1/s]."""


def multiprocessor_cycles(device: Device) -> float:
    """Return the cycles of all multiprocessors of a GPU in a second, at its boost clock.

    The fp32 rate of its data sheet is 2 operations for each of their lanes in each cycle.

    Examples
    --------
    >>> from perfsim.compute.device import load_device
    >>> from perfsim.data.catalog import Catalog
    >>> gpus = [load_device(one, Catalog()) for one in ("a100", "h100")]
    >>> [round(multiprocessor_cycles(gpu) / gpu.multiprocessors / 1e9, 2) for gpu in gpus]
    [1.41, 1.98]
    """
    peak = device.peaks["fp32"] if "fp32" in device.peaks else device.matrix_rate("fp32").value
    few, many = (peak / (2.0 * lanes) for lanes in _LANES)
    return many if many > _SLOWEST_CLOCK * device.multiprocessors else few


_VENDORS = ("cudnn", "aiter")
"""Kernels that the makers of GPUs write for their own."""

_OTHER = AttentionRate(
    0.58, 0.50, 550, 0.4, "derived: the serving kernel's on Ampere; not measured here"
)


def usual_kernel(architecture: str) -> str:
    """Return the fused kernel that tuned software takes on an architecture.

    Examples
    --------
    >>> usual_kernel("Hopper"), usual_kernel("CDNA 3"), usual_kernel("Ampere")
    ('cudnn', 'aiter', 'flash2')
    """
    return next((one for one in _VENDORS if (one, architecture) in ATTENTION), "flash2")


def known_attention(kernel: str, device: Device) -> AttentionRate | None:
    """Return what a kernel reaches on a GPU, or on its architecture; None where not measured."""
    own = ATTENTION.get((kernel, device.name))
    return own or ATTENTION.get((kernel, device.architecture))


def attention_rate(kernel: str, device: Device) -> AttentionRate:
    """Return what a kernel reaches on a GPU.

    Where it was not measured it is FlashAttention 2's there, else a serving kernel's on Ampere.
    """
    return known_attention(kernel, device) or known_attention("flash2", device) or _OTHER


def fused_attention(kernel: str, device: Device, precision: str) -> tuple[AttentionRate, float]:
    """Return what one kernel of attention reaches at a precision, and of which rate [FLOP/s].

    The memory-efficient one with a mask in 16 bits reaches so many operations of each cycle of a
    multiprocessor; the rate is then those cycles [1/s].

    FlashAttention and cuDNN take values of 16 bits only. On values of fp32 PyTorch runs its
    memory-efficient kernel instead, whatever allow_tf32 says, and that makes three products in tf32
    of each one from Ampere on: pytorch/pytorch@1f1047b7 aten/src/ATen/native/transformers/cuda/
    mem_eff_attention/gemm_kernel_utils.h, ``DefaultGemmType`` of float, OpMultiplyAddFastF32.

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision.

    Examples
    --------
    >>> from perfsim.compute.device import load_device
    >>> from perfsim.data.catalog import Catalog
    >>> a100 = load_device("a100", Catalog())
    >>> rates = [fused_attention("flash2", a100, one) for one in ("fp32", "tf32")]
    >>> rates[0] == rates[1], round(rates[0][1] / 1e12, 1)
    (True, 43.5)
    """
    exact = known_attention(EFFICIENT, device) if precision in _FP32_VALUES else None
    if exact is not None and "tf32" in device.rates:
        return exact, device.matrix_rate("tf32").value / _PRODUCTS_FOR_ONE
    if kernel == EFFICIENT and precision not in _FP32_VALUES and known_attention(kernel, device):
        return MASKED, multiprocessor_cycles(device)
    return attention_rate(kernel, device), device.matrix_rate(precision).value


_FP32_VALUES = ("fp32", "tf32")
_OF_16_BITS = ("flash2", "flash3", "flash4", "cudnn", "aiter", EFFICIENT)
_PRODUCTS_FOR_ONE = 3.0
"""Products in tf32 for one of fp32 values: of both large parts, and of each with the other's small
one (NVIDIA/cutlass, examples/27_ampere_3xtf32_fast_accurate_tensorop_gemm)."""


_BOARDS = {
    "flash3": "Hopper GPUs (H100, H200, H20)",
    "flash4": "Blackwell GPUs of data centres (B200, B300, GB200, GB300)",
    "aiter": "AMD's CDNA 3 and 4 (MI300X to MI355X)",
    "cudnn": "NVIDIA's GPUs",
    EFFICIENT: "NVIDIA's GPUs from Ampere on",
}
"""Kernels that run on some GPUs alone, or were measured there alone, and which these are."""


def check_kernel(software: str, device: Device) -> None:
    """Refuse a kernel of attention by name on a GPU that it is not for.

    Raises
    ------
    RequestError
        If software names FlashAttention 3 or 4, AITER or the memory-efficient kernel where nobody
        measured it, or cuDNN on a GPU that is not NVIDIA's.

    Examples
    --------
    >>> from perfsim.compute.device import load_device
    >>> from perfsim.data.catalog import Catalog
    >>> check_kernel("torch2+flash3", load_device("h200", Catalog()))
    >>> check_kernel("torch2+flash3", load_device("b200", Catalog()))
    Traceback (most recent call last):
    ...
    perfsim.errors.RequestError: software: flash3 is for Hopper GPUs (H100, ...), not b200; ...
    """
    stated = stated_kernel(software)
    if stated == "cudnn":
        runs = not device.architecture.startswith("CDNA")
    else:
        runs = stated not in _BOARDS or known_attention(stated, device) is not None
    if not runs:
        era, usual = software_era(software).name, usual_kernel(device.architecture)
        other = era if stated == EFFICIENT else f"{era}{WITH}{usual}"
        why = f"{stated} is for {_BOARDS[stated]}, not {device.name}; take {other}."
        raise RequestError("software", why, value=software)


def check_kernel_precision(software: str, precision: str) -> None:
    """Refuse a kernel of attention by name that does not take values of a precision.

    Raises
    ------
    RequestError
        If software names FlashAttention, cuDNN, AITER or the kernel for a mask, and values are
        fp32.

    Examples
    --------
    >>> check_kernel_precision("torch2+unfused+loop", "fp32")
    >>> check_kernel_precision("torch2+flash2", "fp32")
    Traceback (most recent call last):
    ...
    perfsim.errors.RequestError: software: flash2 takes values of 16 bits, not fp32; take torch2.
    """
    kernel = stated_kernel(software)
    if kernel in _OF_16_BITS and precision in _FP32_VALUES:
        era = software_era(software).name
        why = f"{kernel} takes values of 16 bits, not {precision}; take {era}."
        if kernel == EFFICIENT:
            why = (
                f"{kernel} says that attention of 16 bits gets a mask, not {precision}, whose"
                f" values run that kernel anyway; take {era}."
            )
        raise RequestError("software", why, value=software)
