"""Templates: every value is text, numbers keep their digits, and JSON cannot end its element."""

from __future__ import annotations

import json

import pytest
from jinja2 import UndefinedError

from perfsim.errors import spelling
from perfsim.report.drawing import Drawing
from perfsim.report.html.page import Page, PageTable, page_text
from perfsim.report.html.render import render
from support.page_content import HOSTILE, Tables, island


def network(title: str) -> str:
    """Return a page of the smallest template."""
    return render(
        "network.html.j2", title=title, drawing=Drawing(title, [], 1, 1), paragraphs=[title]
    )


def test_text_is_escaped_and_has_no_control_characters() -> None:
    page = network(f"{HOSTILE}\x1b")
    assert "<img" not in page and "&lt;img" in page
    assert "\x1b" not in page


def test_fields_are_written_as_the_reader_knows_them() -> None:
    assert "give bucket" in network("give `bucket`")
    with spelling(lambda field: f"--{field}"):
        assert "give --bucket" in network("give `bucket`")


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="paragraphs"):
        render("network.html.j2", title="a", drawing=Drawing("a", [], 1, 1))


def test_a_page_without_figures_holds_its_result_and_its_table() -> None:
    pytest.importorskip("plotly")
    result = {"text": HOSTILE, "value": 0.1}
    table = PageTable("Rows", ("name", "value"), [(HOSTILE, 1234567.25), ("b", 0.1)])
    page = page_text(Page("a", "b?", {"one": "1"}, [], ["a note"], "result", result, table))
    assert island(page, "result") == json.loads(json.dumps(result))
    assert Tables(page).found["rows-table"][1:] == [[HOSTILE, 1234567.25], ["b", 0.1]]
    assert ">1,234,567<" in page and "<img" not in page
