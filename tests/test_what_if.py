"""What-ifs on plans that can be computed by hand."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.methods import load_method
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph, TaskCost
from perfsim.schedule.rounds import schedule
from perfsim.simulate.array import simulate
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.task import Shared
from perfsim.what_if import (
    ChangedTimes,
    Stretched,
    bottleneck,
    changed_durations,
    changed_to,
    faster,
    halved,
    spread_interval,
    steady_s,
)
from support.builders import hand_device, profile, ring_cluster


def one_send(
    compute_s: float, send_s: float, latency_s: float, spread: float | None
) -> CostedGraph:
    """Return compute, then one exposed message, by hand."""
    graph = TaskGraph()
    backward = graph.add("backward", "compute", "backward", compute_s)
    send = graph.add("send", "communication", "communicate", send_s, [backward])
    graph.add("update", "compute", "update", 0.0, [send])
    return CostedGraph(
        graph, [TaskCost("compute"), TaskCost("network", latency_s, spread), TaskCost("compute")]
    )


def test_halving_a_cause_halves_its_part_only() -> None:
    plan = one_send(0.010, 0.006, latency_s=0.002, spread=None)
    assert changed_durations(plan, halved("compute")) == [0.005, 0.006, 0.0]
    assert changed_durations(plan, halved("latency")) == pytest.approx([0.010, 0.005, 0.0])
    assert changed_durations(plan, halved("bandwidth")) == pytest.approx([0.010, 0.004, 0.0])
    assert changed_durations(plan, halved("compression")) == [0.010, 0.006, 0.0]


@pytest.mark.parametrize(
    ("compute_s", "send_s", "latency_s", "expected"),
    [
        (0.010, 0.006, 0.002, "compute"),
        (0.002, 0.009, 0.001, "bandwidth"),
        (0.002, 0.009, 0.008, "latency"),
    ],
)
def test_the_bottleneck_is_the_cause_worth_most(
    compute_s: float, send_s: float, latency_s: float, expected: str
) -> None:
    plan = one_send(compute_s, send_s, latency_s, None)
    found, worth = bottleneck(ChangedTimes([plan], steady_s([plan])))
    assert found == expected
    assert worth["compute"] == pytest.approx(compute_s / 2 / (compute_s + send_s))


def test_halving_latency_leaves_the_bytes_on_a_shared_link() -> None:
    # Two messages at once, each 2 s of latency and 4 s of bytes: 1 + 2 + 8 s, as they share a link.
    graph, link = TaskGraph(), Shared("wire")
    backward = graph.add("backward", "compute", "backward", 1.0)
    sends = [
        graph.add(stream, stream, "communicate", 6.0, [backward], shares=link, latency_s=2.0)
        for stream in ("one", "two")
    ]
    graph.add("update", "compute", "update", 0.0, sends)
    network = TaskCost("network", 2.0, spread=0.5)
    plan = CostedGraph(graph, [TaskCost("compute"), network, network, TaskCost("compute")])
    assert steady_s([plan]) == pytest.approx(11.0)
    assert steady_s([plan], halved("latency")) == pytest.approx(10.0)
    assert steady_s([plan], halved("bandwidth")) == pytest.approx(7.0)
    # Half as much or half more of all the network takes: 1 + 5 and 1 + 15 s.
    assert spread_interval([plan], 11.0, None) == pytest.approx((6.0, 16.0))
    # The link too knows no unit of time: all of the network half as long is computation doubled.
    quick_s = steady_s([plan], {"network": lambda seconds, _: seconds / 2.0})
    assert steady_s([plan], {"compute": lambda seconds, _: seconds * 2.0}) == 2.0 * quick_s


def test_interval_adds_independent_causes_in_quadrature() -> None:
    # Compute 10 ms +-3 % and network 6 ms +-10 %: sqrt(0.3^2 + 0.6^2) ms.
    plan = one_send(0.010, 0.006, 0.0, spread=0.10)
    low, high = spread_interval([plan], steady_s([plan]), compute_spread=0.03)
    assert high - 0.016 == pytest.approx((0.0003**2 + 0.0006**2) ** 0.5)
    assert 0.016 - low == pytest.approx(high - 0.016)


def test_no_known_spread_no_width() -> None:
    plan = one_send(0.010, 0.006, 0.0, spread=None)
    assert spread_interval([plan], 0.016, None) == (0.016, 0.016)


def test_hidden_communication_widens_nothing_until_it_shows() -> None:
    [made] = schedule(
        profile([250_000, 250_000], [0.010, 0.030]),
        load_method("ssgd", {}),
        fusion.load_policy("none").fuse,
        hand_device(),
        ring_cluster(2, "1GB/s,1us"),
    )
    # Two messages of 1 MB and 1 ms: the first is hidden, only the last one counts.
    made.charges = [
        TaskCost(c.cause, c.latency_s, 0.5 if c.cause == "network" else None) for c in made.charges
    ]
    base = float(simulate(made.graph).iteration_s)
    low, high = spread_interval([made], base, None)
    assert high - base == pytest.approx(0.5 * 1.002e-3, rel=1e-6)
    assert base - low == pytest.approx(0.5 * 1.002e-3, rel=1e-6)


# Host and GPU


def launched(host: float, device: float, update_s: float = 0.0) -> CostedGraph:
    """Return passes of 10 ms that host and GPU share so, 2 ms of a message, and an update."""
    graph = TaskGraph()
    forward = graph.add("forward", "compute", "forward", 0.004)
    backward = graph.add("backward", "compute", "backward", 0.006, [forward])
    send = graph.add("send", "communication", "communicate", 0.002, [backward])
    graph.add("update", "compute", "update", update_s, [send])
    passes = TaskCost("compute", host=host, device=device)
    return CostedGraph(graph, [passes, passes, TaskCost("network"), TaskCost("compute")])


def test_where_launches_bind_a_faster_gpu_saves_nothing_and_the_host_is_to_blame() -> None:
    plan = launched(host=1.0, device=0.4)
    assert steady_s([plan], faster(2.0, "compute")) == pytest.approx(0.012)
    # Half the launches would take 0.5 of the passes, and the GPU 0.4 of them.
    assert steady_s([plan], halved("host")) == pytest.approx(0.005 + 0.002)
    assert steady_s([plan], faster(4.0, "host")) == pytest.approx(0.004 + 0.002)
    found, worth = bottleneck(ChangedTimes([plan], 0.012))
    assert found == "host"
    assert worth["host"] == pytest.approx(5 / 12)
    assert worth["compute"] == pytest.approx(0.0, abs=1e-12)


def test_where_the_gpu_binds_launches_soon_bind_instead() -> None:
    plan = launched(host=0.8, device=1.0)
    assert steady_s([plan], halved("compute")) == pytest.approx(0.008 + 0.002)
    assert steady_s([plan], halved("host")) == pytest.approx(0.012)
    assert steady_s([plan], faster(2.0, "host", "compute")) == pytest.approx(0.005 + 0.002)


@given(device=st.floats(0.01, 0.49), factor=st.floats(1.0, 100.0), update_s=st.floats(0, 0.01))
def test_no_gpu_saves_more_than_the_update_where_launches_bind(
    device: float, factor: float, update_s: float
) -> None:
    plan = launched(1.0, device, update_s)
    saved_s = steady_s([plan]) - steady_s([plan], faster(factor, "compute"))
    assert saved_s == pytest.approx(update_s * (1 - 1 / factor), abs=1e-12)


def test_a_prediction_names_the_host_where_launches_bind() -> None:
    """One image on an H200 in PyTorch of 2020; a captured graph has nothing left to launch."""
    asked = {"model": "resnet50", "gpus": 1, "gpu": "h200", "batch": 1}
    eager, captured = (
        predict(make_scenario(asked | {"software": era})) for era in ("torch1.8", "mlperf")
    )
    assert eager.bottleneck == "host" and captured.bottleneck == "compute"


TWO_CAUSES: list[dict[str, object]] = [
    *({"method": name} for name in ("ssgd", "p3", "bytescheduler", "dear", "wfbp", "torus2d")),
    {"straggler": ["1:1.5"]},
    {"jitter": 0.1},
    {"gpu": "v100:8,p100:8"},
    {"beside": ("Zhang2023_ssgd_resnet50_10gbe_32",)},
]


@pytest.mark.parametrize("asked", TWO_CAUSES, ids=str)
def test_of_two_causes_one_twice_as_long_is_the_other_half_as_long(
    asked: dict[str, object],
) -> None:
    """To the last digit: so one of both is run, whatever the engine and the ranks."""
    fields = {"model": "resnet18", "gpus": 16, "net": "10gbe"}
    times = predict(make_scenario(fields | asked)).details._ran.changed

    def changed_s(cause: str, factor: float) -> float:
        change = {cause: lambda seconds, _: seconds * factor}
        (found,) = times.ask({(cause, factor): partial(changed_to, change=change)}).values()
        return found

    assert changed_s("compute", 2.0) == 2.0 * changed_s("network", 0.5)
    assert changed_s("network", 2.0) == 2.0 * changed_s("compute", 0.5)


@pytest.mark.parametrize(("update", "runs"), [("compute", 2), ("compression", 4)])
def test_changes_that_are_mirror_images_are_run_once(update: str, runs: int) -> None:
    plan = one_send(0.010, 0.006, 0.0, None)
    plan.graph.add("more", "compute", "update", 0.004, [2])
    plan.charges.append(TaskCost(update))
    times, ran = ChangedTimes([plan], steady_s([plan])), list[Stretched]()

    def change(costed: CostedGraph, key: Stretched) -> tuple[CostedGraph, list[float]]:
        ran.append(key)
        return costed, changed_durations(costed, {key.cause: lambda one_s, _: one_s * key.times})

    keys = [Stretched(cause, by) for by in (2.0, 0.5) for cause in ("compute", "network")]
    for few in (keys[:1], keys[3:], keys):
        found = times.ask({key: partial(change, key=key) for key in few})
    more_s = 0.004 if update == "compute" else 0.0
    own_s = {"compute": 0.010 + more_s, "network": 0.006}
    for key, seconds in found.items():
        assert seconds == pytest.approx(0.020 + (key.times - 1.0) * own_s[key.cause], rel=1e-12)
    assert len(ran) == len(set(ran)) == runs
