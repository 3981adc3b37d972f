"""Local SGD: models averaged every few iterations, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    Compute,
    Job,
    JobStage,
    Method,
    MethodContext,
    PassPoint,
    Round,
    Send,
)
from perfsim.methods.building.averaging import periodic


class Localsgd(Method):
    """Updates locally; every ``interval`` iterations the models are averaged after the update.

    The idea is that of `cpsgd`. The implementation is that of Hugging Face Accelerate, which most
    users of this name run. It takes one tensor after the other, in the order of the buckets: each
    is cloned (2 passes), all-reduced and divided by P (2 passes), and waits for the one before. The
    next forward pass waits for all. `fusion` whole does so with one buffer. The interval is that of
    Accelerate's example. Bytes a rank: 2 (P-1)/P x 4 / interval a parameter. Memory: none from one
    iteration to the next. Left out: the barrier before averaging; averaging of batch-norm
    statistics.
    """

    summary: ClassVar[str] = "models averaged every few iterations, tensor by tensor (local SGD)"
    citation: ClassVar[str] = (
        "Stich 2019, Local SGD Converges Fast and Communicates Little, ICLR, arXiv 1805.09767;"
        " code huggingface/accelerate@04e6abd8 src/accelerate/local_sgd.py, @01a1ffcd"
        " utils/operations.py (reduce), @11ad1b38 examples/by_feature/local_sgd.py"
    )
    family: ClassVar[str] = "fewer exchanges"
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n / interval"
    fusion: ClassVar[str] = "none"
    interval_option: ClassVar[str] = "interval"
    published_intervals: ClassVar[Mapping[int, str]] = {8: "Accelerate's example"}

    interval: int = Field(8, ge=1, le=10**6, description="iterations between two averagings")

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the averaging after the update."""
        stages: list[JobStage] = []
        for bucket in buckets:
            kernels = (elementwise(bucket.elements, 2),)
            stages += [
                Compute(kernels, "compress", earliest="update"),
                Send("all_reduce", bucket.size_bytes, earliest="update"),
                Compute(kernels, "decompress", earliest="update"),
            ]
        return [Job("average", tuple(stages), PassPoint("backward"), PassPoint("next"))]

    def rounds(self) -> list[Round]:
        """Return the local iterations and the one that averages."""
        return periodic(self.interval)
