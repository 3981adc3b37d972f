"""Laws of a collective's cost on any network, its algorithm and protocol held fixed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perfsim.collectives import algorithms, find_algorithm
from perfsim.errors import RequestError
from perfsim.network.cluster import Cluster, Latency, Link, load_network
from perfsim.quantity import Quantity
from perfsim.session import RememberingCluster
from support.what_ships import NETWORKS, SHIPPED

PROTOCOLS = ("auto", "ll", "ll128", "simple")
SLACK = 1.0 + 1e-9
PAIRS = [(collective, name) for collective, names in algorithms().items() for name in names]

rates = st.floats(1e7, 1e12)
latencies = st.floats(1e-7, 1e-3)
shapes = st.tuples(st.integers(1, 16), st.sampled_from([1, 2, 4, 8]))
sizes = st.floats(1.0, 1e10)


def link(rate: float, alpha_s: float, gamma: float = 0.0) -> Link:
    """Return a link of one rate and one latency."""
    alpha = Latency.constant(Quantity(alpha_s, "s/hop", "fitted", "an example"))
    speed = Quantity(rate, "B/s", "fitted", "an example")
    return Link("", speed, speed, Quantity(gamma, "s/B", "fitted", "an example"), alpha, alpha)


def cluster(shape: tuple[int, int], inter: Link, intra: Link) -> Cluster:
    nodes, inside = shape
    return Cluster(nodes * inside, (inside,) * nodes, inter, intra)


def seconds(there: Cluster, pair: tuple[str, str], size: float, protocol: str = "auto") -> float:
    """Return the time; skips what the ranks cannot use."""
    try:
        return there.cost(pair[0], size, pair[1], protocol).seconds
    except RequestError:
        assume(False)
        raise


@given(st.sampled_from(PAIRS), shapes, st.sampled_from(PROTOCOLS), sizes, sizes, rates, latencies)
def test_time_grows_with_bytes(
    pair: tuple[str, str],
    shape: tuple[int, int],
    protocol: str,
    one: float,
    other: float,
    rate: float,
    alpha_s: float,
) -> None:
    there = cluster(shape, link(rate, alpha_s), link(2 * rate, alpha_s / 2))
    less, more = sorted((one, other))
    assert seconds(there, pair, less, protocol) <= seconds(there, pair, more, protocol) * SLACK


@given(st.sampled_from(PAIRS), shapes, st.sampled_from(PROTOCOLS), sizes, latencies, latencies)
def test_time_never_falls_with_alpha(
    pair: tuple[str, str],
    shape: tuple[int, int],
    protocol: str,
    size: float,
    one: float,
    other: float,
) -> None:
    low, high = (
        cluster(shape, link(1e9, alpha_s), link(1e10, alpha_s)) for alpha_s in sorted((one, other))
    )
    assert seconds(low, pair, size, protocol) <= seconds(high, pair, size, protocol) * SLACK


@given(
    st.sampled_from(PAIRS), shapes, st.sampled_from(PROTOCOLS), sizes, rates, latencies,
    st.sampled_from(["inter", "intra"]),
)  # fmt: skip
def test_a_link_twice_as_fast_is_never_slower(
    pair: tuple[str, str],
    shape: tuple[int, int],
    protocol: str,
    size: float,
    rate: float,
    alpha_s: float,
    faster: str,
) -> None:
    inter, intra = link(rate, alpha_s), link(rate, alpha_s)
    before = cluster(shape, inter, intra)
    twice = link(2 * rate, alpha_s)
    after = cluster(
        shape, twice if faster == "inter" else inter, twice if faster == "intra" else intra
    )
    assert seconds(after, pair, size, protocol) <= seconds(before, pair, size, protocol) * SLACK


@given(st.sampled_from(PAIRS), st.sampled_from(PROTOCOLS), sizes, rates, latencies)
def test_one_rank_costs_nothing(
    pair: tuple[str, str], protocol: str, size: float, rate: float, alpha_s: float
) -> None:
    there = Cluster(1, (1,), link(rate, alpha_s), link(rate, alpha_s))
    cost = there.cost(pair[0], size, pair[1], protocol)
    assert (cost.seconds, cost.sent_bytes) == (0.0, 0.0)


RINGS = {
    "all_reduce": lambda ranks, size: 2.0 * (ranks - 1) / ranks * size,
    "reduce_scatter": lambda ranks, size: (ranks - 1) / ranks * size,
    "all_gather": lambda ranks, size: (ranks - 1) / ranks * size,
}


@given(st.sampled_from(sorted(RINGS)), shapes, sizes, rates, latencies, st.sampled_from(PROTOCOLS))
def test_bytes_are_the_formula_and_bound_the_ring(
    collective: str,
    shape: tuple[int, int],
    size: float,
    rate: float,
    alpha_s: float,
    protocol: str,
) -> None:
    """By closed form: a rank sends 2 (P-1)/P n or (P-1)/P n, no faster than the slowest link."""
    nodes, inside = shape
    ranks = nodes * inside
    there = cluster(shape, link(rate, alpha_s), link(3 * rate, alpha_s))
    cost = there.cost(collective, size, "ring", protocol)
    wire = RINGS[collective](ranks, size)
    assert cost.sent_bytes == pytest.approx(wire)
    slowest = rate if nodes > 1 else 3 * rate
    assert cost.seconds * SLACK >= wire / slowest


@given(
    st.sampled_from([pair for pair in PAIRS if pair[1] in ("ring", "tree", "chain", "binomial")]),
    st.integers(2, 16), sizes, rates, latencies,
)  # fmt: skip
def test_one_node_equals_the_formula_inside(
    pair: tuple[str, str], ranks: int, size: float, rate: float, alpha_s: float
) -> None:
    """By closed form: on one node the link between nodes plays no part."""
    from perfsim.collectives import Hops

    formula = find_algorithm(*pair).formula
    beta = 1.0 / rate
    hops = Hops(ranks, 1, ranks, alpha_s, 0.0, beta, beta, beta, 0.0)
    for inter in (link(1e3, 1.0), link(1e15, 0.0)):
        there = Cluster(ranks, (ranks,), inter, link(rate, alpha_s))
        assert there.cost(pair[0], size, pair[1]).seconds == pytest.approx(
            formula(size, hops).seconds
        )


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("protocol", ["ll", "simple"])
def test_a_fixed_protocol_of_a_shipped_network_grows_with_bytes(name: str, protocol: str) -> None:
    network = NETWORKS[name]
    inter = network.links.get("inter")
    intra = network.links.get("intra") or NETWORKS["pcie3"].links["intra"]
    there = RememberingCluster(16 if inter else 8, (8, 8) if inter else (8,), inter, intra)
    for pick in ("ring", "tree"):
        times = [
            there.cost("all_reduce", 2.0**power, pick, protocol).seconds for power in range(3, 31)
        ]
        assert all(a <= b * SLACK for a, b in pairwise(times))


def test_a_network_that_moves_moves_the_prediction() -> None:
    """By law: half of every rate, or twice every latency, changes the time of every collective."""
    network = load_network("10gbe", SHIPPED, "net").links["inter"]
    inside = load_network("pcie3", SHIPPED, "net").links["intra"]
    half = replace(
        network,
        rate=network.rate._replace(value=network.rate.value / 2),
        tree_rate=network.tree_rate._replace(value=network.tree_rate.value / 2),
    )
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"):
        before = Cluster(32, (4,) * 8, network, inside).cost(collective, 1e8).seconds
        assert Cluster(32, (4,) * 8, half, inside).cost(collective, 1e8).seconds > 1.5 * before
