"""gTop-k: the exact Top-k of all ranks' Top-k, found along a tree and broadcast."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, Send
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import GTOPK, CodeBase
from perfsim.methods.building.sparsify import Selection, decoded, exact, kept, merged_pairs


class Gtopk(Method):
    """Adds up the ranks' k largest values in pairs, keeping k each time, and broadcasts the result.

    In the hook, on the compute stream, the residual is added (3 passes), magnitudes are taken (2),
    and the k largest are selected exactly. A mask is set (1). The residual is cleared (1), then
    made of the rest (3), which is subtracted (3).

    Then, log2 P times, half of the remaining ranks send their k values and indices (8 bytes) to a
    neighbour. The neighbour keeps the k largest of the sum (see `merged_pairs` in
    `perfsim.methods.building.sparsify`). This is a binomial broadcast run backwards, neighbours in
    a node first, its merges counted together at the end. The root broadcasts k pairs in log2 P
    rounds. After the backward pass the gradient is zeroed and filled and the mean taken (3 passes),
    and values that were sent but not kept go back to the residual. One buffer holds the whole
    model, so nothing overlaps, as in the code; `fusion` size makes buckets.

    Bytes a rank: 2 (P-1)/P x 8 k, the mean; the root sends log2 P x 8 k.
    Memory: the residual and the mask, 8 bytes a parameter.
    Left out: that the authors' code merges with numpy on the CPU, sends from host memory and waits
    for all ranks after every round (here on the GPU); its density of 0.004 in the first epoch.
    """

    summary: ClassVar[str] = "global Top-k along a tree of pairwise merges (gTop-k)"
    citation: ClassVar[str] = (
        "Shi et al. 2019, A Distributed Synchronous SGD Algorithm with Global Top-k Sparsification"
        " for Low Bandwidth Networks, ICDCS, arXiv 1901.04359; code HKBU-HPML/gtopkssgd@6f57343f"
        " allreducer.py, gtopk_sparse_allreduce; compression.py, TopKCompressor"
    )
    family: ClassVar[str] = "sparsification"
    runs_in: ClassVar[CodeBase] = GTOPK
    wire: ClassVar[str] = "2 * (P - 1) / P * 8 * k"
    fusion: ClassVar[str] = "whole"

    density: float = Field(0.001, gt=0, le=1, description="share of values kept, k/n")
    kernel: Selection = Field("auto", description="PyTorch's top-k; auto: of the `software`")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the selection, the merges up the tree, the broadcast, and the scatter."""
        n, k = bucket.elements, kept(bucket.elements, self.density)
        rounds = world.ranks.bit_length() - 1
        select = elementwise(n, 13, 6), exact(n, self.kernel, world.software), elementwise(k, 3, 2)
        tree = Send("broadcast", float((FLOAT + INDEX) * k), algorithm="binomial")
        merges = merged_pairs(k, self.kernel, world.software) * rounds
        return [
            Compute(select, "compress"),
            tree,
            Compute(merges, "decompress", stream="communication"),
            tree,
            Compute((*decoded([n], k, 1), elementwise(k, 4, 3)), "decompress", earliest="backward"),
        ]

    def refusal(self, world: MethodContext) -> str:
        """Return why the ranks do not pair up in every round, or ""."""
        if world.ranks & (world.ranks - 1) == 0:
            return ""
        return f"needs 2, 4, 8, ... GPUs, as its tree pairs them in every round; not {world.ranks}"

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return 8 bytes a kept value."""
        return float((FLOAT + INDEX) * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of residual and mask: two fp32 values a parameter."""
        return 2.0 * fp32_bytes(gradients)
