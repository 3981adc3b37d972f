"""Kernels that are run once a message in one loop: what the first costs, and those queued behind.

Published times of encoding and decoding were taken between two synchronisations of host and GPU,
so that their flat part holds the host's work and its waiting: 230 us for five launches of
EF-SignSGD's decode, against 8 us a launch. Loops over gathered messages do not wait between two
messages. There the first is taken to cost what was measured, and each one queued behind it its
launches, its bytes, and the growth with size that was measured. The authors of Espresso do as
much in their own model: the factor for the number of messages is taken out of its decoding time.

References
----------
Measured so: zhuangwang93/Espresso@a0294e3a byteps/torch/examples/compressor_benchmark.py; one
decode a tensor: mergeComp/scheduler/simulator_espresso.py, get_decoding_overhead. Loops:
sands-lab/grace@fd3a7f42 grace_dl/torch/communicator/allgather.py, zhuangwang93/Cupcake@799d1611
mergeComp_dl/torch/communicator/DDP_allgather.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.kernel import Kernel, elementwise

__all__ = ["in_turn", "queued", "summed"]

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


def summed(elements: int, tensors: int) -> Kernel:
    """Return the sum of so many tensors one after the other, from zero: Python's ``sum``.

    The first is added to a zero (2 passes), the others to what there is (3 passes).

    Examples
    --------
    >>> summed(1000, 4).moved_bytes / 4000, summed(1000, 4).launches
    (11.0, 4)
    """
    return elementwise(elements, 3 * tensors - 1, tensors)
