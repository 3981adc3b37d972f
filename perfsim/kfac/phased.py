"""KAISA as its paper ran it (releases up to 0.3): one phase after the other, each awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsim.kernel import FLOAT, Kernel, elementwise
from perfsim.kfac.factors import Factored, triangle
from perfsim.kfac.grid import Grid, Placement
from perfsim.kfac.kernels import KAISA, decomposed, packed, preconditioned, rescaled, unpacked
from perfsim.kfac.pipeline import products
from perfsim.method import Compute, Job, Point, Send, World

__all__ = ["phased_jobs"]


def phased_jobs(
    grid: Grid,
    layers: Sequence[Factored],
    world: World,
    factors: bool,
    inverses: bool,
    symmetric: bool,
) -> list[Job]:
    """Return KAISA's jobs after the gradients are averaged.

    All factors, their all-reduces one by one, all decompositions, the broadcasts of eigenvectors,
    all preconditioned gradients and their broadcasts: each of these begins when the one before is
    over. A broadcast is queued behind all kernels of its phase, so that none hides behind them.

    References
    ----------
    gpauloski/kfac-pytorch@37d4e81 kfac/preconditioner.py, step; kfac/comm.py, TorchBackend.
    """
    assert world.profile is not None
    end = Point("backward", world.profile.backward_s)
    steps: list[Job] = []
    needs: tuple[str, ...] = ("averaged",)
    if factors:
        steps += _factors(layers, end, symmetric)
        needs = ("divided",)

    decomposed_s = [inverses * sum(map(world.kernel_s, _decomposed(layer))) for layer in layers]
    own_s = [
        sum(map(world.kernel_s, preconditioned(layer, "eigen", quotients=True))) for layer in layers
    ]
    placement = Placement.of(grid, layers, decomposed_s, own_s)
    there: dict[int, tuple[str, ...]] = {column: needs for column in range(grid.columns)}
    if inverses:
        made, there = _decompositions(layers, placement, there, end)
        steps += made
    for layer, owner in zip(layers, placement.owners, strict=True):
        kernels = preconditioned(layer, "eigen", quotients=True)
        worker = Compute(kernels, "second_order", placement.worker(owner))
        before = there[grid.column(owner)]
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


def _decompositions(
    layers: Sequence[Factored],
    placement: Placement,
    needs: Mapping[int, tuple[str, ...]],
    end: Point,
) -> tuple[list[Job], dict[int, tuple[str, ...]]]:
    """Return all decompositions and each group's broadcasts, and what a group waits for."""
    grid = placement.grid
    there = dict(needs)
    jobs: list[Job] = []
    columns: dict[int, list[Factored]] = {}
    for layer, owner in zip(layers, placement.owners, strict=True):
        column = grid.column(owner)
        columns.setdefault(column, []).append(layer)
        stage = Compute(_decomposed(layer), "second_order", placement.stream(owner))
        jobs.append(Job(f"eigen {layer.name}", (stage,), end, needs=needs[column]))
    for column, own in columns.items():
        there[column] = tuple(f"eigen {layer.name}" for layer in own)
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
            for layer in own
            for size in _vectors(layer)
        )
        name = f"sent eigen {column}"
        jobs.append(Job(name, sends, end, needs=there[column]))
        there[column] = (name,)
    return jobs, there


def _factors(layers: Sequence[Factored], end: Point, symmetric: bool) -> list[Job]:
    """Return all products, an all-reduce of each factor, and their division by the ranks."""
    built = products(layers, KAISA)
    before: list[Kernel] = [kernel for one in built for kernel in one.kernels]
    after: list[Kernel] = []
    sends = []
    for one in built:
        values = triangle(one.side) if symmetric else one.side**2
        before += [packed(one.side)] if symmetric else []
        sends.append(Send("all_reduce", float(FLOAT * values)))
        after.append(elementwise(values, 2))
        after += unpacked(one.side) if symmetric else ()
    return [
        Job("products", (Compute(tuple(before), "second_order"),), end, needs=("averaged",)),
        Job("factors", tuple(sends), end, needs=("products",)),
        Job("divided", (Compute(tuple(after), "second_order"),), end, needs=("factors",)),
    ]


def _decomposed(layer: Factored) -> tuple[Kernel, ...]:
    """Return both decompositions of a layer, and the quotients of their eigenvalues."""
    quotients = elementwise(layer.elements, 5, 3)
    return (
        *decomposed(layer.inputs, copied=False),
        *decomposed(layer.outputs, copied=False),
        quotients,
    )


def _vectors(layer: Factored) -> tuple[int, int, int]:
    """Return the values of what an owner sends: eigenvectors of A and G, and the quotients."""
    return layer.inputs**2, layer.outputs**2, layer.elements
