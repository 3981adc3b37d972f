"""Train real networks on emulated hosts and compare with perfsim's predictions.

    sudo python tests/scripts/end_to_end/real_training.py [--work DIR] [--only 0 1] [--out FILE]

PyTorch really trains a CNN and a transformer with gloo, over links that tc shapes and, between
sites, over a link with a delay and losses: DDP, its fp16, bf16 and PowerSGD hooks, post-local and
local SGD, and DiLoCo on two levels. perfsim predicts each from its own calibrations: of kernels, of
the model on as many hosts at once as train, of computation beside messages, and of the network in
two ways, on two hosts of one site and on all that train. `real_training.txt` holds what was found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support.emulated.hosts import why_not
from support.emulated.real import WAYS, RealBench, RealSetting

_FLAT = (
    *("ddp", "fp16 hook", "bf16 hook", "powersgd rank 1", "powersgd rank 2", "powersgd rank 4"),
    *("post-local", "local sgd"),
)
_FAR = {"sites": 2, "between": "50mbit", "delay": "20ms"}
SETTINGS = (
    RealSetting(2, "200mbit", "cnn", _FLAT),
    RealSetting(4, "200mbit", "cnn", _FLAT),
    RealSetting(4, "100mbit", "transformer", ("ddp", "fp16 hook", "powersgd rank 4", "local sgd")),
    RealSetting(
        *(2, "200mbit", "cnn"),
        ("ddp", "fp16 hook", "powersgd rank 1", "powersgd rank 4", "post-local", "local sgd"),
        **_FAR,
    ),
    RealSetting(
        *(4, "200mbit", "cnn"),
        ("ddp", "fp16 hook", "powersgd rank 4", "post-local sites", "diloco every 4"),
        **_FAR,
    ),
    RealSetting(4, "200mbit", "cnn", ("diloco every 8", "diloco every 32"), **_FAR),
    RealSetting(
        *(2, "200mbit", "cnn"), ("ddp", "fp16 hook", "powersgd rank 4"), **_FAR, loss="0.1%"
    ),
)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a table, with a summary of each way to know the network."""
    heads = ("case", "measured", "+-", *(f"{way} network: 90 % interval" for way in WAYS))
    lines = ["{:16} {:>9} {:>5}  {:41}  {}".format(*heads)]
    before = ""
    for row in rows:
        if row["setting"] != before:
            before = row["setting"]
            lines.append(before)
        start = f"{row['case']:16} {row['measured_s'] * 1e3:6.0f} ms {row['spread']:5.0%}"
        found = (_found(row[way]) if way in row else "" for way in WAYS)
        lines.append("  ".join((start, *(f"{one:41}" for one in found))).rstrip())
    lines += [_summary(way, [row[way] for row in rows if way in row]) for way in WAYS]
    return "\n".join(lines)


def _found(said: dict[str, Any]) -> str:
    """Return one prediction beside what was measured."""
    interval = f"{said['low_s'] * 1e3:.0f} to {said['high_s'] * 1e3:.0f} ms"
    inside = "inside" if said["inside"] else "OUTSIDE"
    return f"{said['predicted_s'] * 1e3:5.0f} ms {interval:>16} {said['error']:+7.1%} {inside}"


def _summary(way: str, said: Sequence[dict[str, Any]]) -> str:
    """Return how far the predictions of one way are off."""
    if not said:
        return f"{way} network: no case"
    errors = [abs(one["error"]) for one in said]
    inside = sum(one["inside"] for one in said)
    short = sum(one["error"] < 0 for one in said)
    return (
        f"{way} network: {len(said)} cases, |error| median {median(errors):.1%}, worst"
        f" {max(errors):.1%}; {inside} inside their 90 % interval; {short} predicted too short"
    )


def main() -> None:
    """Run the settings and print their table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder to keep calibrations and results in")
    parser.add_argument("--blocks", type=int, default=8, help="repeats of a case")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of settings, from 0")
    parser.add_argument("--again", action="store_true", help="predict again what was trained")
    parser.add_argument("--out", type=Path, help="also write the rows here, as JSON lines")
    given = parser.parse_args()
    reason = why_not()
    if reason and not given.again:
        raise SystemExit(f"real_training: {reason}")
    work = given.work or Path(tempfile.mkdtemp(prefix="perfsim-real-"))
    work.mkdir(parents=True, exist_ok=True)
    bench = RealBench(work.resolve())
    rows: list[dict[str, Any]] = []
    for number in given.only or range(len(SETTINGS)):
        kept = work / f"trained-{number}.json"
        if given.again:
            measured = json.loads(kept.read_text())
        else:
            measured = bench.measure(SETTINGS[number], given.blocks)
            kept.write_text(json.dumps(measured))
        for row in bench.rows(SETTINGS[number], measured):
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    print(f"{date.today().isoformat()}, {os.cpu_count()} cores")
    print(table(rows))
    for label, share in bench.others.items():
        print(f"{label}: other work took {share:.2f} cores")
    if given.out:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
