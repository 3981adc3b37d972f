"""Cells and rows of a table: what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfsim.data.tables import cell_number, csv_rows
from perfsim.errors import DataError
from perfsim.quantity import COUNT_LIMIT, SPREAD_LIMIT, TIME_LIMIT

POSITIVE: dict[str, Any] = {"positive": True}
WHOLE: dict[str, Any] = {"whole": True}
TIME: dict[str, Any] = {"within": TIME_LIMIT, "unit": 1e-3}
COUNT: dict[str, Any] = {"within": COUNT_LIMIT, "whole": True}
SPREAD: dict[str, Any] = {"within": SPREAD_LIMIT}


@pytest.mark.parametrize(
    ("text", "limits", "said"),
    [
        ("abc", {}, "'abc' is not a number; it must be 0 or more"),
        ("", {}, "'' is not a number; it must be 0 or more"),
        ("nan", {}, "'nan' is not a number; it must be 0 or more"),
        ("inf", {}, "'inf' is not a number; it must be 0 or more"),
        ("-1", {}, "'-1' is not allowed: it must be 0 or more"),
        ("0", POSITIVE, "'0' is not allowed: it must be above 0"),
        ("1_0", POSITIVE, "'1_0' is not a number; it must be above 0"),
        ("1.5", WHOLE, "'1.5' is not a whole number; it must be 0 or more"),
        ("-1", WHOLE, "'-1' is not allowed: it must be 0 or more"),
        ("0", POSITIVE | WHOLE, "'0' is not allowed: it must be 1 or more"),
        ("1e300", TIME, "'1e300' is not allowed: it must be 0, or 1e-15 s to 1e9 s"),
        ("abc", TIME, "'abc' is not a number; it must be 0, or 1e-15 s to 1e9 s"),
        ("0", TIME | POSITIVE, "'0' is not allowed: it must be 1e-15 s to 1e9 s"),
        ("4", SPREAD, "'4' is not allowed: it must be 0 % to 300 %"),
        ("2.5", COUNT, "'2.5' is not a whole number; it must be 0, or 1 to 1e9"),
        ("2e9", COUNT | POSITIVE, "'2e9' is not allowed: it must be 1 to 1e9"),
    ],
)
def test_a_wrong_number_is_refused_with_its_limits(
    text: str, limits: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError) as error:
        cell_number(text, "time_ms", Path("a.csv"), 7, **limits)
    assert str(error.value) == f"a.csv, line 7, column 'time_ms': {said}"


@pytest.mark.parametrize(
    ("text", "limits"),
    [("0", {}), ("0", TIME), ("1e9", COUNT), ("1e12", TIME), ("3", SPREAD | POSITIVE)],
)
def test_a_number_at_the_limit_is_allowed(text: str, limits: dict[str, Any]) -> None:
    assert cell_number(text, "time_ms", Path("a.csv"), 7, **limits) == float(text)


def test_a_line_of_commas_is_refused_before_it_is_taken_apart(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    sound = ["a,b", "1," + '"' + "x" * 20_000 + '"']
    assert [row for row, _ in csv_rows(sound, 0, ("a", "b"), path)] == [2]
    with pytest.raises(DataError, match=r"line 3.*has more than 10,000 commas"):
        list(csv_rows([*sound, "1," * 10_001], 0, ("a", "b"), path))
