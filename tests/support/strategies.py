"""Random task graphs for tests by law."""

from __future__ import annotations

from hypothesis import strategies as st

from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.sync import Blocks, Groups, Neighbours, SyncScope
from perfsim.simulate.task import COMPUTE, TASK_KINDS

__all__ = ["graphs", "rank_durations", "seconds", "sync_scopes"]

STREAMS = (COMPUTE, "communication", "copy", "host")

# Whole milliseconds bring ties and limit cycles; the rest brings everything else.
seconds = st.one_of(st.integers(0, 9).map(lambda count: count / 1e3), st.floats(1e-6, 0.02))


@st.composite
def sync_scopes(draw: st.DrawFn, ranks: int) -> SyncScope | None:
    """Draw who waits for whom: all, nodes, places on nodes, blocks, or peers of either kind."""
    first = draw(st.integers(1, ranks))
    placement = (first, ranks - first) if first < ranks else (ranks,)
    distances = tuple(draw(st.lists(st.integers(1, ranks), min_size=1, max_size=3)))
    by_turns = draw(st.booleans())
    return draw(
        st.sampled_from(
            [
                None,
                Groups(placement),
                Groups(placement, "across"),
                Blocks(draw(st.integers(1, ranks)), draw(st.integers(1, 2))),
                Neighbours(distances, by_turns),
                Neighbours(distances, by_turns, placement),
            ]
        )
    )


@st.composite
def graphs(draw: st.DrawFn, tasks: int = 9, depth: int = 3, ranks: int = 1) -> TaskGraph:
    """Draw a periodic graph: up to four streams, dependencies up to ``depth`` periods back.

    With ``ranks``, its collectives are of all of them or of some.
    """
    count = draw(st.integers(1, tasks))
    streams = draw(st.integers(1, len(STREAMS)))
    graph = TaskGraph(
        iterations=draw(st.integers(1, 3)),
        last=draw(st.one_of(st.none(), st.integers(0, count - 1))),
    )
    anywhere = st.tuples(st.integers(0, count - 1), st.integers(1, depth))
    for index in range(count):
        earlier = st.tuples(st.integers(0, index - 1), st.just(0)) if index else st.nothing()
        graph.add(
            f"task {index}",
            STREAMS[draw(st.integers(0, streams - 1))],
            draw(st.sampled_from(TASK_KINDS)),
            draw(seconds),
            draw(st.lists(st.one_of(earlier, anywhere), max_size=3)),
            collective=draw(st.booleans()),
            priority=draw(st.integers(0, 2)),
            scope=draw(sync_scopes(ranks)) if ranks > 1 else None,
        )
    return graph


@st.composite
def rank_durations(draw: st.DrawFn, graph: TaskGraph, ranks: int = 3) -> list[list[float]]:
    """Draw seconds for every task and rank."""
    row = st.lists(seconds, min_size=ranks, max_size=ranks)
    return [draw(row) for _ in graph.tasks]
