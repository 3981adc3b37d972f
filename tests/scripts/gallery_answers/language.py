"""Language models: scale, batches, memory, precision, compression, and a model of one's own."""

from __future__ import annotations

from typing import Any

from perfsim.units import format_bytes
from scripts.gallery_found import (
    against,
    fits,
    listed,
    methods,
    overlap,
    rate,
    ratio,
    seconds,
    time,
    tokens,
)


def how_far_does_llama3_scale(asked: Any) -> str:
    """Return what a GPU trains with FSDP, and that DDP and Power-SGD do not fit."""
    of = {(row["method"], int(row["gpus"])): row for row in asked.found}
    each = {key: rate(row) * tokens(asked) / key[1] for key, row in of.items()}
    assert all(fits(row) == (method == "fsdp") for (method, _), row in of.items())
    kept = each["fsdp", 1024] / each["fsdp", 8]
    cost = f"{1 - kept:.0%}" if kept < 1 else f"nothing ({kept - 1:.0%} more a GPU than on 8)"
    slower = {gpus: seconds(of["powersgd", gpus]) / seconds(of["ssgd", gpus]) for gpus in (8, 1024)}
    assert kept > 0.9 and min(slower.values()) > 1.05
    held = {one: format_bytes(float(of[one, 8]["memory_bytes"]), 3) for one in ("ssgd", "powersgd")}
    return (
        f"By FSDP one H100 trains {each['fsdp', 8]:,.0f} tokens a second among 8 and"
        f" {each['fsdp', 1024]:,.0f} among 1024: this network costs {cost}. DDP (ssgd) and"
        f" Power-SGD do not fit: each GPU would hold {held['ssgd']} and {held['powersgd']}."
        f" Power-SGD would not pay anyway: it takes {slower[8]:.1f} to {slower[1024]:.1f} times as"
        " long as DDP, whose messages hide behind the backward pass."
    )


def accumulate_or_more_gpus(asked: Any) -> str:
    """Return the times of an update of 512 sequences by GPUs."""
    of = {(int(row["gpus"]), int(row["accumulate"])): row for row in asked.found}
    assert all(map(fits, of.values()))
    same = {gpus: seconds(of[gpus, 64 // gpus]) for gpus in (8, 16, 32, 64)}
    assert same[64] > 0.8 * same[8] and overlap(of[8, 8], of[64, 1])
    share = {number: float(of[64, number]["scaling_efficiency"]) for number in (1, 8)}
    return (
        f"8 that accumulate, by far: an update takes {same[8]:.1f} s on 8 GPUs of one node with 8"
        f" micro-batches, and {same[64]:.1f} s on 64 GPUs with one, which wait for the network."
        f" 64 GPUs only pay with a larger batch: of their speed {share[1]:.0%} is left with one"
        f" micro-batch and {share[8]:.0%} with 8."
    )


def which_batch_fits(asked: Any) -> str:
    """Return the largest batch that fits, and what recomputation costs."""
    of = {(row["recompute"], int(row["batch"])): row for row in asked.found}
    modes = ("none", "selective", "full")
    largest = {
        mode: max(batch for (one, batch), row in of.items() if one == mode and fits(row))
        for mode in modes
    }
    best = {mode: rate(of[mode, largest[mode]]) for mode in modes}
    less = {mode: 1 - best[mode] / best["none"] for mode in modes}
    assert largest["none"] < largest["selective"] < largest["full"]
    assert best["none"] > best["selective"] > best["full"]
    return (
        f"Of the batches asked for, {largest['none']} without recomputation,"
        f" {largest['selective']} with selective and {largest['full']} with full. It does not pay"
        f" here: the largest batch with selective recomputation trains {less['selective']:.0%} and"
        f" with full {less['full']:.0%} fewer samples a second than batch {largest['none']}"
        " without. Recompute what would not fit otherwise."
    )


def bf16_or_fp8(asked: Any) -> str:
    """Return what fp8 gains on either network."""
    of = {(row["net"], row["precision"]): row for row in asked.found}
    assert all(map(fits, of.values()))
    fast, slow = (
        seconds(of[net, "bf16"]) / seconds(of[net, "fp8"]) for net in ("gcp-a3ultra-roce", "ib400")
    )
    assert fast > 1.05 and slow < fast
    return (
        f"fp8, where the network keeps up: with 400 Gbit/s a GPU it is {fast:.2f} times as fast as"
        f" bf16, with 400 Gbit/s a node {slow:.2f} times, since the messages stay as large. Only"
        " products gain; all else runs in bf16."
    )


def all_in_bf16(asked: Any) -> str:
    """Return how many GPUs either state needs, and what the narrow one saves where both fit."""
    of = {(int(row["gpus"]), row["master_weights"]): row for row in asked.found}
    wide, narrow = (
        min(gpus for gpus, held in of if held == kept and fits(of[gpus, held]))
        for kept in ("true", "false")
    )
    assert narrow < wide
    saved = 1 - seconds(of[wide, "false"]) / seconds(of[wide, "true"])
    assert 0.02 < saved < 0.2
    return (
        f"{wide} beside fp32 weights, {narrow} wholly in bf16, which has half the state. On {wide}"
        f" it also takes {saved:.0%} less time: the update moves half the bytes, gradients are sent"
        " in 16 bits and nothing is cast."
    )


def lora_70b(asked: Any) -> str:
    """Return how many GPUs hold a frozen model with adapters, and what more of them cost."""
    of = {(row["lora_layers"], int(row["gpus"])): row for row in asked.found}
    least = min(gpus for (_, gpus), held in of.items() if fits(held))
    assert all(map(fits, of.values())) and least == 4
    more = seconds(of["all", least]) / seconds(of["attention", least]) - 1
    assert 0.05 < more < 0.2
    alike = seconds(of["all", 16]) / seconds(of["all", least])
    assert 0.99 < alike < 1.02
    return (
        f"{least}: the frozen weights are sharded, and only adapters have gradients and a state."
        f" Adapters beside all layers take {more:.0%} more time than beside attention. More GPUs"
        " divide the batch and change little else: what is gathered hides behind computation."
    )


def qlora_70b(asked: Any) -> str:
    """Return how many GPUs hold a base in 16 and in 4 bits, and which of them is quicker."""
    of = {(row["lora_base"], int(row["gpus"])): row for row in asked.found}
    least = {
        base: min(gpus for (one, gpus), held in of.items() if one == base and fits(held))
        for base in ("none", "nf4")
    }
    assert least == {"none": 8, "nf4": 2}
    less = 1 - seconds(of["nf4", 8]) / seconds(of["none", 8])
    assert 0.005 < less < 0.1
    return (
        f"{least['nf4']} in place of {least['none']}, at one sample a GPU. A quarter of the bytes"
        " is gathered beside computation, which spares it more than unpacking takes: an iteration"
        f" of 2,048 tokens takes {less:.0%} less."
    )


def gpt2_on_10gbe(asked: Any) -> str:
    """Return the shortest iteration, what S-SGD takes, and that learning is not known."""
    by, found = methods(asked), asked.found
    assert found["winner"] == "ssgd"
    name = found["iteration_time_only"][0]
    first, ssgd = by[name], by["ssgd"]
    faster = [one for one in by if one != "ssgd" and against(found, one) == "faster"]
    assert ratio(ssgd, first) > 3 and len(faster) >= len(by) - 2
    which = "Any of these" if len(faster) == len(by) - 1 else "Nearly any"
    return (
        f"{which}: {listed(faster)} are faster than S-SGD ({time(ssgd)}), whose gradients take"
        f" most of the iteration. {name} has the shortest iteration with {time(first)},"
        f" {ratio(ssgd, first):.1f} times as fast: it pays with fewer than that many times the"
        " epochs. No published run says for a language model how many any of them needs. fp16,"
        f" which changes least, is {ratio(ssgd, by['fp16']):.1f} times as fast."
    )


def plan_our_model(asked: Any) -> str:
    """Return the fastest and the cheapest, and what surely meets the deadline."""
    fastest, cheapest = asked.found["fastest"], asked.found["cheapest"]
    sure = {row["gpus"] for row in asked.found["rows"] if row["surely_in_time"]}
    assert min(sure) >= cheapest["gpus"] and cheapest["gpu_hours"] <= fastest["gpu_hours"]
    return (
        f"{cheapest['gpus']} in one node need the fewest GPU hours: {cheapest['gpu_hours']:.0f},"
        f" in {cheapest['hours']:.1f} h by {cheapest['method']}. {fastest['gpus']} over"
        f" {fastest['net']} take {fastest['hours']:.1f} h and {fastest['gpu_hours']:.0f} GPU hours."
        f" To be in time at the slow end of the interval too, take {min(sure)} or more."
    )


def diloco_between_sites(asked: Any) -> str:
    """Return what DiLoCo takes, what the dense methods take, and what is known of its epochs."""
    by, found = methods(asked), asked.found
    first, ssgd = by["diloco"], by["ssgd"]
    epochs = found["learning"]["diloco"]["epochs_factor"]
    assert found["winner"] == "diloco" and epochs is not None and epochs < 1.2
    streaming = found["learning"]["streaming_diloco"]["epochs_factor"]
    return (
        f"DiLoCo: {time(first)} an iteration at H = 500, S-SGD takes {time(ssgd)}. Published runs"
        f" of it needed {epochs:.2f} times the tokens, of streaming DiLoCo {streaming:.2f} times."
        f" Averaging inside each site first ({time(by['hierarchical'])}) or 1-bit Adam"
        f" ({time(by['onebit_adam'])}) does not help enough over such a line. Top-k"
        f" ({time(by['topk'])}) is not known to learn at this scale."
    )
