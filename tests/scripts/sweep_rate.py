"""Scenarios a second of ``sweep``, beside a plain loop over ``predict()``.

``python tests/scripts/sweep_rate.py [--workers N]`` prints a line a question: all that differs in
structure; profile, buckets and network shared; only numbers differ. A second is one of a core's
work (with workers: one on the clock).
"""

from __future__ import annotations

import argparse
import time

from perfsim.data.catalog import Catalog
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.sweep import Engine, Sweep, serial
from perfsim.prediction import predict
from perfsim.scenario import make_scenario

QUESTIONS = {
    "structures differ": (
        {},
        {
            "model": "resnet50,vgg16,bert-base,inception-v4",
            "gpus": "8..256:8",
            "net": "1gbe,10gbe,ib100",
            "method": "ssgd,dgc,powersgd,topk,mgwfbp,dear",
        },
    ),
    "profile, buckets and network shared": (
        {"model": "resnet50", "net": "10gbe", "gpus": 64},
        {
            "method": "topk,dgc",
            "options.density": "0.0001..0.1:log200",
            "algorithm": "auto,ring,tree",
            "overlap": "true,false",
        },
    ),
    "the same, and the method": (
        {"model": "resnet50", "net": "10gbe", "gpus": 64},
        {
            "method": "ssgd,powersgd,acpsgd,topk,dgc,fp16",
            "oversubscription": "1..4:lin4",
            "algorithm": "auto,ring,tree",
            "protocol": "auto,ll,ll128,simple",
            "overlap": "true,false",
        },
    ),
    "only numbers differ: a link": (
        {"model": "resnet50", "gpus": 64, "method": "dgc"},
        {"net": "1Gbit/s..100Gbit/s:log400,5us..100us:log500"},
    ),
    "only numbers differ: a GPU": (
        {"model": "resnet50", "gpus": 64, "net": "10gbe"},
        {"single_gpu": "100ms..1s:log1000", "overlap_slowdown": "1..2:lin200"},
    ),
}
PLAIN = 40
"""Scenarios of the plain loop, evenly from the grid."""


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, help="Dask processes; none is this one")
    workers = parser.parse_args().workers
    engine: Engine = serial
    if workers:
        from perfsim.planning.dask import DaskEngine

        engine = DaskEngine(workers)
    clock = time.perf_counter if workers else time.process_time
    print(f"{'question':40}{'rows':>9}{'failed':>8}{'sweep [1/s]':>14}{'predict() [1/s]':>17}")
    for name, (base, vary) in QUESTIONS.items():
        sweep = Sweep(SweepGrid(base, axes_of(vary)))
        began = clock()
        rows = [row for part in engine(sweep, sweep.chunks()) for row in part]
        rate = len(rows) / (clock() - began)
        failed = sum(bool(row[-1]) for row in rows)
        plain = _plain(sweep, rows)
        print(f"{name:40}{len(rows):>9,}{failed:>8,}{rate:>14,.0f}{plain:>17,.1f}", flush=True)


def _plain(sweep: Sweep, rows: list[list[object]]) -> float:
    """Return the rate of a plain loop over some of the rows, and hold it against the sweep."""
    catalog = Catalog()
    known = [index for index, row in enumerate(rows) if not row[-1]]
    some = known[:: max(1, len(known) // PLAIN)][:PLAIN]
    began = time.process_time()
    found = [predict(make_scenario(sweep.grid.fields(row)), catalog).iteration_s for row in some]
    rate = len(some) / (time.process_time() - began)
    assert found == [rows[row][0] for row in some], "a row differs from predict()"
    return rate


if __name__ == "__main__":
    main()
