"""Work on the host: copies between a GPU and its host's memory, and sums on the host's CPUs.

They are kernels like any other: measured points give their cost (``copy_to_host``,
``copy_to_gpu``, ``cpu_sum``, ``zmq_receive``), and no method states a rate. On a GPU without such
points they cost only the launch. Other kernels are then estimated from memory bandwidth, but that
is about fifty times the bandwidth of PCIe.
"""

from __future__ import annotations

from perfsim.collectives.hops import Hops
from perfsim.collectives.parameter_server import server_loads
from perfsim.compute.kernel import FLOAT, Kernel

__all__ = ["busiest_server", "cpu_passes", "cpu_sum", "received", "to_gpu", "to_host"]

_SUM_PASSES = 3
"""Passes of a sum: both terms are read, one is written."""


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
    """Return the CPU's addition of received fp32 values to a server's own values.

    Examples
    --------
    >>> cpu_sum(250).name, cpu_sum(250).launches
    ('cpu_sum', 0)
    """
    return Kernel("cpu_sum", elements, float(FLOAT * elements), launches=0)


def cpu_passes(elements: int, passes: float) -> Kernel:
    """Return the host's work that reads and writes fp32 values ``passes`` times in all.

    It takes as long as sums that move as many bytes.

    Examples
    --------
    >>> cpu_passes(250, 3) == cpu_sum(250), cpu_passes(250, 6) == cpu_sum(500)
    (True, True)
    """
    return cpu_sum(round(elements * passes / _SUM_PASSES))


def received(elements: int) -> Kernel:
    """Return the work of a process's only receiving thread on fp32 values received by ZeroMQ.

    Examples
    --------
    >>> received(250).name, received(250).launches
    ('zmq_receive', 0)
    """
    return Kernel("zmq_receive", elements, float(FLOAT * elements), launches=0)


def busiest_server(elements: int, nodes: int, servers: int) -> int:
    """Return the values that the busiest server receives when servers share a message.

    Each node sends ``elements`` values. Servers run on the nodes and on ``servers`` machines of
    their own; `perfsim.collectives.parameter_server.server_loads` gives their loads.

    Examples
    --------
    >>> busiest_server(1000, 4, 0), busiest_server(1000, 4, 2), busiest_server(1000, 4, 8)
    (1000, 1200, 1000)
    """
    on_node, on_own_machine = server_loads(Hops.flat(nodes, 0.0, 0.0), servers)
    return round(elements * nodes * max(on_node, on_own_machine))
