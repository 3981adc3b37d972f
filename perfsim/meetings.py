"""Whom a rank waits for in what a method sends, as the simulator is told."""

from __future__ import annotations

from perfsim.simulate.meeting import Blocks, Groups, Meeting, Peers
from perfsim.stage import Send

__all__ = ["meeting_of"]


def meeting_of(send: Send, placement: tuple[int, ...]) -> Meeting | None:
    """Return whom a rank waits for before a collective; None: for all ranks.

    One rank of each node ("leaders") stands for its node, so that all nodes wait for each other;
    what a server sums up needs all ranks, whoever shares the wire with whom.

    Parameters
    ----------
    send : the collective
    placement : ranks on each node

    Examples
    --------
    >>> meeting_of(Send("all_reduce", 1e6, group="node"), (4, 4))
    Groups(placement=(4, 4), which='node')
    >>> meeting_of(Send("all_reduce", 1e6, group="leaders"), (4, 4)) is None
    True
    """
    if send.distances:
        between = placement if send.between == "nodes" else ()
        return Peers(send.distances, send.by_turns, between)
    if send.group in ("all", "leaders") or send.collective in ("push", "pull"):
        return None
    if send.group == "node":
        return Groups(placement) if len(placement) > 1 else None
    if send.group == "across":
        return Groups(placement, "across") if max(placement) > 1 else None
    if isinstance(send.group, tuple):
        return Blocks(*send.group)
    assert isinstance(send.group, int)
    return Blocks(send.group) if send.group < sum(placement) else None
