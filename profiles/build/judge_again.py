r"""Make again everything that is fitted on, or counts, measured training runs.

In this order::

    python profiles/build/judge_again.py --measurements CASES.csv [TRAINING.csv ...] \
        --low-communication LOW_COMMUNICATION.csv --date DATE

1. the tables that ship, from those that were collected or ship already (`measurement_tables`);
2. the networks of clusters by their own rows (`calibrate_clusters`);
3. the intervals, every source left out in turn (`interval_record`);
4. the records: of what ships, of all tables, and of each method (`accuracy_record`);
5. the record of runs that communicate less, whose intervals these are (`low_communication_record`).

Then ``python tests/scripts/readme.py`` writes the READMEs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import accuracy_record
import calibrate_clusters
import interval_record
import low_communication_record
import measurement_tables
from perfsim.data.catalog import shipped

__all__ = ["main"]

_KEPT = ("mlperf.csv",)
"""Tables that ship and whose rows no collected table holds: they are read with the collected."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Make tables, clusters, intervals and records again."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--measurements", type=Path, nargs="+", required=True, help="collected tables, cases first"
    )
    parser.add_argument(
        "--low-communication", type=Path, required=True, help="collected table of such runs"
    )
    parser.add_argument("--date", required=True, help="date of the records, such as 2026-11-22")
    given = parser.parse_args(arguments)
    folder, dated = shipped() / "measurements", ["--date", given.date]
    cases, kept = str(given.measurements[0]), [str(folder / name) for name in _KEPT]
    every = ["--measurements", *map(str, given.measurements), *kept]

    def out(name: str) -> list[str]:
        return ["--out", str(folder / name), *dated]

    measurement_tables.main([*every, "--out", str(folder)])
    calibrate_clusters.main(["--measurements", cases, *out("clusters.csv")])
    interval_record.main([*every, *out("uncertainty.csv")])
    accuracy_record.main(["groups", *out("record.csv")])
    accuracy_record.main(["groups", *every, *out("summary.csv")])
    methods = shipped() / "methods" / "accuracy.csv"
    accuracy_record.main(["methods", *every, "--out", str(methods), *dated])
    runs = ["--measurements", str(given.low_communication)]
    low_communication_record.main([*runs, *out("low_communication.csv")])


if __name__ == "__main__":
    main()
