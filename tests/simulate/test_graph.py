"""The task graph: what it refuses, and what a task or a rank waits for, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.simulate.array import simulate
from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import TaskGraph, checked_durations
from perfsim.simulate.priority import simulate_priority
from perfsim.simulate.sync import Blocks, Groups, Neighbours, SyncScope
from perfsim.simulate.task import COMPUTE, Task
from perfsim.simulate.timeline import Timeline
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


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kind": "sleep"}, "kind 'sleep' is not one of"),
        ({"duration_s": -1.0}, "negative or not finite"),
        ({"duration_s": math.inf}, "negative or not finite"),
        ({"after": ((1, 0),)}, "not added before it"),
        ({"after": ((0, -1),)}, "negative part"),
        ({"after": ((-1, 1),)}, "negative part"),
        ({"after": ((2, 1),)}, "points to no task"),
    ],
)
def test_tasks_that_were_put_in_as_they_are_are_checked_with_the_graph(
    wrong: dict[str, Any], words: str
) -> None:
    graph = TaskGraph()
    graph.add("backward", "compute", "backward", 1.0)
    graph.tasks.append(Task("copy", "copy", "communicate", 1.0, ((0, 0), (1, 1))))
    graph.check()
    graph.tasks[1] = graph.tasks[1]._replace(**wrong)
    with pytest.raises(ValueError, match=rf"task 'copy'.*{words}"):
        graph.check()


def test_a_graph_without_a_fault_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first task waits for all messages of the period before; there may be thousands."""
    graph, count = TaskGraph(), 100
    graph.add("forward", "compute", "forward", 1.0, [(one, 1) for one in range(1, count)])
    for _ in range(count):
        graph.add("send", "communication", "communicate", 1.0, [0])
    looked: list[object] = []
    monkeypatch.setattr("perfsim.simulate.graph._check_task", lambda *told: looked.append(told))
    graph.check()
    assert not looked


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


def one_step(scope: SyncScope | None, ready_s: list[float]) -> list[float]:
    """Return when each rank starts a collective, in both engines."""
    graph = TaskGraph()
    made = graph.add("backward", COMPUTE, "backward", np.array(ready_s))
    graph.add("send", "wire", "communicate", 1.0, [made], collective=True, scope=scope)
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
    graph.add("send", "wire", "communicate", 0.0, [step], collective=True, scope=Neighbours((1,)))
    timeline = simulate(graph, ranks=True, periods=3)
    ends = [np.asarray(row[1]).tolist() for row in timeline.ends[:3]]
    assert ends[0] == [3.0, 3.0, 1.0, 1.0, 3.0]
    assert ends[1] == [6.0, 6.0, 4.0, 4.0, 6.0]
    assert ends[2] == [9.0, 9.0, 7.0, 7.0, 9.0]


def overlapped(closing: str, streams: int = 1) -> TaskGraph:
    """Two layers whose second messages the next forward pass waits for, as DeAR and P3 have it.

    ``closing`` closes the period; the first gathers may be sent on another stream.
    """
    graph = TaskGraph()
    graph.add("forward 1", COMPUTE, "forward", 1.0, [(6, 1)])
    graph.add("forward 2", COMPUTE, "forward", 1.0, [(7, 1)])
    graph.add("backward 2", COMPUTE, "backward", 2.0, [1])
    graph.add("backward 1", COMPUTE, "backward", 2.0, [2])
    graph.add("scatter 2", "wire", "communicate", 1.5, [2])
    graph.add("scatter 1", "wire", "communicate", 1.5, [3])
    graph.add("gather 1", "wire" if streams == 1 else "second", "communicate", 2.5, [5])
    graph.add("gather 2", "wire", "communicate", 2.5, [4])
    graph.link(1, 0, 0)
    graph.last = [task.name for task in graph.tasks].index(closing)
    return graph


def test_a_period_that_begins_when_all_has_ended_is_settled_at_once() -> None:
    # The update ends last, and the forward pass waits for it.
    graph = TaskGraph()
    graph.add("forward", COMPUTE, "forward", 1.0, [(3, 1)])
    graph.add("backward", COMPUTE, "backward", 2.0, [0])
    graph.add("all_reduce", "wire", "communicate", 5.0, [1])
    graph.add("update", COMPUTE, "update", 0.5, [2])
    for in_order in (True, False):
        assert graph.settled_after(in_order=in_order) == 1
    # Beside an all-reduce that only the next one waits for, nothing is known.
    graph.add("statistics", "second", "communicate", 4.0, [1])
    graph.last = 3
    assert graph.settled_after(in_order=True) == graph.settled_after(in_order=False) == 0


@pytest.mark.parametrize(
    ("closing", "settled"), [("backward 1", 2), ("gather 2", 2), ("forward 2", 2), ("forward 1", 3)]
)
def test_a_period_settles_behind_a_task_that_all_waits_for(closing: str, settled: int) -> None:
    # All messages are awaited by the second forward step, and all that follows waits for it. Only
    # the first step, before it, runs without waiting in the first period: it settles one later.
    for graph in (overlapped(closing), overlapped(closing, streams=2)):
        assert graph.settled_after(in_order=True) == settled
        assert graph.settled_after(in_order=False) == settled


def test_streams_that_keep_their_order_settle_what_dependencies_alone_do_not() -> None:
    # Nothing waits for the second message but its stream: the first one of the next period.
    graph = TaskGraph()
    graph.add("forward", COMPUTE, "forward", 1.0, [(2, 1)])
    graph.add("first", "wire", "communicate", 1.0, [0])
    graph.add("update", COMPUTE, "update", 1.0, [1])
    graph.add("second", "wire", "communicate", 1.0, [0])
    graph.last = 2
    assert graph.settled_after(in_order=True) == 2
    assert graph.settled_after(in_order=False) == 0


@st.composite
def settling(draw: st.DrawFn) -> TaskGraph:
    """Draw a graph like those of methods: a chain of passes, messages, and who waits for them."""
    lengths = st.integers(0, 4).map(float)
    graph, layers = TaskGraph(), draw(st.integers(1, 3))
    passes = [graph.add(f"f{at}", COMPUTE, "forward", draw(lengths)) for at in range(layers)]
    for at in range(layers):
        made = graph.add(f"b{at}", COMPUTE, "backward", draw(lengths), [passes[-1]])
        passes.append(made)
        for _ in range(draw(st.integers(0, 2))):
            stream, priority = draw(st.sampled_from(["wire", "copy"])), draw(st.integers(0, 2))
            made = graph.add(
                "sent", stream, "communicate", draw(lengths), [made], priority=priority
            )
        waiting = draw(st.sampled_from(passes[:layers]))
        graph.link(waiting, made, 1)
    if draw(st.booleans()):
        others = [index for index in range(len(graph.tasks)) if index not in passes]
        passes.append(graph.add("u", COMPUTE, "update", draw(lengths), others))
    for before, index in pairwise(passes):
        if draw(st.booleans()) or before >= layers:
            graph.link(index, before, 0)
    graph.link(passes[0], passes[-1], 1)
    graph.last = draw(st.sampled_from(passes))
    return graph


@pytest.mark.parametrize("engine", ["array", "events", "priority"])
@given(graph=st.one_of(settling(), settling(), graphs()))
def test_what_is_known_to_have_settled_goes_on_alike(engine: str, graph: TaskGraph) -> None:
    engines: dict[str, Callable[..., Timeline]] = {
        "array": simulate,
        "events": partial(simulate_events, order="priority"),
        "priority": simulate_priority,
    }
    if not graph.settled_after(in_order=engine == "array"):
        return
    settled, longer = engines[engine](graph), engines[engine](graph, periods=9)
    assert settled.steady and settled.averaged == 1
    ends = pairwise([0.0, *longer.closes])
    lengths = [end - begin for begin, end in ends][len(settled.closes) - 1 :]
    assert lengths == pytest.approx([settled.period_s] * len(lengths), rel=1e-9, abs=1e-9)
    for what in (Timeline.breakdown, Timeline.communication):
        window = replace(longer, averaged=1)
        assert what(settled) == pytest.approx(what(window), rel=1e-9, abs=1e-9)
