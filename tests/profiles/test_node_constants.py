"""The numbers of the law of node types, the clusters that they rest on, and their fit."""

from __future__ import annotations

import re
from math import log

import numpy as np
import pytest

import node_constants as build
from build_networks import read_clusters
from perfsim.data.catalog import Catalog, shipped
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import law_without, node_law
from perfsim.validate.node_clusters import measured_nodes
from support.what_ships import shipped_rows

NODES = shipped() / "nodes"


def rows(name: str) -> list[dict[str, str]]:
    return shipped_rows(f"nodes/{name}")


def test_the_shipped_numbers_are_those_of_the_list() -> None:
    found = rows("constants.csv")
    assert [row["name"] for row in found] == [one.name for one in build.CONSTANTS]
    for row, one in zip(found, build.CONSTANTS, strict=True):
        assert float(row["start"]) == one.start
        assert row["means"] and row["source"].startswith("start: ")
        # Under its prior no number runs away from where a source puts it.
        away = abs(log(float(row["value"]) / one.start))
        assert away <= 2.5 * float(row["prior_sd"]) * 1.01, row
        assert float(row["sensitivity"]) == pytest.approx(0, abs=0.1)


def test_each_family_of_clusters_is_left_out_once() -> None:
    families = {nodes.family for nodes in measured_nodes().values()}
    left_out = {row["family"] for row in rows("left_out.csv")}
    assert left_out == families
    for family in families:
        there = law_without(family).constants
        assert there.keys() == node_law().constants.keys()
    # What one machine alone shows goes back to its start without it.
    alps = law_without("alps").constants
    assert alps["hop.slingshot"] != node_law().constants["hop.slingshot"]


def test_each_cluster_of_the_table_is_a_measured_network() -> None:
    networks, nodes = (
        read_clusters(shipped() / "networks" / "clusters.csv"),
        Catalog().files("nodes"),
    )
    for row in rows("clusters.csv"):
        assert row["network"] in networks and row["node"] in nodes, row
        assert networks[row["network"]].library in ("nccl", "rccl")
        assert row["stated"] == "yes" or row["evidence"], row
    left = {name for name, one in networks.items() if one.library in ("nccl", "rccl")}
    unknown = left - {row["network"] for row in rows("clusters.csv")}
    # Of these nobody states which link joins the nodes, or at which rate.
    assert unknown <= {"occl-3090-pcie4-net", "gloo158-v100-tcp"}


def test_a_fit_finds_the_numbers_that_made_the_curves() -> None:
    """Times made by the law with two numbers changed: the fit moves these two towards them."""
    points = _made_points()
    truth = build._START.copy()
    for name, factor in (("nic_share.rdma", 0.93), ("start.ampere", 1.2)):
        truth[build._NAMES.index(name)] += log(factor)
    measured = build._predicted(truth, points)
    found = build._fit(points, measured, build._weights(points) * 20.0)
    for name in ("nic_share.rdma", "start.ampere"):
        index = build._NAMES.index(name)
        moved = found[index] - build._START[index]
        assert moved / (truth[index] - build._START[index]) == pytest.approx(1, abs=0.35), name
    assert np.abs(build._predicted(found, points) - measured).mean() < 0.02


def test_slopes_of_the_points_that_read_a_number_are_those_of_all() -> None:
    """A number that a point's time does not read cannot move it."""
    points = _made_points()
    here = build._predicted(build._START, points)
    slopes = build._jacobian(build._START, points, here)
    for name in ("nic_share.rdma", "start.ampere", "step.nvlink", "tcp_most"):
        index = build._NAMES.index(name)
        moved = build._START.copy()
        moved[index] += build._STEP
        whole = (build._predicted(moved, points) - here) / build._STEP
        assert slopes[:, index] == pytest.approx(whole, abs=1e-12)
        assert whole.any() == (name != "tcp_most")


def test_few_families_take_at_least_the_half_width_of_all() -> None:
    """Two families of TCP that are right to 0.1, eight of RDMA that are 0.2 off and one 1.0."""
    errors = [
        build._Error(f"{kind}{number}", kind, "small", error)
        for kind, count, error in (("tcp", 2, 0.1), ("rdma", 8, 0.2))
        for number in range(count)
    ]
    errors += [build._Error("rdma8", "rdma", "small", -1.0)]
    widths = build._half_widths(errors)
    assert widths["rdma", "small"] > 0.2
    assert widths["tcp", "small"] == widths[build.ALL, "small"] > 0.1
    many = [
        *errors,
        *(
            one._replace(family=f"more{one.error}{i}", kind="tcp", error=0.1)
            for i, one in enumerate(errors)
        ),
    ]
    assert build._half_widths(many)["tcp", "small"] == pytest.approx(0.1)


def test_the_intervals_of_each_class_hold_on_other_families() -> None:
    """What errors.csv says of itself: 86 to 96 % of each class, 90 % of all (PCIe once 65 %)."""
    text = (NODES / "errors.csv").read_text(encoding="utf-8")
    told = next(line for line in text.splitlines() if line.startswith("# coverage:"))
    found = {name: float(share) for name, share in re.findall(r"(\w+) ([0-9.]+)%", told)}
    assert set(found) >= {"nvlink", "pcie", "rdma", "slingshot", "tcp"}
    assert found.pop("errors") >= 90.0
    assert all(86.0 <= share <= 96.0 for share in found.values()), found


def test_runs_that_were_held_to_a_protocol_are_priced_so() -> None:
    """OCCL's scripts set NCCL_PROTO=Simple: a small message costs that, not LL."""
    nodes = measured_nodes()["occl-h800-nvswitch"]
    assert (nodes.algorithm, nodes.protocol) == ("ring", "simple")
    curve = CollectiveCurve("all_reduce", 8, 1, 8, (64.0,), (47e-6,), "measured", "made")
    held = nodes.seconds(node_law(), curve, 64.0)
    free = nodes._replace(algorithm="", protocol="").seconds(node_law(), curve, 64.0)
    assert held > 1.5 * free
    assert abs(log(held / 47e-6)) < abs(log(free / 47e-6))


def _made_points() -> list[build._Point]:
    nodes = measured_nodes()["sophia-a100-ib200"]
    sizes = tuple(2.0**power for power in range(3, 31, 2))
    return [
        build._Point("made", nodes, curve, size, 1.0)
        for collective in ("all_reduce", "all_gather")
        for count in (1, 2, 4, 8)
        for curve in [
            CollectiveCurve(
                collective, 8 * count, count, 8, sizes, (1.0,) * len(sizes), "measured", "made"
            )
        ]
        for size in sizes
    ]
