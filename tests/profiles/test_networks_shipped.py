"""Shipped networks by law: every number has its origin, and nothing larger or longer is faster."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives import algorithms
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.network.cluster import Cluster, Link, Network
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import RememberingCluster, Session
from support.what_ships import NETWORKS


def links(network: Network) -> list[Link]:
    return list(network.links.values())


@pytest.mark.parametrize("name", NETWORKS)
def test_every_number_has_an_origin(name: str) -> None:
    network = NETWORKS[name]
    assert network.name == name
    for link in links(network):
        for quantity in (link.rate, link.tree_rate, link.gamma):
            assert len(quantity.source) > 20
            assert quantity.spread is not None
        for curve in (link.ring, link.tree):
            assert len(curve.source) > 20
            assert curve.spread is not None
            assert curve.low is not None
        assert 0 < link.tree_rate.value <= link.rate.value


def test_the_names_that_users_type_are_there() -> None:
    wanted = {"1gbe", "10gbe", "25gbe", "40gbe", "50gbe", "100gbe", "ib100", "ib200", "ib400"}
    wanted |= {"ib100-gdr"}
    wanted |= {"efa100", "efa400", "pcie3", "pcie4", "nvlink-v100", "nvlink-a100", "nvlink-h100"}
    assert wanted <= set(Catalog().files("networks"))


def test_faster_names_are_faster() -> None:
    """By law: a higher line rate of one family never takes longer for a large buffer."""
    pcie = NETWORKS["pcie5"].links["intra"]
    mpi = tuple(f"{name}-mpi" for name in LADDER)
    for family in (LADDER, mpi, ("ib100", "ib100-gdr", "ib200", "ib400")):
        there = [
            RememberingCluster(16, (4,) * 4, NETWORKS[name].links["inter"], pcie) for name in family
        ]
        times = [one.cost("all_reduce", 1e8).seconds for one in there]
        assert times == sorted(times, reverse=True), family


LADDER = tuple(f"{rate}gbe" for rate in (1, 10, 25, 40, 50, 100))
"""Ethernet by its rate."""


@pytest.mark.parametrize("name", [*(f"{name}-mpi" for name in LADDER), "ib100-mpi"])
def test_mpi_takes_turns_of_wire_and_host(name: str) -> None:
    """By the formula that the files state; and what was measured of a line lies in the residual."""
    line = 12.5e9 if name == "ib100-mpi" else float(name.split("gbe", maxsplit=1)[0]) * 1e9 / 8
    rate = NETWORKS[name].links["inter"].rate
    assert rate.value == pytest.approx(1 / (1 / (0.84 * line) + 0.87e-9), rel=1e-3)
    assert rate.spread is not None
    kind = "ib100" if name == "ib100-mpi" else f"-{name}"
    for other, network in NETWORKS.items():
        if other != name and other.endswith("-mpi") and kind in other:
            ratio = rate.value / network.links["inter"].rate.value
            assert abs(ratio - 1) <= rate.spread + 0.005, other


@pytest.mark.parametrize("collective", algorithms())
@pytest.mark.parametrize("inside", [1, 2, 4, 8])
def test_no_time_grows_with_the_rate_of_ethernet(collective: str, inside: int) -> None:
    """By law, 2 to 256 ranks and 1 B to 1 GB: one latency for the rungs, so that none is slower."""
    pcie = NETWORKS["pcie3"].links["intra"]
    sizes = [*(2.0**power for power in range(0, 30, 3)), 3.5e6, 6e6, 1e9]
    for ranks in (ranks for ranks in (2, 3, 8, 16, 24, 32, 64, 256) if ranks > inside):
        if ranks % inside:
            continue
        nodes = (inside,) * (ranks // inside)
        rungs = [
            RememberingCluster(
                ranks, nodes, NETWORKS[name].links["inter"], pcie if inside > 1 else None
            )
            for name in LADDER
        ]
        for size in sizes:
            times = [rung.cost(collective, size).seconds for rung in rungs]
            for slow, fast in pairwise(times):
                assert fast <= slow * (1 + 1e-9), (
                    ranks,
                    size,
                    dict(zip(LADDER, times, strict=True)),
                )


@pytest.mark.parametrize("gpus_per_node", [1, 4])
def test_no_iteration_grows_with_the_rate_of_ethernet(gpus_per_node: int) -> None:
    asked = {"model": "resnet50", "gpus": 16, "gpus_per_node": gpus_per_node, "gpu": "v100"}
    times = [predict(make_scenario(asked | {"net": name})).iteration_s for name in LADDER]
    assert times == sorted(times, reverse=True)


@given(
    st.sampled_from(sorted(NETWORKS)),
    st.sampled_from(["pcie3", "nvlink-a100"]),
    st.integers(1, 16),
    st.integers(1, 8),
    st.floats(1, 1e9),
    st.floats(1, 1e9),
)
def test_larger_messages_take_no_less(
    name: str, intra: str, nodes: int, inside: int, first: float, second: float
) -> None:
    """By law, on every shipped network with every collective."""
    net = NETWORKS[name]
    inter = net.links.get("inter")
    inner = net.links.get("intra") or NETWORKS[intra].links["intra"]
    nodes = nodes if inter else 1
    there = RememberingCluster(nodes * inside, (inside,) * nodes, inter, inner, net.nics_per_node)
    less, more = sorted((first, second))
    for collective in algorithms():
        assert there.cost(collective, less).seconds <= there.cost(collective, more).seconds * (
            1 + 1e-9
        )


GPUS = (8, 16, 24, 32, 40, 64, 96, 128, 136, 256, 1024, 4096)
SIZES = sorted([2.0**power for power in range(8, 31, 2)] + [25e6, 98e6])


def seconds(there: Cluster, collective: str) -> list[float]:
    return [there.cost(collective, size_bytes).seconds for size_bytes in SIZES]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("inside", [1, 8])
def test_more_gpus_take_no_less(name: str, inside: int) -> None:
    """By law, at fixed GPUs a node up to 4096 GPUs: no step where the measured range ends."""
    net = NETWORKS[name]
    few = SIZES[1::2]
    inter = net.links.get("inter")
    inner = net.links.get("intra") or NETWORKS["nvlink-a100"].links["intra"]
    shapes = [(inside,) * (gpus // inside) for gpus in GPUS] if inter else [(n,) for n in GPUS[:6]]
    for collective in ("all_reduce", "all_gather", "reduce_scatter"):
        before = [0.0] * len(few)
        for nodes in shapes:
            there = RememberingCluster(sum(nodes), nodes, inter, inner, net.nics_per_node)
            after = [there.cost(collective, size_bytes).seconds for size_bytes in few]
            assert all(b <= a * (1 + 1e-9) for b, a in zip(before, after, strict=True)), nodes
            assert after == sorted(after)
            before = after


@pytest.mark.parametrize("name", ["10gbe", "hkbu-v100-10gbe"])
def test_nothing_changes_inside_the_measured_range(name: str) -> None:
    """By law: up to 32 GPUs the range plays no part; at 64 it does."""
    inter = NETWORKS[name].links["inter"]
    inner = NETWORKS[name].links.get("intra") or NETWORKS["pcie3"].links["intra"]
    free, free_inner = replace(inter, ranks=None), replace(inner, ranks=None)
    for gpus, same in ((8, True), (16, True), (32, True), (64, False)):
        nodes = (4,) * (gpus // 4)
        for collective in ("all_reduce", "all_gather"):
            ranged = RememberingCluster(gpus, nodes, inter, inner)
            plain = RememberingCluster(gpus, nodes, free, free_inner)
            assert (seconds(ranged, collective) == seconds(plain, collective)) is same


def test_a_bandwidth_ramp_is_no_latency_of_a_thousand_gpus() -> None:
    """By closed form: 2 nodes need 1 ms a hop at 64 MiB; in 128 nodes a step carries far less.

    At 25 MiB on 1024 GPUs a step carries what it carried at 25/64 MiB on the 16 of the fit.
    """
    link, inner = NETWORKS["efa400"].links["inter"], NETWORKS["nvlink-a100"].links["intra"]
    size_bytes = 25 * 2**20
    there = Cluster(1024, (8,) * 128, link, inner, 4)
    hop_s = 127 * link.ring.at(size_bytes * 16 / 1024) + 896 * inner.ring.at(65536)
    expected_s = hop_s + 1023 / 1024 * size_bytes / (4 * link.rate.value)
    assert there.cost("all_gather", size_bytes).seconds == pytest.approx(expected_s, rel=0.02)


NVLINKS = [name for name in NETWORKS if name.startswith("nvlink")]
FLOORS = 0.05
"""A small all_reduce inside one node takes up to 1 us a hop longer on the NVLink nodes measured
than on the PCIe node (16.8 and 23.3 against 13.7 and 16.2 us for 4 GPUs)."""


@pytest.mark.parametrize("name", NVLINKS)
def test_nvlink_is_no_slower_than_pcie(name: str) -> None:
    """By law, on 16 nodes of 4 GPUs over ib100, but for the floors of the curves."""
    inter = NETWORKS["ib100"].links["inter"]
    slow, fast = (
        seconds(
            RememberingCluster(64, (4,) * 16, inter, NETWORKS[inner].links["intra"]), "all_reduce"
        )
        for inner in ("pcie3", name)
    )
    assert all(b <= a * (1 + FLOORS) for a, b in zip(slow, fast, strict=True))


LATENCY_OF_10GBE = {"hkbu-v100-10gbe", *LADDER[1:]}
"""10gbe, whose latency falls past 1 MiB as measured, and those that must not be slower there."""


@pytest.mark.parametrize("name", sorted(NETWORKS.keys() - LATENCY_OF_10GBE))
def test_latency_does_not_fall_below_that_of_small_messages(name: str) -> None:
    """By law: a hop does not become faster with size; what is below is an error of the rate."""
    for link in links(NETWORKS[name]):
        for curve in (link.ring, link.tree):
            assert min(curve.alpha_s) >= curve.alpha_s[0] * (1 - 0.05)


def test_to_name_the_link_that_joins_the_gpus_anyway_changes_nothing() -> None:
    session, compared = Session(None), 0
    for net in NETWORKS:
        for more in ({}, {"gpu": "v100"}, {"library": "mpi"}):
            asked = {"model": "resnet50", "net": net, "gpus": 16, **more}
            try:
                left_out = predict(make_scenario(asked), session)
            except RequestError:  # it has no link between nodes, or another library measured it
                continue
            inside = left_out.scenario.intra_net
            named = predict(make_scenario(asked | {"intra_net": inside}), session)
            assert named.scenario.intra_net == inside
            assert named.breakdown_s == left_out.breakdown_s, asked
            assert named.iteration_s_interval == left_out.iteration_s_interval, asked
            compared += 1
    assert compared > len(NETWORKS)


def test_another_link_inside_a_node_leaves_out_what_was_measured() -> None:
    asked = {"model": "resnet50", "net": "p3dn-v100-tcp100", "gpus": 16}
    seconds = [
        predict(make_scenario(asked | {"intra_net": inside})).iteration_s
        for inside in (None, "nvlink", "nvlink-v100", "nvlink-a100")
    ]
    assert seconds[0] == seconds[1] == seconds[2] != seconds[3]
