"""Answers of the gallery in one or two plain sentences, made of what each command found.

One function a question. What a sentence says without a number (faster, seldom, no) is asserted on
the numbers, so that it cannot outlive them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gallery_found import (
    against,
    bits,
    listed,
    measured,
    methods,
    overlap,
    rate,
    ratio,
    seconds,
    time,
)

from perfsim.catalog import Catalog
from perfsim.report.terminal import interval_words
from perfsim.scenario_file import read_file
from perfsim.units import format_seconds


def which_method_1gbe(asked: Any) -> str:
    """Return who is fastest, who may be, and who of those that learn as S-SGD."""
    found, by = asked.found, methods(asked)
    first, same = by[found["winner"]], by[found["same_learning"]]
    last = by[found["undecided"][-1]]
    faster = [row for row in found["standings"] if row["against_ssgd"] == "faster"]
    assert not any(row["learns_as_ssgd"] for row in faster)
    assert against(found, found["same_learning"]) == "not told apart"
    return (
        f"{found['winner']}, {listed(found['undecided'])}: they cannot be told apart, and take"
        f" {time(first)} to {time(last)} where S-SGD takes {time(by['ssgd'])}. {len(faster)} of"
        f" {len(by) - 1} methods beat S-SGD, all of which change what is learnt; of those that"
        f" learn as S-SGD none can be told apart from it (the fastest, {found['same_learning']},"
        f" takes {time(same)})."
    )


def what_if_dgc_1gbe(asked: Any) -> str:
    """Return how much faster, and what still holds it back."""
    found = asked.found
    low, high = found["iteration_s_interval"]
    assert high < found["baseline"]["iteration_s"]
    share = found["breakdown_s"]["communication_exposed"] / found["iteration_s"]
    return (
        f"Yes: {time(found)} ({interval_words(low, high)}) instead of S-SGD's"
        f" {time(found['baseline'])}, {found['baseline']['speedup']:.1f} times as fast;"
        f" {share:.0%} of it is still communication that nothing hides."
    )


def when_does_topk_stop_paying(asked: Any) -> str:
    """Return the bandwidth, and what it rests on."""
    found = asked.found["break_even"]["bandwidth"]
    [one] = found["crossings"]
    assert one["method_faster"] == "below"
    low, high = asked.found["iteration_s_interval"]
    return (
        f"Above {bits(one['rate_bytes_per_s'])}: there both take {time(one)}. On 10 GbE Top-k is"
        f" {asked.found['baseline']['speedup']:.1f} times as fast as S-SGD. That is where the two"
        f" predictions cross; each has an interval of its own (Top-k on 10 GbE"
        f" {interval_words(low, high)})."
    )


def what_if_powersgd_10gbe(asked: Any) -> str:
    """Return Power-SGD's gain and who is faster."""
    found, by = asked.found, methods(asked)
    power, dense = by["powersgd"], by["ssgd"]
    ahead = [name for name in by if by[name]["iteration_s"] < power["iteration_s"]]
    assert found["winner"] == "topk" and found["undecided"] == ["acpsgd"]
    assert against(found, "powersgd") == "faster"
    return (
        f"Power-SGD pays, {ratio(dense, power):.1f} times as fast as S-SGD, and others pay more:"
        f" {listed(ahead)} are faster, of which {found['winner']} ({time(by[found['winner']])}) and"
        f" {found['undecided'][0]} ({time(by[found['undecided'][0]])}) cannot be told apart."
    )


def acpsgd_or_powersgd(asked: Any) -> str:
    """Return who is faster, at the paper's rank, and what rank costs."""
    of = {(row["method"], int(row["options.rank"])): seconds(row) for row in asked.found}
    ranks = sorted({rank for _, rank in of})
    gains = [of["powersgd", rank] / of["acpsgd", rank] for rank in ranks]
    assert min(gains) > 1.2
    [paper] = [
        claim["paper"]
        for claim in read_file(Catalog().scenario("Zhang2023_acpsgd_bert-large_10gbe_32"))["claim"]
        if "Power-SGD" in claim["name"]
    ]
    growth = [of[name, ranks[-1]] / of[name, ranks[0]] for name in ("acpsgd", "powersgd")]
    return (
        f"ACP-SGD at every rank: {of['powersgd', 32] / of['acpsgd', 32]:.2f} times as fast at the"
        f" paper's rank 32 (the paper: {paper} in the mean of four models). From rank {ranks[0]} to"
        f" {ranks[-1]} an iteration grows {growth[0]:.1f} times with ACP-SGD and {growth[1]:.1f}"
        " times with Power-SGD."
    )


def which_kfac_64(asked: Any) -> str:
    """Return the order of the K-FACs, beside what was measured."""
    by = methods(asked)
    order = ["spd_kfac", "mpd_kfac", "d_kfac"]
    published = {name: measured(asked, by[name], name) for name in asked.measured}
    for known in (published, {name: row["iteration_s"] for name, row in by.items()}):
        assert sorted(order, key=known.__getitem__) == order and known["horovod"] < known[order[0]]
    assert against(asked.found, "dp_kfac") == "slower"
    assert min(by, key=lambda name: by[name]["iteration_s"]) == "horovod"
    told = {
        name: f"{time(by[name])} (measured {format_seconds(published[name], 3)},"
        f" {by[name]['iteration_s'] / published[name] - 1:+.0%})"
        for name in published
    }
    return (
        f"DP-KFAC with {time(by['dp_kfac'])}, by prediction alone: it was not measured here. Then"
        f" SPD-KFAC {told['spd_kfac']}, MPD-KFAC {told['mpd_kfac']} and D-KFAC {told['d_kfac']}, in"
        f" the measured order. All are slower than S-SGD under Horovod, {told['horovod']}, and must"
        " save iterations."
    )


def more_gpus_or_faster_network(asked: Any) -> str:
    """Return throughputs of the two, and what compression makes of the slow one."""
    of = {(row["gpus"], row["net"], row["method"]): row for row in asked.found}
    fast, slow = of["32", "ib100", "ssgd"], of["64", "10gbe", "ssgd"]
    packed, best = of["64", "10gbe", "acpsgd"], of["64", "ib100", "ssgd"]
    assert overlap(fast, slow) and rate(packed) > 1.5 * rate(slow)
    return (
        f"By S-SGD it is undecided: {rate(fast):,.0f} samples/s by 32 on InfiniBand,"
        f" {rate(slow):,.0f} by 64 on 10 GbE, well inside each other's intervals. With ACP-SGD the"
        f" 64 on 10 GbE reach {rate(packed):,.0f}, {rate(packed) / rate(best):.0%} of what 64 on"
        " InfiniBand do by S-SGD; but ACP-SGD changes what is learnt."
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
        " no efficiency was lost: do not trust the step to the second node here."
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
        f"{listed(told)} are in time with their whole interval; on 1 GbE S-SGD is not with any up"
        f" to 64. {fastest['gpus']} on {fastest['net']} by {fastest['method']} take"
        f" {fastest['hours']:.1f} h. Epochs are the same for all, though ACP-SGD may need more."
    )


def what_if_topk_alps_1024(asked: Any) -> str:
    """Return Top-k's loss and who may gain."""
    by = methods(asked)
    assert against(asked.found, "topk") == "slower"
    assert asked.found["winner"] == "acpsgd" and asked.found["undecided"] == ["ssgd"]
    return (
        f"No: Top-k takes {time(by['topk'])}, {ratio(by['topk'], by['ssgd']):.1f} times as long as"
        f" S-SGD ({time(by['ssgd'])}), as every GPU gathers from all others. ACP-SGD"
        f" ({time(by['acpsgd'])}) may be faster than S-SGD, but the two cannot be told apart."
    )


def which_bucket_size(asked: Any) -> str:
    """Return the flat range and what small and large buckets cost."""
    [one] = asked.found["tuned"]
    low, high = (value / 2**20 for value in one["within_1_percent"])
    times_s = [point["iteration_s"] for point in one["curve"]]
    assert low < 25 < high and one["flat"]
    worst = [times_s[0] / min(times_s) - 1, times_s[-1] / min(times_s) - 1]
    return (
        f"PyTorch's 25 MiB: every size from {low:.0f} to {high:.0f} MiB is within 1 % of the"
        f" fastest. Buckets of 64 KiB take {worst[0]:.0%} longer, all gradients in one"
        f" {worst[1]:.0%}."
    )


def mgwfbp_or_ddp(asked: Any) -> str:
    """Return that they are alike, and how wrong the measured ones are."""
    by = methods(asked)
    published = {name: measured(asked, by[name], name) for name in asked.measured}
    assert asked.found["undecided"] == ["mgwfbp"] and asked.found["winner"] == "ssgd"
    order = ["mgwfbp", "wfbp", "bsp"]
    assert sorted(order, key=published.__getitem__) == order
    assert sorted(order, key=lambda name: by[name]["iteration_s"]) == order
    told = [
        f"{name} {format_seconds(published[name], 3)}"
        f" ({by[name]['iteration_s'] / published[name] - 1:+.0%})"
        for name in order
    ]
    return (
        f"Either: DDP's buckets take {time(by['ssgd'])}, MG-WFBP's {time(by['mgwfbp'])}, which"
        " cannot be told apart; both beat one message a tensor (wfbp) and one buffer (bsp)."
        f" Measured, and what the prediction is off by: {', '.join(told)}, in the predicted order."
    )


def what_if_overlap_is_off(asked: Any) -> str:
    """Return what each pays without overlap."""
    of = {(row["net"], row["method"], row["overlap"]): seconds(row) for row in asked.found}
    cost = {
        (net, name): of[net, name, "False"] / of[net, name, "True"] - 1
        for net, name, on in of
        if on == "True"
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
    """Return the curve in words: time alone has no best interval."""
    [one] = asked.found["tuned"]
    of = {int(point["value"]): point["iteration_s"] for point in one["curve"]}
    times_s = [of[value] for value in sorted(of)]
    assert times_s == sorted(times_s, reverse=True) and one["changes_convergence"]
    return (
        "Time alone has no best: the longer the interval the less time,"
        f" {format_seconds(of[1], 3)} at 1, {format_seconds(of[8], 3)} at 8,"
        f" {format_seconds(of[64], 3)} at 64, and within 1 % of the least from"
        f" {one['advised']['value']:g} on. How far the models may drift apart is for training to"
        " say."
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


def what_if_one_gpu_is_slow(asked: Any) -> str:
    """Return ADPSGD's gain with and without the straggler."""
    of = {(row["method"], row["straggler"]): seconds(row) for row in asked.found}
    gain = {slow: of["ssgd", slow] / of["adpsgd", slow] for _, slow in of}
    assert gain["1:1"] > gain["1:1.5"] > gain["1:2"] > gain["1:4"] and gain["1:4"] < 1.0
    return (
        f"No: ADPSGD waits for the slow GPU at every average. It is {gain['1:1']:.1f} times as fast"
        f" as S-SGD with all alike, {gain['1:1.5']:.2f} times with one 1.5 times slower,"
        f" {gain['1:2']:.2f} with one twice and {gain['1:4']:.2f} with one 4 times slower, where"
        " S-SGD hides what it sends behind the wait."
    )


def what_if_gpus_jitter_1024(asked: Any) -> str:
    """Return what jitter adds."""
    of = {(row["method"], row["jitter"]): seconds(row) for row in asked.found}
    more = {key: of[key] / of[key[0], "0%"] - 1 for key in of}
    sent = {row["method"]: float(row["sent_bytes_per_gpu"]) for row in asked.found}
    assert more["ssgd", "10%"] > more["adpsgd", "10%"]
    assert abs(sent["ssgd"] / sent["adpsgd"] - 8) < 0.01
    return (
        f"S-SGD takes {more['ssgd', '2%']:.0%} longer with 2 %, {more['ssgd', '5%']:.0%} with 5 %"
        f" and {more['ssgd', '10%']:.0%} with 10 %: the slowest of 1024 counts in every iteration."
        f" ADPSGD, which meets in every eighth, takes {more['adpsgd', '5%']:.0%} and"
        f" {more['adpsgd', '10%']:.0%} longer with 5 and 10 %."
    )


def what_if_others_share_the_network(asked: Any) -> str:
    """Return what S-SGD and Top-k lose."""
    of = {(row["method"], row["background"]): seconds(row) for row in asked.found}
    more = {key: of[key] / of[key[0], "0%"] for key in of}
    assert more["topk", "67%"] < 1.01
    return (
        f"S-SGD takes {more['ssgd', '33%']:.1f} and {more['ssgd', '67%']:.1f} times as long; Top-k"
        " does not notice (less than 1 %): what it sends is small, and most of it hidden."
    )


def what_if_oversubscribed_leaf_spine(asked: Any) -> str:
    """Return what S-SGD and Top-k lose by oversubscription."""
    of = {(row["method"], row["oversubscription"]): seconds(row) for row in asked.found}
    more = {key: of[key] / of[key[0], "1"] for key in of}
    assert more["topk", "4"] < 1.03 < more["topk", "8"]
    return (
        f"S-SGD takes {more['ssgd', '2']:.1f}, {more['ssgd', '4']:.1f} and {more['ssgd', '8']:.1f}"
        f" times as long with uplinks 2, 4 and 8 times too narrow; Top-k less than 3 % longer up to"
        f" 4, and {more['topk', '8'] - 1:.0%} with 8."
    )


def what_if_uneven_nodes(asked: Any) -> str:
    """Return the difference."""
    of = {(row["method"], row["placement"]): seconds(row) for row in asked.found}
    more = [of[name, "3,5"] / of[name, "4,4"] - 1 for name in ("ssgd", "topk")]
    assert max(map(abs, more)) < 0.001
    return (
        "Nothing that shows (less than 0.1 %, by S-SGD and by Top-k): a ring crosses the network"
        " between the two nodes as often, and the slower link is the same one."
    )


def what_if_two_gpu_types(asked: Any) -> str:
    """Return what the slower GPUs add, and what they are held up by."""
    of = {row["gpu"]: row for row in asked.found}
    fast, both, slow = of["v100:16"], of["v100:16+p100:16"], of["p100:32"]
    more = float(both["samples_per_s"]) / float(fast["samples_per_s"])
    all_fast = float(of["v100:32"]["samples_per_s"]) / float(fast["samples_per_s"])
    assert abs(seconds(both) / seconds(slow) - 1) < 0.01
    return (
        f"Both together: {more:.2f} times the samples a second of the 16 V100 (32 V100 would give"
        f" {all_fast:.2f}). The P100 set the pace: an iteration takes as long as on 32 of them,"
        f" {format_seconds(seconds(both))}."
    )


def what_if_two_jobs_10gbe(asked: Any) -> str:
    """Return how much longer each takes."""
    met = asked.found["beside"]
    [other] = met["jobs"]
    assert met["slowdown"] < 2 and other["slowdown"] < 2
    return (
        f"ResNet-50 takes {met['slowdown']:.2f} times as long ({format_seconds(met['iteration_s'])}"
        f" instead of {format_seconds(met['alone_s'])}), BERT-Base {other['slowdown']:.2f} times"
        f" ({format_seconds(other['iteration_s'])} instead of {format_seconds(other['alone_s'])}):"
        " less than twice, since either computes while the other sends."
    )


def how_wrong_is_it(asked: Any) -> str:
    """Return the errors in words."""
    every, pairs = asked.found["all"], asked.found["ranking"]
    return (
        f"Of {every['count']} iterations measured on AWS p3.16xlarge (25 Gbit/s) half are predicted"
        f" within {every['median']:.0%}, nine in ten within {every['p90']:.0%}, the worst"
        f" {every['worst']:.0%} off; {every['coverage']:.0%} lie in their 90 % interval. Of"
        f" {pairs['pairs']} pairs of systems that measure more than 10 % apart {pairs['right']} are"
        " ranked right."
    )
