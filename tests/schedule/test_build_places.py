"""Places of an iteration: who begins and waits where, after the update too, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from perfsim.simulate.array import simulate
from perfsim.simulate.bounds import steady_period_s
from perfsim.simulate.events import simulate_events
from support.builders import hand_device, profile, ring_cluster

MS = 1e-3

SEND = Send("all_reduce", 1e6)
"""7.5 ms on a ring of 4 at 1 GB/s and 1 ms a hop."""

KERNEL = elementwise(1_000_000, 498)
KERNEL_S = 4e6 * 498 / 1e12 + 1e-5
"""498 passes over a million values at 1 TB/s, and a launch of 10 us: 2.002 ms."""


class _Toy(Method):
    summary: ClassVar[str] = "toy"
    citation: ClassVar[str] = "by hand"
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = ""


def plans(method: Method, host_s: float = 0.0, **more: Any) -> list[CostedGraph]:
    """Return the plans of 4 ranks; forward 10, backward 30, update 2 ms."""
    model = profile([(500, 500)], [30 * MS], forward_s=10 * MS, optimizer_s=2 * MS)
    object.__setattr__(model, "iteration_s", model.iteration_s + host_s)
    return schedule(
        model,
        method,
        fusion.load_policy("none").fuse,
        hand_device(),
        ring_cluster(4, "1GB/s,1ms"),
        algorithm="ring",
        **more,
    )


class _Returns(_Toy):
    """What is averaged after the update is sent on as the next forward pass begins."""

    iterations: int = 1

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        late = Send("all_reduce", 1e6, earliest="update", stream="late")
        return [
            Job("average", (late,), PassPoint("backward"), PassPoint("next")),
            Job(
                "on",
                (Send("all_reduce", 10e6),),
                PassPoint("forward"),
                PassPoint("forward", 10 * MS),
            ),
        ]

    def rounds(self) -> list[Round]:
        return [Round(tuple(range(self.iterations)))]


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("host_s", [0.0, 1 * MS])
def test_a_job_begins_after_what_the_place_waits_for(iterations: int, host_s: float) -> None:
    [plan] = plans(_Returns(iterations=iterations), host_s)
    # The average takes 7.5 from the update on, beside what the host does; then the send of 21, in
    # which forward's 10 hide; backward 30, update 2. The same in every iteration of a round.
    expected = (7.5 + 21 + 30 + 2) * MS
    assert run(plan).iteration_s == pytest.approx(expected, rel=1e-12)
    names = [task.name for task in plan.graph.tasks]
    timeline = run(plan)
    for place in range(1, iterations):
        on, average = (
            names.index(f"all_reduce {place}.on"),
            names.index(f"all_reduce {place - 1}.average"),
        )
        assert timeline.starts[0][on] >= timeline.ends[0][average]


class _Merges(_Toy):
    """Averages from one forward pass on; merged after the update of a later iteration (DaSGD)."""

    interval: int = 1
    later: int = 0
    megabytes: float = 1.0

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        merge = Compute((KERNEL,), "decompress")
        send = Send("all_reduce", self.megabytes * 1e6)
        place = PassPoint("update", later=self.later)
        return [Job("average", (send,), PassPoint("forward"), place, after=(merge,))]

    def rounds(self) -> list[Round]:
        return [Round((0,) + (LOCAL_ITERATION,) * (self.interval - 1))]


def test_a_place_after_the_update_hides_what_the_update_does_not_wait_for() -> None:
    # 28 MB take 6 + 42 = 48 ms: 10 + 30 + 2 ms hide them but for 6 ms; then the merging.
    [plan] = plans(_Merges(megabytes=28.0))
    assert run(plan).iteration_s == pytest.approx(48 * MS + KERNEL_S, rel=1e-12)
    assert run(plan).breakdown()["communication_exposed"] == pytest.approx(6 * MS)


@pytest.mark.parametrize(("later", "exposed_ms"), [(0, 48.0), (1, 6.0), (2, 0.0)])
def test_a_later_place_hides_as_many_iterations_more(later: int, exposed_ms: float) -> None:
    # 56 MB take 6 + 84 = 90 ms, an iteration without them 42 ms.
    [plan] = plans(_Merges(interval=3, later=later, megabytes=56.0))
    expected = 3 * 42 * MS + exposed_ms * MS + KERNEL_S
    assert float(run(plan).period_s) == pytest.approx(expected, rel=1e-12)


def test_a_place_beyond_the_round_is_one_of_the_next_round() -> None:
    # Begun in each iteration and merged after the next one's update: the 48 ms have 42 + 2 ms of
    # the merging and 42 ms more to hide in, but the stream of sends is busy all the time.
    [plan] = plans(_Merges(later=1, megabytes=28.0))
    assert run(plan).iteration_s == pytest.approx(48 * MS, rel=1e-12)
    assert (plan.graph.depth, run(plan).steady) == (1, True)


def test_without_overlap_a_place_after_the_update_is_that_of_its_own_iteration() -> None:
    # Sent after the backward pass, beside the update of 2 ms.
    [plan] = plans(_Merges(interval=2, later=1), overlap=False)
    expected = 2 * 42 * MS + (7.5 - 2) * MS + KERNEL_S
    assert float(run(plan).period_s) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "words",
    [
        {"stages": ()},
        {"begins": PassPoint("update")},
        {"updates": 0.5},
        {"holds": PassPoint("next", later=1)},
        {"after": (Compute((), "compress", earliest="update"),)},
        {"after": (Compute((), "compress", stream="own"),)},
    ],
)
def test_a_job_that_would_lose_something_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="job x: "):
        Job(**{"name": "x", "stages": (SEND,), "begins": PassPoint("backward")} | words)


def test_what_is_waited_for_must_be_issued_before() -> None:
    class Late(_Toy):
        def jobs(
            self, buckets: Sequence[Bucket], world: MethodContext, iteration: int
        ) -> list[Job]:
            late = Send("all_reduce", 1e6, earliest="backward")
            return [Job("late", (late,), PassPoint("forward"), PassPoint("backward"))]

    with pytest.raises(ValueError, match="waited for before it can be issued"):
        plans(Late())


KERNELS = st.builds(lambda passes: elementwise(1_000_000, passes), st.sampled_from([100, 1000]))
EARLIEST = st.sampled_from(["ready", "backward"])
SECONDS = st.sampled_from([0.0, 3 * MS, 5 * MS, 10 * MS, 20 * MS, 30 * MS, 40 * MS])
STAGES = st.one_of(
    st.builds(
        lambda size_bytes, **more: Send("all_reduce", size_bytes, **more),
        st.sampled_from([1e5, 5e6]),
        earliest=EARLIEST,
        awaited=st.booleans(),
        stream=st.sampled_from(["one", "two"]),
    ),
    st.builds(
        lambda kernel, **more: Compute((kernel,), "compress", **more),
        KERNELS,
        earliest=EARLIEST,
        stream=st.sampled_from(["compute", "own"]),
        blocks=st.booleans(),
    ),
)
HOLDS = st.one_of(
    st.none(),
    SECONDS.map(lambda seconds: PassPoint("next", seconds)),
    st.integers(0, 3).map(lambda later: PassPoint("update", later=later)),
)


@st.composite
def some_jobs(draw: st.DrawFn) -> list[Job]:
    """Return up to three jobs of an iteration; each may need the one before it."""
    found = []
    for number in range(draw(st.integers(0, 3))):
        holds = draw(HOLDS)
        found.append(
            Job(
                f"job{number}",
                tuple(draw(st.lists(STAGES, min_size=1, max_size=4))),
                PassPoint(draw(st.sampled_from(["forward", "backward"])), draw(SECONDS)),
                holds,
                (f"job{number - 1}",) if number and draw(st.booleans()) else (),
                0.2 if holds and holds.phase == "next" and draw(st.booleans()) else 0.0,
                (Compute((draw(KERNELS),), "decompress"),) if draw(st.booleans()) else (),
            )
        )
    return found


class _Any(_Toy):
    """Whatever jobs it is given."""

    given_jobs: tuple[Any, ...]
    late: int = 0

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        return list(self.given_jobs[iteration])

    def rounds(self) -> list[Round]:
        return [Round(tuple(range(len(self.given_jobs))))]

    def delay(self) -> int:
        return self.late


def follower(plan: CostedGraph, job: Job, place: int, late: int) -> tuple[int, int] | None:
    """Return a task that computation gets to after it has waited for a job, and periods later."""
    names = [task.name for task in plan.graph.tasks]
    if job.holds and job.holds.phase == "update":
        return None
    periods, at = divmod(place + (1 if job.holds else late), plan.graph.iterations)
    if job.holds is None:
        return names.index(f"update {at}"), periods
    backward = [n for n, name in enumerate(names) if name.startswith(f"backward {at}.")]
    return backward[0], periods


def tasks_of(plan: CostedGraph, place: int, name: str) -> list[int]:
    """Return the tasks of a job's stages."""
    return [
        index
        for index, task in enumerate(plan.graph.tasks)
        if task.name.endswith(f" {place}.{name}") and task.kind in ("communicate", "compress")
    ]


@given(
    st.lists(some_jobs(), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from([0.0, MS]),
)
def test_laws_of_any_jobs(rounds: list[list[Job]], overlap: bool, late: int, host_s: float) -> None:
    [plan] = plans(_Any(given_jobs=tuple(map(tuple, rounds)), late=late), host_s, overlap=overlap)
    timeline = run(plan)
    mean_s = float(timeline.period_s)
    assert timeline.steady
    assert mean_s == pytest.approx(steady_period_s(plan.graph), rel=1e-9)
    assert mean_s == pytest.approx(float(simulate_events(plan.graph).period_s), rel=1e-9)
    assert sum(timeline.breakdown().values()) == pytest.approx(timeline.iteration_s, rel=1e-9)
    longer = simulate(plan.graph, periods=6)
    starts, ends = longer.starts, longer.ends
    for place, jobs in enumerate(rounds):
        for job in jobs:
            mine = tasks_of(plan, place, job.name)
            for needed in job.needs:
                last_s = max(ends[1][index] for index in tasks_of(plan, place, needed))
                assert min(starts[1][index] for index in mine) >= last_s - 1e-12
            found = follower(plan, job, place, late if overlap else 0)
            if found:
                after, periods = found
                last_s = max(ends[1][index] for index in mine)
                assert starts[1 + periods][after] >= last_s - 1e-12


class _Behind(_Toy):
    """A kernel runs where forward waits for a first send; a second one begins there too."""

    behind: bool = False

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        place = PassPoint("forward", 4 * MS)
        other = Send("all_reduce", 1e6, stream="other")
        copy = Compute((KERNEL,), "decompress")
        return [
            Job("first", (SEND,), PassPoint("forward"), place, after=(copy,)),
            Job("second", (other,), place._replace(behind=self.behind)),
        ]


@pytest.mark.parametrize(("behind", "starts_ms"), [(False, 4.0), (True, 7.5 + KERNEL_S / MS)])
def test_a_job_may_begin_behind_what_its_place_waits_for(behind: bool, starts_ms: float) -> None:
    [plan] = plans(_Behind(behind=behind))
    second = [task.name for task in plan.graph.tasks].index("all_reduce 0.second")
    assert run(plan).starts[0][second] == pytest.approx(starts_ms * MS)


class _Chained(_Toy):
    """Two sends that forward waits for at one place, the second behind the first."""

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        place = PassPoint("forward", 4 * MS)
        return [
            Job("first", (SEND,), PassPoint("forward"), place),
            Job("second", (SEND,), place._replace(behind=True), place),
        ]


def test_a_job_waited_for_where_it_begins_does_not_wait_for_itself() -> None:
    [plan] = plans(_Chained())
    assert run(plan).iteration_s == pytest.approx((2 * 7.5 + 6 + 30 + 2) * MS)


class _Repeats(_Toy):
    """One send of each kind that forward waits for, and one of gradients."""

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        start = PassPoint("forward")
        return [
            Job("gather", (SEND,), start, start, repeats="every"),
            Job("once", (SEND,), start, start, repeats="first"),
            Job("sum", (SEND,), PassPoint("backward")),
        ]


class _Nearer(_Toy):
    """A send of the first micro-batch alone, another of all after it, and one of gradients."""

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        start = PassPoint("forward")
        return [
            Job("far", (SEND,), start, start, repeats="once"),
            Job("near", (SEND,), start, start, repeats="later"),
            Job("sum", (SEND,), PassPoint("backward")),
        ]


@pytest.mark.parametrize(
    ("count", "each", "expected"),
    [
        (1, False, ["gather", "once", "sum"]),
        (2, False, ["gather", "once", "gather", "sum"]),
        (3, False, ["gather", "once", "gather", "gather", "sum"]),
        (2, True, ["gather", "once", "sum"] * 2),
    ],
)
def test_a_job_repeats_in_the_micro_batches_that_it_says(
    count: int, each: bool, expected: list[str]
) -> None:
    [plan] = plans(_Repeats(), micro_batches=count, exchange_each=each)
    sent = [task.name.split(".")[1] for task in plan.graph.tasks if task.kind == "communicate"]
    assert sent == expected


@pytest.mark.parametrize(
    ("count", "each", "expected"),
    [
        (1, False, ["far", "sum"]),
        (1, True, ["far", "sum"]),
        (3, False, ["far", "near", "near", "sum"]),
        (3, True, ["far", "sum", "near", "sum", "near", "sum"]),
    ],
)
def test_a_job_runs_in_the_first_micro_batch_or_in_those_after_it(
    count: int, each: bool, expected: list[str]
) -> None:
    [plan] = plans(_Nearer(), micro_batches=count, exchange_each=each)
    sent = [task.name.split(".")[1] for task in plan.graph.tasks if task.kind == "communicate"]
    assert sent == expected


def test_what_repeats_must_be_awaited_in_its_own_micro_batch() -> None:
    with pytest.raises(ValueError, match="'repeats' needs a wait in its own micro-batch"):
        Job("gather", (SEND,), PassPoint("forward"), PassPoint("next"), repeats="every")
