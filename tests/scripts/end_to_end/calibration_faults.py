"""Calibrate emulated networks that have a fault, and print what perfsim says of each.

    sudo python tests/scripts/end_to_end/calibration_faults.py [--only WORD] [--checkout DIR]

Each case runs `perfsim calibrate network` (gloo or Open MPI, one rank a host) on hosts in network
namespaces, and `perfsim predict` on the file that it wrote. A case without a fault must be silent.
`calibration_faults.txt` holds what was found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from perfsim.network.measured import read_curves
from perfsim.units import format_bytes, format_seconds
from support.emulated.hosts import Hosts, Job, why_not
from support.emulated.mpirun import mpirun, no_mpi

FAST, SLOW = "200mbit", "20mbit"
POINTS = 13
"""Sizes of a sweep from 1 KiB to 4 MiB."""
PATIENCE_S = 240
SWEEP = (
    *("--out", "ours.toml", "--backend", "gloo", "--collectives", "all_reduce", "--max", "4MiB"),
    *("--tolerance", "0.01%", "--budget"),
)
"""No point gets so tight: each takes its share of the time, during which a fault can come."""
BUDGET, MPI_BUDGET = "8s", "16s"
PATCHED = """\
import os, sys, time
skew = float(os.environ.pop("SKEW_S", "0"))
if skew:
    os.environ["WALL_S"] = str(skew)
    clocks = ["unshare", "--time", "--fork", f"--monotonic={skew:.0f}", f"--boottime={skew:.0f}"]
    os.execvp("unshare", [*clocks, sys.executable, *sys.argv])
wall, now = float(os.environ.get("WALL_S", "0")), time.time
time.time = lambda: now() + wall
import perfsim
perfsim.__version__ = os.environ.get("PERFSIM_IS", perfsim.__version__)
if "TORCH_IS" in os.environ:
    import torch
    torch.__version__ = os.environ["TORCH_IS"]
from perfsim.cli.main import run
run()
"""
"""Runs perfsim as if this host's clocks were wrong or its versions others."""


@dataclass
class Bench:
    """A folder, and the runs of perfsim in it."""

    folder: Path
    checkout: Path | None
    said: list[str] = field(default_factory=list)

    def start(self, hosts: Hosts, *more: str, per_rank: Any = None, label: str = "job") -> Job:
        """Start a sweep on hosts."""
        (self.folder / "patched.py").write_text(PATCHED)
        command = ["patched.py", "calibrate", "network", *SWEEP, BUDGET, *more]
        return hosts.run(command, environ=self.environ(), per_rank=per_rank, label=label)

    def environ(self) -> dict[str, str]:
        """Return the variables by which a checkout's own perfsim is run."""
        return {"PYTHONPATH": str(self.checkout)} if self.checkout else {}

    def points(self) -> int:
        """Return how many points the sweep has kept."""
        part = self.folder / "ours.part"
        lines = part.read_text().split("\n")[1:-1] if part.exists() else []
        found = (json.loads(line) for line in lines)
        return len({one["size_bytes"] for one in found if "size_bytes" in one})

    def wait_for_points(self, job: Job, count: int) -> None:
        """Wait until a sweep has kept so many points."""
        end = time.monotonic() + PATIENCE_S
        while self.points() < count and job.processes[0].poll() is None:
            if time.monotonic() > end:
                raise SystemExit(f"calibration_faults: no {count} points: {job.text()[-500:]}")
            time.sleep(0.02)

    def end(self, job: Job) -> None:
        """Wait for a sweep and note what it said, and what predict says of its file."""
        self.tell(len(job.processes), job.wait(PATIENCE_S), said_by(job))

    def tell(self, ranks: int, codes: Sequence[int | None], warned: Sequence[str]) -> None:
        """Note how a sweep of some ranks ended, what it said, and what predict says of its file."""
        written = (self.folder / "ours.toml").exists()
        ends = f"file written, {self.largest()}" if written else "no file"
        self.said.append(f"ends with {codes}; {ends}")
        self.said += [f"says: {line}" for line in warned]
        if written:
            self.predict(ranks)

    def largest(self) -> str:
        """Return the time of the largest message in the file that was written, in words."""
        last = max(
            read_curves(self.folder / "ours.curves.csv"),
            key=lambda curve: curve.ranks,
        )
        return f"{format_bytes(last.size_bytes[-1])} in {format_seconds(last.seconds[-1])}"

    def predict(self, gpus: int) -> None:
        """Note the warnings of a prediction on the network that was written."""
        asked = ["--model", "resnet50", "--gpus", str(gpus), "--net", "ours.toml", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "perfsim", "predict", *asked],
            cwd=self.folder,
            env={**os.environ, **self.environ()},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            self.said.append(f"predict ends with {done.returncode}: {done.stderr.strip()}")
            return
        notes = json.loads(done.stdout)["notes"]
        found = [note for note in notes if "when it was calibrated:" in note]
        self.said += [f"predict warns: {note}" for note in found] or ["predict warns of nothing"]


def said_by(job: Job, rank: int = 0) -> list[str]:
    """Return what perfsim said on a rank, without its lines of progress."""
    return told(job.text(rank))


def told(text: str) -> list[str]:
    """Return what perfsim said in a text, without its lines of progress."""
    lines = re.findall(r"^perfsim: (.*)", text, re.MULTILINE)
    return [line for line in lines if not re.match(r"\d+ of \d+: ", line)]


def steady(bench: Bench, rate: str = FAST, **options: Any) -> None:
    """Nothing happens."""
    with Hosts(options.pop("count", 2), rate, bench.folder, **options) as hosts:
        bench.end(bench.start(hosts))


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep all cores of this machine busy."""
    spin = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def steady_but_busy(bench: Bench) -> None:
    """Nothing happens, but all cores are busy with other work."""
    with busy_cores():
        steady(bench, ahead=False)


def changed_rate(bench: Bench, before: str, after: str, points: int) -> None:
    """The rate of all links changes during the sweep."""
    with Hosts(2, before, bench.folder) as hosts:
        job = bench.start(hosts)
        bench.wait_for_points(job, points)
        hosts.reshape(after)
        bench.end(job)


def drifting_rate(bench: Bench) -> None:
    """The rate of all links falls by a twentieth at a time, by a fifth in the end."""
    with Hosts(2, FAST, bench.folder) as hosts:
        job = bench.start(hosts)
        for points, rate in ((3, "190mbit"), (6, "180mbit"), (9, "170mbit"), (12, "160mbit")):
            bench.wait_for_points(job, points)
            hosts.reshape(rate)
        bench.end(job)


def slow_host(bench: Bench) -> None:
    """One host of four has a link a tenth as fast."""
    with Hosts(4, FAST, bench.folder) as hosts:
        hosts.reshape(SLOW, only=2)
        bench.end(bench.start(hosts))


def over_mpi(bench: Bench, slow: int | None = None) -> None:
    """Open MPI carries the messages of four hosts, of which one may be slow."""
    sweep = [{"gloo": "mpi"}.get(word, word) for word in SWEEP]
    sweep[sweep.index("all_reduce")] += ",send_recv"  # the rate of a link, which a file must have
    with Hosts(4, FAST, bench.folder) as hosts:
        if slow is not None:
            hosts.reshape(SLOW, only=slow)
        done = mpirun(hosts, ["-m", "perfsim", "calibrate", "network", *sweep, MPI_BUDGET])
        bench.tell(hosts.count, [done.returncode], told(done.stderr))


def resumed(bench: Bench, rate: str, first_name: int = 0) -> None:
    """A sweep is killed after 8 points and gone on with."""
    with Hosts(2, FAST, bench.folder) as hosts:
        job = bench.start(hosts)
        bench.wait_for_points(job, 8)
        job.kill()
        job.wait(10)
    with Hosts(2, rate, bench.folder, first_name=first_name) as hosts:
        bench.end(bench.start(hosts, label="again"))


def far(bench: Bench, **fault: str) -> None:
    """Frames are lost or overtake others on a link between two sites."""
    link = {"sites": 2, "between": FAST, "delay": "1ms"}
    with Hosts(2, "", bench.folder, **link, **fault) as hosts:
        bench.end(bench.start(hosts))


@contextmanager
def again_and_again(*acts: tuple[float, Callable[[], None]]) -> Iterator[None]:
    """Do things in turn beside what else is done, each followed by its pause [s]."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            for pause_s, act in acts:
                act()
                over.wait(pause_s)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def flapping_rate(bench: Bench) -> None:
    """The rate of all links goes down and up twice a second."""
    with Hosts(2, FAST, bench.folder) as hosts:
        job = bench.start(hosts)
        bench.wait_for_points(job, 1)
        acts = (0.25, lambda: hosts.reshape(SLOW)), (0.25, lambda: hosts.reshape(FAST))
        with again_and_again(*acts):
            bench.end(job)


def flapping_link(bench: Bench) -> None:
    """A link is down for 0.1 s in each 1.5 s."""
    with Hosts(2, FAST, bench.folder) as hosts:
        switch = ["ip", "-n", f"{hosts.name}-sw", "link", "set", "p1"]

        def put(state: str) -> None:
            subprocess.run([*switch, state], check=False, capture_output=True)

        job = bench.start(hosts)
        bench.wait_for_points(job, 1)
        with again_and_again((0.1, lambda: put("down")), (1.4, lambda: put("up"))):
            bench.end(job)


def lost_rank(bench: Bench, how: signal.Signals) -> None:
    """A rank is killed or frozen after 4 points."""
    with Hosts(3, FAST, bench.folder) as hosts:
        job = bench.start(hosts)
        bench.wait_for_points(job, 4)
        job.processes[2].send_signal(how)
        begun = time.monotonic()
        for rank in (0, 1):
            try:
                job.processes[rank].wait(30)
            except subprocess.TimeoutExpired:
                bench.said.append(f"rank {rank} still runs after 30 s")
            ended_s = time.monotonic() - begun
            lines = " | ".join(said_by(job, rank))
            bench.said.append(f"rank {rank} ends after {ended_s:.1f} s: {lines}")
        job.kill()
        job.wait(5)


def skewed_clock(bench: Bench, skew_s: float) -> None:
    """One host's clocks, of the day and since boot, are ahead of the other's."""
    with Hosts(2, FAST, bench.folder) as hosts:
        bench.end(bench.start(hosts, per_rank={1: {"SKEW_S": str(skew_s)}}))


def mixed(bench: Bench, **versions: str) -> None:
    """One rank of two has another version."""
    with Hosts(2, FAST, bench.folder) as hosts:
        job = bench.start(hosts, per_rank={1: versions})
        bench.end(job)
        bench.said += [f"rank 1 says: {line}" for line in said_by(job, 1)]


CASES: dict[str, Callable[[Bench], None]] = {
    **{f"no fault, 200 Mbit/s ({run})": steady for run in (1, 2, 3)},
    **{f"no fault, 20 Mbit/s ({run})": lambda bench: steady(bench, SLOW) for run in (1, 2, 3)},
    **{f"no fault, 4 hosts ({run})": lambda bench: steady(bench, count=4) for run in (1, 2, 3)},
    **{f"no fault, cores busy ({run})": steady_but_busy for run in (1, 2, 3)},
    "no fault, resumed": lambda bench: resumed(bench, FAST),
    "no fault, far link of 1 ms": far,
    "200 to 20 Mbit/s after 4 of 13": lambda bench: changed_rate(bench, FAST, SLOW, 4),
    "200 to 20 Mbit/s after 10 of 13": lambda bench: changed_rate(bench, FAST, SLOW, 10),
    "20 to 200 Mbit/s after 4 of 13": lambda bench: changed_rate(bench, SLOW, FAST, 4),
    "20 to 200 Mbit/s after 10 of 13": lambda bench: changed_rate(bench, SLOW, FAST, 10),
    "200 to 140 Mbit/s after 4 of 13": lambda bench: changed_rate(bench, FAST, "140mbit", 4),
    "200 to 165 Mbit/s after 7 of 13": lambda bench: changed_rate(bench, FAST, "165mbit", 7),
    "200 to 160 Mbit/s in four steps": drifting_rate,
    "one host of 4 is 10 times slower": slow_host,
    "no fault, 4 hosts, Open MPI": over_mpi,
    "one host of 4 is 10 times slower, Open MPI": lambda bench: over_mpi(bench, slow=2),
    "resumed on other hosts": lambda bench: resumed(bench, FAST, first_name=2),
    "resumed at 20 instead of 200 Mbit/s": lambda bench: resumed(bench, SLOW),
    "1 % of frames lost": lambda bench: far(bench, loss="1%"),
    "5 % of frames lost": lambda bench: far(bench, loss="5%"),
    "5 % of frames overtaken": lambda bench: far(bench, reorder="5%"),
    "rate flaps, 200 and 20 Mbit/s": flapping_rate,
    "link down for 0.1 of each 1.5 s": flapping_link,
    "rank 2 killed": lambda bench: lost_rank(bench, signal.SIGKILL),
    "rank 2 frozen": lambda bench: lost_rank(bench, signal.SIGSTOP),
    "clocks of a host 1 h ahead": lambda bench: skewed_clock(bench, 3600.0),
    "another perfsim on rank 1": lambda bench: mixed(bench, PERFSIM_IS="0.0.1"),
    "another PyTorch on rank 1": lambda bench: mixed(bench, TORCH_IS="2.4.0"),
}


def table(name: str, said: Sequence[str]) -> str:
    """Return what was said in one case."""
    return "\n".join([name, *(f"    {line}" for line in said)])


def main() -> None:
    """Run the cases and print what was said."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="WORD", help="cases whose name holds this")
    parser.add_argument("--checkout", type=Path, help="run the perfsim of this folder instead")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        raise SystemExit(f"calibration_faults: {reason}")
    print(f"{date.today().isoformat()}, {os.cpu_count()} cores", flush=True)
    for name, run in CASES.items():
        if given.only and given.only not in name:
            continue
        if "MPI" in name and no_mpi():
            print(table(name, [no_mpi()]), flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="perfsim-faults-") as folder:
            bench = Bench(Path(folder), given.checkout)
            begun = time.monotonic()
            run(bench)
            print(table(f"{name} [{time.monotonic() - begun:.0f} s]", bench.said), flush=True)


if __name__ == "__main__":
    main()
