"""What joins a site to others: its rates, its delay, and what TCP reaches over a path.

A site has one link to the middle of the network. Its delay is the one-way delay between two sites
with such links, half of which is each site's own: the round trip (ping) of two sites is the sum of
their delays, and a message from one to the other takes half of that.

References
----------
Mathis, Semke, Mahdavi & Ott, The macroscopic behavior of the TCP congestion avoidance algorithm,
ACM Computer Communication Review 27(3), 1997, pages 67 to 82. CUBIC, which Linux runs by default
(net/ipv4/Kconfig, DEFAULT_TCP_CONG): RFC 9438, section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from perfsim.errors import RequestError, shown, unknown
from perfsim.quantity import LATENCY_LIMIT, MESSAGE_LIMIT, RATE_LIMIT, NumberLimit
from perfsim.units import (
    format_bit_rate,
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_fraction,
    parse_rate,
    parse_seconds,
)

__all__ = [
    "LINUX_WINDOW_BYTES",
    "PRESETS",
    "SitePath",
    "WideLink",
    "cubic_rate",
    "mathis_rate",
    "parse_wide_links",
]

SEGMENT_BYTES = 1460
"""MSS: what a TCP segment carries in an Ethernet frame of 1500 bytes."""

_PERIODIC_LOSS = math.sqrt(1.5)
"""C of Mathis et al., table 1: losses at regular intervals, every segment acknowledged."""

_CUBIC_SCALE, _CUBIC_DECREASE = 0.4, 0.7
"""C [segments/s^3] and beta of CUBIC (RFC 9438, sections 4.6 and 5)."""

LINUX_WINDOW_BYTES = 3 * 2**20
"""The most that one flow has in flight as Linux is shipped: half of net.ipv4.tcp_rmem's 6 MiB, for
net.ipv4.tcp_adv_win_scale 1 (Documentation/networking/ip-sysctl). gloo's 64 to 128 MB messages at
5 and 10 ms reach what this says within 20 % (BinhangYuan/tc_cluster_setting@75581a5b
results/p2p.md). That a window holds a connection over long paths shows in the same file: NCCL
between AWS regions through a VPN has 9.3 to 11.7 MB in flight (rate times ping) in 52 of 66 pairs
whose ping is above 80 ms, whatever the ping."""

_LOSS_LIMIT = NumberLimit(0.0, 0.1, "0% to 10%, as far as the law of Mathis et al. is of use")
_FLOWS_LIMIT = NumberLimit(1, 4096, "a whole number from 1 to 4096")


def mathis_rate(rtt_s: float, loss: float) -> float:
    """Return the rate at which losses hold one TCP flow [B/s]: (MSS / RTT) sqrt(3/2) / sqrt(p).

    Examples
    --------
    >>> round(mathis_rate(0.1, 1e-4))  # 14600 B/s x 1.2247 / 0.01
    1788128
    >>> mathis_rate(0.1, 0.0), mathis_rate(0.0, 1e-4)
    (inf, inf)
    """
    if loss <= 0 or rtt_s <= 0:
        return math.inf
    return SEGMENT_BYTES / rtt_s * _PERIODIC_LOSS / math.sqrt(loss)


def cubic_rate(rtt_s: float, loss: float) -> float:
    """Return the rate at which losses hold one flow of TCP CUBIC [B/s].

    Its window is on average (C (3 + beta) / (4 (1 - beta)))^(1/4) (RTT / p)^(3/4) segments where
    that is more than Reno's, as over long paths with few losses; else CUBIC is made to do as Reno.

    Examples
    --------
    >>> round(cubic_rate(0.1, 1e-4))  # 14600 B/s x 1.0538 x 1000^(3/4)
    2736043
    >>> cubic_rate(0.01, 1e-3) == mathis_rate(0.01, 1e-3)
    True
    """
    reno = mathis_rate(rtt_s, loss)
    if math.isinf(reno):
        return reno
    scale = _CUBIC_SCALE * (3.0 + _CUBIC_DECREASE) / (4.0 * (1.0 - _CUBIC_DECREASE))
    window = math.sqrt(math.sqrt(scale * (rtt_s / loss) ** 3))
    return max(reno, SEGMENT_BYTES / rtt_s * window)


class WideLink(NamedTuple):
    """The link of a site to the others.

    Parameters
    ----------
    up, down : rate at which the site sends, and receives [B/s]
    delay_s : one-way delay between two sites with such links [s]
    loss : share of packets lost between two such sites
    flows : parallel TCP flows of a connection
    window_bytes : the most that a flow has in flight; None: no limit [B]
    per_flow : the most that a flow is allowed, by a cloud for instance; None: no limit [B/s]
    measured : whether rate and delay were measured between these very sites; it moves no time, and
        the interval is narrower
    """

    up: float
    down: float
    delay_s: float
    loss: float = 0.0
    flows: int = 1
    window_bytes: float | None = None
    per_flow: float | None = None
    measured: bool = False

    def path(self, other: WideLink) -> SitePath:
        """Return the path to another site.

        Examples
        --------
        >>> near, far = WideLink(1.25e8, 1.25e8, 0.01), WideLink(2.5e7, 2.5e7, 0.05)
        >>> path = near.path(far)
        >>> path.rate, round(path.one_way_s, 3), round(path.rtt_s, 3)
        (25000000.0, 0.03, 0.06)
        """
        return SitePath(
            min(self.up, other.down),
            self.delay_s + other.delay_s,
            (self.loss + other.loss) / 2.0,
            min(self.flows, other.flows),
            _least(self.window_bytes, other.window_bytes),
            _least(self.per_flow, other.per_flow),
        )

    def faster(self, factor: float) -> WideLink:
        """Return the link with both rates multiplied."""
        return self._replace(up=self.up * factor, down=self.down * factor)

    def text(self) -> str:
        """Return the link as `parse_wide_links` reads it.

        Examples
        --------
        >>> link = WideLink(1.25e8, 5e8, 0.06, loss=1e-4, flows=8)
        >>> link.text()
        'up=1000000000.0bit/s,down=4000000000.0bit/s,delay=0.06s,loss=0.0001,flows=8'
        >>> parse_wide_links(link.text()) == (link,)
        True
        """
        parts = [f"up={8 * self.up!r}bit/s", f"down={8 * self.down!r}bit/s"]
        parts += [f"delay={self.delay_s!r}s"]
        parts += [f"loss={self.loss!r}"] if self.loss else []
        parts += [f"flows={self.flows}"] if self.flows > 1 else []
        parts += [f"window={self.window_bytes!r}B"] if self.window_bytes else []
        parts += [f"per_flow={8 * self.per_flow!r}bit/s"] if self.per_flow else []
        parts += [MEASURED] if self.measured else []
        return ",".join(parts)

    def words(self) -> str:
        """Say what the link is.

        Examples
        --------
        >>> WideLink(1.25e8, 5e8, 0.06, loss=1e-4, flows=8).words()
        '1 Gbit/s up, 4 Gbit/s down, 60 ms, 0.01 % lost, 8 TCP flows'
        """
        rate = format_bit_rate(self.up)
        if self.up != self.down:
            rate = f"{rate} up, {format_bit_rate(self.down)} down"
        words = [rate, format_seconds(self.delay_s)]
        words += [f"{100 * self.loss:g} % lost"] if self.loss else []
        words += [f"{self.flows} TCP flows"] if self.flows > 1 else []
        words += [f"window {format_bytes(self.window_bytes)}"] if self.window_bytes else []
        words += [f"{format_bit_rate(self.per_flow)} a flow"] if self.per_flow else []
        words += [MEASURED] if self.measured else []
        return ", ".join(words)


class SitePath(NamedTuple):
    """The path from one site to another; fields as of `WideLink`, with the round trip [s]."""

    rate: float
    rtt_s: float
    loss: float
    flows: int
    window_bytes: float | None
    per_flow: float | None

    @property
    def one_way_s(self) -> float:
        """Time of a small message [s]."""
        return self.rtt_s / 2.0

    @property
    def flow_rate(self) -> float:
        """What one TCP flow reaches, were there no slower link: inf where nothing holds it [B/s].

        Examples
        --------
        >>> link = WideLink(1e9, 1e9, 0.1, window_bytes=1e6)
        >>> link.path(link).flow_rate
        5000000.0
        """
        window = math.inf
        if self.window_bytes is not None and self.rtt_s > 0:
            window = self.window_bytes / self.rtt_s
        return min(cubic_rate(self.rtt_s, self.loss), window, self.per_flow or math.inf)

    @property
    def connection_rate(self) -> float:
        """What all flows of one connection reach together, the link aside [B/s]."""
        return self.flows * self.flow_rate

    @property
    def reached(self) -> float:
        """What one connection reaches [B/s]."""
        return min(self.rate, self.connection_rate)


def _least(first: float | None, second: float | None) -> float | None:
    given = [one for one in (first, second) if one is not None]
    return min(given) if given else None


# Reading


def _loss(text: str, field: str) -> float:
    return parse_fraction(text, field)


def _count(text: str, field: str) -> float:
    if not text.isdecimal():
        why = f"flows {shown(text)} is not allowed: it must be {_FLOWS_LIMIT.words}."
        raise RequestError(field, why, value=text)
    return float(text[:9])


_KEYS: dict[str, tuple[Callable[[str, str], float], NumberLimit]] = {
    "rate": (parse_rate, RATE_LIMIT),
    "up": (parse_rate, RATE_LIMIT),
    "down": (parse_rate, RATE_LIMIT),
    "delay": (parse_seconds, LATENCY_LIMIT),
    "loss": (_loss, _LOSS_LIMIT),
    "flows": (_count, _FLOWS_LIMIT),
    "window": (parse_bytes, MESSAGE_LIMIT),
    "per_flow": (parse_rate, RATE_LIMIT),
}
"""Key -> how its value is read, and its limits."""

_EXAMPLE = "'1Gbit/s,60ms'"

MEASURED = "measured"
"""The word at the end of a link whose rate and delay were measured there."""

PRESETS = {
    "aws-oregon-virginia": "4.56Gbit/s,33.5ms",
    "aws-oregon-tokyo": "3.71Gbit/s,48ms",
    "aws-oregon-frankfurt": "2.4Gbit/s,71.5ms",
}
"""Measured between two regions of AWS in 2022: iperf3 with 32 flows between public addresses of
p3.2xlarge (up to 5 Gbit/s to other regions), and half the ping
(BinhangYuan/tc_cluster_setting@75581a5b results/p2p.md)."""


def parse_wide_links(text: str, field: str = "wan") -> tuple[WideLink, ...]:
    """Return the links that a text states: one for all sites, or one a site, with ``;`` between.

    A link ends with the word "measured" where its rate and delay were measured there.

    Raises
    ------
    RequestError
        If a link has no rate or delay, or a part is no such thing or outside its limits.

    Examples
    --------
    >>> (link,) = parse_wide_links("1Gbit/s,60ms,loss=0.01%,flows=8")
    >>> link.up, link.delay_s, link.loss, link.flows
    (125000000.0, 0.06, 0.0001, 8)
    >>> [link.up for link in parse_wide_links("1Gbit/s,60ms;up=200Mbit/s,down=1Gbit/s,20ms")]
    [125000000.0, 25000000.0]
    >>> parse_wide_links("aws-oregon-tokyo,flows=32")[0].words()
    '3.71 Gbit/s, 48 ms, 32 TCP flows'
    >>> parse_wide_links("1Gbit/s,60ms,measured")[0].measured
    True
    """
    return tuple(_wide_link(part, field) for part in text.split(";"))


def _wide_link(text: str, field: str) -> WideLink:
    given: dict[str, float] = {}
    unnamed = []
    measured = text.rpartition(",")[2].strip() == MEASURED and "," in text
    if measured:
        text = text.rpartition(",")[0]
    first, comma, rest = text.partition(",")
    name = first.strip()
    if name in PRESETS:
        link = _wide_link(PRESETS[name] + comma + rest, field)
        return link._replace(measured=measured)
    if name[:1].isalpha() and "=" not in name:
        error = unknown(field, name, PRESETS)
        why = f"{error.why} Or write rate,delay such as {_EXAMPLE}."
        raise RequestError(field, why, value=name, nearest=error.nearest)
    for part in (piece.strip() for piece in text.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            unnamed.append(part)
            continue
        if key not in _KEYS:
            error = unknown(field, key, _KEYS)
            raise RequestError(field, f"in {shown(text)}: {error.why}", value=key)
        _take(given, key, value, text, field)
    places = [key for key in ("rate", "delay") if key not in given]
    one_way = "up" in given or "down" in given
    if "rate" in places and one_way and (len(unnamed) == 1 or {"up", "down"} <= given.keys()):
        places.remove("rate")
    if len(unnamed) > len(places):
        why = f"{shown(text)} has more than a rate and a delay; further parts are key=value:"
        raise RequestError(
            field, f"{why} {', '.join(_KEYS)}; or the word {MEASURED} at the end.", value=text
        )
    for key, value in zip(places, unnamed, strict=False):
        _take(given, key, value, text, field)
    if "delay" not in given:
        why = f"{shown(text)} has a rate and no delay; write rate,delay such as {_EXAMPLE}."
        raise RequestError(field, why, value=text)
    both = given.get("rate")
    up, down = given.get("up", both), given.get("down", both)
    if up is None or down is None:
        why = f"{shown(text)} has no rate in one direction; give rate, or up and down."
        raise RequestError(field, why, value=text)
    if both is not None and "up" in given and "down" in given:
        why = f"{shown(text)} has rate, up and down; leave one out."
        raise RequestError(field, why, value=text)
    return WideLink(
        up,
        down,
        given["delay"],
        given.get("loss", 0.0),
        int(given.get("flows", 1)),
        given.get("window"),
        given.get("per_flow"),
        measured,
    )


def _take(given: dict[str, float], key: str, value: str, text: str, field: str) -> None:
    """Read one part of a link; refuse what is there twice, or outside the limits."""
    read, limit = _KEYS[key]
    if key in given:
        raise RequestError(field, f"{shown(text)} has {key} twice.", value=text)
    number = read(value, field)
    if not limit.holds(number):
        why = f"{key} {shown(value)} is not allowed: it must be {limit.words}."
        raise RequestError(field, why, value=value)
    given[key] = number
