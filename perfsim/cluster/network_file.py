"""The links of a network's file: every number with its unit, range, residual, kind and source."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Held, Link
from perfsim.limits import LATENCY, MESSAGE, RATE, REDUCTION, SPREAD, Limit
from perfsim.quantity import KINDS, Kind, Quantity
from perfsim.toml_file import Table
from perfsim.units import (
    parse_bytes,
    parse_fraction,
    parse_rate,
    parse_seconds,
    parse_seconds_per_byte,
)

__all__ = ["read_link"]

LINK_KEYS = ("class", "ranks", "rate", "tree_rate", "gamma", "alpha", "segments", "protocol")
VALUE_KEYS = ("value", "error", "range", "residual", "kind", "source")
SEGMENT_KEYS = ("algorithm", "knots", "error", "range", "residual", "kind", "source")
PROTOCOL_KEYS = ("protocol", "rate", "alpha")
ALGORITHMS = ("ring", "tree")
MOST_RANKS = 65_536
"""Ranks that a link may have been measured on: their flows are routed to tell what the wires do."""
ANY = "any"
"""A segment's algorithm where ring and tree share one curve."""
ERROR = Limit(0.0, math.inf, "zero or above")
OF_THE_VALUE = SPREAD._replace(words=f"{SPREAD.words} of the value")


def read_link(table: Table, name: str) -> Link:
    """Return the link of one ``[[link]]`` table.

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.
    """
    table.only(LINK_KEYS)
    rate = tree = _quantity(table, "rate", parse_rate, "B/s", RATE)
    if "tree_rate" in table.values:
        tree = _quantity(table, "tree_rate", parse_rate, "B/s", RATE)
    curves = _curves(table)
    protocols = _protocols(table, rate, curves["ring"])
    return Link(
        name=name,
        rate=rate,
        tree_rate=tree,
        gamma=_quantity(table, "gamma", parse_seconds_per_byte, "s/B", REDUCTION),
        ring=curves["ring"],
        tree=curves["tree"],
        ranks=_ranks(table),
        protocols=protocols,
    )


def _protocols(table: Table, rate: Quantity, ring: Latency) -> dict[str, Held]:
    """Return what was measured with NCCL held to a protocol, beside the link's own numbers."""
    if "protocol" not in table.values:
        return {}
    from perfsim.library.nccl_figures import PROTOCOLS

    found: dict[str, Held] = {}
    for part in table.tables("protocol"):
        part.only(PROTOCOL_KEYS)
        name = part.choice("protocol", PROTOCOLS)
        if name in found:
            raise part.wrong("protocol", f"{name!r} stands in an earlier [[link.protocol]]")
        own = _quantity(part, "rate", parse_rate, "B/s", RATE)
        alpha = _quantity(part, "alpha", parse_seconds, "s/hop", LATENCY)
        share, more_s = own.value / rate.value, alpha.value - ring.alpha_s[0]
        found[name] = Held(own, alpha, share, more_s)
    return found


def _ranks(table: Table) -> tuple[int, int] | None:
    if "ranks" not in table.values:
        return None
    low, high = table.pair("ranks")
    fewest, most = table.whole("ranks", low), table.whole("ranks", high)
    if fewest > most:
        raise table.wrong("ranks", f"found {[low, high]!r}, allowed are whole numbers, low to high")
    if most > MOST_RANKS:
        raise table.wrong("ranks", f"found {most}, nothing was measured on more than {MOST_RANKS}")
    return fewest, most


def _origin(
    table: Table, value: float, parse: Callable[[object, str], float]
) -> tuple[Kind, str, float | None, float | None, float | None]:
    spread = low = high = None
    if "error" in table.values:
        found = table.values["error"]
        error = table.number("error", found, parse, ERROR)
        spread = table.limited("error", found, error / value, OF_THE_VALUE) if value else None
    if "residual" in table.values:
        spread = table.number("residual", table.values["residual"], parse_fraction, SPREAD)
    if "range" in table.values:
        low, high = (
            table.number("range", end, parse_bytes, MESSAGE) for end in table.pair("range")
        )
        if low > high:
            raise table.wrong("range", "the lowest size is above the highest")
    kind = cast(Kind, table.choice("kind", KINDS))
    return kind, table.text("source"), spread, low, high


def _quantity(
    table: Table, key: str, parse: Callable[[object, str], float], unit: str, limit: Limit
) -> Quantity:
    inside = table.inside(key)
    inside.only(VALUE_KEYS)
    value = inside.number("value", inside.get("value"), parse, limit)
    return Quantity(value, unit, *_origin(inside, value, parse))


def _curves(table: Table) -> dict[str, Latency]:
    if ("alpha" in table.values) == ("segments" in table.values):
        raise table.wrong("alpha", "a link has either alpha (one value) or segments (by size)")
    if "alpha" in table.values:
        alpha = _quantity(table, "alpha", parse_seconds, "s/hop", LATENCY)
        return dict.fromkeys(ALGORITHMS, Latency.constant(alpha))
    curves: dict[str, Latency] = {}
    for segment in table.tables("segments"):
        segment.only(SEGMENT_KEYS)
        algorithm = segment.choice("algorithm", (*ALGORITHMS, ANY))
        served = ALGORITHMS if algorithm == ANY else (algorithm,)
        if not curves.keys().isdisjoint(served):
            raise segment.wrong("algorithm", f"{algorithm!r} has segments already")
        curves.update(dict.fromkeys(served, _curve(segment)))
    for algorithm in ALGORITHMS:
        if algorithm not in curves:
            raise table.wrong("segments", f"none has algorithm = {algorithm!r}")
    return curves


def _curve(segment: Table) -> Latency:
    sizes: list[float] = []
    alphas: list[float] = []
    for knot in segment.tables("knots"):
        knot.only(("size", "alpha"))
        sizes.append(knot.number("size", knot.get("size"), parse_bytes, MESSAGE))
        alphas.append(knot.number("alpha", knot.get("alpha"), parse_seconds, LATENCY))
        if sizes[-1] <= (sizes[-2] if len(sizes) > 1 else 0.0):
            raise knot.wrong("size", "sizes rise from knot to knot")
    return Latency(tuple(sizes), tuple(alphas), *_origin(segment, alphas[0], parse_seconds))
