"""Sources of measured curves: what ships is allowed to, and a file says what was written to it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from build_networks import (
    condense,
    data_files,
    in_domains,
    read_clusters,
    read_sources,
    thin,
    write_condensed,
)
from perfsim.data.catalog import shipped
from perfsim.data.tables import read_table
from perfsim.errors import DataError
from perfsim.network.measured import (
    CURVES_COLUMNS,
    CURVES_SCHEMA,
    CollectiveCurve,
    read_curves,
    write_curves,
)
from support.paths import ROOT

NETWORKS = shipped() / "networks"
CURVES = sorted(NETWORKS.glob("*.curves.csv"))
DATA = [ROOT.parent / "shared" / "data" / name for name in ("nccl", "nccl_modern")]
needs_data = pytest.mark.skipif(
    not all(folder.is_dir() for folder in DATA),
    reason="the collected curves are not beside this checkout",
)
FITTED = {path.stem for path in NETWORKS.glob("*.toml")}
HEAD = {
    "network": "mine",
    "title": "a cluster",
    "gpu": "V100",
    "intra": "NVLink",
    "inter": "10GbE",
    "library": "nccl",
    "version": "2.4.7",
    "source": "someone/something@01234567:log.txt",
    "licence": "MIT",
    "date": "2026-11-21",
}


def curve(
    size_bytes: tuple[float, ...] = (1024.0, 4096.0),
    seconds: tuple[float, ...] = (1e-5, 2.5e-5),
    spread: float | None = 0.012,
) -> CollectiveCurve:
    return CollectiveCurve(
        collective="all_reduce",
        ranks=8,
        nodes=2,
        gpus_per_node=4,
        size_bytes=size_bytes,
        seconds=seconds,
        kind="measured",
        source=HEAD["source"],
        spread=spread,
        series="mine",
        algorithm="ring",
        version="2.4.7",
        gpu="V100",
        fabric="NVLink; 10GbE",
    )


def test_every_curve_that_ships_has_a_permissive_source() -> None:
    sources = read_sources(NETWORKS / "sources.csv")
    clusters = read_clusters(NETWORKS / "clusters.csv")
    assert CURVES
    for path in CURVES:
        cluster = clusters[path.name.removesuffix(".curves.csv")]
        ids = {cells["source_id"] for _, cells in read_table(path, CURVES_SCHEMA, CURVES_COLUMNS)}
        assert ids == {cluster.source_id}
        assert sources[cluster.source_id].permissive, path.name
        assert f"# licence: {sources[cluster.source_id].licence}\n" in path.read_text()
        for one in read_curves(path):
            assert (one.library, one.version, one.gpu) == (
                cluster.library,
                cluster.version,
                cluster.gpu,
            )


def test_every_cluster_of_a_permissive_source_ships() -> None:
    sources = read_sources(NETWORKS / "sources.csv")
    clusters = read_clusters(NETWORKS / "clusters.csv").values()
    allowed = {one.network for one in clusters if sources[one.source_id].permissive}
    allowed &= FITTED
    assert allowed == {path.name.removesuffix(".curves.csv") for path in CURVES}


def test_the_clusters_without_a_file_are_told() -> None:
    clusters = read_clusters(NETWORKS / "clusters.csv")
    text = (NETWORKS.parent / "README.md").read_text()
    section = text.partition("Clusters with a row and no file")[2].partition("\n\n| column")[0]
    told = {
        line.split("|")[1].strip(" `") for line in section.splitlines() if line.startswith("| `")
    }
    assert told == clusters.keys() - FITTED


def test_every_source_is_used() -> None:
    used = {one.source_id for one in read_clusters(NETWORKS / "clusters.csv").values()}
    assert used == set(read_sources(NETWORKS / "sources.csv"))


def test_what_ships_is_small() -> None:
    assert sum(path.stat().st_size for path in CURVES) < 700_000


def test_a_shipped_curve_says_what_the_log_says() -> None:
    (one,) = read_curves(NETWORKS / "hkbu-2080ti-10gbe.curves.csv")
    assert (one.collective, one.ranks, one.nodes, one.algorithm) == ("all_reduce", 32, 8, "")
    # out of place times of dexhunter/allreduce-experiments@b49158f0,
    # data/nccl-results/nccl-32gpus/10g/10g-stepexp2-2.txt; in place up to 9 % apart (1 KiB)
    for size_bytes, time_us in ((2**10, 276.1), (2**20, 2281.1), (2**24, 27692), (2**27, 221878)):
        assert one.at(size_bytes) == pytest.approx(time_us * 1e-6, rel=0.05)


@needs_data
def test_every_collected_file_is_of_one_cluster() -> None:
    clusters = read_clusters(NETWORKS / "clusters.csv").values()
    named = sorted(stem for cluster in clusters for stem in cluster.data_files)
    assert named == sorted(data_files(DATA))


@needs_data
def test_the_shipped_curves_are_what_the_command_writes(tmp_path: Path) -> None:
    for name in ("sources.csv", "clusters.csv"):
        (tmp_path / name).write_bytes((NETWORKS / name).read_bytes())
    without = read_clusters(NETWORKS / "clusters.csv").keys() - FITTED
    written = write_condensed(data_files(DATA), tmp_path, without=without)
    assert {path.name for path in written.values()} == {path.name for path in CURVES}
    for path in CURVES:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_trays_of_one_domain_are_one_node(tmp_path: Path) -> None:
    trays = replace(curve(), ranks=144, nodes=36, gpus_per_node=4)
    racks = in_domains(trays, 72)
    assert (racks.ranks, racks.nodes, racks.gpus_per_node) == (144, 2, 72)
    assert in_domains(trays, None) == trays
    for gpus in (100, 54, 6):
        with pytest.raises(DataError, match=f"does not fill domains of {gpus} GPUs"):
            in_domains(trays, gpus)
    path, rows = tmp_path / "clusters.csv", (NETWORKS / "clusters.csv").read_text()
    path.write_text(rows.replace("1rack@72", "1rack@many"))
    with pytest.raises(DataError, match=r"column 'data_files'.*'many'"):
        read_clusters(path)
    assert read_clusters(NETWORKS / "clusters.csv")["coreweave-gb200-nvl72"].domains == {
        "coreweave_gb200_nvl72_1rack": 72,
        "coreweave_gb200_nvl72_2rack": 72,
    }


@given(
    points=st.dictionaries(st.integers(1, 2**40), st.floats(1e-6, 1e3), min_size=1, max_size=40),
    spread=st.one_of(st.none(), st.floats(0, 3)),
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, points: dict[int, float], spread: float | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "mine.curves.csv"
    sizes = tuple(float(size) for size in sorted(points))
    before = curve(sizes, tuple(points[int(size)] for size in sizes), spread)
    write_curves(path, [before], HEAD, "me")
    (after,) = read_curves(path)
    assert after.size_bytes == before.size_bytes
    assert after.seconds == pytest.approx(before.seconds, rel=5.01e-4)
    assert (after.spread is None) == (spread is None)
    assert (after.source, after.series, after.fabric) == (before.source, "mine", before.fabric)
    again = path.read_bytes()
    write_curves(path, [after], HEAD, "me")
    assert path.read_bytes() == again


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("all_reduce,8,2,4", "all_redduce,8,2,4", ["line 13", "'collective'", "'all_redduce'"]),
        (",1024,", ",-1,", ["line 13", "column 'size_bytes'", "it must be 1 B to 1e18 B"]),
        (",4096,25", ",512,25", ["line 14", "column 'size_bytes'", "512 after 1024"]),
        (",4096,25", ",4096,2x5", ["line 14", "column 'time_us'", "'2x5'"]),
        ("all_reduce,8,2,4", "all_reduce,80,2,4", ["line 13", "80 ranks on 2 nodes of 4"]),
        ("all_reduce,8,2,4", "all_reduce,8,2.5,4", ["line 13", "column 'nodes'", "whole"]),
        ("0.012", "7", ["line 13", "column 'spread'", "0 % to 300 %"]),
        ("curves/1", "curves/2", ["line 1", "perfsim/curves/2", "# schema: perfsim/curves/1"]),
        ("# licence: MIT\n", "", ["'# licence:' is missing"]),
        ("# library: nccl", "# library: nickel", ["'nickel'", "gloo, mpi, nccl, rccl"]),
        ("# network: mine", "# network: yours", ["'yours'", "file's name"]),
        (",time_us,", ",time,", ["line 12", "column 'time_us'"]),
        (",4096,25,0.012,me", ",4096,25", ["line 14", "8 cells", "10"]),
    ],
)
def test_damage_is_named(old: str, new: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.curves.csv"
    write_curves(path, [curve()], HEAD, "me")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        read_curves(path)
    for word in ("mine.curves.csv", *words):
        assert word in str(caught.value)


def test_a_curve_in_two_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.curves.csv"
    write_curves(path, [curve(), curve((8.0,), (1e-6,), spread=None), curve()], HEAD, "me")
    with pytest.raises(DataError, match="line 16: goes back to a curve"):
        read_curves(path)


@pytest.mark.parametrize("name", ["sources.csv", "clusters.csv"])
def test_a_name_that_stands_twice_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    lines = (NETWORKS / name).read_text().splitlines()
    path.write_text("\n".join([*lines, lines[-1]]))
    with pytest.raises(DataError, match=rf"{name}, line {len(lines) + 1}.*stands twice"):
        read_sources(path) if name == "sources.csv" else read_clusters(path)


def test_no_licence_is_not_permissive(tmp_path: Path) -> None:
    path = tmp_path / "sources.csv"
    text = (NETWORKS / "sources.csv").read_text()
    assert ",no,fitted parameters only," in text
    path.write_text(text.replace(",no,fitted parameters only,", ",yes,condensed curve,", 1))
    with pytest.raises(DataError, match="column 'permissive': 'yes' where no licence is stated"):
        read_sources(path)


@given(start=st.integers(0, 4), odd=st.sampled_from([1, 3, 5, 7, 12, 96]), count=st.integers(1, 40))
def test_one_size_an_octave_is_kept_whole(start: int, odd: int, count: int) -> None:
    sizes = [float(odd * 2**power) for power in range(start, start + count)]
    assert thin(sizes) == sizes


@given(st.sets(st.integers(1, 10**9), min_size=1, max_size=300))
def test_thinning_keeps_ends_and_few_sizes_an_octave(drawn: set[int]) -> None:
    sizes = sorted(float(size) for size in drawn)
    kept = thin(sizes)
    assert set(kept) <= set(sizes)
    assert (kept[0], kept[-1]) == (sizes[0], sizes[-1])
    octaves = math.log2(sizes[-1] / sizes[0])
    assert len(kept) <= 2 * octaves + 4


def test_repeats_become_their_median() -> None:
    runs = [curve(seconds=(time_s, 5 * time_s), spread=None) for time_s in (1e-5, 3e-5, 1.1e-5)]
    (one,) = condense(runs)
    assert one.seconds == pytest.approx((1.1e-5, 5.5e-5))
    assert one.spread == pytest.approx((3e-5 - 1e-5) / 2 / 1.1e-5)
