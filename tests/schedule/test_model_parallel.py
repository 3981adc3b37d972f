"""Rounds of a divided model: how long its stages wait, by law and by hand."""

from __future__ import annotations

import pytest

from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.model_parallel import laid_out_pipeline
from support.what_ships import SHIPPED


@pytest.mark.parametrize(
    ("software", "schedule", "waits"),
    [("megatron", "1f1b", True), ("torch2", "1f1b", False), ("megatron", "interleaved", False)],
)
def test_a_stage_of_megatrons_plain_1f1b_waits_for_its_messages(
    software: str, schedule: str, waits: bool
) -> None:
    """Each of 32 micro-batches waits for an exchange, and the first through 7 stages more.

    Elsewhere they hide but on the way of the first micro-batch there and of the last one back.
    """
    fields = {"model": "gpt2-xl", "gpus": 8, "node": "dgx-h100", "pp": 8, "batch": 4}
    more = {"accumulate": 32, "software": software, "schedule": schedule}
    setup = resolve(make_scenario(fields | more), SHIPPED)
    assert setup.split is not None
    found = laid_out_pipeline(setup, setup.split)
    more_s = found.run.total_s - found.free.total_s
    assert (more_s > (32 + 7) * found.send_s) is waits
    assert waits or more_s < (2 * 7 + 7) * found.send_s
