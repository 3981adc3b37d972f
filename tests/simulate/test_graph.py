"""The task graph: what it refuses, and what a task or a rank waits for, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from perfsim.simulate.array import simulate
from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import TaskGraph, checked_durations
from perfsim.simulate.sync import Blocks, Groups, Neighbours, SyncScope
from perfsim.simulate.task import COMPUTE
from support.strategies import graphs


def chain() -> TaskGraph:
    """Return forward > backward > all_reduce > update, the next forward after the update."""
    graph = TaskGraph()
    graph.add("forward", "compute", "forward", 1.0, [(3, 1)])
    graph.add("backward", "compute", "backward", 2.0, [0])
    graph.add("all_reduce", "communication", "communicate", 3.0, [1])
    graph.add("update", "compute", "update", 1.0, [2])
    return graph


def test_add_returns_the_index_and_a_bare_index_means_this_period() -> None:
    graph = chain()
    assert graph.add("log", "host", "other", 0.0, [3, (0, 2)]) == 4
    assert graph.tasks[4].after == ((3, 0), (0, 2))
    assert (graph.depth, graph.closing) == (2, 4)
    assert graph.streams == ("compute", "communication", "host")


def test_the_period_closes_with_the_task_named_last() -> None:
    graph = chain()
    graph.last = 1
    assert graph.closing == 1


def test_a_task_waits_for_its_stream_and_for_its_dependencies_once() -> None:
    # forward's wait for the update a period back is stream order already.
    assert chain().waits() == (
        ((3, 1),),
        ((0, 0),),
        ((2, 1), (1, 0)),
        ((1, 0), (2, 0)),
    )


def test_waits_follow_tasks_that_are_added_later() -> None:
    graph = chain()
    before = graph.waits()
    graph.add("clip", "compute", "other", 1.0)
    assert before[0] == ((3, 1),)
    assert graph.waits()[0] == ((4, 1),)


def test_ancestors_are_what_can_delay_the_end_of_a_period() -> None:
    graph = chain()
    graph.last = 3
    graph.add("log", "host", "other", 9.0, [3])
    assert graph.ancestors() == {0, 1, 2, 3}


@pytest.mark.parametrize("duration_s", [-1.0, math.nan, math.inf, np.array([1.0, -1.0])])
def test_add_refuses_a_duration_that_is_none(duration_s: float) -> None:
    with pytest.raises(ValueError, match=r"task 'copy'.*negative or not finite"):
        TaskGraph().add("copy", "copy", "other", duration_s)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ([0], "not added before it"),
        ([(0, 0)], "not added before it"),
        ([(0, -1)], "negative part"),
        ([(-1, 1)], "negative part"),
    ],
)
def test_add_refuses_a_dependency_that_cannot_be(after: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=f"'copy'.*{words}"):
        TaskGraph().add("copy", "copy", "other", 1.0, after)


def test_add_refuses_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match=r"'copy'.*'transfer' is not one of forward"):
        TaskGraph().add("copy", "copy", "transfer", 1.0)  # type: ignore[arg-type]


def test_check_refuses_what_only_the_whole_graph_shows() -> None:
    with pytest.raises(ValueError, match="no task"):
        TaskGraph().check()
    graph = chain()
    graph.add("late", "host", "other", 1.0, [(9, 1)])
    with pytest.raises(ValueError, match=r"'late'.*\(9, 1\) points to no task"):
        graph.check()
    graph = chain()
    graph.last = 4
    with pytest.raises(ValueError, match="last = 4"):
        graph.check()
    graph = chain()
    graph.iterations = 0
    with pytest.raises(ValueError, match="0 iterations"):
        graph.check()


def test_durations_are_one_a_task() -> None:
    graph = chain()
    assert checked_durations(graph, None) == [1.0, 2.0, 3.0, 1.0]
    with pytest.raises(ValueError, match="2 durations for 4 tasks"):
        checked_durations(graph, [1.0, 2.0])
    with pytest.raises(ValueError, match="'all_reduce'"):
        checked_durations(graph, [1.0, 2.0, -3.0, 1.0])


@given(graph=graphs())
def test_everything_that_a_task_waits_for_is_earlier(graph: TaskGraph) -> None:
    graph.check()
    for index, pairs in enumerate(graph.waits()):
        assert all(back > 0 or other < index for other, back in pairs)
        assert len(set(pairs)) == len(pairs)


def one_step(meeting: SyncScope | None, ready_s: list[float]) -> list[float]:
    """Return when each rank starts a collective, in both engines."""
    graph = TaskGraph()
    made = graph.add("backward", COMPUTE, "backward", np.array(ready_s))
    graph.add("send", "wire", "communicate", 1.0, [made], collective=True, meeting=meeting)
    found = []
    for timeline in (
        simulate(graph, ranks=True, periods=1),
        simulate_events(graph, ranks=True, periods=1, max_periods=1),
    ):
        found.append(np.broadcast_to(timeline.starts[0][1], len(ready_s)).tolist())
    assert found[0] == found[1]
    return found[0]


def test_who_waits_for_whom_by_hand() -> None:
    ready = [1.0, 5.0, 2.0, 3.0, 4.0, 0.5]
    assert one_step(None, ready) == [5.0] * 6
    assert one_step(Groups((2, 4)), ready) == [5.0, 5.0, 4.0, 4.0, 4.0, 4.0]
    assert one_step(Groups((3, 3), "across"), ready) == [3.0, 5.0, 2.0, 3.0, 5.0, 2.0]
    assert one_step(Blocks(3), ready) == [5.0, 5.0, 5.0, 4.0, 4.0, 4.0]
    assert one_step(Blocks(2, 3), ready) == [3.0, 5.0, 2.0, 3.0, 5.0, 2.0]
    assert one_step(Neighbours((1,)), ready) == [5.0, 5.0, 5.0, 4.0, 4.0, 4.0]
    assert one_step(Neighbours((2,)), ready) == [4.0, 5.0, 4.0, 5.0, 4.0, 5.0]
    # Nodes of 1, 2, 3 ranks exchange by their first ranks, ready at 1, 5 and 3 s.
    assert one_step(Neighbours((1,), placement=(1, 2, 3)), ready) == [5.0] * 6
    late = [1.0, 2.0, 9.0, 3.0, 3.0, 3.0]
    assert one_step(Neighbours((1,), placement=(1, 2, 3)), late) == [3.0, 3.0, 9.0, 3.0, 3.0, 3.0]


def test_a_straggler_delays_its_neighbours_one_an_iteration() -> None:
    graph = TaskGraph()
    step = graph.add("step", COMPUTE, "backward", np.array([3.0, 1.0, 1.0, 1.0, 1.0]), [(1, 1)])
    graph.add("send", "wire", "communicate", 0.0, [step], collective=True, meeting=Neighbours((1,)))
    timeline = simulate(graph, ranks=True, periods=3)
    ends = [np.asarray(row[1]).tolist() for row in timeline.ends[:3]]
    assert ends[0] == [3.0, 3.0, 1.0, 1.0, 3.0]
    assert ends[1] == [6.0, 6.0, 4.0, 4.0, 6.0]
    assert ends[2] == [9.0, 9.0, 7.0, 7.0, 9.0]
