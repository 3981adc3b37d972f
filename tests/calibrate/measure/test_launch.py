"""Who a process is in a job, by the variables that launchers set."""

from __future__ import annotations

import pytest

from perfsim.calibrate.measure.launch import Launch, find_launch, first_host
from perfsim.errors import RequestError

SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "70123"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (
            {
                "RANK": "1",
                "WORLD_SIZE": "4",
                "LOCAL_RANK": "1",
                "MASTER_ADDR": "h",
                "MASTER_PORT": "7",
            },
            Launch("torchrun", 1, 4, 1, "h", 7),
        ),
        (
            {**SLURM, "SLURM_STEP_NODELIST": "n[03-06]"},
            Launch("srun", 5, 8, 1, "n03", 29500 + 123),
        ),
        ({**SLURM, "MASTER_ADDR": "h"}, Launch("srun", 5, 8, 1, "h", 29500 + 123)),
        (OPEN_MPI, Launch("mpirun", 2, 4, 0, "", 29500)),
        (
            {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            Launch("mpirun", 2, 4, 0, "127.0.0.1", 29500),
        ),
        # mpirun in an allocation: Slurm's variables are those of mpirun's own helper.
        ({**SLURM, **OPEN_MPI}, Launch("mpirun", 2, 4, 0, "", 29500)),
        # torchrun in an allocation, one agent a node.
        (
            {**SLURM, "RANK": "11", "WORLD_SIZE": "16", "LOCAL_RANK": "3", "MASTER_ADDR": "h"},
            Launch("torchrun", 11, 16, 3, "h", 29500),
        ),
        (
            {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"},
            Launch("mpiexec", 3, 4, 1, "127.0.0.1", 29500),
        ),
        # srun --mpi=pmi2 sets PMI's variables too, but not the rank on the node.
        (
            {**SLURM, "PMI_RANK": "5", "PMI_SIZE": "8", "MASTER_ADDR": "h"},
            Launch("mpiexec", 5, 8, 1, "h", 29500),
        ),
    ],
)
def test_a_launcher_is_known_by_its_variables(told: dict[str, str], found: Launch) -> None:
    assert find_launch(told) == found


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "this process is not part of a job of several"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "WORLD_SIZE: one process has nobody to talk to"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK: rank 4 of 4; ranks count from 0."),
        (
            {"RANK": "x", "WORLD_SIZE": "4"},
            "RANK: 'x' is not allowed: it must be a whole number, 0 or more.",
        ),
        (
            {"RANK": "-1", "WORLD_SIZE": "4"},
            "RANK: '-1' is not allowed: it must be a whole number, 0 or more.",
        ),
    ],
)
def test_what_is_no_job_is_refused(told: dict[str, str], said: str) -> None:
    with pytest.raises(RequestError) as refused:
        find_launch(told)
    assert said in str(refused.value)


def test_without_an_address_a_store_cannot_be_met() -> None:
    with pytest.raises(RequestError) as refused:
        find_launch(OPEN_MPI).rendezvous()
    assert str(refused.value) == (
        "MASTER_ADDR: not set, and mpirun does not tell where rank 0 runs; export MASTER_ADDR=HOST"
        " to all ranks, the address of rank 0's node."
    )


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a,b", "a"), ("n[1-3]-ib,m", "n1-ib"), ("n[007,9]", "n007"), ("", "")],
)
def test_slurm_writes_lists_of_nodes_short(nodes: str, first: str) -> None:
    assert first_host(nodes) == first
