"""Calibrate two emulated hosts, predict training on them and train for real: the short form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.end_to_end.compare import measure, ranking, table
from support.emulated.emulated import Bench
from support.emulated.hosts import Hosts
from support.emulated.trainings import SHORT

pytest.importorskip("torch", reason="needs PyTorch (pip install 'perfsim[calibrate]')")

pytestmark = [pytest.mark.root, pytest.mark.torch, pytest.mark.slow]

WITHIN = 0.15
"""Error allowed, over the measured iteration; `compare.txt` holds the full comparison's errors."""


def test_predictions_hold_on_two_hosts(cluster: Callable[..., Hosts], tmp_path: Path) -> None:
    # One retry: what else runs on the machine stretches real messages.
    for attempt in ("one", "two"):
        rows = list(measure(Bench(tmp_path / attempt, 5.0, 2), SHORT))
        right, pairs = ranking(rows)
        if right == pairs and all(abs(row["error"]) < WITHIN for row in rows):
            return
    pytest.fail(table(rows))
