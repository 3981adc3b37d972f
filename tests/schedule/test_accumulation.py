"""Gradients added up over micro-batches: iterations by hand, laws of all methods, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.compute.device import load_device
from perfsim.compute.kernel_time import kernel_rates
from perfsim.errors import RequestError
from perfsim.methods import load_method, method_names
from perfsim.models import model_elements
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.sweep import Sweep, SweepRows
from perfsim.prediction import Prediction, predict
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from perfsim.simulate.array import simulate
from perfsim.simulate.events import simulate_events
from support.builders import hand_device, ring_cluster
from support.commands import run as command
from support.dense import MS, planned, stages_and_kernels, took_ms
from support.layered import milliseconds, model, plan
from support.what_ships import SHIPPED

PASSES_MS = 40.0
"""Forward 10 and backward 30 ms: of ``planned`` and of ``plan``'s two layers. Updates take 2 ms."""


def seconds_of(made: CostedGraph, kind: str) -> float:
    """Return what the tasks of a kind take together [s]."""
    return sum(float(task.duration_s) for task in made.graph.tasks if task.kind == kind)


# By hand: two gradients of 1 MB, ready 10 and 30 ms into backward; an all-reduce takes 7.5 ms, of
# which the second is exposed.


@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_exchanges_after_the_last_adds_the_passes_of_the_others(count: int) -> None:
    made = planned("ssgd", fused="none", micro_batches=count)
    assert took_ms(made) == pytest.approx((count - 1) * PASSES_MS + 40 + 7.5 + 2)
    assert made.calls == 2
    assert made.sent_bytes == pytest.approx(2 * 1.5e6)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_exchanges_after_each_waits_and_sends_each_time(count: int) -> None:
    made = planned("ssgd", fused="none", micro_batches=count, exchange_each=True)
    assert took_ms(made) == pytest.approx(count * (40 + 7.5) + 2)
    assert made.calls == 2 * count
    assert made.sent_bytes == pytest.approx(count * 2 * 1.5e6)


@pytest.mark.parametrize("each", [False, True])
def test_the_update_runs_once_and_the_passes_each_time(each: bool) -> None:
    made = planned("ssgd", micro_batches=4, exchange_each=each)
    assert made.graph.iterations == 1
    assert seconds_of(made, "update") == pytest.approx(2 * MS)
    assert seconds_of(made, "forward") == pytest.approx(4 * 10 * MS)
    assert seconds_of(made, "backward") == pytest.approx(4 * 30 * MS)


@pytest.mark.parametrize("method", ["ssgd", "fsdp", "zero", "dear", "powersgd"])
def test_one_micro_batch_is_the_iteration_without_any(method: str) -> None:
    plain, one = planned(method), planned(method, micro_batches=1)
    assert one.graph.tasks == plain.graph.tasks
    assert stages_and_kernels(one) == stages_and_kernels(plain)


@pytest.mark.parametrize("each", [False, True])
def test_the_host_adds_its_time_once(each: bool) -> None:
    # 3 ms beside passes and update, on one GPU, which exchanges nothing.
    of = model([250_000] * 2, [5.0, 5.0])
    of = replace(of, iteration_s=of.iteration_s + 3 * MS)
    made = plan(
        load_method("ssgd", {}),
        of,
        ring_cluster(1, "1GB/s,1ms"),
        micro_batches=3,
        exchange_each=each,
    )
    assert milliseconds(made) == pytest.approx(3 * PASSES_MS + 2 + 3)


def test_the_slowdown_of_overlap_is_that_of_the_backward_pass_that_exchanges() -> None:
    made = planned("ssgd", fused="none", micro_batches=3, overlap_slowdown=1.5)
    # Two passes of 40 ms, then 10, and 30 of which 7.5 ms are beside the first all-reduce: a third
    # of these is lost. Then the exposed all-reduce and the update.
    assert took_ms(made) == pytest.approx(2 * PASSES_MS + 10 + 32.5 + 7.5 + 2)


def test_the_first_micro_batch_waits_for_what_the_iteration_before_left() -> None:
    # DeAR by tests/methods/test_crossing_iterations.py: 30 + 7.5 + 6 + 6. Its gathers hold up the
    # first forward pass, so that no micro-batch hides more of them.
    made = plan(load_method("dear", {}), micro_batches=3)
    assert milliseconds(made) == pytest.approx(2 * PASSES_MS + 49.5)
    assert made.calls == 4


# One layer of 1 MB, forward 10 and backward 30 ms: kernels 0.036 ms, all-reduce 7.5 ms, kernels
# 0.0105 ms, a quarter of the update 0.5 ms, the gather 3.75 ms.


@pytest.mark.parametrize(
    ("options", "asked", "expected_ms"),
    [
        ({}, None, 2 * PASSES_MS + 40 + 7.5465 + 0.5 + 3.75),
        ({"stage": 2}, None, 3 * (40 + 7.5465) + 0.5 + 3.75),
        ({"stage": 2}, False, 2 * PASSES_MS + 40 + 7.5465 + 0.5 + 3.75),
        ({}, True, 3 * (40 + 7.5465) + 0.5 + 3.75),
    ],
)
def test_zero_sends_sharded_gradients_each_time_and_gathers_parameters_once(
    options: dict[str, object], asked: bool | None, expected_ms: float
) -> None:
    of = model([250_000], [10.0], 30.0)
    method = load_method("zero", options)
    made = plan(method, of, policy="zero", micro_batches=3, exchange_each=asked)
    assert milliseconds(made) == pytest.approx(expected_ms)
    sent = [task.name.split()[0] for task in made.graph.tasks if task.kind == "communicate"]
    assert sent.count("all_gather") == 1
    assert sent.count("all_reduce") == (3 if method.exchanges_each(asked) else 1)


def test_fsdp_gathers_and_scatters_in_each() -> None:
    # By tests/methods/test_sharded.py, version 1: forward 13.75, backward 33.75 with its gathers,
    # then the exposed sum of 12 us, 3.75 ms and 10.5 us; a quarter of the update.
    passes_ms = 47.5 + 0.012 + 3.75 + 0.0105
    method = load_method("fsdp", {"version": 1})
    one, three = plan(method), plan(method, micro_batches=3)
    assert milliseconds(three) == pytest.approx(3 * passes_ms + 0.5)
    assert three.sent_bytes == pytest.approx(3 * one.sent_bytes)
    assert three.calls == 3 * one.calls


def test_fsdp_keeps_gradients_whole_until_the_last() -> None:
    # The same passes without a sum: 47.5 twice, then once with it.
    method = load_method("fsdp", {"version": 1})
    made = plan(method, micro_batches=3, exchange_each=False)
    assert milliseconds(made) == pytest.approx(3 * 47.5 + 0.012 + 3.75 + 0.0105 + 0.5)
    sent = [task.name.split()[0] for task in made.graph.tasks if task.kind == "communicate"]
    assert (sent.count("all_gather"), sent.count("reduce_scatter")) == (12, 2)


# Laws


def period_s(method: str, sizes: list[int], ranks: int, **more: Any) -> float:
    """Return an iteration of a method on layers with one gradient each [s]."""
    of = load_method(method, {})
    plans = schedule(
        model(sizes, [3.0] * len(sizes), 4.0),
        of,
        fusion.load_policy(of.default_fusion()).fuse,
        hand_device(),
        ring_cluster(ranks, "1GB/s,50us"),
        algorithm="ring",
        **more,
    )
    iterations = sum(one.count * one.graph.iterations for one in plans)
    return float(sum(one.count * run(one).period_s for one in plans) / iterations)


SIZES = st.lists(st.integers(1, 10**6), min_size=1, max_size=5)


@given(
    method=st.sampled_from(method_names()),
    sizes=SIZES,
    ranks=st.integers(1, 12),
    count=st.integers(2, 9),
    overlap=st.booleans(),
)
def test_further_micro_batches_add_their_passes(
    method: str, sizes: list[int], ranks: int, count: int, overlap: bool
) -> None:
    try:
        one_s = period_s(method, sizes, ranks, overlap=overlap)
        found_s = period_s(
            method, sizes, ranks, overlap=overlap, micro_batches=count, exchange_each=False
        )
    except RequestError:
        reject()
    passes_s = (count - 1) * len(sizes) * 7 * MS
    if load_method(method, {}).delay() and overlap:
        # An exchange that an iteration does not wait for hides behind more of them.
        assert passes_s <= found_s <= (one_s + passes_s) * (1 + 1e-9)
    else:
        assert found_s == pytest.approx(one_s + passes_s, rel=1e-9)


@given(
    method=st.sampled_from(method_names()),
    sizes=SIZES,
    ranks=st.integers(1, 12),
    count=st.integers(2, 5),
)
def test_to_exchange_each_time_is_never_faster(
    method: str, sizes: list[int], ranks: int, count: int
) -> None:
    try:
        each_s = period_s(method, sizes, ranks, micro_batches=count, exchange_each=True)
        last_s = period_s(method, sizes, ranks, micro_batches=count, exchange_each=False)
    except RequestError:
        reject()
    assert each_s >= last_s * (1 - 1e-9)


@given(
    method=st.sampled_from(["ssgd", "wfbp", "fsdp", "zero", "topk", "powersgd", "dear"]),
    ready=st.lists(st.floats(0.0, 0.05), min_size=1, max_size=5),
    count=st.integers(1, 5),
    each=st.booleans(),
)
@settings(max_examples=40)
def test_both_engines_agree_and_the_parts_add_up(
    method: str, ready: list[float], count: int, each: bool
) -> None:
    asked = each and method != "dear"
    moments = tuple(sorted(moment / MS for moment in ready))
    made = planned(
        method, ready_ms=moments, backward_ms=50, micro_batches=count, exchange_each=asked
    )
    timeline = simulate(made.graph)
    assert simulate_events(made.graph).period_s == pytest.approx(timeline.period_s, rel=1e-9)
    assert sum(timeline.breakdown().values()) == pytest.approx(timeline.iteration_s, rel=1e-9)


# What cannot be asked


@pytest.mark.parametrize("method", ["dear", "p3", "bytescheduler", "dasgd"])
def test_a_method_that_computes_without_the_result_is_refused(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = f"predict --model resnet50 --gpus 8 --method {method} --accumulate 4 --exchange-each"
    left, out, err = command(asked, capsys)
    assert (left, out) == (2, "")
    assert err == (
        f"perfsim: --exchange-each: {method} uses a result after the update that it belongs to; it"
        " exchanges after the last micro-batch (leave --exchange-each out).\n"
    )


@pytest.mark.parametrize("count", [0, -1, 4097])
def test_micro_batches_are_counted_from_1_to_4096(count: int) -> None:
    with pytest.raises(RequestError, match="accumulate"):
        make_scenario({"model": "resnet50", "gpus": 8, "accumulate": count})


def test_help_says_what_methods_do_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = command("predict --help", capsys)
    assert (
        "[default: as the method's code does: each for fsdp, zero stages 2 and 3; else the last]"
        in (" ".join(out.split()))
    )


# Whole predictions


def ask(**fields: Any) -> Prediction:
    """Return the prediction of ResNet-50 on 16 GPUs, or as asked."""
    return predict(make_scenario({"model": "resnet50", "gpus": 16} | fields), SHIPPED)


@pytest.mark.parametrize(("method", "each"), [("ssgd", None), ("ssgd", True), ("fsdp", None)])
def test_samples_of_all_micro_batches_count(method: str, each: bool | None) -> None:
    found = ask(method=method, accumulate=4, exchange_each=each)
    assert found.samples_per_s == pytest.approx(4 * 32 * 16 / found.iteration_s)
    assert sum(found.breakdown_s.values()) == pytest.approx(found.iteration_s, rel=1e-9)
    assert found.scenario.batch == 32


@pytest.mark.parametrize("method", ["ssgd", "fsdp", "dgc", "localsgd"])
@pytest.mark.parametrize("count", [1, 3])
def test_one_gpu_scales_to_itself(method: str, count: int) -> None:
    found = ask(method=method, gpus=1, accumulate=count)
    assert found.scaling_efficiency == pytest.approx(1.0)
    assert found.communication["bytes_per_gpu"] == 0


def test_gpus_of_two_types_scale_to_their_mean_rate() -> None:
    types = {"gpu": "v100:4,p100:4", "gpus_per_node": 1}
    found = ask(gpus=8, net="1000Gbit/s,1us", accumulate=64, **types)
    # The slower type sets the pace: its passes, and little beside them.
    alone_s = ask(gpus=1, gpu="p100", accumulate=64).iteration_s
    assert found.iteration_s == pytest.approx(alone_s, rel=0.02)
    fast_s = ask(gpus=1, gpu="v100", accumulate=64).iteration_s
    assert found.scaling_efficiency == pytest.approx(
        2 / (1 + alone_s / fast_s) * alone_s / found.iteration_s, rel=1e-6
    )


@pytest.mark.parametrize("method", ["ssgd", "zero", "dear", "dgc", "powersgd", "localsgd"])
@pytest.mark.parametrize("net", ["1gbe", "ib100"])
def test_more_micro_batches_never_train_fewer_samples(method: str, net: str) -> None:
    rates = [ask(method=method, net=net, accumulate=count).samples_per_s for count in (1, 2, 8, 64)]
    assert rates == sorted(rates)


def test_a_result_that_is_used_iterations_later_is_waited_for_in_whole_iterations() -> None:
    fields = {"model": "resnet18", "net": "1gbe", "method": "streaming_diloco"}
    times = [ask(**fields, accumulate=count).iteration_s for count in (1, 2, 3, 4, 5, 6)]
    # A micro-batch adds its passes, and less of them where they hide what else would be waited for.
    added = [after - before for before, after in pairwise(times)]
    assert added[0] > 0 and all(after >= before * (1 - 1e-9) for before, after in pairwise(added))


@pytest.mark.parametrize("method", ["ssgd", "zero", "dgc"])
def test_a_sweep_over_micro_batches_is_what_predict_says(method: str) -> None:
    base = {"model": "resnet50", "net": "10gbe", "method": method}
    asked = Sweep(SweepGrid(base, axes_of({"accumulate": "1,2,8", "gpus": "1,8,64"})))
    for index, row in enumerate(SweepRows(asked).chunk(0, len(asked.grid))):
        want = predict(make_scenario(asked.grid.fields(index)), SHIPPED)
        sent = want.communication["bytes_per_gpu"]
        assert row == (want.iteration_s, want.samples_per_s, want.scaling_efficiency, sent, "")


@pytest.mark.parametrize("method", ["kaisa", "d_kfac", "dpsgd", "localsgd"])
def test_what_is_done_once_an_iteration_is_refused_each_micro_batch(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = f"--model resnet50 --gpu v100 --gpus 8 --accumulate 2 --exchange-each --method {method}"
    left, out, err = command(f"predict {flags}", capsys)
    assert (left, out) == (2, "")
    assert err.startswith(f"perfsim: --exchange-each: {method} (") and err.count("\n") == 1


def test_an_iteration_of_ones_own_is_of_one_micro_batch() -> None:
    one = ask(method="ssgd", gpus=1, single_gpu="200ms")
    four = ask(method="ssgd", gpus=1, single_gpu="200ms", accumulate=4)
    update_s = one.breakdown_s["update"]
    assert one.iteration_s == pytest.approx(0.2)
    # To add a gradient in fp32 to the sum reads both and writes it, three times of four.
    device = load_device("v100", SHIPPED)
    moves = kernel_rates(device, "fp32", "torch2").bytes_per_s
    added_s = 3 * 12 * model_elements("resnet50", None) / moves
    assert four.iteration_s == pytest.approx(4 * (0.2 - update_s) + update_s + added_s, rel=1e-3)
    told = "`single_gpu` is what one of the 4 micro-batches takes"
    assert any(told in note for note in four.notes)
    assert not any("micro-batches takes" in note for note in one.notes)
