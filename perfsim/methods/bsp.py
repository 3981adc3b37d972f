"""Bulk-synchronous SGD: one all-reduce of the whole gradient after the backward pass."""

from typing import ClassVar

from pydantic import Field

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, MethodContext, Send
from perfsim.methods.building.code_bases import DDP, HOROVOD_FORK, CodeBase
from perfsim.methods.building.flat_buffer import packed_buffer, written_back
from perfsim.methods.building.update_after_wait import UpdateAfterWait


class Bsp(UpdateAfterWait):
    """Sends the gradient of the whole model in one buffer once the backward pass is over.

    Nothing overlaps: forward, backward, one dense all-reduce, update. The code's merge threshold is
    536870912 elements, more than its models have. `fusion` cuts the buffer; the pieces still go
    after the backward pass, in backward order. No kernels of its own.

    Bytes a rank: 2 (P-1)/P x 4 a parameter (ring).
    Memory: none from one iteration to the next; the buffer, as large as the gradients, takes their
    place.
    Left out: the copy of each gradient into the buffer in its hook (2 passes, a launch a tensor);
    the host's wait for the compute stream before it sends.

    ``write_back`` follows Gradient-Compression. The gradients are concatenated after the backward
    pass (2 passes). Later each is cleared and its piece of the sum is added (4 passes). The host
    goes through the tensors while the all-reduce runs; the iteration waits for the tensors that are
    left by then.
    """

    summary: ClassVar[str] = "one dense all-reduce after the backward pass, no overlap (BSP)"
    citation: ClassVar[str] = (
        "Shi et al. 2020, arXiv 2005.13247 (BSP); the same as SyncEASGD in Shi, Chu & Li 2019,"
        " MG-WFBP, INFOCOM, section III; code HKBU-HPML/ddl-benchmarks@30de09bc benchmarks.py"
        " (bspa2a), mgwfbp/hv_distributed_optimizer.py; written back:"
        " vineeths96/Gradient-Compression@e5b61b1e reducer.py (NoneAllReducer)"
    )
    family: ClassVar[str] = "dense"
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n"
    fusion: ClassVar[str] = "whole"
    lossy: ClassVar[bool] = False

    write_back: bool = Field(
        False, description="the buffer is filled after the backward pass and copied back"
    )

    def code_base(self) -> CodeBase:
        """Return HKBU's; Gradient-Compression's host goes through the tensors without a wait."""
        return DDP if self.write_back else HOROVOD_FORK

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the one all-reduce; ``write_back`` packs before it and unpacks after it."""
        send = Send("all_reduce", bucket.size_bytes, earliest="backward")
        if not self.write_back:
            return [send]
        n, tensors = bucket.elements, len(bucket.gradients)
        sent_s = world.collective_s("all_reduce", bucket.size_bytes, "all")
        back = written_back(n, tensors, world, sent_s)
        return [
            Compute(packed_buffer(n, tensors), "compress", earliest="backward"),
            send,
            Compute(back, "decompress", earliest="backward"),
        ]
