"""The same wrong input has the same exit code and the same sentence in every command."""

from __future__ import annotations

import os
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

from perfsim.cli.main import code
from support.paths import PACKAGE, ROOT

COMMANDS = (
    "predict",
    "compare",
    "explain",
    "tune",
    "plan --dataset imagenet --epochs 1",
    "sweep --vary batch=8,16",
    "sweep --full --json --vary batch=8,16",
    "sweep --out rows.csv --vary batch=8,16",
)

WRONG = (
    (3, "--model hurt --gpus 8 --net 1gbe --profiles mine", "mine/models/hurt.csv: the header has"),
    (3, "--model cut.csv --gpus 8 --net 1gbe", "cut.csv: is no profile"),
    (3, "--model none.csv --gpus 8 --net 1gbe", "none.csv: there is no such file"),
    (3, "--model resnet50 --gpus 8 --gpu hurt --net 1gbe --profiles mine", "title: is missing"),
    (3, "--model resnet50 --gpus 8 --net hurt --profiles mine", "hurt.toml: is not TOML"),
    (3, "--model resnet50 --gpus 8 --node hurt --profiles mine", "hurt.toml: is not TOML"),
    (3, "--scenario cut.toml", "cut.toml: is not TOML"),
    (3, "--scenario none.toml", "there is no file 'none.toml'"),
    (3, "--model resnet50 --gpus 8 --net none.toml", "--net: there is no file 'none.toml'"),
    (3, "--model resnet50 --gpus 8 --net 1gbe --intra-net none.toml", "there is no file"),
    (3, "--model resnet50 --gpus 8 --node none.toml", "--node: there is no file 'none.toml'"),
    (3, "--model resnet50 --gpus 8 --net 1gbe --beside none.toml", "--beside: there is no file"),
    (2, "--model resnet5 --gpus 8", "did you mean 'resnet50'?"),
    (2, "--model resnet50 --gpus 8 --net 1gb", "did you mean '1gbe'?"),
    (2, "--model resnet50 --gpus 8 --net 10Gbit,5us", "--net: "),
    (2, "--model resnet50 --gpus 8 --bucket 25", "give a number and a unit such as '25MiB'"),
    (2, "--model resnet50 --gpus -1", "'-1' is not allowed: it must be 1 or more."),
    (2, "--model resnet50 --gpus 8 --jitter 900%", "it must be 0% to 30%."),
    (3, "--model resnet50 --gpus 8 --profiles none", "'none' is not a folder."),
    (2, "--model resnet50 --gpus 8 --profiles cut.csv", "'cut.csv' is not a folder."),
    (2, "--model resnet50 --gpus 8 --profiles empty", "'empty' holds no models/, devices/"),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with damaged files."""
    monkeypatch.chdir(tmp_path)
    for kind, name, text in (
        ("mine/models", "hurt.csv", "# schema: perfsim/profile/1\nbroken\n"),
        ("mine/devices", "hurt.toml", 'schema = "perfsim/device/1"\nname = 3\n'),
        ("mine/networks", "hurt.toml", "x = ["),
        ("mine/nodes", "hurt.toml", "x = ["),
        ("empty", "nothing", ""),
        (".", "cut.csv", "a,b\n1\n"),
        (".", "cut.toml", "x = ["),
    ):
        (tmp_path / kind).mkdir(parents=True, exist_ok=True)
        (tmp_path / kind / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("left", "wrong", "words"), WRONG, ids=[wrong for _, wrong, _ in WRONG])
def test_every_command_refuses_alike(
    left: int, wrong: str, words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}
    for command in COMMANDS:
        found = code([*command.split(), *wrong.split()])
        told = capsys.readouterr()
        assert (found, told.out) == (left, ""), command
        # `plan` tries clusters, and says first that none can be used.
        said[told.err.replace("no cluster can be used: ", "")] = command
    assert len(said) == 1, said
    [sentence] = said
    assert sentence.startswith("perfsim: ") and sentence.count("\n") == 1 and words in sentence
    assert not list(here.glob("rows*"))


@pytest.mark.parametrize("thing", ["net", "node", "scenario"])
def test_show_of_a_file_that_is_not_there(
    thing: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(["show", thing, "none.toml"]) == 3
    told = capsys.readouterr()
    assert told.out == "" and f"{thing}: there is no file 'none.toml'" in told.err


OUTPUTS = (
    *(f"{command} --html" for command in ("predict", "compare", "explain", "tune")),
    *("predict --trace", "predict --out", "explain --out", "compare --out", "tune --out"),
    *("sweep --vary batch=8 --html", "sweep --vary batch=8 --out"),
)


@pytest.mark.parametrize("line", OUTPUTS)
def test_links_in_a_circle_are_no_output(
    line: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "loop.csv").symlink_to("other.csv")
    (here / "other.csv").symlink_to("loop.csv")
    asked = ["--model", "resnet50", "--gpus", "8", "--net", "1gbe"]
    assert code([*line.split(), "loop.csv", *asked]) == 2
    told = capsys.readouterr()
    flag = line.rsplit(maxsplit=1)[-1]
    circle = "Too many levels of symbolic links"
    assert told.err == f"perfsim: {flag}: 'loop.csv' cannot be written: {circle}.\n"
    assert (here / "loop.csv").is_symlink()


def test_ctrl_c_while_importing_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    run = subprocess.run(
        [sys.executable, "-c", "from perfsim.__main__ import run; run()", "list", "gpus"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "perfsim: stopped.\n")


def test_a_zip_file_is_answered_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # in the checkout Python 3.13.0 leaves every file out
    made = tmp_path / "perfsim.pyz"

    def wanted(path: Path) -> bool:
        return path.parts[:1] == ("perfsim",) and "__pycache__" not in path.parts

    zipapp.create_archive(PACKAGE.parent, made, main="perfsim.__main__:run", filter=wanted)
    for line in ("predict --model resnet50 --gpus 8 --net 1gbe", "list gpus", "doctor"):
        run = subprocess.run(
            [sys.executable, str(made), *line.split()],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert run.returncode == 3 and run.stdout == ""
        assert run.stderr == (
            f"perfsim: {made}/profiles: is no folder; perfsim needs its data files there, and runs"
            " from no zip file\n"
        )
