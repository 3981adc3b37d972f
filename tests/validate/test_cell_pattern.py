"""A map's patterns end soon on every cell, or are refused before they are tried."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.data.toml import WrongValue
from perfsim.session import Session
from perfsim.validate.cell_pattern import MAX_CELL_CHARACTERS, MAX_TRIES, cell_pattern
from perfsim.validate.mapping import rules_of

EVIL = (
    *(
        r"(a+)+$",
        r"(a*)*$",
        r"([a-zA-Z]+)*$",
        r"(a|aa)+$",
        r"(a|a?)+$",
        r"(.*a){20}$",
        r"(a+){10}$",
    ),
    *(
        r"(a+)+",
        r"(?:a+)+(b)",
        r"((a+)+)$",
        r"(?=(a+))a*b",
        r"(a)\1*$",
        r"(\w+\s?)*$",
        r"^(a?){50}",
    ),
    *(r"(.*)(.*)$", r".*.*(a)$", r"\s*\s*(\d)", r"(\d+)\d*\d*$", r"a*a*a*(b)", r"\w*\w*(!)"),
    *(r"([^,]*,)*$", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(x+x+)+y", r"(.|\n)*(z)", r"(a??)*b"),
    *(r"(?<=a)(b)", r"(?P<n>a+)+", r"(?i:(a+)+)", r"(?>a+)(b)", r"(a++)b", r"a{1,400}a{1,400}(b)"),
    *(r"a?a?a?a?a?a?a?a?a?a?a?(a)", r"(a+?)+?$", r"([ab]+)*c", r"(" + "a?" * 40 + ")" + "a" * 40),
    *(r".{0,500}.{0,500}.{0,500}(q)", r"(a{1,99}){1,99}$", r"((((a+)+)+)+)$"),
)
"""Known patterns that take the square, the cube or the power of a text's length, and their kin."""

SOUND = (
    *(r"([0-9]+)", r"^fusion ([0-9.]+)$", r"\bK=(\d+)\b", r"rank\s?=\s{0,4}([0-9]{1,6})", r"(\w+)"),
    *(r"density (0\.[0-9]{1,5})%?", r"/ ([0-9]+) bits", r"([^,;]{1,20}),", r"\((\d{3})\)", r"(.*)"),
    *(r"x{3}([ab])", r"(a+?)b", r"([\d.]+)", r"(é+)"),
)


@pytest.mark.parametrize("text", EVIL)
def test_a_pattern_that_may_take_for_ever_is_refused(text: str) -> None:
    with pytest.raises(WrongValue, match=r"a sequence at|in .* ways|is no pattern"):
        cell_pattern(text)


@pytest.mark.parametrize("text", SOUND)
def test_a_sound_pattern_is_python_s_own(text: str) -> None:
    assert cell_pattern(text) == re.compile(text)


@pytest.mark.parametrize("text", SOUND)
@pytest.mark.parametrize("unit", ["a", "0", " ", "ab", "0.", "é", "x", "(0", "K=0", "rank"])
def test_a_sound_pattern_ends_soon_on_every_cell(text: str, unit: str) -> None:
    cell = (unit * MAX_CELL_CHARACTERS)[: MAX_CELL_CHARACTERS - 1] + "!"
    begun = time.process_time()
    cell_pattern(text).search(cell, 0, MAX_CELL_CHARACTERS)
    assert time.process_time() - begun < 0.05


def test_the_worst_that_is_allowed_ends_soon() -> None:
    """`MAX_TRIES` holds: of two repeats and those of many, the widest that pass take no second."""
    for text in (
        r"a{0,30}a{0,30}(b)",
        r"a{0,8}a{0,8}a{0,8}(b)",
        r"a?a?a?a?a?a?a?a?a?(b)",
        r"a*(b)",
    ):
        begun = time.process_time()
        cell_pattern(text).search("a" * MAX_CELL_CHARACTERS)
        assert time.process_time() - begun < 0.1
    with pytest.raises(WrongValue, match=f"allowed are {MAX_TRIES:,}"):
        cell_pattern(r"a{0,40}a{0,40}(b)")


def test_a_pattern_has_a_length() -> None:
    with pytest.raises(WrongValue, match="has more than 200 characters"):
        cell_pattern("a" * 200 + "(b)")


def test_validate_refuses_a_map_with_an_evil_pattern(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "my_map.toml"
    rules.write_text(
        'schema = "perfsim/measurement-map/1"\n[[rule]]\n'
        'when = { id = "*" }\nnumber = { gpus = "notes:(a+)+$" }\n'
    )
    assert code(["validate", "--map", str(rules)]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"perfsim: {rules}, line 4: rule[1].number: '(a+)+$' is more than a seq")
    assert said.count("\n") == 1


def test_what_ships_passes() -> None:
    assert sum(len(rule.numbers) for rule in rules_of(Session())) > 10
