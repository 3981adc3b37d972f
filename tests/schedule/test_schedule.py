"""Schedule: what is issued when, on graphs small enough to compute by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.errors import RequestError
from perfsim.methods import load_method, method_names
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from perfsim.simulate.array import simulate
from perfsim.simulate.bounds import wait_free_chain
from perfsim.simulate.events import simulate_events
from support.builders import hand_device, profile, ring_cluster

MB = 250_000
"""Elements of an fp32 gradient of 1 MB."""


def plan(
    method: str, policy: str, ranks: int = 4, options: dict[str, Any] | None = None, **more: Any
) -> CostedGraph:
    """Return the plan for three gradients of 1 MB ready at 10, 20 and 30 ms of a 35 ms backward."""
    [made] = plans(method, policy, ranks, options, **more)
    return made


def plans(
    method: str, policy: str, ranks: int = 4, options: dict[str, Any] | None = None, **more: Any
) -> list[CostedGraph]:
    """Return the plan of each round of a method's period, as `plan` does of one."""
    return schedule(
        profile(
            [(500, 500)] * 3,
            [0.010, 0.020, 0.030],
            backward_s=0.035,
            forward_s=0.015,
            optimizer_s=0.002,
        ),
        load_method(method, options or {}),
        fusion.load_policy(policy).fuse,
        hand_device(),
        ring_cluster(ranks, "1GB/s,1ms"),
        algorithm="ring",
        **more,
    )


def names(made: CostedGraph) -> list[str]:
    """Return the task names in issue order."""
    return [task.name for task in made.graph.tasks]


def test_ssgd_issues_each_bucket_after_its_gradient() -> None:
    assert names(plan("ssgd", "none")) == [
        "forward 0",
        "backward 0.0",
        "all_reduce 0.0",
        "backward 0.1",
        "all_reduce 0.1",
        "backward 0.2",
        "all_reduce 0.2",
        "backward 0.end",
        "update 0",
    ]


def test_ssgd_iteration_by_hand() -> None:
    # A ring of 4 on 1 MB: 6 x 1 ms + 1.5 x 1 MB / 1 GB/s = 7.5 ms, hidden but for the last one:
    # 15 + 30 + 7.5 + 2 = 54.5 ms.
    assert simulate(plan("ssgd", "none").graph).iteration_s == pytest.approx(0.0545, rel=1e-12)


def test_no_overlap_by_hand() -> None:
    # 15 + 35 + 3 x 7.5 + 2.
    made = plan("ssgd", "none", overlap=False)
    assert simulate(made.graph).iteration_s == pytest.approx(0.0745, rel=1e-12)


def test_one_buffer_without_overlap_is_bsp() -> None:
    # 15 + 35 + (6 ms + 4.5 ms) + 2.
    made = plan("ssgd", "whole", overlap=False)
    assert simulate(made.graph).iteration_s == pytest.approx(0.0625, rel=1e-12)


def test_plain_ssgd_never_overlaps_the_next_forward() -> None:
    # 20 ms of latency a hop: communication (3 x 121.5 ms) is far longer than everything else.
    [made] = schedule(
        profile([MB] * 3, [0.010, 0.020, 0.030], forward_s=0.015),
        load_method("ssgd", {}),
        fusion.load_policy("none").fuse,
        hand_device(),
        ring_cluster(4, "1GB/s,20ms"),
    )
    timeline = simulate(made.graph, periods=3)
    forward = names(made).index("forward 0")
    last = names(made).index("all_reduce 0.2")
    for period in range(1, 3):
        assert timeline.starts[period][forward] >= timeline.ends[period - 1][last]


def test_topk_selects_in_the_hook_and_decodes_after_backward() -> None:
    made = plan("topk", "none")
    order = names(made)
    assert order.index("compress 0.0") < order.index("backward 0.1")
    assert all(
        order.index(f"decompress 0.{number}") > order.index("backward 0.end") for number in range(3)
    )
    streams = {task.name: task.stream for task in made.graph.tasks}
    assert streams["compress 0.0"] == streams["decompress 0.0"] == "compute"


def test_compression_in_the_hook_delays_the_backward_pass() -> None:
    made = plan("topk", "none", options={"density": 1e-6})
    timeline = simulate(made.graph)
    kernels = timeline.breakdown()["compression"]
    assert kernels > 0
    assert timeline.iteration_s >= 0.015 + 0.035 + 0.002 + kernels * 0.999


def test_powersgd_after_backward_loops_over_buckets_in_waves() -> None:
    made = plan("powersgd", "none", options={"variant": "after_backward", "rank": 2})
    order = names(made)
    late = order[order.index("backward 0.end") + 1 : -1]
    first = [f"{what} 0.{n}" for n in range(3) for what in ("compress", "all_reduce")]
    # P of every bucket, then Q of every bucket, then the rebuilding.
    assert late == [*first, *first, *(f"decompress 0.{n}" for n in range(3))]


def test_the_powersgd_hook_hides_nothing() -> None:
    # Its last callback synchronises the device, so every bucket's exchanges are exposed.
    made = plan("powersgd", "none", options={"rank": 2})
    timeline = simulate(made.graph)
    communication = timeline.communication()
    assert communication["hidden_s"] == pytest.approx(0, abs=1e-12)
    assert timeline.breakdown()["communication_exposed"] == pytest.approx(communication["busy_s"])
    # 3 buckets x (P and Q, each 6 hops of 1 ms and 1.5 x 4 kB / 1 GB/s).
    assert communication["busy_s"] == pytest.approx(3 * 2 * (6e-3 + 1.5 * 4e3 / 1e9))


def test_the_papers_powersgd_hides_the_vectors_behind_orthogonalisation() -> None:
    # One matrix and one vector: after P, the vector's all-reduce runs beside the kernels for Q,
    # and only the update waits for it.
    [made] = schedule(
        profile([(500, 500), 100], [0.010, 0.020], optimizer_s=0.001),
        load_method("powersgd", {"variant": "after_backward", "rank": 2}),
        fusion.load_policy("whole").fuse,
        hand_device(),
        ring_cluster(4, "1GB/s,1ms"),
        algorithm="ring",
    )
    graph = made.graph
    sent = [i for i, task in enumerate(graph.tasks) if task.kind == "communicate"]
    second = [i for i, task in enumerate(graph.tasks) if task.kind == "compress"][1]
    timeline = simulate(graph, periods=1)
    starts, ends = timeline.starts[0], timeline.ends[0]
    assert starts[sent[1]] == starts[second] == ends[sent[0]]
    assert sent[1] in [task for task, _ in graph.tasks[graph.closing].after]


def test_acpsgd_takes_two_iterations_a_period() -> None:
    made = plan("acpsgd", "none")
    assert made.graph.iterations == 2
    assert "update 0" in names(made) and "update 1" in names(made)


def test_one_gpu_sends_nothing() -> None:
    made = plan("dgc", "size", ranks=1)
    assert made.calls == 0
    assert simulate(made.graph).iteration_s == pytest.approx(0.052, rel=1e-12)


def backward_s(*made: CostedGraph) -> float:
    """Return what the backward passes take [s]."""
    tasks = [task for one in made for task in one.graph.tasks]
    return sum(float(task.duration_s) for task in tasks if task.kind == "backward")


def test_overlap_slowdown_stretches_the_backward_pass_while_messages_are_under_way() -> None:
    # One message, ready 30 ms into 35, takes longer than what is left.
    made = plan("ssgd", "whole", ranks=4, overlap_slowdown=1.2)
    assert backward_s(made) == pytest.approx(0.030 + 0.005 * 1.2)
    # Three of 7.5 ms each; the last has 6 ms of the pass beside it, which lose 1 of 6.
    made = plan("ssgd", "none", ranks=4, overlap_slowdown=1.2)
    assert backward_s(made) == pytest.approx(0.035 + (7.5 + 7.5 + 6.0) / 6e3)


def test_messages_after_the_backward_pass_slow_none_of_it() -> None:
    for method in ("localsgd", "diloco"):
        made = plans(method, "size", ranks=4, overlap_slowdown=2.0)
        iterations = sum(one.graph.iterations for one in made)
        assert backward_s(*made) == pytest.approx(iterations * 0.035), method


@given(
    method=st.sampled_from(method_names()),
    slowdown=st.floats(1.0, 10.0),
    ranks=st.integers(2, 16),
)
def test_a_slowed_backward_pass_is_between_the_pass_alone_and_all_of_it_slowed(
    method: str, slowdown: float, ranks: int
) -> None:
    try:
        alone = plans(method, "size", ranks=ranks)
        slowed = plans(method, "size", ranks=ranks, overlap_slowdown=slowdown)
    except RequestError:
        reject()
    before_s, after_s = backward_s(*alone), backward_s(*slowed)
    assert before_s * (1 - 1e-12) <= after_s <= before_s * slowdown * (1 + 1e-12)


def test_a_cycle_delays_the_message_not_the_backward_pass() -> None:
    # Horovod with a 25 ms cycle: gradients at 10 and 20 wait for 25, the one at 30 for 50.
    made = plan("ssgd", "threshold", fusion_options={"cycle_time": "25ms", "hook": "1s"})
    timeline = simulate(made.graph, periods=1)
    sends = [i for i, task in enumerate(made.graph.tasks) if task.kind == "communicate"]
    starts = [timeline.starts[0][i] - 0.015 for i in sends]
    assert starts == pytest.approx([0.025, 0.050])


@given(
    method=st.sampled_from(method_names()),
    policy=st.sampled_from(["none", "size", "whole", "mgwfbp", "compressed"]),
    ranks=st.integers(1, 40),
    overlap=st.booleans(),
    ready=st.lists(st.floats(0, 0.05), min_size=1, max_size=6),
    data=st.data(),
)
def test_laws_of_every_plan(
    method: str, policy: str, ranks: int, overlap: bool, ready: list[float], data: st.DataObject
) -> None:
    shapes = data.draw(
        st.lists(
            st.tuples(st.integers(1, 2000), st.integers(1, 500)),
            min_size=len(ready),
            max_size=len(ready),
        )
    )
    one = profile(shapes, sorted(ready), forward_s=0.01, optimizer_s=0.001)
    try:
        plans = schedule(
            one,
            load_method(method, {}),
            fusion.load_policy(policy).fuse,
            hand_device(),
            ring_cluster(ranks, "1GB/s,20us"),
            overlap=overlap,
        )
    except RequestError:
        reject()
    alone_s = one.forward_s + one.backward_s
    for made in plans:
        timeline = run(made)
        assert timeline.steady
        assert timeline.iteration_s >= alone_s * (1 - 1e-9)
        assert sum(timeline.breakdown().values()) == pytest.approx(timeline.iteration_s, rel=1e-9)
        total_s = sum(task.duration_s for task in made.graph.tasks)
        assert timeline.period_s <= total_s * (1 + 1e-9)
        assert len(made.charges) == len(made.graph.tasks)
        if made.graph.contended:  # ASC: two streams share the link, and one pass cannot tell
            with pytest.raises(ValueError, match="several streams share a link"):
                simulate(made.graph)
            in_order = timeline.period_s
        else:
            in_order = simulate(made.graph).period_s
        assert simulate_events(made.graph).period_s == pytest.approx(in_order, rel=1e-9)


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=8),
    ready=st.data(),
    ranks=st.integers(2, 1024),
)
def test_wait_free_backpropagation_is_the_closed_recurrence(
    sizes: list[int], ready: st.DataObject, ranks: int
) -> None:
    moments = sorted(
        ready.draw(st.lists(st.floats(0, 0.1), min_size=len(sizes), max_size=len(sizes)))
    )
    [made] = schedule(
        profile(list(sizes), moments),
        load_method("ssgd", {}),
        fusion.load_policy("none").fuse,
        hand_device(),
        ring_cluster(ranks, "1.342177GB/s,5us"),
        algorithm="ring",
    )
    cost = [
        2 * (ranks - 1) * 5e-6 + 2 * (ranks - 1) / ranks * 4 * size / 1.342177e9 for size in sizes
    ]
    expected = wait_free_chain(moments, cost)
    assert simulate(made.graph).iteration_s == pytest.approx(expected, rel=1e-9)
