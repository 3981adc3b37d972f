"""Recomputation, optimizers and the type of what is sent: by hand, by closed form, and laws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute import work as work_module
from perfsim.compute.device import Device, load_device
from perfsim.compute.execution import execution_of
from perfsim.compute.kernel_time import (
    PASSES_BY_OPERATION,
    UPDATE_PASSES,
    UPDATES,
    Constants,
    kernel_rates,
    layer_times,
    model_time,
    times_of_layers,
    work_time,
)
from perfsim.compute.profile import Profile, read_profile
from perfsim.compute.recompute import RECOMPUTE
from perfsim.compute.software import ERAS
from perfsim.compute.transfer import Training, TransferredProfile, transfer
from perfsim.compute.work import model_work, work_of
from perfsim.errors import RequestError
from perfsim.methods import method_class, method_names
from perfsim.models import defined_models
from perfsim.models.language import architecture_layers
from perfsim.models.layers import linear
from perfsim.models.named import NAMED
from perfsim.prediction import Prediction, predict
from perfsim.quantity import Quantity
from perfsim.scenario import make_scenario
from support.anchors import milliseconds, profile
from support.builders import hand_device
from support.what_ships import SHIPPED

PLAIN = Constants(
    **dict.fromkeys(Constants._fields, 1.0)
    | {"wave": 0.0, "gap_s": 0.0, "layout": 0.0, "kepler": 1.0}
)
"""Kernels that reach the whole rate and bandwidth and take nothing beside their work."""


def device() -> Device:
    """Return a GPU with 10 TFLOP/s in fp32 and 1 TB/s."""
    rate = Quantity(1e13, "FLOP/s", "derived", "by hand")
    return replace(hand_device(), rates={"fp32": rate}, multiprocessors=100.0)


def ask(model: str, gpu: str, **fields: Any) -> Prediction:
    """Return the prediction of a model on one GPU."""
    return predict(make_scenario({"model": model, "gpus": 1, "gpu": gpu} | fields), SHIPPED)


# Recomputation, by closed form: dense layers a and b of 1000 to 1000 for one row, a followed by a
# ReLU; b is the output layer.

PRODUCT_S = ((2e6 / 1e13) ** 4 + (4 * (2000 + 1e6) / 1e12) ** 4) ** 0.25
RELU_S = 4 * 2 * 1000 / 1e12
"""It reads and writes 1000 values of 4 bytes."""


@pytest.fixture
def two_layers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the network ``two``."""
    layers = (
        linear("a", 1000, 1000, bias=False, activated=True),
        linear("b", 1000, 1000, bias=False),
    )
    monkeypatch.setattr(work_module, "packed_model", lambda model, tokens, document: layers)
    work_module.model_work.cache_clear()
    yield
    work_module.model_work.cache_clear()


@pytest.mark.usefixtures("two_layers")
@pytest.mark.parametrize(
    ("recompute", "more_s"),
    [("none", 0.0), ("selective", PRODUCT_S / 2 + RELU_S), ("full", PRODUCT_S + RELU_S)],
)
def test_recomputation_runs_the_first_layer_again(recompute: str, more_s: float) -> None:
    rates = kernel_rates(device(), "fp32", "torch2", PLAIN)
    plain = model_time("two", None, 1, rates)
    found = model_time("two", None, 1, rates, recompute=recompute)
    assert found.passes_s - plain.passes_s == pytest.approx(more_s)
    assert found.update_s == plain.update_s
    # A third of both passes' launches are the forward pass's: two layers of three operations each,
    # two of the activation and five of the loss.
    launches = 13 * (1 if recompute == "none" else 4 / 3)
    assert found.host_passes_s == pytest.approx(launches * execution_of("torch2").op_s)


@pytest.mark.parametrize("era", ["torch1.8", "megatron", "megatron+unfused", "mlperf"])
def test_attention_alone_runs_again_in_megatron_and_where_scores_are_stored(era: str) -> None:
    rates = kernel_rates(load_device("a100", SHIPPED), "amp-bf16", era)
    work = work_of(architecture_layers(NAMED["llama3-8b"], 2048), era)
    plain, again = (work_time(work, 2, rates, recompute=how) for how in ("none", "selective"))
    attention = [layer for layer in work.layers if layer.name.endswith(".attn")]
    assert len(attention) == 32
    more_s = sum(rates.seconds(one, 2, True) for layer in attention for one in layer.forward)
    assert again.passes_s - plain.passes_s == pytest.approx(more_s)
    assert again.host_passes_s <= plain.host_passes_s * 4 / 3

    by_layer = times_of_layers(work, 2, rates, "selective")
    for layer, (_, before), (_, after) in zip(
        work.layers, times_of_layers(work, 2, rates), by_layer, strict=True
    ):
        assert (after > before) == (layer.module == "core_attn")


def test_attention_computed_again_is_the_share_that_its_paper_counts() -> None:
    """Korthikanti et al., arXiv 2205.05198, appendix A: 4 b s^2 h a layer, scores and values."""
    shape = NAMED["gpt3-1.3b"]
    for tokens in (1024, 2048):
        work = work_of(architecture_layers(shape, tokens), "megatron+unfused")
        attention = [layer for layer in work.layers if layer.module == "core_attn"]
        again = sum(one.flops for layer in attention for one in layer.forward)
        assert again == pytest.approx(4.0 * tokens**2 * shape.hidden * shape.layers)


EVERY_MODEL = [*defined_models(), "llama3-8b", "gpt3-1.3b", "mixtral-8x7b", "t5-base", "mpt-1b"]


@given(
    model=st.sampled_from(EVERY_MODEL),
    era=st.sampled_from(list(ERAS)),
    batch=st.integers(1, 64),
    precision=st.sampled_from(["fp32", "amp-bf16"]),
)
def test_full_recomputation_is_the_forward_pass_of_all_but_the_output_layer(
    model: str, era: str, batch: int, precision: str
) -> None:
    rates = kernel_rates(load_device("a100", SHIPPED), precision, era)
    found = {
        word: model_time(model, None, batch, rates, recompute=word).passes_s for word in RECOMPUTE
    }
    forward_s = sum(forward for forward, _ in layer_times(model, None, batch, rates)[:-1])
    assert found["full"] - found["none"] == pytest.approx(forward_s)
    assert found["none"] <= found["selective"] <= found["full"] * (1 + 1e-12)
    # A layer's time has it too, in its backward pass alone.
    for word in RECOMPUTE[1:]:
        plain, again = (layer_times(model, None, batch, rates, one) for one in ("none", word))
        assert [one[0] for one in plain] == [one[0] for one in again]
        more_s = sum(one[1] for one in again) - sum(one[1] for one in plain)
        assert more_s == pytest.approx(found[word] - found["none"], abs=1e-12)


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("bert-base", "v100-pcie"),
        ("gpt2", "v100"),
        ("bert-large", "a100"),
        ("llama3-8b", "h100"),
    ],
)
def test_what_was_measured_takes_longer_too_by_half_at_most(model: str, gpu: str) -> None:
    """No forward pass takes longer than its backward pass."""
    found = [ask(model, gpu, recompute=word) for word in RECOMPUTE]
    none, *_, full = [one.iteration_s for one in found]
    for less, more in pairwise(found):
        assert more.iteration_s > less.iteration_s * 1.01
        assert more.breakdown_s["backward"] > less.breakdown_s["backward"]
    assert full <= none * 1.5


@pytest.mark.parametrize(
    ("recompute", "expected"), [("none", 100), ("selective", 115), ("full", 130)]
)
def test_an_unknown_network_computes_its_forward_pass_again(recompute: str, expected: int) -> None:
    # Forward 30 ms, backward 60, optimizer 10; selective computes half of the forward pass.
    found = transfer(
        profile(), load_device("v100", SHIPPED), 32, "fp32", {}, training=Training(None, recompute)
    )
    assert milliseconds(found) == pytest.approx(expected, rel=1e-3)


# Optimizers


def test_every_optimizer_has_its_passes() -> None:
    assert set(UPDATES) == {
        *("sgd", "momentum", "adam", "adamw", "lamb", "adafactor", "muon"),
        *("adam-fused", "adamw-fused"),
    }
    assert set(UPDATES.values()) <= set(UPDATE_PASSES)
    assert UPDATE_PASSES.keys() == PASSES_BY_OPERATION.keys()
    assert all(UPDATE_PASSES[name] <= PASSES_BY_OPERATION[name] for name in UPDATE_PASSES)


_FUSED_PASSES = {"sgd": 3, "momentum": 5, "adam": 7, "adamw": 7, "lamb": 11}
_PASSES_BY_OPERATION = {"sgd": 3, "momentum": 11, "adam": 20, "adamw-fused": 7, "lamb": 28}


@pytest.mark.parametrize("model", ["resnet50", "bert-base", "gpt3-350m"])
@pytest.mark.parametrize(
    ("era", "passes_of"), [("megatron", _FUSED_PASSES), ("torch2", _PASSES_BY_OPERATION)]
)
def test_updates_go_as_their_passes_over_the_parameters(
    model: str, era: str, passes_of: dict[str, int]
) -> None:
    """Each reads weight and gradient and writes the weight; a moment is read and written."""
    rates = kernel_rates(device(), "fp32", era, PLAIN)
    parameters = model_work(model, None, era).parameters
    for name, passes in passes_of.items():
        found = model_time(model, None, 1, rates, optimizer=UPDATES[name])
        assert found.update_s == pytest.approx(4 * passes * parameters / 1e12), name


@pytest.mark.usefixtures("two_layers")
def test_muon_multiplies_matrices_by_newton_and_schulz() -> None:
    # Eleven passes over two million parameters; of the output layer no products. Five steps on a
    # matrix of 1000 x 1000: 4 a^2 b + 2 a^3 operations each.
    rates = kernel_rates(device(), "fp32", "torch2", PLAIN)
    found = model_time("two", None, 1, rates, optimizer="muon")
    assert found.update_s == pytest.approx(4 * 11 * 2e6 / 1e12 + 5 * 6e9 / 1e13)


def test_muon_multiplies_each_experts_matrix() -> None:
    model = "transformer:layers=3,hidden=64,heads=4,vocab=100,experts=8,topk=2,expert_ffn=96"
    rates = kernel_rates(device(), "fp32", "torch2", PLAIN)

    def step(short: int, long: int) -> int:
        return 4 * short**2 * long + 2 * short**3

    # Queries, keys, values and outputs; the router; gates with ups, and downs, of 8 experts.
    flops = 3 * (4 * step(64, 64) + step(8, 64) + 8 * (step(64, 192) + step(64, 96)))
    muon, plain = (
        model_time(model, None, 1, rates, optimizer=name).update_s for name in ("muon", "sgd")
    )
    assert muon - plain == pytest.approx(5 * flops / 1e13)


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("resnet50", "v100"),
        ("resnet50", "h100"),
        ("bert-base", "v100-pcie"),
        ("bert-large", "h100"),
        ("lstm", "v100"),
        ("llama3-8b", "h100"),
    ],
)
@pytest.mark.parametrize(
    ("era", "passes"), [("torch2", PASSES_BY_OPERATION), ("ngc-2020", UPDATE_PASSES)]
)
def test_another_optimizer_changes_the_update_alone(
    model: str, gpu: str, era: str, passes: dict[str, float]
) -> None:
    plain = ask(model, gpu, software=era)
    found = {name: ask(model, gpu, software=era, optimizer=name) for name in UPDATES}
    for name, one in found.items():
        for part in ("forward", "backward", "other"):
            expected = pytest.approx(plain.breakdown_s[part], rel=1e-9)
            assert one.breakdown_s[part] == expected, (name, part)
        assert one.iteration_s == pytest.approx(sum(one.breakdown_s.values()))
    update_s = {name: one.breakdown_s["update"] for name, one in found.items()}
    for name in UPDATES:
        if name != "muon":
            ratio = passes[UPDATES[name]] / passes["adam"]
            assert update_s[name] == pytest.approx(ratio * update_s["adamw"]), name
    assert update_s["muon"] > update_s["momentum"]


@pytest.mark.parametrize(
    ("optimizer", "era", "expected"),
    [
        ("sgd", "megatron", 96),
        ("momentum", "megatron", 100),
        ("adamw", "megatron", 104),
        ("lamb", "megatron", 112),
        ("adafactor", "megatron", 100),
        ("sgd", "torch2", 90 + 30 / 11),
        ("momentum", "torch2", 100),
        ("adamw", "torch2", 90 + 200 / 11),
        ("lamb", "torch2", 90 + 280 / 11),
        ("adafactor", "torch2", 90 + 180 / 11),
    ],
)
def test_an_optimizer_on_a_profile_by_hand(optimizer: str, era: str, expected: float) -> None:
    # 10 ms for the five passes of SGD with momentum, eleven by operation, and 90 ms beside them.
    made = profile(kind="measured")
    made.header["software"] = era
    found = transfer(
        made,
        load_device("v100", SHIPPED),
        32,
        "fp32",
        {},
        training=Training(optimizer),
    )
    assert milliseconds(found) == pytest.approx(expected)
    assert found.profile.optimizer_s == pytest.approx((expected - 90) * 1e-3)
    own = expected == 100
    assert found.quantity.kind == ("measured" if own else "derived")
    assert any(f"update of {optimizer}" in note for note in found.notes) is not own


def test_an_iteration_of_the_users_own_stands_whatever_the_optimizer() -> None:
    for optimizer in (None, "sgd", "lamb"):
        found = ask("resnet50", "v100", single_gpu="253ms", optimizer=optimizer)
        assert found.iteration_s == pytest.approx(0.253)


# What is sent


def resnet50(reduce_dtype: str) -> TransferredProfile:
    """Return ResNet-50 as it was measured, with gradients sent in a type."""
    path = SHIPPED.path("models", "resnet50.v100.fp32.b32", "model", "models")
    own: Profile = read_profile(path)
    training = Training(reduce_dtype=reduce_dtype)
    return transfer(own, load_device("v100", SHIPPED), 32, "fp32", {}, training=training)


PARAMETERS, HEAD = 25_557_032, 2048 * 1000 + 1000
"""Parameters of ResNet-50, and of its last layer."""


@pytest.mark.parametrize(("reduce_dtype", "width"), [("fp32", 4.0), ("bf16", 2.0), ("fp16", 2.0)])
def test_the_type_of_gradients_is_their_width_and_no_time(reduce_dtype: str, width: float) -> None:
    found, plain = resnet50(reduce_dtype).profile, resnet50("fp32").profile
    assert {one.value_bytes for one in found.gradients} == {width}
    assert sum(one.size_bytes for one in found.gradients) == width * plain.elements
    assert (found.iteration_s, found.layers) == (plain.iteration_s, plain.layers)


def sent_bytes(method: str, reduce_dtype: str) -> float:
    """Return what a GPU sends of ResNet-50 on 8 GPUs."""
    fields = {"model": "resnet50", "gpus": 8, "method": method, "reduce_dtype": reduce_dtype}
    return float(predict(make_scenario(fields), SHIPPED).communication["bytes_per_gpu"])


def test_half_as_wide_gradients_halve_what_dense_methods_send() -> None:
    # fp16 sends two bytes by itself; FSDP, ZeRO and Megatron-LM gather parameters too, in fp32, all
    # but the last layer twice with FSDP; InternEvo's owners broadcast them. Muon's owners bring the
    # convolutions (all but the last layer and 53,120 values of normalisations), 3 more for 53.
    gathered = 2 - HEAD / PARAMETERS
    shares = {"bf16": 1.0, "fp16": 1.0, "fsdp": (gathered + 0.5) / (gathered + 1), "zero": 2 / 3}
    shares |= {"distributed_optimizer": 3 / 4, "hybrid_zero": 2 / 3}
    brought = (PARAMETERS - HEAD - 53_120 + 3 * 64 * 3 * 7 * 7) / (2 * PARAMETERS)
    shares["distributed_muon"] = (brought + 0.5) / (brought + 1)
    dense = [name for name in method_names() if method_class(name).family == "dense"]
    assert {"ssgd", "dear", "p3", "bytescheduler", "byteps", *shares} <= set(dense)
    for name in dense:
        before, after = (sent_bytes(name, one) for one in ("fp32", "bf16"))
        assert after / before == pytest.approx(shares.get(name, 0.5), rel=1e-6), name


def test_a_type_of_gradients_that_changes_nothing_is_told() -> None:
    fields = {"model": "resnet50", "gpus": 16, "reduce_dtype": "bf16"}
    same, other = ("bf16", "localsgd", "gzccl"), ("ssgd", "diloco")
    for method, said in (dict.fromkeys(same, True) | dict.fromkeys(other, False)).items():
        notes = predict(make_scenario(fields | {"method": method}), SHIPPED).notes
        told = f"`reduce_dtype` bf16 changes nothing that {method} sends."
        assert (told in notes) == said, method
    alone = predict(make_scenario(fields | {"gpus": 1, "method": "bf16"}), SHIPPED).notes
    assert not any("changes nothing" in note for note in alone)


def test_gradients_that_are_made_in_half_precision_are_not_halved_again() -> None:
    fields = {"model": "resnet50", "gpus": 8, "options": {"gradients": "fp16"}}
    for word in ("fp32", "bf16"):
        found = predict(make_scenario(fields | {"reduce_dtype": word}), SHIPPED)
        expected = pytest.approx(sent_bytes("ssgd", "bf16"), rel=1e-6)
        assert found.communication["bytes_per_gpu"] == expected, word


@pytest.mark.parametrize(
    "method", ["dgc", "topk", "qsgd", "signsgd", "onebit", "terngrad", "gtopk"]
)
def test_what_a_compressor_makes_keeps_its_type(method: str) -> None:
    # But for what rounding selects: a bucket of 25 MiB holds twice as many values.
    assert sent_bytes(method, "bf16") == pytest.approx(sent_bytes(method, "fp32"), rel=1e-3)


@pytest.mark.parametrize("reduce_dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("precision", "gather", "width"),
    [
        ("fp32", "auto", 4),
        ("tf32", "auto", 4),
        ("amp-bf16", "auto", 2),
        ("amp-fp16", "auto", 2),
        ("fp8", "auto", 2),
        ("fp32", "bf16", 2),
        ("amp-bf16", "fp32", 4),
        ("fp8", "fp8", 1),
    ],
)
def test_fsdp_gathers_in_its_precision_and_scatters_in_what_is_asked(
    precision: str, gather: str, width: int, reduce_dtype: str
) -> None:
    fields = {
        "model": "resnet50",
        "gpus": 4,
        "gpus_per_node": 4,
        "gpu": "h100",
        "method": "fsdp",
        "precision": precision,
        "options": {"gather": gather},
        "reduce_dtype": reduce_dtype,
    }
    found = predict(make_scenario(fields), SHIPPED)
    # Twice a gather, of the last layer once, and once a scatter; a GPU sends three quarters.
    scattered = 4 if reduce_dtype == "fp32" else 2
    expected = 0.75 * ((2 * width + scattered) * PARAMETERS - width * HEAD)
    assert found.communication["bytes_per_gpu"] == pytest.approx(expected, rel=1e-6)


# Bad words


@pytest.mark.parametrize(
    ("field", "word", "said"),
    [
        ("recompute", "some", "core_attn, full, layernorm"),
        ("recompute", "ful", "did you mean 'full'"),
        ("optimizer", "adamm", "did you mean 'adam"),
        ("reduce_dtype", "int8", "bf16, fp16, fp32"),
    ],
)
def test_a_word_that_is_none_of_these_is_refused(field: str, word: str, said: str) -> None:
    with pytest.raises(RequestError, match=f"{field}.*{said}"):
        make_scenario({"model": "resnet50", "gpus": 8, field: word})
