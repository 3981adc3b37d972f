"""Small profiles, clusters and tuners that tests can compute by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from perfsim.compute.device import Device
from perfsim.compute.profile import Gradient, Layer, Profile
from perfsim.fusion.buckets import Bucket
from perfsim.libraries.nccl import NcclTuner
from perfsim.network.cluster import Cluster
from perfsim.network.link import Link, custom_link
from perfsim.quantity import Quantity


def gradient(elements: int | tuple[int, ...], ready_s: float = 0.0, name: str = "w") -> Gradient:
    """Return a gradient of a shape, ready at a moment."""
    shape = elements if isinstance(elements, tuple) else (elements,)
    return Gradient(name, shape, ready_s, 0)


def bucket(*gradients: Gradient) -> Bucket:
    """Return gradients as one bucket."""
    return Bucket(gradients, max(one.ready_s for one in gradients))


def profile(
    sizes: list[int | tuple[int, ...]],
    ready_s: list[float],
    *,
    backward_s: float | None = None,
    forward_s: float = 0.0,
    optimizer_s: float = 0.0,
) -> Profile:
    """Return a profile whose gradients, in ready order, have these sizes and moments."""
    backward_s = max(ready_s) if backward_s is None else backward_s
    made = [
        gradient(size, ready, f"t{number}")
        for number, (size, ready) in enumerate(zip(sizes, ready_s, strict=True))
    ]
    assert all(a <= b for a, b in pairwise(ready_s))
    return Profile(
        model="hand",
        gpu="v100",
        precision="fp32",
        batch=1,
        iteration_s=forward_s + backward_s + optimizer_s,
        optimizer_s=optimizer_s,
        layers=(Layer("all", "linear", forward_s, backward_s),),
        gradients=tuple(reversed(made)),
        kinds={},
        header={"source": "by hand"},
        positions={"all": 1},
    )


def ring_cluster(ranks: int, link: str) -> Cluster:
    """Return ``ranks`` nodes of one GPU on one link, ``rate,latency``."""
    wire: Link = custom_link(link, "test")
    return Cluster(ranks, (1,) * ranks, wire, None)


def hand_device() -> Device:
    """Return a GPU of round numbers: 1 TB/s, 10 TFLOP/s, 10 us a launch, no measured kernels."""
    source = "by hand"
    return Device(
        name="hand",
        title="hand",
        aliases=(),
        memory_bytes=1e10,
        memory_bandwidth=Quantity(1e12, "B/s", "derived", source),
        launch_s=Quantity(1e-5, "s", "derived", source),
        rates={"fp32": Quantity(1e13, "FLOP/s", "derived", source)},
    )


def tuner(
    version: str,
    ranks: int,
    nodes: int,
    gpu: str,
    cpu: str,
    intra: str,
    bus: float,
    channels: int,
    **more: Any,
) -> NcclTuner:
    """Return a tuner; bus bandwidth in GB/s."""
    return NcclTuner(version, ranks, nodes, gpu, cpu, intra, bus, channels, **more)
