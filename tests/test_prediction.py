"""predict(): laws that hold for whole predictions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from what_ships import SHIPPED

from perfsim.fusion import policies
from perfsim.methods import method_class, method_names
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario


def ask(**fields: Any) -> Prediction:
    """Return the prediction of a scenario given by its fields."""
    return predict(make_scenario({"model": "resnet50", "gpus": 16, **fields}), SHIPPED)


@pytest.mark.parametrize("method", method_names())
@pytest.mark.parametrize("net", ["1gbe", "ib100"])
@pytest.mark.parametrize("gpus", [1, 8, 1024])
def test_a_prediction_adds_up(method: str, net: str, gpus: int) -> None:
    found = ask(method=method, net=net, gpus=gpus)
    assert sum(found.breakdown_s.values()) == pytest.approx(found.iteration_s, rel=1e-9)
    low, high = found.iteration_s_interval
    assert 0 < low <= found.iteration_s <= high
    assert 0 <= found.communication["hidden_s"] <= found.communication["busy_s"] + 1e-12
    exposed = found.communication["busy_s"] - found.communication["hidden_s"]
    assert found.breakdown_s["communication_exposed"] <= exposed + 1e-9
    assert found.scaling_efficiency <= 1 + 1e-9
    if gpus == 1:
        assert found.scaling_efficiency == pytest.approx(1)
        assert found.communication["bytes_per_gpu"] == 0


def test_ssgd_ring_sends_the_textbook_bytes() -> None:
    found = ask(method="ssgd", algorithm="ring", gpus=64)
    assert found.communication["bytes_per_gpu"] == pytest.approx(2 * 63 / 64 * 4 * 25_557_032)


@pytest.mark.parametrize("method", [m for m in method_names() if not method_class(m).decides])
def test_more_bandwidth_never_slows(method: str) -> None:
    times = [
        ask(method=method, net=f"{rate}Gbit/s,30us", intra_net="100Gbit/s,5us").iteration_s
        for rate in (1, 5, 10, 50, 100)
    ]
    assert all(slow >= fast * (1 - 1e-9) for slow, fast in pairwise(times))


def no_slower_with_overlap(**fields: str | int) -> None:
    """Check one setting with and without overlap."""
    apart = ask(**fields, overlap=False)
    # Horovod's cycle may end after the backward pass: at most one tick of 1 ms is waited for.
    tick_s = 1e-3 if "threshold" in apart.scenario["fusion"] else 0.0
    assert ask(**fields).iteration_s <= apart.iteration_s * (1 + 1e-9) + tick_s


@pytest.mark.parametrize("policy", policies())
@pytest.mark.parametrize("method", method_names())
def test_overlap_never_slows(method: str, policy: str) -> None:
    fields = {"model": "resnet20-cifar", "gpus": 8, "net": "10gbe"}
    no_slower_with_overlap(**fields, method=method, fusion=policy)


@pytest.mark.parametrize("method", method_names())
def test_overlap_never_slows_by_the_methods_own_fusion(method: str) -> None:
    no_slower_with_overlap(model="resnet50", gpus=8, net="10gbe", method=method)


def test_less_latency_never_slows_ssgd() -> None:
    times = [
        ask(net=f"10Gbit/s,{alpha}us", intra_net="100Gbit/s,1us").iteration_s
        for alpha in (1000, 100, 10, 1)
    ]
    assert all(slow >= fast * (1 - 1e-9) for slow, fast in pairwise(times))


def test_the_baseline_is_ssgd_itself() -> None:
    found = ask(method="ssgd")
    assert found.baseline_s == pytest.approx(found.iteration_s, rel=1e-12)
    assert found.speedup == pytest.approx(1)


def test_dgc_pays_on_a_slow_network_only() -> None:
    assert ask(method="dgc", net="1gbe", gpus=64).speedup > 3
    assert ask(method="dgc", net="ib100", gpus=64).speedup < 1.05


def test_a_bigger_batch_takes_longer_and_scales_better() -> None:
    small, large = (ask(batch=batch, net="10gbe") for batch in (16, 128))
    assert small.iteration_s < large.iteration_s
    assert small.scaling_efficiency < large.scaling_efficiency


def test_notes_name_what_was_scaled_and_what_the_interval_holds() -> None:
    found = ask(gpu="titan-xp", batch=24, method="dgc", net="10Gbit/s,50us")
    notes = " ".join(found.notes)
    assert "titan-xp" in notes
    assert "published iterations" in notes
    assert "lossy" in notes


def test_uneven_nodes_are_bound_by_the_same_ring() -> None:
    even = ask(gpus=8, placement=[4, 4], net="10gbe")
    uneven = ask(gpus=8, placement=[3, 5], net="10gbe")
    assert uneven.scenario["placement"] == [3, 5]
    assert uneven.iteration_s == pytest.approx(even.iteration_s, rel=0.05)


def test_to_dict_without_provenance_drops_only_that() -> None:
    found = ask()
    assert set(found.to_dict()) - set(found.to_dict(provenance=False)) == {"provenance"}


def test_gathered_messages_take_memory_until_they_are_decoded() -> None:
    # Eight ranks send a byte a value: 8 bytes a parameter, and a scale a tensor.
    found = ask(method="eightbit", gpus=8)
    assert found.memory_bytes["messages"] == pytest.approx(8 * 25_557_032, rel=1e-3)
    assert ask(method="ssgd", gpus=8).memory_bytes["messages"] == 0
    assert ask(method="eightbit", gpus=1).memory_bytes["messages"] == 0


def test_what_does_not_fit_is_said() -> None:
    notes = ask(model="bert-large", method="eightbit", gpus=1024).notes
    assert any(note.startswith("It does not fit: ") for note in notes)
    assert not any("does not fit" in note for note in ask(method="eightbit", gpus=8).notes)
