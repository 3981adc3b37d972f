"""Calibrate an emulated cluster, predict training on it, train for real, and compare.

    sudo python tests/scripts/end_to_end/compare.py [--short] [--out FILE]

Hosts are network namespaces joined by a bridge, their links shaped by tc; gloo carries real
messages; layers sleep for their profile's times. Networks are calibrated at 2 and 4 hosts only,
computation at every number of hosts (they share this machine's cores, as real ones do not).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from support.emulated.emulated import Bench
from support.emulated.hosts import why_not
from support.emulated.trainings import FULL, SCHEMES, SHORT, Setting


def measure(bench: Bench, settings: Sequence[Setting]) -> Iterator[dict[str, Any]]:
    """Run the settings and yield a row a scheme."""
    for setting in settings:
        counts = (2, 4) if setting.hosts > 2 else (2,)
        rate = setting.calibrated or setting.rate
        most = "64MiB" if rate == "1gbit" else "16MiB"
        setting.net = bench.network(counts, rate, most)
        profiles = bench.compute(setting.hosts, setting.rate, setting.model)
        for path in (bench.profiles / "networks").iterdir():
            shutil.copy(path, profiles / "networks")
        measured = bench.run(setting)
        for name in setting.schemes:
            seconds = measured[name]
            middle = median(seconds)
            predicted = bench.predict(setting, SCHEMES[name], profiles)
            yield {
                "setting": setting.name,
                "seen": setting.seen,
                "scheme": SCHEMES[name].name,
                "measured_s": middle,
                "spread": (max(seconds) - min(seconds)) / 2 / middle,
                "predicted_s": predicted,
                "error": predicted / middle - 1,
            }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a table, with the errors' summary."""
    lines = [
        f"{'setting':34s} {'scheme':16s} {'measured':>10s} {'+-':>6s} {'predicted':>10s} error"
    ]
    lines += [
        f"{row['setting']:34s} {row['scheme']:16s} {row['measured_s'] * 1e3:7.0f} ms"
        f" {row['spread']:6.1%} {row['predicted_s'] * 1e3:7.0f} ms {row['error']:+.1%}"
        for row in rows
    ]
    for seen, title in ((True, "DDP, network fitted at the same hosts"), (False, "unseen")):
        errors = [abs(row["error"]) for row in rows if row["seen"] == seen]
        if errors:
            ninth = quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[0]
            lines.append(
                f"{title}: {len(errors)} cases, mean {mean(errors):.1%}, median"
                f" {median(errors):.1%}, p90 {ninth:.1%}, worst {max(errors):.1%}"
            )
    right, pairs = ranking(rows)
    lines.append(f"ranking: of {pairs} pairs that differ by more than 10 %, {right} right")
    return "\n".join(lines)


def ranking(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Return how many pairs of schemes of one setting are ranked right, of how many."""
    right = pairs = 0
    for name in {row["setting"] for row in rows}:
        of_setting = [row for row in rows if row["setting"] == name]
        for first, second in combinations(of_setting, 2):
            measured = first["measured_s"] / second["measured_s"]
            if max(measured, 1 / measured) > 1.10:
                pairs += 1
                right += (measured > 1) == (first["predicted_s"] > second["predicted_s"])
    return right, pairs


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="two hosts, one model")
    parser.add_argument("--out", type=Path, help="also write the rows here, as JSON lines")
    parser.add_argument("--work", type=Path, help="folder to keep what was measured in")
    parser.add_argument("--blocks", type=int, default=5, help="repeats of a scheme")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of settings, from 0")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        raise SystemExit(f"compare: {reason}")
    work = given.work or Path(tempfile.mkdtemp(prefix="perfsim-e2e-"))
    work.mkdir(parents=True, exist_ok=True)
    settings = SHORT if given.short else FULL
    if given.only is not None:
        settings = tuple(settings[number] for number in given.only)
    rows = []
    bench = Bench(work.resolve(), 30.0 if given.short else 90.0, given.blocks)
    for row in measure(bench, settings):
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    print(table(rows))
    if given.out:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
