"""SPD-KFAC's inverses: the large ones balanced over the ranks, the others on every rank."""

from __future__ import annotations

from collections.abc import Sequence, Set

from perfsim.kernel import Kernel, elementwise
from perfsim.kfac.kernels import inverted
from perfsim.kfac.pipeline import Product
from perfsim.kfac.placement import busiest, least_loaded
from perfsim.method import Compute, Job, Point, Send, World

__all__ = ["balanced"]


def balanced(
    factors: Sequence[Product], sent: Set[str], world: World, needs: tuple[str, ...], end: Point
) -> list[Job]:
    """Return the inverses in layer order, a broadcast after each of those ``sent``.

    Every rank inverts what is not sent, and clears and packs what another rank sends. The busiest
    owner is the one shown on the compute stream; the other owners have streams of their own. A
    job "inverse X" is followed by "broadcast X": packing and sending.
    """
    large = [factor for factor in factors if factor.name in sent]
    owners = least_loaded([factor.side for factor in large], world.ranks)
    seconds = [sum(map(world.kernel_s, inverted(factor.side))) for factor in large]
    owner_of = {factor.name: owner for factor, owner in zip(large, owners, strict=True)}
    shown = busiest(owners, seconds)
    common: list[Kernel] = []
    begun: dict[int, int] = {}
    jobs = []
    for factor in factors:
        own = inverted(factor.side)
        if factor.name not in owner_of:
            common += own
            continue
        rank = owner_of[factor.name]
        # What every rank has run since this one's last inverse comes before its own.
        stream = "compute" if rank == shown else f"rank {rank}"
        inverse = Compute((*common[begun.get(rank, 0) :], *own), "second_order", stream)
        common += [elementwise(factor.side**2, 1), *factor.packed]
        begun[rank] = len(common)
        pack = Compute(factor.packed, "second_order", stream)
        send = Send("broadcast", 4.0 * factor.values)
        name = f"inverse {factor.name}"
        jobs.append(Job(name, (inverse,), end, needs=needs))
        jobs.append(Job(f"broadcast {factor.name}", (pack, send), end, needs=(name,)))
    rest = Compute(tuple(common[begun.get(shown, 0) :]), "second_order")
    return [*jobs, Job("inverses everywhere", (rest,), end, needs=needs)]
