"""Predict published collectives over shaped links, and print our times beside the measured ones.

    python profiles/build/wide_area_record.py --data wide_area_shaped.csv [--rows]

FILE has the columns section, network, column, time_s: what BinhangYuan/tc_cluster_setting@75581a5b
measured on 2 to 32 AWS p3.2xlarge (one V100 each), its results/*.md. It states no licence, so that
nothing of it ships. Each node here is a site of one GPU.

What the runs were, by the repository's scripts:

- ``tc netem`` delays and shapes what a node sends: a delay is one way, each way has it, and what a
  node receives is not shaped. A p3.2xlarge has up to 10 Gbit/s (AWS's list of instance types), of
  which one flow outside a placement group is allowed 5 Gbit/s (Amazon EC2 User Guide, "Amazon EC2
  instance network bandwidth").
- sizes are in MiB (``data_size_mb2dim``); "AWS default" has no shaping, and a delay of 0.1 ms is
  assumed.
- NCCL opens 16 sockets a connection on AWS (8 on each of 2 threads), on each of its 2 channels;
  gloo opens one. A flow has 3 MiB in flight, as Linux is shipped.
- Simulate_DP.md makes as many calls as there are nodes, each of its share of the buffer, between
  two barriers of gloo. The last is in the time: a round trip (notice and message) in each of its
  ceil(log2 N) rounds. Reduces and broadcasts are chains, whose calls follow each other without a
  wait, so that they count as one of the whole buffer. The all-gather sends every block from its
  owner to all others, as an all-to-all does.

No number is fitted on these rows. But they are not out of sample: that rings go round again for
each chunk, that notices stand in line and that broadcasts go to all children at once was read in
NCCL's and gloo's code after these rows had asked for it.

Not explained: all three kinds of Simulate_DP.md take longer than the model says (the all-reduces
1.1 to 1.3 times as long as in allreduce.md where only the rate counts); NCCL's reduces and
broadcasts have 0.03 to 0.4 s that do not grow with the message; one row beats the shaped rate (a
central PS of 1024 MB on 4 nodes at 10 ms); one has an outlier's time (a sharded PS of 1024 MB on 8
unshaped nodes, longer than on 16).
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from perfsim.collectives.hops import ceil_log2
from perfsim.data.catalog import Catalog
from perfsim.network.cluster import Cluster
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario

__all__ = ["ShapedRow", "main", "predicted_s", "read_rows", "shaped_cluster"]

CARD = "10Gbit/s"
LAN_DELAY = "0.1ms"
PER_FLOW = "5Gbit/s"
WINDOW = "3MiB"
NCCL_FLOWS = 32
MIB = 2**20


class ShapedRow(NamedTuple):
    """One measured time.

    Parameters
    ----------
    section : all_reduce, broadcast, reduce, send_recv, central_ps, sharded_ps; "in calls" where as
        many calls as nodes were made
    network : as the source names it
    library : nccl or gloo
    """

    section: str
    network: str
    library: str
    nodes: int
    size_bytes: float
    calls: int
    measured_s: float


def read_rows(path: Path) -> Iterator[ShapedRow]:
    """Go through the rows of the table that are of links shaped by tc, or of none."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            found = _row(row)
            if found is not None:
                yield found


def _row(row: dict[str, str]) -> ShapedRow | None:
    section, column = row["section"], row["column"]
    table = re.search(r"results/(\w+)\.md", row["cite"])
    file = table[1] if table else ""
    network, seconds = row["network"], float(row["time_s"])
    if file == "Simulate_DP":
        words = re.fullmatch(r"(\d+) MB (\d+) nodes", column)
        if words is None:
            return None
        size, nodes = float(words[1]) * MIB, int(words[2])
        kinds = {"AllReduce": "all_reduce", "Centralized": "central_ps", "Sharded": "sharded_ps"}
        kind = f"{kinds[section.split()[0]]} in calls"
        return ShapedRow(kind, network, "nccl", nodes, size, nodes, seconds)
    words = re.fullmatch(r"(Gloo|NCCL)-(\d+) MB", column)
    if words is None:
        return None
    library, size = words[1].lower(), float(words[2]) * MIB
    if file == "p2p":
        return ShapedRow("send_recv", network, library, 2, size, 1, seconds)
    nodes = int(section.split()[0])
    kind = {"allreduce": "all_reduce"}.get(file, file)
    return ShapedRow(kind, network, library, nodes, size, 1, seconds)


def shaped_cluster(network: str, nodes: int, library: str, catalog: Catalog) -> Cluster:
    """Return the cluster of a row: each node a site of one GPU."""
    delay = re.search(r"delay (\d+)ms", network)
    rate = re.search(r"bandwidth (\d+)Gbps", network)
    wan = [
        f"up={rate[1]}Gbit/s" if rate else f"up={CARD}",
        f"down={CARD}",
        f"delay={delay[1]}ms" if delay else f"delay={LAN_DELAY}",
        f"flows={NCCL_FLOWS if library == 'nccl' else 1}",
        f"window={WINDOW}",
        f"per_flow={PER_FLOW}",
    ]
    fields = {
        "model": "resnet50",
        "gpu": "v100",
        "site": (1,) * nodes,
        "net": f"{CARD},20us",
        "wan": ",".join(wan),
        "library": library,
    }
    return resolve(make_scenario(fields), catalog).cluster


def predicted_s(row: ShapedRow, catalog: Catalog) -> float:
    """Return what perfsim says of a row [s]."""
    cluster = shaped_cluster(row.network, row.nodes, row.library, catalog)
    each = row.size_bytes / row.calls

    def seconds(collective: str, size_bytes: float) -> float:
        return cluster.seconds(collective, size_bytes)

    kind, barrier_s = row.section.removesuffix(" in calls"), 0.0
    if kind != row.section:
        assert cluster.wide is not None
        rtt_s = max(path.rtt_s for path in cluster.wide.paths())
        barrier_s = ceil_log2(row.nodes) * rtt_s
    if kind == "central_ps":
        return seconds("reduce", row.size_bytes) + seconds("broadcast", row.size_bytes) + barrier_s
    if kind == "sharded_ps":
        return 2.0 * seconds("all_to_all", row.size_bytes) + barrier_s
    return row.calls * seconds(kind, each) + barrier_s


def _errors(rows: Sequence[tuple[ShapedRow, float]]) -> list[float]:
    return [ours / row.measured_s - 1.0 for row, ours in rows]


def _table(title: str, groups: dict[str, list[tuple[ShapedRow, float]]]) -> None:
    print(f"\n{title:<34} {'rows':>4} {'median |error|':>15} {'median':>8} {'worst':>8}")
    for name, rows in groups.items():
        errors = _errors(rows)
        worst = max(errors, key=abs)
        print(
            f"{name:<34} {len(rows):>4} {median(map(abs, errors)):>15.1%}"
            f" {median(errors):>8.1%} {worst:>8.1%}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print medians by section and by network, and each row with ``--rows``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the table of measured times")
    parser.add_argument("--rows", action="store_true", help="print every row")
    asked = parser.parse_args(arguments)
    catalog = Catalog()
    scored = [(row, predicted_s(row, catalog)) for row in read_rows(asked.data)]
    if asked.rows:
        for row, ours in scored:
            what = f"{row.section} {row.library} {row.nodes} nodes {row.size_bytes / MIB:g} MiB"
            print(
                f"{what:<48} {row.network:<28} {row.measured_s:8.3f} {ours:8.3f}"
                f" {ours / row.measured_s - 1.0:+7.1%}"
            )
    by_section: dict[str, list[tuple[ShapedRow, float]]] = {}
    by_network: dict[str, list[tuple[ShapedRow, float]]] = {}
    by_nodes: dict[str, list[tuple[ShapedRow, float]]] = {}
    for row, ours in scored:
        by_section.setdefault(f"{row.section}, {row.library}", []).append((row, ours))
        by_network.setdefault(row.network, []).append((row, ours))
        by_nodes.setdefault(f"{row.nodes} nodes", []).append((row, ours))
    _table("section", by_section)
    _table("network", by_network)
    _table("nodes", by_nodes)
    reduces = [one for one in scored if one[0].section.startswith("all_reduce")]
    _table("together", {"all-reduce": reduces, "all": scored})
    return 0


if __name__ == "__main__":
    sys.exit(main())
