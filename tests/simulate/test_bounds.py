"""The closed forms: by hand, and as bounds on both engines."""

from __future__ import annotations

import pytest
from hypothesis import given

from perfsim.simulate.array import simulate
from perfsim.simulate.bounds import (
    busiest_stream_s,
    makespan_bounds_s,
    steady_period_s,
    wait_free_chain,
)
from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.task import COMPUTE
from support.strategies import graphs


def test_chain_by_hand() -> None:
    # 2 starts at once, 3 waits for it, 1 finds the stream idle.
    assert wait_free_chain([1.0, 2.0, 9.0], [2.0, 3.0, 1.0]) == 10.0
    assert wait_free_chain([], []) == 0.0
    with pytest.raises(ValueError, match="shorter"):
        wait_free_chain([1.0, 2.0], [1.0])


def ring(delay: int) -> TaskGraph:
    """Compute 3, send 4, and compute again ``delay`` periods later; a host task of 9 aside."""
    graph = TaskGraph(last=1)
    graph.add("compute", COMPUTE, "backward", 3.0, [(1, delay)])
    graph.add("send", "communication", "communicate", 4.0, [0])
    graph.add("log", "host", "other", 9.0, [1])
    return graph


@pytest.mark.parametrize(("delay", "period_s"), [(1, 7.0), (2, 4.0), (3, 4.0)])
def test_the_ring_or_the_busiest_stream_sets_the_period(delay: int, period_s: float) -> None:
    assert steady_period_s(ring(delay)) == period_s
    assert busiest_stream_s(ring(delay)) == 4.0  # nothing waits for the host


def test_the_best_of_several_rings_sets_the_period() -> None:
    """Rings of 4 + 2 over one period and of 4 + 4 + 3 over two, on streams of at most 4."""
    graph = TaskGraph()
    graph.add("a1", "a1", "other", 4.0, [(1, 1)])
    graph.add("a2", "a2", "other", 2.0, [0])
    graph.add("b1", "b1", "other", 4.0, [(4, 2)])
    graph.add("b2", "b2", "other", 4.0, [2])
    graph.add("b3", "b3", "other", 3.0, [3])
    graph.add("end", "end", "other", 0.0, [1, 4])
    assert steady_period_s(graph) == 6.0
    assert simulate(graph).period_s == 6.0


def test_makespan_bounds_by_hand() -> None:
    # Chain of 2 periods: 3 + 4 + 3 + 4 and the last log; the host stream: 2 x 9.
    assert makespan_bounds_s(ring(1), periods=2) == (23.0, 32.0)


def test_given_durations_replace_the_tasks_own() -> None:
    assert steady_period_s(ring(1), [1.0, 2.0, 0.0]) == 3.0
    assert busiest_stream_s(ring(1), [1.0, 2.0, 0.0]) == 2.0
    assert makespan_bounds_s(ring(1), 1, [1.0, 2.0, 0.0]) == (3.0, 3.0)


@given(graph=graphs())
def test_both_engines_stay_within_the_bounds(graph: TaskGraph) -> None:
    low, high = makespan_bounds_s(graph, periods=4)
    for timeline in (simulate(graph, periods=4), simulate_events(graph, periods=4)):
        makespan = max(float(end) for row in timeline.ends[:4] for end in row)
        assert low <= makespan * (1 + 1e-12)
        assert makespan <= high * (1 + 1e-12)


@given(graph=graphs())
def test_no_priority_beats_the_lower_bound(graph: TaskGraph) -> None:
    low, _ = makespan_bounds_s(graph, periods=3)
    timeline = simulate_events(graph, periods=3, max_periods=6, order="priority")
    assert low <= max(float(end) for row in timeline.ends[:3] for end in row) * (1 + 1e-12)
