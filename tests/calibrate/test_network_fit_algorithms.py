"""Networks fitted to curves of other libraries, of trees, and of protocols held fixed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfsim.calibrate.network_fit import fit_network
from perfsim.calibrate.network_report import network_toml
from perfsim.network.cluster import Cluster, read_network
from perfsim.network.link import under_protocol
from support.made_networks import RING, TREE, flat, held, link, measure, no_preset


@pytest.mark.parametrize("nodes", [2, 6, 8])
@pytest.mark.parametrize(
    ("library", "collective"),
    [
        ("nccl", "all_reduce"),
        ("nccl", "all_gather"),
        ("gloo", "all_reduce"),
        ("gloo", "all_gather"),
        ("gloo", "reduce_scatter"),
        ("gloo", "broadcast"),
        ("mpi", "all_reduce"),
        ("mpi", "all_gather"),
        ("mpi", "reduce_scatter"),
        ("mpi", "broadcast"),
    ],
)
def test_a_link_gives_its_curve_back_in_its_own_library(
    library: str, collective: str, nodes: int
) -> None:
    """By closed form: each library's own steps and choice by size, ring and tree hops alike.

    A chain's best chunks add a part that grows with sqrt(n), which the slope takes for bytes.
    """
    within = 0.08 if collective == "broadcast" else 0.05
    wire = link(1.2e9, 3e-5)
    made = replace(flat(nodes, wire), library=library, fitted_on=library)
    curve = measure(made, (collective, "auto", ""))
    fit = fit_network([curve], 1, no_preset).links["inter"].link
    again = replace(made, inter=fit)
    for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
        told = again.cost(collective, size).seconds
        assert told == pytest.approx(seconds, rel=within), size
    assert fit.ring.spread is not None and fit.ring.spread < 0.05


def test_gloo_and_open_mpi_hops_are_those_of_the_algorithm_that_served() -> None:
    """By hand: a gloo ring's step costs two latencies; Open MPI doubles below 10 kB only."""
    made = replace(flat(8, link(1.2e9, 3e-5)), library="gloo", fitted_on="gloo")
    gloo = fit_network([measure(made, ("all_reduce", "auto", ""))], 1, no_preset)
    found = gloo.links["inter"].link
    assert found.ring.at(8.0) == pytest.approx(3e-5, rel=0.01)
    assert found.tree.alpha_s == found.ring.alpha_s and found.tree.kind == "derived"
    slow = replace(link(1.2e9, 3e-5), tree=link(1.2e9, 9e-5).tree)
    made = replace(flat(8, slow), library="mpi", fitted_on="mpi")
    mpi = fit_network([measure(made, ("all_reduce", "auto", ""))], 1, no_preset)
    found = mpi.links["inter"].link
    assert (found.tree.at(8192.0), found.ring.at(16384.0)) == (
        pytest.approx(9e-5, rel=0.02),
        pytest.approx(3e-5, rel=0.02),
    )


def test_hops_inside_a_node_are_the_trees_where_a_tree_crosses_them() -> None:
    inside = replace(link(5e10, 2e-6), tree=link(5e10, 9e-6).tree)
    made = Cluster(16, (4,) * 4, link(5e9, 2e-5), inside)
    fit = fit_network([measure(made, TREE), measure(made, RING)], 1, lambda _: inside)
    found = fit.links["inter"].link
    assert found.tree.at(8.0) == pytest.approx(2e-5, rel=0.02)
    assert found.ring.at(8.0) == pytest.approx(2e-5, rel=0.02)


# Protocols held fixed


def test_held_protocols_are_numbers_of_their_own(tmp_path: Path) -> None:
    usual = measure(flat(8, link(5e9, 2e-5)), RING)
    curves = [held("ll", 1.5e9, 6e-6), usual, held("simple", 5e9, 3e-5)]
    fit = fit_network(curves, 1, no_preset)
    found = fit.links["inter"].link
    alone = fit_network([usual], 1, no_preset).links["inter"].link
    assert (found.rate, found.ring) == (alone.rate, alone.ring)
    assert {name: one.rate.value for name, one in found.protocols.items()} == {
        "ll": pytest.approx(1.5e9, rel=0.01),
        "simple": pytest.approx(5e9, rel=0.01),
    }
    assert found.protocols["ll"].alpha.value == pytest.approx(6e-6, rel=0.01)
    path = tmp_path / "made-up.toml"
    head = {"name": "made-up", "title": "x", "transport": "ib"}
    path.write_text(network_toml(fit, head, knots=False))
    again = read_network(path).links["inter"]
    for size, seconds in zip(curves[0].size_bytes, curves[0].seconds, strict=True):
        cost = flat(8, again).cost("all_reduce", size, "ring", "ll")
        assert cost.seconds == pytest.approx(seconds, rel=0.01)
        assert {term.quantity.kind for term in cost.terms} == {"fitted"}
    (derived,) = {
        term.quantity.kind for term in flat(8, again).cost("all_reduce", 8.0, "ring", "ll128").terms
    }
    assert derived == "derived"


def test_a_slower_wire_is_slower_for_a_measured_protocol_too() -> None:
    """By law: what halves the link's rate and adds to its hops does so to the protocol's."""
    usual = measure(flat(8, link(5e9, 2e-5)), RING)
    found = fit_network([usual, held("ll", 1.5e9, 6e-6)], 1, no_preset).links["inter"].link
    rate = found.rate._replace(value=found.rate.value / 2)
    ring = replace(found.ring, alpha_s=tuple(one + 1e-6 for one in found.ring.alpha_s))
    before = under_protocol(found, "ll", "inter")
    after = under_protocol(replace(found, rate=rate, ring=ring), "ll", "inter")
    assert before.rate == found.protocols["ll"].rate and before.rate.kind == "fitted"
    assert after.rate.value == pytest.approx(before.rate.value / 2)
    assert after.ring.at(8.0) == pytest.approx(before.ring.at(8.0) + 1e-6)
    assert (after.rate.kind, after.ring.kind) == ("derived", "derived")


def test_held_protocols_leave_the_tuner_alone() -> None:
    usual = replace(measure(flat(8, link(5e9, 2e-5)), ("all_reduce", "auto", "")), algorithm="")
    slow = replace(held("ll", 1e9, 6e-6), algorithm="")
    both, one = fit_network([usual, slow], 1, no_preset), fit_network([usual], 1, no_preset)
    assert both.tuner == one.tuner and one.tuner is not None
    only = fit_network([slow, held("simple", 5e9, 3e-5)], 1, no_preset)
    assert only.tuner is None
    assert only.links["inter"].link.rate.value == pytest.approx(5e9, rel=0.01)
    assert any("measure without NCCL_PROTO; taken as simple" in one for one in only.undetermined)
