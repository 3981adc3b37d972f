"""Runs with tensor, pipeline, context and expert parallelism: real rows by hand, and laws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.models import build_model
from perfsim.validate.cases import Case, read_cases
from perfsim.validate.mapping import MappedCase, SourceCases, map_case, rules_of
from perfsim.validate.training import TrainingRun
from support.training_tables import table_of_runs
from support.what_ships import SHIPPED

BLOOM = {
    "source": "bigscience (BLOOM prep)",
    "cite": "bigscience-workshop/bigscience@9e64edec:train/tr11-176B-ml/chronicles-prequel.md#L928",
    "model": "GPT-like 178B",
    "params": "178B",
    "layers": "82",
    "hidden": "13312",
    "heads": "64",
    "seq": "2048",
    "gpu": "A100-SXM4-80GB (Jean Zay)",
    "n_gpus": "384",
    "gpus_per_node": "8",
    "network": "Omni-Path 100 Gb/s x4 per node (Jean Zay)",
    "precision": "bf16/fp16",
    "strategy": "Megatron(-DeepSpeed) 3D; zero/DS columns in notes; section A100 experiments / "
    "Rebalancing layers",
    "dp": "4",
    "tp": "8",
    "pp": "12",
    "micro_batch": "4",
    "global_batch": "2048",
    "step_time_s": "111.79",
    "software": "Megatron-LM / Megatron-DeepSpeed 2021-2022",
}
GPT_ON_V100 = {
    "source": "bigscience (BLOOM prep)",
    "cite": "bigscience-workshop/bigscience@9e64edec:experiments/gpt2.md#L250",
    "model": "GPT-like 39B",
    "params": "39B",
    "seq": "1024",
    "gpu": "V100-SXM2 16/32GB (Jean Zay)",
    "n_gpus": "64",
    "gpus_per_node": "4",
    "network": "Omni-Path 4x100 Gb/s per node (Jean Zay)",
    "precision": "fp16",
    "strategy": "Megatron(-DeepSpeed) 3D; zero/DS columns in notes; section Megatron / "
    "Megatron + Deepspeed 3D (new branch)",
    "dp": "2",
    "tp": "4",
    "pp": "8",
    "micro_batch": "4",
    "grad_accum": "128",
    "global_batch": "1024",
    "step_time_s": "104",
    "notes": "raw: GPUs=64 ; Size=39B ; DS=Y ; DP=2 ; PP=8 ; GAS=128 ; MBS=4 ; GBS=1024",
}
BRIDGE_405B = {
    "source": "megatron-bridge",
    "cite": "NVIDIA-NeMo/Megatron-Bridge@067f987d:docs/performance-summary-archive.md#L100",
    "model": "LLAMA3.1_405B",
    "layers": "126",
    "hidden": "16384",
    "heads": "128",
    "seq": "8192",
    "gpu": "DGX-GB300",
    "n_gpus": "256",
    "gpus_per_node": "4 (72 NVLink domain)",
    "network": "DGX reference (not stated per row)",
    "precision": "FP8",
    "strategy": "DDP (Megatron dist. optimizer by recipe) Pre-Training Performance",
    "dp": "8",
    "tp": "4",
    "pp": "8",
    "cp": "1",
    "ep": "n/a",
    "micro_batch": "1",
    "global_batch": "1536",
    "throughput_per_gpu": "1048",
    "throughput_unit": "tokens/s",
    "step_time_s": "46.9008",
    "software": "26.06 NeMo Container",
    "notes": "VP=4; step time derived = GBS*seq/(tok/s/GPU*N); dp=N/(tp*pp*cp)",
}
BRIDGE_EXPERTS = BRIDGE_405B | {
    "model": "DeepSeekV3",
    "layers": "61",
    "hidden": "7168",
    "seq": "4096",
    "gpu": "DGX-GB200",
    "precision": "MXFP8",
    "dp": "64",
    "tp": "1",
    "pp": "4",
    "ep": "64",
    "global_batch": "4096",
    "step_time_s": "13.3420",
}
TITAN = {
    "source": "torchtitan",
    "cite": "pytorch/torchtitan@b5bcd76c:benchmarks/llama3_h100_202412_torchtitan.md",
    "model": "Llama 3.1 405B",
    "seq": "8192",
    "gpu": "H100-SXM 96GB HBM2e 500W",
    "n_gpus": "512",
    "gpus_per_node": "8",
    "network": "400 Gb/s RDMA per GPU",
    "precision": "float8",
    "strategy": "FSDP2 x TP x PP Interleaved 1F1B",
    "dp": "8",
    "tp": "8",
    "pp": "8",
    "micro_batch": "32",
    "grad_accum": "1",
    "global_batch": "256",
    "activation_checkpointing": "full",
    "step_time_s": "32.0",
    "software": "torch 1963fc8 torchtitan 9dec370",
}
INTERNEVO = {
    "source": "InternEvo",
    "cite": "InternLM/InternEvo@c628a8c8:doc/en/train_performance.md#L40",
    "model": "InternLM-7B",
    "seq": "2048",
    "gpu": "A100-SXM4-80GB",
    "n_gpus": "256",
    "gpus_per_node": "8",
    "network": "4 x 100 Gb/s RoCE per node",
    "precision": "bf16",
    "strategy": "ZeRO-1 over all DP ranks",
    "dp": "128",
    "tp": "2",
    "pp": "1",
    "micro_batch": "4",
    "grad_accum": "4",
    "global_batch": "2048",
    "activation_checkpointing": "none",
    "step_time_s": "4.4851",
}
NANOTRON = {
    "source": "HF ultra-scale playbook",
    "cite": "huggingface/nanotron@2411b022:docs/benchmark_summary.svg",
    "model": "Llama-style 80.0B",
    "params": "80.0e9",
    "seq": "4096",
    "gpu": "H100-80GB (HF cluster)",
    "n_gpus": "256",
    "gpus_per_node": "8",
    "network": "AWS p5 EFA 3.2 Tb/s per node (playbook text; not in the figure)",
    "precision": "bf16",
    "strategy": "nanotron ZeRO-1",
    "dp": "4",
    "tp": "4",
    "pp": "16",
    "micro_batch": "1",
    "grad_accum": "64",
    "global_batch": "256",
    "mfu_percent": "30.75",
    "software": "nanotron",
}
MEGATRON = {
    "source": "Megatron-LM examples",
    "cite": "NVIDIA/Megatron-LM@d98e8a64:examples/llama/README.md#L108",
    "model": "LLAMA3-70B",
    "seq": "8192",
    "gpu": "H100 (see file)",
    "n_gpus": "64",
    "gpus_per_node": "8",
    "precision": "FP8",
    "strategy": "Megatron",
    "dp": "2",
    "tp": "4",
    "pp": "8",
    "cp": "1",
    "micro_batch": "1",
    "grad_accum": "64",
    "global_batch": "128",
    "step_time_s": "10.1073",
    "notes": "VP 5",
}
AUTOMODEL = {
    "source": "NeMo Automodel",
    "cite": "NVIDIA-NeMo/Automodel@36044ad3:docs/performance-summary.mdx#L21",
    "model": "Kimi K2",
    "seq": "4096",
    "gpu": "H100 (see page)",
    "n_gpus": "256",
    "gpus_per_node": "8",
    "precision": "bf16 (see page)",
    "strategy": "FSDP2/DTensor; System: DGX-H100, Precision: BF16",
    "tp": "1",
    "pp": "8",
    "cp": "1",
    "ep": "32",
    "micro_batch": "1",
    "grad_accum": "2",
    "global_batch": "512",
    "step_time_s": "8.86",
    "notes": "kernels: TE + DeepEP; LBS 8",
}
MLPERF = {
    "source": "mlperf-training-v5.0",
    "cite": "mlcommons/training_results_v5.0@0fdc28f0:NVIDIA/results/tyche_ngpu256_ngc25.04_nemo",
    "model": "llama31_405b",
    "layers": "126",
    "seq": "8192",
    "gpu": "NVIDIA Blackwell GPU (GB200)",
    "n_gpus": "256",
    "gpus_per_node": "4",
    "network": "net: 4x ConnectX-7 IB NDR 400Gb/s ; intra: NVLINK Gen5 1800 GB/s",
    "precision": "FP8",
    "strategy": "DP x TP x PP x CP (Megatron/NeMo, distributed optimizer)",
    "dp": "4",
    "tp": "4",
    "pp": "8",
    "cp": "2",
    "micro_batch": "1",
    "grad_accum": "112.0",
    "global_batch": "448",
    "step_time_s": "19.1684",
    "software": "NVIDIA NeMo Framework Release 25.04",
    "notes": "NVIDIA/tyche_ngpu256_ngc25.04_nemo; division closed",
}

UNTIED = "transformer:layers=80,hidden=8192,heads=64,ffn=28672,vocab=131072"
GPT = "vocab=50257,positions=1024,seq=1024,norm=layer,gated=no,bias=all,tied=yes"
ALIBI = "vocab=250880,seq=2048,norm=layer,gated=no,bias=all,tied=yes"
BY_HAND: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "bigscience A100": (
        BLOOM,
        {
            "model": f"transformer:layers=82,hidden=13312,heads=64,{ALIBI}",
            "net": "jean-zay-a100",
            **dict(gpu="a100", gpus=384, gpus_per_node=8, precision="amp-bf16", seq=2048),
            **dict(tp=8, pp=12, schedule="1f1b", sequence_parallel=False, stage_layers=None),
            **dict(batch=4, accumulate=128, recompute="full", software="megatron+unfused"),
            **dict(method="zero", reduce_dtype="fp32"),
        },
    ),
    "bigscience V100": (
        GPT_ON_V100,
        {
            "model": f"transformer:layers=48,hidden=8192,heads=32,{GPT},dropout=yes",
            "net": "jean-zay-v100",
            **dict(gpu="v100", gpus=64, gpus_per_node=4, precision="amp-fp16", seq=1024),
            **dict(tp=4, pp=8, sequence_parallel=False, batch=4, accumulate=128),
            **dict(recompute="full", software="megatron+unfused", method="zero"),
        },
    ),
    "405B in racks": (
        BRIDGE_405B,
        {
            **dict(model="llama3-405b", gpu="gb300", net="gb300-nvl72", precision="fp8"),
            **dict(gpus=256, gpus_per_node=64, tp=4, pp=8, schedule="interleaved"),
            **dict(virtual_stages=4, tp_overlap=True, sequence_parallel=True),
            **dict(batch=1, accumulate=192, recompute="none", software="megatron"),
            **dict(reduce_dtype="bf16"),
        },
    ),
    "experts": (
        BRIDGE_EXPERTS,
        {
            **dict(model="deepseek-v3", gpu="gb200", net="gb200-nvl72", precision="fp8"),
            **dict(tp=1, pp=4, ep=64, schedule="interleaved", virtual_stages=4, tp_overlap=False),
            **dict(stage_layers=(*[4] * 15, 1), batch=1, accumulate=64),
        },
    ),
    "experts captured in a graph": (
        BRIDGE_EXPERTS | {"software": "26.08 NeMo Container"},
        dict(
            dispatcher="hybridep",
            ep_overlap=True,
            software="mlperf",
            method="distributed_optimizer",
        ),
    ),
    "experts of an older container": (
        BRIDGE_EXPERTS | {"software": "26.04 NeMo Container"},
        dict(dispatcher="hybridep", ep_overlap=False, software="megatron"),
    ),
    "experts by NCCL": (
        BRIDGE_EXPERTS | {"model": "GPT OSS 120B", "software": "26.04.01 NeMo Container"},
        dict(dispatcher="alltoall", ep_overlap=True, software="megatron"),
    ),
    "torchtitan": (
        TITAN,
        {
            **dict(model="llama3-405b", gpu="h100-96gb", net="dgx-h100", precision="fp8"),
            **dict(tp=8, pp=8, schedule="interleaved", virtual_stages=2, tp_overlap=True),
            **dict(batch=4, accumulate=8, recompute="full", software="torch2-compiled"),
            **dict(method="fsdp"),
        },
    ),
    "InternEvo": (
        INTERNEVO,
        {
            **dict(model="internlm-7b", gpu="a100", node="dgx-a100", net="dgx-a100"),
            **dict(nics_per_node=4, intra_net=None, tp=2, pp=1, sequence_parallel=False),
            **dict(batch=4, accumulate=4),
        },
    ),
    "nanotron": (
        NANOTRON,
        {
            **dict(model=UNTIED, gpu="h100", net="p5", precision="amp-bf16", seq=4096),
            **dict(tp=4, pp=16, schedule="1f1b", layout="tp-cp-ep-dp-pp", batch=1, accumulate=64),
            **dict(method="zero", options={"stage": 1}, software="torch2"),
        },
    ),
    "Megatron-LM": (
        MEGATRON,
        {
            **dict(model="llama3-70b", gpu="h100", net="dgx-h100", precision="fp8"),
            **dict(tp=4, pp=8, schedule="interleaved", virtual_stages=5, tp_overlap=False),
            **dict(batch=1, accumulate=64, reduce_dtype="bf16"),
        },
    ),
    "AutoModel": (
        AUTOMODEL,
        {
            **dict(model="kimi-k2", gpu="h100", net="dgx-h100", precision="amp-bf16"),
            **dict(pp=8, ep=32, schedule="interleaved", virtual_stages=4),
            **dict(batch=1, accumulate=16, recompute="full", method="fsdp"),
        },
    ),
    "MLPerf": (
        MLPERF,
        {
            **dict(model="llama3-405b", gpu="gb200", net="gb200-nvl72", precision="fp8"),
            **dict(gpus_per_node=64, tp=4, pp=8, cp=2, schedule="interleaved", virtual_stages=8),
            **dict(tp_overlap=True, batch=1, accumulate=112, software="mlperf"),
        },
    ),
}


def read(folder: Path, *runs: Mapping[str, str]) -> list[Case]:
    """Return the cases of a table of runs."""
    return read_cases(table_of_runs(folder, *runs))


def mapped(folder: Path, run: Mapping[str, str]) -> MappedCase:
    """Return the case of one run with its scenarios."""
    source = SourceCases(read(folder, run), rules_of(SHIPPED), SHIPPED)
    return map_case(source.cases[0], source)


@pytest.mark.parametrize("name", BY_HAND)
def test_a_real_row_asks_what_its_source_ran(tmp_path: Path, name: str) -> None:
    run, wanted = BY_HAND[name]
    found = mapped(tmp_path, run)
    assert (found.role, found.reason) == ("test", "")
    asked = found.scenarios["blind"].model_dump()
    assert {field: asked[field] for field in wanted} == wanted
    # Nothing that other runs measured of whole models sets its computation.
    assert asked["single_gpu"] is None
    build_model(asked["model"], asked["seq"])


def test_a_megatron_run_has_its_distributed_optimizer(tmp_path: Path) -> None:
    """One rule says which method it is, whatever the source."""
    runs = (BRIDGE_405B, BRIDGE_EXPERTS, MEGATRON, MLPERF)
    asked = [mapped(tmp_path, run).scenarios["blind"] for run in runs]
    assert {one.method for one in asked} == {"distributed_optimizer"}
    assert len({str(one.options) for one in asked}) == 1
    sharded = mapped(tmp_path, BRIDGE_405B | {"fsdp": "1", "strategy": "FSDP x TP"})
    assert sharded.scenarios["blind"].method == "fsdp"


@pytest.mark.parametrize(
    ("run", "cells", "metric", "value"),
    [
        # 2048 samples in 111.79 s; 1024 in 104 s.
        (BLOOM, {}, "throughput", 2048 / 111.79),
        (GPT_ON_V100, {}, "throughput", 1024 / 104),
        # 1048 tokens/s on each of 256 GPUs, by the step time that the row states.
        (BRIDGE_405B, {}, "throughput", 1536 / 46.9008),
        (BRIDGE_405B, {"step_time_s": ""}, "throughput", 1048 * 256 / 8192),
        # 30.75 % of 989.5 TFLOP/s, by nanotron's count.
        (NANOTRON, {}, "flops_per_gpu_products", 0.3075 * 989.5e12),
        # A step of one micro-batch is told by its time.
        (INTERNEVO, {"grad_accum": "1", "global_batch": "512"}, "iteration_s", 4.4851),
        # Milliseconds as printed: 4 micro-batches of 1.
        (
            GPT_ON_V100,
            {
                **{"dp": "1", "n_gpus": "32", "micro_batch": "1", "grad_accum": "4"},
                **{"global_batch": "", "step_time_s": "", "notes": "raw: Throughput=1439ms"},
            },
            "throughput",
            4 / 1.439,
        ),
    ],
)
def test_what_was_measured_is_converted_by_the_source_s_own_rule(
    tmp_path: Path, run: dict[str, str], cells: dict[str, str], metric: str, value: float
) -> None:
    (case,) = read(tmp_path, run | cells)
    assert case.metric == metric and case.value == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ({"dp": "3"}, "degrees of parallelism contradict the number of GPUs"),
        ({"tp": "5", "dp": ""}, "degrees of parallelism contradict the number of GPUs"),
        ({"ep": "48"}, "degrees of parallelism contradict the number of GPUs"),
        ({"tp": "", "strategy": "Megatron TP x PP"}, "degree of tensor parallelism not stated"),
        ({"strategy": "Megatron DualPipe"}, "pipeline schedule DualPipe"),
        ({"strategy": "Megatron V-Min"}, "pipeline schedule V-Min"),
        ({"global_batch": "7", "grad_accum": ""}, "micro-batches of an iteration are no whole"),
        ({"strategy": "Megatron, CPU offload"}, "offloading to the CPU"),
        ({"activation_checkpointing": "every 4th layer"}, "activation checkpointing of some"),
        ({"micro_batch": "", "grad_accum": "", "global_batch": ""}, "batch not stated"),
    ],
)
def test_what_is_not_stated_or_not_run_is_missing(
    tmp_path: Path, cells: dict[str, str], what: str
) -> None:
    found = mapped(tmp_path, MEGATRON | {"step_time_s": "10", "dp": "2"} | cells)
    assert found.role == "missing" and found.reason.startswith(what)


def test_runs_of_adapters_are_told_by_their_table(tmp_path: Path) -> None:
    tuned = AUTOMODEL | {"model": "Llama3 70B", "pp": "1", "ep": "-", "tp": "2"}
    tuned |= {"n_gpus": "8", "notes": "kernels: TE + triton + fsdp2_prefetch; LBS 2"}
    asked = mapped(tmp_path, tuned).scenarios["blind"]
    assert (asked.model, asked.lora, asked.lora_layers) == ("llama3-70b", 16, "all")
    assert asked.recompute == "full" and asked.tp == 2


def run_of(**cells: str) -> TrainingRun:
    """Return a run of these cells."""
    return TrainingRun(cells)


def test_equal_shares_of_racks_are_nodes() -> None:
    sizes = {256: 64, 72: 72, 64: 64, 128: 64, 36: 36, 144: 72, 100: 50}
    for gpus, each in sizes.items():
        assert run_of(n_gpus=str(gpus), nvlink_domain="72").gpus_per_node == each
    assert run_of(n_gpus="16", gpus_per_node="8").gpus_per_node == 8


DEGREES = st.sampled_from([1, 2, 4, 8])


@given(DEGREES, DEGREES, st.integers(1, 16), st.integers(1, 8), st.integers(1, 64))
def test_a_global_batch_is_that_of_all_micro_batches(
    tp: int, pp: int, replicas: int, micro: int, count: int
) -> None:
    run = run_of(
        n_gpus=str(tp * pp * replicas),
        tp=str(tp) if tp > 1 else "",
        strategy=f"PP{pp}" if pp > 1 else "DDP",
        grad_accum=str(count),
        micro_batch="",
        global_batch=str(micro * count * replicas),
    )
    assert (run.micro_batches, run.batch_per_gpu) == (count, micro)


def test_a_fact_s_numbers_come_before_the_row_s(tmp_path: Path) -> None:
    small = BLOOM | {"params": "20B", "hidden": "14400", "layers": "80", "heads": "96"}
    small |= {"n_gpus": "8", "dp": "1", "pp": "1", "tp": "8", "micro_batch": "1"}
    (case,) = read(tmp_path, small)
    assert f"transformer:layers=8,hidden=14400,heads=32,{ALIBI}, 2048 tokens" in case.model


@given(DEGREES, DEGREES, DEGREES, st.integers(1, 16), st.integers(1, 8), st.integers(1, 64))
def test_micro_batches_and_replicas_make_the_global_batch(
    tp: int, pp: int, cp: int, replicas: int, micro: int, count: int
) -> None:
    run = run_of(
        n_gpus=str(tp * pp * cp * replicas),
        tp=str(tp),
        strategy=f"PP{pp} x CP={cp}",
        micro_batch=str(micro),
        global_batch=str(micro * count * replicas),
        step_time_s="2",
    )
    assert (run.replicas, run.micro_batches, run.batch_per_gpu) == (replicas, count, micro)
    assert not run.contradicts_itself
    metric, value = run.result
    samples = micro * count * replicas
    assert (metric, value) == (("throughput", samples / 2) if count > 1 else ("iteration_s", 2.0))
    assert run.split.count("=") == sum(degree > 1 for degree in (tp, pp, cp))


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 16))
def test_a_local_batch_is_cut_into_chunks(each: int, chunks: int, steps: int) -> None:
    run = run_of(
        **{"n_gpus": "64", "pp": "8", "dp": "8", "micro_batch": str(each * chunks)},
        **{"grad_accum": str(steps), "chunks": str(chunks)},
    )
    assert (run.batch_per_gpu, run.micro_batches) == (each, steps * chunks)


@pytest.mark.parametrize(
    ("strategy", "schedule", "chunks"),
    [
        ("Megatron, VP 5", "interleaved", 5),
        ("PP 1F1B", "1f1b", 1),
        ("AFAB", "gpipe", 1),
        ("PP algorithm zero-bubble VPP 1", "zb-h1", 1),
        ("PP algorithm zbv-formatted VPP 2", "zbv", 2),
        ("PP Interleaved 1F1B", "interleaved", 1),
    ],
)
def test_schedules_are_told_by_their_words(strategy: str, schedule: str, chunks: int) -> None:
    run = run_of(n_gpus="64", pp="4", strategy=strategy)
    assert (run.schedule, run.virtual_stages) == (schedule, chunks)
    said = "" if schedule == "1f1b" else f"; schedule={schedule}"
    said += f"; virtual_stages={chunks}" if schedule == "interleaved" and chunks > 1 else ""
    assert run.split == f"pp=4{said}"
