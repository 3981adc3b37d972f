"""Tables of ``list`` and ``show``: all texts are there, and no line is wider than asked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.cli.main import code
from perfsim.report.terminal import labelled, table_lines

WORD = st.text("abcdefgh", min_size=1, max_size=9)
TEXT = st.lists(WORD, max_size=14).map(" ".join)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys("xyz", TEXT)), min_size=1, max_size=5))
def test_no_word_is_lost_and_no_line_is_wider(rows: list[dict[str, str]]) -> None:
    first = [{"name": f"row{place}", **row} for place, row in enumerate(rows)]
    lines = list(table_lines(first, 60))
    assert max(map(len, lines)) <= 60
    found = re.findall(r"\w+", " ".join(lines))
    for row in first:
        for word in {word for text in row.values() for word in text.split()}:
            assert word in found


def test_what_fits_is_one_line_a_row() -> None:
    rows = [{"name": "a", "what": "one"}, {"name": "b", "what": "another"}]
    assert list(table_lines(rows, 15)) == ["name  what", "a     one", "b     another"]


def test_a_text_that_many_rows_share_stands_once() -> None:
    source = "a long table of a long report of many pages"
    rows = [{"name": "a", "source": source}, {"name": "b", "source": source}]
    assert list(table_lines(rows, 40)) == [
        "name  source",
        "a     [1]",
        "b     [1]",
        "source [1]: a long table of a long",
        "    report of many pages",
    ]


def test_a_text_is_folded_beside_where_it_has_room_and_else_stands_below() -> None:
    rows = [{"name": "a", "what": "one two three four five six seven"}, {"name": "b", "what": "-"}]
    assert list(table_lines(rows, 36)) == [
        "name  what",
        "a     one two three four five six",
        "      seven",
        "b     -",
    ]
    assert list(table_lines(rows, 30)) == [
        "name",
        "a",
        "    what: one two three four",
        "      five six seven",
        "b",
    ]


@pytest.mark.parametrize(
    "what",
    [
        *(f"list {kind}" for kind in ("models", "gpus", "networks", "methods", "measurements")),
        "list scenarios",
        "show model resnet50",
        "show gpu v100",
        "show net ib100",
        "show scenario what_if_dgc_1gbe",
    ],
)
def test_all_is_readable_at_80_columns(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(what.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines and max(map(len, lines)) <= 80


def test_a_long_label_keeps_a_gap_before_its_words() -> None:
    assert list(labelled("memory of a GPU", "5 GB", 80)) == ["memory of a GPU 5 GB"]
    assert list(labelled("fails in 31 of 48", "DGC over S-SGD", 80)) == [
        "fails in 31 of 48  DGC over S-SGD"
    ]
