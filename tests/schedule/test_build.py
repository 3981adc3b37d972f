"""Issue order: jobs that begin and hold in every place of an iteration, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from perfsim import fusion
from perfsim.compute.kernel import elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    LOCAL_ITERATION,
    Compute,
    Job,
    Method,
    MethodContext,
    PassPoint,
    Round,
    Send,
)
from perfsim.schedule.build import _RoundBuilder
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import hand_device, profile, ring_cluster

MS = 1e-3


class _Toy(Method):
    summary: ClassVar[str] = "toy"
    citation: ClassVar[str] = "by hand"
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = ""


class _NextForward(_Toy):
    """Sends in the backward pass; the next forward pass waits where the gradient's layer is."""

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        return [
            Job(
                str(number),
                (Send("all_reduce", bucket.size_bytes),),
                PassPoint("backward", bucket.ready_s),
                PassPoint("next", (len(buckets) - 1 - number) * 5 * MS),
                updates=1 / len(buckets),
            )
            for number, bucket in enumerate(buckets)
        ]


class _Late(_Toy):
    """Applies gradients one update late."""

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[Send]:  # type: ignore[override]
        return [Send("all_reduce", bucket.size_bytes)]

    def delay(self) -> int:
        return 1


class _Averages(_Toy):
    """Averages parameters after the update of every third iteration."""

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        size = sum(bucket.size_bytes for bucket in buckets)
        send = Send("all_reduce", size, earliest="update")
        return [Job("parameters", (send,), PassPoint("backward"), PassPoint("next"))]

    def rounds(self) -> list[Round]:
        return [Round((LOCAL_ITERATION,), 2), Round((0,))]


def elementwise_stage() -> Compute:
    """Return kernels over a million values on the stream of computation."""
    return Compute((elementwise(1_000_000, 2.0),), "compress")


class _Gathers(_Toy):
    """Gathers what the second half of the forward pass, and the backward pass, need."""

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        gather = Send("all_gather", 4e6)
        return [
            Job("a", (gather,), PassPoint("forward"), PassPoint("forward", 5 * MS)),
            Job("b", (gather,), PassPoint("forward", 5 * MS), PassPoint("backward")),
        ]


class _Chained(_Toy):
    """A second job waits for the first one, which is issued after the second may begin."""

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        send = Send("all_reduce", 1e6)
        return [
            Job("first", (send,), PassPoint("backward", 20 * MS)),
            Job("second", (send,), PassPoint("backward"), needs=("first",)),
        ]


def plans(method: Method, ranks: int = 4, **more: bool) -> list[CostedGraph]:
    """Return the plans for 2 gradients of 1 MB; forward 10, backward 30, update 2 ms; 1 ms a hop.

    A ring of 4 all-reduces 1 MB in 6 + 1.5 = 7.5 ms and gathers 4 MB in 3 + 3 = 6 ms.
    """
    return schedule(
        profile(
            [(500, 500)] * 2,
            [10 * MS, 30 * MS],
            forward_s=10 * MS,
            optimizer_s=2 * MS,
        ),
        method,
        fusion.load_policy("none").fuse,
        hand_device(),
        ring_cluster(ranks, "1GB/s,1ms"),
        algorithm="ring",
        **more,
    )


def names(plan: CostedGraph) -> list[str]:
    """Return the task names in issue order."""
    return [task.name for task in plan.graph.tasks]


def test_the_next_forward_waits_layer_by_layer() -> None:
    [plan] = plans(_NextForward())
    assert names(plan) == [
        "update 0.1",
        "forward 0.0",
        "update 0.0",
        "forward 0.1",
        "backward 0.0",
        "all_reduce 0.0",
        "backward 0.1",
        "all_reduce 0.1",
    ]
    # The last gradient's all-reduce is exposed (7.5), the first one's is hidden:
    # 7.5 + 1 + 5 + 1 + 5 + 30.
    assert run(plan).iteration_s == pytest.approx(49.5 * MS, rel=1e-12)


def test_without_overlap_nothing_is_hidden_behind_the_next_forward() -> None:
    [plan] = plans(_NextForward(), overlap=False)
    assert run(plan).iteration_s == pytest.approx((42 + 2 * 7.5) * MS, rel=1e-12)


def test_a_delayed_gradient_hides_behind_a_whole_iteration() -> None:
    [plan] = plans(_Late())
    assert run(plan).iteration_s == pytest.approx(42 * MS, rel=1e-12)
    update = names(plan).index("update 0")
    sends = [index for index, name in enumerate(names(plan)) if name.startswith("all_reduce")]
    assert {(send, 1) for send in sends} <= set(plan.graph.tasks[update].after)


def test_rounds_are_weighted() -> None:
    local, exchange = plans(_Averages())
    # 2 MB: 6 + 3 = 9 ms more in one iteration of three.
    assert [plan.count for plan in (local, exchange)] == [2, 1]
    assert run(local).iteration_s == pytest.approx(42 * MS, rel=1e-12)
    assert run(exchange).iteration_s == pytest.approx(51 * MS, rel=1e-12)
    assert local.calls == 0 and exchange.calls == 1


def test_a_pass_waits_for_what_it_needs() -> None:
    [plan] = plans(_Gathers())
    # The first gather (6) is waited for at 5; the second (6) begins then and holds backward up by
    # 1 after the second half of forward (5).
    assert run(plan).iteration_s == pytest.approx((6 + 6 + 30 + 2) * MS, rel=1e-12)


def test_a_job_waits_for_those_it_needs() -> None:
    [plan] = plans(_Chained())
    timeline = run(plan)
    first, second = (names(plan).index(f"all_reduce 0.{name}") for name in ("first", "second"))
    assert timeline.starts[0][second] >= timeline.ends[0][first]
    # The first one is not issued yet where the second begins, so that goes after backward.
    assert run(plan).iteration_s == pytest.approx((10 + 30 + 7.5 + 2) * MS, rel=1e-12)


@pytest.mark.parametrize("order", [list, lambda jobs: jobs[::-1]])
def test_jobs_in_a_chain_are_issued_one_after_another(order: Any, monkeypatch: Any) -> None:
    """Each is looked at a few times, however many wait, and wherever the one before it stands."""
    count, looked_at = 60, []

    class Chain(_Toy):
        def jobs(
            self, buckets: Sequence[Bucket], world: MethodContext, iteration: int
        ) -> list[Job]:
            stages = (elementwise_stage(), Send("all_reduce", 1e6), elementwise_stage())
            chain = [
                Job(str(n), stages, PassPoint("backward"), needs=(str(n - 1),) if n else ())
                for n in range(count)
            ]
            made: list[Job] = order(chain)
            return made

    issue = _RoundBuilder.issue
    monkeypatch.setattr(
        _RoundBuilder, "issue", lambda *given: looked_at.append(given[1].name) or issue(*given)
    )
    [plan] = plans(Chain(), overlap=False)
    sent = [name for name in names(plan) if name.startswith("all_reduce")]
    assert sent == [f"all_reduce 0.{n}" for n in range(count)]
    timeline = run(plan)
    places = [names(plan).index(name) for name in sent]
    assert all(
        timeline.starts[0][later] >= timeline.ends[0][former] for former, later in pairwise(places)
    )
    assert len(looked_at) < 6 * count


def test_one_gpu_has_no_jobs() -> None:
    [plan] = plans(_NextForward(), ranks=1)
    assert plan.calls == 0
    assert run(plan).iteration_s == pytest.approx(42 * MS, rel=1e-12)


def test_jobs_that_wait_for_each_other_are_refused() -> None:
    class Circle(_Toy):
        def jobs(
            self, buckets: Sequence[Bucket], world: MethodContext, iteration: int
        ) -> list[Job]:
            send = (Send("all_reduce", 1.0),)
            begins = PassPoint("backward")
            return [Job("a", send, begins, needs=("b",)), Job("b", send, begins, needs=("a",))]

    with pytest.raises(ValueError, match="wait for each other"):
        plans(Circle())


@pytest.mark.parametrize(
    ("group", "size_bytes", "milliseconds"),
    # Two nodes of two GPUs on one NIC each. In the node 1 us and 0.1 ns/B; between nodes 1 ms and
    # 1 ns/B: one rank a node 2 (1/2) n = n; both places at once share the NIC: 2 n.
    [
        ("node", 1e6, 0.102),
        ("leaders", 1e6, 3.0),
        ("across", 1e6, 4.0),
        (2, 1e6, 0.102),
        ((2, 2), 1e6, 4.0),
        ((2, 1), 1e6, 0.102),
    ],
)
def test_groups_communicate_on_their_own_links(
    group: str, size_bytes: float, milliseconds: float
) -> None:
    from perfsim.network.cluster import Cluster
    from perfsim.network.link import custom_link

    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    cluster = Cluster(4, (2, 2), wire, bus)
    cost = cluster.of(group, "all_reduce", size_bytes, "ring")
    assert cost.seconds == pytest.approx(milliseconds * MS, rel=1e-9)
    assert cost.sent_bytes == pytest.approx(size_bytes)
