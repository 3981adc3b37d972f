"""K-FAC methods by hand: what runs, what is sent, in which order; and laws of all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.compute.kernel import elementwise
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.building.kfac_factors import (
    HKBU,
    HKBU_LATER,
    KAISA,
    decomposed,
    inverted,
    packed_triangle,
    preconditioned,
    rescaled,
    triangle,
    unpacked_triangle,
)
from perfsim.network.cluster import Cluster
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.schedule.run import run
from support.builders import ring_cluster
from support.kfac_of_two_layers import (
    END,
    FIRST,
    MS,
    PASSES,
    SECOND,
    SIDES,
    TRIANGLES,
    TWO,
    broadcast_s,
    built,
    k,
    names,
    plans,
    reduce_s,
    took,
    until_unpacked,
)

METHODS = ("d_kfac", "mpd_kfac", "spd_kfac", "dp_kfac", "kaisa")


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
    products = k(*built(), *map(packed_triangle, SIDES))
    rest = sum(k(*unpacked_triangle(s, mean=True), *inverted(s)) for s in SIDES) + END + 2 * MS
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
    inverting += sum(k(elementwise(side**2, 1)) for side in others) + k(
        *map(packed_triangle, SIDES)
    )
    sending = sum(broadcast_s(triangle(side), ranks) for side in SIDES)
    unpacking = sum(k(*unpacked_triangle(side)) for side in SIDES)
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
    first = small + k(*inverted(31), packed_triangle(31)) + broadcast_s(triangle(31), 2)
    second = small + k(
        elementwise(31**2, 1), packed_triangle(31), *inverted(40), packed_triangle(40)
    )
    sent = max(first, second) + broadcast_s(triangle(40), 2)
    rest = k(*unpacked_triangle(31), *unpacked_triangle(40)) + END + 2 * MS
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


@pytest.mark.parametrize("inversion", ["cholesky", "eigen"])
@pytest.mark.parametrize("name", METHODS)
def test_one_gpu_builds_inverts_and_preconditions_all_layers(name: str, inversion: Any) -> None:
    code = {"dp_kfac": HKBU_LATER, "kaisa": KAISA}.get(name, HKBU)
    eigen, kaisa = inversion == "eigen", name == "kaisa"
    own = [*built(code), rescaled(FIRST), rescaled(SECOND)]
    for side in SIDES:
        own += decomposed(side, copied=not kaisa) if eigen else inverted(side)
    for layer in (FIRST, SECOND):
        own += [elementwise(layer.elements, 5, 3)] if eigen and kaisa else []
        own += preconditioned(layer, inversion, quotients=kaisa)
    [plan] = plans(name, cluster=Cluster(1, (1,), None, None), inversion=inversion)
    assert run(plan).iteration_s == pytest.approx(42 * MS + k(*own), rel=1e-9)
    assert plan.sent_bytes == plan.calls == 0


def test_d_and_mpd_kfac_may_decompose() -> None:
    ends = k(*preconditioned(FIRST, "eigen"), *preconditioned(SECOND, "eigen"))
    ends += k(rescaled(FIRST), rescaled(SECOND)) + 2 * MS
    everything = sum(k(*decomposed(side, copied=True)) for side in SIDES)
    expected = until_unpacked(4) + everything + ends
    assert took("d_kfac", inversion="eigen") == pytest.approx(expected, rel=1e-9)
    # Eight ranks have a factor each; eigenvectors go whole, and eigenvalues by themselves.
    own = k(*decomposed(40, copied=True)) + k(*(elementwise(side**2, 1) for side in SIDES[:3]))
    sends = sum(broadcast_s(side**2, 8) + broadcast_s(side, 8) for side in SIDES)
    expected = until_unpacked(8) + own + sends + ends
    assert took("mpd_kfac", 8, inversion="eigen") == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_inverts_alike_by_default(name: str) -> None:
    assert took(name) == took(name, inversion="cholesky") != took(name, inversion="eigen")


def test_memory_by_hand() -> None:
    squares = [20**2 + 30**2, 31**2 + 40**2]

    def memory(name: str, ranks: int = 4, **options: Any) -> float:
        return load_method(name, options).memory_bytes(TWO.gradients, ranks)

    for name in ("d_kfac", "mpd_kfac", "spd_kfac"):
        assert memory(name) == 8 * sum(squares)
    assert memory("dp_kfac") == 8 * squares[1] + 4 * 1840
    assert memory("dp_kfac", 1) == 8 * sum(squares) + 4 * 1840
    for fraction in (1.0, 0.25):
        for inversion, quotients in (("cholesky", 0), ("eigen", 1840)):
            kept = sum(squares) + fraction * (sum(squares) + quotients)
            held = memory("kaisa", fraction=fraction, inversion=inversion)
            assert held == pytest.approx(4 * kept)
