"""Errors: one sentence, the place, the nearest match, and the exit code of the contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import DataError, PerfsimError, RequestError, nearest, unknown, unknown_option
from perfsim.models.named import NAMED
from support.what_ships import SHIPPED

MODELS = ["bert-large", "resnet50", "resnet152", "vgg16"]


def test_exit_codes_are_the_contract() -> None:
    codes = (PerfsimError("x").exit_code, RequestError("", "x").exit_code, DataError("x").exit_code)
    assert codes == (1, 2, 3)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({}, "is empty"),
        ({"path": "a.csv"}, "a.csv: is empty"),
        ({"path": Path("a.csv"), "row": 7}, "a.csv, line 7: is empty"),
        ({"path": "a.csv", "row": 7, "column": "ready_ms"},
         "a.csv, line 7, column 'ready_ms': is empty"),
        ({"row": 0}, "line 0: is empty"),
    ],
)  # fmt: skip
def test_a_data_error_says_where(place: dict[str, object], text: str) -> None:
    assert str(DataError("is empty", **place)) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "match"),
    [("resnet5O", "resnet50"), ("RESNET50", "resnet50"), ("bert_large", "bert-large"),
     ("vgg", "vgg16"), ("zzzz", ""), ("", "")],
)  # fmt: skip
def test_nearest(name: str, match: str) -> None:
    assert nearest(name, MODELS) == match


def test_no_two_names_that_ship_are_compared_as_one() -> None:
    for kind in ("models", "devices", "networks", "nodes"):
        names = [*{name.partition(".")[0] for name in SHIPPED.files(kind)}, *NAMED]
        assert [nearest(name.upper().replace("-", "_"), names) for name in names] == names


@given(st.sampled_from(MODELS))
def test_a_name_is_nearest_to_itself(name: str) -> None:
    assert nearest(name, MODELS) == name


def test_nearest_of_nothing_is_nothing() -> None:
    assert nearest("resnet50", []) == ""


def test_unknown_names_field_value_match_and_choices() -> None:
    error = unknown("model", "resnet5O", MODELS, "models")
    assert isinstance(error, RequestError)
    assert str(error) == (
        "model: no 'resnet5O'; did you mean 'resnet50'? Allowed: bert-large, resnet152,"
        " resnet50, vgg16 (`perfsim list models` shows them)."
    )


def test_unknown_without_a_match_still_lists_the_choices() -> None:
    assert str(unknown("gpu", "zzzz", ["v100"])) == "gpu: no 'zzzz'. Allowed: v100."


def test_many_names_are_listed_unless_the_message_says_what_shows_them() -> None:
    """A count of names that nothing shows helps nobody."""
    many = [f"name{number}" for number in range(60)]
    alone = str(unknown("gpu", "zzz", many))
    assert all(f" {name}," in alone or f" {name}." in alone for name in many)
    listed = str(unknown("gpu", "zzz", many, "gpus"))
    assert listed.endswith("such as name0, name1, name10 (`perfsim list gpus` shows them).")
    option = unknown_option("a scenario", "zzz", many, shown_by="`perfsim predict --help`")
    assert str(option).endswith("(`perfsim predict --help` shows them).")


def test_unknown_among_no_choices_says_so() -> None:
    assert str(unknown("net", "1gbe", [])) == "net: no '1gbe'. Allowed: none."


@given(st.text(max_size=30))
def test_any_name_makes_a_message(name: str) -> None:
    assert str(unknown("model", name, MODELS)).startswith("model: no ")
