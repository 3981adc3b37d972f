"""Tables of training runs: told by their columns, read by words, and what is missing counted."""

from __future__ import annotations

import csv
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from perfsim.cli.main import code
from perfsim.errors import DataError
from perfsim.report.validation import measurements_page
from perfsim.validate.cases import Case, read_cases
from perfsim.validate.mapping import MappedCase, SourceCases, map_case, rules_of
from perfsim.validate.measurements import MeasurementsReport, validate_measurements
from perfsim.validate.training import TRAINING_COLUMNS, is_training_table
from support.collected import COLLECTED
from support.what_ships import SHIPPED

HEAD = (
    *TRAINING_COLUMNS,
    *("cite", "seq", "gpus_per_node", "network", "dp", "zero_stage", "cp", "ep", "grad_accum"),
    *("activation_checkpointing", "throughput_per_gpu", "software", "notes"),
)

RUN = {
    "source": "our lab",
    "cite": "we/ours@1234:runs.md",
    "model": "PyTorch/resnet50",
    "gpu": "V100-SXM2-32GB",
    "n_gpus": "8",
    "gpus_per_node": "8",
    "precision": "AMP",
    "strategy": "data parallel",
    "micro_batch": "64",
    "step_time_s": "0.1",
}
"""A run that can be predicted."""

ROUND = {
    "source": "mlperf-training-v2.0",
    "model": "resnet",
    "gpu": "NVIDIA A100-SXM4-80GB (400W)",
    "precision": "",
    "micro_batch": "200",
    "software": "MXNet NVIDIA Release 22.04",
    "notes": "Acme/box_n2; division closed",
    "network": "net: Compute: 8x ConnectX-6 IB HDR 200Gb/sec ; intra: NVLINK 3.0",
}
"""What a run of an MLPerf round has besides."""


def table(folder: Path, *runs: Mapping[str, str]) -> Path:
    """Write a table of runs, each a change of `RUN`."""
    path = folder / "runs.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        for index, run in enumerate(runs, 1):
            writer.writerow({"id": str(index), **RUN, **run})
    return path


def read(folder: Path, **cells: str) -> Case:
    """Return the case of one run."""
    return read_cases(table(folder, cells))[0]


def mapped(folder: Path, *runs: Mapping[str, str]) -> list[MappedCase]:
    """Return the cases of runs with their scenarios."""
    source = SourceCases(read_cases(table(folder, *runs)), rules_of(SHIPPED), SHIPPED)
    return [map_case(case, source) for case in source.cases]


def fields(folder: Path, **cells: str) -> dict[str, Any]:
    """Return the scenario's fields of one run."""
    (found,) = mapped(folder, cells)
    assert found.scenario is not None, found.reason
    return found.scenario.model_dump()


def test_a_table_is_told_by_its_columns(tmp_path: Path) -> None:
    assert is_training_table(HEAD)
    assert not is_training_table(["id", "system", "model", "gpu", "gpus", "metric", "value"])
    path = tmp_path / "cases.csv"
    path.write_text("id,source,model,gpu,n_gpus,step_time_s\na,me,gpt2,v100,8,0.1\n")
    with pytest.raises(DataError, match=r"'precision': missing column; the columns are id, source"):
        read_cases(path)
    path.write_text("id,system\n1,x\n")
    with pytest.raises(DataError, match="missing column"):
        read_cases(path)


def test_a_run_is_one_case_with_its_words(tmp_path: Path) -> None:
    assert read(tmp_path) == Case(
        id="our_lab-1",
        system="PyTorch, data parallel",
        model="ResNet-50, PyTorch/resnet50",
        gpu="NVIDIA V100 SXM, 32GB, amp",
        gpus="8",
        gpus_per_node="8",
        network="one node",
        batch_per_gpu="64",
        fusion="",
        rank_or_density="",
        metric="iteration_s",
        value=0.1,
        notes="",
        source="we/ours@1234:runs.md",
        provenance="we/ours@1234:runs.md",
        publisher="our_lab",
    )


@pytest.mark.parametrize(
    ("cells", "metric", "value"),
    [
        ({}, "iteration_s", 0.1),
        ({"throughput_total": "4000", "throughput_unit": "img/s"}, "throughput", 4000.0),
        ({"throughput_per_gpu": "500", "throughput_unit": "samples/s"}, "throughput", 4000.0),
        (
            {"throughput_total": "1,024.5", "throughput_unit": "(sequences/sec)"},
            "throughput",
            1024.5,
        ),
        ({"throughput_total": "9.5", "throughput_unit": "9.5 samp/s"}, "throughput", 9.5),
        ({"throughput_total": "8", "throughput_unit": "**Throughput - FP32**"}, "throughput", 8.0),
        (
            {"throughput_total": "2048", "throughput_unit": "tokens/s", "seq": "512"},
            "throughput",
            4.0,
        ),
    ],
)
def test_results_become_a_step_or_samples_a_second(
    tmp_path: Path, cells: dict[str, str], metric: str, value: float
) -> None:
    step = {} if metric == "iteration_s" else {"step_time_s": ""}
    case = read(tmp_path, **cells, **step)
    assert (case.metric, case.value) == (metric, value)


@pytest.mark.parametrize(
    ("cells", "batch"),
    [
        ({"micro_batch": "", "global_batch": "512"}, "64"),
        ({"micro_batch": "", "global_batch": "500"}, ""),
        ({"micro_batch": "64.0"}, "64"),
        ({"micro_batch": "32, 16"}, "32"),
        ({"micro_batch": "32, 16", "precision": "FP32"}, "16"),
        ({"micro_batch": "32 and 48", "precision": "TF32"}, "32"),
        ({"micro_batch": "96 (FP32) / 80 (AMP)"}, "80"),
        ({"micro_batch": "96 (FP32) / 80 (AMP)", "precision": "FP32"}, "96"),
        ({"micro_batch": "131,072"}, "131072"),
        ({"micro_batch": "128,128"}, "128"),
        ({"micro_batch": "8 to 16"}, ""),
        ({"micro_batch": "9" * 5000}, ""),
        ({"micro_batch": "2", "grad_accum": "4 and 2"}, "2"),
        ({"micro_batch": "", "notes": "section FP16; raw 1 | 8 | 96 | 4449.85"}, "96"),
        ({"micro_batch": "", "notes": "section FP16; raw 10 | 320 | 5120 | 35.88"}, ""),
    ],
)
def test_the_batch_is_the_row_s_own_of_several(
    tmp_path: Path, cells: dict[str, str], batch: str
) -> None:
    assert read(tmp_path, **cells).batch_per_gpu == batch


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NVIDIA A100-SXM4-80GB (400W)", "NVIDIA A100 SXM, 80GB, 400W, amp"),
        ("NVIDIA A100-PCIe-40GB(250W)", "NVIDIA A100 PCIe, 40GB, 250W, amp"),
        ("a100_40gb", "NVIDIA A100, 40GB, amp"),
        ("V100 16G (DGX-1)", "NVIDIA V100 SXM, 16GB, DGX-1, amp"),
        ("V100 32GB (DGX-2H)", "NVIDIA V100 SXM, 32GB, DGX-2H, amp"),
        ("A100 (DGX A100)", "NVIDIA A100 SXM, DGX A100, amp"),
        ("NVIDIA Blackwell GPU (GB200)", "NVIDIA GB200, amp"),
        ("NVIDIA H200-NVL-141GB", "NVIDIA H200 NVL, 141GB, amp"),
        ("AMD Instinct MI300X 192GB HBM3", "AMD MI300X, 192GB, amp"),
        ("2x v5e-256", "Google TPU V5E, amp"),
        ("g5.12xlarge", "g5.12xlarge, amp"),
        ("", "not stated, amp"),
    ],
)
def test_gpus_are_written_alike(tmp_path: Path, text: str, words: str) -> None:
    assert read(tmp_path, gpu=text).gpu == words


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("NVIDIA H200-NVL-141GB", "h200-nvl"),
        ("NVIDIA RTX Pro 6000 SE PCIe 96GB", "rtxpro6000"),
        ("GeForce RTX 4090 24GB (450W)", "rtx4090"),
        ("NVIDIA H20-3e", "h20-3e"),
        ("GeForce RTX 3080 Ti", "rtx3080ti"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("NVIDIA RTX A6000", "a6000"),
    ],
)
def test_a_gpu_that_no_rule_names_is_found_by_its_words(
    tmp_path: Path, text: str, gpu: str
) -> None:
    found = fields(tmp_path, gpu=text)
    assert (found["gpu"], found["precision"]) == (gpu, "amp-fp16")


@pytest.mark.parametrize(
    ("text", "net"),
    [
        ("net: BF3 200Gbps for NS and 2xBF3 400Gbps for EW ; intra: PCIe", "88.76GB/s,6.03us"),
        ("net: 4x ConnectX-7 IB NDR 400 Gb/s ; intra: PCIe", "177.5GB/s,6.03us"),
        ("net: 4x ConnectX-8 IB XDR 800 Gb/s ; intra: PCIe", "355GB/s,6.03us"),
    ],
)
def test_cards_between_nodes_are_read_by_their_rate(tmp_path: Path, text: str, net: str) -> None:
    assert fields(tmp_path, n_gpus="16", network=text)["net"] == net


@pytest.mark.parametrize(
    ("gpus", "text", "words"),
    [
        ("8", "net: 1x EDR 100 ; intra: NVLink", "one node: NVLink"),
        ("8", "net: N/A N/A; intra: ", "one node"),
        ("16", "net: 1x EDR 100 N/A; intra: NVLink", "1x EDR 100"),
        ("16", "net: ; intra: NVLink", ""),
        ("16", "net: Storage: 2x A, Compute: 8x B, Management: 1x C ; intra: D", "8x B"),
        ("16", "net: Compute: 4 x B + Management: 1 x C ; intra: D", "4 x B"),
        ("16", "net: A 200Gbps for NS and 2xB 400Gbps for EW ; intra: D", "2xB 400Gbps"),
        ("16", "100 Gb/s of a test bed", "100 Gb/s of a test bed"),
    ],
)
def test_networks_are_written_alike(tmp_path: Path, gpus: str, text: str, words: str) -> None:
    assert read(tmp_path, n_gpus=gpus, network=text).network == words


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        ({"precision": "Mixed Precision"}, "amp"),
        ({"precision": "amp_bf16"}, "bf16"),
        ({"precision": "MXFP8"}, "fp8"),
        ({"precision": "NVFP4"}, "fp4"),
        ({"precision": ""}, "not stated"),
        ({"notes": "section Result / FP32 / batch 64; raw 1"}, "fp32"),
        ({"notes": "section FP16 and FP32; raw 1"}, "amp"),
        ({"notes": "col: x | section: FP32", "precision": "TF32"}, "tf32"),
    ],
)
def test_a_heading_of_one_precision_comes_before_the_column(
    tmp_path: Path, cells: dict[str, str], word: str
) -> None:
    assert read(tmp_path, **cells).gpu.rpartition(", ")[2] == word


MISSING = {
    "neither step time nor throughput stated": {"step_time_s": ""},
    "number of GPUs not stated": {"n_gpus": "8-16"},
    "rank of LoRA adapters not stated": {"model": "LLAMA2-7B LoRA"},
    "degree of tensor parallelism not stated": {"strategy": "FSDP2 x TP"},
    "degree of pipeline parallelism not stated": {"strategy": "PP algorithm 1f1b"},
    "degree of context parallelism not stated": {"strategy": "FSDP2 + CP + compile"},
    "degree of expert parallelism not stated": {"strategy": "DP, EP"},
    "degrees of parallelism contradict the number of GPUs": {"tp": "3"},
    "pipeline schedule V-Half": {"pp": "2", "strategy": "PP algorithm v-half VPP 2"},
    "how the model is split is not stated": {"strategy": "3D parallel"},
    "micro-batches of an iteration are no whole number": {"global_batch": "700"},
    "activation checkpointing of some layers": {"activation_checkpointing": "every 2nd layer"},
    "offloading to the CPU": {"strategy": "ZeRO-3 + CPU offload"},
    "several nodes without a stated network": {"n_gpus": "16", "network": "net: ; intra: NVLink"},
    "network Omni-Path": {"n_gpus": "16", "network": "Omni-Path of 100 Gb/s"},
    "GPU A16": {"gpu": "NVIDIA A16"},
    "GPU RTX 4090 D": {"gpu": "NVIDIA GeForce RTX 4090 D"},
    "GPU Intel GAUDI": {"gpu": "Intel GAUDI"},
    "model Widget": {"model": "Ours/Widget-7b"},
    "sequence length 256 of GPT-2": {"model": "PyTorch/LanguageModeling/GPT-2", "seq": "256"},
    "sequence length of BERT-Large not stated": {"model": "PyTorch/LanguageModeling/BERT"},
    "throughput in 4K-samples/s, not samples": {
        "step_time_s": "",
        "throughput_total": "7",
        "throughput_unit": "4K-samples/s",
    },
    "throughput in tokens/s, of unstated length": {
        "step_time_s": "",
        "throughput_total": "7",
        "throughput_unit": "(tok/s)",
    },
    "batch not stated": {"micro_batch": ""},
    "precision not stated": {"precision": ""},
    "how gradients are exchanged is not stated": {"strategy": "", "model": "resnet50"},
}


@pytest.mark.parametrize("what", MISSING)
def test_one_thing_is_named_as_missing(tmp_path: Path, what: str) -> None:
    (found,) = mapped(tmp_path, MISSING[what])
    assert (found.role, found.reason, found.scenario) == ("missing", what, None)


@pytest.mark.parametrize(
    ("strategy", "split"),
    [
        ("FSDP2 x TP8", "tp=8"),
        ("zero1(dp1)+tp2+pp4", "tp=2; pp=4"),
        ("PP algorithm zbv-formatted, PP=2", "pp=2; schedule=zbv"),
        ("PP4 1f1b-interleaved VPP 2", "pp=4; schedule=interleaved; virtual_stages=2"),
        ("Ulysses SP=4", "cp=4"),
        ("Ulysses SP=1", ""),
        ("DP, tp1, pp1", ""),
    ],
)
def test_a_strategy_s_words_tell_where_cells_are_empty(
    tmp_path: Path, strategy: str, split: str
) -> None:
    found = read(tmp_path, strategy=strategy)
    assert (found.split, found.missing) == (split, "")
    alone = {"tp": "1", "pp": "1", "cp": "1", "ep": "1"}
    assert read(tmp_path, strategy=strategy, **alone).split == ""


def test_batches_imply_accumulation(tmp_path: Path) -> None:
    """A step of several micro-batches of 64 on 8 GPUs is told by its rate, in samples/s."""
    assert read(tmp_path, global_batch="512").accumulate == ""
    found = read(tmp_path, global_batch="1024", step_time_s="0.5")
    assert (found.accumulate, found.batch_per_gpu, found.missing) == ("2", "64", "")
    assert (found.metric, found.value) == ("throughput", 2048.0)
    assert read(tmp_path, global_batch="512", dp="4").accumulate == "2"
    # Numbers that no run has are none: their ratio would be no number.
    assert read(tmp_path, global_batch="1e17", micro_batch="1e-300").accumulate == ""


@pytest.mark.parametrize(
    ("text", "word"), [("none", ""), ("Full", "full"), ("selective op", "selective"), ("No AC", "")]
)
def test_what_is_computed_again_is_read(tmp_path: Path, text: str, word: str) -> None:
    assert read(tmp_path, activation_checkpointing=text).recompute == word


def test_accumulation_and_recomputation_are_asked(tmp_path: Path) -> None:
    found = fields(tmp_path, grad_accum="2", activation_checkpointing="full")
    assert (found["batch"], found["accumulate"], found["recompute"]) == (64, 2, "full")


def test_what_is_asked_of_runs(tmp_path: Path) -> None:
    found = fields(tmp_path)
    assert (found["model"], found["gpu"], found["batch"]) == ("resnet50", "v100", 64)
    assert (found["precision"], found["method"], found["intra_net"]) == (
        "amp-fp16",
        "ssgd",
        "nvlink-v100",
    )
    found = fields(tmp_path, gpu="V100 (DGX-1)", n_gpus="16", gpus_per_node="")
    assert (found["net"], found["gpus_per_node"]) == ("dgx-1", 8)
    found = fields(tmp_path, gpu="A100-80GB", strategy="ZeRO-2", precision="BF16")
    assert (found["method"], found["options"]) == ("zero", {"stage": 2})
    assert found["precision"] == "amp-bf16"
    assert fields(tmp_path, gpu="DGX-GB300", precision="NVFP4")["precision"] == "nvfp4"
    assert fields(tmp_path, gpu="h100_80gb", strategy="FSDP FULL_SHARD")["method"] == "fsdp"
    squad = {"model": "TensorFlow/LanguageModeling/BERT", "notes": "section: SQuAD v1.1"}
    found = fields(tmp_path, **squad)
    assert (found["model"], found["method"]) == ("bert-large-squad", "horovod")


def test_one_node_of_a_submitter_sets_the_computation_of_its_nodes(tmp_path: Path) -> None:
    other = ROUND | {"notes": "Other/box; division closed"}
    runs = [ROUND, other | {"step_time_s": "0.3"}, ROUND | {"n_gpus": "16"}]
    one, other_one, several = mapped(tmp_path, *runs)
    assert one.role == other_one.role == "calibration"
    assert one.reason == "calibrates computation (one node)"
    assert several.scenario is not None and several.scenario.single_gpu is not None
    assert several.scenario.method == "horovod" and several.scenario.net == "dgx-a100"
    own = several.scenario.single_gpu
    (*_, alone) = mapped(tmp_path, ROUND, ROUND | {"n_gpus": "16"})
    assert alone.scenario is not None and alone.scenario.single_gpu == own


def test_mlperf_s_notice_stands_beside_its_rows(tmp_path: Path) -> None:
    report = validate_measurements(table(tmp_path, ROUND, ROUND | {"n_gpus": "16"}))
    assert report.notices == ["mlperf: derived from public MLPerf logs, not verified by MLCommons"]
    assert {(row.case.group, row.case.origin) for row in report.rows} == {("mlperf-v2.0", "mlperf")}


def test_what_is_no_measurement_is_excluded_by_what_it_is(tmp_path: Path) -> None:
    vtrain, opened = mapped(
        tmp_path,
        {"source": "vTrain", "tp": "2"},
        ROUND | {"notes": "Acme/box; division Open"},
    )
    assert vtrain.role == opened.role == "excluded"
    assert vtrain.reason.startswith("not measured: affine")
    assert opened.reason.startswith("model not stated: MLPerf's open division")


def test_a_row_without_an_id_or_with_another_s_is_refused(tmp_path: Path) -> None:
    for ids in (("", "2"), ("1", "1")):
        with pytest.raises(DataError, match=r"row \d|id"):
            read_cases(table(tmp_path, *({"id": name} for name in ids)))
    with pytest.raises(DataError, match="holds no case"):
        read_cases(table(tmp_path))


def test_rules_of_training_runs_leave_other_tables_alone() -> None:
    """A case in the words of other tables gets no field from the second map."""
    own = [rule for rule in rules_of(SHIPPED) if any("NVIDIA " in x for x in rule.when.values())]
    case = Case(
        *("x-1", "MXNet DDP TensorFlow FSDP", "ResNet-50", "V100", "16", "8", "8x IB HDR 200"),
        *("64", "", "", "iteration_s", 1.0, "*/dgx1_n2"),
    )
    assert own and not any(rule.fits(case) for rule in own)
    assert all(not rule.fits(replace(case, gpu="A100-SXM4-40GB")) for rule in own)


def test_the_scoreboard_is_shown_and_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single = {"n_gpus": "1", "step_time_s": "0.09"}
    unsaid = {"strategy": "FSDP2 x TP"}
    path = table(tmp_path, single, {}, unsaid, unsaid, {"model": "Widget"})
    report = validate_measurements(path)
    what = "degree of tensor parallelism not stated"
    assert report.missing() == [(what, 2), ("model Widget", 1)]
    assert report.reasons() == [("calibrates computation", 1)]
    assert report.to_dict()["missing"] == [
        {"what": what, "rows": 2},
        {"what": "model Widget", "rows": 1},
    ]
    assert f"<td>{what}</td><td>2</td>" in measurements_page(report)
    assert code(["validate", "--measurements", str(path)]) in (0, 4)
    said = capsys.readouterr().out
    assert f"3 values wait for what perfsim lacks\n     2 {what}" in said


# The collected table, where this checkout has it.

COLLECTED_RUNS = COLLECTED / "modern" / "training.csv"
needs_runs = pytest.mark.skipif(
    not COLLECTED_RUNS.is_file(), reason="the collected figures are not in this checkout"
)


@cache
def collected() -> MeasurementsReport:
    """Return what is predicted of the collected runs."""
    return validate_measurements(COLLECTED_RUNS)


@needs_runs
def test_every_collected_run_is_predicted_calibrates_or_is_listed() -> None:
    report = collected()
    with COLLECTED_RUNS.open(encoding="utf-8") as file:
        ids = {row["id"] for row in csv.DictReader(file)}
    asked = {row.case.id for row in report.rows}
    seen = [*asked, *(left.case.id for left in report.left)]
    assert {name.rpartition("-")[2] for name in seen} == ids and len(seen) == len(ids)
    assert len(asked) >= 170
    assert {left.role for left in report.left} <= {"missing", "calibration", "excluded"}
    short = [what for what, _ in report.missing()]
    assert len(short) <= 70 and all(len(what) <= 60 for what in short), short
    assert report.reasons()[0][0].startswith("not measured")


@needs_runs
def test_the_collected_table_is_read_in_two_seconds() -> None:
    start = time.process_time()
    assert len(read_cases(COLLECTED_RUNS)) > 3000
    assert time.process_time() - start < 2.0
