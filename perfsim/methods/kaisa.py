"""KAISA: some of the ranks hold a layer's eigenvectors and send the preconditioned gradient."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, Kernel
from perfsim.compute.profile import Gradient
from perfsim.methods.base import Job, MethodContext
from perfsim.methods.building.ddp_buffers import DdpBuckets
from perfsim.methods.building.kfac_factors import (
    KAISA,
    Code,
    KfacLayer,
    factor_sides,
    preconditioned,
)
from perfsim.methods.building.kfac_grid import KfacGrid, grid_jobs, layer_inverses, phased_jobs
from perfsim.methods.building.kfac_schedule import Preconditioner


class Kaisa(DdpBuckets, Preconditioner):
    """Sends factors by all-reduces, eigenvectors within worker groups, gradients to the rest.

    Ranks form a grid of f P rows: a column is a worker group, a row holds one worker of every
    group. The hooks build the factors on the compute stream: A before a layer's forward pass, G
    after its backward pass (copies, X^T X, symmetrised, running average). Factors fill buckets of
    25 MB, which are all-reduced among the gradients' DDP buckets, whole or as triangles
    (``symmetric``). Once gradients and factors are averaged, layers follow from the last to the
    first. One rank inverts A and G: balancing by n^3 chose it. It broadcasts both inverses (with
    ``inversion`` eigen the eigenvectors and the quotients of eigenvalues) in its group. Then, again
    from the last layer, each worker of a layer's group preconditions the gradient and broadcasts it
    along its row. f = 1 sends no gradient, f = 1/P no inverses. ``release`` 0.3 is what the paper
    ran: after the backward pass each factor has an all-reduce of its own, and each phase ends
    before the next begins. Its worker groups are neighbours, so gradients cross nodes. Bytes and
    calls are those of the slowest group. Bytes a rank (f = 1): 2 (P-1)/P x 4 (n + a^2 + g^2) +
    (P-1)/P x 4 (a^2 + g^2), with eigen a g more. Memory: DDP's buckets (see `ssgd`), factors of all
    layers, 4 (a^2 + g^2) bytes each, and as much (with eigen a g more) for each layer in whose
    group the rank works. Left out: cloning and padding of input maps; factor all-reduces that run
    into the next iteration where no inverse waits for them.

    The paper and the code's default use eigenvectors; the default here is the inverse, as for every
    K-FAC method, and as DP-KFAC's authors time KAISA ("inverse_kaisa"). It is priced as Cholesky's,
    where this code calls torch.linalg.inv.
    """

    summary: ClassVar[str] = "K-FAC with a fraction of gradient workers (KAISA)"
    citation: ClassVar[str] = (
        "Pauloski et al. 2021, KAISA, SC, arXiv 2107.01739; code gpauloski/kfac-pytorch@869cf11"
        " kfac/base_preconditioner.py, kfac/assignment.py; release 0.3: @37d4e81"
        " kfac/preconditioner.py step, kfac/utils.py WorkerAllocator"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * 4 * (n + rows ** 2 + columns ** 2)"
        " + (P - 1) / P * 4 * (rows ** 2 + columns ** 2 + (n if inversion == 'eigen' else 0))"
    )
    code: ClassVar[Code] = KAISA

    fraction: float = Field(1.0, gt=0, le=1, description="share of ranks that work on a layer")
    symmetric: bool = Field(False, description="all-reduce upper triangles of factors only")
    bucket_mb: float = Field(25.0, gt=0, description="size of the factors' buckets [1e6 bytes]")
    release: Literal["0.3", "0.4"] = Field(
        "0.4", description="0.4 sends each result at once; 0.3 one phase after the other"
    )

    def grid(self, world: MethodContext) -> KfacGrid:
        """Return the grid of ranks."""
        workers = max(1, round(world.ranks * self.fraction))
        return KfacGrid(world.ranks, workers, neighbours=self.release == "0.3")

    def refusal(self, world: MethodContext) -> str:
        """Return why a profile without input positions, or a grid that does not fit, is refused."""
        return super().refusal(world) or self.grid(world).refusal()

    def steps(
        self, layers: list[KfacLayer], world: MethodContext, factors: bool, inverses: bool
    ) -> tuple[list[Job], list[Job]]:
        """Return products and buckets in the hooks; then inverses and gradients."""
        grid, limit_bytes = self.grid(world), 1e6 * self.bucket_mb
        if self.release == "0.3":
            return [], phased_jobs(
                grid, layers, world, factors, inverses, self.symmetric, self.inversion
            )
        return grid_jobs(
            grid, layers, world, factors, inverses, self.symmetric, self.inversion, limit_bytes
        )

    def own_kernels(self, layer: KfacLayer, factors: bool, inverses: bool) -> list[Kernel]:
        """Return the kernels of one GPU for a layer, as this code runs them."""
        built = (*KAISA.input_factor(layer), *KAISA.output_factor(layer)) if factors else ()
        inverted = layer_inverses(layer, self.inversion) if inverses else ()
        return [*built, *inverted, *preconditioned(layer, self.inversion, quotients=True)]

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the factors, and of the mean rank's inverses."""
        share = max(1, round(ranks * self.fraction)) / ranks
        total = 0.0
        for a, g in factor_sides(gradients):
            quotients = a * g if self.inversion == "eigen" else 0
            total += FLOAT * (a**2 + g**2 + share * (a**2 + g**2 + quotients))
        return total
