"""A sweep that was stopped, or whose disk was full, loses nothing and goes on where it was."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from perfsim.cli.main import code
from perfsim.data.catalog import shipped
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
    assert code([*asked, "--out", str(out)]) == 130
    said = capsys.readouterr().err
    assert said == (
        f"perfsim: stopped; the rows so far are in {out}.journal, and the same command goes on from"
        " there.\n"
    )
    assert code(asked) == 130
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


BEGUN = ["sweep", "--model", "resnet50", "--net", "1gbe"]
ROW = [1.0, 256.0, 0.5, 1e8, ""]
"""A row of columns that a prediction may have made."""


def stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str, vary: str = "gpus=8..16384"
) -> tuple[list[str], Path, list[dict[str, Any]]]:
    """Stop a sweep after its first chunk; return its command, its journal and the lines of that."""
    out = folder / ("rows.jsonl" if "objects" in more else "rows.csv")
    asked = [*BEGUN, "--vary", vary, "--out", str(out), *(one for one in more if one != "objects")]
    for name in ("MAX_SINGLE_CHUNK", "MAX_WHOLE_CHUNK"):
        monkeypatch.setattr(f"perfsim.planning.sweep.{name}", 4)
    monkeypatch.setattr("perfsim.planning.sweep._MAX_VECTOR_CHUNK", 4)
    whole = SweepRows.chunk

    def once(self: SweepRows, start: int, stop: int) -> Any:
        if start:
            raise KeyboardInterrupt
        return whole(self, start, stop)

    with monkeypatch.context() as patch:
        patch.setattr(SweepRows, "chunk", once)
        assert code(asked) == 130
    journal = folder / f"{out.name}.journal"
    return asked, journal, [json.loads(line) for line in journal.read_text().splitlines()]


def refused(
    asked: list[str], journal: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> str:
    """Go on from a journal that must be refused and left as it is; return the sentence."""
    text = "".join(line + "\n" for line in lines)
    journal.write_text(text)
    capsys.readouterr()
    assert code(asked) in (2, 3)
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    assert journal.read_text() == text and not journal.with_suffix("").exists()
    return told.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("text", "is no record of a sweep that can be gone on with; --fresh begins anew"),
        ("null", "is not a table of start and rows"),
        ("[]", "is not a table of start and rows"),
        ('{"start": 4}', "is not a table of start and rows"),
        ("[" * 100_000, "is no record of a sweep"),
        ('{"a":' * 100_000, "is no record of a sweep"),
        ('{"start": 0, "rows": [[1, 2, 3, 4, ""]]}', "begins with row 0, where row 4 is next"),
        ('{"start": 4.0, "rows": [[1, 2, 3, 4, ""]]}', "begins with row 4.0, where row 4 is"),
        ('{"start": true, "rows": []}', "begins with row true, where row 4 is next"),
        ('{"start": 4, "rows": []}', "holds [] in place of a list of rows"),
        ('{"start": 4, "rows": null}', "holds None in place of a list of rows"),
        ('{"start": 4, "rows": "text"}', "holds 'text' in place of a list of rows"),
        ('{"start": 4, "rows": [null]}', "row 4 is None, not 5 columns"),
        ('{"start": 4, "rows": ["abcde"]}', "row 4 is 'abcde', not 5 columns"),
        ('{"start": 4, "rows": [[1, 2, 3, ""]]}', "not 5 columns"),
        ('{"start": 4, "rows": [[NaN, 2, 3, 4, ""]]}', "holds NaN, which is no finite number"),
        ('{"start": 4, "rows": [[1e999, 2, 3, 4, ""]]}', "holds 1e999, which is no finite"),
        ('{"start": 4, "rows": [[-Infinity, 2, 3, 4, ""]]}', "holds -Infinity, which is no"),
        ('{"start": 4, "rows": [[-1, 2, 3, 4, ""]]}', "row 4: iteration_s is -1, not a number"),
        ('{"start": 4, "rows": [[0, 2, 3, 4, ""]]}', "row 4: iteration_s is 0, not a number abov"),
        ('{"start": 4, "rows": [[true, 2, 3, 4, ""]]}', "row 4: iteration_s is true"),
        ('{"start": 4, "rows": [["1", 2, 3, 4, ""]]}', "row 4: iteration_s is '1'"),
        ('{"start": 4, "rows": [[1, null, 3, 4, ""]]}', "row 4: samples_per_s is None"),
        ('{"start": 4, "rows": [[1, 2, 3, -4, ""]]}', "row 4: sent_bytes_per_gpu is -4, not a nu"),
        ('{"start": 4, "rows": [[1, 2, 3, 4, null]]}', "row 4: reason is None, not a text"),
        ('{"start": 4, "rows": [[null, null, null, null, "\\u001b[2J"]]}', "a control character"),
        ('{"start": 4, "rows": [[null, null, null, null, "\\ud800"]]}', "holds a control charact"),
        ('{"start": 4, "rows": [[1, 2, 3, 4, "no"]]}', "row 4 has figures and a reason for hav"),
        ('{"start": 4, "rows": [[[[[]]], 2, 3, 4, ""]]}', "row 4: iteration_s is [[[]]], not a"),
        (json.dumps({"start": 4, "rows": [ROW] * 9}), "holds row 12, the grid has 12 rows"),
        (json.dumps({"start": 4, "rows": [ROW] * 200_000}), "holds row 200003, the grid has 12"),
        ('{"start": 4, "rows": [[1' + "0" * 5000 + ', 2, 3, 4, ""]]}', "is no record of a sweep"),
    ],
)
def test_a_line_that_no_sweep_wrote_is_refused(
    line: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, journal, lines = stopped(tmp_path, monkeypatch)
    told = refused(asked, journal, [*map(json.dumps, lines), line], capsys)
    assert told.startswith(f"perfsim: {journal}, line 3: ") and said in told
    assert told.endswith("; --fresh begins anew.\n")


def test_no_row_is_taken_twice_and_none_is_taken_from_another_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, journal, lines = stopped(tmp_path, monkeypatch)
    setting, rows = map(json.dumps, lines)
    assert "line 3: begins with row 0" in refused(asked, journal, [setting, rows, rows], capsys)
    assert "line 1: is no record" in refused(asked, journal, [rows], capsys)
    assert "line 1: is no record" in refused(asked, journal, [json.dumps([]), rows], capsys)
    for name, value in lines[0].items():
        other = json.dumps(lines[0] | {name: [value]})
        assert str(journal) in refused(asked, journal, [other, rows], capsys)
        less = json.dumps({key: kept for key, kept in lines[0].items() if key != name})
        assert "line 1: is no record" in refused(asked, journal, [less, rows], capsys)
    more = [*asked, "--batch", "16"]
    assert "was begun with scenario" in refused(more, journal, [setting, rows], capsys)
    journal.write_text(f"{setting}\n{rows}\n")
    assert code(asked) == 0


@pytest.mark.parametrize("full", [(), ("--full",)])
def test_prediction_objects_of_a_journal_are_checked(
    full: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, journal, lines = stopped(tmp_path, monkeypatch, "objects", *full, vary="gpus=7,8..1024")
    setting, rows = lines[0], lines[1]["rows"]
    wrong: list[tuple[Any, str]] = [
        (None, "row 3 is None, not a prediction"),
        ({}, "row 3 is no prediction of schema"),
        (rows[3] | {"schema": "perfsim/prediction/2"}, "row 3 is no prediction of schema"),
        (rows[3] | {"scenario": 1}, "row 3 is no prediction of schema"),
        (rows[3] | {"iteration_s": -1}, "row 3: iteration_s is -1"),
        (rows[3] | {"iteration_s": None}, "row 3: iteration_s is None"),
        (rows[3] | {"samples_per_s": "8"}, "row 3: samples_per_s is '8'"),
        (rows[3] | {"baseline": None}, "row 3: baseline is None"),
        (rows[3] | {"baseline": {"method": "ssgd", "iteration_s": 0}}, "baseline: iteration_s"),
        (
            rows[3] | {"breakdown_s": rows[3]["breakdown_s"] | {"forward": -1}},
            "breakdown_s: forward is -1",
        ),
        (rows[3] | {"breakdown_s": {"forward": 1}}, "breakdown_s is {'forward': 1}, not a table"),
        (rows[3] | {"communication": {"calls": 1}}, "communication is {'calls': 1}, not a table"),
        (rows[3] | {"memory_bytes": {}}, "memory_bytes is {}, not a table"),
        (rows[3] | {"communication": [1]}, "communication is [1], not a table"),
        ({"scenario": {"model": "vgg16"}, "error": "no"}, "row 3 is of another scenario"),
    ]
    if full:
        wrong += [
            (rows[3] | {"iteration_s_interval": [1]}, "the interval is [1], not two numbers"),
            (rows[3] | {"iteration_s_interval": [1, "x"]}, "interval: iteration_s is 'x'"),
            (rows[3] | {"bottleneck": 7}, "bottleneck is 7, not a text"),
            (rows[3] | {"notes": [7]}, "notes are [7], not texts"),
        ]
    for row, said in wrong:
        line = {"start": 0, "rows": [*rows[:3], row]}
        assert said in refused(asked, journal, [json.dumps(setting), json.dumps(line)], capsys)
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert code(asked) == 0
    assert not journal.exists()


def test_whole_predictions_as_columns_are_checked_and_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, journal, lines = stopped(tmp_path, monkeypatch, "--full", vary="gpus=7,8..1024")
    setting, rows = json.dumps(lines[0]), lines[1]["rows"]
    for place, value, said in [(16, "yes", "fits is 'yes'"), (17, 1, "bottleneck is 1")]:
        row = [*rows[3][:place], value, *rows[3][place + 1 :]]
        line = json.dumps({"start": 0, "rows": [*rows[:3], row]})
        assert said in refused(asked, journal, [setting, line], capsys)
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert code(asked) == 0


def test_a_journal_of_a_file_that_has_changed_since_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_bytes((shipped() / "models" / "alexnet.v100.fp32.b256.csv").read_bytes())
    monkeypatch.setitem(globals(), "BEGUN", ["sweep", "--model", str(mine), "--net", "1gbe"])
    asked, journal, lines = stopped(tmp_path, monkeypatch)
    os.utime(mine, ns=(1, 1))
    told = refused(asked, journal, list(map(json.dumps, lines)), capsys)
    assert "was begun with grid and data" in told


def test_a_journal_that_is_no_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.csv"
    os.mkfifo(tmp_path / "rows.csv.journal")
    assert code([*BEGUN, "--vary", "gpus=8..16", "--out", str(out)]) == 3
    said = f"perfsim: {out}.journal: is a pipe, not a file\n"
    assert capsys.readouterr().err == said


def test_a_sweep_that_is_stopped_before_its_first_rows_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SweepRows, "chunk", stop)
    asked = ["sweep", "--model", "resnet50", "--vary", "gpus=8,16"]
    assert code([*asked, "--out", str(tmp_path / "x.csv")]) == 130
    assert capsys.readouterr().err == "perfsim: stopped before the first rows were there.\n"
    assert list(tmp_path.iterdir()) == []
    # A journal that was there stays, even where it was not read yet.
    (tmp_path / "x.csv.journal").write_text("of an earlier run")
    monkeypatch.setattr("perfsim.planning.sweep.resumed", stop)
    assert code([*asked, "--out", str(tmp_path / "x.csv")]) == 130
    assert "the rows so far are in" in capsys.readouterr().err
    assert (tmp_path / "x.csv.journal").exists()


def test_chunks_of_whole_predictions_are_short() -> None:
    grid = SweepGrid({"model": "resnet50"}, axes_of({"gpus": "1..100:1"}))
    sizes = [
        max(stop - start for start, stop in Sweep(grid, full=full, objects=objects).chunks())
        for full, objects in ((False, False), (True, False), (False, True))
    ]
    assert sizes == [100, 32, 32]


def test_a_journal_knows_the_jobs_beside_its_own(tmp_path: Path) -> None:
    """Also those of a list: a file that changed makes it a sweep of another question."""
    other = tmp_path / "other.toml"
    text = 'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "vgg16"\ngpus = 8\n'
    other.write_text(text)
    base = {"model": "resnet50", "gpus": 8, "net": "10gbe", "beside": [str(other)]}

    def digest() -> str:
        return Sweep(SweepGrid(base, axes_of({"method": "ssgd,dgc"}))).digest()

    before = digest()
    assert digest() == before
    other.write_text(text.replace("8", "16"))
    assert digest() != before


def test_a_journal_knows_the_files_that_are_read_with_those_named(tmp_path: Path) -> None:
    """Curves beside a network, positions beside a profile, the profile of a job beside."""
    files = {
        "networks": ("bcaffe-cpu-10gbe-mpi.toml", "bcaffe-cpu-10gbe-mpi.curves.csv"),
        "models": ("resnet50.v100.fp32.b32.csv", "resnet50.positions.csv"),
    }
    for kind, names in files.items():
        for name in names:
            (tmp_path / name).write_bytes((shipped() / kind / name).read_bytes())
    network, profile = (str(tmp_path / names[0]) for names in files.values())
    other = tmp_path / "other.toml"
    other.write_text(f'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "{profile}"\ngpus = 8\n')
    usual = {"model": "resnet50", "gpus": 8}

    def seen(file: str, base: dict[str, Any], **vary: str) -> bool:
        grid = SweepGrid(base, axes_of({"method": "ssgd,dgc"} | vary))
        before = Sweep(grid).digest()
        assert Sweep(grid).digest() == before
        os.utime(tmp_path / file, ns=(1, 1))
        return Sweep(grid).digest() != before

    assert seen("bcaffe-cpu-10gbe-mpi.curves.csv", usual, net=f"10gbe,{network}", gpus="6,8")
    assert seen("resnet50.positions.csv", {"model": profile, "gpus": 8})
    assert seen("resnet50.v100.fp32.b32.csv", usual | {"net": "10gbe", "beside": [str(other)]})
