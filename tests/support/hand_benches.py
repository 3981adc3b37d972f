"""Benches of kernels whose time the test says, on a clock that only calls move on."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfsim.calibrate.measure.journals import KernelJournal
from perfsim.calibrate.measure.kernel_benches import Bench, Size, vector_sizes

__all__ = ["SETTING", "HandClock", "HandPlace", "bench", "journal"]

SETTING = {"device": "a card", "software": "some version"}


class HandClock:
    """A clock that only calls move on."""

    def __init__(self) -> None:
        self.now_s, self.waits = 0.0, 0

    def mark(self) -> float:
        """Return the hand's place."""
        return self.now_s

    def wait(self) -> None:
        """Count."""
        self.waits += 1

    def between(self, first: float, last: float) -> float:
        """Return the time between two marks."""
        return last - first

    def call(self, *seconds: float) -> Callable[[], None]:
        """Return a call that takes these times in turn, the last one for ever."""
        left = list(seconds)

        def run_once() -> None:
            self.now_s += left.pop(0) if len(left) > 1 else left[0]

        return run_once


class HandPlace:
    """A place without PyTorch, whose benches take what the test says."""

    device, gpu = "cpu", False

    def __init__(self) -> None:
        self.clock = HandClock()

    def free_memory(self) -> None:
        """Have nothing to give back."""


def journal(tmp_path: Path) -> KernelJournal:
    """Return the journal of a card in a folder."""
    return KernelJournal(tmp_path / "card.kernels.jsonl", SETTING)


def bench(name: str, seconds: Callable[[Size], float], **more: Any) -> Bench:
    """Return a bench on a clock by hand; a call that "takes" infinity is out of memory."""

    def make(place: Any, size: Size) -> Callable[[], None]:
        if math.isinf(seconds(size)):
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        call: Callable[[], None] = place.clock.call(seconds(size))
        return call

    return Bench(name, "by hand", vector_sizes, make, **more)
