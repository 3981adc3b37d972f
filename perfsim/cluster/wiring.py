"""How a cluster is wired: its shape, and the links that a collective's hops run over."""

from __future__ import annotations

from typing import NamedTuple

from perfsim.cluster.link import Link
from perfsim.collectives import Hops

__all__ = ["Wiring"]


class Wiring(NamedTuple):
    """P GPUs on N nodes, g on the fullest, and the links in use between and inside them.

    ``inter`` is None for one node, ``intra`` for one GPU a node; ``nics`` share a node's traffic.
    ``servers`` are machines without GPUs.
    """

    ranks: int
    nodes: int
    gpus_per_node: int
    nics: int
    inter: Link | None
    intra: Link | None
    servers: int = 0

    @property
    def links(self) -> dict[str, Link]:
        """Links in use by class."""
        pairs = (("inter", self.inter), ("intra", self.intra))
        return {of: link for of, link in pairs if link is not None}

    @property
    def members(self) -> dict[str, int]:
        """GPUs that the hops of each class join, to hold against the range of its fit."""
        return {"inter": self.ranks, "intra": self.gpus_per_node}

    @property
    def stretch(self) -> dict[str, float]:
        """How many times longer the ring is than the longest measured, by class, where it is.

        Between nodes the range of that link decides, in whose fit the hops inside took part; a
        link without a range leaves it to the one inside.
        """
        most = {of: link.ranks[1] for of, link in self.links.items() if link.ranks}
        if self.ranks <= most.get("inter", most.get("intra", self.ranks)):
            return {}
        return {of: max(1.0, self.ranks / most.get(of, self.ranks)) for of in self.links}

    @property
    def longest_measured(self) -> Wiring | None:
        """The largest cluster of such nodes within the range, or None if one GPU is left."""
        inter, intra = self.inter, self.intra
        nodes = inter.ranks[1] // self.gpus_per_node if inter and inter.ranks else 1
        if nodes > 1:
            return self._replace(ranks=nodes * self.gpus_per_node, nodes=nodes)
        if intra is None:
            return None
        inside = min(self.gpus_per_node, intra.ranks[1] if intra.ranks else self.gpus_per_node)
        return self._replace(ranks=inside, nodes=1, gpus_per_node=inside, inter=None)

    def hops(self) -> Hops:
        """Return the hops without their latency: what does not depend on the message size.

        A ring or tree crosses both classes of link; the busiest one sets its beta.
        """
        inter, intra = self.inter, self.intra
        wire = 1.0 / intra.rate.value if intra else 0.0
        nic = 1.0 / (self.nics * inter.rate.value) if inter else 0.0
        tree_wire = 1.0 / intra.tree_rate.value if intra else 0.0
        # The sum is added where the bytes queue: of two links the slower one's rate holds its own.
        busiest = inter if inter and (intra is None or nic >= wire) else intra
        tree_nic = 1.0 / (self.nics * inter.tree_rate.value) if inter else 0.0
        return Hops(
            ranks=self.ranks,
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            alpha_intra_s=0.0,
            alpha_inter_s=0.0,
            beta_s_per_byte=max(nic, wire),
            tree_beta_s_per_byte=max(tree_nic, tree_wire),
            beta_intra_s_per_byte=wire,
            beta_nic_s_per_byte=nic,
            gamma_s_per_byte=busiest.gamma.value if busiest else 0.0,
            servers=self.servers,
        )
