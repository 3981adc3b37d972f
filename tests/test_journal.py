"""The record of a sweep: what is on disk is whole, and a run goes on from it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from perfsim.calibrate.measure.repeats import NetworkJournal, NetworkPoint
from perfsim.errors import DataError, RequestError

SETTING = {"library": "gloo", "ranks": 2}


def point(size: int, *seconds: float, collective: str = "all_reduce") -> NetworkPoint:
    return NetworkPoint(collective, 2, 2, 1, size, seconds or (1e-3, 1.1e-3))


def test_a_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    first = NetworkJournal(tmp_path / "x.part", SETTING)
    for size in (1024, 2048):
        first.add(point(size, 1e-3 / 3, 2.5e-4))
    again = NetworkJournal(tmp_path / "x.part", SETTING)
    assert again.points == first.points and again.done() == first.done() != set()
    assert NetworkJournal(tmp_path / "x.part", SETTING, resume=False).points == []


@pytest.mark.parametrize("left", [1, 20, 60])
def test_half_a_last_line_is_cut_off_and_the_sweep_goes_on(tmp_path: Path, left: int) -> None:
    path = tmp_path / "x.part"
    whole = NetworkJournal(path, SETTING)
    whole.add(point(1024))
    kept = path.read_bytes()
    whole.add(point(2048))
    path.write_bytes(path.read_bytes()[: len(kept) + left])
    again = NetworkJournal(path, SETTING)
    assert again.points == [point(1024)] and path.read_bytes() == kept
    again.add(point(4096))
    assert NetworkJournal(path, SETTING).points == [point(1024), point(4096)]


def test_a_record_that_was_killed_at_its_first_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    for torn in ("", '{"schema": "perfsim/meas'):
        path.write_text(torn)
        assert NetworkJournal(path, SETTING).points == []
        assert json.loads(path.read_text())["library"] == "gloo"


def test_points_of_another_setting_are_not_mixed_in(tmp_path: Path) -> None:
    NetworkJournal(tmp_path / "x.part", SETTING)
    with pytest.raises(RequestError) as refused:
        NetworkJournal(tmp_path / "x.part", {**SETTING, "ranks": 4})
    assert str(refused.value) == (
        f"--out: {tmp_path / 'x.part'} was begun with ranks 2, now it is 4; delete it or name"
        " another --out."
    )


@pytest.mark.parametrize(
    "text", ["{}\n", "nonsense\n", '{"schema": "perfsim/measured-points/1"}\n[]\n']
)
def test_what_is_no_record_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.part"
    path.write_text(text)
    with pytest.raises(DataError, match="is no record of a sweep that can be gone on with"):
        NetworkJournal(path, SETTING)
    assert path.read_text() == text


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = NetworkJournal(tmp_path / "x.part", SETTING)
    journal.add(point(1024))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RequestError, match="cannot be written: No space left on device; what was"):
        journal.add(point(2048))
    monkeypatch.undo()
    assert journal.points == [point(1024)]
