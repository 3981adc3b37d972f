"""D-KFAC: factors all-reduced, every rank inverts all of them."""

from typing import ClassVar

from perfsim.methods.base import Compute, Job, MethodContext, PassPoint
from perfsim.methods.building.kfac_schedule import AveragedFactors, KroneckerFactor


class DKfac(AveragedFactors):
    """Sends gradients dense as S-SGD, then the upper triangles of all factors by all-reduces.

    Work starts once the backward pass is over and Horovod has averaged the gradients. A of every
    convolution and dense layer is built, then G of every one (copies, scalings, X^T X, running
    average). They are packed layer by layer into messages that Horovod fuses, then unpacked and
    divided by P. Every rank inverts all factors (damping, Cholesky, inverse from it) and
    preconditions every layer, G^-1 W A^-1. The new gradients are scaled and the update follows.
    ``pipelined`` builds and sends factors in the hooks instead; ``factor_fusion`` says how they are
    fused (mgwfbp: SPD-KFAC's rule). ``inversion`` eigen decomposes the factors instead, as
    Pauloski et al. 2020 do, and preconditions with eigenvectors and eigenvalues.

    Bytes a rank: 2 (P-1)/P x 4 (n + a(a+1)/2 + g(g+1)/2) for a g x a matrix (with a bias, a is one
    more).
    Memory: factors and inverses of all layers, 8 (a^2 + g^2) bytes each.
    Left out: padding of input maps; Horovod's copies into and out of its buffer; the host's waits
    (a .item() a tensor for the scale); saved output gradients.
    """

    summary: ClassVar[str] = "K-FAC: factors all-reduced, every rank inverts all (D-KFAC)"
    citation: ClassVar[str] = (
        "Shi et al. 2021, SPD-KFAC, ICDCS, arXiv 2107.06533, its baseline D-KFAC; code"
        " shyhuai/kfac_pytorch@1dacea76 kfac/kfac_preconditioner_inv_naive_nopar.py"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * 4 * (n + columns * (columns + 1) / 2 + rows * (rows + 1) / 2)"
    )

    def inverses(
        self,
        factors: list[KroneckerFactor],
        world: MethodContext,
        needs: tuple[str, ...],
        end: PassPoint,
    ) -> list[Job]:
        """Return all inverses on every rank."""
        kernels = tuple(kernel for factor in factors for kernel in factor.inverse)
        return [Job("inverses", (Compute(kernels, "second_order"),), end, needs=needs)]
