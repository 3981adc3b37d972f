"""Chains: by hand, and by law: they close when the graph that they are of does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.simulate.array import drawn_closes, simulate_draws
from perfsim.simulate.chains import NO_FACTOR, chains_of
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.sync import Groups, Neighbours, SyncScope
from support.strategies import graphs

NODES = Groups((2, 2))
RING = Neighbours((1,))


def in_a_row(*tasks: tuple[bool, SyncScope | None]) -> TaskGraph:
    """Return tasks that follow each other on one stream, each a collective of some ranks or not."""
    graph = TaskGraph()
    for number, (collective, scope) in enumerate(tasks):
        kind = "communicate" if collective else "other"
        graph.add(str(number), "wire", kind, 1.0, collective=collective, scope=scope)
    return graph


@pytest.mark.parametrize(
    ("tasks", "which", "chains"),
    [
        # The same factor, or none, multiplies the sum.
        ([(False, None)] * 3, [0, 0, 0], [0, 0, 0]),
        ([(False, None)] * 3, [0, NO_FACTOR, NO_FACTOR], [0, 1, 1]),
        # Ranks that have met for one collective are there for the next; for another group not.
        ([(True, NODES), (True, NODES)], [NO_FACTOR] * 2, [0, 0]),
        ([(True, NODES), (True, None)], [NO_FACTOR] * 2, [0, 1]),
        ([(True, None), (False, None)], [NO_FACTOR] * 2, [0, 0]),
        ([(False, None), (True, None)], [NO_FACTOR] * 2, [0, 1]),
        # A delay of neighbours goes one further with each exchange.
        ([(True, RING), (True, RING)], [NO_FACTOR] * 2, [0, 1]),
        # The slowest of the sums is not the sum of the slowest.
        ([(True, None), (True, None)], [0, 0], [0, 1]),
        ([(True, None), (False, None)], [0, 0], [0, 1]),
    ],
)
def test_a_chain_goes_on_where_no_rank_waits_and_one_factor_holds(
    tasks: list[tuple[bool, SyncScope | None]], which: list[int], chains: list[int]
) -> None:
    assert chains_of(in_a_row(*tasks), which).of == chains


def test_a_chain_ends_where_others_wait_for_it_and_where_the_period_closes() -> None:
    graph = TaskGraph()
    forward = graph.add("forward", "compute", "forward", 1.0)
    first = graph.add("first", "compute", "backward", 1.0, [forward])
    send = graph.add("send", "wire", "communicate", 1.0, [first], collective=True)
    second = graph.add("second", "compute", "backward", 1.0, [first])
    graph.add("update", "compute", "update", 1.0, [second, send])
    graph.last = graph.add("metrics", "compute", "other", 1.0)
    graph.add("log", "compute", "other", 1.0)
    made = chains_of(graph, [0, 0, NO_FACTOR, 0, 0, 0, 0])
    assert made.of == [0, 0, 1, 2, 3, 3, 4]
    assert made.graph.closing == 3 and made.graph.tasks[3].after == ((1, 0),)


SCOPES: list[SyncScope | None] = [None, NODES, RING]


@st.composite
def rows_of_tasks(draw: st.DrawFn) -> tuple[TaskGraph, list[int]]:
    """Draw a graph in which most tasks follow the one before them, and the factor of each."""
    graph, count = TaskGraph(), draw(st.integers(2, 10))
    stream = "compute"
    for index in range(count):
        after: list[int] = []
        if draw(st.integers(0, 4)) == 0:
            stream = draw(st.sampled_from(["compute", "wire"]))
            after = draw(st.lists(st.integers(0, index - 1), max_size=2)) if index else []
        seconds, collective = draw(st.sampled_from([0.0, 1.0, 3.0])), draw(st.booleans())
        scope = draw(st.sampled_from(SCOPES)) if collective else None
        graph.add(str(index), stream, "other", seconds, after, collective=collective, scope=scope)
    graph.last = draw(st.one_of(st.none(), st.integers(0, count - 1)))
    which = draw(st.lists(st.sampled_from([NO_FACTOR, 0]), min_size=count, max_size=count))
    return graph, which


@given(st.one_of(rows_of_tasks(), st.tuples(graphs(ranks=4), st.none())), st.integers(0, 9))
def test_chains_close_when_their_graph_does(
    drawn: tuple[TaskGraph, list[int] | None], seed: int
) -> None:
    graph, which = drawn[0], drawn[1] or [0] * len(drawn[0].tasks)
    chance = np.random.default_rng(seed)
    factors = chance.uniform(0.5, 2.0, (5 + graph.margin, 1, 2, 4))  # two draws of four ranks
    seconds = [float(task.duration_s) for task in graph.tasks]
    given_s = np.array([seconds, [2.0 * one for one in seconds]]).T

    def of_period(period: int) -> list[np.ndarray]:
        return list(factors[period])

    whole = simulate_draws(graph, seconds, which, of_period, warm_up=1, counted=4)
    closes = drawn_closes(chains_of(graph, which), given_s, of_period, warm_up=1, counted=4)
    for close, (once, twice) in zip(whole.closes, closes, strict=True):
        assert once == pytest.approx(np.asarray(close), rel=1e-9)
        assert twice == pytest.approx(2.0 * once, rel=1e-9)
