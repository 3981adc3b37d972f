"""K-FAC methods by hand: what runs, what is sent, in which order; and beside published times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import hand_device, ring_cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from what_ships import SHIPPED

from perfsim import fusion
from perfsim.cluster.cluster import Cluster
from perfsim.cluster.link import custom_link
from perfsim.computation import find_profile
from perfsim.device import load_device
from perfsim.errors import RequestError
from perfsim.kernel import Kernel, elementwise
from perfsim.kfac.factors import factored, triangle
from perfsim.kfac.kernels import (
    HKBU,
    HKBU_LATER,
    KAISA,
    Code,
    decomposed,
    inverted,
    packed,
    preconditioned,
    rescaled,
    unpacked,
)
from perfsim.methods import load_method
from perfsim.plan import Plan
from perfsim.prediction import predict
from perfsim.profile import Gradient, Layer, Profile
from perfsim.run import run
from perfsim.scenario import make_scenario
from perfsim.scenario_file import read_file
from perfsim.schedule import schedule

MS = 1e-3
METHODS = ("d_kfac", "mpd_kfac", "spd_kfac", "dp_kfac", "kaisa")
SIDES = (20, 30, 31, 40)
"""Of A and G of the first layer, of A (one more for the bias) and G of the second."""

TWO = Profile(
    model="two",
    gpu="v100",
    precision="fp32",
    batch=5,
    iteration_s=42 * MS,
    optimizer_s=2 * MS,
    layers=(Layer("a", "conv", 4 * MS, 20 * MS), Layer("b", "linear", 6 * MS, 10 * MS)),
    gradients=(
        Gradient("a.weight", (30, 20, 1, 1), 30 * MS, 0),
        Gradient("b.weight", (40, 30), 10 * MS, 1),
        Gradient("b.bias", (40,), 10 * MS, 1),
    ),
    kinds={},
    header={},
    positions={"a": 2, "b": 1},
)
"""Forward 10 ms, backward 30, update 2; 600 and 1240 parameters; 10 and 5 rows."""

FIRST, SECOND = factored(TWO)
PASSES = 40 * MS


def plans(name: str, ranks: int = 4, cluster: Cluster | None = None, **options: Any) -> list[Plan]:
    """Return the plans on a ring with 1 ms and 1 ns/B a hop, gradients in one message."""
    return schedule(
        TWO,
        load_method(name, options),
        fusion.load("whole").fuse,
        hand_device(),
        cluster or ring_cluster(ranks, "1GB/s,1ms"),
        algorithm="ring",
    )


def took(name: str, ranks: int = 4, **options: Any) -> float:
    """Return the iteration [s] of a method that has one round."""
    [plan] = plans(name, ranks, **options)
    return float(run(plan).iteration_s)


def k(*kernels: Kernel) -> float:
    """Return the time of some kernels [s]."""
    return sum(hand_device().cost(kernel).seconds for kernel in kernels)


def reduce_s(values: float, ranks: int) -> float:
    """Return a ring's all-reduce of so many fp32 values: 2 (P-1) hops of 1 ms and values/P."""
    return 2 * (ranks - 1) * (MS + 4 * values / ranks * 1e-9)


def broadcast_s(values: float, ranks: int) -> float:
    """Return what the cluster takes for a broadcast."""
    return ring_cluster(ranks, "1GB/s,1ms").cost("broadcast", 4.0 * values).seconds


def built(code: Code = HKBU) -> list[Kernel]:
    """Return the kernels that build all four factors."""
    return [
        kernel
        for layer in (FIRST, SECOND)
        for kernel in (*code.input_factor(layer), *code.output_factor(layer))
    ]


def names(plan: Plan, *words: str) -> list[str]:
    """Return the names of the tasks that hold one of the words, in issue order."""
    found = [task.name for task in plan.graph.tasks]
    return [name for name in found if any(word in name for word in words)]


TRIANGLES = sum(map(triangle, SIDES))
END = k(*preconditioned(FIRST, "cholesky"), *preconditioned(SECOND, "cholesky")) + k(
    rescaled(FIRST), rescaled(SECOND)
)


def until_unpacked(ranks: int) -> float:
    """Return when bulk factors are there: passes, gradients, products, packing, message."""
    return (
        PASSES
        + reduce_s(1840, ranks)
        + k(*built())
        + k(*map(packed, SIDES))
        + reduce_s(TRIANGLES, ranks)
        + sum(k(*unpacked(side, mean=True)) for side in SIDES)
    )


# D-KFAC


def test_d_kfac_does_everything_after_the_averaged_gradients() -> None:
    inverses = sum(k(*inverted(side)) for side in SIDES)
    assert took("d_kfac") == pytest.approx(until_unpacked(4) + inverses + END + 2 * MS, rel=1e-9)


def test_d_kfac_fuses_factors_as_asked() -> None:
    for policy, calls in (("threshold", 2), ("none", 5), ("whole", 2)):
        [plan] = plans("d_kfac", factor_fusion=policy)
        assert plan.calls == calls  # one of gradients, the rest of factors
        assert plan.sent_bytes == pytest.approx(2 * 3 / 4 * 4 * (1840 + TRIANGLES))


def test_d_kfac_may_build_its_factors_in_the_hooks() -> None:
    [plan] = plans("d_kfac", pipelined=True, factor_fusion="none")
    order = names(plan, "ward", "second_order 0.a", "second_order 0.b", "all_reduce")
    # A of the second layer 4 ms into the forward pass; its G at 10 ms of the backward pass, A of
    # both on the wire before.
    assert order == [
        "second_order 0.a A",
        "second_order 0.factors forward 0",
        "all_reduce 0.factors forward 0",
        "forward 0.0",
        "second_order 0.b A",
        "second_order 0.factors forward 1",
        "all_reduce 0.factors forward 1",
        "forward 0.1",
        "backward 0.b G",
        "second_order 0.b G",
        "second_order 0.factors backward 0",
        "all_reduce 0.factors backward 0",
        "backward 0.a G",
        "second_order 0.a G",
        "second_order 0.factors backward 1",
        "all_reduce 0.factors backward 1",
        "all_reduce 0.0",
        "second_order 0.averaged",
    ]
    # Two all-reduces of 6 ms each and more hide behind 40 ms of passes; the last two are after.
    products = k(*built(), *map(packed, SIDES))
    rest = sum(k(*unpacked(s, mean=True), *inverted(s)) for s in SIDES) + END + 2 * MS
    exposed = reduce_s(triangle(30), 4) + reduce_s(1840, 4)
    expected = PASSES + products + exposed + rest
    assert took("d_kfac", pipelined=True, factor_fusion="none") == pytest.approx(expected, rel=1e-9)


# MPD-KFAC


@pytest.mark.parametrize("ranks", [2, 8])
def test_mpd_kfac_waits_for_the_busiest_rank_then_broadcasts(ranks: int) -> None:
    # Two ranks: a layer each, the second with sides 31 and 40; eight: a factor each, 40 longest.
    own = (31, 40) if ranks == 2 else (40,)
    others = [side for side in SIDES if side not in own]
    inverting = sum(k(*inverted(side)) for side in own)
    inverting += sum(k(elementwise(side**2, 1)) for side in others) + k(*map(packed, SIDES))
    sending = sum(broadcast_s(triangle(side), ranks) for side in SIDES)
    unpacking = sum(k(*unpacked(side)) for side in SIDES)
    expected = until_unpacked(ranks) + inverting + sending + unpacking + END + 2 * MS
    assert took("mpd_kfac", ranks) == pytest.approx(expected, rel=1e-9)


def test_whole_matrices_are_sent_as_they_are() -> None:
    squares = sum(side**2 for side in SIDES)
    means = k(*(elementwise(side**2, 2) for side in SIDES))
    clears = k(*(elementwise(side**2, 1) for side in SIDES[:3]))
    for name, options in (("d_kfac", {}), ("mpd_kfac", {}), ("spd_kfac", {"everywhere_below": 31})):
        [plan] = plans(name, 8, symmetric=False, **options)
        sent = {"d_kfac": 0, "mpd_kfac": squares, "spd_kfac": 31**2 + 40**2}[name]
        assert plan.sent_bytes == pytest.approx(7 / 8 * 4 * (2 * (1840 + squares) + sent))
        if name == "mpd_kfac":  # nothing is packed or unpacked
            built_s = k(*built()) + reduce_s(squares, 8) + means
            inverse_s = k(*inverted(40)) + clears
            sends_s = sum(broadcast_s(side**2, 8) for side in SIDES)
            expected = PASSES + reduce_s(1840, 8) + built_s + inverse_s + sends_s + END + 2 * MS
            assert run(plan).iteration_s == pytest.approx(expected, rel=1e-9)


# SPD-KFAC


def test_spd_kfac_broadcasts_follow_each_owners_inverse() -> None:
    options = {"everywhere_below": 31, "pipelined": False, "factor_fusion": "threshold"}
    [plan] = plans("spd_kfac", 2, **options)
    streams = {task.name: task.stream for task in plan.graph.tasks}
    assert streams["second_order 0.inverse b G"] == "compute"
    assert streams["second_order 0.inverse b A"] == "rank 1"
    # Both invert 20 and 30. Rank 1: 31, and sends it; the other clears and packs its 31, inverts
    # 40 and sends it when the first broadcast is over.
    small = k(*inverted(20), *inverted(30))
    first = small + k(*inverted(31), packed(31)) + broadcast_s(triangle(31), 2)
    second = small + k(elementwise(31**2, 1), packed(31), *inverted(40), packed(40))
    sent = max(first, second) + broadcast_s(triangle(40), 2)
    rest = k(*unpacked(31), *unpacked(40)) + END + 2 * MS
    assert run(plan).iteration_s == pytest.approx(until_unpacked(2) + sent + rest, rel=1e-9)


def test_spd_kfac_inverts_everywhere_what_costs_less_than_its_broadcast() -> None:
    # A broadcast costs more than 1 ms here, an inverse of 40 x 40 some 0.1 ms.
    [plan] = plans("spd_kfac")
    assert not names(plan, "broadcast")
    cheap = plans("spd_kfac", cluster=ring_cluster(4, "1TB/s,1us"))[0]
    assert len(names(cheap, "broadcast 0.")) == 4
    assert len(names(plans("spd_kfac", everywhere_below=0)[0], "broadcast 0.")) == 4


def test_spd_kfac_merges_neighbours_in_both_passes() -> None:
    # A message among 8 costs 6 ms (a tree) or more; A factors are 4 ms apart, G factors 20 ms.
    [plan] = plans("spd_kfac", 8)
    assert len(names(plan, "all_reduce 0.factors forward")) == 1
    assert len(names(plan, "all_reduce 0.factors backward")) == 2


def test_spd_kfac_is_the_fastest_of_the_three_where_startup_rules() -> None:
    assert took("spd_kfac") < took("d_kfac") < took("mpd_kfac")


# DP-KFAC


@pytest.mark.parametrize("inversion", ["eigen", "cholesky"])
def test_dp_kfac_runs_own_layers_and_sends_their_gradients(inversion: Any) -> None:
    own_s = []
    for layer in (FIRST, SECOND):
        own = [*HKBU_LATER.input_factor(layer), *HKBU_LATER.output_factor(layer)]
        for side in (layer.inputs, layer.outputs):
            eigen = inversion == "eigen"
            own += decomposed(side, copied=True) if eigen else inverted(side)
        own_s.append(k(*own, *preconditioned(layer, inversion)))
    sending = broadcast_s(600, 2) + broadcast_s(31 * 40, 2)
    scaling = k(rescaled(FIRST), rescaled(SECOND))
    expected = PASSES + reduce_s(1840, 2) + max(own_s) + sending + scaling + 2 * MS
    assert took("dp_kfac", 2, inversion=inversion) == pytest.approx(expected, rel=1e-9)


def test_dp_kfac_sends_no_factor() -> None:
    for interval in (1, 3):
        for plan in plans("dp_kfac", factor_interval=interval, inverse_interval=interval):
            assert plan.sent_bytes == pytest.approx(2 * 3 / 4 * 4 * 1840 + 3 / 4 * 4 * 1840)


# KAISA


def test_kaisa_with_all_workers_sends_eigenvectors_and_no_gradient() -> None:
    [plan] = plans("kaisa")
    values = sum(side**2 for side in SIDES)
    reduced, sent = 1840 + values, values + 1840
    assert plan.sent_bytes == pytest.approx(2 * 3 / 4 * 4 * reduced + 3 / 4 * 4 * sent)
    # Last layer first: A's vectors, G's, and the quotients of both.
    assert names(plan, "broadcast") == [
        f"broadcast 0.eigen {what}" for what in ("b A", "b G", "b G", "a A", "a G", "a G")
    ]


def test_kaisa_with_one_worker_by_hand() -> None:
    [plan] = plans("kaisa", 2, fraction=0.5)
    assert names(plan, "broadcast") == ["broadcast 0.gradient b", "broadcast 0.gradient a"]
    products = k(*built(KAISA)) + sum(k(elementwise(side**2, 2)) for side in SIDES)
    # All factors fit one bucket, sent after the passes behind the gradients.
    sums = reduce_s(1840, 2) + reduce_s(sum(side**2 for side in SIDES), 2)
    means = sum(k(elementwise(side**2, 2)) for side in SIDES)
    eigen = {
        layer.name: k(
            *decomposed(layer.inputs, copied=False),
            *decomposed(layer.outputs, copied=False),
            elementwise(layer.elements, 5, 3),
            *preconditioned(layer, "eigen", quotients=True),
        )
        for layer in (FIRST, SECOND)
    }
    b_sent = eigen["b"] + broadcast_s(31 * 40, 2)
    both_sent = max(b_sent, eigen["a"]) + broadcast_s(600, 2)
    rest = k(rescaled(FIRST), rescaled(SECOND)) + 2 * MS
    expected = PASSES + products + sums + means + both_sent + rest
    assert run(plan).iteration_s == pytest.approx(expected, rel=1e-9)


def test_kaisa_with_a_worker_a_node() -> None:
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    four = Cluster(4, (2, 2), wire, bus)
    [plan] = plans("kaisa", cluster=four, fraction=0.5)
    streams = {task.name: task.stream for task in plan.graph.tasks}
    assert {streams["broadcast 0.eigen a G"], streams["broadcast 0.eigen b G"]} == {
        "workers 0",
        "workers 1",
    }
    inside = four.of(2, "broadcast", 4 * 600).seconds
    gradient = next(task for task in plan.graph.tasks if task.name == "broadcast 0.gradient a")
    assert gradient.duration_s == pytest.approx(inside) and gradient.stream == "rows"
    with pytest.raises(RequestError, match="kaisa cannot split 4 ranks into groups of 3"):
        plans("kaisa", cluster=four, fraction=0.75)
    eight = Cluster(8, (2, 2, 2, 2), wire, bus)
    # Two workers stand 4 ranks apart, on two nodes; both ranks of a node send through its NIC.
    [apart] = plans("kaisa", cluster=eight, fraction=0.25)
    two = Cluster(2, (1, 1), wire, None)
    sent = [task for task in apart.graph.tasks if task.stream.startswith("workers")]
    # Squares of A (20, 31) and G (30, 40), and the quotients, G's by A's side.
    sizes = sorted([20**2, 31**2, 30**2, 40**2, 30 * 20, 40 * 31])
    expected = [two.cost("broadcast", 2 * 4.0 * size).seconds for size in sizes]
    assert sorted(task.duration_s for task in sent) == pytest.approx(expected)


def test_kaisa_of_release_0_3_runs_one_phase_after_the_other() -> None:
    [plan] = plans("kaisa", 2, fraction=0.5, release="0.3")
    # The larger layer goes to rank 0, the other to rank 1; both decompose and precondition at
    # once, and no broadcast begins before both are done.
    products = k(*built(KAISA))
    sums = reduce_s(1840, 2) + sum(reduce_s(side**2, 2) for side in SIDES)
    means = k(*(elementwise(side**2, 2) for side in SIDES))
    own = [
        k(
            *decomposed(layer.inputs, copied=False),
            *decomposed(layer.outputs, copied=False),
            elementwise(layer.elements, 5, 3),
            *preconditioned(layer, "eigen", quotients=True),
        )
        for layer in (FIRST, SECOND)
    ]
    sent = broadcast_s(600, 2) + broadcast_s(31 * 40, 2)
    rest = k(rescaled(FIRST), rescaled(SECOND)) + 2 * MS
    expected = PASSES + sums + products + means + max(own) + sent + rest
    assert run(plan).iteration_s == pytest.approx(expected, rel=1e-9)


def test_kaisa_of_release_0_3_awaits_eigenvectors_before_it_preconditions() -> None:
    [plan] = plans("kaisa", 2, release="0.3", symmetric=True)
    order = [name.partition(" 0.")[2] for name in names(plan, "eigen", "gradient")]
    vectors = ["sent eigen 0"] * 6
    assert order == ["eigen a", "eigen b", *vectors, "gradient a", "gradient b"]
    values = sum(side**2 for side in SIDES) + 1840
    assert plan.sent_bytes == pytest.approx(4 * (1840 + TRIANGLES) + 0.5 * 4 * values)


def test_kaisa_of_release_0_3_has_neighbours_as_workers() -> None:
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    four = Cluster(4, (2, 2), wire, bus)
    [plan] = plans("kaisa", cluster=four, fraction=0.5, release="0.3")
    sent = {task.name: task.duration_s for task in plan.graph.tasks if "sent" in task.name}
    # Eigenvectors stay on a node; gradients cross, from both ranks of a node at once.
    assert sent["broadcast 0.sent eigen 0"] < MS
    two = Cluster(2, (1, 1), wire, None)
    gradients = sorted(
        task.duration_s for task in plan.graph.tasks if task.name == "broadcast 0.sent gradients"
    )
    expected = [two.cost("broadcast", 2 * 4.0 * size).seconds for size in (600, 1240)]
    assert gradients == pytest.approx(expected)


def test_kaisa_may_send_triangles_and_other_buckets() -> None:
    whole, half = (plans("kaisa", symmetric=on)[0] for on in (False, True))
    squares = sum(side**2 for side in SIDES)
    saved = 2 * 3 / 4 * 4 * (squares - TRIANGLES)
    assert whole.sent_bytes - half.sent_bytes == pytest.approx(saved)
    # 20 and 31 squared, 31 and 40, ... : no two fit 4 kB.
    assert len(names(plans("kaisa", bucket_mb=0.004)[0], "all_reduce 0.factors")) == 4


# All of them


@pytest.mark.parametrize("name", METHODS)
def test_intervals_make_rounds(name: str) -> None:
    method = load_method(name, {"factor_interval": 2, "inverse_interval": 4})
    # Of four iterations one updates both, one the factors, two nothing.
    counts = {one.iterations: one.count for one in method.rounds()}
    assert counts == {(3,): 1, (1,): 1, (0,): 2}
    both, factors, plain = plans(name, factor_interval=2, inverse_interval=4)
    times = [run(plan).iteration_s for plan in (both, factors, plain)]
    assert times[0] > times[1] > times[2] > 42 * MS
    assert sum(plan.iterations for plan in (both, factors, plain)) == 4


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(METHODS), st.integers(1, 60), st.integers(1, 60))
def test_rounds_hold_each_update_as_often_as_asked(name: str, factors: int, inverses: int) -> None:
    method = load_method(name, {"factor_interval": factors, "inverse_interval": inverses})
    counts = {one.iterations[0]: one.count for one in method.rounds()}
    period = sum(counts.values())
    assert period == sum(count for kind, count in counts.items() if kind & 1) * factors
    assert period == sum(count for kind, count in counts.items() if kind & 2) * inverses


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(METHODS), st.integers(2, 9), st.floats(1e-6, 1e-2))
def test_rarer_updates_are_never_slower(name: str, ranks: int, latency_s: float) -> None:
    cluster = ring_cluster(ranks, f"1GB/s,{latency_s}s")

    def mean_s(**options: int) -> float:
        found = plans(name, cluster=cluster, **options)
        total = sum(plan.iterations for plan in found)
        return float(sum(plan.count * run(plan).period_s for plan in found)) / total

    often, rarely = mean_s(), mean_s(factor_interval=2, inverse_interval=6)
    assert rarely <= often * (1 + 1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_models_without_positions_are_refused(name: str) -> None:
    scenario = {"model": "gpt2", "gpus": 8, "net": "10gbe", "method": name}
    with pytest.raises(RequestError, match=f"{name} needs the positions of gpt2"):
        predict(make_scenario(scenario))


@pytest.mark.parametrize("name", METHODS)
def test_overlap_only_helps(name: str) -> None:
    model = {"model": "resnet18", "gpus": 8, "net": "10gbe", "method": name}
    with_it, without = (predict(make_scenario(model | {"overlap": on})) for on in (True, False))
    assert with_it.iteration_s <= without.iteration_s * (1 + 1e-9)


def test_memory_by_hand() -> None:
    squares = [20**2 + 30**2, 31**2 + 40**2]

    def memory(name: str, ranks: int = 4, **options: Any) -> float:
        return load_method(name, options).memory_bytes(TWO.gradients, ranks)

    for name in ("d_kfac", "mpd_kfac", "spd_kfac"):
        assert memory(name) == 8 * sum(squares)
    assert memory("dp_kfac") == 8 * squares[1] + 4 * 1840
    assert memory("dp_kfac", 1) == 8 * sum(squares) + 4 * 1840
    for fraction in (1.0, 0.25):
        kept = sum(squares) + fraction * (sum(squares) + 1840)
        assert memory("kaisa", fraction=fraction) == pytest.approx(4 * kept)


# Beside what was published


MEASURED = {
    ("dkfac", "resnet50"): 0.8525,
    ("mpdkfac", "resnet50"): 0.7635,
    ("spdkfac", "resnet50"): 0.6755,
    ("dkfac", "resnet152"): 1.5807,
    ("mpdkfac", "resnet152"): 1.3933,
    ("spdkfac", "resnet152"): 1.1689,
}
"""Iterations [s] on 64 RTX 2080 Ti: shyhuai/kfac_pytorch@1dacea76 scripts/time_breakdown.py."""


def shipped(which: str, model: str) -> float:
    path = SHIPPED.scenario(f"Shi2021_{which}_{model}_ib100_64")
    return predict(make_scenario(read_file(path)["scenario"])).iteration_s


@pytest.mark.parametrize("model", ["resnet50", "resnet152"])
def test_measured_iterations_are_met_within_a_fifth_and_in_their_order(model: str) -> None:
    for which in ("dkfac", "mpdkfac", "spdkfac"):
        assert shipped(which, model) == pytest.approx(MEASURED[which, model], rel=0.2)
    assert shipped("spdkfac", model) < shipped("mpdkfac", model) < shipped("dkfac", model)


@pytest.mark.parametrize(("model", "batch", "measured_s"), [("resnet50", 32, 0.2115),
                                                            ("resnet152", 8, 0.1927)])  # fmt: skip
def test_building_all_factors_and_preconditioning_takes_what_was_measured(
    model: str, batch: int, measured_s: float
) -> None:
    catalog = SHIPPED
    profile = replace(find_profile(model, "rtx2080ti", batch, "fp32", catalog), batch=batch)
    device = load_device("rtx2080ti", catalog)
    seconds = sum(
        device.cost(kernel).seconds
        for layer in factored(profile)
        for kernel in (
            *HKBU.input_factor(layer),
            *HKBU.output_factor(layer),
            *preconditioned(layer, "cholesky"),
            rescaled(layer),
        )
    )
    assert seconds == pytest.approx(measured_s, rel=0.17)


@pytest.mark.parametrize(("model", "batch", "measured_s"), [("resnet50", 32, 0.2742),
                                                            ("resnet152", 8, 0.6759)])  # fmt: skip
def test_inverting_all_factors_takes_what_was_measured(
    model: str, batch: int, measured_s: float
) -> None:
    catalog = SHIPPED
    profile = find_profile(model, "rtx2080ti", batch, "fp32", catalog)
    device = load_device("rtx2080ti", catalog)
    seconds = sum(
        device.cost(kernel).seconds
        for layer in factored(profile)
        for side in (layer.inputs, layer.outputs)
        for kernel in inverted(side)
    )
    assert seconds == pytest.approx(measured_s, rel=0.1)
