"""The update of code bases whose host waits: its launches, by optimizer, and what scales them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perfsim import fusion
from perfsim.compute.profile import OPTIMIZER_LAUNCHES, Gradient, Layer, Profile, read_profile
from perfsim.errors import DataError
from perfsim.methods import load_method, method_names
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from support.builders import hand_device, ring_cluster
from support.what_ships import SHIPPED

MS = 1e-3
TENSORS = 400
"""Tensors, so that 5 launches of 10 us each take 20 ms, longer than the update's 2 ms."""

MANY = Profile(
    model="many",
    gpu="v100",
    precision="fp32",
    batch=1,
    iteration_s=42 * MS,
    optimizer_s=2 * MS,
    layers=(Layer("a", "linear", 10 * MS, 30 * MS),),
    gradients=tuple(Gradient(f"a.{i}", (20, 50), 30 * MS, 0) for i in range(TENSORS)),
    kinds={},
    header={},
)


def plan_of(name: str, profile: Profile = MANY, **more: Any) -> CostedGraph:
    options = more.pop("options", {})
    fuse = fusion.load_policy("whole").fuse
    cluster = ring_cluster(4, "1GB/s,1ms")
    [plan] = schedule(profile, load_method(name, options), fuse, hand_device(), cluster, **more)
    return plan


def task_ms(plan: CostedGraph, kind: str) -> float:
    """Return the tasks of a kind in one iteration [ms]."""
    taken_s = sum(task.duration_s for task in plan.graph.tasks if task.kind == kind)
    return taken_s / plan.graph.iterations / MS


@pytest.mark.parametrize(
    "name",
    [
        "topk",
        "gaussiank",
        "redsync",
        "sidco",
        "omgs",
        "gtopk",
        "dgc",
        "randk",
        "signsgd",
        "wfbp",
        "mgwfbp",
        "asc_wfbp",
        "bsp",
        "horovod",
    ],
)
def test_a_host_that_waits_launches_the_update_tensor_by_tensor(name: str) -> None:
    assert task_ms(plan_of(name), "update") == pytest.approx(TENSORS * 5 * 0.010)


@pytest.mark.parametrize("name", ["ssgd", "dear", "powersgd", "acpsgd", "fp16", "lbsgd"])
def test_a_host_that_does_not_wait_is_far_ahead(name: str) -> None:
    assert task_ms(plan_of(name), "update") == pytest.approx(2)


@pytest.mark.parametrize(("optimizer", "launches"), [("plain-sgd", 2), ("sgd", 5), ("adam", 9)])
def test_launches_are_those_of_the_models_optimizer(optimizer: str, launches: int) -> None:
    profile = replace(MANY, header={"optimizer": optimizer})
    for name in ("topk", "wfbp", "byteps"):
        taken = task_ms(plan_of(name, profile), "update")
        assert taken == pytest.approx(TENSORS * launches * 0.010)


def test_methods_of_one_code_base_wait_alike() -> None:
    bases = {name: load_method(name, {}).code_base() for name in method_names()}
    assert bases["topk"] == bases["gaussiank"] == bases["redsync"] == bases["sidco"]
    assert all(base.name and base.source for base in bases.values())
    for name, base in bases.items():
        assert (load_method(name, {}).late_launches("sgd") > 0) == base.waits, name


def test_kernels_measured_on_one_gpu_do_not_scale_the_update() -> None:
    # A hundred times as long as these kernels take by hand.
    usual = plan_of("topk")
    given_s = 100 * MS * (task_ms(usual, "compress") + task_ms(usual, "decompress"))
    scaled = plan_of("topk", kernels_s=given_s)
    assert task_ms(scaled, "compress") > 50 * task_ms(usual, "compress")
    assert task_ms(scaled, "update") == task_ms(usual, "update") == pytest.approx(20)


def test_shipped_profiles_state_their_optimizer_and_others_are_refused(tmp_path: Any) -> None:
    stated = {read_profile(path).header["optimizer"] for path in SHIPPED.files("models").values()
              if "positions" not in path.name}  # fmt: skip
    assert stated == {"sgd", "adam", "adamw-by-operation"} <= set(OPTIMIZER_LAUNCHES)
    text = SHIPPED.files("models")["resnet50.v100.fp32.b32"].read_text()
    path = tmp_path / "resnet50.v100.fp32.b32.csv"
    path.write_text(text.replace("# optimizer: sgd", "# optimizer: sdg"))
    with pytest.raises(DataError, match="found 'sdg'; allowed: plain-sgd, sgd, adam"):
        read_profile(path)
