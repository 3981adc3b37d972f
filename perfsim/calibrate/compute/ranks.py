"""Several ranks that train side by side: each step begins together and lasts as the slowest's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from perfsim.calibrate.launch import LAUNCHERS, find_launch

__all__ = ["Alone", "Ranks", "Together", "find_ranks"]

PATIENCE_S = 300.0


class Ranks(Protocol):
    """Who measures beside this process."""

    rank: int
    local_rank: int
    count: int

    def begin(self) -> None:
        """Return on every rank at once."""
        ...

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the longest of the ranks' times, each by itself."""
        ...

    def close(self) -> None:
        """Leave in good order."""
        ...


class Alone:
    """One process by itself."""

    rank, local_rank, count = 0, 0, 1

    def begin(self) -> None:
        """Begin at once."""

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the times."""
        return list(seconds)

    def close(self) -> None:
        """Do nothing."""


class Together:
    """The ranks of a job; they meet over gloo, whatever computes."""

    def __init__(self, wire: Any, local_rank: int, count: int) -> None:
        self._wire, self.rank, self.local_rank, self.count = wire, wire.rank, local_rank, count

    def begin(self) -> None:
        """Wait for all."""
        self._wire.barrier()

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """Return the longest of the ranks' times, each by itself."""
        return [max(of) for of in zip(*self._wire.gather(list(seconds)), strict=True)]

    def close(self) -> None:
        """Leave the job."""
        self._wire.close()


def find_ranks(environ: Mapping[str, str]) -> Ranks:
    """Return the ranks of this job, or this process alone where it is none.

    Raises
    ------
    RequestError
        If the job cannot be joined.
    """
    sizes = (environ.get(names[1], "") for names in LAUNCHERS.values())
    if all(size in ("", "1") for size in sizes):
        return Alone()
    from perfsim.calibrate.sweep.torch_wire import TorchWire

    launch = find_launch(environ)
    return Together(TorchWire(launch, "gloo", PATIENCE_S), launch.local_rank, launch.world_size)
