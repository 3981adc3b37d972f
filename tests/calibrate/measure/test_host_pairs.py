"""Pairs of neighbouring hosts: who talks with whom at which moment, and who is slow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.calibrate.measure.host_pairs import host_ring, measure_pairs
from perfsim.network.network_file import Noticed
from support.fake_wire import at_once, wires


@given(st.integers(3, 40), st.integers(1, 4))
def test_every_host_has_two_pairs_and_no_rank_two_at_once(count: int, local: int) -> None:
    hosts = [f"h{host}" for host in range(count) for _ in range(local)]
    moments = host_ring(hosts)
    pairs = [pair for moment in moments for pair in moment]
    for moment in moments:
        ranks = [rank for pair in moment for rank in pair]
        assert len(set(ranks)) == len(ranks)
    assert all(first < other and hosts[first] != hosts[other] for first, other in pairs)
    assert all(sum(rank in pair for pair in pairs) == 2 for rank in range(count * local))
    assert len(set(pairs)) == len(pairs) and len(moments) <= 3 * local


@pytest.mark.parametrize("hosts", [["a"], ["a", "b"], ["a", "a", "b", "b"]])
def test_fewer_than_three_hosts_are_not_compared(hosts: list[str]) -> None:
    assert host_ring(hosts) == []


def pairs_measured(slow: int | None, ranks: int = 4, by: float = 10.0) -> list[list[Noticed]]:
    all_of = wires(ranks)
    all_of[0]._shared["pair_law"] = lambda first, other, size: (
        (by if slow in (first, other) else 1.0) * (1e-4 + size / 1e8)
    )
    hosts = [f"h{rank}" for rank in range(ranks)]
    calls = (lambda one=one: measure_pairs(one, hosts, 2**30, 1.0, "at first") for one in all_of)
    return at_once(*calls)


def test_all_ranks_hear_which_host_is_slow() -> None:
    found = pairs_measured(2)
    assert found == [found[0]] * 4 and len(found[0]) == 1
    assert found[0][0].text == (
        "h2 is slow: 262.1 kB there and back take 27.21 ms with each neighbour, 2.721 ms among the"
        " others (at first)."
    )


def test_equal_hosts_are_silent() -> None:
    assert pairs_measured(None) == [[]] * 4
    assert pairs_measured(1, by=1.2) == [[]] * 4
