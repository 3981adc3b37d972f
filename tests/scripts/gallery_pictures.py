"""Pictures of the gallery: what a command prints, and bars of the rows of a sweep.

A function named after a question draws that question alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from perfsim.report.terminal import interval_words
from perfsim.units import format_bytes, format_seconds
from scripts.gallery_found import axes as axes_of
from scripts.gallery_found import each, fits, measured_each, measured_s, tokens
from support.bars import LEGEND, Row, chart, parts_of

_ENDS = "high", "low"
UNFIT = "! does not fit into the GPU's memory"
PARTS = (
    "forward",
    "backward",
    "update",
    "other",
    "compression",
    "second_order",
    "communication_exposed",
)


def picture(asked: Any) -> str:
    """Return the picture of a question's answer."""
    return DRAWN[asked.command.split()[1]](asked)


def compared(asked: Any) -> str:
    """Return the methods that the command prints."""
    return _table(asked, "#  method")


def swept(asked: Any) -> str:
    """Return the rows of a sweep, those with one first value together."""
    axes = axes_of(asked)
    first = list(dict.fromkeys(row[axes[0]] for row in asked.found))
    groups = [
        [_swept(row, axes, asked) for row in asked.found if row[axes[0]] == one] for one in first
    ]
    if len(axes) == 1:
        groups = [[row for group in groups for row in group]]
    label = " ".join(axis.removeprefix("options.") for axis in axes)
    return chart(_head(label, asked), groups, [LEGEND])


def _swept(row: Mapping[str, str], axes: Sequence[str], asked: Any) -> Row:
    label = " ".join(row[axis] for axis in axes)
    ends = float(row["iteration_s_low"]), float(row["iteration_s_high"])
    cells = (label, *_times(float(row["iteration_s"]), ends))
    parts = {part: float(row[f"{part}_s"]) for part in PARTS}
    return Row((*cells, *_beside(label, row, asked)), parts_of(parts))


def throughput(asked: Any, each: bool = False) -> str:
    """Return the rows of a sweep by samples a second, where the samples of an iteration differ.

    With ``each`` the bars are those of one GPU.
    """
    axes = axes_of(asked)
    rows = []
    for row in asked.found:
        rate, mid_s = float(row["samples_per_s"]), float(row["iteration_s"])
        ends = [rate * mid_s / float(row[f"iteration_s_{end}"]) for end in ("high", "low")]
        label = " ".join(row[axis] for axis in axes)
        case = asked.measured.get(label)
        cells = (label, f"{rate:,.0f}", " to ".join(f"{end:,.0f}" for end in ends))
        beside = (f"{case.value:,.0f}" if case else "",) if asked.measured else ()
        rows.append(Row((*cells, *beside), [("#", rate / float(row["gpus"]) if each else rate)]))
    head = [" ".join(axes), "samples/s", "90 % interval"]
    groups = [list(run) for _, run in groupby(rows, lambda row: row.cells[0].split()[0])]
    if len(axes) == 1:
        groups = [rows]
    notes = ["# samples a second of one GPU"] if each else []
    return chart([*head, *(["measured"] if asked.measured else [])], groups, notes)


more_gpus_or_faster_network = which_batch_size = throughput


def how_far_does_it_scale(asked: Any) -> str:
    """Return samples a second by GPUs, and bars of what one GPU does."""
    return throughput(asked, each=True)


def how_far_does_llama3_scale(asked: Any) -> str:
    """Return tokens a second of one GPU, by method and GPUs."""
    rows = []
    for row in asked.found:
        each = float(row["samples_per_s"]) * tokens(asked) / int(row["gpus"])
        cells = (f"{row['method']} {row['gpus']}", f"{each:,.0f}", _held(row))
        rows.append(Row(cells, [("#", each)]))
    groups = [list(run) for _, run in groupby(rows, lambda row: row.cells[0].split()[0])]
    return chart(["method gpus", "tokens/s a GPU", "memory"], groups, [UNFIT])


def tokens_each(asked: Any) -> str:
    """Return tokens a second of one GPU, what was measured of some, and what a GPU holds."""
    axes = axes_of(asked)
    rows = []
    for row in asked.found:
        mid, found = each(asked, row), measured_each(asked, row)
        ends = [mid * float(row["iteration_s"]) / float(row[f"iteration_s_{end}"]) for end in _ENDS]
        label = " ".join(row[axis] for axis in axes)
        interval = " to ".join(f"{end:,.0f}" for end in ends)
        beside = "" if found is None else f"{found:,.0f}"
        cells = (label, f"{mid:,.0f}", interval, beside, _held(row))
        rows.append(Row(cells, [("#", mid)]))
    groups = [list(run) for _, run in groupby(rows, lambda row: row.cells[0].split()[:-1])]
    label = " ".join(axis.removeprefix("options.") for axis in axes)
    head = [label, "tokens/s a GPU", "90 % interval", "measured", "memory"]
    return chart(head, groups, [] if all(map(fits, asked.found)) else [UNFIT])


fsdp_on_ethernet = ddp_zero_or_fsdp = does_hsdp_pay = tokens_each
which_tp_70b = is_my_scaling_normal = tokens_each


def what_if_a_stage_is_slow(asked: Any) -> str:
    """Return the rows of one batch an update, by stages of the pipeline and slow GPU."""
    whole = max(int(row["accumulate"]) for row in asked.found)
    most = max(int(row["pp"]) for row in asked.found)
    same = [row for row in asked.found if int(row["accumulate"]) * most == whole * int(row["pp"])]
    rows = [_swept(row, ("pp", "accumulate", "straggler"), asked) for row in same]
    groups = [list(run) for _, run in groupby(rows, lambda row: row.cells[0].split()[0])]
    return chart(_head("pp accumulate straggler", asked), groups, [LEGEND])


def which_batch_fits(asked: Any) -> str:
    """Return samples a second and memory, by recomputation and batch."""
    rows = []
    for row in asked.found:
        rate = float(row["samples_per_s"])
        cells = (f"{row['recompute']} {row['batch']}", f"{rate:,.0f}", _held(row))
        rows.append(Row(cells, [("#", rate)]))
    groups = [list(run) for _, run in groupby(rows, lambda row: row.cells[0].split()[0])]
    return chart(["recompute batch", "samples/s", "memory"], groups, [UNFIT])


def _held(row: Mapping[str, str]) -> str:
    return format_bytes(float(row["memory_bytes"]), 3) + (" " if fits(row) else "!")


def accumulate_or_more_gpus(asked: Any) -> str:
    """Return the combinations of one batch an update."""
    whole = max(int(row["gpus"]) for row in asked.found)
    same = [row for row in asked.found if int(row["gpus"]) * int(row["accumulate"]) == whole]
    groups = [[_swept(row, ("gpus", "accumulate"), asked) for row in same]]
    return chart(_head("gpus accumulate", asked), groups, [LEGEND])


def predicted(asked: Any) -> str:
    """Return the timeline that the command prints."""
    return _table(asked, "timeline: ")


def _table(asked: Any, *heads: str) -> str:
    """Return the lines that the command prints from one that begins so to the next empty one."""
    lines = asked.printed.splitlines()
    start = next(at for at, line in enumerate(lines) if line.lstrip().startswith(heads))
    end = next((at for at, line in enumerate(lines) if at > start and not line), len(lines))
    return "\n".join(lines[start:end])


def what_if_two_jobs_10gbe(asked: Any) -> str:
    """Return each job alone and beside the other."""
    met = asked.found["beside"]
    jobs = [("ResNet-50", met), ("BERT-Base", met["jobs"][0])]
    groups = [
        [
            Row((name, format_seconds(job["alone_s"]), "alone"), [("#", job["alone_s"])]),
            Row(("", format_seconds(job["iteration_s"]), "beside"), [("#", job["iteration_s"])]),
        ]
        for name, job in jobs
    ]
    return chart(["job", "iteration", ""], groups)


def explained(asked: Any) -> str:
    """Return what would be saved with each cause twice as good, as the command prints it."""
    return _table(asked, "if twice as good")


def when_does_topk_stop_paying(asked: Any) -> str:
    """Return the method and S-SGD by bandwidth."""
    found = asked.found["break_even"]["bandwidth"]
    groups = []
    for one in found["curve"]:
        if not 1 / 16 <= one["factor"] <= 8:
            continue
        rate = 8 * one["factor"] * found["rate_bytes_per_s"]
        pair = (("topk", one["iteration_s"]), ("ssgd", one["ssgd_s"]))
        groups.append(
            [
                Row((f"{rate / 1e9:5.2f} {method}", format_seconds(time_s)), [("#", time_s)])
                for method, time_s in pair
            ]
        )
    return chart(["Gbit/s", "iteration"], groups)


def tuned(asked: Any) -> str:
    """Return the curve that the command prints."""
    return _table(asked, "value ", "interval ")


def planned(asked: Any) -> str:
    """Return the Pareto front that the command prints."""
    return _table(asked, "method ")


def validated(asked: Any) -> str:
    """Return the errors by method and number of GPUs."""
    found = asked.found
    groups = [[found["all"] | {"name": "all"}]]
    groups += [[one for one in found["groups"] if one["by"] == by] for by in ("method", "scale")]
    head = ["error of the time", "rows", "median", "90th perc.", "in interval"]
    bars = [[_wrong(one) for one in several] for several in groups]
    return chart(head, bars, ["# median, - up to the 90th percentile"])


def _wrong(one: Mapping[str, Any]) -> Row:
    shares = f"{one['median']:.1%}", f"{one['p90']:.1%}", f"{one['coverage']:.0%}"
    parts = (("#", one["median"]), ("-", one["p90"] - one["median"]))
    return Row((one["name"], str(one["count"]), *shares), parts)


DRAWN: Mapping[str, Callable[[Any], str]] = {
    "compare": compared,
    "sweep": swept,
    "predict": predicted,
    "explain": explained,
    "tune": tuned,
    "plan": planned,
    "validate": validated,
}


def _head(first: str, asked: Any) -> list[str]:
    return [first, "iteration", "90 % interval", *(["measured"] if asked.measured else [])]


def _times(seconds: float, ends: Sequence[float]) -> tuple[str, str]:
    return format_seconds(seconds), interval_words(*ends)


def _beside(name: str, row: Mapping[str, Any], asked: Any) -> tuple[str, ...]:
    if not asked.measured:
        return ()
    case = asked.measured.get(name)
    rate, seconds = float(row["samples_per_s"]), float(row["iteration_s"])
    return ("" if case is None else format_seconds(measured_s(case, rate * seconds)),)
