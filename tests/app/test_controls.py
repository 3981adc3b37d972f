"""The controls of the app: every field has one, and texts are a scenario and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.app.controls import (
    MAIN_FIELDS,
    MORE_FIELDS,
    choices_of,
    fields_of,
    label_of,
    option_controls,
    texts_of,
)
from perfsim.errors import RequestError
from perfsim.methods import method_class, method_names
from perfsim.scenario import OPTION_GROUPS, SCENARIO_FIELDS, make_scenario
from perfsim.scenario_file import read_fields
from support.what_ships import SHIPPED

SCENARIOS = SHIPPED.scenarios()


def test_every_field_has_one_control_and_a_label_of_its_own() -> None:
    shown = [*(name for names in MAIN_FIELDS.values() for name in names), *MORE_FIELDS]
    assert sorted([*shown, *OPTION_GROUPS]) == sorted(SCENARIO_FIELDS)
    labels = [label_of(name) for name in shown]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_shipped_scenario_stays_the_same_in_the_controls(name: str) -> None:
    fields = read_fields(SCENARIOS[name])
    if "model" not in fields or "gpus" not in fields:
        pytest.skip("it is a question about several scenarios")
    again = make_scenario(fields_of(texts_of(fields)))
    asked = make_scenario(fields)
    for field in SCENARIO_FIELDS:
        if field not in OPTION_GROUPS:
            assert getattr(again, field) == getattr(asked, field)
    options = {option: str(value).lower() for option, value in asked.options.items()}
    assert {option: str(value).lower() for option, value in again.options.items()} == options


@given(
    st.fixed_dictionaries(
        {"model": st.sampled_from(["resnet50", "generic:params=1M,layers=2,flops=1GFLOP"])},
        optional={
            "gpus": st.integers(1, 4096),
            "overlap": st.booleans(),
            "placement": st.lists(st.integers(1, 64), min_size=1, max_size=5),
            "straggler": st.lists(st.sampled_from(["1:1.5", "2:3"]), min_size=1, max_size=3),
            "options": st.dictionaries(st.sampled_from(["density", "rank"]), st.floats(0.1, 1)),
            "net": st.sampled_from(["10gbe", "10Gbit/s,50us"]),
        },
    )
)
def test_texts_of_fields_are_those_fields(fields: dict[str, object]) -> None:
    texts = texts_of(fields)
    assert all(isinstance(text, str) and text for text in texts.values())
    assert texts_of(fields_of(texts)) == texts


def test_what_is_empty_is_left_out_and_nothing_is_checked_here() -> None:
    assert fields_of({"model": "  ", "gpus": "many", "batch": ""}) == {"gpus": "many"}


def test_options_are_those_of_the_method_and_of_the_policy_that_are_typed() -> None:
    for method in method_names():
        keys = [one.key for one in option_controls({"method": method}, SHIPPED)]
        assert keys == [f"options.{option}" for option in method_class(method).model_fields]
    both = option_controls({"method": "ssgd", "fusion": "size"}, SHIPPED)
    assert both[-1].key == "fusion_options.first_bucket"
    assert option_controls({"method": "no such"}, SHIPPED) == []


def test_an_option_that_is_given_has_a_control_whatever_the_method() -> None:
    """It was passed over where a link or a file gave it: the answer was one without it."""
    given = {"method": "ssgd", "options.density": "0.01", "fusion_options.first_bucket": "4MiB"}
    keys = [one.key for one in option_controls(given, SHIPPED)]
    assert keys[-2:] == ["fusion_options.first_bucket", "options.density"]
    assert "options.x" in [one.key for one in option_controls({"options.x": "1"}, SHIPPED)]
    assert option_controls({"method": "no", "options.": "1", "options": "2"}, SHIPPED) == []


def test_a_control_offers_what_may_be_typed_into_it() -> None:
    assert {"llama3-8b", "resnet34", "resnet50"} <= set(choices_of("model", SHIPPED))
    assert set(choices_of("gpu", SHIPPED)) == set(SHIPPED.files("devices"))
    words = ("none", "activations", "checkpoints", "optimizer", "parameters")
    assert choices_of("offload", SHIPPED) == words
    assert choices_of("library", SHIPPED) == ("gloo", "mpi", "nccl", "rccl")
    assert choices_of("batch", SHIPPED) == ()
    for name in SCENARIO_FIELDS:
        if not SCENARIO_FIELDS[name].complete:
            for word in choices_of(name, SHIPPED):
                fields = {"model": "resnet50", "gpus": 8, "accumulate": 2, name: word}
                assert getattr(make_scenario(fields), name) is not None


def test_a_text_in_place_of_options_is_refused_and_no_error() -> None:
    for texts in (
        {"options": "x", "options.density": "0.01"},
        {"options.density": "0.01", "options": "x"},
    ):
        with pytest.raises(RequestError, match="options"):
            make_scenario({"model": "resnet50", "gpus": 8, **fields_of(texts)})
