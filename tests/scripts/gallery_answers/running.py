"""How to run a training: buckets, batches, overlap and algorithms."""

from __future__ import annotations

from typing import Any

from perfsim.units import format_seconds
from scripts.gallery_found import measured, methods, rate, seconds, time


def which_bucket_size(asked: Any) -> str:
    """Return what PyTorch's size, small and large buckets cost over the fastest."""
    [one] = asked.found["tuned"]
    fastest_s, best = one["fastest"]["iteration_s"], one["fastest"]["value"] / 2**20
    times_s = [point["iteration_s"] for point in one["curve"]]
    more = one["asked"]["iteration_s"] / fastest_s - 1
    assert one["asked"]["value"] == 25 * 2**20 and more < 0.01
    worst = [times_s[0] / fastest_s - 1, times_s[-1] / fastest_s - 1]
    return (
        f"PyTorch's 25 MiB: they take {more:.1%} longer than the fastest, {best:.0f} MiB. Buckets"
        f" of 64 KiB take {worst[0]:.0%} longer, all gradients in one {worst[1]:.0%}."
    )


def mgwfbp_or_ddp(asked: Any) -> str:
    """Return that they are too close to call, and the errors of the measured ones."""
    by = methods(asked)
    published = {name: measured(asked, by[name], name) for name in asked.measured}
    assert "mgwfbp" in asked.found["undecided"] and asked.found["winner"] == "ssgd"
    order = ["mgwfbp", "wfbp", "bsp"]
    assert sorted(order, key=published.__getitem__) == order
    assert sorted(order, key=lambda name: by[name]["iteration_s"]) == order
    told = [
        f"{name} {format_seconds(published[name], 3)}"
        f" ({by[name]['iteration_s'] / published[name] - 1:+.0%})"
        for name in order
    ]
    return (
        f"Either: DDP's buckets take {time(by['ssgd'])}, MG-WFBP's {time(by['mgwfbp'])}, which is"
        " too close to call; both beat one message a tensor (wfbp) and one buffer (bsp)."
        f" Measured, with the error of the prediction: {', '.join(told)}, in the predicted order."
    )


def what_if_overlap_is_off(asked: Any) -> str:
    """Return what each pays without overlap."""
    of = {(row["net"], row["method"], row["overlap"]): seconds(row) for row in asked.found}
    cost = {
        (net, name): of[net, name, "false"] / of[net, name, "true"] - 1
        for net, name, on in of
        if on == "true"
    }
    assert min(cost.values()) > 0
    return (
        f"On 10 GbE {cost['10gbe', 'ssgd']:.0%} longer by S-SGD and {cost['10gbe', 'topk']:.0%} by"
        f" Top-k; on InfiniBand, where more could be hidden, {cost['ib100', 'ssgd']:.0%} and"
        f" {cost['ib100', 'topk']:.0%}."
    )


def which_batch_size(asked: Any) -> str:
    """Return where Top-k's gain ends."""
    of = {(row["method"], int(row["batch"])): rate(row) for row in asked.found}
    batches = sorted({batch for _, batch in of})
    gain = {batch: of["topk", batch] / of["ssgd", batch] for batch in batches}
    rates = [of["ssgd", batch] for batch in batches]
    assert rates == sorted(rates) and gain[128] < 1.01 < gain[64]
    return (
        "The largest that fits and learns: samples a second rise throughout. Top-k is"
        f" {gain[16]:.1f} times as fast as S-SGD at batch 16, {gain[32]:.1f} at 32,"
        f" {gain[64]:.2f} at 64; from 128 on the backward pass hides nearly all that S-SGD sends"
        f" and nothing is left to gain ({gain[128]:.2f})."
    )


def how_often_to_average(asked: Any) -> str:
    """Return the curve in words, the interval that is enough, and what is known of learning."""
    [one] = asked.found["tuned"]
    of = {int(point["value"]): point["iteration_s"] for point in one["curve"]}
    times_s = [of[value] for value in sorted(of)]
    assert times_s == sorted(times_s, reverse=True) and one["changes_convergence"]
    enough = int(one["advised"]["value"])
    at = {row["iterations"]: row["epochs"] for row in one["intervals"]}
    assert at[enough]["against"] and at[enough]["epochs_factor"] is None
    return (
        "Time alone has no best: the longer the interval the less time,"
        f" {format_seconds(of[1], 3)} at 1, {format_seconds(of[8], 3)} at 8,"
        f" {format_seconds(of[64], 3)} at 64; from {enough} on exchanges add less than 10 %. But"
        " learning decides: the one published run on ImageNet, at 10, ended 7.4 points below"
        " S-SGD."
    )


def ring_or_tree_1024(asked: Any) -> str:
    """Return who is faster by GPUs, and NCCL's choice."""
    of = {(int(row["gpus"]), row["algorithm"]): seconds(row) for row in asked.found}
    counts = sorted({gpus for gpus, _ in of})
    assert [of[gpus, "ring"] < of[gpus, "tree"] for gpus in counts] == [True, True, True, False]
    assert all(of[gpus, "auto"] <= min(of[gpus, "ring"], of[gpus, "tree"]) for gpus in counts)
    return (
        f"Ring up to {counts[2]} GPUs ({of[256, 'tree'] / of[256, 'ring']:.1f} times as fast"
        f" there), tree at {counts[3]} ({of[1024, 'ring'] / of[1024, 'tree']:.1f} times). NCCL's"
        " choice by message (auto) is at least as good as either at every count."
    )
