"""A cold command of the installed wheel costs little more than its imports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from scripts import cold_start
from scripts.cold_start import LIBRARIES, Cost, Round

NAMES = ("import typer", "perfsim --help", LIBRARIES, "perfsim predict")


def test_cold_cost(installed: Path) -> None:
    limit = cold_start.ONE_THREAD_LIMIT
    taken = cold_start.settled(cold_start.rounds(installed, NAMES, one_thread=True), limit)
    if taken is None:
        pytest.skip("the machine is too busy to tell CPU times")
    found = cold_start.ratios(taken)
    assert found["predict"] <= limit
    assert found["help"] <= cold_start.HELP_LIMIT
    assert taken["perfsim predict"].memory_bytes < cold_start.MEMORY_LIMIT_BYTES


def made_up(predict: float, help_: float, seed: int, waits: float = 1.0) -> Iterator[Round]:
    """Yield rounds of commands with these ratios; the machine stretches each run by itself."""
    draw, true_s = Random(seed), (0.1, 0.1 * help_, 0.3, 0.3 * predict)
    while True:
        cpu_s = [one_s * (1 + draw.expovariate(4)) for one_s in true_s]
        yield {name: Cost(s, 5e7, s * waits) for name, s in zip(NAMES, cpu_s, strict=True)}


@pytest.mark.parametrize("seed", range(5))
def test_noise_hides_no_slow_command_and_blames_no_fast_one(seed: int) -> None:
    low, high = 0.9 * cold_start.PREDICT_LIMIT, 1.2 * cold_start.PREDICT_LIMIT
    for predict, help_, fine in ((low, 1.5, True), (high, 1.5, False), (low, 2.0, False)):
        taken = cold_start.settled(made_up(predict, help_, seed))
        assert taken is not None and cold_start.within(taken) == fine


def test_a_busy_machine_is_not_asked() -> None:
    assert cold_start.settled(made_up(2.0, 1.5, 0, waits=2.0)) is None
