"""Kernels that run once a message in one loop: what the first costs, and those queued behind it.

Published times of encoding and decoding were taken between two synchronisations of host and GPU,
so that their flat part holds the host's work and its waiting: 230 us for five launches of
EF-SignSGD's decode, against 8 us a launch. Loops over gathered messages do not wait between two
messages. There the first kernel is taken to cost what was measured. Each one queued behind it costs
its launches, its bytes, and the growth with size that was measured. The authors of Espresso do as
much in their own model: they take the factor for the number of messages out of its decoding time.

References
----------
Measured so: zhuangwang93/Espresso@a0294e3a byteps/torch/examples/compressor_benchmark.py; one
decode a tensor: mergeComp/scheduler/simulator_espresso.py, get_decoding_overhead. Loops:
sands-lab/grace@fd3a7f42 grace_dl/torch/communicator/allgather.py, zhuangwang93/Cupcake@799d1611
mergeComp_dl/torch/communicator/DDP_allgather.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.kernel import Kernel

__all__ = ["in_turn", "queued"]

_QUEUED = {name: f"{name}_queued" for name in ("dgc_decode", "efsign_decode", "onebit_decode")}
"""Names of the measured points for kernels behind others of their kind."""


def queued(kernel: Kernel) -> Kernel:
    """Return a kernel as it runs right behind others, with no synchronisation before it.

    Examples
    --------
    >>> [queued(Kernel(name, 1000, 4e3)).name for name in ("efsign_decode", "elementwise")]
    ['efsign_decode_queued', 'elementwise']
    """
    return kernel._replace(name=_QUEUED.get(kernel.name, kernel.name))


def in_turn(kernels: Sequence[Kernel], times: int) -> tuple[Kernel, ...]:
    """Return kernels that a loop runs ``times`` over, all but the first time queued.

    Examples
    --------
    >>> [kernel.name for kernel in in_turn([Kernel("onebit_decode", 1000, 4e3)], 3)]
    ['onebit_decode', 'onebit_decode_queued', 'onebit_decode_queued']
    """
    return tuple(kernels) + tuple(map(queued, kernels)) * (times - 1)
