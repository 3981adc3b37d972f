"""Queued kernels: the cost of kernels that a loop runs once per message, one behind another.

Published times of encoding and decoding were measured between two synchronisations of host and
GPU. Their constant part therefore includes the host's work and its waiting: 230 us for five
launches of EF-SignSGD's decode, against 8 us per launch. Loops over gathered messages do not
synchronise between two messages. There the first kernel is assumed to cost what was measured. Each
kernel queued behind it costs its launches, its bytes, and the measured growth with size. The
authors of Espresso do the same in their own model: they remove the factor for the number of
messages from the decoding time.

References
----------
Measurement: zhuangwang93/Espresso@a0294e3a byteps/torch/examples/compressor_benchmark.py; one
decode per tensor: mergeComp/scheduler/simulator_espresso.py, get_decoding_overhead. Loops:
sands-lab/grace@fd3a7f42 grace_dl/torch/communicator/allgather.py, zhuangwang93/Cupcake@799d1611
mergeComp_dl/torch/communicator/DDP_allgather.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.kernel import Kernel, KernelLoop

__all__ = ["in_turn", "queued"]

_QUEUED = {name: f"{name}_queued" for name in ("dgc_decode", "efsign_decode", "onebit_decode")}
"""Kernel name -> name of the points for the same kernel queued behind others of its kind."""


def queued(kernel: Kernel) -> Kernel:
    """Return a kernel as it runs right behind others, with no synchronisation before it.

    Examples
    --------
    >>> [queued(Kernel(name, 1000, 4e3)).name for name in ("efsign_decode", "elementwise")]
    ['efsign_decode_queued', 'elementwise']
    """
    return kernel._replace(name=_QUEUED.get(kernel.name, kernel.name))


def in_turn(kernels: Sequence[Kernel], times: int) -> KernelLoop:
    """Repeat kernels ``times`` times, as a loop does; all but the first time they are queued.

    Examples
    --------
    >>> [kernel.name for kernel in in_turn([Kernel("onebit_decode", 1000, 4e3)], 3)]
    ['onebit_decode', 'onebit_decode_queued', 'onebit_decode_queued']
    """
    return KernelLoop([(tuple(kernels), 1), (tuple(map(queued, kernels)), times - 1)])
