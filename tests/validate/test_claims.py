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
from perfsim.scenario import make_scenario
from perfsim.scenario_file import read_scenario
from perfsim.validate import claims
from perfsim.validate.claims import Claim, ClaimResult, claim_notes, claims_of, validate_claims
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
    ],
)
def test_where_our_figures_land(found: ClaimResult, words: str) -> None:
    assert found.lands() == words


def test_a_claim_compares_with_its_rival(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD + 'against = { method = "ssgd" }\n')
    [claim] = claims_of(str(path), SHIPPED)
    fields = read_scenario(path)["scenario"]
    own = predict(make_scenario(fields)).iteration_s
    rival = predict(make_scenario({**fields, "method": "ssgd", "options": {}})).iteration_s
    assert claim.against == ({"method": "ssgd"},)

    class One(Catalog):
        def scenarios(self) -> dict[str, Path]:
            return {"one": path}

    [found] = validate_claims(One())
    assert found.ours == {"one": pytest.approx(rival / own)}


def test_of_several_rivals_the_best_counts(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(HEAD + 'against = [{ method = "ssgd" }, { method = "acpsgd" }]\n')

    class One(Catalog):
        def scenarios(self) -> dict[str, Path]:
            return {"one": path}

    fields = read_scenario(path)["scenario"]
    times = [
        predict(make_scenario({**fields, "method": method, "options": {}})).iteration_s
        for method in ("ssgd", "acpsgd")
    ]
    own = predict(make_scenario(fields)).iteration_s
    [found] = validate_claims(One())
    assert found.ours == {"one": pytest.approx(min(times) / own)}


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("2", '"two"'), 13, "paper: found 'two', allowed are one or two numbers above zero"),
        (("2", "0"), 13, "paper: found 0, allowed are one or two numbers above zero"),
        (("2", "true"), 13, "paper: found True, allowed are one or two numbers above zero"),
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


def test_the_command_prints_every_shipped_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = CliRunner().invoke(app, ["validate", "claims", "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.output)
    assert found["schema"] == "perfsim/claims/1"
    catalog = SHIPPED
    shipped = {claim.name for name in catalog.scenarios() for claim in claims_of(name, catalog)}
    assert {row["claim"] for row in found["claims"]} == shipped
    monkeypatch.setattr(claims, "validate_claims", lambda catalog: [result("mean", (4.0,), 6.0)])
    table = CliRunner().invoke(app, ["validate", "claims"])
    assert "outside: +50%" in table.output
