"""The event engine: it agrees with the pass, and priorities do what they say, by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.simulate.array import simulate
from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.task import COMPUTE
from perfsim.simulate.timeline import Timeline
from support.strategies import graphs, rank_durations


def agree(one: Timeline, other: Timeline) -> None:
    """Both runs are the same to 1e-9 relative."""
    assert (one.periods, one.averaged, one.steady) == (other.periods, other.averaged, other.steady)
    assert float(one.period_s) == pytest.approx(float(other.period_s), rel=1e-9, abs=1e-15)
    for rows, others in ((one.starts, other.starts), (one.ends, other.ends)):
        for row, theirs in zip(rows[: one.periods], others[: one.periods], strict=True):
            for value, their in zip(row, theirs, strict=True):
                assert np.allclose(value, their, rtol=1e-9, atol=1e-15)


@given(graph=graphs())
def test_the_engines_agree_on_one_rank(graph: TaskGraph) -> None:
    pass_, events = simulate(graph), simulate_events(graph)
    agree(pass_, events)
    assert events.breakdown() == pytest.approx(pass_.breakdown(), rel=1e-9, abs=1e-12)
    assert events.communication() == pytest.approx(pass_.communication(), rel=1e-9, abs=1e-12)


@given(data=st.data())
def test_the_engines_agree_on_several_ranks(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(2, 5))
    graph = data.draw(graphs(tasks=6, ranks=ranks))
    durations = [np.array(row) for row in data.draw(rank_durations(graph, ranks))]
    limit = {"ranks": True, "max_periods": 12}
    pass_ = simulate(graph, durations, **limit)  # type: ignore[arg-type]
    events = simulate_events(graph, durations, **limit)  # type: ignore[arg-type]
    agree(pass_, events)
    assert events.breakdown() == pytest.approx(pass_.breakdown(), rel=1e-9, abs=1e-12)


def two_messages() -> TaskGraph:
    """The last layer's big message is ready first, the first layer's small one is urgent.

    Seconds from the start, in issue order and by priority::

        compute        b3 b3 b2 b2 b1 b1
        issue                r3 r3 r3 r3 r3 r2 r2 r1
        priority             r3 r3 r3 r3 r3 r1 r2 r2
                       0     2           6  7  8  9  10
    """
    graph = TaskGraph()
    for layer, send_s in ((3, 5.0), (2, 2.0), (1, 1.0)):
        backward = graph.add(f"b{layer}", COMPUTE, "backward", 2.0)
        graph.add(
            f"r{layer}",
            "communication",
            "communicate",
            send_s,
            [backward],
            collective=True,
            priority=-layer,
        )
    return graph


def starts_of(timeline: Timeline, *indexes: int) -> list[float]:
    """Return the starts in the first period, of the last rank."""
    return [float(np.max(timeline.starts[0][index])) for index in indexes]


def test_a_free_stream_takes_the_most_urgent_task() -> None:
    graph = two_messages()
    assert starts_of(simulate_events(graph, periods=1), 1, 3, 5) == [2.0, 7.0, 9.0]
    by_priority = simulate_events(graph, periods=1, order="priority")
    assert starts_of(by_priority, 1, 3, 5) == [2.0, 8.0, 7.0]


def test_all_ranks_run_collectives_in_the_order_that_the_first_one_takes() -> None:
    """Rank 0 takes r2 at 2 s; at 20 s rank 1 would rather take r1, yet r2 comes first."""
    graph = TaskGraph()
    graph.add("own", "communication", "other", 0.0)
    made = graph.add("b2", COMPUTE, "backward", 2.0)
    graph.add("r2", "communication", "communicate", 3.0, [made], collective=True)
    made = graph.add("b1", COMPUTE, "backward", 2.0)
    graph.add("r1", "communication", "communicate", 1.0, [made], collective=True, priority=1)
    graph.add("end", COMPUTE, "update", 0.0, [2, 4])
    durations = [np.array([0.0, 20.0]), 2.0, 3.0, 2.0, 1.0, 0.0]
    timeline = simulate_events(graph, durations, ranks=True, periods=1, order="priority")
    assert starts_of(timeline, 2, 4) == [20.0, 23.0]


def test_a_task_that_gets_ready_the_moment_the_stream_is_free_counts_as_ready() -> None:
    graph = TaskGraph()
    graph.add("first", "communication", "communicate", 1.0)
    graph.add("calm", "communication", "communicate", 1.0)
    made = graph.add("backward", COMPUTE, "backward", 1.0)
    graph.add("urgent", "communication", "communicate", 1.0, [made], priority=1)
    timeline = simulate_events(graph, periods=1, max_periods=1, order="priority")
    assert timeline.starts[0][3] == 1.0


def test_a_collective_that_one_rank_has_not_reached_lets_others_go_first() -> None:
    """r3 is more urgent, but ready on rank 1 at 9 s only: rank 0 does not hold the stream for it.

    Seconds from the start::

        communication, both ranks   r2 r2 .  .  .  .  .  r3
                                    2     4              9
    """
    graph = TaskGraph()
    graph.add("a", COMPUTE, "backward", 2.0)
    late = graph.add("b", "side", "compress", 1.0)
    graph.add("r3", "communication", "communicate", 1.0, [late], collective=True, priority=1)
    graph.add("r2", "communication", "communicate", 2.0, [0], collective=True)
    graph.add("end", COMPUTE, "update", 0.0, [2, 3])
    durations = [2.0, np.array([1.0, 9.0]), 1.0, 2.0, 0.0]
    timeline = simulate_events(
        graph, durations, ranks=True, periods=1, max_periods=1, order="priority"
    )
    assert starts_of(timeline, 3, 2) == [2.0, 9.0]
    in_order = simulate_events(graph, durations, ranks=True, periods=1)
    assert starts_of(in_order, 3, 2) == [10.0, 9.0]


@given(data=st.data())
def test_by_priority_streams_and_dependencies_are_kept(data: st.DataObject) -> None:
    graph = data.draw(graphs(tasks=6))
    durations = [np.array(row) for row in data.draw(rank_durations(graph, ranks=2))]
    timeline = simulate_events(
        graph, durations, ranks=True, periods=3, max_periods=3, order="priority"
    )
    rows = list(zip(timeline.starts, timeline.ends, strict=True))
    for rank in range(2):
        busy: dict[str, list[tuple[float, float]]] = {}
        for period, (starts, ends) in enumerate(rows):
            for task, start, end in zip(graph.tasks, starts, ends, strict=True):
                begin = float(np.asarray(start)[rank])
                busy.setdefault(task.stream, []).append((begin, float(np.asarray(end)[rank])))
                for other, back in task.after:
                    if back <= period:
                        assert begin >= np.asarray(timeline.ends[period - back][other])[rank]
                if task.collective:
                    assert np.ptp(start) == 0.0
        for intervals in busy.values():
            intervals.sort()
            for (_, end), (begin, _) in pairwise(intervals):
                assert begin >= end


@given(graph=graphs())
def test_without_a_choice_priority_is_issue_order(graph: TaskGraph) -> None:
    """Every task waits for the one issued before it on its stream."""
    chained = TaskGraph(iterations=graph.iterations, last=graph.last)
    for task, pairs in zip(graph.tasks, graph.waits(), strict=True):
        after = [*task.after, pairs[0]]
        chained.add(
            task.name, task.stream, task.kind, task.duration_s, after, priority=task.priority
        )
    limit = {"periods": 4, "max_periods": 4}
    issue = simulate_events(chained, **limit)  # type: ignore[arg-type]
    urgent = simulate_events(chained, order="priority", **limit)  # type: ignore[arg-type]
    assert urgent.starts[:4] == issue.starts[:4]


def test_what_the_event_engine_refuses() -> None:
    graph = two_messages()
    with pytest.raises(ValueError, match="order 'fifo' is not one of issue, priority"):
        simulate_events(graph, order="fifo")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="periods = 0"):
        simulate_events(graph, periods=0)
    with pytest.raises(ValueError, match=r"'b3'.*with ranks=True one a rank"):
        simulate_events(graph, [np.ones((2, 3)), *[1.0] * 5], ranks=True)
    with pytest.raises(ValueError, match="ranks=True"):
        simulate_events(graph, [np.ones(3), *[1.0] * 5])
