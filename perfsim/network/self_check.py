"""Checks of a network file: the laws that every network obeys, and its links beside its curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perfsim.network.link import Link
from perfsim.network.route import ClusterLinks, Route
from perfsim.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from perfsim.network.measured import CollectiveCurve
    from perfsim.network.network_file import Network

from perfsim.collectives import find_algorithm

__all__ = ["contradictions", "self_check"]

ALL_SHAPES = (0, 0)
"""Stands for every number of ranks and nodes."""

_SIZES = tuple(4.0**power for power in range(2, 16))
"""Messages that are tried, 16 B to 1 GiB. No source: chosen."""

_RANKS = 8
"""Ranks of the ring and the tree that are tried. No source: chosen."""

_NODE_BYTES: dict[str, Callable[[int, int, int], float]] = {
    "all_reduce": lambda ranks, nodes, gpus: 2.0 * (ranks - 1) / ranks,
    "all_gather": lambda ranks, nodes, gpus: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks, nodes, gpus: (ranks - 1) / ranks,
    "all_to_all": lambda ranks, nodes, gpus: gpus * (ranks - gpus) / ranks,
}
"""What leaves a node of a message of one byte, by ranks, nodes and GPUs a node, over rings. A
send_recv crosses with one rank alone and says nothing of a node."""

_MAX_APART = 2.0
"""Rates between the same nodes further apart than this contradict each other (issue 21)."""

_MAX_RATIO = 3.0
"""A link and a curve of one network further apart than this factor contradict each other.

No source: chosen below 8, the least that a mistaken unit makes (bits for bytes, us for ms)."""


def self_check(network: Network, shape: tuple[int, int] | None = ALL_SHAPES) -> list[str]:
    """Return a sentence for each thing in a network that looks wrong, none where all is well.

    For each link, predicted times are positive, grow with size, and are never shorter than the
    bytes of a ring take at its rate. For each curve, time does not fall by more than 10 % as size
    grows (it is kept and interpolated as measured). Its large messages are within 3 times of what
    the link says, unless calibration noticed that times changed meanwhile. Collectives on the same
    nodes show one rate between them, within twice.

    Parameters
    ----------
    network : with its links and curves
    shape : ranks and nodes of the curves whose falls are named; `ALL_SHAPES` names all, None none
    """
    sentences: list[str] = []
    for link_class, link in network.links.items():
        sentences += _link(link_class, link)
    if network.node is not None and "intra" not in network.links:
        sentences.append(
            "[node] has no effect: the file has no link of class 'intra' for it to share"
        )
    changed = any(noticed.what == "change" for noticed in network.noticed)
    if network.known is not None:
        for curve in network.known.curves:
            if shape in (ALL_SHAPES, (curve.ranks, curve.nodes)):
                sentences += _falls(curve)
            if not changed:
                sentences += _against_link(curve, network)
        if shape == ALL_SHAPES:
            sentences += contradictions(network.known.curves)
    return sentences


def _link(link_class: str, link: Link) -> list[str]:
    wiring = ClusterLinks(
        _RANKS,
        _RANKS if link_class == "inter" else 1,
        1 if link_class == "inter" else _RANKS,
        1,
        link if link_class == "inter" else None,
        link if link_class == "intra" else None,
    )
    sentences: list[str] = []
    for name in ("ring", "tree"):
        what = f"{link_class} link, {name}"
        route = Route(find_algorithm("all_reduce", name), wiring)
        times = [route.seconds(size) for size in _SIZES]
        for size, before, after in zip(_SIZES, [0.0, *times], times, strict=False):
            if not after > 0 or after < before:
                sentences.append(
                    f"{what}: {format_seconds(after)} at {format_bytes(size)} after"
                    f" {format_seconds(before)}; time does not fall with size"
                )
        least_s = (
            2.0 * (_RANKS - 1) / _RANKS * _SIZES[-1] / max(link.rate.value, link.tree_rate.value)
        )
        if times[-1] < least_s * (1.0 - 1e-9):
            sentences.append(
                f"{what}: {format_bytes(_SIZES[-1])} in {format_seconds(times[-1])} is"
                f" faster than its rate {format_rate(link.rate.value)} allows"
            )
    if link.tree_rate.value > link.rate.value:
        sentences.append(
            f"{link_class} link: tree rate {format_rate(link.tree_rate.value)} above the rate"
            f" {format_rate(link.rate.value)}; no tree moves fewer bytes than a ring"
        )
    return sentences


def _falls(curve: CollectiveCurve) -> list[str]:
    falls = curve.falls()
    if not falls:
        return []
    worst = max(falls, key=lambda fall: fall[2])
    more = f" and at {len(falls) - 1} more places" if len(falls) > 1 else ""
    return [
        f"{curve.name}: {curve.kind} time falls by {worst[2]:.0%} from {format_bytes(worst[0])} to"
        f" {format_bytes(worst[1])}{more}; kept, interpolated as it is"
    ]


def contradictions(curves: Sequence[CollectiveCurve]) -> list[str]:
    """Say where collectives on the same nodes show rates between them over twice apart."""
    alike: dict[tuple[object, ...], list[CollectiveCurve]] = {}
    for curve in curves:
        if curve.nodes > 1 and curve.collective in _NODE_BYTES:
            shape = (curve.ranks, curve.nodes, curve.gpus_per_node, curve.library)
            alike.setdefault((*shape, curve.algorithm, curve.protocol), []).append(curve)
    sentences = []
    for same in alike.values():
        fast, slow = max(same, key=_least_rate), min(same, key=_most_rate)
        ratio = _least_rate(fast) / _most_rate(slow)
        if ratio > _MAX_APART:
            sentences.append(
                f"{fast.name} needs {format_rate(_least_rate(fast))} between nodes,"
                f" {slow.collective} reaches {format_rate(_most_rate(slow))}: they contradict each"
                f" other by {ratio:.1f} times; a NIC, a setting or a unit differs"
            )
    return sentences


def _most_rate(curve: CollectiveCurve) -> float:
    """Return the rate out of a node that large messages of a curve show at most [B/s]."""
    share = _NODE_BYTES[curve.collective](curve.ranks, curve.nodes, curve.gpus_per_node)
    return max(share * size / seconds for size, seconds in curve.large())


def _least_rate(curve: CollectiveCurve) -> float:
    """Return what they need at least: an all-reduce of two nodes may be a tree's, of one byte."""
    trees = curve.collective == "all_reduce" and curve.nodes == 2
    return _most_rate(curve) / (2.0 * (curve.ranks - 1) / curve.ranks if trees else 1.0)


def _against_link(curve: CollectiveCurve, network: Network) -> list[str]:
    link_class = "inter" if curve.nodes > 1 else "intra"
    link = network.links.get(link_class)
    if link is None or curve.collective != "all_reduce" or curve.algorithm == "tree":
        return []
    nics = min(network.nics_per_node, curve.gpus_per_node) if link_class == "inter" else 1
    factor = 2.0 * (curve.ranks - 1) / curve.ranks
    best = max(factor * size / seconds for size, seconds in curve.large())
    stated = nics * link.rate.value
    if best <= _MAX_RATIO * stated and stated <= _MAX_RATIO * best:
        return []
    return [
        f"{curve.name}: large messages reach {format_rate(best)}, the {link_class} link says"
        f" {format_rate(stated)}; one of the two has a wrong unit or is of another network"
    ]
