"""Rules that tell a steady network from one that changed, flapped or had a slow host."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.measure.stability import (
    MIN_STALLS,
    SMALLEST_CHANGE,
    Change,
    allowed_factor,
    change_of,
    poor_fit,
    slow_hosts,
    smallest_difference_s,
    unsteadiness,
)
from support.sweep_points import point

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40)


def noisy(middle_s: float, seed: int, count: int = 20, share: float = 0.03) -> list[float]:
    draw = random.Random(seed)
    return [middle_s * (1 + draw.uniform(-share, share)) for _ in range(count)]


def change_between(
    before: list[float], now: list[float], least_s: float = 0.0, waited_s: float = 0.0
) -> Change | None:
    later = replace(point(2**20, *now), waited_s=waited_s)
    return change_of(point(2**20, *before), later, least_s)


@pytest.mark.parametrize("factor", [1.4, 2.0, 10.0])
def test_a_changed_rate_is_noticed_up_and_down(factor: float) -> None:
    before, now = noisy(1e-2, 1), noisy(1e-2 * factor, 2)
    for first, second in ((before, now), (now, before)):
        change = change_between(first, second)
        assert change is not None and change.factor == pytest.approx(factor, rel=0.05)
        assert change.least_s < change.before_s < change.most_s


@given(st.integers(0, 10_000))
def test_repeats_of_one_network_are_no_change(seed: int) -> None:
    assert change_between(noisy(1e-2, seed), noisy(1e-2, seed + 1)) is None


@given(TIMES)
def test_nothing_changes_against_itself(seconds: list[float]) -> None:
    assert change_between(seconds, seconds) is None
    assert allowed_factor(seconds, seconds) >= 1 + SMALLEST_CHANGE


@given(TIMES, TIMES)
def test_a_change_is_one_in_both_directions(before: list[float], now: list[float]) -> None:
    there, back = change_between(before, now), change_between(now, before)
    assert (there is None) == (back is None)


def test_disturbed_calls_are_no_other_rate() -> None:
    # Six of ten calls wait a tick of the scheduler: the median moves, the quickest do not.
    calm, disturbed = [2e-4] * 10, [2e-4] * 4 + [4e-3] * 6
    assert change_between(calm, disturbed) is None


def test_differences_of_less_than_a_wait_for_a_core_tell_nothing() -> None:
    assert change_between([1.2e-4] * 9, [3.2e-4] * 9, smallest_difference_s("cpu")) is None
    assert (
        change_between([1.2e-4] * 9, [3.2e-4] * 9, smallest_difference_s("NVIDIA H200")) is not None
    )
    assert slow_hosts(ring({"h1": 1.3e-3}, 4), 1024, "at first", 5e-4) == []


def test_a_single_call_tells_only_a_large_change() -> None:
    assert change_between([1.0], [1.4]) is None
    assert change_between([1.0], [1.6]) is not None


def test_stalls_are_counted_and_the_longest_named() -> None:
    fine = [point(1024 * 2**step, *[1e-3] * 20) for step in range(4)]
    assert unsteadiness(fine) == []
    stalled = point(2**20, *[1e-2] * 17, *[0.21] * (MIN_STALLS - 1), 0.41)
    (noticed,) = unsteadiness([*fine, stalled])
    assert noticed.what == "stalls"
    assert noticed.text.startswith(
        "3 of 100 calls took over 100 ms longer than their median, up to 400 ms (all_reduce on 2"
        " ranks (2 x 1) at 1.049 MB)"
    )
    few = point(2**20, *[1e-2] * 18, *[0.21] * (MIN_STALLS - 1))
    assert unsteadiness([*fine, few]) == []


def test_a_busy_host_is_no_fault_of_the_network() -> None:
    before, now = [1e-2] * 10, [2e-2] * 10
    assert change_between(before, now, waited_s=0.09) is None
    assert change_between(before, now, waited_s=0.01) is not None
    stalled = point(2**20, *[1e-2] * 17, *[0.21] * 3)
    assert unsteadiness([replace(stalled, waited_s=0.4)]) == []
    assert len(unsteadiness([replace(stalled, waited_s=0.1)])) == 1
    two = [point(2**size, *[1e-2] * 6, *[5e-2] * 6) for size in (20, 21)]
    assert len(unsteadiness(two)) == 1
    assert unsteadiness([replace(one, waited_s=0.2) for one in two]) == []


def test_long_calls_stall_only_by_half_their_time() -> None:
    assert unsteadiness([point(2**28, 1.0, 1.0, 1.0, 1.2, 1.3, 1.4)]) == []


def test_times_of_two_kinds_are_noticed_of_long_messages_alone() -> None:
    two = [1e-2] * 6 + [5e-2] * 6
    (noticed,) = unsteadiness([point(2**20, *two), point(2**21, *two), point(2**22, *[0.1] * 12)])
    assert noticed.what == "unsteady"
    assert "of 2 of 3 long messages" in noticed.text and "10 ms to 50 ms" in noticed.text
    short = [time_s / 100 for time_s in two]
    assert unsteadiness([point(2**10, *short), point(2**11, *short)]) == []
    assert unsteadiness([point(2**20, *two)]) == []  # one point may be the machine's own


def ring(times: dict[str, float], count: int) -> dict[tuple[str, str], float]:
    names = [f"h{at}" for at in range(count)]
    pairs = zip(names, [*names[1:], names[0]], strict=True)
    return {pair: max(times.get(pair[0], 1e-3), times.get(pair[1], 1e-3)) for pair in pairs}


@pytest.mark.parametrize("count", [3, 4, 5, 8])
@pytest.mark.parametrize("slow", [0, 1, 2])
def test_the_slow_host_is_named_and_no_other(count: int, slow: int) -> None:
    found = slow_hosts(ring({f"h{slow}": 1e-2}, count), 2**18, "at first")
    assert [one.text.split(" is slow")[0] for one in found] == [f"h{slow}"]
    assert slow_hosts(ring({}, count), 2**18, "at first") == []


def test_a_slow_pair_of_good_hosts_is_a_link() -> None:
    times = ring({}, 5)
    times["h1", "h2"] = 1e-2
    (found,) = slow_hosts(times, 2**18, "at last")
    assert found.text.startswith("between h1 and h2 262.1 kB there and back take 10 ms, 1 ms")


def test_two_hosts_cannot_tell_which_is_slow() -> None:
    assert slow_hosts({("h0", "h1"): 9.0}, 1024, "at first") == []


@pytest.mark.parametrize(
    ("residual", "stated", "poor"),
    [(0.2, 0.001, False), (0.6, 0.3, False), (0.6, 0.01, True), (9.0, 0.5, True)],
)
def test_a_fit_is_poor_only_far_above_what_repeats_say(
    residual: float, stated: float, poor: bool
) -> None:
    words = poor_fit(residual, stated, [2.0**20, 2.0**21], [0.1, residual])
    assert bool(words) == poor
    if poor:
        assert "worst at 2.097 MB" in words and f"stated error {stated:.1%}" in words
