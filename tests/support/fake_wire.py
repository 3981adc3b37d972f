"""Ranks of a job as threads, with a store and a communication library of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Barrier, Thread
from typing import Any

from perfsim.calibrate.measure.job import RankGroup
from perfsim.errors import PerfsimError

__all__ = ["Store", "Wire", "at_once", "quiet", "wires", "word"]


class Store:
    """A key-value store in memory, as torch's: set, get, check, add."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}

    def set(self, key: str, value: str) -> None:
        """Keep a value."""
        self.held[key] = value

    def get(self, key: str) -> bytes:
        """Return a value as bytes."""
        return str(self.held[key]).encode()

    def check(self, keys: Sequence[str]) -> bool:
        """Say whether all are kept."""
        return all(key in self.held for key in keys)

    def add(self, key: str, more: int) -> int:
        """Add to a count and return it."""
        self.held[key] = self.held.get(key, 0) + more
        return int(self.held[key])


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls in threads, and return what each returned or raised."""
    found: list[Any] = [None] * len(calls)

    def one(place: int) -> None:
        try:
            found[place] = calls[place]()
        except PerfsimError as error:
            found[place] = error

    threads = [Thread(target=one, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


def word(rank: int, **more: Any) -> dict[str, Any]:
    usual = {
        "host": f"h{rank}",
        "perfsim": "1",
        "library": "gloo 2",
        "software": "PyTorch 2",
        "device": "cpu",
        "processor": "a CPU",
        "speed": "eth0 1000 Mbit/s",
        "variables": "",
        "system": "x",
    }
    return {**usual, "interface": "eth0", "local_rank": 0, **more}


class Wire:
    """One rank of a library whose calls take what a law says; ranks are threads that meet."""

    library, version, device = "gloo", "1", "cpu"
    software = "PyTorch 2"

    def __init__(self, rank: int, law: Callable[[str, int], float], shared: dict[str, Any]) -> None:
        self.rank, self._law, self._shared = rank, law, shared
        self.ranks = [word(one) for one in range(shared["ranks"])]
        self.calls: list[tuple[str, tuple[int, ...], int, int]] = []
        self.joined: list[tuple[int, ...]] = []

    def collectives(self) -> tuple[str, ...]:
        """Return two."""
        return ("all_reduce", "send_recv")

    def held(self, collective: str) -> tuple[str, str]:
        """Return what the test says."""
        held: tuple[str, str] = self._shared.get("held", {}).get(collective, ("", ""))
        return held

    def gather(self, told: Any) -> list[Any]:
        """As every wire."""
        words = self._shared["words"]
        words[self.rank] = told
        self._shared["barrier"].wait(10)
        found = [words[rank] for rank in range(self._shared["ranks"])]
        self._shared["barrier"].wait(10)
        return found

    def wait_for_all(self) -> None:
        """Wait for all."""
        self._shared["barrier"].wait(10)

    def join(self, group: RankGroup) -> None:
        """Note the group."""
        self.joined.append(group.ranks)

    def greatest(self, group: RankGroup, seconds: float) -> float:
        """Return what the clock of the test says."""
        return self._shared["clock"](self.calls)

    def waited_s(self, group: RankGroup) -> float:
        """Return what the test says."""
        return float(self._shared["waited_s"])

    def run(self, collective: str, group: RankGroup, size_bytes: int, repeats: int) -> list[float]:
        """Note the call and return what the law says."""
        assert self.rank in group.ranks and group.ranks in self.joined
        self.calls.append((collective, group.ranks, size_bytes, repeats))
        return [self._law(collective, size_bytes)] * repeats

    def round_trips(self, peer: int, size_bytes: int, budget_s: float) -> list[float]:
        """Return what the law of pairs says, on the lower rank."""
        if self.rank > peer:
            return []
        return [self._shared["pair_law"](self.rank, peer, size_bytes)] * 5

    def store(self) -> None:
        """Return None: nobody watches."""
        return None

    def close(self) -> None:
        """Leave."""
        self.joined.clear()


def spent(calls: Sequence[tuple[str, tuple[int, ...], int, int]]) -> float:
    """Return the seconds of the last point's calls, each of a hundredth of a second."""
    of = [repeats for *key, repeats in calls if tuple(key) == calls[-1][:3]]
    return sum(of) * 0.01


def wires(ranks: int, law: Callable[[str, int], float] = lambda *_: 0.01) -> list[Wire]:
    shared = {
        "ranks": ranks,
        "words": {},
        "barrier": Barrier(ranks),
        "clock": spent,
        "waited_s": 0.0,
    }
    shared["pair_law"] = lambda first, other, size: 1e-3
    return [Wire(rank, law, shared) for rank in range(ranks)]


def quiet(*_: Any) -> None:
    """Tell nothing."""
