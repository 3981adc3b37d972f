"""What methods of fewer exchanges share, by hand and by law."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.methods.base import LOCAL_ITERATION, Compute, JobStage, MethodContext, Send
from perfsim.methods.building.averaging import (
    averages,
    by_schedule,
    from_first_ranks,
    merged_bucket,
    neighbours,
    periodic,
    with_neighbours,
)
from support.builders import bucket, gradient


def said(stages: list[JobStage] | tuple[JobStage, ...]) -> list[tuple[str, object, float]]:
    """Return each stage in short: what, its group or stream, bytes."""
    return [
        (stage.collective, stage.group, stage.size_bytes)
        if isinstance(stage, Send)
        else (stage.kind, stage.stream, stage.kernels[0].moved_bytes)
        for stage in stages
    ]


def test_an_interval_of_one_has_no_local_iteration() -> None:
    assert [(one.iterations, one.count) for one in periodic(1)] == [((0,), 1)]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 10_000)), min_size=1, max_size=5))
def test_a_schedule_holds_its_iterations_and_exchanges(parts: list[tuple[int, int]]) -> None:
    rounds = by_schedule(" , ".join(f"{interval}x{count}" for interval, count in parts))
    counts = {one.iterations[0]: one.count for one in rounds}
    assert sum(counts.values()) == pytest.approx(sum(count for _, count in parts))
    assert counts[0] == pytest.approx(sum(count / interval for interval, count in parts))
    assert counts.get(LOCAL_ITERATION, 0) >= 0


@pytest.mark.parametrize("schedule", ["4", "4x", "x100", "0x100", "4x0", "4x100,", "4 * 100"])
def test_what_is_no_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(RequestError, match=r"options.schedule: .* give intervals and iterations"):
        by_schedule(schedule)


def test_models_are_averaged_in_one_buffer_or_tensor_by_tensor() -> None:
    first, second = gradient(1000, 0.1), gradient(500, 0.2)
    # Concatenate and divide 6000 B: 4 passes; a lone tensor is only divided: 2 passes.
    (whole,) = averages([bucket(first, second)])
    assert said(whole.stages) == [
        ("compress", "compute", 24000.0),
        ("all_reduce", "all", 6000.0),
    ]
    apart = averages([bucket(first), bucket(second)])
    assert [said(job.stages)[0][2] for job in apart] == [8000.0, 4000.0]
    assert merged_bucket([bucket(first), bucket(second)]) == bucket(first, second)


@pytest.mark.parametrize(
    ("world", "group"),
    [
        (MethodContext(8), "leaders"),
        (MethodContext(8, gpus_per_node=4), "leaders"),
        (MethodContext(8, 1, 8), "all"),
    ],
)
def test_a_node_sends_what_one_rank_sends_to_its_peers(world: MethodContext, group: str) -> None:
    sent = neighbours(1e6, world, peers=2)
    assert (sent.group, sent.size_bytes) == (group, 2e6)


def test_a_fused_exchange_copies_in_and_out() -> None:
    two = bucket(gradient(1000), gradient(500))
    world = MethodContext(8, gpus_per_node=4)
    # 6000 B: in 2 passes; out 2, weight 2 and add the own 3.
    assert said(with_neighbours(two, world)) == [
        ("compress", "communication", 12000.0),
        ("send_recv", "leaders", 6000.0),
        ("decompress", "compute", 42000.0),
    ]
    # Hierarchical: the own sum out 2, divide 2 more.
    assert said(with_neighbours(two, world, hierarchical=True)) == [
        ("compress", "communication", 12000.0),
        ("all_reduce", "node", 6000.0),
        ("send_recv", "leaders", 6000.0),
        ("broadcast", "node", 6000.0),
        ("decompress", "compute", 66000.0),
    ]
    last = with_neighbours(two, world)[-1]
    # Of each of the two tensors: copy out, weight, add.
    assert isinstance(last, Compute) and last.kernels[0].launches == 6


def test_bagua_broadcasts_in_the_node_after_backward() -> None:
    one = bucket(gradient(1000))
    stages = from_first_ranks(one, MethodContext(8, gpus_per_node=4))
    assert said(stages) == [
        ("reduce", "node", 4000.0),
        ("compress", "communication", 8000.0),
        ("all_reduce", "leaders", 4000.0),
        ("decompress", "communication", 8000.0),
        ("broadcast", "node", 4000.0),
    ]
    assert [stage.earliest for stage in stages] == ["ready"] * 3 + ["backward"] * 2
    assert [what for what, _, _ in said(from_first_ranks(one, MethodContext(4)))] == [
        "compress",
        "all_reduce",
        "decompress",
    ]
    assert "all_reduce" not in [
        what for what, _, _ in said(from_first_ranks(one, MethodContext(4, 1, 4)))
    ]
