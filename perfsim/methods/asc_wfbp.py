"""ASC-WFBP: merged gradients, two all-reduces at once on one link."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Job, MethodContext, PassPoint, Send, Shared
from perfsim.methods.building.dense_buckets import DenseBuckets
from perfsim.methods.building.update_after_wait import UpdateAfterWait


class AscWfbp(UpdateAfterWait, DenseBuckets):
    """Sends merged gradients over two communication streams that share the network.

    Each merged message is one dense all-reduce. Messages go in backward order, each as soon as its
    last gradient is ready. They use the streams in turn (Horovod's NCCL streams), so two may run at
    once beside the backward pass: their latencies overlap, and their bytes share the link. A
    gradient is merged only where that delays nothing (`fusion` asc). No kernels of its own.

    Bytes a rank: 2 (P-1)/P x 4 a parameter (ring).
    Memory: the merged buffers, none from one iteration to the next beyond the gradients.
    Left out: copies into the buffers; the host's wait for the compute stream before each message;
    anything that the paper's own scheduler does besides the code's rule, as its text could not be
    read.

    ``capacity`` is the rate of several flows together, in units of one flow's rate. The default is
    1: the rates of perfsim's networks are those of long messages, which nearly fill the wire. The
    authors' script draws the time of one all-reduce as a + s b and of two at once as a + 1.5 s b
    (4/3 of one flow's rate). It draws them over measurements of up to 4 MiB on 8 workers of 10GbE
    with TCP. For longer messages two such flows would exceed that wire (9.43 Gb/s).
    """

    summary: ClassVar[str] = "merged gradients, two all-reduces at once on one link (ASC-WFBP)"
    citation: ClassVar[str] = (
        "Shi, Chu & Li 2021, Exploiting Simultaneous Communications to Accelerate Data Parallel"
        " Distributed Deep Learning, INFOCOM; the authors' plotting script for it (time of one and"
        " of two tasks); code lzhangbv/dear_pytorch@43138d8b benchmarks.py (asc2),"
        " mgwfbp/hv_distributed_optimizer.py; streams in turn: horovod/horovod@2626dc87"
        " horovod/common/ops/gpu_operations.cc"
    )
    fusion: ClassVar[str] = "asc"
    decides: ClassVar[bool] = True

    streams: int = Field(2, ge=1, le=8, description="all-reduces that may run at once")
    capacity: float = Field(
        1.0, ge=1, le=8, description="rate of several flows together, in units of one alone"
    )

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return one all-reduce a bucket, on the streams in turn."""
        network = Shared("network", self.capacity)
        return [
            Job(
                f"{number}",
                (
                    Send(
                        "all_reduce",
                        self.dense_bytes(bucket),
                        stream=f"communication {number % self.streams}",
                        shares=network,
                    ),
                ),
                PassPoint("backward", bucket.ready_s),
            )
            for number, bucket in enumerate(buckets)
        ]
