"""The run over all kernels and sizes: budgets, sizes too large, and what goes on after a break."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from perfsim.calibrate.compute.clock import CpuClock
from perfsim.calibrate.kernels.bench import Bench, Size
from perfsim.calibrate.kernels.journal import Journal, Point, Stop
from perfsim.calibrate.kernels.place import Place
from perfsim.calibrate.kernels.timing import Rule, measure
from perfsim.units import format_seconds

__all__ = ["Tell", "run"]

Tell = Callable[[int, int, str], None]
"""Told how many of how many points are behind, and the last one in words."""

ENOUGH = 2
"""Calls of the expected length that must fit into what is left of a kernel's time."""


def run(
    benches: Sequence[Bench], place: Place, most: int, rule: Rule, journal: Journal, tell: Tell
) -> list[str]:
    """Measure what the journal does not have; return the kernels that the whole time cut short.

    A kernel that runs out of memory or time at a size, or is refused by its library, ends there
    (at that width), and the journal says why.

    Parameters
    ----------
    benches : what to measure
    place : the device
    most : fp32 values that an input may hold
    rule : when points, kernels and the run are done
    journal : takes every point
    tell : is told of progress
    """
    begun = time.perf_counter()
    total = sum(len(bench.sizes(most)) for bench in benches)
    behind, cut = 0, []
    for bench in benches:
        sizes = bench.sizes(most)
        ends = time.perf_counter() + rule.kernel_s
        for at, size in enumerate(sizes):
            of = bench.name, size.elements, size.width
            if not (journal.has(*of) or journal.stopped(*of)):
                now = time.perf_counter()
                if rule.budget_s is not None and now - begun >= rule.budget_s:
                    cut.append(bench.name)
                    break
                journal.add(_point(bench, place, size, rule, journal, ends - now, len(sizes) - at))
            behind += 1
            tell(behind, total, _words(bench, size, journal))
        place.empty()
    return cut


def _point(
    bench: Bench,
    place: Place,
    size: Size,
    rule: Rule,
    journal: Journal,
    left_s: float,
    sizes_left: int,
) -> Point | Stop:
    """Measure one size; memory, time or library that say no make a stop of it."""
    of = bench.name, size.elements, size.width
    expected_s = _expected_s(bench, size, journal)
    if ENOUGH * expected_s >= left_s:
        each = f", about {format_seconds(expected_s, 2)} a call" if expected_s else ""
        return Stop(*of, f"no time in {rule.kernel_s:g} s a kernel{each}", final=False)
    host = bench.only == "host"
    here, clock = (Place("cpu"), CpuClock()) if host else (place, place.clock)
    try:
        call = bench.make(here, size)
        seconds = measure(call, clock, rule, left_s / sizes_left, bench.loop)
    except (RuntimeError, MemoryError) as error:
        return Stop(*of, _why(error), final=True)
    finally:
        call = None  # type: ignore[assignment]
        place.empty()
    return Point(*of, tuple(seconds))


def _expected_s(bench: Bench, size: Size, journal: Journal) -> float:
    """Return what a call is expected to take, from the size before; 0 where there is none."""
    before = [
        point
        for point in journal.points
        if (point.kernel, point.width) == (bench.name, size.width)
        and point.elements < size.elements
    ]
    if not before:
        return 0.0
    last = max(before, key=lambda point: point.elements)
    return last.median_s * math.pow(size.elements / last.elements, bench.growth) * bench.loop


def _why(error: Exception) -> str:
    """Return in a few words why a kernel did not run."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    lack = isinstance(error, MemoryError) or "out of memory" in first or "allocate memory" in first
    return "out of memory" if lack else f"refused: {first[:160]}"


def _words(bench: Bench, size: Size, journal: Journal) -> str:
    words = f"{bench.name}, {' x '.join(map(str, size.shape))}"
    of = bench.name, size.elements, size.width
    for point in reversed(journal.points):
        if (point.kernel, point.elements, point.width) == of:
            return f"{words}: {format_seconds(point.median_s)}"
    return f"{words}: left out"
