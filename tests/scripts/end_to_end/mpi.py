"""Compare Open MPI's all-reduces on emulated hosts with predictions from other hosts or algorithms.

``python tests/scripts/end_to_end/mpi.py [HOSTS [RATE [SIZE]]]`` forces ring, recursive doubling and
Rabenseifner in turn on 2, 4, ... HOSTS hosts (4) with links of RATE (1gbit), messages to SIZE
(16MiB), and prints two tables: every algorithm on all hosts predicted from what it and the ring
took on fewer, and from what the ring took on as many. Ranks of Open MPI poll: on two cores 8 of
them keep up with 100 Mbit/s, not with 1 Gbit/s.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from perfsim.calibrate.write_network import make_network
from perfsim.data.catalog import Catalog
from perfsim.network.cluster import load_network, make_cluster, read_network
from perfsim.network.measured import CollectiveCurve
from perfsim.units import format_bytes, format_seconds
from support.emulated.hosts import Hosts, why_not
from support.emulated.mpirun import ALGORITHMS, mpirun, no_mpi

__all__ = ["Beside", "beside", "measure", "table"]

MAX_MESSAGE = "16MiB"
LARGE_BYTES = 2**20
"""Messages from here on are summarised on their own. No source: chosen."""


@dataclass(frozen=True)
class Beside:
    """A measured time beside a predicted one [s]; ``spread`` of the curve's repeats."""

    algorithm: str
    hosts: int
    size_bytes: float
    measured_s: float
    predicted_s: float
    spread: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_s / self.measured_s - 1


def measure(
    hosts: Hosts, algorithm: str, most: str = MAX_MESSAGE, budget: str = "40s"
) -> dict[int, CollectiveCurve]:
    """Return the all-reduce's curve of each number of hosts, as ``calibrate network`` measures."""
    out = f"{algorithm.replace('_', '-')}.toml"
    asked = ["calibrate", "network", "--backend", "mpi", "--out", out, "--max-size", most]
    # Send_recv tells the link's rate, which a network file must have; doubling alone does not.
    asked += ["--collectives", "all_reduce,send_recv"]
    done = mpirun(hosts, ["-m", "perfsim", *asked, "--budget", budget], algorithm)
    if done.returncode:
        raise RuntimeError(f"mpirun: {done.stderr.strip()}")
    known = read_network(hosts.work / out).known
    assert known is not None
    return {curve.ranks: curve for curve in known.curves if curve.algorithm == algorithm}


def beside(
    fitted: Sequence[CollectiveCurve], held_out: CollectiveCurve, work: Path
) -> list[Beside]:
    """Predict a curve's points by a network fitted to other curves."""
    made = make_network(list(fitted), "held", folder=work, transport="tcp", force=True)
    network = load_network(str(made.network), Catalog(), "net")
    intra = load_network("pcie3", Catalog(), "intra_net")
    cluster = make_cluster(held_out.ranks, 1, None, network, intra, "mpi")
    return [
        Beside(
            held_out.algorithm,
            held_out.ranks,
            size,
            seconds,
            cluster.cost("all_reduce", size, held_out.algorithm).seconds,
            held_out.spread or 0.0,
        )
        for size, seconds in zip(held_out.size_bytes, held_out.seconds, strict=True)
    ]


def table(rows: Sequence[Beside]) -> str:
    """Return rows and, for each algorithm, the errors' mean, median and worst."""
    lines = ["algorithm         hosts  size       measured   predicted  error"]
    for row in rows:
        size, measured, predicted = (
            format_bytes(row.size_bytes),
            format_seconds(row.measured_s),
            format_seconds(row.predicted_s),
        )
        lines.append(
            f"{row.algorithm:17} {row.hosts:5}  {size:10} {measured:10} {predicted:10}"
            f" {row.error:+6.1%}"
        )
    for algorithm, hosts in dict.fromkeys((row.algorithm, row.hosts) for row in rows):
        group = [row for row in rows if (row.algorithm, row.hosts) == (algorithm, hosts)]
        errors = [abs(row.error) for row in group]
        large = [abs(row.error) for row in group if row.size_bytes >= LARGE_BYTES]
        words = f"; from 1 MiB on mean {mean(large):.1%}, worst {max(large):.1%}" if large else ""
        lines.append(
            f"{algorithm} on {hosts}: |error| mean {mean(errors):.1%}, median"
            f" {median(errors):.1%}, worst"
            f" {max(errors):.1%}{words}; repeats within {group[0].spread:.1%}"
        )
    return "\n".join(lines)


def main(count: int = 4, rate: str = "1gbit", most: str = MAX_MESSAGE) -> None:
    """Measure and print."""
    reason = why_not() or no_mpi()
    if reason:
        sys.exit(f"{sys.argv[0]}: {reason}")
    with TemporaryDirectory() as folder:
        work = Path(folder)
        with Hosts(count, rate, work) as hosts:
            curves = {name: measure(hosts, name, most) for name in ALGORITHMS}
        print(f"{curves['ring'][count].version}, hosts at {rate}\n")
        print("From the same algorithm and the ring on fewer hosts:")
        ring = [curve for ranks, curve in curves["ring"].items() if ranks < count]
        rows = []
        for name, by_ranks in curves.items():
            fewer = [curve for ranks, curve in by_ranks.items() if ranks < count]
            others = fewer if name != "ring" else []
            rows.append(beside([*ring, *others], by_ranks[count], work))
        print(table([row for group in rows for row in group]))
        print(f"\nFrom the ring on {count} hosts:")
        others = [by_ranks[count] for name, by_ranks in curves.items() if name != "ring"]
        rows = [beside([curves["ring"][count]], curve, work) for curve in others]
        print(table([row for group in rows for row in group]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
