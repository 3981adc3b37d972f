"""Files of the user's own never change an answer in silence, and records only where asked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from perfsim import predict
from perfsim.cli.main import code
from perfsim.data.catalog import Catalog, own_files_noted, shipped
from perfsim.scenario import make_scenario
from perfsim.session import Session
from perfsim.validate import claims
from perfsim.validate.mapping import rules_of
from support.paths import TESTS

QUESTION = "--model resnet50 --gpus 8 --net 1gbe"
ASKED = (
    f"predict {QUESTION}",
    f"compare {QUESTION} --methods ssgd,dgc",
    f"predict {QUESTION} --json",
    f"explain {QUESTION}",
    f"tune {QUESTION}",
    "sweep --model resnet50 --net 1gbe --vary gpus=8,16",
    "sweep --model resnet50 --net 1gbe --vary gpus=8,16 --full --json",
    "sweep --model resnet50 --net 1gbe --vary gpus=8,16 --workers 1",
    f"plan {QUESTION} --dataset imagenet --epochs 1",
    "list gpus",
    "show gpu v100",
    f"validate --measurements {TESTS / 'templates' / 'mytable.csv'}",
    "validate claims",
    "pipeline --model resnet50 --gpus 2 --net 1gbe",
)
"""A command of each kind; all but the last read v100.toml."""
COMMANDS = [pytest.param(line, id=line.split(" -")[0] + str(n)) for n, line in enumerate(ASKED)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return ./profiles with a copy of a shipped GPU, in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERFSIM_PATH", raising=False)
    mine = tmp_path / "profiles"
    (mine / "devices").mkdir(parents=True)
    shutil.copy(shipped() / "devices" / "v100.toml", mine / "devices")
    return mine


def claims_of_one_scenario(name: str, catalog: Catalog) -> list[claims.Claim]:
    """Return what papers claim of one scenario, on V100s, and nothing of others."""
    return CLAIMS_OF(name, catalog) if name == CLAIMED else []


CLAIMED, CLAIMS_OF = "Lin2018_dgc_alexnet_nodes_1gbe_64", claims.claims_of


def change(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8") + "\n# mine\n", encoding="utf-8")


@pytest.mark.parametrize("line", COMMANDS[:-1])
def test_every_command_says_that_own_files_were_read(
    line: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "--workers" in line:
        pytest.importorskip("distributed")
    if line == "validate claims":  # all of them take seconds, and one is enough here
        monkeypatch.setattr(claims, "claims_of", claims_of_one_scenario)
    assert code(line.split()) == 0
    assert "of your own" not in capsys.readouterr().err, "it is a copy"
    change(here / "devices" / "v100.toml")
    assert code(line.split()) == 0
    told = [said for said in capsys.readouterr().err.splitlines() if "of your own" in said]
    assert told == ["perfsim: profiles/devices/v100.toml of your own was read."]


def test_a_sweep_that_goes_on_says_what_the_run_before_read(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(here / "devices" / "v100.toml")
    line = [
        "sweep",
        "--model",
        "resnet50",
        "--net",
        "1gbe",
        "--vary",
        "gpus=8,16",
        "--out",
        "rows.csv",
    ]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        assert code(line) == 2
    capsys.readouterr()
    assert code(line) == 0
    assert "profiles/devices/v100.toml of your own was read." in capsys.readouterr().err


def test_the_page_says_at_its_start_which_files_are_the_user_s(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flask", reason="needs Flask (pip install 'perfsim[app]')")
    monkeypatch.setattr("perfsim.app.server.serve", lambda *_, **__: print("served"))
    change(here / "devices" / "v100.toml")
    assert code(["app", "--no-browser"]) == 0
    told = capsys.readouterr()
    assert "served" in told.out
    assert told.err.strip() == "perfsim: profiles/devices/v100.toml of your own was read."


@pytest.mark.parametrize("named", [False, True])
def test_records_count_only_where_they_are_named(
    named: bool, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = make_scenario({"model": "resnet50", "gpus": 8, "net": "1gbe"})
    before = predict(scenario, Session())
    records = here / "measurements"
    records.mkdir()
    shipped_text = (shipped() / "measurements" / "uncertainty.csv").read_text()
    rows = [line.split(",") for line in shipped_text.splitlines()]
    narrow = [
        row if len(row) < 9 or row[0] == "left_out" else [*row[:4], *["0"] * (len(row) - 4)]
        for row in rows
    ]
    (records / "uncertainty.csv").write_text("\n".join(map(",".join, narrow)) + "\n")
    monkeypatch.setenv("PERFSIM_PATH", str(here))
    asked = predict(scenario, Session(here if named else None))
    low, high = asked.iteration_s_interval
    assert (high / low < 1.0001) == named
    assert (asked.iteration_s_interval != before.iteration_s_interval) == named
    assert any("The interval is made of" in note for note in asked.notes) == named
    line = ["predict", *QUESTION.split(), *(["--profiles", "profiles"] if named else [])]
    assert code(line) == 0
    said = capsys.readouterr().err
    if named:
        assert said == "perfsim: profiles/measurements/uncertainty.csv of your own was read.\n"
    else:
        assert "uncertainty.csv was not read: records and maps count where --profiles names" in said
        assert said.count("\n") == 1


def test_a_map_that_is_only_found_is_no_rule(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "measurements").mkdir()
    rule = 'schema = "perfsim/measurement-map/1"\n[[rule]]\nwhen = { id = "mine" }\nmissing = "x"\n'
    (here / "measurements" / "map.toml").write_text(rule)
    (here / "measurements" / "mine.csv").write_text("nothing that can be read")
    count = len(rules_of(Session()))
    monkeypatch.setenv("PERFSIM_PATH", str(here))
    assert len(rules_of(Session())) == count
    assert "mine" not in Session().files("measurements")
    assert len(rules_of(Session(here))) == count + 1
    assert "mine" in Session(here).files("measurements")


def test_the_line_counts_more_files_and_escapes_their_names(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(here / "devices" / "v100.toml", here / "devices" / "v100x.toml")
    text = (here / "devices" / "v100x.toml").read_text().replace('name = "v100"', 'name = "v100x"')
    (here / "devices" / "v100x.toml").write_text(text)
    change(here / "devices" / "v100.toml")
    os.rename(here, here.with_name("my\x1b[31m"))
    assert code(["list", "gpus", "--profiles", "my\x1b[31m"]) == 0
    assert capsys.readouterr().err == (
        "perfsim: my\\x1b[31m/devices/v100.toml and 1 more of your own were read.\n"
    )


def test_the_shipped_folder_is_no_folder_of_the_user_s() -> None:
    with own_files_noted() as own:
        predict(make_scenario({"model": "resnet50", "gpus": 8}), Session(shipped()))
        assert Catalog().folders == [shipped()]
    assert own.differing() == [] and own.read and not own.folders
