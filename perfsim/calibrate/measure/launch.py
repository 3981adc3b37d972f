"""Who this process is in a job: rank and world size as torchrun, srun or mpirun tell them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from perfsim.errors import RequestError, shown

__all__ = ["Launch", "find_launch", "first_host"]


LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "mpirun": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "mpiexec": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "srun": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}
"""Variables for rank, world size, rank on the node, ranks of the node. torchrun: PyTorch's elastic
run page; mpirun: Open MPI's mpirun manual page; mpiexec: MPICH's Hydra and Intel MPI; srun: the
srun manual page. The first launcher whose first two are set is it: srun comes last, since the
others may run in an allocation of Slurm, whose own variables then tell of their helpers."""

LOCAL = tuple(names[2] for names in LAUNCHERS.values())
"""Where a launcher leaves out the rank on the node (srun --mpi=pmi2), another may tell it."""

PORT = 29500
"""PyTorch's own default of MASTER_PORT (torch/distributed/run.py)."""
JOBS = 1000
"""Under srun a job takes one of so many ports, by its number: jobs may share a node."""

HOST = re.compile(r"(?P<head>[^,\[]+)(\[(?P<number>\d+)[^\]]*\](?P<tail>[^,\[]*))?")


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a job.

    Parameters
    ----------
    launcher : torchrun, mpirun, mpiexec, srun
    rank, world_size : of all processes
    local_rank : among the processes of this node, 0 where not told
    address, port : where rank 0 is met; the address is "" where nothing tells it
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int

    def meeting_place(self) -> tuple[str, int]:
        """Return address and port.

        Raises
        ------
        RequestError
            If nothing says where rank 0 is.
        """
        if not self.address:
            raise RequestError(
                f"MASTER_ADDR: not set, and {self.launcher} does not tell where rank 0 runs;"
                " export MASTER_ADDR=HOST to all ranks, the address of rank 0's node."
            )
        return self.address, self.port


def find_launch(environ: Mapping[str, str]) -> Launch:
    """Return who this process is, from the variables that launchers set.

    Raises
    ------
    RequestError
        If no launcher shows, a variable is no number, or the ranks do not fit.

    Examples
    --------
    >>> told = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"}
    >>> find_launch(told)
    Launch(launcher='torchrun', rank=3, world_size=8, local_rank=0, address='10.0.0.1', port=29500)
    """
    found = [
        (launcher, names)
        for launcher, names in LAUNCHERS.items()
        if environ.get(names[0]) and environ.get(names[1])
    ]
    if not found:
        raise RequestError(
            "calibrate network: this process is not part of a job of several; start it as torchrun"
            " --nnodes N --nproc-per-node G -m perfsim calibrate network ..., or under srun or"
            " mpirun."
        )
    launcher, names = found[0]
    rank, world_size = (_count(environ, name) for name in names[:2])
    local = next((name for name in (names[2], *LOCAL) if environ.get(name)), None)
    local_rank = 0 if local is None else _count(environ, local)
    if not rank < world_size:
        raise RequestError(f"{names[0]}: rank {rank} of {world_size}; ranks count from 0.")
    if world_size < 2:
        raise RequestError(
            f"{names[1]}: one process has nobody to talk to; start at least 2 ({launcher})."
        )
    address = environ.get("MASTER_ADDR", "")
    if not address and environ.get(names[3]) == environ[names[1]]:
        address = "127.0.0.1"
    if not address and launcher == "srun":
        nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_NODELIST", "")
        address = first_host(nodes)
    return Launch(launcher, rank, world_size, local_rank, address, _port(environ, launcher))


def first_host(nodes: str) -> str:
    """Return the first of Slurm's list of nodes, where rank 0 of a step runs; "" of none.

    Examples
    --------
    >>> first_host("gpu[007-010,12],login1")
    'gpu007'
    >>> first_host("a1,a2")
    'a1'
    """
    found = HOST.match(nodes)
    if found is None:
        return ""
    return f"{found['head']}{found['number'] or ''}{found['tail'] or ''}"


def _port(environ: Mapping[str, str], launcher: str) -> int:
    if environ.get("MASTER_PORT"):
        return _count(environ, "MASTER_PORT")
    if launcher == "srun" and environ.get("SLURM_JOB_ID"):
        return PORT + _count(environ, "SLURM_JOB_ID") % JOBS
    return PORT


def _count(environ: Mapping[str, str], name: str) -> int:
    try:
        count = int(environ[name])
    except ValueError:
        count = -1
    if count < 0:
        raise RequestError(f"{name}: {shown(environ[name])} is no whole number from 0 on.")
    return count
