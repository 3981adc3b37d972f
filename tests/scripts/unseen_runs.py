"""Predict the runs that were never seen again, beside what was predicted before they were.

``python tests/scripts/unseen_runs.py`` prints a line a source of `unseen_runs.csv`, and of those on
one and on several GPUs: the runs; how
far the frozen predictions (of the commit in ``code``) were off, in the median and in the mean, and
how many measured times lay inside the frozen 90 % interval; the same of today's predictions by the
same command; and how far they are off by the command that states the software as perfsim can today
(``stated``).
`unseen_runs.txt` has what it printed last. profiles/measurements/README.md says how the runs were
found, and counts those whose sources' licences were not seen, which do not ship. `unseen_models`
has the config.json of models that no name of perfsim's has. ``--runs TEXT`` prints a line a run
instead, of those whose id has the text. ``--unfit SOFTWARE`` prints the runs in fp8 with such
software that are said not to fit into memory, though they ran, and how many there are
(``--unfit 'megatron|mlperf'``).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from perfsim.cli.main import code
from perfsim.data.tables import read_table

RUNS = Path(__file__).with_suffix(".csv")
COLUMNS = (
    *("id", "source", "licence", "gpu", "gpus", "measured_ms", "code", "frozen_ms"),
    *("frozen_low_ms", "frozen_high_ms", "command", "stated"),
)


class Run(NamedTuple):
    """How far predictions of a run are off, and whether the measured time lies in the interval."""

    frozen: tuple[float, bool]
    today: tuple[float, bool]
    stated: float | None


def answer(command: str) -> dict[str, Any]:
    """Return what a command answers as JSON."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.chdir(RUNS.parent):
        left = code([*shlex.split(command)[1:], "--json"])
    if left:
        raise SystemExit(f"{command} ended with {left}")
    found: dict[str, Any] = json.loads(printed.getvalue())
    return found


def predicted_ms(command: str) -> tuple[float, float, float]:
    """Return the iteration that a command predicts and both ends of its interval [ms]."""
    found = answer(command)
    low_s, high_s = found["iteration_s_interval"]
    return 1e3 * float(found["iteration_s"]), 1e3 * float(low_s), 1e3 * float(high_s)


def errors_text(errors: list[float]) -> str:
    """Return how far predictions are off: the median of the sizes, and the mean with its sign."""
    if not errors:
        return f"{'-':>18}"
    return f"{median(map(abs, errors)):8.1%} ({fmean(errors):+6.1%})"


def print_unfit(rows: list[dict[str, str]], software: str) -> None:
    """Print which runs in fp8 with such software, a pattern, are said not to fit, and how many."""
    asked = [row["stated"] or row["command"] for row in rows]
    fp8 = [
        (row["id"], answer(command))
        for row, command in zip(rows, asked, strict=True)
        if "--precision fp8" in command and re.search(f"--software ({software})", command)
    ]
    unfit = 0
    for name, found in fp8:
        held, usable = sum(found["memory_bytes"].values()), found["memory_usable_bytes"]
        if held > usable:
            unfit += 1
            print(f"{name:60}{held / 1e9:8.1f} GB of {usable / 1e9:.1f}")
    print(f"{unfit} of {len(fp8)} runs that ran are said not to fit")


def main() -> None:
    """Print a line a source, and one of all; or a line a run."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--runs", metavar="TEXT", help="print runs whose id has this text")
    parser.add_argument("--unfit", metavar="SOFTWARE", help="print runs in fp8 said not to fit")
    given = parser.parse_args()
    asked = given.runs
    rows = [row for _, row in read_table(RUNS, "perfsim/unseen-runs/2", COLUMNS)]
    if given.unfit is not None:
        print_unfit(rows, given.unfit)
        return
    if asked is not None:
        for row in rows:
            if asked in row["id"]:
                measured, frozen = float(row["measured_ms"]), float(row["frozen_ms"])
                today = predicted_ms(row["command"])[0] / measured - 1
                print(
                    f"{row['id']:60}{measured:12.1f} ms {frozen / measured - 1:+8.1%}{today:+8.1%}"
                )
        return
    of: dict[str, list[Run]] = {}
    for row in rows:
        measured, frozen = float(row["measured_ms"]), float(row["frozen_ms"])
        inside = float(row["frozen_low_ms"]) <= measured <= float(row["frozen_high_ms"])
        today, low, high = predicted_ms(row["command"])
        stated = predicted_ms(row["stated"])[0] / measured - 1 if row["stated"] else None
        found = re.match(r"https://github.com/([^/]+/[^/]+)", row["source"])
        source = found[1] if found else row["source"].split(" ")[0]
        now = today / measured - 1, low <= measured <= high
        one = Run((frozen / measured - 1, inside), now, stated)
        on = "one GPU" if row["gpus"] == "1" else "several GPUs"
        for group in (source, on, "all"):
            of.setdefault(group, []).append(one)
    asked_both = f"{'frozen':>17} {'inside':>7}  {'today':>17} {'inside':>7}"
    print(f"{'source':42}{'runs':>5}  {asked_both}  {'stated':>17}")
    last = ("one GPU", "several GPUs", "all")
    for source in [*(source for source in of if source not in last), *last]:
        runs = of[source]
        both = "  ".join(
            f"{errors_text([error for error, _ in asked])} {sum(inside for _, inside in asked):7}"
            for asked in ([run.frozen for run in runs], [run.today for run in runs])
        )
        stated_text = errors_text([run.stated for run in runs if run.stated is not None])
        print(f"{source:42}{len(runs):5}  {both}  {stated_text}")


if __name__ == "__main__":
    main()
