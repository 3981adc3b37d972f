"""One algorithm on one cluster: all that does not depend on the message size, worked out once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.cluster.wiring import Wiring
from perfsim.collectives import Algorithm, Hops
from perfsim.quantity import Cost, Quantity, Term
from perfsim.units import format_bytes

__all__ = ["Route"]

PROBE_BYTES = 1e6
"""A message to find out which links' numbers a formula uses; any size does."""

NUDGE = 1.0 - 1e-6
"""How much slower a rate is made to see whether the formula feels it, busiest link or not."""


class Path:
    """An algorithm over hops whose latency follows one curve a class of link.

    Where a latency curve falls faster than the wire time grows, the sum would fall with size; a
    larger message never costs less than a smaller one, so ``seconds`` is the running maximum.
    Alpha is straight in log size, so between knots the sum rises or is convex and its maximum
    stands at a knot.
    """

    def __init__(self, algorithm: Algorithm, base: Hops, curves: Mapping[str, Latency]) -> None:
        self.algorithm, self.base, self.curves = algorithm, base, curves
        self._intra, self._inter = curves.get("intra"), curves.get("inter")
        self.knots = sorted({size for curve in curves.values() for size in curve.size_bytes})
        peaks = (algorithm.formula(size, self.hops(size)).seconds for size in self.knots)
        self.peaks = list(accumulate(peaks, max))

    def hops(self, size_bytes: float) -> Hops:
        """Return the hops for a message of this size."""
        base = self.base
        return Hops(
            base.ranks,
            base.nodes,
            base.gpus_per_node,
            self._intra.at(size_bytes) if self._intra else 0.0,
            self._inter.at(size_bytes) if self._inter else 0.0,
            base.beta_s_per_byte,
            base.tree_beta_s_per_byte,
            base.beta_intra_s_per_byte,
            base.beta_nic_s_per_byte,
            base.gamma_s_per_byte,
            base.servers,
        )

    def seconds(self, size_bytes: float) -> float:
        """Return the time for a message of this size [s]."""
        seconds = self.algorithm.formula(size_bytes, self.hops(size_bytes)).seconds
        smaller = bisect_left(self.knots, size_bytes)
        return max(seconds, self.peaks[smaller - 1]) if smaller else seconds


class Route:
    """The hops that an algorithm takes over the links of a cluster.

    In a ring longer than any measured, a step carries less than where the curves were taken, and
    they are read there (`Latency.stretched`), without the part of a rise that would let the time
    fall as GPUs are added (`Latency.gentle`); nor is it below that of the longest ring measured.
    Inside the nodes of such a ring, latency past 64 KiB stays what it is there while the wire
    between them is the slower one: more is a faster wire filling up, which does not show.

    ``strange`` says that the link between nodes was never measured with so many GPUs on each.
    """

    def __init__(self, algorithm: Algorithm, wiring: Wiring, strange: bool = False) -> None:
        self.algorithm = algorithm
        self.base = wiring.hops()
        self.curves: dict[str, Latency] = {
            of: getattr(link, algorithm.latency) for of, link in wiring.links.items()
        }
        self.paths = self._paths(wiring)
        self.outside = {
            of: (strange and of == "inter")
            or (link.ranks is not None and not link.ranks[0] <= wiring.members[of] <= link.ranks[1])
            for of, link in wiring.links.items()
        }
        self.away = {
            of: wiring.members[of] / link.ranks[1 if wiring.members[of] > link.ranks[1] else 0]
            for of, link in wiring.links.items()
            if link.ranks is not None
        }
        rates = self._rates_in_use(wiring)
        self.rates = [(name, of, self._wide(of, rate)) for name, of, rate in rates]
        self.latencies = self._latencies_in_use()
        self._last = (-1.0, 0.0)

    def seconds(self, size_bytes: float) -> float:
        """Return the time for a message of this size [s]."""
        last = self._last  # a choice among algorithms asks, then who takes it
        if size_bytes != last[0]:
            last = self._last = size_bytes, max([path.seconds(size_bytes) for path in self.paths])
        return last[1]

    def cost(self, size_bytes: float) -> Cost:
        """Return the cost for a message of this size, with the numbers it rests on."""
        hops = self.paths[0].hops(size_bytes)
        parts = self.algorithm.formula(size_bytes, hops)
        seconds = self.seconds(size_bytes)
        latency_s = seconds - parts.transfer_s
        rates = [
            Term(name, rate, self.outside[of] or _beyond(rate, size_bytes))
            for name, of, rate in self.rates
        ]
        alphas = [self._alpha(of, size_bytes, hops) for of in self.latencies]
        return Cost(
            seconds,
            latency_s,
            self.algorithm.sent(size_bytes, hops),
            _spread([(latency_s, alphas), (parts.transfer_s, rates)]),
            (*rates, *alphas),
        )

    def _wide(self, of: str, quantity: Quantity) -> Quantity:
        """Return a link's number with the error of carrying it outside the ranks measured."""
        if not self.outside[of]:
            return quantity
        from perfsim.cluster.carried import growth_error

        spread = max(quantity.spread or 0.0, growth_error(self.away.get(of, 1.0)))
        return quantity._replace(spread=spread)

    def _paths(self, wiring: Wiring) -> list[Path]:
        """Return the path over all hops and, past the range, the longest inside it: a floor."""
        factors = wiring.stretch if self.algorithm.blocks else {}
        if not factors:
            return [Path(self.algorithm, self.base, self.curves)]
        longer = {of: curve.gentle().stretched(factors[of]) for of, curve in self.curves.items()}
        if "intra" in longer and self.base.beta_nic_s_per_byte > self.base.beta_intra_s_per_byte:
            longer["intra"] = self.curves["intra"].held()
        paths = [Path(self.algorithm, self.base, longer)]
        measured = wiring.longest_measured
        if measured is not None:
            curves = {of: self.curves[of] for of in measured.links}
            paths.append(Path(self.algorithm, measured.hops(), curves))
        return paths

    def _alpha(self, of: str, size_bytes: float, hops: Hops) -> Term:
        alpha_s = hops.alpha_inter_s if of == "inter" else hops.alpha_intra_s
        alpha = self._wide(of, self.curves[of].quantity(alpha_s))
        name = f"{of} {self.algorithm.latency} latency at {format_bytes(size_bytes, 3)}"
        return Term(name, alpha, self.outside[of] or _beyond(alpha, size_bytes))

    def _rates_in_use(self, wiring: Wiring) -> list[tuple[str, str, Quantity]]:
        """Return the rates that the formula feels: it slows down when one of them does."""
        found: list[tuple[str, str, Quantity]] = []
        fast_s = self.algorithm.formula(PROBE_BYTES, self.base).transfer_s
        for of, link in wiring.links.items():
            for tree in (False, True):
                slow = wiring.links | {of: _slower(link, tree)}
                slowed = wiring._replace(inter=slow.get("inter"), intra=slow.get("intra"))
                if self.algorithm.formula(PROBE_BYTES, slowed.hops()).transfer_s > fast_s:
                    name = f"{of} tree rate" if tree else f"{of} rate"
                    found.append((name, of, link.tree_rate if tree else link.rate))
        return found

    def _latencies_in_use(self) -> list[str]:
        """Return the classes whose hops the formula crosses: a second a hop shows in its time."""
        probes = {
            "inter": self.base._replace(alpha_inter_s=1.0),
            "intra": self.base._replace(alpha_intra_s=1.0),
        }
        formula = self.algorithm.formula
        return [of for of in self.curves if formula(PROBE_BYTES, probes[of]).latency_s > 0]


def _slower(link: Link, tree: bool) -> Link:
    """Return the link with its rate, or its tree rate, a little lower."""
    if tree:
        return replace(link, tree_rate=link.tree_rate._replace(value=link.tree_rate.value * NUDGE))
    return replace(link, rate=link.rate._replace(value=link.rate.value * NUDGE))


def _beyond(quantity: Quantity, size_bytes: float) -> bool:
    """Return whether a size lies outside the range in which a quantity holds."""
    low, high = quantity.low, quantity.high
    return (low is not None and size_bytes < low) or (high is not None and size_bytes > high)


def _spread(parts: list[tuple[float, list[Term]]]) -> float | None:
    """Return the relative spread of a sum: each part's widest, weighted by the part."""
    total_s = sum(part_s for part_s, _ in parts)
    weighted = 0.0
    for part_s, terms in parts:
        spreads = [term.quantity.spread for term in terms if part_s > 0]
        if None in spreads or total_s == 0:
            return None
        weighted += part_s * max((spread for spread in spreads if spread), default=0.0)
    return weighted / total_s
