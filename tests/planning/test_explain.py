"""``perfsim explain``: what pays, elasticities, and what the command prints."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from perfsim.planning.explain import explain, improvements, with_bucket
from perfsim.prediction import predict
from perfsim.resolve import Setup, resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph, TaskCost
from perfsim.schedule.rounds import build_rounds
from perfsim.simulate.graph import TaskGraph
from perfsim.what_if import faster, steady_s
from support.commands import answer, run
from support.what_ships import SHIPPED

MAIN = "explain --model resnet50 --gpus 64 --net 10gbe --method topk"


def asked(**fields: Any) -> Setup:
    """Return a question, resolved."""
    usual = {"model": "resnet50", "gpus": 16, "net": "10gbe"}
    return resolve(make_scenario(usual | fields), SHIPPED)


def test_improvements_and_elasticities_by_hand() -> None:
    # 4 s of computation, then a message of 1 s latency and 5 s of bytes: 10 s.
    graph = TaskGraph()
    backward = graph.add("backward", "compute", "backward", 4.0)
    send = graph.add("send", "communication", "communicate", 6.0, [backward])
    graph.add("update", "compute", "update", 0.0, [send])
    plan = CostedGraph(graph, [TaskCost("compute"), TaskCost("network", 1.0), TaskCost("compute")])
    found = {one.what: one for one in improvements(asked(fusion="none"), [plan], 10.0)}
    assert list(found) == ["bandwidth", "gpu", "latency"]
    expected = {"bandwidth": (7.5, 0.25, 0.5), "gpu": (8.0, 0.2, 0.4), "latency": (9.5, 0.05, 0.1)}
    for what, (iteration_s, saved, elasticity) in expected.items():
        assert (found[what].iteration_s, found[what].saved) == pytest.approx((iteration_s, saved))
        assert found[what].elasticity == pytest.approx(elasticity, rel=1e-4)


@pytest.mark.parametrize("method", ["ssgd", "topk", "powersgd", "localsgd", "spd_kfac", "p3"])
def test_elasticities_of_all_that_an_iteration_is_made_of_sum_to_one(method: str) -> None:
    resolved = asked(method=method)
    plans = build_rounds(resolved)
    found = {one.what: one for one in improvements(resolved, plans, steady_s(plans))}
    causes = {"bandwidth", "latency", "gpu", "host"} & found.keys()
    parts = [found[what].elasticity or 0.0 for what in causes]
    assert sum(parts) == pytest.approx(1.0, abs=2e-3)
    assert all(-1e-9 <= part <= 1 + 1e-9 for part in parts)


def test_a_faster_gpu_leaves_an_update_the_time_of_its_launches() -> None:
    """Half of all that the GPU does, stated, must be predicted as the what-if says."""
    fields = {"method": "topk", "gpus": 64}
    stated = asked(**fields, single_gpu="100ms", single_gpu_kernels="10ms")
    plans = build_rounds(stated)
    found = {one.what: one for one in improvements(stated, plans, steady_s(plans))}
    again = asked(**fields, single_gpu="50ms", single_gpu_kernels="5ms")
    assert found["gpu"].iteration_s == pytest.approx(steady_s(build_rounds(again)), rel=0.01)
    assert found["host"].iteration_s < steady_s(plans) - 3e-3


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("horovod", "makes its buckets by how long"),
        ("mgwfbp", "makes its buckets by how long"),
        ("omgs", "omgs decides by how long"),
        ("spd_kfac", "spd_kfac decides by how long"),
        ("ssgd", ""),
        ("dgc", ""),
    ],
)
def test_buckets_and_decisions_that_would_change_are_a_warning(method: str, words: str) -> None:
    notes = explain(asked(method=method).scenario, SHIPPED).notes
    warned = [one for one in notes if getattr(one, "grade", "") == "warning"]
    told = [one for one in warned if "predict that to see" in one]
    assert any(words in one for one in told) if words else not told


def test_what_is_worth_in_a_prediction_is_saved_here() -> None:
    resolved = asked(method="topk")
    plans = build_rounds(resolved)
    worth = predict(resolved.scenario, SHIPPED).worth
    for one in improvements(resolved, plans, steady_s(plans)):
        if one.what in ("bandwidth", "latency", "compression"):
            assert one.saved == pytest.approx(worth[one.what], rel=1e-9)


@pytest.mark.parametrize(("gpu", "accumulate"), [("a100", 4), ("h100", 1)])
def test_launches_of_the_host_cost_what_free_ones_save(gpu: str, accumulate: int) -> None:
    """Passes that are longer for launches hide messages, which free launches would uncover."""
    fields = {"model": "gpt2-medium", "gpus": 16, "net": "10gbe", "method": "fsdp"}
    resolved = asked(**fields, gpu=gpu, accumulate=accumulate)
    plans = build_rounds(resolved)
    saved_s = steady_s(plans) - steady_s(plans, faster(math.inf, "host"))
    found = {one.what: one.seconds for one in explain(resolved.scenario, SHIPPED).waits}
    assert 0.0 < saved_s == pytest.approx(found["launches of the host"])


def test_an_update_by_the_cpus_is_no_launch() -> None:
    resolved = asked(model="gpt2-medium", gpus=16, gpu="h100", method="fsdp", offload="parameters")
    found = {one.what: one.seconds for one in explain(resolved.scenario, SHIPPED).waits}
    assert "launches of the host" not in found
    update_s = predict(resolved.scenario, SHIPPED).breakdown_s["update"]
    assert found["update by the CPUs"] == pytest.approx(update_s, rel=0.05)


def test_twice_the_bucket_is_what_predict_says_of_it() -> None:
    resolved = asked(bucket="8MiB")
    plans = build_rounds(resolved)
    found = {one.what: one for one in improvements(resolved, plans, steady_s(plans))}
    for what, bucket in (("bucket_doubled", "16MiB"), ("bucket_halved", "4MiB")):
        said = predict(asked(bucket=bucket).scenario, SHIPPED).iteration_s
        assert found[what].iteration_s == pytest.approx(said, rel=1e-12)
    usual = with_bucket(asked(), 2.0)
    assert usual is not None and usual.limit_bytes == 50 * 2**20
    assert usual.scenario.fusion_options == {"first_bucket": "2097152.0B"}


def test_the_object_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(MAIN, capsys)
    assert list(found) == [
        "schema",
        "scenario",
        "iteration_s",
        "iteration_s_interval",
        "baseline",
        "bottleneck",
        "breakdown_s",
        "critical_path",
        "exposed",
        "sensitivity",
        "break_even",
        "notes",
    ]
    assert found["schema"] == "perfsim/explain/1"
    (path,) = found["critical_path"]
    assert path["length_s"] == pytest.approx(found["iteration_s"], rel=1e-9)
    assert sum(path["by_kind_s"].values()) == pytest.approx(path["length_s"], rel=1e-9)
    shown = sum(row["exposed_s"] for row in found["exposed"])
    assert shown == pytest.approx(found["breakdown_s"]["communication_exposed"], rel=1e-9)
    saved = [row["saved"] for row in found["sensitivity"]]
    assert saved == sorted(saved, reverse=True)
    one = found["break_even"]["bandwidth"]["crossings"][0]
    assert one["rate_bytes_per_s"] == pytest.approx(
        one["factor"] * found["break_even"]["bandwidth"]["rate_bytes_per_s"]
    )


@pytest.mark.parametrize("more", ["", " --method localsgd", " --gpus 1", " --placement 30,34"])
def test_the_first_screen_is_readable(more: str, capsys: pytest.CaptureFixture[str]) -> None:
    left, out, err = run(MAIN + more, capsys)
    assert (left, err) == (0, "")
    for words in ("critical path of the ", "if twice as good", "Break-even"):
        assert words in out
    # 80 columns, but for words that cannot be broken.
    assert [line for line in out.splitlines() if len(line) > 80 and "/" not in line] == []
    assert "\x1b" not in out


def test_auto_explains_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer("explain --model alexnet --gpus 2 --net 10gbe --method auto", capsys)
    winner = found["scenario"]["method"]
    assert found["notes"][0].startswith(f"{winner} is explained")
    assert f"{winner} is first at the same accuracy among the " in found["notes"][0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("explain --gpus 8", "--model is needed: a name such as resnet50"),
        ("explain --model resnet50 --gpus 8 --net 10gbee", "did you mean '10gbe'?"),
        ("explain --model resnet50 --gpus 8 --methd topk", "--methd"),
        ("explain --model resnet50 --gpus 8 --set density=1", "has no 'density'"),
    ],
)
def test_wrong_input_is_one_sentence(
    text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left, out, err = run(text, capsys)
    assert (left, out) == (2, "")
    assert words in err and len(err.splitlines()) == 1


def test_what_is_written_is_what_is_printed(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "why.json"
    found = answer(f"explain --model resnet50 --gpus 1 --out {file}", capsys)
    assert json.loads(file.read_text()) == found
    left, _, err = run(f"{MAIN} --out {tmp_path / 'none' / 'why.json'}", capsys)
    assert left == 2 and "cannot be written" in err
