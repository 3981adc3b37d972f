"""Which ranks are measured together, at which sizes, and when a median is known."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.measure.network_sweep import asked, sizes
from perfsim.calibrate.measure.repeats import FEWEST, RankGroup, groups, half_width, settled
from perfsim.errors import RequestError

# Groups, by hand and by law


def test_groups_separate_links_inside_a_node_and_between_nodes() -> None:
    found = groups(["a", "a", "b", "b", "c", "c"])
    assert [(one.nodes, one.gpus_per_node, one.ranks) for one in found] == [
        (1, 2, (0, 1)),
        (2, 1, (0, 2)),
        (2, 2, (0, 1, 2, 3)),
        (3, 2, (0, 1, 2, 3, 4, 5)),
    ]


def test_ranks_of_a_node_need_not_follow_each_other() -> None:
    found = groups(["a", "b", "a", "b"])
    assert [one.ranks for one in found] == [(0, 2), (0, 1), (0, 1, 2, 3)]


def test_nodes_must_hold_as_many_ranks() -> None:
    with pytest.raises(RequestError, match="b holds 1 ranks and a 2; start as many on every node"):
        groups(["a", "a", "b"])


@given(st.integers(1, 20), st.integers(1, 8))
def test_every_group_holds_rank_0_and_whole_shapes_and_the_last_is_all(nodes: int, g: int) -> None:
    if nodes * g < 2:
        return
    hosts = [f"n{node}" for node in range(nodes) for _ in range(g)]
    found = groups(hosts)
    assert found[-1].ranks == tuple(range(nodes * g))
    assert len({(one.nodes, one.gpus_per_node) for one in found}) == len(found)
    for one in found:
        assert one.ranks[0] == 0 and len(one.ranks) == one.nodes * one.gpus_per_node
        held = [hosts[rank] for rank in one.ranks]
        assert {held.count(host) for host in held} == {one.gpus_per_node}


# The median's interval, by closed form


def test_of_five_samples_the_interval_is_all_of_them() -> None:
    # P(all five on one side of the median) = 2 / 2^5 = 6.25 %: 93.75 % do, and four do not.
    assert half_width([1.0, 2.0, 3.0, 5.0, 9.0]) == pytest.approx((9.0 - 1.0) / 2 / 3.0)
    assert math.isinf(half_width([1.0] * (FEWEST - 1)))


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


# What is asked


def test_send_recv_is_asked_of_pairs_alone() -> None:
    pair, three = RankGroup((0, 1), 2, 1), RankGroup((0, 1, 2), 3, 1)
    found = [
        (one.collective, one.group.nodes)
        for one in asked(("all_reduce", "send_recv"), (pair, three), (8,))
    ]
    assert found == [("all_reduce", 2), ("send_recv", 2), ("all_reduce", 3)]


@given(st.integers(1, 4096), st.integers(0, 2**30))
def test_sizes_rise_by_at_most_the_factor_and_end_at_the_most(least: int, more: int) -> None:
    found = sizes(least, least + more)
    assert found[0] == least and found[-1] == least + more
    assert all(a < b <= 2 * a for a, b in pairwise(found))
