"""One buffer for all gradients, filled and emptied tensor by tensor from Python.

Filling it takes a view of each gradient and one concatenation; emptying it clears each gradient
(a slice is assigned a number: a scalar made on the GPU, and its copy) and adds its piece of the
buffer (a slice, a view, a device that stays the same, an addition). The GPU does each piece
faster than the host asks for it, so that the host's calls decide: ``eager_launch`` is an operation
that launches a kernel, ``eager_view`` one that launches none. Their points are of the optimizer's
step and the accumulation of gradients, which the same code times apart from the exchange.

References
----------
vineeths96/Gradient-Compression@e5b61b1e reducer.py (TensorBuffer, NoneAllReducer), trainer.py;
assignment to a slice: PyTorch 1.7, aten/src/ATen/TensorIndexing.h (scalarToTensor, copy_to).
"""

from __future__ import annotations

from perfsim.collectives.hops import Hops
from perfsim.collectives.parameter_server import server_loads
from perfsim.compute.kernel import FLOAT, Kernel

__all__ = ["busiest_server", "cpu_sum", "received", "to_gpu", "to_host"]


def to_host(elements: int) -> Kernel:
    """Return the copy of fp32 values from a GPU to pinned host memory, over its link to the host.

    Examples
    --------
    >>> to_host(250).name, to_host(250).moved_bytes
    ('copy_to_host', 1000.0)
    """
    return Kernel("copy_to_host", elements, float(FLOAT * elements))


def to_gpu(elements: int) -> Kernel:
    """Return the copy of fp32 values from pinned host memory to a GPU.

    Examples
    --------
    >>> to_gpu(250).name
    'copy_to_gpu'
    """
    return Kernel("copy_to_gpu", elements, float(FLOAT * elements))


def cpu_sum(elements: int) -> Kernel:
    """Return the addition of fp32 values that come in to those that a server holds.

    Examples
    --------
    >>> cpu_sum(250).name, cpu_sum(250).launches
    ('cpu_sum', 0)
    """
    return Kernel("cpu_sum", elements, float(FLOAT * elements), launches=0)


def received(elements: int) -> Kernel:
    """Return what a process's one receiving thread does with fp32 values that come in by ZeroMQ.

    Examples
    --------
    >>> received(250).name, received(250).launches
    ('zmq_receive', 0)
    """
    return Kernel("zmq_receive", elements, float(FLOAT * elements), launches=0)


def busiest_server(elements: int, nodes: int, servers: int) -> int:
    """Return the values that come in at the busiest of the servers that share out a message.

    Each node sends ``elements``; servers stand on the nodes and on ``servers`` machines of their
    own, loaded as in `perfsim.collectives.push_sharded`.

    Examples
    --------
    >>> busiest_server(1000, 4, 0), busiest_server(1000, 4, 2), busiest_server(1000, 4, 8)
    (1000, 1200, 1000)
    """
    on_node, of_its_own = server_loads(Hops.flat(nodes, 0.0, 0.0), servers)
    return round(elements * nodes * max(on_node, of_its_own))
