"""What a cluster costs that is not as it should be, and how far to trust a prediction."""

from __future__ import annotations

from typing import Any

from perfsim.units import format_seconds
from scripts.gallery_found import by_axes, seconds


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


def what_if_a_stage_is_slow(asked: Any) -> str:
    """Return what a slow GPU adds to both, and what few micro-batches hide of it."""
    of = {key: seconds(row) for key, row in by_axes(asked).items()}
    more = {key: of[key] / of[*key[:2], "1:1"] - 1 for key in of}
    plain, stages, few = (
        {slow: more[*which, f"1:{slow}"] for slow in ("1.1", "1.2", "1.5")}
        for which in (("1", "8"), ("4", "32"), ("4", "8"))
    )
    assert all(few[slow] < stages[slow] < 0.7 * plain[slow] for slow in plain)
    assert plain["1.2"] > 0.19 and stages["1.1"] < 0.03
    return (
        f"In plain data parallelism nearly all of it: a GPU 1.1, 1.2 or 1.5 times slower adds"
        f" {plain['1.1']:.0%}, {plain['1.2']:.0%} and {plain['1.5']:.0%}, as all wait for it in"
        f" every iteration. In a pipeline of 4 stages it adds {stages['1.1']:.1%},"
        f" {stages['1.2']:.0%} and {stages['1.5']:.0%}: the first stage has less to do than the"
        " last, whose output layer sets the pace. With 8 micro-batches in place of 32 the time"
        f" in which stages idle takes up more of it: 1.5 times slower adds {few['1.5']:.0%}."
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
    assert 0.0 <= more[0] < 0.001 < more[1] < 0.01
    return (
        f"Hardly anything (less than 0.1 % by S-SGD, {more[1]:.1%} by Top-k): a ring crosses the"
        " network between the two nodes as often, and the slower link is the same one. Where the"
        " network does not hold all up, five GPUs of a node slow each other a little more than"
        " four (`--input`)."
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
