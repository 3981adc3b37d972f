"""Run Open MPI on emulated hosts: a script that enters a host by its address replaces ssh."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from support.emulated.hosts import Hosts

__all__ = ["ALGORITHMS", "mpirun", "no_mpi"]

ALGORITHMS = {"doubling": 3, "ring": 4, "halving_doubling": 6}
"""What Open MPI's tuned component calls 3 recursive doubling, 4 ring, 6 Rabenseifner
(``ompi_info --param coll tuned --level 5``, Open MPI 4.1.4)."""

AGENT = """\
#!/bin/sh
# mpirun gives options, an address and a command, which may hold several words.
while [ "${1#-}" != "$1" ]; do shift; done
host=$(( ${1##*.} - 1 ))
shift
exec %s "$*"
"""

PARAMETERS = {
    "plm": "rsh",
    "pml": "ob1",
    "btl": "tcp,self",
    "btl_tcp_if_include": "eth0",
    "oob_tcp_if_include": "eth0",
    "mpi_yield_when_idle": "1",
    "btl_tcp_flags": "1",
    "btl_tcp_sndbuf": "262144",
    "btl_tcp_rcvbuf": "262144",
}
"""Messages go by TCP through eth0, and who waits leaves the CPU to the others. Flags 1: long
messages are sent, not fetched piece by piece; the requests for pieces wait behind the data that
goes the other way, and two hosts that exchange 16 MiB get half of each direction (285 ms, not 147).
Short buffers keep the queue of the shaped link short."""

PRIORITY = ("chrt", "--other", "0", "nice", "-n", "-10") if shutil.which("chrt") else ()
"""Open MPI's ranks poll: in real time, several on a core keep the kernel from handling packets, and
as equals of what else runs they wait for it."""


def no_mpi() -> str:
    """Return why Open MPI cannot run here, or ''."""
    if shutil.which("mpirun") is None:
        return "needs Open MPI (apt-get install openmpi-bin)"
    if find_spec("mpi4py") is None:
        return "needs mpi4py (pip install mpi4py)"
    return ""


def mpirun(
    hosts: Hosts, arguments: Sequence[str], algorithm: str = "", seconds: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS`` on every host under mpirun, which itself runs on the first.

    Parameters
    ----------
    hosts : made and up
    arguments : of Python
    algorithm : of all-reduce, forced; "" leaves the choice to Open MPI
    seconds : after which it is killed
    """
    agent = hosts.work / "agent.sh"
    agent.write_text(AGENT % _enter(hosts))
    agent.chmod(0o755)
    parameters = {**PARAMETERS, "plm_rsh_agent": str(agent)}
    if algorithm:
        parameters["coll_tuned_use_dynamic_rules"] = "1"
        parameters["coll_tuned_allreduce_algorithm"] = str(ALGORITHMS[algorithm])
    hosts_list = ",".join(f"{hosts.address(host)}:1" for host in range(hosts.count))
    command = ["mpirun", "--allow-run-as-root", "-np", str(hosts.count), "-H", hosts_list]
    for name, value in parameters.items():
        command += ["--mca", name, value]
    return subprocess.run(
        hosts.inside(0, [*command, *PRIORITY, sys.executable, *arguments]),
        cwd=hosts.work,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )


def _enter(hosts: Hosts) -> str:
    """Return the shell's words that enter ``$host`` under its own name."""
    named = 'hostname "host$0" && exec sh -c "$1"'
    return f"ip netns exec {hosts.name}-$host unshare --uts sh -c '{named}' $host"
