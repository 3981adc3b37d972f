"""What methods that select send to which group, and their plans for one bucket."""

from __future__ import annotations

from perfsim import fusion
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import JobStage, Method, Send
from perfsim.network.cluster import Cluster
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from support.builders import hand_device, profile


def sends(stages: list[JobStage]) -> list[tuple[str, float, object]]:
    """Return (collective, bytes, group) of the sends."""
    return [
        (stage.collective, stage.size_bytes, stage.group)
        for stage in stages
        if isinstance(stage, Send)
    ]


def plans(method: Method, one: Bucket, cluster: Cluster) -> list[CostedGraph]:
    """Return the plans for the gradients of one bucket, ready after 10 ms."""
    shapes = [gradient.shape for gradient in one.gradients]
    return schedule(
        profile(shapes, [0.01] * len(shapes), forward_s=0.01, optimizer_s=0.001),
        method,
        fusion.load_policy(method.default_fusion()).fuse,
        hand_device(),
        cluster,
        algorithm="ring",
    )
