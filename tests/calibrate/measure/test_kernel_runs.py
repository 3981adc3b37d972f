"""``perfsim calibrate kernels``: repeats of a call and runs of benches, on a clock by hand."""

from __future__ import annotations

import math
from pathlib import Path

from perfsim.calibrate.measure.journals import KernelStop
from perfsim.calibrate.measure.kernel_runs import TimingRule, run_benches, time_call
from support.hand_benches import HandClock, HandPlace, bench, journal


def quiet(done: int, total: int, words: str) -> None:
    pass


# Timing


def test_warm_up_calls_do_not_count() -> None:
    clock = HandClock()
    call = clock.call(9.0, 3.0, 2.0, 1.0)
    assert time_call(call, clock, TimingRule(), 60.0) == [1.0] * 5  # 5 equal repeats are settled


def test_a_loop_counts_as_so_many_calls_and_waits_once_a_repeat() -> None:
    clock = HandClock()
    seconds = time_call(clock.call(1.0), clock, TimingRule(), 60.0, loop=10)
    assert seconds == [1.0] * 5
    assert clock.waits == 2 * (3 + 5)


def test_repeats_end_at_the_most_where_they_do_not_settle() -> None:
    clock = HandClock()
    times = [1.0, 2.0] * 200
    assert len(time_call(clock.call(*times), clock, TimingRule(most=30), 60.0)) == 30


def test_a_call_longer_than_its_time_is_the_only_sample() -> None:
    clock = HandClock()
    assert time_call(clock.call(30.0, 20.0, 10.0, 7.0), clock, TimingRule(), 5.0)[-1] == 7.0
    assert len(time_call(clock.call(7.0), clock, TimingRule(), 5.0)) == 1


# The run


def test_a_kernel_stops_at_the_size_that_does_not_fit_and_others_go_on(tmp_path: Path) -> None:
    of = journal(tmp_path)
    large = bench("large", lambda size: math.inf if size.elements > 5000 else 1e-3)
    small = bench("small", lambda size: 1e-3)
    assert run_benches([large, small], HandPlace(), 300_000, TimingRule(), of, quiet) == []  # type: ignore[arg-type]
    assert [point.elements for point in of.points if point.kernel == "large"] == [1024, 4096]
    assert [point.elements for point in of.points if point.kernel == "small"][-1] == 262144
    assert of.stops == [KernelStop("large", 16384, 0, "out of memory", True)]


def test_a_kernel_stops_before_a_size_that_its_time_does_not_hold(tmp_path: Path) -> None:
    of = journal(tmp_path)
    cubic = bench("cubic", lambda size: (size.elements / 1024) ** 1.5, growth=1.5)
    run_benches([cubic], HandPlace(), 300_000, TimingRule(kernel_s=100.0), of, quiet)  # type: ignore[arg-type]
    # 1, 8, then 64 s a call, of which two do not fit.
    assert [point.elements for point in of.points] == [1024, 4096]
    assert not of.stops[0].final
    assert of.stops[0].why.startswith("no time in 100 s a kernel, about 64 s")


def test_a_run_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    of = journal(tmp_path)
    one = bench("one", lambda size: math.inf if size.elements > 20_000 else 1e-3)
    run_benches([one], HandPlace(), 5000, TimingRule(), of, quiet)  # type: ignore[arg-type]
    with of.path.open("a") as file:
        file.write('{"kernel": "one", "elem')  # killed as it wrote
    again = journal(tmp_path)
    assert again.points == of.points
    run_benches([one], HandPlace(), 300_000, TimingRule(), again, quiet)  # type: ignore[arg-type]
    assert [point.elements for point in again.points] == [1024, 4096, 16384]
    third = journal(tmp_path)
    assert third.stopped("one", 262144, 0) and not third.stopped("one", 16384, 0)


def test_the_whole_time_spent_names_the_kernels_left(tmp_path: Path) -> None:
    of = journal(tmp_path)
    two = [bench(name, lambda size: 1e-3) for name in ("one", "two")]
    assert run_benches(two, HandPlace(), 5000, TimingRule(budget_s=0.0), of, quiet) == [
        "one",
        "two",
    ]  # type: ignore[arg-type]
    assert of.points == []
