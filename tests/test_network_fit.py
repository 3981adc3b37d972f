"""Networks fitted to curves: formulas with known numbers come back, what is not told is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfsim.calibrate.assemble import assemble
from perfsim.calibrate.condense import write_condensed
from perfsim.calibrate.curve_fit import fit_curve
from perfsim.calibrate.network_fit import NetworkFit, fit_network, inside_preset
from perfsim.calibrate.network_report import network_report
from perfsim.calibrate.network_toml import network_toml
from perfsim.calibrate.robust import Unidentified
from perfsim.calibrate.sources import read_clusters
from perfsim.catalog import shipped
from perfsim.cluster import Cluster, read_network
from perfsim.cluster.latency import Latency
from perfsim.cluster.link import Link
from perfsim.cluster.measured import Curve
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
