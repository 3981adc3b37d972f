"""NVLink mesh: links from GPU to GPU without a switch; NCCL packs as many rings as they allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from perfsim.errors import RequestError
from perfsim.network.fabrics.option import Option
from perfsim.network.fabrics.wire import join, new_graph
from perfsim.network.routing import Graph

__all__ = ["LAYOUTS", "OPTIONS", "PLACE", "SUMMARY", "lanes", "nvlink_mesh", "ring_rate", "words"]

PLACE = "intra"
SUMMARY = "GPUs wired pair by pair: rings available grow with the GPUs in use"

LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "dgx-1-v100": (
        "-1122...",
        "1-21.2..",
        "12-2..1.",
        "212-...1",
        "2...-112",
        ".2..1-21",
        "..1.12-2",
        "...1212-",
    ),
    "dgx-1-p100": (
        "-1111...",
        "1-11.1..",
        "11-1..1.",
        "111-...1",
        "1...-111",
        ".1..1-11",
        "..1.11-1",
        "...1111-",
    ),
}
"""NVLinks between each pair of GPUs, one row a GPU.

Both as ``nvidia-smi topo -m`` prints them. V100, six a GPU: eight V100-SXM2 in
Oneflow-Inc/OneFlow-Benchmark v0.3.0, BERT base report; a DGX-1 in a test of microsoft/msccl-tools.
P100, four a GPU: a DGX-1 in RSE Sheffield's course intro_dl_sharc_dgx1, lab 5."""

OPTIONS: Mapping[str, Option] = {
    "links_per_pair": Option("count", "NVLinks between every two GPUs"),
    "layout": Option("word", "a known wiring, instead of links_per_pair", tuple(LAYOUTS)),
    "link_rate": Option("rate", "one NVLink in one direction"),
    "fallback_rate": Option("rate", "a ring over PCIe, for GPUs that have no NVLink ring"),
}


def table(gpus: int, links_per_pair: int | None, layout: str | None) -> list[list[int]]:
    """Return the links between each pair of the first ``gpus`` GPUs.

    Raises
    ------
    RequestError
        If not exactly one of the two is given, or the layout has fewer GPUs.

    Examples
    --------
    >>> table(2, 4, None), table(3, None, "dgx-1-v100")
    ([[0, 4], [4, 0]], [[0, 1, 1], [1, 0, 2], [1, 2, 0]])
    """
    if (links_per_pair is None) == (layout is None):
        raise RequestError("the node's nvlink-mesh: give either links_per_pair or layout.")
    if layout is None:
        assert links_per_pair is not None
        return [[links_per_pair * (a != b) for b in range(gpus)] for a in range(gpus)]
    rows = LAYOUTS[layout]
    if gpus > len(rows):
        raise RequestError(f"the node's nvlink-mesh: {layout} has 8 GPUs, {gpus} are asked for.")
    return [[int(cell) if cell.isdigit() else 0 for cell in row[:gpus]] for row in rows[:gpus]]


def nvlink_mesh(
    gpus: int,
    *,
    links_per_pair: int | None = None,
    layout: str | None = None,
    link_rate: float | None = None,
    fallback_rate: float | None = None,
) -> Graph:
    """Return the graph of a mesh, each link at ``link_rate`` [bytes/s] or 1.

    Examples
    --------
    >>> nvlink_mesh(4, links_per_pair=2).edges["GPU 0", "GPU 3"]["rate_bytes_per_s"]
    2.0
    """
    graph = new_graph()
    graph.graph["hosts"] += [f"GPU {index}" for index in range(gpus)]
    graph.add_nodes_from(graph.graph["hosts"], kind="host")
    for a, row in enumerate(table(gpus, links_per_pair, layout)):
        for b, links in enumerate(row):
            if a < b and links:
                join(graph, f"GPU {a}", f"GPU {b}", links * (link_rate or 1.0))
    return graph


def lanes(gpus: int, links_per_pair: int | None = None, layout: str | None = None) -> int:
    """Return how many one-way rings, each on links of its own, pass the first ``gpus`` GPUs.

    With k links for every pair k (g - 1), all that a GPU has; the complete digraph splits into
    g - 1 Hamiltonian cycles except for g = 4 and 6, where one less is found when k = 1. In a
    layout: the largest set of Hamiltonian cycles that share no link, each run both ways.

    Examples
    --------
    >>> lanes(4, links_per_pair=4), lanes(8, layout="dgx-1-v100"), lanes(5, layout="dgx-1-v100")
    (12, 6, 0)

    References
    ----------
    Tillson, J. Combinatorial Theory B 29, 1980 (even g from 8 on; odd g: Walecki). That NCCL drops
    to PCIe where the GPUs have no NVLink ring: NVIDIA/nccl-tests issue 178, 208 to 20 GB/s.
    """
    links = table(gpus, links_per_pair, layout)
    if layout is None or gpus == 2:
        odd = links_per_pair == 1 and gpus in (4, 6)
        return links[0][1] * (gpus - 1) - odd
    return 2 * _pack(tuple(map(tuple, links)))


def ring_rate(
    gpus: int,
    *,
    links_per_pair: int | None = None,
    layout: str | None = None,
    link_rate: float | None = None,
    fallback_rate: float | None = None,
) -> float:
    """Return the bus bandwidth of the rings over the first ``gpus`` GPUs [B/s, or links].

    Raises
    ------
    RequestError
        If they have no NVLink ring and the rates of both ways are not stated.
    """
    count = lanes(gpus, links_per_pair, layout)
    if count:
        return count * (link_rate or 1.0)
    if link_rate is None or fallback_rate is None:
        raise RequestError(
            f"the node's nvlink-mesh: the first {gpus} GPUs of {layout} have no ring over NVLink,"
            " and NCCL takes PCIe; state link_rate and fallback_rate in the network file, or use"
            " another number of GPUs."
        )
    return fallback_rate


@cache
def _pack(links: tuple[tuple[int, ...], ...]) -> int:
    """Return the most undirected Hamiltonian cycles that use each link at most once."""
    spare = [list(row) for row in links]
    cycles = list(_cycles(spare))
    limit = min(sum(row) for row in links) // 2

    def most(start: int, found: int) -> int:
        best = found
        for index in range(start, len(cycles)):
            hops = cycles[index]
            for a, b in hops:
                spare[a][b] -= 1
                spare[b][a] -= 1
            if all(spare[a][b] >= 0 for a, b in hops):
                best = max(best, most(index, found + 1))
            for a, b in hops:
                spare[a][b] += 1
                spare[b][a] += 1
            if best == limit:
                break
        return best

    return most(0, 0)


def _cycles(links: list[list[int]]) -> Iterator[list[tuple[int, int]]]:
    """Go through the Hamiltonian cycles, each once in one of its two directions."""
    size = len(links)

    def grow(way: list[int]) -> Iterator[list[tuple[int, int]]]:
        if len(way) == size:
            if links[way[-1]][0] and way[1] < way[-1]:
                yield list(zip(way, [*way[1:], 0], strict=True))
            return
        for following in range(1, size):
            if links[way[-1]][following] and following not in way:
                yield from grow([*way, following])

    yield from grow([0])


def words(
    *,
    links_per_pair: int | None = None,
    layout: str | None = None,
    link_rate: float | None = None,
    fallback_rate: float | None = None,
) -> str:
    """Return the fabric in a few words; rates [bytes/s] are not told.

    Examples
    --------
    >>> words(links_per_pair=4), words(layout="dgx-1-v100")
    ('NVLink mesh, 4 links a pair', 'NVLink mesh dgx-1-v100')
    """
    if layout is not None:
        return f"NVLink mesh {layout}"
    return f"NVLink mesh, {links_per_pair} links a pair"
