"""What DeepSpeed's hooks take of the host in ZeRO-3."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from perfsim import Scenario, predict
from perfsim.compute.profile import Gradient, Layer, Profile
from perfsim.methods.building.host_hooks import ZERO3_S, with_host, zero3_host_s
from perfsim.prediction import Prediction

SCRIPTS = Path(__file__).parents[2] / "scripts"
BLOCK = (
    Gradient("model.layers.0.norm.weight", (100,), 0.3, 0),
    Gradient("model.layers.0.up.weight", (400, 100), 0.2, 1),
    Gradient("model.layers.0.experts.gate_up_proj", (8, 200, 100), 0.1, 2),
)
MODEL = Profile(
    *("stated", "a100", "amp-bf16", 1, 0.8, 0.2),
    layers=tuple(Layer(f"{number}", "linear", 0.1, 0.1) for number in range(3)),
    gradients=BLOCK,
    kinds={},
    header={},
    host_share=0.5,
)


def test_what_hooks_take_is_what_was_measured() -> None:
    text = (SCRIPTS / "sharding_host.txt").read_text()
    rows = re.findall(r"^ZeRO-3, a module (.*?) +(\d+) +(\d+)$", text, re.MULTILINE)
    measured = {kind: (float(ahead), float(back)) for kind, ahead, back in rows}
    assert measured == {
        kind: tuple(pytest.approx(1e6 * one) for one in seconds)
        for kind, seconds in ZERO3_S.items()
    }


def test_each_module_has_hooks_and_each_expert_of_a_loop_is_modules() -> None:
    """Two sharded modules, one whole, four of the block without tensors; 16 and 16 more."""
    sharded, whole, empty = (ZERO3_S[kind] for kind in ("sharded", "whole", "without tensors"))
    once = 2 * sum(sharded) + sum(whole) + 4 * sum(empty)
    assert zero3_host_s(MODEL, 1000, "torch2", "none") == pytest.approx(once)
    again = once + 2 * sharded.forward_s + whole.forward_s + 4 * empty.forward_s
    assert zero3_host_s(MODEL, 1000, "torch2", "full") == pytest.approx(again)
    looped = once + 15 * sum(sharded) + 16 * sum(empty)
    assert zero3_host_s(MODEL, 1000, "torch2+loop", "none") == pytest.approx(looped)
    assert zero3_host_s(MODEL, 1000, "mlperf", "none") == 0.0


def test_passes_take_longer_where_the_host_then_needs_more_than_the_gpu() -> None:
    """Passes of 0.6 s, of which the host needs 0.3: with 0.1 more it waits, with 0.6 the GPU."""
    waiting, bound = with_host(MODEL, 0.1), with_host(MODEL, 0.6)
    assert waiting.layers == MODEL.layers
    assert waiting.host_share == pytest.approx(0.4 / 0.6)
    assert bound.forward_s + bound.backward_s == pytest.approx(0.9)
    assert (bound.host_share, bound.device_share) == pytest.approx((1.0, 0.6 / 0.9))
    assert with_host(replace(MODEL, layers=()), 0.1).layers == ()


def test_small_models_wait_for_hooks_and_large_ones_do_not() -> None:
    small = "transformer:layers=6,hidden=512,heads=8,ffn=2048,vocab=8192,seq=256"
    asked = {"gpus": 8, "gpu": "a100", "batch": 1, "precision": "bf16", "method": "zero"}

    def asked_of(model: str, stage: int, **more: object) -> Prediction:
        scenario = {"model": model, "options": {"stage": stage}, **asked, **more}
        return predict(Scenario.model_validate(scenario))

    assert asked_of(small, 3).iteration_s > 1.2 * asked_of(small, 2).iteration_s
    found = asked_of("llama2-7b", 3, batch=4)
    assert any("Hooks around modules take the host" in note for note in found.notes)
    assert "hooks around" not in str(found.warnings)
