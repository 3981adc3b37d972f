"""``Job.after``: kernels that computation runs where it waits for a job, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from perfsim import fusion
from perfsim.compute.kernel import elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, Method, MethodContext, PassPoint, Send
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import hand_device, profile, ring_cluster

MS = 1e-3
KERNEL_S = 4e6 * 248 / 1e12 + 1e-5
"""248 passes over a million values at 1 TB/s, and a launch of 10 us: 1.002 ms."""

COPY = Compute((elementwise(1_000_000, 248),), "decompress")


class _Copies(Method):
    """Copies what came where it is needed; ``where`` is a phase, "" the update."""

    summary: ClassVar[str] = "toy"
    citation: ClassVar[str] = "by hand"
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = ""

    where: str = ""
    late: int = 0

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        begins = PassPoint("forward" if self.where == "forward" else "backward")
        # Each bucket is needed 5 ms after the one before it, the last bucket first.
        holds = [
            PassPoint(self.where, 5 * MS * (1 - number)) if self.where else None
            for number in range(2)
        ]
        if self.where != "forward":
            begin = [PassPoint("backward", bucket.ready_s) for bucket in buckets]
        else:
            begin = [begins, begins]
        return [
            Job(
                str(number),
                (Send("all_reduce", bucket.size_bytes),),
                begin[number],
                holds[number],
                updates=0.5 if self.where == "next" else 0.0,
                after=(COPY,),
            )
            for number, bucket in enumerate(buckets)
        ]

    def delay(self) -> int:
        return self.late


def plan_of(method: Method, **more: bool) -> CostedGraph:
    """Return the plan of two gradients of 1 MB on 4 ranks: 7.5 ms each; 10, 30 and 2 ms."""
    [plan] = schedule(
        profile([(500, 500)] * 2, [10 * MS, 30 * MS], forward_s=10 * MS, optimizer_s=2 * MS),
        method,
        fusion.load_policy("none").fuse,
        hand_device(),
        ring_cluster(4, "1GB/s,1ms"),
        algorithm="ring",
        **more,
    )
    return plan


def names(plan: CostedGraph) -> list[str]:
    """Return the task names in issue order."""
    return [task.name for task in plan.graph.tasks]


def test_the_update_waits_and_copies_first() -> None:
    plan = plan_of(_Copies())
    assert names(plan)[-3:] == ["decompress 0.0", "decompress 0.1", "update 0"]
    timeline = run(plan)
    # The first copy goes while the last gradient is still sent; the second one is exposed.
    assert timeline.iteration_s == pytest.approx(49.5 * MS + KERNEL_S, rel=1e-12)
    assert timeline.breakdown()["compression"] == pytest.approx(2 * KERNEL_S, rel=1e-9)


def test_the_next_forward_pass_copies_layer_by_layer_before_it_updates() -> None:
    plan = plan_of(_Copies(where="next"))
    assert names(plan)[:6] == [
        "decompress 0.1",
        "update 0.1",
        "forward 0.0",
        "decompress 0.0",
        "update 0.0",
        "forward 0.1",
    ]
    # 7.5 exposed, copy and half of the update, 5, the same again, 5, backward.
    expected = 7.5 * MS + 2 * (KERNEL_S + 6 * MS) + 30 * MS
    assert run(plan).iteration_s == pytest.approx(expected, rel=1e-12)


def test_a_pass_copies_where_it_waits() -> None:
    plan = plan_of(_Copies(where="forward"))
    # Sent one after the other from the start of the pass. The second one is needed at its start
    # (15 ms), the first one after 5 ms more; then each is copied.
    expected = 15 * MS + KERNEL_S + 5 * MS + KERNEL_S + 5 * MS + 30 * MS + 2 * MS
    assert run(plan).iteration_s == pytest.approx(expected, rel=1e-12)


def test_a_delayed_update_copies_what_came_meanwhile() -> None:
    plan = plan_of(_Copies(late=1))
    assert run(plan).iteration_s == pytest.approx(42 * MS + 2 * KERNEL_S, rel=1e-12)


@pytest.mark.parametrize("where", ["", "next"])
def test_without_overlap_nothing_but_copies_hides(where: str) -> None:
    # Both are sent after the backward pass; the first one's copy goes beside the second send.
    expected = (42 + 15) * MS + KERNEL_S
    plan = plan_of(_Copies(where=where), overlap=False)
    assert run(plan).iteration_s == pytest.approx(expected, rel=1e-12)
