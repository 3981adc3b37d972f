"""Models stated by their numbers: what they mean, and what is refused in one sentence."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfsim.compute.device import load_device
from perfsim.compute.kernel_time import kernel_rates, model_time
from perfsim.compute.work import model_work
from perfsim.errors import RequestError
from perfsim.models import build_model
from perfsim.models.language import Architecture, architecture_layers
from perfsim.models.layers import ModelLayer, is_expert
from perfsim.models.named import NAMED
from perfsim.models.specification import (
    architecture_of,
    canonical_model,
    is_specified,
    specification_takes_tokens,
    specified_layers,
)
from support.what_ships import SHIPPED

LLAMA3 = "transformer:layers=32,hidden=4096,heads=32,kv=8,ffn=14336,vocab=128256"
SMALL = "transformer:layers=2,hidden=64,heads=4,vocab=100"


def _sums(layers: tuple[ModelLayer, ...]) -> tuple[int, float]:
    return sum(layer.elements for layer in layers), sum(layer.flops for layer in layers)


def _refusal(model: str) -> str:
    """Return the sentence that refuses a model."""
    with pytest.raises(RequestError) as refused:
        specified_layers(model)
    said = str(refused.value)
    assert said.startswith("model: ") and "\n" not in said and len(said) < 700
    return said.removeprefix("model: ")


def test_a_statement_of_llama_3_is_llama_3() -> None:
    assert architecture_of(f"{LLAMA3},seq=8192") == NAMED["llama3-8b"]
    assert specified_layers(LLAMA3, 8192) == specified_layers("llama3-8b")


def test_what_is_not_stated_is_llamas() -> None:
    assert architecture_of(SMALL) == Architecture(2, 64, 4, 4, 16, 256, 100)
    seven = "transformer:layers=32,hidden=4096,heads=32,vocab=32000"
    assert architecture_of(seven).ffn == NAMED["llama-7b"].ffn == 11008
    assert architecture_of(f"{SMALL},gated=no").ffn == 256
    assert architecture_of(f"{SMALL},positions=128").seq == 128
    assert architecture_of(f"{SMALL},qknorm=yes").qk_norm is True


@pytest.mark.parametrize(
    ("stated", "public"),
    [
        ("family=encoder,layers=12,hidden=768,heads=12,vocab=30522,seq=64", "bert-base"),
        ("family=vit,layers=24,hidden=1024,heads=16,vocab=1000", "vit-l16"),
        (
            "layers=12,hidden=768,heads=12,vocab=50257,positions=1024,norm=layer,gated=no,"
            "bias=all,tied=yes",
            "gpt2",
        ),
    ],
)
def test_other_families_have_the_sums_of_public_definitions(stated: str, public: str) -> None:
    assert _sums(specified_layers(f"transformer:{stated}")) == _sums(build_model(public))


def test_a_stated_t5_is_t5() -> None:
    stated = "family=encoder-decoder,layers=6,hidden=512,heads=8,ffn=2048,vocab=32128"
    assert architecture_of(f"transformer:{stated}") == NAMED["t5-small"]


@pytest.mark.parametrize("name", NAMED)
def test_a_full_statement_is_the_named_model(name: str) -> None:
    words: dict[object, str] = {True: "yes", False: "no"}
    numbers = ",".join(
        f"{field}={words[value] if type(value) is bool else value}"
        for field, value in NAMED[name]._asdict().items()
    )
    assert architecture_of(f"transformer:{numbers}") == NAMED[name]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("transformer:", "transformer: needs layers, hidden, heads, vocab too"),
        ("transformer:layers=2,hidden=64,vocab=100", "transformer: needs heads too"),
        (f"{SMALL},layers=3", "layers stands there twice"),
        (f"{SMALL},qk_norm=yes,qknorm=no", "qknorm stands there twice"),
        (
            f"{SMALL},hiden=3",
            "has no 'hiden'; did you mean 'hidden'? Allowed: activation, alibi, bias, channels, ",
        ),
        (f"{SMALL},ffn", "'ffn' is not NAME=NUMBER, such as layers=32"),
        (f"{SMALL},ffn=", "'ffn=' is not NAME=NUMBER"),
        (f"{SMALL},ffn=0", "ffn='0' is not a whole number from 1 to 1000000000"),
        (f"{SMALL},ffn=-4", "ffn='-4' is not a whole number from 1 to"),
        (f"{SMALL},ffn=1.5", "ffn='1.5' is not a whole number"),
        (f"{SMALL},ffn=4k", "ffn='4k' is not a whole number"),
        (f"{SMALL},ffn={'9' * 5000}", "9... is not a whole number"),
        (f"{SMALL},ffn=nan", "ffn='nan' is not a whole number"),
        (f"{SMALL},positions=-2", "positions='-2' is not a whole number from 0 to"),
        (f"{SMALL},tied=true", "tied='true' is not yes or no"),
        (f"{SMALL},norm=batch", "norm= has no 'batch'"),
        (f"{SMALL},bias=al", "did you mean 'all'?"),
        (
            f"{SMALL},family=rnn",
            "Allowed: decoder, dit, encoder, encoder-decoder, pre-norm-encoder, vit",
        ),
        ("transformer:layers=2,hidden=64,heads=5,vocab=9", "heads=5 does not divide hidden=64"),
        (f"{SMALL},kv=3", "kv=3 does not divide heads=4"),
        (f"{SMALL},experts=8,expert_ffn=9", "topk=0 is not 1 to experts=8"),
        (f"{SMALL},experts=8,expert_ffn=9,topk=9", "topk=9 is not 1 to experts=8"),
        (f"{SMALL},experts=8,topk=2", "experts need expert_ffn, the width of one"),
        (f"{SMALL},topk=2", "topk=2 needs experts"),
        (f"{SMALL},groups=2,topk_groups=1", "needs experts"),
        (f"{SMALL},experts=8,topk=2,expert_ffn=9,topk_groups=2", "topk_groups=2 needs groups"),
        (f"{SMALL},experts=8,topk=2,expert_ffn=9,groups=3", "groups=3 does not divide experts=8"),
        (
            f"{SMALL},experts=8,topk=2,expert_ffn=9,groups=4,topk_groups=5",
            "topk_groups=5 is not 1 to groups=4",
        ),
        (
            f"{SMALL},experts=8,topk=3,expert_ffn=9,groups=4,topk_groups=1",
            "topk=3 is above the experts of topk_groups=1 groups",
        ),
        (f"{SMALL},shared=2", "shared=2 needs experts"),
        (f"{SMALL},q_rank=2", "q_rank=2 needs kv_rank"),
        (f"{SMALL},value=2", "value=2 needs kv_rank"),
        (f"{SMALL},full_every=2", "full_every=2 needs window"),
        (f"{SMALL},window=9,full_every=1", "full_every=1 with window_every=1: where every n-th"),
        (f"{SMALL},window=9,full_every=4,window_every=2", "full_every=4 with window_every=2"),
        (f"{SMALL},qk_norm_all=yes", "qk_norm_all=yes needs qk_norm"),
        (f"{SMALL},router_fp32=yes", "router_fp32=yes needs experts"),
        (
            f"{SMALL},softcap=yes,sinks=yes",
            "scores of attention have a softcap, sinks or alibi",
        ),
        (f"{SMALL},kv_rank=8,sinks=yes", "kv_rank goes without softcap, sinks, alibi, fused_qkv"),
        (f"{SMALL},dropout=yes,residual_dropout=yes", "dropout has residual_dropout within"),
        (f"{SMALL},norms=1,parallel=yes", "norms=1: parallel is of 2 in a block"),
        (f"{SMALL},family=vit,softcap=yes", "softcap=yes is not for family=vit, which has soft"),
        (f"{SMALL},activation=gelu", "activation= has no 'gelu'"),
        (f"{SMALL},activation=clamped_swiglu", "activation= has no 'clamped_swiglu'"),
        (f"{SMALL},kv_rank=8,window=9", "kv_rank goes with bias=none, window=0"),
        (f"{SMALL},norms=3", "norms=3: a block has 1, 2 or 4"),
        (f"{SMALL},seq=9,positions=8", "seq=9 is above positions=8"),
        (f"{SMALL},family=encoder,experts=2", "experts=2 is not for family=encoder, which has"),
        (f"{SMALL},family=encoder,gated=yes", "gated=yes is not for family=encoder"),
        (f"{SMALL},family=encoder,kv=2", "kv=2 is not heads=4, as family=encoder needs"),
        (f"{SMALL},family=encoder,head=9", "heads=4 of head=9 are not hidden=64 wide"),
        (f"{SMALL},family=encoder-decoder,window=9", "window=9 is not for family=encoder-dec"),
        (f"{SMALL},family=vit,tied=yes", "tied=yes is not for family=vit"),
        (f"{SMALL},family=vit,patch=15", "patch=15 does not divide image=224"),
        (f"{SMALL},family=vit,image_width=15", "patch=16 does not divide image_width=15"),
        (f"{SMALL},family=vit,pool=max", "pool= has no 'max'"),
        (f"{SMALL},family=vit,classes=2", "classes=2 is not for family=vit"),
        (f"{SMALL},family=vit,learn_sigma=yes", "learn_sigma=yes is not for family=vit"),
        (f"{SMALL},family=dit,gated=yes", "gated=yes is not for family=dit"),
        (f"{SMALL},channels=4", "channels=4 is not for family=decoder"),
        (f"{SMALL},targets=4", "targets=4 is not for family=decoder"),
        (f"{SMALL},classes=4,head_bias=yes", "classes=4 goes with head_bias=no"),
        (f"{SMALL},family=encoder-decoder,classes=4", "classes=4 is not for family=encoder-deco"),
        (f"{SMALL},types=3", "types=3 is not for family=decoder"),
        ("transformer:layers=10001,hidden=1,heads=1,vocab=1", "layers=10001 is above 10000"),
        ("transformer:layers=1,hidden=1000000,heads=1,vocab=1000000000", "more than 1e14 param"),
        (
            "transformer:layers=1,hidden=1,heads=1,vocab=1,family=vit,image=1000000000,patch=1",
            "more than 1e14 parameters",
        ),
    ],
)
def test_a_wrong_number_is_refused_in_one_sentence(model: str, said: str) -> None:
    assert said in _refusal(model)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("generic:", "generic: needs params, layers, flops too, such as generic:params=350M"),
        ("generic:params=7B,layers=32", "generic: needs flops too"),
        ("generic:params=7X,layers=32,flops=1TFLOP", "params='7X' is not a count such as 350M"),
        ("generic:params=7B,layers=32,flops=12", "flops='12' needs a number and a unit such as"),
        ("generic:params=7B,layers=0,flops=1TFLOP", "layers='0' is not a whole number from 1"),
        ("generic:params=9,layers=32,flops=1TFLOP", "9 parameters in 32 layers: allowed are 1"),
        ("generic:params=101T,layers=9,flops=1EFLOP", "1 to 1e14 parameters, one a layer"),
        ("generic:params=7B,layers=10001,flops=1TFLOP", "allowed are 1 to 10000 layers"),
        ("generic:params=7B,layers=9,flops=12kFLOP", "is not 1.4e+04FLOP to 1000000EFLOP"),
        ("generic:params=7,layers=1,flops=0FLOP", "flops='0FLOP' is not 1FLOP to"),
        ("generic:params=7,layers=1,flops=2000000EFLOP", "FLOP to 1000000EFLOP"),
        ("generic:parms=7,layers=1,flops=2GFLOP", "did you mean 'params'?"),
    ],
)
def test_a_wrong_size_is_refused_in_one_sentence(model: str, said: str) -> None:
    assert said in _refusal(model)


def test_a_generic_model_takes_no_tokens() -> None:
    generic = "generic:params=350M,layers=48,flops=12GFLOP"
    assert not specification_takes_tokens(generic)
    assert specification_takes_tokens(SMALL) and specification_takes_tokens("gpt3-175b")
    assert not specification_takes_tokens(f"{SMALL},family=vit")
    assert not specification_takes_tokens("dit-s2")
    with pytest.raises(RequestError, match="seq: a generic model takes no tokens"):
        specified_layers(generic, 128)


@given(
    st.integers(1, 300),
    st.floats(1, 1e9),
    st.floats(2.1e-6, 1e6),
)
@example(layers=48, share=350e6 / 48, reuse=12e9 / 350e6)
@example(layers=3, share=3.4, reuse=0.7)
def test_a_generic_model_has_its_parameters_and_work(
    layers: int, share: float, reuse: float
) -> None:
    params = round(share * layers)
    flops = max(1, round(2 * params * reuse))
    stated = f"generic:params={params},layers={layers},flops={flops}FLOP"
    made = specified_layers(stated)
    found, work = _sums(made)
    assert (len(made), found) == (layers, params)
    assert work == pytest.approx(flops)
    assert max(layer.elements for layer in made) - min(layer.elements for layer in made) <= 1


@pytest.mark.parametrize("gpu", ["v100", "a100", "h100", "mi300x"])
@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
@pytest.mark.parametrize("params", [350_000_000, 48 * 2048**2, 1_000_000])
def test_more_work_of_a_generic_model_never_takes_less_time(
    gpu: str, precision: str, params: int
) -> None:
    """From half a row of each matrix to some ten, in steps of under a tenth of a row."""
    rates = kernel_rates(load_device(gpu, SHIPPED), precision, "torch2")
    times = []
    for step in range(50, 1100, 7):
        flops = round(2 * params * step / 100)
        model = f"generic:params={params},layers=48,flops={flops}FLOP"
        times.append(model_time(model, None, 8, rates).passes_s)
    assert all(more >= less * (1 - 1e-12) for less, more in pairwise(times))


def test_a_generic_model_reads_its_whole_weights_and_its_inner_side() -> None:
    """A matrix of 2048 x 2048 and one and a half rows: inner 2048, 2048^2 weights."""
    flops = 3 * 2048**2
    work = model_work(f"generic:params={2048**2},layers=1,flops={flops}FLOP", None, "torch2")
    (product,) = (one for one, _ in work.counted if one.kind == "product")
    assert (product.inner, product.weights, product.flops) == (2048, 2048**2, flops)


@pytest.mark.parametrize(
    ("stated", "canonical"),
    [
        (
            "generic: params = 0.35B, layers=48, flops=12 GFLOPs",
            "generic:params=350000000,layers=48,flops=12000000000FLOP",
        ),
        (
            "generic:params=7B,layers=32,flops=120000EFLOP",
            f"generic:params=7000000000,layers=32,flops={120_000 * 1e18:.0f}FLOP",
        ),
        ("resnet50", "resnet50"),
        ("llama3-8b", "llama3-8b"),
        ("no such model", "no such model"),
    ],
)
def test_a_canonical_name_has_all_numbers(stated: str, canonical: str) -> None:
    assert canonical_model(stated) == canonical
    assert canonical_model(canonical) == canonical


def test_one_model_has_one_name_however_it_is_written() -> None:
    shuffled = "transformer: vocab=128256, ffn=14336,, kv=8,heads=32,hidden=4096,layers=32,tied=no"
    assert canonical_model(shuffled) == canonical_model(LLAMA3)
    assert canonical_model(shuffled) != canonical_model(LLAMA3.replace("kv=8", "kv=4"))
    config = "transformer:num_hidden_layers=32,hidden_size=4096,num_attention_heads=32,tied=no"
    config += ",num_key_value_heads=8,intermediate_size=14336,vocab_size=128256"
    assert canonical_model(config) == canonical_model(LLAMA3)


@pytest.mark.parametrize(
    ("model", "stated"),
    [
        ("resnet50", False),
        ("", False),
        ("\0", False),
        ("x" * 5000, False),
        ("llama3-8b", True),
        (SMALL, True),
        ("generic:", True),
        ("none.json", True),
        ("folder", True),
        ("elsewhere", False),
    ],
)
def test_a_model_is_stated_or_is_not(
    model: str, stated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "."):
        Path(folder).mkdir(exist_ok=True)
        (tmp_path / folder / "config.json").touch()
    (tmp_path / "elsewhere").mkdir()
    assert is_specified(model) is stated


NUMBERS = st.integers(-3, 70).map(str) | st.sampled_from(["yes", "no", "all", "layer", "vit", "9k"])


@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder-decoder", "vit", "dit"])
@pytest.mark.parametrize("more", ["", "dropout=no", "dropout=yes", "activation=one-kernel"])
def test_what_a_family_has_otherwise_is_not_lost(family: str, more: str) -> None:
    stated = ",".join(filter(None, (f"{SMALL},family={family}", more)))
    canonical = canonical_model(stated)
    assert canonical_model(canonical) == canonical
    assert architecture_of(canonical) == architecture_of(stated)


def test_groups_of_experts_are_stated_where_there_are_some() -> None:
    """Names of before stay as they were."""
    shape = f"{SMALL},experts=8,topk=2,expert_ffn=9"
    assert "groups" not in canonical_model(shape)
    grouped = canonical_model(f"{shape},groups=4,topk_groups=2")
    assert grouped.endswith(",groups=4,topk_groups=2")
    assert canonical_model(grouped) == grouped
    first = next(one for one in build_model(grouped) if is_expert(one))
    assert first.groups == (4, 2)


PAIRS = st.tuples(st.sampled_from([*Architecture._fields, "qknorm", "nothing"]), NUMBERS)
TEXTS = st.text(max_size=40) | st.lists(PAIRS.map("=".join), max_size=8).map(
    lambda pairs: ",".join(["layers=3,hidden=64,heads=4,vocab=90", *pairs])
)
GENERIC = st.text(max_size=30) | st.tuples(
    st.sampled_from(["350M", "7B", "12", "1.5k", "x", "99T"]),
    st.sampled_from(["48", "1", "0", "ten"]),
    st.sampled_from(["12GFLOP", "1FLOP", "3.5 EFLOPs", "12", "999999EFLOP"]),
).map(lambda parts: "params={},layers={},flops={}".format(*parts))


@given(
    TEXTS.map("transformer:".__add__) | GENERIC.map("generic:".__add__), st.sampled_from([None, 64])
)
def test_any_text_is_a_model_or_is_refused(text: str, tokens: Any) -> None:
    try:
        layers = specified_layers(text, tokens)
    except RequestError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000
        return
    assert layers and all(layer.flops >= 0 for layer in layers)
    canonical = canonical_model(text)
    assert canonical_model(canonical) == canonical
    assert specified_layers(canonical, tokens) == layers


@given(PAIRS.map("=".join).map(f"{SMALL},".__add__))
def test_a_canonical_name_is_the_same_architecture(text: str) -> None:
    try:
        shape = architecture_of(text)
    except RequestError:
        return
    assert architecture_of(canonical_model(text)) == shape
    assert architecture_layers(shape)
