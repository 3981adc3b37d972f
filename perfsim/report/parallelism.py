"""Print the ways to divide training among GPUs that a search has found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfsim.planning.parallelism import ParallelSearch, RankedDivision, TriedDivision
from perfsim.report.terminal import (
    PAGE_COLUMNS,
    command_lines,
    interval_words,
    network_name,
    print_lines,
    print_notes,
    rate_words,
)
from perfsim.scenario import gpu_words
from perfsim.units import format_bytes, format_seconds

__all__ = ["best_words", "count_words", "division_words", "print_parallelism", "ranked_rows"]

_AGAIN = {"none": "none", "selective": "some", "full": "full"}
"""What is computed again, in few letters."""
_MAX_REASONS = 4
"""Reasons that are printed; the JSON has all."""


def division_words(tried: TriedDivision) -> str:
    """Say by which method training is divided, and how."""
    return f"{tried.method}, {tried.division.words}"


def best_words(search: ParallelSearch) -> list[str]:
    """Say which way is best, how long it takes, what it needs, and how sure that is."""
    best, tried = search.best, search.best.tried
    several = len(search.gpus) > 1
    title = "Least GPU hours" if search.by == "gpu-hours" else "Fastest"
    tokens = "" if best.tokens is None else f", {rate_words(_tokens_per_s(best))} tokens/s"
    low, high = best.prediction.iteration_s_interval
    return [
        f"{title}: {f'{tried.division.gpus} GPUs, ' * several}{division_words(tried)}.",
        f"{format_seconds(tried.iteration_s)} an iteration (90 % interval"
        f" {interval_words(low, high)}), {rate_words(tried.samples_per_s)} samples/s{tokens};"
        f" {format_bytes(tried.memory_bytes, 3)} of {format_bytes(tried.usable_bytes, 3)} a GPU.",
        search.verdict(),
    ]


def count_words(search: ParallelSearch) -> str:
    """Say how many ways there are, and what became of them."""
    counts = search.counts
    became = [
        (counts.too_large, "do not fit in memory"),
        (counts.refused.total(), "cannot run"),
        (counts.slower, "cannot be among the best by a bound"),
        (counts.predicted, "were predicted"),
    ]
    words = ", ".join(f"{count:,} {what}" for count, what in became if count)
    return f"{counts.divisions:,} ways to divide it: {words}."


def print_parallelism(
    search: ParallelSearch,
    asked_s: float | None,
    notes: Sequence[str],
    command: str,
    *,
    verbose: bool = False,
) -> None:
    """Print the best ways, where their time goes, the front, and the command that predicts one.

    Parameters
    ----------
    asked_s : an iteration as asked [s], None where that is no answer
    command : predicts the best
    """
    asked = search.asked
    gpus = gpu_words(search.gpus[-1], asked.gpu)
    if len(search.gpus) > 1:
        gpus = f"{search.gpus[0]} to {gpus}"
    as_asked = "" if asked_s is None else f"; {format_seconds(asked_s)} as asked"
    print_lines(
        [
            f"{asked.model}, {gpus} ({asked.gpus_per_node} a node), {network_name(asked)}:"
            f" {search.global_batch:,} samples an iteration{as_asked}",
            count_words(search),
            *_reasons(search),
            "",
        ],
        most=PAGE_COLUMNS,
    )
    first, *rest = best_words(search)
    print_lines([first], most=PAGE_COLUMNS)
    print_lines(rest, "  ", "  ", PAGE_COLUMNS)
    print()
    for line in _ranked(search):
        print(line)
    print_lines(
        [
            "v: chunks of a stage (best of those tried). shards: state that replicas share out."
            " mb x m: samples of a micro-batch, micro-batches. bubble, tp, ..., dp: % of the"
            " iteration in which a rank waits for other stages, and for messages by kind of"
            " parallelism. ~ too close to the best to call.",
            "",
        ],
        most=PAGE_COLUMNS,
    )
    _print_front(search)
    print_lines(["", "Predict the best"], most=PAGE_COLUMNS)
    for line in command_lines(command, PAGE_COLUMNS - 2):
        print(f"  {line}")
    print_notes(notes, verbose=verbose)


def _reasons(search: ParallelSearch) -> Iterator[str]:
    """Yield why some ways cannot run, and which layouts there are not."""
    refused, skipped = search.counts.refused, search.counts.skipped
    for reason, count in refused.most_common(_MAX_REASONS):
        yield f"  {count:,} cannot run: {reason}."
    if skipped:
        words = (f"{reason} ({count})" for reason, count in skipped.most_common(_MAX_REASONS))
        yield f"Layouts left out: {'; '.join(words)}."


def _tokens_per_s(one: RankedDivision) -> float:
    return (one.tokens or 0) * one.tried.samples_per_s


def _axes(search: ParallelSearch) -> list[str]:
    """Return the kinds of parallelism besides tp and pp that any of the best has."""
    some = [one.tried.division for one in search.ranked]
    axes = [axis for axis in ("cp", "ep") if any(getattr(one, axis) > 1 for one in some)]
    return axes + (["etp"] if any(one.etp for one in some) else [])


def ranked_rows(search: ParallelSearch) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the table of the best ways, as texts."""
    axes, several = _axes(search), len(search.gpus) > 1
    waits = [axis for axis in ("tp", "cp", "ep") if axis == "tp" or axis in axes]
    head = [" #", *(["gpus"] if several else []), "tp", "pp", "v", *axes, "dp", "shards"]
    head += ["mb x m", "again", "time", "bubble", *waits, "dp", "memory"]
    rows = []
    for number, one in enumerate(search.ranked, 1):
        division, prediction = one.tried.division, one.prediction
        sharding = division.sharding.name
        waits_s, total_s = one.waits_s, prediction.iteration_s
        shares = [one.bubble_s, *(waits_s.get(axis, 0.0) for axis in waits), waits_s["dp"]]
        rows.append(
            [
                f"{number:>2}{'~' if one.close else ' '}",
                *([str(division.gpus)] if several else []),
                *(str(size) for size in (division.tp, division.pp)),
                str(division.chunks or "-"),
                *(str(getattr(division, axis) or division.tp) for axis in axes),
                str(division.replicas),
                sharding[:5] if sharding != "as asked" else "-",
                f"{division.batch} x {division.accumulate}",
                _AGAIN.get(division.recompute, "some"),
                format_seconds(total_s),
                *(f"{share / total_s:.1%}" for share in shares),
                format_bytes(one.tried.memory_bytes, 3),
            ]
        )
    return head, rows


def _ranked(search: ParallelSearch) -> Iterator[str]:
    head, rows = ranked_rows(search)
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for line in (head, *rows):
        cells = (f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
        yield " ".join(cells).rstrip()


def _print_front(search: ParallelSearch) -> None:
    """Print the front: what nothing else beats in time and in memory, or in GPU hours."""
    several = len(search.gpus) > 1
    second = "takes fewer GPU hours" if several else "needs less memory"
    column = "GPU h/M" if several else "memory"
    print(f"Pareto front: nothing else is both faster and {second}")
    print(f"{'time':>9} {'samples/s':>10} {column:>8}  division")
    for one in search.front:
        hours = one.gpu_hours_per_million
        value = rate_words(hours) if several else format_bytes(one.memory_bytes, 3)
        words = f"{one.division.gpus} GPUs, " * several + division_words(one)
        figures = f"{format_seconds(one.iteration_s):>9} {rate_words(one.samples_per_s):>10}"
        lead = f"{figures} {value:>8}  "
        print_lines([words], lead, " " * len(lead), PAGE_COLUMNS)
    if several:
        print("GPU h/M: GPU hours for a million samples")
