"""Placement of K-FAC's inverses: which rank inverts which matrix.

SPD-KFAC balances the large matrices over the ranks; every rank inverts the others itself.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from perfsim.compute.kernel import Kernel, elementwise
from perfsim.methods.base import Compute, Job, MethodContext, PassPoint, Send
from perfsim.methods.building.kfac_schedule import KroneckerFactor
from perfsim.sums import sum_in_order

__all__ = ["balanced_inverses", "busiest_rank", "least_loaded", "round_robin"]


def round_robin(count: int, ranks: int) -> list[int]:
    """Assign ``count`` tasks to the ranks in turn.

    Examples
    --------
    >>> round_robin(5, 3)
    [0, 1, 2, 0, 1]
    """
    return [task % ranks for task in range(count)]


def least_loaded(weights: Sequence[float], ranks: int) -> list[int]:
    """Assign tasks to ranks, the heaviest first, each to the rank with the least load so far.

    References
    ----------
    shyhuai/kfac_pytorch@1dacea76 kfac/kfac_preconditioner_inv_opt.py,
    _generate_eigen_ranks_uniform.

    Examples
    --------
    >>> least_loaded([1, 4, 2, 3], 2)
    [0, 0, 1, 1]
    """
    loads = [0.0] * ranks
    owners = [0] * len(weights)
    for task in sorted(range(len(weights)), key=lambda task: -weights[task]):
        owners[task] = min(range(ranks), key=loads.__getitem__)
        loads[owners[task]] += weights[task]
    return owners


def busiest_rank(owners: Sequence[int], seconds: Sequence[float]) -> int:
    """Return the rank whose tasks take longest, from each task's owner and time [s].

    Examples
    --------
    >>> busiest_rank([0, 1, 0], [1.0, 3.0, 1.0])
    1
    """
    loads: dict[int, float] = {}
    for owner, taken_s in zip(owners, seconds, strict=True):
        loads[owner] = loads.get(owner, 0.0) + taken_s
    return max(loads, key=lambda owner: loads[owner], default=0)


def balanced_inverses(
    factors: Sequence[KroneckerFactor],
    sent: Set[str],
    world: MethodContext,
    needs: tuple[str, ...],
    end: PassPoint,
) -> list[Job]:
    """Return the inverses in layer order, with a broadcast after each one in ``sent``.

    Every rank inverts the matrices that are not sent. For the others it clears and packs what
    another rank sends. The busiest owner runs on the compute stream; the other owners have streams
    of their own. The job "inverse X" is followed by "broadcast X", which packs and sends.
    """
    large = [factor for factor in factors if factor.name in sent]
    owners = least_loaded([factor.side for factor in large], world.ranks)
    owner_s = [sum_in_order(map(world.kernel_s, factor.inverse)) for factor in large]
    owner_of = {factor.name: owner for factor, owner in zip(large, owners, strict=True)}
    shown = busiest_rank(owners, owner_s)
    common: list[Kernel] = []
    begun: dict[int, int] = {}
    jobs = []
    for factor in factors:
        kernels = factor.inverse
        if factor.name not in owner_of:
            common += kernels
            continue
        rank = owner_of[factor.name]
        # Kernels that every rank has run since this owner's last inverse precede its own.
        stream = "compute" if rank == shown else f"rank {rank}"
        inverse = Compute((*common[begun.get(rank, 0) :], *kernels), "second_order", stream)
        common += [elementwise(factor.side**2, 1), *factor.inverse_packed]
        begun[rank] = len(common)
        pack = Compute(factor.inverse_packed, "second_order", stream)
        sends = [Send("broadcast", size_bytes) for size_bytes in factor.inverse_bytes]
        name = f"inverse {factor.name}"
        jobs.append(Job(name, (inverse,), end, needs=needs))
        jobs.append(Job(f"broadcast {factor.name}", (pack, *sends), end, needs=(name,)))
    rest = Compute(tuple(common[begun.get(shown, 0) :]), "second_order")
    return [*jobs, Job("inverses everywhere", (rest,), end, needs=needs)]
