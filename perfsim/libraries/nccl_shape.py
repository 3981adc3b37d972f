"""What NCCL's tuner knows of a communicator."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CommunicatorShape"]


@dataclass(frozen=True, slots=True)
class CommunicatorShape:
    """Ranks, nodes, GPUs, CPU and links of a communicator, as `NcclTuner` is given them.

    ``capability`` is the GPU's compute capability, ``bus_bandwidth`` in GB/s over all channels.
    """

    ranks: int
    nodes: int
    capability: int
    cpu: str
    intra: str
    bus_bandwidth: float
    channels: int
    nvswitch: bool
    in_network: bool
    near_nic: bool
    plain_tree: bool

    @property
    def nvlink(self) -> bool:
        """Whether GPUs of a node are joined by NVLink."""
        return self.intra == "nvlink"

    @property
    def per_node(self) -> int:
        """GPUs a node as NCCL counts hops: whole ones."""
        return self.ranks // self.nodes

    @property
    def mean_per_node(self) -> float:
        """GPUs a node as NCCL weighs bandwidth."""
        return self.ranks / self.nodes

    @property
    def span(self) -> int:
        """Place in a triple by nodes: one, two, more."""
        return min(self.nodes, 3) - 1

    @property
    def nvls(self) -> bool:
        """Whether the switch inside a node reduces: NVSwitch, Hopper or later, above two GPUs."""
        return self.nvswitch and self.capability >= 90 and self.per_node > 2

    def row(self, since: tuple[int, int]) -> int:
        """Return the row of a table by generation: Volta and older, Ampere, Hopper, Blackwell.

        Up to 2.16 only compute capability 8.0 (and 9.0 from 2.14) leave the first row.
        """
        if since < (2, 17):
            return {80: 1, 90: 2 if since >= (2, 14) else 0}.get(self.capability, 0)
        return sum(self.capability >= least for least in (80, 90, 100))
