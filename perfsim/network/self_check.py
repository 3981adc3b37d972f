"""A network file held against the laws that any network obeys, and against its own curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsim.collectives import find_algorithm
from perfsim.network.link import Link
from perfsim.network.route import ClusterLinks, Route
from perfsim.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from perfsim.network.measured import CollectiveCurve
    from perfsim.network.network_file import Network

__all__ = ["self_check"]

ALL_SHAPES = (0, 0)

_SIZES = tuple(4.0**power for power in range(2, 16))
"""16 B to 1 GiB."""

_RANKS = 8

_MAX_RATIO = 3.0
"""A link and a curve of one network further apart than this, as a factor, contradict each other:
a unit mistaken for its neighbour (bits for bytes, us for ms) is 8 or more."""


def self_check(network: Network, shape: tuple[int, int] | None = ALL_SHAPES) -> list[str]:
    """Return a sentence for each thing in a network that looks wrong, none where all is well.

    Of each link: predicted times are positive, grow with size, and are never shorter than the
    bytes of a ring take at its rate. Of each curve: where time falls by more than 10 % as size
    grows (kept, interpolated as measured), and where its large messages are 3 times faster or
    slower than the link says.

    Parameters
    ----------
    network : with its links and curves
    shape : ranks and nodes of the curves whose falls are told; `ALL_SHAPES` tells all, None none
    """
    found: list[str] = []
    for of, link in network.links.items():
        found += _link(of, link)
    if network.node is not None and "intra" not in network.links:
        found.append("[node] has no effect: the file has no link of class 'intra' for it to share")
    if network.known is not None:
        for curve in network.known.curves:
            if shape in (ALL_SHAPES, (curve.ranks, curve.nodes)):
                found += _falls(curve)
            found += _against_link(curve, network)
    return found


def _link(of: str, link: Link) -> list[str]:
    wiring = ClusterLinks(
        _RANKS,
        _RANKS if of == "inter" else 1,
        1 if of == "inter" else _RANKS,
        1,
        link if of == "inter" else None,
        link if of == "intra" else None,
    )
    found: list[str] = []
    for name in ("ring", "tree"):
        route = Route(find_algorithm("all_reduce", name), wiring)
        times = [route.seconds(size) for size in _SIZES]
        for size, before, after in zip(_SIZES, [0.0, *times], times, strict=False):
            if not after > 0 or after < before:
                found.append(
                    f"{of} link, {name}: {format_seconds(after)} at {format_bytes(size)} after"
                    f" {format_seconds(before)}; time does not fall with size"
                )
        least_s = (
            2.0 * (_RANKS - 1) / _RANKS * _SIZES[-1] / max(link.rate.value, link.tree_rate.value)
        )
        if times[-1] < least_s * (1.0 - 1e-9):
            found.append(
                f"{of} link, {name}: {format_bytes(_SIZES[-1])} in {format_seconds(times[-1])} is"
                f" faster than its rate {format_rate(link.rate.value)} allows"
            )
    if link.tree_rate.value > link.rate.value:
        found.append(
            f"{of} link: tree rate {format_rate(link.tree_rate.value)} above the rate"
            f" {format_rate(link.rate.value)}; no tree moves fewer bytes than a ring"
        )
    return found


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


def _against_link(curve: CollectiveCurve, network: Network) -> list[str]:
    of = "inter" if curve.nodes > 1 else "intra"
    link = network.links.get(of)
    if link is None or curve.collective != "all_reduce" or curve.algorithm == "tree":
        return []
    nics = min(network.nics_per_node, curve.gpus_per_node) if of == "inter" else 1
    factor = 2.0 * (curve.ranks - 1) / curve.ranks
    best = max(factor * size / seconds for size, seconds in curve.large())
    stated = nics * link.rate.value
    if best <= _MAX_RATIO * stated and stated <= _MAX_RATIO * best:
        return []
    return [
        f"{curve.name}: large messages reach {format_rate(best)}, the {of} link says"
        f" {format_rate(stated)}; one of the two has a wrong unit or is of another network"
    ]
