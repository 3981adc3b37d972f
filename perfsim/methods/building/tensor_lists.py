"""All-gathers into lists of tensors.

``torch.distributed.all_gather`` fills one tensor a rank. With NCCL the gather lands in a buffer of
its own, which is then copied out tensor by tensor, all on the stream of the sends.

References
----------
pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, ProcessGroupNCCL::allgather. Lists
whose tensors differ in size go as one broadcast a tensor, grouped, without these copies.
"""

from __future__ import annotations

from perfsim.compute.kernel import FLOAT, elementwise
from perfsim.methods.base import Compute, JobStage, Moment, Send
from perfsim.methods.building.quantise import STREAM

__all__ = ["gathered_in_list"]


def gathered_in_list(own_bytes: float, ranks: int, earliest: Moment) -> list[JobStage]:
    """Return the all-gather of ``own_bytes`` from each rank, and the copies into the list.

    Examples
    --------
    >>> send, copies = gathered_in_list(400.0, 4, "backward")
    >>> send.size_bytes, copies.kernels[0].moved_bytes, copies.kernels[0].launches
    (1600.0, 3200.0, 4)
    """
    whole = float(own_bytes * ranks)
    copies = elementwise(1, 2 * whole / FLOAT, ranks)
    return [
        Send("all_gather", whole, earliest),
        Compute((copies,), "decompress", STREAM, earliest),
    ]
