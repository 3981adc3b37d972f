"""The collected figures that profiles and anchors were made from, where this checkout has them."""

from __future__ import annotations

import csv

import pytest

from support.paths import ROOT

COLLECTED = ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not COLLECTED.is_dir(), reason="the collected figures are not in this checkout"
)


def table(name: str) -> list[dict[str, str]]:
    """Return the rows of one collected table."""
    lines = (COLLECTED / "profiles" / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if line[:1] != "#"))


Found = dict[tuple[str, str, str, int], list[float]]


def mxnet() -> Found:
    """Collect Apache MXNet's training page, by GPU, model, precision and batch [ms]."""
    found: Found = {}
    for row in table("mxnet_training_by_batch"):
        key = (row["gpu"].lower(), row["model"].replace("_", "-"), "fp32", int(row["batch"]))
        found[key] = [float(row["batch"]) / float(row["img_per_s"]) * 1e3]
    return found


def tensorflow() -> Found:
    """Collect TensorFlow's benchmark page: one GPU, synthetic data, several machines."""
    found: Found = {}
    for row in table("tensorflow_benchmarks_2017"):
        if (row["data"], row["gpus"]) == ("synthetic", "1"):
            gpu = "p100" if "P100" in row["cluster"] else "k80"
            batch = int(row["batch_per_gpu"])
            key = (gpu, row["model"].replace("_", "-"), "fp32", batch)
            found.setdefault(key, []).append(batch / float(row["img_per_s"]) * 1e3)
    return found


def timm() -> Found:
    """Collect timm's training table of an RTX 3090, without channels last."""
    names = {"vit-base-patch16-224": "vit-b16", "vit-large-patch16-224": "vit-l16"}
    found: Found = {}
    for row in table("timm_train_rtx3090"):
        if "-nchw-" in row["file"]:
            model = row["model"].replace("_", "-")
            key = ("rtx3090", names.get(model, model), "amp-fp16", int(row["batch"]))
            found[key] = [float(row["step_ms"])]
    return found


def torchvision() -> Found:
    """Collect the medians of torchvision's networks on one A100 in TF32."""
    found: Found = {}
    for row in table("torchvision_train_a100_dp"):
        if (row["gpus"], row["precision"]) == ("1", "float"):
            key = ("a100", row["model"], "tf32", int(row["batch_per_gpu"]))
            found[key] = [float(row["iter_ms_median"])]
    return found


def gavel() -> Found:
    """Collect Gavel's steps on one GPU; its ResNet-18 is that of CIFAR-10."""
    names = {"ResNet-18": "resnet18-cifar", "ResNet-50": "resnet50"}
    found: Found = {}
    for row in table("gavel_throughputs"):
        if (row["gpus"], row["unconsolidated"]) == ("1", "0") and row["model"] in names:
            key = (row["gpu"], names[row["model"]], "fp32", int(row["batch_per_gpu"]))
            found[key] = [float(row["step_ms"])]
    return found


def kaust() -> Found:
    """Collect the sums of TensorFlow's layer traces on a V100."""
    found: Found = {}
    for row in table("kaust_tf_layers"):
        name = row["model"].lower().replace("inceptionv3", "inception-v3")
        times = found.setdefault(("v100", name, "fp32", int(row["batch"])), [0.0])
        times[0] += (float(row["fwd_us"]) + float(row["bwd_us"])) / 1e3
    return found


def lambda_labs() -> Found:
    """Collect Lambda's single-GPU throughputs; fp32 is TF32 from Ampere on."""
    gpus = {
        "LambdaCloud 1x V100 16GB": "v100",
        "RTX 3090": "rtx3090",
        "LambdaCloud 1x A100 40GB PCIe": "a100",
        "A100 80GB PCIe": "a100",
        "LambdaCloud 1x H100 80GB SXM5": "h100",
    }
    found: Found = {}
    for row in table("lambda_throughput"):
        if row["set"] == "v1v2" and row["batch_total"] and row["system"] in gpus:
            gpu, batch = gpus[row["system"]], int(row["batch_total"])
            full = "fp32" if gpu == "v100" else "tf32"
            precision = full if row["precision"] == "fp32" else "amp-fp16"
            key = (gpu, row["model"].replace("_", "-"), precision, batch)
            found.setdefault(key, []).append(batch / float(row["throughput"]) * 1e3)
    return found
