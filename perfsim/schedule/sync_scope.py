"""Synchronisation: the ranks that a rank waits for before each collective."""

from __future__ import annotations

from perfsim.methods.base import Send
from perfsim.simulate.sync import Blocks, Groups, Neighbours, SyncScope

__all__ = ["sync_scope"]

_WAIT_FOR_ALL = ("all", "leaders", "ep", "experts")
"""Groups in which a rank waits for all data-parallel ranks; those of experts are taken for such."""


def sync_scope(send: Send, placement: tuple[int, ...]) -> SyncScope | None:
    """Return the ranks that one waits for before a collective; None: all of them.

    One rank of each node ("leaders") sends for its node, so that all nodes wait for each other.
    What a server sums up needs all ranks, whoever shares the wire with whom.

    Parameters
    ----------
    send : the collective
    placement : ranks on each node

    Examples
    --------
    >>> sync_scope(Send("all_reduce", 1e6, group="node"), (4, 4))
    Groups(placement=(4, 4), which='node')
    >>> sync_scope(Send("all_reduce", 1e6, group="leaders"), (4, 4)) is None
    True
    """
    if send.distances:
        between = placement if send.between == "nodes" else ()
        return Neighbours(send.distances, send.by_turns, between)
    if send.group in _WAIT_FOR_ALL or send.collective in ("push", "pull"):
        return None
    if send.group == "node":
        return Groups(placement) if len(placement) > 1 else None
    if send.group == "across":
        return Groups(placement, "across") if max(placement) > 1 else None
    if isinstance(send.group, tuple):
        return Blocks(*send.group)
    # A rank here is its whole tensor, context and pipeline groups.
    count = send.group if isinstance(send.group, int) else 1
    return Blocks(count) if count < sum(placement) else None
