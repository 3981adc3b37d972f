"""Layers divided among ranks: parts add up to the whole, and what cannot be divided says so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.compute.by_operations import all_keys, mask_values
from perfsim.errors import RequestError
from perfsim.models import build_model
from perfsim.models.blocks import block_spans
from perfsim.models.split import (
    Degrees,
    check_split,
    copies_sent,
    is_expert,
    split_layers,
    stage_blocks,
)

MODELS = ("llama3-8b", "gpt3-1.3b", "mixtral-8x7b", "deepseek-v2-lite", "gpt2-xl", "bert-large")


def test_one_rank_has_the_layers_themselves() -> None:
    layers = build_model("llama3-8b")
    assert split_layers(layers, Degrees()) == layers


@pytest.mark.parametrize("model", MODELS[:4])
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_ranks_share_products_and_weights(model: str, tp: int) -> None:
    layers = build_model(model)
    parts = split_layers(layers, Degrees(tp=tp))
    assert sum(layer.flops for layer in parts) == pytest.approx(
        sum(layer.flops for layer in layers) / tp, rel=1e-3
    )
    for layer, part in zip(layers, parts, strict=True):
        divided = part.elements * tp if layer.split else part.elements
        assert (
            layer.elements
            <= divided
            <= 1.01 * layer.elements + tp * layer.elements * (not layer.split)
        )


def test_a_block_by_hand() -> None:
    """Llama 3 8B on 4 ranks: 8 of 32 query heads, 2 of 8 key heads, 3,584 of 14,336 neurons."""
    parts = {
        layer.name.removeprefix("model.layers.0."): layer
        for layer in split_layers(build_model("llama3-8b"), Degrees(tp=4))
        if layer.name.startswith("model.layers.0.")
    }
    assert parts["self_attn.q_proj"].tensors[0][1] == (1024, 4096)
    assert parts["self_attn.k_proj"].tensors[0][1] == (256, 4096)
    assert parts["self_attn.o_proj"].tensors[0][1] == (4096, 1024)
    assert parts["mlp.up_proj"].tensors[0][1] == (3584, 4096)
    assert parts["mlp.down_proj"].tensors[0][1] == (4096, 3584)
    assert parts["self_attn.attn"].heads == 8
    # Sequence parallelism: a quarter of the tokens is normalised; all sums are whole.
    assert parts["input_layernorm"].outputs == 8192 * 4096 / 4
    assert parts["self_attn.o_proj"].outputs == 8192 * 4096


def test_key_heads_are_repeated_where_ranks_are_more() -> None:
    parts = split_layers(build_model("llama3-8b"), Degrees(tp=16))
    keys = next(layer for layer in parts if layer.name.endswith("0.self_attn.k_proj"))
    assert keys.tensors[0][1] == (128, 4096)


def test_without_sequence_parallelism_norms_are_whole() -> None:
    parts = split_layers(build_model("llama3-8b"), Degrees(tp=4, sequence=False))
    norm = next(layer for layer in parts if layer.kind == "rmsnorm")
    assert norm.outputs == 8192 * 4096


def test_experts_are_divided_and_their_tokens_are_not() -> None:
    layers = build_model("mixtral-8x7b")
    for layer, part in zip(layers, split_layers(layers, Degrees(ep=4)), strict=True):
        if is_expert(layer):
            assert part.elements * 4 == layer.elements
            assert part.rows == layer.rows
        else:
            assert part == layer


def test_whole_experts_divide_their_tokens_among_tensor_parallel_ranks() -> None:
    """Of 128 experts 4 a rank, for a quarter of the tokens that come.

    As many parameters as where 8 ranks share the experts and 4 share each.
    """
    layers = build_model("qwen3-30b-a3b", 4096)
    whole = split_layers(layers, Degrees(tp=4, ep=32, whole_experts=True))
    shared = split_layers(layers, Degrees(tp=4, ep=8))
    for layer, one, other in zip(layers, whole, shared, strict=True):
        if not is_expert(layer):
            assert one == other
            continue
        assert one.tensors[0][1] == (4, *layer.tensors[0][1][1:])
        assert one.elements == other.elements == layer.elements / 32
        assert one.rows == layer.rows / 4 and other.rows == layer.rows
        assert one.flops == pytest.approx(other.flops)
        assert one.outputs == pytest.approx(layer.outputs / 4)


def test_tokens_are_put_in_order_once_more_where_ranks_have_several_experts() -> None:
    """(k + 1) h values a token on either side; an all-to-all puts k h more in order: 2 k h."""
    tokens, values = 4096, 4096 * 4096
    for ep, dispatcher, more in ((1, "alltoall", 0), (4, "alltoall", 4), (8, "alltoall", 0)):
        parts = split_layers(build_model("mixtral-8x7b", tokens), Degrees(ep=ep))
        found = [part.permuted for part in parts if is_expert(part)]
        assert found == [pytest.approx((3 + more) * values)] * 64, dispatcher
    sent = Degrees(ep=4, dispatcher="deepep", received=0.5)
    parts = split_layers(build_model("mixtral-8x7b", tokens), sent)
    # Written to a buffer, read from it and read once more to be added up: 1.5 values of k h / 2.
    assert {part.permuted for part in parts if is_expert(part)} == {(3 + 1.5) * values}


def test_a_rank_of_a_tensor_group_moves_its_share_of_the_tokens() -> None:
    whole = split_layers(build_model("mixtral-8x7b"), Degrees(ep=4))
    parts = split_layers(build_model("mixtral-8x7b"), Degrees(ep=4, tp=4))
    pairs = [(one, part) for one, part in zip(whole, parts, strict=True) if is_expert(one)]
    assert all(part.permuted == pytest.approx(one.permuted / 4) for one, part in pairs)


def test_copies_of_tokens_that_are_sent() -> None:
    """Two of eight experts on four nodes: 4 (1 - C(6,2)/C(8,2)) = 4 (1 - 15/28) of 2 copies."""
    assert copies_sent(build_model("mixtral-8x7b"), 4) == pytest.approx(4 * (1 - 15 / 28) / 2)
    assert copies_sent(build_model("mixtral-8x7b"), 8) == pytest.approx(1.0)
    assert copies_sent(build_model("mixtral-8x7b"), 1) == pytest.approx(0.5)


def test_copies_of_tokens_whose_experts_are_in_some_groups() -> None:
    """Eight of the 128 experts of 4 of 8 groups: on 8 or 16 nodes they stand on half of them."""
    left = math.comb(96, 8) / math.comb(128, 8)
    for nodes in (4, 8):
        found = copies_sent(build_model("deepseek-v3"), nodes)
        assert found == pytest.approx(4 * (1 - left) / 8)
    wide = 8 * (1 - math.comb(112, 8) / math.comb(128, 8)) / 8
    assert copies_sent(build_model("deepseek-v3"), 16) == pytest.approx(wide)


def test_the_fullest_rank_of_experts_has_more_tokens() -> None:
    layers = build_model("mixtral-8x7b")
    busy = split_layers(layers, Degrees(ep=4, imbalance=1.5))
    for layer, part in zip(layers, busy, strict=True):
        assert part.flops == pytest.approx(layer.flops * (1.5 if is_expert(layer) else 1.0))


@given(st.sampled_from(MODELS), st.sampled_from([2, 4]), st.booleans())
@settings(max_examples=20, deadline=None)
def test_context_ranks_share_the_tokens(model: str, cp: int, sequence: bool) -> None:
    layers = build_model(model)
    parts = split_layers(layers, Degrees(cp=cp, sequence=sequence))
    for layer, part in zip(layers, parts, strict=True):
        assert part.tensors == layer.tensors
        if layer.rows > 1:
            assert part.flops == pytest.approx(layer.flops / cp)


@pytest.mark.parametrize("model", ["llama3-8b", "gemma2-9b"])
@pytest.mark.parametrize("cp", [2, 8])
def test_scores_of_single_operations_are_shared_among_context_ranks(model: str, cp: int) -> None:
    # gemma2-9b has a window, so that its FLOPs do not tell its keys.
    layers = build_model(model)
    for layer, part in zip(layers, split_layers(layers, Degrees(cp=cp)), strict=True):
        if layer.kind == "attention":
            assert all_keys(part) == all_keys(layer) == 8192
            assert mask_values(part) == pytest.approx(mask_values(layer) / cp)


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_stages_have_all_blocks_and_differ_by_one_at_most(
    blocks: int, stages: int, chunks: int
) -> None:
    if stages * chunks > blocks + 2:
        with pytest.raises(RequestError, match="at most"):
            stage_blocks(blocks, stages, chunks)
        return
    found = stage_blocks(blocks, stages, chunks)
    assert len(found) == stages * chunks
    assert sum(found) == blocks
    assert max(found) - min(found) <= 1
    assert found[-1] == min(found)


def test_blocks_of_a_decoder() -> None:
    layers = build_model("llama3-8b")
    spans = list(block_spans(layers))
    assert len(spans) == 32
    assert [layers[first].name for first, _ in spans[:2]] == [
        "model.layers.0.input_layernorm",
        "model.layers.1.input_layernorm",
    ]


@pytest.mark.parametrize(
    ("model", "ep", "most"),
    [
        # Every token chooses experts of one rank: min(ep, experts / chosen) times the mean.
        ("mixtral-8x7b", 8, 4.0),
        ("mixtral-8x7b", 4, 4.0),
        ("mixtral-8x7b", 2, 2.0),
        ("deepseek-v3", 8, 8.0),
        ("deepseek-v3", 64, 32.0),
    ],
)
def test_all_tokens_may_choose_one_rank(model: str, ep: int, most: float) -> None:
    layers = build_model(model)
    check_split(layers, Degrees(ep=ep, imbalance=most))
    with pytest.raises(RequestError, match=r"^imbalance: "):
        check_split(layers, Degrees(ep=ep, imbalance=1.001 * most))


@pytest.mark.parametrize(
    "more",
    [
        *("", "norm=layer,gated=no,bias=all", "family=encoder", "family=vit", "qk_norm=yes"),
        *("experts=8,topk=2,expert_ffn=64", "norms=4", "norms=1", "tied=yes", "kv_rank=64"),
    ],
)
def test_the_only_block_is_as_long_as_one_of_several(more: str) -> None:
    spans = []
    for count in (1, 2):
        layers = build_model(f"transformer:layers={count},hidden=512,heads=8,vocab=1000,{more}")
        spans.append(list(block_spans(layers)))
        assert spans[-1][-1][1] < len(layers)
    assert spans[0] == spans[1][:1]


@pytest.mark.parametrize(
    ("model", "degrees", "words"),
    [
        (
            "llama3-8b",
            Degrees(tp=3),
            "3 does not divide 32 heads of attention; the nearest .* is 2",
        ),
        ("llama3-8b", Degrees(tp=64), "64 does not divide 32 heads .* is 32"),
        ("llama3-8b", Degrees(ep=2), "has no experts"),
        ("vit-b16", Degrees(ep=2), "has no experts"),  # positions have as many axes
        ("mixtral-8x7b", Degrees(ep=3), "3 does not divide 8 experts; the nearest .* is 2"),
        ("mixtral-8x7b", Degrees(ep=8, imbalance=100.0), "100 times .*; at most 4 can"),
        ("mixtral-8x7b", Degrees(ep=2, imbalance=2.1), "choose 2 of 8 .* at most 2 can"),
        ("deepseek-v3", Degrees(ep=64, imbalance=33.0), "choose 8 of 256 .* at most 32 can"),
        ("bert-large", Degrees(cp=2), "only decoders"),
        ("resnet50", Degrees(tp=2), "only transformers"),
        ("llama3-8b", Degrees(cp=3), "3 does not divide 8192 tokens"),
    ],
)
def test_what_cannot_be_divided_says_the_nearest(model: str, degrees: Degrees, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        check_split(build_model(model), degrees)


def test_blocks_of_stages_that_do_not_add_up() -> None:
    with pytest.raises(RequestError, match="must name 4 stages with 32 blocks in all"):
        stage_blocks(32, 4, 1, [8, 8, 8, 9])
