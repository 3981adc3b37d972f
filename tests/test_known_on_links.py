"""A cluster that has measured curves and links: which of the two is asked, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_curves import LARGE, SMALL, curve

from perfsim.network.cluster import Cluster, Network, make_cluster
from perfsim.network.known import MeasuredCollectives, growth_error
from perfsim.network.link import custom_link


def wires(**more) -> Cluster:
    """Return four nodes of four on plain links, beside what was measured."""
    link = custom_link("10GB/s,5us", "--net")
    return Cluster(16, (4,) * 4, link, link, **more)


def test_a_cluster_takes_the_curve_before_its_links() -> None:
    link = custom_link("1GB/s,10us", "test")
    plain = Cluster(16, (4,) * 4, link, link)
    measured = Cluster(16, (4,) * 4, link, link, known=MeasuredCollectives((curve(4),)))
    assert measured.cost("all_reduce", 1e6).seconds == curve(4).at(1e6)
    usual_s = plain.cost("all_reduce", 1e6).seconds
    for held in ("ring", "tree"):  # not measured so: the curve times what the links make of it
        share = plain.cost("all_reduce", 1e6, held).seconds / usual_s
        cost = measured.cost("all_reduce", 1e6, held)
        assert cost.seconds == pytest.approx(curve(4).at(1e6) * share)
        assert cost.seconds >= curve(4).at(1e6) * (1 - 1e-9)
        assert (cost.terms[0].quantity.kind, cost.terms[0].extrapolated) == ("derived", True)
    alone = Cluster(1, (1,), None, None, known=MeasuredCollectives((curve(4),)))
    assert alone.cost("all_reduce", 1e6).seconds == 0.0


def test_a_library_without_choice_meets_its_own_curve() -> None:
    """Gloo always goes round a ring, so a curve held to the ring is what ``auto`` costs."""
    ring = curve(4, algorithm="ring", library="gloo")
    there = wires(library="gloo", fitted_on="gloo", known=MeasuredCollectives((ring,)))
    assert there.cost("all_reduce", 1e6).seconds == ring.at(1e6)
    nccl = wires(known=MeasuredCollectives((curve(4, algorithm="ring"),)))
    assert nccl.cost("all_reduce", 1e6).terms[0].quantity.kind == "derived"  # NCCL may take a tree


def test_the_only_algorithm_by_name_is_the_choice() -> None:
    gather = curve(4, collective="all_gather")
    there = wires(known=MeasuredCollectives((gather,)))
    assert there.cost("all_gather", 1e6, "ring").seconds == gather.at(1e6)


@pytest.mark.parametrize("size", [1.0, 1e9])
def test_beyond_its_sizes_in_proportion_to_the_links(size: float) -> None:
    four = curve(4)
    there, plain = wires(known=MeasuredCollectives((four,))), wires()
    edge = SMALL if size < SMALL else LARGE
    share = plain.cost("all_reduce", size).seconds / plain.cost("all_reduce", edge).seconds
    cost = there.cost("all_reduce", size)
    assert cost.seconds == pytest.approx(four.at(edge) * share)
    (term,) = cost.terms
    assert (term.quantity.kind, term.extrapolated) == ("fitted", True)
    assert term.quantity.spread == growth_error(size / edge)


@given(st.sampled_from([1.001, 1.5, 2.0, 8.0]), st.floats(SMALL, LARGE))
def test_a_worse_network_is_never_faster_than_its_curve(ratio: float, size: float) -> None:
    link = custom_link("10GB/s,5us", "--net")
    net = Network(
        "made up",
        "",
        "",
        4,
        1,
        {"inter": link, "intra": link},
        known=MeasuredCollectives((curve(4),)),
    )
    usual = make_cluster(16, 4, None, net)
    narrow = make_cluster(16, 4, None, net, oversubscription=ratio)
    least_s = usual.cost("all_reduce", size).seconds
    for pick in ("auto", "ring", "tree"):
        assert narrow.cost("all_reduce", size, pick).seconds >= least_s * (1 - 1e-9)


def test_nodes_of_a_size_never_measured_are_extrapolated() -> None:
    """As many GPUs as were measured, on half the nodes: what shares a NIC is another."""
    link = replace(custom_link("10GB/s,5us", "--net"), ranks=(8, 16))
    for inside, strange in ((8, True), (4, False)):
        there = Cluster(
            16, (inside,) * (16 // inside), link, link, known=MeasuredCollectives((curve(2),))
        )
        assert there.strange is strange
    there = Cluster(16, (8, 8), link, link, known=MeasuredCollectives((curve(2),)))
    cost = there.cost("all_reduce", 1e6, "ring")
    inter = [term for term in cost.terms if term.term.startswith("inter")]
    assert inter and all(term.extrapolated for term in inter)
    assert all((term.quantity.spread or 0.0) >= growth_error(1.0) for term in inter)
