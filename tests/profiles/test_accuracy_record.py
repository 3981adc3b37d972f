"""Maintainers' commands on tables of measured cases: what they write is what the library reads."""

from __future__ import annotations

import shutil
import sys
from math import exp, log
from pathlib import Path
from types import ModuleType

import pytest

import accuracy_record
import interval_record
import measurement_tables as tables
from interval_record import Residual, held_out, read_residuals, residuals_text
from perfsim.data.catalog import Catalog, shipped
from perfsim.interval import (
    NO_METHOD,
    UNCERTAINTY_FILE,
    UNCERTAINTY_PARTS,
    Uncertainty,
    uncertainties,
)
from perfsim.validate.accuracy import read_accuracy
from perfsim.validate.cases import CASE_COLUMNS, read_cases
from perfsim.validate.measurements import validate_measurements
from perfsim.validate.record import read_validation_record, worse

ROW = "{},{},ResNet-50,V100-PCIE-32GB,{},4,PCIe3 in node,64,,{},{},{},"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table of a row that calibrates and four of other sources that test."""
    path = tmp_path / "cases.csv"
    rows = [
        ROW.format("t-1", "single GPU", 1, "", "throughput", 250),
        ROW.format("t-2", "S-SGD DDP", 8, "", "throughput", 1800),
        ROW.format("u-1", "S-SGD DDP", 4, "", "iteration_s", 0.27),
        ROW.format("v-1", "Top-k", 8, "density 0.01", "iteration_s", 0.28),
        ROW.format("w-1", "Top-k", 4, "density 0.01", "iteration_s", 0.25),
    ]
    path.write_text("\n".join([",".join(CASE_COLUMNS), *rows]) + "\n")
    return path


def ask(monkeypatch: pytest.MonkeyPatch, command: ModuleType, *words: object) -> None:
    """Run ``python COMMAND.py WORDS``."""
    monkeypatch.setattr(sys, "argv", ["command", *map(str, words)])
    command.main()


def test_intervals_are_fitted_again_from_residuals_without_a_prediction(
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "measurements").mkdir()
    out, again = tmp_path / "measurements" / UNCERTAINTY_FILE, tmp_path / "again.csv"
    kept = tmp_path / "residuals.csv"
    dated = ["--date", "2026-11-21"]
    ask(
        *(monkeypatch, interval_record, "--measurements", table, "--out", out, *dated),
        *("--residuals", kept),
    )
    printed = capsys.readouterr().out.splitlines()
    rows = read_residuals(kept)
    # Predicted by the library, measured by the table: log of one over the other.
    own = {(row.case.id, row.way): row for row in validate_measurements(table).rows}
    assert sorted((one.id, one.way) for one in rows) == sorted(own)
    assert {one.id for one in rows} == {"t-2", "u-1", "v-1", "w-1"}
    for one in rows:
        assert one.log == pytest.approx(-log(1 + own[one.id, one.way].error), rel=1e-5)
    known = uncertainties(Catalog(tmp_path))
    assert set(known) == {NO_METHOD, *(one.source for one in rows)}
    assert (known[NO_METHOD].rows, known[NO_METHOD].sources) == (len(rows), 4)
    assert [line.split("  ")[0] for line in printed] == [
        "rows all rows",
        *(f"rows {way}" for way in sorted({one.way for one in rows})),
        *(f"rows {name}" for name in sorted(set(known) - {NO_METHOD})),
    ]
    ask(monkeypatch, interval_record, "--from-residuals", kept, "--out", again, *dated)
    assert capsys.readouterr().out.splitlines() == printed
    assert again.read_text() == out.read_text()
    # Rows in a wrong unit: a record that could not be read again is not written.
    far = [one._replace(log=one.log + 40.0) for one in rows]
    kept.write_text(residuals_text(far, "2026-11-21"))
    with pytest.raises(SystemExit):
        ask(monkeypatch, interval_record, "--from-residuals", kept, "--out", again, *dated)
    assert "is off by a factor of 2" in capsys.readouterr().err
    assert again.read_text() == out.read_text()


def test_the_share_inside_is_told_by_row_and_by_source_by_hand() -> None:
    sizes = dict.fromkeys(UNCERTAINTY_PARTS, 0.0) | {"other": 0.1}
    found = {name: Uncertainty(name, 4, 2, sizes) for name in ("a", "b")}
    moves = {"other": (1.0, 1.0)}
    rows = [
        Residual(f"a-{n}", "a", "blind", off, moves) for n, off in enumerate((0.05, -0.09, 0.2))
    ]
    rows.append(Residual("b-0", "b", "rated", -0.3, moves))
    lines = {line["rows"]: line for line in held_out(rows, found)}
    # Two of a's three and none of b's: half of all rows, a third of the sources alike.
    columns = ("count", "coverage", "alike")
    shares = {name: tuple(line[one] for one in columns) for name, line in lines.items()}
    assert shares == {
        "all rows": ("4", "50.0%", "33.3%"),
        "blind": ("3", "66.7%", "66.7%"),
        "rated": ("1", "0.0%", "0.0%"),
        "a": ("3", "66.7%", "66.7%"),
        "b": ("1", "0.0%", "0.0%"),
    }
    wide = (exp(0.1) - exp(-0.1)) / 2
    assert {line["half width"] for line in lines.values()} == {f"{wide:.1%}"}


def test_the_record_of_methods_is_read_as_written(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "accuracy.csv"
    ask(
        monkeypatch,
        accuracy_record,
        "methods",
        "--measurements",
        table,
        "--out",
        out,
        "--date",
        "2026-11-21",
    )
    errors: dict[str, list[float]] = {}
    for row in validate_measurements(table).whole:
        errors.setdefault(row.method, []).append(abs(row.error))
    lines = {line.method: line for line in read_accuracy(out)}
    assert {name: line.rows for name, line in lines.items()} == {"ssgd": 2, "topk": 2}
    for name, line in lines.items():
        assert line.median_error == pytest.approx(sum(errors[name]) / 2, abs=1e-4)
        assert line.median_error <= line.p90_error <= max(errors[name]) + 1e-4
    assert (lines["ssgd"].sources, lines["topk"].sources) == ("t u", "v w")
    assert lines["ssgd"].words().startswith("2 rows (none of them shipped), median ")
    assert "# date: 2026-11-21\n" in out.read_text()


def test_stored_errors_of_a_table_are_no_worse_than_themselves(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "summary.csv"
    ask(
        monkeypatch,
        accuracy_record,
        "groups",
        "--measurements",
        table,
        "--out",
        out,
        "--date",
        "2026-11-21",
    )
    found = read_validation_record(out)
    assert {one.name for one in found if one.by == "method"} == {"ssgd", "topk"}
    assert worse(validate_measurements(table), found) == []


def test_every_source_with_rows_has_a_table_and_no_other(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    shutil.copy(shipped() / "measurements" / "map.toml", out)
    lines = [f"# schema: {tables.TABLE_SOURCES_SCHEMA}", ",".join(tables.TABLE_SOURCES_COLUMNS)]
    lines += ["ours,t-* u-1,Ours,A paper,MIT,,2020,", "none,z-*,Nothing,B,MIT,,2020,"]
    (out / tables.SOURCES_FILE).write_text("\n".join(lines) + "\n")
    ask(monkeypatch, tables, "--measurements", table, "--out", out)
    assert {path.name for path in out.iterdir()} == {"map.toml", tables.SOURCES_FILE, "ours.csv"}
    made = read_cases(out / "ours.csv")
    assert [case.id for case in made] == ["t-1", "t-2", "u-1"]
    assert [case.value for case in made] == [250.0, 1800.0, 0.27]
    assert {case.source for case in made} == {"A paper"}
