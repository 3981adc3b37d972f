"""``perfsim compare``: what it prints and writes, and one sentence for every wrong input."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from perfsim.errors import PerfsimError
from perfsim.planning.rows import FULL_SWEEP_COLUMNS
from perfsim.report.comparison_screen import print_comparison
from support.commands import run
from support.comparisons import NO_ERROR, pair, some

COMMAND = "compare --model resnet50 --gpus 16 --net 1gbe --methods ssgd,topk,powersgd"


# As a table.


def test_the_head_says_how_a_model_is_divided(capsys: pytest.CaptureFixture[str]) -> None:
    command = "compare --model llama3-8b --gpus 64 --node dgx-h100 --accumulate 4 --methods ssgd"
    assert run(f"{command} --tp 2 --pp 2", capsys)[1].splitlines()[2] == "tp 2, pp 2 (1f1b), dp 16"
    assert run(command, capsys)[1].splitlines()[2] == ""


# As data.


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, err = run(f"{COMMAND} --json", capsys)
    assert (left, err) == (0, "")
    found = json.loads(out)
    assert next(iter(found)) == "schema" and found["schema"] == "perfsim/compare/1"
    assert len(found["rows"]) == len(found["standings"]) == 3
    for row in found["rows"]:
        assert row["schema"] == "perfsim/prediction/1" and "provenance" not in row
        low, high = row["iteration_s_interval"]
        assert low < row["iteration_s"] < high
        assert sum(row["breakdown_s"].values()) == pytest.approx(row["iteration_s"])
        assert row["baseline"]["iteration_s"] == found["baseline"]["iteration_s"]
    assert found["winner"] == found["standings"][0]["method"]
    assert found["margin"] == pytest.approx(found["standings"][0]["next_behind_ratio"])


def test_csv_has_the_rows_of_the_json_with_units_in_the_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, whole = tmp_path / "rows.csv", tmp_path / "all.json"
    assert run(f"{COMMAND} --csv {table} --out {whole}", capsys)[0] == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    predictions = json.loads(whole.read_text())["rows"]
    assert [row["method"] for row in rows] == [one["scenario"]["method"] for one in predictions]
    for row, one in zip(rows, predictions, strict=True):
        assert float(row["iteration_s"]) == one["iteration_s"]
        interval = [float(row["iteration_s_low"]), float(row["iteration_s_high"])]
        assert interval == one["iteration_s_interval"]
        parts = {f"{part}_s": value for part, value in one["breakdown_s"].items()}
        assert {part: float(row[part]) for part in parts} == parts
        assert float(row["sent_bytes_per_gpu"]) == one["communication"]["bytes_per_gpu"]
        assert float(row["memory_bytes"]) == sum(one["memory_bytes"].values())
        assert float(row["speedup"]) == one["baseline"]["speedup"] and row["fits"] == "true"
    assert set(FULL_SWEEP_COLUMNS) - {"reason"} <= rows[0].keys()
    units = ("_s", "_s_low", "_s_high", "_bytes", "_bytes_per_gpu", "_ratio")
    words = {"fits", "scaling_efficiency", "speedup"}
    words |= {"method", "told_apart", "may_be_fastest", "against_ssgd", "learns_as_ssgd", "model"}
    words |= {"compression", "software", "input", "recompute", "optimizer", "reduce_dtype"}
    words |= {"exchange_each", "epochs_basis"}
    words |= {"net", "intra_net", "gpu", "precision", "options", "fusion", "bottleneck"}
    counts = {"rank", "gpus", "gpus_per_node", "nodes", "batch", "seq", "calls", "accumulate"}
    assert {name for name in rows[0] if not name.endswith(units)} == words | counts


def test_to_pandas_has_the_records() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas (pip install 'perfsim[pandas]')")
    found = some()
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns) == list(found.records()[0])
    assert list(frame["iteration_s"]) == [one.iteration_s for one in found.rows]
    assert list(found.rows[0].to_pandas()["iteration_s"]) == [found.rows[0].iteration_s]


def test_without_pandas_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(
        PerfsimError, match=r"^pandas cannot be imported \(.*\); pip install 'perfsim"
    ):
        some().to_pandas()


# On the terminal.


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ("ssgd,ssgd", "ssgd is the only method asked for."),
        ("ssgd,thc", "ssgd is the only method that applies."),
        ("ssgd,topk", "iteration time only: half or more of the published results fell short"),
        ("ssgd,topk,diloco", "iteration time only: epochs not known, or published results fell"),
        ("ssgd,diloco", "iteration time only: no published result here says how many epochs"),
    ],
)
def test_a_group_is_headed_by_what_holds_of_it(
    methods: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = f"compare --model resnet50 --gpus 64 --net 10gbe --methods {methods}"
    left, out, _ = run(asked, capsys)
    assert left == 0 and said in out


@pytest.mark.parametrize("command", ["compare", "plan --dataset imagenet --epochs 90 --counts 8"])
def test_ssgd_has_no_other_epochs_than_its_own(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "--model resnet50" + " --gpus 64" * (command == "compare")
    left, _, err = run(f"{command} {where} --methods ssgd,topk --epochs-of ssgd=2", capsys)
    assert left == 2 and "--epochs-of: ssgd is what the epochs of others are multiples of" in err


def test_the_table_fits_80_columns_and_says_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    left, brief, err = run(COMMAND, capsys)
    assert (left, err) == (0, "")
    assert max(map(len, brief.splitlines())) <= 80 and "By iteration time" not in brief
    assert "is the only method whose epochs are known" in brief and "90 % interval" in brief
    legend = " ".join(brief.partition("\nspeed: ")[2].split())
    assert "epochs: that it needs" in legend and "acc: so many times sooner" in legend
    assert "kern: " not in legend and "kern" not in brief.partition("speed:")[0]
    left, out, err = run(f"{COMMAND} -v", capsys)
    assert (left, err) == (0, "")
    assert "\x1b" not in out
    for words in (
        "By iteration time, ",
        "learn differently",
        "iteration time only: ",
        "is the only method whose epochs are known",
        "90 % interval",
    ):
        assert words in out
    [line] = [line for line in brief.splitlines() if line.startswith("1 ")]
    rank, name, *_, epochs, sooner, wait = line.split()
    assert (rank, name, epochs) == ("1", "ssgd", "1") and float(sooner) == pytest.approx(1.0)
    [line] = [line for line in brief.splitlines() if line.startswith("   topk*")]
    *_, epochs, sooner, wait = line.split()
    assert (epochs, sooner) == ("short", "-") and 0 < int(wait.rstrip("%")) < 100


def test_left_out_methods_and_long_numbers_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = pair(1e4, errors=NO_ERROR)
    refused = {"a": "needs x", "b": "needs x"}
    print_comparison(replace(found, ranking=replace(found.ranking, refused=refused)))
    out = capsys.readouterr().out
    assert "left out, 2 of 4:\n  a, b: needs x\n" in out
    assert max(map(len, out.splitlines())) <= 84


def test_notes_on_flags_over_a_file_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    text = "compare --scenario what_if_dgc_1gbe --method topk --methods ssgd --set topk.density=0.1"
    left, out, _ = run(f"{text} --json", capsys)
    found = json.loads(out)
    assert left == 0 and found["own"] == "topk"
    options = {row["scenario"]["method"]: row["scenario"]["options"] for row in found["rows"]}
    assert set(options) == {"ssgd", "topk"} and options["topk"]["density"] == 0.1


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--methods ssgd,topkk", "--methods: no 'topkk'; did you mean 'topk'? Allowed are "),
        (
            "--methods auto",
            "--methods: auto is not a method; leave --methods out to compare all.\n",
        ),
        (
            "--methods ,",
            "--methods: ',' names no method; a list such as ssgd,topk,dgc is needed.\n",
        ),
        ("--methods dgc --sort tim", "--sort: no 'tim'; did you mean 'time'? Allowed: accuracy, "),
        ("--methods topk --set densty=1", "--set: no 'densty'; did you mean 'density'? Allowed: "),
        (
            "--methods topk,dgc --set density=7",
            "--set density: '7' is not allowed for method 'topk': it must be 1.0 or less.\n",
        ),
        (
            "--methods topk --set ssgd.gradients=fp16",
            "--set ssgd.gradients: ssgd is not among the methods compared.\n",
        ),
        ("--methods topk --set topkk.density=1", "--set: no 'topkk'; did you mean 'topk'? "),
        ("--methods dgc --csv x --out ./x", "--csv: 'x' is the file of --out already.\n"),
        ("--methods topk --set density", "--set: 'density' is not name=value, such as "),
        ("--gpus 0", "--gpus: '0' is not allowed: it must be 1 or more.\n"),
    ],
)
def test_wrong_input_is_one_sentence(
    flags: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left, out, err = run(f"compare --model resnet50 --gpus 4 {flags}", capsys)
    assert (left, out) == (2, "") and err.startswith(f"perfsim: {sentence}")
    assert err.count("\n") == 1


def test_a_path_that_cannot_be_written_is_said_and_nothing_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "no" / "rows.csv"
    left, out, err = run(f"{COMMAND} --csv {path}", capsys)
    assert (left, out) == (2, "")
    assert err == f"perfsim: --csv: '{path}' cannot be written: its folder does not exist.\n"
