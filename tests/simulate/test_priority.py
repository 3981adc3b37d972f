"""The priority engine means what the event engine means in priority order."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import ServiceOrder, TaskGraph
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


@st.composite
def graphs_of_slices(draw: st.DrawFn) -> TaskGraph:
    """Return layers whose gradients go in slices; whole seconds, so that much ends at once."""
    seconds = st.integers(0, 4).map(float)
    graph = TaskGraph()
    layers, streams = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    forward = [graph.add(f"f{at}", COMPUTE, "forward", draw(seconds)) for at in range(layers)]
    for at in reversed(range(layers)):
        backward = graph.add(f"b{at}", COMPUTE, "backward", draw(seconds))
        stream, priority = f"wire {draw(st.integers(1, streams))}", draw(st.integers(0, 2))
        pulls, tail = [], backward
        for slice_ in range(draw(st.integers(1, 4))):
            length = draw(st.sampled_from([1.0, 1.0, 2.0, 3.0, 0.0]))
            after = [tail]
            tail = graph.add(
                f"push {at}.{slice_}", stream, "communicate", length, after, priority=priority
            )
            pulls.append(
                graph.add(
                    f"pull {at}.{slice_}", stream, "communicate", length, [tail], priority=priority
                )
            )
        if draw(st.booleans()):
            for pull in pulls:
                graph.link(forward[at], pull, 1)
        else:
            graph.add(f"u{at}", COMPUTE, "update", draw(seconds), after=pulls)
    own = [index for index, task in enumerate(graph.tasks) if task.stream == COMPUTE]
    for before, index in pairwise(own):
        graph.link(index, before, 0)
    graph.link(own[0], own[-1], 1)
    graph.last = own[-1]
    return graph


@given(graph=graphs_of_slices())
def test_bursts_run_as_their_tasks_would_one_by_one(graph: TaskGraph) -> None:
    together = simulate_priority(graph, max_periods=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServiceOrder, "bursts", graph.order().single_bursts)
        one_by_one = simulate_priority(graph, max_periods=12)
    for ends in ("starts", "ends"):
        rows, theirs = getattr(together, ends), getattr(one_by_one, ends)
        assert rows[: together.periods] == theirs[: one_by_one.periods]
    assert together.closes == one_by_one.closes and len(together.starts) == len(one_by_one.starts)


def test_slices_of_a_layer_are_a_burst_that_a_more_urgent_one_interrupts() -> None:
    # Slices of 2 s from 1 s on; at 2 s a more urgent message of 1 s is ready, and goes at 3 s.
    graph = TaskGraph()
    first = graph.add("late", COMPUTE, "backward", 1.0, after=[(6, 1)])
    one = graph.add("slice 1", "wire", "communicate", 2.0, after=[first])
    two = graph.add("slice 2", "wire", "communicate", 2.0, after=[first])
    three = graph.add("slice 3", "wire", "communicate", 2.0, after=[first])
    second = graph.add("soon", COMPUTE, "backward", 1.0, after=[first])
    urgent = graph.add("urgent", "wire", "communicate", 1.0, after=[second], priority=1)
    graph.add("update", COMPUTE, "update", 1.0, after=[one, two, three, urgent])
    assert graph.order().bursts.first == [0, 1, 4, 5, 6, 7]
    starts = simulate_priority(graph, periods=1).starts[0]
    assert [starts[index] for index in (one, urgent, two, three)] == [1.0, 3.0, 4.0, 6.0]
