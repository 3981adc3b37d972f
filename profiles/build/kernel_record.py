"""Judge the times of single kernels on shapes and GPUs left out, and make the tables behind them.

    python profiles/build/kernel_record.py --data ../shared/data [--tables] [--write]

``--tables`` fits ``profiles/devices/<gpu>.products.csv`` (27 ratios to the roofline a precision);
``--write`` stores the errors in ``profiles/measurements/kernels.csv``. Errors are of the time,
|predicted / measured - 1|; what is said to be left out is not used for its prediction. Ways to know
a GPU: ``table`` (its own products, other shapes), ``rate`` (one best rate that somebody published,
times what the others' large products reach of theirs; all else from other GPUs) and ``sheet`` (its
data sheet alone: the share of the peak that other GPUs reach).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perfsim.compute.attention import ATTENTION
from perfsim.compute.device import Device, load_device
from perfsim.compute.kernel_time import KernelRates, kernel_rates, work_time
from perfsim.compute.single_kernels import (
    PRODUCTS_COLUMNS,
    PRODUCTS_SCHEMA,
    PRODUCTS_SUFFIX,
    KernelTimes,
    ProductRatios,
    kernel_times,
    product_roofline,
)
from perfsim.compute.work import Work, work_of
from perfsim.data.catalog import Catalog
from perfsim.models.layers import ModelLayer
from perfsim.models.transformers import GPT3_2_7B, GPT3_XL, OPT_1_3B, DecoderSize, bert, decoder
from perfsim.session import Session

_GEMM_GPUS = {
    "a100_sxm": "a100",
    "h100_sxm": "h100",
    "h200_sxm": "h200",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200",
    "l40s": "l40s",
}
_TABLED_ONLY = {"gb300": "gb300"}
"""Systems that get a table of their own near those of the others, which stay as they are."""
_LINEAR_GPUS = {
    "NVIDIA A100 80GB PCIe": "a100-pcie",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA L4": "l4",
    "Tesla P100-PCIE-16GB": "p100",
    "Tesla T4": "t4",
    "Tesla V100-PCIE-32GB": "v100-pcie",
}
_LAYER_GPUS = {
    "AMD_Instinct_MI100": "mi100",
    "AMD_Instinct_MI210": "mi210",
    "AMD_Instinct_MI250": "mi250",
    "NVIDIA_A100_80GB_PCIe": "a100-pcie",
    "NVIDIA_H100_80GB_HBM3": "h100",
    "NVIDIA_L4": "l4",
    "Tesla_V100-PCIE-32GB": "v100-pcie",
}
_CUDNN_GPUS = {"NVIDIA H200": "h200", "NVIDIA GB200": "gb200", "NVIDIA GB300": "b300"}
"""GB300's GPU is that of the B300, at another power limit; its rate of products is in gemm.csv."""
_BEST_NAMES = {
    "a100": "NVIDIA A100 SXM",
    "h100": "NVIDIA H100 SXM",
    "h200": "NVIDIA H100 SXM",
    "b200": "NVIDIA B200 SXM",
    "b300": "NVIDIA B300 SXM",
    "gb200": "NVIDIA GB200 SXM",
}
"""The accelerator whose best rate is a GPU's ("H200 is the same", says the H100's row)."""
_PRECISIONS = {"bfloat16": "amp-bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
_NODES = {
    "m": (512.0, 4096.0, 32768.0),
    "n": (1024.0, 8192.0, 65536.0),
    "k": (1024.0, 8192.0, 65536.0),
}
_LARGE = 1e12
"""Operations of a product that shows a GPU's rate (5 GFLOP for fp32, in which few reach 1e12)."""
_LARGE_FP32 = 5e9
_NEUSIGHT_OP_MS = 0.0065
_NEUSIGHT_ERA = "torch1.12"
"""Eager PyTorch with attention as products: Hugging Face's code of then."""
_SOURCES = {
    "amp-bf16": "ai-dynamo/aiconfigurator@095f58a gemm_perf (Apache-2.0), TensorRT-LLM",
    "fp8": "ai-dynamo/aiconfigurator@095f58a gemm_perf (Apache-2.0), TensorRT-LLM",
    "nvfp4": "ai-dynamo/aiconfigurator@095f58a gemm_perf (Apache-2.0), TensorRT-LLM",
    "fp32": "sitar-lab/NeuSight@6945927 scripts/asplos/data/dataset/test/linear.csv (MIT)",
}


class Errors(NamedTuple):
    """ln(predicted / measured) of rows that one way of knowing predicts."""

    kernel: str
    left_out: str
    known: str
    values: Sequence[float]


class Products(NamedTuple):
    """Measured products of one GPU at one precision: sizes as columns, times [s]."""

    gpu: str
    precision: str
    sizes: np.ndarray
    seconds: np.ndarray

    def where(self, mask: np.ndarray) -> Products:
        """Return some of its rows."""
        return self._replace(sizes=self.sizes[mask], seconds=self.seconds[mask])


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _timed_products(data: Path, gpus: Mapping[str, str]) -> dict[tuple[str, str], list[Any]]:
    """Return sizes and times of the half-precision products of some systems."""
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for cells in _table(data / "modern" / "gemm.csv"):
        if cells["system"] in gpus and cells["dtype"] in _PRECISIONS:
            key = gpus[cells["system"]], _PRECISIONS[cells["dtype"]]
            found[key].append(tuple(float(cells[name]) for name in ("m", "n", "k", "latency_ms")))
    return found


def _grouped(found: Mapping[tuple[str, str], Sequence[Any]]) -> list[Products]:
    made = []
    for (gpu, precision), rows in found.items():
        array = np.array(rows)
        made.append(Products(gpu, precision, array[:, :3], array[:, 3] / 1e3))
    return made


def products(data: Path) -> list[Products]:
    """Return all measured products by GPU and precision."""
    found = _timed_products(data, _GEMM_GPUS)
    for cells in _table(data / "profiles" / "neusight_linear.csv"):
        key = _LINEAR_GPUS[cells["device"]], "fp32"
        found[key].append(tuple(float(cells[name]) for name in ("M", "N", "K", "latency_ms")))
    return _grouped(found)


def _large_rate(group: Products) -> float:
    """Return the median rate of a group's large products [FLOP/s]."""
    flops = 2.0 * group.sizes.prod(axis=1)
    large = flops >= (_LARGE_FP32 if group.precision == "fp32" else _LARGE)
    return float(np.median(flops[large] / group.seconds[large]))


def _with_rate(device: Device, precision: str, rate: float) -> Device:
    known = device.rates[precision]._replace(value=rate)
    return replace(device, rates={**device.rates, precision: known})


def _over_roofline(group: Products, device: Device) -> np.ndarray:
    """Return ln(measured / roofline) of a group's rows."""
    by_roofline = [
        product_roofline(device, int(m), int(n), int(k), group.precision) for m, n, k in group.sizes
    ]
    return np.asarray(np.log(group.seconds / np.array(by_roofline)))


def _hat(sizes: np.ndarray, nodes: Sequence[float]) -> np.ndarray:
    """Return each size's weights of the nodes about it, linear in the logarithm."""
    places = np.interp(np.log(sizes), np.log(nodes), np.arange(len(nodes)))
    return np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(len(nodes))))


def _weights(sizes: np.ndarray) -> np.ndarray:
    sides = (_hat(sizes[:, side], nodes) for side, nodes in enumerate(_NODES.values()))
    return np.asarray(np.einsum("ra,rb,rc->rabc", *sides)).reshape(len(sizes), -1)


def _fit_nodes(weights: np.ndarray, logs: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return the nodes' logarithms, near others; absolute errors beyond 2 % count linearly."""
    nodes, rows = near, np.ones(len(logs))
    for _ in range(8):
        squares = weights.T @ (weights * rows[:, None]) + np.eye(weights.shape[1])
        nodes = near + np.linalg.solve(squares, weights.T @ (rows * (logs - weights @ near)))
        rows = 0.02 / np.maximum(np.abs(logs - weights @ nodes), 0.02)
    return nodes


def _ratios(nodes: np.ndarray) -> ProductRatios:
    m, n, k = _NODES.values()
    sizes = [(a, b, c) for a in m for b in n for c in k]
    return ProductRatios(m, n, k, dict(zip(sizes, map(float, nodes), strict=True)))


def _shared(groups: Sequence[Products], devices: Mapping[str, Device]) -> np.ndarray:
    """Return the nodes that fit several GPUs at one precision, each at its own rate."""
    logs = []
    for group in groups:
        device = _with_rate(devices[group.gpu], group.precision, _large_rate(group))
        logs.append(_over_roofline(group, device))
    weights = np.concatenate([_weights(group.sizes) for group in groups])
    return _fit_nodes(weights, np.concatenate(logs), np.zeros(weights.shape[1]))


def _off(group: Products, times: KernelTimes) -> list[float]:
    predicted = [
        times.product(int(m), int(n), int(k), group.precision).seconds for m, n, k in group.sizes
    ]
    return [math.log(one / two) for one, two in zip(predicted, group.seconds, strict=True)]


def _shape_splits(group: Products, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    m, n, k = group.sizes.T
    yield "random 20 %", np.random.default_rng(seed).random(len(m)) < 0.2
    yield "largest m", m == m.max()
    yield "n >= 16384", n >= 16384
    yield "k >= 12288", k >= 12288


def judge_products(data: Path, catalog: Catalog) -> Iterator[Errors]:
    """Yield errors of products: shapes left out, and GPUs left out by rate and by data sheet."""
    every = products(data)
    best = {
        (cells["accelerator"], cells["dtype"]): 1e12 * float(cells["mamf_tflops"])
        for cells in _table(data / "modern" / "matmul_peaks_and_memory.csv")
        if cells["mamf_tflops"]
    }
    devices = {group.gpu: load_device(group.gpu, catalog) for group in every}
    for precision in _SOURCES:
        groups = [group for group in every if group.precision == precision]
        collected: dict[tuple[str, str], list[float]] = defaultdict(list)
        for seed, group in enumerate(groups):
            others = [other for other in groups if other is not group]
            near = _shared(others, devices)
            for split, out in _shape_splits(group, seed):
                kept = group.where(~out)
                device = _with_rate(devices[group.gpu], precision, _large_rate(kept))
                nodes = _fit_nodes(_weights(kept.sizes), _over_roofline(kept, device), near)
                plain, own = KernelTimes(device, {}, {}), {precision: _ratios(nodes)}
                asked = group.where(out)
                collected[split, "table"] += _off(asked, KernelTimes(device, own, {}))
                collected[split, "plateau alone"] += _off(asked, plain)
            shared = {precision: _ratios(near)}
            for known, rate in _rates_left_out(group, others, best, catalog):
                device = _with_rate(devices[group.gpu], precision, rate)
                collected["GPU", known] += _off(group, KernelTimes(device, {}, shared))
        for (split, known), values in collected.items():
            yield Errors(f"product {precision}", split, known, values)


def _peak(gpu: str, precision: str, catalog: Catalog) -> float:
    """Return the peak of a GPU's data sheet, as its file states it [FLOP/s]."""
    table = tomllib.loads(catalog.files("devices")[gpu].read_text(encoding="utf-8"))
    number, unit = table["rates"][precision]["peak"].split()
    return float(number) * {"TFLOP/s": 1e12, "GFLOP/s": 1e9}[unit]


def _rates_left_out(
    group: Products,
    others: Sequence[Products],
    best: Mapping[tuple[str, str], float],
    catalog: Catalog,
) -> Iterator[tuple[str, float]]:
    """Yield a GPU's rate as one best rate gives it, and as its data sheet gives it."""
    precision = group.precision
    word = {"amp-bf16": "BF16", "fp8": "FP8"}.get(precision, "")

    def best_of(gpu: str) -> float | None:
        return best.get((_BEST_NAMES.get(gpu, ""), word))

    known = best_of(group.gpu)
    reached = [
        _large_rate(other) / found for other in others if (found := best_of(other.gpu)) is not None
    ]
    if known is not None and reached:
        yield "rate", known * statistics.mean(reached)
    shares = [_large_rate(other) / _peak(other.gpu, precision, catalog) for other in others]
    yield "sheet", statistics.median(shares) * _peak(group.gpu, precision, catalog)


def judge_attention(data: Path, catalog: Catalog) -> Iterator[Errors]:
    """Yield errors of fused attention: the shipped rate, sequences left out, GPUs left out.

    With a sequence or a GPU left out, one number is known or taken from other GPUs: the median of
    what the shipped formula is off there.
    """
    off: dict[tuple[str, str, str], list[tuple[int, float]]] = defaultdict(list)
    for cells in _table(data / "modern" / "attention_forward.csv"):
        times = kernel_times(_GEMM_GPUS[cells["system"]], catalog)
        if int(cells["head_dim"]) > 256:
            continue
        predicted = times.attention(
            *(int(cells[name]) for name in ("batch", "seq", "q_heads", "head_dim")),
            kv_heads=int(cells["kv_heads"]),
            kernel="serving",
        )
        value = math.log(predicted.seconds / (float(cells["latency_ms"]) / 1e3))
        key = ("attention serving forward", times.device.architecture, times.device.name)
        off[key].append((int(cells["seq"]), value))
    gb300 = _gb300(data, catalog)
    for cells in _table(data / "modern" / "attention_both_passes.csv"):
        if cells["dtype"] != "bfloat16" or cells["deterministic"] == "True":
            continue
        gpu = cells["gpu"]
        times = gb300 if "GB300" in gpu else kernel_times(_CUDNN_GPUS[gpu], catalog)
        backward = cells["pass_"] == "bwd"
        predicted = times.attention(
            int(cells["batch"]),
            int(cells["q_seq"]),
            int(cells["q_heads"]),
            (int(cells["d_qk"]) + int(cells["d_vo"])) // 2,
            kv_heads=int(cells["kv_heads"]),
            causal=cells["mask"] == "top_left",
            window=int(cells["window"]) if cells["window"] else None,
            backward=backward,
            kernel="cudnn",
        )
        value = math.log(predicted.seconds / (float(cells["time_ms"]) / 1e3))
        name = "attention cudnn " + ("backward" if backward else "forward")
        name += " of a window" if cells["window"] else ""
        off[name, times.device.architecture, times.device.name].append((int(cells["q_seq"]), value))
    for kernel in dict.fromkeys(key[0] for key in off):
        mine = {key[1:]: rows for key, rows in off.items() if key[0] == kernel}
        all_rows = [value for rows in mine.values() for _, value in rows]
        yield Errors(kernel, "none (as shipped)", "table", all_rows)
        for split, out in _SEQUENCES.items():
            values: list[float] = []
            for rows in mine.values():
                kept = [value for tokens, value in rows if not out(tokens)]
                values += [value - statistics.median(kept) for tokens, value in rows if out(tokens)]
            yield Errors(kernel, split, "table", values)
        same, other = [], []
        for (architecture, gpu), rows in mine.items():
            alike = _medians(mine, lambda at, gpu=gpu, a=architecture: at[1] != gpu and at[0] == a)
            unlike = _medians(mine, lambda at, a=architecture: at[0] != a)
            rates = {at: _attention_share(kernel, at[0]) for at in mine}
            if alike:
                same += [value - statistics.median(alike.values()) for _, value in rows]
            if unlike:
                borrowed = statistics.median(
                    math.log(rates[architecture, gpu] / rates[at]) - value
                    for at, value in unlike.items()
                )
                other += [value + borrowed for _, value in rows]
        if same:
            yield Errors(kernel, "GPU, architecture measured", "rate", same)
        if other:
            yield Errors(kernel, "architecture", "sheet", other)


def _gb300(data: Path, catalog: Catalog) -> KernelTimes:
    """Return the B300 at the rate of large products that was measured on GB300."""
    rows = [
        tuple(float(cells[name]) for name in ("m", "n", "k", "latency_ms"))
        for cells in _table(data / "modern" / "gemm.csv")
        if cells["system"] == "gb300" and cells["dtype"] == "bfloat16"
    ]
    array = np.array(rows)
    group = Products("b300", "amp-bf16", array[:, :3], array[:, 3] / 1e3)
    device = _with_rate(load_device("b300", catalog), "amp-bf16", _large_rate(group))
    return KernelTimes(device, {}, {})


def _medians(
    groups: Mapping[tuple[str, str], list[tuple[int, float]]],
    use: Callable[[tuple[str, str]], bool],
) -> dict[tuple[str, str], float]:
    return {
        at: statistics.median(value for _, value in rows) for at, rows in groups.items() if use(at)
    }


def _attention_share(kernel: str, architecture: str) -> float:
    rate = ATTENTION[kernel.split()[1], architecture]
    return rate.backward if "backward" in kernel else rate.forward


_SEQUENCES: dict[str, Callable[[int], bool]] = {
    "sequences >= 8192": lambda tokens: tokens >= 8192,
    "sequences <= 2048": lambda tokens: tokens <= 2048,
}


def judge_memory(data: Path, catalog: Catalog) -> Iterator[Errors]:
    """Yield errors of normalisations and element-wise kernels, as shipped and a GPU left out."""
    norms: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    backends = {"cudnn": "cudnn", "pytorch": "eager", "torch_compile": "compiled"}
    for cells in _table(data / "modern" / "norms.csv"):
        times = kernel_times(_CUDNN_GPUS[cells["gpu"]], catalog)
        for column, backward in (("fwd_ms", False), ("bwd_ms", True)):
            predicted = times.norm(
                int(cells["N"]),
                int(cells["C"]),
                backward=backward,
                kernel=backends[cells["backend"]],
            )
            name = f"norm {backends[cells['backend']]} {'backward' if backward else 'forward'}"
            value = math.log(predicted.seconds / (float(cells[column]) / 1e3))
            norms[name][times.device.name].append(value)
    for name, gpus in norms.items():
        yield from _one_left_out(name, gpus)
    elements: dict[str, list[float]] = defaultdict(list)
    by_sheet: dict[str, list[float]] = defaultdict(list)
    for cells in _table(data / "profiles" / "neusight_elementwise_bandwidth.csv"):
        times = kernel_times(_LINEAR_GPUS[cells["device"]], catalog)
        moved = (12.0 if cells["op"] == "add" else 8.0) * float(cells["elements"])
        value = math.log(times.stream(moved).seconds / (float(cells["latency_ms"]) / 1e3))
        elements[times.device.name].append(value)
        reached = times.device.memory_bandwidth.value / _SHEET_BANDWIDTH[times.device.name]
        by_sheet[times.device.name].append(value + math.log(reached))
    flat = [value for values in elements.values() for value in values]
    yield Errors("element-wise fp32", "none (as shipped)", "rate", flat)
    out = []
    for gpu, values in by_sheet.items():
        others = [statistics.median(rows) for name, rows in by_sheet.items() if name != gpu]
        out += [value - statistics.median(others) for value in values]
    yield Errors("element-wise fp32", "GPU", "sheet", out)


_SHEET_BANDWIDTH = {
    "a100-pcie": 1935e9,
    "a100-pcie-40gb": 1555e9,
    "l4": 300e9,
    "p100": 732e9,
    "t4": 320e9,
    "v100-pcie": 900e9,
}
"""NVIDIA's data sheets [B/s], as ``profiles/devices/*.toml`` quote them (V100: v100.toml)."""


def _one_left_out(
    name: str, gpus: Mapping[str, list[float]], known: str = "sheet"
) -> Iterator[Errors]:
    """Yield errors as shipped, and with the level of each GPU taken from the others."""
    shipped = [one for rows in gpus.values() for one in rows]
    yield Errors(name, "none (as shipped)", "table", shipped)
    out = []
    for gpu, values in gpus.items():
        others = [one for other, rows in gpus.items() if other != gpu for one in rows]
        out += [value - statistics.median(others) for value in values]
    yield Errors(name, "GPU", known, out)


_DECODERS: dict[str, DecoderSize] = {
    "gpt2_large": DecoderSize(1280, 36, 20),
    "gpt3_xl": GPT3_XL,
    "gpt3_27": GPT3_2_7B,
    "opt_13": OPT_1_3B,
}


def _layers_of(model: str, tokens: int, depth: int | None) -> tuple[ModelLayer, ...] | None:
    """Return a network of NeuSight's with so many blocks, None where we define none."""
    if model == "bert_large":
        return bert("large", tokens=tokens, depth=depth)
    if model not in _DECODERS:
        return None
    size = _DECODERS[model]
    return decoder(model, size if depth is None else size._replace(depth=depth), tokens)


def judge_layers(data: Path, catalog: Catalog) -> Iterator[Errors]:
    """Yield errors of NeuSight's layers and iterations (fp32, eager), kernels in place or alone.

    A layer's rows are the network with one block: the sum of its operators, less 6.5 us an operator
    for the timing events. A whole iteration counts where its forward pass is shorter than 0.66 of
    its backward pass; others hold a warm-up. In place, as ``kernel_time`` prices iterations, or
    products as single kernels. With a GPU left out, its products have no table of their own (its
    rate of large products is known), and times are multiplied by what the other GPUs' are off.
    """
    measured: dict[str, list[_Iteration]] = defaultdict(list)
    sums: dict[tuple[str, str, int, int], float] = defaultdict(float)
    for cells in _table(data / "modern" / "layers_training_neusight.csv"):
        key = (_LAYER_GPUS[cells["gpu"]], cells["model"], int(cells["seq"]), int(cells["batch"]))
        for column in ("fw_ms", "bw_ms"):
            sums[key] += max(0.0, float(cells[column] or 0) - _NEUSIGHT_OP_MS) / 1e3
    measured["layers"] = [_Iteration(*key, 1, seconds) for key, seconds in sums.items()]
    for cells in _table(data / "modern" / "whole_iterations_neusight.csv"):
        known = cells["gpu"] in _LAYER_GPUS and cells["tag"] == "" and cells["mode"] == "train"
        if not known or _layers_of(cells["model"], int(cells["seq"]), None) is None:
            continue
        values = json.loads(cells["values"])
        sound = values["fw_latency"] < 0.66 * values["bwall_latency"]
        measured["iterations" if sound else "iterations, forward too long"].append(
            _Iteration(
                _LAYER_GPUS[cells["gpu"]],
                cells["model"],
                int(cells["seq"]),
                int(cells["batch"]),
                None,
                values["e2e_latency"] / 1e3,
            )
        )
    for name, rows in measured.items():
        for way in ("in place", "alone"):
            shipped: list[float] = []
            by_gpu: dict[str, list[float]] = defaultdict(list)
            for row in rows:
                shipped.append(math.log(_priced(row, catalog, way, own=True) / row.seconds))
                off = math.log(_priced(row, catalog, way, own=False) / row.seconds)
                by_gpu[row.gpu].append(off)
            yield Errors(f"{name} fp32, kernels {way}", "none (as shipped)", "table", shipped)
            yield list(_one_left_out(f"{name} fp32, kernels {way}", by_gpu, "rate"))[1]


class _Iteration(NamedTuple):
    """A measured pass forward and backward of one of NeuSight's networks."""

    gpu: str
    model: str
    tokens: int
    batch: int
    depth: int | None
    seconds: float


def _priced(row: _Iteration, catalog: Catalog, way: str, *, own: bool) -> float:
    """Return an iteration by its kernels [s]; its element-wise ones are what its era's passes are.

    The passes of eager kernels are of PyTorch 2.1, as these rows are: no factor for older code.
    """
    layers = _layers_of(row.model, row.tokens, row.depth)
    assert layers is not None
    times = kernel_times(row.gpu, catalog)
    rates = kernel_rates(times.device, "fp32", _NEUSIGHT_ERA)._replace(casts=1.0)
    work = work_of(layers, _NEUSIGHT_ERA)
    if way == "in place":
        return work_time(work, row.batch, rates, update=False).passes_s
    times = times if own else times._replace(own={})
    return sum(
        _alone(times, layer.forward, row.batch, rates, backward=False)
        + _alone(times, layer.backward, row.batch, rates, backward=True)
        for layer in work.layers
    )


def _alone(
    times: KernelTimes, works: Sequence[Work], batch: int, rates: KernelRates, *, backward: bool
) -> float:
    """Return the time of kernels [s], products as single ones: backward by input, then weight."""
    seconds, products = 0.0, 0
    for work in works:
        if work.kind != "product":
            seconds += rates.seconds(work, batch, True)
            continue
        k, n = round(work.inner), round(work.weights / work.inner)
        m = max(1, round(work.flops * batch / (2.0 * n * k)))
        sizes = (m, n, k) if not backward else (m, k, n) if products == 0 else (k, n, m)
        seconds += times.product(*sizes, "fp32").seconds
        products += 1
    return seconds


def rows_of(found: Errors) -> dict[str, str]:
    """Return a row of the record: how many, and the median, 90th percentile and bias of errors."""
    rising = sorted(abs(math.expm1(value)) for value in found.values)
    ninth = rising[min(len(rising) - 1, int(0.9 * len(rising)))]
    return {
        "kernel": found.kernel,
        "left_out": found.left_out,
        "known": found.known,
        "rows": str(len(rising)),
        "median": f"{statistics.median(rising):.3f}",
        "ninetieth": f"{ninth:.3f}",
        "bias": f"{math.expm1(statistics.median(found.values)):+.3f}",
    }


def judge(data: Path, catalog: Catalog) -> Iterator[dict[str, str]]:
    """Yield all rows of the record."""
    for part in (judge_products, judge_attention, judge_memory, judge_layers):
        for found in part(data, catalog):
            yield rows_of(found)


def write_tables(data: Path, catalog: Catalog, folder: Path) -> None:
    """Fit and write the tables of ratios, of each GPU and of all."""
    every, more = products(data), _grouped(_timed_products(data, _TABLED_ONLY))
    devices = {group.gpu: load_device(group.gpu, catalog) for group in (*every, *more)}
    lines: dict[str, list[str]] = defaultdict(list)
    for precision in _SOURCES:
        groups = [group for group in every if group.precision == precision]
        shared = _shared(groups, devices)
        lines["any"] += _lines(precision, shared)
        for group in groups:
            near = _shared([other for other in groups if other is not group], devices)
            logs = _over_roofline(group, devices[group.gpu])
            lines[group.gpu] += _lines(precision, _fit_nodes(_weights(group.sizes), logs, near))
        for group in (group for group in more if group.precision == precision):
            logs = _over_roofline(group, devices[group.gpu])
            lines[group.gpu] += _lines(precision, _fit_nodes(_weights(group.sizes), logs, shared))
    for gpu, body in lines.items():
        sources = dict.fromkeys(
            source for key, source in _SOURCES.items() if any(row.startswith(key) for row in body)
        )
        head = [
            f"# schema: {PRODUCTS_SCHEMA}",
            f"# gpu: {gpu}",
            "# what: time of a product m x k by k x n over what the GPU's rate of large products"
            " and its bandwidth give (fitted by profiles/build/kernel_record.py --tables)",
            f"# source: {'; '.join(sources)}",
            ",".join(PRODUCTS_COLUMNS),
        ]
        (folder / f"{gpu}{PRODUCTS_SUFFIX}").write_text("\n".join([*head, *body]) + "\n")


def _lines(precision: str, nodes: np.ndarray) -> list[str]:
    return [
        f"{precision},{m:.0f},{n:.0f},{k:.0f},{math.exp(value):.3f},fitted"
        for (m, n, k), value in _ratios(nodes).logarithms.items()
    ]


def main() -> None:
    """Judge, and write what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--tables", action="store_true", help="fit the tables of products anew")
    parser.add_argument("--write", action="store_true", help="store the record")
    options = parser.parse_args()
    shipped = Path(__file__).resolve().parents[1]
    if options.tables:
        write_tables(options.data, Session(), shipped / "devices")
    found = list(judge(options.data, Session()))
    for row in found:
        print(
            f"{row['kernel']:40s} {row['left_out']:27s} {row['known']:14s} {row['rows']:>6s}"
            f"  median {float(row['median']):6.1%}  90th {float(row['ninetieth']):6.1%}"
            f"  bias {float(row['bias']):+6.1%}"
        )
    if options.write:
        path = shipped / "measurements" / "kernels.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
