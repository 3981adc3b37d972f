"""Traces of training: PyTorch profiles and Horovod timelines to profiles and collectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.calibrate.traces import read_trace
from perfsim.calibrate.traces.to_profile import with_known_names
from perfsim.calibrate.traces.training_trace import TracedCollective, TracedLayer, TracedStep
from perfsim.cli.main import code
from perfsim.models import build_model
from support.training_traces import BACK, HOROVOD, MAIN, OWN, US, host, imported, saved, step


def test_kernels_give_the_moments_of_a_gpu(tmp_path: Path) -> None:
    file = saved(tmp_path, step() + step(1000.0))
    profile = imported(tmp_path, file)
    layers = [(one.name, one.kind, one.forward_s, one.backward_s) for one in profile.layers]
    # conv: kernels from 200 to 300, linear with the loss to 360; gradients at 440 and 540 of 370.
    assert layers == [
        ("conv2d_0", "conv", pytest.approx(100 * US), pytest.approx(100 * US)),
        ("linear_0", "linear", pytest.approx(60 * US), pytest.approx(70 * US)),
    ]
    ready = {one.name: (one.shape, one.ready_s) for one in profile.gradients}
    assert ready == {
        "conv2d_0.weight": ((8, 3, 3, 3), pytest.approx(170 * US)),
        "linear_0.weight": ((10, 8), pytest.approx(70 * US)),
        "linear_0.bias": ((10,), pytest.approx(70 * US)),
    }
    assert profile.optimizer_s == pytest.approx(30 * US)
    # Of the 1000 us, 160 are the all-reduce alone.
    assert profile.iteration_s == pytest.approx(840 * US)
    assert profile.kinds["iteration_ms"] == "derived"


def test_nccl_kernels_are_calls_with_bytes_ranks_and_seconds(tmp_path: Path) -> None:
    seen = read_trace(saved(tmp_path, step())).collectives
    assert seen == (TracedCollective("all_reduce", 1224, 2, pytest.approx(160 * US)),)


def test_kernels_without_words_take_those_of_the_call_that_launched_them(tmp_path: Path) -> None:
    events = step()
    for event in events:
        if event["name"].startswith("nccl"):
            told, event["args"] = event["args"], {"correlation": event["args"]["correlation"]}
    events += [host("record_param_comms", 264, 270, BACK, **told)]
    assert read_trace(saved(tmp_path, events)).collectives[0].size_bytes == 1224
    events[-1] = host("nccl:all_reduce", 264, 270, BACK, **{"Input Dims": [[306]]})
    events[-1]["args"]["Input type"] = ["c10::Half"]
    one = read_trace(saved(tmp_path, events, distributedInfo={"world_size": 8})).collectives[0]
    assert (one.size_bytes, one.ranks) == (612, 8)


def test_a_cpu_trace_takes_the_times_of_its_threads(tmp_path: Path) -> None:
    profile = imported(tmp_path, saved(tmp_path, step(gpu=False, back=MAIN)))
    layers = [(one.forward_s, one.backward_s) for one in profile.layers]
    # conv from 100, linear from 120, loss to 156; backward from 200: 241 and 263.
    assert layers == [
        (pytest.approx(20 * US), pytest.approx(22 * US)),
        (pytest.approx(36 * US), pytest.approx(41 * US)),
    ]
    assert profile.iteration_s == pytest.approx(1000 * US)
    assert profile.kinds["iteration_ms"] == "measured"


def test_modules_name_the_layers(tmp_path: Path) -> None:
    events = step(gpu=False, back=MAIN)
    for name, start, end in (("Net_0", 90, 145), ("Conv2d_7", 98, 112), ("Head_0", 115, 142)):
        events.append(host(f"nn.Module: {name}", start, end) | {"cat": "python_function"})
    profile = imported(tmp_path, saved(tmp_path, events))
    assert [(one.name, one.kind) for one in profile.layers] == [
        ("Conv2d_7", "conv"),
        ("Head_0", "parameter"),
    ]


def test_our_own_trace_of_two_ranks_on_gloo(tmp_path: Path) -> None:
    traced = read_trace(OWN)
    assert traced.step is not None and traced.device == "cpu"
    assert (traced.library, traced.world, traced.step.count) == ("gloo", 2, 2)
    assert [(one.name, one.gradients[0][1]) for one in traced.step.layers] == [
        ("Conv2d_0", (16, 3, 3, 3)),
        ("BatchNorm2d_0", (16,)),
        ("Conv2d_1", (16, 16, 3, 3)),
        ("Conv2d_2", (32, 16, 3, 3)),
        ("Linear_0", (10, 8192)),
    ]
    # Two buckets: the dense layer's 81 930 elements, then the other 7 424.
    sizes = {one.size_bytes for one in traced.collectives if one.collective == "all_reduce"}
    assert sizes == {4 * 81930, 4 * 7424}
    profile = imported(tmp_path, OWN, gpu=None)
    assert profile.elements == 81930 + 7424
    assert profile.gpu == "cpu"
    first = [one.name for one in profile.in_ready_order()]
    assert first[0].startswith("Linear_0") and first[-1] == "Conv2d_0.weight"
    passes_s = profile.forward_s + profile.backward_s + profile.optimizer_s
    assert passes_s <= profile.iteration_s <= traced.step.whole_s


def test_without_steps_of_the_profiler_those_of_the_optimizer_count(tmp_path: Path) -> None:
    events = [one for one in step() + step(1000.0) if "ProfilerStep" not in one["name"]]
    found = read_trace(saved(tmp_path, events)).step
    assert found is not None and found.count == 2
    assert found.forward_s == pytest.approx(160 * US)


def test_names_and_shapes_of_a_known_model_fill_a_trace_without_shapes() -> None:
    defined = [layer for layer in build_model("alexnet") if layer.tensors]
    layers = tuple(
        TracedLayer(f"l{at}", layer.kind, tuple((f"l{at}.{i}", None) for i in range(2)))
        for at, layer in enumerate(defined)
    )
    begun = {f"l{at}": float(at) for at in range(8)}
    ready = {f"l{at}.{i}": 10.0 * at + i for at in range(8) for i in range(2)}
    traced = TracedStep(layers, begun, ready, 9.0, 80.0, 1.0, 90.0, 0.0, 1.0, 1)
    known = with_known_names(traced, "alexnet")
    assert known is not None
    assert known.layers[0].gradients[0] == ("features.0.weight", (64, 3, 11, 11))
    assert known.begun_s["classifier.6"] == 7.0
    # Of a dense layer the bias is accumulated first.
    assert known.ready_s["classifier.6.bias"] == 70.0
    assert with_known_names(traced, "resnet50") is None
    assert with_known_names(traced, "no-such-model") is None


def test_another_network_under_a_known_name_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 x 3 x 3 x 3 + 10 x 8 + 10 parameters are no ResNet-50."""
    file = saved(tmp_path, step() + step(1000.0))
    for model, told in (("resnet50", True), ("ours", False)):
        flags = ["--model", model, "--batch", "32", "--gpu", "v100", "--out", str(tmp_path / model)]
        assert code(["calibrate", "import", str(file), *flags]) == 0
        said = "the trace has 306 parameters and perfsim's resnet50 25,557,032"
        assert (said in capsys.readouterr().err) is told


@pytest.mark.parametrize("end", ["]", ",\n", ""])
def test_a_horovod_timeline_gives_its_messages(tmp_path: Path, end: str) -> None:
    file = tmp_path / "timeline.json"
    file.write_text(HOROVOD + end)
    traced = read_trace(file)
    assert traced.step is None and traced.world == 4
    assert traced.collectives == (
        # 80 and 20 floats in one message.
        TracedCollective("all_reduce", 400, 4, pytest.approx(500 * US)),
        TracedCollective("broadcast", 40, 4, pytest.approx(20 * US)),
    )
    assert traced.ready_s == {"grad.fc": 0.0, "grad.conv": pytest.approx(40 * US)}


@pytest.mark.torch
def test_a_profile_made_here_has_the_models_gradients_in_the_order_of_its_hooks(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile, schedule

    made = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5)
    )
    update = torch.optim.SGD(made.parameters(), lr=0.1)
    order: list[tuple[int, ...]] = []
    for parameter in made.parameters():
        parameter.register_post_accumulate_grad_hook(lambda of: order.append(tuple(of.shape)))
    file = tmp_path / "t.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda of: of.export_chrome_trace(str(file)),
    ) as run:
        for _ in range(3):
            update.zero_grad()
            made(torch.randn(2, 3, 8, 8)).sum().backward()
            update.step()
            run.step()
    found = imported(tmp_path, file, gpu=None)
    assert [one.shape for one in found.in_ready_order()] == order[-4:]
    assert [one.kind for one in found.layers] == ["conv", "linear"]
