"""Computation beside all-reduces: the loop and its decisions on a made-up clock, by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from perfsim.calibrate.measure import overlap as beside
from perfsim.calibrate.measure.overlap import OverlapMeasurement, SlowedComputation, _Job
from perfsim.errors import RequestError

CALL_S = 0.01
"""A call of the computation alone; half as much again beside a message."""


class Ranks:
    """Ranks that are all alike: time passes as calls and messages say."""

    ReduceOp = SimpleNamespace(MAX="max")

    def __init__(self, message_s: float) -> None:
        self.now = self.busy_until = 0.0
        self.message_s = message_s

    def call(self) -> None:
        """Compute once."""
        self.now += CALL_S * (1.5 if self.now < self.busy_until else 1.0)

    def barrier(self) -> None:
        """Meet: all are there."""

    def all_reduce(self, of: Any, op: str = "sum", async_op: bool = False) -> Any:
        """Begin a message, one behind the other, or send one and be done."""
        if not async_op:
            return None
        end = self.busy_until = max(self.now, self.busy_until) + self.message_s

        def wait() -> None:
            self.now = max(self.now, end)

        return SimpleNamespace(is_completed=lambda: self.now >= end, wait=wait)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], tuple[_Job, Ranks]]:
    """Return what makes a job whose messages take so long."""

    def made(message_s: float) -> tuple[_Job, Ranks]:
        ranks = Ranks(message_s)
        monkeypatch.setattr(beside, "time", SimpleNamespace(perf_counter=lambda: ranks.now))
        torch = SimpleNamespace(
            zeros=lambda count, device: [0.0] * 1,
            tensor=lambda values, device: SimpleNamespace(item=lambda: values[0]),
        )
        clock = SimpleNamespace(wait=lambda: None)
        place: Any = SimpleNamespace(torch=torch, device="cpu", gpu=False, clock=clock)
        return _Job(place, ranks), ranks

    return made


def test_messages_are_added_until_all_of_the_loop_has_one_beside_it(job: Any) -> None:
    # 0.2 s are 20 calls, which take 0.3 s beside messages of 0.025 s: 12 end as it does, 16 last.
    one, ranks = job(0.025)
    slowed = one.slowed("product", ranks.call)
    assert one.messages == 16
    assert slowed.alone_s == pytest.approx(0.2)
    assert slowed.beside_s == pytest.approx(0.3)
    assert slowed.factor == pytest.approx(1.5)


def test_long_messages_stay_as_few_as_they_are(job: Any) -> None:
    one, ranks = job(10.0)
    assert one.slowed("product", ranks.call).factor == pytest.approx(1.5)
    assert one.messages == 1


def test_messages_that_never_last_are_refused_in_the_end(job: Any) -> None:
    one, ranks = job(1e-6)
    with pytest.raises(RequestError, match="4096 all-reduces of 25 MiB end before product does"):
        one.slowed("product", ranks.call)


def test_the_report_says_what_to_write_in_a_scenario_and_never_below_one() -> None:
    found = OverlapMeasurement(
        "cpu",
        "gloo",
        2,
        (SlowedComputation("backward", 0.2, 0.25), SlowedComputation("add", 0.1, 0.3)),
    )
    lines = found.report().splitlines()
    assert lines[0] == "2 ranks, gloo, cpu: beside all-reduces of 25 MiB"
    assert lines[1].startswith("backward: 1.250 times as long (200 ms alone, 250 ms beside)")
    assert lines[-1] == "use: overlap_slowdown = 1.250 in a scenario file"
    told = found.to_dict()
    assert (told["ranks"], told["backend"], told["device"]) == (2, "gloo", "cpu")
    assert [one["slowdown"] for one in told["computations"]] == pytest.approx([1.25, 3.0])
    faster = OverlapMeasurement("cpu", "gloo", 2, (SlowedComputation("backward", 0.2, 0.19),))
    assert faster.report().endswith("overlap_slowdown = 1.000 in a scenario file")


@pytest.mark.parametrize("ranks", ["", "two"])
def test_what_no_launcher_told_is_asked_for(monkeypatch: pytest.MonkeyPatch, ranks: str) -> None:
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", ranks)
    with pytest.raises(RequestError, match="WORLD_SIZE: not set; start every rank with torchrun"):
        beside.measure_overlap("cpu")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(RequestError, match="needs 2 ranks or more"):
        beside.measure_overlap("cpu")
