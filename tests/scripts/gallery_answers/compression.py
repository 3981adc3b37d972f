"""Whether compression pays, and which method."""

from __future__ import annotations

import re
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.report.terminal import interval_words
from perfsim.scenario_file import read_scenario
from perfsim.units import format_seconds
from scripts.gallery_found import against, bits, listed, measured, methods, ratio, seconds, time


def which_method_1gbe(asked: Any) -> str:
    """Return who is first at the accuracy, who is not known to learn, and who learns as S-SGD."""
    found, by = asked.found, methods(asked)
    first, same = by[found["winner"]], by[found["same_learning"]]
    assert {found["winner"], *found["undecided"]} == {"dgc", "dgc_k"}
    faster = [row for row in found["standings"] if row["against_ssgd"] == "faster"]
    assert not any(row["learns_as_ssgd"] for row in faster)
    assert against(found, found["same_learning"]) == "not told apart"
    [(sooner, more)] = re.findall(r"(\w+) and (\d+) more have shorter", found["verdict"][0])
    return (
        f"{found['winner']} or {listed(found['undecided'])}, too close to call: {time(first)}"
        f" instead of S-SGD's {time(by['ssgd'])}, and DGC's own runs on ImageNet needed no more"
        f" epochs. {sooner} and {more} more have shorter iterations, down to {time(by[sooner])},"
        " but nobody published how many epochs they need here: they are listed apart."
        f" By iteration time {len(faster)} of {len(by) - 1} methods beat S-SGD, and all of them"
        " change what is learnt. The fastest that changes nothing,"
        f" {found['same_learning']}, takes {time(same)}: too close to S-SGD to call."
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
        f" {share:.0%} of it is still exposed communication."
    )


def when_does_topk_stop_paying(asked: Any) -> str:
    """Return the bandwidth, and how sure it is."""
    found = asked.found["break_even"]["bandwidth"]
    [one] = found["crossings"]
    assert one["method_faster"] == "below"
    low, high = asked.found["iteration_s_interval"]
    return (
        f"Above {bits(one['rate_bytes_per_s'])}, where both take {time(one)}. On 10 GbE Top-k is"
        f" {asked.found['baseline']['speedup']:.1f} times as fast as S-SGD. The crossing is that of"
        f" two predictions, and each has its own interval (Top-k on 10 GbE"
        f" {interval_words(low, high)})."
    )


def what_if_powersgd_10gbe(asked: Any) -> str:
    """Return Power-SGD's gain and who is faster."""
    found, by = asked.found, methods(asked)
    power, dense = by["powersgd"], by["ssgd"]
    ahead = [name for name in by if by[name]["iteration_s"] < power["iteration_s"]]
    assert "powersgd" in found["iteration_time_only"] and against(found, "powersgd") == "faster"
    times = ratio(dense, power)
    return (
        f"Its iteration is {times:.1f} times as fast as S-SGD's, so it pays if BERT needs fewer"
        f" than {times:.1f} times the epochs with it, of which no published run says anything. By"
        f" iteration time {listed(ahead)} pay more, with the same question."
    )


def acpsgd_or_powersgd(asked: Any) -> str:
    """Return who is faster, at the paper's rank, and what rank costs."""
    of = {(row["method"], int(row["options.rank"])): seconds(row) for row in asked.found}
    ranks = sorted({rank for _, rank in of})
    gains = [of["powersgd", rank] / of["acpsgd", rank] for rank in ranks]
    assert min(gains) > 1.2
    [paper] = [
        claim["paper"]
        for claim in read_scenario(Catalog().scenario("Zhang2023_acpsgd_bert-large_10gbe_32"))[
            "claim"
        ]
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
