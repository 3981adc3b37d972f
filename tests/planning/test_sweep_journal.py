"""A sweep that was stopped, or whose disk was full, loses nothing and goes on where it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from perfsim.cli.main import code
from perfsim.errors import RequestError
from perfsim.planning.grid import SweepGrid, axes_of
from perfsim.planning.sweep import Sweep, SweepRows, resumed


def test_an_interrupted_run_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsim.planning.sweep.MAX_SINGLE_CHUNK", 16)
    asked = Sweep(SweepGrid({"model": "resnet50"}, axes_of({"gpus": "1..40:1"})))
    out = tmp_path / "rows.csv"
    seen: list[int] = []

    def broken(one: Sweep, chunks: Any) -> Any:
        yield SweepRows(one).chunk(*chunks[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resumed(asked, broken, out, seen.append)
    journal = tmp_path / "rows.csv.journal"
    with journal.open("a") as file:
        file.write('{"start": 16, "ro')  # a line that was cut short

    def rest(one: Sweep, chunks: Any) -> Any:
        assert chunks[0][0] == seen[-1] > 0
        return (SweepRows(one).chunk(*chunk) for chunk in chunks)

    table = resumed(asked, rest, out, seen.append)
    assert table.rows == SweepRows(asked).chunk(0, 40)
    other = Sweep(SweepGrid({"model": "vgg16"}, asked.grid.axes))
    said = "begun with scenario model=resnet50, now it is model=vgg16; fresh begins anew"
    with pytest.raises(RequestError, match=said):
        resumed(other, rest, out, seen.append)


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsim.planning.sweep.MAX_SINGLE_CHUNK", 16)
    asked = ["sweep", "--model", "resnet50", "--vary", "gpus=1..40:1"]
    out = tmp_path / "rows.csv"
    whole = SweepRows.chunk

    def pressed(self: SweepRows, start: int, stop: int) -> Any:
        if start:
            raise KeyboardInterrupt
        return whole(self, start, stop)

    monkeypatch.setattr(SweepRows, "chunk", pressed)
    assert code([*asked, "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert said == (
        f"perfsim: stopped; the rows so far are in {out}.journal, and the same command goes on from"
        " there.\n"
    )
    assert code(asked) == 1
    assert capsys.readouterr().err.startswith("perfsim: stopped; with --out, ")
    begun: list[int] = []

    def counted(self: SweepRows, start: int, stop: int) -> Any:
        begun.append(start)
        return whole(self, start, stop)

    monkeypatch.setattr(SweepRows, "chunk", counted)
    assert code([*asked, "--out", str(out)]) == 0
    assert begun == [16, 32]
    assert len(out.read_text().splitlines()) == 41
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_a_disk_that_is_full_at_the_end_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["sweep", "--model", "resnet50", "--vary", "gpus=8", "--out", str(tmp_path / "x.csv")]

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    assert code(asked) == 2
    said = capsys.readouterr().err
    assert "cannot be written: No space left on device; all rows are in" in said
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv.journal"]
    monkeypatch.undo()
    assert code(asked) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_a_journal_that_cannot_be_begun_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "x.csv"
    assert code(["sweep", "--model", "resnet50", "--vary", "gpus=8", "--out", str(out)]) == 2
    said = f"perfsim: --out: {out}.journal cannot be written: No space left on device.\n"
    assert capsys.readouterr().err == said
    assert not list(tmp_path.iterdir())
