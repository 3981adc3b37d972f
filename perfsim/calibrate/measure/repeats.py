"""Ranks that die: every rank beats once a second, and whoever stays silent is named."""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, Protocol

from perfsim.calibrate.measure.launch import Launch
from perfsim.data.journal import Journal
from perfsim.errors import PerfsimError, RequestError

__all__ = [
    "BEAT_S",
    "CONFIDENCE",
    "FEWEST",
    "SILENT_S",
    "Backend",
    "KernelJournal",
    "KernelPoint",
    "NetworkJournal",
    "NetworkPoint",
    "RankGroup",
    "Repeats",
    "Stop",
    "Watch",
    "groups",
    "guard",
    "half_width",
    "settled",
    "silent",
]

CONFIDENCE = 0.90
FEWEST = 5
"""Of 5 samples least and greatest enclose the median with 1 - 2 / 2^5 = 94 %; of 4 with 88 %."""


class Repeats:
    """What was timed several times, and how well its time is known."""

    __slots__ = ()

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median repeat [s]."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the median's 90 % interval over the median; infinite of fewer than 5 repeats."""
        return half_width(self.seconds)


def half_width(samples: Sequence[float]) -> float:
    """Return half the width of the median's 90 % interval, over the median.

    The interval needs no distribution: the k-th least and k-th greatest of n samples enclose the
    median with probability 1 - 2 P(Binomial(n, 1/2) < k) (David & Nagaraja, Order Statistics,
    3rd ed. 2003, section 7.1). Fewer than `FEWEST` samples tell nothing: infinite.

    Examples
    --------
    >>> round(half_width([1.0, 1.02, 0.98, 1.0, 1.04]), 3)
    0.03
    >>> half_width([1.0, 1.0])
    inf
    """
    if len(samples) < FEWEST:
        return math.inf
    ordered = sorted(samples)
    place = _place(len(ordered))
    return (ordered[-1 - place] - ordered[place]) / 2 / median(ordered)


def settled(samples: Sequence[float], tolerance: float) -> bool:
    """Say whether the median is known within a fraction of itself."""
    return half_width(samples) <= tolerance


@lru_cache(maxsize=256)
def _place(count: int) -> int:
    """Return the largest place from either end that still encloses the median often enough."""
    below = 0.0
    for place in range(count // 2 + 1):
        below += math.comb(count, place) / 2**count
        if 1.0 - 2.0 * below < CONFIDENCE:
            return place - 1
    return count // 2


KERNEL_JOURNAL_SCHEMA = "perfsim/measured-kernels/1"


@dataclass(frozen=True, slots=True)
class KernelPoint(Repeats):
    """One kernel at one size, with the seconds of each repeat."""

    kernel: str
    elements: int
    width: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a kernel was not measured at a size and above, at one width.

    ``final`` where a later run would fare alike: memory or library said no, not time.
    """

    kernel: str
    elements: int
    width: int
    why: str
    final: bool

    def __str__(self) -> str:
        """Return kernel, size and reason."""
        width = f", width {self.width}" if self.width else ""
        return f"{self.kernel} from {self.elements:,} on{width}: {self.why}"


class KernelJournal:
    """A file of JSON lines: the setting first, then a point or a stop a line.

    Parameters
    ----------
    path : of the file
    setting : what must agree for points to belong together (device, software)
    fresh : begin anew even if the file is there

    Raises
    ------
    RequestError
        If the file cannot be written, or was begun with another setting.
    DataError
        If the file is no journal.
    """

    def __init__(self, path: Path, setting: Mapping[str, str], *, fresh: bool = False) -> None:
        self.path = path
        self.points: list[KernelPoint] = []
        self.stops: list[Stop] = []
        self._record = Journal(
            path, KERNEL_JOURNAL_SCHEMA, setting, what="a run", anew="`fresh` begins anew"
        )
        self._record.open(self._take, fresh=fresh)

    def add(self, what: KernelPoint | Stop) -> None:
        """Append a point or a stop and wait until it is on disk."""
        self._record.add(asdict(what))
        if isinstance(what, KernelPoint):
            self.points.append(what)
        else:
            self.stops.append(what)

    def has(self, kernel: str, elements: int, width: int) -> bool:
        """Say whether a point is there already."""
        wanted = kernel, elements, width
        return any((one.kernel, one.elements, one.width) == wanted for one in self.points)

    def stopped(self, kernel: str, elements: int, width: int) -> bool:
        """Say whether a kernel was stopped at this size or below it."""
        return any(
            (one.kernel, one.width) == (kernel, width) and one.elements <= elements
            for one in self.stops
        )

    def remove(self) -> None:
        """Delete the file, once all its points stand in the file of kernels."""
        self._record.remove()

    def _take(self, line: Mapping[str, Any]) -> None:
        of = str(line["kernel"]), int(line["elements"]), int(line["width"])
        if "why" in line:
            if line["final"]:
                self.stops.append(Stop(*of, str(line["why"]), final=True))
        else:
            self.points.append(KernelPoint(*of, tuple(map(float, line["seconds"]))))


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that are measured together: ``nodes`` nodes of ``gpus_per_node`` ranks each."""

    ranks: tuple[int, ...]
    nodes: int
    gpus_per_node: int

    @property
    def name(self) -> str:
        """The shape in words.

        Examples
        --------
        >>> RankGroup((0, 4), 2, 1).name
        '2 ranks (2 x 1)'
        """
        return f"{len(self.ranks)} ranks ({self.nodes} x {self.gpus_per_node})"


def groups(hosts: Sequence[str]) -> list[RankGroup]:
    """Return the groups of a job, smallest first; rank 0 is in each.

    Inside the first node: two ranks, then all. Between nodes, 2, 4, 8, ... and all of them: with
    all ranks of each node; where nodes hold several ranks also one of each of two nodes, whose
    messages share no NIC, so that the NIC's own rate and its sharing can be told apart.

    Parameters
    ----------
    hosts : of each rank in order of ranks, a word a node

    Raises
    ------
    RequestError
        If nodes hold different numbers of ranks.

    Examples
    --------
    >>> [group.name for group in groups(["a"] * 4 + ["b"] * 4)]
    ['2 ranks (1 x 2)', '2 ranks (2 x 1)', '4 ranks (1 x 4)', '8 ranks (2 x 4)']
    >>> [group.name for group in groups(["a", "b", "c"])]
    ['2 ranks (2 x 1)', '3 ranks (3 x 1)']
    """
    nodes: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        nodes.setdefault(host, []).append(rank)
    sizes = {host: len(ranks) for host, ranks in nodes.items()}
    if len(set(sizes.values())) > 1:
        least, most = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        raise RequestError(
            f"calibrate network: {least} holds {sizes[least]} ranks and {most} {sizes[most]};"
            " start as many on every node."
        )
    of_node = list(nodes.values())
    each = len(of_node[0])
    shapes = {(1, 2), (1, each)} if each > 1 else set()
    counts = [2**step for step in range(1, len(of_node).bit_length())]
    if len(of_node) > 1:
        shapes |= {(2, 1), *((count, each) for count in (*counts, len(of_node)))}
    ordered = sorted(shapes, key=lambda shape: (shape[0] * shape[1], shape[0]))
    return [
        RankGroup(tuple(sorted(rank for node in of_node[:count] for rank in node[:g])), count, g)
        for count, g in ordered
        if count <= len(of_node)
    ]


NETWORK_JOURNAL_SCHEMA = "perfsim/measured-points/1"


@dataclass(frozen=True, slots=True)
class NetworkPoint(Repeats):
    """One collective, group and size [B] with the seconds of each repeat, slowest rank."""

    collective: str
    ranks: int
    nodes: int
    gpus_per_node: int
    size_bytes: int
    seconds: tuple[float, ...]

    @property
    def key(self) -> tuple[str, int, int, int]:
        """Collective, nodes, ranks a node and size: what a point is of."""
        return self.collective, self.nodes, self.gpus_per_node, self.size_bytes


class NetworkJournal:
    """A file of JSON lines: the setting first, then a point a line, each on disk when it returns.

    Parameters
    ----------
    path : of the file
    setting : what must agree for points to belong together (library, version, ranks, nodes, ...)
    resume : go on with the file if it is there; else it must not hold anything

    Raises
    ------
    RequestError
        If the file cannot be written, or holds points of another setting.
    DataError
        If the file is no journal.
    """

    def __init__(self, path: Path, setting: Mapping[str, Any], *, resume: bool = True) -> None:
        self.path, self.points = path, list[NetworkPoint]()
        self._record = Journal(
            path,
            NETWORK_JOURNAL_SCHEMA,
            setting,
            what="a sweep",
            anew="delete it or name another `out`",
        )
        self._record.open(lambda line: self._take(_point(line)), fresh=not resume)

    def add(self, point: NetworkPoint) -> None:
        """Append a point and wait until it is on disk."""
        self._record.add(asdict(point))
        self._take(point)

    def done(self) -> set[tuple[str, int, int, int]]:
        """Return what has been measured."""
        return {point.key for point in self.points}

    def remove(self) -> None:
        """Delete the file, once its points stand in a network file."""
        self._record.remove()

    def _take(self, point: NetworkPoint) -> None:
        """Hold a point; a second look replaces the first."""
        self.points = [one for one in self.points if one.key != point.key] + [point]


def _point(line: Mapping[str, Any]) -> NetworkPoint:
    seconds: Sequence[Any] = line["seconds"]
    ranks, nodes, gpus, size = (
        int(line[name]) for name in ("ranks", "nodes", "gpus_per_node", "size_bytes")
    )
    return NetworkPoint(
        str(line["collective"]), ranks, nodes, gpus, size, tuple(map(float, seconds))
    )


BEAT_S = 1.0
SILENT_S = 6.0
"""A rank that has not beaten for so long is taken for dead; a busy node may miss a few beats."""

EXIT_CODE = 1


def silent(
    beats: Sequence[int], before: Sequence[int], since: Sequence[float], now: float
) -> list[int]:
    """Return the ranks whose count of beats has not moved for `SILENT_S`.

    Examples
    --------
    >>> silent([5, 5], [4, 5], [0.0, 0.0], 9.0)
    [1]
    """
    ranks = range(len(beats))
    return [r for r in ranks if beats[r] == before[r] and now - since[r] > SILENT_S]


class Watch:
    """A thread that beats for this rank and ends the process when others fall silent.

    Rank 0 watches all ranks, the others watch rank 0, so that the store holds few requests.
    A collective that waits for a dead rank cannot be interrupted: the process leaves at once.

    Parameters
    ----------
    store : a connection of its own to the job's key-value store (add, get, set)
    rank, world_size : of this process
    hosts : of each rank, for the message
    last_words : gives what to say beside the name of the dead rank
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        world_size: int,
        hosts: Sequence[str],
        last_words: Callable[[], str],
    ) -> None:
        self._store, self._rank, self._hosts = store, rank, hosts
        self._watched = list(range(1, world_size)) if rank == 0 else [0]
        self._words = last_words
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        """Begin to beat."""
        self._store.add(f"beat/{self._rank}", 1)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop beating."""
        self._over.set()
        self._thread.join(2 * BEAT_S)

    def _run(self) -> None:
        count = len(self._watched)
        before, since = [0] * count, [time.monotonic()] * count
        while not self._over.wait(BEAT_S):
            try:
                self._store.add(f"beat/{self._rank}", 1)
                beats = [self._store.add(f"beat/{rank}", 0) for rank in self._watched]
            except RuntimeError:
                if not self._over.is_set():
                    self._leave([0] if self._rank else self._watched)
                return
            now = time.monotonic()
            lost = silent(beats, before, since, now)
            if lost:
                self._leave([self._watched[place] for place in lost])
            since = [
                now if new != old else at for new, old, at in zip(beats, before, since, strict=True)
            ]
            before = beats

    def _leave(self, ranks: Sequence[int]) -> None:
        named = ", ".join(f"{rank} on {self._hosts[rank]}" for rank in ranks[:3])
        more = f" and {len(ranks) - 3} more" if len(ranks) > 3 else ""
        sys.stderr.write(
            f"perfsim: calibrate network: rank {named}{more} is gone or frozen;{self._words()}\n"
        )
        sys.stderr.flush()
        os._exit(EXIT_CODE)


class Backend(Protocol):
    """A library that carries collectives between the ranks of this job.

    ``library`` is nccl, gloo or mpi, ``version`` as it states itself, ``device`` what holds the
    buffers ("NVIDIA H200", "cpu"), ``held`` the algorithm of all_reduce that the user forced, else
    "".
    """

    library: str
    version: str
    device: str
    held: str
    rank: int
    ranks: list[dict[str, Any]]

    def collectives(self) -> tuple[str, ...]:
        """Return the collectives that the library really has."""
        ...

    def gather(self, word: Any) -> list[Any]:
        """Return every rank's word, in order of ranks; all ranks call it."""
        ...

    def together(self) -> None:
        """Wait, however long and without loading the CPU, until all ranks of the job call it."""
        ...

    def join(self, group: RankGroup) -> None:
        """Make ready for a group; all ranks of the job call it, also those outside."""
        ...

    def run(self, collective: str, group: RankGroup, size_bytes: int, repeats: int) -> list[float]:
        """Run a collective some times; return the slowest rank's seconds of each repeat.

        All ranks of the group call it and get the same numbers. ``size_bytes`` are the blocks of
        all ranks for all_gather, reduce_scatter and all_to_all, else one rank's buffer.
        """
        ...

    def agree(self, group: RankGroup, seconds: float) -> float:
        """Return the greatest of the group's values, so that all ranks decide alike."""
        ...

    def store(self) -> Any:
        """Return a connection of its own to the job's key-value store, None where there is none."""
        ...

    def close(self) -> None:
        """Leave the job in good order."""
        ...


PEER = re.compile(r"\[([0-9a-fA-F.:]+)\]:\d+")
"""How gloo names the other end in its errors: [198.18.0.3]:37600."""


class BrokenOffError(PerfsimError):
    """The job broke off while it measured."""


@contextmanager
def guard(
    launch: Launch, wire: Backend, hosts: Sequence[str], journal: NetworkJournal | None
) -> Iterator[None]:
    """Run a sweep under a watch for dead ranks; a broken collective or a signal is one sentence."""

    def kept() -> str:
        if journal is None:
            return " rank 0 says what was kept."
        return (
            f" {len(journal.points)} points are kept in {journal.path}, and the same command goes"
            " on from there."
        )

    def stopped(number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        raise BrokenOffError(f"calibrate network: stopped by {name};{kept()}")

    before = {number: signal.signal(number, stopped) for number in (signal.SIGTERM, signal.SIGINT)}
    store = wire.store()
    watch = (
        Watch(store, launch.rank, launch.world_size, hosts, kept)
        if store is not None
        else nullcontext()
    )
    try:
        with watch:
            yield
    except (PerfsimError, KeyboardInterrupt):
        raise
    except RuntimeError as error:
        raise BrokenOffError(f"calibrate network: {_why(error)};{kept()}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _why(error: RuntimeError) -> str:
    """Return what a communication library's error says, in a few words."""
    text = str(error)
    peer = PEER.search(text)
    if peer:
        return f"the connection to {peer[1]} broke, a rank there died or its network failed"
    first = (text.strip().splitlines() or ["no reason given"])[0]
    return f"the library broke off ({first[:200]})"
