"""Collectives of Open MPI, MPICH or another MPI: driven by mpi4py, buffers in host memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from perfsim.calibrate.measure.device import process_waited_s
from perfsim.calibrate.measure.job import RankGroup
from perfsim.calibrate.measure.rendezvous import check_same_software, hosts_apart, identity
from perfsim.calibrate.measure.torch_wire import FIRST_PAUSE_S, LONGEST_PAUSE_S, goes_on
from perfsim.errors import RequestError

__all__ = ["MpiWire"]

INTERFACE_VARIABLE = "OMPI_MCA_btl_tcp_if_include"
ALGORITHM_VARIABLE = "OMPI_MCA_coll_tuned_allreduce_algorithm"
DYNAMIC_VARIABLE = "OMPI_MCA_coll_tuned_use_dynamic_rules"
_TRUE_WORDS = ("1", "t", "true", "y", "yes", "enabled")
FORCED_ALGORITHMS = {
    ("1", "basic_linear"): "linear",
    ("2", "nonoverlapping"): "nonoverlapping",
    ("3", "recursive_doubling"): "doubling",
    ("4", "ring"): "ring",
    ("5", "segmented_ring"): "segmented_ring",
    ("6", "rabenseifner"): "halving_doubling",
}
"""What the variable forces by number or word, where dynamic rules are on, as `ompi_info --param
coll tuned --level 5` lists it (Open MPI 4.1); recursive doubling and Rabenseifner under perfsim's
names."""
_FLOAT_BYTES = 4


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
            why = f"mpi: mpi4py does not load ({error}); pip install mpi4py."
            raise RequestError("backend", why, value="mpi") from None
        self._mpi, self._numpy, self._world = MPI, np, MPI.COMM_WORLD
        self.library, self.rank, self.device = "mpi", self._world.Get_rank(), "cpu"
        self.version = MPI.Get_library_version().split(",")[0].strip()
        self.software = f"mpi4py {mpi4py.__version__}"
        self._groups: dict[tuple[int, ...], Any] = {}
        self._waited_s = process_waited_s()
        own = identity(self, os.environ.get(INTERFACE_VARIABLE, ""), local_rank)
        self.ranks = hosts_apart(self.gather(own))
        check_same_software(self.ranks)

    def collectives(self) -> tuple[str, ...]:
        """Return all seven."""
        usual = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
        return (*usual, "all_to_all", "send_recv")

    def held(self, collective: str) -> tuple[str, str]:
        """Return what Open MPI's variables hold all_reduce to; no other is read."""
        dynamic = os.environ.get(DYNAMIC_VARIABLE, "").lower() in _TRUE_WORDS
        if collective != "all_reduce" or not dynamic:
            return "", ""
        asked = os.environ.get(ALGORITHM_VARIABLE, "").lower()
        return next((name for words, name in FORCED_ALGORITHMS.items() if asked in words), ""), ""

    def gather(self, word: Any) -> list[Any]:
        """Return every rank's word, in order of ranks."""
        return list(self._world.allgather(word))

    def wait_for_all(self) -> None:
        """Wait until every rank of the job calls it, and leave the CPU idle."""
        request, pause_s = self._world.Ibarrier(), FIRST_PAUSE_S
        while not request.Test():
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def join(self, group: RankGroup) -> None:
        """Make the group's communicator, once all ranks are there."""
        if group.ranks not in self._groups:
            colour = 0 if self.rank in group.ranks else self._mpi.UNDEFINED
            self._groups[group.ranks] = self._world.Split(colour, self.rank)

    def greatest(self, group: RankGroup, seconds: float) -> float:
        """Return the greatest of the group's values."""
        return float(self._groups[group.ranks].allreduce(seconds, op=self._mpi.MAX))

    def waited_s(self, group: RankGroup) -> float:
        """Return how long the rank that waited most has had no core since the last call [s]."""
        before, self._waited_s = self._waited_s, process_waited_s()
        return self.greatest(group, max(0.0, self._waited_s - before))

    def run(self, collective: str, group: RankGroup, size_bytes: int, repeats: int) -> list[float]:
        """Return the slowest rank's seconds of each repeat."""
        communicator = self._groups[group.ranks]
        call = self._call(collective, communicator, size_bytes)
        seconds = self._numpy.zeros(repeats)
        for repeat in range(repeats):
            communicator.Barrier()
            begun = time.perf_counter()
            call()
            seconds[repeat] = time.perf_counter() - begun
        communicator.Allreduce(self._mpi.IN_PLACE, seconds, op=self._mpi.MAX)
        return [float(repeat_s) for repeat_s in seconds]

    def round_trips(self, peer: int, size_bytes: int, budget_s: float) -> list[float]:
        """Return the seconds of each round trip on the lower rank, none on the other."""
        data = self._numpy.zeros(max(1, size_bytes // _FLOAT_BYTES), dtype=self._numpy.float32)
        more = self._numpy.zeros(1, dtype=self._numpy.float32)
        seconds: list[float] = []
        begun = time.perf_counter()
        if self.rank > peer:
            while True:
                self._world.Recv(data, peer)
                self._world.Send(data, peer)
                self._world.Recv(more, peer)
                if not more[0]:
                    return seconds
        while True:
            sent = time.perf_counter()
            self._world.Send(data, peer)
            self._world.Recv(data, peer)
            now = time.perf_counter()
            seconds.append(now - sent)
            more[0] = goes_on(len(seconds), now - begun, budget_s)
            self._world.Send(more, peer)
            if not more[0]:
                return seconds[1:]

    def store(self) -> Any:
        """Return None: mpirun itself ends a job that loses a rank."""
        return None

    def close(self) -> None:
        """Leave MPI."""
        self._mpi.Finalize()

    def _call(self, collective: str, communicator: Any, size_bytes: int) -> Callable[[], Any]:
        """Return what runs a collective once on float32 buffers."""
        np, ranks, rank = self._numpy, communicator.Get_size(), communicator.Get_rank()
        block = max(1, size_bytes // _FLOAT_BYTES // ranks)
        count = max(1, size_bytes // _FLOAT_BYTES)
        data, result = (np.zeros(count, dtype=np.float32) for _ in range(2))
        blocks, received = (np.zeros(block * ranks, dtype=np.float32) for _ in range(2))
        own = np.zeros(block, dtype=np.float32)
        send_or_recv = partial(communicator.Send, data, 1)
        if rank:
            send_or_recv = partial(communicator.Recv, data, 0)
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": partial(communicator.Allreduce, self._mpi.IN_PLACE, data),
            "all_gather": partial(communicator.Allgather, own, blocks),
            "reduce_scatter": partial(communicator.Reduce_scatter_block, blocks, own),
            "broadcast": partial(communicator.Bcast, data),
            "reduce": partial(communicator.Reduce, data, result),
            "all_to_all": partial(communicator.Alltoall, blocks, received),
            "send_recv": send_or_recv,
        }
        return calls[collective]
