"""Rules that tell a steady network from one that changed, flapped or had a slow host."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.measure.journals import NetworkPoint
from perfsim.calibrate.measure.stability import (
    DRIFT_LEVEL,
    MIN_STALLS,
    POOR_RESIDUAL,
    SMALLEST_CHANGE,
    Change,
    allowed_factor,
    change_of,
    change_point,
    drifts,
    poor_fit,
    slow_hosts,
    smallest_difference_s,
    unsteadiness,
)
from perfsim.calibrate.network_fit import fit_network
from perfsim.calibrate.write_network import inside_link
from perfsim.data.catalog import Catalog
from perfsim.network.measured import read_curves
from perfsim.network.network_file import CURVES_SUFFIX, read_network
from support.paths import ROOT
from support.sweep_points import point

STEADY_MS = (
    *((22.007, 21.994, 21.996, 21.992, 22.012, 21.994), (22.0, 21.996, 21.952, 21.995, 21.985)),
    *((22.021, 21.992, 21.988, 21.991, 22.008, 21.992), (21.541, 21.56, 21.558, 21.523, 21.517)),
    (10.948, 11.031, 11.021, 11.016, 11.012, 11.013, 11.002, 11.025, 11.01),
    (22.018, 21.985, 22.033, 21.993, 22.008, 22.015, 21.988),
    *((33.106, 33.305, 33.031, 33.19, 33.175), (21.982, 22.022, 21.974, 21.998, 21.99, 22.005)),
    (26.841, 26.826, 26.782, 27.204, 27.246, 26.88, 26.839, 27.025, 26.905, 26.913, 26.917),
    (26.958, 27.105, 27.323, 27.184, 27.492, 27.448, 27.546, 27.086, 27.204, 27.238, 27.38),
)
"""Medians of looks at steady emulated networks (`calibration_faults.py`, no fault: 200 Mbit/s, 4
hosts, three collectives, a far link of 1 ms), on 2026-11-27, load average 4 to 8 on 2 cores."""
FALLING_MS = (23.172, 23.155, 24.456, 24.463, 24.44, 25.87, 27.497, 27.49)
"""The same as a link went from 200 to 190, 180, 170 and 160 Mbit/s."""
FELL_MS = (21.993, 21.996, 26.665, 26.661, 26.696, 26.657, 26.686)
"""The same as it went from 200 to 165 Mbit/s after 7 of 13 sizes."""

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


def looks(
    medians_ms: Sequence[float], waited_s: float = 0.0, size: int = 2**19
) -> list[NetworkPoint]:
    made = [point(size, *[one / 1e3] * 5) for one in medians_ms]
    return [replace(one, waited_s=waited_s) for one in made]


def drifts_of(medians_ms: Sequence[float], tolerance: float = 0.02, least_s: float = 5e-4) -> str:
    return "".join(one.text for one in drifts(looks(medians_ms), tolerance, least_s))


@pytest.mark.parametrize("steady", STEADY_MS)
def test_a_steady_network_does_not_drift(steady: tuple[float, ...]) -> None:
    assert drifts_of(steady) == drifts_of(steady, 1e-6, 0.0) == ""
    assert change_point(steady).chance > DRIFT_LEVEL


def test_a_rate_that_falls_by_less_than_a_change_is_said() -> None:
    assert change_between([FALLING_MS[0]] * 9, [FALLING_MS[-1]] * 9) is None
    assert drifts_of(FALLING_MS) == (
        "all_reduce on 2 ranks (2 x 1) at 524.3 kB took 22.8 ms at first and 27.44 ms at last,"
        " steadily over 8 looks (+20.4%); looks alone scatter by less."
    )
    assert drifts_of(FELL_MS) == (
        "all_reduce on 2 ranks (2 x 1) at 524.3 kB took 21.99 ms in the first 2 of 7 looks and"
        " 26.67 ms in the others (+21.3%); looks alone scatter by less."
    )
    assert "(-17.5%)" in drifts_of(FELL_MS[::-1])
    (noticed,) = drifts(looks(FELL_MS), 0.02, 5e-4)
    assert noticed.what == "drift"


def test_what_is_no_drift_of_the_network_is_not_said() -> None:
    assert drifts_of(FELL_MS, tolerance=0.22) == "" != drifts_of(FELL_MS, tolerance=0.21)
    assert drifts_of(FELL_MS, least_s=4.7e-3) == "" != drifts_of(FELL_MS, least_s=4.6e-3)
    assert drifts_of([22.0, 22.01, 26.6]) == drifts_of([]) == ""
    assert drifts_of([22.0, 22.1, 30.0, 22.0, 22.1, 22.0]) == ""  # one look was disturbed
    assert drifts(looks(FELL_MS, waited_s=0.1), 0.02, 5e-4) == []
    assert len(drifts(looks(FELL_MS, waited_s=0.001), 0.02, 5e-4)) == 1


def test_messages_share_the_level() -> None:
    # Rare enough by itself, too common where five messages are looked at.
    unclear = (22.0, 22.5, 22.1, 23.6, 23.7, 24.1, 23.4)
    assert 0.2 * DRIFT_LEVEL < change_point(unclear).chance < DRIFT_LEVEL
    steady = [one for power in range(4) for one in looks(STEADY_MS[0], size=2**power)]
    assert len(drifts(looks(unclear), 0.02, 5e-4)) == 1
    assert drifts([*steady, *looks(unclear)], 0.02, 5e-4) == []


def normal(draw: random.Random) -> float:
    return math.exp(draw.gauss(0.0, 0.01))


def skewed(draw: random.Random) -> float:
    return 1.0 + draw.expovariate(50.0)


def measured_again(draw: random.Random) -> float:
    steady = draw.choice(STEADY_MS[-1])
    return steady * math.exp(draw.gauss(0.0, 1e-4))


@pytest.mark.parametrize("count", [4, 6, 9, 13, 19])
@pytest.mark.parametrize(("law", "most"), [(normal, 1.0), (skewed, 2.0), (measured_again, 2.0)])
def test_false_alarms_are_as_rare_as_is_said(
    count: int, law: Callable[[random.Random], float], most: float
) -> None:
    # `most` times the level: exactly the level where looks scatter normally.
    draw, sweeps = random.Random(count), 1000
    alarms = sum(
        change_point([law(draw) for _ in range(count)]).chance <= DRIFT_LEVEL for _ in range(sweeps)
    )
    chance = 3.0 * math.sqrt(DRIFT_LEVEL * most / sweeps)
    assert alarms / sweeps <= DRIFT_LEVEL * most + chance


@given(st.lists(st.floats(1e-6, 1e3), min_size=4, max_size=20), st.floats(1e-3, 1e3))
def test_a_change_point_is_one_in_any_unit_and_both_ways(values: list[float], unit: float) -> None:
    found, back = change_point(values), change_point(values[::-1])
    scaled = change_point([one * unit for one in values])
    assert 0.0 <= found.chance <= 1.0 and found.split <= len(values) - 2
    assert scaled.chance == pytest.approx(found.chance, rel=1e-3, abs=1e-9)
    assert back.chance == pytest.approx(found.chance, rel=1e-3, abs=1e-9)


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


def test_no_rate_fitted_to_a_network_that_ships_is_near_a_poor_one() -> None:
    # The numbers that `POOR_RESIDUAL` names as its reason.
    residuals, inside = {}, inside_link(Catalog())
    for path in sorted((ROOT / "profiles/networks").glob(f"*{CURVES_SUFFIX}")):
        name = path.name.removesuffix(CURVES_SUFFIX)
        nics = read_network(path.with_name(f"{name}.toml")).nics_per_node
        fit = fit_network(read_curves(path), nics, inside)
        for where, link in fit.links.items():
            residuals[name, where] = link.rate_fit.p90
    assert len(residuals) == 43 and len({name for name, _ in residuals}) == 41
    assert sum(residual < 0.15 for residual in residuals.values()) == 42
    assert max(residuals, key=lambda key: residuals[key])[0] == "cscs-gh200-slingshot-tcp"
    assert max(residuals.values()) == pytest.approx(0.27, abs=0.005)
    assert 1.8 * max(residuals.values()) < POOR_RESIDUAL
