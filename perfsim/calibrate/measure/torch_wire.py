"""Collectives of NCCL or gloo, as PyTorch's distributed package drives them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from perfsim.calibrate.formats.nccl_tests import held_word
from perfsim.calibrate.measure.device import process_waited_s
from perfsim.calibrate.measure.job import MAX_ROUND_TRIPS, MIN_ROUND_TRIPS, RankGroup
from perfsim.calibrate.measure.launch import Launch
from perfsim.calibrate.measure.rendezvous import (
    PARTING_S,
    check_same_software,
    hosts_apart,
    identity,
    interface_towards,
    meet_all_ranks,
    named_interface,
)
from perfsim.errors import RequestError

__all__ = [
    "FIRST_PAUSE_S",
    "LONGEST_PAUSE_S",
    "TorchWire",
    "collective_call",
    "goes_on",
    "open_store",
    "time_on_cpu",
    "time_on_gpu",
    "wait_for_all",
]

ROOTED_COLLECTIVES = frozenset({"broadcast", "reduce"})
BLOCK_COLLECTIVES = frozenset({"all_gather", "reduce_scatter", "all_to_all"})
"""Their size counts the blocks of all ranks."""
ALIGNED_COLLECTIVES = frozenset({"broadcast", "reduce", "send_recv"})
"""In these a rank may run ahead of the others: each repeat starts from a barrier."""

HELD_VARIABLES = ("NCCL_ALGO", "NCCL_PROTO")
INTERFACE_VARIABLES = {"nccl": "NCCL_SOCKET_IFNAME", "gloo": "GLOO_SOCKET_IFNAME"}
RENDEZVOUS_S = 60.0
"""Ranks of a job start within this of each other. No source: chosen."""
FIRST_PAUSE_S = 0.002
LONGEST_PAUSE_S = 0.2
"""Pauses between looks at the store double from the first to the longest, so that a waiting rank
does not load its host. No source: chosen."""
CALLS_PER_REPEAT = 5
"""Calls between two CUDA events; nccl-tests too times many and divides."""

QUIET_VARIABLES = {"TORCH_CPP_LOG_LEVEL": "ERROR", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2"}
"""PyTorch's C++ side warns of names that it cannot resolve, with stack traces, and by default ends
the process when NCCL fails. 2 only ends the communicator (PyTorch: ProcessGroupNCCL environment
variables), so that the sweep can say which rank is gone."""
_FLOAT_BYTES = 4


class TorchWire:
    """Collectives of torch.distributed between the ranks of a job.

    Parameters
    ----------
    launch : who this process is
    backend : "nccl" on GPUs, "gloo" on CPUs, None by what PyTorch sees
    patience_s : a collective that takes longer than this is an error [s]

    Raises
    ------
    RequestError
        If PyTorch is not installed, has no such backend, this rank has no GPU, or the ranks meet
        but do not reach each other.
    """

    def __init__(self, launch: Launch, backend: str | None, patience_s: float) -> None:
        for name, value in QUIET_VARIABLES.items():
            os.environ.setdefault(name, value)
        try:
            import torch
            import torch.distributed as dist
        except ImportError:
            raise RequestError(
                "",
                "PyTorch is not installed, which drives nccl and gloo; pip"
                " install 'perfsim[calibrate]', or take `backend` mpi.",
                source="calibrate network",
            ) from None
        self._torch, self._dist, self._launch = torch, dist, launch
        self.library = backend or ("nccl" if torch.cuda.is_available() else "gloo")
        self.rank = launch.rank
        self._gpu = self.library == "nccl"
        self.software = f"PyTorch {torch.__version__}"
        self.device, self.version, wrong = "cpu", self.software, None
        interface = ""
        try:
            interface = named_interface(INTERFACE_VARIABLES[self.library])
            if self._gpu:
                self._take_gpu()
            elif not interface:
                interface = interface_towards(launch.address)
                os.environ[INTERFACE_VARIABLES["gloo"]] = interface
        except RequestError as error:
            wrong = error
        torch.set_num_threads(1)
        self._patience_s = patience_s
        rendezvous_s = min(patience_s, RENDEZVOUS_S)
        self._store = open_store(dist, launch, rendezvous_s)
        word = identity(self, interface, launch.local_rank)
        word["wrong"] = str(wrong) if wrong else ""
        words = meet_all_ranks(self._store, launch.rank, launch.world_size, word, rendezvous_s)
        self.ranks = hosts_apart(words)
        if wrong:
            raise wrong
        check_same_software(self.ranks)
        self._connect(interface)
        self._groups: dict[tuple[int, ...], Any] = {}
        self._groups[tuple(range(launch.world_size))] = dist.group.WORLD
        self._barriers, self._waited_s = 0, process_waited_s()

    def _take_gpu(self) -> None:
        """Take this rank's GPU of its node."""
        torch, launch = self._torch, self._launch
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if launch.local_rank >= count:
            raise RequestError(
                "backend",
                f"nccl: rank {launch.rank} is number {launch.local_rank} on its node, which shows"
                f" {count} GPUs; start one process a GPU, or take `backend` gloo.",
                value="nccl",
            )
        torch.cuda.set_device(launch.local_rank)
        self.version = ".".join(map(str, torch.cuda.nccl.version()))
        self.device = torch.cuda.get_device_name()

    def _connect(self, interface: str) -> None:
        """Make the process group and see that all ranks reach each other."""
        launch, dist = self._launch, self._dist
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if self._gpu else "gloo",
                store=dist.PrefixStore("torch", self._store),
                rank=launch.rank,
                world_size=launch.world_size,
                timeout=timedelta(seconds=self._patience_s),
            )
            dist.all_reduce(self._torch.zeros(1))
        except RuntimeError as error:
            name = INTERFACE_VARIABLES["gloo"]
            named = interface and not self._gpu
            by = f"by {name} {interface!r}" if named else f"({name} is not set)"
            first = (str(error).strip().splitlines() or ["no reason given"])[0]
            raise RequestError(
                "",
                f"the ranks met, but {socket.gethostname()} does not reach all of them {by}:"
                f" {first[:200]}; set {name} to the interface that joins the hosts.",
                source="calibrate network",
            ) from None

    def collectives(self) -> tuple[str, ...]:
        """Return all seven; of gloo without reduce_scatter, which PyTorch builds of all-reduces."""
        usual = ("all_reduce", "all_gather", "broadcast", "reduce", "all_to_all", "send_recv")
        return (*usual, "reduce_scatter") if self._gpu else usual

    def held(self, collective: str) -> tuple[str, str]:
        """Return what NCCL_ALGO and NCCL_PROTO hold a collective to; gloo cannot be held."""
        if not self._gpu:
            return "", ""
        algorithm, protocol = (os.environ.get(name, "") for name in HELD_VARIABLES)
        return held_word(algorithm, collective), held_word(protocol, collective)

    def gather(self, word: Any) -> list[Any]:
        """Return every rank's word, in order of ranks."""
        words: list[Any] = [None] * self._launch.world_size
        self._dist.all_gather_object(words, word)
        return words

    def wait_for_all(self) -> None:
        """Wait at the store until every rank of the job calls it."""
        self._barriers += 1
        wait_for_all(self._store, f"together/{self._barriers}", self._launch.world_size)

    def barrier(self) -> None:
        """Wait for all ranks, which go on within a small message of each other."""
        self._dist.barrier()

    def join(self, group: RankGroup) -> None:
        """Make the group's communicator, once all ranks are there."""
        if group.ranks in self._groups:
            return
        patience = timedelta(seconds=self._patience_s)
        self._groups[group.ranks] = self._dist.new_group(list(group.ranks), timeout=patience)

    def greatest(self, group: RankGroup, seconds: float) -> float:
        """Return the greatest of the group's values."""
        return self._slowest(group, [seconds])[0]

    def waited_s(self, group: RankGroup) -> float:
        """Return how long the rank that waited most has had no core since the last call [s]."""
        before, self._waited_s = self._waited_s, process_waited_s()
        return self.greatest(group, max(0.0, self._waited_s - before))

    def run(self, collective: str, group: RankGroup, size_bytes: int, repeats: int) -> list[float]:
        """Return the slowest rank's seconds of each repeat."""
        process_group, device = self._groups[group.ranks], "cuda" if self._gpu else "cpu"
        call = collective_call(collective, group, process_group, self.rank, size_bytes, device)
        time_calls = time_on_gpu if self._gpu else time_on_cpu
        aligned = collective in ALIGNED_COLLECTIVES
        return self._slowest(group, time_calls(call, process_group, repeats, aligned))

    def round_trips(self, peer: int, size_bytes: int, budget_s: float) -> list[float]:
        """Return the seconds of each round trip on the lower rank, none on the other."""
        torch, dist, device = self._torch, self._dist, "cuda" if self._gpu else "cpu"
        data = torch.zeros(max(1, size_bytes // _FLOAT_BYTES), device=device)
        more = torch.zeros(1, device=device)
        seconds: list[float] = []
        begun = time.perf_counter()
        if self.rank > peer:
            while True:
                dist.recv(data, peer)
                dist.send(data, peer)
                dist.recv(more, peer)
                if not float(more):
                    return seconds
        while True:
            sent = time.perf_counter()
            dist.send(data, peer)
            dist.recv(data, peer)
            if self._gpu:
                torch.cuda.synchronize()
            now = time.perf_counter()
            seconds.append(now - sent)
            more[0] = float(goes_on(len(seconds), now - begun, budget_s))
            dist.send(more, peer)
            if not float(more):
                return seconds[1:]

    def store(self) -> Any:
        """Return a second connection to the store at rank 0."""
        address, port = self._launch.rendezvous()
        store = self._dist.TCPStore(address, port, is_master=False)
        return self._dist.PrefixStore(f"{_store_prefix()}/watch", store)

    def close(self) -> None:
        """Leave the process group; rank 0 goes last, since it serves the store."""
        self._dist.destroy_process_group()
        if self.rank == 0:
            wait_for_all(self._store, "left", self._launch.world_size, PARTING_S)
        else:
            self._store.add("left", 1)

    def _slowest(self, group: RankGroup, seconds: list[float]) -> list[float]:
        times = self._torch.tensor(seconds, dtype=self._torch.float64)
        self._dist.all_reduce(times, self._dist.ReduceOp.MAX, group=self._groups[group.ranks])
        return [float(repeat_s) for repeat_s in times]


def goes_on(trips: int, spent_s: float, budget_s: float) -> bool:
    """Say whether another round trip follows; the first one opens a connection and is not counted.

    Examples
    --------
    >>> goes_on(3, 9.0, 1.0), goes_on(6, 9.0, 1.0), goes_on(26, 0.1, 1.0)
    (True, False, False)
    """
    return trips <= MIN_ROUND_TRIPS or (spent_s < budget_s and trips <= MAX_ROUND_TRIPS)


def open_store(dist: Any, launch: Launch, patience_s: float) -> Any:
    """Return a connection to the job's store, which rank 0 serves, or torchrun's agent.

    Parameters
    ----------
    dist : torch.distributed
    launch : who this process is
    patience_s : how long rank 0 may take to come [s]

    Raises
    ------
    RequestError
        If there is no address, nobody serves there, or the port is taken.
    """
    address, port = launch.rendezvous()
    serves = launch.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = dist.TCPStore(
            address,
            port,
            is_master=serves,
            timeout=timedelta(seconds=patience_s),
            wait_for_workers=False,
        )
    except RuntimeError:
        done = "cannot be served" if serves else "cannot be reached"
        raise RequestError(
            "",
            f"{address}, port {port}, {done} from {socket.gethostname()}; is rank 0"
            " there, and is the port free?",
            source="MASTER_ADDR",
        ) from None
    return dist.PrefixStore(_store_prefix(), store)


def _store_prefix() -> str:
    """Return where this attempt's words stand: torchrun's store outlives a failed attempt."""
    return f"perfsim/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def wait_for_all(store: Any, key: str, world_size: int, patience_s: float = float("inf")) -> bool:
    """Count this rank at the store and wait for all others; False if time is up before.

    Unlike a barrier of the library it has no time-out of its own and leaves the CPU idle.

    Parameters
    ----------
    store : the job's key-value store (add)
    key : where the ranks are counted
    world_size : ranks that must come
    patience_s : how long to wait [s]
    """
    store.add(key, 1)
    end, pause_s = time.monotonic() + patience_s, FIRST_PAUSE_S
    while store.add(key, 0) < world_size:
        if time.monotonic() > end:
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return True


def collective_call(
    collective: str,
    group: RankGroup,
    process_group: Any,
    rank: int,
    size_bytes: int,
    device: str,
) -> Callable[[], Any]:
    """Return what runs a collective once on float32 buffers.

    Parameters
    ----------
    collective : its name
    group, process_group : the ranks, and torch's group of them
    rank : of this process in the job
    size_bytes : of `BLOCK_COLLECTIVES` the blocks of all ranks, rounded down to whole blocks; else
        one rank's buffer
    device : "cuda" or "cpu", where the buffers lie
    """
    import torch
    import torch.distributed as dist

    block = max(1, size_bytes // _FLOAT_BYTES // len(group.ranks))
    blocks = collective in BLOCK_COLLECTIVES
    count = block * len(group.ranks) if blocks else size_bytes // _FLOAT_BYTES
    data = torch.zeros(max(1, count), device=device)
    if collective in ROOTED_COLLECTIVES:
        return partial(getattr(dist, collective), data, group.ranks[0], group=process_group)
    if collective == "send_recv":
        sends = rank == group.ranks[0]
        peer = group.ranks[1 if sends else 0]
        return partial(dist.send if sends else dist.recv, data, peer, group=process_group)
    if collective == "all_reduce":
        return partial(dist.all_reduce, data, group=process_group)
    if collective == "all_to_all":
        received = torch.zeros_like(data)
        return partial(dist.all_to_all_single, received, data, group=process_group)
    own = torch.zeros(block, device=device)
    if collective == "reduce_scatter":
        return partial(dist.reduce_scatter_tensor, own, data, group=process_group)
    if device == "cpu":
        gather = partial(dist.all_gather, list(data.split(block)), own)
    else:
        gather = partial(dist.all_gather_into_tensor, data, own)
    return partial(gather, group=process_group)


def time_on_cpu(
    call: Callable[[], Any], process_group: Any, repeats: int, aligned: bool
) -> list[float]:
    """Return this rank's seconds of each repeat.

    Parameters
    ----------
    call : runs the collective once and waits for it
    process_group : torch's group of ranks
    repeats : calls
    aligned : start each repeat from a barrier, else only the first
    """
    import torch.distributed as dist

    dist.barrier(group=process_group)
    seconds = []
    for _ in range(repeats):
        if aligned:
            dist.barrier(group=process_group)
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return seconds


def time_on_gpu(
    call: Callable[[], Any], process_group: Any, repeats: int, aligned: bool
) -> list[float]:
    """Return this rank's seconds of each repeat, by events on its stream.

    A repeat is the mean of `CALLS_PER_REPEAT` calls, or one call if ``aligned``. The parameters
    are those of `time_on_cpu`.
    """
    import torch
    import torch.distributed as dist

    calls = 1 if aligned else CALLS_PER_REPEAT
    token = torch.zeros(1, device="cuda")
    seconds = []
    for _ in range(repeats):
        # A barrier of GPUs, on the stream: none begins before the last has come, and the calls
        # are on the stream before it ends.
        dist.all_reduce(token, group=process_group)
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        seconds.append(first.elapsed_time(last) / 1e3 / calls)
    return seconds
