"""Whom a rank waits for, by hand, in both engines."""

from __future__ import annotations

import numpy as np

from perfsim.simulate.array import simulate
from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import COMPUTE, Blocks, Groups, Neighbours, SyncScope, TaskGraph


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
