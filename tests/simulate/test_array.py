"""The pass over floats and arrays: by hand, by law, by closed form, and many runs at once."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.simulate.array import simulate
from perfsim.simulate.bounds import wait_free_chain
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.settled import settled_periods
from perfsim.simulate.task import COMPUTE, Duration
from perfsim.simulate.timeline import Timeline
from support.strategies import graphs, rank_durations, seconds


def ends(timeline: Timeline) -> list[list[float]]:
    """Return the ends of the counted periods."""
    return [[float(end) for end in row] for row in timeline.ends[: timeline.periods]]


def two_buckets(barrier: bool) -> TaskGraph:
    """Two layers, last layer's bucket first.

    With a barrier, seconds from the start (f: forward, b: backward, r: reduce, u: update)::

        compute        f1 f2 b2 b2 b1 b1 .  .  .  u1 u2
        communication              r2 r2 r2 r1 r1
                       0  1  2  3  4  5  6  7  8  9  10

    Without one, f1 of the next iteration waits for u1 only, and f2 for u2 only.
    """
    graph = TaskGraph()
    update_1, update_2 = 6, 7
    graph.add("f1", COMPUTE, "forward", 1.0, [(update_1, 1)])
    graph.add("f2", COMPUTE, "forward", 1.0, [(update_2, 1)])
    graph.add("b2", COMPUTE, "backward", 2.0)
    graph.add("b1", COMPUTE, "backward", 2.0)
    graph.add("r2", "communication", "communicate", 3.0, [2], collective=True)
    graph.add("r1", "communication", "communicate", 2.0, [3], collective=True)
    where = COMPUTE if barrier else "update"
    both = [4, 5]
    graph.add("u1", where, "update", 1.0, both if barrier else [5])
    graph.add("u2", where, "update", 1.0, both if barrier else [4])
    return graph


def test_two_buckets_with_a_barrier_by_hand() -> None:
    timeline = simulate(two_buckets(barrier=True))
    assert timeline.starts[0] == [0.0, 1.0, 2.0, 4.0, 4.0, 7.0, 9.0, 10.0]
    assert timeline.ends[0] == [1.0, 2.0, 4.0, 6.0, 7.0, 9.0, 10.0, 11.0]
    assert timeline.iteration_s == 11.0
    assert (timeline.steady, timeline.averaged) == (True, 1)


def test_without_the_barrier_the_next_forward_overlaps_the_updates() -> None:
    timeline = simulate(two_buckets(barrier=False))
    # The ring f1 > f2 > b2 > r2 > r1 > u1 > f1 takes 1 + 1 + 2 + 3 + 2 + 1.
    assert timeline.iteration_s == 10.0
    assert timeline.starts[1][0] == timeline.ends[0][6] == 10.0
    assert timeline.ends[0][7] == 11.0


def test_with_a_barrier_no_forward_starts_before_the_update_ends() -> None:
    timeline = simulate(two_buckets(barrier=True), periods=5)
    for period in range(1, 5):
        assert timeline.starts[period][0] >= timeline.ends[period - 1][7]


def test_a_dependency_before_the_first_period_is_void() -> None:
    graph = TaskGraph()
    graph.add("step", COMPUTE, "forward", 1.0, [(1, 2)])
    graph.add("send", "communication", "communicate", 5.0, [0])
    timeline = simulate(graph, periods=4)
    assert [row[0] for row in timeline.starts[:4]] == [0.0, 1.0, 6.0, 11.0]


def test_a_period_of_several_iterations_is_shared_among_them() -> None:
    """Averaging every 2 iterations: compute 1 + 1, then 3 of communication."""
    graph = TaskGraph(iterations=2)
    graph.add("step 1", COMPUTE, "backward", 1.0, [(2, 1)])
    graph.add("step 2", COMPUTE, "backward", 1.0)
    graph.add("average", "communication", "communicate", 3.0, [1])
    timeline = simulate(graph)
    assert (timeline.period_s, timeline.iteration_s) == (5.0, 2.5)


def test_a_collective_starts_when_its_last_rank_has_arrived() -> None:
    graph = TaskGraph()
    graph.add("backward", COMPUTE, "backward", np.array([1.0, 4.0, 2.0]))
    graph.add("reduce", "communication", "communicate", 2.0, [0], collective=True)
    graph.add("update", COMPUTE, "update", 1.0, [1])
    timeline = simulate(graph, ranks=True)
    assert np.ravel(timeline.starts[0][1]).tolist() == [4.0]
    assert timeline.iteration_s == 7.0
    assert timeline.shape == ()


def test_without_a_collective_ranks_do_not_wait_for_each_other() -> None:
    graph = TaskGraph()
    graph.add("backward", COMPUTE, "backward", np.array([1.0, 4.0, 2.0]))
    timeline = simulate(graph, ranks=True)
    assert np.asarray(timeline.ends[2][0]).tolist() == [3.0, 12.0, 6.0]
    assert timeline.iteration_s == 4.0


def test_scenarios_draws_and_ranks_are_evaluated_at_once() -> None:
    graph = two_buckets(barrier=True)
    wire = np.array([0.5, 1.0, 2.0]).reshape(3, 1, 1)
    speed = np.array([1.0, 1.5]).reshape(1, 2, 1)
    straggler = np.array([1.0, 1.0, 1.25, 1.0])
    values = [
        task.duration_s * (wire if task.kind == "communicate" else speed * straggler)
        for task in graph.tasks
    ]
    together = simulate(graph, values, ranks=True)
    assert together.shape == (3, 2)
    for scenario in range(3):
        for draw in range(2):
            alone = [
                task.duration_s
                * float(wire[scenario, 0, 0] if task.kind == "communicate" else speed[0, draw, 0])
                * (1.0 if task.kind == "communicate" else 1.25)
                for task in graph.tasks
            ]
            # All tasks on rank 2 are slower than on the others, so it alone decides.
            expected = simulate(graph, alone).iteration_s
            assert np.asarray(together.iteration_s)[scenario, draw] == pytest.approx(expected)


def test_a_forced_number_of_periods_is_kept() -> None:
    timeline = simulate(two_buckets(barrier=True), periods=1)
    assert (timeline.periods, timeline.averaged, timeline.period_s) == (1, 1, 11.0)
    assert simulate(two_buckets(barrier=True), periods=7).periods == 7
    with pytest.raises(ValueError, match="periods = 0"):
        simulate(two_buckets(barrier=True), periods=0)


def test_floats_need_no_numpy() -> None:
    code = (
        "import sys\n"
        "from perfsim.simulate.graph import TaskGraph\n"
        "from perfsim.simulate.array import simulate\n"
        "graph = TaskGraph()\n"
        "graph.add('step', 'compute', 'forward', 1)\n"
        "simulate(graph).breakdown()\n"
        "absent = {'numpy', 'simpy', 'perfsim.compute.profile', 'perfsim.network.cluster'}\n"
        "assert not absent & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@given(graph=graphs())
def test_streams_run_one_task_at_a_time_and_dependencies_are_kept(graph: TaskGraph) -> None:
    timeline = simulate(graph, periods=4)
    free: dict[str, float] = {}
    for period, (row_starts, row_ends) in enumerate(
        zip(timeline.starts, timeline.ends, strict=True)
    ):
        for task, start, end in zip(graph.tasks, row_starts, row_ends, strict=True):
            assert end == start + task.duration_s
            reasons = [free.get(task.stream, 0.0)] + [
                float(timeline.ends[period - back][other])
                for other, back in task.after
                if back <= period
            ]
            assert start == max(reasons)  # no earlier and no later than it must
            free[task.stream] = float(end)


@given(graph=graphs(), data=st.data())
def test_a_longer_task_never_ends_a_period_sooner(graph: TaskGraph, data: st.DataObject) -> None:
    durations = [float(task.duration_s) for task in graph.tasks]
    longer = list(durations)
    longer[data.draw(st.integers(0, len(durations) - 1))] += data.draw(seconds)
    before, after = simulate(graph, durations, periods=6), simulate(graph, longer, periods=6)
    for old, new in zip(ends(before), ends(after), strict=True):
        assert all(one >= other for one, other in zip(new, old, strict=True))


@given(graph=graphs(), factor=st.sampled_from([0.25, 2.0, 8.0]))
def test_time_has_no_scale(graph: TaskGraph, factor: float) -> None:
    durations = [float(task.duration_s) * factor for task in graph.tasks]
    once, scaled = simulate(graph, periods=5), simulate(graph, durations, periods=5)
    for row, other in zip(ends(once), ends(scaled), strict=True):
        assert [end * factor for end in row] == other


@given(graph=graphs())
def test_one_element_arrays_give_what_floats_give(graph: TaskGraph) -> None:
    floats = simulate(graph)
    arrays = simulate(graph, [np.array([task.duration_s]) for task in graph.tasks])
    assert arrays.shape == (1,)
    assert (arrays.periods, arrays.averaged, arrays.steady) == (
        floats.periods,
        floats.averaged,
        floats.steady,
    )
    assert arrays.select(0).starts == floats.starts
    assert arrays.select(0).ends == floats.ends
    assert arrays.select(0).breakdown() == floats.breakdown()


@given(graph=graphs(ranks=3))
def test_equal_ranks_are_one_rank(graph: TaskGraph) -> None:
    """Whoever they wait for."""
    equal: list[Duration] = [np.full(3, task.duration_s) for task in graph.tasks]
    one, many = simulate(graph, periods=5), simulate(graph, equal, ranks=True, periods=5)
    assert many.period_s == one.period_s
    assert many.select().ends == one.ends
    assert simulate(graph, equal, ranks=True).period_s == pytest.approx(
        simulate(graph).period_s, rel=1e-9, abs=1e-12
    )


@given(data=st.data())
def test_each_scenario_of_an_array_is_its_own_run(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    table = np.array(data.draw(rank_durations(graph, ranks=4)))
    together = simulate(graph, list(table), periods=5)
    for scenario in range(4):
        alone = simulate(graph, table[:, scenario].tolist(), periods=5)
        assert ends(together.select(scenario)) == ends(alone)


@given(pairs=st.lists(st.tuples(seconds, seconds), min_size=1, max_size=12))
def test_wait_free_backpropagation_is_the_recurrence(pairs: list[tuple[float, float]]) -> None:
    graph = TaskGraph()
    ready, sizes, now = [], [], 0.0
    for index, (compute_s, send_s) in enumerate(pairs):
        made = graph.add(f"b{index}", COMPUTE, "backward", compute_s)
        graph.add(f"r{index}", "communication", "communicate", send_s, [made])
        now += compute_s
        ready.append(now)
        sizes.append(send_s)
    timeline = simulate(graph, periods=1)
    assert timeline.ends[0][-1] == pytest.approx(wait_free_chain(ready, sizes), rel=1e-12)


# The published check: five DDP buckets of ResNet-50 over a flat ring.
BUCKETS_MB = (26.06, 17.85, 25.20, 24.45, 8.67)
READY_S = (0.014, 0.028, 0.042, 0.056, 0.070)
RESNET50_BYTES = 25_557_032 * 4


def ring_all_reduce_s(ranks: int, size_bytes: float) -> float:
    """2(P-1) alpha + 2 (P-1)/P n beta with 5 us and 1.25 GiB/s (ASTRA-sim's GB is 2^30)."""
    return 2 * (ranks - 1) * 5e-6 + 2 * (ranks - 1) / ranks * size_bytes / (1.25 * 2**30)


@pytest.mark.parametrize(("ranks", "astra_sim_s"), [(64, 0.16744), (1024, 0.21766)])
def test_five_buckets_agree_with_astra_sim(ranks: int, astra_sim_s: float) -> None:
    """What ASTRA-sim (Won et al., ISPASS 2023) gives with its analytical network."""
    scale = RESNET50_BYTES / (sum(BUCKETS_MB) * 1e6)
    sizes = [1e6 * size * scale for size in BUCKETS_MB]
    assert sum(sizes) == pytest.approx(RESNET50_BYTES, rel=1e-14)
    durations = [ring_all_reduce_s(ranks, size) for size in sizes]
    graph = TaskGraph()
    for index, (ready, before) in enumerate(zip(READY_S, (0.0, *READY_S), strict=False)):
        made = graph.add(f"backward {index}", COMPUTE, "backward", ready - before)
        graph.add(f"all_reduce {index}", "communication", "communicate", durations[index], [made])
    found_s = simulate(graph, periods=1).ends[0][-1]
    assert found_s == pytest.approx(wait_free_chain(READY_S, durations), rel=1e-9)
    assert found_s == pytest.approx(astra_sim_s, rel=0.005)


@settings(max_examples=40)
@given(graphs(), st.data())
def test_each_scenario_settles_as_it_does_alone(graph: TaskGraph, data: st.DataObject) -> None:
    times = st.one_of(st.just(0.0), st.floats(1e-3, 10.0))
    count = len(graph.tasks)
    rows = [data.draw(st.lists(times, min_size=count, max_size=count)) for _ in range(4)]
    many = settled_periods(graph, [np.array(column) for column in zip(*rows, strict=True)])
    assert many.tolist() == [simulate(graph, row).period_s for row in rows]


def test_floats_stand_for_all_scenarios() -> None:
    graph = TaskGraph()
    backward = graph.add("backward", "compute", "backward", 3.0)
    graph.add("all_reduce", "communication", "communicate", 1.0, after=[backward])
    assert settled_periods(graph, [3.0, np.array([1.0, 5.0])]).tolist() == [3.0, 5.0]
