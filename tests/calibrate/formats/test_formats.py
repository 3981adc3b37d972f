"""Whole files and folders of any form: what is none, any damage, and all that was collected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.formats import read_folder, read_log
from perfsim.errors import DataError
from support.measured_texts import FOOT, NCCL_CSV, OWN, STARTING, devices, read, report, table
from support.paths import ROOT

COLLECTED = ROOT.parent / "shared" / "data" / "nccl"


@pytest.mark.parametrize("text", ["", "hello\n", "\0\1\2", "{}", "a,b,c\n1,2,3\n", "[1]"])
def test_what_is_no_measurement_is_refused_with_what_is_known(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, text)
    assert "nccl-tests' text output" in str(error.value) and "perfsim's own table" in str(
        error.value
    )


def test_a_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_log(tmp_path / "none.log")
    with pytest.raises(DataError, match="is not a folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(DataError, match="holds no file with measurements"):
        read_folder(tmp_path)


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "ours.csv").write_text(OWN)
    (tmp_path / "job.log").write_text(STARTING + devices(2, 4) + table())
    (tmp_path / "notes.txt").write_text("nothing")
    found = read_folder(tmp_path)
    assert {path.name: len(one.curves) for path, one in found.items()} == {
        "ours.csv": 1, "job.log": 1}  # fmt: skip


@pytest.mark.parametrize(
    "number", ["1e99999", "1e-99999", "9" * 5000, "1_0", "٣", "1e999999999999"]
)
def test_absurd_numbers_are_damaged_lines(tmp_path: Path, number: str) -> None:
    text = STARTING + devices(2, 4) + table()
    wrong = json.dumps(report()).replace('"time": 400.0', f'"time": "{number}"')
    for bad, name in (
        (text.replace("400.000", number), "job.log"),
        (text.replace("4.59", number), "job.log"),
        (OWN.replace(",30,", f",{number},"), "ours.csv"),
        (OWN.replace("0.119467", number), "ours.csv"),
        (wrong, "out.json"),
    ):
        if number in ("٣", "1_0") and "4.59" not in bad and "job" in name:
            continue
        found = read(tmp_path, bad, name, skip_bad=True)
        assert len(found.curves) == 1
    with pytest.raises(DataError):
        read(tmp_path, json.dumps(report()).replace("400.0", "9" * 5000), "out.json")


@given(st.data())
def test_no_damage_ends_in_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = data.draw(
        st.sampled_from(
            [
                STARTING + devices(2, 4) + table() + FOOT,
                OWN,
                json.dumps(report()),
                *NCCL_CSV.values(),
            ]
        )
    )
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(st.text(max_size=6)) + text[end:]
    path = tmp_path_factory.getbasetemp() / "damaged.log"
    path.write_text(text, encoding="utf-8", errors="replace")
    for skip_bad in (False, True):
        try:
            read_log(path, ranks=8, nodes=2, collective="all_reduce", skip_bad=skip_bad)
        except DataError as error:
            assert str(path) in str(error)


@pytest.mark.skipif(not COLLECTED.is_dir(), reason="the collected measurements are not here")
def test_all_collected_curves_read_without_a_damaged_line() -> None:
    found = read_folder(COLLECTED)
    assert len(found) == len(list(COLLECTED.glob("*.csv"))) == 130
    rows = sum(
        1
        for path in found
        for line in path.read_text().splitlines()
        if line and line[0] != "#" and not line.startswith("collective")
    )
    points = {
        (path, curve.collective, curve.ranks, size)
        for path, one in found.items()
        for curve in one.curves
        for size in curve.size_bytes
    }
    assert all(one.skipped == () for one in found.values())
    assert rows / 2 <= len(points) <= rows
