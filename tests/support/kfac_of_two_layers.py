"""A model of two layers: plans of K-FAC methods and what each of their parts takes, by hand."""

from __future__ import annotations

from typing import Any

from perfsim import fusion
from perfsim.compute.kernel import Kernel
from perfsim.compute.profile import Gradient, Layer, Profile
from perfsim.methods import load_method
from perfsim.methods.building.kfac_factors import (
    HKBU,
    Code,
    kfac_layers,
    packed_triangle,
    preconditioned,
    rescaled,
    triangle,
    unpacked_triangle,
)
from perfsim.network.cluster import Cluster
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import hand_device, ring_cluster

MS = 1e-3
SIDES = (20, 30, 31, 40)
"""Of A and G of the first layer, of A (one more for the bias) and G of the second."""

TWO = Profile(
    model="two",
    gpu="v100",
    precision="fp32",
    batch=5,
    iteration_s=42 * MS,
    optimizer_s=2 * MS,
    layers=(Layer("a", "conv", 4 * MS, 20 * MS), Layer("b", "linear", 6 * MS, 10 * MS)),
    gradients=(
        Gradient("a.weight", (30, 20, 1, 1), 30 * MS, 0),
        Gradient("b.weight", (40, 30), 10 * MS, 1),
        Gradient("b.bias", (40,), 10 * MS, 1),
    ),
    kinds={},
    header={},
    positions={"a": 2, "b": 1},
)
"""Forward 10 ms, backward 30, update 2; 600 and 1240 parameters; 10 and 5 rows."""

FIRST, SECOND = kfac_layers(TWO)
PASSES = 40 * MS


def plans(
    name: str, ranks: int = 4, cluster: Cluster | None = None, **options: Any
) -> list[CostedGraph]:
    """Return the plans on a ring with 1 ms and 1 ns/B a hop, gradients in one message."""
    return schedule(
        TWO,
        load_method(name, options),
        fusion.load_policy("whole").fuse,
        hand_device(),
        cluster or ring_cluster(ranks, "1GB/s,1ms"),
        algorithm="ring",
    )


def took(name: str, ranks: int = 4, **options: Any) -> float:
    """Return the iteration [s] of a method that has one round."""
    [plan] = plans(name, ranks, **options)
    return float(run(plan).iteration_s)


def k(*kernels: Kernel) -> float:
    """Return the time of some kernels [s]."""
    return sum(hand_device().cost(kernel).seconds for kernel in kernels)


def reduce_s(values: float, ranks: int) -> float:
    """Return a ring's all-reduce of so many fp32 values: 2 (P-1) hops of 1 ms and values/P."""
    return 2 * (ranks - 1) * (MS + 4 * values / ranks * 1e-9)


def broadcast_s(values: float, ranks: int) -> float:
    """Return what the cluster takes for a broadcast."""
    return ring_cluster(ranks, "1GB/s,1ms").cost("broadcast", 4.0 * values).seconds


def built(code: Code = HKBU) -> list[Kernel]:
    """Return the kernels that build all four factors."""
    return [
        kernel
        for layer in (FIRST, SECOND)
        for kernel in (*code.input_factor(layer), *code.output_factor(layer))
    ]


def names(plan: CostedGraph, *words: str) -> list[str]:
    """Return the names of the tasks that hold one of the words, in issue order."""
    found = [task.name for task in plan.graph.tasks]
    return [name for name in found if any(word in name for word in words)]


TRIANGLES = sum(map(triangle, SIDES))
END = k(*preconditioned(FIRST, "cholesky"), *preconditioned(SECOND, "cholesky")) + k(
    rescaled(FIRST), rescaled(SECOND)
)


def until_unpacked(ranks: int) -> float:
    """Return when bulk factors are there: passes, gradients, products, packing, message."""
    return (
        PASSES
        + reduce_s(1840, ranks)
        + k(*built())
        + k(*map(packed_triangle, SIDES))
        + reduce_s(TRIANGLES, ranks)
        + sum(k(*unpacked_triangle(side, mean=True)) for side in SIDES)
    )
