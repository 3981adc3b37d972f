"""What a sweep asks of a communication library: small words among all ranks, timed collectives."""

from __future__ import annotations

from typing import Any, Protocol

from perfsim.calibrate.sweep.groups import Group

__all__ = ["Wire"]


class Wire(Protocol):
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

    def join(self, group: Group) -> None:
        """Make ready for a group; all ranks of the job call it, also those outside."""
        ...

    def run(self, collective: str, group: Group, size_bytes: int, repeats: int) -> list[float]:
        """Run a collective some times; return the slowest rank's seconds of each repeat.

        All ranks of the group call it and get the same numbers. ``size_bytes`` are the blocks of
        all ranks for all_gather, reduce_scatter and all_to_all, else one rank's buffer.
        """
        ...

    def agree(self, group: Group, seconds: float) -> float:
        """Return the greatest of the group's values, so that all ranks decide alike."""
        ...

    def store(self) -> Any:
        """Return a connection of its own to the job's key-value store, None where there is none."""
        ...

    def close(self) -> None:
        """Leave the job in good order."""
        ...
