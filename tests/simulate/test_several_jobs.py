"""Jobs that are simulated together on one link: by hand, and what holds of any jobs."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Environment, Event

from perfsim.simulate.array import simulate
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.several_jobs import (
    ConcurrentJob,
    SimulationEffort,
    simulate_together,
    simulation_effort,
)
from perfsim.simulate.shared_link import CrossedLink, max_min_shares
from perfsim.simulate.task import COMPUTE, LinkUse
from perfsim.simulate.timeline import Timeline
from support.strategies import graphs

EFFORT = SimulationEffort(8, 24)


def job(compute_s: float, send_s: float, off_s: float = 0.0, need: float = 1.0) -> ConcurrentJob:
    """Return a job that computes, then sends, then begins anew."""
    graph = TaskGraph()
    first = graph.add("compute", COMPUTE, "backward", compute_s, after=[(1, 1)])
    graph.add("send", "wire", "communicate", send_s, after=[first], collective=True)
    spent = [compute_s, send_s]
    return ConcurrentJob(graph, spent, {1: LinkUse(off_s, need)}, compute_s + send_s)


def together(*jobs: ConcurrentJob, effort: SimulationEffort = EFFORT) -> list[Timeline]:
    return simulate_together(jobs, effort)


def means(*jobs: ConcurrentJob) -> list[float]:
    return [run_.mean_period_s for run_ in together(*jobs)]


def test_two_jobs_that_only_send_have_half_the_rate_each_and_latency_is_not_shared() -> None:
    """2 s of latency, which the other's bytes fill, leave nothing to share: 3 s beside 3 s."""
    assert means(job(0.0, 3.0), job(0.0, 3.0)) == pytest.approx([6.0, 6.0])
    lockstep = together(job(0.0, 3.0, 2.0), job(0.0, 3.0, 2.0), effort=SimulationEffort(1, 24))
    assert lockstep[0].mean_period_s == pytest.approx(2.0 + 2 * 1.0)


def test_three_jobs_that_only_send_have_a_third_each() -> None:
    assert means(*[job(0.0, 1.0)] * 3) == pytest.approx([3.0] * 3)


def test_jobs_in_lockstep_stay_so_and_those_that_take_turns_too() -> None:
    """4 s of computation and 2 s on the wire: 8 s where they begin at once, 6 s half a round on."""
    periods = np.asarray(together(job(4.0, 2.0), job(4.0, 2.0))[0].period_s)
    assert min(periods) == pytest.approx(6.0)
    assert max(periods) == pytest.approx(8.0)
    assert 6.0 < float(periods.mean()) < 8.0


@pytest.mark.parametrize("need", [1.0, 0.5, 0.25])
def test_what_a_job_does_not_need_of_the_link_goes_to_the_other(need: float) -> None:
    """One always sends and needs ``need``, the other all: that has the rest, or half."""
    one, other = means(job(0.0, 1.0, need=need), job(0.0, 1.0))
    part = min(need, 0.5)
    assert one == pytest.approx(need / part)
    assert other == pytest.approx(1.0 / (1.0 - part), rel=1e-2)  # whole periods of both are counted


@given(needs=st.lists(st.floats(0.001, 1.0), min_size=1, max_size=6))
def test_fair_parts_are_max_min_fair(needs: list[float]) -> None:
    """Nobody has more than it needs; who has less has as much as anybody; nothing is left over."""
    parts = max_min_shares(needs)
    assert all(part <= need for part, need in zip(parts, needs, strict=True))
    assert sum(parts) == pytest.approx(min(1.0, sum(needs)))
    for part, need in zip(parts, needs, strict=True):
        assert part == need or part >= max(parts) - 1e-12


@settings(max_examples=12)
@given(
    computes=st.lists(st.floats(0.0, 5.0), min_size=2, max_size=3),
    sends=st.lists(st.floats(0.1, 3.0), min_size=3, max_size=3),
    need=st.floats(0.2, 1.0),
)
def test_the_link_carries_no_more_than_its_rate_and_no_job_gains(
    computes: list[float], sends: list[float], need: float
) -> None:
    jobs = [job(compute, send, need=need) for compute, send in zip(computes, sends, strict=False)]
    runs = together(*jobs, effort=SimulationEffort(2, 24))
    for start in range(2):
        periods = [float(np.asarray(one.period_s)[start]) for one in runs]
        carried = sum(
            one.spent_s[1] * need / period for one, period in zip(jobs, periods, strict=True)
        )
        assert carried <= 1.0 + 0.05  # means are over whole periods of jobs of other lengths
        for one, period in zip(jobs, periods, strict=True):
            assert period >= one.alone_s * (1 - 1e-9)
            assert period <= one.spent_s[0] + one.spent_s[1] * max(1.0, len(jobs) * need) + 1e-9


@settings(max_examples=15)
@given(one=graphs(tasks=6), other=graphs(tasks=6))
def test_where_the_link_does_for_all_both_are_what_the_array_engine_says(
    one: TaskGraph, other: TaskGraph
) -> None:
    """All messages at once need less than the link has: none waits for another job's."""
    alone = [simulate(graph) for graph in (one, other)]
    if not all(run_.steady and run_.mean_period_s > 1e-3 for run_ in alone):
        return
    jobs = [
        ConcurrentJob(
            graph,
            [float(task.duration_s) for task in graph.tasks],
            {
                index: LinkUse(0.0, need=1.0 / 12)
                for index, task in enumerate(graph.tasks)
                if task.kind == "communicate"
            },
            run_.mean_period_s,
        )
        for graph, run_ in zip((one, other), alone, strict=True)
    ]
    if simulation_effort(jobs) is None:
        return
    found = together(*jobs, effort=SimulationEffort(1, 24))
    for run_, by_itself in zip(found, alone, strict=True):
        assert run_.mean_period_s == pytest.approx(by_itself.mean_period_s, rel=1e-9)


def test_how_much_is_run_depends_on_how_long_it_takes() -> None:
    alike, other = job(1.0, 1.0), replace(job(1.0, 1.0), alone_s=100.0)
    assert simulation_effort([alike, alike]) == EFFORT
    fewer = simulation_effort([alike, other])
    assert fewer is not None and fewer.starts * fewer.counted < 8 * 24
    assert simulation_effort([alike, replace(other, alone_s=1e6)]) is None


@settings(max_examples=25)
@given(
    messages=st.lists(
        st.tuples(st.floats(0.0, 3.0), st.floats(0.01, 2.0), st.floats(0.1, 1.0)),
        min_size=1,
        max_size=12,
    )
)
def test_every_message_ends_and_the_link_is_never_idle_while_one_waits(
    messages: list[tuple[float, float, float]],
) -> None:
    """Whatever rounding does; with all of the link needed, the last ends when a queue would."""
    for needs in ([1.0] * len(messages), [need for *_, need in messages]):
        env = Environment()
        link = CrossedLink(env)
        ends: list[tuple[float, float]] = []

        def send(
            job: int,
            begin_s: float,
            spent_s: float,
            need: float,
            env: Environment = env,
            link: CrossedLink = link,
            ends: list[tuple[float, float]] = ends,
        ) -> Generator[Event, Any, None]:
            yield env.timeout(begin_s)
            yield from link.carry(job, spent_s, LinkUse(0.0, need))
            ends.append((begin_s + spent_s, env.now))

        one_each = [(number, *message[:2]) for number, message in enumerate(messages)]
        for (number, begin_s, spent_s), need in zip(one_each, needs, strict=True):
            env.process(send(number, begin_s, spent_s, need))
        env.run()
        assert len(ends) == len(messages)
        assert all(end >= alone - 1e-9 for alone, end in ends)
        if set(needs) == {1.0}:
            free = 0.0
            for _, begin_s, spent_s in sorted(one_each, key=lambda one: one[1]):
                free = max(free, begin_s) + spent_s
            assert env.now == pytest.approx(free, rel=1e-9)
