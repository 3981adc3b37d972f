"""The engines: 10,000 draws, 1024 ranks, and events a second beside raw SimPy."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import simpy

from perfsim.data.catalog import Catalog
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import build_rounds
from perfsim.simulate.array import simulate
from perfsim.simulate.events import simulate_events
from perfsim.simulate.settled import settled_periods
from scripts.benchmarks.row import Row, least_cpu_s

DRAWS, RANKS, EVENT_RANKS = 10_000, 1024, 16
SPREAD = 0.1
"""Relative standard deviation of what varies: any number does for a benchmark."""
OVERHEAD = 5.0
"""CPU of an event of the engine over one of a bare SimPy process: what it has to beat."""


def rows() -> Iterator[Row]:
    """Yield seconds and rates of the engines."""
    (plan,) = build_rounds(
        resolve(
            make_scenario({"model": "resnet50", "gpus": 64, "net": "1gbe", "bucket": "25MB"}),
            Catalog(),
        )
    )
    chance = np.random.default_rng(0)
    by_cause = {
        cause: np.exp(SPREAD * chance.standard_normal(DRAWS)) for cause in ("compute", "network")
    }
    drawn = [
        float(task.duration_s) * by_cause[charge.cause]
        for task, charge in zip(plan.graph.tasks, plan.charges, strict=True)
    ]
    what = f"array engine: {DRAWS:,} draws, {len(drawn)} tasks, to the steady state"
    yield Row(what, least_cpu_s(lambda: settled_periods(plan.graph, drawn), 5), "s", 0.5)
    ranks = _by_rank(plan, RANKS, chance)
    one_ms = 1e3 * least_cpu_s(lambda: simulate(plan.graph, ranks, ranks=True, periods=1))
    yield Row(f"array engine: {RANKS} ranks that differ, one iteration", one_ms, "ms", 50.0)
    few = _by_rank(plan, EVENT_RANKS, chance)

    def run() -> object:
        return simulate_events(plan.graph, few, ranks=True, periods=20)

    events = _counted(run)
    engine = events / least_cpu_s(run, 5)
    bare = _bare(events)
    raw = events / least_cpu_s(bare, 5)
    yield Row("raw SimPy: events a second", raw, "1/s")
    note = f"{events:,} events, {EVENT_RANKS} ranks"
    yield Row("event engine: events a second", engine, "1/s", note=note)
    yield Row("    raw SimPy over the event engine", raw / engine, "times", OVERHEAD)


def _by_rank(plan: CostedGraph, ranks: int, chance: np.random.Generator) -> list[Any]:
    slower = 1.0 + SPREAD * chance.random(ranks)
    return [
        float(task.duration_s) * (slower if charge.cause == "compute" else np.ones(ranks))
        for task, charge in zip(plan.graph.tasks, plan.charges, strict=True)
    ]


def _counted(run: Any) -> int:
    """Return how many events SimPy handles in a run."""
    count, step = 0, simpy.Environment.step

    def counting(self: simpy.Environment) -> None:
        nonlocal count
        count += 1
        step(self)

    simpy.Environment.step = counting  # type: ignore[method-assign]
    try:
        run()
    finally:
        simpy.Environment.step = step  # type: ignore[method-assign]
    return count


def _bare(events: int) -> Any:
    """Return a run of as many time-outs, of processes that do nothing else."""
    each = events // EVENT_RANKS

    def process(env: simpy.Environment) -> Generator[simpy.Event, Any, None]:
        for _ in range(each):
            yield env.timeout(1.0)

    def run() -> None:
        env = simpy.Environment()
        for _ in range(EVENT_RANKS):
            env.process(process(env))
        env.run()

    return run
