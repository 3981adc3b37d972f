"""Train real networks on emulated hosts and compare with perfsim's predictions.

    sudo python tests/scripts/end_to_end/real_training.py --work DIR [--only 0 1] [--write]
        [--gpu NAME]

PyTorch really trains a CNN and a small GPT with gloo, over links that tc shapes and, between sites,
over a link with a delay and losses: DDP, its fp16, bf16 and PowerSGD hooks, FSDP, post-local and
local SGD, and DiLoCo on two levels. perfsim predicts each from its own calibrations: of kernels, of
the model on as many hosts at once as train, of computation beside messages, and of the network in
two ways, on two hosts of one site and on all that train.

What DIR holds already, calibrated or trained, is not done again: an interrupted run goes on with
the same command, and another run of it predicts anew with perfsim as it is. ``--write`` puts the
table of all settings into `real_training.txt`, whose other text says what was found.

With ``--gpu`` the hosts share a GPU and train with NCCL, in settings of their own, of which
`real_training_nccl.txt` tells.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support.emulated.hosts import why_not
from support.emulated.real import WAYS, RealBench, RealSetting

STORED = Path(__file__).with_suffix(".txt")
STORED_OF_GPU = STORED.with_stem("real_training_nccl")
BEGIN, END = "--- table, written by --write ---", "--- end of the table ---"

_FLAT = (
    *("ddp", "fp16 hook", "bf16 hook", "powersgd rank 1", "powersgd rank 2", "powersgd rank 4"),
    *("fsdp", "post-local", "local sgd"),
)
_GPT = ("ddp", "fp16 hook", "powersgd rank 4", "fsdp", "local sgd")
_FAR = {"sites": 2, "between": "50mbit", "delay": "20ms"}
SETTINGS = (
    RealSetting(2, "200mbit", "cnn", _FLAT),
    RealSetting(4, "200mbit", "cnn", _FLAT),
    RealSetting(2, "100mbit", "gpt", _GPT),
    RealSetting(4, "100mbit", "gpt", _GPT),
    RealSetting(
        *(2, "200mbit", "cnn"),
        ("ddp", "fp16 hook", "powersgd rank 1", "powersgd rank 4", "post-local", "local sgd"),
        **_FAR,
    ),
    RealSetting(
        *(4, "200mbit", "cnn"),
        ("ddp", "fp16 hook", "powersgd rank 4", "fsdp", "post-local sites", "diloco every 4"),
        **_FAR,
    ),
    RealSetting(4, "200mbit", "cnn", ("diloco every 8", "diloco every 32"), **_FAR),
    RealSetting(
        *(2, "200mbit", "cnn"), ("ddp", "fp16 hook", "powersgd rank 4"), **_FAR, loss="0.1%"
    ),
)

_WITH_NCCL = ("ddp", "fp16 hook", "bf16 hook", "powersgd rank 4", "fsdp with streams", "local sgd")
SETTINGS_OF_GPU = tuple(RealSetting(hosts, "1gbit", "cnn", _WITH_NCCL) for hosts in (2, 4))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a table, with a summary of each way to know the network."""
    heads = ("case", "mean", "+-", "median", *(f"{way} network: 90 % interval" for way in WAYS))
    lines = ["{:16} {:>9} {:>4} {:>9}  {:40}  {}".format(*heads)]
    before = ""
    for row in rows:
        if row["setting"] != before:
            before = row["setting"]
            lines.append(before)
        start = f"{row['case']:16} {row['measured_s'] * 1e3:6.0f} ms {row['half_width']:4.0%}"
        start += f" {row['median_s'] * 1e3:6.0f} ms"
        found = (_found(row[way]) if way in row else "" for way in WAYS)
        lines.append("  ".join((start, *(f"{one:40}" for one in found))).rstrip())
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
    of_medians = [abs(one["median_error"]) for one in said]
    inside = sum(one["inside"] for one in said)
    short = sum(one["error"] < 0 for one in said)
    return (
        f"{way} network: {len(said)} cases, |error| median {median(errors):.1%}, worst"
        f" {max(errors):.1%} (of medians {median(of_medians):.1%}, {max(of_medians):.1%});"
        f" {inside} ({inside / len(said):.0%}) inside their 90 % interval; {short} predicted too"
        " short"
    )


def with_table(text: str, new: str) -> str:
    """Return a stored text with another table between its marks.

    Raises
    ------
    ValueError
        If a mark is not there.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no line {BEGIN!r} with {END!r} below it")
    return f"{before}{BEGIN}\n{new}\n{END}{after}"


def main() -> None:
    """Run the settings, print their table and store it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for what is measured")
    parser.add_argument("--blocks", type=int, default=8, help="repeats of a case, at least")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of settings, from 0")
    parser.add_argument("--out", type=Path, help="also write the rows here, as JSON lines")
    parser.add_argument("--write", action="store_true", help=f"put the table into {STORED.name}")
    parser.add_argument("--gpu", default="", help="name of the GPU that all hosts share")
    parser.add_argument("--network-s", type=float, default=25.0, help="of a network's sweep")
    given = parser.parse_args()
    settings = SETTINGS_OF_GPU if given.gpu else SETTINGS
    if given.write and given.only:
        parser.error("--write stores the table of all settings; leave --only out")
    if given.only and not set(given.only) <= set(range(len(settings))):
        parser.error(f"--only takes numbers from 0 to {len(settings) - 1}")
    given.work.mkdir(parents=True, exist_ok=True)
    bench = RealBench(given.work.resolve(), given.network_s, gpu=given.gpu)
    rows: list[dict[str, Any]] = []
    for number in given.only or range(len(settings)):
        begun = time.monotonic()
        kept = given.work / f"trained-{number}.json"
        if kept.exists():
            measured = json.loads(kept.read_text())
        else:
            reason = why_not()
            if reason:
                raise SystemExit(f"real_training: {reason}")
            measured = bench.measure(settings[number], given.blocks)
            kept.write_text(json.dumps(measured))
        rows += bench.rows(settings[number], measured)
        spent_s = time.monotonic() - begun
        print(f"setting {number}, {settings[number].name}: {spent_s:.0f} s", file=sys.stderr)
    cores = "" if given.gpu else f", {os.cpu_count()} cores"
    made = f"{date.today().isoformat()}{cores}\n{table(rows)}"
    print(made)
    for label, share in bench.others.items():
        print(f"{label}: other work took {share:.2f} cores")
    if given.out:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if given.write:
        stored = STORED_OF_GPU if given.gpu else STORED
        stored.write_text(with_table(stored.read_text(), made))


if __name__ == "__main__":
    main()
