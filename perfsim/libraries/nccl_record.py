"""What the figures of NCCL's tuning model are: the record that holds those of one version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["FigureRows", "Triple", "VersionFigures"]

Triple = tuple[float, float, float]
"""LL, LL128, Simple; or one node, two nodes, more."""

FigureRows = tuple[Triple, ...]
"""By GPU generation (Volta and older, Ampere, Hopper, Blackwell), each by number of nodes."""


@dataclass(frozen=True, slots=True)
class VersionFigures:
    """The tuning model's numbers from one version on; the fields follow its formulas.

    Parameters
    ----------
    since, tag : first version that has them; where they were read
    base_us : latency of a call by algorithm
    hop_us : latency of a hop by link (nvlink, pci, net) and algorithm
    ring_ll : share of bus bandwidth, across nodes or reducing, and else
    ring_ll128 : share with one GPU a node, and else
    tree, tree_ll, tree_ll128 : shares of a tree; tree_ll128 on one node, and else
    bus_cap : highest bus bandwidth, by row of the tables that follow
    ll_cap : highest LL bandwidth: one node by generation, more by CPU (Intel, AMD)
    ring_ll128_cap, tree_ll128_cap, tree_cap, nvls_tree_cap : highest bandwidth a channel
    tree_total_cap, tree_total_ll128_ampere : highest bandwidth of all channels, before 2.8
    ll128_by_collective, ll128_per_channel, tree_ll128_scale : LL128 caps before 2.10
    tree_factor : correction of the tree's bandwidth for 64 B, 128 B, ... by protocol
    """

    since: tuple[int, int]
    tag: str
    base_us: dict[str, Triple]
    hop_us: dict[str, dict[str, Triple]]
    ring_ll: tuple[float, float]
    ring_ll128: tuple[float, float]
    tree: float
    tree_ll: float
    tree_ll128: tuple[float, float]
    tree_factor: tuple[tuple[float, ...], ...]
    bus_cap: Mapping[int, float] = field(default_factory=dict)
    ll_cap: FigureRows | None = None
    ring_ll128_cap: FigureRows | None = None
    tree_ll128_cap: FigureRows | None = None
    tree_cap: FigureRows | None = None
    nvls_tree_cap: FigureRows | None = None
    tree_total_cap: Triple | None = None
    tree_total_ll128_ampere: Triple | None = None
    ll128_by_collective: Mapping[str, float] = field(default_factory=dict)
    ll128_per_channel: bool = True
    tree_ll128_scale: float | None = None
    nvls_efficiency: tuple[float, float, float, float] | None = None
    pat_share: float | None = None
