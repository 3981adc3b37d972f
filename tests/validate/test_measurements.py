"""Measured cases: read, mapped to scenarios, predicted, counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perfsim.cli.main import app
from perfsim.compute.node_load import INPUTS
from perfsim.data.catalog import Catalog
from perfsim.errors import DataError
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import Session
from perfsim.units import parse_seconds
from perfsim.validate.cases import CASE_COLUMNS, read_cases
from perfsim.validate.mapping import (
    CaseRole,
    SingleGpuCases,
    SourceCases,
    is_single_gpu,
    read_rules,
    scenario_of,
)
from perfsim.validate.measurements import validate_measurements
from perfsim.validate.metrics import predicted_metric
from perfsim.validate.record import SUMMARY_FILE, stored_ways, validation_record_text
from support.collected import COLLECTED, needs_data

HEAD = ",".join(["id", "source", "seen_or_memory", *CASE_COLUMNS[1:]])

ROWS = (
    # One GPU at 250 samples/s calibrates; two systems on 8 GPUs are tests.
    "t-1,T,SEEN,single GPU,ResNet-50,V100-PCIE-32GB,1,1,none,64,,,throughput,250,",
    "t-2,T,SEEN,S-SGD DDP,ResNet-50,V100-PCIE-32GB,8,4,PCIe3 in node,64,,,throughput,1500,",
    "t-3,T,SEEN,Top-k,ResNet-50,V100-PCIE-32GB,8,4,PCIe3 in node,64,,density 0.01,iteration_s,0.5,",
    "t-4,T,SEEN,Unheard of,ResNet-50,V100-PCIE-32GB,8,4,PCIe3 in node,64,,,iteration_s,0.5,",
    "t-5,T,MEMORY,S-SGD DDP,ResNet-50,V100-PCIE-32GB,8,4,PCIe3 in node,64,,,iteration_s,0.5,",
    "t-6,T,SEEN,S-SGD DDP,ResNet-50,V100-PCIE-32GB,8,4,PCIe3 in node,64,,,train_time_h,5,",
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table of six cases."""
    path = tmp_path / "cases.csv"
    path.write_text("\n".join([HEAD, *ROWS]) + "\n")
    return path


def test_cases_calibrate_test_or_say_why_not(table: Path) -> None:
    report = validate_measurements(table)
    assert [(row.case.id, row.way) for row in report.rows] == [
        ("t-2", "blind"),
        ("t-2", "rated"),
        ("t-3", "blind"),
        ("t-3", "rated"),
    ]
    assert [row.case.id for row in report.whole] == ["t-2", "t-3"]
    assert {row.way for row in report.whole} == {"rated"}
    reasons = {asked.case.id: asked.reason for asked in report.left}
    assert reasons["t-1"] == "calibrates computation"
    assert reasons["t-4"] == "no rule for method 'Unheard of'"
    assert reasons["t-5"] == "recalled, never verified"
    assert reasons["t-6"] == "epoch or whole training: train_time_h"


def test_limits_hold_for_whole_groups_only(table: Path) -> None:
    assert [miss.group for miss in validate_measurements(table).missed][:1] == [
        "all whole iterations"
    ]
    part = validate_measurements(table, method="ssgd")
    assert len(part.whole) == 1 and part.missed == []


def test_the_sources_own_rate_fixes_computation(table: Path) -> None:
    fields = {
        "model": "resnet50",
        "gpu": "v100-pcie",
        "gpus": 8,
        "gpus_per_node": 4,
        "net": "10gbe",
        "intra_net": "pcie3",
        "batch": 64,
        "single_gpu": "0.256s",
    }
    expected = predict(make_scenario(fields)).samples_per_s
    blind, row = validate_measurements(table).rows[:2]
    assert (blind.way, row.way, row.method) == ("blind", "rated", "ssgd")
    del fields["single_gpu"]
    assert blind.predicted == pytest.approx(predict(make_scenario(fields)).samples_per_s)
    assert sum(row.breakdown_s.values()) == pytest.approx(64 * 8 / expected)
    assert row.predicted == pytest.approx(expected, rel=1e-9)
    # A rate's error is that of the time behind it.
    assert row.error == pytest.approx(1500 / expected - 1)


def test_the_given_single_gpu_iteration_is_what_one_gpu_takes() -> None:
    fields = {"model": "resnet50", "gpus": 1, "single_gpu": "300ms"}
    assert predict(make_scenario(fields)).iteration_s == pytest.approx(0.3, rel=1e-5)


def test_a_rate_of_the_same_system_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    row = "n-{0},N,SEEN,{1},ResNet-50,A100,{2},8,NVLink,256,,,throughput,{3},"
    rows = [row.format(1, "AMP", 1, 2560), row.format(2, "TF32", 1, 1280)]
    rows.append(row.format(3, "AMP", 8, 16000))
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    cases = read_cases(path)
    assert SingleGpuCases(cases).iteration(cases[2]) == (pytest.approx(0.1), 1)


def test_a_step_less_its_exposed_communication_comes_before_one_gpu(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    row = "p-{0},DDP,ResNet-50,A100,{1},8,NVLink,{2},,,{3},{4},,{5}"
    rows = [
        row.format(1, 1, 64, "iteration_s", 0.3, ""),
        row.format(2, 2, 64, "iteration_s", 0.25, "calibration"),
        row.format(3, 2, 64, "exposed_comm_s", 0.05, "calibration"),
        row.format(4, 8, 64, "iteration_s", 0.4, ""),
        # Of batch 128 only one half of the pair is marked: one GPU tells.
        row.format(5, 1, 128, "iteration_s", 0.6, ""),
        row.format(6, 2, 128, "iteration_s", 0.5, "calibration"),
        row.format(7, 2, 128, "exposed_comm_s", 0.05, ""),
        row.format(8, 8, 128, "iteration_s", 0.8, ""),
    ]
    path.write_text("\n".join([",".join([*CASE_COLUMNS, "role"]), *rows]) + "\n")
    cases = read_cases(path)
    singles = SourceCases(cases, [], Catalog()).singles
    assert singles.iteration(cases[3]) == (pytest.approx(0.2), 2)
    assert singles.iteration(cases[7]) == (pytest.approx(0.6), 1)


def test_a_time_of_a_full_node_is_not_slowed_by_the_node_again(tmp_path: Path) -> None:
    # Two GPUs of a node compute 0.2 s: one alone is faster by what they cost each other, and a run
    # of the same two is as long as it was measured.
    path = tmp_path / "cases.csv"
    row = "p-{0},S-SGD DDP,ResNet-50,V100,{1},8,NVLink,64,,,{2},{3},,{4}"
    rows = [
        row.format(1, 2, "iteration_s", 0.25, "calibration"),
        row.format(2, 2, "exposed_comm_s", 0.05, "calibration"),
        row.format(3, 8, "iteration_s", 0.4, ""),
    ]
    path.write_text("\n".join([",".join([*CASE_COLUMNS, "role"]), *rows]) + "\n")
    cases = read_cases(path)
    source = SourceCases(cases, [], Catalog())
    asked = {"model": "resnet50", "gpu": "v100", "method": "ssgd", "batch": 64}
    role = CaseRole("test", "", asked, {}, {})
    scenario = scenario_of(cases[2], role, source, "rated")
    assert scenario is not None and scenario.single_gpu is not None
    alone_s = parse_seconds(scenario.single_gpu, "single_gpu")
    assert alone_s == pytest.approx(0.2 / (1.0 + INPUTS["storage"].share), rel=1e-6)
    made = scenario_of(
        cases[2], role._replace(fields=asked | {"input": "synthetic"}), source, "rated"
    )
    assert made is not None and made.single_gpu is not None
    assert parse_seconds(made.single_gpu, "single_gpu") > alone_s


def test_what_a_method_adds_on_one_gpu_is_no_computation(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    row = "n-{0},N,{1},SEEN,QSGD,ResNet-50,A100,{2},8,NVLink,256,,8 bits,{3},{4},"
    rows = [
        row.format(1, "a", 1, "iteration_s", 0.15),
        row.format(2, "a", 1, "compress_plus_comm_s", 0.02),
        row.format(3, "b", 1, "compress_plus_comm_s", 0.09),
        row.format(4, "a", 8, "iteration_s", 0.2),
    ]
    head = ",".join(["id", "source", "provenance", "seen_or_memory", *CASE_COLUMNS[1:]])
    path.write_text("\n".join([head, *rows]) + "\n")
    cases = read_cases(path)
    singles = SingleGpuCases(cases)
    assert singles.iteration(cases[3]) == (pytest.approx(0.13), 1)
    # That of the nearer run; only of the same system.
    assert singles.kernels_s(cases[3]) == pytest.approx(0.02)
    assert singles.kernels_s(replace(cases[3], system="Top-k")) is None
    assert [is_single_gpu(case) for case in cases] == [True, True, True, False]


def test_errors_of_time_and_rate_have_one_sign() -> None:
    found = predict(make_scenario({"model": "resnet50", "gpus": 8, "net": "10gbe"}))
    slow_s, slow_rate = found.iteration_s / 2, found.samples_per_s * 2
    assert predicted_metric("iteration_s", slow_s, found)[1] == pytest.approx(1.0)
    assert predicted_metric("throughput", slow_rate, found)[1] == pytest.approx(1.0)
    (value, low, high), _ = predicted_metric("throughput", 1.0, found)
    assert low <= value <= high
    assert predicted_metric("speedup_vs_1gpu", 1.0, found)[0][0] == pytest.approx(
        8 * found.scaling_efficiency
    )


def test_the_ranking_counts_pairs_that_measure_apart(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    row = "r-{0},R,SEEN,{1},ResNet-50,V100,32,1,1GbE,32,,{2},iteration_s,{3},"
    # On 1 GbE a dense iteration is far longer than Top-k's; the third is within 10 % of the first.
    rows = [
        row.format(1, "DDP", "", 3.0),
        row.format(2, "Top-k", "density 0.001", 0.3),
        row.format(3, "DGC", "density 0.001", 0.31),
    ]
    path.write_text("\n".join([HEAD, *rows]).replace("1GbE", "PCIe3 in node") + "\n")
    assert validate_measurements(path).ranking()[0] == 2


def test_the_shipped_rules_set_known_things() -> None:
    path = Catalog().beside("measurements", "", "map.toml")
    assert path is not None
    rules = read_rules(path)
    catalog = Catalog()
    for rule in rules:
        for field, kinds in (
            ("model", ("models",)),
            ("net", ("networks", "nodes")),
            ("intra_net", ("networks", "nodes")),
        ):
            if field in rule.fields and "," not in rule.fields[field]:
                names = {stem.split(".")[0] for kind in kinds for stem in catalog.files(kind)}
                assert rule.fields[field] in names, rule
        if "gpu" in rule.fields:
            assert rule.fields["gpu"] in catalog.files("devices"), rule


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("id,source", "name,source"), ["column 'id'", "missing column"]),
        (("t-2,", "t-1,"), ["'t-1' stands on line 2 already"]),
        (("throughput,1500", "throughput,fast"), ["'fast' is not a number"]),
    ],
)
def test_a_damaged_table_is_one_sentence(
    table: Path, change: tuple[str, str], words: list[str]
) -> None:
    table.write_text(table.read_text().replace(*change, 1))
    with pytest.raises(DataError) as caught:
        read_cases(table)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[rule]]\nwhen = { colour = "red" }', "no column 'colour'"),
        ('[[rule]]\nwhen = { id = "x" }\nnumber = { gpus = "id:(" }', "is no pattern"),
        ('[[rule]]\nwhen = { id = "x" }\nnumber = { gpus = "id:x" }', "pattern with one group"),
        ("[[rule]]\nset = { gpu_per_node = 4 }", "no field 'gpu_per_node'; did you mean 'gpus_per"),
        ("[[rule]]\nset = { options = 4 }", "no field 'options'; "),
        ("[[rule]]\nset = { net.a = 4 }", "set.net: is a table, not a value"),
        ('[[rule]]\nset = { "net.a" = 4 }', "no field 'net.a'; "),
        ('[[rule]]\nwehn = 1\nwhen = { id = "x" }', "did you mean 'when'"),
    ],
)
def test_a_damaged_rule_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "map.toml"
    path.write_text('schema = "perfsim/measurement-map/1"\n' + text + "\n")
    with pytest.raises(DataError) as caught:
        read_rules(path)
    assert words in str(caught.value)


def test_the_command_prints_tables_and_json(table: Path) -> None:
    runner = CliRunner()
    brief = runner.invoke(app, ["validate", "measurements", "--measurements", str(table)])
    assert max(map(len, brief.output.splitlines())) <= 80 and "by method," in brief.output
    assert "no rule for method 'Unheard of'" in brief.output and "targets missed" in brief.output
    shown = runner.invoke(app, ["validate", "measurements", "--measurements", str(table), "-v"])
    # Two invented rows: a target that they miss is shown, and is no error.
    assert shown.exit_code == 0, shown.output
    assert "targets missed" in shown.output and "all whole iterations: median" in shown.output
    assert "by method" in shown.output and "no rule for method 'Unheard of'" in shown.output
    asked = ["validate", "measurements", "--measurements", str(table), "--json"]
    found = json.loads(runner.invoke(app, asked).output)
    assert found["schema"] == "perfsim/validation/1"
    assert {"count", "median", "p90", "worst", "bias", "coverage"} <= set(found["all"])
    assert [way["way"] for way in found["ways"]] == ["blind", "rated"]
    assert all(way["count"] == 2 and "sources_alike" in way for way in found["ways"])
    for row in found["rows"]:
        assert {"id", "way", "method", "scenario", "breakdown_s", "interval", "error"} <= set(row)
        assert sum(row["breakdown_s"].values()) > 0 and row["scenario"]["model"] == "resnet50"
    with pytest.raises(DataError, match=r"none.csv: cannot be read"):
        read_cases(table.with_name("none.csv"))


def test_a_schema_that_is_not_stated_is_one_sentence(table: Path) -> None:
    table.write_text("# schema\n" + table.read_text())
    with pytest.raises(DataError, match="line 1: schema is '', this perfsim reads"):
        read_cases(table)


def test_a_bad_row_is_listed_and_the_rest_predicted(table: Path) -> None:
    lines = table.read_text().splitlines()
    lines[3] = lines[3].replace("iteration_s,0.5", "iteration_s,-0.5")
    lines += ["t-9,cut,short", lines[2]]
    table.write_text("\n".join(lines) + "\n")
    with pytest.raises(
        DataError, match=r"line 4, column 'value': '-0\.5' is not allowed: it must be 0 or more"
    ):
        read_cases(table)
    report = validate_measurements(table)
    assert {row.case.id for row in report.rows} == {"t-2"}
    assert [str(error).partition("cases.csv, ")[2] for error in report.bad] == [
        "line 4, column 'value': '-0.5' is not allowed: it must be 0 or more",
        "line 8: 3 cells, the head has 15",
        "line 9, column 'id': 't-2' stands on line 3 already",
    ]
    shown = CliRunner().invoke(app, ["validate", "--measurements", str(table)])
    assert "3 bad rows are left out" in shown.output and shown.exit_code == 0


def test_a_map_of_ones_own_adds_and_lifts(table: Path, tmp_path: Path) -> None:
    rules = tmp_path / "map.toml"
    head = 'schema = "perfsim/measurement-map/1"\n'
    heard = '[[rule]]\nwhen = { system = "Unheard of" }\nset = { method = "dgc" }\n'
    rules.write_text(head + heard)
    report = validate_measurements(table, rules_path=rules)
    assert {row.method for row in report.rows} == {"ssgd", "topk", "dgc"}
    shut = '[[rule]]\nwhen = { system = "Top-k" }\nexclude = "recalled, never verified"\n'
    rules.write_text(head + shut)
    assert {row.method for row in validate_measurements(table, rules_path=rules).rows} == {"ssgd"}
    lifted = '[[rule]]\nwhen = { system = "Top-k" }\nexclude = ""\n'
    rules.write_text(head + shut + lifted)
    lifted_rows = validate_measurements(table, rules_path=rules).rows
    assert {row.method for row in lifted_rows} == {"ssgd", "topk"}
    shown = CliRunner().invoke(
        app, ["validate", "--measurements", str(table), "--map", str(rules), "--json"]
    )
    assert {row["id"] for row in json.loads(shown.output)["rows"]} == {"t-2", "t-3"}


def test_what_a_source_published_is_left_out_of_its_own_prediction(tmp_path: Path) -> None:
    """HKBU measured a V100-PCIE; blind, its rows are predicted without that anchor."""
    path = tmp_path / "cases.csv"
    head = ",".join(["id", "provenance", *CASE_COLUMNS[1:]])
    row = "h-{0},{1},S-SGD DDP,ResNet-50,V100-PCIE-32GB,8,4,PCIe3 in node,64,,,throughput,1500,"
    own, other = "HKBU-HPML/ddl-benchmarks@30de09bc:a.md", "nobody/nothing@1:a.md"
    fields = {"model": "resnet50", "gpu": "v100-pcie", "gpus": 8, "gpus_per_node": 4}
    scenario = make_scenario(fields | {"net": "10gbe", "intra_net": "pcie3", "batch": 64})
    with_anchor = predict(scenario).samples_per_s
    without = predict(scenario, Session(without={"hkbu-hpml"})).samples_per_s
    assert without != pytest.approx(with_anchor, rel=1e-3)
    for where, expected in ((own, without), (other, with_anchor)):
        path.write_text(f"{head}\n{row.format(1, where)}\n")
        [found] = validate_measurements(path).rows
        assert found.way == "blind" and found.predicted == pytest.approx(expected)


@needs_data
def test_the_collected_table_is_read() -> None:
    cases = read_cases(COLLECTED / "measurements" / "cases.csv")
    assert len(cases) > 1000


def test_a_model_that_only_the_judged_source_measured_is_asked_by_its_kernels(
    tmp_path: Path,
) -> None:
    """Every network has a definition: its own source's total is not needed."""
    head = ",".join(["id", "provenance", *CASE_COLUMNS[1:]])
    case = "S-SGD DDP,ResNet-50 (CIFAR-10),V100,{},4,NVLink,128,,,throughput,{},"
    rows = [
        "t-1,vineeths96/x@1:y," + case.format(1, 900.0),
        "t-2,vineeths96/x@1:y," + case.format(4, 3000.0),
        "u-1,someone/x@1:y," + case.format(4, 3000.0),
    ]
    path = tmp_path / "cases.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    report = validate_measurements(path)
    asked = [(row.case.id, row.way) for row in report.rows if row.case.id != "t-1"]
    assert {("t-2", "blind"), ("t-2", "rated"), ("u-1", "blind")} <= set(asked)
    assert not report.not_asked
    blind = {row.case.id: row for row in report.rows if row.way == "blind"}
    asked_too = {"model": "resnet50-cifar", "gpu": "v100", "gpus": 4, "batch": 128}
    own_s = predict(make_scenario(asked_too | {"net": "10gbe"})).iteration_s
    known_s, unknown_s = (128 * 4 / blind[case].predicted for case in ("u-1", "t-2"))
    # Another source's row rests on the total of the profile, the judged one's row does not.
    assert known_s == pytest.approx(own_s) and unknown_s != pytest.approx(own_s, rel=1e-6)


def test_kernels_of_the_judged_source_are_known_to_the_calibrated_way_alone(
    tmp_path: Path,
) -> None:
    head = ",".join(["id", "provenance", *CASE_COLUMNS[1:]])
    case = "{},ResNet-50,V100,8,8,NVLink,32,,,throughput,900,"
    rows = [
        "t-1,zhuangwang93/x@1:y," + case.format("DGC"),
        "t-2,zhuangwang93/x@1:y," + case.format("S-SGD DDP"),
        "u-1,someone/x@1:y," + case.format("DGC"),
    ]
    path, rules = tmp_path / "cases.csv", tmp_path / "map.toml"
    path.write_text("\n".join([head, *rows]) + "\n")
    era = """schema = "perfsim/measurement-map/1"
title = "x"
[[rule]]
when = { id = "*" }
set = { software = "torch1.8" }
"""
    rules.write_text(era)
    report = validate_measurements(path, rules_path=rules)
    found = {(row.case.id, row.way): row for row in report.rows}
    # DGC's kernels on a V100 are those of Espresso's and DRAGONN's authors; S-SGD has none.
    assert set(found) == {
        ("t-1", "blind"),
        ("t-1", "calibrated"),
        ("t-2", "blind"),
        ("u-1", "blind"),
    }
    own, others = found["t-1", "calibrated"], found["u-1", "blind"]
    assert own.predicted == pytest.approx(others.predicted)
    assert found["t-1", "blind"].predicted != pytest.approx(own.predicted, rel=0.01)


def test_stored_ways_are_those_of_the_report(tmp_path: Path, table: Path) -> None:
    report = validate_measurements(table)
    (tmp_path / "measurements").mkdir()
    (tmp_path / "measurements" / SUMMARY_FILE).write_text(
        validation_record_text(report, "2000-01-01")
    )
    (tmp_path / "devices").mkdir()
    stored = stored_ways(Catalog(tmp_path))
    assert [one.errors.way for one in stored] == ["blind", "rated"]
    for one, other in zip(stored, report.ways.values(), strict=True):
        assert one.pairs == other.pairs
        for figure, value in one.errors.figures().items():
            if isinstance(value, float):
                assert value == pytest.approx(other.errors.figures()[figure], abs=1e-4)
    assert stored_ways(Catalog(), "nothing.csv") == []
