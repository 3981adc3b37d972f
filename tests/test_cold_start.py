"""A cold command of the installed wheel costs little more than its imports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import cold_start
import pytest
from cold_start import Round

NAMES = ("import typer", "perfsim --help", "import numpy, pydantic, typer", "perfsim predict")


def test_cold_cost(installed: Path) -> None:
    # A machine shared with others only ever adds: the least of rounds, until they are within.
    taken = cold_start.settled(cold_start.rounds(installed, NAMES))
    found = cold_start.ratios(taken)
    assert found["predict"] <= cold_start.PREDICT_LIMIT
    assert found["help"] <= cold_start.HELP_LIMIT
    assert taken["perfsim predict"][1] < cold_start.MEMORY_LIMIT_BYTES


def busy(predict: float, help_: float, seed: int) -> Iterator[Round]:
    """Yield rounds of commands with these ratios; the machine stretches each run by itself."""
    draw, true_s = (
        Random(seed),
        dict(zip(NAMES, (0.1, 0.1 * help_, 0.3, 0.3 * predict), strict=True)),
    )
    while True:
        yield {name: (cpu_s * (1 + draw.expovariate(4)), 5e7) for name, cpu_s in true_s.items()}


@pytest.mark.parametrize("seed", range(5))
def test_a_busy_machine_hides_no_slow_command_and_blames_no_fast_one(seed: int) -> None:
    assert cold_start.within(cold_start.settled(busy(1.2, 1.5, seed)))
    assert not cold_start.within(cold_start.settled(busy(1.7, 1.5, seed)))
    assert not cold_start.within(cold_start.settled(busy(1.2, 2.2, seed)))
