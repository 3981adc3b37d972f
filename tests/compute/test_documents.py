"""Packed samples: attention that stays within documents, and all else that does not know of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.attention import ATTENTION
from perfsim.compute.device import load_device
from perfsim.compute.kernel_time import kernel_rates
from perfsim.compute.work import ModelWork, Work, model_work
from perfsim.errors import RequestError
from perfsim.memory import memory_use
from perfsim.models import build_model, model_flops, packed_model
from perfsim.models.documents import within_documents
from perfsim.models.layers import ModelLayer
from perfsim.models.split import Degrees, check_split, split_layers
from perfsim.prediction import Prediction, predict
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

MODEL = "llama3-8b"


def asked(**fields: Any) -> dict[str, Any]:
    """Return a question of Llama 3 8B with packed samples on 8 H100 in bf16."""
    usual = {"model": MODEL, "gpus": 8, "node": "dgx-h100", "batch": 1, "seq": 8192}
    return usual | {"precision": "bf16"} | fields


def answer(**fields: Any) -> Prediction:
    return predict(make_scenario(asked(**fields)), SHIPPED)


def attention(model: str, tokens: int, document: int | None) -> list[ModelLayer]:
    layers = packed_model(model, tokens, document)
    return [layer for layer in layers if layer.kind == "attention"]


def attention_work(work: ModelWork) -> list[Work]:
    return [work for work, _ in work.counted if work.kind == "attention"]


# By hand


def test_scores_are_those_of_the_documents() -> None:
    """Three documents of 100, 200 and 900 tokens: 860,000 pairs of the 1,440,000 of a sample."""
    lengths = (100, 200, 900)
    pairs = sum(length**2 for length in lengths)
    mean = pairs / sum(lengths)
    assert round(mean) == 717  # as the field's help says
    whole, packed = (attention(MODEL, 1200, one)[0].flops for one in (None, 717))
    assert whole == 4.0 * 1200**2 * 4096
    assert packed == pytest.approx(4.0 * pairs * 4096, rel=1e-3)


def test_a_window_wider_than_documents_does_nothing() -> None:
    """Mistral's window of 4,096: within 1,024 tokens it is none; of 6,144 it leaves its share."""
    model, tokens = "mistral-7b", 8192
    assert attention(model, tokens, 1024)[0].window == 1.0
    plain = 4.0 * tokens * 4096
    assert attention(model, tokens, 1024)[0].flops == pytest.approx(plain * 1024)
    reached = 2 * 4096 - 4096**2 / 6144  # twice the mean of keys for a query
    assert attention(model, tokens, 6144)[0].flops == pytest.approx(plain * reached)


def test_nothing_but_attention_knows_of_documents() -> None:
    for whole, packed in zip(build_model(MODEL, 8192), packed_model(MODEL, 8192, 512), strict=True):
        if whole.kind == "attention":
            back = packed._replace(flops=whole.flops, window=whole.window, document=0)
            assert back == whole != packed
        else:
            assert packed is whole


@pytest.mark.parametrize("era", ["torch2", "megatron", "mlperf"])
@pytest.mark.parametrize("documents", [2, 8, 64])
def test_attention_takes_as_long_as_over_so_many_samples(era: str, documents: int) -> None:
    """A kernel over a packed sample does what it does for a batch of samples as long."""
    rates = kernel_rates(load_device("h100", SHIPPED), "amp-bf16", era)
    length = 8192 // documents
    packed = attention_work(model_work(MODEL, 8192, era, False, length))
    alone = attention_work(model_work(MODEL, length, era))
    for one, other in zip(packed, alone, strict=True):
        assert rates.seconds(one, 3, True) == pytest.approx(
            rates.seconds(other, 3 * documents, True)
        )


def test_ranks_of_a_context_have_two_parts_of_each_document() -> None:
    """Of 4 ranks each has a quarter of the scores and of every document's tokens."""
    layers = packed_model(MODEL, 8192, 1024)
    whole = next(layer for layer in layers if layer.kind == "attention")
    parts = split_layers(layers, Degrees(cp=4))
    part = next(layer for layer in parts if layer.kind == "attention")
    assert (part.flops, part.document, part.rows) == (whole.flops / 4, 256, 2048)
    check_split(packed_model(MODEL, 8192, 8), Degrees(cp=4))
    with pytest.raises(RequestError, match=r"cp: 4 cuts each document in 8 parts.*the most is 3"):
        check_split(packed_model(MODEL, 8192, 7), Degrees(cp=4))


def test_model_flops_count_the_scores_of_documents() -> None:
    """But for PaLM's formula, which counts the whole sample, and 6N, which counts none."""
    whole, packed = model_flops(MODEL, 8192), model_flops(MODEL, 8192, 1024)
    scores = 3 * 32 * 4.0 * 8192**2 * 4096
    assert whole["products"] - packed["products"] == pytest.approx(scores * 7 / 8)
    assert whole["causal"] - packed["causal"] == pytest.approx(scores * 7 / 16)
    assert (whole["palm"], whole["6n"]) == (packed["palm"], packed["6n"])


def test_a_prediction_says_what_documents_save() -> None:
    found = answer(document_tokens=512)
    [note] = [note for note in found.notes if "within documents" in note]
    assert "512 tokens: it has 0.062 of the scores of whole samples of 8,192" in note
    assert found.scenario.further["document_tokens"] == 512
    assert "document_tokens" not in answer().scenario.further


# By law

WAYS: list[dict[str, Any]] = [
    {"software": "torch2"},
    {"software": "megatron", "method": "distributed_optimizer", "recompute": "selective"},
    {"model": "mistral-7b", "recompute": "full", "lora": 16},
    {
        "model": "gpt2",
        "gpu": "a100",
        "node": "dgx-a100",
        "seq": 1024,
        "software": "torch2",
        "batch": 8,
    },
    {"tp": 2, "cp": 2, "accumulate": 4, "method": "distributed_optimizer"},
    {"pp": 4, "accumulate": 8, "cp": 2, "cp_comm": "ulysses"},
    {"model": "gpt-oss-20b", "software": "torch2+flash2", "ep": 8},
    {"model": "deepseek-v2-lite", "precision": "fp8", "software": "megatron", "ep": 4},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_documents_as_long_as_samples_change_nothing(way: dict[str, Any]) -> None:
    whole, packed = answer(**way), answer(**way, document_tokens=way.get("seq", 8192))
    assert packed.iteration_s == whole.iteration_s
    assert packed.iteration_s_interval == whole.iteration_s_interval
    assert packed.throughput == whole.throughput
    assert packed.notes == whole.notes


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_shorter_documents_are_never_slower(way: dict[str, Any]) -> None:
    lengths = [one for one in (8192, 4097, 511, 8) if one <= way.get("seq", 8192)]
    found = [answer(**way, document_tokens=one).iteration_s for one in lengths]
    assert all(shorter <= longer for longer, shorter in pairwise(found))
    assert found[-1] < found[0]


@given(
    st.sampled_from([MODEL, "mistral-7b", "gpt-oss-20b", "bert-large", "deepseek-v2-lite"]),
    st.integers(1, 512),
    st.integers(1, 512),
)
def test_kernels_of_shorter_documents_are_never_slower(model: str, one: int, other: int) -> None:
    short, long = sorted((one, other))
    rates = kernel_rates(load_device("h100", SHIPPED), "amp-bf16", "torch2+flash2")
    times = [
        sum(
            rates.seconds(work, 4, True)
            for work in attention_work(model_work(model, 512, "torch2+flash2", False, length))
        )
        for length in (short, long)
    ]
    assert times[0] <= times[1] * (1 + 1e-12)


def test_memory_is_that_of_the_samples() -> None:
    whole, packed = (
        memory_use(resolve(make_scenario(asked(**more)), SHIPPED))
        for more in ({}, {"document_tokens": 256})
    )
    assert packed == whole


# By published value


@pytest.mark.parametrize(
    ("tokens", "measured_ms"), [(1024, 0.22), (2048, 0.33), (4096, 0.56), (8192, 1.03)]
)
def test_short_sequences_take_what_was_published(tokens: int, measured_ms: float) -> None:
    """cuDNN, causal, heads of 64, 32,768 tokens, forward, over 1.97 ms at 16,384 a sequence.

    Dao-AILab/flash-attention#2605, a GPU of compute capability 10 with 2,500 TFLOP/s. Sequences
    that are packed take 2 to 4 % longer than so many of a batch (#2150 there: 8,192 tokens, causal,
    forward 0.792 and 0.775 ms, backward 2.542 and 2.447 ms).
    """
    rate = ATTENTION["cudnn", "Blackwell"]

    def time(length: int) -> float:
        return length * rate.short(length, causal=True)

    assert time(tokens) / time(16_384) == pytest.approx(measured_ms / 1.97, rel=0.09)


# Refusals


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"document_tokens": 8193}, "8,193 is above the 8,192 tokens of a sample"),
        ({"model": "t5-large", "document_tokens": 64}, "transformers over one text a sample"),
        ({"model": "resnet50", "seq": None, "document_tokens": 64}, "resnet50 is none"),
        ({"software": "torch1.8", "document_tokens": 64}, "torch1.8 has no kernel of attention"),
        ({"model": "gpt-oss-20b", "document_tokens": 64}, "such as torch2\\+flash2"),
        (
            {"model": "bert-large", "seq": 512, "software": "mlperf", "document_tokens": 64},
            "whose padding is skipped",
        ),
        ({"document_tokens": 8, "cp": 8}, "the most is 4"),
    ],
)
def test_what_has_no_documents_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        answer(**fields)


def test_only_one_text_a_sample_has_documents() -> None:
    with pytest.raises(RequestError, match="document_tokens is for transformers"):
        within_documents(build_model("resnet50"), 8)
