"""Placement: which rank inverts which matrix."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["busiest", "least_loaded", "round_robin"]


def round_robin(count: int, ranks: int) -> list[int]:
    """Return the ranks of ``count`` tasks dealt out in turn.

    Examples
    --------
    >>> round_robin(5, 3)
    [0, 1, 2, 0, 1]
    """
    return [task % ranks for task in range(count)]


def least_loaded(weights: Sequence[float], ranks: int) -> list[int]:
    """Return the ranks of tasks, heaviest first each to the rank with the least so far.

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


def busiest(owners: Sequence[int], seconds: Sequence[float]) -> int:
    """Return the rank whose tasks take longest, by their owners and times [s].

    Examples
    --------
    >>> busiest([0, 1, 0], [1.0, 3.0, 1.0])
    1
    """
    loads: dict[int, float] = {}
    for owner, taken_s in zip(owners, seconds, strict=True):
        loads[owner] = loads.get(owner, 0.0) + taken_s
    return max(loads, key=lambda owner: loads[owner], default=0)
