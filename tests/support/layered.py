"""Models of layers with one gradient each: their plans and what these take in milliseconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfsim import fusion
from perfsim.by_size import one_by_one
from perfsim.compute.profile import Gradient, Layer, Profile
from perfsim.fusion.buckets import FusionContext
from perfsim.methods.base import Method
from perfsim.network.cluster import Cluster
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from perfsim.schedule.run import run
from support.builders import hand_device, profile, ring_cluster

MS = 1e-3


def model(sizes: list[int], forward_ms: list[float], backward_ms: float = 15.0) -> Profile:
    """Return a model of layers with one gradient each, sizes in forward order; update 2 ms."""
    count = len(sizes)
    layers = tuple(
        Layer(f"l{place}", "linear", each * MS, backward_ms * MS)
        for place, each in enumerate(forward_ms)
    )
    gradients = tuple(
        Gradient(f"l{place}.weight", (size,), (count - place) * backward_ms * MS, place)
        for place, size in enumerate(sizes)
    )
    passes_s = sum(layer.forward_s + layer.backward_s for layer in layers)
    made = profile([1], [1.0], optimizer_s=2 * MS)
    return replace(made, layers=layers, gradients=gradients, iteration_s=passes_s + 2 * MS)


def plan(
    method: Method,
    of: Profile | None = None,
    cluster: Cluster | None = None,
    policy: str = "none",
    limit_bytes: float | None = None,
    *,
    overlap: bool = True,
    **more: Any,
) -> CostedGraph:
    """Return the plan, on 4 GPUs at 1 GB/s and 1 ms a hop, of two layers with 1 MB each.

    There an all-reduce of 1 MB takes 6 + 1.5 ms, each of its halves 3.75, a push or pull 1.75;
    each layer takes 5 ms forward and 15 ms backward.
    """
    [found] = schedule(
        of or model([250_000] * 2, [5.0, 5.0]),
        method,
        fusion.load_policy(policy).fuse,
        hand_device(),
        cluster or ring_cluster(4, "1GB/s,1ms"),
        algorithm="ring",
        limit_bytes=limit_bytes,
        overlap=overlap,
        **more,
    )
    return found


def milliseconds(found: CostedGraph) -> float:
    """Return the period [ms]."""
    return float(run(found).period_s) / MS


def names(found: CostedGraph, start: str) -> list[str]:
    """Return the names of the tasks that start so, in issue order."""
    return [task.name for task in found.graph.tasks if task.name.startswith(start)]


def start_ms(found: CostedGraph, name: str) -> float:
    """Return when a task of the first iteration starts [ms]."""
    place = [task.name for task in found.graph.tasks].index(name)
    return float(run(found).starts[0][place]) / MS


def context(limit_bytes: float | None) -> FusionContext:
    """Return a context of a limit, a backward pass of 1 s and a second a byte."""
    return FusionContext(limit_bytes, 1.0, lambda one: one.size_bytes, lambda _: one_by_one(float))
