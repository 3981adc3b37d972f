"""DP-KFAC: each layer's factors on one rank, from its own samples; it sends new gradients."""

from collections.abc import Sequence
from typing import ClassVar

from perfsim.compute.kernel import FLOAT
from perfsim.compute.profile import Gradient, Profile
from perfsim.methods.base import Compute, Job, JobStage, MethodContext, PassPoint, Send
from perfsim.methods.building.code_bases import HOROVOD_FORK, CodeBase
from perfsim.methods.building.kfac_factors import (
    HKBU_LATER,
    Code,
    KfacLayer,
    factor_sides,
    kfac_layers,
    rescaled,
)
from perfsim.methods.building.kfac_placement import busiest_rank, round_robin
from perfsim.methods.building.kfac_schedule import Preconditioner
from perfsim.sums import sum_in_order


class DpKfac(Preconditioner):
    """Sends gradients dense as S-SGD, then every preconditioned gradient by a broadcast.

    Layers are assigned to the ranks in turn; only a layer's owner keeps its input and output
    gradients. Work starts once Horovod has averaged the gradients. Each rank builds A and G of its
    own layers from the local batch (no factor is sent). Then come their damped inverses
    (``inversion`` eigen: eigendecompositions), then G^-1 W A^-1. One broadcast a layer follows, in
    layer order. Each involves every rank, so the first waits for the busiest one. All ranks scale
    and write the new gradients. Preconditioning and broadcasts happen in every iteration.

    The code has both kinds ("inverse_dp", "eigen_dp"). Its scripts train with the inverse by
    default and time it against the inverse forms of MPD-KFAC and KAISA, so that is the default
    here, as for every K-FAC method.

    Bytes a rank: 2 (P-1)/P x 4 n + (P-1)/P x 4 n (the second with the bias).
    Memory: factors and inverses of the own layers, 8 (a^2 + g^2) bytes each, on the rank with most,
    and every layer's preconditioned gradient.
    Left out: padding of input maps; Horovod's copies into and out of its buffer and its negotiation
    of each broadcast; saved output gradients.
    """

    summary: ClassVar[str] = "K-FAC from local factors, preconditioned gradients sent (DP-KFAC)"
    citation: ClassVar[str] = (
        "Zhang et al. 2022, Scalable K-FAC Training with Distributed Preconditioning, arXiv"
        " 2206.15143; code lzhangbv/kfac_pytorch@c45acb8f kfac/kfac_preconditioner_inv_dp.py,"
        " kfac_preconditioner_eigen_dp.py, examples/pytorch_imagenet_resnet.py"
    )
    fusion: ClassVar[str] = "threshold"
    runs_in: ClassVar[CodeBase] = HOROVOD_FORK
    code: ClassVar[Code] = HKBU_LATER
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n + (P - 1) / P * 4 * n"

    def layers(self, profile: Profile) -> list[KfacLayer]:
        """Return the preconditioned layers; dense ones on sequences take the mean over tokens."""
        return kfac_layers(profile, mean_over_tokens=True)

    def steps(
        self, layers: list[KfacLayer], world: MethodContext, factors: bool, inverses: bool
    ) -> tuple[list[Job], list[Job]]:
        """Return the busiest rank's own layers, all broadcasts, and the new gradients."""
        assert world.profile is not None
        work = [self.own_kernels(layer, factors, inverses) for layer in layers]
        owners = round_robin(len(layers), world.ranks)
        rank = busiest_rank(
            owners, [sum_in_order(map(world.kernel_s, kernels)) for kernels in work]
        )
        mine = [
            one for owner, own in zip(owners, work, strict=True) if owner == rank for one in own
        ]
        stages: tuple[JobStage, ...] = (
            Compute(tuple(mine), "second_order"),
            *(Send("broadcast", float(FLOAT * layer.elements)) for layer in layers),
            Compute(tuple(rescaled(layer) for layer in layers), "second_order"),
        )
        end = PassPoint("backward", world.profile.backward_s)
        return [], [Job("own layers", stages, end, needs=("averaged",))]

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the fullest rank's factors and of all preconditioned gradients."""
        sides = factor_sides(gradients)
        kept = [0.0] * ranks
        for (a, g), owner in zip(sides, round_robin(len(sides), ranks), strict=True):
            kept[owner] += 2.0 * FLOAT * (a**2 + g**2)
        return max(kept) + FLOAT * sum(a * g for a, g in sides)
