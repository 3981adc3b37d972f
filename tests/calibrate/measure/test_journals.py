"""Journals on disk: what is measured is kept, half a line cut off, another setting refused."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from perfsim.calibrate.measure.journals import (
    KernelJournal,
    KernelPoint,
    KernelStop,
    NetworkJournal,
)
from perfsim.errors import DataError, RequestError
from perfsim.network.network_file import Noticed
from support import hand_benches
from support.hand_benches import journal
from support.sweep_points import SETTING, point


def test_a_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    first = NetworkJournal(tmp_path / "x.part", SETTING)
    for size in (1024, 2048):
        first.add_point(point(size, 1e-3 / 3, 2.5e-4))
    again = NetworkJournal(tmp_path / "x.part", SETTING)
    assert again.points == first.points and again.measured_keys() == first.measured_keys() != set()
    assert NetworkJournal(tmp_path / "x.part", SETTING, fresh=True).points == []


@pytest.mark.parametrize("left", [1, 20, 60])
def test_half_a_last_line_is_cut_off_and_the_sweep_goes_on(tmp_path: Path, left: int) -> None:
    path = tmp_path / "x.part"
    whole = NetworkJournal(path, SETTING)
    whole.add_point(point(1024))
    kept = path.read_bytes()
    whole.add_point(point(2048))
    path.write_bytes(path.read_bytes()[: len(kept) + left])
    again = NetworkJournal(path, SETTING)
    assert again.points == [point(1024)] and path.read_bytes() == kept
    again.add_point(point(4096))
    assert NetworkJournal(path, SETTING).points == [point(1024), point(4096)]


def test_a_record_that_was_killed_at_its_first_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    for torn in ("", '{"schema": "perfsim/meas'):
        path.write_text(torn)
        assert NetworkJournal(path, SETTING).points == []
        assert json.loads(path.read_text())["library"] == "gloo"


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"ranks": 2}, {"ranks": 4}, "ranks 2, now it is 4"),
        (
            {"host": ["a", "b"]},
            {"host": ["a", "c"]},
            "host 'b' at rank 1, now it is 'c'",
        ),
        ({"host": ["a", "b"]}, {"host": ["b", "a"]}, "host 'a' at rank 0, now it is 'b'"),
        ({"perfsim": "1.0"}, {"perfsim": "1.1"}, "perfsim 1.0, now it is 1.1"),
        (
            {"perfsim": "9" * 5000},
            {"perfsim": "1.1"},
            f"perfsim '{'9' * 59}..., now it is 1.1",
        ),
    ],
)
def test_points_of_another_setting_are_not_mixed_in(
    tmp_path: Path, before: dict[str, object], now: dict[str, object], said: str
) -> None:
    path = tmp_path / "x.part"
    NetworkJournal(path, {**SETTING, **before})
    with pytest.raises(RequestError) as refused:
        NetworkJournal(path, {**SETTING, **now})
    assert str(refused.value) == f"out: {path} was begun with {said}; fresh begins anew."
    assert NetworkJournal(path, {**SETTING, **now}, fresh=True).points == []


def test_runs_looks_and_what_was_noticed_are_kept(tmp_path: Path) -> None:
    first = NetworkJournal(tmp_path / "x.part", SETTING)
    first.add_run("begun today")
    first.add_point(point(1024, 2e-3))
    first.add_point(point(1024, 1e-3))
    first.add_look(point(1024, 5e-3))
    first.add_noticed(Noticed("stalls", "calls stalled."))
    again = NetworkJournal(tmp_path / "x.part", SETTING)
    assert again.runs == ["begun today"] and again.points == [point(1024, 1e-3)]
    assert again.attempts == [point(1024, 2e-3), point(1024, 1e-3), point(1024, 5e-3)]
    assert again.looks == first.looks == [point(1024, 5e-3)]
    assert again.noticed == first.noticed == [("stalls", "calls stalled.")]


WRONG_TIMES = (
    ("[]", "seconds is [], not a list of times"),
    ("1.0", "seconds is 1.0, not a list of times"),
    ("[-1.0]", "seconds[0] is -1.0, not a time of 1e-15 s to 1e9 s"),
    ("[1.0, 0.0]", "seconds[1] is 0.0, not a time of"),
    ("[1e300]", "seconds[0] is 1e+300, not a time of"),
    ('["1.0"]', "seconds[0] is '1.0', not a time of"),
    ("[true]", "seconds[0] is true, not a time of"),
    ("[null]", "seconds[0] is None, not a time of"),
    ("[NaN]", "holds NaN, which is no finite number"),
    ("[-Infinity]", "holds -Infinity, which is no finite number"),
    ("[1e999]", "holds 1e999, which is no finite number"),
)


def refused_in_one_line(path: Path, before: str, after: str) -> str:
    """Change the last line of a journal's file; return what is then said of it."""
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    with pytest.raises(DataError) as refused:
        NetworkJournal(path, SETTING) if path.suffix == ".part" else journal(path.parent)
    assert path.read_text() == text.replace(before, after)
    said = str(refused.value)
    start = f"{path}, line 2: "
    assert said.startswith(start) and said.endswith("; fresh begins anew.")
    return said.removeprefix(start)


@pytest.mark.parametrize(("seconds", "said"), WRONG_TIMES, ids=[one for one, _ in WRONG_TIMES])
def test_times_that_cannot_be_are_refused(tmp_path: Path, seconds: str, said: str) -> None:
    path = tmp_path / "x.part"
    NetworkJournal(path, SETTING).add_point(point(1024, 1.0))
    assert refused_in_one_line(path, "[1.0]", seconds).startswith(said)
    kernels = journal(tmp_path)
    kernels.add_point(KernelPoint("qr", 64, 2, (1.0,)))
    assert refused_in_one_line(kernels.path, "[1.0]", seconds).startswith(said)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"ranks": 2', '"ranks": 2.5', "ranks is 2.5, not a whole number of 1 to 1e9"),
        ('"ranks": 2', '"ranks": "2"', "ranks is '2', not a whole number"),
        ('"nodes": 2', '"nodes": true', "nodes is true, not a whole number"),
        ('"gpus_per_node": 1', '"gpus_per_node": 0', "gpus_per_node is 0, not a whole number"),
        ('"size_bytes": 1024', '"size_bytes": -1', "size_bytes is -1, not a whole number of 1"),
        ('"waited_s": 0.0', '"waited_s": -0.1', "waited_s is -0.1, not a time of 0 s to 1e9 s"),
        ('"all_reduce"', "7", "collective is 7, not a text"),
    ],
)
def test_fields_of_a_network_that_cannot_be_are_refused(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    path = tmp_path / "x.part"
    NetworkJournal(path, {"library": "gloo"}).add_point(point(1024, 1.0))
    setting = path.read_text().replace('"library": "gloo"', '"library": "gloo", "ranks":  2')
    path.write_text(setting)
    assert refused_in_one_line(path, before, after).startswith(said)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"elements": 64', '"elements": 64.5', "elements is 64.5, not a whole number of 1"),
        ('"elements": 64', '"elements": 1e300', "elements is 1e+300, not a whole number of 1"),
        ('"elements": 64', '"elements": 0', "elements is 0, not a whole number of 1"),
        ('"width": 2', '"width": -2', "width is -2, not a whole number of 0 to 1e9"),
        ('"width": 2', '"width": NaN', "holds NaN, which is no finite number"),
        ('"kernel": "qr"', '"kernel": ["qr"]', "kernel is ['qr'], not a text"),
        ('"final": true', '"final": "no"', "final is 'no', not true or false"),
        ('"why": "full"', '"why": 3', "why is 3, not a text"),
    ],
)
def test_fields_of_a_kernel_that_cannot_be_are_refused(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    kernels = journal(tmp_path)
    kernels.add_point(KernelStop("qr", 64, 2, "full", final=True))
    assert refused_in_one_line(kernels.path, before, after).startswith(said)


def test_a_word_that_perfsim_never_notices_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    NetworkJournal(path, SETTING).add_noticed(Noticed("stalls", "calls stalled."))
    said = refused_in_one_line(path, '"stalls"', '"sunshine"')
    assert said.startswith("what is 'sunshine', not one of change, ")


@pytest.mark.parametrize(
    "text", ["{}\n", "nonsense\n", '{"schema": "perfsim/measured-points/2"}\n[]\n']
)
def test_what_is_no_record_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.part"
    path.write_text(text)
    with pytest.raises(DataError, match="is no record of a sweep that can be gone on with"):
        NetworkJournal(path, SETTING)
    assert path.read_text() == text


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = NetworkJournal(tmp_path / "x.part", SETTING)
    journal.add_point(point(1024))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RequestError, match="cannot be written: No space left on device; what was"):
        journal.add_point(point(2048))
    monkeypatch.undo()
    assert journal.points == [point(1024)]


def test_what_ran_out_of_time_is_tried_again_and_what_ran_out_of_memory_is_not(
    tmp_path: Path,
) -> None:
    of = journal(tmp_path)
    of.add_point(KernelStop("eigh", 4096, 0, "no time", final=False))
    of.add_point(KernelStop("qr", 64, 2, "out of memory", final=True))
    assert journal(tmp_path).stops == [KernelStop("qr", 64, 2, "out of memory", final=True)]


def test_a_journal_of_another_machine_is_refused(tmp_path: Path) -> None:
    of = journal(tmp_path)
    with pytest.raises(RequestError, match="was begun with software some version, now it is new"):
        KernelJournal(of.path, {**hand_benches.SETTING, "software": "new"})
    KernelJournal(of.path, {**hand_benches.SETTING, "software": "new"}, fresh=True)
    of.path.write_text("not json\n")
    with pytest.raises(DataError, match="fresh begins anew"):
        journal(tmp_path)
