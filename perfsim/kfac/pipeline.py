"""Factors to messages: built in the passes or after them, fused, and all-reduced.

Fusion policies are those of gradients. In the passes a factor is ready when its layer begins
(A, forward) or has ended (G, backward), later by the factors built before it in that pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perfsim import fusion
from perfsim.fusion.bucket import FusionContext
from perfsim.kernel import Kernel, elementwise
from perfsim.kfac.factors import Factored, triangle
from perfsim.kfac.kernels import Code, packed, unpacked
from perfsim.method import Compute, Job, Point, Send, Stage, World
from perfsim.profile import Gradient
from perfsim.stage import Phase

__all__ = ["FactorFusion", "Product", "after_backward", "in_hooks", "packing", "products"]

FactorFusion = Literal["threshold", "mgwfbp", "optimal", "none", "whole"]
"""Fusion policies that make sense for factors, by their names."""


@dataclass(frozen=True, slots=True)
class Product:
    """One factor: its name, side, the kernels that build it, and where its hook runs.

    Of a matrix that is not ``whole`` the upper triangle is packed, sent and unpacked.
    """

    name: str
    side: int
    kernels: tuple[Kernel, ...]
    hook: Point
    whole: bool = False

    @property
    def values(self) -> int:
        """Values that are sent of it, or of its inverse."""
        return self.side**2 if self.whole else triangle(self.side)

    @property
    def packed(self) -> tuple[Kernel, ...]:
        """What fills a message."""
        return () if self.whole else (packed(self.side),)

    def unpacked(self, *, mean: bool = False) -> tuple[Kernel, ...]:
        """Return what takes it out of a message; ``mean`` also divides by the ranks."""
        if self.whole:
            return (elementwise(self.side**2, 2),) if mean else ()
        return unpacked(self.side, mean=mean)


def products(layers: Sequence[Factored], code: Code, *, whole: bool = False) -> list[Product]:
    """Return A and G of every layer, in forward order of the layers."""
    found = []
    for layer in layers:
        begins, ends = Point("forward", layer.begins_s), Point("backward", layer.ready_s)
        found += [
            Product(f"{layer.name} A", layer.inputs, code.input_factor(layer), begins, whole),
            Product(f"{layer.name} G", layer.outputs, code.output_factor(layer), ends, whole),
        ]
    return found


def messages(
    factors: Sequence[Product], ready_s: Sequence[float], world: World, policy: str
) -> list[list[Product]]:
    """Return the factors of each message, in order."""
    known = {factor.name: factor for factor in factors}
    context = FusionContext(
        limit_bytes=None,
        backward_s=max(ready_s),
        message_bytes=lambda tensor: tensor.size_bytes,
        all_reduce_s=lambda size: world.collective_s("all_reduce", size, "all"),
    )
    tensors = [
        Gradient(factor.name, (factor.values,), moment_s, 0)
        for factor, moment_s in zip(factors, ready_s, strict=True)
    ]
    buckets = fusion.load(policy).fuse(tensors, context)
    return [[known[tensor.name] for tensor in bucket.gradients] for bucket in buckets]


def size_bytes(factors: Sequence[Product]) -> float:
    """Return the bytes of a message of factors."""
    return 4.0 * sum(factor.values for factor in factors)


def packing(factors: Sequence[Product], *, blocks: bool = False) -> tuple[Compute, ...]:
    """Return the stage that packs factors; none where they are sent whole."""
    kernels = tuple(kernel for factor in factors for kernel in factor.packed)
    return (Compute(kernels, "second_order", blocks=blocks),) if kernels else ()


def in_hooks(factors: Sequence[Product], world: World, policy: str) -> list[Job]:
    """Return each factor's product in its hook, and each message after its last factor."""
    jobs: list[Job] = []
    phases: tuple[Phase, ...] = ("forward", "backward")
    for phase in phases:
        own = sorted(
            (factor for factor in factors if factor.hook.phase == phase),
            key=lambda factor: factor.hook.seconds,
        )
        built_s, ready_s = 0.0, []
        for factor in own:
            jobs.append(Job(factor.name, (Compute(factor.kernels, "second_order"),), factor.hook))
            kernels = (*factor.kernels, *factor.packed)
            built_s += sum(world.kernel_s(kernel) for kernel in kernels)
            ready_s.append(factor.hook.seconds + built_s)
        for number, group in enumerate(messages(own, ready_s, world, policy)):
            names = tuple(factor.name for factor in group)
            # The host waits for the packed factors before it hands a message over.
            stages: tuple[Stage, ...] = packing(group, blocks=True)
            stages += (Send("all_reduce", size_bytes(group)),)
            jobs.append(Job(f"factors {phase} {number}", stages, group[-1].hook, needs=names))
    return jobs


def after_backward(factors: Sequence[Product], world: World, policy: str, end: Point) -> list[Job]:
    """Return all A, then all G, once gradients are averaged; then messages as they are packed."""
    in_order = [factor for side in ("forward", "backward") for factor in factors
                if factor.hook.phase == side]  # fmt: skip
    kernels = tuple(kernel for factor in in_order for kernel in factor.kernels)
    jobs = [Job("products", (Compute(kernels, "second_order"),), end, needs=("averaged",))]
    groups = messages(factors, [0.0] * len(factors), world, policy)
    for number, group in enumerate(groups):
        stages: tuple[Stage, ...] = packing(group)
        stages += (Send("all_reduce", size_bytes(group)),)
        jobs.append(Job(f"factors {number}", stages, end, needs=("products",)))
    return jobs
