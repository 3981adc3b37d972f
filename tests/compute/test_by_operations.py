"""What eager code makes of several kernels: its memory and passes by hand, and who is spared."""

from __future__ import annotations

from typing import Any

import pytest

from perfsim.compute.by_operations import ACTIVATIONS, NORMS_IN_FP32, SCORES
from perfsim.compute.device import load_device
from perfsim.compute.execution import execution_of
from perfsim.compute.kernel_time import kernel_rates
from perfsim.compute.memory import activation_bytes
from perfsim.compute.work import LayerWork, Work, work_of
from perfsim.models.language import Architecture, architecture_layers
from perfsim.models.split import Degrees, split_layers
from support.what_ships import SHIPPED

TOKENS, HIDDEN, HEADS, KV, HEAD, FFN = 64, 256, 8, 2, 32, 688
PLAIN = Architecture(2, HIDDEN, HEADS, KV, HEAD, FFN, 512)
EXPERTS = PLAIN._replace(experts=8, topk=2, expert_ffn=FFN)
FUSED = ("megatron", "torch2-compiled", "mlperf")
WIDTHS = {"bf16": 2, "fp32": 4}


def kept(shape: Architecture, era: str = "torch2", precision: str = "bf16") -> float:
    """Return the bytes that one block more keeps, for each token."""
    some, more = (
        activation_bytes(
            architecture_layers(shape._replace(layers=depth), TOKENS),
            1,
            precision,
            execution_of(era),
        ).kept
        for depth in (2, 3)
    )
    return (more - some) / TOKENS


def layer(shape: Architecture, end: str, era: str = "torch2", autocast: bool = False) -> LayerWork:
    """Return the kernels of the first layer whose name ends so."""
    layers = work_of(architecture_layers(shape, TOKENS), era, autocast=autocast).layers
    return next(one for one in layers if one.name.endswith(end))


# Memory, for a token of one block, as PyTorch's saved-tensor hooks count it

HALF = {
    # An fp32 copy and what the weight multiplies in fp32, 8 bytes for Llama's 4 + 2; 12 of Cohere.
    "rms-fp32": (PLAIN, {"norm": "rms-fp32"}, 2 * HIDDEN * 2),
    "layer-fp32": (PLAIN, {"norm": "layer-fp32"}, 2 * HIDDEN * (12 - 6)),
    "qk_norm": (
        PLAIN._replace(qk_norm=True),
        {"norm": "rms-fp32"},
        (2 * HIDDEN + (HEADS + KV) * HEAD) * 2,
    ),
    "relu2": (PLAIN._replace(gated=False), {"activation": "relu2"}, 0),
    "relu": (PLAIN._replace(gated=False), {"activation": "relu"}, -FFN * 2),
    "quick_gelu": (PLAIN, {"activation": "quick_gelu"}, FFN * 2),
    "xielu": (PLAIN._replace(gated=False), {"activation": "xielu"}, FFN * (3 * 2 + 1)),
    "router": (EXPERTS, {"router_fp32": True}, HIDDEN * 2),
    # Two copies of a token in experts: the clamped gate, its sigmoid, their product, up + 1.
    "gate": (EXPERTS, {"bias": "ffn"}, 2 * 3 * FFN * 2),
    # Of queries, keys, values and a log-sum-exp a head: keys and values of all heads, and the
    # scores: a tangent, an fp32 softmax and its cast; a softmax.
    "softcap": (
        PLAIN,
        {"softcap": True},
        2 * (HEADS - KV) * HEAD * 2 - 4 * HEADS + HEADS * TOKENS * (2 + 4 + 2),
    ),
    "sinks": (
        PLAIN,
        {"sinks": True},
        2 * (HEADS - KV) * HEAD * 2 - 4 * HEADS + HEADS * TOKENS * 2,
    ),
    "fused_qkv": (PLAIN, {"fused_qkv": True}, (HEADS + KV) * HEAD * 2),
    "partial_rotary": (PLAIN, {"partial_rotary": True}, HEADS * HEAD * 2),
    "residual_dropout": (PLAIN, {"residual_dropout": True}, 2 * HIDDEN),
}


@pytest.mark.parametrize(("shape", "more", "expected"), HALF.values(), ids=list(HALF))
def test_a_block_of_16_bits_keeps_so_much_more(
    shape: Architecture, more: dict[str, Any], expected: float
) -> None:
    assert kept(shape._replace(**more)) - kept(shape) == pytest.approx(expected)


@pytest.mark.parametrize("era", FUSED)
@pytest.mark.parametrize(
    ("shape", "more"), [HALF[name][:2] for name in HALF if name not in ("relu", "layer-fp32")]
)
def test_fused_software_keeps_none_of_it(
    shape: Architecture, more: dict[str, Any], era: str
) -> None:
    masks = 2 * HIDDEN if "residual_dropout" in more else 0
    assert kept(shape._replace(**more), era) == kept(shape, era) + masks


@pytest.mark.parametrize(
    ("shape", "more", "expected"),
    [
        (PLAIN, {"norm": "rms-fp32"}, 0),
        (PLAIN, {"norm": "layer-fp32"}, 2 * HIDDEN * (12 - 8)),
        (EXPERTS, {"router_fp32": True}, 0),
        (PLAIN, {"softcap": True}, 2 * 6 * HEAD * 4 - 4 * HEADS + HEADS * TOKENS * 8),
        (PLAIN, {"activation": "quick_gelu"}, FFN * 4),
    ],
)
def test_in_fp32_nothing_is_cast(
    shape: Architecture, more: dict[str, Any], expected: float
) -> None:
    both = (kept(one, precision="fp32") for one in (shape._replace(**more), shape))
    assert next(both) - next(both) == pytest.approx(expected)


def test_autocast_runs_a_router_in_16_bits() -> None:
    """``F.linear`` casts what the code cast to fp32 back; normalisations are fp32 anyway."""
    both = (EXPERTS, EXPERTS._replace(router_fp32=True))
    assert len({kept(one, precision="amp-bf16") for one in both}) == 1


@pytest.mark.parametrize("scores", ["softcap", "sinks", "alibi"])
def test_a_kernel_that_is_asked_for_takes_such_scores(scores: str) -> None:
    plain, other = PLAIN, PLAIN._replace(**{scores: True})
    assert kept(other, "torch2+flash2") == kept(plain, "torch2+flash2")
    assert kept(other, "torch2") > kept(plain, "torch2")
    assert layer(other, "attn", "torch2+flash2") == layer(plain, "attn", "torch2+flash2")


def test_a_bias_by_distance_keeps_an_fp32_softmax_and_its_cast() -> None:
    """Besides keys and values of all heads; one kernel keeps a log-sum-exp a head."""
    more = kept(PLAIN._replace(alibi=True)) - kept(PLAIN)
    repeated = 2 * (HEADS - KV) * HEAD * 2
    assert more == pytest.approx(repeated - 4 * HEADS + HEADS * TOKENS * (4 + 2))


@pytest.mark.parametrize("era", ["torch2", "megatron"])
@pytest.mark.parametrize("width", [HIDDEN, FFN])
def test_a_products_side_does_not_say_what_it_reads(era: str, width: int) -> None:
    """Experts and dense layers as wide as the model (gpt-oss: 2,880) keep as many values as any."""
    dense = kept(PLAIN._replace(ffn=width), era) - kept(PLAIN._replace(ffn=1), era)
    experts = kept(EXPERTS._replace(expert_ffn=width), era)
    experts -= kept(EXPERTS._replace(expert_ffn=1), era)
    values = 3 + (era == "torch2")  # gate, up and what feeds the last; SwiGLU in three operations
    assert dense == pytest.approx(values * 2 * (width - 1))
    assert experts == pytest.approx(2 * values * 2 * (width - 1))


def test_experts_for_all_tokens_read_what_the_router_reads() -> None:
    shared = EXPERTS._replace(shared=1)
    inner = 4 * FFN * 2  # gate, up, SiLU's output and their product
    assert kept(shared) - kept(EXPERTS) == inner
    # A router in fp32 reads a copy: the 16-bit values are kept besides.
    wide = shared._replace(router_fp32=True)
    assert kept(wide) - kept(EXPERTS) == inner + HIDDEN * 4
    # What a gate of theirs multiplies.
    gated = shared._replace(shared_gate=True)
    assert kept(gated) - kept(shared) == HIDDEN * 2


@pytest.mark.parametrize("era", ["torch2", "megatron"])
def test_normalisations_beside_each_other_read_one_tensor(era: str) -> None:
    shape = PLAIN._replace(norm="layer")
    assert kept(shape, era) - kept(shape._replace(parallel=True), era) == HIDDEN * 2


def test_t5_drops_what_its_dense_layers_work_on() -> None:
    """Masks of the stream, the dense layer's values and scores, and the dropped copy of values."""
    shape = Architecture(*(1, HIDDEN, HEADS, HEADS, HEAD, FFN, 512), family="encoder-decoder")
    shape = shape._replace(gated=False, tied=True, activation="relu", norm="rms-fp32")
    found = [
        activation_bytes(architecture_layers(one, 512), 1, "bf16", execution_of("torch2")).kept
        for one in (shape, shape._replace(dropout=True))
    ]
    encoder, decoder = 512, 114
    stream = (2 + 2) * encoder + (3 + 2) * decoder  # embedding, parts of a block, the last norm
    inner = (encoder + decoder) * FFN * (1 + 2)
    scores = HEADS * (encoder**2 + decoder**2 + decoder * encoder)
    assert found[1] - found[0] == stream * HIDDEN + inner + scores


def test_a_decoder_reads_its_encoder_once() -> None:
    shape = Architecture(*(1, HIDDEN, HEADS, HEADS, HEAD, FFN, 512), family="encoder-decoder")
    layers = architecture_layers(shape._replace(layers=3), 512)
    again = [one.reads_again for one in layers if one.name.endswith("EncDecAttention.k_proj")]
    assert again == [False, True, True]


def test_ranks_divide_what_is_kept_besides() -> None:
    layers = architecture_layers(PLAIN._replace(fused_qkv=True, partial_rotary=True), TOKENS)
    whole, part = (
        next(one for one in some if one.kind == "attention")
        for some in (layers, split_layers(layers, Degrees(tp=2)))
    )
    assert part.kept == whole.kept / 2 > 0


# Passes


def test_norms_in_fp32_pass_over_more() -> None:
    """16 and 25 passes are Llama's; 4 and 12 bytes more in 16 bits, Cohere's 24 and 52."""
    values = TOKENS * HIDDEN
    found = layer(PLAIN._replace(norm="rms-fp32"), "input_layernorm")
    more = Work("stream", 0, 2 * values, widened=True)
    assert found.forward[:2] == (Work("stream", 0, 16 * values), more)
    assert found.backward[:2] == (
        Work("stream", 0, 25 * values),
        Work("stream", 0, 6 * values, widened=True),
    )
    cohere = layer(PLAIN._replace(norm="layer-fp32"), "input_layernorm")
    assert cohere.forward[:3] == (
        Work("stream", 0, 16 * values),
        Work("stream", 0, 5 * values, counted=True),
        Work("stream", 0, 7 * values, widened=True),
    )
    assert cohere.operations == 18 + 12


def test_autocast_leaves_norms_in_fp32_as_they_are() -> None:
    values = TOKENS * HIDDEN
    both = (
        layer(PLAIN._replace(norm=norm), "input_layernorm", autocast=True)
        for norm in ("rms", "rms-fp32")
    )
    assert next(both) == next(both)
    cohere = layer(PLAIN._replace(norm="layer-fp32"), "input_layernorm", autocast=True)
    assert cohere.forward[1] == Work("stream", 0, 5 * values, wide=True, counted=True)


@pytest.mark.parametrize("era", FUSED)
@pytest.mark.parametrize(("norm", "as_norm"), [("rms-fp32", "rms"), ("layer-fp32", "layer")])
def test_fused_software_has_one_kernel_for_a_norm(norm: Any, as_norm: Any, era: str) -> None:
    end = "input_layernorm"
    both = (layer(PLAIN._replace(norm=one), end, era) for one in (norm, as_norm))
    assert next(both) == next(both)


def test_a_router_in_fp32_casts_and_multiplies_in_fp32() -> None:
    plain, wide = (layer(EXPERTS._replace(router_fp32=one), "mlp.gate") for one in (False, True))
    cast = Work("stream", 0, 3.0 * TOKENS * HIDDEN, widened=True)
    product = plain.forward[0]._replace(wide=True)
    assert wide.forward == (cast, product)
    assert wide.backward == (product, product, cast)
    assert wide.operations == plain.operations + 4
    for era, autocast in (("torch2", True), ("megatron", False)):
        both = (
            layer(EXPERTS._replace(router_fp32=one), "mlp.gate", era, autocast)
            for one in (False, True)
        )
        first, second = both
        assert [work.wide for work in first.forward] == [work.wide for work in second.forward]


def test_a_product_in_fp32_takes_fp32s_rate_and_widths() -> None:
    device = load_device("h100", SHIPPED)
    work = Work("product", 1e15, 0.0, inner=1.0)
    half, full = (kernel_rates(device, one, "torch2") for one in ("amp-bf16", "fp32"))
    as_fp32 = full.seconds(work, 1, True)
    assert half.seconds(work._replace(wide=True), 1, True) == pytest.approx(as_fp32)
    assert full.seconds(work._replace(wide=True), 1, True) == pytest.approx(as_fp32)
    assert half.seconds(work, 1, True) < as_fp32 / 5


def test_what_is_widened_is_two_bytes_in_16_bits_and_none_in_fp32() -> None:
    device = load_device("h100", SHIPPED)
    work = Work("stream", 0.0, 1e9, widened=True)
    half, full = (kernel_rates(device, one, "torch2") for one in ("amp-bf16", "fp32"))
    assert half.seconds(work, 1, True) == pytest.approx(2e9 / half.bytes_per_s)
    assert full.seconds(work, 1, True) == 0.0


def test_scores_by_operations_are_products_of_the_whole_square() -> None:
    """A softcap's 40 and 42 bytes a score, sinks' 22 and 32; a window spares nothing."""
    scores = HEADS * TOKENS**2
    flops = 2.0 * TOKENS**2 * HEADS * HEAD
    product = Work("batched", flops, 2.0 * TOKENS * HEADS * HEAD + scores)
    windowed = PLAIN._replace(window=16, softcap=True)
    found = layer(windowed, "attn")
    assert found == layer(PLAIN._replace(softcap=True), "attn")
    assert found.forward == (
        *(product, product, Work("stream", 0, 12 * scores, counted=True)),
        Work("stream", 0, 8 * scores, widened=True),
    )
    sinks = layer(PLAIN._replace(sinks=True), "attn")
    assert sinks.backward == (*[product] * 4, Work("stream", 0, 16 * scores, counted=True))


@pytest.mark.parametrize(
    ("era", "kernels"),
    [("torch2", 4), ("torch2-compiled", 3), ("torch2-compiled+cudnn", 1), ("megatron", 1)],
)
def test_t5_adds_a_bias_to_scores_and_no_kernel_takes_it(era: str, kernels: int) -> None:
    """26 bytes a score and 26 backward; compiled, what is between products is one kernel."""
    shape = PLAIN._replace(family="encoder-decoder", kv=HEADS, gated=False)
    found = layer(shape, "attn", era)
    assert len(found.forward) == kernels
    if era == "torch2":
        scores = HEADS * TOKENS**2
        assert found.forward[2:] == (
            Work("stream", 0, 5 * scores, counted=True),
            Work("stream", 0, 8 * scores, widened=True),
        )


def test_gpt_oss_gate_is_its_operations_and_no_others() -> None:
    shape = EXPERTS._replace(bias="all")
    values = 2 * TOKENS * 2 * FFN
    gate = Work("stream", 0, 12 * values, counted=True)
    product, permuted, *rest = [
        work for work in layer(shape, "gate_up_proj").forward if work != gate
    ]
    assert product.kind == "product" and permuted.kind == "stream" and not rest
    assert gate in layer(shape, "gate_up_proj").forward
    fused = layer(shape, "gate_up_proj", "megatron")
    assert gate not in fused.forward and len(fused.forward) == 5


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "clamped_swiglu"])
def test_an_activation_of_operations_passes_as_counted(activation: Any) -> None:
    one = ACTIVATIONS[activation]
    shape = PLAIN._replace(gated=False, activation=activation)
    found, plain = (layer(some, "up_proj") for some in (shape, PLAIN._replace(gated=False)))
    assert found.forward[-1] == Work("stream", 0, one.passes[0] * TOKENS * FFN, counted=True)
    assert found.backward[-1] == Work("stream", 0, one.passes[1] * TOKENS * FFN, counted=True)
    assert found.operations == plain.operations + one.launches
    assert layer(shape, "up_proj", autocast=True).forward[-1].wide is one.fp32


def test_experts_activate_half_of_what_their_first_product_writes() -> None:
    shape = EXPERTS._replace(activation="quick_gelu")
    values = 2 * TOKENS * FFN
    assert Work("stream", 0, 7 * values, counted=True) in layer(shape, "gate_up_proj").forward
    assert kept(shape) - kept(EXPERTS) == 2 * FFN * 2


def test_all_that_is_counted_is_more_than_one_kernel() -> None:
    """One kernel of an activation reads and writes, backward reads twice and writes."""
    for one in ACTIVATIONS.values():
        assert one.passes[0] > 2 and one.passes[1] > 3 and one.launches > 0
    for one in (*NORMS_IN_FP32.values(), *SCORES.values()):
        assert min(*one.passes, *one.widened) >= 0 and sum(one.passes + one.widened) > 0
