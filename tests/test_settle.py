"""Many runs at once: each to the last bit what it is alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

from perfsim.simulate.array import settled_periods, simulate
from perfsim.simulate.graph import TaskGraph


@settings(max_examples=80, deadline=None)
@given(graphs(), st.data())
def test_each_scenario_settles_as_it_does_alone(graph: TaskGraph, data: st.DataObject) -> None:
    times = st.one_of(st.just(0.0), st.floats(1e-3, 10.0))
    count = len(graph.tasks)
    rows = [data.draw(st.lists(times, min_size=count, max_size=count)) for _ in range(4)]
    many = settled_periods(graph, [np.array(column) for column in zip(*rows, strict=True)])
    assert many.tolist() == [simulate(graph, row).period_s for row in rows]


def test_floats_stand_for_all_scenarios() -> None:
    graph = TaskGraph()
    backward = graph.add("backward", "compute", "backward", 3.0)
    graph.add("all_reduce", "communication", "communicate", 1.0, after=[backward])
    assert settled_periods(graph, [3.0, np.array([1.0, 5.0])]).tolist() == [3.0, 5.0]
