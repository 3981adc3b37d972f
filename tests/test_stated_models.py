"""Models that nobody measured: by name, by numbers or by a file, and how they are listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsim.errors import RequestError
from perfsim.models import MODELS, NAMED, build_model
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario
from perfsim.session import Session
from support.commands import answer, run
from support.what_ships import SHIPPED

LLAMA = "transformer:layers=32,hidden=4096,heads=32,kv=8,ffn=14336,vocab=128256,seq=8192"
LLAMA_FILE = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
"""The numbers of Llama 3 8B (Dubey et al., arXiv 2407.21783, table 3)."""
GENERIC = "generic:params=350M,layers=48,flops=12GFLOP"


def ask(model: str, catalog: Session = SHIPPED, **fields: Any) -> Prediction:
    """Return the prediction of a model on 16 H100."""
    asked = {"model": model, "gpus": 16, "gpus_per_node": 8, "gpu": "h100", "net": "100gbe"}
    return predict(make_scenario(asked | fields), catalog)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a file that states Llama 3 8B."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_FILE), encoding="utf-8")
    return path


@pytest.mark.parametrize("method", ["ssgd", "fsdp", "powersgd"])
@pytest.mark.parametrize("fields", [{}, {"seq": 2048, "batch": 4, "software": "megatron"}])
def test_a_model_is_the_same_by_name_by_numbers_and_by_file(
    method: str, fields: dict[str, Any], config: Path
) -> None:
    named = ask("llama3-8b", method=method, **fields)
    stated = ask(LLAMA, method=method, **fields)
    for one in (
        stated,
        *(ask(str(path), method=method, **fields) for path in (config, config.parent)),
    ):
        assert one.iteration_s == pytest.approx(named.iteration_s, rel=1e-12)
        assert one.breakdown_s == pytest.approx(named.breakdown_s)
        assert one.communication == pytest.approx(named.communication)
        assert one.memory_bytes == pytest.approx(named.memory_bytes)
        assert one.throughput == named.throughput
    # Only what is printed differs: each keeps the words that were asked for.
    assert (named.scenario.model, stated.scenario.model) == ("llama3-8b", LLAMA)


def test_a_changed_file_is_read_anew_in_one_session(config: Path) -> None:
    session = Session()
    before = ask(str(config), session)
    config.write_text(json.dumps(LLAMA_FILE | {"num_hidden_layers": 16}), encoding="utf-8")
    after = ask(str(config), session)
    assert after.iteration_s == pytest.approx(ask(LLAMA.replace("32,h", "16,h", 1)).iteration_s)
    assert after.memory_bytes["parameters"] < 0.6 * before.memory_bytes["parameters"]
    assert (
        after.throughput.flops_per_sample["products"]
        < (before.throughput.flops_per_sample["products"])
    )


def test_what_is_assumed_of_a_model_is_said() -> None:
    assumed = [note for note in ask("llama3-8b").notes if "assumptions" in note]
    assert assumed == [
        "`batch` 1, `precision` amp-bf16, `seq` 8192: assumptions, as nothing of the model was"
        " measured."
    ]
    given = ask("llama3-8b", batch=1, precision="bf16", seq=8192)
    assert not any("assumptions" in note for note in given.notes)
    assert given.iteration_s == ask("llama3-8b").iteration_s


@pytest.mark.parametrize(
    ("model", "software", "why"),
    [
        ("gemma2-9b", "torch2", "caps its scores"),
        ("gpt-oss-20b", "torch2", "has sinks beside its scores"),
        ("gemma2-9b", "torch2+flash2", ""),
        ("gemma2-9b", "megatron", ""),
        ("gemma2-9b", "torch1.12", ""),
        ("gemma3-1b", "torch2", ""),
    ],
)
def test_attention_by_single_operations_is_said(model: str, software: str, why: str) -> None:
    found = ask(model, software=software, seq=128)
    said = [note for note in found.notes if note.startswith(f"Attention of {model} ")]
    assert len(said) == bool(why)
    if why:
        assert why in said[0] and "`software` torch2+flash2 is one kernel" in said[0]
        assert getattr(said[0], "grade", "") == "assumption"


@pytest.mark.parametrize(
    ("gpu", "precision"), [("h100", "amp-bf16"), ("v100", "amp-fp16"), ("p100", "fp32")]
)
def test_the_usual_precision_is_the_narrowest_that_the_gpu_trains_in(
    gpu: str, precision: str
) -> None:
    assert ask("gpt3-125m", gpu=gpu).scenario.precision == precision


def test_tokens_of_a_sample_are_those_of_the_model_or_those_asked_for() -> None:
    own, asked = ask("llama3-8b"), ask("llama3-8b", seq=2048)
    assert own.throughput.tokens == 8192 and asked.throughput.tokens == 2048
    # A quarter of the tokens; attention, which goes with the square, takes less than a quarter.
    passes = [one.breakdown_s["forward"] + one.breakdown_s["backward"] for one in (own, asked)]
    assert 0.15 < passes[1] / passes[0] < 0.26
    assert own.communication["bytes_per_gpu"] == asked.communication["bytes_per_gpu"]


def test_learned_positions_that_are_not_there_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left, out, err = run("predict --model gpt3-1.3b --gpus 8 --gpu h100 --seq 4096", capsys)
    assert (left, out) == (2, "")
    assert err == "perfsim: --seq: the model learns 2048 positions, found 4096.\n"
    left, out, err = run(f"predict --model {GENERIC} --gpus 8 --gpu h100 --seq 128", capsys)
    assert (left, out) == (2, "")
    assert err == "perfsim: --seq: a generic model takes no tokens.\n"


def test_an_iteration_of_the_users_own_pins_a_stated_model() -> None:
    for model in ("llama3-8b", LLAMA, GENERIC):
        found = ask(model, gpus=1, gpus_per_node=1, single_gpu="400ms", batch=2)
        assert found.iteration_s == pytest.approx(0.4)
        assert found.samples_per_s == pytest.approx(5.0)
        shares = [found.breakdown_s[part] for part in ("forward", "backward", "update")]
        assert all(share > 0 for share in shares)


def test_a_generic_model_sends_its_parameters_and_does_its_work() -> None:
    found = ask(GENERIC, algorithm="ring", gpus=8, batch=4)
    assert found.communication["bytes_per_gpu"] == pytest.approx(2 * 7 / 8 * 4 * 350e6)
    # 12 GFLOP forward, twice that backward.
    assert found.throughput.flops_per_sample["products"] == pytest.approx(36e9)
    assert found.throughput.tokens_per_s is None
    twice = ask(GENERIC.replace("12G", "2400G"), algorithm="ring", gpus=8, batch=4)
    assert twice.breakdown_s["forward"] > found.breakdown_s["forward"]


def test_a_wider_model_of_usual_layers_is_no_faster() -> None:
    """Widths that are not stated are those that people train: no odd one makes a model slow."""
    times_s = [
        ask(
            f"transformer:layers=4,hidden={hidden},heads=16,vocab=50304",
            **{"gpu": "b200", "gpus": 8, "batch": 4, "seq": 1024, "precision": "bf16"},
        ).iteration_s
        for hidden in (512, 1024, 1280, 2048, 2304, 2560, 3072, 4096, 5120, 8192)
    ]
    assert times_s == sorted(times_s)


def test_an_unknown_model_is_told_the_other_ways(capsys: pytest.CaptureFixture[str]) -> None:
    ways = (
        "; or give your own: a profile CSV, a config.json, transformer:..., generic:..., or measure"
        " it (`perfsim calibrate compute`)."
    )
    for command in ("predict --gpus 8 --model llama3-8c", "show model llama3-8c"):
        left, out, err = run(command, capsys)
        assert (left, out) == (2, "")
        assert "no 'llama3-8c'; did you mean 'llama3-8b'?" in err
        assert err.endswith(f"{ways}\n")
    with pytest.raises(RequestError) as caught:
        ask("resnet5")
    assert "'resnet50'" in str(caught.value) and ways in str(caught.value)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-lama/Llama-3.1-8B", "llama3.1-8b"),
        ("Qwen/Qwen3-30B-A3", "qwen3-30b-a3b"),
        ("deepseek/DeepSeek-V3", "deepseek-v3"),
        ("bert", "bert-base"),
        ("gogle-bert/bert-large-uncased", "bert-large"),
        ("face/OPT-1.3B", "opt-1.3b"),  # not opt-13b
        ("gpt-3", "gpt3-13b"),  # not gpt2 or mpt-3b, which are spelled much like it
    ],
)
def test_a_model_as_others_write_it_leads_to_ours(name: str, known: str) -> None:
    with pytest.raises(RequestError) as caught:
        ask(name)
    assert caught.value.nearest == known
    assert f"no {name!r}; did you mean {known!r}?" in str(caught.value)


# In the inventory


def test_every_model_is_listed_with_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    rows = answer("list models", capsys)["rows"]
    alone = {row["model"]: row for row in rows if row["batch"] is None}
    assert set(alone) == {*MODELS, *NAMED} - {row["model"] for row in rows if row["batch"]}
    assert not {row["model"] for row in rows if row["batch"]} & set(alone)
    for name, row in alone.items():
        assert row["parameters"] == sum(layer.elements for layer in build_model(name))
        assert (row["gpu"], row["precision"], row["total"]) == ("any", "any", "derived")
        assert row["iteration_ms"] is None and row["profile"] == ""


def test_a_network_without_a_profile_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, _ = run("show model gpt2-xl", capsys)
    assert left == 0
    # Radford et al. 2019, table 2: 1542 M; with tied embeddings as Hugging Face counts them.
    assert "parameters: 1,557,611,200" in out
    assert "sample: 1024 tokens; --seq chooses others" in out


@pytest.mark.parametrize("model", ["llama3-8b", LLAMA])
def test_a_stated_model_is_shown(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(f"show model {model}", capsys)
    assert "parameters: 8,030,261,248" in out
    assert "sample: 8192 tokens" in out
    assert "its layers alone: times are those of its kernels on the GPU asked for" in out
    # 128256 x 4096 values of 4 bytes.
    assert "model.embed_tokens.weight" in out and "2.101 GB" in out


def test_a_file_and_a_generic_model_are_shown(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(f"show model {config}", capsys)
    assert "parameters: 8,030,261,248" in out
    _, out, _ = run(f"show model {GENERIC}", capsys)
    assert "forward: 12 GFLOP a sample" in out and "sample: not over text" in out
