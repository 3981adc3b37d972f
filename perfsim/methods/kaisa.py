"""KAISA: eigenvectors held by a fraction of the ranks, which send the preconditioned gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT
from perfsim.compute.profile import Gradient
from perfsim.methods.base import Job, MethodContext
from perfsim.methods.building.kfac_factors import KfacLayer, factor_sides
from perfsim.methods.building.kfac_grid import KfacGrid, grid_jobs, phased_jobs
from perfsim.methods.building.kfac_schedule import Preconditioner


class Kaisa(Preconditioner):
    """Sends factors by all-reduces, eigenvectors within worker groups, gradients to the rest.

    Ranks form a grid of f P rows: a column is a worker group, a row holds one worker of every
    group. In the hooks, on the compute stream: A before a layer's forward pass, G after its
    backward pass (copies, X^T X, symmetrised, running average), filled into buckets of 25 MB that
    are all-reduced among the gradients' DDP buckets, whole or as triangles (``symmetric``). With
    gradients and factors averaged, layer by layer from the last: A and G are decomposed by the one
    rank to which balancing by n^3 gave them, and eigenvectors and quotients of eigenvalues
    broadcast in its group. Then, from the last layer, each worker of its group preconditions it and
    broadcasts it along its row. f = 1 sends no gradient, f = 1/P no eigenvectors. ``release`` 0.3,
    which the paper ran: factors after the backward pass with an all-reduce each, and each phase
    over before the next begins; worker groups are neighbours, so that gradients cross nodes. Bytes
    a rank (f = 1): 2 (P-1)/P x 4 (n + a^2 + g^2) + (P-1)/P x 4 (a^2 + g^2 + a g). Memory: factors
    of all layers, 4 (a^2 + g^2) bytes each, and 4 (a^2 + g^2 + a g) of each worker's. Left out:
    cloning and padding of input maps, and factor all-reduces that run into the next iteration where
    no inverse waits for them. Bytes and calls are those of the slowest group.
    """

    summary: ClassVar[str] = "K-FAC with a fraction of gradient workers (KAISA)"
    citation: ClassVar[str] = (
        "Pauloski et al. 2021, KAISA, SC, arXiv 2107.01739; code gpauloski/kfac-pytorch@869cf11"
        " kfac/base_preconditioner.py, kfac/assignment.py; release 0.3: @37d4e81"
        " kfac/preconditioner.py step, kfac/utils.py WorkerAllocator"
    )
    wire: ClassVar[str] = (
        "2 * (P - 1) / P * 4 * (n + rows ** 2 + columns ** 2)"
        " + (P - 1) / P * 4 * (rows ** 2 + columns ** 2 + n)"
    )

    fraction: float = Field(1.0, gt=0, le=1, description="gradient workers of a layer over ranks")
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
        """Return that positions lack, or that the ranks do not split."""
        return super().refusal(world) or self.grid(world).refusal()

    def steps(
        self, layers: list[KfacLayer], world: MethodContext, factors: bool, inverses: bool
    ) -> tuple[list[Job], list[Job]]:
        """Return products and buckets in the hooks; decompositions and gradients after them."""
        grid, limit_bytes = self.grid(world), 1e6 * self.bucket_mb
        if self.release == "0.3":
            return [], phased_jobs(grid, layers, world, factors, inverses, self.symmetric)
        return grid_jobs(grid, layers, world, factors, inverses, self.symmetric, limit_bytes)

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the factors, and the mean rank's eigenvectors and quotients."""
        share = max(1, round(ranks * self.fraction)) / ranks
        total = 0.0
        for a, g in factor_sides(gradients):
            total += FLOAT * (a**2 + g**2 + share * (a**2 + g**2 + a * g))
        return total
