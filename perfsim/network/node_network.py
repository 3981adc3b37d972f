"""A network made of a node type: links for the formulas, and the law for NCCL's collectives."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from perfsim.collectives import Hops, find_algorithm
from perfsim.data.catalog import Catalog
from perfsim.errors import own_name
from perfsim.network.known import SENT_AS
from perfsim.network.link import Latency, Link
from perfsim.network.network_file import Network, load_network
from perfsim.network.node_law import NodeFacts, node_error, node_law
from perfsim.network.node_type import NodeType, load_node_type
from perfsim.quantity import Cost, Quantity, Term
from perfsim.units import format_bytes

__all__ = ["DerivedCollectives", "load_any_network", "node_network"]

_LIBRARIES = ("nccl", "rccl")
"""Libraries that the law is of."""
_HELD = ("ring", "tree", "nvls", "nvls_tree", "collnet_direct")
"""Algorithms that the law can be held to."""
_LAW = "x what measured clusters reach of it (profiles/nodes/constants.csv)"


class DerivedCollectives(NamedTuple):
    """What collectives cost on nodes of one type, by their data sheet and the law.

    Parameters
    ----------
    name : of the node type
    facts : of its data sheet
    """

    name: str
    facts: NodeFacts

    def cost(
        self,
        collective: str,
        size_bytes: float,
        placement: tuple[int, ...],
        library: str,
        held: str = "",
    ) -> Cost | None:
        """Return the cost of a collective, None where the law has nothing to say.

        Parameters
        ----------
        placement : GPUs on each node; where nodes are uneven the fullest counts for all
        held : the algorithm asked for, "" for the library's choice
        """
        if library not in _LIBRARIES or (held and held not in _HELD):
            return None
        nodes, per_node = len(placement), max(placement)
        ranks = nodes * per_node
        call = node_law().call(self.facts, collective, ranks, nodes, size_bytes, held)
        if call is None:
            return None
        hops = Hops(ranks, nodes, per_node, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        sent = find_algorithm(collective, SENT_AS[collective]).sent_bytes(size_bytes, hops)
        spread = node_error(self.facts, nodes, size_bytes)
        source = f"{self.name} by its data sheet and what clusters of other kinds reach of theirs"
        quantity = Quantity(call.seconds, "s", "derived", f"{source}; {call.algorithm}", spread)
        what = f"{collective} on {ranks} GPUs at {format_bytes(size_bytes, 3)}"
        terms = (Term(what, quantity),)
        return Cost(call.seconds, call.latency_s, sent, spread, terms, "derived")


def load_any_network(text: str, catalog: Catalog, field: str) -> Network:
    """Return a network as `load_network` does, or the one that nodes of a type of that name make.

    Raises
    ------
    RequestError
        If there is no such network, node type or file, or the rate or latency is wrong.
    DataError
        If the file is damaged.
    """
    networks, nodes = catalog.files("networks"), catalog.files("nodes")
    if own_name(text, networks) not in networks and own_name(text, nodes) in nodes:
        return node_network(load_node_type(text, catalog, field))
    return load_network(text, catalog, field)


def node_network(node: NodeType) -> Network:
    """Return the network that nodes of a type make.

    Its links are for what the law does not price: algorithms that are named, servers, gloo and MPI.
    A GPU drives one NIC of a link; where it has several, the link is all of them.

    Examples
    --------
    >>> from perfsim.data.catalog import Catalog
    >>> from perfsim.network.node_type import load_node_type
    >>> p5 = node_network(load_node_type("p5", Catalog(), "node"))
    >>> p5.gpus_per_node, p5.nics_per_node, sorted(p5.links)
    (8, 8, ['inter', 'intra'])
    """
    facts, links = node.facts(""), {}
    nics = node.driven_nics
    law = node_law()
    if node.nics is not None:
        rate, hop_s = law.net_link(facts)
        shares = f"{facts.nics // nics} NICs of a GPU" if facts.nics > nics else "a NIC"
        source = f"rate of {shares}, {node.nics.source}, {_LAW}"
        inter = _link(node.name, rate, hop_s, source)
        links["inter"] = replace(inter, sharing=law.nic_sharing(facts))
    if facts.inside:
        rate, step_s = law.inside_link(facts)
        intra = _link(node.name, rate, step_s, f"{node.inside.source}, {_LAW}")
        links["intra"] = replace(intra, transport=node.inside.link)
    return Network(
        name=node.name,
        title=node.title,
        transport=facts.transport or node.inside.link,
        gpus_per_node=node.gpus,
        nics_per_node=nics,
        links=links,
        notes=node.notes,
        path=node.path,
        library=node.library,
        node_type=node,
    )


def _link(name: str, rate: float, alpha_s: float, source: str) -> Link:
    alpha = Latency.constant(Quantity(alpha_s, "s/hop", "derived", source))
    through = Quantity(rate, "B/s", "derived", source)
    gamma = Quantity(0.0, "s/B", "derived", "the sum runs while bytes move: part of the rate")
    return Link(name, through, through, gamma, alpha, alpha)
