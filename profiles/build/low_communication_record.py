"""Record published runs that communicate less beside their predictions.

    python profiles/build/low_communication_record.py --measurements FILE \
        --out profiles/measurements/low_communication.csv --date DATE

FILE is a table of such runs (`perfsim.validate.low_communication`). Each row of it gets a line:
what was measured, what is predicted in the way that knows most of it, their ratio and the 90 %
interval, or why it is not predicted. Nothing is fitted on the table: as in
`perfsim validate measurements`, a run knows at most what its source says that one GPU computes.
A ratio of two runs is asked as a claim of a scenario file: its line has the claim and the range of
perfsim's figures (`CLAIMED`).
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from perfsim.data.files import write_text
from perfsim.session import Session
from perfsim.validate.cases import Case
from perfsim.validate.claims import ClaimResult, validate_claims
from perfsim.validate.groups import PredictedCase, best_known, group_errors
from perfsim.validate.measurements import validate_measurements

__all__ = ["CLAIMED", "LOW_COMMUNICATION_RECORD_COLUMNS", "main", "record_text"]

_RECORD_SCHEMA = "perfsim/low-communication-record/1"
LOW_COMMUNICATION_RECORD_COLUMNS = (
    *("source", "row", "run", "network", "metric", "measured", "way", "predicted", "ratio"),
    *("low", "high", "claim", "reason"),
)

_LICENCE = (
    "Apache-2.0 (Adnan082/diloco-measured); rows of other sources are single quoted figures,"
    " each cited in its scenario file, in claims_not_asked.toml or in training_facts.toml"
)


class _Claimed(NamedTuple):
    """Rows that a claim asks: words of their ids and notes, and the claim's name."""

    ids: str
    notes: str
    claim: str


CLAIMED = (
    _Claimed("deepspeed-40", "*", "1-bit Adam over Adam, BERT-Large, 40 GbE, compressed stage"),
    _Claimed(
        "deepspeed-41",
        "*",
        "1-bit Adam over Adam, BERT-Large, 40 Gbit/s InfiniBand, compressed stage",
    ),
    _Claimed(
        "deepspeed-42", "*", "1-bit Adam over Adam, BERT-Large on SQuAD, 40 GbE, compressed stage"
    ),
    _Claimed(
        "zero_blog-*",
        "1k tokens*",
        "ZeRO++ over ZeRO-3, 384 V100, 400 Gbit/s a node, 1k tokens a GPU",
    ),
    _Claimed(
        "zero_blog-*",
        "2k tokens*",
        "ZeRO++ over ZeRO-3, 384 V100, 400 Gbit/s a node, 2k tokens a GPU",
    ),
    _Claimed("zero_blog-*", "low-bandwidth*", "ZeRO++ over ZeRO-3, 384 V100, 100 Gbit/s a node"),
    _Claimed("zero_paper*", "*", "ZeRO++ at 200 Gbit/s over ZeRO-3 at 800 Gbit/s a node, 18B"),
    _Claimed("egoverse*-5[78]", "*", "bf16 gradients over fp32 ones, 1.2B on 8 A40 over PCIe"),
    _Claimed("mlfoundations*", "*", "FSDP with bf16 gradients over fp32 ones, 7B on 16 A100"),
    _Claimed("sdp4bit_abstract*", "*", "SDP4Bit over Megatron's distributed optimizer, 128 GPUs"),
    _Claimed(
        "intellect_1-*",
        "*",
        "INTELLECT-1, share of time computed, DiLoCo in int8 over the internet",
    ),
    _Claimed("ms_amp_docs-*", "*", "FP8-LM over Transformer Engine, GPT-175B on H100"),
    _Claimed("sdp4bit_table_5-*", "*", "SDP4Bit's kernels alone"),
    _Claimed("prime_diloco_pr_23-55", "*", "prime's int8 ring alone"),
    _Claimed("opentau*", "*", "DDP over ZeRO-2, a vision-language-action policy on 8 GPUs"),
    _Claimed("olmo_issue_762*", "*", "FSDP beside DDP, OLMo-1B on 4 GPUs"),
    _Claimed(
        "torchtitan_issue_3434*",
        "*",
        "Batches of experts overlapped, DeepSeek-V3 of 16B on 32 H100",
    ),
    _Claimed(
        "deepspeed-7[234]",
        "*",
        "ZeRO-1 with expert parallelism over ZeRO-3, Qwen3.6-35B-A3B cut to 20 layers on 16 H100",
    ),
)
"""Rows and the claims that they state, those that cannot be asked among them."""


def record_text(path: Path, date: str, claims: Mapping[str, ClaimResult] | None = None) -> str:
    """Return the record of a table as the text of ``profiles/measurements/low_communication.csv``.

    Parameters
    ----------
    path : a table of runs that communicate less
    date : of the record
    claims : results by a claim's name; None asks all that ship
    """
    if claims is None:
        claims = {
            found.claim.name: found
            for found in validate_claims(Session())
            if isinstance(found, ClaimResult)
        }
    report = validate_measurements(path)
    best = {row.case.id: row for row in best_known(report.rows)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    _write_head(out, list(best.values()), date)
    writer.writerow(LOW_COMMUNICATION_RECORD_COLUMNS)
    lines = {name: _predicted(row) for name, row in best.items()}
    for item in report.left:
        if item.role != "calibration":
            lines[item.case.id] = _left(item.case, item.reason, claims)
    writer.writerows(lines[name] for name in sorted(lines, key=_place))
    return out.getvalue()


def _write_head(out: io.StringIO, rows: Sequence[PredictedCase], date: str) -> None:
    errors = group_errors("all", "runs", rows)
    out.write(
        f"# schema: {_RECORD_SCHEMA}\n"
        "# title: Published runs that communicate less: measured and predicted\n"
        "# source: perfsim validate measurements, perfsim validate claims\n"
        f"# licence: {_LICENCE}\n"
        f"# date: {date}\n"
    )
    if errors.score.median is not None and errors.score.p90 is not None:
        out.write(
            f"# summary: {errors.score.count} runs: median {errors.score.median:.1%},"
            f" p90 {errors.score.p90:.1%}, bias {errors.bias:+.1%}\n"
        )


def _place(name: str) -> int:
    """Return a row's place in its table, with which its id ends."""
    return int(name.rpartition("-")[2])


def _predicted(row: PredictedCase) -> list[str]:
    case = row.case
    figures = (case.value, row.predicted, row.predicted / case.value, *row.interval)
    measured, predicted, ratio, low, high = (f"{value:.5g}" for value in figures)
    return [*_words(case), measured, row.way, predicted, ratio, low, high, "", ""]


def _left(case: Case, reason: str, claims: Mapping[str, ClaimResult]) -> list[str]:
    name = next(
        (
            asked.claim
            for asked in CLAIMED
            if fnmatchcase(case.id, asked.ids) and fnmatchcase(case.notes, asked.notes)
        ),
        "",
    )
    measured, found = f"{case.value:.5g}" if case.value else "", claims.get(name)
    if found is None:
        return [*_words(case), measured, "", "", "", "", "", name, reason]
    low, high = f"{found.low:.5g}", f"{found.high:.5g}"
    asked = f"{name}: {found.claim.figures()}, {found.lands()}"
    return [*_words(case), measured, "claim", "", "", low, high, asked, reason]


def _words(case: Case) -> list[str]:
    """Return source, row, what ran, on which network, and the metric."""
    return [case.group, case.id.rpartition("-")[2], case.system, case.network, case.metric]


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict published runs that communicate less and record them beside what was measured."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--measurements", type=Path, required=True, help="table of such runs")
    parser.add_argument("--out", type=Path, help="file to write; printed where there is none")
    parser.add_argument("--date", required=True, help="date of the record, such as 2026-11-24")
    given = parser.parse_args(arguments)
    text = record_text(given.measurements, given.date)
    if given.out:
        write_text(given.out, text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
