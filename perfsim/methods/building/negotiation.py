"""Horovod's negotiation: in every cycle the ranks find out which tensors all of them have.

With the response cache the hosts all-reduce one bit per tensor. Without it
(HOROVOD_CACHE_CAPACITY=0) every rank sends one request per tensor to rank 0. Rank 0 reads them all,
counts them by name and compares their shapes and types. It then broadcasts which tensors to send,
and all ranks wait for that.

References
----------
horovod/horovod v0.19.2 horovod/common/controller.cc, ``ComputeResponseList``,
``IncrementTensorCount``, ``ConstructResponse``, ``FuseResponses``; message.cc; stall_inspector.cc;
mpi/mpi_controller.cc. v0.21.3 does the same.
"""

from __future__ import annotations

from math import ceil, log2

__all__ = ["MESSAGE_US", "REQUEST_S", "negotiation_s"]

MESSAGE_US = 28.0
"""Time of a small message between two hosts by MPI over TCP [us].

An 8-byte all-reduce of Open MPI 4.0.1 takes 84.0 us on 8 nodes of 4 processes (10 Gbit/s Ethernet),
where three of its five rounds are between nodes. On 4 nodes of one process it takes 50.4 us. Over
InfiniBand without TCP it takes 7.36 us on 16 nodes, a quarter of that per message.
dexhunter/allreduce-experiments@b49158f0 data/ompi-results, shyhuai/B-Caffe@1e8a70d8
logdata/allreduce4.log."""


REQUEST_S = 0.35e-6
"""Time of rank 0 for one rank's request for one tensor [s].

Measured with v0.19.2's own code (parse, count, compare, fuse, serialise; g++ -O2) on one core of an
AMD EPYC, with 64 ranks and 30 tensors per cycle. It is 0.30 to 0.42 us for 16 to 512 ranks and 10
to 30 tensors. From 10,000 requests per cycle on it is 0.5 to 0.9 us, since they no longer fit the
core's cache."""


def negotiation_s(tensors: int, ranks: int, nodes: int, *, cache: bool, message_s: float) -> float:
    """Return the time of the negotiation over tensors that all ranks have [s].

    With the cache this is ceil(log2 N) messages one after another over N nodes. Messages inside a
    node count as free. Without the cache a gather and two broadcasts take as many messages each.
    One more message gathers straight to the coordinator, which works on P requests per tensor.

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
