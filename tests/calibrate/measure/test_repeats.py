"""How well a median is known: its interval, by closed form."""

from __future__ import annotations

import math
import random
from statistics import median

import pytest

from perfsim.calibrate.measure.repeats import MIN_REPEATS, half_width, mean_of, settled


def test_of_five_samples_the_interval_is_all_of_them() -> None:
    # P(all five on one side of the median) = 2 / 2^5 = 6.25 %: 93.75 % do, and four do not.
    assert half_width([1.0, 2.0, 3.0, 5.0, 9.0]) == pytest.approx((9.0 - 1.0) / 2 / 3.0)
    assert math.isinf(half_width([1.0] * (MIN_REPEATS - 1)))


@pytest.mark.parametrize("count", [5, 6, 8, 10, 20, 51, 200])
def test_the_interval_is_the_narrowest_that_holds_the_median_often_enough(count: int) -> None:
    """By closed form: places from the binomial law, counted here by summing it the other way."""
    samples = [float(place) for place in range(1, count + 1)]
    middle = median(samples)
    width = 2 * half_width(samples) * middle
    place = round((count - 1 - width) / 2)  # samples left out at either end

    def holds(left_out: int) -> float:
        inside = range(left_out + 1, count - left_out)
        return sum(math.comb(count, k) for k in inside) / 2**count

    assert holds(place) >= 0.90 > holds(place + 1)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    draw = random.Random(7)
    held = 0
    for _ in range(2000):
        samples = [draw.lognormvariate(0.0, 0.5) for _ in range(11)]
        ordered, width = sorted(samples), half_width(samples) * median(samples) * 2
        low = next(a for a, b in zip(ordered, ordered[::-1], strict=True) if b - a <= width + 1e-12)
        held += low <= 1.0 <= low + width
    # 11 samples: places 2 from either end hold it with 1 - 2 P(Bin(11, 1/2) <= 2) = 93.5 %.
    assert 0.915 < held / 2000 < 0.955


def test_a_point_is_settled_when_its_interval_is_tight() -> None:
    assert settled([1.0, 1.01, 0.99, 1.0, 1.0], 0.011)
    assert not settled([1.0, 1.01, 0.99, 1.0, 1.0], 0.009)


def test_a_mean_tells_what_a_sequence_of_calls_takes_and_a_single_stall_does_not_rule_it() -> None:
    draw = random.Random(3)
    # A tick of the scheduler delays 45 % of the calls: the median does not show it.
    calls = [2e-4 + (draw.uniform(0, 4e-3) if draw.random() < 0.45 else 0.0) for _ in range(2000)]
    assert mean_of(calls) == pytest.approx(sum(calls) / len(calls), rel=0.06)
    assert mean_of(calls) > 4 * median(calls)
    assert mean_of([1.0] * 19 + [100.0]) == 1.0
    assert mean_of([3.0]) == 3.0 and mean_of([1.0, 3.0, 60.0, 2.0]) == 2.25
