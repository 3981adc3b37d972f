"""Tokens a second, model FLOPs and MFU, as public tables count them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.device import load_device
from perfsim.models import NAMED, build_model, defined_models, takes_tokens
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario
from perfsim.throughput import CONVENTIONS, Throughput, model_flops, throughput_of
from support.builders import hand_device
from support.commands import answer, run
from support.what_ships import SHIPPED


def a_token(model: str, tokens: int) -> dict[str, float]:
    """Return GFLOP a token by convention."""
    return {name: work / tokens / 1e9 for name, work in model_flops(model, tokens).items()}


# Published

DENSE_PEAKS = {"a100": 312e12, "h100": 989.5e12, "v100": 125e12}
"""Dense 16-bit peaks of the data sheets (NVIDIA A100 and H100 SXM, V100): 312, 989.5, 125 TFLOP/s,
as llm-foundry divides by them too."""


@pytest.mark.parametrize(
    ("convention", "published"),
    # Work of Llama 3 8B at 8192 tokens: 6 x 8.03 G parameters; Megatron-LM with half of attention;
    # torchtitan and nanotron with all of it and no embedding; llm-foundry.
    [("6n", 48.2), ("causal", 51.5), ("products", 57.9), ("palm", 61.1)],
)
def test_the_work_of_llama_3_by_each_convention(convention: str, published: float) -> None:
    assert a_token("llama3-8b", 8192)[convention] == pytest.approx(published, abs=0.05)


@pytest.mark.parametrize(
    ("model", "seq", "rate", "tflops", "mfu"),
    # mosaicml/llm-foundry@8c8dd48 scripts/train/benchmarking/README.md (Apache-2.0), 8 H100:
    # tokens a second and GPU, Model TFLOP, MFU in per cent.
    [
        ("mpt-7b", 2048, 10643, 459, 46.44),
        ("mpt-7b", 8192, 6935, 367, 37.14),
        ("mpt-1b", 2048, 45455, 413, 41.82),
        ("mpt-760m", 8192, 41825, 344, 34.84),
    ],
)
def test_palms_count_is_that_of_llm_foundry(
    model: str, seq: int, rate: float, tflops: float, mfu: float
) -> None:
    found = throughput_of(model, seq, load_device("h100", SHIPPED), "amp-bf16", 8 * rate / seq, 8)
    flops = found.flops_per_gpu("palm")
    assert flops is not None
    assert int(flops / 1e12) == tflops  # it drops the decimals
    assert 100 * (found.mfu("palm") or 0) == pytest.approx(mfu, abs=0.04)


def test_the_published_work_of_mpt_7b_at_its_published_rate() -> None:
    # (6 x 6.6589 G + 12 x 32 x 4096 x 2048) x 10643 = 459.5 T.
    assert a_token("mpt-7b", 2048)["palm"] * 10643e9 == pytest.approx(459.5e12, rel=1e-3)


def test_experts_count_as_far_as_they_work() -> None:
    # Mixtral works with 12.9 of its 46.7 billion parameters for a token (arXiv 2401.04088, 2.1).
    assert a_token("mixtral-8x7b", 4096)["6n"] == pytest.approx(6 * 12.9, rel=0.005)
    # DeepSeek-V3 with 37 of 671 billion (arXiv 2412.19437, section 4.2).
    assert a_token("deepseek-v3", 4096)["6n"] == pytest.approx(6 * 37, rel=0.02)


@pytest.mark.parametrize(("gpu", "peak"), DENSE_PEAKS.items())
def test_the_peak_is_that_of_the_data_sheet(gpu: str, peak: float) -> None:
    device = load_device(gpu, SHIPPED)
    half = "amp-bf16" if "amp-bf16" in device.rates else "amp-fp16"
    found = throughput_of("gpt3-1.3b", 2048, device, half, 1.0, 1)
    assert found.peak_flops == pytest.approx(peak, rel=0.005)
    assert set(device.peaks) == set(device.rates)
    assert all(device.peaks[name] >= rate.value for name, rate in device.rates.items())


# By hand

MADE = Throughput(100.0, 4, 512, {"products": 2e12, "6n": 1e12}, 1e14)


def test_rates_by_hand() -> None:
    # 100 samples of 512 tokens on 4 GPUs, 2 TFLOP each: 50 TFLOP/s a GPU, half of the peak.
    assert MADE.to_dict() == {
        "tokens_per_s": 51200.0,
        "tokens_per_s_per_gpu": 12800.0,
        "model_tflops_per_gpu": 50.0,
        "mfu": {"products": 0.5, "6n": 0.25},
    }
    assert MADE.mfu("palm") is None and MADE.flops_per_gpu("palm") is None


def test_the_peak_of_several_types_is_that_of_all_gpus() -> None:
    # 12 V100 of 15.7 TFLOP/s and 4 P100 of 9.3 (their data sheets, fp32, SXM2 and PCIe).
    fields = {"model": "gpt2", "gpu": "v100:12,p100:4", "net": "ib100", "batch": 1}
    made = predict(make_scenario(fields), SHIPPED).throughput
    work = made.samples_per_s * made.flops_per_sample["6n"]
    assert made.mfu("6n") == pytest.approx(work / (12 * 15.7e12 + 4 * 9.3e12))


def test_what_is_not_known_is_left_out() -> None:
    images = MADE._replace(tokens=None, peak_flops=0.0)
    assert images.tokens_per_s is None
    assert images.to_dict()["tokens_per_s_per_gpu"] is None
    assert images.mfu() is None and images.flops_per_gpu() == 5e13
    device = replace(hand_device(), peaks={})
    assert throughput_of("hand", None, device, "fp32", 1.0, 1).to_dict() == {
        "tokens_per_s": None,
        "tokens_per_s_per_gpu": None,
        "model_tflops_per_gpu": None,
        "mfu": {},
    }


def test_the_products_are_three_times_the_forward_pass() -> None:
    for model in (*defined_models(), "llama3-8b"):
        forward = sum(layer.flops for layer in build_model(model))
        assert model_flops(model, None)["products"] == 3 * forward


# Laws

TEXT = sorted(name for name in NAMED if takes_tokens(name))
DECODERS = [name for name in TEXT if NAMED[name].family == "decoder" and not NAMED[name].window]


@given(model=st.sampled_from(TEXT), tokens=st.integers(8, 2048))
def test_conventions_come_in_order(model: str, tokens: int) -> None:
    found = model_flops(model, tokens)
    assert set(found) == set(CONVENTIONS)
    assert 0 < found["causal"] <= found["products"]
    assert found["6n"] < found["palm"]


@given(model=st.sampled_from(DECODERS), tokens=st.integers(8, 1024))
def test_attention_is_what_grows_with_the_square_of_the_tokens(model: str, tokens: int) -> None:
    once, twice = model_flops(model, tokens), model_flops(model, 2 * tokens)
    # products - causal is half of attention, as palm - 6n is attention.
    half = once["products"] - once["causal"]
    assert twice["products"] - twice["causal"] == pytest.approx(4 * half)
    attention = once["palm"] - once["6n"]
    assert twice["palm"] - twice["6n"] == pytest.approx(4 * attention)
    if not NAMED[model].kv_rank:
        assert attention == pytest.approx(2 * half)


# In predictions


def ask(**fields: Any) -> Prediction:
    """Return the prediction of Llama 3 8B on 16 H100, or as asked."""
    asked = {"model": "llama3-8b", "gpus": 16, "gpu": "h100", "net": "100gbe", "method": "fsdp"}
    return predict(make_scenario(asked | fields), SHIPPED)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_prediction_counts_tokens_of_all_its_samples(accumulate: int) -> None:
    found = ask(seq=2048, batch=2, accumulate=accumulate)
    tokens = 16 * 2 * accumulate * 2048
    assert found.throughput.tokens_per_s == pytest.approx(tokens / found.iteration_s)
    flops = found.throughput.flops_per_gpu()
    work = model_flops("llama3-8b", 2048)["products"]
    assert flops == pytest.approx(2 * accumulate * work / found.iteration_s)
    assert found.throughput.mfu() == pytest.approx((flops or 0) / DENSE_PEAKS["h100"], rel=0.005)


def test_what_is_computed_again_is_no_model_work() -> None:
    plain, again = ask(gpus=1), ask(gpus=1, recompute="full")
    assert again.throughput.flops_per_sample == plain.throughput.flops_per_sample
    assert (again.throughput.mfu() or 1) < (plain.throughput.mfu() or 0)


def test_the_share_of_the_peak_is_printed_and_in_the_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = "predict --model mpt-7b --seq 2048 --gpus 8 --gpu h100 --net 100gbe --method fsdp"
    found = answer(asked, capsys)["throughput"]
    assert set(found) == {
        "tokens_per_s",
        "tokens_per_s_per_gpu",
        "model_tflops_per_gpu",
        "mfu",
    }
    assert set(found["mfu"]) == set(CONVENTIONS)
    assert found["tokens_per_s"] == pytest.approx(8 * found["tokens_per_s_per_gpu"])
    _, out, _ = run(f"{asked} -v", capsys)
    [line] = [line for line in out.splitlines() if line.startswith("throughput ")]
    assert f"MFU {found['mfu']['products']:.1%}" in line
    assert f"a GPU computes  {found['model_tflops_per_gpu']:.3g} TFLOP/s" in out
    _, images, _ = run("predict --model resnet50 --gpus 8", capsys)
    assert not any(line.startswith("tokens ") for line in images.splitlines())
