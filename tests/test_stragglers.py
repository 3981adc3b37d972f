"""Slow GPUs: by closed form, and the slowest alone beside all ranks together."""

from __future__ import annotations

import numpy as np
import pytest
from conditions import ask, computed_s, plans_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

from perfsim.errors import RequestError
from perfsim.methods import method_names
from perfsim.schedule.run import run
from perfsim.simulate.array import simulate
from perfsim.simulate.events import simulate_events
from perfsim.simulate.priority import simulate_priority


@pytest.mark.parametrize("factor", [1.25, 1.5, 3.0])
def test_one_straggler_slows_computation_by_its_factor(factor: float) -> None:
    """Without overlap an iteration is computation and communication, one after the other."""
    alone = ask(overlap=False)
    slow = ask(overlap=False, straggler=f"1:{factor}")
    assert computed_s(slow) == pytest.approx(factor * computed_s(alone), rel=1e-9)
    added_s = (factor - 1) * computed_s(alone)
    assert slow.iteration_s == pytest.approx(alone.iteration_s + added_s, rel=1e-9)
    assert slow.baseline_s == ask(straggler=f"1:{factor}").iteration_s


def test_one_gpu_that_is_slow_takes_its_factor() -> None:
    assert ask(gpus=1, straggler="1:2").iteration_s == pytest.approx(2 * ask(gpus=1).iteration_s)


def test_a_factor_of_one_changes_nothing() -> None:
    assert ask(straggler="3:1").iteration_s == ask().iteration_s


def test_the_slowest_of_several_stragglers_counts() -> None:
    assert ask(straggler=["2:1.2", "1:1.5"]).iteration_s == ask(straggler="1:1.5").iteration_s
    assert ask(straggler="8:1.5").iteration_s == ask(straggler="1:1.5").iteration_s


FOLLOWED = [
    name for name in method_names() if name not in ("asc_wfbp", "byteps", "bytescheduler", "p3")
]


@pytest.mark.parametrize("method", FOLLOWED)
def test_the_slowest_rank_alone_is_what_all_ranks_together_are(method: str) -> None:
    """Each round on 8 ranks of two nodes, of which one is 1.5 and two are 1.2 times slower."""
    for plan in plans_of(method=method, model="resnet20-cifar", straggler=["1:1.5", "2:1.2"]):
        assert plan.conditions is not None
        factors = plan.conditions.factors()
        durations = [
            task.duration_s * factors
            if charge.cause in ("compute", "compression", "second_order")
            and not task.stream.startswith("rank ")
            else task.duration_s
            for task, charge in zip(plan.graph.tasks, plan.charges, strict=True)
        ]
        together = simulate(plan.graph, durations, ranks=True)
        alone = run(plan)
        assert together.mean_period_s == pytest.approx(alone.mean_period_s, rel=1e-9)
        assert together.select(rank=0).breakdown() == pytest.approx(
            alone.breakdown(), rel=1e-9, abs=1e-12
        )


@given(data=st.data())
@settings(deadline=None)
def test_a_rank_that_is_slowest_in_everything_decides_alone(data: st.DataObject) -> None:
    """Whoever waits for whom, since every task of it ends last."""
    graph = data.draw(graphs(tasks=6, ranks=3))
    factors = np.array([1.0, data.draw(st.floats(1.0, 3.0)), 3.0])
    durations = [
        task.duration_s if task.collective else task.duration_s * factors for task in graph.tasks
    ]
    alone = [float(np.max(seconds)) for seconds in durations]
    together = simulate(graph, durations, ranks=True, periods=6)
    assert together.closes == pytest.approx(simulate(graph, alone, periods=6).closes, rel=1e-12)
    events = simulate_events(graph, durations, ranks=True, periods=6, max_periods=6)
    assert together.closes == pytest.approx(events.closes, rel=1e-9)


def test_by_priority_the_slowest_rank_decides_alone_too() -> None:
    (plan,) = plans_of(method="p3", model="resnet20-cifar", straggler="1:1.5")
    durations = [
        task.duration_s * np.array([1.0, 1.5]) if charge.cause == "compute" else task.duration_s
        for task, charge in zip(plan.graph.tasks, plan.charges, strict=True)
    ]
    limit = {"periods": 4, "max_periods": 4}
    together = simulate_events(plan.graph, durations, ranks=True, order="priority", **limit)
    alone = simulate_priority(plan.graph, [float(np.max(one)) for one in durations], **limit)
    assert together.closes == pytest.approx(alone.closes, rel=1e-9)


@pytest.mark.parametrize("method", ["p3", "byteps", "asc_wfbp"])
def test_messages_that_overtake_each_other_are_slowed_by_a_straggler(method: str) -> None:
    fields = {"method": method, "model": "resnet20-cifar"}
    slow, alone = ask(**fields, straggler="1:4"), ask(**fields)
    assert slow.iteration_s > 1.5 * alone.iteration_s
    with pytest.raises(RequestError, match=f"--method: {method} sends .* --jitter"):
        ask(**fields, jitter=0.05)
