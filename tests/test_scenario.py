"""Scenarios: files and fields, checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.data.catalog import Catalog
from perfsim.errors import DataError, RequestError
from perfsim.models.specification import architecture_of
from perfsim.prediction import predict
from perfsim.scenario import (
    OPTION_GROUPS,
    SCENARIO_FIELDS,
    Scenario,
    fields_read_by,
    is_field,
    make_scenario,
    table_columns,
)
from perfsim.scenario_file import read_fields, read_scenario
from support.paths import PACKAGE

HEAD = 'schema = "perfsim/scenario/1"\n'


def test_defaults_are_those_of_the_contract() -> None:
    scenario = make_scenario({"model": "resnet50", "gpus": "64"})
    assert (scenario.gpus, scenario.gpu, scenario.method) == (64, None, "ssgd")
    assert scenario.overlap and scenario.fusion is None and scenario.bucket is None
    assert scenario.batch is None and scenario.precision is None


def test_the_model_has_the_fields_of_the_list_in_order() -> None:
    assert list(Scenario.model_fields) == list(SCENARIO_FIELDS)
    for name, field in Scenario.model_fields.items():
        if not field.is_required():
            assert field.default == SCENARIO_FIELDS[name].value


@pytest.mark.parametrize("name", SCENARIO_FIELDS)
def test_an_entry_says_what_a_field_is_and_which_rooms_read_it(name: str) -> None:
    field = SCENARIO_FIELDS[name]
    assert field.help.endswith(".") and field.read_by
    assert is_field(name) == (name not in OPTION_GROUPS)
    for room in field.read_by:
        assert (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file()
        assert name in fields_read_by(room)
    assert bool(field.metavar) != field.switch, "every flag but a switch says how it is written"


def test_tables_begin_with_what_was_asked() -> None:
    assert table_columns()[:4] == ("model", "gpus", "gpus_per_node", "nodes")
    assert "bucket_bytes" in table_columns() and "seed" not in table_columns()


def test_a_scenario_is_one_class_that_can_be_sent_to_other_processes() -> None:
    import pickle

    import perfsim.scenario

    asked = make_scenario({"model": "m", "gpus": 8, "placement": "3,5"})
    assert type(asked) is Scenario is perfsim.scenario.Scenario
    assert pickle.loads(pickle.dumps(asked)) == asked
    with pytest.raises(AttributeError, match="has no attribute 'Scenery'"):
        perfsim.scenario.Scenery  # noqa: B018


def test_a_stage_may_have_no_block() -> None:
    """The embedding or the output layer stands alone there."""
    asked = make_scenario({"model": "m", "gpus": 8, "stage_layers": "6,5,5,0"})
    assert asked.stage_layers == (6, 5, 5, 0)


@pytest.mark.parametrize("given", ["3,5", [3, 5], (3, 5)])
def test_placement_as_text_or_list(given: object) -> None:
    assert make_scenario({"model": "m", "gpus": 8, "placement": given}).placement == (3, 5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpus": 8}, ["model is needed"]),
        ({"model": "m"}, ["gpus is needed"]),
        ({"model": "m", "gpus": 8, "modle": 1}, ["'modle'", "did you mean 'model'"]),
        ({"model": "m", "gpus": "x"}, ["gpus", "'x'"]),
        ({"model": "m", "gpus": -1}, ["gpus", "-1"]),
        ({"model": "m", "gpus": 8, "placement": "3,-5"}, ["placement", "3,5"]),
        ({"model": "m", "gpus": 8, "placement": "8,0"}, ["placement", "GPUs on each node"]),
        ({"model": "m", "gpus": 8, "stage_layers": "9,x"}, ["blocks of each stage", "7,8,8,7"]),
        ({"model": "m", "gpus": True}, ["gpus: true", "it must be a number"]),
        ({"model": "m", "gpus": 8, "oversubscription": True}, ["oversubscription: true"]),
        ({"model": "m", "gpus": 8, "placement": [True, 7]}, ["placement", "whole numbers"]),
        ({"model": "m", "gpus": 8, "placement": 8}, ["placement", "it must be a list"]),
        ({"model": "m", "gpus": 8, "options": 3}, ["options", "a table of names and values"]),
        ({"model": "m", "gpus": 8, "options": {"rank": [1]}}, ["options.rank: [1]"]),
        ({"model": "m", "gpus": 8, "fusion_options": {"a": 1}}, ["fusion_options.a: 1"]),
        ({"model": "m", "gpus": 8, "single_gpu": "253"}, ["single_gpu", "a bare number"]),
        ({"model": "m", "gpus": 8, "single_gpu": "5GB/s"}, ["single_gpu", "samples/s"]),
        ({"model": "m", "gpus": 8, "single_gpu": "0samples/s"}, ["single_gpu", "1e-15 s to 1e9 s"]),
        ({"model": "m", "gpus": 8, "single_gpu_kernels": "10"}, ["single_gpu_kernels", "bare"]),
        (
            {"model": "m", "gpus": 8, "single_gpu_kernels": "0s"},
            ["single_gpu_kernels", "1e-15 s to 1e9 s"],
        ),
        ({"model": "m", "gpus": 8, "bucket": 25}, ["bucket", "25"]),
        ({"model": "m", "gpus": 8, "overlap": "perhaps"}, ["overlap", "'perhaps'"]),
        ({"model": "m", "gpus": 8, "overlap_slowdown": 0.5}, ["overlap_slowdown", "0.5"]),
        (
            {"model": "m", "gpus": 8, "overlap": False, "overlap_slowdown": 1.5},
            ["overlap_slowdown: 1.5 needs overlap to be true"],
        ),
    ],
)
def test_wrong_fields(fields: dict[str, object], words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        make_scenario(fields, "mine.toml")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema = ", ["is not TOML"]),
        ('schema = "perfsim/scenario/2"\n', ["perfsim/scenario/2", "perfsim/scenario/1"]),
        (HEAD, ["scenario: is missing: the table [scenario]"]),
        (HEAD + "titel = 1\n[scenario]\n", ["line 2: titel: unknown key", "'title'"]),
        (HEAD + "scenario = 3\n", ["line 2: scenario: found 3, allowed is a table [scenario]"]),
        (HEAD + "question = 1\n[scenario]\n", ["question: is not a text"]),
        (HEAD + 'question = "Why?"\n[scenario]\n', ["a question and a command, or neither"]),
        (
            HEAD + 'question = "Why?"\ncommand = "rm -r /"\n[scenario]\n',
            ["command: 'rm -r /' is not perfsim's"],
        ),
        (HEAD + "measured = 3\n[scenario]\n", ["measured: is not a table of rows and ids"]),
        (HEAD + "[scenario]\n[measured]\ndgc = 3\n", ["measured: is not a table of rows and ids"]),
    ],
)
def test_a_damaged_file_is_named(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_scenario(path)
    for word in ("mine.toml", *words):
        assert word in str(caught.value)


def test_a_config_beside_a_scenario_file_is_found_from_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD + '[scenario]\nmodel = "own.json"\ngpus = 8\n', encoding="utf-8")
    assert read_fields(path)["model"] == "own.json"  # none there: as it stands
    (tmp_path / "own.json").write_text("{}", encoding="utf-8")
    assert read_fields(path)["model"] == str(tmp_path / "own.json")


def test_the_shipped_config_is_found_by_its_name_unless_there_is_one_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert architecture_of("our_model.json").layers == 22
    assert read_fields(Catalog().scenario("plan_our_model"))["model"] == "our_model.json"
    (tmp_path / "our_model.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="model_type is needed"):
        architecture_of("our_model.json")


@pytest.mark.parametrize("model", ["resnet50", "generic:params=1M,layers=2,flops=1GFLOP"])
def test_only_transformers_recompute(model: str) -> None:
    asked = make_scenario({"model": model, "gpus": 8, "recompute": "full"})
    with pytest.raises(RequestError, match=r"^recompute: only transformers have blocks"):
        predict(asked)


def test_an_unknown_field_is_no_long_message_whatever_its_value() -> None:
    with pytest.raises(RequestError) as error:
        make_scenario({"model": "resnet50", "gpus": 8, "\0x" * 900: "\0"})
    assert str(error.value).startswith("a scenario has no") and len(str(error.value)) < 300


def test_the_list_itself_knows_the_words_of_each_field() -> None:
    known = {name: field.words() for name, field in SCENARIO_FIELDS.items() if field.words}
    assert len(known) > 5 and all(known.values())


@pytest.mark.parametrize("count", ["9" * 500, "9" * 5000])
def test_a_long_number_of_gpus_of_a_type_is_no_long_message(count: str) -> None:
    with pytest.raises(RequestError, match=r"^gpu: .* of a type are too many; 1000000 is") as error:
        make_scenario({"model": "resnet50", "gpus": 8, "gpu": f"v100:2,p100:{count}"})
    assert len(str(error.value)) < 300


def test_types_that_do_not_add_up_are_quoted_in_short() -> None:
    many = ",".join(["v100:2"] * 300)
    with pytest.raises(RequestError, match=r"\.\.\. is 600 GPUs, gpus says 8; the two") as error:
        make_scenario({"model": "resnet50", "gpus": 8, "gpu": many})
    assert len(str(error.value)) < 300
