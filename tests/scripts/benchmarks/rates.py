"""Rows a second of sweeps, beside a plain loop over ``predict()`` (see ``sweep_rate.py``)."""

from __future__ import annotations

from collections.abc import Iterator

from perfsim.data.catalog import Catalog
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.sweep import Sweep, serial
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from scripts.benchmarks.row import Row, cpu_s
from scripts.sweep_rate import PLAIN, QUESTIONS

LIMITS = {
    "structures differ": 3000.0,
    "profile, buckets and network shared": 10_000.0,
    "only numbers differ: a link": 500_000.0,
    "only numbers differ: a GPU": 500_000.0,
}
"""Rows a second of a core, at least."""
TIMES = 3


def rows() -> Iterator[Row]:
    """Yield the best rate of some runs, each question beside a plain loop."""
    for name, (base, vary) in QUESTIONS.items():
        sweep = Sweep(SweepGrid(base, axes_of(vary)))
        found: list[list[object]] = []

        def run(sweep: Sweep = sweep, found: list[list[object]] = found) -> None:
            found[:] = [row for part in serial(sweep, sweep.chunks()) for row in part]

        least_s = min(cpu_s(run) for _ in range(TIMES))
        rate, plain = len(found) / least_s, _plain(sweep, found)
        note = f"{rate / plain:,.0f} times a loop over predict() with a plain catalog"
        yield Row(f"sweep, {name}", rate, "rows/s", LIMITS.get(name), least=True, note=note)


def _plain(sweep: Sweep, found: list[list[object]]) -> float:
    """Return the rate of a plain loop over some of the rows."""
    catalog = Catalog()
    known = [index for index, row in enumerate(found) if not row[-1]]
    some = known[:: max(1, len(known) // PLAIN)][:PLAIN]
    asked = [make_scenario(sweep.grid.fields(row)) for row in some]
    return len(some) / cpu_s(lambda: [predict(one, catalog) for one in asked])
