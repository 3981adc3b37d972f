"""Horovod's negotiation: in every cycle the ranks find out which tensors all of them have.

With the response cache the hosts all-reduce a bit a tensor. Without it (HOROVOD_CACHE_CAPACITY=0)
every rank sends a request a tensor to rank 0, which reads them all, counts them by name, compares
their shapes and types, and broadcasts what goes; all ranks wait for it.

References
----------
horovod/horovod v0.19.2 horovod/common/controller.cc, ``ComputeResponseList``,
``IncrementTensorCount``, ``ConstructResponse``, ``FuseResponses``; message.cc; stall_inspector.cc;
mpi/mpi_controller.cc. The same in v0.21.3.
"""

from __future__ import annotations

from math import ceil, log2

__all__ = ["MESSAGE_US", "REQUEST_S", "negotiation_s"]

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
    """Return how long the ranks negotiate over some tensors that all of them have [s].

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
