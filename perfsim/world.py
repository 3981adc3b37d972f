"""World: what a method may know of the ranks it runs on, the model, and what things cost there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfsim.kernel import Kernel
from perfsim.profile import Profile
from perfsim.stage import Group

__all__ = ["World"]


def _free(collective: str, size_bytes: float, group: Group = "all", /) -> float:
    return 0.0


def _instant(kernel: Kernel, /) -> float:
    return 0.0


@dataclass(frozen=True)
class World:
    """Ranks, nodes, and the costs that methods decide by.

    Parameters
    ----------
    ranks : P
    nodes : N; 0 for as many as full ones hold the ranks
    gpus_per_node : g, GPUs on the fullest node
    collective_s : (collective, bytes, group) to seconds, as the stages that name no algorithm
        are charged
    kernel_s : kernel to seconds
    profile : the model as it runs here; None where no method asks for it

    Examples
    --------
    >>> World(8).nodes
    8
    """

    ranks: int
    nodes: int = 0
    gpus_per_node: int = 1
    collective_s: Callable[[str, float, Group], float] = _free
    kernel_s: Callable[[Kernel], float] = _instant
    profile: Profile | None = None

    def __post_init__(self) -> None:
        """Count the nodes where they were not given."""
        if not self.nodes:
            object.__setattr__(self, "nodes", -(-self.ranks // self.gpus_per_node))
