"""Autocast: what it casts, what gelu_new passes over, and which models it is not for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.device import load_device
from perfsim.compute.kernel_time import kernel_rates, model_time
from perfsim.compute.mixed_precision import IN_16_BITS
from perfsim.compute.software import ERAS
from perfsim.compute.transfer import Training, transfer
from perfsim.compute.work import LayerWork, Work, model_work
from perfsim.errors import DataError, RequestError
from perfsim.memory import memory_use
from perfsim.methods import load_method, method_names
from perfsim.models.specification import canonical_model
from perfsim.note import Note
from perfsim.planning.compare import compare
from perfsim.prediction import Prediction, predict
from perfsim.resolve import Setup, find_profile, resolve
from perfsim.scenario import make_scenario
from perfsim.session import Session
from scripts.autocast_host import SPECIFICATIONS, operations
from support.what_ships import SHIPPED

AUTOCASTING = ("torch1.8", "torch1.12", "torch2")
TOKENS = 128
HOST = Path(__file__).parents[1] / "scripts" / "autocast_host.txt"
BLOCK = "transformer:layers=1,hidden=256,heads=4,vocab=1000"


def layer(model: str, end: str, era: str = "torch2", *, autocast: bool = True) -> LayerWork:
    """Return the kernels of the first layer whose name ends so."""
    layers = model_work(model, TOKENS, era, autocast).layers
    return next(one for one in layers if one.name.endswith(end))


def setup(**fields: Any) -> Setup:
    """Return a question of BERT-base on 8 H100, resolved."""
    usual = {"model": "bert-base", "gpus": 8, "gpu": "h100", "net": "ib400", "software": "torch2"}
    return resolve(make_scenario(usual | {"precision": "amp-bf16"} | fields), SHIPPED)


# By hand


@pytest.mark.parametrize(
    ("end", "reads"),
    [
        ("0.attention.self.query", 768),  # of a normalisation, in fp32
        ("0.attention.self.value", 768),  # each casts what all three read
        ("0.attention.output.dense", 0),  # of attention, in 16 bits
        ("0.intermediate.dense", 768),
        ("0.output.dense", 0),  # of a GELU in one kernel
    ],
)
def test_a_dense_layer_casts_what_it_reads_in_fp32_and_its_gradient_back(
    end: str, reads: int
) -> None:
    """4 bytes are read and 2 written of a value: 1.5 fp32 values."""
    plain, cast = layer("bert-base", end, autocast=False), layer("bert-base", end)
    one = Work("stream", 0.0, 1.5 * reads * TOKENS, wide=True)
    forward, backward = ((one,), (one,)) if reads else ((), ())
    assert cast.forward == (*forward, *plain.forward)
    assert cast.backward == (*plain.backward, *backward)
    # The weight and the bias are cast too, as is what is read; and each of the gradients.
    assert cast.operations == plain.operations + 2 * (2 + (reads > 0))


def test_gelu_new_passes_46_times_over_its_values_where_gelu_does_5_times() -> None:
    """Eight operations forward, two of which read two values, and eleven backward."""
    written = layer("gpt2", "mlp.c_fc", autocast=False)
    whole = layer("gpt3-125m", "mlp.up_proj", autocast=False)
    values = 4 * 768 * TOKENS
    assert written.forward[1:] == (Work("stream", 0, 18 * values, counted=True),)
    assert written.backward[2:] == (
        Work("stream", 0, values),  # the bias
        Work("stream", 0, 28 * values, counted=True),
    )
    assert whole.forward[1:] == (Work("stream", 0, 2 * values),)
    assert written.operations == whole.operations + 17


def test_autocast_takes_gelu_new_in_fp32_and_casts_it_behind() -> None:
    values = 4 * 768 * TOKENS
    assert layer("gpt2", "mlp.c_fc").forward[-1] == Work(
        "stream", 0, 18 * values, wide=True, counted=True
    )
    cast = Work("stream", 0, 1.5 * values, wide=True)
    assert layer("gpt2", "mlp.c_proj").forward[0] == cast
    assert layer("gpt3-125m", "mlp.down_proj").forward[0].kind == "product"


def test_a_gate_of_gelu_new_leaves_fp32_for_the_product_behind() -> None:
    """T5 1.1: what both halves make is cast; attention's output is not, a decoder's neither."""
    model = canonical_model(
        "transformer:layers=1,hidden=256,heads=4,vocab=1000,ffn=512,activation=gelu_new"
    )
    cast = Work("stream", 0.0, 1.5 * 512 * TOKENS, wide=True)
    assert layer(model, "mlp.down_proj").forward[0] == cast
    assert layer(BLOCK, "mlp.down_proj").forward[0].kind == "product"
    assert layer("t5-base", "SelfAttention.o_proj").forward[0].kind == "product"
    assert layer("t5-base", "EncDecAttention.o_proj").forward[0].kind == "product"
    assert layer("t5-base", "EncDecAttention.q_proj").forward[0].wide


@pytest.mark.parametrize("era", ["torch2-compiled", "megatron", "mlperf"])
def test_fused_software_writes_gelu_new_as_any_other_gelu(era: str) -> None:
    written, whole = (
        layer(model, end, era) for model, end in (("gpt2", "c_fc"), ("gpt3-125m", "up_proj"))
    )
    assert written[1:] == whole[1:]


def test_passes_that_are_counted_one_by_one_take_nothing_besides() -> None:
    rates = kernel_rates(load_device("h100", SHIPPED), "amp-bf16", "torch2")
    work = Work("stream", 0.0, 1e9)
    gap_s = rates.constants.gap_s
    plain, counted = (rates.seconds(one, 1, True) for one in (work, work._replace(counted=True)))
    assert plain - gap_s == pytest.approx(rates.casts * (counted - gap_s))
    assert counted - gap_s == pytest.approx(2e9 / rates.bytes_per_s)


def test_casts_are_near_those_that_pytorch_was_counted_to_make() -> None:
    """`autocast_host.py` made the file: of a block, calls of both passes, casts, perfsim's count.

    The code of GPT-2 has one product for queries, keys and values, that of GPT-Neo makes scores
    fp32, and Llama's positions are fp32 under autocast.
    """
    rows = re.findall(r"^(.+), (fp32|autocast), block +(.*)$", HOST.read_text(), re.MULTILINE)
    counts = {(name, way): [int(one) for one in text.split()] for name, way, text in rows}
    assert {name for name, _ in counts} == {*SPECIFICATIONS}
    for (name, way), (_, _, casts, _, own) in counts.items():
        assert own == operations(name, casts=way == "autocast")[0]
        if way == "autocast":
            assert 0.55 < (own - counts[name, "fp32"][-1]) / casts < 1.25


# Laws


@given(
    model=st.sampled_from(["bert-base", "gpt2", "vit-b16", "llama3-8b", BLOCK]),
    era=st.sampled_from(sorted(ERAS)),
    batch=st.integers(1, 64),
)
def test_autocast_never_takes_less_than_a_model_of_16_bits(
    model: str, era: str, batch: int
) -> None:
    device = load_device("h100", SHIPPED)
    cast, whole = (
        model_time(model, None, batch, kernel_rates(device, "amp-bf16", era, autocast=autocast))
        for autocast in (True, False)
    )
    if era in AUTOCASTING:
        assert cast.passes_s > whole.passes_s and cast.host_passes_s > whole.host_passes_s
    else:
        assert cast == whole
    assert (cast.update_s, cast.host_update_s) == (whole.update_s, whole.host_update_s)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp8"])
def test_other_precisions_cast_nothing(precision: str) -> None:
    device = load_device("h100", SHIPPED)
    both = [
        model_time("gpt2", None, 8, kernel_rates(device, precision, "torch2", autocast=autocast))
        for autocast in (True, False)
    ]
    assert both[0] == both[1]


def test_a_network_of_convolutions_launches_casts_and_has_the_same_kernels() -> None:
    """Its values have 16 bits either way; weights, images and the loss are cast (54 products)."""
    cast, plain = (model_work("resnet50", None, "torch2", casts) for casts in (True, False))
    assert (cast.counted, cast.forward) == (plain.counted, plain.forward)
    assert cast.operations - plain.operations == 2 * 54 + 2 + 1 + 2


# Who autocasts


@pytest.mark.parametrize("name", method_names())
def test_methods_that_keep_or_gather_16_bits_do_not_autocast(name: str) -> None:
    method = load_method(name, {})
    assert method.autocasts() == (not method.keeps_half and not method.gathers_units())


@pytest.mark.parametrize(
    ("fields", "autocast"),
    [
        ({}, True),
        ({"method": "powersgd"}, True),
        ({"method": "fsdp"}, False),
        ({"method": "zero"}, False),
        ({"method": "distributed_optimizer"}, False),
        ({"tp": 2}, False),
        ({"autocast": False}, False),
        ({"method": "fsdp", "autocast": True}, True),
        ({"method": "fsdp", "autocast": "true"}, True),
    ],
)
def test_it_is_as_asked_else_as_the_methods_code_does(
    fields: dict[str, Any], autocast: bool
) -> None:
    assert setup(**fields).autocast == autocast


def test_a_model_of_16_bits_computes_faster_whatever_the_method() -> None:
    ssgd, whole = setup(batch=64), setup(batch=64, autocast=False)
    assert whole.alone_s < 0.9 * ssgd.alone_s
    assert setup(batch=64, method="fsdp").alone_s == pytest.approx(whole.alone_s)
    cast = setup(batch=64, method="fsdp", autocast=True)
    assert cast.alone_s == pytest.approx(ssgd.alone_s)


def test_a_measured_iteration_is_scaled_to_a_model_of_16_bits() -> None:
    """BERT-base at batch 64 was measured under autocast on an H100, where its host bound.

    Without casts launches are fewer, and the GPU binds, whose kernels nobody measured.
    """
    profile = find_profile("bert-base", "h100", 64, "amp-bf16", SHIPPED)
    device = load_device("h100", SHIPPED)
    found = {
        autocast: transfer(
            profile,
            device,
            64,
            "amp-bf16",
            SHIPPED,
            "torch2",
            128,
            Training(autocast=autocast),
        )
        for autocast in (True, False)
    }
    measured, whole = (found[autocast].quantity for autocast in (True, False))
    assert measured.kind == "measured" and whole.kind == "derived"
    rates = [kernel_rates(device, "amp-bf16", "torch2", autocast=one) for one in (False, True)]
    alone, casts = (model_time("bert-base", 128, 64, one) for one in rates)
    off = measured.value / casts.iteration_s
    assert casts.host_passes_s > casts.passes_s and off * alone.host_passes_s < alone.passes_s
    assert whole.value == pytest.approx(alone.passes_s + off * alone.update_s)


def test_16_bits_are_kept_where_nothing_is_cast() -> None:
    cast, whole = (
        memory_use(setup(batch=64, autocast=autocast)).parts for autocast in (True, False)
    )
    assert whole["activations"] < cast["activations"]
    # 2 bytes a parameter instead of 4, and an fp32 copy among the optimizer's state.
    elements = cast["parameters"] / 4
    assert whole["parameters"] == pytest.approx(2 * elements)
    assert whole["optimizer"] - cast["optimizer"] == pytest.approx(4 * elements, rel=0.01)


def test_gathered_units_are_kept_as_they_are() -> None:
    """Asked or not: FSDP keeps fp32 shards and gathers them in 16 bits."""
    usual, asked = (
        memory_use(setup(batch=64, method="fsdp", **more)).parts
        for more in ({}, {"autocast": False})
    )
    assert usual == asked


@pytest.mark.parametrize(
    "name",
    [
        *("zero", "hybrid_zero", "distributed_optimizer", "cocktailsgd", "onebit_adam"),
        *("zeropp", "loco", "sdp4bit"),
    ],
)
def test_codes_that_keep_16_bits(name: str) -> None:
    assert load_method(name, {}).keeps_half and not load_method("ssgd", {}).keeps_half


def test_one_session_answers_each_question_as_a_new_one_does() -> None:
    """The same model, GPU and cluster, with other moments at which gradients are ready."""
    session = Session()
    fields = {"model": "gpt2", "gpus": 8, "gpu": "h100", "net": "10gbe", "precision": "amp-bf16"}
    for autocast in (True, False):
        asked = make_scenario(fields | {"autocast": autocast, "batch": 8})
        one, new = predict(asked, session), predict(asked, Session())
        assert one.iteration_s == new.iteration_s


def test_a_divided_model_may_be_asked_to_autocast() -> None:
    usual, asked = (answer(tp=2, **more) for more in ({}, {"autocast": True}))
    assert asked.iteration_s > 1.1 * usual.iteration_s


def test_layers_take_the_shares_that_their_kernels_have() -> None:
    """Without casts a measured profile's layers do not all become shorter alike."""
    fields = {"model": "gpt2", "batch": 8}
    measured, cast, whole = (
        setup(**fields, **more).profile.layers
        for more in ({}, {"autocast": True}, {"autocast": False})
    )
    assert measured == cast
    ratios = {
        one.name: other.backward_s / one.backward_s
        for one, other in zip(cast, whole, strict=True)
        if one.backward_s > 0
    }
    assert max(ratios.values()) > 1.05 * min(ratios.values())


# What it is compared with, and what is said


def answer(**fields: Any) -> Prediction:
    """Return the prediction of GPT-2 on 8 H100."""
    usual = {"model": "gpt2", "gpus": 8, "gpu": "h100", "net": "ib400", "batch": 8}
    return predict(make_scenario(usual | {"precision": "amp-bf16"} | fields), SHIPPED)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        *(
            (method, fields)
            for method in ("fsdp", "zero", "powersgd")
            for fields in ({}, {"autocast": False}, {"autocast": True})
        ),
        ("fsdp", {"tp": 2}),
        ("zero", {"tp": 2}),
        ("fsdp", {"tp": 2, "accumulate": 4}),
        ("fsdp", {"gpu": "a100:4,a100-40gb:4", "gpus_per_node": 4}),
        ("zero", {"single_gpu": "90ms", "net": "10gbe"}),
    ],
)
def test_the_baseline_is_what_ssgd_takes_when_it_is_asked(
    method: str, fields: dict[str, Any]
) -> None:
    one, ssgd = answer(method=method, **fields), answer(**fields)
    assert one.baseline_s == pytest.approx(ssgd.iteration_s)


def test_a_method_that_computes_in_16_bits_says_that_ssgd_does_not() -> None:
    [said] = [note for note in answer(method="fsdp").notes if IN_16_BITS in note]
    assert isinstance(said, Note) and said.grade == "warning"
    assert said.brief == (
        "fsdp: computed in 16 bits, S-SGD beside it by autocast; set `autocast` either way to"
        " compare alike"
    )
    quiet: tuple[dict[str, Any], ...] = (
        {"autocast": False},
        {"autocast": True},
        {"tp": 2, "accumulate": 2},
        {"precision": "fp32"},
        {"single_gpu": "90ms"},
    )
    for fields in quiet:
        assert not any(IN_16_BITS in note for note in answer(method="fsdp", **fields).notes)
    assumed = [note for note in answer().notes if note.startswith("`autocast`")]
    assert len(assumed) == 1 and not answer(autocast=True).notes[0].startswith("`autocast`")


def test_a_comparison_says_which_methods_compute_in_16_bits() -> None:
    fields = {"model": "gpt2", "gpus": 8, "gpu": "h100", "net": "ib400", "batch": 8}
    asked = make_scenario(fields | {"precision": "amp-bf16"})
    found = compare(asked, "ssgd,fsdp,zero", catalog=SHIPPED)
    [said] = [note for note in found.notes if IN_16_BITS in note]
    assert said.startswith("fsdp, zero: computed in 16 bits throughout, the others by autocast")
    alone = compare(asked, "fsdp", catalog=SHIPPED)
    assert any("fsdp: computed in 16 bits throughout, S-SGD by" in one for one in alone.notes)
    for row in found.rows:
        assert row.speedup == pytest.approx(found.baseline.iteration_s / row.iteration_s)


def test_a_time_of_ones_own_on_one_gpu_holds_for_the_baseline_too() -> None:
    fsdp = answer(method="fsdp", single_gpu="50ms")
    assert fsdp.baseline_s == pytest.approx(answer(single_gpu="50ms").iteration_s)


# What is refused, and what a config.json says


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_it_has_no_meaning_in_precisions_without_casts(precision: str, autocast: bool) -> None:
    with pytest.raises(RequestError) as error:
        setup(precision=precision, autocast=autocast)
    assert error.value.field == "autocast"
    assert error.value.why.startswith(f"nothing is cast in {precision}; leave `autocast` out")


@pytest.mark.parametrize("precision", ["fp8", "nvfp4"])
def test_narrow_operands_have_values_of_16_bits_either_way(precision: str) -> None:
    """So false says what is priced; parameters have 16 bits too, beside a copy in fp32."""
    asked = {"precision": precision, "gpu": "b200"}
    usual, whole = answer(**asked), answer(**asked, autocast=False)
    assert whole.iteration_s == usual.iteration_s
    assert setup(**asked, autocast=False).keeps_half
    with pytest.raises(RequestError, match=r"in .* values have 16 bits, and the operands"):
        setup(**asked, autocast=True)


@pytest.mark.parametrize(
    ("more", "written"),
    [
        ({}, True),
        ({"activation_function": "gelu_new"}, True),
        ({"activation_function": "gelu_pytorch_tanh"}, False),
        ({"activation_function": None}, True),
    ],
)
def test_a_config_file_says_whether_its_gelu_is_gelu_new(
    more: dict[str, Any], written: bool, tmp_path: Path
) -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 99}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | more))
    assert (",activation=gelu_new" in canonical_model(str(path))) == written


@pytest.mark.parametrize(
    ("more", "written"),
    [
        ({"model_type": "bert"}, False),
        ({"model_type": "bert", "hidden_act": "gelu_new"}, True),
        ({"model_type": "t5"}, False),
        ({"model_type": "t5", "feed_forward_proj": "gated-gelu"}, True),
        ({"model_type": "t5", "feed_forward_proj": "gelu_new"}, True),
        ({"model_type": "t5", "feed_forward_proj": "gated-silu"}, False),
    ],
)
def test_encoders_say_so_too(more: dict[str, Any], written: bool, tmp_path: Path) -> None:
    config = {"vocab_size": 99, "hidden_size": 64, "num_hidden_layers": 1, "num_layers": 1}
    config |= {"num_attention_heads": 1, "intermediate_size": 99, "d_model": 64, "d_ff": 99}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"num_heads": 1} | more))
    assert (",activation=gelu_new" in canonical_model(str(path))) == written


def test_an_activation_that_is_no_text_is_refused(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 99}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"activation_function": 3}))
    with pytest.raises(DataError, match="activation_function is 3, not a text"):
        canonical_model(str(path))
