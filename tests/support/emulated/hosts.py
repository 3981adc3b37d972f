"""An emulated cluster: hosts are network namespaces on one bridge, with shaped links.

Every host has a name, a network and one interface of its own; its link to the bridge carries
``rate`` either way (tc tbf on both ends) and nothing else reaches it: addresses come from
198.18.0.0/24, the range for benchmarks (RFC 2544), and no route leaves it. TCP is Reno on every
machine, whatever its default: bandwidth estimates of BBR fall in two groups a factor 2 apart here.

Hosts that compute may each be pinned to a core, where they come before all other work, and hosts
may stand in sites: a bridge each, joined by links of their own rate, and of a delay and losses
where those are asked for (`far_link`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.paths import ROOT

__all__ = ["Hosts", "Job", "bit_rate", "why_not"]

QUEUE_MS = 400
"""Length of a link's queue, enough to lose nothing: a lost packet costs TCP 200 ms."""

FAR_LINK = Path(__file__).resolve().with_name("far_link.py")
FAR_QUEUE_FRAMES = "20000"
"""Frames that wait for a far link's process while another one has the core."""

CPU_GROUPS = Path("/sys/fs/cgroup")
"""Where the controller of CPU time is, of control groups v1 (below cpu) or v2."""
_MOST_SHARES, _MOST_WEIGHT = "262144", "10000"
"""The largest share that a control group can have, in v1 and v2: 256 and 100 times the usual."""


def why_not() -> str:
    """Return why hosts cannot be made here, or ''."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    for tool in ("ip", "tc", "unshare"):
        if shutil.which(tool) is None:
            return f"needs the command {tool} (apt-get install iproute2 util-linux)"
    name = f"pfs-try{os.getpid()}"
    tried = _tried("ip", "netns", "add", name)
    if tried.returncode:
        return f"no network namespaces here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


def _cpu_groups() -> Path | None:
    """Return the folder in which control groups with a share of CPU time can be made, if any."""
    first = CPU_GROUPS / "cpu"
    if (first / "cpu.shares").exists():
        return first
    offered = CPU_GROUPS / "cgroup.subtree_control"
    return CPU_GROUPS if offered.exists() and "cpu" in offered.read_text().split() else None


@dataclass
class Job:
    """Processes of one command, one a rank, and where their output went."""

    processes: list[subprocess.Popen[bytes]]
    outputs: list[Path]

    def wait(self, seconds: float) -> list[int]:
        """Wait for all; kill what is left when time is up (then -9 is among the codes)."""
        end = time.monotonic() + seconds
        try:
            for process in self.processes:
                process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
        return [process.wait() for process in self.processes]

    def kill(self, rank: int | None = None) -> None:
        """Kill one rank at once, or all."""
        for process in self.processes if rank is None else [self.processes[rank]]:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)

    def text(self, rank: int = 0) -> str:
        """Return what a rank has written to both outputs."""
        return self.outputs[rank].read_text(encoding="utf-8", errors="replace")


@dataclass
class Hosts:
    """So many hosts on one switch, or on one switch a site.

    Parameters
    ----------
    count : hosts
    rate : of every link, as tc writes it ("1gbit"); "" is not shaped
    burst_kb : what a link lets through at once [kB of 1024 B]
    work : folder for the output of jobs
    pinned : each host's processes run on one core, before all other work there; else on any core in
        real time, which keeps other work from stretching small messages but halts a host's own
        communication while it computes
    sites : sites of as many hosts each, joined in a row; hosts of a site share its name
    between : rate of the link between two sites
    delay : one-way delay of that link ("20ms"); "" is none, and a link that tc shapes
    loss : share of frames that it loses either way ("0.1%"); "" is none
    mtu : of every device [B]: large frames spare a far link's process work, losses want 1500
    reorder : share of that link's frames that come later than those after them ("5%")
    first_name : number of the first host's name: 2 makes host2, host3, ...
    ahead : processes that are not pinned come before all other work
    """

    count: int
    rate: str
    work: Path
    burst_kb: int = 128
    pinned: bool = False
    sites: int = 1
    between: str = ""
    delay: str = ""
    loss: str = ""
    mtu: int = 1500
    reorder: str = ""
    first_name: int = 0
    ahead: bool = True
    name: str = field(default_factory=lambda: f"pfs{os.getpid()}")

    def __enter__(self) -> Hosts:
        """Make the hosts."""
        switch = f"{self.name}-sw"
        self.links: list[subprocess.Popen[str]] = []
        self.carried: list[dict[str, Any]] = []
        try:
            _ip("netns", "add", switch)
            for site in range(self.sites):
                bridge = f"br{site}"
                _ip("-n", switch, "link", "add", bridge, "type", "bridge", "forward_delay", "0")
                _ip("-n", switch, "link", "set", bridge, *self._size, "up")
                if site:
                    self._join(switch, site)
            for host in range(self.count):
                self._add(host, switch)
                if self.pinned:
                    self._make_group(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Take them away, with whatever still runs in them; ``carried`` says what far links did."""
        for link in self.links:
            link.terminate()
            said, _ = link.communicate(timeout=10)
            if said.startswith("{"):
                self.carried.append(json.loads(said))
        for space in (*map(self.space, range(self.count)), f"{self.name}-sw"):
            if not Path("/var/run/netns", space).exists():
                continue
            left = _tried("ip", "netns", "pids", space)
            for pid in left.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], check=False)
        for host in range(self.count):
            group = self._group(host)
            if group is not None and group.exists():
                self._empty(group)

    def space(self, host: int) -> str:
        """Return the namespace of a host."""
        return f"{self.name}-{host}"

    def address(self, host: int) -> str:
        """Return the address of a host."""
        return f"198.18.0.{host + 1}"

    def reshape(self, rate: str, only: int | None = None) -> None:
        """Give every link another rate, or that of one host alone."""
        if only is None:
            self.rate = rate
        for host in range(self.count) if only is None else (only,):
            self._shape(self.space(host), "eth0", rate)
            self._shape(f"{self.name}-sw", f"p{host}", rate)

    def run(
        self,
        arguments: Sequence[str],
        *,
        ranks_per_host: int = 1,
        environ: Mapping[str, str] | None = None,
        per_rank: Mapping[int, Mapping[str, str]] | None = None,
        label: str = "job",
        own_folders: bool = False,
    ) -> Job:
        """Start ``python ARGUMENTS`` on every host, as torchrun would set the variables.

        ``own_folders`` runs each rank in a folder of its own, rank0, rank1, ...
        """
        world = self.count * ranks_per_host
        job = Job([], [])
        for rank in range(world):
            host, local = divmod(rank, ranks_per_host)
            variables = {
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_RANK": str(local),
                "MASTER_ADDR": self.address(0),
                "MASTER_PORT": "29511",
                "GLOO_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "1",
                **(environ or {}),
                **(per_rank or {}).get(rank, {}),
            }
            output = self.work / f"{label}.{rank}.log"
            folder = self.work / f"rank{rank}" if own_folders else self.work
            folder.mkdir(exist_ok=True)
            job.outputs.append(output)
            with output.open("wb") as out:
                job.processes.append(
                    subprocess.Popen(
                        self.inside(host, [sys.executable, *arguments]),
                        env={**os.environ, **variables},
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                        cwd=folder,
                    )
                )
        return job

    def inside(self, host: int, command: Sequence[str]) -> list[str]:
        """Return a command as run on a host, under the host's (or site's) own name."""
        entered = ["ip", "netns", "exec", self.space(host), "unshare", "--uts", "sh", "-c"]
        number = host + self.first_name
        name = f"host{number}" if self.sites == 1 else f"site{self.site(host)}"
        named = [*entered, 'hostname "$0" && exec "$@"', name]
        if not self.pinned:
            priority = ["chrt", "-r", "10"] if self.ahead and shutil.which("chrt") else []
            return [*named, *priority, *command]
        core = str(host % (os.cpu_count() or 1))
        pinned = [*named, "taskset", "-c", core, *command]
        group = self._group(host)
        # Before the network's namespace, which has a view of /sys of its own.
        joins = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', f"{group}/cgroup.procs"]
        return pinned if group is None else [*joins, *pinned]

    def site(self, host: int) -> int:
        """Return the site of a host, counted from 0."""
        return host // (self.count // self.sites)

    @property
    def _size(self) -> tuple[str, str]:
        return "mtu", str(self.mtu)

    def _group(self, host: int) -> Path | None:
        groups = _cpu_groups()
        return None if groups is None else groups / self.space(host)

    def _make_group(self, host: int) -> None:
        """Make a host's control group, whose processes come before others, where there can be one.

        A process's own priority does not do so: sessions share a core alike (sched(7), autogroup).
        """
        group = self._group(host)
        if group is None:
            return
        group.mkdir()
        first = (group / "cpu.shares", _MOST_SHARES), (group / "cpu.weight", _MOST_WEIGHT)
        for file, share in first:
            if file.exists():
                file.write_text(share)

    def _empty(self, group: Path) -> None:
        """Remove a control group once the processes that were killed have gone."""
        for _ in range(100):
            try:
                group.rmdir()
                return
            except OSError:
                time.sleep(0.02)

    def _join(self, switch: str, site: int) -> None:
        """Join a site's bridge to the one before it, by a link of the rate between sites."""
        ends, far = (f"w{site}a", f"w{site}b"), bool(self.delay or self.loss or self.reorder)
        if far:
            for end in ends:
                _ip("-n", switch, "tuntap", "add", "dev", end, "mode", "tap")
        else:
            _ip("-n", switch, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for end, bridge in zip(ends, (f"br{site - 1}", f"br{site}"), strict=True):
            _ip("-n", switch, "link", "set", end, "master", bridge)
            _ip("-n", switch, "link", "set", end, *self._size, "txqueuelen", FAR_QUEUE_FRAMES, "up")
            if not far:
                self._shape(switch, end, self.between)
        if far:
            self._carry(switch, site, ends)

    def _carry(self, switch: str, site: int, ends: tuple[str, str]) -> None:
        """Start what carries frames between two devices, before all other work on any core."""
        priority = ["chrt", "-r", "20"] if shutil.which("chrt") else []
        asked = [*ends, bit_rate(self.between), self.delay or "0ms", self.loss or "0", str(site)]
        asked += [self.reorder] if self.reorder else []
        link = subprocess.Popen(
            ["ip", "netns", "exec", switch, *priority, sys.executable, str(FAR_LINK), *asked],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.links.append(link)
        assert link.stdout is not None
        if link.stdout.readline() != "ready\n":
            raise RuntimeError(f"the far link of site {site} did not start")

    def _add(self, host: int, switch: str) -> None:
        space, port = self.space(host), f"p{host}"
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        _ip(
            "-n",
            switch,
            "link",
            "add",
            port,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            space,
        )
        _ip("-n", switch, "link", "set", port, "master", f"br{self.site(host)}")
        _ip("-n", switch, "link", "set", port, *self._size, "up")
        _ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", *self._size, "up")
        _ip("netns", "exec", space, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
        self._shape(space, "eth0", self.rate)
        self._shape(switch, port, self.rate)

    def _shape(self, space: str, device: str, rate: str) -> None:
        if not rate:
            return
        burst, queue = f"{self.burst_kb}kb", f"{QUEUE_MS}ms"
        shaped = ("tbf", "rate", rate, "burst", burst, "latency", queue)
        _ip("netns", "exec", space, "tc", "qdisc", "replace", "dev", device, "root", *shaped)


def bit_rate(text: str) -> str:
    """Return a rate of tc as perfsim reads it.

    Examples
    --------
    >>> bit_rate("50mbit")
    '50Mbit/s'
    """
    number, prefix = text.removesuffix("bit")[:-1], text.removesuffix("bit")[-1]
    return f"{number}{prefix.upper() if prefix in 'mg' else prefix}bit/s"


def _ip(*arguments: str) -> None:
    done = _tried("ip", *arguments)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _tried(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)
