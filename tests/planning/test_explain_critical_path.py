"""The critical path and exposed buckets: by hand, on random graphs and for every method."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.methods import method_names
from perfsim.planning.explain import critical_path, explain, exposed, one_run
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph, TaskCost
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import run
from perfsim.simulate.array import simulate
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.timeline import Timeline
from support.strategies import graphs
from support.what_ships import SHIPPED


def two_buckets(first_s: float, second_s: float) -> TaskGraph:
    """Return forward 1 s, two backward parts of 2 s with a message each, update 1 s."""
    graph = TaskGraph()
    graph.add("forward 0", "compute", "forward", 1.0)
    one = graph.add("backward 0.0", "compute", "backward", 2.0)
    sent = graph.add("all_reduce 0.0", "communication", "communicate", first_s, [one])
    two = graph.add("backward 0.1", "compute", "backward", 2.0)
    last = graph.add("all_reduce 0.1", "communication", "communicate", second_s, [two])
    graph.add("update 0", "compute", "update", 1.0, [sent, last])
    return graph


@pytest.mark.parametrize(
    ("first_s", "second_s", "path"),
    [
        # Hidden first message: all of computation, then the second.
        (1.0, 3.0, ["forward 0", "backward 0.0", "backward 0.1", "all_reduce 0.1", "update 0"]),
        # A long first message holds up the second; backward 0.1 is off the path.
        (5.0, 1.0, ["forward 0", "backward 0.0", "all_reduce 0.0", "all_reduce 0.1", "update 0"]),
    ],
)
def test_the_path_by_hand(first_s: float, second_s: float, path: list[str]) -> None:
    steps = critical_path(simulate(two_buckets(first_s, second_s)))
    assert [step.task for step in steps] == path
    assert (steps[0].start_s, steps[-1].end_s) == pytest.approx((0.0, 9.0 if first_s < 2 else 10.0))


def test_exposed_by_hand() -> None:
    plan = CostedGraph(two_buckets(5.0, 1.0), [TaskCost("compute")] * 6)
    first, second = exposed([plan], [run(plan)])
    # On the wire from 3 s to 8 s and from 8 s to 9 s; computation until 5 s.
    assert (first.busy_s, first.exposed_s) == pytest.approx((5.0, 3.0))
    assert (second.busy_s, second.exposed_s) == pytest.approx((1.0, 1.0))


def test_a_gap_that_no_task_of_the_rank_explains_is_waiting() -> None:
    import numpy as np

    graph = TaskGraph()
    backward = graph.add("backward", "compute", "backward", np.array([3.0, 1.0]))
    send = graph.add("send", "communication", "communicate", 2.0, [backward], collective=True)
    graph.add("update", "compute", "update", 1.0, [send])
    timeline = simulate(graph, ranks=True)
    slow = [(step.kind, step.end_s - step.start_s) for step in critical_path(timeline)]
    assert slow == [("backward", 3.0), ("communicate", 2.0), ("update", 1.0)]
    fast = [(step.kind, step.end_s) for step in critical_path(timeline.select(rank=1))]
    assert fast == [("backward", 1.0), ("waiting", 3.0), ("communicate", 5.0), ("update", 6.0)]


def check_path(timeline: Timeline) -> None:
    """Hold a path to what it promises: no gap, no overlap, as long as what it explains."""
    steps = critical_path(timeline)
    cycle = timeline.averaged if timeline.steady else 1
    before = timeline.periods - cycle - 1
    length_s = timeline.closes[-1] - (timeline.closes[before] if before >= 0 else 0.0)
    small = 1e-9 * float(timeline.closes[-1])
    assert sum(step.end_s - step.start_s for step in steps) == pytest.approx(length_s, abs=small)
    for one, other in pairwise(steps):
        assert one.end_s == pytest.approx(other.start_s, abs=small)
    assert all(step.end_s > step.start_s for step in steps)


@given(graphs())
def test_every_path_is_whole_and_every_exposed_instant_has_an_owner(graph: TaskGraph) -> None:
    timeline = simulate(graph)
    check_path(timeline)
    # In issue order a task begins when something it waits for ends.
    assert all(step.kind != "waiting" for step in critical_path(timeline))
    rows = exposed([CostedGraph(graph)], [timeline])
    shown = timeline.breakdown()["communication_exposed"]
    assert sum(row.exposed_s for row in rows) == pytest.approx(shown, rel=1e-9, abs=1e-12)


@cache
def catalog() -> Catalog:
    """Return the shipped files."""
    return SHIPPED


@pytest.mark.parametrize("name", ["ssgd", "dgc", "mgwfbp", "localsgd", "dear", "fsdp"])
@pytest.mark.parametrize("more", [{}, {"straggler": ["1:1.5"]}], ids=["", "straggler"])
def test_paths_where_ranks_vary_are_those_of_one_draw(name: str, more: dict[str, Any]) -> None:
    """Of the draw nearest to the mean, as `explain` shows it."""
    fields = {"model": "resnet20-cifar", "gpus": 8, "net": "10gbe", "method": name}
    found = explain(make_scenario(fields | {"jitter": "5%"} | more), catalog())
    resolved = resolve(make_scenario(fields | {"jitter": "5%"} | more), catalog())
    for plan, path in zip(build_rounds(resolved), found.paths, strict=True):
        timeline = run(plan)
        assert timeline.shape
        check_path(one_run(timeline))
        assert path.iterations == plan.graph.iterations, "one period"
        assert sum(path.by_kind().values()) == pytest.approx(timeline.mean_period_s, rel=0.05)


@pytest.mark.parametrize("name", method_names())
def test_paths_of_a_method_make_its_iteration(name: str) -> None:
    fields = {"model": "resnet50", "gpus": 16, "net": "10gbe", "method": name}
    resolved = resolve(make_scenario(fields), catalog())
    try:
        plans = build_rounds(resolved)
    except RequestError:
        pytest.skip(f"{name} cannot run there")
    timelines = [run(plan) for plan in plans]
    for timeline in timelines:
        check_path(timeline)
    total = sum(plan.iterations for plan in plans)
    shown = sum(
        plan.iterations / total * timeline.breakdown()["communication_exposed"]
        for plan, timeline in zip(plans, timelines, strict=True)
    )
    rows = exposed(plans, timelines)
    assert sum(row.exposed_s for row in rows) == pytest.approx(shown, rel=1e-6, abs=1e-12)
    assert all(0 <= row.exposed_s <= row.busy_s * (1 + 1e-9) for row in rows)
