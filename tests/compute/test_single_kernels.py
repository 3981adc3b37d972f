"""Single kernels: products, attention, streams and optimizer steps, by hand and by law."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from perfsim.compute.attention import ATTENTION
from perfsim.compute.device import load_device
from perfsim.compute.kernel_time import (
    PASSES_BY_OPERATION,
    kernel_rates,
    model_time,
    work_time,
)
from perfsim.compute.single_kernels import (
    ATTENTION_SPREADS,
    FUSED_UPDATES,
    NORM_SPREADS,
    PRODUCT_SPREADS,
    STREAM_SPREADS,
    KernelTime,
    KernelTimes,
    kernel_times,
    read_products,
)
from perfsim.compute.work import work_of
from perfsim.errors import DataError, RequestError
from perfsim.models.transformers import (
    GPT3_2_7B,
    GPT3_XL,
    OPT_1_3B,
    DecoderSize,
    bert,
    decoder,
    gpt2,
)
from support.paths import ROOT
from support.what_ships import SHIPPED

H100 = kernel_times("h100", SHIPPED)
HALF = ("amp-fp16", "amp-bf16")


def plain(gpu: str) -> KernelTimes:
    """Return a GPU without tables of products: the formula alone."""
    return KernelTimes(load_device(gpu, SHIPPED), {}, {})


def test_a_large_product_takes_its_operations_over_the_rate() -> None:
    """Far from the memory bound, by hand: 2 m n k / rate and 2.8 us."""
    times = plain("a100")
    rate = times.device.matrix_rate("amp-bf16").value
    by_hand = 2 * 16384**3 / rate + 2.8e-6
    assert times.product(16384, 16384, 16384).seconds == pytest.approx(by_hand, rel=0.005)


def test_a_thin_product_takes_its_bytes_over_the_bandwidth() -> None:
    times = plain("a100")
    moved = 2 * (8 * 32768 + 32768 * 32768 + 8 * 32768)
    by_hand = moved / times.device.memory_bandwidth.value + 2.8e-6
    assert times.product(8, 32768, 32768).seconds == pytest.approx(by_hand, rel=0.005)


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200", "l40s", "v100", "mi300x"])
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "fp8", "nvfp4"])
def test_a_larger_product_takes_no_less(gpu: str, precision: str) -> None:
    """Twice a side: no less by the formula; by measured ratios at most 5 % less.

    Measured times fall too where the library takes another kernel.
    """
    times = kernel_times(gpu, SHIPPED)
    if precision not in times.device.rates:
        with pytest.raises(RequestError, match=f"has no '{precision}' rate"):
            times.product(512, 512, 512, precision)
        return
    formula = KernelTimes(times.device, {}, {})
    sizes = [2**power for power in range(8, 17)]
    for other in (1024, 8192):
        for side in range(3):
            shapes = [[size if at == side else other for at in range(3)] for size in sizes]
            plainly = [formula.product(*shape, precision).seconds for shape in shapes]
            found = [times.product(*shape, precision).seconds for shape in shapes]
            assert plainly == sorted(plainly)
            assert all(one < 1.05 * two for one, two in pairwise(found))


def test_ratios_are_those_of_the_file_at_its_nodes() -> None:
    """The H100's own row at 4096 x 8192 x 8192 is its time over the formula's."""
    path = ROOT / "profiles" / "devices" / "h100.products.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    row = next(
        row
        for row in rows
        if [row[key] for key in ("precision", "m", "n", "k")]
        == ["amp-bf16", "4096", "8192", "8192"]
    )
    ratio = H100.product(4096, 8192, 8192).seconds / plain("h100").product(4096, 8192, 8192).seconds
    assert ratio == pytest.approx(float(row["ratio"]))


@pytest.mark.parametrize(
    ("gpu", "precision", "known"),
    [
        ("h100", "amp-bf16", "table"),
        ("h100", "amp-fp16", "table"),
        ("h100", "tf32", "data sheet"),
        ("mi210", "fp32", "rate"),
        ("gb300", "nvfp4", "table"),
        ("mi300x", "amp-bf16", "rate"),
        ("mi325x", "fp8", "data sheet"),
    ],
)
def test_the_error_grows_as_less_is_known(gpu: str, precision: str, known: str) -> None:
    assert kernel_times(gpu, SHIPPED).product(4096, 4096, 4096, precision).known == known
    for spreads in (*PRODUCT_SPREADS.values(), ATTENTION_SPREADS, STREAM_SPREADS):
        assert spreads["table"] <= spreads["rate"] <= spreads["data sheet"]


def test_spreads_are_those_of_the_record() -> None:
    """The 90 % errors in code are those that the command stored, to half a point."""
    path = ROOT / "profiles" / "measurements" / "kernels.csv"
    ninth = {
        (row["kernel"], row["left_out"], row["known"]): float(row["ninetieth"])
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    }
    shipped = "none (as shipped)"
    for precision, spreads in PRODUCT_SPREADS.items():
        name = f"product {precision}"
        assert spreads["table"] == pytest.approx(ninth[name, "random 20 %", "table"], abs=0.0051)
        assert spreads["data sheet"] == pytest.approx(ninth[name, "GPU", "sheet"], abs=0.0055)
        # Where no second rate was measured, a known rate is no worse than the data sheet's.
        alone = ninth[name, "random 20 %", "plateau alone"]
        rate = ninth.get((name, "GPU", "rate"), min(alone, ninth[name, "GPU", "sheet"]))
        assert spreads["rate"] == pytest.approx(rate, abs=0.016)
    serving = "attention serving forward"
    assert ATTENTION_SPREADS["table"] == pytest.approx(ninth[serving, shipped, "table"], abs=0.0051)
    assert ATTENTION_SPREADS["rate"] == pytest.approx(
        ninth[serving, "architecture", "sheet"], abs=0.0051
    )
    for kernel, spread in NORM_SPREADS.items():
        worst = max(
            ninth[f"norm {kernel} {way}", "GPU", "sheet"] for way in ("forward", "backward")
        )
        assert spread == pytest.approx(worst, abs=0.0051)
    assert STREAM_SPREADS["rate"] == pytest.approx(
        ninth["element-wise fp32", shipped, "rate"], abs=0.0051
    )
    assert STREAM_SPREADS["data sheet"] == pytest.approx(
        ninth["element-wise fp32", "GPU", "sheet"], abs=0.0051
    )


def test_tables_lower_the_error_of_shapes_left_out() -> None:
    """A table ships only where it beats the plateau alone: median and p90, shapes left out."""
    path = ROOT / "profiles" / "measurements" / "kernels.csv"
    rows = {
        (row["kernel"], row["left_out"], row["known"]): row
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    }
    compared = 0
    for (kernel, left_out, known), row in rows.items():
        alone = rows.get((kernel, left_out, "plateau alone"))
        if known == "table" and alone is not None:
            compared += 1
            assert float(row["median"]) < float(alone["median"])
    assert compared == 16


def test_attention_by_hand() -> None:
    """32 heads of 128, batch 8, 4096 tokens, causal, cuDNN on an H100."""
    rate = ATTENTION["cudnn", "Hopper"]
    flops = 4 * 8 * 32 * 4096**2 * 128 / 2
    reached = H100.device.matrix_rate("amp-bf16").value * rate.forward
    waves = 1 + 0.43 * 132 / (8 * 32 * 32)
    by_hand = flops / reached * (1 + rate.tokens / 4096) * waves + 15e-6
    assert H100.attention(8, 4096, 32, 128).seconds == pytest.approx(by_hand)
    assert H100.attention(8, 4096, 32, 128).known == "table"


def test_laws_of_attention() -> None:
    """A mask saves, a backward pass and an unfused kernel cost, grouped heads save bytes only."""
    usual = H100.attention(4, 4096, 32, 128).seconds
    assert usual < H100.attention(4, 4096, 32, 128, causal=False).seconds < 2.05 * usual
    assert H100.attention(4, 4096, 32, 128, backward=True).seconds > 2 * usual
    assert H100.attention(4, 4096, 32, 128, kernel="unfused").seconds > 3 * usual
    assert H100.attention(4, 4096, 32, 128, kv_heads=8).seconds <= usual
    assert H100.attention(4, 4096, 32, 128, kernel="flash2").seconds > 1.5 * usual
    few = H100.attention(1, 1, 64, 128, kv_heads=1).seconds
    assert few <= H100.attention(1, 1, 64, 128).seconds


def test_attention_with_a_window_by_hand() -> None:
    """1024 of 4096 tokens: 896 keys for a query, and the edges of mask and window beside them."""
    rate = ATTENTION["cudnn", "Hopper"]
    flops = 4 * 8 * 32 * 4096 * 896 * 128
    reached = H100.device.matrix_rate("amp-bf16").value * rate.forward
    edges = rate.tokens * (1 - 1 / 8)  # half of it for all queries, half for three quarters
    waves = 1 + 0.43 * 132 / (8 * 32 * 32)
    by_hand = flops / reached * (1 + edges / 896) * waves + 15e-6
    assert H100.attention(8, 4096, 32, 128, window=1024).seconds == pytest.approx(by_hand)


@pytest.mark.parametrize("causal", [True, False])
def test_a_window_saves_the_more_the_narrower_it_is(causal: bool) -> None:
    """By law, up to the whole sequence, which is no window; less than the work that it saves."""
    windows = (128, 1024, 2048, 3072, 4000, 4096)
    each = [H100.attention(4, 4096, 32, 128, causal=causal, window=one).seconds for one in windows]
    whole = H100.attention(4, 4096, 32, 128, causal=causal).seconds
    assert each == sorted(each)
    assert each[-1] == whole
    assert each[-2] == pytest.approx(whole, rel=0.02)
    assert each[0] > 2 * whole / 32


@pytest.mark.parametrize(
    ("gpu", "heads", "kv_heads", "tokens", "window", "backward", "measured_ms"),
    [
        ("gb200", 128, 128, 4096, 128, False, 0.210),
        ("gb200", 128, 128, 4096, 128, True, 0.465),
        ("gb200", 128, 128, 16384, 128, False, 0.822),
        ("gb200", 128, 128, 16384, 128, True, 1.818),
        ("h200", 64, 8, 8192, 1024, False, 0.738),
        ("h200", 64, 8, 8192, 1024, True, 2.149),
    ],
)
def test_windows_take_what_was_published(
    gpu: str,
    heads: int,
    kv_heads: int,
    tokens: int,
    window: int,
    backward: bool,
    measured_ms: float,
) -> None:
    """Two samples, heads of 64 (NVIDIA/cudnn-frontend@3929da2 sdpa_benchmark_training/results)."""
    times = kernel_times(gpu, SHIPPED)
    found = times.attention(
        2, tokens, heads, 64, kv_heads=kv_heads, window=window, backward=backward
    )
    assert found.seconds * 1e3 == pytest.approx(measured_ms, rel=0.17)


def test_flash2_on_the_h100_reaches_the_published_third_of_its_peak() -> None:
    """35 % of 989 TFLOP/s at long sequences (Shah et al., arXiv 2407.08608)."""
    seconds = H100.attention(2, 65536, 32, 128, causal=False, kernel="flash2").seconds
    flops = 4 * 2 * 32 * 65536**2 * 128
    assert flops / seconds / 989.4e12 == pytest.approx(0.35, abs=0.01)


_SAGE_BARS = {
    "a100": (142, 170, 181, 186, 193, 193),
    "rtx4090": (118, 138, 155, 160, 161, 161),
    "l20": (98, 104, 108, 110, 112, 112),
    "h100": (217, 281, 307, 330, 328, 329),
    "h20": (68, 78, 84, 87, 89, 90),
    "rtx5090": (147, 175, 192, 202, 207, 209),
    "a6000": (85, 90, 94, 93, 91, 92),
    "rtx3090": (56, 60, 62, 63, 62, 60),
}
"""Forward FlashAttention 2, causal, heads of 128, 1,024 to 32,768 tokens [TFLOP/s]: bars of
thu-ml/SageAttention@d1a57a54 assets (Apache-2.0)."""


@pytest.mark.parametrize("gpu", _SAGE_BARS)
def test_forward_flash2_is_as_published(gpu: str) -> None:
    times = kernel_times(gpu, SHIPPED)
    for power, published in enumerate(_SAGE_BARS[gpu]):
        tokens = 1024 << power
        seconds = times.attention(4, tokens, 32, 128, kernel="flash2").seconds
        found = 2 * 4 * 32 * tokens**2 * 128 / seconds / 1e12
        assert found == pytest.approx(published, rel=0.13)


@pytest.mark.parametrize(
    "gpu, head, bars",
    [
        ("a100", 128, (99, 133, 155, 173, 182, 189)),
        ("h100", 128, (163, 221, 265, 294, 308, 328)),
        ("a100", 64, (88, 119, 140, 156, 165, 171)),
        ("h100", 64, (141, 192, 232, 257, 273, 284)),
    ],
)
def test_both_passes_of_flash2_are_as_published(gpu: str, head: int, bars: tuple[int, ...]) -> None:
    """Causal, 16,384 tokens in samples of 512 to 16,384, 2,048 values each [TFLOP/s].

    Bars of Dao-AILab/flash-attention@0251105a assets (BSD-3).
    """
    times = kernel_times(gpu, SHIPPED)
    for power, published in enumerate(bars):
        tokens, heads = 512 << power, 2048 // head
        both = [
            times.attention(
                16384 // tokens, tokens, heads, head, kernel="flash2", backward=backward
            ).seconds
            for backward in (False, True)
        ]
        found = 3.5 * 2 * 16384 * tokens * 2048 / sum(both) / 1e12
        assert found == pytest.approx(published, rel=0.09)


@pytest.mark.parametrize(
    "head, causal, backward, bars",
    [
        (64, False, False, (392, 460, 476, 496, 497)),
        (64, True, False, (265, 371, 420, 460, 473)),
        (128, False, False, (565, 625, 638, 646, 648)),
        (128, True, False, (423, 521, 579, 602, 616)),
        (256, True, False, (427, 537, 612, 628, 642)),
        (64, False, True, (363, 422, 453, 472, 474)),
        (128, False, True, (424, 501, 542, 559, 561)),
    ],
)
def test_flash3_is_as_published(
    head: int, causal: bool, backward: bool, bars: tuple[int, ...]
) -> None:
    """16,384 tokens in samples of 1,024 to 16,384, 2,048 values each, on an H100 [TFLOP/s].

    Bars of Shah et al., arXiv 2407.08608, figures 5 and 6.
    """
    for power, published in enumerate(bars):
        tokens, heads = 1024 << power, 2048 // head
        seconds = H100.attention(
            16384 // tokens, tokens, heads, head, causal=causal, kernel="flash3", backward=backward
        ).seconds
        flops = 4 * 16384 * tokens * 2048 / (1 + causal) * (2.5 if backward else 1)
        assert flops / seconds / 1e12 == pytest.approx(published, rel=0.15)


def test_flash3_on_the_h20_fills_its_tensor_cores() -> None:
    """Causal, heads of 128: bars of thu-ml/SageAttention@d1a57a54 assets (Apache-2.0)."""
    times = kernel_times("h20", SHIPPED)
    for power, published in enumerate((108, 124, 133, 138, 140, 141)):
        tokens = 1024 << power
        seconds = times.attention(4, tokens, 32, 128, kernel="flash3").seconds
        assert 2 * 4 * 32 * tokens**2 * 128 / seconds / 1e12 == pytest.approx(published, rel=0.12)


@pytest.mark.parametrize(
    "head, causal, backward, published",
    [
        (128, False, False, {1024: (1196, 975), 4096: (1309, 1256), 16384: (1401, 1330)}),
        (128, True, False, {1024: (704, 660), 2048: (944, 899), 4096: (1114, 1062)}),
        (128, False, False, {8192: (1357, 1289, 1534.8)}),
        (128, True, False, {8192: (1418.1,)}),
        (128, False, True, {8192: (1359.8,)}),
        (128, True, True, {8192: (1208.6,)}),
        (64, False, False, {1024: (657, 619), 4096: (695, 825), 16384: (706, 879)}),
        (64, True, False, {1024: (425, 384), 4096: (713, 708), 16384: (836, 852)}),
    ],
)
def test_flash4_is_as_published(
    head: int, causal: bool, backward: bool, published: dict[int, tuple[float, ...]]
) -> None:
    """32,768 tokens in samples of so many, 2,048 values each, on machines with a B200 [TFLOP/s].

    Dao-AILab/flash-attention pull requests 2280 and 2605 (BSD-3).
    """
    times = kernel_times("b200", SHIPPED)
    for tokens, rates in published.items():
        seconds = times.attention(
            32768 // tokens,
            *(tokens, 2048 // head, head),
            causal=causal,
            kernel="flash4",
            backward=backward,
        ).seconds
        flops = 4 * 32768 * tokens * 2048 / (1 + causal) * (2.5 if backward else 1)
        for rate in rates:
            assert flops / seconds / 1e12 == pytest.approx(rate, rel=0.22)


@pytest.mark.parametrize(
    "samples, tokens, head, causal, backward, measured_us",
    [
        (256, 4096, 64, False, False, 654_411),
        (16, 1024, 64, False, False, 2_597),
        (64, 1024, 64, True, False, 5_602),
        (16, 1024, 128, False, False, 5_773),
        (16, 1024, 64, False, True, 11_567),
        (16, 1024, 128, False, True, 22_859),
    ],
)
def test_fp32_attention_is_three_products_in_tf32(
    samples: int, tokens: int, head: int, causal: bool, backward: bool, measured_us: float
) -> None:
    """16 heads on an A100: facebookresearch/xformers pull requests 480, 587 and 467 (backward)."""
    times = kernel_times("a100", SHIPPED)
    exact, rounded = (
        times.attention(
            samples, tokens, 16, head, causal=causal, backward=backward, precision=precision
        ).seconds
        for precision in ("fp32", "tf32")
    )
    assert exact == rounded == pytest.approx(measured_us / 1e6, rel=0.25)


@pytest.mark.parametrize(
    "gpu, forward_ms, backward_ms",
    [("rtx3090", 0.833, 2.353), ("rtx4090", 0.343, 0.976), ("rtx5090", 0.212, 0.698)],
)
def test_fp32_attention_on_boards_for_desktops(
    gpu: str, forward_ms: float, backward_ms: float
) -> None:
    """64 samples, 6 heads of 64, 240 tokens, of which blocks of 64 make 256.

    Kernels of mi-for-the-rust-of-us/candle-fused-attn@4112001 bench/results.
    """
    times = kernel_times(gpu, SHIPPED)
    for backward, measured in ((False, forward_ms), (True, backward_ms)):
        found = times.attention(64, 256, 6, 64, causal=False, backward=backward, precision="fp32")
        assert found.seconds * 1e3 == pytest.approx(measured, rel=0.15)


def test_flash2_on_the_b200_is_as_measured() -> None:
    """8 samples of 16 heads of 128, not causal: meta-pytorch/tritonbench pull request 171."""
    times = kernel_times("b200", SHIPPED)
    for tokens, measured in ((1024, 315.1), (2048, 352.1), (4096, 353.9), (8192, 361.6)):
        seconds = times.attention(8, tokens, 16, 128, causal=False, kernel="flash2").seconds
        assert 4 * 8 * 16 * tokens**2 * 128 / seconds / 1e12 == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(
    "gpu, forward, backward, elsewhere",
    [
        ("mi300x", (327, 426, 514, 541), (267, 327, 391, 435), (4, 64, 470, 376)),
        ("mi355x", (639, 900, 1175, 1319), (572, 797, 971, 1068), (16, 16, 1173, 1034)),
    ],
)
def test_attention_of_aiter_is_as_published(
    gpu: str,
    forward: tuple[int, ...],
    backward: tuple[int, ...],
    elsewhere: tuple[int, int, int, int],
) -> None:
    """Causal, 4 samples of 64 heads, 1,024 to 8,192 tokens, and 8,192 by another [TFLOP/s].

    ROCm/aiter@e4048607 op_tests/cpp/mha/README.md; AMD-AGI/Primus-Turbo@221d75f1 and
    HazyResearch/HipKittens@f09e9685, who have no part in the others' figures (all MIT).
    """
    times = kernel_times(gpu, SHIPPED)

    def reached(batch: int, tokens: int, heads: int, back: bool) -> float:
        seconds = times.attention(batch, tokens, heads, 128, backward=back).seconds
        return 2 * batch * heads * tokens**2 * 128 * (2.5 if back else 1) / seconds / 1e12

    for back, published in ((False, forward), (True, backward)):
        found = [reached(4, 1024 << power, 64, back) for power in range(4)]
        assert found == pytest.approx(published, rel=0.15)
    batch, heads, *other = elsewhere
    found = [reached(batch, 8192, heads, back) for back in (False, True)]
    assert found == pytest.approx(other, rel=0.15)


def test_streams_and_tables_by_hand() -> None:
    bandwidth = H100.device.memory_bandwidth.value
    assert H100.stream(3e9).seconds == pytest.approx(3e9 / bandwidth + 4.5e-6)
    assert H100.softmax(4096, 32000).seconds == pytest.approx(
        12 * 4096 * 32000 / bandwidth + 4.5e-6
    )
    moved = 4 * 1024 * (50257 + 3 * 2048)
    back = H100.embedding(2048, 1024, 50257, backward=True)
    assert back.seconds == pytest.approx(moved / bandwidth + 9e-6)
    assert back.seconds > H100.embedding(2048, 1024, 50257).seconds


@pytest.mark.parametrize("kernel", ["cudnn", "compiled", "eager"])
def test_normalisations(kernel: str) -> None:
    forward = H100.norm(16384, 8192, kernel=kernel).seconds
    assert forward >= 2 * 2 * 16384 * 8192 / H100.device.memory_bandwidth.value
    assert forward < H100.norm(16384, 8192, kernel=kernel, backward=True).seconds


def test_an_optimizer_step_by_hand() -> None:
    """AdamW fused: 28 bytes a parameter, one launch for 252 tensors; by operation 8 a tensor."""
    bandwidth = H100.device.memory_bandwidth.value
    fused = H100.optimizer(340_000_000, 398, "adamw")
    assert fused.seconds == pytest.approx(28 * 340e6 / bandwidth + 3 * 4.5e-6)
    slow = H100.optimizer(340_000_000, 398, "adamw", "by operation")
    assert slow.seconds == pytest.approx(72 * 340e6 / bandwidth + 8 * 398 * 4.5e-6)


def test_optimizers_with_more_state_take_longer() -> None:
    order = ["plain-sgd", "sgd", "adam", "lamb"]
    for how in ("fused", "by operation"):
        found = [H100.optimizer(10**8, 100, name, how).seconds for name in order]
        assert found == sorted(found)
    for name, _ in FUSED_UPDATES:
        fused = H100.optimizer(10**8, 100, name)
        assert fused.seconds < H100.optimizer(10**8, 100, name, "by operation").seconds


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda: H100.product(0, 8, 8), "m"),
        (lambda: H100.attention(1, -4, 8, 64), "tokens"),
        (lambda: H100.attention(1, 4, 8, 64, window=0), "window"),
        (lambda: H100.attention(1, 4, 8, 64, kernel="flesh2"), "kernel"),
        (lambda: H100.norm(8, 8, kernel="cuddn"), "kernel"),
        (lambda: H100.stream(float("nan")), "moved_bytes"),
        (lambda: H100.optimizer(8, 1, "adamm"), "optimizer"),
        (lambda: H100.optimizer(8, 1, "adam", "foreach"), "how"),
        (lambda: kernel_times("h1000", SHIPPED), "gpu"),
    ],
)
def test_wrong_requests_are_refused(ask: Callable[[], KernelTime], field: str) -> None:
    with pytest.raises(RequestError) as refused:
        ask()
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("products/1", "products/2"), "perfsim/products/1"),
        (lambda text: text.replace("amp-bf16,512", "bf17,512", 1), "bf17"),
        (lambda text: "\n".join(text.splitlines()[:-1]), "has no ratio at"),
        (lambda text: text + text.splitlines()[-1] + "\n", "stands twice"),
        (lambda text: text.replace(",fitted", ",guessed", 1), "guessed"),
    ],
)
def test_damaged_tables_are_refused(
    change: Callable[[str], str], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "h200.products.csv"
    shutil.copy(ROOT / "profiles" / "devices" / path.name, path)
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=said) as refused:
        read_products(path)
    assert path.name in str(refused.value)


# Whole networks on these kernels


def test_decoders_have_the_published_parameters() -> None:
    """GPT-2's and OPT's own counts, and GPT-3 2.7B by table 2.1 of arXiv 2005.14165."""

    def count(size: DecoderSize) -> float:
        return sum(layer.elements for layer in decoder("d", size, 1024))

    assert count(DecoderSize(768, 12, 12)) == 124_439_808
    assert sum(layer.elements for layer in gpt2("gpt2")) == 124_439_808
    assert count(GPT3_2_7B) == pytest.approx(2.7e9, rel=0.03)
    assert count(OPT_1_3B) == pytest.approx(1.3e9, rel=0.03)
    assert count(GPT3_XL._replace(width=2048)) == pytest.approx(1.3e9, rel=0.03)
    with pytest.raises(RequestError, match="positions"):
        decoder("gpt3-xl", GPT3_XL, 4096)


def test_a_network_may_have_fewer_blocks() -> None:
    one, all_blocks = bert("large", tokens=512, depth=1), bert("large", tokens=512)
    block = sum(layer.elements for layer in bert("large", tokens=512, depth=2)) - sum(
        layer.elements for layer in one
    )
    total = sum(layer.elements for layer in all_blocks)
    assert total == sum(layer.elements for layer in one) + 23 * block


@pytest.mark.parametrize("optimizer", sorted(PASSES_BY_OPERATION))
def test_an_update_goes_by_its_optimizer(optimizer: str) -> None:
    """The update moves 4 bytes a parameter and pass; no name means Adam for a transformer."""
    rates = kernel_rates(load_device("a100", SHIPPED), "amp-bf16", "torch2")
    usual = model_time("gpt2", None, 8, rates)
    asked = model_time("gpt2", None, 8, rates, optimizer=optimizer)
    ratio = PASSES_BY_OPERATION[optimizer] / PASSES_BY_OPERATION["adam"]
    products_s = 0.0
    if optimizer == "muon":  # five steps of Newton-Schulz on each hidden matrix, by hand
        width, flops = 768, 0.0
        for long, count in ((width, 1), (3 * width, 1), (4 * width, 2)):
            flops += 12 * count * 5 * (4 * width**2 * long + 2 * width**3)
        products_s = flops / rates.flops_per_s["product"]
    assert asked.update_s == pytest.approx(usual.update_s * ratio + products_s)
    assert asked.passes_s == usual.passes_s


def test_attention_of_an_iteration_goes_by_kernel_and_architecture() -> None:
    """The cuDNN kernel on Hopper is faster than FlashAttention 2 there."""
    device = load_device("h100", SHIPPED)
    works = [
        work
        for work, _ in work_of(gpt2("gpt2"), "torch2").counted
        if work.kind == "attention" and work.causal
    ]
    assert works
    eager, tuned = (kernel_rates(device, "amp-bf16", era) for era in ("torch2", "mlperf"))
    ratio = ATTENTION["cudnn", "Hopper"].both / ATTENTION["flash2", "Hopper"].both
    assert tuned.flops_per_s["attention"] / eager.flops_per_s["attention"] == pytest.approx(ratio)
    short = works[0]._replace(tokens=512)
    assert eager.seconds(short, 8, True) > eager.seconds(works[0], 8, True)


def test_work_time_is_that_of_the_named_model() -> None:
    rates = kernel_rates(load_device("v100", SHIPPED), "fp32", "torch1.8")
    assert work_time(work_of(gpt2("gpt2"), "torch1.8"), 4, rates) == model_time(
        "gpt2", None, 4, rates
    )


def test_a_faster_board_prices_faster() -> None:
    """Twice the rate and bandwidth halve all but the launch."""
    device = H100.device
    twice = replace(
        device,
        rates={name: rate._replace(value=2 * rate.value) for name, rate in device.rates.items()},
        memory_bandwidth=device.memory_bandwidth._replace(value=2 * device.memory_bandwidth.value),
    )
    slow = KernelTimes(device, {}, {}).product(4096, 4096, 4096).seconds - 2.8e-6
    fast = KernelTimes(twice, {}, {}).product(4096, 4096, 4096).seconds - 2.8e-6
    assert slow == pytest.approx(2 * fast)
