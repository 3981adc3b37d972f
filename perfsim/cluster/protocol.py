"""A link as one of NCCL's protocols sees it."""

from __future__ import annotations

import math
from dataclasses import replace

from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Held, Link
from perfsim.library import AUTO
from perfsim.library.protocols import VERSION, protocol_factors
from perfsim.quantity import Quantity

__all__ = ["fixed", "link_class"]

SMALL_BYTES = 65536.0
"""Up to about here NCCL takes LL by itself; its tuner switches at 16 KiB to 1 MiB."""


def link_class(link: Link, of: str) -> str:
    """Return a link's class in NCCL's figures: net between nodes, nvlink or pci inside.

    Examples
    --------
    >>> from perfsim.cluster.link import custom_link
    >>> link_class(custom_link("10GB/s,2us", "--net"), "inter")
    'net'
    """
    if of == "inter":
        return "net"
    return "nvlink" if link.name.startswith("nvlink") else "pci"


def fixed(link: Link, protocol: str, of: str, version: str = VERSION) -> Link:
    """Return a link as one protocol sees it: as measured with it held fixed, else derived.

    Derived, the rates are cut by the protocol's share. The latency is the larger of the curve,
    which holds NCCL's own choice at each size, and, up to 64 KiB, the small-message latency times
    the protocol's factor; so that no fixed protocol is faster than the choice.

    Parameters
    ----------
    link : as fitted on NCCL's own choice of protocol
    protocol : ll, ll128, simple, or auto for the link as it is
    of : inter or intra

    Examples
    --------
    >>> from perfsim.cluster.link import custom_link
    >>> slow = fixed(custom_link("10GB/s,2us", "--net"), "ll", "inter")
    >>> slow.rate.value, slow.ring.at(1.0)
    (5000000000.0, 2e-06)
    """
    if protocol == AUTO:
        return link
    if protocol in link.protocols:
        return _measured(link, link.protocols[protocol])
    kind = link_class(link, of)
    share = protocol_factors(protocol, version, kind)[1]

    def cut(rate: Quantity) -> Quantity:
        source = f"{share:g} of: {rate.source}" if share < 1 else rate.source
        of_kind = "derived" if share < 1 else rate.kind
        return rate._replace(value=share * rate.value, kind=of_kind, source=source)

    def raised(curve: Latency, algorithm: str) -> Latency:
        factor = protocol_factors(protocol, version, kind, algorithm)[0]
        least_s = factor * curve.alpha_s[0]
        if least_s <= curve.alpha_s[0]:
            return replace(curve, kind="derived", source=f"as NCCL chooses: {curve.source}")
        # Larger messages are Simple's by NCCL's own choice: what was fitted there is theirs.
        sizes = [size for size in curve.size_bytes if size < SMALL_BYTES]
        alphas = [max(curve.at(size), least_s) for size in sizes]
        sizes += [SMALL_BYTES, 2.0 * SMALL_BYTES]
        alphas += [max(curve.at(SMALL_BYTES), least_s), curve.at(2.0 * SMALL_BYTES)]
        large = [size for size in curve.size_bytes if size > sizes[-1]]
        source = f"up to 64 KiB at least {factor:.3g} times that of LL ({protocol}): {curve.source}"
        return replace(
            curve,
            size_bytes=(*sizes, *large),
            alpha_s=(*alphas, *(curve.at(size) for size in large)),
            kind="derived",
            source=source,
        )

    return replace(
        link,
        rate=cut(link.rate),
        tree_rate=cut(link.tree_rate),
        ring=raised(link.ring, "ring"),
        tree=raised(link.tree, "tree"),
    )


def _measured(link: Link, held: Held) -> Link:
    """Return the link with a protocol's own numbers, changed as a fabric changed the link's."""

    def rate(own: Quantity) -> Quantity:
        value = held.share * own.value
        same = math.isclose(value, held.rate.value, rel_tol=1e-9)
        source = f"{held.share:.3g} of: {own.source}"
        return held.rate if same else own._replace(value=value, kind="derived", source=source)

    def curve(own: Latency) -> Latency:
        alpha_s = link.ring.alpha_s[0] + held.more_s
        same = math.isclose(alpha_s, held.alpha.value, rel_tol=1e-9)
        if same:
            return Latency.constant(held.alpha)
        alpha = held.alpha._replace(value=alpha_s, kind="derived", source=own.source)
        return Latency.constant(alpha)

    return replace(
        link,
        rate=rate(link.rate),
        tree_rate=rate(link.tree_rate),
        ring=curve(link.ring),
        tree=curve(link.tree),
    )
