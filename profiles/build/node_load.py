"""Print by how much the GPUs of a node slow each other, by where samples come from and by source.

    python profiles/build/node_load.py --measurements FILE [FILE ...] [--tensorflow FILE]

For each published run on one node whose computation on one GPU is given, it takes what the run
took longer than predicted without the node's other GPUs, as a share of both passes for each
doubling of the GPUs in use (``m`` of `perfsim.compute.node_load`). Only runs count whose predicted
communication shows with less than 5 % of the iteration, so that the network's errors do not.

Two tables of other kinds stand beside them: the compute timers of AdaptDL (a step less its exposed
communication, runs on as many GPUs but more of them a node), and with ``--tensorflow`` the runs on
1 and 8 GPUs of TensorFlow's benchmarks of 2017, communication included, without AlexNet and VGG-16,
whose gradients are 60 times their images.

A line is a source: its runs, the median and the quartiles. ``all`` is the median of the sources,
which weigh alike; the last columns leave each source out.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import permutations
from pathlib import Path
from statistics import median, quantiles

from perfsim.compute.node_load import INPUTS
from perfsim.resolve import resolve
from perfsim.session import Session
from perfsim.validate.cases import Case, cases_of, same_source
from perfsim.validate.groups import PredictedCase
from perfsim.validate.measurements import validate_measurements

MOST_EXPOSED = 0.05
"""Share of an iteration that communication may show with. Chosen: 0.02 and 0.1 move no median of
a kind of input by more than 0.3 points."""

_BIG_GRADIENTS = ("alexnet", "vgg16")
"""Networks of TensorFlow's table whose communication shows on one node."""

Shares = dict[str, dict[str, list[float]]]
"""Input -> source -> what each run took longer, a share of both passes for each doubling."""


def shares_of_runs(rows: Iterable[PredictedCase], catalog: Session) -> Shares:
    """Return what runs on one node took longer than a prediction without the other GPUs."""
    rows = [row for row in rows if row.way == "rated" and row.whole and not row.calibrates]
    names = same_source([row.case for row in rows])
    found: Shares = defaultdict(lambda: defaultdict(list))
    for row in rows:
        setup = resolve(row.scenario, catalog)
        cluster, spent = setup.cluster, row.breakdown_s
        total_s = sum(spent.values())
        if cluster.nodes > 1 or cluster.gpus == 1:
            continue
        if spent["communication_exposed"] > MOST_EXPOSED * total_s:
            continue
        passes_s = (spent["forward"] + spent["backward"]) / setup.node_load
        without_s = total_s - (setup.node_load - 1.0) * passes_s
        longer = (total_s / (1.0 + row.error) - without_s) / passes_s
        source = names[row.case.origin]
        found[setup.input][source].append(longer / math.log2(cluster.gpus))
    return found


def shares_of_timers(cases: Sequence[Case]) -> list[float]:
    """Return what compute timers show: steps less communication, by GPUs a node of as many."""
    step = {_run(case): case.value for case in cases if case.metric == "iteration_s"}
    exposed = {_run(case): case.value for case in cases if case.metric == "exposed_comm_s"}
    alike: dict[tuple[str, ...], list[tuple[int, float]]] = defaultdict(list)
    for run, seconds in step.items():
        if run in exposed and seconds > exposed[run] and int(run[2]) > 1:
            alike[run[0], run[1], run[2]].append((int(run[3]), math.log(seconds - exposed[run])))
    return [
        (log - fewer_log) / math.log2(gpus / fewer)
        for runs in alike.values()
        for (gpus, log), (fewer, fewer_log) in permutations(runs, 2)
        if gpus > fewer
    ]


def _run(case: Case) -> tuple[str, str, str, str, str]:
    placed = case.notes.partition(";")[0]
    return case.group, case.batch_per_gpu, case.gpus, case.gpus_per_node, placed


def shares_of_tensorflow(path: Path) -> dict[str, dict[str, list[float]]]:
    """Return the same of TensorFlow's table: input -> machine -> shares from 1 to 8 GPUs."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    times: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for cells in csv.DictReader(lines):
        if cells["model"] not in _BIG_GRADIENTS and "distributed" not in cells["cluster"]:
            run = cells["data"], cells["cluster"], cells["model"], cells["batch_per_gpu"]
            times[run][int(cells["gpus"])] = float(cells["iter_ms"])
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (data, cluster, *_), by_gpus in times.items():
        if {1, 8} <= by_gpus.keys():
            kind = "synthetic" if data == "synthetic" else "storage"
            found[kind][f"TensorFlow 2017, {cluster}"].append((by_gpus[8] / by_gpus[1] - 1.0) / 3.0)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the share of both passes by which a doubling of a node's GPUs slows each of them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--measurements", type=Path, nargs="+", required=True, help="tables")
    parser.add_argument("--tensorflow", type=Path, help="tensorflow_benchmarks_2017.csv")
    given = parser.parse_args(arguments)
    catalog = Session()
    found: Shares = defaultdict(lambda: defaultdict(list))
    for path in given.measurements:
        for kind, sources in shares_of_runs(validate_measurements(path).rows, catalog).items():
            for source, shares in sources.items():
                found[kind][source] += shares
        timed = shares_of_timers(cases_of(path, catalog))
        if timed:
            found["storage"]["compute timers"] += timed
    if given.tensorflow:
        for kind, machines in shares_of_tensorflow(given.tensorflow).items():
            found[kind] |= machines
    print(f"{'input':10} {'source':40} {'runs':>5} {'median':>7}  quartiles")
    for kind in INPUTS:
        middles = {source: median(shares) for source, shares in found[kind].items()}
        for source, shares in sorted(found[kind].items()):
            low, _, high = quantiles(shares, n=4) if len(shares) > 1 else (shares[0],) * 3
            print(
                f"{kind:10} {source:40} {len(shares):5} {middles[source]:7.1%}"
                f"  {low:.1%} {high:.1%}"
            )
        if len(middles) > 1:
            without = [
                median(value for other, value in middles.items() if other != source)
                for source in middles
            ]
            print(
                f"{kind:10} {'all':40} {len(middles):5} {median(middles.values()):7.1%} "
                f" one source left out: {min(without):.1%} to {max(without):.1%}"
            )


if __name__ == "__main__":
    main()
