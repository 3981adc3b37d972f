"""Attention with a mask: PyTorch's memory-efficient kernel, by cycles of multiprocessors."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from perfsim import Scenario, predict
from perfsim.compute.attention import (
    MASKED,
    check_kernel,
    check_kernel_precision,
    fused_attention,
    multiprocessor_cycles,
)
from perfsim.compute.by_operations import MASKS, mask_values
from perfsim.compute.device import Device, load_device
from perfsim.compute.execution import execution_of
from perfsim.compute.memory import activation_bytes
from perfsim.compute.single_kernels import kernel_times
from perfsim.compute.work import model_work
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.models import build_model

CATALOG = Catalog()
MASK, NONE = "torch2+efficient", "torch2+flash2"
LLAMA, BERT, T5, GPT2 = "llama3-8b", "bert-base", "t5-base", "gpt2"


def gpu(name: str) -> Device:
    """Return a shipped GPU."""
    return load_device(name, CATALOG)


def attention(model: str, tokens: int, software: str) -> tuple[float, float]:
    """Return the operations of a model's attention, forward and in both passes."""
    work = model_work(model, tokens, software)
    both = [w for layer in work.layers for w in (*layer.forward, *layer.backward)]
    forward = [w for layer in work.layers for w in layer.forward]
    kernels = [[w.flops for w in works if w.kind == "attention"] for works in (forward, both)]
    return sum(kernels[0]), sum(kernels[1])


def kept(model: str, tokens: int, software: str, batch: int = 1) -> float:
    """Return the bytes that a model keeps for its backward pass in bf16."""
    layers = build_model(model, tokens)
    return activation_bytes(layers, batch, "bf16", execution_of(software), "none", loss=False).kept


def test_all_scores_are_computed_of_a_causal_mask_and_as_before_without_one() -> None:
    """Llama 3 8B: 32 layers of 32 heads of 128 on 1,024 tokens, 4 operations a score and value."""
    square = 32 * 32 * 4 * 128 * 1024**2
    assert attention(LLAMA, 1024, MASK) == pytest.approx((square, 3.5 * square))
    assert attention(LLAMA, 1024, NONE)[0] == pytest.approx(square / 2)
    assert attention(BERT, 512, MASK) == pytest.approx(attention(BERT, 512, NONE))


def test_a_window_and_documents_spare_nothing_behind_a_mask() -> None:
    """Mistral's window is 4,096 of 8,192 tokens; its mask is a square as any other."""
    heads, width, layers, tokens = 32, 128, 32, 8192
    square = layers * heads * 4 * width * tokens**2
    assert attention("mistral-7b", tokens, MASK)[0] == pytest.approx(square)
    assert attention("mistral-7b", tokens, NONE)[0] < square / 2
    asked = Scenario(model=LLAMA, gpus=1, gpu="a100", software=MASK, seq=2048, document_tokens=512)
    with pytest.raises(RequestError, match="no kernel of attention that stays within documents"):
        predict(asked)


def test_each_layer_keeps_a_mask_of_its_own() -> None:
    """GPT-2: 12 layers, as many heads of keys as of queries, 2 bytes for each pair of tokens."""
    for tokens in (256, 1024):
        more = kept(GPT2, tokens, MASK, 3) - kept(GPT2, tokens, NONE, 3)
        assert more == pytest.approx(3 * 12 * 2 * tokens**2)


def test_keys_and_values_are_kept_once_for_each_head_of_queries() -> None:
    """Llama 3 8B has 8 heads of keys and values for 32 of queries: 2 x 24 x 128 values more."""
    tokens = 512
    more = kept(LLAMA, tokens, MASK) - kept(LLAMA, tokens, NONE)
    assert more == pytest.approx(32 * 2 * (tokens**2 + 2 * 24 * 128 * tokens))


def test_a_bias_is_a_mask_of_each_head_and_takes_the_place_of_single_operations() -> None:
    """T5 in transformers after 5.0: fewer bytes than its softmax in fp32, and no products."""
    layers = [one for one in build_model(T5, 512) if one.kind == "attention"]
    biased = layers[0]
    assert biased.scores == "relative"
    assert mask_values(biased) == 12 * 512**2
    assert kept(T5, 512, MASK) < kept(T5, 512, "torch2") - 12 * 12 * 512**2
    assert attention(T5, 512, "torch2")[0] == 0.0
    assert attention(T5, 512, MASK)[0] > 0.0
    assert MASKS["relative"].passes[1] > MASKS["alibi"].passes[1]


def test_scores_that_no_mask_can_say_stay_single_operations() -> None:
    for scores in ("softcap", "sinks"):
        assert not execution_of(MASK).in_one_kernel(scores)
        assert execution_of(NONE).in_one_kernel(scores)
    assert execution_of("torch2-compiled+efficient").in_one_kernel("alibi")


@pytest.mark.parametrize(
    ("name", "clock"),
    [("a100", 1.41), ("a30", 1.44), ("h100", 1.98), ("rtx4090", 2.52), ("l40s", 2.52)],
)
def test_a_clock_is_that_of_the_data_sheet(name: str, clock: float) -> None:
    device = gpu(name)
    assert multiprocessor_cycles(device) / device.multiprocessors == pytest.approx(
        clock * 1e9, rel=0.01
    )


def test_a_gpu_of_twice_the_clock_takes_half_and_one_of_faster_tensor_cores_as_long() -> None:
    device = gpu("h100")
    twice = replace(device, peaks={**device.peaks, "fp32": 2.0 * device.peaks["fp32"]})
    rate, cycles = fused_attention("efficient", device, "amp-bf16")
    assert rate is MASKED
    assert fused_attention("efficient", twice, "amp-bf16")[1] == pytest.approx(2.0 * cycles)
    products = device.rates["amp-bf16"]
    faster = {**device.rates, "amp-bf16": products._replace(value=2.0 * products.value)}
    other = fused_attention("efficient", replace(device, rates=faster), "amp-bf16")
    assert other == (rate, cycles)


def test_fp32_values_run_the_kernel_as_before() -> None:
    for precision in ("fp32", "tf32"):
        with_word = fused_attention("efficient", gpu("a100"), precision)
        assert with_word == fused_attention("flash2", gpu("a100"), precision)


@pytest.mark.parametrize(
    ("name", "sizes", "backward", "measured_ms", "off"),
    [
        ("h100", (8, 4096, 16, 64), False, 8.704, 0.10),
        ("a100", (2, 16384, 4, 32), False, 9.579, 0.30),
        ("a100", (2, 16384, 4, 32), True, 35.790 - 9.579, 0.15),
    ],
)
def test_measured_times_of_the_kernel_with_a_bias(
    name: str, sizes: tuple[int, int, int, int], backward: bool, measured_ms: float, off: float
) -> None:
    """The pull request 121845 of PyTorch, and FlashBias@254a8b87.

    The A100's score takes the fewest cycles of the sources of the rate; its bias has a gradient.
    """
    times = kernel_times(name, CATALOG)
    for causal in (True, False):
        found = times.attention(*sizes, causal=causal, backward=backward, kernel="efficient")
        assert found.seconds * 1e3 == pytest.approx(measured_ms, rel=off)
        assert found.known == "rate"


def test_an_iteration_with_a_mask_takes_longer() -> None:
    asked = {"model": LLAMA, "gpus": 1, "gpu": "a100", "seq": 4096, "batch": 1}
    masked, plain = (predict(Scenario(**asked, software=one)) for one in (MASK, NONE))
    assert masked.iteration_s > 1.1 * plain.iteration_s


def test_newer_pytorch_is_named_where_it_takes_another_kernel() -> None:
    def notes(model: str, gpu: str, software: str) -> list[str]:
        asked = Scenario(model=model, gpus=1, gpu=gpu, software=software, precision="bf16")
        return list(predict(asked).notes)

    newer = "PyTorch 2.9 and since 2.11 takes cuDNN's"
    assert any(newer in note for note in notes(BERT, "h100", MASK))
    other = notes(BERT, "a100", MASK)
    assert any("Attention gets a mask" in note for note in other)
    assert not any("2.11" in note for note in other)
    t5 = notes(T5, "a100", "torch2")
    assert any("torch2+efficient PyTorch's with the bias as a mask" in note for note in t5)


@pytest.mark.parametrize("name", ["v100", "t4", "mi300x"])
def test_a_gpu_without_a_measured_rate_is_refused(name: str) -> None:
    why = f"efficient is for NVIDIA's GPUs from Ampere on, not {name}; take torch2."
    with pytest.raises(RequestError, match=re.escape(why)):
        check_kernel(MASK, gpu(name))


def test_fp32_values_are_refused_with_what_to_take() -> None:
    why = "not fp32, whose values run that kernel anyway; take torch2."
    with pytest.raises(RequestError, match=re.escape(why)):
        check_kernel_precision(MASK, "fp32")
    check_kernel_precision(MASK, "bf16")


def test_context_parallelism_takes_no_mask() -> None:
    """PyTorch 2.13, _context_parallel/_attention.py: attn_bias is not supported yet."""
    asked = {"model": LLAMA, "gpus": 8, "node": "dgx-h100", "seq": 8192, "cp": 2}
    why = "cp: PyTorch's context parallelism takes no mask; leave it out, or take torch2+liger."
    with pytest.raises(RequestError, match=re.escape(why)):
        predict(Scenario(**asked, software="torch2+efficient+liger"))
    assert predict(Scenario(**asked, software=NONE)).iteration_s > 0.0


def test_ranks_of_tensor_parallelism_share_heads_and_scores_but_not_the_mask() -> None:
    """Half of the heads have half of the kernel's operations, and the same mask."""
    layer = next(one for one in build_model(LLAMA, 1024) if one.kind == "attention")
    half = layer._replace(heads=layer.heads // 2, activation_bytes=layer.activation_bytes / 2)
    assert mask_values(half) == mask_values(layer) == 1024**2
