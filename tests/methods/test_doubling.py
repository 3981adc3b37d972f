"""The all-reduce of pairs whose density doubles at every step: by hand, by law, by its formula."""

from __future__ import annotations

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.methods import load_method
from perfsim.methods.base import MethodContext
from perfsim.methods.building.sparsify import doubled, kept
from perfsim.schedule.run import run
from support.builders import bucket, gradient, ring_cluster
from support.selections import plans, sends
from support.stages import kernels


def test_doubling_sends_twice_as_much_at_every_step() -> None:
    # 10 pairs of 8 bytes of 1000 values; distances 1, 2, 4 over 8 ranks.
    stages = doubled(1000, 10, MethodContext(8, nodes=8))
    assert sends(stages) == [
        ("send_recv", 80.0, "across"),
        ("send_recv", 160.0, "across"),
        ("send_recv", 320.0, "across"),
    ]
    # Joined lists are read and written: 20, 40 and 80 pairs, 16 bytes each.
    # Then 80 pairs into a zeroed gradient and its mean: 3 x 4000, and 16 bytes a pair.
    found = kernels(stages, "decompress")
    assert [kernel.moved_bytes for kernel in found] == [320, 640, 1280, 12000, 1280]


def test_doubling_stops_at_the_dense_gradient() -> None:
    # 400 bytes dense; 20 pairs: 160, 320, then 640 would be more than the dense gradient.
    stages = doubled(100, 20, MethodContext(16, nodes=16))
    assert [size for _, size, _ in sends(stages)] == [160, 320, 400, 400]
    # 40 pairs joined; zeroed (400) and 80 pairs scattered (16 each); two dense additions; mean.
    found = kernels(stages, "decompress")
    assert [kernel.moved_bytes for kernel in found] == [640, 400, 1280, 1200, 1200, 800]


def test_doubling_goes_inside_the_node_first() -> None:
    stages = doubled(10**6, 10, MethodContext(16, nodes=4, gpus_per_node=4))
    assert [group for _, _, group in sends(stages)] == ["node", "node", "across", "across"]
    alone = doubled(10**6, 10, MethodContext(8, nodes=1, gpus_per_node=8))
    assert {group for _, _, group in sends(alone)} == {"node"}
    # With three GPUs a node, even neighbours may stand on two nodes.
    odd = doubled(10**6, 10, MethodContext(6, nodes=2, gpus_per_node=3))
    assert {group for _, _, group in sends(odd)} == {"across"}


def test_doubling_folds_ranks_beyond_a_power_of_two() -> None:
    # Five ranks: the fifth gives its 10 pairs first and gets the sum of 4 steps last.
    sizes = [size for _, size, _ in sends(doubled(10**6, 10, MethodContext(5, nodes=5)))]
    assert sizes == [80, 160, 320, 640]


@given(ranks=st.integers(2, 300), count=st.integers(1, 500), each=st.sampled_from([1, 2, 3, 8]))
def test_doubling_never_sends_more_than_dense_in_a_step(ranks: int, count: int, each: int) -> None:
    stages = doubled(500, count, MethodContext(ranks, gpus_per_node=each))
    sizes = [size for _, size, _ in sends(stages)]
    assert max(sizes) <= 2000 and sizes == sorted(sizes)
    assert len(sizes) == int(log2(ranks)) + 2 * (ranks & (ranks - 1) > 0)


@pytest.mark.parametrize("name", ["topk", "dgc"])
@pytest.mark.parametrize("density", [0.001, 0.01, 0.2])
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_wire_of_the_doubling_all_reduce(name: str, density: float, ranks: int) -> None:
    method = load_method(name, {"exchange": "all_reduce", "density": density})
    one = bucket(gradient((384, 256)))
    n = one.elements
    [plan] = plans(method, one, ring_cluster(ranks, "1GB/s,20us"))
    names = {"P": ranks, "n": n, "k": kept(n, density), **method.model_dump()}
    functions = {"log2": log2, "ceil": ceil, "min": min, "max": max}
    formula = eval(method.wire, {"__builtins__": {}}, names | functions)
    assert plan.sent_bytes == pytest.approx(formula, rel=1e-12)


def test_doubling_costs_its_steps_one_after_the_other() -> None:
    # 4 ranks, k = 1000 of 10**6: 1 ms + 8 us, then 2000 pairs x 16 bytes joined at 1 TB/s in two
    # launches of 10 us, before the second step begins.
    method = load_method("topk", {"exchange": "all_reduce"})
    [plan] = plans(method, bucket(gradient((1000, 1000))), ring_cluster(4, "1GB/s,1ms"))
    line = run(plan)
    first, second = (
        start
        for task, start in zip(plan.graph.tasks, line.starts[0], strict=True)
        if task.name.startswith("send_recv")
    )
    assert second - first == pytest.approx(1e-3 + 8e-6 + 20e-6 + 32e-9, rel=1e-9)
