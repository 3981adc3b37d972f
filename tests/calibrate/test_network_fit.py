"""Networks fitted to curves: known numbers come back, what the curves leave open is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfsim.calibrate.fit import Unidentified
from perfsim.calibrate.network_fit import NetworkFit, fit_network, inside_preset
from perfsim.calibrate.network_report import network_toml
from perfsim.data.catalog import shipped
from perfsim.network.cluster import Cluster, read_network
from perfsim.network.link import Link
from perfsim.network.measured import CollectiveCurve
from support.made_networks import (
    GATHER,
    RING,
    SCATTER,
    SIZES,
    TREE,
    flat,
    held,
    link,
    measure,
    no_preset,
)


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
    assert any("measure reduce_scatter and all_gather" in sentence for sentence in fit.undetermined)


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
        ("NVIDIA H20", "NVSwitch; InfiniBand NDR", "nvlink-h100"),
        ("AMD Instinct MI300X", "Infinity Fabric; RoCE", "mi300x-infinity-fabric"),
    ],
)
def test_presets_of_a_node_exist(gpu: str, fabric: str, preset: str) -> None:
    curve = CollectiveCurve(
        "reduce", 8, 2, 4, (8.0,), (1e-5,), "measured", "x", gpu=gpu, fabric=fabric
    )
    assert inside_preset(curve) == preset
    assert read_network(shipped() / "networks" / f"{preset}.toml").links["intra"]


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


# What the data do not determine


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        (
            SIZES[:10],
            "link between nodes: all_reduce on 8 GPUs (8 x 1), ring: the largest message is still"
            " more latency than bytes, which does not determine a rate; measure at least 3"
            " sizes, the largest 64 MiB or more",
        ),
        (
            SIZES[-1:],
            "link between nodes: all_reduce on 8 GPUs (8 x 1), ring: 1 size does not determine a"
            " rate; measure at least 3 sizes, the largest 64 MiB or more",
        ),
    ],
)
def test_what_is_not_determined_is_refused_with_what_to_measure(
    sizes: tuple[float, ...], sentence: str
) -> None:
    curve = measure(flat(8, link(5e9, 2e-5)), RING, sizes)
    with pytest.raises(Unidentified) as error:
        fit_network([curve], 1, no_preset)
    assert str(error.value) == sentence


def test_small_messages_alone_tell_no_rate() -> None:
    """By law: what a slow start says of a wire that no message filled is not its rate."""
    small = measure(flat(2, link(1e9, 1e-6)), RING, SIZES[:14])
    assert small.size_bytes[-1] == 65536
    with pytest.raises(Unidentified, match="at most 64 KiB show a latency and no rate"):
        fit_network([small], 1, no_preset)
    one_more = measure(flat(2, link(1e9, 1e-6)), RING, SIZES[:15])
    fit = fit_network([one_more], 1, no_preset)
    assert fit.links["inter"].link.rate.value == pytest.approx(1e9, rel=0.01)


def neighbours(nics: int) -> CollectiveCurve:
    """Return nccl-tests' sendrecv on 2 nodes of 8, as one rank of each crosses: 40 GB/s."""
    seconds = tuple(1e-5 + size / 40e9 for size in SIZES)
    about = {"kind": "measured", "source": "made up", "gpu": "H100"}
    return CollectiveCurve("send_recv", 8 * nics, 2, 4 * nics, SIZES, seconds, **about)


def test_a_message_to_the_neighbour_shows_one_nic() -> None:
    """By hand: the rate is that of one NIC, however many the node has; all of them carry rings."""
    fit = fit_network([neighbours(2)], 8, lambda _: link(4e11, 3e-6)).links["inter"]
    assert fit.link.rate.value == pytest.approx(40e9, rel=0.01)
    assert fit.link.rate.source.endswith("one rank of a node crosses, over one NIC")
    assert fit.link.ring.alpha_s[0] == pytest.approx(1e-5, rel=0.05)
    assert fit.link.ring.spread is not None and fit.link.ring.spread < 0.05
    ring = Cluster(16, (8, 8), fit.link, link(4e11, 3e-6), 8).cost("all_reduce", 1e10, "ring")
    assert ring.seconds == pytest.approx(2 * 15 / 16 * 1e10 / (8 * 40e9), rel=0.02)


def test_a_message_to_the_neighbour_does_not_tell_a_node_of_unknown_nics() -> None:
    with pytest.raises(Unidentified, match=r"the rate of one NIC and not how many a node has"):
        fit_network([neighbours(2)], None, lambda _: link(4e11, 3e-6))
    whole = measure(Cluster(16, (8, 8), link(3e11, 1e-5), link(4e11, 3e-6)), RING)
    fit = fit_network([neighbours(2), whole], None, lambda _: link(4e11, 3e-6)).links["inter"]
    assert fit.link.rate.value == pytest.approx(3e11, rel=0.02)
    alone = replace(neighbours(2), ranks=2, gpus_per_node=1)
    one = fit_network([alone], None, no_preset).links["inter"]
    assert one.link.rate.value == pytest.approx(40e9, rel=0.01)


def test_a_collective_without_a_rate_is_refused() -> None:
    curve = replace(measure(flat(8, link(5e9, 2e-5)), RING), collective="all_to_all", algorithm="")
    with pytest.raises(Unidentified, match="measure all_reduce, from a few bytes up to 256 MiB"):
        fit_network([curve], 1, no_preset)
    alone = CollectiveCurve("all_reduce", 1, 1, 1, (8.0, 1e6), (1e-6, 2e-6), "measured", "x")
    with pytest.raises(Unidentified, match="no curve of several ranks"):
        fit_network([alone], 1, no_preset)


def test_one_link_that_is_told_is_kept_and_the_other_named() -> None:
    within = measure(Cluster(4, (4,), None, link(2e10, 3e-6)), RING)
    across = measure(Cluster(8, (4, 4), link(5e9, 2e-5), link(2e10, 3e-6)), RING, SIZES[:6])
    fit = fit_network([within, across], 1, no_preset)
    assert set(fit.links) == {"intra"}
    assert any(one.startswith("link between nodes: ") for one in fit.undetermined)
