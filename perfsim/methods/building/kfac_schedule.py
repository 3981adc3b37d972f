"""The schedule of K-FAC: messages of factors, intervals of updates, and the gradients' exchange.

Factors are built in the passes or after them, fused and all-reduced. The fusion policies are those
of gradients. In the passes a factor is ready when its layer begins (A, forward) or has ended (G,
backward), plus the time of the factors built before it in that pass. D-KFAC, MPD-KFAC and SPD-KFAC
average the factors over all ranks and then invert them (`AveragedFactors`).
"""

from collections.abc import Sequence
from math import lcm
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from perfsim import fusion
from perfsim.by_size import one_by_one
from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.compute.profile import Gradient, Profile
from perfsim.fusion.buckets import Bucket, FusionContext
from perfsim.methods.base import (
    Compute,
    Job,
    JobStage,
    Method,
    MethodContext,
    PassPoint,
    Phase,
    Round,
    Send,
)
from perfsim.methods.building.code_bases import HOROVOD_FORK, CodeBase
from perfsim.methods.building.kfac_factors import (
    HKBU,
    Code,
    Inversion,
    KfacLayer,
    factor_sides,
    inverse_kernels,
    kfac_layers,
    local_kernels,
    packed_triangle,
    preconditioned,
    rescaled,
    triangle,
    unpacked_triangle,
)
from perfsim.methods.building.negotiation import MESSAGE_US, negotiation_s
from perfsim.sums import sum_in_order

__all__ = [
    "AveragedFactors",
    "FactorFusion",
    "KroneckerFactor",
    "Preconditioner",
    "after_backward",
    "in_hooks",
    "kronecker_factors",
    "packing",
]

FactorFusion = Literal["threshold", "mgwfbp", "optimal", "none", "whole"]
"""Names of the fusion policies that can fuse factors."""


class KroneckerFactor(NamedTuple):
    """One factor: its name, its side, the kernels that build it, and where its hook runs.

    A ``whole`` matrix is sent as it is. Otherwise the upper triangle is packed, sent and unpacked;
    of its inverse too, but eigenvectors are no symmetric matrix and go as they are.
    """

    name: str
    side: int
    kernels: tuple[Kernel, ...]
    hook: PassPoint
    whole: bool = False
    inversion: Inversion = "cholesky"

    @property
    def values(self) -> int:
        """Number of values sent for it."""
        return self.side**2 if self.whole else triangle(self.side)

    @property
    def packed(self) -> tuple[Kernel, ...]:
        """Kernels that pack it into a message; none for a whole matrix."""
        return () if self.whole else (packed_triangle(self.side),)

    def unpacked(self, *, mean: bool = False) -> tuple[Kernel, ...]:
        """Return the kernels that unpack it from a message; ``mean`` also divides by the ranks."""
        if self.whole:
            return (elementwise(self.side**2, 2),) if mean else ()
        return unpacked_triangle(self.side, mean=mean)

    @property
    def inverse(self) -> tuple[Kernel, ...]:
        """Kernels that invert it."""
        return inverse_kernels(self.side, self.inversion)

    @property
    def inverse_bytes(self) -> tuple[float, ...]:
        """Bytes of each message of its inverse: the inverse, or eigenvectors and eigenvalues."""
        eigen = self.side**2, self.side
        values = eigen if self.inversion == "eigen" else (self.values,)
        return tuple(float(FLOAT * count) for count in values)

    @property
    def inverse_packed(self) -> tuple[Kernel, ...]:
        """Kernels that pack its inverse into a message."""
        return () if self.inversion == "eigen" else self.packed

    @property
    def inverse_unpacked(self) -> tuple[Kernel, ...]:
        """Kernels that unpack its inverse from a message."""
        return () if self.inversion == "eigen" else self.unpacked()


def kronecker_factors(
    layers: Sequence[KfacLayer],
    code: Code,
    *,
    whole: bool = False,
    inversion: Inversion = "cholesky",
) -> list[KroneckerFactor]:
    """Return A and G of every layer, in forward order of the layers."""
    factors = []
    for layer in layers:
        begins, ends = PassPoint("forward", layer.begins_s), PassPoint("backward", layer.ready_s)
        factors += [
            KroneckerFactor(
                f"{layer.name} A", layer.inputs, code.input_factor(layer), begins, whole, inversion
            ),
            KroneckerFactor(
                f"{layer.name} G", layer.outputs, code.output_factor(layer), ends, whole, inversion
            ),
        ]
    return factors


def messages(
    factors: Sequence[KroneckerFactor], ready_s: Sequence[float], world: MethodContext, policy: str
) -> list[list[KroneckerFactor]]:
    """Return the factors of each message, in order."""
    by_name = {factor.name: factor for factor in factors}
    context = FusionContext(
        limit_bytes=None,
        backward_s=max(ready_s),
        message_bytes=lambda tensor: tensor.size_bytes,
        by_size=lambda collective: one_by_one(
            lambda size: world.collective_s(collective, size, "all")
        ),
    )
    tensors = [
        Gradient(factor.name, (factor.values,), moment_s, 0)
        for factor, moment_s in zip(factors, ready_s, strict=True)
    ]
    buckets = fusion.load_policy(policy).fuse(tensors, context)
    return [[by_name[tensor.name] for tensor in bucket.gradients] for bucket in buckets]


def size_bytes(factors: Sequence[KroneckerFactor]) -> float:
    """Return the bytes of a message of factors."""
    return 4.0 * sum(factor.values for factor in factors)


def packing(factors: Sequence[KroneckerFactor], *, blocks: bool = False) -> tuple[Compute, ...]:
    """Return the stage that packs factors, or none if they are sent whole."""
    kernels = tuple(kernel for factor in factors for kernel in factor.packed)
    return (Compute(kernels, "second_order", blocks=blocks),) if kernels else ()


def in_hooks(factors: Sequence[KroneckerFactor], world: MethodContext, policy: str) -> list[Job]:
    """Return each factor's product in its hook, and each message after its last factor."""
    jobs: list[Job] = []
    phases: tuple[Phase, ...] = ("forward", "backward")
    for phase in phases:
        in_pass = sorted(
            (factor for factor in factors if factor.hook.phase == phase),
            key=lambda factor: factor.hook.seconds,
        )
        built_s, ready_s = 0.0, []
        for factor in in_pass:
            jobs.append(Job(factor.name, (Compute(factor.kernels, "second_order"),), factor.hook))
            kernels = (*factor.kernels, *factor.packed)
            built_s += sum_in_order(world.kernel_s(kernel) for kernel in kernels)
            ready_s.append(factor.hook.seconds + built_s)
        for number, group in enumerate(messages(in_pass, ready_s, world, policy)):
            names = tuple(factor.name for factor in group)
            # The host waits until factors are packed before it submits the message.
            stages: tuple[JobStage, ...] = packing(group, blocks=True)
            stages += (Send("all_reduce", size_bytes(group)),)
            jobs.append(Job(f"factors {phase} {number}", stages, group[-1].hook, needs=names))
    return jobs


def after_backward(
    factors: Sequence[KroneckerFactor], world: MethodContext, policy: str, end: PassPoint
) -> list[Job]:
    """Return the jobs that build all A, then all G, after the gradients are averaged.

    Each message is packed and sent in its turn after that.
    """
    in_order = [factor for side in ("forward", "backward") for factor in factors
                if factor.hook.phase == side]  # fmt: skip
    kernels = tuple(kernel for factor in in_order for kernel in factor.kernels)
    jobs = [Job("products", (Compute(kernels, "second_order"),), end, needs=("averaged",))]
    groups = messages(factors, [0.0] * len(factors), world, policy)
    for number, group in enumerate(groups):
        stages: tuple[JobStage, ...] = packing(group)
        stages += (Send("all_reduce", size_bytes(group)),)
        jobs.append(Job(f"factors {number}", stages, end, needs=("products",)))
    return jobs


FACTORS, INVERSES = 1, 2
"""Bits of an iteration's number that say what the iteration updates."""


class Preconditioner(Method):
    """A K-FAC method: averages gradients by one all-reduce per bucket, then preconditions layers.

    ``factor_interval`` and ``inverse_interval`` are the iterations from one update to the next.
    A period has four kinds of iterations: both updated, factors alone, inverses alone, neither.
    Each kind is a round of its own. On one GPU it builds, inverts and preconditions every layer
    itself and sends nothing; its ``code`` says with which operations.
    """

    family: ClassVar[str] = "second order"
    works_alone: ClassVar[bool] = True
    code: ClassVar[Code] = HKBU

    inversion: Inversion = Field(
        "cholesky", description="damped inverses, or eigenvectors and eigenvalues"
    )
    factor_interval: int = Field(1, ge=1, description="iterations between updates of the factors")
    inverse_interval: int = Field(1, ge=1, description="iterations between updates of inverses")

    def refusal(self, world: MethodContext) -> str:
        """Return why the method cannot run if the model's positions are missing, or ""."""
        profile = world.profile
        if profile is not None and profile.frozen:
            return "preconditions a model's own layers, which adapters leave frozen: leave out lora"
        if profile is None or not self.layers(profile):
            model = profile.model if profile else "the model"
            return f"needs the positions of {model}, and there is no {model}.positions.csv"
        return ""

    def layers(self, profile: Profile) -> list[KfacLayer]:
        """Return the layers that are preconditioned, in forward order."""
        return kfac_layers(profile)

    def rounds(self) -> list[Round]:
        """Return the rounds that update both, factors alone, inverses alone, and nothing."""
        period = lcm(self.factor_interval, self.inverse_interval)
        factors = period // self.factor_interval - 1
        inverses = period // self.inverse_interval - 1
        counts = {
            FACTORS | INVERSES: 1,
            FACTORS: factors,
            INVERSES: inverses,
            0: period - 1 - factors - inverses,
        }
        return [Round((kind,), count) for kind, count in counts.items() if count]

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the gradients' jobs, with those of ``steps`` before and after them."""
        assert world.profile is not None  # refusal() has checked it
        updated = bool(iteration & FACTORS), bool(iteration & INVERSES)
        layers = self.layers(world.profile)
        if world.ranks == 1:
            return [self.alone(layers, PassPoint("backward", world.profile.backward_s), *updated)]
        gradients = [
            Job(
                f"{number}",
                (Send("all_reduce", bucket.size_bytes),),
                PassPoint("backward", bucket.ready_s),
            )
            for number, bucket in enumerate(buckets)
        ]
        averaged = Job(
            "averaged",
            (Compute((), "second_order"),),
            PassPoint("backward", world.profile.backward_s),
            needs=tuple(job.name for job in gradients),
        )
        hooks, steps = self.steps(layers, world, *updated)
        return [*hooks, *gradients, averaged, *steps]

    def alone(
        self, layers: Sequence[KfacLayer], end: PassPoint, factors: bool, inverses: bool
    ) -> Job:
        """Return all kernels of one GPU: factors, inverses, preconditioning, new gradients."""
        kernels: list[Kernel] = []
        for layer in layers:
            kernels += self.own_kernels(layer, factors, inverses)
        kernels += [rescaled(layer) for layer in layers]
        return Job("preconditioned", (Compute(tuple(kernels), "second_order"),), end)

    def own_kernels(self, layer: KfacLayer, factors: bool, inverses: bool) -> list[Kernel]:
        """Return the kernels of a rank for a layer whose factors it builds and inverts alone."""
        return local_kernels(layer, self.code, self.inversion, factors, inverses)

    def steps(
        self, layers: list[KfacLayer], world: MethodContext, factors: bool, inverses: bool
    ) -> tuple[list[Job], list[Job]]:
        """Return the jobs in the passes, and the jobs after the job "averaged"."""
        raise NotImplementedError


class AveragedFactors(Preconditioner):
    """A K-FAC method whose ranks all hold the averaged factors.

    A subclass implements ``inverses``: which rank inverts which factor, and what it sends.
    """

    fusion: ClassVar[str] = "threshold"
    runs_in: ClassVar[CodeBase] = HOROVOD_FORK

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
        self,
        factors: list[KroneckerFactor],
        world: MethodContext,
        needs: tuple[str, ...],
        end: PassPoint,
    ) -> list[Job]:
        """Return the jobs that invert the factors after the jobs in ``needs``."""
        raise NotImplementedError

    def unpacked_inverses(
        self, factors: list[KroneckerFactor], world: MethodContext
    ) -> tuple[Kernel, ...]:
        """Return the kernels that unpack received inverses from their messages."""
        return ()

    def negotiation_s(self, tensors: int, world: MethodContext) -> float:
        """Return the time of Horovod's negotiation over the tensors of one cycle [s]."""
        message_s = 1e-6 * MESSAGE_US
        return negotiation_s(
            tensors, world.ranks, world.nodes, cache=self.cache, message_s=message_s
        )

    def layers(self, profile: Profile) -> list[KfacLayer]:
        """Return the preconditioned layers; dense ones on sequences take the mean over tokens."""
        return kfac_layers(profile, mean_over_tokens=True)

    def steps(
        self, layers: list[KfacLayer], world: MethodContext, factors: bool, inverses: bool
    ) -> tuple[list[Job], list[Job]]:
        """Return the jobs for factors, inverses and preconditioning, on every rank."""
        assert world.profile is not None
        end = PassPoint("backward", world.profile.backward_s)
        built = kronecker_factors(
            layers, self.code, whole=not self.symmetric, inversion=self.inversion
        )
        hooks: list[Job] = []
        steps: list[Job] = []
        needs: tuple[str, ...] = ("averaged",)
        if factors:
            if self.pipelined:
                hooks = in_hooks(built, world, self.factor_fusion)
            else:
                steps = after_backward(built, world, self.factor_fusion, end)
            kernels = tuple(kernel for factor in built for kernel in factor.unpacked(mean=True))
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
            rest += preconditioned(layer, self.inversion)
        rest += [rescaled(layer) for layer in layers]
        last = Compute(tuple(rest), "second_order")
        steps.append(Job("preconditioned", (last,), end, needs=needs))
        return hooks, steps

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of every factor and its inverse."""
        sides = factor_sides(gradients)
        return 2.0 * FLOAT * sum(inputs**2 + outputs**2 for inputs, outputs in sides)
