"""Software eras: which measurement belongs to which, and what a kernel costs in each."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfsim.compute.device import Device, load_device
from perfsim.compute.execution import execution_of
from perfsim.compute.kernel import Kernel, elementwise, method_code
from perfsim.compute.kernel_time import kernel_rates, model_time
from perfsim.compute.software import (
    ERAS,
    NEWEST,
    eras_of,
    nearest_era,
    neighbour_eras,
    software_era,
    software_named,
)
from perfsim.compute.stages import DTENSOR_S
from perfsim.compute.work import work_of
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.methods.building.sparsify import exact, in_era, sampled_threshold
from perfsim.models import build_model
from perfsim.models.layers import is_expert
from perfsim.models.split import Degrees, split_layers
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED


def device(tmp_path: Path, *rows: str, software: str = NEWEST) -> Device:
    """Return a GPU of 1 TB/s and 10 us a launch with these points, in an era."""
    folder = tmp_path / "devices"
    folder.mkdir(exist_ok=True)
    (folder / "hand.toml").write_text(
        """schema = "perfsim/device/1"
name = "hand"
title = "hand"
memory = "16 GB"
[memory_bandwidth]
value = "1000 GB/s"
kind = "measured"
source = "by hand"
[launch]
value = "10 us"
kind = "measured"
source = "by hand"
[rates.fp32]
peak = "10 TFLOP/s"
source = "by hand"
"""
    )
    head = "kernel,elements,width,time_us,kind,software,source,note\n"
    text = "# schema: perfsim/kernels/1\n# gpu: hand\n" + head + "\n".join(rows) + "\n"
    (folder / "hand.kernels.csv").write_text(text)
    return load_device("hand", Catalog(tmp_path), software)


def microseconds(gpu: Device, kernel: Kernel) -> float:
    return gpu.cost(kernel).seconds * 1e6


# By hand


@pytest.mark.parametrize(
    ("software", "eras"),
    [
        ("PyTorch 1.5.1", ["torch1.1"]),
        ("PyTorch 1.6", ["torch1.8"]),
        ("PyTorch 1.10.2, CUDA 11.3", ["torch1.8"]),
        ("PyTorch 1.11", ["torch1.12"]),
        ("PyTorch 2.13.0+cu130", ["torch2"]),
        ("PyTorch before 1.8.1", ["torch1.1", "torch1.8"]),
        ("PyTorch before 1.11, measured in 1.1", ["torch1.1", "torch1.8"]),
        ("PyTorch since 1.11", ["torch1.12", "torch2"]),
        ("MXNet 1.2", ["mxnet-2017"]),
        ("TensorFlow 1.15 with XLA", ["tensorflow-2017"]),
        ("PyTorch, cuSOLVER", []),
        ("cuSZp 3", []),
        ("none", []),
    ],
)
def test_the_version_that_is_named_decides_the_era(software: str, eras: list[str]) -> None:
    assert list(eras_of(software)) == eras


def test_a_method_takes_the_points_of_its_era_or_of_the_nearest(tmp_path: Path) -> None:
    rows = (
        "encode,1000,0,100,measured,PyTorch 1.4,here,",
        "encode,1000,0,400,measured,PyTorch 1.9,here,",
        "library,1000,0,70,measured,PyTorch 1.9,here,",
        "always,1000,0,30,measured,none,here,",
    )
    encode = method_code("encode", 1000, elementwise(1000, 250, 2))  # 1 MB and two launches
    costs = {era: microseconds(device(tmp_path, *rows, software=era), encode) for era in ERAS}
    # Before 1.6 and its contemporaries 100; 1.8 and the nearest to it 400; else 1 us and 2 x 10 us.
    assert costs == pytest.approx(
        {
            "mxnet-2017": 100,
            "tensorflow-2017": 100,
            "torch1.1": 100,
            "torch1.8": 400,
            "graph-2020": 400,
            "ngc-2020": 400,
            "torch1.12": 400,
            "composer-2023": 400,
            "torch2": 21,
            "megatron": 21,
            "torch2-compiled": 21,
            "mlperf": 21,
        }
    )
    for era in ERAS:
        gpu = device(tmp_path, *rows, software=era)
        assert microseconds(gpu, Kernel("library", 1000, 0.0)) == pytest.approx(70)
        assert microseconds(gpu, Kernel("always", 1000, 0.0)) == pytest.approx(30)


def test_a_reference_measured_in_the_era_comes_before_the_parts(tmp_path: Path) -> None:
    row = "encode,1000,0,{},measured,PyTorch {},here,"
    encode = method_code("encode", 1000, elementwise(1000, 250, 2))
    old = device(tmp_path, row.format(400, "1.9"))
    new = device(tmp_path, row.format(50, "2.4"))
    assert microseconds(replace(old, references=(new,)), encode) == pytest.approx(50)
    assert replace(old, references=(new,)).measured_here(encode) and not old.measured_here(encode)


@pytest.mark.parametrize(
    ("software", "milliseconds"),
    # pytorch/pytorch issue 22812: 25.6 ms of one block for 2 million on a GP100, 3.2 ms by sorting;
    # many blocks: 7 passes of 8 MB at 538 GB/s, and 7 launches of 11 us.
    [("torch1.1", 25.576), ("torch1.8", 25.576), ("torch1.12", 3.197), ("torch2", 0.1811)],
)
def test_top_k_of_two_million_on_p100_in_its_three_regimes(
    software: str, milliseconds: float
) -> None:
    gpu = load_device("p100", SHIPPED, software)
    found = gpu.cost(exact(2_000_000, "auto", software)).seconds * 1e3
    assert found == pytest.approx(milliseconds, rel=1e-3)


def test_top_k_by_sorting_is_faster_than_one_block_as_its_author_found() -> None:
    """Pull request 68632: 3.743 times for 100,000 of fp32, 21.39 times for a million."""
    gpu = load_device("v100", SHIPPED, "torch1.12")
    for elements, times in ((100_000, 3.743), (1_000_000, 21.39)):
        one, sort = (gpu.cost(exact(elements, kind)).seconds for kind in ("old", "sort"))
        assert one / sort == pytest.approx(times, rel=1e-3)


def test_slices_below_100_000_are_not_sorted() -> None:
    names = [exact(elements, "auto", "torch1.12").name for elements in (99_999, 100_000)]
    assert names == ["topk_old", "topk_sort"]


def test_many_blocks_stream_fp16_within_the_bandwidth_of_an_l20() -> None:
    """Issue 167462: 128 slices of 8 million fp16 values in 11.3 ms; an L20 has 864 GB/s."""
    passes = 11.3e-3 * 864e9 / (128 * 8e6 * 2)
    # Two digits of 8 bits, so some 2.4 passes a digit and no more than 7 for fp32's four, with
    # what does not depend on digits taken off.
    assert 4 < passes < 5 and exact(1000, "new").moved_bytes == 7 * 4 * 1000


# By law


def test_neighbours_are_eager_and_on_either_side() -> None:
    for era in ERAS:
        for other in neighbour_eras(era):
            assert ERAS[other].framework == "pytorch" and ERAS[other].year != ERAS[era].year
    assert nearest_era("torch2-compiled", ["torch1.12", "torch2"]) == "torch2"


@pytest.mark.parametrize("elements", [1000, 10**5, 10**6, 25_557_032])
@pytest.mark.parametrize("gpu", ["v100", "a100", "p100", "t4"])
def test_a_sampled_threshold_is_cheaper_than_the_exact_top_k_that_it_replaces(
    gpu: str, elements: int
) -> None:
    """In each era of one block: why DGC exists. With many blocks it may be either."""
    for era in ("torch1.1", "torch1.8"):
        loaded = load_device(gpu, SHIPPED, era)
        exactly = loaded.cost(exact(elements, "auto", era)).seconds
        sampled = loaded.cost(sampled_threshold(elements, 0.001, era)).seconds
        assert sampled < exactly or elements < 10**5


def test_dgc_made_of_its_operations_is_of_the_order_of_what_was_measured() -> None:
    """Espresso and DRAGONN, PyTorch 1.8, V100; host waits and warm caches are not in the parts."""
    measured = load_device("v100", SHIPPED, "torch1.8")
    bare = replace(measured, points={"topk_old": measured.points["topk_old"]}, references=())
    for elements in (2**20, 2**25, 2**27):
        kernel = sampled_threshold(elements, 0.01, "torch1.8")
        ratio = measured.cost(kernel).seconds / bare.cost(kernel).seconds
        assert 1 < ratio < 3


def test_in_another_era_a_kernel_selects_as_that_era_does() -> None:
    kernel = sampled_threshold(10**7, 0.001, "torch2")
    older = in_era(kernel, "torch1.12")
    assert [one.name for one in older.parts if one.name.startswith("topk")] == ["topk_sort"]
    assert in_era(elementwise(10, 1), "torch1.1") == elementwise(10, 1)


def test_every_era_predicts_and_says_which_it_is() -> None:
    for era in ERAS:
        asked = {"model": "resnet18", "gpus": 4, "method": "dgc", "software": era}
        found = predict(make_scenario(asked))
        assert found.to_dict()["scenario"]["software"] == era and found.iteration_s > 0


# Bad input


def test_an_unknown_era_gives_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"software: no 'torch1\.9'; did you mean 'torch1\.8'"):
        make_scenario({"model": "resnet18", "gpus": 4, "software": "torch1.9"})
    with pytest.raises(RequestError, match="software"):
        load_device("v100", SHIPPED, "torch9")


def test_the_sample_of_a_density_near_zero_is_the_whole_tensor() -> None:
    """2 over such a density is more than a float holds."""
    assert sampled_threshold(1000, 1e-310, "torch2").parts[1].elements == 1000


# A kernel of attention behind an era


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("megatrn+unfused", "did you mean 'megatron'"),
        ("megatron+flash5", "did you mean 'flash4'"),
        (
            "megatron+",
            "Allowed: aiter, cudnn, flash2, flash3, flash4, unfused; or an era alone, such as",
        ),
        ("composer-2023+flash3", "flash3 is of 2024, composer-2023 of 2023; leave +flash3 out"),
        ("torch1.8+flash2", "flash2 is of 2023, torch1.8 of 2021; leave +flash2 out"),
    ],
)
def test_a_kernel_that_an_era_cannot_have_is_refused(text: str, why: str) -> None:
    with pytest.raises(RequestError, match=re.escape(why)):
        software_named(text)


@pytest.mark.parametrize("era", ["megatron", "torch2", "torch2-compiled", "mlperf"])
def test_attention_of_single_kernels_takes_longer_and_the_rest_as_long(era: str) -> None:
    """Only attention changes with its kernel; measured kernels of methods are those of the era."""
    fields = {"model": "gpt3-1.3b", "gpus": 8, "node": "dgx-h100", "software": era}
    fused, unfused = (
        predict(make_scenario(fields | {"software": one}), SHIPPED)
        for one in (era, f"{era}+unfused")
    )
    assert unfused.iteration_s > fused.iteration_s
    assert unfused.breakdown_s["update"] == pytest.approx(fused.breakdown_s["update"])
    own, other = (work_of(build_model("gpt3-1.3b", 2048), one) for one in (era, f"{era}+unfused"))
    for layer, beside in zip(own.layers, other.layers, strict=True):
        assert layer.module == "core_attn" or layer == beside
    assert software_era(f"{era}+unfused") is ERAS[era]


def test_newer_attention_is_faster_on_hopper() -> None:
    fields = {"model": "llama3-8b", "gpus": 64, "node": "dgx-h100", "method": "fsdp"}
    seconds = [
        predict(make_scenario(fields | {"software": f"megatron{kernel}"}), SHIPPED).iteration_s
        for kernel in ("+unfused", "+flash2", "+flash3", "+cudnn", "")
    ]
    assert seconds[0] > seconds[1] > seconds[2] > seconds[3] == seconds[4]


@pytest.mark.parametrize("text", ["FA3", "flash_attention_3", "FlashAttention-3", "flash_attn_3"])
def test_flash_attention_may_be_written_as_others_write_it(text: str) -> None:
    assert software_named(f"torch2+{text}") == "torch2+flash3"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"gpu": "a100", "software": "torch2+flash3"}, "not a100; take torch2+flash2"),
        ({"gpu": "a800", "software": "torch2+flash3"}, "not a800; take torch2+flash2"),
        ({"gpu": "b200", "software": "megatron+flash3"}, "take megatron+cudnn"),
        ({"gpu": "h100", "software": "torch2+flash4"}, "not h100; take torch2+cudnn"),
        ({"gpu": "rtx5090", "software": "torch2+flash4"}, "not rtx5090; take torch2+flash2"),
        ({"gpu": "h100", "software": "torch2+aiter"}, "not h100; take torch2+cudnn"),
        ({"gpu": "mi300x", "software": "torch2+cudnn"}, "not mi300x; take torch2+aiter"),
        ({"precision": "fp32", "software": "torch2+flash2"}, "not fp32; take torch2"),
        ({"precision": "tf32", "software": "torch2+cudnn"}, "not tf32; take torch2"),
    ],
)
def test_a_kernel_that_a_gpu_or_precision_cannot_have_is_refused(
    fields: dict[str, str], why: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(why)):
        predict(make_scenario({"model": "gpt2", "gpus": 1, **fields}), SHIPPED)


# Experts in a loop


def test_a_loop_over_experts_stands_behind_the_kernel() -> None:
    assert software_named("Torch2+Loop+Flash2") == "torch2+flash2+loop"
    assert software_era("torch2+flash2+loop") is ERAS["torch2"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("megatron+loop", "experts run in a loop in torch2 only; leave +loop out"),
        ("torch1.8+loop", "experts run in a loop in torch2 only"),
        ("torch2+lop", "did you mean 'loop'"),
        ("torch2+flash2+cudnn", "one kernel of attention may follow torch2, and loop once"),
        ("torch2+loop+loop", "one kernel of attention may follow torch2, and loop once"),
    ],
)
def test_other_software_has_no_loop(text: str, why: str) -> None:
    with pytest.raises(RequestError, match=re.escape(why)):
        software_named(text)


def test_convolutions_on_maps_with_channels_last_change_no_layout() -> None:
    """As timm measured in both layouts on an RTX 3090, 516.5 and 380.5 ms; fp32 has no layout."""
    rtx, last = load_device("rtx3090", SHIPPED), "torch1.12+channels-last"
    for software, ms in (("torch1.12", 516.516), (last, 380.547)):
        half = kernel_rates(rtx, "amp-fp16", software)
        assert model_time("resnet152", None, 192, half).iteration_s * 1e3 == pytest.approx(
            ms, rel=0.1
        )
        assert kernel_rates(rtx, "fp32", software).conversions == 0.0
    assert software_named("torch2+channels_last+flash2") == "torch2+flash2+channels-last"
    with pytest.raises(RequestError, match="torch2, torch2-compiled only"):
        software_named("megatron+channels-last")


def test_multihead_attention_copies_what_it_attends_with() -> None:
    """14 and 51 values of one that attention writes, and 16 operations."""
    vit = [layer for layer in build_model("vit-b16") if layer.kind == "attention"]
    plain, copied = (work_of(vit, software) for software in ("torch2", "torch2+mha"))
    for before, after, layer in zip(plain.layers, copied.layers, vit, strict=True):
        for way, values in (("forward", 14), ("backward", 51)):
            more = Counter(getattr(after, way)) - Counter(getattr(before, way))
            assert [work.values for work in more] == [values * layer.outputs]
        assert after.operations == before.operations + 16
    with pytest.raises(RequestError, match="is run eagerly in torch2 only"):
        software_named("torch2-compiled+mha")


def test_ligers_kernels_pass_over_values_once() -> None:
    """Positions and an RMSNorm of Llama: 4 and 5 values, 24 and 58 by operations; a gate 8."""
    llama = [layer for layer in build_model("llama3-8b", 64) if ".layers.0." in layer.name]
    moved = {
        layer.name.rpartition(".")[2]: sum(
            work.values for both in (made.forward, made.backward) for work in both if work.counted
        )
        for layer, made in zip(llama, work_of(llama, "torch2+liger").layers, strict=True)
    }
    assert moved["input_layernorm"] == 5 * 64 * 4096
    assert moved["q_proj"] + moved["k_proj"] == 4 * 64 * (4096 + 1024)
    assert (moved["gate_proj"], moved["up_proj"]) == (0, 8 * 64 * 14336)
    with pytest.raises(RequestError, match="Liger's kernels run in torch2 only"):
        software_named("megatron+liger")
    asked = {"model": "qwen3-0.6b", "gpus": 4, "gpu": "h100", "batch": 4, "seq": 4096}
    eager, liger, compiled = (
        predict(make_scenario(asked | {"software": software}))
        for software in ("torch2", "torch2+liger", "torch2-compiled")
    )
    assert compiled.iteration_s < liger.iteration_s < 0.75 * eager.iteration_s
    assert sum(liger.memory_bytes.values()) < sum(eager.memory_bytes.values())


def test_blocks_alone_may_be_compiled() -> None:
    """A kernel of attention goes before; what iterations elsewhere say holds as of the era."""
    assert software_named("torch2-compiled+Blocks+flash2") == "torch2-compiled+flash2+blocks"
    with pytest.raises(RequestError, match="blocks alone are compiled in torch2-compiled only"):
        software_named("torch2+blocks")
    asked = {"model": "llama3-8b", "gpus": 8, "gpu": "h100", "batch": 1, "seq": 8192}
    blocks, whole = (
        predict(make_scenario(asked | {"software": f"torch2-compiled{how}", "method": "fsdp"}))
        for how in ("+blocks", "")
    )
    # The loss passes over the outputs by single kernels: 128,256 words of 8,192 tokens.
    assert 1.0 < blocks.iteration_s / whole.iteration_s < 1.02
    assert sum(blocks.memory_bytes.values()) > sum(whole.memory_bytes.values())


def test_a_loop_launches_each_expert_s_operations() -> None:
    """32 operations an expert of Qwen3, 65 of gpt-oss; frozen ones make no gradient of a weight."""
    layers = build_model("qwen3-30b-a3b", 1024)
    loop, grouped = (work_of(layers, era) for era in ("torch2+loop", "torch2"))
    last = next(layer for layer in loop.layers if layer.name.endswith("experts.down_proj"))
    assert last.experts_s == pytest.approx(((128 * 12 + 9) * 41e-6, (128 * 20 + 2) * 41e-6))
    assert sum(any(layer.experts_s) for layer in loop.layers) == 48
    assert not any(any(layer.experts_s) for layer in grouped.layers)
    frozen = [layer._replace(frozen=is_expert(layer)) for layer in layers]
    again = next(one for one in work_of(frozen, "torch2+loop").layers if any(one.experts_s))
    assert again.experts_s[1] == pytest.approx(last.experts_s[1] - 128 * 3 * 41e-6)
    biased = work_of(build_model("gpt-oss-20b", 1024), "torch2+loop").layers
    found = next(one.experts_s for one in biased if any(one.experts_s))
    assert found == pytest.approx(((32 * 23 + 9) * 41e-6, 32 * 42 * 41e-6))


def test_a_loop_fills_gradients_of_all_tokens_and_of_all_experts() -> None:
    """Four passes for each expert: over all tokens' gradient and, of gpt-oss, all experts'."""
    for model, experts, width in (("qwen3-30b-a3b", 128, 2048), ("gpt-oss-20b", 32, 2880)):
        layers = build_model(model, 1024)
        loop, grouped = (
            [one for one in work_of(layers, era).layers if ".experts." in one.name]
            for era in ("torch2+loop", "torch2")
        )
        first, last = (
            Counter(one.backward) - Counter(other.backward)
            for one, other in zip(loop[:2], grouped[:2], strict=True)
        )
        assert [one.values for one in last if one.values] == [4 * experts * 1024 * width]
        moved = [4 * one.weights for many in (first, last) for one in many if one.weights]
        whole = sum(layer.elements for layer in layers if is_expert(layer)) / len(loop) * 2
        assert sum(moved) == (4 * experts * 2 * whole if model == "gpt-oss-20b" else 0)


@pytest.mark.parametrize(
    ("degrees", "experts", "tokens"),
    [(Degrees(tp=2), 128, 1024), (Degrees(ep=8), 16, 1024), (Degrees(cp=2), 128, 512)],
)
def test_a_loop_in_a_divided_model_fills_gradients_of_a_rank_s_tokens(
    degrees: Degrees, experts: int, tokens: int
) -> None:
    """However its experts are divided; rows in the order of experts say nothing of tokens there."""
    layers = split_layers(build_model("qwen3-30b-a3b", 1024), degrees)
    loop, grouped = (
        next(one for one in work_of(layers, era).layers if one.name.endswith("experts.down_proj"))
        for era in ("torch2+loop", "torch2")
    )
    more = Counter(loop.backward) - Counter(grouped.backward)
    assert [one.values for one in more] == [pytest.approx(4 * experts * tokens * 2048)]


@pytest.mark.parametrize(
    ("model", "gpu"), [("llama3-8b", "h100"), ("gpt2", "v100"), ("resnet50", "v100")]
)
def test_a_loop_over_experts_changes_no_model_without_any(model: str, gpu: str) -> None:
    one, other = (
        predict(make_scenario({"model": model, "gpus": 8, "gpu": gpu, "software": era}), SHIPPED)
        for era in ("torch2", "torch2+loop")
    )
    assert one.iteration_s == other.iteration_s
    assert one.iteration_s_interval == other.iteration_s_interval


def test_a_prediction_says_that_experts_run_in_grouped_products() -> None:
    fields = {"model": "qwen3-30b-a3b", "gpus": 16, "node": "dgx-h100", "batch": 1, "seq": 4096}
    fields |= {"method": "zero", "options": {"stage": 3}, "recompute": "full"}
    grouped, loop = (
        predict(make_scenario(fields | {"software": era}), SHIPPED)
        for era in ("torch2", "torch2+loop")
    )
    assert loop.iteration_s > 3 * grouped.iteration_s
    said = [[note for note in one.warnings if "grouped" in note] for one in (grouped, loop)]
    assert len(said[0]) == 1
    assert "torch2+loop" in said[0][0]
    assert not said[1]


def test_dtensors_host_takes_longer_for_each_block() -> None:
    """By hand: 64 blocks of Qwen3-32B with normed heads, all computed again, on 8 ranks."""
    fields = {"model": "qwen3-32b", "gpus": 8, "gpu": "h100", "gpus_per_node": 8, "tp": 8}
    fields |= {"batch": 1, "seq": 512, "precision": "bf16", "recompute": "full"}

    def seconds(software: str, **more: Any) -> float:
        asked = make_scenario(fields | {"software": software} | more)
        return predict(asked, SHIPPED).iteration_s

    plain, divided = seconds("torch2+flash2"), seconds("torch2+flash2+dtensor")
    # The host sets the pace of both, so that what it takes longer shows whole.
    assert divided - plain == pytest.approx(64 * (2 * 3.37e-3 + 5.14e-3), rel=0.05)
    whole = {"sequence_parallel": False}
    longer = seconds("torch2+flash2+dtensor", **whole) - seconds("torch2+flash2", **whole)
    assert longer == pytest.approx(64 * (2 * 2.22e-3 + 3.31e-3), rel=0.05)
    alone = {"tp": 1, "method": "fsdp"}
    assert seconds("torch2+dtensor", **alone) == seconds("torch2", **alone)
    with pytest.raises(RequestError, match="DTensor is run eagerly in torch2 only"):
        software_named("torch2-compiled+dtensor")


def test_what_dtensors_host_takes_is_what_was_measured() -> None:
    """By the stored output: a way's forward and backward pass, less those of plain tensors [ms]."""
    text = (Path(__file__).parents[1] / "scripts" / "dtensor_host.txt").read_text()
    rows = re.findall(r"^(.*?)  +([\d.]+) +([\d.]+) ", text, re.MULTILINE)
    measured = {name: (float(forward), float(backward)) for name, forward, backward in rows}
    for (sequence, normed), seconds in DTENSOR_S.items():
        heads = "norms of heads: " if normed else ""
        way = "gathered once" if sequence else "no sequence parallelism"
        plain, divided = measured[f"{heads}plain tensors"], measured[f"{heads}DTensor, {way}"]
        longer = [after - before for before, after in zip(plain, divided, strict=True)]
        assert [1e3 * one for one in seconds] == pytest.approx(longer)


def test_megatrons_host_takes_as_long_for_an_operation_as_eager_pytorchs() -> None:
    """It launches half of them: the rest is fused (NVIDIA/TransformerEngine pull request 1191)."""
    eager, megatron = execution_of("torch2"), execution_of("megatron")
    assert megatron.op_s == megatron.eager_s == eager.op_s
    assert megatron.op_share == 0.5 * eager.op_share
