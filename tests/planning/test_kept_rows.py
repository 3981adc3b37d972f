"""Rows that are kept as columns come back as they were added, and take little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.planning.kept_rows import KeptRows

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text()
)
PARTS = st.lists(st.lists(st.tuples(VALUES, VALUES, st.just("")), max_size=5), max_size=8)


@given(PARTS)
def test_rows_come_back_with_their_values_and_types(parts: list[list[tuple[Any, ...]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfsim.planning.kept_rows._BLOCK_ROWS", 3)
        kept = KeptRows()
        for part in parts:
            kept += part
    want = [row for part in parts for row in part]
    assert kept == want and len(kept) == len(want)
    assert repr(list(kept)) == repr(want)  # 1, 1.0 and True are equal, and are not the same
    assert repr([kept[place] for place in range(len(want))]) == repr(want)
    assert repr(kept[1:-1]) == repr(want[1:-1])
    assert kept != [*want, (0, 0, "")]
    with pytest.raises(IndexError):
        kept[len(want)]


def test_a_zero_keeps_its_sign_and_a_bool_stays_one() -> None:
    kept = KeptRows()
    kept.extend([(-0.0, True, 1)] * 5000)
    kept.extend([(0.0, 1, True)] * 5000)
    assert repr(kept[0]) == "(-0.0, True, 1)" and repr(kept[-1]) == "(0.0, 1, True)"


def test_numbers_take_eight_bytes_each() -> None:
    tracemalloc.start()
    kept = KeptRows()
    for start in range(0, 200_000, 5000):
        kept.extend((float(row), row / 3, row, "") for row in range(start, start + 5000))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 200_000 * 3 * 8 * 1.2
