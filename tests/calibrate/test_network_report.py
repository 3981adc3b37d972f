"""What is written of a fitted network: its report, its file, and the files that ship."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from build_networks import (
    cluster_curves,
    data_files,
    read_clusters,
    read_sources,
    write_condensed,
    write_networks,
)
from perfsim.calibrate.link_fit import cluster_of, errors_of
from perfsim.calibrate.network_fit import NetworkFit, fit_network
from perfsim.calibrate.network_report import network_report, network_toml
from perfsim.data.catalog import shipped
from perfsim.errors import DataError
from perfsim.network.cluster import Cluster, read_network
from perfsim.network.measured import merge
from support.made_networks import GATHER, RING, SCATTER, TREE, flat, link, measure, no_preset
from support.paths import ROOT


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
    heads = [line for line in text.splitlines() if line[0] != " "][1:]
    assert heads == [
        "Measured curves",
        "Link between nodes",
        "Shape up to 4 MiB (line c + b m, or hinge max(a, c + b m), by AICc)",
        "NCCL's tuner",
        "Not determined by these curves",
        "Warnings",
    ]
    assert text.startswith("network made-up\n")
    link_part = text[text.index("\nLink") : text.index("\nNCCL")]
    for word in ("points", "rate ", "tree rate", "gamma", "alpha, ring", "alpha, tree", "+/-"):
        assert word in link_part
    assert "5 GB/s" in link_part and "8 B to 268.4 MB" in link_part
    assert "measure all_reduce with NCCL_ALGO=Tree" in text
    assert "off its neighbours; left out of the fit" in text
    for one in damaged().curves:
        assert f"    {one.name}: 26 sizes, 8 B to 268.4 MB" in text


def test_the_report_says_line_or_hinge_and_full_has_each_fit() -> None:
    """By closed form: 20 us until 1 GB/s from -0.1 ms takes over, beside a plain line."""
    made = flat(8, link(5e9, 2e-5))
    line = measure(made, RING)
    bent = tuple(max(2e-4, -1e-4 + 1e-9 * size) for size in line.size_bytes)
    curves = [line, replace(line, collective="broadcast", algorithm="", seconds=bent)]
    fit = fit_network(curves, 1, no_preset)
    short, full = network_report(fit, "x"), network_report(fit, "x", full=True)
    shapes = short[short.index("\nShape") + 1 : short.index("\nNot determined")].splitlines()[1:]
    assert [one.split(": ")[1].split()[0].strip(",") for one in shapes] == ["line", "hinge"]
    (hinge,) = [one for one in shapes if ": hinge" in one]
    assert "broadcast" in hinge and "a = 200 +/-" in hinge and "b = 1000 +/-" in hinge
    assert full.startswith(short) and full.count("\n  Fit\n") == 3
    assert "rate of the link between nodes" in full and "hinge, broadcast on 8" in full


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


# The networks that ship

COLLECTED = [ROOT.parent / "shared" / "data" / name for name in ("nccl", "nccl_modern")]
needs_curves = pytest.mark.skipif(
    not all(folder.is_dir() for folder in COLLECTED),
    reason="the collected curves are not in this checkout",
)


@needs_curves
@pytest.mark.parametrize("name", ["hkbu-cpu-10gbe-mpi", "gloo158-cpu-tcp"])
def test_links_of_other_libraries_are_as_near_as_their_file_says(name: str) -> None:
    """Without the curves: the 90th percentile over all ranks and sizes is the stated residual."""
    folder = shipped() / "networks"
    cluster = read_clusters(folder / "clusters.csv")[name]
    source = read_sources(folder / "sources.csv")[cluster.source_id]
    wire = read_network(folder / f"{name}.toml").links["inter"]
    off = []
    for curve in merge(cluster_curves(data_files(COLLECTED), cluster, source)):
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
    data = data_files(COLLECTED)
    written, refused = write_networks(data, out)
    curves = write_condensed(data, out, without=refused)
    for path in (*written, *curves.values()):
        assert path.read_text() == (ship / path.name).read_text(), path.name
    for network, why in refused.items():
        assert not (ship / f"{network}.toml").exists(), why
    assert {path.stem for path in written} | set(refused) == set(
        read_clusters(out / "clusters.csv")
    )
