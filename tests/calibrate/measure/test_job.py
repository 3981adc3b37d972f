"""Which groups of a job's ranks are measured, by hand and by law."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.measure.job import rank_groups
from perfsim.errors import RequestError


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
