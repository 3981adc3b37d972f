"""One figure of the benchmarks: what was measured, beside what is asked of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Row", "cpu_s", "least_cpu_s"]


@dataclass(frozen=True)
class Row:
    """A figure; ``limit`` is the most it may be, or the least where ``least`` is set."""

    what: str
    measured: float
    unit: str
    limit: float | None = None
    least: bool = False
    note: str = ""

    @property
    def missed(self) -> bool:
        """Whether it is outside its limit."""
        if self.limit is None:
            return False
        return self.measured < self.limit if self.least else self.measured > self.limit

    def __str__(self) -> str:
        """Return the line to print."""
        asked = ""
        if self.limit is not None:
            asked = (
                f"{'>=' if self.least else '<='} {self.limit:,g}{' MISSED' if self.missed else ''}"
            )
        return (
            f"{self.what:58}{_short(self.measured):>10} {self.unit:8}{asked:18}{self.note}".rstrip()
        )


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def cpu_s(run: Callable[[], object]) -> float:
    """Return the CPU seconds of one run."""
    began = time.process_time()
    run()
    return time.process_time() - began


def least_cpu_s(run: Callable[[], object], times: int = 15) -> float:
    """Return the least CPU seconds of some runs: what else a machine does only adds to one."""
    run()
    return min(cpu_s(run) for _ in range(times))
