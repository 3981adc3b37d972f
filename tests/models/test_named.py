"""Weights are found by their name on huggingface.co, and a path is not taken for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfsim.errors import RequestError
from perfsim.models.named import NAMED, without_owner
from perfsim.prediction import predict
from perfsim.resolve import as_named
from perfsim.scenario import make_scenario
from support.commands import run
from support.what_ships import SHIPPED

WEIGHTS = {
    "meta-llama/Llama-3.1-8B-Instruct": "llama3.1-8b",
    "meta-llama/Meta-Llama-3-70B": "llama3-70b",
    "meta-llama/Llama-2-7b-hf": "llama2-7b",
    "codellama/CodeLlama-34b-hf": "codellama-34b",
    "Qwen/Qwen2.5-0.5B": "qwen2.5-0.5b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
    "google/gemma-2-27b-it": "gemma2-27b",
    "google/gemma-3-4b-pt": "gemma3-4b",
    "mistralai/Mistral-7B-v0.1": "mistral-7b",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b-v0.3",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
    "mistralai/Mistral-Small-24B-Base-2501": "mistral-small-24b",
    "allenai/OLMo-2-1124-13B": "olmo2-13b",
    "allenai/Olmo-3-1025-7B": "olmo3-7b",
    "microsoft/Phi-3-mini-128k-instruct": "phi3-mini",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "tinyllama-1.1b",
    "EleutherAI/pythia-6.9b-deduped": "pythia-6.9b",
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3-Base": "deepseek-v3",
    "openai-community/gpt2-xl": "gpt2-xl",
    "google-t5/t5-large": "t5-large",
    "openai/gpt-oss-20b": "gpt-oss-20b",
    "zai-org/GLM-4.5-Air-Base": "glm4.5-air",
    "bert-large-uncased": "bert-large",
    "Llama-3.3-70B-Instruct": "llama3.3-70b",
}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_weights_are_found_by_their_name_on_the_hub(weights: str) -> None:
    assert as_named("model", weights, SHIPPED) == WEIGHTS[weights]


def test_a_prediction_of_weights_is_that_of_the_model() -> None:
    fields: dict[str, Any] = {"gpus": 8, "node": "dgx-h100", "method": "fsdp"}
    asked, own = (
        predict(make_scenario(fields | {"model": model}))
        for model in ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b")
    )
    assert asked.iteration_s == own.iteration_s and asked.scenario.model == "llama3.1-8b"


@pytest.mark.parametrize("name", ["mine/resnet50", "runs/llama3-8b", "mosaicml/mpt-7b", "a/b/gpt2"])
def test_another_folder_is_no_owner(name: str) -> None:
    """A path that is mistyped, and weights whose network is another, are not taken for a name."""
    assert list(without_owner(name)) == [] and as_named("model", name, SHIPPED) == name
    with pytest.raises(RequestError, match="did you mean") as refused:
        predict(make_scenario({"model": name, "gpus": 8, "node": "dgx-h100"}))
    assert refused.value.field == "model"


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert as_named("model", "Qwen/Qwen3-8B", SHIPPED) == "Qwen/Qwen3-8B"
    assert as_named("model", "Qwen/Qwen3-4B", SHIPPED) == "qwen3-4b"


def test_no_weights_of_one_model_are_found_as_another() -> None:
    """A name of perfsim's is itself, whatever it ends in."""
    for name in NAMED:
        assert next(without_owner(name)) == name and as_named("model", name, SHIPPED) == name


def test_a_command_says_what_the_weights_are_called_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left, out, _ = run("predict --model Qwen/Qwen3-8B-Base --gpus 8 --node dgx-h100", capsys)
    assert left == 0 and out.startswith("qwen3-8b, ssgd;")
