"""What quantising methods send and run: of one gradient, and in a plan of two."""

from __future__ import annotations

from perfsim import fusion
from perfsim.methods import load_method
from perfsim.methods.base import Compute, Method, MethodContext, Send
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from support.builders import bucket, gradient, hand_device, profile, ring_cluster

Sent = tuple[str, float]


def sends(method: Method, elements: int, world: MethodContext) -> list[Sent]:
    """Return (collective, bytes) of the sends of one gradient."""
    return [
        (stage.collective, stage.size_bytes)
        for stage in method.stages(bucket(gradient(elements)), world, 0)
        if isinstance(stage, Send)
    ]


def computes(method: Method, elements: int, ranks: int) -> list[Compute]:
    """Return the computing stages of one gradient."""
    stages = method.stages(bucket(gradient(elements)), MethodContext(ranks), 0)
    return [stage for stage in stages if isinstance(stage, Compute)]


def passes(stage: Compute, elements: int) -> float:
    """Return how many times a stage reads or writes ``elements`` fp32 values."""
    return sum(kernel.moved_bytes for kernel in stage.kernels) / (4.0 * elements)


def plan(name: str, options: dict[str, str], ranks: int) -> CostedGraph:
    """Return the plan for a model of two tensors on equal hops."""
    method = load_method(name, options)
    made = profile([(640, 32), 64], [0.010, 0.012], backward_s=0.013, forward_s=0.006)
    fuse = fusion.load_policy(method.default_fusion()).fuse
    return schedule(made, method, fuse, hand_device(), ring_cluster(ranks, "1GB/s,20us"))[0]
