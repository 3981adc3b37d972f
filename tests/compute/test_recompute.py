"""Parts of a block that the backward pass computes again, by Megatron-LM's names."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.compute.device import load_device
from perfsim.compute.execution import execution_of
from perfsim.compute.kernel_time import (
    experts_host_s,
    kernel_rates,
    times_of_layers,
    work_time,
)
from perfsim.compute.memory import activation_bytes
from perfsim.compute.recompute import RECOMPUTE, check_modules, checked_recompute, is_again
from perfsim.compute.work import work_of
from perfsim.errors import RequestError
from perfsim.models import build_model
from perfsim.models.layers import MODULES, ModelLayer, is_expert
from perfsim.models.split import Degrees, split_layers
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

H100 = load_device("h100", SHIPPED)
TOKENS = 1024
DEEPSEEK = build_model("deepseek-v3", TOKENS)
GPT_OSS = build_model("gpt-oss-20b", TOKENS)
LLAMA = build_model("llama3-8b", TOKENS)
MEGATRON = execution_of("megatron")


def _passes_s(layers: tuple[ModelLayer, ...], again: str) -> float:
    rates = kernel_rates(H100, "amp-bf16", "megatron")
    return work_time(work_of(layers, "megatron"), 1, rates, recompute=again).passes_s


def _kept(layers: tuple[ModelLayer, ...], again: str, era: str = "megatron") -> float:
    return activation_bytes(layers, 1, "bf16", execution_of(era), again).kept


# What may be asked


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("moe_act+layernorm", "layernorm+moe_act"),
        ("Layernorm, MoE-act", "layernorm+moe_act"),
        ("mlp+mlp", "mlp"),
        ("SELECTIVE", "selective"),
        ("Full:5", "full:5"),
    ],
)
def test_parts_are_kept_in_one_order(given: str, kept: str) -> None:
    assert checked_recompute(given, "recompute") == kept
    asked = {"model": "deepseek-v3", "gpus": 8, "node": "dgx-b200", "recompute": given}
    assert make_scenario(asked).recompute == kept or kept == "mlp"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("layernrm", "did you mean 'layernorm'"),
        ("full+mlp", "full stands by itself"),
        ("mlp++moe", "no ''"),
        ("", "it must not be empty"),
        *((f"full:{word}", "says of how many blocks") for word in ("0", "x", "-3", "", "5:5")),
        ("selective:2", "no 'selective:2'"),
    ],
)
def test_other_words_are_refused(given: str, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        make_scenario({"model": "llama3-8b", "gpus": 8, "gpu": "h100", "recompute": given})


@pytest.mark.parametrize(
    ("model", "parts", "has"),
    [
        ("llama3-8b", "moe_act", "core_attn, layernorm or mlp"),
        ("gpt-oss-20b", "mla_up_proj", "core_attn, layernorm, moe or moe_act"),
        ("gpt-oss-20b", "mlp", "core_attn, layernorm, moe or moe_act"),
        ("bert-large", "mlp", "core_attn"),
    ],
)
def test_parts_that_a_model_lacks_are_refused(model: str, parts: str, has: str) -> None:
    layers = build_model(model, 512)
    with pytest.raises(RequestError, match=f"has no {parts}; .* it has {has}"):
        check_modules(parts, layers, model)


def test_deepseek_has_all_parts() -> None:
    check_modules("+".join(MODULES), DEEPSEEK, "deepseek-v3")


# What it costs


@pytest.mark.parametrize("part", [one for one in MODULES if one != "moe_act"])
def test_a_part_costs_its_forward_pass_again(part: str) -> None:
    rates = kernel_rates(H100, "amp-bf16", "megatron")
    work = work_of(DEEPSEEK, "megatron")
    forward = times_of_layers(work, 1, rates)
    again = [is_again(layer.module, {part}) for layer in DEEPSEEK]
    more_s = _passes_s(DEEPSEEK, part) - _passes_s(DEEPSEEK, "none")
    assert any(again) and not all(again)
    wanted = sum(time_s for (time_s, _), asked in zip(forward, again, strict=True) if asked)
    assert more_s == pytest.approx(wanted, rel=1e-6)
    found = times_of_layers(work, 1, rates, part)
    for (ahead_s, back_s), (_, plain_s), asked in zip(found, forward, again, strict=True):
        assert back_s - plain_s == pytest.approx(ahead_s * asked, abs=1e-12)


def test_an_activation_costs_less_than_its_experts() -> None:
    """The gate is passed over again; neither products nor the order of tokens."""
    [first, last] = [one for one in work_of(GPT_OSS, "megatron").layers if "experts" in one.name][
        :2
    ]
    assert {work.kind for work in first.activation} == {"stream"} and not last.activation
    assert len(first.activation) < len(first.forward)
    costs = [_passes_s(GPT_OSS, part) for part in ("none", "moe_act", "moe", "full")]
    assert all(less < more for less, more in pairwise(costs))


@given(st.sets(st.sampled_from(MODULES), min_size=1), st.sampled_from(MODULES))
@settings(max_examples=40)
def test_more_parts_cost_more_time_and_keep_less(parts: set[str], more: str) -> None:
    few, many = ("+".join(sorted(some)) for some in (parts, parts | {more}))
    assert _passes_s(DEEPSEEK, few) <= _passes_s(DEEPSEEK, many) * (1 + 1e-12)
    for era in ("megatron", "torch2"):
        assert _kept(DEEPSEEK, few, era) >= _kept(DEEPSEEK, many, era) * (1 - 1e-12)
        assert 0 < _kept(DEEPSEEK, many, era) < _kept(DEEPSEEK, "none", era)


# What it keeps, by hand


def _blocks(layers: tuple[ModelLayer, ...]) -> int:
    return sum(layer.kind == "attention" for layer in layers)


def test_what_norms_write_need_not_be_kept() -> None:
    """Two normalisations a block, 4,096 values of 2 bytes a token each."""
    saved = _kept(LLAMA, "none") - _kept(LLAMA, "layernorm")
    assert saved == pytest.approx(32 * 2 * 2 * 4096 * TOKENS)


def test_a_dense_part_keeps_what_it_reads() -> None:
    """Gate, up and their product need not be kept, 14,336 values of 2 bytes each."""
    saved = _kept(LLAMA, "none") - _kept(LLAMA, "mlp")
    assert saved == pytest.approx(32 * 3 * 2 * 14336 * TOKENS)
    both = _kept(LLAMA, "none") - _kept(LLAMA, "mlp+layernorm")
    assert both == pytest.approx(saved + 32 * 2 * 2 * 4096 * TOKENS)


def test_wide_projections_keep_what_is_narrow() -> None:
    """Queries, keys and values of 128 heads, 192, 192 and 128 wide, need not be kept."""
    saved = _kept(DEEPSEEK, "none") - _kept(DEEPSEEK, "mla_up_proj")
    assert saved == pytest.approx(61 * 128 * (192 + 192 + 128) * 2 * TOKENS)


def test_what_an_activation_writes_need_not_be_kept() -> None:
    """2,880 values for each of 4 experts of a token."""
    saved = _kept(GPT_OSS, "none") - _kept(GPT_OSS, "moe_act")
    assert saved == pytest.approx(24 * 4 * 2880 * 2 * TOKENS)


def test_selective_recomputation_in_megatron_is_that_of_attention() -> None:
    assert _kept(LLAMA, "core_attn") == _kept(LLAMA, "selective")
    assert _passes_s(LLAMA, "core_attn") == pytest.approx(_passes_s(LLAMA, "selective"))


def test_grouped_experts_are_all_computed_again_in_torchtitan() -> None:
    """aten._grouped_mm is not among the operations whose outputs it keeps; every second mm is."""
    experts = [layer for layer in build_model("mixtral-8x7b", TOKENS) if is_expert(layer)][:3]
    rates = kernel_rates(H100, "amp-bf16", "torch2")
    times = {
        again: work_time(work_of([*experts, LLAMA[-1]], "torch2"), 1, rates, recompute=again)
        for again in RECOMPUTE
    }
    head_s = work_time(work_of(LLAMA[-1:], "torch2"), 1, rates, recompute="full").passes_s
    head_s -= work_time(work_of(LLAMA[-1:], "torch2"), 1, rates, recompute="selective").passes_s
    less = times["full"].passes_s - times["selective"].passes_s
    assert less == pytest.approx(head_s, abs=1e-9)


# Whole predictions


def _predicted(asked: dict[str, Any], **more: Any) -> Prediction:
    return predict(make_scenario(asked | more))


def test_experts_that_are_computed_again_send_their_tokens_again() -> None:
    asked = {"model": "gpt-oss-20b", "gpus": 8, "node": "dgx-h100", "batch": 1, "ep": 8}
    plain, parts, experts = (
        _predicted(asked, software="megatron", recompute=again)
        for again in ("none", "layernorm+moe_act", "moe")
    )
    sent = [one.communication["bytes_per_gpu"] for one in (plain, parts, experts)]
    assert sent[0] == pytest.approx(sent[1]) and sent[1] < sent[2]
    assert plain.iteration_s < parts.iteration_s < experts.iteration_s
    kept = [one.memory_bytes["activations"] for one in (plain, parts, experts)]
    assert kept[0] > kept[1] > kept[2]


def test_nvidias_deepseek_fits_a_b200_with_the_part_that_its_recipe_computes_again() -> None:
    """mla_up_proj on 16 stages (Megatron-Bridge, deepseek_workload_base_configs.py)."""
    asked = {
        **{"model": "deepseek-v3", "gpus": 256, "node": "dgx-b200", "batch": 1, "accumulate": 256},
        **{"pp": 16, "ep": 8, "precision": "fp8", "software": "megatron", "seq": 4096},
        **{"method": "distributed_optimizer", "stage_layers": [*[4] * 15, 1]},
    }
    without, again = (_predicted(asked, recompute=part) for part in ("none", "mla_up_proj"))
    assert again.memory_usable_bytes is not None
    held = [sum(one.memory_bytes.values()) for one in (again, without)]
    assert held[0] < again.memory_usable_bytes < held[1]


def test_attention_that_is_computed_again_fetches_keys_and_values_again() -> None:
    """Selective recomputation is that of attention, whose ring the ranks of a context go round."""
    asked = {
        **{"model": "llama3-8b", "gpus": 64, "node": "dgx-h100", "cp": 4, "seq": 32768},
        **{"software": "megatron", "method": "distributed_optimizer"},
    }
    plain, selective, attention = (
        _predicted(asked, recompute=again) for again in ("none", "selective", "core_attn")
    )
    assert selective.iteration_s == attention.iteration_s
    sent = [one.communication["bytes_per_gpu"] for one in (plain, selective, attention)]
    assert sent[0] < sent[1] == sent[2]


# What the host launches for experts


def _launches_s(
    layers: list[ModelLayer], again: str = "none", era: str = "megatron"
) -> list[float]:
    """Return what the host needs to launch the experts of some layers [s]."""
    made = work_of([*layers, LLAMA[-1]], era).layers
    return [experts_host_s(layer, execution_of(era), again) for layer in made[:-1]]


def test_experts_are_launched_one_by_one() -> None:
    """3 products of 33 us for each of both layers, and 65 operations of 41 us around them."""
    part = split_layers(DEEPSEEK, Degrees(ep=32))
    block = [DEEPSEEK[0], *[layer for layer in part if is_expert(layer)][:2]]
    each = 8 * 3 * 33e-6
    assert _launches_s(block) == pytest.approx([0.0, each, each + 65 * 41e-6])
    assert _launches_s(block, era="mlperf") == [0.0, 0.0, 0.0]  # one graph


def test_a_bias_of_each_expert_is_launched_too() -> None:
    """8 operations for each, two forward and six backward."""
    block = [*filter(is_expert, split_layers(GPT_OSS, Degrees(ep=8)))][:2]
    without = 4 * 3 * 33e-6 + 65 * 41e-6
    assert _launches_s(block)[1] == pytest.approx(without + 4 * 8 * 41e-6)


@pytest.mark.parametrize(
    ("again", "more"), [("full", 1), ("moe", 1), ("moe_act", 0), ("selective", 0)]
)
def test_experts_that_are_computed_again_are_launched_again(again: str, more: int) -> None:
    """One product of 33 us an expert and layer, 38 operations, and two for the bias of each."""
    block = [*filter(is_expert, split_layers(GPT_OSS, Degrees(ep=8)))][:2]
    forward_s = 4 * 33e-6, 4 * 33e-6 + (38 + 2 * 4) * 41e-6
    once, twice = _launches_s(block), _launches_s(block, again)
    found = [after - before for before, after in zip(once, twice, strict=True)]
    assert found == pytest.approx([more * seconds for seconds in forward_s])


def test_a_gpu_that_has_all_experts_launches_them_one_by_one_too() -> None:
    """Ranks that divide the tokens alone have as many: as much work takes as long.

    No message runs beside it.
    """
    asked = {
        **{"model": "qwen3-30b-a3b", "gpus": 16, "node": "dgx-h200", "seq": 4096},
        **{"software": "megatron", "method": "fsdp", "overlap": False},
    }

    def passes_s(**more: Any) -> float:
        found = _predicted(asked, **more).breakdown_s
        return found["forward"] + found["backward"]

    alone_s = passes_s()
    assert alone_s == pytest.approx(passes_s(cp=2, batch=2), rel=0.05)
    launches_s = 48 * (2 * 128 * 3 * 33e-6 + 65 * 41e-6)
    assert launches_s < alone_s < 1.1 * launches_s
    assert passes_s(software="mlperf") < alone_s / 3


def test_the_host_sets_the_pace_where_experts_have_few_tokens() -> None:
    """On a B200 with one sample of Qwen3-30B the host is later, with four the GPU."""
    asked = {
        **{"model": "qwen3-30b-a3b", "gpus": 8, "node": "dgx-b200", "ep": 8, "seq": 4096},
        **{"precision": "fp8", "software": "megatron", "method": "distributed_optimizer"},
    }
    one, four = (_predicted(asked, batch=samples) for samples in (1, 4))
    assert four.iteration_s < 2 * one.iteration_s


def test_weights_of_deepep_are_fp32() -> None:
    """The bias behind the experts is weighted in fp32: 17 values are moved for 7."""
    plain, deep, hybrid = (
        [
            layer
            for layer in split_layers(GPT_OSS, Degrees(ep=8, dispatcher=word))
            if is_expert(layer)
        ]
        for word in ("alltoall", "deepep", "hybridep")
    )
    assert hybrid == deep
    assert deep[0].unfused == plain[0].unfused
    assert deep[1].unfused == pytest.approx(plain[1].unfused * 17 / 7)


# Some blocks


def test_a_block_that_is_computed_again_costs_its_forward_pass_and_others_nothing() -> None:
    rates = kernel_rates(H100, "amp-bf16", "megatron")
    work = work_of(LLAMA, "megatron")
    plain = times_of_layers(work, 1, rates)
    found = times_of_layers(work, 1, rates, "full:2")
    (first, _), (_, end) = work.blocks[:2]
    for index, ((before_s, behind_s), after) in enumerate(zip(plain, found, strict=True)):
        more_s = before_s if first <= index < end else 0.0
        assert after == (before_s, pytest.approx(behind_s + more_s))
    more_s = sum(before_s for before_s, _ in plain[first:end])
    assert _passes_s(LLAMA, "full:2") - _passes_s(LLAMA, "none") == pytest.approx(more_s)


def test_blocks_that_are_computed_again_keep_their_inputs() -> None:
    kept = [_kept(LLAMA, f"full:{blocks}") for blocks in range(1, 33)]
    each = [before - after for before, after in pairwise([_kept(LLAMA, "none"), *kept])]
    assert min(each) == pytest.approx(max(each)) and min(each) > 0
    assert kept[-1] == _kept(LLAMA, "full")


@pytest.mark.parametrize(
    ("more", "blocks"),
    [
        ({"method": "fsdp"}, 32),
        ({"tp": 2, "method": "fsdp"}, 32),
        ({"pp": 2, "accumulate": 4}, 16),
        ({"pp": 2, "tp": 2, "accumulate": 4, "schedule": "interleaved", "virtual_stages": 2}, 8),
    ],
)
def test_each_chunk_of_a_stage_computes_its_first_blocks_again(
    more: dict[str, Any], blocks: int
) -> None:
    """As many as a chunk has are all, but for what is in no block."""

    def found(recompute: str) -> Prediction:
        fields = {"model": "llama3-8b", "gpus": 8, "node": "dgx-h100", "seq": 4096, "batch": 1}
        fields |= {"software": "megatron", "recompute": recompute}
        return predict(make_scenario(fields | more), SHIPPED)

    each = [found(word) for word in ("none", f"full:{blocks // 2}", f"full:{blocks}", "full")]
    none_s, half_s, all_s, full_s = (one.iteration_s for one in each)
    assert none_s < half_s < all_s
    assert all_s == pytest.approx(full_s, rel=2e-3)
    assert half_s == pytest.approx((none_s + all_s) / 2, rel=0.01)
    sizes = [sum(one.memory_bytes.values()) for one in each]
    assert sizes[0] > sizes[1] > sizes[2] == pytest.approx(sizes[3])


def test_more_blocks_than_there_are_are_refused() -> None:
    asked = {"model": "llama3-8b", "gpus": 8, "node": "dgx-h100", "recompute": "full:33"}
    with pytest.raises(RequestError, match="llama3-8b has 32 blocks; set full, or fewer"):
        predict(make_scenario(asked), SHIPPED)
    with pytest.raises(RequestError, match="only transformers have blocks"):
        predict(make_scenario(asked | {"model": "resnet50"}), SHIPPED)
