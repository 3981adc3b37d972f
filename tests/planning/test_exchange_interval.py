"""Exchanges H iterations apart: their parts by hand, the closed form, intervals, rates, laws.

The question by hand: two gradients of 1 MB on four single-GPU nodes at 1 GB/s and 1 ms, where an
all-reduce of n takes 6 ms + 1.5 n. An iteration alone takes 42 ms. A kernel takes its bytes at
1 TB/s and 10 us a launch.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.data.catalog import Catalog
from perfsim.methods import load_method, method_class, method_names
from perfsim.methods.base import LOCAL_ITERATION, MethodContext, Round
from perfsim.planning import exchange_interval as apart
from perfsim.planning.break_even import on_scaled_network
from perfsim.planning.exchange_interval import ExchangeCost
from perfsim.planning.explain import explain
from perfsim.planning.tune import TunedValue, tune
from perfsim.prediction import predict
from perfsim.report.planning import exchange_summary, tuned_verdict
from perfsim.resolve import Setup, resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.rounds import build_rounds
from perfsim.time_to_accuracy import AS_MANY_EPOCHS
from perfsim.what_if import steady_s
from support.averaged import FAST, MS, SLOW
from support.builders import hand_device, profile, ring_cluster
from support.commands import answer, run
from support.what_ships import SHIPPED

WITH_INTERVAL = {name for name in method_names() if method_class(name).interval_option}
MAIN = "--model resnet50 --gpus 16 --gpus-per-node 8 --gpu a100 --net 1gbe"


def by_hand(method: str, options: dict[str, Any], link: str = FAST) -> Setup:
    """Return a setup of the question by hand."""
    asked = {"model": "resnet50", "gpus": 4, "gpus_per_node": 1, "net": link}
    made = make_scenario(asked | {"method": method, "options": options, "algorithm": "ring"})
    setup = resolve(made, SHIPPED)
    tensors = profile([(500, 500)] * 2, [10 * MS, 30 * MS], forward_s=10 * MS, optimizer_s=2 * MS)
    return replace(
        setup,
        transferred=setup.transferred._replace(profile=tensors),
        device=hand_device(),
        cluster=ring_cluster(4, link),
    )


def cost_of(setup: Setup, baseline_s: float = 49.5 * MS) -> ExchangeCost:
    """Return what its exchanges cost; S-SGD's second all-reduce is exposed: 7.5 ms."""
    found = apart.exchange_cost(setup, steady_s(build_rounds(setup)), baseline_s)
    assert found is not None
    return found


def asked(**fields: Any) -> Setup:
    """Return a question about what ships, resolved."""
    usual = {"model": "resnet50", "gpus": 16, "gpus_per_node": 8, "gpu": "a100", "net": "1gbe"}
    return resolve(make_scenario(usual | fields), SHIPPED)


# Parts


def test_an_exchange_of_diloco_by_part() -> None:
    found = cost_of(by_hand("diloco", {"interval": 500}))
    assert found.time is not None and found.period is not None
    # Old parameters come tensor by tensor, 1 us and a launch; new ones go at once, 2 us.
    assert found.time.copies_s == pytest.approx(2 * 11e-6 + 12e-6)
    # Subtracted, 3 passes 3 us and a launch a tensor; cloned, 2 passes and a launch a tensor.
    assert found.time.kernels_s == pytest.approx(2 * 13e-6 + 24e-6)
    assert found.time.network_s == pytest.approx(2 * 7.5e-3)
    # 11 passes 22 us, 4 launches.
    assert found.time.optimizer_s == pytest.approx(62e-6)
    assert found.period == pytest.approx((500, 42e-3, found.time.busy_s))
    assert found.hidden_s == 0.0
    # In an iteration 1/500 of it; beside 500 iterations of 42 ms.
    assert found.share == pytest.approx(found.time.busy_s / (500 * 42e-3 + found.time.busy_s))
    assert found.period.added == pytest.approx(found.time.busy_s / 21.0)


def test_work_on_the_host_hides_beside_the_wire() -> None:
    found = cost_of(by_hand("diloco", {"interval": 10, "outer_device": "cpu"}))
    assert found.time is not None and found.period is not None
    assert found.time.copies_s == pytest.approx(2 * 12e-6)
    # 7 passes for the differences, 3 over 3/4 of what is sent; 11 passes of the outer optimizer:
    # each as sums of 3 passes, 4 bytes a value.
    passes = (7 + 3 * 3 / 4) / 3 * 2e6 / 1e12
    assert found.time.kernels_s == pytest.approx(passes, rel=1e-6)
    assert found.time.optimizer_s == pytest.approx(11 / 3 * 2e6 / 1e12, rel=1e-6)
    assert found.hidden_s == pytest.approx(3 * 3 / 4 / 3 * 2e6 / 1e12, rel=1e-4)


def test_a_late_average_is_exposed_by_what_its_interval_does_not_hide() -> None:
    # 2 MB: 9 ms of wire, on 50 GB/s-slow links 6 ms + 150 ms, of which 3 x 42 ms are computation.
    found = cost_of(by_hand("dasgd", {"interval": 3}, SLOW))
    assert found.time is not None and found.period is not None
    assert found.time.network_s == pytest.approx(6e-3 + 1.5 * 2e6 / 20e6)
    # Packed in 8 us and 2 launches; merged in 10 us and 4 launches.
    assert found.time.kernels_s == pytest.approx(28e-6 + 50e-6)
    hidden_s = found.time.busy_s - found.period.exposed_s
    assert hidden_s == pytest.approx(found.hidden_s) == pytest.approx(3 * 42e-3)
    assert cost_of(by_hand("dasgd", {"interval": 4}, SLOW)).period.added == pytest.approx(  # type: ignore[union-attr]
        78e-6 / (4 * 42e-3)
    )


def test_fragments_are_all_in_one_interval() -> None:
    options = {"interval": 8, "fragments": 2, "sync_delay": 0, "backup": "gpu"}
    found = cost_of(by_hand("streaming_diloco", options))
    assert found.exchanges == 2
    whole = cost_of(by_hand("streaming_diloco", options | {"fragments": 1}))
    assert found.time is not None and whole.time is not None
    assert found.time.network_s == pytest.approx(whole.time.network_s)


@pytest.mark.parametrize("method", sorted(WITH_INTERVAL))
def test_parts_and_periods_add_up_for_every_method(method: str) -> None:
    setup = asked(method=method)
    iteration_s = steady_s(build_rounds(setup))
    found = cost_of(setup, 1.0)
    assert found.time is not None and found.period is not None
    assert found.time.busy_s == pytest.approx(found.period.exposed_s + found.hidden_s)
    assert min(found.time) >= 0 and found.time.network_s > 0
    # The phase with an interval, and the rest of training: together the iteration.
    share, period = found.interval.share, found.period
    longer = cost_of(apart.with_interval(setup, setup.method.interval_from(64)), 1.0)
    assert longer.period is not None
    if longer.period.iterations == 64 and method != "dasgd":
        change_s = share * period.exposed_s * (1 / 64 - 1 / period.iterations)
        assert longer.iteration_s - iteration_s == pytest.approx(change_s, rel=1e-6)
    if share == 1:
        alone_s = period.iterations * period.inner_s
        assert (alone_s + period.exposed_s) / period.iterations == pytest.approx(iteration_s)


def test_rounds_are_built_by_themselves_or_refused() -> None:
    setup = by_hand("localsgd", {"interval": 4})
    local, averaging = build_rounds(setup)
    own = build_rounds(setup, None, [Round((LOCAL_ITERATION,)), Round((0,))])
    assert [one.graph.tasks for one in own] == [local.graph.tasks, averaging.graph.tasks]
    assert [one.count for one in own] == [1, 1]
    with pytest.raises(ValueError, match="depend on each other"):
        build_rounds(asked(method="localsgd", jitter=0.1), None, [Round((0,))])


# Intervals


@given(
    place=st.integers(1, 1000),
    guess=st.floats(0, 2000),
    longest=st.integers(1, 1000),
    every=st.integers(1, 7),
)
@settings(max_examples=60)
def test_the_smallest_is_found_from_any_guess(
    place: int, guess: float, longest: int, every: int
) -> None:
    found, tried = apart.smallest_interval(
        lambda count: count >= place, guess, longest, lambda count: -(-count // every) * every
    )
    exact = -(-place // every) * every
    assert found == (exact if exact <= longest else None)
    assert tried <= 2 * longest.bit_length() + 3


@pytest.mark.parametrize("method", ["diloco", "localsgd", "sparseloco", "cpsgd", "adpsgd"])
@pytest.mark.parametrize("limit", apart.EXPOSED_LIMITS)
def test_the_closed_form_is_what_is_simulated(method: str, limit: float) -> None:
    setup = asked(method=method)
    period = apart.period_time(setup)
    found = apart.interval_within(setup, limit)
    assert found.interval == -(-period.exposed_s // (limit * period.inner_s))
    assert found.by_formula and found.predictions == 2
    # There, and not before, by whole predictions of the iteration.
    for count, within in ((found.interval, True), (found.interval - 1, False)):
        said = predict(apart.with_interval(setup, int(count)).scenario, SHIPPED).iteration_s
        assert (said <= period.inner_s * (1 + limit)) is within


def test_where_overlap_depends_on_the_interval_it_is_searched() -> None:
    setup = asked(method="dasgd")
    found = apart.interval_within(setup, 0.1)
    assert found.interval is not None and not found.by_formula
    for count, within in ((found.interval, True), (found.interval - 1, False)):
        period = apart.period_time(apart.with_interval(setup, count))
        assert (period.added <= 0.1) is within
    assert found.predictions <= 2 * 10 + 3


def test_as_fast_as_ssgd_from_there_on_and_not_before() -> None:
    setup = asked(method="localsgd", net="10gbe")
    found = explain(setup.scenario, SHIPPED).apart
    assert found is not None and found.rate is not None
    (even,) = (one for one in found.break_even if one.limit is None)
    assert even.interval == 2 and even.by_formula
    for count, as_fast in ((2, True), (1, False)):
        there = predict(apart.with_interval(setup, count).scenario, SHIPPED)
        assert (there.iteration_s <= there.baseline_s) is as_fast


def test_where_no_interval_reaches_it_that_is_said() -> None:
    # Late averages of up to 1000 iterations, on a wire that takes longer than these.
    setup = by_hand("dasgd", {"interval": 4}, "50kB/s,1ms")
    found = apart.interval_within(setup, 0.1)
    assert found.interval is None and found.predictions <= 3
    assert found.added > 0.1
    # A method whose iterations between exchanges are slower than S-SGD's never is as fast.
    cost = cost_of(by_hand("localsgd", {}), 41 * MS)
    assert cost.break_even[0].interval is None


def test_fragments_and_delay_limit_which_intervals_there_are() -> None:
    method = load_method("streaming_diloco", {"fragments": 3, "sync_delay": 5, "interval": 18})
    assert [method.interval_from(count) for count in (1, 18, 19, 100)] == [18, 18, 21, 102]
    assert load_method("dasgd", {"late": 3}).interval_from(1) == 3
    setup = asked(method="streaming_diloco", options={"fragments": 3, "interval": 18})
    found = apart.interval_within(setup, 0.1)
    assert found.interval is not None and found.interval % 3 == 0 and found.by_formula


# Bandwidth


@pytest.mark.parametrize("method", ["diloco", "streaming_diloco", "localsgd"])
def test_at_the_rate_found_as_much_is_added_as_asked(method: str) -> None:
    setup = asked(method=method)
    found = apart.rate_within(setup, 0.1)
    assert found.factor is not None and found.low < found.factor < found.high
    for factor, within in ((found.factor, True), (found.factor * 0.999, False)):
        there = on_scaled_network(setup, factor)
        assert (apart.period_time(there).added <= 0.1) is within
    assert found.predictions <= 21


def test_the_rate_found_for_a_node_type_is_that_of_its_nic() -> None:
    fields = {"model": "resnet50", "gpus": 64, "node": "eth-1g", "method": "localsgd"}
    fields |= {"options": {"interval": 32}}
    found = apart.rate_within(resolve(make_scenario(fields), SHIPPED), 0.1)
    assert found.factor is not None and found.rate == 125e6
    for factor, within in ((found.factor, True), (found.factor * 0.999, False)):
        there = make_scenario(fields | {"nic": f"{8 * found.rate * factor!r}bit/s"})
        assert (apart.period_time(resolve(there, SHIPPED)).added <= 0.1) is within


def test_rates_that_are_all_enough_or_none_are_said_so() -> None:
    every = apart.rate_within(by_hand("localsgd", {"interval": 10**6}), 0.1)
    assert every.factor == every.low
    never = apart.rate_within(by_hand("localsgd", {"interval": 1}, "1GB/s,100ms"), 0.1)
    assert never.factor is None and never.predictions == 1


# Laws


@given(
    method=st.sampled_from(["diloco", "localsgd", "sparseloco", "cpsgd", "postlocalsgd"]),
    interval=st.integers(1, 5000),
    more=st.integers(1, 5000),
)
@settings(max_examples=25, deadline=None)
def test_a_longer_interval_is_never_slower(method: str, interval: int, more: int) -> None:
    setup = by_hand(method, {"interval": interval})
    longer = apart.with_interval(setup, interval + more)
    assert apart.mean_iteration_s(longer) <= apart.mean_iteration_s(setup) * (1 + 1e-12)
    assert apart.period_time(longer).added < apart.period_time(setup).added


@pytest.mark.parametrize("method", ["diloco", "localsgd", "streaming_diloco", "sparseloco"])
def test_rare_exchanges_add_nothing_to_computing_alone(method: str) -> None:
    rare = apart.period_time(by_hand(method, {"interval": 10**6}, SLOW))
    assert rare.added < 1e-5 and rare.inner_s == pytest.approx(42e-3)
    assert apart.mean_iteration_s(by_hand(method, {"interval": 10**6}, SLOW)) == pytest.approx(
        rare.inner_s, rel=1e-5
    )


def test_every_iteration_diloco_sends_for_as_long_as_local_sgd() -> None:
    options = {"interval": 1}
    found, every = (cost_of(by_hand(name, options)).time for name in ("diloco", "localsgd"))
    assert found is not None and every is not None
    assert found.network_s == pytest.approx(every.network_s)


def test_int8_takes_a_quarter_of_the_bytes_and_of_their_time() -> None:
    def wire_s(compression: str) -> float:
        options = {"outer_device": "cpu", "compression": compression, "interval": 100}
        time = cost_of(by_hand("diloco", options, "20MB/s,1us")).time
        assert time is not None
        return time.network_s

    # Two messages of 6 hops of 1 us; 8 tables of 1 KiB with each in int8.
    latency, tables = 2 * 6e-6, 2 * 1.5 * 8 * 1024 / 20e6
    assert (wire_s("int8") - latency - tables) * 4 == pytest.approx(wire_s("none") - latency)
    assert (wire_s("fp16") - latency) * 2 == pytest.approx(wire_s("none") - latency)


# What ranks keep


@pytest.mark.parametrize("method", sorted(WITH_INTERVAL))
def test_what_is_kept_on_the_gpu_is_what_memory_counts(method: str) -> None:
    setup = asked(method=method)
    found = predict(setup.scenario, SHIPPED)
    kept = 0.0 if found.outer_state is None else found.outer_state.gpu_bytes
    assert kept == pytest.approx(found.memory_bytes["method"])


@pytest.mark.parametrize(
    ("method", "options", "gpu", "host", "node"),
    [
        ("diloco", {}, 1, 1, 1),
        ("diloco", {"backup": "gpu"}, 2, 0, 0),
        ("diloco", {"worker": "rank"}, 1, 1, 4),
        ("diloco", {"outer_device": "cpu"}, 0, 3, 3),
        ("diloco", {"outer_device": "cpu", "inner": "fsdp"}, 0, 3 / 4, 3),
        ("streaming_diloco", {"sync_delay": 0}, 1 / 4, 1 / 4, 1),
        ("streaming_diloco", {"inner": "ddp", "backup": "gpu", "sync_delay": 0}, 2, 0, 0),
        ("sparseloco", {}, 5 / 4, 0, 0),
        ("sparseloco", {"offload": True}, 0, 5 / 4, 5),
        ("sparseloco", {"offload": True, "inner": "fsdp"}, 0, 2 / 4, 2),
    ],
)
def test_state_of_4_bytes_a_parameter_is_where_it_is_said(
    method: str, options: dict[str, Any], gpu: float, host: float, node: float
) -> None:
    made = profile([(500, 500)] * 2, [0.1, 0.2])
    world = MethodContext(8, 2, 4, profile=made)
    kept = load_method(method, options).outer_state(world)
    assert sum(one.gpu_bytes for one in kept) == pytest.approx(gpu * 2e6)
    assert sum(one.host_bytes for one in kept) == pytest.approx(host * 2e6)
    assert sum(one.ranks * one.host_bytes for one in kept) == pytest.approx(node * 2e6)
    assert load_method(method, options).memory_in(world) == pytest.approx(gpu * 2e6)


def test_tensor_parallel_ranks_each_keep_their_part() -> None:
    given = {"model": "llama3-8b", "gpus": 32, "node": "dgx-h100", "net": "10gbe", "batch": 1}
    whole, parts = (
        predict(make_scenario(given | {"method": "diloco", **more}), SHIPPED).outer_state
        for more in ({}, {"tp": 8})
    )
    assert whole is not None and parts is not None
    assert parts.gpu_bytes == pytest.approx(whole.gpu_bytes / 8, rel=1e-3)
    assert parts.host_bytes_per_node == pytest.approx(whole.host_bytes_per_node, rel=1e-3)


def test_predict_says_what_is_kept_where(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(f"predict {MAIN} --method streaming_diloco", capsys)
    lines = out.splitlines()
    at = next(number for number, line in enumerate(lines) if "outer momentum" in line)
    first, second = lines[at : at + 2]
    assert first.startswith("outer state ") and "on the GPU" in first
    assert "in host memory: old parameters" in second and second.endswith(" a node)")
    found = answer(f"predict {MAIN} --method streaming_diloco", capsys)["outer_state"]
    assert found["host_bytes_per_node"] == 8 * found["host_bytes"] > 0
    assert found["gpu_bytes"] == sum(one["gpu_bytes"] for one in found["parts"])


def test_methods_without_an_interval_have_no_block(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ("--method topk", "--method ssgd", "--method postlocalsgd --set dense_share=1"):
        found = answer(f"explain {MAIN} {more}", capsys)
        assert "exchange_interval" not in found
    assert "outer_state" not in answer(f"predict {MAIN} --method topk", capsys)
    assert apart.interval_of(asked(method="adpsgd", options={"schedule": "4x8,8x8"})) is None
    alone = resolve(make_scenario({"model": "gpt2", "gpus": 1, "method": "localsgd"}), SHIPPED)
    assert apart.interval_of(alone) is None


def test_where_exchanges_are_not_known_it_says_why() -> None:
    for fields, why in (
        ({"jitter": 0.1}, "vary by chance"),
        ({"gpu": "v100:8,a100:8", "precision": "fp32"}, "of several types"),
        ({"beside": "what_if_dgc_1gbe"}, "other jobs"),
    ):
        found = apart.exchange_cost(asked(method="localsgd", **fields), 1.0, 1.0)
        assert found is not None and why in found.why_not
        assert found.to_dict()["why_not"] == found.why_not
        assert exchange_summary(found) == f"interval 8: not known, as {found.why_not}."


# Commands


def test_the_json_of_explain_says_all_in_units(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(f"explain {MAIN} --method diloco", capsys)["exchange_interval"]
    assert (found["option"], found["iterations"]) == ("interval", 500)
    parts = found["exchange"]
    summed = sum(parts[f"{name}_s"] for name in ("copies", "kernels", "network", "optimizer"))
    assert parts["busy_s"] == pytest.approx(summed)
    assert parts["busy_s"] == pytest.approx(parts["exposed_s"] + parts["hidden_s"])
    assert found["exposed_s_per_iteration"] == pytest.approx(parts["exposed_s"] / 500)
    assert [one["added_share_limit"] for one in found["break_even"]] == [None, 0.1, 0.01]
    assert found["bandwidth"]["link"] == "between nodes"
    assert found["bandwidth"]["rate_bytes_per_s"] == pytest.approx(
        found["bandwidth"]["factor"] * found["bandwidth"]["network_rate_bytes_per_s"]
    )
    assert found["outer_state"]["host_bytes"] == found["outer_state"]["gpu_bytes"]


@pytest.mark.parametrize(
    ("command", "method"),
    [
        ("explain", "diloco --set outer_device=cpu"),
        ("explain", "zero_one_adam"),
        ("explain", "localsgd --gpu v100:1,a100:1 --gpus 2 --gpus-per-node 1"),
        ("tune", "diloco"),
        ("tune", "dasgd"),
    ],
)
def test_screens_have_80_columns(
    command: str, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left, out, err = run(f"{command} {MAIN} --method {method}", capsys)
    assert (left, err) == (0, "")
    assert [line for line in out.splitlines() if len(line) > 80 and "/" not in line] == []
    assert ("exchange every H iterations" in out) is (command == "explain")


def intervals(**fields: Any) -> TunedValue:
    """Return what tune finds for the interval of a method."""
    return tune(asked(**fields).scenario, ["interval"], SHIPPED).tuned[0]


@pytest.mark.parametrize("method", ["diloco", "localsgd", "streaming_diloco", "dasgd"])
def test_tune_takes_the_smallest_interval_that_adds_a_tenth(method: str) -> None:
    found = intervals(method=method)
    assert found.enough is not None and found.advised == found.enough.interval
    by_interval = {one.interval: one for one in found.intervals}
    assert by_interval[int(found.advised)].added <= 0.1
    shorter = [one for one in found.intervals if one.interval < found.advised]
    assert shorter and min(one.added for one in shorter) > 0.1
    assert found.advised < found.fastest
    times = [one.iteration_s for one in found.intervals]
    assert times == sorted(times, reverse=True) or method == "dasgd"
    lead = "By time alone" if found.by_time_alone else "Advised"
    assert tuned_verdict(found)[0].startswith(f"{lead}: {found.advised:,.0f}, ")


@pytest.mark.parametrize(("net", "known"), [("1gbe", False), ("10gbe", True)])
def test_only_an_interval_whose_learning_is_known_is_advised(net: str, known: bool) -> None:
    fields = {"model": "gpt3-350m", "gpus": 8, "gpus_per_node": 1, "gpu": "a100", "net": net}
    (found,) = tune(make_scenario(fields | {"method": "diloco"}), ["interval"], SHIPPED).tuned
    assert (not found.by_time_alone) == known
    said = tuned_verdict(found)
    assert said[0].startswith("Advised: " if known else "By time alone: ")
    assert known or any(one.startswith("The fastest with known epochs is 500, ") for one in said)


def test_an_interval_that_is_sooner_than_the_advised_one_is_named() -> None:
    """With as many epochs known at 187 and at 500, the longer is 6 % sooner."""
    fields = {"model": "gpt3-1.3b", "gpus": 32, "gpu": "a100", "node": "dgx-a100"}
    asked = fields | {"net": "25Gbit/s,30us", "method": "diloco"}
    (found,) = tune(make_scenario(asked), ["interval"], SHIPPED).tuned
    sooner = "By what is known, 500 is the soonest at S-SGD's quality: "
    assert any(one.startswith(sooner) for one in tuned_verdict(found))
    at_500 = next(one for one in found.intervals if one.interval == 500)
    known = [replace(one, epochs=at_500.epochs) for one in found.intervals[:-1]]
    slower = [replace(one, iteration_s=at_500.iteration_s) for one in known]
    alike = replace(found, intervals=slower)
    assert not any(one.startswith("By what is known") for one in tuned_verdict(alike))


def test_an_interval_whose_results_fell_short_is_not_advised() -> None:
    asked = {"model": "resnet50", "gpus": 64, "net": "10gbe", "method": "localsgd"}
    setup = resolve(make_scenario(asked), SHIPPED)
    (found,) = tune(setup.scenario, ["interval"], SHIPPED).tuned
    assert found.advised_fell_short and found.to_dict()["rule"]["fell_short"]
    said = tuned_verdict(found)
    assert said[0].startswith(f"By time alone: {found.advised:,.0f}, ")
    assert said[3].startswith("No interval is known to learn as well as S-SGD; from 10 on, the")
    assert "with period 10 from the first step" in said[4]
    known = replace(found.intervals[0], epochs=AS_MANY_EPOCHS)
    some = replace(found, intervals=[known, *found.intervals[1:]])
    assert tuned_verdict(some)[3].startswith("The fastest with known epochs is 1, ")


def test_an_interval_that_is_set_is_kept() -> None:
    found = intervals(method="diloco", options={"interval": 100})
    assert found.fixed and found.advised == found.asked == 100
    said = tuned_verdict(found)
    assert said[0].startswith("Kept as asked: 100") and "smallest interval at which" in said[0]
    assert found.enough is not None and f"{found.enough.interval:,}" in said[0]


def test_powers_of_two_and_what_is_in_use_are_listed() -> None:
    found = {one.interval: one for one in intervals(method="diloco").intervals}
    assert {2**power for power in range(20)} <= found.keys() and 10**6 in found
    assert found[500].used_by == ("default", "OpenDiLoCo") and found[100].used_by
    assert found[30].evidence and found[30].learning and "final loss" in found[30].learning[0]
    assert not found[64].evidence and not found[64].used_by
    # Torchtitan's 5 is for one fragment.
    setup = asked(method="streaming_diloco", options={"sync_delay": 1})
    assert 5 in setup.method.published_intervals and setup.method.interval_from(5) == 6


def test_evidence_is_read_by_the_interval_that_it_states() -> None:
    setup = asked(method="postlocalsgd")
    known = apart.known_of_intervals(setup, Catalog())
    assert sorted(known) == [2, 4, 8, 16]
    assert all(row.method == "postlocalsgd" for rows in known.values() for row in rows)


def test_evidence_is_read_by_its_options_first(monkeypatch: pytest.MonkeyPatch) -> None:
    one = SimpleNamespace(
        method="diloco", setting="H=30, tuned", options="worker=rank; interval=25"
    )
    others = [
        SimpleNamespace(method="diloco", setting="H=7 replicas", options=""),
        SimpleNamespace(method="diloco", setting="H=adaptive", options="lr_interval=3"),
        SimpleNamespace(method="localsgd", setting="H=9", options=""),
    ]
    monkeypatch.setattr(apart, "known_evidence", lambda _: [one, *others])
    known = apart.known_of_intervals(asked(method="diloco"), SHIPPED)
    assert known == {25: [one], 7: [others[0]]}


def test_the_json_of_tune_has_rule_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"tune {MAIN} --method diloco --over interval"
    (found,) = answer(text, capsys)["tuned"]
    assert found["rule"]["added_share_limit"] == 0.1
    assert found["rule"]["smallest_iterations"] == found["advised"]["value"]
    row = next(one for one in found["intervals"] if one["iterations"] == 30)
    assert row["evidence_rows"] == len([*row["learning"]]) or row["evidence_rows"] > 1
    (kept,) = answer(f"{text} --set interval=500", capsys)["tuned"]
    assert kept["rule"]["kept_as_asked"] and kept["advised"]["value"] == 500


def test_where_there_are_sites_the_bandwidth_is_that_between_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = "--model gpt2-xl --node dgx-h100 --site 8,8 --wan 1Gbit/s,5ms --method diloco"
    found = answer(f"explain {where} --fusion whole", capsys)["exchange_interval"]["bandwidth"]
    assert found["link"] == "between sites"
    assert found["network_rate_bytes_per_s"] == pytest.approx(125e6)
