"""Queued kernels."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.kernel import Kernel

__all__ = ["in_turn", "queued"]

QUEUED = {name: f"{name}_queued" for name in ("dgc_decode", "efsign_decode", "onebit_decode")}
"""Names of the points for kernels behind others of their kind."""


def queued(kernel: Kernel) -> Kernel:
    """Return a kernel as it runs right behind others, with no synchronisation before it.

    Examples
    --------
    >>> queued(Kernel("efsign_decode", 1000, 4e3)).name, queued(elementwise(10, 1)).name
    ('efsign_decode_queued', 'elementwise')
    """
    return kernel._replace(name=QUEUED.get(kernel.name, kernel.name))


def in_turn(kernels: Sequence[Kernel], times: int) -> tuple[Kernel, ...]:
    """Return kernels that a loop runs ``times`` over, all but the first time queued.

    Examples
    --------
    >>> [kernel.name for kernel in in_turn([Kernel("onebit_decode", 1000, 4e3)], 3)]
    ['onebit_decode', 'onebit_decode_queued', 'onebit_decode_queued']
    """
    return tuple(kernels) + tuple(map(queued, kernels)) * (times - 1)
