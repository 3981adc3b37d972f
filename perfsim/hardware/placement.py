"""How many GPUs are on each node, and which nodes are at which site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfsim.errors import RequestError
from perfsim.network.cluster import Cluster, node_placement
from perfsim.network.network_file import Network
from perfsim.scenario import Scenario

__all__ = ["at_sites", "place_gpus"]


def place_gpus(
    scenario: Scenario, each: int | None, network: Network
) -> tuple[tuple[int, ...] | None, int | None]:
    """Return the GPUs on each node where sites say it, with the GPUs of a node, else as asked for.

    Raises
    ------
    RequestError
        If nodes do not fill the sites.
    """
    if scenario.site is None or len(scenario.site) == 1:
        return scenario.placement, each
    if scenario.placement is not None:
        _nodes_of_sites(scenario.placement, scenario.site)
        return scenario.placement, each
    nodes: tuple[int, ...] = ()
    for number, gpus in enumerate(scenario.site, 1):
        if each is not None and gpus % each:
            raise RequestError(
                "gpus_per_node",
                f"the {gpus} GPUs of site {number} do not divide by {each}; give another number, or"
                " `placement` for uneven nodes.",
                value=each,
            )
        nodes += node_placement(gpus, each, None, network.gpus_per_node)
    return nodes, None


def _nodes_of_sites(nodes: Sequence[int], sites: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Divide the GPUs on each node among sites.

    Raises
    ------
    RequestError
        If a node belongs to two sites.
    """
    parts, left = [], list(nodes)
    for number, gpus in enumerate(sites, 1):
        part: list[int] = []
        while left and sum(part) < gpus:
            part.append(left.pop(0))
        if sum(part) != gpus:
            raise RequestError(
                "placement",
                f"its nodes do not fill site {number} of {gpus} GPUs: {sum(part)} are on the"
                f" {len(part)} nodes from there on; a node is at one site.",
                value=list(nodes),
            )
        parts.append(tuple(part))
    return tuple(parts)


def at_sites(scenario: Scenario, cluster: Cluster) -> Cluster:
    """Return the cluster with the sites that it is on, where these are several."""
    if scenario.site is None or scenario.wan is None or len(scenario.site) == 1:
        return cluster
    from perfsim.network.wide_area import WideArea
    from perfsim.network.wide_link import parse_wide_links

    links = parse_wide_links(scenario.wan)
    links = links * len(scenario.site) if len(links) == 1 else links
    return replace(cluster, wide=WideArea(links, _nodes_of_sites(cluster.placement, scenario.site)))
