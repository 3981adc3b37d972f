"""Watching a sweep: dead ranks are named, and what was measured is kept.

Every rank beats once a second at the job's store. A rank that stays silent is taken for dead.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import Any, NoReturn

from perfsim.calibrate.measure.job import Backend
from perfsim.calibrate.measure.journals import NetworkJournal
from perfsim.calibrate.measure.launch import Launch
from perfsim.errors import PerfsimError, StoppedError

__all__ = [
    "BEAT_S",
    "SILENT_S",
    "BrokenOffError",
    "RankWatch",
    "guard_sweep",
    "silent_ranks",
    "why_broken",
]

BEAT_S = 1.0
"""Time between two beats of a rank. No source: chosen, some requests a second at the store."""
SILENT_S = 6.0
"""A rank without a beat for this long is taken for dead. No source: chosen, since a busy node
misses a few beats."""
LINGER_S = 2.5 * BEAT_S
"""How long rank 0, which serves the store, stays after it has named lost ranks there: each rank
looks once a beat."""
_LOST = "lost"
"""Where rank 0 names the lost ranks for all others."""
MAX_NAMED_RANKS = 3
"""Dead ranks that a message names; it counts the others."""
_EXIT_CODE = 1
_PEER = re.compile(r"\[([0-9a-fA-F.:]+)\]:\d+")
"""How gloo names the other end in its errors: [198.18.0.3]:37600."""


class BrokenOffError(PerfsimError):
    """The job broke off while it measured."""


@contextmanager
def guard_sweep(
    launch: Launch, wire: Backend, hosts: Sequence[str], journal: NetworkJournal | None
) -> Iterator[None]:
    """Run a sweep while dead ranks are watched for.

    Parameters
    ----------
    launch : who this process is
    wire : carries the collectives; its store counts the beats
    hosts : host name of each rank, for the message
    journal : rank 0's journal, None on other ranks

    Raises
    ------
    BrokenOffError, StoppedError
        If a collective breaks or a signal comes; Ctrl-C: one sentence that says what was kept.
    """

    def kept() -> str:
        if journal is None:
            return " rank 0 says what was kept."
        return (
            f" {len(journal.points)} points are kept in {journal.path}, and the same command goes"
            " on from there."
        )

    def stop(number: int, _: FrameType | None) -> None:
        broken = StoppedError if number == signal.SIGINT else BrokenOffError
        name = signal.Signals(number).name
        raise broken(f"calibrate network: stopped by {name};{kept()}")

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    store = wire.store()
    watch = (
        RankWatch(store, launch.rank, launch.world_size, hosts, kept)
        if store is not None
        else nullcontext()
    )
    try:
        with watch:
            yield
    except (PerfsimError, KeyboardInterrupt):
        raise
    except RuntimeError as error:
        raise BrokenOffError(f"calibrate network: {why_broken(error)};{kept()}") from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def why_broken(error: RuntimeError) -> str:
    """Return what a communication library's error says, in a few words."""
    text = str(error)
    peer = _PEER.search(text)
    if peer:
        return f"the connection to {peer[1]} broke, a rank there died or its network failed"
    first = (text.strip().splitlines() or ["no reason given"])[0]
    return f"the library broke off ({first[:200]})"


class RankWatch:
    """A thread that beats for this rank and ends the process when others fall silent.

    Rank 0 watches all ranks and the others watch rank 0, so that the store holds few requests.
    Rank 0 names the ranks that it has lost to all others. All end within `SILENT_S` + `LINGER_S` +
    3 beats of the moment at which a rank falls silent. A collective that waits for a dead rank
    cannot be interrupted: the process exits at once.

    Parameters
    ----------
    store : a separate connection to the job's key-value store (add, check, get, set)
    rank, world_size : of this process
    hosts : host name of each rank, for the message
    last_words : gives what the message says after the name of the dead rank
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
        self._last_words = last_words
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> RankWatch:
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
                if self._rank and self._store.check([_LOST]):
                    self._end(self._store.get(_LOST).decode())
                beats = [self._store.add(f"beat/{rank}", 0) for rank in self._watched]
            except RuntimeError:
                if not self._over.is_set():
                    self._leave([0] if self._rank else self._watched)
                return
            now = time.monotonic()
            lost = silent_ranks(beats, before, since, now)
            if lost:
                self._leave([self._watched[index] for index in lost])
            since = [
                now if new != old else last
                for new, old, last in zip(beats, before, since, strict=True)
            ]
            before = beats

    def _leave(self, ranks: Sequence[int]) -> None:
        """Name the dead ranks on standard error and end the process."""
        named = ", ".join(f"{rank} on {self._hosts[rank]}" for rank in ranks[:MAX_NAMED_RANKS])
        left = len(ranks) - MAX_NAMED_RANKS
        more = f" and {left} more" if left > 0 else ""
        if not self._rank:
            with suppress(RuntimeError):
                self._store.set(_LOST, f"{named}{more}")
            time.sleep(LINGER_S)
        self._end(f"{named}{more}")

    def _end(self, named: str) -> NoReturn:
        """Say which ranks are lost, and end the process."""
        words = self._last_words()
        sys.stderr.write(f"perfsim: calibrate network: rank {named} is gone or frozen;{words}\n")
        sys.stderr.flush()
        os._exit(_EXIT_CODE)


def silent_ranks(
    beats: Sequence[int], before: Sequence[int], since: Sequence[float], now: float
) -> list[int]:
    """Return the indices whose count of beats has not moved for `SILENT_S`.

    Parameters
    ----------
    beats, before : counts now and at the last look
    since : when each count last moved [s]
    now : the time [s]

    Examples
    --------
    >>> silent_ranks([5, 5], [4, 5], [0.0, 0.0], 9.0)
    [1]
    """
    return [
        index
        for index, beat in enumerate(beats)
        if beat == before[index] and now - since[index] > SILENT_S
    ]
