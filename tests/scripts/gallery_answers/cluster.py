"""Which cluster, and how large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.gallery_found import against, listed, methods, overlap, rate, ratio, seconds, time


def more_gpus_or_faster_network(asked: Any) -> str:
    """Return throughputs of the two, and what compression makes of the slow one."""
    of = {(row["gpus"], row["net"], row["method"]): row for row in asked.found}
    fast, slow = of["32", "ib100", "ssgd"], of["64", "10gbe", "ssgd"]
    packed, best = of["64", "10gbe", "acpsgd"], of["64", "ib100", "ssgd"]
    assert overlap(fast, slow) and rate(packed) > 1.5 * rate(slow)
    return (
        f"With S-SGD it is too close to call: {rate(fast):,.0f} samples/s by 32 on InfiniBand and"
        f" {rate(slow):,.0f} by 64 on 10 GbE; the intervals overlap widely. With ACP-SGD the"
        f" 64 on 10 GbE reach {rate(packed):,.0f}, {rate(packed) / rate(best):.0%} of what 64 on"
        " InfiniBand do with S-SGD; but ACP-SGD changes what is learnt."
    )


def what_does_infiniband_buy(asked: Any) -> str:
    """Return what S-SGD and compressed methods gain."""
    of = {(row["net"], row["method"]): seconds(row) for row in asked.found}
    gain = {name: of["10gbe", name] / of["ib100", name] for name in ("ssgd", "topk", "acpsgd")}
    assert gain["topk"] < 1.02 and gain["acpsgd"] < 1.02
    ahead = of["ib200", "ssgd"] / of["10gbe", "topk"]
    assert ahead > 1
    return (
        f"S-SGD is {gain['ssgd']:.1f} times as fast on 100 Gbit/s InfiniBand as on 10 GbE; Top-k"
        " and ACP-SGD gain less than 2 %, as they hide what they send on 10 GbE already. Top-k on"
        f" 10 GbE is {ahead:.1f} times as fast as S-SGD on 200 Gbit/s, in time alone: it changes"
        " what is learnt."
    )


def what_if_gpu_twice_as_fast(asked: Any) -> str:
    """Return what GPU and network save."""
    saved = {row["what"]: row["saved"] for row in asked.found["sensitivity"]}
    assert saved["bandwidth"] == max(saved.values()) and saved["gpu"] < saved["bandwidth"] / 2
    return (
        f"Hardly: GPUs twice as fast save {saved['gpu']:.0%} of an iteration, twice the bandwidth"
        f" {saved['bandwidth']:.0%}; latency and bucket size at most"
        f" {max(saved[one] for one in saved if one not in ('gpu', 'bandwidth')):.1%}."
    )


def how_far_does_it_scale(asked: Any) -> str:
    """Return efficiencies, and the errors where it was measured."""
    of = {row["gpus"]: row for row in asked.found}
    share = {gpus: float(row["scaling_efficiency"]) for gpus, row in of.items()}
    off = {gpus: case.value / rate(of[gpus]) - 1 for gpus, case in asked.measured.items()}
    worst = max(off, key=lambda gpus: abs(off[gpus]))
    kept = asked.measured["16"].value / (2 * asked.measured["8"].value)
    assert worst == "16" and kept > 0.99 and share["16"] < 0.75
    return (
        f"Predicted efficiency falls from {share['8']:.0%} inside a node to {share['16']:.0%} on"
        f" two and is {share['1024']:.0%} on 128 nodes. Beside what was measured the iteration is"
        f" off by {min(off.values()):+.0%} to {max(off.values()):+.0%}, most at {worst} GPUs, where"
        " no efficiency was lost. Do not trust the step to the second node here."
    )


def plan_imagenet_24h(asked: Any) -> str:
    """Return the least GPUs by network and method."""
    least: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in sorted(asked.found["rows"], key=lambda row: row["gpus"]):
        if row["surely_in_time"]:
            least.setdefault((row["net"], row["method"]), row)
    assert ("1gbe", "ssgd") not in least
    told = [
        f"{least[net, method]['gpus']} by {name} on {net}"
        for net, method, name in (
            ("ib100", "ssgd", "S-SGD"),
            ("10gbe", "ssgd", "S-SGD"),
            ("10gbe", "acpsgd", "ACP-SGD"),
            ("1gbe", "acpsgd", "ACP-SGD"),
        )
    ]
    fastest = asked.found["fastest"]
    return (
        f"{listed(told)} finish in time at the slow end of their interval; on 1 GbE S-SGD does not"
        f" with up to 64 GPUs. {fastest['gpus']} on {fastest['net']} by {fastest['method']} take"
        f" {fastest['hours']:.1f} h. ACP-SGD is listed by iteration time only: its hours are those"
        " of S-SGD's epochs, and it may need more."
    )


def what_if_topk_alps_1024(asked: Any) -> str:
    """Return Top-k's loss and who may gain."""
    by = methods(asked)
    assert against(asked.found, "topk") == "slower"
    assert "acpsgd" in asked.found["iteration_time_only"]
    assert against(asked.found, "acpsgd") == "not told apart"
    return (
        f"No: Top-k takes {time(by['topk'])}, {ratio(by['topk'], by['ssgd']):.1f} times as long as"
        f" S-SGD ({time(by['ssgd'])}), as every GPU gathers from all others. ACP-SGD"
        f" ({time(by['acpsgd'])}) may be faster than S-SGD; the two are too close to call, and"
        " of its epochs nothing is known here."
    )
