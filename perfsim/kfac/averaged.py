"""D-KFAC, MPD-KFAC and SPD-KFAC: factors averaged over all ranks, then inverted somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.agreement import MESSAGE_US, agreement_s
from perfsim.kernel import FLOAT, Kernel
from perfsim.kfac.factors import Factored, factor_sides, factored
from perfsim.kfac.kernels import HKBU, preconditioned, rescaled
from perfsim.kfac.pipeline import FactorFusion, Product, after_backward, in_hooks, products
from perfsim.kfac.preconditioner import Preconditioner
from perfsim.method import Compute, Job, Point, World
from perfsim.profile import Gradient, Profile

__all__ = ["Averaged"]


class Averaged(Preconditioner):
    """All ranks hold the averaged factors; ``inverses`` says who inverts them and what is sent."""

    fusion: ClassVar[str] = "threshold"

    factor_fusion: FactorFusion = Field(
        "threshold", description="fusion policy of the factors' messages"
    )
    pipelined: bool = Field(
        False, description="build and send factors in the passes' hooks, else after the backward"
    )

    cache: bool = Field(True, description="whether Horovod caches responses")
    symmetric: bool = Field(
        True, description="send upper triangles of factors and inverses only, else whole matrices"
    )

    def inverses(
        self, factors: list[Product], world: World, needs: tuple[str, ...], end: Point
    ) -> list[Job]:
        """Return the jobs that invert the factors once ``needs`` are there."""
        raise NotImplementedError

    def unpacked_inverses(self, factors: list[Product], world: World) -> tuple[Kernel, ...]:
        """Return what takes received inverses out of their messages."""
        return ()

    def agreement_s(self, tensors: int, world: World) -> float:
        """Return how long a cycle of Horovod takes to agree on its tensors [s]."""
        message_s = 1e-6 * MESSAGE_US
        return agreement_s(tensors, world.ranks, world.nodes, cache=self.cache, message_s=message_s)

    def layers(self, profile: Profile) -> list[Factored]:
        """Return the preconditioned layers; dense ones on sequences take the mean of tokens."""
        return factored(profile, mean_over_tokens=True)

    def steps(
        self, layers: list[Factored], world: World, factors: bool, inverses: bool
    ) -> tuple[list[Job], list[Job]]:
        """Return factors, inverses and the preconditioning of every layer on every rank."""
        assert world.profile is not None
        end = Point("backward", world.profile.backward_s)
        built = products(layers, HKBU, whole=not self.symmetric)
        hooks: list[Job] = []
        steps: list[Job] = []
        needs: tuple[str, ...] = ("averaged",)
        if factors:
            if self.pipelined:
                hooks = in_hooks(built, world, self.factor_fusion)
            else:
                steps = after_backward(built, world, self.factor_fusion, end)
            kernels = tuple(one for factor in built for one in factor.unpacked(mean=True))
            sent = tuple(job.name for job in (*hooks, *steps) if job.name.startswith("factors"))
            gate = Compute(kernels, "second_order")
            steps.append(Job("unpacked", (gate,), end, needs=("averaged", *sent)))
            needs = ("unpacked",)
        if inverses:
            inverting = self.inverses(built, world, needs, end)
            steps += inverting
            needs = (*needs, *(job.name for job in inverting))
            received = Compute(self.unpacked_inverses(built, world), "second_order")
            if received.kernels:
                steps.append(Job("inverses unpacked", (received,), end, needs=needs))
                needs = ("inverses unpacked",)
        rest: list[Kernel] = []
        for layer in layers:
            rest += preconditioned(layer, "cholesky")
        rest += [rescaled(layer) for layer in layers]
        last = Compute(tuple(rest), "second_order")
        steps.append(Job("preconditioned", (last,), end, needs=needs))
        return hooks, steps

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return every factor and its inverse."""
        sides = factor_sides(gradients)
        return 2.0 * FLOAT * sum(inputs**2 + outputs**2 for inputs, outputs in sides)
