"""KAISA's grid of ranks: which ranks decompose and precondition a layer, and what they send.

Factors are all-reduced in buckets. A bucket is sent when the next factor would not fit
(`bucketed`). Inverses follow each other without waiting (`grid_jobs`). Releases up to 0.3,
which the paper used, run one phase after another and wait for the end of each (`phased_jobs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.methods.base import (
    Compute,
    Group,
    Job,
    JobStage,
    MethodContext,
    PassPoint,
    Send,
)
from perfsim.methods.building.kfac_factors import (
    KAISA,
    Inversion,
    KfacLayer,
    inverse_kernels,
    packed_triangle,
    preconditioned,
    rescaled,
    triangle,
    unpacked_triangle,
)
from perfsim.methods.building.kfac_schedule import KroneckerFactor, kronecker_factors
from perfsim.sums import sum_in_order

__all__ = ["KfacGrid", "Placement", "bucketed", "grid_jobs", "layer_inverses", "phased_jobs"]


def bucketed(
    factors: Sequence[KroneckerFactor],
    sizes_bytes: Sequence[float],
    limit_bytes: float,
    end: PassPoint,
) -> list[Job]:
    """Return each factor's product in its hook, and the buckets' all-reduces.

    The factors A come first, in forward order, then G in backward order. A bucket's all-reduce is
    issued in the hook of the factor that would exceed the limit; the last one after the passes.

    References
    ----------
    gpauloski/kfac-pytorch@869cf11 kfac/distributed.py, allreduce_bucketed.
    """
    sizes = dict(zip((factor.name for factor in factors), sizes_bytes, strict=True))
    order = sorted(
        factors, key=lambda factor: (factor.hook.phase == "backward", factor.hook.seconds)
    )
    jobs: list[Job] = []
    group: list[str] = []

    def send_group(hook: PassPoint, after: str) -> None:
        if group:
            size_bytes = sum_in_order(sizes[name] for name in group)
            number = sum(job.name.startswith("factors") for job in jobs)
            send = Send("all_reduce", size_bytes)
            jobs.append(Job(f"factors {number}", (send,), hook, needs=(after,)))
            group.clear()

    for factor in order:
        # The copy into the bucket is part of the product's job: the stream's order is the same.
        copy = elementwise(round(sizes[factor.name] / FLOAT), 2)
        stage = Compute((*factor.kernels, copy), "second_order")
        jobs.append(Job(factor.name, (stage,), factor.hook))
        if sum_in_order(sizes[name] for name in group) + sizes[factor.name] > limit_bytes:
            send_group(factor.hook, factor.name)
        group.append(factor.name)
    send_group(end, order[-1].name)
    return jobs


class KfacGrid(NamedTuple):
    """A grid of ranks, numbered row by row: ``workers`` rows of ``ranks`` / ``workers`` columns.

    A column is a worker group, which preconditions a layer. A row is a receiver group, which gets
    the result. ``neighbours`` (releases up to 0.3): a worker group has ``workers`` consecutive
    ranks, and a receiver group has one rank of each worker group.

    Examples
    --------
    >>> grid = KfacGrid(8, 2)
    >>> grid.columns, [grid.column(rank) for rank in range(8)], grid.members(1)
    (4, [0, 1, 2, 3, 0, 1, 2, 3], range(1, 8, 4))
    >>> KfacGrid(8, 2, neighbours=True).members(1)
    range(2, 4)
    """

    ranks: int
    workers: int
    neighbours: bool = False

    @property
    def columns(self) -> int:
        """Number of worker groups."""
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
        """Return why the ranks cannot be split into such groups, or ""."""
        if self.ranks % self.workers:
            return f"cannot split {self.ranks} ranks into groups of {self.workers} workers"
        return ""

    def assigned(self, layers: Sequence[KfacLayer]) -> list[int]:
        """Return the rank that decomposes each layer, which is the layer's owner.

        Layers are assigned by their work a^3 + g^3, the largest first. A layer goes to the worker
        group with the least work, and there to the rank with the least. Up to release 0.3 it goes
        to the rank with the least work of all ranks.
        """
        loads, totals = [0.0] * self.ranks, [0.0] * self.columns
        work = [float(layer.inputs**3 + layer.outputs**3) for layer in layers]
        owners = [0] * len(layers)
        for index in sorted(range(len(layers)), key=lambda index: -work[index]):
            column = totals.index(min(totals))
            candidates = range(self.ranks) if self.neighbours else self.members(column)
            rank = min(candidates, key=loads.__getitem__)
            owners[index] = rank
            loads[rank] += work[index]
            totals[self.column(rank)] += work[index]
        return owners


class Placement(NamedTuple):
    """The assignment of layers to ranks: the owner of each layer, and the ranks that are shown.

    ``busy`` is the busiest member of each worker group. ``shown`` is the busiest member of the
    group that takes longest. Its kernels run on the compute stream; other ranks have streams of
    their own.
    """

    grid: KfacGrid
    owners: Sequence[int]
    busy: Sequence[int]
    shown: int

    @classmethod
    def of(
        cls,
        grid: KfacGrid,
        layers: Sequence[KfacLayer],
        decomposed_s: Sequence[float],
        own_s: Sequence[float],
    ) -> Placement:
        """Assign layers to ranks.

        ``decomposed_s`` is the owner's time for each layer [s], ``own_s`` that of every worker in
        the owner's group [s].
        """
        owners = grid.assigned(layers)
        loads = [0.0] * grid.ranks
        for owner, seconds in zip(owners, decomposed_s, strict=True):
            loads[owner] += seconds
        busy = [max(grid.members(column), key=loads.__getitem__) for column in range(grid.columns)]
        group_s = [loads[rank] for rank in busy]
        for owner, seconds in zip(owners, own_s, strict=True):
            group_s[grid.column(owner)] += seconds
        return cls(grid, owners, busy, busy[group_s.index(max(group_s))])

    def stream(self, rank: int) -> str:
        """Return the stream of a rank's kernels."""
        return "compute" if rank == self.shown else f"rank {rank}"

    def worker(self, owner: int) -> str:
        """Return the stream of the busiest worker in an owner's group."""
        return self.stream(self.busy[self.grid.column(owner)])

    def counted(self, column: int) -> bool:
        """Return whether a worker group is the one whose bytes and calls are shown."""
        return column == self.grid.column(self.shown)


def _quotients(layer: KfacLayer, inversion: Inversion) -> tuple[Kernel, ...]:
    """Return the kernels of the quotients of all pairs of eigenvalues; none of an inverse."""
    return (elementwise(layer.elements, 5, 3),) if inversion == "eigen" else ()


def _inverses(
    layer: KfacLayer, owner: int, placement: Placement, inversion: Inversion
) -> dict[str, tuple[JobStage, ...]]:
    """Return A's and G's inverses on the owner, each with its broadcasts in the group."""
    grid = placement.grid
    column = grid.column(owner)
    kernels = {
        "A": inverse_kernels(layer.inputs, inversion, copied=False),
        "G": (
            *inverse_kernels(layer.outputs, inversion, copied=False),
            *_quotients(layer, inversion),
        ),
    }
    of_a, *of_g = _broadcast_values(layer, inversion)
    sent = {"A": (of_a,), "G": tuple(of_g)}
    result: dict[str, tuple[JobStage, ...]] = {}
    for side, side_kernels in kernels.items():
        sends = tuple(
            Send(
                "broadcast",
                float(FLOAT * size),
                awaited=False,
                stream=f"workers {column}",
                group=grid.worker_group,
                counted=placement.counted(column),
            )
            for size in sent[side]
            if grid.workers > 1
        )
        result[side] = (Compute(side_kernels, "second_order", placement.stream(owner)), *sends)
    return result


def _averaged_factors(
    layers: Sequence[KfacLayer], symmetric: bool, limit_bytes: float, end: PassPoint
) -> tuple[list[Job], Job]:
    """Return the factors' jobs in the hooks, and their division by the ranks afterwards."""
    factors = kronecker_factors(layers, KAISA)
    if symmetric:
        factors = [
            factor._replace(kernels=(*factor.kernels, packed_triangle(factor.side)))
            for factor in factors
        ]
    values = [triangle(factor.side) if symmetric else factor.side**2 for factor in factors]
    hooks = bucketed(factors, [float(FLOAT * count) for count in values], limit_bytes, end)
    after: list[Kernel] = []
    for factor, count in zip(factors, values, strict=True):
        after.append(elementwise(count, 2))
        after += unpacked_triangle(factor.side) if symmetric else ()
    sent = tuple(job.name for job in hooks if job.name.startswith("factors"))
    gate = Compute(tuple(after), "second_order")
    return hooks, Job("divided", (gate,), end, needs=("averaged", *sent))


def _preconditioned(
    layer: KfacLayer, owner: int, placement: Placement, inversion: Inversion
) -> tuple[JobStage, ...]:
    """Return a layer's preconditioning on each worker of its group, and the broadcast in rows."""
    grid = placement.grid
    kernels = preconditioned(layer, inversion, quotients=True)
    stage = Compute(kernels, "second_order", placement.worker(owner))
    if grid.workers == grid.ranks:
        return (stage,)
    size_bytes = float(FLOAT * layer.elements)
    return stage, Send("broadcast", size_bytes, stream="rows", group=grid.receiver_group)


def grid_jobs(
    grid: KfacGrid,
    layers: Sequence[KfacLayer],
    world: MethodContext,
    factors: bool,
    inverses: bool,
    symmetric: bool,
    inversion: Inversion,
    limit_bytes: float,
) -> tuple[list[Job], list[Job]]:
    """Return KAISA's jobs in the passes, and its jobs after gradients are averaged."""
    assert world.profile is not None
    end = PassPoint("backward", world.profile.backward_s)
    hooks: list[Job] = []
    steps: list[Job] = []
    needs: tuple[str, ...] = ("averaged",)
    if factors:
        hooks, divided = _averaged_factors(layers, symmetric, limit_bytes, end)
        steps.append(divided)
        needs = (divided.name,)
    own_s = [
        sum_in_order(map(world.kernel_s, preconditioned(layer, inversion))) for layer in layers
    ]
    inverted_s = [
        inverses
        * sum_in_order(
            world.kernel_s(kernel)
            for side in (layer.inputs, layer.outputs)
            for kernel in inverse_kernels(side, inversion, copied=False)
        )
        for layer in layers
    ]
    placement = Placement.of(grid, layers, inverted_s, own_s)
    backwards = list(zip(layers, placement.owners, strict=True))[::-1]
    if inverses:
        for layer, owner in backwards:
            for side, stages in _inverses(layer, owner, placement, inversion).items():
                steps.append(Job(f"inverse {layer.name} {side}", stages, end, needs=needs))
    for layer, owner in backwards:
        own = (f"inverse {layer.name} A", f"inverse {layer.name} G")
        stages = _preconditioned(layer, owner, placement, inversion)
        before = own if inverses else needs
        steps.append(Job(f"gradient {layer.name}", stages, end, needs=before))
    scaled = Compute(tuple(rescaled(layer) for layer in layers), "second_order")
    gradients = tuple(f"gradient {layer.name}" for layer in layers)
    steps.append(Job("scaled", (scaled,), end, needs=gradients))
    return hooks, steps


def phased_jobs(
    grid: KfacGrid,
    layers: Sequence[KfacLayer],
    world: MethodContext,
    factors: bool,
    inverses: bool,
    symmetric: bool,
    inversion: Inversion,
) -> list[Job]:
    """Return KAISA's jobs after the gradients are averaged, for releases up to 0.3.

    The phases are all factors, their all-reduces one by one, all inverses, their broadcasts,
    all preconditioned gradients, and their broadcasts. A phase begins when the one
    before has ended. Broadcasts are queued after all kernels of a phase and do not overlap them.

    References
    ----------
    gpauloski/kfac-pytorch@37d4e81 kfac/preconditioner.py, step; kfac/comm.py, TorchBackend.
    """
    assert world.profile is not None
    end = PassPoint("backward", world.profile.backward_s)
    steps: list[Job] = []
    needs: tuple[str, ...] = ("averaged",)
    if factors:
        steps += _factors(layers, end, symmetric)
        needs = ("divided",)

    inverted_s = [
        inverses * sum_in_order(map(world.kernel_s, layer_inverses(layer, inversion)))
        for layer in layers
    ]
    own_s = [
        sum_in_order(map(world.kernel_s, preconditioned(layer, inversion, quotients=True)))
        for layer in layers
    ]
    placement = Placement.of(grid, layers, inverted_s, own_s)
    group_needs: dict[int, tuple[str, ...]] = {column: needs for column in range(grid.columns)}
    if inverses:
        jobs, group_needs = _phased_inverses(layers, placement, group_needs, end, inversion)
        steps += jobs
    for layer, owner in zip(layers, placement.owners, strict=True):
        kernels = preconditioned(layer, inversion, quotients=True)
        worker = Compute(kernels, "second_order", placement.worker(owner))
        before = group_needs[grid.column(owner)]
        steps.append(Job(f"gradient {layer.name}", (worker,), end, needs=before))
    needs = tuple(f"gradient {layer.name}" for layer in layers)
    if grid.workers < grid.ranks:
        gradients = tuple(
            Send("broadcast", float(FLOAT * layer.elements), group=grid.receiver_group)
            for layer in layers
        )
        steps.append(Job("sent gradients", gradients, end, needs=needs))
        needs = ("sent gradients",)
    scaled = Compute(tuple(rescaled(layer) for layer in layers), "second_order")
    return [*steps, Job("scaled", (scaled,), end, needs=needs)]


def _phased_inverses(
    layers: Sequence[KfacLayer],
    placement: Placement,
    needs: Mapping[int, tuple[str, ...]],
    end: PassPoint,
    inversion: Inversion,
) -> tuple[list[Job], dict[int, tuple[str, ...]]]:
    """Return all inverses, each group's broadcasts, and the jobs that a group then needs."""
    grid = placement.grid
    group_needs = dict(needs)
    jobs: list[Job] = []
    by_column: dict[int, list[KfacLayer]] = {}
    for layer, owner in zip(layers, placement.owners, strict=True):
        column = grid.column(owner)
        by_column.setdefault(column, []).append(layer)
        kernels = layer_inverses(layer, inversion)
        stage = Compute(kernels, "second_order", placement.stream(owner))
        jobs.append(Job(f"inverse {layer.name}", (stage,), end, needs=needs[column]))
    for column, group_layers in by_column.items():
        group_needs[column] = tuple(f"inverse {layer.name}" for layer in group_layers)
        if grid.workers == 1:
            continue
        sends = tuple(
            Send(
                "broadcast",
                float(FLOAT * size),
                stream=f"workers {column}",
                group=grid.worker_group,
                counted=placement.counted(column),
            )
            for layer in group_layers
            for size in _broadcast_values(layer, inversion)
        )
        name = f"sent inverses {column}"
        jobs.append(Job(name, sends, end, needs=group_needs[column]))
        group_needs[column] = (name,)
    return jobs, group_needs


def _factors(layers: Sequence[KfacLayer], end: PassPoint, symmetric: bool) -> list[Job]:
    """Return all products, an all-reduce of each factor, and their division by the ranks."""
    factors = kronecker_factors(layers, KAISA)
    before: list[Kernel] = [kernel for factor in factors for kernel in factor.kernels]
    after: list[Kernel] = []
    sends = []
    for factor in factors:
        values = triangle(factor.side) if symmetric else factor.side**2
        before += [packed_triangle(factor.side)] if symmetric else []
        sends.append(Send("all_reduce", float(FLOAT * values)))
        after.append(elementwise(values, 2))
        after += unpacked_triangle(factor.side) if symmetric else ()
    return [
        Job("products", (Compute(tuple(before), "second_order"),), end, needs=("averaged",)),
        Job("factors", tuple(sends), end, needs=("products",)),
        Job("divided", (Compute(tuple(after), "second_order"),), end, needs=("factors",)),
    ]


def layer_inverses(layer: KfacLayer, inversion: Inversion) -> tuple[Kernel, ...]:
    """Return the inverses of both factors of a layer; with eigen their quotients too."""
    return (
        *inverse_kernels(layer.inputs, inversion, copied=False),
        *inverse_kernels(layer.outputs, inversion, copied=False),
        *_quotients(layer, inversion),
    )


def _broadcast_values(layer: KfacLayer, inversion: Inversion) -> tuple[int, ...]:
    """Return the number of values of each message of an owner: of A, of G, and quotients."""
    quotients = (layer.elements,) if inversion == "eigen" else ()
    return layer.inputs**2, layer.outputs**2, *quotients
