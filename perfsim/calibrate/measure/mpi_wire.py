"""Open MPI, MPICH or another MPI, driven by mpi4py, buffers in host memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from perfsim.calibrate.measure.job import RankGroup
from perfsim.calibrate.measure.rendezvous import check_same_software, identity
from perfsim.calibrate.measure.torch_wire import FIRST_LOOK_S, LONGEST_LOOK_S
from perfsim.errors import RequestError

__all__ = ["MpiWire"]

INTERFACE = "OMPI_MCA_btl_tcp_if_include"
FORCING = "OMPI_MCA_coll_tuned_allreduce_algorithm"
FORCED = {
    "1": "linear",
    "2": "nonoverlapping",
    "3": "doubling",
    "4": "ring",
    "5": "segmented_ring",
    "6": "halving_doubling",
}
"""What the variable forces, as `ompi_info --param coll tuned --level 5` lists them
(Open MPI 4.1); recursive doubling and Rabenseifner by the names that they have here."""


class MpiWire:
    """Collectives of MPI between the ranks of a job; every repeat starts from a barrier.

    Parameters
    ----------
    local_rank : of this process, among the ranks of its node

    Raises
    ------
    RequestError
        If mpi4py is not installed.
    """

    def __init__(self, local_rank: int) -> None:
        try:
            import mpi4py
            import numpy as np

            # A rank that fails must not wait in MPI_Finalize for others: mpirun then ends them.
            mpi4py.rc.finalize = False
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise RequestError(
                f"`backend` mpi: mpi4py does not load ({error}); pip install mpi4py."
            ) from None
        self._mpi, self._numpy, self._world = MPI, np, MPI.COMM_WORLD
        self.library, self.rank, self.device = "mpi", self._world.Get_rank(), "cpu"
        self.version = MPI.Get_library_version().split(",")[0].strip()
        self.held = FORCED.get(os.environ.get(FORCING, "0"), "")
        self._groups: dict[tuple[int, ...], Any] = {}
        self.ranks = self.gather(identity(self, os.environ.get(INTERFACE, ""), local_rank))
        check_same_software(self.ranks)

    def collectives(self) -> tuple[str, ...]:
        """Return all seven."""
        usual = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
        return (*usual, "all_to_all", "send_recv")

    def gather(self, word: Any) -> list[Any]:
        """Return every rank's word, in order of ranks."""
        return list(self._world.allgather(word))

    def together(self) -> None:
        """Wait until every rank of the job has come to this point, and leave the CPU alone."""
        request, pause_s = self._world.Ibarrier(), FIRST_LOOK_S
        while not request.Test():
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_LOOK_S)

    def join(self, group: RankGroup) -> None:
        """Make the group's communicator, once all ranks are there."""
        if group.ranks not in self._groups:
            colour = 0 if self.rank in group.ranks else self._mpi.UNDEFINED
            self._groups[group.ranks] = self._world.Split(colour, self.rank)

    def agree(self, group: RankGroup, seconds: float) -> float:
        """Return the greatest of the group's values."""
        return float(self._groups[group.ranks].allreduce(seconds, op=self._mpi.MAX))

    def run(self, collective: str, group: RankGroup, size_bytes: int, repeats: int) -> list[float]:
        """Return the slowest rank's seconds of each repeat."""
        of = self._groups[group.ranks]
        call = self._call(collective, of, size_bytes)
        seconds = self._numpy.zeros(repeats)
        for repeat in range(repeats):
            of.Barrier()
            begun = time.perf_counter()
            call()
            seconds[repeat] = time.perf_counter() - begun
        of.Allreduce(self._mpi.IN_PLACE, seconds, op=self._mpi.MAX)
        return [float(one) for one in seconds]

    def store(self) -> Any:
        """Return None: mpirun itself ends a job that loses a rank."""
        return None

    def close(self) -> None:
        """Leave MPI."""
        self._mpi.Finalize()

    def _call(self, collective: str, of: Any, size_bytes: int) -> Callable[[], Any]:
        np, ranks, rank = self._numpy, of.Get_size(), of.Get_rank()
        block = max(1, size_bytes // 4 // ranks)
        count = max(1, size_bytes // 4)
        data, other = (np.zeros(count, dtype=np.float32) for _ in range(2))
        whole, got = (np.zeros(block * ranks, dtype=np.float32) for _ in range(2))
        part = np.zeros(block, dtype=np.float32)
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": partial(of.Allreduce, self._mpi.IN_PLACE, data),
            "all_gather": partial(of.Allgather, part, whole),
            "reduce_scatter": partial(of.Reduce_scatter_block, whole, part),
            "broadcast": partial(of.Bcast, data),
            "reduce": partial(of.Reduce, data, other),
            "all_to_all": partial(of.Alltoall, whole, got),
            "send_recv": partial(of.Send, data, 1) if rank == 0 else partial(of.Recv, data, 0),
        }
        return calls[collective]
