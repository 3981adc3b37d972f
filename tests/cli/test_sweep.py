"""``perfsim sweep``: what it writes, and one sentence for what it cannot do."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.planning.sweep import sweep
from perfsim.report.sweep_files import write_sweep


def test_the_command_writes_what_it_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ["sweep", "--model", "resnet50", "--vary", "gpus=8,16", "--vary", "net=1gbe"]
    assert code(plain) == 0
    text = capsys.readouterr().out
    lines = list(csv.DictReader(text.splitlines()))
    assert [line["gpus"] for line in lines] == ["8", "16"]
    assert code([*plain, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "perfsim/sweep/1"
    assert found["vary"] == {"gpus": ["8", "16"], "net": ["1gbe"]}
    assert [row["iteration_s"] for row in found["rows"]] == [
        float(line["iteration_s"]) for line in lines
    ]
    out = tmp_path / "rows.jsonl"
    assert code([*plain, "--out", str(out)]) == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == found["rows"]
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    assert "Shortest iteration" in capsys.readouterr().out


def test_a_scenario_file_says_what_varies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "resnet50"\ngpus = 16\nmethod = "dgc"\n'
        '[sweep]\nnet = ["1gbe", "10gbe"]\noptions.density = "0.001..0.1:log3"\n'
    )
    assert code(["sweep", str(file), "--vary", "net=ib100"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(line["net"], line["options.density"]) for line in lines] == [
        ("ib100", "0.001"),
        ("ib100", "0.01"),
        ("ib100", "0.1"),
    ]
    assert code(["predict", "--scenario", str(file), "--json"]) == 0
    capsys.readouterr()
    assert code(["sweep", str(file), "--scenario", str(file)]) == 2
    assert "is given already" in capsys.readouterr().err


def test_the_sweep_is_a_function_of_the_package() -> None:
    import perfsim

    assert perfsim.sweep is sweep


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "--vary: nothing varies"),
        (["--vary", "gpuss=8"], "did you mean 'gpus'"),
        (["--vary", "gpus=16..8"], "is empty"),
        (["--vary", "gpus=8", "--out", "nowhere/rows.csv"], "cannot be written"),
        (["--vary", "gpus=8", "--out", "rows.xlsx"], "ends in no known format"),
        (["--vary", "gpus=8", "--workers", "1", "--dask", "x"], "--workers: not with --dask"),
        (["--vary", "gpus=0"], "it must be 1 or more"),
        (["--vary", "gpus=0,abc"], "--vary gpus: 'abc' is not allowed"),
        (["--vary", "gpus=0,abc", "--json"], "--vary gpus: 'abc' is not allowed"),
        (["--vary", "bucket=1..32"], "'1..32' has no unit where it begins; write it like 1MiB.."),
        (["--vary", "net=1..10"], "has no unit where it begins; write it like 1Gbit/s..100Gbit/s"),
        (
            ["--vary", "gpus=1..1000:1", "--vary", "batch=1..1000:1", "--vary", "seed=0..999:1"],
            "--vary: 1,000,000,000 rows; at most 2,000,000. Give fewer values.",
        ),
        (
            ["--vary", "gpus=1..1000:1", "--vary", "batch=1..101:1", "--json"],
            "--vary: 101,000 rows; at most 100,000 as JSON objects",
        ),
    ],
)
def test_a_wrong_request_is_one_sentence(
    flags: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert code(["sweep", "--model", "resnet50", *flags]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not list(tmp_path.iterdir())


def test_parquet_needs_its_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    asked = [
        "sweep",
        "--model",
        "resnet50",
        "--vary",
        "gpus=8",
        "--out",
        str(tmp_path / "x.parquet"),
    ]
    assert code(asked) == 2
    assert "pip install 'perfsim[parquet]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_switches_are_true_and_false_in_tables_with_types(tmp_path: Path) -> None:
    """They were texts, which both count as true."""
    pandas = pytest.importorskip("pandas", reason="needs pandas (pip install 'perfsim[pandas]')")
    vary = {"overlap": "true,false", "method": "ssgd,dgc"}
    table = sweep({"model": "resnet50", "gpus": 8}, vary)
    frames = [table.to_pandas()]
    if importlib.util.find_spec("pyarrow"):
        write_sweep(table, tmp_path / "rows.parquet")
        frames.append(pandas.read_parquet(tmp_path / "rows.parquet"))
    for frame in frames:
        assert frame["overlap"].tolist() == [True, True, False, False]
        assert len(frame[frame["overlap"]]) == 2


def test_parquet_holds_the_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    out = tmp_path / "rows.parquet"
    assert code(["sweep", "--model", "resnet50", "--vary", "gpus=8,16", "--out", str(out)]) == 0
    found = parquet.read_table(out).to_pydict()
    assert found["gpus"] == [8, 16]
    table = sweep({"model": "resnet50"}, {"gpus": "8,16"})
    assert found["iteration_s"] == [row["iteration_s"] for row in table.records()]


def test_dask_is_asked_for_where_it_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert code(["sweep", "--model", "resnet50", "--vary", "gpus=8", "--workers", "2"]) == 2
    assert "pip install 'perfsim[dask]'" in capsys.readouterr().err
