"""When a run has settled: by hand where a naive rule is fooled, and against exact cycle ratios."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import graphs

from perfsim.simulate.array import simulate
from perfsim.simulate.bounds import busiest_stream_s, steady_period_s
from perfsim.simulate.graph import COMPUTE, TaskGraph


def delayed(compute_s: float, send_s: float, delay: int) -> TaskGraph:
    """Compute may run ``delay`` periods ahead of what it sends."""
    graph = TaskGraph(last=0)
    graph.add("compute", COMPUTE, "backward", compute_s, [(1, delay)])
    graph.add("send", "communication", "communicate", send_s, [0])
    return graph


def test_a_stream_that_falls_behind_is_not_taken_for_steady() -> None:
    """Compute runs free at 1 s a period until the slower sends are two periods late."""
    timeline = simulate(delayed(1.0, 1.25, delay=3))
    assert timeline.starts[5][0] == 5.0
    assert timeline.steady
    assert timeline.period_s == pytest.approx(1.25)


def test_a_stream_that_nothing_waits_for_may_fall_behind() -> None:
    graph = TaskGraph(last=0)
    graph.add("step", COMPUTE, "backward", 1.0)
    graph.add("log", "host", "other", 3.0, [0])
    timeline = simulate(graph)
    assert timeline.steady
    assert timeline.period_s == 1.0


def test_a_limit_cycle_of_two_periods_is_averaged() -> None:
    """Two periods in flight over a ring of 1 + 2 + 2: periods of 2 and 3 in turn."""
    graph = TaskGraph()
    graph.add("step", COMPUTE, "backward", 1.0, [(2, 2)])
    graph.add("half", "copy", "other", 2.0, [0])
    graph.add("rest", "host", "other", 2.0, [1])
    timeline = simulate(graph)
    assert (timeline.steady, timeline.averaged) == (True, 2)
    assert timeline.period_s == 2.5
    earlier, late, last = timeline.closes[-3:]
    assert {late - earlier, last - late} == {2.0, 3.0}


def test_a_cycle_that_is_too_long_is_said_not_to_be_steady() -> None:
    """Five periods in flight over a ring of six streams of 1 s each: 6 / 5 in the long run."""
    graph = TaskGraph()
    before = graph.add("0", "stream 0", "other", 1.0, [(5, 5)])
    for place in range(1, 6):
        before = graph.add(str(place), f"stream {place}", "other", 1.0, [before])
    timeline = simulate(graph)
    assert not timeline.steady
    assert (timeline.periods, timeline.averaged) == (64, 32)
    assert timeline.period_s == pytest.approx(6 / 5, rel=0.02)


def test_all_elements_must_have_settled() -> None:
    slow = [1.0, np.array([0.5, 1.25])]
    timeline = simulate(delayed(1.0, 1.0, delay=3), slow)
    assert np.asarray(timeline.period_s).tolist() == pytest.approx([1.0, 1.25])


def test_a_graph_without_time_is_steady() -> None:
    graph = TaskGraph()
    graph.add("nothing", COMPUTE, "other", 0.0)
    timeline = simulate(graph)
    assert (timeline.steady, timeline.period_s, timeline.periods) == (True, 0.0, 3)


@settings(max_examples=300)
@given(graph=graphs(tasks=12))
def test_a_steady_period_is_the_largest_cycle_ratio(graph: TaskGraph) -> None:
    timeline = simulate(graph)
    exact = steady_period_s(graph)
    assert exact >= busiest_stream_s(graph) * (1 - 1e-12)
    if timeline.steady:
        assert timeline.period_s == pytest.approx(exact, rel=1e-9, abs=1e-17)
