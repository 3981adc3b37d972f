"""Measured curves of a network: read from its file, inside and beyond their range."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.hardware.nodes import node_facts
from perfsim.network.cluster import Cluster, Network, make_cluster
from perfsim.network.gathering import Gathering, NodeSheet
from perfsim.network.known import (
    MeasuredCollectives,
    growth_error,
    interpolation_error,
    other_collective_error,
)
from perfsim.network.link import custom_link
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import node_law
from perfsim.network.node_type import load_node_type
from perfsim.network.scaling_laws import ScalingLaw, call_seconds, extrapolate
from perfsim.quantity import Cost
from support.known_curves import LARGE, SMALL, curve, told
from support.what_ships import SHIPPED


@given(st.floats(SMALL, LARGE), st.sampled_from([2, 4]))
def test_inside_its_range_the_curve_itself_and_measured(size: float, nodes: int) -> None:
    curves = (curve(2), curve(4))
    cost = told(MeasuredCollectives(curves), "all_reduce", size, (4,) * nodes)
    (term,) = cost.terms
    assert cost.seconds == curves[nodes // 2 - 1].at(size)
    assert (term.quantity.kind, term.extrapolated) == ("measured", False)
    assert cost.spread == term.quantity.spread == 0.02  # what repeats showed
    assert 0 <= cost.latency_s <= cost.seconds
    assert (term.quantity.low, term.quantity.high) == (SMALL, LARGE)


def test_a_curve_that_was_not_repeated_is_as_wrong_as_reading_between_sizes() -> None:
    once = curve(4, spread=None)
    cost = told(MeasuredCollectives((once,)), "all_reduce", 1e6, (4,) * 4)
    assert cost.spread == cost.terms[0].quantity.spread == interpolation_error(1e6)


@pytest.mark.parametrize("size", [1.0, 1e9])
def test_beyond_its_sizes_the_law_and_extrapolated(size: float) -> None:
    four = curve(4)
    cost = told(MeasuredCollectives((four,)), "all_reduce", size, (4,) * 4)
    (term,) = cost.terms
    assert cost.seconds == extrapolate(four, size)
    assert (term.quantity.kind, term.extrapolated) == ("fitted", True)


@pytest.mark.parametrize(("nodes", "ratio"), [(8, 2), (16, 4), (64, 16), (3, 0.75)])
def test_other_numbers_of_nodes_with_the_error_of_the_law(nodes: int, ratio: float) -> None:
    curves = (curve(2), curve(4))
    cost = told(MeasuredCollectives(curves), "all_reduce", 1e6, (4,) * nodes)
    (term,) = cost.terms
    assert cost.seconds == ScalingLaw(curves).seconds(4 * nodes, nodes, 1e6)
    assert (term.quantity.kind, term.extrapolated) == ("fitted", True)
    assert cost.spread == term.quantity.spread == growth_error(ratio, 1e6)
    assert "extrapolated from all_reduce on 16 GPUs (4 x 4)" in term.quantity.source


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("size", [8.0, 1e4, 1e6, 6e7])
def test_gathering_from_all_reduce_as_validated(collective: str, size: float) -> None:
    """The law served is the law that ``validate nccl`` asks about, without a small message."""
    whole = curve(4)
    cost = told(MeasuredCollectives((whole,)), collective, size, (4,) * 4)
    half = Gathering(ScalingLaw([whole]), collective, 16, 4)
    assert cost.seconds == half.seconds(size)
    (term,) = cost.terms
    assert (term.quantity.kind, term.extrapolated) == ("fitted", False)
    assert cost.spread == other_collective_error(size)
    more = told(MeasuredCollectives((whole, curve(16))), collective, size, (4,) * 4)
    assert more == cost  # what larger clusters say does not matter where these ranks were measured


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_one_gathering_collective_stands_for_the_other(collective: str) -> None:
    """Both take P-1 steps of n / P; before what all_reduce tells."""
    other = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather"}[collective]
    beside = curve(4, collective=other, factor=0.7)
    cost = told(MeasuredCollectives((curve(4), beside)), collective, 1e6, (4,) * 4)
    assert cost.seconds == beside.at(1e6)
    (term,) = cost.terms
    assert (term.quantity.kind, term.extrapolated) == ("fitted", False)
    assert term.term.startswith(collective)
    assert f"{collective} taken as {other}" in term.quantity.source
    assert cost.spread == term.quantity.spread == 0.17  # measured, 330 pairs


def test_gathering_from_an_all_reduce_without_small_messages_is_half_of_it() -> None:
    """Such a curve tells no floor, as in the law that is validated."""
    large = CollectiveCurve(
        "all_reduce", 8, 2, 4, (1e6, 1e7, 1e8), (1e-3, 1e-2, 1e-1), "measured", "made up"
    )
    cost = told(MeasuredCollectives((large,)), "all_gather", 1e7, (4, 4))
    assert cost.seconds == pytest.approx(5e-3)


def test_below_an_all_reduce_of_large_messages_a_gather_shrinks_as_the_links_say() -> None:
    """By hand: half of 1 ms at 1 MB; at 1 kB the links say 0.1 of it, but no less than a call."""
    large = CollectiveCurve(
        "all_reduce", 8, 2, 4, (1e6, 1e7), (1e-3, 1e-2), "measured", "made up", gpu="A100"
    )

    def told_by(model) -> Cost:
        known = MeasuredCollectives((large,))
        cost = known.cost("all_gather", 1e3, (4, 4), "nccl", ("",), "auto", model)
        assert cost is not None
        return cost

    assert told_by(lambda size: 1e-3 if size >= 1e6 else 1e-4).seconds == pytest.approx(5e-5)
    assert told_by(lambda size: size).seconds == call_seconds(large)
    assert told_by(lambda size: size).spread is None  # no message shows a latency
    half = Gathering(ScalingLaw([large]), "all_gather", 8, 2)
    assert told_by(lambda size: 0.0).seconds == half.seconds(1e3)


@pytest.mark.parametrize("size", [8.0, 1e4, 1e6, 6e7])
@pytest.mark.parametrize("nodes", [4, 16])
def test_gathering_with_a_data_sheet_as_validated(size: float, nodes: int) -> None:
    """The facts of the network's nodes reach the law that ``validate nccl`` judges."""
    facts = node_facts(load_node_type("p4d", SHIPPED, "node"), SHIPPED)
    whole = curve(4)
    cost = told(MeasuredCollectives((whole,), facts=facts), "all_gather", size, (4,) * nodes)
    sheet = NodeSheet(facts, node_law())
    half = Gathering(ScalingLaw([whole]), "all_gather", 4 * nodes, nodes, sheet)
    assert cost.seconds == half.seconds(size)
    (term,) = cost.terms
    assert term.extrapolated == (nodes == 16)


def test_own_curve_before_that_of_all_reduce() -> None:
    gather = curve(4, collective="all_gather", factor=0.7)
    cost = told(MeasuredCollectives((curve(4), gather)), "all_gather", 1e6, (4,) * 4)
    assert cost.seconds == gather.at(1e6)


def test_a_gather_of_gloo_on_two_ranks_says_nothing_of_more() -> None:
    """On two, notices stand behind segments: there its curve counts, beyond them all_reduce's."""

    def of_two(collective: str, ranks: int = 2) -> CollectiveCurve:
        sizes, seconds = (1e3, 1e6, 1e8), (1e-3, 2e-3, 0.1)
        made = CollectiveCurve(collective, ranks, ranks, 1, sizes, seconds, "measured", "made up")
        return replace(made, library="gloo")

    whole, gather = of_two("all_reduce"), of_two("all_gather")
    both = MeasuredCollectives((whole, gather))

    def of(known: MeasuredCollectives, nodes: int) -> float:
        return told(known, "all_gather", 1e8, (1,) * nodes, library="gloo").seconds

    assert of(both, 2) == gather.at(1e8)
    assert of(both, 4) == Gathering(ScalingLaw([whole]), "all_gather", 4, 4).seconds(1e8)
    only = MeasuredCollectives((gather,))
    assert of(only, 4) == ScalingLaw([gather]).seconds(4, 4, 1e8) > 1.4 * of(both, 4)
    four = MeasuredCollectives((whole, gather, of_two("all_gather", 4)))
    assert of(four, 8) == ScalingLaw([gather, of_two("all_gather", 4)]).seconds(8, 8, 1e8)


def test_falling_curves_are_interpolated_as_measured() -> None:
    falling = CollectiveCurve(
        "all_reduce", 8, 2, 4, (1e3, 1e6, 1e9), (4e-4, 1e-4, 1e-1), "measured", "made up"
    )
    known = MeasuredCollectives((falling,))
    start, middle, end = (
        told(known, "all_reduce", size, (4, 4)).seconds for size in (1e3, 31622.7766, 1e6)
    )
    assert (start, end) == (4e-4, 1e-4)
    share = (10**4.5 - 1e3) / (1e6 - 1e3)
    assert middle == pytest.approx(4e-4 - share * 3e-4)  # a line in size and time


@pytest.mark.parametrize(
    ("placement", "more"),
    [
        ((1,), {}),  # one rank
        ((3, 5), {}),  # uneven
        ((8, 8), {}),  # other GPUs a node
        ((4,), {}),  # inside one node nothing was measured
        ((4, 4), {"held": ("ring",)}),
        ((4, 4), {"protocol": "simple"}),
        ((4, 4), {"library": "gloo"}),
    ],
)
def test_what_curves_do_not_tell(placement: tuple[int, ...], more: dict[str, str]) -> None:
    assert (
        MeasuredCollectives((curve(2), curve(4))).cost("all_reduce", 1e6, placement, **more) is None
    )


def test_other_collectives_than_gathering_are_not_told_by_all_reduce() -> None:
    for collective in ("broadcast", "all_to_all", "send_recv", "push"):
        assert MeasuredCollectives((curve(4),)).cost(collective, 1e6, (4,) * 4) is None


def test_a_fixed_algorithm_with_its_own_curve() -> None:
    """Held to ring and to tree on the same ranks: each is extrapolated by its own curve."""
    ring, tree = curve(4, algorithm="ring"), curve(4, algorithm="tree", factor=2.0)
    known = MeasuredCollectives((curve(4), ring, tree))
    for one in (ring, tree):
        held = {"held": (one.algorithm,)}
        assert told(known, "all_reduce", 1e6, (4,) * 4, **held).seconds == one.at(1e6)
        grown = told(known, "all_reduce", 1e6, (4,) * 8, **held).seconds
        assert grown == ScalingLaw([one]).seconds(32, 8, 1e6)


def test_one_node_may_have_other_gpus_than_measured() -> None:
    one = curve(1, gpus=8)
    cost = told(MeasuredCollectives((one,)), "all_reduce", 1e6, (4,))
    assert cost.seconds == ScalingLaw([one]).seconds(4, 1, 1e6) < one.at(1e6)


def test_uneven_nodes_by_their_own_curve_alone() -> None:
    """3 + 5 GPUs were measured; 2 + 5 were not, and no law carries uneven nodes."""
    uneven = replace(curve(2), ranks=8, gpus_per_node=5)
    known = MeasuredCollectives((uneven, curve(2)))
    assert told(known, "all_reduce", 1e6, (3, 5)).seconds == uneven.at(1e6)
    assert known.cost("all_reduce", 1e6, (2, 5)) is None
    assert told(known, "all_reduce", 1e6, (4, 4)).seconds == curve(2).at(1e6)


def wires(**more) -> Cluster:
    """Return four nodes of four on plain links, beside what was measured."""
    link = custom_link("10GB/s,5us", "net")
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
    assert term.quantity.spread == growth_error(size / edge, size)


@given(st.sampled_from([1.001, 1.5, 2.0, 8.0]), st.floats(SMALL, LARGE))
def test_a_worse_network_is_never_faster_than_its_curve(ratio: float, size: float) -> None:
    link = custom_link("10GB/s,5us", "net")
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
    link = replace(custom_link("10GB/s,5us", "net"), ranks=(8, 16))
    for inside, unmeasured in ((8, True), (4, False)):
        there = Cluster(
            16, (inside,) * (16 // inside), link, link, known=MeasuredCollectives((curve(2),))
        )
        assert there.node_size_unmeasured is unmeasured
    there = Cluster(16, (8, 8), link, link, known=MeasuredCollectives((curve(2),)))
    cost = there.cost("all_reduce", 1e6, "ring")
    inter = [term for term in cost.terms if term.term.startswith("inter")]
    assert inter and all(term.extrapolated for term in inter)
    assert all((term.quantity.spread or 0.0) >= growth_error(1.0) for term in inter)
