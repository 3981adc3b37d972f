"""profiles/build/masked_attention.py: what attention with a mask takes, by measured times."""

from __future__ import annotations

import pytest

from masked_attention import Row, cycles, fitted, rows
from perfsim.compute.attention import MASKED, multiprocessor_cycles
from perfsim.compute.device import load_device
from perfsim.data.catalog import Catalog

RATE = multiprocessor_cycles(load_device("a100", Catalog()))


def test_a_backward_pass_is_what_both_take_less_the_forward_pass() -> None:
    """Heads of 128: 1e9 scores in so many cycles of all multiprocessors."""
    row = Row("a100", "forward", 1e9, 128, 2e9 / RATE, "one")
    both = row._replace(passes="both", time_s=7e9 / RATE)
    assert cycles([row, both], "forward") == pytest.approx({"one": 2.0})
    assert cycles([row, both], "backward") == pytest.approx({"one": 5.0})


def test_sources_are_weighed_alike_whatever_their_rows() -> None:
    """1 cycle and 4: 2 in the mean, 4 x 128 operations of a score in 2 cycles."""
    one = Row("a100", "forward", 1e9, 128, 1e9 / RATE, "one")
    other = one._replace(time_s=4e9 / RATE, source="other")
    found = cycles([one, one, one, other], "forward")
    assert fitted(found, "forward") == pytest.approx(256.0)


def test_narrow_heads_are_brought_to_128_by_the_law_of_the_rate() -> None:
    row = Row("a100", "forward", 1e9, 32, 1e9 / RATE, "one")
    assert cycles([row], "forward")["one"] == pytest.approx(4.0 ** (1.0 - MASKED.narrow))


@pytest.mark.parametrize(
    ("passes", "stated"), [("forward", MASKED.forward), ("backward", MASKED.backward)]
)
def test_the_rate_is_what_the_table_makes(passes: str, stated: float) -> None:
    assert fitted(cycles(rows(), passes), passes) == pytest.approx(stated, rel=0.005)


def test_no_source_left_out_is_off_by_more_than_the_rate_says() -> None:
    found = cycles(rows(), "forward")
    for source, mine in found.items():
        others = {one: value for one, value in found.items() if one != source}
        off = fitted({source: mine}, "forward") / fitted(others, "forward") - 1.0
        assert abs(off) < 0.32
