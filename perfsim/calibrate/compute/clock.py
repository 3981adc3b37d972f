"""Moments on a device: CUDA events on a GPU, the processor's clock on a CPU."""

from __future__ import annotations

import time
from typing import Any, Protocol

__all__ = ["Clock", "CpuClock", "CudaClock"]


class Clock(Protocol):
    """Marks moments without waiting for the device; reads them once all is done."""

    def mark(self) -> Any:
        """Return a mark of now, on the device's own time line."""
        ...

    def wait(self) -> None:
        """Wait until the device has done everything."""
        ...

    def between(self, first: Any, last: Any) -> float:
        """Return the time between two marks, after `wait` [s]."""
        ...


class CpuClock:
    """The processor's clock: work is done when the call returns."""

    def mark(self) -> float:
        """Return the clock's reading [s]."""
        return time.perf_counter()

    def wait(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def between(self, first: float, last: float) -> float:
        """Return the time between two marks [s]."""
        return last - first


class CudaClock:
    """CUDA events on the current stream; recording one takes microseconds of the host."""

    def __init__(self) -> None:
        import torch

        self._cuda = torch.cuda

    def mark(self) -> Any:
        """Record an event."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize()

    def between(self, first: Any, last: Any) -> float:
        """Return the time between two events [s]."""
        return float(first.elapsed_time(last)) / 1e3
