"""Memory: formulas of a layer, state by optimizer, published peaks, and batches that fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median, quantiles
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.device import usable_bytes
from perfsim.compute.execution import EXECUTIONS, execution_of
from perfsim.compute.memory import (
    GIB,
    OPTIMIZER_STATES,
    REPLICATED,
    Overhead,
    StateShares,
    activation_bytes,
    fsdp_sharding,
    largest_batch,
    narrow_elements,
    overhead_bytes,
    peak_parts,
    state_bytes,
)
from perfsim.data.catalog import shipped
from perfsim.data.tables import read_table
from perfsim.errors import RequestError
from perfsim.models import build_model
from perfsim.models.language import Architecture, architecture_layers
from perfsim.models.layers import ModelLayer
from perfsim.models.named import NAMED
from perfsim.models.specification import is_specified, specified_layers
from perfsim.models.split import Degrees, split_layers
from perfsim.models.transformers import DecoderSize, decoder

COLUMNS = (
    *("id", "model", "head", "gpu", "memory_gib", "gpus", "method", "precision", "optimizer"),
    *("batch", "seq", "recompute", "software", "loss", "kind", "peak_gib"),
    *("citation", "licence", "notes"),
)
ROWS = [
    row
    for _, row in read_table(shipped() / "measurements" / "memory.csv", "perfsim/memory/1", COLUMNS)
]


# A layer, against published formulas


def _a_block(model: str, tokens: int, era: str, recompute: str = "none") -> float:
    """Return the bytes a block keeps for each token and value of the hidden width, in 16 bits."""
    shape = NAMED[model]
    found = activation_bytes(
        architecture_layers(shape, tokens), 1, "bf16", execution_of(era), recompute
    )
    after = 4.0 + (4.0 if era == "torch2" and shape.norm == "rms" else 0.0)  # last norm, head
    if recompute == "full":
        return found.kept / (tokens * shape.hidden) / shape.layers
    return (found.kept / (tokens * shape.hidden) - after) / shape.layers


@pytest.mark.parametrize(
    ("model", "tokens", "era", "published"),
    [
        # Llama block: 12 + 4 n_kv/n_q + 6 f/h; SwiGLU in three operations 2 f/h more, RMSNorm in
        # fp32 8 more (counted by PyTorch's saved-tensor hooks on the blocks).
        ("llama3-8b", 8192, "mlperf", 34.03),
        ("llama-7b", 2048, "mlperf", 32.16),
        ("llama2-70b", 4096, "mlperf", 33.53),
        ("llama3-8b", 8192, "torch2", 49.03),
        ("llama-7b", 2048, "torch2", 45.53),
        ("llama2-70b", 4096, "torch2", 48.53),
        # GPT block: 34 without the masks of dropout.
        ("gpt3-175b", 2048, "torch2", 32.04),
        # ... and 2 bytes a score where they are stored: 2 x 96 x 2048 / 12288.
        ("gpt3-175b", 2048, "torch1.8", 64.0),
    ],
)
def test_a_block_keeps_what_published_formulas_say(
    model: str, tokens: int, era: str, published: float
) -> None:
    assert _a_block(model, tokens, era) == pytest.approx(published, abs=0.15)


def test_a_gpt_block_with_dropout_keeps_34_bytes_and_5_a_score() -> None:
    # Korthikanti et al., arXiv 2205.05198, equation 2: s b h (34 + 5 a s / h).
    tokens, width, heads, layers = 1024, 768, 12, 12
    found = activation_bytes(_small_gpt(tokens), 1, "fp16", execution_of("torch1.8"))
    block = (found.kept / (tokens * width) - 4) / layers
    assert block == pytest.approx(34 + 5 * heads * tokens / width, abs=0.01)


def test_selective_recomputation_leaves_34_bytes_where_scores_are_stored() -> None:
    tokens, width, layers = 1024, 768, 12
    execution = execution_of("torch1.8")
    found = activation_bytes(_small_gpt(tokens), 1, "fp16", execution, "selective")
    assert (found.kept / (tokens * width) - 4) / layers == pytest.approx(34, abs=0.01)


def _small_gpt(tokens: int) -> Sequence[ModelLayer]:
    """Return GPT-2 with a GELU in one kernel."""
    return decoder("gpt", DecoderSize(768, 12, 12), tokens)


@pytest.mark.parametrize(
    ("precision", "era", "more"),
    [
        # The power keeps its base, the tangent its result, the last product one more than that.
        ("fp32", "torch2", 3 * 4),
        ("amp-bf16", "torch2", 3 * 4),  # autocast takes powers in fp32
        ("bf16", "torch2", 3 * 2),
        ("amp-bf16", "torch2-compiled", 0),
    ],
)
def test_gelu_new_keeps_three_values_more(precision: str, era: str, more: int) -> None:
    tokens = 256
    written, whole = (
        activation_bytes(network, 2, precision, execution_of(era)).kept
        for network in (build_model("gpt2", tokens), _small_gpt(tokens))
    )
    assert written - whole == pytest.approx(more * 2 * tokens * 4 * 768 * 12)


def _kept_of_a_block(shape: Architecture, tokens: int, era: str, degrees: Degrees) -> float:
    """Return the bytes that one block more keeps on a rank, in 16 bits."""
    some, more = (
        activation_bytes(
            split_layers(layers, degrees),
            1,
            "bf16",
            execution_of(era),
            gathered=degrees.tp,
            whole=layers,
        ).kept
        for layers in (
            architecture_layers(shape._replace(layers=depth), tokens) for depth in (2, 3)
        )
    )
    return more - some


@pytest.mark.parametrize(
    ("era", "more"),
    [
        # PyTorch's saved-tensor hooks on DeepseekV3ForCausalLM, scaled_dot_product_attention: the
        # fp32 of RMSNorm, SwiGLU's own output, and keys beside the values that are a view of both.
        ("torch2", 4 * (2 * 256 + 120 + 96) + 2 * (688 + 8 * 32)),
        # Megatron-LM makes queries, keys and values contiguous (multi_latent_attention.py).
        ("megatron", 0),
    ],
)
@pytest.mark.parametrize(("tp", "cp"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_latent_attention_keeps_keys_as_wide_as_queries(
    era: str, more: int, tp: int, cp: int
) -> None:
    shape = Architecture(*(2, 256, 8, 8, 32, 688, 512), kv_rank=96, q_rank=120, rope=16, value=48)
    # Both norms of the stream, those of the narrow projections, and what is read behind them, once
    # for q and kv; q, k, v and the output of eight heads; gate, up and what their product feeds.
    values = 4 * 256 + 2 * (120 + 96) + 8 * (48 + 48 + 48 + 48) + 3 * 688
    statistics = 4 * 8
    found = _kept_of_a_block(shape, 64, era, Degrees(tp=tp, cp=cp))
    assert found * tp * cp == 64 * (2 * values + statistics + more)


@pytest.mark.parametrize(
    ("era", "more"),
    [
        # PyTorch's saved-tensor hooks on MixtralForCausalLM, its experts by grouped products: what
        # the router's weights multiply is kept for their gradient, for each expert of a token.
        ("torch2", 4 * 2 * 256 + 2 * 2 * (688 + 256)),
        # Megatron-LM weighs within the activation (weighted_bias_swiglu_impl).
        ("megatron", 0),
    ],
)
def test_experts_keep_what_the_router_weighs(era: str, more: int) -> None:
    shape = Architecture(2, 256, 8, 2, 32, 688, 512, experts=8, topk=2, expert_ffn=688)
    # Norms and what is read behind them; q, k, v and the output; two copies of a token; two gates,
    # two ups and what their products feed.
    values = 4 * 256 + 2 * (8 + 2) * 32 + 2 * 256 + 3 * 2 * 688
    found = _kept_of_a_block(shape, 64, era, Degrees())
    assert found == 64 * (2 * values + 4 * 8 + more)


@pytest.mark.parametrize("era", ["torch2", "torch1.8", "megatron"])
@pytest.mark.parametrize("gated", [False, True])
def test_a_relu_keeps_what_it_writes_alone(era: str, gated: bool) -> None:
    # PyTorch's saved-tensor hooks on OPTForCausalLM and a gated T5: a ReLU's output is what the
    # next product, or that with the gate, keeps too.
    plain = Architecture(2, 256, 8, 8, 32, 688, 512, norm="layer", gated=gated)
    both = (plain, plain._replace(activation="relu"))
    silu, relu = (_kept_of_a_block(shape, 64, era, Degrees()) for shape in both)
    in_one = gated and era == "megatron"  # a kernel of gate and activation keeps what it reads
    assert silu - relu == (0 if in_one else 2 * 64 * 688)


def test_full_recomputation_keeps_two_bytes_a_block_and_works_on_one() -> None:
    assert _a_block("llama3-8b", 8192, "mlperf", "full") == pytest.approx(2 + 4 / 32, abs=0.01)
    layers = architecture_layers(NAMED["llama3-8b"], 8192)
    found = activation_bytes(layers, 1, "bf16", execution_of("mlperf"), "full")
    assert found.working > 34 * 8192 * 4096


def test_selective_checkpoints_of_operations_keep_every_second_product() -> None:
    # torchtitan: the block's input, attention, wq, wv, w1, w2: 2 x (1 + 1 + 1 + 1/4 + 3.5 + 1).
    tokens = 8192
    block = _a_block("llama3-8b", tokens, "torch2-compiled", "selective")
    assert block == pytest.approx(15.5, abs=0.1)


def test_selective_checkpoints_of_operations_keep_nothing_of_grouped_experts() -> None:
    # Mixtral: the block's input, attention, wq, wv and the router: 2 x (1 + 1 + 1 + 1/4). Of a
    # loop's products w2 too, of two experts a token: 2 x 2.
    grouped, looped = (
        _a_block("mixtral-8x7b", 8192, era, "selective") for era in ("torch2", "torch2+loop")
    )
    assert grouped == pytest.approx(6.5, abs=0.1)
    assert looped - grouped == pytest.approx(4, abs=0.2)


def test_attention_computed_again_keeps_all_but_its_statistics() -> None:
    # Megatron-LM's selective recomputation where attention is one kernel: a log-sum-exp of 4 bytes
    # for each of 32 heads and row is all that it saves, over 4,096 values.
    plain, again = (_a_block("llama3-8b", 8192, "megatron", how) for how in ("none", "selective"))
    assert plain - again == pytest.approx(4 * 32 / 4096)


def test_a_convolution_network_keeps_each_normalisation_twice() -> None:
    # VGG-16 without normalisation: each convolution's output once, 13.6 million values.
    values = sum(layer.outputs for layer in build_model("vgg16") if layer.kind == "conv")
    found = activation_bytes(build_model("vgg16"), 2, "fp32", execution_of("torch1.8"))
    assert found.kept == pytest.approx(2 * 4 * values, rel=0.01)
    # ResNet-50: 11.1 million outputs of convolutions (He et al.), and as many after ReLU, without
    # those of the four shortcuts' normalisations; max pooling's indices are 8 bytes.
    network = build_model("resnet50")
    outputs = sum(layer.outputs for layer in network if layer.kind == "conv")
    shortcuts = sum(layer.outputs for layer in network if layer.name.endswith("downsample.0"))
    kept = 4 * (2 * outputs - shortcuts) + (4 + 8) * 64 * 56**2
    found = activation_bytes(network, 1, "fp32", execution_of("torch1.8"))
    assert found.kept == pytest.approx(kept + 4 * 2048, rel=1e-6)


def test_autocast_keeps_wide_norms_and_a_copy_for_each_product() -> None:
    # BERT's block under autocast, eager: two norms of 4 bytes, four narrow copies of their outputs,
    # q, k, v, attention's output, GELU's input and output of 4 widths, two masks.
    tokens, width = 512, 768
    network = [layer for layer in build_model("bert-base", tokens) if ".layer.0." in layer.name]
    found = activation_bytes(
        [build_model("bert-base", tokens)[3], *network], 1, "amp-fp16", execution_of("torch2")
    )
    statistics = 4 * 12 * tokens
    embedding = (4 + 1) * tokens * width
    block = 2 * 4 + 4 * 2 + 3 * 2 + 2 + 8 + 8 + 2
    assert found.kept == statistics + embedding + block * tokens * width


def test_the_loss_makes_copies_of_the_logits() -> None:
    layers = architecture_layers(NAMED["llama3-8b"], 8192)
    execution = execution_of("torch2")
    values = 8192 * 128256
    found = activation_bytes(layers, 1, "bf16", execution)
    assert found.logits == 14 * values
    fused = activation_bytes(layers, 1, "bf16", execution, fused_loss=True)
    assert fused.logits == 4 * values and fused.kept == found.kept
    compiled = [
        activation_bytes(layers, 1, "bf16", execution_of(f"torch2-compiled{how}"))
        for how in ("", "+blocks")
    ]
    assert [one.logits for one in compiled] == [fused.logits, found.logits]
    assert compiled[0].kept == compiled[1].kept
    assert found.peak == found.kept + max(found.logits, found.working)


def test_bert_gathers_masked_tokens_first_where_the_software_does() -> None:
    network = build_model("bert-large", 128)
    whole = activation_bytes(network, 1, "fp32", execution_of("torch1.8"))
    gathered = activation_bytes(network, 1, "fp32", execution_of("tensorflow-2017"))
    assert gathered.logits == pytest.approx(whole.logits * 20 / 128)


@pytest.mark.parametrize("era", list(EXECUTIONS))
@pytest.mark.parametrize("model", ["resnet50", "bert-base", "llama3-8b", "deepseek-v3", "t5-base"])
def test_activations_grow_in_step_with_the_batch(era: str, model: str) -> None:
    network = specified_layers(model) if is_specified(model) else build_model(model)
    one, many = (activation_bytes(network, b, "amp-bf16", execution_of(era)) for b in (1, 7))
    assert many == pytest.approx([7 * part for part in one])
    assert min(one) > 0


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "bf16"])
@pytest.mark.parametrize("model", ["bert-large", "llama3-8b", "mixtral-8x7b", "t5-base", "vit-b16"])
def test_recomputation_never_keeps_more(model: str, precision: str) -> None:
    network = specified_layers(model) if is_specified(model) else build_model(model)
    for era in ("torch1.8", "torch2", "torch2-compiled"):
        kept = [
            activation_bytes(network, 1, precision, execution_of(era), how).kept
            for how in ("none", "selective", "full")
        ]
        assert kept == sorted(kept, reverse=True)


def test_a_network_without_attention_has_no_blocks_to_recompute() -> None:
    with pytest.raises(RequestError, match="only networks with attention have blocks"):
        activation_bytes(build_model("resnet50"), 1, "fp32", execution_of("torch2"), "full")


# State


@pytest.mark.parametrize(
    ("optimizer", "precision", "sharding", "published"),
    [
        # ZeRO (Rajbhandari et al., arXiv 1910.02054, section 3.1).
        ("adamw", "fp32", REPLICATED, 16),
        ("adam", "amp-bf16", REPLICATED, 16),
        ("momentum", "fp32", REPLICATED, 12),
        ("sgd", "tf32", REPLICATED, 8),
        ("adafactor", "fp32", REPLICATED, 8),
        ("adam-8bit", "fp32", REPLICATED, 10),
        ("muon", "fp32", REPLICATED, 12),
        ("adamw", "bf16", REPLICATED, 18),
        ("adamw", "fp32", StateShares(buckets=True), 20),
        ("adamw", "bf16", StateShares(optimizer=1 / 8), 6 + 12 / 8),
    ],
)
def test_state_is_so_many_bytes_a_parameter(
    optimizer: str, precision: str, sharding: StateShares, published: float
) -> None:
    found = state_bytes(1e9, precision, optimizer, sharding)
    assert found.held == pytest.approx(published * 1e9, rel=0.005)


def test_autocast_caches_a_copy_of_the_weights() -> None:
    assert state_bytes(1e9, "amp-fp16", "adamw").copies == 2e9
    assert state_bytes(1e9, "fp32", "adamw").copies == 0


def test_fsdp_keeps_a_share_and_gathers_two_units() -> None:
    layers = architecture_layers(NAMED["llama3-8b"], 8192)
    total, vocabulary = 8030261248, 128256 * 4096
    sharding = fsdp_sharding(layers, 64)
    found = state_bytes(total, "bf16", "adamw", sharding)
    # Llama 3 8B of 64 GPUs: 2.0 GB and units.
    assert found.parameters + found.gradients + found.optimizer == pytest.approx(2.0e9, rel=0.01)
    assert sharding.unit == vocabulary
    assert found.copies == pytest.approx(2 * (2 * vocabulary + 2 * vocabulary), rel=0.01)
    kept = fsdp_sharding(layers, 64, regather=False)
    assert kept.root == total
    assert state_bytes(total, "bf16", "adamw", kept).copies == 2 * total  # no more is there


def test_an_unknown_optimizer_is_named() -> None:
    with pytest.raises(RequestError, match="adamw"):
        state_bytes(1.0, "fp32", "adanw")


@given(st.sampled_from(list(OPTIMIZER_STATES)), st.floats(1, 1e12), st.integers(1, 4096))
def test_sharding_never_adds_to_what_is_kept(optimizer: str, parameters: float, gpus: int) -> None:
    whole = state_bytes(parameters, "fp32", optimizer)
    part = state_bytes(parameters, "fp32", optimizer, StateShares(*[1 / gpus] * 3))
    assert part.held == pytest.approx(whole.held / gpus)


def test_gradients_that_go_are_not_beside_all_activations() -> None:
    state = state_bytes(1e9, "fp32", "adamw", foreach=False)
    found = activation_bytes(build_model("resnet50"), 100, "fp32", execution_of("torch2"))
    stays, goes = (
        sum(peak_parts(state, found, keeps_gradients=keeps).values()) for keeps in (True, False)
    )
    assert stays - goes == pytest.approx(4e9)


def test_the_step_of_all_tensors_at_once_needs_a_temporary() -> None:
    # The largest of both: 16 bytes and 4 for the step, or the activations of the passes.
    found = activation_bytes(build_model("resnet50"), 1, "fp32", execution_of("torch2"))
    assert sum(peak_parts(state_bytes(1e9, "fp32", "adamw"), found).values()) == 20e9


# Batches that fit


@given(st.floats(0, 1e6), st.floats(1e-3, 1e4), st.floats(0, 1e6))
def test_the_largest_batch_is_that_of_the_closed_form(
    fixed: float, each: float, limit: float
) -> None:
    found = largest_batch(lambda batch: fixed + each * batch <= limit)
    assert found == 0 or fixed + each * found <= limit
    assert fixed + each * (found + 1) > limit


def test_what_always_fits_ends() -> None:
    assert largest_batch(lambda _: True) >= 2**39


# Published peaks


class Predicted(NamedTuple):
    """A row's bytes as perfsim predicts them, and its group."""

    group: str
    bytes: float


def _layers(row: dict[str, str]) -> Sequence[ModelLayer]:
    model, tokens = row["model"], int(row["seq"]) if row["seq"] else None
    network = specified_layers(model, tokens) if is_specified(model) else build_model(model, tokens)
    if row["head"] == "yes":
        return network
    return [layer for layer in network if not layer.name.startswith("cls.")]


def predicted(row: dict[str, str], batch: int | None = None) -> Predicted:
    """Predict a row of memory.csv, at its own or at another batch."""
    layers, gpus = _layers(row), int(row["gpus"])
    sharding = {
        "single": REPLICATED,
        "ddp": StateShares(buckets=True),
        "zero0": REPLICATED,
        "zero1": StateShares(optimizer=1 / gpus),
        "zero2": StateShares(optimizer=1 / gpus, gradients=1 / gpus),
    }
    if row["method"].startswith("fsdp"):
        shared = fsdp_sharding(layers, gpus, regather=row["method"] == "fsdp")
    else:
        shared = sharding[row["method"]]
    newest = row["software"].startswith("torch2")
    state = state_bytes(
        sum(layer.elements for layer in layers),
        row["precision"],
        row["optimizer"],
        shared,
        gradient_bytes=2.0 if row["method"].startswith("zero") else 4.0,
        foreach=newest,
    )
    activations = activation_bytes(
        layers,
        int(row["batch"]) if batch is None else batch,
        row["precision"],
        execution_of(row["software"]),
        row["recompute"],
        fused_loss=row["loss"] == "fused",
    )
    overhead = overhead_bytes(row["software"], gpus)
    shown = {
        "allocated": Overhead(0.0, 0.0, 1.0),
        "reserved": overhead._replace(context=0.0, communicator=0.0),
    }.get(row["kind"], overhead)
    tensors = sum(peak_parts(state, activations, keeps_gradients=not newest).values())
    found = tensors + shown.beside(tensors)
    return Predicted(row["id"].partition("-")[0], found)


def test_the_table_has_published_peaks_of_several_sources() -> None:
    peaks = [row for row in ROWS if row["peak_gib"]]
    assert len(peaks) >= 50 and len(ROWS) >= 100
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert all(row["citation"] and row["licence"] for row in ROWS)
    kinds = {"device", "reserved", "allocated"}
    assert {row["kind"] for row in peaks} == kinds
    assert {row["kind"] for row in ROWS} - kinds == {"fits", "out of memory"}


PEAK_LIMITS = {
    # Group: (median, worst) absolute error, as found on the first measurement of all rows.
    "hf": (0.057, 0.29),
    "mila": (0.054, 0.54),
    "titan": (0.049, 0.13),
    "opt": (0.053, 0.10),
    "ilrg": (0.19, 0.19),
}


def test_published_peaks_are_predicted_within_their_errors() -> None:
    errors = defaultdict(list)
    for row in ROWS:
        if row["peak_gib"]:
            found = predicted(row)
            errors[found.group].append(abs(found.bytes / GIB / float(row["peak_gib"]) - 1))
    assert set(errors) == set(PEAK_LIMITS)
    for group, (middle, worst) in PEAK_LIMITS.items():
        assert median(errors[group]) <= middle, group
        assert max(errors[group]) <= worst, group
    everything = [error for each in errors.values() for error in each]
    assert median(everything) <= 0.053
    assert quantiles(everything, n=10)[8] <= 0.18


VERDICTS = {
    # Group: right and all. Google's BERT of TensorFlow 1 (bert) runs out of memory long before
    # what its tensors add up to here; all twelve wrong rows say that more fits than does.
    "bert": (10, 22),
    "mc": (2, 6),
    "ilrg": (1, 1),
    "lf": (19, 20),
    "run": (6, 6),
    "fsdp": (3, 3),
    "zero": (3, 3),
}


def test_batches_that_fit_and_that_do_not_are_told_as_often_as_before() -> None:
    right: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for row in ROWS:
        if not row["peak_gib"]:
            found = predicted(row)
            fits = found.bytes <= usable_bytes(float(row["memory_gib"]) * GIB)
            right[found.group] += fits == (row["kind"] == "fits")
            every[found.group] += 1
    assert {group: (right[group], every[group]) for group in every} == VERDICTS


@pytest.mark.parametrize(("row_id", "published"), [("mc-01", 11), ("mc-03", 14)])
def test_the_largest_batch_is_near_a_published_one(row_id: str, published: int) -> None:
    row = next(row for row in ROWS if row["id"] == row_id)
    limit = usable_bytes(float(row["memory_gib"]) * GIB)
    found = largest_batch(lambda batch: predicted(row, batch).bytes <= limit)
    assert found == pytest.approx(published, rel=0.2)


def test_a_chunked_loss_of_masked_tokens_is_of_these_alone() -> None:
    """MLPerf's BERT computes the output layer for 15 % of the tokens."""
    layers = build_model("bert-large", 512)
    found = activation_bytes(layers, 1, "bf16", execution_of("mlperf"), chunked_loss=True)
    (share,) = {layer.gathered for layer in layers if layer.gathered < 1}
    assert found.logits == pytest.approx(2 * 2 * 512 * 1024 * share)


# fp8


def test_transformer_engine_keeps_what_dense_layers_read_in_fp8() -> None:
    """By hand for Llama 3 8B, bytes a token of a block and value of the hidden width.

    Queries, keys and values read one copy, gate and up another, down's has 3.5 values and that of
    what follows attention 1: a byte less each, but for the last, whose 16 bits attention keeps too.
    """
    kept = [
        activation_bytes(build_model("llama3-8b", 1024), 1, precision, execution_of(era)).kept
        for precision, era in (("bf16", "megatron"), ("fp8", "megatron"), ("fp8", "torch2"))
    ]
    assert (kept[0] - kept[1]) / (32 * 1024 * 4096) == pytest.approx(1 + 1 + 3.5 - 1)
    assert (
        kept[2]
        == activation_bytes(build_model("llama3-8b", 1024), 1, "bf16", execution_of("torch2")).kept
    )


def test_modules_that_share_what_they_read_have_a_copy_in_fp8_each() -> None:
    """By hand for DeepSeek-V3, where the router and the output layer stay in 16 bits.

    In 16 bits the queries' and keys' narrow projections keep 7,168 values, the wide ones 1,536 and
    512, the product behind attention 16,384; of a block with experts router and shared experts keep
    7,168, what follows 2,048, and 8 experts 8 times as much; dense blocks 7,168 and 18,432.
    """
    layers = build_model("deepseek-v3", 64)
    kept = [
        activation_bytes(layers, 1, one, execution_of("megatron")).kept for one in ("bf16", "fp8")
    ]
    latent = -(1536 + 512) - 2 * 7168 + 2 * 7168 + 16_384  # bytes more, as attention's outputs are
    experts = 7168 - 2048 - 8 * (7168 + 2048)
    dense = -7168 - 18_432
    assert kept[1] - kept[0] == pytest.approx(64 * (61 * latent + 58 * experts + 3 * dense))
    router = next(index for index, layer in enumerate(layers) if "experts" in layer.name) - 1
    assert narrow_elements(layers[router : router + 1]) > 0  # alone it is any dense layer
    outside = sum(layers[at].elements for at in (0, router, len(layers) - 1))
    norms = sum(layer.elements for layer in layers if layer.kind == "rmsnorm")
    routers = 58 * layers[router].elements
    whole = sum(layer.elements for layer in layers)
    left = whole - norms - routers - outside + layers[router].elements
    assert narrow_elements(layers) == left
