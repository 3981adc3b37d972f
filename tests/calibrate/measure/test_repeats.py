"""Repeats of a sweep: who is measured together, when a median is known, and the record on disk."""

from __future__ import annotations

import errno
import json
import math
import os
import random
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.measure.job import RankGroup, rank_groups
from perfsim.calibrate.measure.journals import NetworkJournal
from perfsim.calibrate.measure.network_sweep import message_sizes, points_to_measure
from perfsim.calibrate.measure.repeats import MIN_REPEATS, half_width, settled
from perfsim.errors import DataError, RequestError
from support.sweep_points import SETTING, point

# Groups, by hand and by law


def test_groups_separate_links_inside_a_node_and_between_nodes() -> None:
    found = rank_groups(["a", "a", "b", "b", "c", "c"])
    assert [(one.nodes, one.gpus_per_node, one.ranks) for one in found] == [
        (1, 2, (0, 1)),
        (2, 1, (0, 2)),
        (2, 2, (0, 1, 2, 3)),
        (3, 2, (0, 1, 2, 3, 4, 5)),
    ]


def test_ranks_of_a_node_need_not_follow_each_other() -> None:
    found = rank_groups(["a", "b", "a", "b"])
    assert [one.ranks for one in found] == [(0, 2), (0, 1), (0, 1, 2, 3)]


def test_nodes_must_hold_as_many_ranks() -> None:
    with pytest.raises(RequestError, match="b holds 1 ranks and a 2; start as many on every node"):
        rank_groups(["a", "a", "b"])


@given(st.integers(1, 20), st.integers(1, 8))
def test_every_group_holds_rank_0_and_whole_shapes_and_the_last_is_all(nodes: int, g: int) -> None:
    if nodes * g < 2:
        return
    hosts = [f"n{node}" for node in range(nodes) for _ in range(g)]
    found = rank_groups(hosts)
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


# What is asked


def test_send_recv_is_asked_of_pairs_alone() -> None:
    pair, three = RankGroup((0, 1), 2, 1), RankGroup((0, 1, 2), 3, 1)
    found = [
        (one.collective, one.group.nodes)
        for one in points_to_measure(("all_reduce", "send_recv"), (pair, three), (8,))
    ]
    assert found == [("all_reduce", 2), ("send_recv", 2), ("all_reduce", 3)]


@given(st.integers(1, 4096), st.integers(0, 2**30))
def test_sizes_rise_by_at_most_the_factor_and_end_at_the_most(least: int, more: int) -> None:
    found = message_sizes(least, least + more)
    assert found[0] == least and found[-1] == least + more
    assert all(a < b <= 2 * a for a, b in pairwise(found))


def test_a_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    first = NetworkJournal(tmp_path / "x.part", SETTING)
    for size in (1024, 2048):
        first.add_point(point(size, 1e-3 / 3, 2.5e-4))
    again = NetworkJournal(tmp_path / "x.part", SETTING)
    assert again.points == first.points and again.measured_keys() == first.measured_keys() != set()
    assert NetworkJournal(tmp_path / "x.part", SETTING, fresh=True).points == []


@pytest.mark.parametrize("left", [1, 20, 60])
def test_half_a_last_line_is_cut_off_and_the_sweep_goes_on(tmp_path: Path, left: int) -> None:
    path = tmp_path / "x.part"
    whole = NetworkJournal(path, SETTING)
    whole.add_point(point(1024))
    kept = path.read_bytes()
    whole.add_point(point(2048))
    path.write_bytes(path.read_bytes()[: len(kept) + left])
    again = NetworkJournal(path, SETTING)
    assert again.points == [point(1024)] and path.read_bytes() == kept
    again.add_point(point(4096))
    assert NetworkJournal(path, SETTING).points == [point(1024), point(4096)]


def test_a_record_that_was_killed_at_its_first_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    for torn in ("", '{"schema": "perfsim/meas'):
        path.write_text(torn)
        assert NetworkJournal(path, SETTING).points == []
        assert json.loads(path.read_text())["library"] == "gloo"


def test_points_of_another_setting_are_not_mixed_in(tmp_path: Path) -> None:
    NetworkJournal(tmp_path / "x.part", SETTING)
    with pytest.raises(RequestError) as refused:
        NetworkJournal(tmp_path / "x.part", {**SETTING, "ranks": 4})
    assert str(refused.value) == (
        f"out: {tmp_path / 'x.part'} was begun with ranks 2, now it is 4; delete it or name"
        " another out."
    )


@pytest.mark.parametrize(
    "text", ["{}\n", "nonsense\n", '{"schema": "perfsim/measured-points/1"}\n[]\n']
)
def test_what_is_no_record_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.part"
    path.write_text(text)
    with pytest.raises(DataError, match="is no record of a sweep that can be gone on with"):
        NetworkJournal(path, SETTING)
    assert path.read_text() == text


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = NetworkJournal(tmp_path / "x.part", SETTING)
    journal.add_point(point(1024))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RequestError, match="cannot be written: No space left on device; what was"):
        journal.add_point(point(2048))
    monkeypatch.undo()
    assert journal.points == [point(1024)]
