"""KAISA by hand: what its workers invert, send and wait for, in both of its releases."""

from __future__ import annotations

import pytest

from perfsim.compute.kernel import elementwise
from perfsim.errors import RequestError
from perfsim.methods.building.kfac_factors import (
    KAISA,
    decomposed,
    preconditioned,
    rescaled,
)
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from perfsim.schedule.run import run
from support.kfac_of_two_layers import (
    FIRST,
    MS,
    PASSES,
    SECOND,
    SIDES,
    TRIANGLES,
    broadcast_s,
    built,
    k,
    names,
    plans,
    reduce_s,
)


def test_kaisa_with_all_workers_sends_eigenvectors_and_no_gradient() -> None:
    [plan] = plans("kaisa", inversion="eigen")
    values = sum(side**2 for side in SIDES)
    reduced, sent = 1840 + values, values + 1840
    assert plan.sent_bytes == pytest.approx(2 * 3 / 4 * 4 * reduced + 3 / 4 * 4 * sent)
    # Last layer first: A's vectors, G's, and the quotients of both.
    assert names(plan, "broadcast") == [
        f"broadcast 0.inverse {what}" for what in ("b A", "b G", "b G", "a A", "a G", "a G")
    ]


def test_kaisa_with_one_worker_by_hand() -> None:
    [plan] = plans("kaisa", 2, inversion="eigen", fraction=0.5)
    assert names(plan, "broadcast") == ["broadcast 0.gradient b", "broadcast 0.gradient a"]
    products = k(*built(KAISA)) + sum(k(elementwise(side**2, 2)) for side in SIDES)
    # All factors fit one bucket, sent after the passes behind the gradients.
    sums = reduce_s(1840, 2) + reduce_s(sum(side**2 for side in SIDES), 2)
    means = sum(k(elementwise(side**2, 2)) for side in SIDES)
    eigen = {
        layer.name: k(
            *decomposed(layer.inputs, copied=False),
            *decomposed(layer.outputs, copied=False),
            elementwise(layer.elements, 5, 3),
            *preconditioned(layer, "eigen", quotients=True),
        )
        for layer in (FIRST, SECOND)
    }
    b_sent = eigen["b"] + broadcast_s(31 * 40, 2)
    both_sent = max(b_sent, eigen["a"]) + broadcast_s(600, 2)
    rest = k(rescaled(FIRST), rescaled(SECOND)) + 2 * MS
    expected = PASSES + products + sums + means + both_sent + rest
    assert run(plan).iteration_s == pytest.approx(expected, rel=1e-9)


def test_kaisa_with_a_worker_a_node() -> None:
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    four = Cluster(4, (2, 2), wire, bus)
    [plan] = plans("kaisa", inversion="eigen", cluster=four, fraction=0.5)
    streams = {task.name: task.stream for task in plan.graph.tasks}
    assert {streams["broadcast 0.inverse a G"], streams["broadcast 0.inverse b G"]} == {
        "workers 0",
        "workers 1",
    }
    inside = four.of(2, "broadcast", 4 * 600).seconds
    gradient = next(task for task in plan.graph.tasks if task.name == "broadcast 0.gradient a")
    assert gradient.duration_s == pytest.approx(inside) and gradient.stream == "rows"
    with pytest.raises(RequestError, match="kaisa cannot split 4 ranks into groups of 3"):
        plans("kaisa", inversion="eigen", cluster=four, fraction=0.75)
    eight = Cluster(8, (2, 2, 2, 2), wire, bus)
    # Two workers stand 4 ranks apart, on two nodes; both ranks of a node send through its NIC.
    [apart] = plans("kaisa", inversion="eigen", cluster=eight, fraction=0.25)
    two = Cluster(2, (1, 1), wire, None)
    sent = [task for task in apart.graph.tasks if task.stream.startswith("workers")]
    # Squares of A (20, 31) and G (30, 40), and the quotients, G's by A's side.
    sizes = sorted([20**2, 31**2, 30**2, 40**2, 30 * 20, 40 * 31])
    expected = [two.cost("broadcast", 2 * 4.0 * size).seconds for size in sizes]
    assert sorted(task.duration_s for task in sent) == pytest.approx(expected)


def test_kaisa_of_release_0_3_runs_one_phase_after_the_other() -> None:
    [plan] = plans("kaisa", 2, inversion="eigen", fraction=0.5, release="0.3")
    # The larger layer goes to rank 0, the other to rank 1; both decompose and precondition at
    # once, and no broadcast begins before both are done.
    products = k(*built(KAISA))
    sums = reduce_s(1840, 2) + sum(reduce_s(side**2, 2) for side in SIDES)
    means = k(*(elementwise(side**2, 2) for side in SIDES))
    own = [
        k(
            *decomposed(layer.inputs, copied=False),
            *decomposed(layer.outputs, copied=False),
            elementwise(layer.elements, 5, 3),
            *preconditioned(layer, "eigen", quotients=True),
        )
        for layer in (FIRST, SECOND)
    ]
    sent = broadcast_s(600, 2) + broadcast_s(31 * 40, 2)
    rest = k(rescaled(FIRST), rescaled(SECOND)) + 2 * MS
    expected = PASSES + sums + products + means + max(own) + sent + rest
    assert run(plan).iteration_s == pytest.approx(expected, rel=1e-9)


def test_kaisa_of_release_0_3_awaits_eigenvectors_before_it_preconditions() -> None:
    [plan] = plans("kaisa", 2, inversion="eigen", release="0.3", symmetric=True)
    order = [name.partition(" 0.")[2] for name in names(plan, "inverse", "gradient")]
    vectors = ["sent inverses 0"] * 6
    assert order == ["inverse a", "inverse b", *vectors, "gradient a", "gradient b"]
    values = sum(side**2 for side in SIDES) + 1840
    assert plan.sent_bytes == pytest.approx(4 * (1840 + TRIANGLES) + 0.5 * 4 * values)


def test_kaisa_of_release_0_3_has_neighbours_as_workers() -> None:
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    four = Cluster(4, (2, 2), wire, bus)
    [plan] = plans("kaisa", inversion="eigen", cluster=four, fraction=0.5, release="0.3")
    sent = {task.name: task.duration_s for task in plan.graph.tasks if "sent" in task.name}
    # Eigenvectors stay on a node; gradients cross, from both ranks of a node at once.
    assert sent["broadcast 0.sent inverses 0"] < MS
    two = Cluster(2, (1, 1), wire, None)
    gradients = sorted(
        task.duration_s for task in plan.graph.tasks if task.name == "broadcast 0.sent gradients"
    )
    expected = [two.cost("broadcast", 2 * 4.0 * size).seconds for size in (600, 1240)]
    assert gradients == pytest.approx(expected)


def test_kaisa_may_send_triangles_and_other_buckets() -> None:
    whole, half = (plans("kaisa", inversion="eigen", symmetric=on)[0] for on in (False, True))
    squares = sum(side**2 for side in SIDES)
    saved = 2 * 3 / 4 * 4 * (squares - TRIANGLES)
    assert whole.sent_bytes - half.sent_bytes == pytest.approx(saved)
    # 20 and 31 squared, 31 and 40, ... : no two fit 4 kB.
    assert (
        len(names(plans("kaisa", inversion="eigen", bucket_mb=0.004)[0], "all_reduce 0.factors"))
        == 4
    )
