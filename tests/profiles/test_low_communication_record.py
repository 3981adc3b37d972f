"""The record of runs that communicate less: what its script computes, row by row."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import low_communication_record
from low_communication_record import CLAIMED, LOW_COMMUNICATION_RECORD_COLUMNS, record_text
from perfsim.data.catalog import shipped
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.scenario_file import read_scenario
from perfsim.session import Session
from perfsim.validate.claims import Claim, ClaimResult, claims_not_asked, claims_of
from support.collected import COLLECTED
from support.what_ships import SHIPPED

STORED = shipped() / "measurements" / "low_communication.csv"
TABLE = COLLECTED / "modern" / "low_communication.csv"
needs_table = pytest.mark.skipif(
    not TABLE.is_file(), reason="the collected table is not in this checkout"
)


def lines_of(text: str) -> list[dict[str, str]]:
    """Return the lines of a record."""
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def stored() -> list[dict[str, str]]:
    """Return the lines of the stored record."""
    return lines_of(STORED.read_text(encoding="utf-8"))


def shipped_claims() -> Iterator[tuple[str, Claim]]:
    """Yield every shipped claim with its scenario's name."""
    for name in SHIPPED.scenarios():
        for claim in claims_of(name, SHIPPED):
            yield name, claim


def test_each_row_is_predicted_or_says_why_not() -> None:
    lines = stored()
    assert tuple(lines[0]) == LOW_COMMUNICATION_RECORD_COLUMNS
    assert [int(line["row"]) for line in lines] == list(range(1, 90))
    for line in lines:
        assert bool(line["predicted"]) != bool(line["reason"]), line["row"]
        if line["predicted"]:
            ratio = float(line["predicted"]) / float(line["measured"])
            assert ratio == pytest.approx(float(line["ratio"]), rel=1e-3)
            assert float(line["low"]) < float(line["predicted"]) < float(line["high"])


@needs_table
def test_the_stored_predictions_are_what_the_script_computes() -> None:
    # Claims take minutes together, and one of them is asked below.
    now = {line["row"]: line for line in lines_of(record_text(TABLE, "2026-11-24", {}))}
    for line in stored():
        if line["way"] != "claim":
            assert line == now[line["row"]]
        else:
            assert now[line["row"]]["measured"] == line["measured"]
            assert now[line["row"]]["reason"] == line["reason"]


def test_a_stored_claim_is_what_its_scenarios_say() -> None:
    name, claim = next(
        (name, claim) for name, claim in shipped_claims() if "384 V100, 100 Gbit/s" in claim.name
    )
    session = Session()
    fields = dict(read_scenario(SHIPPED.scenario(name))["scenario"])
    ours = {
        words: predict(make_scenario(claim.rivals(setting)[0]), session).iteration_s
        / predict(make_scenario(setting), session).iteration_s
        for words, setting in claim.settings(fields)
    }
    found = ClaimResult(claim, ours)
    [line] = [line for line in stored() if line["claim"].startswith(claim.name)]
    assert (line["low"], line["high"]) == (f"{found.low:.5g}", f"{found.high:.5g}")
    assert line["claim"].endswith(found.lands())


def test_every_claim_of_a_row_is_a_claim_and_some_row_s() -> None:
    known = {claim.name for _, claim in shipped_claims()}
    known |= {claim.name for claim in claims_not_asked(SHIPPED)}
    ids = [f"{line['source']}-{line['row']}" for line in stored()]
    for asked in CLAIMED:
        assert asked.claim in known
        assert any(fnmatchcase(name, asked.ids) for name in ids), asked.ids


@needs_table
def test_the_script_writes_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_communication_record, "validate_claims", lambda _: [])
    out = tmp_path / "record.csv"
    asked = ["--measurements", str(TABLE), "--date", "2026-01-02", "--out", str(out)]
    low_communication_record.main(asked)
    assert "# date: 2026-01-02\n# summary: 39 runs: median" in out.read_text()
