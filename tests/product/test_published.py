"""Is it true? Held-out published results, and another simulator's answers."""

from __future__ import annotations

import pytest

from perfsim.simulate.array import simulate
from perfsim.simulate.bounds import wait_free_chain
from perfsim.simulate.events import simulate_events
from perfsim.validate.cases import Case
from scripts import published


@pytest.mark.parametrize(
    ("scenario", "row"),
    published.held_out(),
    ids=[scenario for scenario, _ in published.held_out()],
)
def test_held_out_rows_within_ten_per_cent_or_with_the_reason(scenario: str, row: Case) -> None:
    # A row that is missed says why, and says so only as long as it is missed.
    _, off = published.error(scenario, row)
    assert (abs(off) > published.LIMIT) == (scenario in published.REASONS)


@pytest.mark.parametrize("workers", published.ASTRA_SIM_MS)
def test_five_buckets_as_astra_sim_has_them(workers: int) -> None:
    # From the start of backward to the end of the last all-reduce: no forward, no update.
    plan, costs = published.five_buckets(workers)
    closed_s = wait_free_chain(published.READY_S, costs)
    assert simulate(plan.graph).iteration_s == pytest.approx(closed_s, rel=1e-9)
    assert simulate_events(plan.graph).iteration_s == pytest.approx(closed_s, rel=1e-9)
    assert closed_s * 1e3 == pytest.approx(published.ASTRA_SIM_MS[workers], rel=0.005)
