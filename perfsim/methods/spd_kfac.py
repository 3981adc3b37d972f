"""SPD-KFAC: both passes build and send factors; ranks share large inverses, repeat small ones."""

from typing import ClassVar

from pydantic import Field, field_validator

from perfsim.compute.kernel import Kernel
from perfsim.methods.base import Job, MethodContext, PassPoint
from perfsim.methods.building.kfac_placement import balanced_inverses
from perfsim.methods.building.kfac_schedule import AveragedFactors, FactorFusion, KroneckerFactor
from perfsim.sums import sum_in_order


class SpdKfac(AveragedFactors):
    """Sends gradients as S-SGD, factors in both passes, and large inverses by broadcasts.

    A layer's A is built and packed in the hook before its forward pass, G in the hook after its
    backward pass, on the compute stream. Neighbours are merged while waiting costs less than the
    start-up saved (the rule of MG-WFBP, here with the network's own cost). They are all-reduced
    while the passes run, on one stream with the gradients, and unpacked once all have arrived. A
    factor whose inverse costs less than its broadcast is inverted on every rank. The others go,
    largest first, to the rank with the smallest sum of sides. In layer order each rank inverts its
    own and packs them. Their broadcasts follow while other ranks still invert. Then it continues as
    D-KFAC. ``inversion`` eigen sends eigenvectors and eigenvalues; no code has that form. Bytes a
    rank: 2 (P-1)/P x 4 (n + a(a+1)/2 + g(g+1)/2), and (P-1)/P x 4 d(d+1)/2 for each factor that is
    sent (none of the small ones). Memory: factors and inverses of all layers, 8 (a^2 + g^2) bytes
    each. Left out: as for MPD-KFAC, the profiling iterations in which the rule measures its times,
    the gaps that the host's wait before each message leaves, and Horovod's further NCCL streams.
    """

    summary: ClassVar[str] = "K-FAC pipelined with its communication, inverses balanced (SPD-KFAC)"
    citation: ClassVar[str] = (
        "Shi et al. 2021, SPD-KFAC, ICDCS, arXiv 2107.06533; code shyhuai/kfac_pytorch@1dacea76"
        " kfac/comm.py _generate_groups_spd; @1233119 (its submission)"
        " kfac/kfac_preconditioner_inv_opt.py, whose placement the last commit no longer calls"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * 4 * (n + columns * (columns + 1) / 2 + rows * (rows + 1) / 2)"
    )
    decides: ClassVar[bool] = True

    factor_fusion: FactorFusion = Field("mgwfbp", description="fusion policy of the factors")
    pipelined: bool = Field(
        True, description="build and send factors in the passes' hooks, else after backward"
    )
    everywhere_below: int | None = Field(
        None,
        ge=0,
        description="side below which every rank inverts (code 1024, paper 1400; none: by costs)",
    )

    @field_validator("everywhere_below", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return None if value == "none" else value

    def everywhere(self, factor: KroneckerFactor, world: MethodContext) -> bool:
        """Tell whether every rank inverts a factor for itself."""
        if self.everywhere_below is not None:
            return factor.side < self.everywhere_below
        inverse_s = sum_in_order(map(world.kernel_s, factor.inverse))
        return inverse_s < sum_in_order(
            world.collective_s("broadcast", size_bytes, "all")
            for size_bytes in factor.inverse_bytes
        )

    def inverses(
        self,
        factors: list[KroneckerFactor],
        world: MethodContext,
        needs: tuple[str, ...],
        end: PassPoint,
    ) -> list[Job]:
        """Return each broadcast after its owner's inverse; every rank inverts small factors."""
        sent = {factor.name for factor in factors if not self.everywhere(factor, world)}
        return balanced_inverses(factors, sent, world, needs, end)

    def unpacked_inverses(
        self, factors: list[KroneckerFactor], world: MethodContext
    ) -> tuple[Kernel, ...]:
        """Return the unpacking of the inverses that were sent."""
        sent = (factor for factor in factors if not self.everywhere(factor, world))
        return tuple(kernel for factor in sent for kernel in factor.inverse_unpacked)
