"""Papers' claims in scenario files, beside predictions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perfsim.cli.main import app, code
from perfsim.data.catalog import Catalog
from perfsim.errors import DataError, RequestError
from perfsim.prediction import predict
from perfsim.report.validation import claim_rows, print_claims
from perfsim.scenario import make_scenario
from perfsim.scenario_file import read_scenario
from perfsim.session import Session
from perfsim.validate import claims
from perfsim.validate.claims import (
    Claim,
    ClaimNotAsked,
    ClaimResult,
    claim_notes,
    claims_not_asked,
    claims_of,
    validate_claims,
)
from support.paths import ROOT
from support.what_ships import SHIPPED

HEAD = """schema = "perfsim/scenario/1"
[scenario]
model = "resnet50"
gpus = 8
net = "1gbe"
method = "topk"
[scenario.options]
density = 0.01
[[claim]]
name = "x"
part = "iteration"
form = "about"
paper = 2
"""


def result(form: str, paper: tuple[float, ...], *ours: float) -> ClaimResult:
    """Return a result by hand."""
    claim = Claim("x", (), "iteration", paper, form, "", "")
    return ClaimResult(claim, {str(place): value for place, value in enumerate(ours)})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (result("range", (1.1, 1.4), 1.2, 1.3), "inside"),
        (result("range", (1.1, 1.4), 1.2, 1.5), "1 of 2 inside"),
        (result("mean", (4.0,), 3.0, 5.4), "within 10%"),
        (result("mean", (4.0,), 6.0, 6.0), "outside: +50%"),
        (result("up to", (2.0,), 0.5, 1.9), "within 10%"),
        (result("up to", (2.0,), 0.5, 1.0), "outside: -50%"),
        (result("at least", (2.0,), 3.0), "reached"),
        (result("at least", (2.0,), 1.0), "outside: -50%"),
        (result("at least", (2.0,), 2.0, 3.0), "holds in 2 of 2"),
        (result("at least", (2.0,), 1.99, 3.0), "fails in 1 of 2"),
        (result("somewhere", (1.0,), 0.5, 1.0), "holds in 1 of 2"),
        (result("somewhere", (1.0,), 0.5, 0.9), "fails in 2 of 2"),
        (result("somewhere", (1.0,), 0.5), "outside: -50%"),
    ],
)
def test_where_our_figures_land(found: ClaimResult, words: str) -> None:
    assert found.lands() == words
    assert found.landed == words.startswith(("inside", "within", "reached", "holds"))


def only(path: Path) -> list[ClaimResult]:
    """Return the results of one file's claims."""

    class One(Session):
        def scenarios(self) -> dict[str, Path]:
            return {"one": path}

    return [found for found in validate_claims(One()) if isinstance(found, ClaimResult)]


def test_a_claim_compares_with_its_rival(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD + 'against = { method = "ssgd" }\n')
    [claim] = claims_of(str(path), SHIPPED)
    fields = read_scenario(path)["scenario"]
    own = predict(make_scenario(fields)).iteration_s
    rival = predict(make_scenario({**fields, "method": "ssgd", "options": {}})).iteration_s
    assert claim.against == ({"method": "ssgd"},)

    [found] = only(path)
    assert found.ours == {"one": pytest.approx(rival / own)}


def test_of_several_rivals_the_best_counts(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD + 'against = [{ method = "ssgd" }, { method = "acpsgd" }]\n')

    fields = read_scenario(path)["scenario"]
    times = [
        predict(make_scenario({**fields, "method": method, "options": {}})).iteration_s
        for method in ("ssgd", "acpsgd")
    ]
    own = predict(make_scenario(fields)).iteration_s
    [found] = only(path)
    assert found.ours == {"one": pytest.approx(min(times) / own)}


def test_a_claim_is_asked_in_every_setting_that_it_varies(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    against = 'against = { method = "ssgd" }\n'
    path.write_text(HEAD + against + 'vary = { gpus = [8, 16], net = ["1gbe", "10gbe"] }\n')
    [found] = only(path)
    assert list(found.ours) == [
        "one (8, 1gbe)",
        "one (8, 10gbe)",
        "one (16, 1gbe)",
        "one (16, 10gbe)",
    ]
    fields = read_scenario(path)["scenario"] | {"gpus": 16, "net": "10gbe"}
    own = predict(make_scenario(fields)).iteration_s
    rival = predict(make_scenario({**fields, "method": "ssgd", "options": {}})).iteration_s
    assert found.ours["one (16, 10gbe)"] == pytest.approx(rival / own)
    assert found.setting == "resnet50 (batch 32); 8, 16 v100, 4 a node; 1gbe, 10gbe"
    [claim] = claims_of(str(path), SHIPPED)
    assert claim.to_dict()["vary"] == "gpus: 8, 16; net: 1gbe, 10gbe"


def test_what_is_hidden_and_what_is_exposed(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    hidden, exposed = (HEAD.replace('"iteration"', f'"{part}"') for part in ("hidden", "exposed"))
    fields = {"model": "resnet50", "gpus": 8, "net": "1gbe"}
    own = predict(make_scenario({**fields, "method": "topk", "options": {"density": 0.01}}))
    rival = predict(make_scenario({**fields, "method": "ssgd"}))
    path.write_text(hidden.replace("paper = 2", "paper = 1"))
    [found] = only(path)
    assert found.ours["one"] == own.communication["hidden_s"] / own.communication["busy_s"]
    assert found.claim.words() == "about 100% of its communication hidden"
    path.write_text(exposed + 'against = { method = "ssgd" }\n')
    [found] = only(path)
    ratio = rival.breakdown_s["communication_exposed"] / own.breakdown_s["communication_exposed"]
    assert found.ours["one"] == pytest.approx(ratio)


def test_every_shipped_claim_states_its_software_and_what_its_paper_leaves_open() -> None:
    for name in SHIPPED.scenarios():
        for claim in claims_of(name, SHIPPED):
            assert claim.era and claim.unstated and claim.note, (name, claim.name)


def test_claims_of_one_name_say_the_same_in_every_file() -> None:
    said: dict[str, Claim] = {}
    for name in SHIPPED.scenarios():
        for claim in claims_of(name, SHIPPED):
            first = said.setdefault(claim.name, claim)
            for key in ("part", "paper", "form", "note", "unstated", "era", "why", "vary"):
                assert getattr(claim, key) == getattr(first, key), (name, claim.name, key)


def test_all_sides_of_a_claim_run_in_one_software_era_and_choose_no_kernel() -> None:
    for name, path in SHIPPED.scenarios().items():
        fields = read_scenario(path)["scenario"]
        for claim in claims_of(name, SHIPPED):
            assert "software" in fields, name
            for _, setting in claim.settings(fields):
                sides = [make_scenario(one) for one in (setting, *claim.rivals(setting))]
                era = claim.software or fields["software"]
                assert {side.software for side in sides} == {era}
                assert not any("kernel" in side.options for side in sides)


def test_a_claim_asked_in_another_era_and_the_settings_too_close_to_call(tmp_path: Path) -> None:
    text = """schema = "perfsim/scenario/1"
title = "x"
[scenario]
model = "resnet50"
gpus = 16
net = "10gbe"
method = "dgc"
[[claim]]
name = "one"
part = "iteration"
against = {{ method = "topk" }}
form = "at least"
paper = {paper}
vary = {{ gpus = [16, 32] }}
software = "torch1.8"
"""
    asked = {"model": "resnet50", "net": "10gbe", "software": "torch1.8"}
    ours = {}
    for gpus in (16, 32):
        both = [
            predict(make_scenario(asked | {"gpus": gpus, "method": method})).iteration_s
            for method in ("dgc", "topk")
        ]
        ours[f"one ({gpus})"] = both[1] / both[0]
    for paper, close in ((sum(ours.values()) / 2, 2), (1e6, 0)):
        (tmp_path / "one.toml").write_text(text.format(paper=paper))
        [found] = only(tmp_path / "one.toml")
        assert found.ours == pytest.approx(ours) and len(found.close) == close
        assert ("too close to call" in found.lands()) == bool(close)


def test_claims_that_cannot_be_asked_say_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [claim.name for claim in claims_not_asked(SHIPPED)]
    assert "FusionLLM over its baselines" in names
    claim = ClaimNotAsked("x", "9 times", "48 GPUs", "abstract", "pipelines")
    [row] = claim_rows([claim])
    assert (row["lands"], row["why"]) == ("not asked", "missing: pipelines")
    assert claim.to_dict().keys() == result("mean", (1.0,), 1.0).to_dict().keys()
    print_claims([claim])
    assert "not asked       x: - (paper: 9 times)\n" in capsys.readouterr().out
    print_claims([claim], verbose=True)
    assert "why: missing: pipelines" in capsys.readouterr().out
    (tmp_path / "measurements").mkdir()
    path = tmp_path / "measurements" / "claims_not_asked.toml"
    path.write_text('schema = "perfsim/claims-not-asked/1"\n[[claim]]\nname = "x"\n')
    with pytest.raises(DataError, match=r"claim\[1\]\.paper: is missing"):
        claims_not_asked(Catalog(tmp_path))


def test_of_many_settings_those_below_the_paper_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_claims([result("at least", (1.0,), *[1.5] * 9, 0.5)], verbose=True)
    assert "figures below the paper's: 9 0.50\n" in capsys.readouterr().out
    print_claims([result("at least", (1.0,), *[1.5] * 10)], verbose=True)
    assert "figures below the paper's: none\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("2", '"two"'), 13, "paper: found 'two', allowed are one or two numbers above zero"),
        (("2", "0"), 13, "paper: found 0, allowed are one or two numbers above zero"),
        (("2", "true"), 13, "paper: found true, allowed are one or two numbers above zero"),
        (
            ("2", "1e12"),
            13,
            "paper: found 1000000000000.0, allowed are one or two numbers above zero",
        ),
        (("2", "[]"), 13, "paper: found [], allowed are one or two numbers above zero"),
        (
            ("2", "[1, 2, 3]"),
            13,
            "paper: found [1, 2, 3], allowed are one or two numbers above zero",
        ),
        (("paper = 2", ""), 9, "paper: is missing"),
        (("paper = 2", "papers = 2"), 13, "papers: unknown key; did you mean 'paper'?"),
        (('"about"', '"nearly"'), 12, "form: found 'nearly', allowed: mean"),
        (('"iteration"', '"iterations"'), 11, "part: found 'iterations'; did you mean 'iteration'"),
        (('"x"', "3"), 10, "name: found 3, allowed is a text"),
        (("2", "2\nwhy = 3"), 14, "why: found 3, allowed is a text"),
        (("2", "2\nagainst = 3"), 14, "against: found 3, allowed is a table or a list of tables"),
        (("2", "2\nagainst = []"), 14, "against: found [], allowed is a table or a list of tables"),
        (("2", "2\nera = 3"), 14, "era: found 3, allowed is a text"),
        (("2", "2\nvary = 3"), 14, "vary: found 3, allowed is a table of fields and their values"),
        (
            ("2", "2\nvary = {gpus = 8}"),
            14,
            "vary: found {'gpus': 8}, allowed is a table of fields and their values",
        ),
        (
            ("2", "2\nvary = {gpu = []}"),
            14,
            "vary: found {'gpu': []}, allowed is a table of fields and their values",
        ),
        (
            ("2", f"2\nvary = {{gpus = {list(range(1, 1002))}}}"),
            14,
            "vary: spans 1,001 settings, allowed are at most 1,000",
        ),
        (
            ("2", "2\nvary = {gpsu = [8, 16]}"),
            14,
            "vary: a scenario has no 'gpsu'; did you mean 'gpu'?",
        ),
        (
            ("2", '2\nagainst = {method = "sgd"}'),
            14,
            "against: method: no 'sgd'; did you mean 'ssgd'",
        ),
        (
            ("2", '2\nagainst = {metod = "ssgd"}'),
            14,
            "against: a scenario has no 'metod'; did you mean 'method'?",
        ),
        (
            ("2", "2\nagainst = {options = {densty = 1}}"),
            14,
            "against: options: method 'topk' has no 'densty'; did you mean 'density'?",
        ),
    ],
)
def test_a_damaged_claim_is_one_sentence(
    tmp_path: Path, change: tuple[str, str], line: int, words: str
) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD.replace(*change))
    with pytest.raises(DataError) as caught:
        claims_of(str(path), SHIPPED)
    assert str(caught.value).startswith(f"{path}, line {line}: claim[1].{words}")


def test_claims_are_a_list_of_tables(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD.replace("[[claim]]", "[claim]"))
    with pytest.raises(DataError, match=r"line 9: claim: found .*, allowed are .* \[\[claim\]\]"):
        claims_of(str(path), SHIPPED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('against = { method = "ssgd" }', "about 2 times as fast as ssgd"),
        ('against = [{ method = "ssgd" }, { method = "bsp" }]', "as fast as ssgd or bsp"),
        ('against = { method = "powersgd", options = { rank = 4 } }', "as powersgd, rank 4"),
        ("", "as fast as its own default options"),
        ('against = { method = "ssgd", net = "10gbe" }', "as fast as ssgd, net 10gbe"),
    ],
)
def test_a_claim_in_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD + text)
    [claim] = claims_of(str(path), SHIPPED)
    assert words in claim.words()


def test_a_prediction_says_what_the_scenario_claims(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD + 'against = { method = "ssgd" }\n')
    fields = read_scenario(path)["scenario"]
    own = predict(make_scenario(fields)).iteration_s
    ratio = predict(make_scenario({**fields, "method": "ssgd", "options": {}})).iteration_s / own
    notes = predicted_notes(path)
    assert f"Claim 'x': the paper says about 2 times as fast as ssgd; here {ratio:.2f}." in notes
    notes = predicted_notes(path, "--gpus", "16")
    assert any("not compared, as the scenario was changed" in note for note in notes)
    shown = CliRunner().invoke(app, ["show", "scenario", str(path), "--json"])
    [claim] = json.loads(shown.output)["claims"]
    assert claim["paper"] == "about 2 times as fast as ssgd"


def predicted_notes(path: Path, *flags: str) -> list[str]:
    """Return the notes of a scenario's prediction."""
    found = CliRunner().invoke(app, ["predict", "--scenario", str(path), *flags, "--json"])
    notes: list[str] = json.loads(found.output)["notes"]
    return notes


@pytest.mark.parametrize("command", [["predict", "--scenario"], ["show", "scenario"]])
def test_a_damaged_claim_is_refused_wherever_its_file_is_read(
    tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD.replace('form = "about"', 'form = "nearly"'))
    assert code([*command, str(path)]) == 3


def test_what_the_scenario_lacks_cannot_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD.replace('"iteration"', '"second_order"') + 'against = {method = "ssgd"}')
    with pytest.raises(RequestError, match="topk has no second_order"):
        claim_notes(str(path), SHIPPED, read_scenario(path)["scenario"])


def test_every_shipped_claim_stands_in_the_documentation() -> None:
    """What stands there is what `validate claims` finds: `test_readme.py` asks for all of it."""
    catalog = SHIPPED
    shipped = {claim.name for name in catalog.scenarios() for claim in claims_of(name, catalog)}
    shipped |= {claim.name for claim in claims_not_asked(catalog)}
    text = (ROOT / "profiles" / "measurements" / "README.md").read_text(encoding="utf-8")
    assert {name for name in shipped if f"| {name} |" not in text} == set()


def test_the_command_prints_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "validate_claims", lambda *_: [result("mean", (4.0,), 6.0)])
    shown = CliRunner().invoke(app, ["validate", "claims", "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.output)
    assert found["schema"] == "perfsim/claims/1" and len(found["claims"]) == 1
    table = CliRunner().invoke(app, ["validate", "claims"])
    assert "outside: +50%" in table.output
