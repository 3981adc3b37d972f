"""The job's store: waiting for all ranks."""

from __future__ import annotations

from perfsim.calibrate.measure.torch_wire import wait_for_all
from support.fake_wire import Store, at_once


def test_waiting_for_all_ends_when_all_have_come_or_time_is_up() -> None:
    store = Store()
    assert at_once(*[lambda: wait_for_all(store, "x", 3)] * 3) == [True] * 3
    assert not wait_for_all(store, "y", 2, patience_s=0.05)
