"""Profiles made of kernels alone: their sums, their order, what they become, and laws."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.compute.device import load_device
from perfsim.compute.kernel_time import kernel_rates, layer_times, model_time
from perfsim.compute.profile import Profile
from perfsim.compute.software import ERAS
from perfsim.compute.transfer import kernel_profile, transfer
from perfsim.errors import RequestError
from perfsim.models import NAMED, build_model
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.session import Session
from support.what_ships import SHIPPED

UNMEASURED = Session()
"""For transfers without anchors: a session keeps what it made with them by the same names."""

STATED = [
    "llama3-8b",
    "gpt3-1.3b",
    "mpt-125m",
    "mixtral-8x7b",
    "t5-base",
    "transformer:layers=2,hidden=256,heads=4,vocab=1000",
    "transformer:family=vit,layers=2,hidden=256,heads=4,vocab=1000",
    "generic:params=350M,layers=48,flops=12GFLOP",
]


def made(
    model: str, precision: str = "amp-bf16", batch: int = 2, gpu: str = "h100", era: str = "torch2"
) -> Profile:
    """Return the profile of a model's kernels at its own tokens a sample."""
    sequence = NAMED[model].seq if model in NAMED else None
    device = load_device(gpu, SHIPPED)
    return kernel_profile(model, device, batch, precision, era, None, sequence)


@pytest.mark.parametrize("model", STATED)
@pytest.mark.parametrize("precision", ["fp32", "amp-bf16"])
def test_the_total_is_that_of_layers_and_update(model: str, precision: str) -> None:
    found = made(model, precision)
    layers_s = sum(layer.forward_s + layer.backward_s for layer in found.layers)
    assert found.iteration_s == pytest.approx(layers_s + found.optimizer_s)
    assert found.other_s == pytest.approx(0, abs=1e-12)
    rates = kernel_rates(load_device("h100", SHIPPED), precision, "torch2")
    whole = model_time(model, None, 2, rates)
    assert found.optimizer_s == whole.update_s
    # Casts of mixed precision are of no layer: 12 bytes a parameter.
    casts_s = 0.0 if precision == "fp32" else 12.0 * found.elements / rates.bytes_per_s
    assert layers_s + casts_s == pytest.approx(whole.passes_s)


@pytest.mark.parametrize("model", STATED)
def test_parameters_and_order_are_those_of_the_architecture(model: str) -> None:
    found, layers = made(model), build_model(model)
    shapes = [(name, shape) for layer in layers for name, shape in layer.tensors]
    assert [(one.name, one.shape) for one in found.gradients] == shapes
    assert found.elements == sum(layer.elements for layer in layers)
    owners = {name: layer.name for layer in layers for name, _ in layer.tensors}
    assert [found.layers[one.layer].name for one in found.gradients] == list(owners.values())
    # The last layer's gradients are ready first, when its backward pass is over; the first's last.
    ready = [one.ready_s for one in found.gradients]
    assert ready == sorted(ready, reverse=True)
    assert ready[0] == pytest.approx(found.backward_s)
    last = found.gradients[-1].layer
    assert ready[-1] == pytest.approx(sum(one.backward_s for one in found.layers[last:]))
    for one, after in pairwise(found.gradients):
        step = sum(layer.backward_s for layer in found.layers[one.layer : after.layer])
        assert one.ready_s - after.ready_s == pytest.approx(step, abs=1e-12)


def test_it_is_held_where_a_wider_precision_is_faster() -> None:
    """To cast 47 billion parameters takes longer than half precision saves on 512 tokens."""
    device = load_device("h100", SHIPPED)
    profile = kernel_profile("mixtral-8x7b", device, 1, "amp-bf16", "mlperf", 512, 512)
    found = transfer(profile, device, 1, "amp-bf16", {}, "mlperf", 512)
    tf32 = model_time("mixtral-8x7b", 512, 1, kernel_rates(device, "tf32", "mlperf"))
    assert found.quantity.value == pytest.approx(tf32.iteration_s)
    assert any("of h100 in tf32, which is no faster" in note for note in found.notes)


def test_a_kernel_profile_is_not_measured_at_all() -> None:
    found = made("llama3-8b")
    assert set(found.kinds.values()) == {"derived"}
    assert (found.header["kernels"], found.sequence) == ("alone", 8192)
    assert found.path == ""


@pytest.mark.parametrize("model", [model for model in STATED if model != "mixtral-8x7b"])
@pytest.mark.parametrize("era", ["torch2", "mlperf"])
def test_moved_without_any_measurement_it_is_its_kernels(model: str, era: str) -> None:
    """As nothing was measured, its iteration is by kernels and launches, at any batch."""
    device = load_device("h100", SHIPPED)
    for batch in (1, 2, 16):
        found = transfer(
            made(model, era=era), device, batch, "amp-bf16", {}, era, catalog=UNMEASURED
        )
        rates = kernel_rates(device, "amp-bf16", era)
        by_kernels = model_time(model, None, batch, rates)
        assert found.quantity.value == pytest.approx(by_kernels.iteration_s)
        assert found.profile.optimizer_s == pytest.approx(by_kernels.update_s)
        assert found.quantity.kind == "derived"
        assert found.profile.batch == batch


def test_kernels_of_a_precision_or_tokens_that_are_not_there_are_refused() -> None:
    with pytest.raises(RequestError, match="v100 has no 'amp-bf16' rate"):
        made("llama3-8b", gpu="v100")
    with pytest.raises(RequestError, match="the model learns 2048 positions, found 4096"):
        kernel_profile(
            "gpt3-1.3b", load_device("h100", SHIPPED), 1, "amp-bf16", "torch2", 4096, 4096
        )


# Laws of whole questions


def alone_s(**fields: Any) -> float:
    """Return the iteration on one GPU."""
    return resolve(make_scenario({"gpus": 1, "net": "10gbe"} | fields), SHIPPED).alone_s


LANGUAGE = ["llama3-8b", "gpt3-125m", "gpt3-6.7b", "mpt-1b", "mixtral-8x7b", "t5-base", STATED[-1]]


@given(
    model=st.sampled_from(LANGUAGE),
    gpu=st.sampled_from(["v100", "rtx3090", "a100", "a100-80gb", "h100"]),
    era=st.sampled_from([None, *ERAS]),
    batches=st.lists(st.integers(1, 600), min_size=2, max_size=5, unique=True),
)
@settings(max_examples=25)
def test_a_larger_batch_takes_longer_but_not_for_a_sample(
    model: str, gpu: str, era: str | None, batches: list[int]
) -> None:
    times = {
        batch: alone_s(model=model, gpu=gpu, batch=batch, software=era) for batch in sorted(batches)
    }
    for (small, short), (large, long) in pairwise(times.items()):
        assert 0 < short <= long * (1 + 1e-9)
        assert long / large <= short / small * (1 + 1e-9)


@pytest.mark.parametrize("model", ["llama3-8b", "gpt3-1.3b", "gpt3-6.7b", "mpt-7b", "opt-1.3b"])
@pytest.mark.parametrize(
    ("gpu", "count"), [("a100", 3), ("a100-80gb", 3), ("h100", 4), ("b200", 5)]
)
def test_half_precision_is_never_slower(model: str, gpu: str, count: int) -> None:
    precisions = [
        word
        for word in ("fp32", "tf32", "amp-bf16", "fp8", "nvfp4")
        if word in load_device(gpu, SHIPPED).rates
    ]
    assert len(precisions) == count
    for era in (None, "composer-2023", "megatron", "torch2-compiled"):
        asked: list[dict[str, Any]] = [{"precision": word} for word in precisions]
        asked[precisions.index("amp-bf16")]["autocast"] = False  # its casts are launched
        times = [
            alone_s(model=model, gpu=gpu, batch=1, seq=2048, software=era, **one) for one in asked
        ]
        assert all(one >= two * (1 - 1e-12) for one, two in pairwise(times)), era
        assert times[0] > 2 * times[2], era  # tensor cores


@pytest.mark.parametrize("model", ["llama3-8b", "mpt-1b", "t5-base"])
def test_longer_samples_take_longer_and_more_than_in_proportion_at_length(model: str) -> None:
    """Products grow in proportion, attention with the square of the tokens."""
    times = {
        seq: alone_s(model=model, gpu="h100", seq=seq, batch=32)
        for seq in (512, 1024, 4096, 8192, 16384, 32768)
    }
    for short, long in pairwise(times.values()):
        assert short < long
    assert times[32768] > 2 * times[16384]


@pytest.mark.parametrize("model", ["llama3-8b", "gpt3-6.7b", "mpt-7b"])
def test_software_written_or_compiled_for_it_is_never_slower(model: str) -> None:
    times = {
        era: alone_s(model=model, gpu="h100", seq=2048, batch=4, software=era)
        for era in ("torch1.8", "torch2", "torch2-compiled", "megatron")
    }
    by_kernels = {
        era: model_time(
            model, 2048, 4, kernel_rates(load_device("h100", SHIPPED), "amp-bf16", era)
        ).iteration_s
        for era in times
    }
    assert by_kernels["torch1.8"] > by_kernels["torch2"]
    assert by_kernels["torch2"] > max(by_kernels["torch2-compiled"], by_kernels["megatron"])
    # What was measured of torch1.8 is of older GPUs, where its kernels were closer to their count,
    # and of compiled steps one, of GPT-2, is on an H100.
    assert times["torch1.8"] > 0.99 * times["torch2"]
    assert times["torch2"] > 0.97 * times["torch2-compiled"]
    assert times["torch2"] > times["megatron"]


@pytest.mark.parametrize(
    "fields",
    [
        {"recompute": "full", "software": "megatron+unfused"},
        {"recompute": "core_attn", "software": "megatron+unfused"},
        # A model that has 16 bits itself, in software whose autocast would cast.
        {"autocast": False, "software": "torch2"},
    ],
)
def test_layers_keep_the_proportions_of_their_kernels(fields: dict[str, Any]) -> None:
    """They are priced once: nothing that was asked for changes them a second time."""
    asked = {"model": "llama3-8b", "gpus": 1, "gpu": "h100"} | fields
    profile = resolve(make_scenario(asked), Session()).profile
    device, autocast = load_device("h100", SHIPPED), fields.get("autocast", True)
    rates = kernel_rates(device, "amp-bf16", fields["software"], autocast=autocast)
    times = layer_times("llama3-8b", None, 1, rates, fields.get("recompute", "none"))
    expected: dict[str, float] = {}
    name = ""
    for layer, (forward_s, _) in zip(build_model("llama3-8b"), times, strict=True):
        name = layer.name if layer.tensors else name
        expected[name] = expected.get(name, 0.0) + forward_s
    ratios = [layer.forward_s / expected[layer.name] for layer in profile.layers]
    assert max(ratios) == pytest.approx(min(ratios))
