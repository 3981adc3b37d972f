"""Dense methods on gradients of 1 MB: their plans and iterations in milliseconds."""

from __future__ import annotations

from typing import Any

from perfsim import fusion
from perfsim.methods import load_method
from perfsim.network.cluster import Cluster
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import hand_device, profile, ring_cluster

MS = 1e-3
SLOW = "1GB/s,1ms"


def stages_and_kernels(made: CostedGraph) -> list[Any]:
    """Return what each task does of a method, by value."""
    return [work and (work.stage, work.kernels) for work in made.work]


def planned(
    name: str,
    options: dict[str, Any] | None = None,
    *,
    ready_ms: tuple[float, ...] = (10, 30),
    fused: str = "",
    cluster: Cluster | None = None,
    backward_ms: float = 30,
    **more: Any,
) -> CostedGraph:
    """Return the plan for gradients of 1 MB; forward 10, backward 30, update 2 ms.

    A ring of 4 all-reduces 1 MB in 6 + 1.5 = 7.5 ms and 2 MB in 6 + 3 = 9 ms.
    """
    method = load_method(name, options or {})
    [plan] = schedule(
        profile(
            [(500, 500)] * len(ready_ms),
            [ready * MS for ready in ready_ms],
            forward_s=10 * MS,
            backward_s=backward_ms * MS,
            optimizer_s=2 * MS,
        ),
        method,
        fusion.load_policy(fused or method.default_fusion()).fuse,
        hand_device(),
        cluster or ring_cluster(4, SLOW),
        algorithm="ring",
        **more,
    )
    return plan


def took_ms(plan: CostedGraph) -> float:
    """Return the iteration in milliseconds."""
    return float(run(plan).iteration_s) / MS
