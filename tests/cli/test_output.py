"""Files that commands read and write: what a user's own say, and what ``--out`` leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from perfsim.cli.output import tell_written
from perfsim.data.catalog import shipped
from support.commands import MAIN, answer, run
from support.paths import TESTS

READ = 'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "resnet20-cifar"\ngpus = 8\n'


@pytest.mark.parametrize(
    "command",
    [
        "predict w.toml --out w.toml",
        "predict w.toml --html=w.toml",
        "predict w.toml --trace ./w.toml",
        "predict --model resnet20-cifar --gpus 8 --beside w.toml --out w.toml",
        "predict other.toml --out w.toml",
        "compare w.toml --methods ssgd,dgc --csv w.toml",
        "sweep w.toml --vary gpus=8,16 --html w.toml",
        "sweep other.toml --vary gpus=8,16 --html w.toml",
        "sweep --model own.csv --vary gpus=8,16 --out own.csv",
        "init config.json --yes --gpus 8 --out config.json --force",
    ],
)
def test_what_is_read_is_not_replaced(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    config = '{"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 99}'
    own = (shipped() / "models" / "alexnet.v100.fp32.b256.csv").read_text("utf-8")
    texts = {"w.toml": READ, "other.toml": f'{READ}beside = ["w.toml"]\n', "config.json": config}
    texts["own.csv"] = own
    for name, text in texts.items():
        Path(name).write_text(text)
    left, out, err = run(command, capsys)
    assert (left, out) == (2, "")
    assert " is read for this answer; name another file." in err
    assert {name: Path(name).read_text() for name in texts} == texts


def test_a_file_of_an_earlier_answer_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.toml").write_text(READ)
    for _ in range(2):
        left, _, err = run("predict w.toml --out a.json", capsys)
        assert (left, err) == (0, "wrote a.json\n")


def test_options_of_a_scenario_are_for_its_own_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "resnet50"\ngpus = 8\n'
        'method = "topk"\noptions = { density = 0.01 }\n'
    )
    found = answer(f"predict --scenario {mine} --method ssgd", capsys)
    assert found["scenario"]["options"] == {"gradients": "fp32", "buffers_mib": 0.0}
    assert found["notes"][0] == "The file's options are left out: they are for topk."
    kept = answer(f"predict --scenario {mine} --method topk", capsys)
    assert kept["scenario"]["options"]["density"] == 0.01


def test_a_pipeline_file_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.toml"
    path.write_text(
        'schema = "perfsim/pipeline/1"\nmicro_batches = 1\nreduction = 1\n'
        '[[stage]]\nforward = "1s"\nbackward = "2s"\n'
        '[[stage]]\nforward = "1s"\nbackward = "2s"\n'
        '[[link]]\nrate = "1kB/s"\nlatency = "0s"\nactivation = "1kB"\n'
    )
    # Forward 1 + 1 + 1 s, backward 2 + 1 + 2 s.
    found = answer(f"pipeline {path}", capsys)
    assert found["iteration_s"]["dense"] == pytest.approx(8.0)
    assert "iteration, dense: 8 s" in run(f"pipeline {path}", capsys)[1]
    assert run("pipeline /no/such.toml", capsys)[0] == 3
    assert "pipeline" in run("--help", capsys)[1]


def test_out_writes_what_json_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "answer.json"
    printed = answer(f"{MAIN} --out {target}", capsys)
    assert json.loads(target.read_text()) == printed
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]


def test_out_follows_a_link_and_keeps_the_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, link = tmp_path / "answer.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    answer(f"{MAIN} --out {link}", capsys)
    assert link.is_symlink() and json.loads(target.read_text())
    assert target.stat().st_mode & 0o777 == 0o600


def test_out_writes_into_what_is_no_regular_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    answer(f"{MAIN} --out {pipe}", capsys)
    assert json.loads(os.read(reader, 1 << 16))
    os.close(reader)
    assert pipe.is_fifo()


def test_every_file_that_is_written_is_told_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = "--model resnet18 --gpus 4 --net 10gbe"
    table = TESTS / "templates" / "mytable.csv"
    commands = {
        f"predict {small}": ("--out a.json", "--trace b.json", "--chakra c.json", "--html d.html"),
        f"compare {small} --methods ssgd,dgc": ("--csv e.csv", "--html f.html"),
        "sweep --model resnet18 --vary gpus=2,4": ("--out g.csv", "--html h.html"),
        f"tune {small} --method dgc --over density": ("--html i.html", "--trace j.json"),
        f"explain {small} --method dgc": ("--html k.html", "--out l.json"),
        f"plan {small} --dataset cifar10 --epochs 2": ("--html m.html", "--out n.json"),
        f"validate --measurements {table}": ("--html o.html", "--out p.json"),
        "show net 10gbe": ("--html q.html",),
        "show node p3dn": ("--html r.html",),
    }
    for command, flags in commands.items():
        for json_flag in ("", " --json"):
            left, out, err = run(f"{command} {' '.join(flags)}{json_flag}", capsys)
            names = [flag.split()[1] for flag in flags]
            said = [line for line in err.splitlines() if line.startswith("wrote ")]
            assert left == 0 and sorted(said) == [f"wrote {name}" for name in sorted(names)]
            assert out and "wrote" not in out
            assert all((tmp_path / name).stat().st_size for name in names)


def test_a_name_is_told_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_written(tmp_path / "a\x1b.csv", None)
    assert capsys.readouterr().err == f"wrote {tmp_path}/a\\x1b.csv\n"


def test_out_names_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, err = run(f"{MAIN} --out /no/such/folder/x.json", capsys)
    assert (left, out) == (2, "") and "/no/such/folder/x.json" in err


def test_a_mistake_in_a_scenario_file_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.toml"
    head = 'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "resnet50"\ngpus = 8\n'
    for line in ('bucket = "25"', 'net = "1gbee"', "options = { density = 1 }", "batch = 0"):
        mine.write_text(head + line + "\n")
        left, out, err = run(f"predict --scenario {mine}", capsys)
        assert (left, out) == (2, "") and "mine.toml" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text.replace("elements,", "elemnts,", 1), ["column 'elements'", "missing"]),
        (lambda text: _cell(text, 5, "1x.5"), ["forward_ms", "'1x.5'", "not a number"]),
        (lambda text: _cell(text, 6, "-1"), ["backward_ms", "'-1'", "it must be 0, or"]),
        (lambda text: text + text.splitlines()[-1] + "\n", ["stands on line", "already"]),
        (lambda text: "\x00\xff", ["control character"]),
    ],
    ids=["missing column", "letter in a number", "negative time", "duplicate tensor", "garbage"],
)
def test_a_damaged_profile_is_named(
    damage: Any, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    source = sorted(shipped().glob("models/resnet50.v100.fp32.*.csv"))[0]
    (folder / source.name).write_text(damage(source.read_text()))
    left, out, err = run(f"{MAIN} --profiles {tmp_path}", capsys)
    assert (left, out) == (3, "")
    assert source.name in err and err.count("\n") == 1
    for word in words:
        assert word in err


def _cell(text: str, place: int, value: str) -> str:
    """Return a profile with one cell of its first data row replaced."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("layer,")) + 1
    cells = lines[first].split(",")
    cells[place] = value
    lines[first] = ",".join(cells)
    return "\n".join(lines) + "\n"


def test_a_file_that_replaces_a_shipped_one_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "networks").mkdir()
    mine = tmp_path / "networks" / "1gbe.toml"
    ships = (shipped() / "networks" / "1gbe.toml").read_text()
    mine.write_text(ships)
    notes = answer(f"{MAIN} --profiles {tmp_path}", capsys)["notes"]
    assert not any(str(mine) in note for note in notes), "it is a copy"
    mine.write_text(f"{ships}# changed\n")
    notes = answer(f"{MAIN} --profiles {tmp_path}", capsys)["notes"]
    assert any(str(mine) in note for note in notes)
    assert not any("in place of the shipped" in note for note in answer(MAIN, capsys)["notes"])


def test_a_profile_of_a_gpu_that_does_not_exist_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    source = sorted(shipped().glob("models/resnet50.v100.fp32.*.csv"))[0]
    text = source.read_text().replace("# gpu: v100\n", "# gpu: v1000\n")
    (tmp_path / "models" / source.name).write_text(text)
    left, out, err = run(f"{MAIN} --profiles {tmp_path}", capsys)
    assert (left, out) == (3, "")
    assert source.name in err and "'v1000'" in err and "'v100'" in err


# For screen readers and logs.


@pytest.mark.parametrize(
    "command",
    [
        "predict --model resnet50 --gpus 64 --net 1gbe --method dgc",
        "compare --model resnet50 --gpus 16 --net 1gbe --methods ssgd,topk",
        "explain --model llama3-8b --gpus 16 --node dgx-h100 --tp 2 --pp 4 --accumulate 8",
        "tune --model resnet50 --gpus 16 --net 10gbe --over bucket",
        "show node dgx-h100",
        "list gpus",
    ],
)
def test_plain_output_has_no_bars_columns_or_drawings(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left, out, err = run(f"{command} --plain", capsys)
    assert (left, err) == (0, "") and out
    assert "##" not in out and "[NIC]" not in out and "+---" not in out
    monkeypatch.setenv("PERFSIM_PLAIN", "1")
    assert run(command, capsys) == (0, out, "")


def test_plain_rows_name_their_cells(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run("list gpus --plain", capsys)
    assert out.startswith("gpu: a10; memory: 25.77 GB; ")
    _, out, _ = run("predict --plain --model resnet50 --gpus 64 --net 1gbe --method dgc", capsys)
    assert "\nforward: 44.3 ms, 16.3%\n" in out and "\nwarning: " in out


@pytest.mark.parametrize(
    "command",
    [
        "predict --model resnet50 --gpus 64 --net 1gbe --method dgc",
        "compare --model resnet50 --gpus 16 --net 1gbe --methods ssgd,topk,distributed_optimizer",
        "explain --model resnet50 --gpus 64 --net 1gbe --method dgc",
        "explain --model gpt3-350m --gpus 32 --gpu a100 --net 1gbe --method diloco",
        "tune --model resnet50 --gpus 64 --net 10gbe --over bucket",
        "plan --model resnet50 --dataset imagenet --epochs 90 --nets 10gbe --counts 8,16",
    ],
)
def test_a_terminal_of_40_columns_is_obeyed(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    left, out, _ = run(command, capsys)
    assert left == 0
    assert [line for line in out.splitlines() if len(line) > 40] == []
