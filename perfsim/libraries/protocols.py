"""NCCL's protocols: what one costs beside NCCL's own choice."""

from __future__ import annotations

from functools import cache

from perfsim.errors import RequestError, unknown
from perfsim.libraries import AUTO
from perfsim.libraries.nccl_figures import PROTOCOLS, figures

__all__ = ["VERSION", "check_protocol", "protocol_factors"]

VERSION = "2.21.5"
"""Whose figures stand for a link that names no version."""

CLASSES = ("nvlink", "pci", "net")

BANDWIDTH = {"ll": 0.5, "ll128": 0.92, "simple": 1.0}
"""LL sends a 4 B flag with every 4 B; LL128 8 B with every 120 B, 0.92 in NCCL's tuner."""


def check_protocol(name: str, library: str, has: bool) -> None:
    """Refuse a protocol that there is not, or that a library does not have.

    Raises
    ------
    RequestError
        If so; lists those there are.

    Examples
    --------
    >>> check_protocol("ll128", "nccl", True)
    """
    if name not in (AUTO, *PROTOCOLS):
        raise unknown("protocol", name, (AUTO, *PROTOCOLS))
    if name != AUTO and not has:
        raise RequestError(
            "protocol",
            f"{name!r} is a protocol of NCCL, and {library} has none; leave it out, or"
            " take `library` nccl.",
        )


@cache
def protocol_factors(
    protocol: str, version: str = VERSION, link_class: str = "net", algorithm: str = "ring"
) -> tuple[float, float]:
    """Return the factors on latency and bandwidth of a link when a protocol is fixed.

    Latency: the tuner's hop latency of the protocol over that of LL, which NCCL takes for small
    messages by itself. Bandwidth: 0.5, 0.92 and 1, over that of Simple, which it takes for large.

    Parameters
    ----------
    protocol : ll, ll128 or simple
    version : of NCCL, 2.5 or later (2.4 takes the figures of 2.5)
    link_class : nvlink, pci or net
    algorithm : ring or tree, whose hops they are

    Raises
    ------
    RequestError
        If a name is unknown.

    References
    ----------
    github.com/NVIDIA/nccl, src/graph/tuning.cc, hop latencies and shares of bandwidth by version.

    Examples
    --------
    >>> [round(factor, 2) for factor in protocol_factors("simple", "2.21.5", "net")]
    [5.19, 1.0]
    >>> protocol_factors("ll", "2.21.5", "nvlink")
    (1.0, 0.5)
    """
    if protocol not in PROTOCOLS:
        raise unknown("protocol", protocol, PROTOCOLS)
    if link_class not in CLASSES:
        raise unknown("link class", link_class, CLASSES)
    known = figures("2.5" if version.startswith("2.4") else version)
    hops = known.hop_us[link_class][algorithm]
    return hops[PROTOCOLS.index(protocol)] / hops[0], BANDWIDTH[protocol]
