"""A cold command of the installed wheel costs little more than its imports."""

from __future__ import annotations

from pathlib import Path

import cold_start


def test_cold_cost(installed: Path) -> None:
    # A machine shared with others may slow one command more than another: the best of three.
    for attempt in range(3):
        taken = cold_start.measure(installed)
        found = cold_start.ratios(taken)
        within = found["predict"] <= cold_start.PREDICT_LIMIT
        if (within and found["help"] <= cold_start.HELP_LIMIT) or attempt == 2:
            break
    assert found["predict"] <= cold_start.PREDICT_LIMIT
    assert found["help"] <= cold_start.HELP_LIMIT
    assert taken["perfsim predict"][1] < cold_start.MEMORY_LIMIT_BYTES
