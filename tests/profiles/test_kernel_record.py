"""The record of single kernels: samples of the collected rows against what it says."""

from __future__ import annotations

import csv
import math
import statistics

import pytest

from perfsim.compute.single_kernels import kernel_times
from perfsim.session import Session
from support.collected import COLLECTED, needs_data, table
from support.paths import ROOT


def record() -> dict[tuple[str, str, str], dict[str, str]]:
    """Return the stored record by kernel, what was left out, how the GPU is known."""
    path = ROOT / "profiles" / "measurements" / "kernels.csv"
    with path.open(encoding="utf-8") as lines:
        return {
            (row["kernel"], row["left_out"], row["known"]): row for row in csv.DictReader(lines)
        }


def modern(name: str) -> list[dict[str, str]]:
    """Return the rows of one collected table of modern kernels."""
    with (COLLECTED / "modern" / f"{name}.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@needs_data
def test_shipped_tables_price_measured_products() -> None:
    """Every 97th bf16 product: the median is that of shapes left out, to a point."""
    gpus = {f"{gpu}_sxm": gpu for gpu in ("a100", "h100", "h200", "b200", "b300")}
    gpus |= {gpu: gpu for gpu in ("gb200", "l40s")}
    catalog, off = Session(), []
    for row in [row for row in modern("gemm") if row["dtype"] == "bfloat16"][::97]:
        if row["system"] in gpus:
            times = kernel_times(gpus[row["system"]], catalog)
            seconds = times.product(*(int(row[key]) for key in "mnk")).seconds
            off.append(abs(seconds / (float(row["latency_ms"]) / 1e3) - 1))
    assert len(off) > 100
    said = record()["product amp-bf16", "random 20 %", "table"]
    assert statistics.median(off) == pytest.approx(float(said["median"]), abs=0.01)


@needs_data
def test_as_shipped_rows_are_the_records() -> None:
    """Element-wise kernels are few enough to judge again here: the same count and median."""
    names = {
        "NVIDIA A100 80GB PCIe": "a100-pcie",
        "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
        "NVIDIA L4": "l4",
        "Tesla P100-PCIE-16GB": "p100",
        "Tesla T4": "t4",
        "Tesla V100-PCIE-32GB": "v100-pcie",
    }
    catalog = Session()
    off = []
    for row in table("neusight_elementwise_bandwidth"):
        moved = (12.0 if row["op"] == "add" else 8.0) * float(row["elements"])
        predicted = kernel_times(names[row["device"]], catalog).stream(moved).seconds
        off.append(abs(math.expm1(math.log(predicted / (float(row["latency_ms"]) / 1e3)))))
    said = record()["element-wise fp32", "none (as shipped)", "rate"]
    assert len(off) == int(said["rows"])
    assert statistics.median(off) == pytest.approx(float(said["median"]), abs=0.001)


@needs_data
def test_bert_attention_of_b200_is_faster_than_h100_as_measured() -> None:
    """The order of GPUs in measured causal attention is that of the shipped rates."""
    asked = {"batch": "4", "seq": "8192", "q_heads": "32", "kv_heads": "8", "head_dim": "128"}
    measured = {
        row["system"]: float(row["latency_ms"])
        for row in modern("attention_forward")
        if all(row[key] == value for key, value in asked.items())
    }
    gpus = {"a100_sxm": "a100", "h100_sxm": "h100", "b200_sxm": "b200"}
    shared = [system for system in gpus if system in measured]
    assert len(shared) >= 2
    catalog = Session()
    predicted = {
        system: kernel_times(gpus[system], catalog)
        .attention(4, 8192, 32, 128, kv_heads=8, kernel="serving")
        .seconds
        for system in shared
    }
    assert sorted(shared, key=measured.__getitem__) == sorted(shared, key=predicted.__getitem__)


def test_the_record_has_every_part() -> None:
    kernels = {kernel for kernel, _, _ in record()}
    for part in ("product amp-bf16", "product fp8", "product fp32", "attention cudnn backward"):
        assert part in kernels
    assert any(kernel.startswith("layers fp32") for kernel in kernels)
    assert any(kernel.startswith("iterations fp32") for kernel in kernels)
