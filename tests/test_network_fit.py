"""Networks fitted to curves: formulas with known numbers come back, what is not told is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfsim.calibrate.assemble import assemble
from perfsim.calibrate.condense import cluster_curves, write_condensed
from perfsim.calibrate.curve_fit import fit_curve
from perfsim.calibrate.link_hops import cluster_of, errors_of
from perfsim.calibrate.network_fit import NetworkFit, fit_network, inside_preset
from perfsim.calibrate.network_report import network_report
from perfsim.calibrate.network_toml import network_toml
from perfsim.calibrate.robust import Unidentified
from perfsim.calibrate.sources import read_clusters, read_sources
from perfsim.catalog import shipped
from perfsim.cluster import Cluster, read_network
from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.cluster.measured import Curve, merge
from perfsim.cluster.protocol import fixed
from perfsim.errors import DataError
from perfsim.quantity import Quantity

COLLECTED = Path(__file__).resolve().parents[2] / "shared" / "data" / "nccl"
needs_curves = pytest.mark.skipif(
    not COLLECTED.is_dir(), reason="the collected curves are not in this checkout"
)
SIZES = tuple(8.0 * 2**power for power in range(26))  # to 256 MiB
RING, TREE = ("all_reduce", "ring", "ring"), ("all_reduce", "tree", "tree")
GATHER, SCATTER = ("all_gather", "ring", ""), ("reduce_scatter", "ring", "")
"""Collective, perfsim's algorithm, and what the curve says was held fixed."""


def link(rate: float, alpha_s: float, gamma: float = 0.0, tree_rate: float | None = None) -> Link:
    def given(value: float, unit: str) -> Quantity:
        return Quantity(value, unit, "derived", "made up")

    latency = Latency.constant(given(alpha_s, "s/hop"))
    tree = given(tree_rate or rate, "B/s")
    return Link("made", given(rate, "B/s"), tree, given(gamma, "s/B"), latency, latency)


def measure(
    cluster: Cluster, what: tuple[str, str, str], sizes: tuple[float, ...] = SIZES
) -> Curve:
    """Return what perfsim's own formula says for a cluster, as if it had been measured."""
    collective, algorithm, held = what
    return Curve(
        collective,
        cluster.gpus,
        cluster.nodes,
        cluster.gpus_per_node,
        sizes,
        tuple(cluster.cost(collective, size, algorithm).seconds for size in sizes),
        "measured",
        "made up",
        algorithm=held,
        gpu="V100-SXM2",
        version="2.18.3",
        library=cluster.library,
    )


def flat(nodes: int, wire: Link) -> Cluster:
    return Cluster(nodes, (1,) * nodes, wire, None)


def no_preset(name: str) -> Link | None:
    raise AssertionError(f"{name} was asked for, and no node has two GPUs")


def found(cluster: Cluster, *what: tuple[str, str, str]) -> NetworkFit:
    return fit_network([measure(cluster, one) for one in what], 1, no_preset)


# By closed form: the numbers that made the curves

rates = st.floats(1e8, 1e11)
alphas = st.floats(2e-6, 2e-4)


@settings(max_examples=15)
@given(rates, alphas, st.sampled_from([2, 4, 8, 32]), st.sampled_from([RING, GATHER, SCATTER]))
def test_rate_and_latency_come_back(
    rate: float, alpha_s: float, nodes: int, what: tuple[str, str, str]
) -> None:
    """Where the largest message is mostly bytes; alpha at every knot that latency rules."""
    made = flat(nodes, link(rate, alpha_s))
    curve = measure(made, what)
    assume(nodes * alpha_s < 0.2 * SIZES[-1] / rate)
    fit = fit_network([curve], 1, no_preset).links["inter"].link
    assert fit.rate.value == pytest.approx(rate, rel=0.01)
    for size, alpha in zip(fit.ring.size_bytes, fit.ring.alpha_s, strict=True):
        if size / nodes / rate < alpha_s:
            assert alpha == pytest.approx(alpha_s, rel=0.05), size
    assert fit.ranks == (nodes, nodes)


@pytest.mark.parametrize(
    "what", [(RING, GATHER, SCATTER), (GATHER, SCATTER), (RING, TREE, GATHER, SCATTER)]
)
def test_the_sum_comes_back_and_is_not_in_the_rate_too(
    what: tuple[tuple[str, str, str], ...],
) -> None:
    wire = link(5e9, 2e-5, gamma=4e-11, tree_rate=4e9)
    made = flat(8, wire)
    fit = found(made, *what).links["inter"].link
    assert fit.gamma.value == pytest.approx(4e-11, rel=0.05)
    assert fit.gamma.kind == "fitted"
    assert fit.rate.value == pytest.approx(5e9, rel=0.01)
    if TREE in what:
        assert fit.tree_rate.value == pytest.approx(4e9, rel=0.01)
    again = flat(8, fit)
    for one in what:
        for size in (8.0, 1e6, SIZES[-1]):
            told = again.cost(one[0], size, one[1]).seconds
            assert told == pytest.approx(made.cost(one[0], size, one[1]).seconds, rel=0.05)


def test_without_both_halves_the_sum_is_part_of_the_rate() -> None:
    fit = found(flat(8, link(5e9, 2e-5, gamma=4e-11)), RING).links["inter"]
    assert fit.link.gamma.value == 0.0 and fit.link.gamma.kind == "derived"
    assert fit.link.rate.value == pytest.approx(1 / (1 / 5e9 + 2e-11), rel=0.01)
    assert any("measure reduce_scatter and all_gather" in sentence for sentence in fit.untold)


def test_halves_that_contradict_the_all_reduce_leave_no_negative_rate() -> None:
    """By hand: a reduce_scatter 10 ms slower than a gather, beside an all_reduce of 1 ms."""
    made = flat(8, link(1e12, 1e-6))
    scatter = measure(made, SCATTER)
    slow = replace(
        scatter,
        seconds=tuple(
            one + size * 1e-9 for one, size in zip(scatter.seconds, scatter.size_bytes, strict=True)
        ),
    )
    curves = [measure(made, RING), measure(made, GATHER), slow]
    fit = fit_network(curves, 1, no_preset).links["inter"].link
    assert fit.gamma.value == 0.0
    assert fit.rate.value > 0


def test_one_rate_is_that_of_one_nic_in_use() -> None:
    """Two nodes of 4 with 2 NICs see twice the rate of one, with 1 GPU a node once."""
    wire, inside = link(5e9, 2e-5), link(1e11, 1e-6)
    four = Cluster(8, (4, 4), wire, inside, 2)
    one = Cluster(2, (1, 1), wire, None, 2)
    for made in (four, one):
        curve = measure(made, RING)
        fit = fit_network([curve], 2, lambda _: inside).links["inter"].link
        assert fit.rate.value == pytest.approx(5e9, rel=0.01)


def test_links_of_a_node_and_between_nodes() -> None:
    wire, inside = link(5e9, 2e-5), link(2e10, 3e-6)
    within = measure(Cluster(4, (4,), None, inside), RING)
    across = measure(Cluster(16, (4,) * 4, wire, inside), RING)
    fit = fit_network([within, across], 1, no_preset)
    for of, true, alpha_s in (("intra", 2e10, 3e-6), ("inter", 5e9, 2e-5)):
        one = fit.links[of].link
        assert one.rate.value == pytest.approx(true, rel=0.01)
        assert one.ring.at(8.0) == pytest.approx(alpha_s, rel=0.05)
    assert fit.inside == ""


def test_a_node_that_was_not_measured_is_a_preset() -> None:
    asked: list[str] = []

    def load(name: str) -> Link:
        asked.append(name)
        return link(2e10, 3e-6)

    across = measure(Cluster(16, (4,) * 4, link(5e9, 2e-5), link(2e10, 3e-6)), RING)
    fit = fit_network([across], 1, load)
    assert asked == [fit.inside] == ["nvlink-v100"]
    assert set(fit.links) == {"inter"}


@pytest.mark.parametrize(
    ("gpu", "fabric", "preset"),
    [
        ("A100-SXM4-40GB", "NVSwitch; EFA", "nvlink-a100"),
        ("V100-SXM2", "", "nvlink-v100"),
        ("H100 80GB", "NVSwitch; RoCE", "nvlink-h100"),
        ("B200", "", "nvlink-h100"),
        ("RTX 4090", "PCIe; single node", "pcie4"),
        ("RTX PRO 6000 Blackwell", "PCIe 5.0 switches", "pcie5"),
        ("GeForce RTX 2080 Ti", "PCIe 3.0 x16; 10GbE", "pcie3"),
        ("RTX 3090", "PCIe; 10GbE", "pcie4"),
    ],
)
def test_presets_of_a_node_exist(gpu: str, fabric: str, preset: str) -> None:
    curve = Curve("reduce", 8, 2, 4, (8.0,), (1e-5,), "measured", "x", gpu=gpu, fabric=fabric)
    assert inside_preset(curve) == preset
    assert read_network(shipped() / "networks" / f"{preset}.toml").links["intra"]


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
    again = replace(made, inter=fit, _routes={}, _costs={})
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


def held(protocol: str, rate: float, alpha_s: float, nodes: int = 8) -> Curve:
    return replace(measure(flat(nodes, link(rate, alpha_s)), RING), protocol=protocol)


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
    before = fixed(found, "ll", "inter")
    after = fixed(replace(found, rate=rate, ring=ring), "ll", "inter")
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
    assert any("measure without NCCL_PROTO; taken as simple" in one for one in only.refused)


def test_the_order_of_curves_changes_nothing() -> None:
    """By law: every order of curves, two of the same ranks and sizes among them, is one file."""
    made = flat(8, link(5e9, 2e-5, gamma=4e-11))
    curves = [measure(made, one) for one in (RING, GATHER, SCATTER)]
    twin = replace(curves[0], algorithm="", seconds=tuple(1.3 * one for one in curves[0].seconds))
    other = replace(twin, nodes=4, gpus_per_node=2, seconds=curves[0].seconds)
    curves += [twin, other, held("ll", 2e9, 6e-6), held("simple", 4e9, 3e-5)]
    head = {"name": "made-up", "title": "x", "transport": "ib"}
    files = {
        network_toml(fit_network(list(order), 1, lambda _: link(2e10, 3e-6)), head, knots=True)
        for order in (curves, curves[::-1], curves[3:] + curves[:3])
    }
    assert len(files) == 1


# What the data cannot tell


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        (
            SIZES[:10],
            "link between nodes: all_reduce on 8 GPUs (8 x 1), ring: the largest message is still"
            " more latency than bytes, so the rate is not told; measure at least 3 sizes, the"
            " largest 64 MiB or more",
        ),
        (
            SIZES[-1:],
            "link between nodes: all_reduce on 8 GPUs (8 x 1), ring: 1 size cannot tell a rate;"
            " measure at least 3 sizes, the largest 64 MiB or more",
        ),
    ],
)
def test_what_is_not_told_is_refused_with_what_to_measure(
    sizes: tuple[float, ...], sentence: str
) -> None:
    curve = measure(flat(8, link(5e9, 2e-5)), RING, sizes)
    with pytest.raises(Unidentified) as error:
        fit_network([curve], 1, no_preset)
    assert str(error.value) == sentence


def test_a_collective_without_a_rate_is_refused() -> None:
    curve = replace(measure(flat(8, link(5e9, 2e-5)), RING), collective="all_to_all", algorithm="")
    with pytest.raises(Unidentified, match="measure all_reduce, from a few bytes up to 256 MiB"):
        fit_network([curve], 1, no_preset)
    alone = Curve("all_reduce", 1, 1, 1, (8.0, 1e6), (1e-6, 2e-6), "measured", "x")
    with pytest.raises(Unidentified, match="no curve of several ranks"):
        fit_network([alone], 1, no_preset)


def test_one_link_that_is_told_is_kept_and_the_other_named() -> None:
    within = measure(Cluster(4, (4,), None, link(2e10, 3e-6)), RING)
    across = measure(Cluster(8, (4, 4), link(5e9, 2e-5), link(2e10, 3e-6)), RING, SIZES[:6])
    fit = fit_network([within, across], 1, no_preset)
    assert set(fit.links) == {"intra"}
    assert any(one.startswith("link between nodes: ") for one in fit.refused)


# Report, warnings, file


@cache
def damaged() -> NetworkFit:
    """Return a fit to curves of which one has a point three times too slow, one falls."""
    made = flat(8, link(5e9, 2e-5, gamma=4e-11))
    ring, gather, scatter = (measure(made, one) for one in (RING, GATHER, SCATTER))
    slow = list(gather.seconds)
    slow[9] *= 3.0
    falling = list(scatter.seconds)
    falling[:4] = [falling[0] * 4] * 4
    curves = (ring, replace(gather, seconds=tuple(slow)), replace(scatter, seconds=tuple(falling)))
    own = replace(ring, algorithm="", series="made-up")
    return fit_network([own, *curves], 1, no_preset)


def test_outliers_and_falls_are_named_and_do_not_pull() -> None:
    fit = damaged()
    warnings = fit.warnings()
    (outlier,) = [one for one in warnings if "left out of the fit" in one]
    assert outlier.startswith("all_gather on 8 GPUs (8 x 1): ") and "4.096 kB" in outlier
    assert any("reduce_scatter" in one and "time falls by" in one for one in warnings)
    assert fit.links["inter"].link.rate.value == pytest.approx(5e9, rel=0.01)


def test_report_has_its_sections_and_every_value() -> None:
    text = network_report(damaged(), "made-up")
    heads = [line for line in text.splitlines() if line.startswith("[[")]
    assert heads == [
        "[[Data]]",
        "[[Link between nodes]]",
        "[[Shape]] (up to 4 MiB: line c + b m, or hinge max(a, c + b m), by AICc)",
        "[[NCCL's tuner]]",
        "[[Not told by these data]]",
        "[[Warnings]]",
    ]
    assert text.startswith("network made-up\n")
    link_part = text[text.index("[[Link") : text.index("[[NCCL")]
    for word in ("points", "rate ", "tree rate", "gamma", "alpha, ring", "alpha, tree", "+/-"):
        assert word in link_part
    assert "5 GB/s" in link_part and "8 B to 268.4 MB" in link_part
    assert "measure all_reduce with NCCL_ALGO=Tree" in text
    assert "off its neighbours; left out of the fit" in text
    for one in damaged().curves:
        assert f"    {one.name}: 26 sizes, 8 B to 268.4 MB" in text


def test_the_file_reads_back_as_fitted(tmp_path: Path) -> None:
    fit = damaged()
    head = {"name": "made-up", "title": "made up", "transport": "tcp", "gpus_per_node": 1}
    path = tmp_path / "made-up.toml"
    path.write_text(network_toml(fit, head, knots=True))
    network = read_network(path)
    assert (network.name, network.gpus_per_node, network.library) == ("made-up", 1, "nccl")
    true, again = fit.links["inter"].link, network.links["inter"]
    for name in ("rate", "tree_rate", "gamma"):
        one, other = getattr(true, name), getattr(again, name)
        assert other.value == pytest.approx(one.value, rel=1e-3), name
        assert (other.kind, other.source) == (one.kind, one.source)
        assert other.spread == pytest.approx(one.spread, abs=1e-4)
        assert (other.low, other.high) == (one.low, one.high)
    for name in ("ring", "tree"):
        one, other = getattr(true, name), getattr(again, name)
        assert other.size_bytes == one.size_bytes
        assert other.alpha_s == pytest.approx(one.alpha_s, rel=1e-3, abs=1e-12)
    assert again.ranks == true.ranks
    known, tuner = network.known, fit.tuner
    assert known is not None and known.tuner is not None and tuner is not None
    assert known.tuner.of == tuner.of
    assert known.tuner.bus_bandwidth == pytest.approx(tuner.bus_bandwidth, rel=1e-3)
    for name in ("two_nodes", "plain_tree", "near_nic"):
        assert getattr(known.tuner, name) == getattr(tuner, name)
    assert len(known.curves) == len(fit.fits)
    for curve, knots in zip(known.curves, fit.fits, strict=True):
        assert curve.size_bytes == knots.curve.size_bytes
        assert curve.seconds == pytest.approx(knots.curve.seconds, rel=1e-3)
        assert curve.kind == "fitted"
        for name in ("collective", "ranks", "nodes", "gpus_per_node", "algorithm", "gpu"):
            assert getattr(curve, name) == getattr(knots.curve, name)


def test_the_file_says_the_library_and_what_stands_for_a_node(tmp_path: Path) -> None:
    made = Cluster(16, (4,) * 4, link(5e9, 2e-5), link(2e10, 3e-6))
    curve = replace(measure(made, RING), library="gloo", algorithm="")
    fit = fit_network([curve], 1, lambda _: link(2e10, 3e-6))
    path = tmp_path / "made-up.toml"
    head = {"name": "made-up", "title": "made up", "transport": "tcp"}
    path.write_text(network_toml(fit, head, knots=True))
    network = read_network(path)
    assert (network.library, network.inside) == ("gloo", "nvlink-v100")
    assert network.known is not None and network.known.tuner is None
    assert [one.library for one in network.known.curves] == ["gloo"]


def test_standard_errors_are_written_and_cover_the_truth(tmp_path: Path) -> None:
    """Noise of 2 %: rate, gamma and alpha lie within four errors, none of which is zero."""
    random = np.random.default_rng(3)
    made = flat(8, link(5e9, 2e-5, gamma=4e-11, tree_rate=4e9))
    noisy = []
    for one in (RING, TREE, GATHER, SCATTER):
        curve = measure(made, one)
        factors = random.normal(1.0, 0.02, len(curve.seconds))
        times = tuple(float(t * f) for t, f in zip(curve.seconds, factors, strict=True))
        noisy.append(replace(curve, seconds=times))
    fit = fit_network(noisy, 1, no_preset)
    one, errors = fit.links["inter"].link, fit.links["inter"].errors
    told = {
        "rate": (one.rate.value, 5e9),
        "tree_rate": (one.tree_rate.value, 4e9),
        "gamma": (one.gamma.value, 4e-11),
        "ring": (one.ring.alpha_s[0], 2e-5),
        "tree": (one.tree.alpha_s[0], 2e-5),
    }
    assert set(errors) == set(told)
    for name, (value, true) in told.items():
        assert 0 < errors[name] < 0.5 * value, name
        assert abs(value - true) < 4 * errors[name], name
    text = network_toml(fit, {"name": "made-up", "title": "x", "transport": "ib"}, knots=False)
    assert text.count("error = ") == len(errors)
    path = tmp_path / "made-up.toml"
    path.write_text(text)
    assert read_network(path).links["inter"].rate.spread == pytest.approx(one.rate.spread, abs=1e-4)
    wrong = next(line for line in text.splitlines() if line.startswith("error = "))
    path.write_text(text.replace(wrong, 'error = "-1GB/s"', 1))
    with pytest.raises(DataError, match="error"):
        read_network(path)
    report = network_report(fit, "made-up")
    assert sum(" +/- " in line for line in report.splitlines() if "[fitted]" in line) == 3
    assert sum("a hop of a small message" in line for line in report.splitlines()) == 2


def test_the_report_says_line_or_hinge_and_full_has_each_fit() -> None:
    """By closed form: 20 us until 1 GB/s from -0.1 ms takes over, beside a plain line."""
    made = flat(8, link(5e9, 2e-5))
    line = measure(made, RING)
    bent = tuple(max(2e-4, -1e-4 + 1e-9 * size) for size in line.size_bytes)
    curves = [line, replace(line, collective="broadcast", algorithm="", seconds=bent)]
    fit = fit_network(curves, 1, no_preset)
    short, full = network_report(fit, "x"), network_report(fit, "x", full=True)
    shapes = short[short.index("[[Shape]]") : short.index("[[Not told")].splitlines()[1:]
    assert [one.split(": ")[1].split()[0].strip(",") for one in shapes] == ["line", "hinge"]
    (hinge,) = [one for one in shapes if ": hinge" in one]
    assert "broadcast" in hinge and "a = 200 +/-" in hinge and "b = 1000 +/-" in hinge
    assert full.startswith(short) and full.count("[[Fit Statistics]]") == 3
    assert "rate of the link between nodes" in full and "hinge, broadcast on 8" in full


@given(st.lists(st.floats(0.98, 1.02), min_size=12, max_size=12), st.floats(1e-6, 1e-3))
def test_knots_are_near_their_points(noise: list[float], floor_s: float) -> None:
    """By law: 2 % of noise stays within the tolerance, and the spread says how near it is."""
    sizes = tuple(8.0 * 4**place for place in range(len(noise)))
    points = zip(sizes, noise, strict=True)
    seconds = tuple((floor_s + size * 1e-9) * factor for size, factor in points)
    curve = Curve("all_reduce", 2, 2, 1, sizes, seconds, "measured", "drawn")
    fit = fit_curve(curve)
    off = [abs(fit.curve.at(size) / one - 1) for size, one in zip(sizes, seconds, strict=True)]
    assert sorted(off)[-1 - len(fit.left_out)] <= 0.05 + 1e-3
    assert fit.curve.spread is not None and fit.curve.spread <= 0.05 + 1e-3
    assert fit.curve.kind == "fitted"
    assert set(fit.curve.size_bytes) <= set(sizes)


# The networks that ship


@needs_curves
@pytest.mark.parametrize("name", ["hkbu-cpu-10gbe-mpi", "gloo158-cpu-tcp"])
def test_links_of_other_libraries_are_as_near_as_their_file_says(name: str) -> None:
    """Without the curves: the 90th percentile over all ranks and sizes is the stated residual."""
    folder = shipped() / "networks"
    cluster = read_clusters(folder / "clusters.csv")[name]
    source = read_sources(folder / "sources.csv")[cluster.source_id]
    wire = read_network(folder / f"{name}.toml").links["inter"]
    off = []
    for curve in merge(cluster_curves(COLLECTED, cluster, source)):
        assert curve.gpus_per_node == 1
        off += errors_of(curve, cluster_of(curve, wire, None))
    assert wire.ring.spread is not None
    assert float(np.percentile(off, 90)) == pytest.approx(wire.ring.spread, abs=2e-3)


@needs_curves
@pytest.mark.slow
def test_shipped_networks_are_what_the_collected_curves_give(tmp_path: Path) -> None:
    out, ship = tmp_path / "networks", shipped() / "networks"
    out.mkdir()
    for name in ("sources.csv", "clusters.csv"):
        (out / name).write_bytes((ship / name).read_bytes())
    curves = write_condensed(COLLECTED, out)
    written, refused = assemble(COLLECTED, out)
    for path in (*written, *curves.values()):
        assert path.read_text() == (ship / path.name).read_text(), path.name
    for network, why in refused.items():
        assert not (ship / f"{network}.toml").exists(), why
    assert {path.stem for path in written} | set(refused) == set(
        read_clusters(out / "clusters.csv")
    )
