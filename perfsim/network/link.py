"""A link: its rate, the latency of a hop by message size, and how NCCL's protocols change both.

Latency is a curve over the message size, as one alpha cannot serve small and large messages.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from perfsim.errors import RequestError
from perfsim.libraries import AUTO
from perfsim.libraries.nccl import DEFAULT_VERSION, protocol_factors
from perfsim.quantity import LATENCY_LIMIT, RATE_LIMIT, Grade, Kind, Quantity
from perfsim.units import parse_rate, parse_seconds

__all__ = [
    "GIVEN_BY_USER",
    "Latency",
    "LatencyPiece",
    "Link",
    "NicSharing",
    "NodeExponent",
    "ProtocolFigures",
    "custom_link",
    "nccl_link_class",
    "under_protocol",
]

_LATENCY_SMALL_BYTES = 65536.0
"""Up to this message size a hop's latency does not depend on what one step carries.

No source: chosen on Polaris, see `Latency.stretched`."""


_MAX_STRETCHED = 256
"""Factors by which a curve keeps what it is, stretched. No source: chosen, some 2 kB each."""


class LatencyPiece(NamedTuple):
    """A piece of a latency curve, straight in log size.

    Parameters
    ----------
    alpha_s : latency where the piece begins [s/hop]
    rise_s, log_start, log_width : what it rises by, from which log size on, over which width
    """

    alpha_s: float
    rise_s: float = 0.0
    log_start: float = 0.0
    log_width: float = 1.0

    def at(self, log_size: float) -> float:
        """Return the latency of one hop for a message of which this is the log size [s]."""
        return self.alpha_s + self.rise_s * (log_size - self.log_start) / self.log_width


@dataclass(frozen=True)
class Latency:
    """Seconds a hop by message size: straight in log size between the knots, constant outside.

    ``size_bytes`` rise; they are sizes of the collective's whole message n. ``spread``, ``low`` and
    ``high`` are those of a `perfsim.quantity.Quantity`.

    Examples
    --------
    >>> curve = Latency((1e3, 1e5), (2e-5, 4e-5), "fitted", "an example")
    >>> [round(curve.at(size) * 1e6) for size in (1.0, 1e4, 1e9)]
    [20, 30, 40]
    """

    size_bytes: tuple[float, ...]
    alpha_s: tuple[float, ...]
    kind: Kind
    source: str
    spread: float | None = None
    low: float | None = None
    high: float | None = None

    @cached_property
    def logs(self) -> list[float]:
        """The logarithms of the knots' sizes."""
        return [*map(math.log, self.size_bytes)]

    @cached_property
    def pieces(self) -> list[LatencyPiece]:
        """The pieces of the curve: before the first knot, between two, from the last one on."""
        alphas, logs = self.alpha_s, self.logs
        between = [
            LatencyPiece(before, after - before, start, end - start)
            for (before, after), (start, end) in zip(pairwise(alphas), pairwise(logs), strict=True)
        ]
        return [LatencyPiece(alphas[0]), *between, LatencyPiece(alphas[-1])]

    @cached_property
    def lines(self) -> list[tuple[float, float]]:
        """The pieces as straight lines over ln n: what each is at 0, and what it rises by [s/hop].

        Examples
        --------
        >>> Latency((1.0, math.e), (2e-5, 5e-5), "fitted", "an example").lines[1]
        (2e-05, 3e-05)
        """
        return [(piece.at(0.0), piece.rise_s / piece.log_width) for piece in self.pieces]

    def line(self, size_bytes: float) -> tuple[float, float]:
        """Return the line on which a message of this size is."""
        return self.lines[bisect_right(self.size_bytes, size_bytes)]

    @classmethod
    def constant(cls, alpha: Quantity) -> Latency:
        """Return a curve that is the same at every size."""
        return cls(
            (1.0,), (alpha.value,), alpha.kind, alpha.source, alpha.spread, alpha.low, alpha.high
        )

    def at(self, size_bytes: float) -> float:
        """Return the latency of one hop for a message of this size [s]."""
        piece = self.piece(size_bytes)
        return piece.at(math.log(size_bytes)) if piece.rise_s else piece.alpha_s

    def piece(self, size_bytes: float) -> LatencyPiece:
        """Return the straight piece of the curve that a message of this size is on."""
        return self.pieces[bisect_right(self.size_bytes, size_bytes)]

    def stretched(self, factor: float) -> Latency:
        """Return the curve of a ring that is ``factor`` times as long as the one measured.

        A step of a ring of P carries n / P. So the longer ring meets at n what the shorter one met
        at n / factor. Up to 64 KiB the curve stays; above it is read at max(64 KiB, n / factor).
        On Polaris, with all_gather extrapolated from 8 to 128 nodes, this lowers the 90th
        percentile of the error between 64 KB and 16 MB from 294 to 22 %.

        Examples
        --------
        >>> long = Latency((1e5, 1e6), (2e-5, 4e-5), "fitted", "an example").stretched(10.0)
        >>> [round(long.at(size) * 1e6) for size in (1e6, 1e7)]
        [20, 40]
        """
        known = self._stretched
        if factor not in known:
            if len(known) >= _MAX_STRETCHED:
                known.clear()
            known[factor] = self._stretched_by(factor)
        return known[factor]

    @cached_property
    def _stretched(self) -> dict[float, Latency]:
        """The curve by some factors: each collective of a cluster asks for the same one."""
        return {}

    @cached_property
    def beside(self) -> dict[tuple[int, bool], tuple[Latency | None, Any]]:
        """What `perfsim.network.line_times` keeps of this curve and another.

        It is kept by the identity of that one, and whether this one is inside nodes.
        """
        return {}

    def _stretched_by(self, factor: float) -> Latency:
        sizes = [size for size in self.size_bytes if size < _LATENCY_SMALL_BYTES]
        alphas = [
            *self.alpha_s[: len(sizes)],
            self.at(_LATENCY_SMALL_BYTES),
            self.at(_LATENCY_SMALL_BYTES),
        ]
        sizes += [_LATENCY_SMALL_BYTES, _LATENCY_SMALL_BYTES * factor]
        if factor == 1.0:
            del sizes[-1], alphas[-1]
        for size, alpha_s in zip(self.size_bytes, self.alpha_s, strict=True):
            if size > _LATENCY_SMALL_BYTES:
                sizes.append(size * factor)
                alphas.append(alpha_s)
        return replace(self, size_bytes=tuple(sizes), alpha_s=tuple(alphas))

    @cached_property
    def gentle(self) -> Latency:
        """The highest curve at or below this one that rises no faster than its size.

        On such a curve P alpha(n / P) never falls as P grows. Between two knots, straight in log
        size, that means alpha_1 <= alpha_0 (1 + ln(size_1 / size_0)).

        Examples
        --------
        >>> steep = Latency((1e3, math.e * 1e3), (1e-5, 5e-5), "fitted", "an example")
        >>> [round(alpha_s * 1e6) for alpha_s in steep.gentle.alpha_s]
        [10, 20]
        """
        alphas = [self.alpha_s[0]]
        for start, end, alpha_s in zip(self.logs, self.logs[1:], self.alpha_s[1:], strict=False):
            alphas.append(min(alpha_s, alphas[-1] * (1.0 + end - start)))
        return replace(self, alpha_s=tuple(alphas))

    @cached_property
    def held(self) -> Latency:
        """The curve that keeps the value of 64 KiB at all larger sizes.

        Examples
        --------
        >>> curve = Latency((1e3, 65536.0, 1e6), (2e-5, 4e-5, 6e-5), "fitted", "an example")
        >>> curve.held.alpha_s
        (2e-05, 4e-05)
        """
        kept = sum(size < _LATENCY_SMALL_BYTES for size in self.size_bytes)
        sizes = (*self.size_bytes[:kept], _LATENCY_SMALL_BYTES)
        return replace(
            self, size_bytes=sizes, alpha_s=(*self.alpha_s[:kept], self.at(_LATENCY_SMALL_BYTES))
        )

    def quantity(self, alpha_s: float) -> Quantity:
        """Return a value of this curve with the curve's origin."""
        return Quantity(alpha_s, "s/hop", self.kind, self.source, self.spread, self.low, self.high)


class NodeExponent(NamedTuple):
    """How a rate falls as nodes are added: ``rate(N) = rate (N0 / N)^a`` beyond N0 nodes.

    Over TCP the host, not the wire, sets the rate of a fast line, and reaches less of it the more
    nodes there are. ``exponent`` is a; ``nodes`` is N0, on which the rate was measured.
    """

    exponent: Quantity
    nodes: int

    def slower(self, nodes: int) -> float:
        """Return how many times as long a byte takes on so many nodes as on N0.

        Examples
        --------
        >>> a = Quantity(0.5, "", "derived", "an example")
        >>> NodeExponent(a, 2).slower(8), NodeExponent(a, 2).slower(1)
        (2.0, 1.0)
        """
        return math.pow(max(1.0, nodes / self.nodes), self.exponent.value)

    def spread(self, nodes: int) -> float:
        """Return the relative error that the exponent's own brings into the rate."""
        error = self.exponent.value * (self.exponent.spread or 0.0)
        return math.expm1(error * math.log(max(1.0, nodes / self.nodes)))


class NicSharing(NamedTuple):
    """What the NICs of a node reach together where one host feeds them all, as over TCP.

    k NICs of rate r beside a host that reaches h carry ``1 / hypot(1 / (k r), 1 / h)``. Where s
    processes send at once, each through sockets of its own, the host reaches ``h s^a``.

    Parameters
    ----------
    ratio : r over h
    exponent : a
    """

    ratio: float
    exponent: float

    def together(self, nics: float, senders: int = 1) -> float:
        """Return what so many NICs carry, over what one carries for one process.

        Examples
        --------
        >>> sharing = NicSharing(ratio=0.75, exponent=0.5)
        >>> sharing.together(1), round(sharing.together(1e9), 3), round(sharing.together(1e9, 4), 3)
        (1.0, 1.667, 3.333)
        """
        held = self.ratio / senders**self.exponent
        return math.hypot(1.0, self.ratio) / math.hypot(1.0 / nics, held)


GIVEN_BY_USER = "given by the user"
"""The source of a link that the user writes."""


class ProtocolFigures(NamedTuple):
    """What was measured of a link with NCCL held to one protocol.

    Parameters
    ----------
    rate : what a ring sees, as `Link.rate` [B/s]
    alpha : latency of one hop of a small message [s/hop]
    share : ``rate`` over the link's own
    more_s : ``alpha`` less that of the link's own ring for the smallest message [s]
    """

    rate: Quantity
    alpha: Quantity
    share: float
    more_s: float


@dataclass(frozen=True, slots=True)
class Link:
    """One class of wire: between the GPUs of a node (intra) or between nodes (inter).

    Parameters
    ----------
    name : the network that it belongs to
    rate : what one ring sees on its busiest link; between nodes, of one NIC alone [B/s]
    tree_rate : what a double binary tree sees, so that its time is 2 n / tree_rate [B/s]
    gamma : reduction of one byte on the GPU [s/B]
    ring, tree : latency of one hop of a ring, of a tree, by message size
    ranks : fewest and most GPUs in what was measured; None where nothing was
    protocols : ll, ll128 or simple -> what was measured with NCCL held to it
    grade : the evidence for costs by its formula: ``carried`` where its rates were fitted on the
        cluster's own training
    falls : how its rates fall as nodes are added; None where they do not
    sharing : what NICs of a node reach together; None where each adds its rate
    transport : what it is, such as nvlink4, pcie or ib; "" where nobody says
    """

    name: str
    rate: Quantity
    tree_rate: Quantity
    gamma: Quantity
    ring: Latency
    tree: Latency
    ranks: tuple[int, int] | None = None
    protocols: Mapping[str, ProtocolFigures] = field(default_factory=dict, hash=False)
    grade: Grade = "modelled"
    falls: NodeExponent | None = None
    sharing: NicSharing | None = None
    transport: str = ""


def custom_link(text: str, field: str) -> Link:
    """Return the link that a user writes as ``rate,latency``, both with a unit.

    Raises
    ------
    RequestError
        If a part is missing, is no rate or time, or lies outside the limits.

    Examples
    --------
    >>> link = custom_link("10Gbit/s,50us", "net")
    >>> link.rate.value, link.ring.at(1e6)
    (1250000000.0, 5e-05)
    """
    parts = [part.strip() for part in text.split(",")]
    rate = parse_rate(parts[0], field)
    if not RATE_LIMIT.holds(rate):
        why = f"the rate in {text!r} is not allowed: it must be {RATE_LIMIT.words}."
        raise RequestError(field, why)
    if len(parts) == 1:
        raise RequestError(
            field,
            f"{text!r} is a rate without a latency; write rate,latency such as '{text},50us'.",
        )
    if len(parts) > 2:
        raise RequestError(
            field,
            f"{text!r} has {len(parts)} parts; a link of your own is rate,latency such"
            " as '10Gbit/s,50us'.",
        )
    alpha_s = parse_seconds(parts[1], field)
    if not LATENCY_LIMIT.holds(alpha_s):
        why = f"the latency in {text!r} is not allowed: it must be {LATENCY_LIMIT.words}."
        raise RequestError(field, why)
    alpha = Quantity(alpha_s, "s/hop", "derived", GIVEN_BY_USER)
    speed = Quantity(rate, "B/s", "derived", GIVEN_BY_USER)
    gamma = Quantity(0.0, "s/B", "derived", "a link given by the user has no reduction cost")
    latency = Latency.constant(alpha)
    return Link(text, speed, speed, gamma, latency, latency)


_PROTOCOL_SMALL_BYTES = 65536.0
"""Up to about this size NCCL takes LL by itself. Source: its tuner switches at 16 KiB to 1 MiB."""


def nccl_link_class(link: Link, link_class: str) -> str:
    """Return what NCCL's figures call a link: net between nodes, nvlink or pci inside.

    Examples
    --------
    >>> from perfsim.network.link import custom_link
    >>> nccl_link_class(custom_link("10GB/s,2us", "net"), "inter")
    'net'
    """
    if link_class == "inter":
        return "net"
    return "nvlink" if link.transport.startswith("nvlink") else "pci"


def under_protocol(
    link: Link, protocol: str, link_class: str, version: str = DEFAULT_VERSION
) -> Link:
    """Return a link as one protocol sees it: as measured with it held fixed, else derived.

    To derive it, the rates are cut to the protocol's share. The latency curve holds NCCL's own
    choice at each size. Up to 64 KiB the latency is at least the small-message latency times the
    protocol's factor. So no fixed protocol is faster than NCCL's choice.

    Parameters
    ----------
    link : as fitted on NCCL's own choice of protocol
    protocol : ll, ll128, simple, or auto for the link as it is
    link_class : inter or intra

    Examples
    --------
    >>> from perfsim.network.link import custom_link
    >>> slow = under_protocol(custom_link("10GB/s,2us", "net"), "ll", "inter")
    >>> slow.rate.value, slow.ring.at(1.0)
    (5000000000.0, 2e-06)
    """
    if protocol == AUTO:
        return link
    if protocol in link.protocols:
        return _measured(link, link.protocols[protocol])
    kind = nccl_link_class(link, link_class)
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
        # NCCL itself takes Simple for larger messages: what was fitted there is Simple's.
        sizes = [size for size in curve.size_bytes if size < _PROTOCOL_SMALL_BYTES]
        alphas = [max(curve.at(size), least_s) for size in sizes]
        sizes += [_PROTOCOL_SMALL_BYTES, 2.0 * _PROTOCOL_SMALL_BYTES]
        alphas += [
            max(curve.at(_PROTOCOL_SMALL_BYTES), least_s),
            curve.at(2.0 * _PROTOCOL_SMALL_BYTES),
        ]
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


def _measured(link: Link, held: ProtocolFigures) -> Link:
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
