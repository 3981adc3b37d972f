"""A cold command costs little more than the imports it cannot do without."""

from __future__ import annotations

import sys
from pathlib import Path

import cold_start
import pytest


@pytest.mark.skipif(
    not Path(sys.executable).with_name("perfsim").exists(),
    reason="perfsim is not installed beside this Python",
)
def test_cold_cost() -> None:
    taken = cold_start.measure()
    found = cold_start.ratios(taken)
    assert found["predict"] <= cold_start.PREDICT_LIMIT
    assert found["help"] <= cold_start.HELP_LIMIT
    assert taken["perfsim predict"][1] < cold_start.MEMORY_LIMIT_BYTES
