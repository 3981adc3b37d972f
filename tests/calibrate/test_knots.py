"""Knots of curves: the fewest that stay near all points, and single points that are left out."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.knots import fit_curve, segments
from perfsim.network.measured import CollectiveCurve

SIZES = 2.0 ** np.arange(3, 28)
LINE = 3e-5 + 2e-10 * SIZES


def test_segments_find_the_knots_of_a_broken_line() -> None:
    knots = np.array([8.0, 1024.0, 65536.0, 2.0**27])
    heights = np.array([2e-5, 2.2e-5, 1e-4, 5e-2])
    times = np.exp(np.interp(np.log(SIZES), np.log(knots), np.log(heights)))
    found = segments(SIZES, times, 1e-6, 10)
    assert found.size_bytes == tuple(knots) and found.left_out == ()
    assert found.seconds == pytest.approx(tuple(heights))


def test_one_wild_point_is_named_and_left_out_a_step_is_kept() -> None:
    times = LINE
    wild = times.copy()
    wild[7] *= 4.0
    found = segments(SIZES, wild, 0.05, 10)
    ((size, seconds, far),) = found.left_out
    assert (size, seconds) == (SIZES[7], wild[7]) and far == pytest.approx(3.0, rel=0.01)
    assert SIZES[7] not in found.size_bytes
    step = np.where(SIZES >= 2**13, 4.0, 1.0) * times
    assert segments(SIZES, step, 0.05, 10).left_out == ()


@given(
    st.lists(st.floats(1e-6, 1e-2), min_size=3, max_size=9),
    st.floats(0.01, 0.5),
)
def test_no_choice_of_fewer_knots_stays_within_the_tolerance(
    times: list[float], tolerance: float
) -> None:
    sizes = 2.0 ** np.arange(len(times))
    found = segments(sizes, times, tolerance, len(times))
    assert found.worst <= tolerance * (1 + 1e-9)
    if found.left_out:
        return
    fewer = len(found.size_bytes) - 1
    if fewer >= 2:
        assert best_of(sizes, np.asarray(times), fewer) > tolerance * (1 - 1e-9)


def best_of(sizes: Any, times: Any, knots: int) -> float:
    """Return the smallest of the worst relative distances that so many knots can have."""
    x, y = np.log(sizes), np.log(times)
    inner = combinations(range(1, len(times) - 1), knots - 2)
    chains = ([0, *some, len(times) - 1] for some in inner)
    return float(min(np.expm1(np.max(np.abs(np.interp(x, x[k], y[k]) - y))) for k in chains))


@given(st.lists(st.floats(1e-6, 1e-2), min_size=3, max_size=9), st.integers(2, 5))
def test_with_too_few_knots_the_best_of_that_many_is_taken(times: list[float], most: int) -> None:
    sizes = 2.0 ** np.arange(len(times))
    found = segments(sizes, times, 1e-6, most)
    assert len(found.size_bytes) <= most
    if not found.left_out and found.worst > 1e-6:
        best = best_of(sizes, np.asarray(times), min(most, len(times)))
        assert found.worst == pytest.approx(best, rel=1e-9)


@given(st.lists(st.floats(0.98, 1.02), min_size=12, max_size=12), st.floats(1e-6, 1e-3))
def test_knots_are_near_their_points(noise: list[float], floor_s: float) -> None:
    """By law: 2 % of noise stays within the tolerance, and the spread says how near it is."""
    sizes = tuple(8.0 * 4**place for place in range(len(noise)))
    points = zip(sizes, noise, strict=True)
    seconds = tuple((floor_s + size * 1e-9) * factor for size, factor in points)
    curve = CollectiveCurve("all_reduce", 2, 2, 1, sizes, seconds, "measured", "drawn")
    fit = fit_curve(curve)
    off = [abs(fit.curve.at(size) / one - 1) for size, one in zip(sizes, seconds, strict=True)]
    assert sorted(off)[-1 - len(fit.left_out)] <= 0.05 + 1e-3
    assert fit.curve.spread is not None and fit.curve.spread <= 0.05 + 1e-3
    assert fit.curve.kind == "fitted"
    assert set(fit.curve.size_bytes) <= set(sizes)
