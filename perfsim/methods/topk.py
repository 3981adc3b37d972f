"""Exact Top-k sparsification with error feedback and all-gathers."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import ONE_GROUP, Compute, JobStage, Method, MethodContext, OnlyWith
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import DDP, HOROVOD_FORK, CodeBase
from perfsim.methods.building.sparsify import (
    Decoding,
    Selection,
    SparseExchange,
    exact,
    exchanged,
    kept,
    worst_case,
)


class Topk(Method):
    """Keeps the k largest magnitudes of each bucket; values and indices are all-gathered.

    In the hook, on the compute stream, the residual is added (3 passes) and magnitudes are taken
    (2). The k largest of the bucket are selected exactly, and the residual is copied with what was
    sent cleared (2). Then the values (4 bytes each) are all-gathered, and so are the indices (4
    bytes each). After the backward pass the gradient is zeroed, P k pairs are scatter-added and the
    mean is taken (3 passes). Bytes a rank: (P-1) x 8 k. Memory: the residual, 4 bytes a parameter.
    Left out: the copies that pack a bucket; GRACE's residual by unfused operations (6 passes more).

    ``kernel``: how PyTorch selects; "auto" is that of the software era. "old" is one block (before
    1.11; about 9 ns an element on V100), "sort" sorts large buckets, "new" is many blocks (derived
    from one published fp16 time on another GPU; no fp32 time is known): see ``Selection`` in
    `perfsim.methods.building.sparsify`. ``exchange`` and ``decoding``: see
    `perfsim.methods.building.sparsify`. HKBU's codes add all pairs into one gradient; GRACE makes a
    dense one a rank. `fusion` none selects tensor by tensor (GRACE), ``whole`` from one buffer
    (HKBU).
    """

    summary: ClassVar[str] = "exact Top-k of each bucket, values and indices all-gathered"
    citation: ClassVar[str] = (
        "Aji & Heafield 2017, EMNLP, section 3; Lin et al. 2018, ICLR, section 3 (residual); code"
        " hclhkbu/GaussianK-SGD@3da1fb3b compression.py, TopKCompressor; sands-lab/grace@fd3a7f4"
    )
    family: ClassVar[str] = "sparsification"
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with exchange all_reduce pairs are added up by doubling, first inside a"
        " node, then across nodes"
    )
    wire: ClassVar[str] = f"(P - 1) * 8 * k if exchange == 'all_gather' else {worst_case('8')}"

    density: float = Field(0.001, gt=0, le=1, description="share of values kept, k/n")
    kernel: Selection = Field("auto", description="PyTorch's top-k; auto: of the `software`")
    exchange: SparseExchange = Field("all_gather", description="all pairs to every rank, or sums")
    decoding: Annotated[Decoding, OnlyWith(exchange="all_gather")] = Field(
        "together", description="all ranks' pairs, or a tensor a rank"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the selection, the exchange and the scatter-add."""
        n, k = bucket.elements, kept(bucket.elements, self.density)
        select = exact(n, self.kernel, world.software)
        return [
            Compute((elementwise(n, 7, 3), select, elementwise(k, 2)), "compress"),
            *exchanged([n], k, world, exchange=self.exchange, decoding=self.decoding),
        ]

    def code_base(self) -> CodeBase:
        """Return HKBU's, with all-gathers; the sums are no code's."""
        return HOROVOD_FORK if self.exchange == "all_gather" else DDP

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the kept values: 8 each."""
        return float((FLOAT + INDEX) * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual: one fp32 value a parameter."""
        return fp32_bytes(gradients)
