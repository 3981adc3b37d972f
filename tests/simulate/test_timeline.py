"""Where the time goes, by hand and instant by instant; and when a run has settled."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.simulate.array import simulate
from perfsim.simulate.bounds import busiest_stream_s, steady_period_s
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.task import COMPUTE
from perfsim.simulate.timeline import BREAKDOWN_PARTS, Timeline, attribute_time, level_of
from support.strategies import graphs, rank_durations


def test_each_instant_is_attributed_once_by_hand() -> None:
    """One iteration, seconds from its start::

        compute        f b b . . . . . d u
        side             . . c c . . . . .
        communication    . . . r r r . . .
                       0 1   3   5 6   8 9 10

    The barrier makes all iterations equal.
    """
    graph = TaskGraph()
    graph.add("f", COMPUTE, "forward", 1.0)
    graph.add("b", COMPUTE, "backward", 2.0)
    graph.add("c", "side", "compress", 2.0, [1])
    graph.add("r", "communication", "communicate", 3.0, [(1, 0)])
    graph.add("wait", "host", "other", 2.0, [3])
    graph.add("d", COMPUTE, "decompress", 1.0, [4])
    graph.add("u", COMPUTE, "update", 1.0, [5])
    timeline = simulate(graph)
    assert timeline.breakdown() == {
        "forward": 1.0,
        "backward": 2.0,
        "compression": 3.0,  # 3-5 on the side stream, 8-9 on compute
        "second_order": 0.0,
        "communication_exposed": 1.0,  # 5-6
        "update": 1.0,
        "other": 2.0,  # 6-8: the host
    }
    assert timeline.communication() == {"busy_s": 3.0, "hidden_s": 0.0}


def test_tasks_of_other_periods_that_reach_into_the_window_count() -> None:
    """The next forward runs beside this period's last message; the window closes with it."""
    graph = TaskGraph()
    graph.add("step", COMPUTE, "backward", 3.0, [(1, 2)])
    graph.add("send", "communication", "communicate", 3.0, [0])
    timeline = simulate(graph)
    assert timeline.period_s == 3.0
    assert timeline.breakdown()["backward"] == 3.0
    assert timeline.communication() == {"busy_s": 3.0, "hidden_s": 3.0}


def test_communication_on_the_compute_stream_is_exposed() -> None:
    graph = TaskGraph()
    graph.add("backward", COMPUTE, "backward", 2.0)
    graph.add("reduce", COMPUTE, "communicate", 3.0)
    timeline = simulate(graph)
    assert timeline.breakdown()["communication_exposed"] == 3.0
    assert timeline.communication() == {"busy_s": 3.0, "hidden_s": 0.0}


def test_two_messages_at_once_are_busy_once() -> None:
    graph = TaskGraph()
    graph.add("intra", "nvlink", "communicate", 3.0)
    graph.add("inter", "network", "communicate", 4.0)
    graph.add("end", COMPUTE, "update", 1.0, [0, 1])
    timeline = simulate(graph, periods=1)
    assert timeline.period_s == 5.0
    # The next period's messages start at 3 and 4 and fill the window.
    assert timeline.communication() == {"busy_s": 5.0, "hidden_s": 1.0}


def test_with_ranks_the_straggler_is_shown() -> None:
    """All ranks end together; the others wait for rank 1, which never waits."""
    graph = TaskGraph()
    graph.add("backward", COMPUTE, "backward", np.array([1.0, 4.0, 2.0]))
    graph.add("reduce", "communication", "communicate", 2.0, [0], collective=True)
    graph.add("update", COMPUTE, "update", 1.0, [1])
    timeline = simulate(graph, ranks=True)
    parts = timeline.breakdown()
    assert (parts["backward"], parts["communication_exposed"], parts["other"]) == (4.0, 2.0, 0.0)
    waiting = timeline.select(rank=0).breakdown()
    assert (waiting["backward"], waiting["communication_exposed"], waiting["other"]) == (1, 2, 3)


def test_a_rank_that_runs_ahead_is_shown_to_the_end_of_the_window() -> None:
    """Rank 0's side stream runs 1 s tasks without a pause, rank 1's those of 4 s."""
    graph = TaskGraph()
    graph.add("factor", "side", "compress", np.array([1.0, 4.0]))
    graph.add("reduce", "communication", "communicate", 4.0, collective=True)
    timeline = simulate(graph, ranks=True)
    for rank in range(2):
        parts = timeline.select(rank=rank).breakdown()
        assert (parts["compression"], parts["communication_exposed"]) == (4.0, 0.0)


def test_an_array_asks_for_one_element() -> None:
    graph = TaskGraph()
    graph.add("backward", COMPUTE, "backward", np.array([[1.0, 2.0], [3.0, 4.0]]))
    timeline = simulate(graph)
    with pytest.raises(ValueError, match="select one element"):
        timeline.breakdown()
    with pytest.raises(ValueError, match="2 indexes"):
        timeline.select(1)
    assert timeline.select((1, 0)).breakdown()["backward"] == 3.0
    assert np.asarray(timeline.iteration_s).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def instant_by_instant(timeline: Timeline) -> dict[str, float]:
    """Attribute every stretch between two moments by looking at all tasks: slow and plain."""
    runs = list(timeline.intervals())
    moments = sorted({moment for _, start, end in runs for moment in (start, end)})
    spent = dict.fromkeys(BREAKDOWN_PARTS, 0.0)
    for low, high in pairwise(moments):
        active = [timeline.graph.tasks[task] for task, start, end in runs if start <= low < end]
        computing = {task.kind for task in active if task.stream == COMPUTE}
        elsewhere = {task.kind for task in active if task.stream != COMPUTE}
        if computing:
            (kind,) = computing
            part = {
                "compress": "compression",
                "decompress": "compression",
                "communicate": "communication_exposed",
            }.get(kind, kind)
        elif elsewhere & {"compress", "decompress"}:
            part = "compression"
        elif "second_order" in elsewhere:
            part = "second_order"
        elif "communicate" in elsewhere:
            part = "communication_exposed"
        else:
            part = "other"
        spent[part] += high - low
    window_s = float(timeline.period_s) * timeline.averaged
    spent["other"] = window_s - math.fsum(
        spent[part] for part in BREAKDOWN_PARTS if part != "other"
    )
    share = timeline.averaged * timeline.graph.iterations
    return {part: seconds / share for part, seconds in spent.items()}


@given(graph=graphs())
def test_the_parts_are_those_of_a_plain_attribution_and_sum_to_the_iteration(
    graph: TaskGraph,
) -> None:
    timeline = simulate(graph, max_periods=12)
    parts = timeline.breakdown()
    assert list(parts) == list(BREAKDOWN_PARTS)
    assert math.fsum(parts.values()) == pytest.approx(timeline.iteration_s, rel=1e-12, abs=1e-18)
    assert parts == pytest.approx(instant_by_instant(timeline), rel=1e-9, abs=1e-15)
    message = timeline.communication()
    assert 0.0 <= message["hidden_s"] <= message["busy_s"] <= timeline.iteration_s * (1 + 1e-12)
    assert parts["communication_exposed"] <= (message["busy_s"] - message["hidden_s"]) * (1 + 1e-12)


@given(data=st.data())
def test_with_ranks_the_parts_sum_to_the_iteration(data: st.DataObject) -> None:
    graph = data.draw(graphs(tasks=6))
    durations = [np.array(row) for row in data.draw(rank_durations(graph))]
    timeline = simulate(graph, durations, ranks=True, max_periods=8)
    parts = timeline.breakdown()
    assert math.fsum(parts.values()) == pytest.approx(
        float(timeline.iteration_s), rel=1e-12, abs=1e-18
    )


def test_beside_idle_compute_compression_comes_before_second_order_before_communication() -> None:
    runs = [
        (level_of(False, "communicate"), 0.0, 4.0),
        (level_of(False, "second_order"), 0.0, 3.0),
        (level_of(False, "decompress"), 0.0, 1.0),
        (level_of(False, "update"), 4.0, 5.0),
    ]
    parts = attribute_time(runs, 5.0).parts
    assert (parts["compression"], parts["second_order"]) == (1.0, 2.0)
    assert (parts["communication_exposed"], parts["update"], parts["other"]) == (1.0, 0.0, 1.0)


def test_the_rest_is_never_negative() -> None:
    """Three thirds sum to a hair more than the window."""
    third = 1.0 / 3.0
    runs = [(level_of(True, "forward"), place * third, (place + 1) * third) for place in range(3)]
    parts = attribute_time(runs, 1.0 - 1e-16).parts
    assert parts["other"] == 0.0
    assert set(parts) == set(BREAKDOWN_PARTS)


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
    assert (timeline.steady, timeline.period_s, timeline.periods) == (True, 0.0, 1)


@settings(max_examples=60)
@given(graph=graphs(tasks=12))
def test_a_steady_period_is_the_largest_cycle_ratio(graph: TaskGraph) -> None:
    timeline = simulate(graph)
    exact = steady_period_s(graph)
    assert exact >= busiest_stream_s(graph) * (1 - 1e-12)
    if timeline.steady:
        assert timeline.period_s == pytest.approx(exact, rel=1e-9, abs=1e-17)


@given(data=st.data())
def test_each_element_is_the_one_that_select_returns(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    durations = [np.array(row) for row in data.draw(rank_durations(graph))]
    durations[0] = durations[0][:1]  # one value for all
    timeline = simulate(graph, durations, max_periods=6)
    for place, one in enumerate(timeline.each()):
        assert one == timeline.select(place)
        assert one.breakdown() == timeline.select(place).breakdown()
