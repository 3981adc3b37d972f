"""No text of a file becomes an element of a page, a command to a terminal or a formula."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.data.catalog import shipped
from perfsim.data.tables import to_csv
from perfsim.planning.neighbours import report_context
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.session import Session
from scripts.fuzz.parsers import SEEDS

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>&lt;b&gt;"


class Elements(HTMLParser):
    """Elements of a page by their names, with what events and addresses they have."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, int] = {}
        self.active: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count an element."""
        self.names[tag] = self.names.get(tag, 0) + 1
        self.active += [name for name, _ in attrs if name.startswith("on")]
        places = [str(value) for name, value in attrs if name in ("src", "href")]
        self.active += [place for place in places if place != "data:," and place[0] != "#"]


def elements(page: Path) -> Elements:
    found = Elements()
    found.feed(page.read_text())
    return found


def hostile(folder: Path, text: str) -> None:
    """Write a profile, a network and a GPU whose every free text is ``text``."""
    for kind in ("models", "networks", "devices"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    quoted = json.dumps(text)
    profile = (SEEDS / "profile" / "hand.v100.fp32.b4.csv").read_text()
    keys = r"(?m)^# (framework|source|licence|date|notes): .*"
    profile = re.sub(keys, lambda m: f"# {m[1]}: {text}", profile)
    cell = '"' + text.replace('"', '""') + '"'
    profile = profile.replace("layer1.conv,conv,layer1.conv.weight", f"{cell},conv,{cell}")
    (folder / "models" / "hand.v100.fp32.b4.csv").write_text(profile)
    network = (SEEDS / "network" / "abci-v100-ib100.toml").read_text()
    for key in ("title", "transport", "source"):
        network = re.sub(rf'\b({key}) = "(?:[^"\\]|\\.)*"', lambda m: f"{m[1]} = {quoted}", network)
    network = re.sub(r"(?s)notes = \[.*?\n\]", lambda _: f"notes = [{quoted}]", network)
    (folder / "networks" / "abci-v100-ib100.toml").write_text(network)
    device = (shipped() / "devices" / "v100.toml").read_text()
    device = re.sub(r'(?m)\b(title|source) = ".*"', lambda m: f"{m[1]} = {quoted}", device)
    (folder / "devices" / "v100.toml").write_text(device)


ASKED = "--model hand --gpus 2 --net abci-v100-ib100 --intra-net pcie3"


def test_no_text_of_a_file_becomes_an_element_of_a_networks_picture(tmp_path: Path) -> None:
    hostile(tmp_path, HOSTILE)
    file = tmp_path / "page.html"
    asked = f"show net abci-v100-ib100 --html {file} --profiles {tmp_path}"
    assert code(asked.split()) == 0
    assert "alert(1)" in file.read_text()
    found = elements(file)
    assert found.active == [] and found.names["svg"] == 1
    assert not found.names.keys() & {"script", "img"}


def test_no_text_of_a_file_becomes_an_element_of_a_predictions_page(tmp_path: Path) -> None:
    from perfsim.report.html.pages import prediction_page

    hostile(tmp_path, HOSTILE)
    catalog = Session(str(tmp_path))
    asked = make_scenario(
        {"model": "hand", "gpus": 2, "net": "abci-v100-ib100", "intra_net": "pcie3"}
    )
    prediction = predict(asked, catalog)
    file = tmp_path / "page.html"
    file.write_text(
        prediction_page(prediction, report_context(asked, prediction, catalog, ["ssgd"]))
    )
    assert file.read_text().count("alert(1)") > 5
    found = elements(file)
    # Four scripts of our own: its data, its figures, Plotly, and what shows them.
    assert found.active == [] and found.names["script"] == 4
    assert not found.names.keys() & {"svg", "img"}


def test_a_trace_of_hostile_names_is_json_whose_names_are_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile(tmp_path, HOSTILE)
    out = tmp_path / "trace.json"
    asked = f"predict {ASKED} --trace {out} --profiles {tmp_path}"
    assert code(asked.split()) == 0
    capsys.readouterr()
    assert json.loads(out.read_text())["traceEvents"]


@pytest.mark.parametrize("letter", ["\x1b[2J", "\x07", "\x9b31m", "\u202e", "\x00", "\x85"])
def test_no_control_character_of_a_file_reaches_a_terminal(
    letter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile(tmp_path, f"plain{letter}words")
    assert code(f"predict {ASKED} --profiles {tmp_path}".split()) == 3
    for kind, name in (("net", "abci-v100-ib100"), ("model", "hand"), ("gpu", "v100")):
        code(["show", kind, name, "--profiles", str(tmp_path)])
    code(["predict", "--model", f"hand{letter}", "--gpus", "8"])
    code(["predict", "--model", "hand", "--gpus", "8", f"--{letter}"])
    told = capsys.readouterr()
    assert letter not in told.out + told.err
    assert "control character" in told.err


def test_a_file_whose_name_holds_one_is_not_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile(tmp_path, "plain")
    source = tmp_path / "models" / "hand.v100.fp32.b4.csv"
    shutil.copy(source, source.with_name("\x1b[31mhand.v100.fp32.b4.csv"))
    assert code(["list", "models", "--profiles", str(tmp_path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-cmd|x", "\tx"])
def test_no_text_of_a_csv_is_a_formula(text: str) -> None:
    assert to_csv([{"net": text, "s": -0.5}]).splitlines()[1].strip('"') == f"'{text},-0.5"
