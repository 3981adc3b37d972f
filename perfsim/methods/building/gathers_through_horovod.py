"""Compressing methods whose public code all-gathers messages through Horovod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsim.methods.base import Method, MethodContext
from perfsim.methods.building.code_bases import DDP, HOROVOD, CodeBase

__all__ = ["GathersThroughHorovod"]


class GathersThroughHorovod(Method):
    """A method with an option ``exchange``, whose all-gathers GRACE and MergeComp run in Horovod.

    Its other exchanges are of papers or of streams that wait for each other: no host waits there.
    One that compresses ``between_nodes`` needs two nodes.
    """

    if TYPE_CHECKING:  # each method states its own field, with its own values
        exchange: str

    def code_base(self) -> CodeBase:
        """Return Horovod's optimizer for all-gathers, streams without a waiting host for others."""
        return HOROVOD if self.exchange == "all_gather" else DDP

    def refusal(self, world: MethodContext) -> str:
        """Return why one node cannot compress between nodes, or "".

        Examples
        --------
        >>> from perfsim.methods.onebit import Onebit
        >>> method = Onebit(exchange="between_nodes")
        >>> method.refusal(MethodContext(8, 1, 8)), method.refusal(MethodContext(8, 2, 4))
        ('compresses between nodes (exchange=between_nodes), and there is only one', '')
        """
        if self.exchange != "between_nodes" or world.ranks == 1 or world.nodes > 1:
            return ""
        return "compresses between nodes (exchange=between_nodes), and there is only one"
