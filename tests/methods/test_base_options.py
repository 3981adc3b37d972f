"""Options of methods: those without effect are refused, and values must be of their kind."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter

from perfsim.errors import RequestError
from perfsim.methods import load_method, method_class, method_names
from perfsim.methods.base import SET, Method, OnlyWith, choices_read


class Hand(Method):
    """A method by hand: two options have an effect only beside others."""

    form: str = Field("plain", description="form")
    epochs: int = Field(0, description="epochs")
    bits: Annotated[int, OnlyWith(form=("coded", "packed"))] = Field(8, description="bits")
    epoch: Annotated[int, OnlyWith(epochs=SET, form="plain")] = Field(-1, description="epoch")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bits": 8}, "bits=8 has no effect with form=plain; set form=coded or packed, or leave"),
        ({"epoch": 1}, "epoch=1 has no effect with epochs=0; set epochs, or leave epoch out"),
        (
            {"epoch": 1, "epochs": 2, "form": "coded"},
            "epoch=1 has no effect with form=coded; set form=plain, or leave epoch out",
        ),
    ],
)
def test_an_option_without_effect_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Hand.model_validate(options)


def test_refusals_write_truths_as_files_and_flags_do() -> None:
    with pytest.raises(
        RequestError, match=r"\btrue has no .*overlap_grad_reduce=false; set .*=true"
    ):
        load_method("distributed_optimizer", {"overlap_param_gather": True})
    with pytest.raises(RequestError, match="false is not allowed for method 'dct'"):
        load_method("dct", {"pull": False})


def test_options_in_effect_are_those_whose_conditions_hold() -> None:
    plain: dict[str, Any] = {"form": "plain", "epochs": 0}
    assert Hand.model_validate({}).in_effect() == plain
    for given in ({"epochs": 3, "epoch": 1}, {"form": "packed", "bits": 2}):
        assert Hand.model_validate(given).in_effect() == plain | given


@pytest.mark.parametrize("name", method_names())
def test_marks_name_options_of_the_method_and_values_that_they_allow(name: str) -> None:
    cls = method_class(name)
    for option in cls.model_fields:
        for mark in cls.only_with(option):
            assert mark.words()
            for other, allowed in mark.allowed.items():
                assert other in cls.model_fields and other != option
                values = allowed if isinstance(allowed, tuple) else (allowed,)
                for value in () if allowed is SET else values:
                    kind: Any = cls.model_fields[other].annotation
                    TypeAdapter(kind).validate_python(value, strict=True)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cpsgd", {"bits": "4"}, "bits: 4 has no effect with compress=none; set compress=qsgd"),
        ("cpsgd", {"density": "0.1"}, "density: 0.1 has no effect with compress=none"),
        ("coccl", {"exponent_bits": 3}, "exponent_bits: 3.0 has no effect with codec=sdp4bit"),
        ("coccl", {"codec": "dietgpu", "bits": 8}, "bits: 8 has no effect with codec=dietgpu"),
        ("coccl", {"codec": "dietgpu", "group": 64}, "group: 64 has no effect"),
        ("topk", {"exchange": "all_reduce", "decoding": "together"}, "decoding: together has no"),
        ("dgc", {"exchange": "all_reduce", "decoding": "together"}, "set exchange=all_gather"),
        ("dgc", {"warmup_coefficient": 0.5}, "no effect with warmup_epochs=0; set warmup_epochs,"),
        ("dgc", {"epoch": 1}, "epoch: 1 has no effect"),
        ("dgc", {"epochs": 10}, "epochs: 10 has no effect"),
        ("dgc", {"warmup_epochs": 4, "epochs": 9, "epoch": 1}, "set epochs=0, or leave epoch out"),
        ("adpsgd", {"interval": 5, "schedule": "4x10"}, "leave schedule out, or leave interval"),
        ("dgc", {"density": True}, "density: true is not allowed: it must be a number"),
        ("powersgd", {"rank": True}, "rank: true is not allowed: it must be a number"),
        ("dgc", {"value_bytes": "3"}, "it must be 2 or 4"),
        ("dgc", {"density": "nan"}, "it must be a finite number"),
    ],
)
def test_options_of_methods(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        load_method(name, options)
    assert str(caught.value).startswith("options.") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cpsgd", {"exchange": "gradients", "compress": "qsgd", "bits": "4"}),
        ("cpsgd", {"exchange": "gradients", "compress": "randk", "density": "0.1"}),
        ("coccl", {"codec": "dietgpu", "exponent_bits": "3"}),
        ("topk", {"decoding": "one_by_one"}),
        ("dgc", {"warmup_epochs": "4", "warmup_coefficient": "0.5", "epoch": "1"}),
        ("dgc", {"warmup_epochs": "4", "epochs": "9"}),
        ("adpsgd", {"schedule": "4x10"}),
        ("powersgd", {"warm_start": True}),
    ],
)
def test_options_with_effect_are_taken(name: str, options: dict[str, Any]) -> None:
    assert set(options) <= set(load_method(name, options).in_effect())


def test_whole_numbers_to_choose_from_may_be_written_as_text() -> None:
    assert load_method("dgc", {"value_bytes": "2"}).in_effect()["value_bytes"] == 2
    for release in ("0.3", 0.3):
        assert choices_read(method_class("kaisa"), {"release": release}) == {"release": "0.3"}
    read = choices_read(method_class("dgc"), {"value_bytes": "02", "exchange": "2"})
    assert read == {"value_bytes": "02", "exchange": "2"}


def test_auto_is_no_method() -> None:
    with pytest.raises(RequestError, match="auto is no method"):
        method_class("auto")


@pytest.mark.parametrize("name", method_names())
def test_a_method_without_options_is_what_its_checks_would_make_of_none(name: str) -> None:
    """So they need not look at it, and a method whose options nobody gives makes no checks."""
    made, checked = load_method(name, {}), method_class(name).model_validate({})
    assert made == checked and hash(made) == hash(checked)
    assert made.model_fields_set == checked.model_fields_set == set()
    assert load_method(name, {}) is made
    usual = made.in_effect()
    assert usual == checked.in_effect() == load_method(name, usual).in_effect()


def test_checks_of_options_are_made_where_options_are_given() -> None:
    class Late(Method):
        density: float = Field(0.5, gt=0, description="density")

    assert Late.model_construct().in_effect() == {"density": 0.5} and not Late.__pydantic_complete__
    with pytest.raises(ValueError, match="greater than 0"):
        Late.model_validate({"density": -1})
    assert Late.__pydantic_complete__


def test_a_share_may_be_written_in_per_cent() -> None:
    for text, share in (("5%", 0.05), (" 0.1 %", 0.001), ("0.05", 0.05)):
        assert load_method("topk", {"density": text}) == load_method("topk", {"density": share})
    for method, option, text, said in (
        (
            "topk",
            "density",
            "150%",
            "'150%' is not allowed for method 'topk': it must be 1.0 or less",
        ),
        ("topk", "density", "x%", "'x%' is not allowed for method 'topk': it must be a number"),
        ("redsync", "surplus", "50%", "'50%' is not allowed for method 'redsync'"),
        ("powersgd", "rank", "4%", "'4%' is not allowed for method 'powersgd'"),
    ):
        with pytest.raises(RequestError, match=f"^options.{option}: {said}"):
            load_method(method, {option: text})
