"""Measured curves: what they refuse, how they are read between points, and how repeats merge."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import DataError
from perfsim.network.measured import CollectiveCurve, merge

SIZES = (1024.0, 4096.0, 65536.0)
CURVE = CollectiveCurve("all_reduce", 8, 2, 4, SIZES, (1e-5, 2e-5, 1e-4), "measured", "a test")

points = st.lists(
    st.tuples(st.integers(1, 2**40), st.floats(1e-6, 1e2, allow_nan=False, allow_infinity=False)),
    min_size=1,
    max_size=12,
    unique_by=lambda point: point[0],
).map(sorted)


def curve(found: list[tuple[int, float]]) -> CollectiveCurve:
    sizes, times = zip(*found, strict=True)
    return replace(CURVE, size_bytes=tuple(map(float, sizes)), seconds=tuple(times))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"collective": "allreduce"}, "collective is 'allreduce'; allowed: all_reduce"),
        ({"kind": "derived"}, "kind is 'derived'; allowed: measured, published"),
        ({"library": "xccl"}, "library is 'xccl'; allowed: gloo, mpi, nccl, rccl"),
        ({"source": " "}, "no source"),
        ({"ranks": 9}, "9 ranks on 2 nodes of 4 GPUs cannot be"),
        ({"ranks": 1}, "1 ranks on 2 nodes of 4 GPUs cannot be"),
        ({"size_bytes": (1.0, 1.0, 2.0)}, "sizes must rise"),
        ({"size_bytes": (1.0, 2.0)}, "2 sizes and 3 times"),
        ({"size_bytes": (), "seconds": ()}, "0 sizes and 0 times"),
        ({"seconds": (1e-5, math.nan, 1e-4)}, "nan s at 4096 B is not allowed: it must be 1e-15 s"),
        ({"seconds": (1e-5, 0.0, 1e-4)}, "0.0 s at 4096 B is not allowed: it must be 1e-15 s"),
        ({"spread": -0.1}, "spread -0.1"),
    ],
)
def test_what_no_measurement_can_be_is_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(DataError) as error:
        replace(CURVE, **change)
    assert sentence in str(error.value)


def test_between_two_points_time_is_a_line_in_size_and_between_knots_in_logarithms() -> None:
    """By hand: 1024 of 3072 bytes on, and 12288 of 61440; in logs both sizes are half way."""
    knots = replace(CURVE, kind="fitted")
    assert CURVE.at(2048) == pytest.approx(1e-5 + 1e-5 / 3)
    assert CURVE.at(4096 * 4) == pytest.approx(2e-5 + 8e-5 / 5)
    for one in (knots.at, CURVE.log_at):
        assert one(2048) == pytest.approx(math.sqrt(1e-5 * 2e-5))
        assert one(4096 * 4) == pytest.approx(math.sqrt(2e-5 * 1e-4))


def test_outside_its_range_a_curve_says_nothing() -> None:
    assert CURVE.inside(1024) and CURVE.inside(65536)
    assert not CURVE.inside(1023) and not CURVE.inside(65537)
    with pytest.raises(ValueError, match="outside 1024 to 65536 B"):
        CURVE.at(1023)


@given(points)
def test_a_point_is_read_as_it_was_measured(found: list[tuple[int, float]]) -> None:
    for size, seconds in found:
        assert curve(found).at(size) == seconds


@given(points, st.floats(0, 1))
def test_between_points_a_time_lies_between_theirs(
    found: list[tuple[int, float]], share: float
) -> None:
    one = curve(found)
    for (small, before), (large, after) in pairwise(found):
        seconds = one.at(min(max(small + share * (large - small), small), large))
        slack = 1 + 1e-9
        assert min(before, after) / slack <= seconds <= max(before, after) * slack


def test_falls_by_more_than_a_tenth_are_named() -> None:
    times = (5e-5, 4.6e-5, 4.4e-5, 9e-5, 8.9e-5)
    one = replace(CURVE, size_bytes=(1.0, 2.0, 4.0, 8.0, 16.0), seconds=times)
    assert one.falls() == [(1.0, 4.0, pytest.approx(0.12))]
    assert one.falls(0.005) == [(1.0, 4.0, pytest.approx(0.12)), (8.0, 16.0, pytest.approx(1 / 90))]
    assert CURVE.falls() == []


def test_repeats_become_their_median_and_show_their_spread() -> None:
    times = {"one": (1.0, 2.0, 3.0), "two": (1.2, 2.0, 3.0), "three": (1.1, 2.4, 3.0)}
    runs = [replace(CURVE, seconds=told, source=source) for source, told in times.items()]
    (both,) = merge(runs)
    assert both.seconds == (1.1, 2.0, 3.0)
    assert both.spread == pytest.approx(0.1 / 1.1)  # the median of 0.1 / 1.1, 0.2 / 2 and 0
    assert both.widest == (CURVE.size_bytes[1], pytest.approx(0.2 / 2.0))
    assert merge([both, runs[0]])[0].widest == both.widest
    assert both.source == "one; two; three"


def test_curves_of_other_clusters_stay_apart_and_a_known_spread_stays() -> None:
    other = replace(CURVE, series="other")
    known = replace(CURVE, spread=0.2)
    assert merge([CURVE, other]) == [CURVE, other]
    (both,) = merge([known, CURVE])
    assert both.spread == 0.2 and both.kind == "measured"
    (published,) = merge([CURVE, replace(CURVE, kind="published")])
    assert published.kind == "published"


def test_of_many_repeats_the_extremes_do_not_speak() -> None:
    times = [1.0 + 0.01 * place for place in range(20)] + [100.0]
    (one,) = merge(replace(CURVE, size_bytes=(8.0,), seconds=(time,)) for time in times)
    # 21 values: the 5 % and 95 % places are the 2nd and the 20th, 1.01 and 1.19.
    assert one.spread == pytest.approx((1.19 - 1.01) / 2 / 1.10)


@given(points, st.integers(2, 4))
def test_a_repeat_of_itself_changes_nothing_but_the_spread(
    found: list[tuple[int, float]], times: int
) -> None:
    one = curve(found)
    (both,) = merge([one] * times)
    assert both == replace(one, spread=0.0)


def test_reading_a_curve_needs_no_numpy() -> None:
    code = "import sys, perfsim.network.measured; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
