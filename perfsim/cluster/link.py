"""A link: what one class of wire costs, with the origin of every number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from perfsim.cluster.latency import Latency
from perfsim.errors import RequestError
from perfsim.limits import LATENCY, RATE
from perfsim.quantity import Quantity
from perfsim.units import parse_rate, parse_seconds

__all__ = ["GIVEN", "Held", "Link", "custom_link"]

GIVEN = "given by the user"


class Held(NamedTuple):
    """What a link costs while NCCL is held to one protocol, as measured so.

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
    rate : what one ring sees on its busiest link; between nodes, of one NIC [B/s]
    tree_rate : what a double binary tree sees, so that its time is 2 n / tree_rate [B/s]
    gamma : reduction of one byte on the GPU [s/B]
    ring, tree : latency of one hop of a ring, of a tree, by message size
    ranks : fewest and most GPUs in what was measured; None where nothing was
    protocols : ll, ll128 or simple -> what was measured with NCCL held to it
    """

    name: str
    rate: Quantity
    tree_rate: Quantity
    gamma: Quantity
    ring: Latency
    tree: Latency
    ranks: tuple[int, int] | None = None
    protocols: Mapping[str, Held] = field(default_factory=dict, hash=False)


def custom_link(text: str, field: str) -> Link:
    """Return the link that a user writes as ``rate,latency``, both with a unit.

    Raises
    ------
    RequestError
        If a part is missing, is no rate or time, or lies outside the limits.

    Examples
    --------
    >>> link = custom_link("10Gbit/s,50us", "--net")
    >>> link.rate.value, link.ring.at(1e6)
    (1250000000.0, 5e-05)
    """
    parts = [part.strip() for part in text.split(",")]
    rate = parse_rate(parts[0], field)
    if not RATE.holds(rate):
        raise RequestError(f"{field}: the rate in {text!r} is not within {RATE.words}.")
    if len(parts) == 1:
        raise RequestError(
            f"{field}: {text!r} is a rate without a latency; write rate,latency such as"
            f" '{text},50us'."
        )
    if len(parts) > 2:
        raise RequestError(
            f"{field}: {text!r} has {len(parts)} parts; a link of your own is rate,latency such"
            " as '10Gbit/s,50us'."
        )
    alpha_s = parse_seconds(parts[1], field)
    if not LATENCY.holds(alpha_s):
        raise RequestError(f"{field}: the latency in {text!r} is not within {LATENCY.words}.")
    alpha = Quantity(alpha_s, "s/hop", "derived", GIVEN)
    speed = Quantity(rate, "B/s", "derived", GIVEN)
    gamma = Quantity(0.0, "s/B", "derived", "a link given by the user has no reduction cost")
    latency = Latency.constant(alpha)
    return Link(text, speed, speed, gamma, latency, latency)
