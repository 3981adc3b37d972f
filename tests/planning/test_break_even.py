"""Break-even with S-SGD: crossings, the scaled network, and what predictions say there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import ceil, log, log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.planning import break_even as breakeven
from perfsim.planning.break_even import (
    Scale,
    crossings,
    on_scaled_network,
    scaled_network,
    scaled_rate,
)
from perfsim.planning.explain import unfit_notes
from perfsim.prediction import predict
from perfsim.report.planning import break_even_words
from perfsim.resolve import Setup, resolve
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

RATE = 10.0
"""Gbit/s of the network of one's own."""


def asked(**fields: Any) -> Setup:
    """Return a question, resolved: resnet50 on 16 nodes of one GPU unless it says otherwise."""
    usual = {"model": "resnet50", "gpus": 16, "gpus_per_node": 1, "net": f"{RATE}Gbit/s,50us"}
    return resolve(make_scenario(usual | fields), SHIPPED)


BY_RATIO = Scale(
    lambda low, high: log2(log(high / low) / log(1.000001)),
    lambda low, high, share: low * (high / low) ** share,
)


@given(st.floats(0.01, 100.0), st.floats(0.1, 10.0))
def test_a_crossing_of_two_lines_is_found(place: float, slope: float) -> None:
    looked = []

    def times(x: float) -> tuple[float, float]:
        looked.append(x)
        return 1.0 + slope * x, 1.0 + slope * place

    grid = [2.0**power for power in range(-9, 9)]
    (found,) = crossings([(x, times(x)) for x in grid], times, BY_RATIO)
    assert found.at == pytest.approx(place, rel=1e-5)
    assert not found.wins_above
    assert 1 < found.at / found.before <= 1.000001 * (1 + 1e-9)
    assert len(looked) - len(grid) <= 9  # bisection takes 20


@given(st.floats(1.001, 1.999), st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_where_times_jump_a_crossing_takes_one_step_more_than_bisection(
    place: float, below: float, above: float
) -> None:
    looked = []

    def times(x: float) -> tuple[float, float]:
        looked.append(x)
        return (1.0 + above if x >= place else 1.0 - below / 2), 1.0

    (found,) = crossings([(x, times(x)) for x in (1.0, 2.0)], times, BY_RATIO)
    assert found.before < place <= found.at
    assert found.at / found.before <= 1.000001 * (1 + 1e-9)
    assert len(looked) - 2 <= ceil(BY_RATIO.halvings(1.0, 2.0)) + 1


def test_equal_times_are_no_crossing() -> None:
    curve = [(1.0, (2.0, 2.0)), (2.0, (1.0, 2.0)), (4.0, (2.0, 2.0))]
    assert crossings(curve, lambda _: None, BY_RATIO) == []


def test_at_the_bandwidth_found_predictions_are_equal() -> None:
    found = breakeven.bandwidth_break_even(asked(method="topk"))
    (one,) = found.crossings
    there = predict(
        make_scenario(
            {
                "model": "resnet50",
                "gpus": 16,
                "gpus_per_node": 1,
                "net": f"{RATE * one.at!r}Gbit/s,50us",
                "method": "topk",
            }
        ),
        SHIPPED,
    )
    assert there.iteration_s == pytest.approx(there.baseline_s, rel=1e-4)
    assert there.iteration_s == pytest.approx(one.times[0], rel=1e-9)
    for factor, (method_s, ssgd_s) in found.curve:
        assert (method_s < ssgd_s) == (factor < one.at)


GPT = {"model": "gpt2", "gpu": "h100", "batch": 1}
PIPELINE = GPT | {"tp": 4, "pp": 2, "accumulate": 4}
WIRE = ("net", RATE, ",50us")
SITES = {"gpus": 16, "site": "8,8"}


@pytest.mark.parametrize(
    ("fields", "rate"),
    [
        ({"model": "resnet50"}, WIRE),
        ({"model": "resnet50", "node": "dgx-1"}, ("nic", 100.0, "")),
        ({"model": "resnet50", "node": "eth-1g"}, ("nic", 1.0, "")),
        ({"model": "resnet50", "node": "p3dn"}, ("nic", 100.0, "")),  # EFA changes with its rate
        ({"model": "resnet50", "node": "dgx-1", "intra_net": "pcie3"}, ("nic", 100.0, "")),
        (PIPELINE, WIRE),
        (PIPELINE | {"method": "fsdp"}, WIRE),  # S-SGD computes otherwise
        (PIPELINE | {"node": "dgx-h100"}, ("nic", 400.0, "")),
        (GPT | SITES | {"node": "dgx-h100", "tp": 2}, ("wan", 1.0, ",20ms")),
    ],
)
def test_over_bandwidth_times_are_those_that_are_predicted_there(
    fields: dict[str, Any], rate: tuple[str, float, str]
) -> None:
    field, gbit_per_s, latency = rate

    def at(factor: float) -> Setup:
        link = {field: f"{gbit_per_s * factor!r}Gbit/s{latency}"}
        return resolve(make_scenario({"gpus": 32, "method": "topk"} | fields | link), SHIPPED)

    setup = at(1.0)
    found = breakeven.bandwidth_break_even(setup, SHIPPED.jobs)
    assert found.rate == pytest.approx(gbit_per_s * 1e9 / 8)
    assert found.curve[0][1][1] > 2 * found.curve[-1][1][1]  # S-SGD at the ends of the range
    for factor, times in (found.curve[2], found.curve[10], found.curve[13]):
        there = predict(at(factor).scenario, SHIPPED)
        assert times == pytest.approx((there.iteration_s, there.baseline_s), rel=1e-9)


def test_groups_of_a_divided_model_on_a_measured_network_are_scaled_where_they_use_it() -> None:
    setup = resolve(
        make_scenario(GPT | {"gpus": 32, "net": "coreweave-h100-ib", "tp": 4, "method": "topk"}),
        SHIPPED,
    )
    assert setup.split is not None and setup.cluster.known is not None
    there = predict(setup.scenario, SHIPPED)
    found = breakeven.bandwidth_break_even(setup)
    assert found.curve[10][1] == pytest.approx((there.iteration_s, there.baseline_s), rel=1e-9)
    assert found.curve[6][1][1] > 1.5 * found.curve[10][1][1]  # at a sixteenth of the rate
    faster = on_scaled_network(setup, 4.0)
    assert faster.split is not None and faster.split.axes["tp"] is setup.split.axes["tp"]
    assert faster.split.answers is not setup.split.answers


def test_between_sites_the_links_inside_a_site_keep_their_rate() -> None:
    fields = SITES | {"node": "dgx-h100", "wan": "1Gbit/s,20ms", "tp": 2}
    setup = resolve(make_scenario(GPT | fields), SHIPPED)
    faster = on_scaled_network(setup, 4.0)
    assert scaled_rate(setup) == 125e6 and scaled_rate(faster) == 5e8
    assert faster.cluster.inter == setup.cluster.inter
    assert faster.cluster.derived == setup.cluster.derived


def test_on_one_node_its_own_links_are_scaled() -> None:
    setup = resolve(
        make_scenario({"model": "resnet50", "gpus": 8, "node": "dgx-h100", "method": "topk"}),
        SHIPPED,
    )
    derived = on_scaled_network(setup, 0.5).cluster.derived
    assert derived is not None and derived.facts.inside_rate == 225e9
    (one,) = breakeven.bandwidth_break_even(setup).crossings
    assert 0.001 < one.at < 0.1


def test_around_the_number_of_gpus_found_predictions_change_places() -> None:
    resolved = asked(method="topk", net="10gbe", gpus_per_node=4)
    for one in breakeven.gpu_break_even(resolved, SHIPPED).crossings:
        for count, times in ((one.before, one.times_before), (one.at, one.times)):
            scenario = resolved.scenario.model_copy(update={"gpus": int(count)})
            there = predict(scenario, SHIPPED)
            assert (there.iteration_s, there.baseline_s) == pytest.approx(times, rel=1e-12)
        assert (one.times[0] < one.times[1]) is one.wins_above
        assert (one.times_before[0] < one.times_before[1]) is not one.wins_above
        assert one.at - one.before == 4  # neighbours: one node


@pytest.mark.parametrize("net", ["10gbe", "1gbe", "ib100", "25gbe", "ib200", "10Gbit/s,50us"])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "broadcast"])
def test_a_scaled_network_is_the_network_at_one_and_never_slower_above(
    net: str, collective: str
) -> None:
    cluster = asked(net=net, gpus_per_node=4).cluster
    for size_bytes in (1e3, 1e6, 1e8):
        plain = cluster.cost(collective, size_bytes)
        same = scaled_network(cluster, 1.0).cost(collective, size_bytes)
        assert (same.seconds, same.latency_s) == pytest.approx((plain.seconds, plain.latency_s))
        times = [
            scaled_network(cluster, 2.0**power).cost(collective, size_bytes).seconds
            for power in range(-6, 7)
        ]
        assert all(a >= b * (1 - 1e-12) for a, b in pairwise(times))


def test_links_inside_nodes_keep_their_rate() -> None:
    cluster = asked(net="10gbe", gpus_per_node=4).cluster
    scaled = scaled_network(cluster, 1000.0)
    assert scaled.of("node", "all_reduce", 1e8) == cluster.of("node", "all_reduce", 1e8)
    # ... so that a wire without end is no faster than what comes out of a node.
    inside_s = cluster.of("node", "all_reduce", 1e8).seconds
    assert scaled.cost("all_reduce", 1e8).seconds > inside_s / 2


def test_scaling_twice_servers_and_groups() -> None:
    cluster = asked(gpus_per_node=1).cluster
    one = scaled_network(cluster, 3.0)
    assert one.served(2).cost("push", 1e8).seconds < cluster.served(2).cost("push", 1e8).seconds
    assert one.served(0) is one
    assert one.of((4, 4), "all_reduce", 1e8).seconds == pytest.approx(
        scaled_network(replace(cluster), 3.0).of((4, 4), "all_reduce", 1e8).seconds
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"method": "ssgd"}, "this is S-SGD itself"),
        (
            {"method": "dasgd", "net": "10gbe", "gpus_per_node": 4, "intra_net": "pcie3"},
            "dasgd is faster than S-SGD",
        ),
        ({"gpus": 1}, "one GPU uses no network"),
    ],
)
def test_where_there_is_no_break_even_it_says_so(fields: dict[str, Any], words: str) -> None:
    resolved = asked(**fields)
    found = breakeven.bandwidth_break_even(resolved)
    assert found.crossings == ()
    (sentence,) = break_even_words(found, resolved.scenario.method)
    assert words in sentence


@pytest.mark.parametrize(("method", "gathers"), [("powersgd", False), ("dgc", True)])
def test_memory_asks_for_rounds_of_methods_that_hold_what_they_gather_alone(
    method: str, gathers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Counter[str]()

    def count(name: str) -> None:
        real = getattr(breakeven, name)

        def counted(*given: Any, **more: Any) -> Any:
            made[name] += 1
            return real(*given, **more)

        monkeypatch.setattr(breakeven, name, counted)

    count("build_rounds")
    count("baseline_rounds")
    setup = asked(method=method)
    found = breakeven.gpu_break_even(setup, SHIPPED)
    assert made["build_rounds"] - made["baseline_rounds"] == len(found.curve) * gathers
    for gpus, _ in found.curve[::4]:
        one = predict(setup.scenario.model_copy(update={"gpus": int(gpus)}), SHIPPED)
        assert one.memory_usable_bytes is not None
        fits = sum(one.memory_bytes.values()) <= one.memory_usable_bytes
        assert (gpus not in found.unfit) == fits


def test_numbers_of_gpus_among_which_a_side_does_not_fit_are_told() -> None:
    fields = {"model": "llama3-8b", "node": "dgx-h100", "gpus": 16, "method": "fsdp"}
    sharded = resolve(make_scenario(fields), SHIPPED)
    found = breakeven.gpu_break_even(sharded, SHIPPED)
    counts = [gpus for gpus, _ in found.curve]
    assert found.unfit == (2, 4, 8, 16) and found.ssgd_unfit == tuple(counts)
    notes = unfit_notes(sharded.scenario, found)
    assert "fsdp would not fit into memory at 2, 4, 8, 16 GPUs" in notes[0]
    assert "S-SGD would not fit into memory anywhere" in notes[1]


def test_uneven_nodes_have_no_number_of_gpus_to_look_for() -> None:
    resolved = asked(gpus=8, gpus_per_node=None, placement="3,5", net="10gbe")
    found = breakeven.gpu_break_even(resolved, SHIPPED)
    assert "placement" in found.why_not and found.crossings == ()


def test_a_measured_curve_keeps_its_latency_and_gains_what_its_link_would() -> None:
    cluster = resolve(
        make_scenario({"model": "resnet50", "gpus": 4, "net": "a100-nvlink3-4"}), SHIPPED
    ).cluster
    assert cluster.known is not None
    for size_bytes in (1e4, 1e6, 1e8):
        usual = cluster.cost("all_reduce", size_bytes)
        assert scaled_network(cluster, 1.0).cost("all_reduce", size_bytes).seconds == pytest.approx(
            usual.seconds
        )
        before = usual.seconds
        for factor in (2.0, 8.0, 1e6):
            seconds = scaled_network(cluster, factor).cost("all_reduce", size_bytes).seconds
            assert usual.latency_s <= seconds < before
            before = seconds
    # A large message is almost all wire: twice the rate, half of it.
    wire_s = usual.seconds - usual.latency_s
    half = scaled_network(cluster, 2.0).cost("all_reduce", 1e8)
    assert half.seconds - usual.latency_s == pytest.approx(wire_s / 2, rel=0.1)
