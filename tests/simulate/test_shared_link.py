"""Links that streams share: by hand, and what holds whatever is sent."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy import Environment

from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.run import run
from perfsim.simulate.array import simulate
from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.shared_link import SharedLink
from perfsim.simulate.task import COMPUTE, Duration, Shared
from support.strategies import graphs

seconds = st.floats(1e-6, 1e3)
capacities = st.floats(1.0, 8.0)


def ends(flows: list[tuple[float, float]], capacity: float = 1.0) -> list[float]:
    """Return when flows of (start, seconds alone) end on one link."""
    env = Environment()
    link = SharedLink(env, capacity)
    found = [0.0] * len(flows)

    def flow(number: int, start_s: float, alone_s: float):  # type: ignore[no-untyped-def]
        yield env.timeout(start_s)
        yield from link.carry(alone_s)
        found[number] = env.now

    for number, (start_s, alone_s) in enumerate(flows):
        env.process(flow(number, start_s, alone_s))
    env.run()
    return found


def sends(
    durations: list[float],
    latency_s: float = 0.0,
    link: Shared | None = Shared("wire"),  # noqa: B008
    streams: int = 2,
) -> TaskGraph:
    """Return tasks 1, 2, ...: messages that may start at 0, on streams in turn; then an update."""
    graph = TaskGraph()
    begin = graph.add("forward", COMPUTE, "forward", 0.0)
    for number, duration_s in enumerate(durations):
        graph.add(
            f"m{number}",
            f"communication {number % streams}",
            "communicate",
            duration_s,
            [begin],
            collective=True,
            shares=link,
            latency_s=latency_s,
        )
    graph.add("update", COMPUTE, "update", 0.0, range(len(durations) + 1))
    return graph


@pytest.mark.parametrize(
    ("flows", "capacity", "expected"),
    [
        # Two equal flows on a link of one: each at half speed.
        ([(0, 2), (0, 2)], 1.0, [4, 4]),
        # At 4/3 together each has 2/3: 2 / (2/3).
        ([(0, 2), (0, 2)], 4 / 3, [3, 3]),
        # 1 s alone and 1 s left; both have 1 left of 1 + 1 at 3: both at half speed until 3.
        ([(0, 2), (1, 1)], 1.0, [3, 3]),
        # The second has 1 left when the first ends at 3, and then the link to itself.
        ([(0, 2), (1, 2)], 1.0, [3, 4]),
        # From 1 on at 2/3: the first ends 1.5 s later; 1 s left of the second, alone again.
        ([(0, 2), (1, 2)], 4 / 3, [2.5, 3.5]),
        # Three on a link of two: 2/3 each for 3 s, then 2 s and 1 s left of the others.
        ([(0, 2), (0, 3), (0, 4)], 2.0, [3, 4, 5]),
        # One after the other: they never meet.
        ([(0, 2), (2, 2)], 1.0, [2, 4]),
        # Nothing to carry takes no time and slows nobody down.
        ([(0, 2), (1, 0)], 1.0, [2, 1]),
    ],
)
def test_flows_by_hand(
    flows: list[tuple[float, float]], capacity: float, expected: list[float]
) -> None:
    assert ends(flows, capacity) == pytest.approx(expected, rel=1e-12)


@given(seconds, st.floats(0, 1e3), capacities)
def test_one_flow_alone_takes_its_own_time(alone_s: float, start_s: float, capacity: float) -> None:
    assert ends([(start_s, alone_s)], capacity) == pytest.approx([start_s + alone_s], rel=1e-9)


@given(st.lists(seconds, min_size=1, max_size=6), capacities)
def test_flows_that_start_together_end_between_the_bounds(
    alone_s: list[float], capacity: float
) -> None:
    """No sooner than the link can carry them or than the longest, no later than in turn."""
    found = ends([(0.0, one) for one in alone_s], capacity)
    last = max(found)
    assert last >= max(sum(alone_s) / capacity, *alone_s) * (1 - 1e-9)
    assert last <= sum(alone_s) * (1 + 1e-9)
    # Who has less to send is never later.
    assert [end for _, end in sorted(zip(alone_s, found, strict=True))] == sorted(found)


@given(st.lists(st.tuples(st.floats(0, 10), seconds), min_size=1, max_size=5))
def test_a_link_of_one_is_never_idle_while_flows_wait(flows: list[tuple[float, float]]) -> None:
    """With capacity 1 the last flow ends when one after the other would have ended."""
    in_turn_s = 0.0
    for start_s, alone_s in sorted(flows):
        in_turn_s = max(in_turn_s, start_s) + alone_s
    assert max(ends(flows)) == pytest.approx(in_turn_s, rel=1e-9)


def test_latency_overlaps_and_bytes_share() -> None:
    """With a = 1 ms and s b = 2 ms two take a + 1.5 s b on a link of 4/3, a + 2 s b on one of 1."""
    for capacity, expected_s in ((4 / 3, 4e-3), (1.0, 5e-3), (2.0, 3e-3)):
        graph = sends([3e-3, 3e-3], 1e-3, Shared("wire", capacity))
        assert simulate_events(graph, periods=1).ends[0][1:3] == pytest.approx([expected_s] * 2)


def test_streams_in_turn_by_hand() -> None:
    """Alone 1 + 2, 1 + 2 and 1 + 1 ms on a link of 1; the third follows the first on its stream.

    First and second have their bytes at half speed from 1 to 5; the third's latency is 5 to 6.
    """
    timeline = simulate_events(sends([3.0, 3.0, 2.0], 1.0), periods=1)
    assert timeline.ends[0][1:4] == pytest.approx([5.0, 5.0, 7.0])
    assert timeline.starts[0][3] == pytest.approx(5.0)


def test_links_of_other_names_do_not_meet() -> None:
    graph = sends([2.0], link=Shared("one"))
    graph.add("other", "side", "communicate", 2.0, collective=True, shares=Shared("two"))
    graph.add("free", "third", "communicate", 2.0, collective=True)
    assert not graph.contended
    timeline = simulate_events(graph, periods=1)
    assert [timeline.ends[0][task] for task in (1, 3, 4)] == [2.0, 2.0, 2.0]


def test_shorter_durations_than_the_latency_are_all_latency() -> None:
    """What-ifs replace durations: a message of 0.5 has no bytes left to share."""
    graph = sends([3.0, 3.0], 1.0)
    timeline = simulate_events(graph, [0.0, 0.5, 3.0, 0.0], periods=1)
    assert timeline.ends[0][1:3] == pytest.approx([0.5, 3.0])


def test_ranks_keep_in_step() -> None:
    """The second message waits for rank 1 until 1 s: 1 s alone, then both at half speed."""
    graph, wire = TaskGraph(), Shared("wire")
    begin = graph.add("forward", COMPUTE, "forward", 0.0)
    graph.add("m0", "a", "communicate", 2.0, [begin], collective=True, shares=wire)
    made = graph.add("backward", COMPUTE, "backward", 1.0)
    graph.add("m1", "b", "communicate", 2.0, [made], collective=True, shares=wire)
    graph.add("update", COMPUTE, "update", 0.0, [1, 3])
    durations: list[Duration] = [0.0, 2.0, np.array([0.5, 1.0]), 2.0, 0.0]
    timeline = simulate_events(graph, durations, ranks=True, periods=1)
    assert np.asarray(timeline.ends[0][1]).tolist() == [3.0, 3.0]
    assert np.asarray(timeline.ends[0][3]).tolist() == [4.0, 4.0]


@given(st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=6), st.integers(1, 3))
def test_messages_of_a_graph_end_between_the_bounds(durations: list[float], streams: int) -> None:
    graph = sends(durations, link=Shared("wire", 4 / 3), streams=streams)
    timeline = simulate_events(graph, periods=1)
    last = max(float(end) for end in timeline.ends[0])
    assert sum(durations) / (4 / 3) * (1 - 1e-9) <= last <= sum(durations) * (1 + 1e-9)
    for before, after in pairwise(range(1, len(durations) + 1, streams)):
        assert timeline.starts[0][after] >= timeline.ends[0][before]


@given(graph=graphs())
def test_one_stream_on_a_link_is_as_without_it(graph: TaskGraph) -> None:
    alone = TaskGraph(iterations=graph.iterations, last=graph.last)
    for task in graph.tasks:
        alone.add(
            task.name,
            task.stream,
            task.kind,
            task.duration_s,
            task.after,
            shares=Shared(task.stream),
        )
    assert not alone.contended
    limit = {"periods": 3, "max_periods": 3}
    by_pass, by_events = simulate(alone, **limit), simulate_events(alone, **limit)  # type: ignore[arg-type]
    assert float(by_events.period_s) == pytest.approx(float(by_pass.period_s), rel=1e-9, abs=1e-15)


def test_the_pass_refuses_what_it_cannot_tell_and_a_plan_takes_the_events() -> None:
    shared, apart = sends([2.0, 2.0]), sends([2.0, 2.0], link=None)
    with pytest.raises(ValueError, match="several streams share a link"):
        simulate(shared)
    assert run(CostedGraph(shared)).iteration_s == pytest.approx(4.0)
    assert run(CostedGraph(apart)).iteration_s == pytest.approx(2.0)
    assert run(CostedGraph(shared), [0.0, 1.0, 1.0, 0.0]).iteration_s == pytest.approx(2.0)


@pytest.mark.parametrize("capacity", [0.5, float("nan")])
def test_a_link_carries_at_least_one(capacity: float) -> None:
    with pytest.raises(ValueError, match="'m0': link 'wire' has a capacity of"):
        sends([1.0], link=Shared("wire", capacity)).check()


def test_what_a_shared_link_refuses() -> None:
    graph = sends([1.0], link=Shared("wire", 2.0))
    graph.add("other", "side", "communicate", 1.0, shares=Shared("wire", 3.0))
    with pytest.raises(ValueError, match=r"'other'.*capacity of 3; .*before: 2"):
        graph.check()
    graph = sends([1.0])
    graph.add("own", "side", "compress", 1.0, shares=Shared("wire"))
    with pytest.raises(ValueError, match=r"'own'.*only collectives"):
        simulate_events(graph, [0.0, np.ones(2), 0.0, 1.0], ranks=True)
