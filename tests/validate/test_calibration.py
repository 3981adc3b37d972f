"""A cluster's network from its own rows: factors found again, the prior's limits, out of sample."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfsim.data.catalog import Catalog, shipped
from perfsim.errors import DataError
from perfsim.network.network_file import Network, load_network
from perfsim.prediction import predict
from perfsim.scenario import Scenario, make_scenario
from perfsim.session import Session
from perfsim.validate.calibration import (
    CLUSTER_COLUMNS,
    FACTORS_FILE,
    FACTORS_SCHEMA,
    MAX_WIDTHS,
    NO_MODEL,
    PRIOR_WIDTHS,
    CalibratingRow,
    ClusterKey,
    RowKind,
    calibrate_network,
    calibrated_session,
    calibrating_rows,
    cluster_key,
    max_log_factor,
    network_of,
    on_preset,
    prior_width,
    read_clusters,
    read_hardware,
    rows_of,
    without,
)
from perfsim.validate.cases import CASE_COLUMNS, Case, read_cases
from perfsim.validate.mapping import RULES_FILE, SourceCases, read_rules

SESSION = Session()
RULES = read_rules(shipped() / "measurements" / RULES_FILE)
CLUSTER = ClusterKey("g", "v100", "10gbe", "pcie3")
HEAD = ",".join(CASE_COLUMNS)


def case(name: str, **cells: Any) -> Case:
    """Return a case of nothing but a name and some cells."""
    texts = {column: "" for column in CASE_COLUMNS} | {"id": name, "value": 0.1}
    return Case(**{**texts, **cells})


def made_row(
    name: str, kind: RowKind, measured_s: float, cluster: ClusterKey = CLUSTER, **fields: Any
) -> CalibratingRow:
    """Return a calibrating row of a scenario on a cluster's presets."""
    asked = {"model": "resnet50", "gpus": 8, "gpus_per_node": 4, "gpu": cluster.gpu or "v100"}
    scenario = make_scenario(
        asked | {"net": cluster.net, "intra_net": cluster.intra_net} | fields, name
    )
    return CalibratingRow(case(name), scenario, kind, cluster, measured_s, 0.3, 1e8)


def measured(row: CalibratingRow, factors: dict[str, float]) -> CalibratingRow:
    """Return a row as it would be measured on its cluster with rates scaled."""
    seconds = row.predicted_s(calibrated_session(SESSION, row.cluster, factors))
    return replace(row, measured_s=seconds, iteration_s=max(seconds, 0.1))


def rows_of_all_kinds(factors: dict[str, float]) -> list[CalibratingRow]:
    """Return rows inside a node and between nodes, measured with scaled rates."""
    shapes: list[tuple[str, RowKind, dict[str, Any]]] = [
        ("g-1", "one_buffer", {"gpus": 4, "method": "bsp"}),
        ("g-2", "exposed", {"gpus": 4, "method": "ssgd", "model": "vgg16"}),
        ("g-3", "one_buffer", {"gpus": 8, "method": "bsp"}),
        ("g-4", "exposed", {"gpus": 16, "method": "horovod", "model": "vgg16"}),
        ("g-5", "all_reduce", {"gpus": 16}),
    ]
    return [measured(made_row(name, kind, 1.0, **fields), factors) for name, kind, fields in shapes]


@pytest.mark.parametrize("factors", [{"inter": 0.6, "intra": 0.45}, {"inter": 1.5, "intra": 0.9}])
def test_factors_are_found_again(factors: dict[str, float]) -> None:
    network = calibrate_network(rows_of_all_kinds(factors), CLUSTER, SESSION)
    assert network is not None
    assert network.factor_inter == pytest.approx(factors["inter"], rel=0.02)
    assert network.factor_intra == pytest.approx(factors["intra"], rel=0.02)
    assert network.rows == ("g-1", "g-2", "g-3", "g-4", "g-5")
    assert network.models == ("resnet50", "vgg16")
    assert (network.width_inter, network.width_intra) == (PRIOR_WIDTHS["tcp"], PRIOR_WIDTHS["pcie"])
    calibrated = network.session(SESSION)
    for row in rows_of_all_kinds(factors):
        assert row.predicted_s(calibrated) == pytest.approx(row.measured_s, rel=0.02)


def test_a_link_that_no_row_shows_keeps_its_rate() -> None:
    inside = rows_of_all_kinds({"inter": 0.5, "intra": 0.5})[:2]
    network = calibrate_network(inside, CLUSTER, SESSION)
    assert network is not None
    assert (network.factor_inter, network.width_inter) == (1.0, 0.0)
    assert network.shows(inside[0].scenario)
    assert not network.shows(make_scenario({"model": "resnet50", "gpus": 8, "gpus_per_node": 4}))


def test_one_disturbed_run_does_not_pull() -> None:
    rows = [
        measured(
            made_row(f"g-{gpus}", "one_buffer", 1.0, gpus=gpus, method="bsp"),
            {"inter": 0.7, "intra": 1},
        )
        for gpus in (8, 12, 16, 24, 32)
    ]
    rows[2] = replace(rows[2], measured_s=3 * rows[2].measured_s)
    network = calibrate_network(rows, CLUSTER, SESSION)
    assert network is not None
    assert network.factor_inter == pytest.approx(0.7, rel=0.02)


DGX = ClusterKey("adl-dgx-ext", "a100", "ib200", "nvlink-a100")
DGX_EXPOSED = {2: (0.1188, 0.0047), 4: (0.1240, 0.0077), 8: (0.1216, 0.0121)}
"""By published value, siasosp23/artifacts@aaf7a0de placements-dgx-ext.csv, batch 20 on 2, 4 and 8
A100 of one node: the step without exposed communication, and exposed communication [s]."""


def test_nvlink_at_two_gigabytes_a_second_is_impossible() -> None:
    """The runs that sia-dgx-a100 (2.131 GB/s) was fitted on, and runs that do take that long."""
    published = [
        made_row(
            f"adl-dgx-ext-{gpus}",
            "exposed",
            exposed_s,
            DGX,
            gpus=gpus,
            gpus_per_node=gpus,
            batch=20,
            precision="amp-fp16",
            single_gpu=f"{alone_s}s",
        )
        for gpus, (alone_s, exposed_s) in DGX_EXPOSED.items()
    ]
    as_slow = [measured(row, {"inter": 1.0, "intra": 2.131 / 220.3}) for row in published]
    for rows in (published, as_slow, as_slow * 100):
        network = calibrate_network(rows, DGX, SESSION)
        assert network is not None
        rate = network.factor_intra * 220.3
        assert rate > 220.3 * math.exp(-MAX_WIDTHS * PRIOR_WIDTHS["nvlink"]) * 0.999 > 190


@pytest.mark.parametrize("transport", PRIOR_WIDTHS)
def test_no_factor_contradicts_by_an_order_of_magnitude(transport: str) -> None:
    limit = max_log_factor(PRIOR_WIDTHS[transport])
    assert limit <= math.log(10)
    assert limit <= MAX_WIDTHS * PRIOR_WIDTHS[transport]


def test_the_judged_model_is_left_out() -> None:
    rows = rows_of_all_kinds({"inter": 0.6, "intra": 0.5})
    assert [row.case.id for row in without(rows, "resnet50")] == ["g-2", "g-4", "g-5"]
    assert [row.case.id for row in without(rows, "vgg16")] == ["g-1", "g-3", "g-5"]
    of_one_model = [row for row in rows if row.model == "resnet50"]
    assert calibrate_network(without(of_one_model, "resnet50"), CLUSTER, SESSION) is None


def test_rows_show_their_own_cluster_only() -> None:
    rows = rows_of_all_kinds({"inter": 1.0, "intra": 1.0})

    def ids(**changes: str) -> list[str]:
        return [row.case.id for row in rows_of(rows, CLUSTER._replace(**changes))]

    assert ids() == ["g-1", "g-2", "g-3", "g-4", "g-5"]
    assert ids(net="ib100") == ["g-1", "g-2"]  # the link inside a node is the same
    assert ids(gpu="a100") == ["g-5"]  # no GPU took part in an all-reduce alone
    assert ids(group="h") == ids(intra_net="nvlink-v100") == []


# What calibrates

TABLE = """
s-1,single GPU,ResNet-50,V100-PCIE-32GB,1,1,none,64,,,throughput,250,
s-2,S-SGD BSP-A2A,ResNet-50,V100-PCIE-32GB,8,4,PCIe3 in node,64,,,throughput,1500,
s-3,S-SGD WFBP-A2A,ResNet-50,V100-PCIE-32GB,8,4,PCIe3 in node,64,,,throughput,1600,
s-4,S-SGD DDP,ResNet-50,V100-PCIE-32GB,4,4,PCIe3 in node,64,,,exposed_comm_s,0.02,
s-5,S-SGD DDP,ResNet-50,V100-PCIE-32GB,4,4,PCIe3 in node,128,,,exposed_comm_s,0.01,
s-6,Top-k,ResNet-50,V100-PCIE-32GB,4,4,PCIe3 in node,64,,density 0.01,exposed_comm_s,0.02,
s-7,NCCL all-reduce 100 MB,,none,4,4,PCIe3 in node,,,,allreduce_s,0.02,
s-8,OmniReduce 100 MB,,none,4,4,PCIe3 in node,,,,allreduce_s,0.02,
s-9,S-SGD BSP-A2A,ResNet-50,V100-PCIE-32GB,8,4,Cray Aries,64,,,throughput,1500,
"""


def test_rows_calibrate_by_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(f"{HEAD}{TABLE}")
    cases = read_cases(path)
    rows = calibrating_rows(SourceCases(cases, RULES, SESSION))
    assert [(row.case.id, row.kind) for row in rows] == [
        ("s-2", "one_buffer"),
        ("s-4", "exposed"),
        ("s-7", "all_reduce"),
    ]
    one_buffer, exposed, all_reduce = rows
    assert one_buffer.measured_s == pytest.approx(8 * 64 / 1500)
    assert one_buffer.scenario.single_gpu == "0.256s"
    assert exposed.iteration_s == pytest.approx(64 / 250 + 0.02)
    assert (all_reduce.size_bytes, all_reduce.model) == (1e8, "")
    assert {row.cluster.intra_net for row in rows} == {"pcie3"}


def test_an_all_reduce_says_its_size_in_words() -> None:
    words = {"net": "10gbe", "intra_net": "pcie3"}
    rules = [replace(RULES[0], when={}, fields=words)]
    sizes = {"36864 bytes": 36864.0, "10 MB": 1e7, "1.5 kB": 1500.0}
    for text, size in sizes.items():
        cells = {"system": "MPI all-reduce microbenchmark", "metric": "allreduce_s", "gpus": "2"}
        one = case("m-1", **cells, gpus_per_node="1", rank_or_density=text)
        [row] = calibrating_rows(SourceCases([one], rules, SESSION))
        assert row.size_bytes == size
    nothing = replace(one, rank_or_density="")
    assert calibrating_rows(SourceCases([nothing], rules, SESSION)) == []


def test_networks_with_curves_of_their_own_are_not_scaled() -> None:
    """hkbu-2080ti-10gbe is a microbenchmark of the cluster itself."""
    rules = [
        replace(
            RULES[0],
            when={},
            fields={"model": "resnet50", "method": "ssgd", "net": "hkbu-2080ti-10gbe"}
            | {"gpu": "rtx2080ti"},
        )
    ]
    cells = {"gpus": "8", "gpus_per_node": "4", "metric": "exposed_comm_s", "batch_per_gpu": "32"}
    one = case("m-1", **cells)
    assert calibrating_rows(SourceCases([one], rules, SESSION)) == []


# Presets


def asked(**fields: Any) -> Scenario:
    return make_scenario({"model": "resnet50", "gpus": 8, "gpus_per_node": 4} | fields)


def test_a_network_fitted_on_training_gives_way_to_its_hardware() -> None:
    def presets(**fields: Any) -> tuple[str, str | None]:
        scenario = on_preset(asked(**fields), SESSION)
        return scenario.net, scenario.intra_net

    assert presets(net="hkbu-v100-ib100") == ("ib100", "pcie3")
    assert presets(net="hkbu-v100-ib100", intra_net="hkbu-v100-10gbe") == ("ib100", "pcie3")
    assert presets(net="sia-dgx-a100") == ("ib200", "nvlink-a100")  # dropped: known by name still
    assert presets(net="10gbe", intra_net="v100-pcie-host-8") == ("10gbe", "rtx2080ti-pcie-8")
    assert presets(net="aws-p2-k80-tcp", gpu="k80") == ("10gbe", "pcie3")
    assert presets(net="10gbe", gpu="v100-pcie") == ("10gbe", "pcie3")
    assert presets(net="10gbe", gpu="v100") == ("10gbe", "nvlink-v100")
    assert presets(net="slingshot") == ("slingshot", None)
    assert presets(net="p4d-a100-efa400") == ("p4d-a100-efa400", "nvlink-a100")
    cluster = cluster_key(case("k-1"), asked(net="slingshot", gpu="a100"), SESSION)
    assert cluster == ("k", "a100", "slingshot", "slingshot")
    assert cluster.name == "k a100"


def network(name: str) -> Network:
    return load_network(name, SESSION, "net")


def test_the_prior_is_as_wide_as_its_transport() -> None:
    expected = {
        ("10gbe", "inter"): "tcp",
        ("ib100", "inter"): "rdma",
        ("efa400", "inter"): "rdma",
        ("slingshot", "inter"): "rdma",
        ("slingshot", "intra"): "nvlink",  # a file of both links: by its rate
        ("hkbu-v100-ib100", "intra"): "pcie",
        ("pcie5", "intra"): "pcie",
        ("nvlink-v100", "intra"): "nvlink",
        ("occl-v100", "intra"): "nvlink",  # its file says: unknown
        ("occl-3090-pcie4-net", "inter"): "tcp",  # its file says: unknown
        ("10Gbit/s,50us", "inter"): "tcp",
        ("10Gbit/s,50us", "intra"): "pcie",
    }
    for (name, link_class), transport in expected.items():
        assert prior_width(network(name), link_class, SESSION) == PRIOR_WIDTHS[transport], name


def test_a_catalog_without_hardware_has_none(tmp_path: Path) -> None:
    class Bare(Catalog):
        def beside(self, kind: str, name: str, suffix: str) -> None:
            return None

    assert read_hardware(Bare()) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("10gbe,training", "10gbe,guess", "basis"),
        ("inter,tcp,10gbe,training", "inter,smoke,10gbe,training", "transport"),
        ("2.917GB/s", "2.917", "rate"),
    ],
)
def test_damaged_hardware_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    (tmp_path / "networks").mkdir()
    text = (shipped() / "networks" / "hardware.csv").read_text()
    assert old in text
    (tmp_path / "networks" / "hardware.csv").write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=why):
        read_hardware(Catalog(tmp_path))


# The session


def test_only_the_cluster_is_scaled() -> None:
    """By closed form: half the rate between nodes doubles what bytes take there."""
    scenario = asked(net="10gbe", intra_net="pcie3", method="bsp")
    before = predict(scenario, SESSION).iteration_s
    slow = calibrated_session(
        SESSION, CLUSTER, {"inter": 0.5, "intra": 1.0}, "calibrated on 3 rows"
    )
    halved = predict(scenario, slow)
    assert halved.iteration_s > before
    rate = next(term.quantity for term in halved.terms if "calibrated" in term.quantity.source)
    assert (rate.kind, rate.unit) == ("fitted", "B/s")
    assert rate.value == pytest.approx(network("10gbe").links["inter"].rate.value / 2)
    assert "10gbe" not in rate.source and "x 0.5, calibrated on 3 rows" in rate.source
    # Other networks and the session itself are as they were.
    other = asked(net="ib100", intra_net="pcie3", method="bsp")
    assert predict(other, slow).iteration_s == predict(other, SESSION).iteration_s
    assert predict(scenario, SESSION).iteration_s == before
    same = calibrated_session(SESSION, CLUSTER, {"inter": 1.0, "intra": 1.0})
    assert predict(scenario, same).iteration_s == before


def test_a_calibrated_session_reads_files_as_they_are_now(tmp_path: Path) -> None:
    folder = tmp_path / "networks"
    folder.mkdir()
    text = (shipped() / "networks" / "10gbe.toml").read_text()
    (folder / "10gbe.toml").write_text(text)
    slow = calibrated_session(Session(tmp_path), CLUSTER, {"inter": 0.5, "intra": 1.0})
    scenario = asked(net="10gbe", intra_net="pcie3", method="bsp")
    before = predict(scenario, slow).iteration_s
    (folder / "10gbe.toml").write_text(text.replace("1.173GB/s", "0.173GB/s"))
    assert predict(scenario, slow).iteration_s > 1.9 * before


# Stored factors


def stored(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / FACTORS_FILE
    head = [f"# schema: {FACTORS_SCHEMA}", "# date: 2026-11-22", ",".join(CLUSTER_COLUMNS)]
    path.write_text("\n".join([*head, *lines]) + "\n")
    return path


LINE = "g,v100,none,10gbe,pcie3,0.6,0.45,g-1 g-2,resnet50 vgg16,0.785,1.17"


def test_stored_factors_are_read(tmp_path: Path) -> None:
    networks = read_clusters(stored(tmp_path, LINE, LINE.replace("none", "vgg16")))
    assert list(networks) == [(CLUSTER, NO_MODEL), (CLUSTER, "vgg16")]
    network = networks[CLUSTER, NO_MODEL]
    assert (network.factor_inter, network.factor_intra) == (0.6, 0.45)
    assert (network.rows, network.models) == (("g-1", "g-2"), ("resnet50", "vgg16"))
    scaled = network.session(SESSION)
    row = measured(made_row("g-1", "all_reduce", 1.0), {"inter": 0.6, "intra": 0.45})
    assert row.predicted_s(scaled) == row.measured_s


def test_a_case_is_predicted_without_its_own_model(tmp_path: Path) -> None:
    rows = rows_of_all_kinds({"inter": 0.6, "intra": 0.5})[:4]
    stored_now = read_clusters(stored(tmp_path, LINE, LINE.replace("none", "vgg16")))

    def of(model: str, cluster: ClusterKey = CLUSTER, **fields: Any) -> Any:
        links = {"net": cluster.net, "intra_net": cluster.intra_net}
        scenario = asked(model=model, gpu=cluster.gpu, **links, **fields)
        return network_of(case(f"{cluster.group}-9"), scenario, rows, SESSION, stored_now)

    assert of("vgg16") == stored_now[CLUSTER, "vgg16"]
    assert of("resnet50") is None  # stored, but with nothing without that model
    assert of("bert-base") == stored_now[CLUSTER, NO_MODEL]
    # A cluster that is not stored is fitted, on rows of other models and of the link in question.
    del stored_now[CLUSTER, NO_MODEL], stored_now[CLUSTER, "vgg16"]
    assert of("resnet50").rows == ("g-2", "g-4")
    assert of("vgg16").rows == ("g-1", "g-3")
    rows = rows[:2]
    assert of("resnet50") is None
    assert of("resnet50", gpus=4).rows == ("g-2",)
    assert of("resnet50", CLUSTER._replace(group="h")) is None


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((LINE, LINE), "stands twice"),
        ((LINE.replace("0.6", "0"),), "factor_inter"),
        ((LINE.replace("0.45", "nan"),), "factor_intra"),
        ((LINE.replace("0.785", "wide"),), "width_inter"),
    ],
)
def test_damaged_factors_are_refused(tmp_path: Path, lines: tuple[str, ...], why: str) -> None:
    with pytest.raises(DataError, match=why):
        read_clusters(stored(tmp_path, *lines))
