"""DeepSpeed's coordinator of ZeRO-3: what is gathered when, by its rules."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.methods.base import MethodContext
from perfsim.methods.building.leaf_gathers import (
    GatherLimits,
    LeafFetch,
    leaf_fetches,
    leaf_gathers,
    persistent_elements,
)
from support.layered import model

NOTHING_AHEAD = GatherLimits(prefetch=0, persistence=0, reuse=0)


def test_without_looking_ahead_each_module_is_gathered_at_its_hook() -> None:
    found = leaf_fetches([[4, 1], [3]], NOTHING_AHEAD)
    assert found == [
        LeafFetch(0, 0, 5, 2),
        LeafFetch(1, 1, 3),
        LeafFetch(2, 2, 3),
        LeafFetch(3, 3, 5, 2),
    ]


def test_what_is_used_again_soon_stays() -> None:
    # After the last module comes itself; after the one before, two of 3.
    assert leaf_fetches([[4], [3], [3]], NOTHING_AHEAD._replace(reuse=1)) == [
        LeafFetch(0, 0, 4),
        LeafFetch(1, 1, 3),
        LeafFetch(2, 2, 3),
        LeafFetch(4, 4, 3),
        LeafFetch(5, 5, 4),
    ]
    kept = leaf_fetches([[4], [3], [3]], NOTHING_AHEAD._replace(reuse=7))
    assert [fetch.hook for fetch in kept] == [0, 1, 2, 5]


def test_a_hook_gathers_ahead_until_it_has_enough_in_one_message() -> None:
    found = leaf_fetches([[10], [20], [20], [20]], GatherLimits(30, 0, 10**9, 10**9))
    assert found == [LeafFetch(0, 0, 10), LeafFetch(0, 1, 40, 2), LeafFetch(1, 3, 20)]


def test_gathered_values_stop_gathers_ahead() -> None:
    found = leaf_fetches([[10], [20], [20]], GatherLimits(30, 0, 25, 10**9))
    # 10 are whole: 15 more may be, which the next module of 20 fills; then each comes at its hook.
    assert found == [LeafFetch(0, 0, 10), LeafFetch(0, 1, 20), LeafFetch(2, 2, 20)]


def test_small_tensors_are_never_gathered() -> None:
    modules = [[10, 2], [2], [20, 3]]
    limits = GatherLimits(0, 3, 10**9, 10**9)
    assert persistent_elements(modules, limits) == 7
    assert [fetch.elements for fetch in leaf_fetches(modules, limits)] == [10, 20]


def test_what_was_gathered_before_may_go_apart() -> None:
    # As in the example of leaf_fetches: the last message holds the first module again.
    found = leaf_fetches([[400], [300], [200]], GatherLimits(250, 10, 10**9, 500), apart=True)
    assert found == [
        LeafFetch(0, 0, 400),
        LeafFetch(0, 1, 300),
        LeafFetch(1, 5, 400, again=True),
        LeafFetch(1, 2, 200),
    ]


@given(
    modules=st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=3), min_size=1, max_size=8),
    limits=st.builds(
        GatherLimits,
        st.integers(0, 100),
        st.integers(0, 20),
        st.integers(0, 300),
        st.integers(0, 300),
    ),
)
@settings(max_examples=60)
def test_every_module_finds_its_tensors_gathered(
    modules: list[list[int]], limits: GatherLimits
) -> None:
    found = leaf_fetches(modules, limits)
    sharded = sum(map(sum, modules)) - persistent_elements(modules, limits)
    # Once at least, and no more often than it is used.
    assert sharded <= sum(fetch.elements for fetch in found) <= 2 * sharded
    assert [fetch.hook for fetch in found] == sorted(fetch.hook for fetch in found)
    assert all(fetch.hook <= fetch.first_use < 2 * len(modules) for fetch in found)
    # A message at its own hook brings that module's tensors alone.
    steps = [*modules, *reversed(modules)]
    assert all(
        fetch.elements <= sum(steps[fetch.hook]) for fetch in found if fetch.hook == fetch.first_use
    )
    # Apart, each tensor comes for the first time once, and as much comes in all.
    apart = leaf_fetches(modules, limits, apart=True)
    assert sum(fetch.elements for fetch in apart if not fetch.again) == sharded
    assert sum(fetch.elements for fetch in apart) == sum(fetch.elements for fetch in found)
    assert sum(fetch.tensors for fetch in apart) == sum(fetch.tensors for fetch in found)


def test_gathers_begin_at_their_hook_and_hold_up_their_first_use() -> None:
    world = MethodContext(4, profile=model([200_000, 300_000], [5.0, 7.0]))
    found = leaf_gathers(world, NOTHING_AHEAD, 2.0)
    places = [(job.begins.phase, job.begins.seconds) for job in found]
    assert places == [
        ("forward", 0.0),
        ("forward", pytest.approx(0.005)),
        ("backward", 0.0),
        ("backward", pytest.approx(0.015)),
    ]
    assert all(job.begins == job.holds for job in found)
    with pytest.raises(ValueError, match="no profile"):
        leaf_gathers(MethodContext(4), NOTHING_AHEAD, 2.0)
