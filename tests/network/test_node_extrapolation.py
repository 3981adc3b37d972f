"""Collectives of two nodes extrapolated to more, with what the data sheet of the nodes says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_extrapolation import (
    extrapolate_nodes,
    extrapolated_seconds,
    law_extrapolates,
)
from perfsim.network.node_law import node_law
from perfsim.network.node_type import load_node_type
from perfsim.network.scaling_laws import ScalingLaw
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

FACTS = load_node_type("dgx-h100", SHIPPED, "node").facts("hopper")
SIZES = tuple(2.0**power for power in range(3, 34))


def curve(factor: float = 1.0, at: float = 0.0, bump: float = 1.0) -> CollectiveCurve:
    """Return two nodes at ``factor`` times the law; at one size ``bump`` times more."""
    seconds = []
    for size in SIZES:
        call = node_law().call(FACTS, "all_reduce", 16, 2, size)
        assert call is not None
        seconds.append(call.seconds * factor * (bump if size == at else 1.0))
    return CollectiveCurve("all_reduce", 16, 2, 8, SIZES, tuple(seconds), "measured", "made")


def law_s(nodes: int, size: float) -> float:
    call = node_law().call(FACTS, "all_reduce", 8 * nodes, nodes, size)
    assert call is not None
    return call.seconds


@given(st.floats(1.0, 3.0), st.sampled_from([3, 4, 16, 128]), st.sampled_from(SIZES))
def test_a_level_over_the_law_is_kept(factor: float, nodes: int, size: float) -> None:
    found = extrapolated_seconds(node_law(), FACTS, curve(factor), nodes, size)
    assert found == pytest.approx(factor * law_s(nodes, size), rel=1e-6)


def test_an_odd_hump_is_not_multiplied() -> None:
    humped = curve(at=2.0**19, bump=9.0)
    found = extrapolated_seconds(node_law(), FACTS, humped, 16, 2.0**19)
    assert found / law_s(16, 2.0**19) == pytest.approx(1.49, abs=0.01)  # exp(0.4)
    beside = extrapolated_seconds(node_law(), FACTS, humped, 16, 2.0**22)
    assert beside == pytest.approx(law_s(16, 2.0**22), rel=1e-6)


def test_no_curve_beats_the_nics_data_sheet() -> None:
    """A log of two nodes at twice the law's rate stays within 8 x 400 Gbit/s on more."""
    found = extrapolated_seconds(node_law(), FACTS, curve(0.5), 4, 2.0**33)
    assert found == pytest.approx(2 * 31 / 32 * 2.0**33 / 400e9)


def test_only_two_nodes_whose_switches_add_are_extrapolated_so() -> None:
    made = curve()
    assert law_extrapolates(FACTS, made, 4)
    assert not law_extrapolates(FACTS, made, 2) and not law_extrapolates(None, made, 4)
    assert not law_extrapolates(FACTS._replace(generation="ampere"), made, 4)
    assert not law_extrapolates(FACTS, replace(made, algorithm="ring"), 4)
    assert not law_extrapolates(FACTS, replace(made, collective="all_gather"), 4)
    assert not law_extrapolates(FACTS, replace(made, nodes=4, ranks=32), 8)


RINGS = FACTS._replace(generation="ampere")
"""The same nodes, if their switches did not add."""


def test_elsewhere_a_curve_grows_by_its_own_law() -> None:
    made = curve()
    for other in (
        made,
        replace(made, collective="all_gather"),
        replace(made, algorithm="ring"),
        replace(made, nodes=4, ranks=32),
        replace(made, library="gloo"),
    ):
        growth = ScalingLaw([other])
        found = extrapolate_nodes(growth, RINGS, node_law(), 8, 2.0**14)
        assert found == (growth.seconds(64, 8, 2.0**14), False)


def test_without_a_data_sheet_a_curve_grows_by_its_own_law() -> None:
    growth = ScalingLaw([curve()])
    assert extrapolate_nodes(growth, None, None, 8, 1e6) == (growth.seconds(64, 8, 1e6), False)


def test_switches_that_add_leave_two_nodes_to_the_node_type_alone() -> None:
    made = curve()
    found = extrapolate_nodes(ScalingLaw([made]), FACTS, node_law(), 8, 1e9)
    assert found == (extrapolated_seconds(node_law(), FACTS, made, 8, 1e9), True)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_no_growth_beats_the_nics_data_sheet_on_more_than_two_nodes(collective: str) -> None:
    """By hand: n (P-1)/P a rank, twice for all_reduce, at 8 x 400 Gbit/s; SHARP may send less."""
    passes = 2 if collective == "all_reduce" else 1
    fast = replace(curve(0.01), collective=collective, nodes=4, ranks=32)
    least_s = passes * 127 / 128 * 2.0**33 / 400e9
    found = extrapolate_nodes(ScalingLaw([fast]), RINGS, node_law(), 16, 2.0**33)
    assert found.seconds == pytest.approx(least_s)
    for free in (replace(fast, algorithm="sharp"), replace(fast, gpus_per_node=4, ranks=16)):
        found = extrapolate_nodes(ScalingLaw([free]), RINGS, node_law(), 16, 2.0**33)
        assert found.seconds < 0.9 * least_s


def test_a_network_that_states_its_node_type_is_extrapolated_by_it() -> None:
    """NVLSTree on two nodes runs beyond the NICs; FINDINGS: 316 to 387 GB/s on more."""

    def bus(gpus: int) -> float:
        asked = {"model": "gpt2", "gpus": gpus, "net": "oci-h100-roce200", "gpu": "h100"}
        cluster = resolve(make_scenario(asked), SHIPPED).cluster
        cost = cluster.cost("all_reduce", 8e9)
        if gpus > 16:
            assert "by the data sheet of its nodes" in cost.terms[0].quantity.source
        return 2 * (gpus - 1) / gpus * 8e9 / cost.seconds

    assert bus(16) > 440e9
    assert all(300e9 < bus(gpus) < 400e9 for gpus in (32, 64, 128))
