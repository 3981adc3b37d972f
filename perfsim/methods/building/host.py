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

from math import ceil, log2

from perfsim.collectives.hops import Hops
from perfsim.collectives.parameter_server import server_loads
from perfsim.compute.kernel import FLOAT, Kernel, elementwise
from perfsim.methods.base import MethodContext

__all__ = [
    "MESSAGE_US",
    "REQUEST_S",
    "busiest_server",
    "called",
    "cpu_sum",
    "negotiation_s",
    "packed",
    "received",
    "to_gpu",
    "to_host",
    "written_back",
]

MESSAGE_US = 28.0
"""A small message between two hosts [us], by MPI over TCP: an 8-byte all-reduce of Open MPI 4.0.1
takes 84.0 us on 8 nodes of 4 (10 Gbit/s Ethernet), where three of its five rounds are between
nodes; on 4 nodes of one process 50.4 us. Over InfiniBand without TCP it is 7.36 us on 16 nodes, a
quarter of that a message. dexhunter/allreduce-experiments@b49158f0 data/ompi-results,
shyhuai/B-Caffe@1e8a70d8 logdata/allreduce4.log."""

REQUEST_S = 0.35e-6
"""What rank 0 does for one tensor's request of one rank [s]: v0.19.2's own code (parse, count,
compare, fuse, serialise; g++ -O2) on one core of an AMD EPYC, 64 ranks and 30 tensors a cycle. 0.30
to 0.42 us for 16 to 512 ranks and 10 to 30 tensors; 0.5 to 0.9 us from 10,000 requests a cycle on,
which no longer fit the cache of the core."""


def negotiation_s(tensors: int, ranks: int, nodes: int, *, cache: bool, message_s: float) -> float:
    """Return how long the ranks take to agree on some tensors that all of them have [s].

    With the cache ceil(log2 N) messages, one after the other, over N nodes (those inside a node
    taken as free). Without it a gather and two broadcasts of as many each, a gather straight to
    the coordinator, and the coordinator's work on P requests a tensor.

    Examples
    --------
    >>> round(1e6 * negotiation_s(1, 32, 8, cache=True, message_s=28e-6))
    84
    """
    if nodes == 1:
        rounds = 0
    elif cache:
        rounds = ceil(log2(nodes))
    else:
        rounds = 3 * ceil(log2(nodes)) + 1
    work_s = 0.0 if cache else tensors * ranks * REQUEST_S
    return rounds * message_s + work_s


BACK_LAUNCHES, BACK_VIEWS = 3, 4
"""Calls a tensor when the buffer is emptied, as above."""

PACK_PASSES, BACK_PASSES = 2, 4
"""Concatenate; clear (1) and add (3)."""


def called(launches: int, views: int) -> tuple[Kernel, ...]:
    """Return the host's calls from Python: operations that launch a kernel, and views.

    Examples
    --------
    >>> [(kernel.name, kernel.elements) for kernel in called(3, 0)]
    [('eager_launch', 3)]
    """
    calls = (("eager_launch", launches), ("eager_view", views))
    return tuple(
        Kernel(name, count, 0.0, launches=count if name == "eager_launch" else 0)
        for name, count in calls
        if count
    )


def packed(elements: int, tensors: int) -> tuple[Kernel, ...]:
    """Return the concatenation of ``tensors`` gradients of ``elements`` values together."""
    return (*called(1, tensors), elementwise(elements, PACK_PASSES, 0))


def written_back(
    elements: int, tensors: int, world: MethodContext, beside_s: float = 0.0
) -> tuple[Kernel, ...]:
    """Return the emptying of the buffer: the host's calls, or the GPU's work where that is longer.

    ``beside_s`` is how long a collective still runs while the host goes through the tensors.

    Examples
    --------
    >>> [kernel.name for kernel in written_back(1000, 2, MethodContext(4))]
    ['elementwise']
    >>> hosted = MethodContext(4, kernel_s=lambda kernel: float(not kernel.moved_bytes))
    >>> [(one.name, one.elements) for one in written_back(1000, 2, hosted)]
    [('eager_launch', 6), ('eager_view', 8)]
    >>> [(one.name, one.elements) for one in written_back(1000, 2, hosted, beside_s=1.0)]
    [('eager_launch', 3), ('eager_view', 4)]
    """
    calls = called(BACK_LAUNCHES * tensors, BACK_VIEWS * tensors)
    host_s = sum(world.kernel_s(call) for call in calls)
    moved = elementwise(elements, BACK_PASSES, 0)
    left = max(0.0, 1.0 - beside_s / host_s) if host_s > 0 else 0.0
    if left * host_s <= world.kernel_s(moved):
        return (moved,)
    return called(*(round(left * call.elements) for call in calls))


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
