"""What the stages of methods that select send, run and take."""

from __future__ import annotations

from typing import Any

from perfsim import fusion
from perfsim.compute.kernel import Kernel
from perfsim.methods import load_method
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, Send
from perfsim.network.cluster import Cluster
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from support.builders import bucket, gradient, hand_device, profile


def sends(stages: list[JobStage]) -> list[tuple[str, float]]:
    """Return (collective, bytes) of the sends."""
    return [(stage.collective, stage.size_bytes) for stage in stages if isinstance(stage, Send)]


def kernels(stages: list[JobStage], kind: str) -> list[Kernel]:
    """Return the kernels of one kind of computation."""
    return [
        kernel
        for stage in stages
        if isinstance(stage, Compute) and stage.kind == kind
        for kernel in stage.kernels
    ]


def moved(found: list[Kernel]) -> float:
    """Return the bytes that kernels read and write."""
    return sum(kernel.moved_bytes for kernel in found)


def of(
    name: str, elements: int, ranks: int = 8, iteration: int = 0, **options: Any
) -> list[JobStage]:
    """Return the stages of a method with options on one matrix."""
    method = load_method(name, options)
    return method.stages(bucket(gradient((elements, 1))), MethodContext(ranks), iteration)


def plans(
    method: Method, cluster: Cluster, sizes: list[int], ready_s: list[float] | None = None
) -> list[CostedGraph]:
    """Return the plans for gradients of these sizes, ready after 10 ms unless told otherwise."""
    return schedule(
        profile(list(sizes), ready_s or [0.01] * len(sizes), forward_s=0.01),
        method,
        fusion.load_policy(method.default_fusion()).fuse,
        hand_device(),
        cluster,
        algorithm="ring",
    )


def time_s(cluster: Cluster, stages: list[JobStage]) -> float:
    """Return what the sends take on a cluster, one after the other."""
    return sum(
        cluster.served(stage.servers)
        .of(stage.group, stage.collective, stage.size_bytes, stage.algorithm)
        .seconds
        for stage in stages
        if isinstance(stage, Send)
    )
