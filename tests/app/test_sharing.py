"""A scenario shared as a file or a link comes back as it was, and names no files by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.app.controls import fields_of, texts_of
from perfsim.app.sharing import (
    MAX_FILE_BYTES,
    Readable,
    files_in,
    link_of,
    read_link,
    read_opened,
    scenario_toml,
)
from perfsim.cli.scenario_flags import scenario_fields
from perfsim.data.catalog import Catalog
from perfsim.errors import DataError, RequestError
from perfsim.prediction import predict
from perfsim.scenario import (
    OPTION_GROUPS,
    SCENARIO_FIELDS,
    Scenario,
    given_fields,
    make_scenario,
)
from perfsim.scenario_file import read_fields

CATALOG = Catalog()
SCENARIOS = CATALOG.scenarios()

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text.strip()
)
KEYS = st.sampled_from(
    [
        *(
            name
            for name, field in SCENARIO_FIELDS.items()
            if not field.switch and name != "options"
        ),
        "options.density",
        "fusion_options.cycle_time",
    ]
).filter(lambda name: name != "fusion_options")
TEXTS = st.dictionaries(KEYS, WORDS, max_size=8)


@given(TEXTS, TEXTS)
def test_a_link_holds_every_text_as_it_was(first: dict[str, str], second: dict[str, str]) -> None:
    found = read_link(link_of(first, second))
    assert (found.first, found.second, found.wrong) == (first, second, "")


def test_a_link_says_what_is_wrong_with_it() -> None:
    found = read_link("?model=gpt2&gpuss=8&overlap=maybe")
    assert found.first == {"model": "gpt2"}
    assert found.wrong.startswith("a scenario has no 'gpuss'; did you mean 'gpus'?")
    assert read_link("?overlap=maybe").wrong == (
        "overlap: 'maybe' is not allowed: it must be true or false."
    )
    assert read_link("?overlap=off").first == {"overlap": "off"}
    assert read_link("?options=1").wrong
    assert read_link("?" + "&".join(["gpus=1"] * 300)).wrong == "The link has more than 200 fields."


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_saved_file_is_the_same_scenario(name: str, tmp_path: Path) -> None:
    fields = read_fields(SCENARIOS[name])
    if "model" not in fields or "gpus" not in fields:
        pytest.skip("it is a question about several scenarios")
    scenario = make_scenario(fields)
    path = tmp_path / "saved.toml"
    path.write_text(scenario_toml(scenario))
    assert make_scenario(read_fields(path)) == scenario
    assert make_scenario(read_opened("saved.toml", path.read_text())) == scenario


def test_options_that_were_typed_predict_the_same_from_a_file() -> None:
    texts = {"model": "resnet18", "gpus": "8", "method": "topk", "options.density": "0.02"}
    scenario = make_scenario(fields_of(texts))
    again = make_scenario(read_opened("x.toml", scenario_toml(scenario)))
    assert predict(again).iteration_s == predict(scenario).iteration_s


GIVEN: dict[str, dict[str, Any]] = {
    "a default beside a node type": {"node": "dgx-1", "net": "10gbe"},
    "the network of a node type": {"node": "dgx-1"},
    "defaults that a search keeps": {"tp": 1, "method": "ssgd", "overlap": True},
    "a choice that looks like a number": {"method": "kaisa", "options": {"release": "0.3"}},
    "a text that looks like a number": {"method": "adpsgd", "options": {"schedule": "8"}},
    "an option of the fusion policy": {
        "fusion": "size",
        "fusion_options": {"cycle_time": "5"},
    },
    "lists": {"net": "1gbe", "placement": [3, 5], "straggler": ["1:1.5", "1:2"]},
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_what_was_given_is_the_same_in_every_form(given: dict[str, Any]) -> None:
    asked = Scenario(model="resnet50", gpus=8, **given)
    fields = given_fields(asked)
    flags = {name: value for name, value in fields.items() if name not in OPTION_GROUPS}
    pairs = [f"{name}={value}" for name, value in asked.options.items()]
    pairs += [f"fusion.{name}={value}" for name, value in asked.fusion_options.items()]
    forms = {
        "file": read_opened("x.toml", scenario_toml(asked)),
        "link": fields_of(read_link(link_of(texts_of(fields))).first),
        "command line": scenario_fields(CATALOG, None, flags, pairs)[0],
    }
    made = {form: make_scenario(read) for form, read in forms.items()}
    made["repr"] = eval(repr(asked), {"Scenario": Scenario})
    assert made == dict.fromkeys(made, asked)
    for again in made.values():
        assert again.model_fields_set == asked.model_fields_set
        assert scenario_toml(again) == scenario_toml(asked)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = ", "'mine.toml': is not TOML: Invalid value (at end of document)"),
        ('schema = "perfsim/profile/1"\n', "perfsim/scenario/1"),
        ("\x00", "'mine.toml'"),
        ('schema = "perfsim/scenario/1"\n', "[scenario]"),
    ],
)
def test_a_damaged_file_is_refused_by_its_own_name(text: str, sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        read_opened("/home/me/mine.toml", text)
    assert sentence in str(caught.value) and "/tmp" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_read() -> None:
    with pytest.raises(RequestError, match=r"^'big.toml' is larger than 100 kB"):
        read_opened("big.toml", "#" * (MAX_FILE_BYTES + 1))


def test_which_fields_name_files() -> None:
    named = {
        "model": "own/config.json",
        "net": "our.toml",
        "node": "node.toml",
        "beside": ["bert.toml", next(iter(SCENARIOS))],
    }
    assert files_in(named, CATALOG) == [
        ("model", "own/config.json"),
        ("net", "our.toml"),
        ("node", "node.toml"),
        ("beside", "bert.toml"),
    ]
    none = ("resnet50", "transformer:layers=2", "generic:params=1M", "our_model.json", "x.y")
    for model in none:
        assert files_in({"model": model, "net": "10Gbit/s,5us"}, CATALOG) == []
    for model in ("profile.csv", "/etc/passwd", "..", "config.json"):
        assert files_in({"model": model}, CATALOG) == [("model", model)]


def test_only_files_below_the_folder_are_read_and_only_if_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "config.json").write_text("{}")
    (tmp_path / "other.json").write_text("{}")
    readable = Readable(work)
    own = {"model": "config.json", "gpus": "8"}

    kept, wrong = readable.shared(own, CATALOG)
    assert kept == {"gpus": "8"} and wrong == (
        "model: 'config.json' is a file of this computer, which a link or an opened file may not"
        " name; type it in."
    )
    readable.check_typed(own, CATALOG)
    assert readable.shared(own, CATALOG) == (own, "")  # it was read before: the page is reloaded

    (work / "out.json").symlink_to(tmp_path / "other.json")
    for name in ("../other.json", str(tmp_path / "other.json"), "out.json", "/etc/passwd"):
        with pytest.raises(RequestError, match="is not below"):
            readable.check_typed({"model": name}, CATALOG)
    os.mkfifo(work / "pipe.json")
    with pytest.raises(RequestError, match="is no regular file"):
        readable.check_typed({"model": "pipe.json"}, CATALOG)


def test_a_page_that_others_reach_reads_only_what_the_command_line_named() -> None:
    readable = Readable(None, ["mine.json"])
    readable.check_typed({"model": "mine.json"}, CATALOG)
    with pytest.raises(RequestError) as caught:
        readable.check_typed({"model": "config.json"}, CATALOG)
    assert str(caught.value) == (
        "model: 'config.json' is a file, and a page that others can reach reads none; give a name"
        " or numbers."
    )
