"""Methods of fewer exchanges: plans and the time of their iterations.

Two gradients of 1 MB; forward 10, backward 30 (ready at 10 and 30), update 2 ms: 42 ms. Four
single-GPU nodes at 1 GB/s and 1 ms: an all-reduce of n takes 6 ms + 1.5 n, a message 1 ms + n. A
kernel takes its bytes at 1 TB/s and 10 us a launch.
"""

from __future__ import annotations

from typing import Any

from perfsim import fusion
from perfsim.methods import load_method
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import hand_device, profile, ring_cluster

MS = 1e-3
FAST, SLOW = "1GB/s,1ms", "20MB/s,1ms"


def pairs() -> Cluster:
    """Return two nodes of two GPUs: in the node 1 us and 10 GB/s, between them 1 ms and 1 GB/s."""
    return Cluster(4, (2, 2), custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test"))


def plans(
    name: str, options: dict[str, Any], cluster: Cluster | str = FAST, **more: Any
) -> list[CostedGraph]:
    """Return the plans of a method with options."""
    method = load_method(name, options)
    return schedule(
        profile([(500, 500)] * 2, [10 * MS, 30 * MS], forward_s=10 * MS, optimizer_s=2 * MS),
        method,
        fusion.load_policy(more.pop("fusion", method.default_fusion())).fuse,
        hand_device(),
        ring_cluster(4, cluster) if isinstance(cluster, str) else cluster,
        algorithm="ring",
        **more,
    )


def times(found: list[CostedGraph]) -> list[tuple[float, float]]:
    """Return (weight, milliseconds of an iteration) of each round."""
    return [(plan.count, float(run(plan).iteration_s) / MS) for plan in found]


def mean_ms(found: list[CostedGraph]) -> float:
    """Return the mean iteration [ms]."""
    total = sum(plan.iterations for plan in found)
    return sum(plan.iterations * float(run(plan).iteration_s) for plan in found) / total / MS
