"""MPD-KFAC: factors all-reduced, each inverted on one rank, inverses broadcast."""

from typing import ClassVar

from perfsim.compute.kernel import Kernel, elementwise
from perfsim.methods.base import Compute, Job, MethodContext, PassPoint, Send
from perfsim.methods.building.kfac_placement import busiest_rank, round_robin
from perfsim.methods.building.kfac_schedule import AveragedFactors, KroneckerFactor
from perfsim.sums import sum_in_order


class MpdKfac(AveragedFactors):
    """Sends gradients and factors as D-KFAC, then every inverse by a broadcast of its own.

    Up to the averaged factors it runs as D-KFAC. Then layers are assigned to the ranks in turn, or
    factors (A, G, A, G, ...) where there are more ranks than layers. A rank inverts its own, zeroes
    its copies of the others and packs all upper triangles. Broadcasts follow one another in layer
    order. Each involves every rank, so the first waits for the busiest rank. Then all inverses are
    unpacked and every rank preconditions every layer. ``symmetric`` false sends whole matrices, as
    lzhangbv/kfac_pytorch@c45acb8f does. ``inversion`` eigen decomposes instead, and broadcasts
    eigenvectors, whole, and eigenvalues (kfac_preconditioner_eigen.py there). Bytes a rank: 2
    (P-1)/P x 4 (n + a(a+1)/2 + g(g+1)/2) + (P-1)/P x 4 (a(a+1)/2 + g(g+1)/2). Memory: factors and
    inverses of all layers, 8 (a^2 + g^2) bytes each. Left out: as for D-KFAC, and Horovod's
    negotiation of each broadcast.
    """

    summary: ClassVar[str] = "K-FAC: each factor inverted on one rank and broadcast (MPD-KFAC)"
    citation: ClassVar[str] = (
        "Osawa et al. 2019, CVPR, arXiv 1811.12019; Pauloski et al. 2020, SC, arXiv 2007.00784;"
        " code shyhuai/kfac_pytorch@1dacea76 kfac/kfac_preconditioner_inv_naive.py"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * 4 * (n + columns * (columns + 1) / 2 + rows * (rows + 1) / 2)"
        " + (P - 1) / P * 4 * (columns * (columns + 1) / 2 + rows * (rows + 1) / 2)"
    )

    def inverses(
        self,
        factors: list[KroneckerFactor],
        world: MethodContext,
        needs: tuple[str, ...],
        end: PassPoint,
    ) -> list[Job]:
        """Return the busiest rank's inverses, then all broadcasts."""
        layers = len(factors) // 2
        owners = round_robin(len(factors), world.ranks)
        if world.ranks <= layers:
            owners = [owner for owner in round_robin(layers, world.ranks) for _ in range(2)]
        seconds = [sum_in_order(map(world.kernel_s, factor.inverse)) for factor in factors]
        rank = busiest_rank(owners, seconds)
        kernels: list[Kernel] = []
        for factor, owner in zip(factors, owners, strict=True):
            own = owner == rank
            kernels += factor.inverse if own else [elementwise(factor.side**2, 1)]
        sends = [
            Send("broadcast", size_bytes)
            for factor in factors
            for size_bytes in factor.inverse_bytes
        ]
        packs = tuple(kernel for factor in factors for kernel in factor.inverse_packed)
        packed = (Compute(packs, "second_order"),) if packs else ()
        return [
            Job("inverses", (Compute(tuple(kernels), "second_order"),), end, needs=needs),
            Job("broadcasts", (*packed, *sends), end, needs=("inverses",)),
        ]

    def unpacked_inverses(
        self, factors: list[KroneckerFactor], world: MethodContext
    ) -> tuple[Kernel, ...]:
        """Return the unpacking of every inverse."""
        return tuple(kernel for factor in factors for kernel in factor.inverse_unpacked)
