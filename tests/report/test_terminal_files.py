"""Files of a report: all are written at once, or it is said at once why one cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.report.html.pages import MAX_PAGE_ROWS
from scripts.chrome_trace import problems
from support.page_content import island


def test_the_trace_of_a_comparison_has_each_method_as_its_own_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    command = "compare --model resnet18 --gpus 8 --net 1gbe --methods ssgd,localsgd,p3 --json"
    assert code([*command.split(), "--trace", str(path)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    trace = json.loads(path.read_text())
    assert problems(trace) == []
    told = trace["otherData"]["predictions"]
    assert [(one["method"], one["iteration_s"]) for one in told] == [
        (row["scenario"]["method"], row["iteration_s"]) for row in rows
    ]
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert sum(name.startswith("localsgd, ") for name in names) == 2
    told[0]["iteration_s"] *= 1.01
    assert any("predicted" in problem for problem in problems(trace))
    told[0]["rounds"][0]["pid"] = 77
    assert any("processes" in problem for problem in problems(trace))


@pytest.mark.parametrize("command", ["compare --methods ssgd,dgc", "explain", "tune --over bucket"])
def test_all_files_are_written_at_once_and_the_json_is_what_is_printed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("plotly")
    files = {flag: tmp_path / f"{flag}.txt" for flag in ("out", "html", "trace")}
    flags = [text for flag, path in files.items() for text in (f"--{flag}", str(path))]
    assert code([*command.split(), "--model", "resnet18", "--gpus", "4", "--json", *flags]) == 0
    said = json.loads(capsys.readouterr().out)
    assert json.loads(files["out"].read_text()) == said
    kind = {"compare": "comparison", "explain": "explanation", "tune": "tuning"}[
        command.partition(" ")[0]
    ]
    assert island(files["html"].read_text(encoding="utf-8"), kind) == said
    assert problems(json.loads(files["trace"].read_text())) == []
    assert sorted(tmp_path.iterdir()) == sorted(files.values())


def assert_refused(said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fail unless one sentence was said, and nothing printed or written."""
    captured = capsys.readouterr()
    assert captured.err.startswith(f"perfsim: {said}") and captured.err.count("\n") == 1
    assert (captured.out, list(folder.iterdir())) == ("", [])


@pytest.mark.parametrize(
    "command", ["predict", "compare", "explain", "tune", "sweep --vary gpus=4"]
)
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--html no/a.html", "--html: 'no/a.html' cannot be written: its folder does not exist."),
        ("--png a.csv --html a.csv", "--png: 'a.csv' is the file of --html already."),
        ("--png .", "--png: '.' cannot be written: it is a folder."),
        ("--out a.csv --html no/a.html", "--html: 'no/a.html' cannot be written: its folder"),
    ],
)
def test_what_cannot_be_written_is_one_sentence_before_any_work(
    command: str,
    flags: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    # The scenario is wrong too, which would be said first if any work were done first.
    assert code([*command.split(), "--model", "no-such-model", *flags.split()]) == 2
    assert_refused(said, tmp_path, capsys)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--trace a.json", "--trace: a sweep has no timeline, as its rows are many scenarios;"),
        (
            f"--vary batch=1..{MAX_PAGE_ROWS + 1}:1 --html a.html",
            "--html: 2,001 rows, and it holds at",
        ),
        ("--net nowhere --html a.html", "--net: no 'nowhere'"),
    ],
)
def test_a_sweep_says_what_it_cannot_draw(
    flags: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    command = "sweep --model resnet18 --vary gpus=4"
    assert code([*command.split(), *flags.split()]) == 2
    assert_refused(said, tmp_path, capsys)


def test_what_fails_while_files_are_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    from perfsim.errors import RequestError
    from perfsim.report.html import pages as module

    def fails(*_: object) -> str:
        raise RequestError("html", "no.")

    monkeypatch.setattr(module, "comparison_page", fails)
    command = ["compare", "--model", "resnet18", "--gpus", "4", "--methods", "ssgd,dgc"]
    out, page = tmp_path / "out.json", tmp_path / "page.html"
    assert code([*command, "--out", str(out), "--html", str(page)]) == 2
    assert list(tmp_path.iterdir()) == []
