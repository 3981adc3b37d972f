"""Watch."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

from perfsim.calibrate.measure.job import Backend
from perfsim.calibrate.measure.journals import NetworkJournal
from perfsim.calibrate.measure.launch import Launch
from perfsim.errors import PerfsimError

__all__ = ["BEAT_S", "SILENT_S", "RankWatch", "guard_sweep", "silent_ranks"]

BEAT_S = 1.0


SILENT_S = 6.0
"""A rank that has not beaten for so long is taken for dead; a busy node may miss a few beats."""


EXIT_CODE = 1


def silent_ranks(
    beats: Sequence[int], before: Sequence[int], since: Sequence[float], now: float
) -> list[int]:
    """Return the ranks whose count of beats has not moved for `SILENT_S`.

    Examples
    --------
    >>> silent_ranks([5, 5], [4, 5], [0.0, 0.0], 9.0)
    [1]
    """
    ranks = range(len(beats))
    return [r for r in ranks if beats[r] == before[r] and now - since[r] > SILENT_S]


class RankWatch:
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
                beats = [self._store.add(f"beat/{rank}", 0) for rank in self._watched]
            except RuntimeError:
                if not self._over.is_set():
                    self._leave([0] if self._rank else self._watched)
                return
            now = time.monotonic()
            lost = silent_ranks(beats, before, since, now)
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


PEER = re.compile(r"\[([0-9a-fA-F.:]+)\]:\d+")
"""How gloo names the other end in its errors: [198.18.0.3]:37600."""


class BrokenOffError(PerfsimError):
    """The job broke off while it measured."""


@contextmanager
def guard_sweep(
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
