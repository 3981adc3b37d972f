"""Tables of runs that communicate less: told by columns, mapped by rules, ratios set aside."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import DataError
from perfsim.validate.cases import Case, read_cases
from perfsim.validate.low_communication import (
    LOW_COMMUNICATION_COLUMNS,
    is_low_communication_table,
)
from perfsim.validate.mapping import MappedCase, SourceCases, map_case, rules_of
from perfsim.validate.measurements import validate_measurements
from perfsim.validate.training import TRAINING_COLUMNS, is_training_table
from support.collected import COLLECTED
from support.what_ships import SHIPPED

HEAD = (
    *LOW_COMMUNICATION_COLUMNS,
    *("cite", "seq", "gpus_per_node", "network", "throughput_per_gpu", "notes", "software"),
)
RUN = {
    "source": "diloco-measured",
    "cite": "Adnan082/diloco-measured@07b7885b:results/raw/a.json",
    "model": "GPT-like 30.8M",
    "seq": "512",
    "gpu": "L40S (AWS g6e.2xlarge)",
    "n_gpus": "4",
    "gpus_per_node": "1",
    "network": "TCP, tc-shaped, requested 1000000000 bit/s, iperf3 measured n/a",
    "precision": "not stated (see notes)",
    "strategy": "diloco",
    "micro_batch": "4",
    "global_batch": "16",
    "step_time_s": "1.5332",
    "method": "diloco",
    "baseline": "ddp same bandwidth",
    "bandwidth_gbps": "1.0",
    "sync_period_H": "8",
    "compute_ms": "26.73",
    "software": "PyTorch 2.13.0+cu130 NCCL 2.29.7",
}
RATIO = {
    "source": "our blog",
    "model": "BERT-Large pretrain",
    "gpu": "V100",
    "method": "1-bit Adam",
    "speedup_vs_baseline": "2.2 max, about 2 mean",
}
UNSHAPED = {
    "network": "TCP, tc-shaped, requested None bit/s, iperf3 measured n/a",
    "bandwidth_gbps": "unshaped (9.53 iperf)",
}
TABLE = COLLECTED / "modern" / "low_communication.csv"


def table(folder: Path, *rows: Mapping[str, str], base: Mapping[str, str] = RUN) -> Path:
    """Write a table of such runs, each a change of ``base``."""
    path = folder / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        writer.writerows({**base, **row} for row in rows)
    return path


def mapped(path: Path) -> dict[str, MappedCase]:
    """Return the cases of a table with their scenarios, by id."""
    source = SourceCases(read_cases(path), rules_of(SHIPPED), SHIPPED)
    return {case.id: map_case(case, source) for case in source.cases}


def asked(path: Path, name: str = "diloco_measured-1") -> dict[str, Any]:
    """Return the fields of a run's scenario."""
    scenario = mapped(path)[name].scenario
    assert scenario is not None
    return scenario.model_dump()


def test_a_table_is_told_by_its_columns(tmp_path: Path) -> None:
    assert is_low_communication_table(HEAD) and not is_training_table(HEAD)
    assert not is_low_communication_table(TRAINING_COLUMNS)
    path = tmp_path / "runs.csv"
    path.write_text(",".join(HEAD) + "\n")
    with pytest.raises(DataError, match="no case"):
        read_cases(path)


def test_a_row_is_a_run_and_what_it_computes(tmp_path: Path) -> None:
    run, alone = read_cases(table(tmp_path, {}))
    assert run.id == "diloco_measured-1" and run.system == "PyTorch, diloco, H 8"
    assert (run.metric, run.value) == ("iteration_s", 1.5332)
    assert run.network == "shaped, 1Gbit/s,50us" and run.gpu == "NVIDIA L40S, fp32"
    # The inner step with its AdamW, as one GPU runs it.
    assert (alone.id, alone.metric, alone.gpus) == ("diloco_measured-1c", "iteration_s", "1")
    assert alone.value == pytest.approx(0.02673)


def test_ddp_times_its_passes_without_the_update(tmp_path: Path) -> None:
    _, alone = read_cases(table(tmp_path, {"strategy": "ddp", "method": "ddp"}))
    assert (alone.metric, alone.gpus) == ("compute_s", "4")


@pytest.mark.parametrize(
    ("cells", "method", "options"),
    [
        ({}, "diloco", {"interval": "8", "backup": "gpu"}),
        ({"strategy": "localsgd", "sync_period_H": "32"}, "localsgd", {"interval": "32"}),
        ({"strategy": "ddp", "sync_period_H": "1"}, "ssgd", {"buffers_mib": 48}),
    ],
)
def test_the_method_and_its_interval_are_those_of_the_row(
    tmp_path: Path, cells: dict[str, str], method: str, options: dict[str, Any]
) -> None:
    fields = asked(table(tmp_path, cells))
    assert (fields["method"], fields["options"]) == (method, options)
    assert (fields["gpus"], fields["gpus_per_node"], fields["batch"]) == (4, 1, 4)
    assert fields["single_gpu"] is not None and fields["seq"] == 512


@given(rate=st.floats(0.05, 400.0))
def test_a_shaped_link_has_the_rate_of_the_row(
    rate: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = table(tmp_path_factory.mktemp("shaped"), {"bandwidth_gbps": f"{rate:g}"})
    assert asked(path)["net"] == f"{rate:g}Gbit/s,50us"


def test_a_link_that_is_not_shaped_is_the_node_s_nic(tmp_path: Path) -> None:
    fields = asked(table(tmp_path, UNSHAPED))
    assert (fields["node"], fields["nic"], fields["intra_net"]) == ("eth-25g", "20Gbit/s", None)


def test_a_run_that_states_no_computation_takes_its_source_s(tmp_path: Path) -> None:
    rows = ({"compute_ms": "24"}, {"compute_ms": "", **UNSHAPED})
    found = mapped(table(tmp_path, *rows))
    assert "diloco_measured-2c" not in found
    scenario = found["diloco_measured-2"].scenario
    assert scenario is not None and scenario.single_gpu == "0.024s"


def test_a_ratio_is_no_test_and_says_what_it_is(tmp_path: Path) -> None:
    [found] = mapped(table(tmp_path, {}, base=RATIO)).values()
    assert (found.case.metric, found.case.value) == ("speedup_vs_baseline", 2.2)
    assert found.role == "excluded" and found.reason.startswith("ratio to another run: 2.2 max")
    assert found.case.system == "not stated, 1-bit Adam" and not found.scenarios


@pytest.mark.parametrize("ratio", ["0", "9" * 400])
def test_a_row_that_states_nothing_is_missing(ratio: str, tmp_path: Path) -> None:
    [found] = mapped(table(tmp_path, {"speedup_vs_baseline": ratio}, base=RATIO)).values()
    assert found.role == "missing" and "neither step time nor throughput" in found.reason


def test_rows_keep_their_places_where_some_cannot_be_read(tmp_path: Path) -> None:
    path = table(tmp_path, {}, {"step_time_s": "2"})
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "cut", lines[2]]) + "\n")
    bad: list[DataError] = []
    ids = [case.id for case in read_cases(path, bad)]
    assert ids == ["diloco_measured-2", "diloco_measured-2c"] and len(bad) == 1


def collected_cases() -> list[Case]:
    """Return the collected rows without what they compute."""
    return [case for case in read_cases(TABLE) if not case.id.endswith("c")]


@pytest.mark.skipif(not TABLE.is_file(), reason="the collected table is not in this checkout")
def test_every_collected_row_is_predicted_or_says_why_not() -> None:
    cases, found = collected_cases(), mapped(TABLE)
    assert len(cases) == 89
    for case in cases:
        assert found[case.id].scenarios or found[case.id].reason, case.id


@pytest.mark.skipif(not TABLE.is_file(), reason="the collected table is not in this checkout")
def test_the_measured_steps_of_ddp_diloco_and_local_sgd() -> None:
    errors = [abs(row.error) for row in validate_measurements(TABLE).of_way("rated")]
    assert len(errors) == 39
    assert sorted(errors)[19] < 0.08 and sorted(errors)[35] < 0.20
