"""A comparison of methods as a person reads it in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsim.conditions.words import named
from perfsim.planning.compare import Comparison
from perfsim.prediction import Prediction
from perfsim.ranking import CAVEAT
from perfsim.report.terminal import cluster_words, interval_words, print_lines
from perfsim.units import format_seconds

__all__ = ["print_comparison"]

WIDTH = 80

COMPUTE = ("forward", "backward", "update", "other")
KERNELS = ("compression", "second_order")
EXPOSED = ("communication_exposed",)

HEAD = f"{'#':>2} {'method':15}{'iteration':>9} {'90 % interval':>18} {'x S-SGD':>7} {'next':>8}"


def print_comparison(comparison: Comparison) -> None:
    """Print the question, who is fastest, all methods with what their time goes to, and notes."""
    first = comparison.rows[0].scenario
    overlap = "overlap" if first["overlap"] else "no overlap"
    _print(
        [
            f"{first['model']}, {cluster_words(first)}",
            f"batch {first['batch']} a GPU, {first['precision']}, {overlap}, all-reduce"
            f" {first['algorithm']}",
            *([f"conditions: {named(first)}"] if named(first) else []),
            "S-SGD with DDP's buckets and overlap takes"
            f" {format_seconds(comparison.baseline.iteration_s)}",
            "",
            *comparison.verdict(),
            CAVEAT,
            "",
        ]
    )
    print(f"{HEAD} {'comp':>5} {'kern':>4} {'wait':>4}")
    standings = {row["method"]: row for row in comparison.standings()}
    for one in comparison.rows:
        print(_line(one, standings[one.scenario["method"]]))
    print()
    _print(
        [
            "* learns otherwise than ssgd. next: how much longer the next in rank takes; ~ where"
            " the two cannot be told apart. comp, kern, wait: % of the iteration in computation"
            " (forward, backward, update, other), in the method's kernels (compression, second"
            " order) and in communication that nothing hides.",
            comparison.rule,
        ]
    )
    _print_left_out(comparison)
    print("\nNotes")
    _print(comparison.notes, "  - ", "    ")


def _print(lines: list[str], first: str = "", rest: str = "  ") -> None:
    print_lines(lines, first, rest, WIDTH)


def _line(one: Prediction, standing: Mapping[str, Any]) -> str:
    name = one.scenario["method"] + ("" if standing["learns_as_ssgd"] else "*")
    ahead = standing["next_behind_ratio"]
    mark = "" if ahead is None or standing["told_apart"] else "~"
    following = "" if ahead is None else f"{mark}+{ahead:.1%}"
    low, high = one.iteration_s_interval
    shares = [
        sum(one.breakdown_s[part] for part in parts) / one.iteration_s
        for parts in (COMPUTE, KERNELS, EXPOSED)
    ]
    comp, kern, wait = (f"{100 * share:.0f}" for share in shares)
    return (
        f"{standing['rank']:>2} {name:15}{format_seconds(one.iteration_s):>9}"
        f" {interval_words(low, high):>18} {one.speedup:>7.2f} {following:>8}"
        f" {comp:>5} {kern:>4} {wait:>4}"
    ).rstrip()


def _print_left_out(comparison: Comparison) -> None:
    grouped = comparison.ranking.left_out().items()
    if grouped:
        left, ranked = len(comparison.ranking.refused), len(comparison.rows)
        print(f"\nleft out, {left} of {left + ranked}:")
        _print([f"{', '.join(names)}: {why}" for why, names in grouped], "  ", "    ")
