"""KAISA's grid of ranks: who decomposes and preconditions a layer, and who gets what from whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfsim.kernel import FLOAT, Kernel, elementwise
from perfsim.kfac.bucketed import bucketed
from perfsim.kfac.factors import Factored, triangle
from perfsim.kfac.kernels import KAISA, decomposed, packed, preconditioned, rescaled, unpacked
from perfsim.kfac.pipeline import Product, products
from perfsim.method import Compute, Job, Point, Send, Stage, World
from perfsim.stage import Group

__all__ = ["Grid", "busiest_members", "grid_jobs"]


@dataclass(frozen=True, slots=True)
class Grid:
    """``workers`` rows of ranks in order; columns are worker groups, rows receiver groups.

    ``neighbours`` (releases up to 0.3): a worker group is so many ranks in order, and a receiver
    group has one of each.

    Examples
    --------
    >>> grid = Grid(8, 2)
    >>> grid.columns, [grid.column(rank) for rank in range(8)], grid.members(1)
    (4, [0, 1, 2, 3, 0, 1, 2, 3], range(1, 8, 4))
    >>> Grid(8, 2, neighbours=True).members(1)
    range(2, 4)
    """

    ranks: int
    workers: int
    neighbours: bool = False

    @property
    def columns(self) -> int:
        """Worker groups."""
        return self.ranks // self.workers

    def column(self, rank: int) -> int:
        """Return the worker group of a rank."""
        return rank // self.workers if self.neighbours else rank % self.columns

    def members(self, column: int) -> range:
        """Return the ranks of a worker group."""
        if self.neighbours:
            return range(column * self.workers, (column + 1) * self.workers)
        return range(column, self.ranks, self.columns)

    @property
    def worker_group(self) -> Group:
        """Who takes part in a broadcast of eigenvectors."""
        if self.columns == 1:
            return "all"
        return self.workers if self.neighbours else (self.workers, self.columns)

    @property
    def receiver_group(self) -> Group:
        """Who takes part in a broadcast of a gradient."""
        if self.workers == 1:
            return "all"
        return (self.columns, self.workers) if self.neighbours else self.columns

    def refusal(self) -> str:
        """Return why the ranks cannot be split so, or ""."""
        if self.ranks % self.workers:
            return f"cannot split {self.ranks} ranks into groups of {self.workers} workers"
        return ""

    def assigned(self, layers: Sequence[Factored]) -> list[int]:
        """Return the rank that decomposes each layer: most work first, to the least loaded.

        Work is a^3 + g^3; first the worker group with least in all, then its rank with least;
        up to release 0.3 the rank with least of all.
        """
        loads = [0.0] * self.ranks
        work = [float(layer.inputs**3 + layer.outputs**3) for layer in layers]
        owners = [0] * len(layers)
        for index in sorted(range(len(layers)), key=lambda index: -work[index]):
            totals = [sum(loads[rank] for rank in self.members(c)) for c in range(self.columns)]
            column = totals.index(min(totals))
            among = range(self.ranks) if self.neighbours else self.members(column)
            rank = min(among, key=loads.__getitem__)
            owners[index] = rank
            loads[rank] += work[index]
        return owners


def busiest_members(
    grid: Grid, owners: Sequence[int], decomposed_s: Sequence[float], own_s: Sequence[float]
) -> tuple[list[int], int]:
    """Return the busiest member of each worker group, and that of the group that takes longest.

    ``decomposed_s`` is what the owner of each layer runs for it, ``own_s`` what every worker does.
    """
    loads = [0.0] * grid.ranks
    for owner, seconds in zip(owners, decomposed_s, strict=True):
        loads[owner] += seconds
    busy = [max(grid.members(column), key=loads.__getitem__) for column in range(grid.columns)]
    taken = [loads[rank] for rank in busy]
    for owner, seconds in zip(owners, own_s, strict=True):
        taken[grid.column(owner)] += seconds
    return busy, busy[taken.index(max(taken))]


def _decompositions(
    layer: Factored, stream: str, grid: Grid, column: int, counted: bool
) -> dict[str, tuple[Stage, ...]]:
    """Return A's and G's decompositions on their owner, each with its broadcasts in the group."""
    quotients = elementwise(layer.elements, 5, 3)
    kernels = {
        "A": decomposed(layer.inputs, copied=False),
        "G": (*decomposed(layer.outputs, copied=False), quotients),
    }
    sent = {"A": (layer.inputs**2,), "G": (layer.outputs**2, layer.elements)}
    found: dict[str, tuple[Stage, ...]] = {}
    for side, own in kernels.items():
        sends = tuple(
            Send(
                "broadcast",
                float(FLOAT * size),
                awaited=False,
                stream=f"workers {column}",
                group=grid.worker_group,
                counted=counted,
            )
            for size in sent[side]
            if grid.workers > 1
        )
        found[side] = (Compute(own, "second_order", stream), *sends)
    return found


def grid_jobs(
    grid: Grid,
    layers: Sequence[Factored],
    world: World,
    factors: bool,
    inverses: bool,
    symmetric: bool,
    limit_bytes: float,
) -> tuple[list[Job], list[Job]]:
    """Return KAISA's jobs in the passes, and those after gradients are averaged.

    Shown are the busiest member of each worker group, and the group that takes longest on the
    compute stream; other ranks have streams of their own.
    """
    assert world.profile is not None
    end = Point("backward", world.profile.backward_s)
    owners = grid.assigned(layers)
    hooks: list[Job] = []
    steps: list[Job] = []
    needs: tuple[str, ...] = ("averaged",)
    if factors:
        built = products(layers, KAISA)
        if symmetric:
            built = [Product(one.name, one.side, (*one.kernels, packed(one.side)), one.hook)
                     for one in built]  # fmt: skip
        sizes = [4.0 * (triangle(one.side) if symmetric else one.side**2) for one in built]
        hooks = bucketed(built, sizes, limit_bytes, end)
        after: list[Kernel] = []
        for one in built:
            after.append(elementwise(triangle(one.side) if symmetric else one.side**2, 2))
            after += unpacked(one.side) if symmetric else ()
        sent = tuple(job.name for job in hooks if job.name.startswith("factors"))
        gate = Compute(tuple(after), "second_order")
        steps.append(Job("divided", (gate,), end, needs=("averaged", *sent)))
        needs = ("divided",)

    own_s = [sum(map(world.kernel_s, preconditioned(layer, "eigen"))) for layer in layers]
    decomposed_s = [
        sum(world.kernel_s(kernel) for side in (layer.inputs, layer.outputs)
            for kernel in decomposed(side, copied=False)) * inverses
        for layer in layers
    ]  # fmt: skip
    busy, shown = busiest_members(grid, owners, decomposed_s, own_s)

    def stream(rank: int) -> str:
        return "compute" if rank == shown else f"rank {rank}"

    backwards = list(zip(layers, owners, strict=True))[::-1]
    if inverses:
        for layer, owner in backwards:
            column = grid.column(owner)
            counted = column == grid.column(shown)
            both = _decompositions(layer, stream(owner), grid, column, counted)
            for side, stages in both.items():
                steps.append(Job(f"eigen {layer.name} {side}", stages, end, needs=needs))
    for layer, owner in backwards:
        worker = stream(busy[grid.column(owner)])
        kernels = preconditioned(layer, "eigen", quotients=True)
        own: tuple[Stage, ...] = (Compute(kernels, "second_order", worker),)
        if grid.workers < grid.ranks:
            size_bytes = float(FLOAT * layer.elements)
            own += (Send("broadcast", size_bytes, stream="rows", group=grid.receiver_group),)
        eigen = (f"eigen {layer.name} A", f"eigen {layer.name} G")
        before = eigen if inverses else needs
        steps.append(Job(f"gradient {layer.name}", own, end, needs=before))
    scaled = Compute(tuple(rescaled(layer) for layer in layers), "second_order")
    gradients = tuple(f"gradient {layer.name}" for layer in layers)
    steps.append(Job("scaled", (scaled,), end, needs=gradients))
    return hooks, steps
