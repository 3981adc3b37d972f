"""What methods are made of: kernels and collectives in stages, stages in jobs, jobs in rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from perfsim.kernel import Kernel
from perfsim.simulate.task import COMPUTE, Shared

__all__ = [
    "LOCAL",
    "Compute",
    "Group",
    "Job",
    "Moment",
    "Phase",
    "Point",
    "Round",
    "Send",
    "Shared",
    "Stage",
]

Moment = Literal["ready", "backward", "update"]
"""Earliest moment of a stage: what it needs is there; backward is over; the update is done."""

Phase = Literal["forward", "backward", "update", "next"]
"""A pass of the iteration, the end of its update, or the forward pass of the next iteration."""

Group = Literal["all", "node", "leaders", "across"] | int | tuple[int, int]
"""Who takes part in a collective: all ranks; each node's ranks, all nodes at once; one rank of
each node; the ranks that have the same place on every node, all places at once; so many ranks
that stand together, all such groups at once; or (count, stride): so many ranks that stand so far
apart, all such groups at once."""

LOCAL = -1
"""Number of an iteration in which nothing is exchanged."""


class Compute(NamedTuple):
    """Kernels that a method runs, one after the other.

    Parameters
    ----------
    kernels : what is run
    kind : what the time counts as
    stream : "compute" (contends with the backward pass) or a stream of the method's own
        ("rank 3": the compute stream of another rank, which this one may wait for)
    earliest : "ready" (in the hook, as soon as what it needs is there), "backward" (once the
        backward pass is over) or "update" (after the optimizer's step)
    blocks : the host waits for it where it stands, so that what follows in the backward pass is
        issued behind it; else kernels on "compute" that need a collective's result are issued
        after the backward pass
    """

    kernels: tuple[Kernel, ...]
    kind: Literal["compress", "decompress", "second_order"]
    stream: str = "compute"
    earliest: Moment = "ready"
    blocks: bool = False


class Send(NamedTuple):
    """One collective on a message.

    Parameters
    ----------
    collective : all_reduce, all_gather, ...
    size_bytes : the full size: of the buffer for an all-reduce, of all ranks' blocks together for
        an all-gather
    earliest : as for ``Compute``
    awaited : whether the next stage needs its result; whoever waits for the job always does
    stream : sends on one stream go one after the other
    algorithm : how it is carried out; "auto" is what the library takes, or what the user asked of
        all-reduces
    group : who takes part; ``size_bytes`` is that of one group
    priority : which message goes first, where the method's ``order`` is "priority"
    credit_bytes : there, messages are handed to the stream, the most urgent first, while those
        under way have fewer bytes; they cannot be overtaken any more. 0: one at a time
    servers : machines without GPUs that serve a push or pull beside those on the workers
    counted : whether this rank sends it; else it is another rank's, and only waited for
    shares : the link that sends on other streams slow it down on
    distances : where a rank exchanges with some others only: how far away, on both sides, they
        are; what it costs is that of ``group``
    by_turns : one of these distances an iteration
    between : whether distances count ranks, or nodes (whose first ranks exchange)
    """

    collective: str
    size_bytes: float
    earliest: Moment = "ready"
    awaited: bool = True
    stream: str = "communication"
    algorithm: str = "auto"
    group: Group = "all"
    priority: int = 0
    servers: int = 0
    counted: bool = True
    shares: Shared | None = None
    credit_bytes: float = 0.0
    distances: tuple[int, ...] = ()
    by_turns: bool = False
    between: Literal["ranks", "nodes"] = "ranks"


Stage = Compute | Send


class Point(NamedTuple):
    """A place in an iteration: ``seconds`` of computation into one of its passes.

    After the update there is one place, in this iteration or ``later`` iterations on.
    """

    phase: Phase
    seconds: float = 0.0
    later: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """Stages one after the other: when they may begin, and who waits for the last of them.

    Parameters
    ----------
    name : what a timeline shows
    stages : each waits for the one before it
    begins : where in the forward or backward pass the first stage may start
    holds : where computation waits for its end: in this iteration's passes, after the update (of
        this iteration or a later one), or ("next") in the next forward pass; None: the update waits
    needs : names of jobs of the same iteration that must end before its first stage; where one
        of them is not issued yet when this one may begin, this one goes after the backward pass
    updates : share of the optimizer's step that is run on what it brings, where ``holds`` is in
        the next forward pass; the rest is run at the end of the iteration
    after : kernels that computation runs once it has waited for the job, where it does so: before
        the job's part of the update, or the update that waits

    Raises
    ------
    ValueError
        If the job has no stage or begins in no pass, ``updates`` belongs to no next forward pass,
        ``later`` is not after an update, or ``after`` is not run by computation there.
    """

    name: str
    stages: tuple[Stage, ...]
    begins: Point
    holds: Point | None = None
    needs: tuple[str, ...] = ()
    updates: float = 0.0
    after: tuple[Compute, ...] = ()

    def __post_init__(self) -> None:
        """Check what would silently be lost."""
        phase = self.holds.phase if self.holds else None
        if not self.stages:
            raise ValueError(f"job {self.name}: it has no stage to wait for")
        if self.begins.phase not in ("forward", "backward") or self.begins.later:
            raise ValueError(f"job {self.name}: it begins in a pass of its own iteration")
        if self.updates and phase != "next":
            raise ValueError(f"job {self.name}: only the next forward pass runs a part of update")
        if self.holds and self.holds.later and phase != "update":
            raise ValueError(f"job {self.name}: only a place after the update can be later")
        if self.after and any(
            one.stream != COMPUTE or one.earliest != "ready" for one in self.after
        ):
            raise ValueError(f"job {self.name}: computation runs 'after' where it waits")

    def in_turn(self) -> Job:
        """Return the job as it goes where nothing overlaps: it begins where it is waited for."""
        if self.holds is None:
            return self
        if self.holds.phase in ("forward", "backward"):
            return replace(self, begins=self.holds)
        return replace(self, holds=Point(self.holds.phase))


@dataclass(frozen=True, slots=True)
class Round:
    """Iterations that follow each other, and how many times they do so in the method's period.

    A method's period may hold several rounds (local iterations and one that exchanges, say). Each
    is run over and over by itself and their means are weighted, which is exact as long as nothing
    is under way from one round to the next: what overlaps iterations belongs in one round.
    """

    iterations: tuple[int, ...] = (0,)
    count: float = 1.0
