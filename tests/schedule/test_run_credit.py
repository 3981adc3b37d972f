"""Credit: a stream that is handed messages ahead, which then cannot be overtaken, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Job, Method, MethodContext, PassPoint, Send
from perfsim.schedule.rounds import schedule
from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.priority import simulate_priority
from perfsim.simulate.task import COMPUTE, Credit
from support.builders import hand_device, profile, ring_cluster
from support.strategies import graphs


def four_messages(limit: float) -> TaskGraph:
    """Return three messages of 2 s and size 1 that are ready at 1, and an urgent one at 2."""
    graph = TaskGraph()
    credit = Credit(1.0, limit)
    update = 6
    early = graph.add("early layers", COMPUTE, "backward", 1.0, [(update, 1)])
    sends = [
        graph.add(f"late {number}", "send", "communicate", 2.0, [early], credit=credit)
        for number in range(3)
    ]
    first = graph.add("first layer", COMPUTE, "backward", 1.0, [early])
    urgent = graph.add("urgent", "send", "communicate", 2.0, [first], priority=1, credit=credit)
    graph.add("update", COMPUTE, "update", 0.0, [*sends, urgent])
    return graph


@pytest.mark.parametrize(
    ("limit", "start"),
    # At 2 s the first message is under way; with credit for two, or part of a second, another one
    # has been handed over; with credit for three all of them.
    [(0.0, 3.0), (1.0, 3.0), (1.5, 5.0), (2.0, 5.0), (3.0, 7.0), (99.0, 7.0)],
)
def test_what_was_handed_over_is_not_overtaken(limit: float, start: float) -> None:
    graph = four_messages(limit)
    for timeline in (
        simulate_priority(graph, periods=1),
        simulate_events(graph, periods=1, order="priority"),
    ):
        assert timeline.starts[0][5] == start
        assert timeline.closes == [9.0]


def test_credit_comes_back_when_a_message_ends() -> None:
    # Credit for two: at 3 s the first message ends, and the urgent one is handed over before the
    # third: 1, 3, then 5 for the urgent one and 7 for the third.
    starts = simulate_priority(four_messages(2.0), periods=1).starts[0]
    assert [starts[1], starts[2], starts[5], starts[3]] == [1.0, 3.0, 5.0, 7.0]


def test_all_ranks_hand_over_in_one_order() -> None:
    import numpy as np

    graph = four_messages(2.0)
    graph.tasks = [task._replace(collective=task.kind == "communicate") for task in graph.tasks]
    # The second rank's early layers take 1 s longer: messages are ready at 2, the urgent one at 3,
    # when two have been handed over.
    durations = [task.duration_s for task in graph.tasks]
    durations[0] = np.array([1.0, 2.0])
    timeline = simulate_events(graph, durations, ranks=True, periods=1, order="priority")
    assert [list(timeline.starts[0][index]) for index in (1, 2, 5, 3)] == [
        [2.0, 2.0],
        [4.0, 4.0],
        [6.0, 6.0],
        [8.0, 8.0],
    ]


@given(graph=graphs(), data=st.data())
def test_both_engines_agree(graph: TaskGraph, data: st.DataObject) -> None:
    graph.tasks = [
        task._replace(
            duration_s=max(float(task.duration_s), 1e-3),
            credit=None
            if task.stream == COMPUTE
            else Credit(data.draw(st.integers(1, 4)), data.draw(st.integers(0, 8))),
        )
        for task in graph.tasks
    ]
    one = simulate_priority(graph, max_periods=16)
    other = simulate_events(graph, order="priority", max_periods=16)
    assert one.closes == pytest.approx(other.closes, rel=1e-9)
    for row, theirs in zip(one.starts[: one.periods], other.starts[: one.periods], strict=True):
        assert row == pytest.approx(theirs, rel=1e-9, abs=1e-12)


class _Parts(Method):
    """Sends each bucket in two parts, the first layers' first."""

    summary: ClassVar[str] = "toy"
    citation: ClassVar[str] = "by hand"
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = ""
    order: ClassVar[Literal["issue", "priority"]] = "priority"

    credit_bytes: float = 0.0

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        return [
            Job(
                str(number),
                (
                    Send(
                        "all_reduce",
                        bucket.size_bytes / 2,
                        awaited=False,
                        priority=number,
                        credit_bytes=self.credit_bytes,
                    ),
                )
                * 2,
                PassPoint("backward", bucket.ready_s),
                PassPoint("next", 5e-3 * (1 - number)),
                updates=0.5,
            )
            for number, bucket in enumerate(buckets)
        ]


@pytest.mark.parametrize(
    ("credit_bytes", "exposed_ms"),
    # 8 MB in parts of 4 MB, 6 + 6 = 12 ms each on a ring of 4 at 1 GB/s and 1 ms a hop. The first
    # is sent from 25 of 30 ms on and is under way when the urgent ones are ready at 30. These go
    # next, 7 + 24 ms after that; with credit for two parts the second old one goes before them.
    [(0.0, 31.0), (4e6, 31.0), (5e6, 43.0), (8e6, 43.0)],
)
def test_a_method_states_its_credit_in_bytes(credit_bytes: float, exposed_ms: float) -> None:
    [plan] = schedule(
        profile([2_000_000] * 2, [0.025, 0.030], forward_s=0.010, optimizer_s=0.002),
        _Parts(credit_bytes=credit_bytes),
        fusion.load_policy("none").fuse,
        hand_device(),
        ring_cluster(4, "1GB/s,1ms"),
        algorithm="ring",
    )
    timeline = simulate_priority(plan.graph, periods=3)
    ends = {task.name: timeline.ends[1][n] for n, task in enumerate(plan.graph.tasks)}
    # The next forward pass begins with the update of the first layers, once their parts are there.
    urgent_s = max(end for name, end in ends.items() if name == "all_reduce 0.1")
    assert urgent_s - ends["backward 0.1"] == pytest.approx(exposed_ms * 1e-3)
    assert timeline.starts[2][0] == pytest.approx(urgent_s)
