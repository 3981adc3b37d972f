"""Networks beside microbenchmarks of their hardware; the prior's widths; the stored factors."""

from __future__ import annotations

import math
import tomllib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from calibrate_clusters import (
    corrected_networks,
    fitted_clusters,
    main,
    run_spread,
    shipped_rules,
    verdicts_text,
    width_of,
    widths_text,
)
from perfsim.data.catalog import shipped
from perfsim.network.network_file import read_network
from perfsim.session import Session
from perfsim.units import parse_rate
from perfsim.validate import calibration
from perfsim.validate.calibration import (
    FACTORS_FILE,
    NO_MODEL,
    PRIOR_WIDTHS,
    RUN_SPREAD,
    HardwareRow,
    max_log_factor,
    read_clusters,
    read_hardware,
)
from perfsim.validate.cases import CASE_COLUMNS, Case, read_cases
from support.collected import COLLECTED, needs_data
from support.what_ships import NETWORKS

SESSION = Session()
HARDWARE = read_hardware(SESSION)
TRAINING = [row for row in HARDWARE if row.basis == "training"]
STORED = read_clusters(shipped() / "measurements" / FACTORS_FILE)
ROUNDED = 0.005
"""Widths have three digits, and factors four."""

OF_TRAINING = ("exposed communication", "one buffer after backward", "as training shows")
"""Words in the source of a rate that was fitted on training runs."""


def as_shipped(row: HardwareRow) -> HardwareRow:
    """Return a row with the rate that the network's file states now."""
    return replace(row, rate=None)


@pytest.mark.parametrize("row", [row for row in TRAINING if row.verdict != "dropped"], ids=str)
def test_no_network_contradicts_the_microbenchmarks_of_its_hardware(row: HardwareRow) -> None:
    width = PRIOR_WIDTHS[row.transport]
    log_ratio = abs(as_shipped(row).log_ratio(SESSION))
    assert log_ratio <= max_log_factor(width)
    if row.verdict == "kept":
        assert log_ratio <= width


def test_what_is_dropped_does_not_ship() -> None:
    dropped: dict[str, list[float]] = defaultdict(list)
    for row in TRAINING:
        if row.verdict == "dropped":
            assert row.network not in NETWORKS
            dropped[row.network].append(abs(row.log_ratio(SESSION)) / PRIOR_WIDTHS[row.transport])
    # Two contradict microbenchmarks; the third was fitted on rows that may not calibrate.
    assert min(dropped.pop("v100-pcie-host-8")) < 2
    assert set(dropped) == {"sia-dgx-a100", "sia-azure-nd40-v100"}
    assert all(min(widths) > 2 for widths in dropped.values())


def test_every_rate_of_training_is_in_the_list() -> None:
    listed = {(row.network, row.link) for row in TRAINING}
    for name, network in NETWORKS.items():
        for link_class, link in network.links.items():
            words = f"{link.rate.source} {network.title} {' '.join(network.notes)}"
            if any(word in words for word in OF_TRAINING):
                assert (name, link_class) in listed


def test_the_hardware_is_that_of_networks_that_ship() -> None:
    for row in HARDWARE:
        assert row.link in NETWORKS[row.preset].links
        assert row.network in NETWORKS or row.rate is not None
        assert (row.basis == "training") == bool(row.verdict)
        assert len(row.evidence) > 3
    keys = [(row.network, row.link) for row in HARDWARE]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("transport", PRIOR_WIDTHS)
def test_widths_are_those_of_the_microbenchmarks(transport: str) -> None:
    assert width_of(transport, HARDWARE, SESSION) == pytest.approx(
        PRIOR_WIDTHS[transport], rel=ROUNDED, abs=ROUNDED / 10
    )


def test_sources_weigh_alike() -> None:
    """By closed form: one cluster at e times its preset, three of another source at 1."""
    base = parse_rate("10.19GB/s", "rate")
    rows = [
        HardwareRow(f"n{index}", "intra", "pcie", "pcie3", "microbenchmark", rate, source, "", "")
        for index, (rate, source) in enumerate(
            [(base * math.e, "a"), (base, "b"), (base, "b"), (base, "b")]
        )
    ]
    aside = replace(rows[0], basis="preset", rate=base * 100)
    assert width_of("pcie", [*rows, aside], SESSION) == pytest.approx(math.sqrt(0.5), rel=1e-6)


def test_the_scatter_of_runs_is_that_of_a_table() -> None:
    spread, count = run_spread(read_cases(shipped() / "measurements" / "pollux.csv"))
    assert (round(spread, 3), count) == (RUN_SPREAD, 86)


def test_the_scatter_is_of_runs_alike() -> None:
    """By closed form: 1, 1 and e seconds of one batch; a batch of two runs does not count."""

    def run(index: int, batch: str, step_s: float) -> list[Case]:
        words = {column: "" for column in CASE_COLUMNS} | {"gpus": "8", "batch_per_gpu": batch}
        words |= {"notes": f"run {index}"}
        pairs = (("iteration_s", step_s + 0.5), ("exposed_comm_s", 0.5))
        return [
            Case(**{**words, "id": f"g-{index}{metric}", "metric": metric, "value": value})  # type: ignore[arg-type]
            for metric, value in pairs
        ]

    steps = [("20", 1.0), ("20", 1.0), ("20", math.e), ("40", 1.0), ("40", 9.0)]
    cases = [
        one for index, (batch, step_s) in enumerate(steps) for one in run(index, batch, step_s)
    ]
    spread, count = run_spread(cases)
    assert (spread, count) == (pytest.approx(1 / 3), 3)


def test_documents_show_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--widths", "--verdicts"]) == 0
    printed = capsys.readouterr().out
    assert printed == f"{widths_text(SESSION)}\n{verdicts_text(SESSION)}\n"
    source = Path(calibration.__file__).read_text(encoding="utf-8")
    for line in widths_text(SESSION).splitlines():
        assert line in source
    assert verdicts_text(SESSION) in (shipped() / "networks" / "README.md").read_text()


# The stored factors


def test_stored_factors_are_within_the_prior() -> None:
    for network in STORED.values():
        for factor, width in (
            (network.factor_inter, network.width_inter),
            (network.factor_intra, network.width_intra),
        ):
            assert abs(math.log(factor)) <= max_log_factor(width) + ROUNDED


def test_a_model_left_out_took_no_part() -> None:
    for (cluster, model), network in STORED.items():
        assert model not in network.models
        assert network.cluster == cluster
        assert set(network.rows) <= set(STORED[cluster, NO_MODEL].rows)


def test_a_source_of_one_model_has_nothing_for_its_own_rows() -> None:
    models = {model for cluster, model in STORED if cluster.group.startswith("adl-")}
    assert models == {NO_MODEL}


def test_nvlink_keeps_what_microbenchmarks_show() -> None:
    fast = [one for one in STORED.values() if one.cluster.intra_net.startswith("nvlink")]
    assert len(fast) >= 2
    assert all(0.85 < network.factor_intra < 1.18 for network in fast)


@needs_data
@pytest.mark.slow
def test_the_command_writes_the_factors_that_ship(tmp_path: Path) -> None:
    out = tmp_path / "clusters.csv"
    stated = (shipped() / "measurements" / FACTORS_FILE).read_text()
    date = next(line for line in stated.splitlines() if line.startswith("# date: "))[8:]
    table = str(COLLECTED / "measurements" / "cases.csv")
    assert main(["--measurements", table, "--out", str(out), "--date", date]) == 0
    made = read_clusters(out)
    for key in made.keys() & STORED.keys():
        for factor in ("factor_inter", "factor_intra"):
            ratio = getattr(made[key], factor) / getattr(STORED[key], factor)
            assert ratio == pytest.approx(1.0, abs=ROUNDED)
    assert STORED.keys() <= made.keys()


# The command on a table of its own

ROWS = """
ddlb-001,single GPU,ResNet-50,V100-PCIE-32GB,1,1,none,64,,,throughput,250,
ddlb-002,S-SGD BSP-A2A,ResNet-50,V100-PCIE-32GB,8,4,10GbE TCP,64,,,throughput,1280,
ddlb-003,S-SGD BSP-A2A,BERT-Large,V100-PCIE-32GB,8,4,10GbE TCP,8,,,throughput,28.96,
ddlb-004,single GPU,BERT-Large,V100-PCIE-32GB,1,1,none,8,,,throughput,49,
ddlb-005,S-SGD WFBP-A2A,ResNet-50,V100-PCIE-32GB,8,4,10GbE TCP,64,,,throughput,1795,
adl-rtx-001,S-SGD PyTorch DDP (AdaptDL),ResNet-50,RTX 2080 Ti,4,4,in node,20,,,iteration_s,0.22,placement 4 = x
adl-rtx-002,S-SGD PyTorch DDP (AdaptDL),ResNet-50,RTX 2080 Ti,4,4,in node,20,,,exposed_comm_s,0.07,placement 4 = x
adl-rtx-003,S-SGD PyTorch DDP (AdaptDL),ResNet-50,RTX 2080 Ti,4,2,net,20,,,iteration_s,0.25,placement 22 = x
adl-rtx-004,S-SGD PyTorch DDP (AdaptDL),ResNet-50,RTX 2080 Ti,4,2,net,20,,,exposed_comm_s,0.06,placement 22 = x
adl-rtx-005,S-SGD PyTorch DDP (AdaptDL),ResNet-50,RTX 2080 Ti,6,2,net,20,,,exposed_comm_s,5,placement 222 = x
"""  # noqa: E501


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text(",".join(CASE_COLUMNS) + ROWS)
    return path


def test_the_command_fits_with_and_without_each_model(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "clusters.csv"
    assert main(["--measurements", str(table), "--out", str(out), "--date", "2026-01-02"]) == 0
    text = out.read_text()
    assert "# date: 2026-01-02\n" in text and "# source: own.csv; " in text
    fitted = {(key[0].group, key[1]): network.rows for key, network in read_clusters(out).items()}
    assert fitted == {
        ("adl-rtx", NO_MODEL): ("adl-rtx-002", "adl-rtx-004", "adl-rtx-005"),
        ("ddlb", NO_MODEL): ("ddlb-002", "ddlb-003"),
        ("ddlb", "resnet50"): ("ddlb-003",),
        ("ddlb", "bert-large"): ("ddlb-002",),
    }
    rules = shipped_rules(SESSION)
    for key, network in fitted_clusters(read_cases(table), rules, SESSION).items():
        stored = read_clusters(out)[key]
        assert stored.factor_inter == pytest.approx(network.factor_inter, rel=ROUNDED)


def test_a_corrected_network_is_the_presets_scaled(table: Path, tmp_path: Path) -> None:
    """The row of three nodes, which no rule marks as calibrating, takes no part."""
    cases, rules = read_cases(table), shipped_rules(SESSION)
    made = corrected_networks(cases, rules, shipped() / "networks", SESSION)
    assert set(made) == {"sia-2080ti"}
    path = tmp_path / "sia-2080ti.toml"
    path.write_text(tomli_w.dumps(made["sia-2080ti"]))
    network = read_network(path)
    start = tomllib.loads((shipped() / "networks" / "sia-2080ti.toml").read_text())
    assert list(network.notes) == start["notes"]  # the note is there once
    for link_class, preset in (("inter", "aws-tcp50"), ("intra", "rtx2080ti-pcie-8")):
        link, theirs = network.links[link_class], NETWORKS[preset].links[link_class]
        factor = link.rate.value / theirs.rate.value
        assert abs(math.log(factor)) < max_log_factor(PRIOR_WIDTHS["pcie"])
        assert link.tree_rate.value / theirs.tree_rate.value == pytest.approx(factor, rel=0.01)
        assert "adl-rtx-002, adl-rtx-004;" in link.rate.source
        assert "adl-rtx-005" not in link.rate.source
        assert link.ring.alpha_s == theirs.ring.alpha_s
        assert link.ring.source.startswith(f"taken over from {preset}: ")
        assert link.ranks == (4, 4)


def test_a_wrong_request_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "clusters.csv")
    none = str(tmp_path / "none.csv")
    assert main(["--measurements", none, "--out", out, "--date", "2026-01-02"]) == 2
    assert "none.csv" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--out", out])
    assert "are needed" in capsys.readouterr().err
