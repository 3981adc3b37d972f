"""Record how wrong predictions of training runs with several kinds of parallelism are, by group.

    python profiles/build/parallel_record.py --measurements FILE \
        --out profiles/measurements/parallel.csv --date DATE [--group NAME ...] [--rows FILE]

FILE is a table of training runs (`perfsim.validate.training`). A group is one or several sources
(`GROUPS`); each source is judged as `perfsim validate measurements` judges it, with nothing fitted
on it. Lines are by group, by source, and by kind of parallelism among the rows of all groups that
are judged. ``--group`` takes only some groups, ``--rows`` writes every predicted row too.

A group that is reported apart has no measurements by its own table's criterion: its values are
held against predictions all the same, and count for no other line.

Configurations are ranked where they are of one source, model, length, precision, GPU, network and
number of GPUs, and their measured rates differ by more than a tenth: a pair is right where the
predicted rates have the same order.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import tempfile
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from perfsim.data.files import write_text
from perfsim.errors import RequestError
from perfsim.prediction import predict_iteration
from perfsim.session import Session
from perfsim.validate.cases import Case, parse_fields, read_cases
from perfsim.validate.groups import PredictedCase, RankedPairs, best_known, group_errors
from perfsim.validate.mapping import MappingRule, SourceCases, role_of, rules_of, scenario_of
from perfsim.validate.measurements import validate_measurements
from perfsim.validate.metrics import predicted_metric

__all__ = ["GROUPS", "ParallelGroup", "configurations_ranked", "main", "parallel_text"]

PARALLEL_SCHEMA = "perfsim/parallel-record/1"
PARALLEL_COLUMNS = (
    *("by", "name", "way", "rows", "left", "median", "p90", "bias", "coverage", "half_width"),
    *("pairs", "ranked_right"),
)
_APART = 1.1
"""Factor between measured rates above which two configurations are ranked."""
_KINDS = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}


class ParallelGroup(NamedTuple):
    """Sources that are judged together.

    ``publishers`` are what ids of their cases begin with; ``models`` are words of which a case's
    model must have one, where a source has other models too. ``apart``: excluded, reported apart.
    """

    publishers: tuple[str, ...]
    models: tuple[str, ...] = ()
    apart: bool = False

    def has(self, case: Case) -> bool:
        """Tell whether a case belongs to the group."""
        named = not self.models or any(word in case.model for word in self.models)
        return named and case.publisher.startswith(self.publishers)


GROUPS = {
    "llm-foundry FSDP": ParallelGroup(("llm-foundry",)),
    "InternEvo": ParallelGroup(("internevo",)),
    "torchtitan, fms-fsdp, PyTorch blogs, HF playbook": ParallelGroup(
        ("torchtitan", "ibm-", "nanotron")
    ),
    "bigscience": ParallelGroup(("bigscience",)),
    "NVIDIA's summaries": ParallelGroup(("nvidia-",)),
    "DeepSpeed, Megatron-LLaMA": ParallelGroup(("deepspeed", "megatron_llama")),
    "MLPerf's language models": ParallelGroup(("mlperf-",), ("llama31", "gpt3")),
    "vTrain": ParallelGroup(("vtrain",), apart=True),
}
"""Groups of the record, in its order."""


class _Judged(NamedTuple):
    """The predicted rows of a group, in every way, and how many rows are not predicted."""

    rows: list[PredictedCase]
    left: list[tuple[str, str]]


def parallel_text(
    path: Path, date: str, names: Collection[str] = tuple(GROUPS), rows: io.StringIO | None = None
) -> str:
    """Return the record of a table as the text of ``profiles/measurements/parallel.csv``.

    Parameters
    ----------
    path : a table of training runs
    date : of the record
    names : groups that are asked
    rows : takes every predicted row and every one that is left, as CSV
    """
    out = io.StringIO()
    out.write(
        f"# schema: {PARALLEL_SCHEMA}\n"
        "# title: Errors of predicted training runs with several kinds of parallelism,"
        " |predicted / measured - 1| of the time\n"
        "# source: published runs; perfsim validate measurements\n"
        f"# date: {date}\n"
    )
    judged = {name: _judge(path, GROUPS[name]) for name in GROUPS if name in names}
    every = [row for one in judged.values() for row in one.rows]
    for notice in sorted({row.case.notice for row in every if row.case.notice}):
        out.write(f"# notice: {notice}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(PARALLEL_COLUMNS)
    for name, one in judged.items():
        writer.writerows(_lines("group", name, one.rows, len(one.left)))
    counted = [one for name, one in judged.items() if not GROUPS[name].apart]
    counts = [row for one in counted for row in one.rows]
    for source in sorted({row.case.group for row in counts}):
        left = sum(name.rpartition("-")[0] == source for one in counted for name, _ in one.left)
        own = [row for row in counts if row.case.group == source]
        writer.writerows(_lines("source", source, own, left))
    for kind, word in _KINDS.items():
        own = [row for row in counts if kind in parse_fields(row.case.split, row.case.id)]
        writer.writerows(_lines("kind", f"{word} parallelism", own, None))
    if rows is not None:
        _write_rows(rows, judged)
    return out.getvalue()


def _lines(
    by: str, name: str, rows: Sequence[PredictedCase], left: int | None
) -> Iterable[list[object]]:
    """Yield the line of the blind way, and of the way that knows most of each row."""
    ways = {"blind": [row for row in rows if row.way == "blind"], "best": best_known(rows)}
    for way, asked in ways.items():
        if not asked:
            continue
        errors, pairs = group_errors(by, name, asked), configurations_ranked(asked)
        shares = (
            *(errors.score.median, errors.score.p90, errors.bias),
            *(errors.coverage, errors.half_width),
        )
        cells = ["" if share is None else f"{share:.4f}" for share in shares]
        yield [by, name, way, errors.score.count, "" if left is None else left, *cells, *pairs]


def _write_rows(out: io.StringIO, judged: dict[str, _Judged]) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("group", "id", "way", "split", "metric", "measured", "predicted", "error"))
    for name, one in judged.items():
        for row in one.rows:
            case = row.case
            figures = (f"{value:.6g}" for value in (case.value, row.predicted, row.error))
            writer.writerow((name, case.id, row.way, case.split, case.metric, *figures))
        writer.writerows((name, name_, "left", "", why, "", "", "") for name_, why in one.left)


def _judge(path: Path, group: ParallelGroup) -> _Judged:
    """Return the predicted rows of a group, and the ids and reasons of the others."""
    cases = [case for case in read_cases(path) if group.has(case)]
    if not cases:
        return _Judged([], [])
    if group.apart:
        return _judge_apart(cases)
    # Only the rows of these sources: others say nothing of them.
    numbers = {case.id.rpartition("-")[2] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "runs.csv"
        write_text(own, _rows_of(path, numbers))
        report = validate_measurements(own)
    left = [(item.case.id, f"{item.role}: {item.reason}") for item in report.left]
    return _Judged([row for row in report.rows if row.whole], left)


def _rows_of(path: Path, numbers: Collection[str]) -> str:
    """Return a table with some of its rows."""
    out = io.StringIO()
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(line for line in file if not line.startswith("#"))
        writer = csv.DictWriter(out, reader.fieldnames or (), lineterminator="\n")
        writer.writeheader()
        writer.writerows(row for row in reader if row["id"] in numbers)
    return out.getvalue()


def _judge_apart(cases: Sequence[Case]) -> _Judged:
    """Predict cases that a criterion excludes, as if it did not."""
    catalog = Session()
    rules: list[MappingRule] = rules_of(catalog)
    source = SourceCases(cases, rules, catalog)
    rows, left = [], []
    for case in cases:
        role = role_of(case, rules, catalog)
        try:
            scenario = scenario_of(case, role, source, "blind")
            if scenario is None:
                left.append((case.id, f"{role.role}: {role.reason}"))
                continue
            prediction = predict_iteration(scenario, catalog)
            (value, low, high), error = predicted_metric(case.metric, case.value, prediction)
        except RequestError as why:
            left.append((case.id, f"missing: {why}"))
            continue
        rows.append(PredictedCase(case, scenario, value, (low, high), error))
    return _Judged(rows, left)


def configurations_ranked(rows: Sequence[PredictedCase]) -> RankedPairs:
    """Count pairs of configurations of one model on one cluster that are apart, and those right.

    Rates are compared, in samples a second or FLOP/s, so that batches may differ.
    """
    alike: dict[Hashable, list[PredictedCase]] = {}
    for row in rows:
        alike.setdefault(_setting(row), []).append(row)
    pairs = right = 0
    for same in alike.values():
        for row, other in combinations(same, 2):
            ratio = _rate(row) / _rate(other)
            if 1 / _APART <= ratio <= _APART or row.scenario == other.scenario:
                continue
            pairs += 1
            # A time's error is measured over predicted rate less one.
            predicted = ratio * (1 + other.error) / (1 + row.error)
            right += (ratio > 1) == (predicted > 1)
    return RankedPairs(pairs, right)


def _setting(row: PredictedCase) -> Hashable:
    asked = row.scenario
    counted = row.case.metric if row.case.metric.startswith("flops") else "samples"
    return (
        *(row.case.group, row.way, asked.model, asked.seq, asked.precision, asked.gpu),
        *(asked.net, asked.gpus, counted),
    )


def _rate(row: PredictedCase) -> float:
    """Return what was measured as a rate."""
    case, asked = row.case, row.scenario
    if case.metric != "iteration_s":
        return case.value
    replicas = asked.gpus / (asked.tp * asked.pp * asked.cp)
    return (asked.batch or 1) * asked.accumulate * replicas / case.value


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict published training runs and record the errors by group."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--measurements", type=Path, required=True, help="table of training runs")
    parser.add_argument("--out", type=Path, help="file to write; printed where there is none")
    parser.add_argument("--date", required=True, help="date of the record, such as 2026-11-24")
    parser.add_argument("--group", choices=tuple(GROUPS), nargs="+", default=tuple(GROUPS))
    parser.add_argument("--rows", type=Path, help="file for every row")
    given = parser.parse_args(arguments)
    rows = io.StringIO() if given.rows else None
    text = parallel_text(given.measurements, given.date, given.group, rows)
    if given.rows and rows is not None:
        write_text(given.rows, rows.getvalue())
    if given.out:
        write_text(given.out, text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
