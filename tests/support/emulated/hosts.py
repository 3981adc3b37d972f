"""An emulated cluster: hosts are network namespaces on one bridge, with shaped links.

Every host has a name, a network and one interface of its own; its link to the bridge carries
``rate`` either way (tc tbf on both ends) and nothing else reaches it: addresses come from
198.18.0.0/24, the range for benchmarks (RFC 2544), and no route leaves it. TCP is Reno on every
machine, whatever its default: bandwidth estimates of BBR fall in two groups a factor 2 apart here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Hosts", "Job", "why_not"]

QUEUE_MS = 400
"""Length of a link's queue, enough to lose nothing: a lost packet costs TCP 200 ms."""


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
    """So many hosts on one switch.

    Parameters
    ----------
    count : hosts
    rate : of every link, as tc writes it ("1gbit"); "" is not shaped
    burst_kb : what a link lets through at once [kB of 1024 B]
    work : folder for the output of jobs
    """

    count: int
    rate: str
    work: Path
    burst_kb: int = 128
    name: str = field(default_factory=lambda: f"pfs{os.getpid()}")

    def __enter__(self) -> Hosts:
        """Make the hosts."""
        switch = f"{self.name}-sw"
        try:
            _ip("netns", "add", switch)
            _ip("-n", switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0")
            _ip("-n", switch, "link", "set", "br0", "up")
            for host in range(self.count):
                self._add(host, switch)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Take them away, with whatever still runs in them."""
        for space in (*map(self.space, range(self.count)), f"{self.name}-sw"):
            if not Path("/var/run/netns", space).exists():
                continue
            left = _tried("ip", "netns", "pids", space)
            for pid in left.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], check=False)

    def space(self, host: int) -> str:
        """Return the namespace of a host."""
        return f"{self.name}-{host}"

    def address(self, host: int) -> str:
        """Return the address of a host."""
        return f"198.18.0.{host + 1}"

    def reshape(self, rate: str) -> None:
        """Give every link another rate."""
        self.rate = rate
        for host in range(self.count):
            self._shape(self.space(host), "eth0")
            self._shape(f"{self.name}-sw", f"p{host}")

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
        """Return a command as run on a host, under the host's own name and in real time.

        Real-time order keeps other work of the machine from stretching small messages.
        """
        entered = ["ip", "netns", "exec", self.space(host), "unshare", "--uts", "sh", "-c"]
        priority = ["chrt", "-r", "10"] if shutil.which("chrt") else []
        return [*entered, 'hostname "$0" && exec "$@"', f"host{host}", *priority, *command]

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
        _ip("-n", switch, "link", "set", port, "master", "br0")
        _ip("-n", switch, "link", "set", port, "up")
        _ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("netns", "exec", space, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
        self._shape(space, "eth0")
        self._shape(switch, port)

    def _shape(self, space: str, device: str) -> None:
        if not self.rate:
            return
        burst, queue = f"{self.burst_kb}kb", f"{QUEUE_MS}ms"
        shaped = ("tbf", "rate", self.rate, "burst", burst, "latency", queue)
        _ip("netns", "exec", space, "tc", "qdisc", "replace", "dev", device, "root", *shaped)


def _ip(*arguments: str) -> None:
    done = _tried("ip", *arguments)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _tried(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True)
