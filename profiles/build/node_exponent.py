"""Print how the rate of TCP falls with the number of nodes, by source.

    python profiles/build/node_exponent.py --measurements FILE [FILE ...] [--curves FOLDER]

Published runs on networks whose file says that the rate falls (``falls_with_nodes``): for each
source it tries exponents from 0 to 0.4, each with the level of the network that fits the source
best, so that the shape alone counts. A line is a source: its runs, their most nodes, the mean of
|ln(predicted / measured)| at 0 and at the best exponent. Beside it stands each source as shipped,
without the exponent and with it, on the preset's level: what a prediction gains.

``--curves`` takes all-reduces and all-gathers from 64 MiB that were measured on several numbers of
nodes, over any transport: the exponent between each two numbers, the median of the sizes.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

from perfsim.network.link import Link
from perfsim.resolve import Setup, resolve
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import mean_s, run_all
from perfsim.session import Session
from perfsim.validate.cases import same_source
from perfsim.validate.groups import PredictedCase, best_known
from perfsim.validate.measurements import validate_measurements
from perfsim.validate.nccl.report import curves_in_folder

EXPONENTS = tuple(index / 20 for index in range(9))
LEVELS = tuple(2.0 ** (index / 4) for index in range(-7, 8))
"""Factors on the network's rate: 0.3 to 3.4."""
_LARGE_BYTES = 64 * 2**20

Run = tuple[Setup, float]
"""What was run, and how long an iteration took [s]."""


def runs_by_source(rows: Iterable[PredictedCase], catalog: Session) -> dict[str, list[Run]]:
    """Return the runs over networks whose rate falls with nodes, as they are known best."""
    rows = [row for row in best_known(rows) if row.whole and not row.calibrates]
    names = same_source([row.case for row in rows])
    found: dict[str, list[Run]] = defaultdict(list)
    for row in rows:
        setup = resolve(row.scenario, catalog)
        inter = setup.cluster.inter
        if inter is not None and inter.falls is not None and setup.cluster.known is None:
            measured_s = sum(row.breakdown_s.values()) / (1.0 + row.error)
            found[names[row.case.origin]].append((setup, measured_s))
    return found


def mean_error(runs: Sequence[Run], exponent: float, level: float) -> float:
    """Return the mean |ln(predicted / measured)| with an exponent and a level of the rate."""
    return mean(
        abs(math.log(_predicted_s(setup, exponent, level) / seconds)) for setup, seconds in runs
    )


def _predicted_s(setup: Setup, exponent: float, level: float) -> float:
    inter = setup.cluster.inter
    assert inter is not None
    changed = replace(setup, cluster=replace(setup.cluster, inter=_changed(inter, exponent, level)))
    rounds = build_rounds(changed)
    timelines, _, _ = run_all(rounds)
    return mean_s(rounds, timelines)


def _changed(link: Link, exponent: float, level: float) -> Link:
    assert link.falls is not None
    falls = link.falls._replace(exponent=link.falls.exponent._replace(value=exponent))
    rate, tree = (one._replace(value=one.value * level) for one in (link.rate, link.tree_rate))
    return replace(link, rate=rate, tree_rate=tree, falls=falls)


def exponents_of_curves(folder: Path) -> dict[tuple[str, str, int, int], float]:
    """Return cluster, collective and two numbers of nodes -> the exponent between them."""
    rates: dict[tuple[str, str], dict[int, dict[float, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for cluster, curve in curves_in_folder(folder)[0]:
        if curve.kind not in ("all_reduce", "all_gather") or curve.nodes == 1:
            continue
        share = (curve.ranks - 1) / curve.ranks
        for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
            if size >= _LARGE_BYTES:
                rates[cluster, curve.kind][curve.nodes][size] = share * size / seconds
    found = {}
    for (cluster, kind), by_nodes in rates.items():
        for fewer, more in pairwise(sorted(by_nodes)):
            sizes = by_nodes[fewer].keys() & by_nodes[more].keys()
            if sizes:
                found[cluster, kind, fewer, more] = median(
                    math.log(by_nodes[fewer][size] / by_nodes[more][size]) for size in sizes
                ) / math.log(more / fewer)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the exponent by which the rate of TCP falls with nodes, by source."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--measurements", type=Path, nargs="+", required=True, help="tables")
    parser.add_argument("--curves", type=Path, help="folder of collected curves")
    given = parser.parse_args(arguments)
    catalog = Session()
    found: dict[str, list[Run]] = defaultdict(list)
    for path in given.measurements:
        for source, runs in runs_by_source(validate_measurements(path).rows, catalog).items():
            found[source] += runs
    best: dict[str, float] = {}
    for source, runs in sorted(found.items()):
        fits = {a: min(mean_error(runs, a, level) for level in LEVELS) for a in EXPONENTS}
        best[source] = min(fits, key=lambda a: fits[a])
        inter = runs[0][0].cluster.inter
        assert inter is not None and inter.falls is not None
        shipped = inter.falls.exponent.value
        nodes = max(setup.cluster.nodes for setup, _ in runs)
        print(
            f"{source:12} {len(runs):4} runs to {nodes:3} nodes: best {best[source]:.2f},"
            f" {fits[0.0]:.1%} at 0, {fits[best[source]]:.1%} there; on the preset's level"
            f" {mean_error(runs, 0.0, 1.0):.1%} at 0, {mean_error(runs, shipped, 1.0):.1%}"
            f" at {shipped:g}"
        )
    if len(best) > 1:
        without = [median(a for o, a in best.items() if o != source) for source in best]
        print(f"median of the sources {median(best.values()):.2f},", end=" ")
        print(f"one left out {min(without):.2f} to {max(without):.2f}")
    if given.curves:
        for (cluster, kind, fewer, more), a in sorted(exponents_of_curves(given.curves).items()):
            print(f"{cluster:36} {kind:10} {fewer:3} to {more:3} nodes: {a:.3f}")


if __name__ == "__main__":
    main()
