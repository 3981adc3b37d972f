"""Who this process is in a job: rank and world size as torchrun, srun or mpirun set them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from perfsim.errors import RequestError, shown

__all__ = ["LAUNCHERS", "Launch", "find_launch", "first_host"]

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
"""Variables for rank, world size, rank on the node, ranks of the node.

Sources: torchrun: PyTorch's elastic run page; mpirun: Open MPI's mpirun manual page; mpiexec:
MPICH's Hydra and Intel MPI; srun: the srun manual page. The first launcher whose first two
variables are set is taken. srun comes last: the others may run in an allocation of Slurm, whose
variables then describe their helper processes."""

LOCAL_RANK_VARIABLES = tuple(names[2] for names in LAUNCHERS.values())
"""If a launcher leaves out the rank on the node (srun --mpi=pmi2), another variable may say it."""

DEFAULT_PORT = 29500
"""PyTorch's own default of MASTER_PORT (torch/distributed/run.py)."""
SLURM_PORTS = 1000
"""Under srun the port follows from the job number, since jobs may share a node.
No source: chosen, wide enough that two jobs of a node rarely meet."""

_HOST_LIST = re.compile(r"(?P<head>[^,\[]+)(\[(?P<number>\d+)[^\]]*\](?P<tail>[^,\[]*))?")


@dataclass(frozen=True, slots=True)
class Launch:
    """One process of a job.

    Parameters
    ----------
    launcher : torchrun, mpirun, mpiexec, srun
    rank, world_size : of all processes
    local_rank : among the processes of this node, 0 where no variable says it
    address, port : where rank 0 serves the store; the address is "" where no variable says it
    """

    launcher: str
    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int

    def rendezvous(self) -> tuple[str, int]:
        """Return address and port of rank 0's store.

        Raises
        ------
        RequestError
            If nothing says where rank 0 is.
        """
        if not self.address:
            raise RequestError(
                "",
                f"not set, and {self.launcher} does not tell where rank 0 runs;"
                " export MASTER_ADDR=HOST to all ranks, the address of rank 0's node.",
                source="MASTER_ADDR",
            )
        return self.address, self.port


def find_launch(environ: Mapping[str, str]) -> Launch:
    """Return who this process is, from the variables that launchers set.

    Raises
    ------
    RequestError
        If no launcher's variables are set, one is no number, or the ranks do not fit.

    Examples
    --------
    >>> environ = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "10.0.0.1"}
    >>> find_launch(environ)
    Launch(launcher='torchrun', rank=3, world_size=8, local_rank=0, address='10.0.0.1', port=29500)
    """
    launcher = next(
        (
            name
            for name, variables in LAUNCHERS.items()
            if environ.get(variables[0]) and environ.get(variables[1])
        ),
        None,
    )
    if launcher is None:
        raise RequestError(
            "",
            "this process is not part of a job of several; start it as torchrun"
            " --nnodes N --nproc-per-node G -m perfsim calibrate network ..., or under srun or"
            " mpirun.",
            source="calibrate network",
        )
    rank_name, world_name, local_name, node_name = LAUNCHERS[launcher]
    rank, world_size = _whole_number(environ, rank_name), _whole_number(environ, world_name)
    local = next((name for name in (local_name, *LOCAL_RANK_VARIABLES) if environ.get(name)), None)
    local_rank = 0 if local is None else _whole_number(environ, local)
    if not rank < world_size:
        why = f"rank {rank} of {world_size}; ranks count from 0."
        raise RequestError("", why, value=rank, source=rank_name)
    if world_size < 2:
        why = f"one process has nobody to talk to; start at least 2 ({launcher})."
        raise RequestError("", why, value=world_size, source=world_name)
    address = environ.get("MASTER_ADDR", "")
    if not address and environ.get(node_name) == environ[world_name]:
        address = "127.0.0.1"
    if not address and launcher == "srun":
        nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_NODELIST", "")
        address = first_host(nodes)
    return Launch(launcher, rank, world_size, local_rank, address, _port(environ, launcher))


def first_host(nodes: str) -> str:
    """Return the first node of Slurm's node list, where rank 0 runs; "" of an empty list.

    Examples
    --------
    >>> first_host("gpu[007-010,12],login1")
    'gpu007'
    >>> first_host("a1,a2")
    'a1'
    """
    found = _HOST_LIST.match(nodes)
    if found is None:
        return ""
    return f"{found['head']}{found['number'] or ''}{found['tail'] or ''}"


def _port(environ: Mapping[str, str], launcher: str) -> int:
    if environ.get("MASTER_PORT"):
        return _whole_number(environ, "MASTER_PORT")
    if launcher == "srun" and environ.get("SLURM_JOB_ID"):
        return DEFAULT_PORT + _whole_number(environ, "SLURM_JOB_ID") % SLURM_PORTS
    return DEFAULT_PORT


def _whole_number(environ: Mapping[str, str], name: str) -> int:
    try:
        number = int(environ[name])
    except ValueError:
        number = -1
    if number < 0:
        why = f"{shown(environ[name])} is not allowed: it must be a whole number, 0 or more."
        raise RequestError("", why, value=environ[name], source=name)
    return number
