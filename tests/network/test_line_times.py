"""Times by the size of a message: one at a time, many at once, of several the shortest."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.by_size import MessageSizes, fastest_of, one_by_one, slowest_of
from perfsim.collectives import Line
from perfsim.network import line_times as of_lines
from perfsim.network.line_times import LatencyLines, line_times, rising
from perfsim.network.link import Latency


def curve(points: list[tuple[float, float]]) -> Latency:
    sizes, alphas = zip(*points, strict=True)
    return Latency(sizes, alphas, "measured", "a test")


points = st.lists(
    st.tuples(st.floats(1.0, 1e9), st.floats(1e-7, 1e-2)),
    min_size=1,
    max_size=6,
    unique_by=lambda point: point[0],
)
curves = st.builds(lambda some: curve(sorted(some)), points)
sizes = st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e10)), min_size=1, max_size=30)
lines = st.builds(
    Line, st.integers(0, 100), st.integers(0, 20), st.floats(0.0, 2.0), st.floats(1e-12, 1e-7)
)


def knots_of(*curves: Latency | None) -> list[float]:
    return sorted({size for one in curves if one for size in one.size_bytes})


@given(lines, curves, st.one_of(st.none(), curves), sizes)
def test_a_line_is_its_formula_and_many_sizes_are_each_of_them(
    line: Line, near: Latency, far: Latency | None, asked: list[float]
) -> None:
    knots = knots_of(near, far)

    def formula(size_bytes: float) -> float:
        far_s = far.at(size_bytes) if far else 0.0
        return line.latency_s(near.at(size_bytes), far_s) + line.transfer_s(size_bytes)

    by_line, by_formula = line_times(line, LatencyLines.of(near, far)), rising(formula, knots)
    many = MessageSizes.of(sorted([*asked, *knots]))
    each_s = by_line.of_each(many)
    assert each_s == [by_line.of(size) for size in many.sizes_bytes], "to the last digit"
    assert isinstance(by_line.each(many), np.ndarray)
    with mock.patch.object(of_lines, "arrays", return_value=None):  # numpy is not loaded
        assert by_line.each(many) == each_s
    # A logarithm is read from 0 here and from the knot before there: some digits of it are lost.
    assert each_s == pytest.approx(by_formula.of_each(many), rel=1e-9, abs=1e-15)
    assert all(after >= before * (1 - 1e-12) for before, after in pairwise(each_s))


@given(lines, curves, curves, sizes, sizes)
def test_who_shares_a_line_shares_its_times(
    line: Line, near: Latency, far: Latency, some: list[float], others: list[float]
) -> None:
    """What was asked last is remembered, and no curve is taken for another."""
    times = line_times(line, LatencyLines.of(near, far))
    for asked in (*[MessageSizes.of(one) for one in (some, others)] * 2,):
        assert times.of_each(asked) == [times.of(size) for size in asked.sizes_bytes]
        assert times.each(asked) is times.each(asked)
    assert line_times(line._replace(), LatencyLines.of(near, far)) is times
    both = [(near, far), (None, far), (near, None), (None, near), (far, near)]
    assert len({id(LatencyLines.of(*pair)) for pair in both}) == len(both)
    for one, other in both:
        again = LatencyLines.of(one and replace(one), other and replace(other))
        assert line_times(line, again).of_each(asked) == line_times(
            line, LatencyLines.of(one, other)
        ).of_each(asked)


def test_of_several_times_the_longest_or_the_shortest_counts() -> None:
    times = [*map(one_by_one, (lambda size: 1.0 + size, lambda size: 2.0 * size, lambda size: 3.0))]
    shortest, longest = fastest_of(times), slowest_of(times)
    asked = MessageSizes.of([0.5, 1.0, 9.0])
    assert shortest.of_each(asked) == [shortest.of(size) for size in asked.sizes_bytes]
    assert shortest.of_each(asked) == [1.0, 2.0, 3.0]
    assert longest.of_each(asked) == [longest.of(size) for size in asked.sizes_bytes]
    assert longest.of_each(asked) == [3.0, 3.0, 18.0]
    assert fastest_of(times[:1]).of(9.0) == 10.0


@given(lines, lines, curves, curves, sizes)
def test_of_arrays_the_same_counts_as_of_lists(
    one: Line, other: Line, near: Latency, far: Latency, asked: list[float]
) -> None:
    """With a formula among the lines, which tells one time after another, there are lists."""
    both = [line_times(line, LatencyLines.of(near, far)) for line in (one, other)]
    many = MessageSizes.of(asked)
    for more in ([], [one_by_one(lambda size: 1e-9 * size)]):
        for choose in (fastest_of, slowest_of):
            chosen = choose([*both, *more])
            assert chosen.of_each(many) == [chosen.of(size) for size in many.sizes_bytes]
