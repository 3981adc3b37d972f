"""The priority engine means what the event engine means in priority order."""

from __future__ import annotations

import pytest
from hypothesis import given

from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.priority import simulate_priority
from perfsim.simulate.task import COMPUTE
from support.strategies import graphs


@given(graph=graphs())
def test_it_agrees_with_the_event_engine(graph: TaskGraph) -> None:
    # Tasks without length are chosen among at one moment, where the engines may differ in order.
    lasting = [max(float(task.duration_s), 1e-3) for task in graph.tasks]
    one = simulate_priority(graph, lasting, max_periods=16)
    other = simulate_events(graph, lasting, order="priority", max_periods=16)
    assert one.steady == other.steady and one.averaged == other.averaged
    assert one.closes == pytest.approx(other.closes, rel=1e-9)
    for row, theirs in zip(one.starts[: one.periods], other.starts[: one.periods], strict=True):
        assert row == pytest.approx(theirs, rel=1e-9, abs=1e-12)


def test_a_task_without_length_lets_others_go_at_once() -> None:
    # a (0 s) frees b (2 s) on another stream; c (1 s) waits for b: 3 s a period.
    graph = TaskGraph()
    first = graph.add("a", COMPUTE, "forward", 0.0, after=[(2, 1)])
    second = graph.add("b", "communication", "communicate", 2.0, after=[first])
    graph.add("c", COMPUTE, "update", 1.0, after=[second])
    assert simulate_priority(graph).period_s == pytest.approx(3.0)


def test_arrays_are_refused() -> None:
    import numpy as np

    graph = TaskGraph()
    graph.add("a", COMPUTE, "forward", 1.0)
    with pytest.raises(ValueError, match="one value a task"):
        simulate_priority(graph, [np.array([1.0, 2.0])])


def test_at_least_one_period() -> None:
    graph = TaskGraph()
    graph.add("a", COMPUTE, "forward", 1.0)
    with pytest.raises(ValueError, match="at least 1"):
        simulate_priority(graph, periods=0)
