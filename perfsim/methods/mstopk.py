"""MSTop-k: an approximate Top-k by many sampled thresholds, exchanged in two layers."""

from collections.abc import Sequence
from math import ceil
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, Kernel, elementwise, method_code
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, MethodContext, OnlyWith, Send
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.ddp_buffers import DdpBuckets
from perfsim.methods.building.sparsify import (
    ABOVE_LAUNCHES,
    ABOVE_PASSES,
    gathered,
    hierarchical,
    kept,
    sampled_threshold,
)

SAMPLE_LAUNCHES = 7
"""Launches a threshold: value (subtract, multiply, add), compare, count, two tests of the count."""


class Mstopk(DdpBuckets):
    """Reduces inside the nodes, and sends between them the approximate Top-k of each share.

    Once a bucket is ready, all runs on the stream of the communication. The dense gradient is
    reduce-scattered inside the node. On its share a rank adds the residual (5 passes) and takes
    magnitudes (2), their mean and their maximum (a read each). In ``samples`` steps it halves the
    interval between these two and counts (1.5 passes, 7 launches a step). It finds the values above
    the upper threshold and, to fill up to k, those between the two (5.5 passes, 12 launches).
    Values and indices are all-gathered among the ranks with the same local rank on all nodes, then
    these pairs inside the node. After the backward pass each share is zeroed, filled and
    concatenated (3 passes). Bytes a rank: (P-1) x 8 k on nodes of one GPU; on N nodes of g, k of
    n/g: 4 n (g-1)/g dense and 8 k N (g-1) inside, 8 k (N-1) between. Memory: DDP's buckets (see
    `ssgd`), the residual (in two layers it is of the share alone; the whole is charged). Left out:
    the random index at which filling up begins; the host's two waits a sample, for its tests.

    ``exchange``: "all_gather" selects from the whole bucket in the hook, on the compute stream, and
    gathers among all ranks. ``inside``: "sums" adds up each share before the node gathers it,
    dense. ``select``: the selection that takes k values of a share; "dgc" and "randk" are measured
    kernels. ``dense_below``: smaller buckets are all-reduced dense (Espresso's emulation of the
    layers: 512 or more, model by model). ``samples``: 20 in the hook of the code, 100 in its
    reducer.
    """

    summary: ClassVar[str] = "approximate Top-k by sampled thresholds, in two layers (MSTop-k)"
    citation: ClassVar[str] = (
        "Shi et al. 2021, MLSys, arXiv 2010.10458; code uw-mad-dash/GradCompressionUtility@b73b3303"
        " gradient_reducers.py, MsTopKReducer (selection); zhuangwang93/Espresso@a0294e3a"
        " byteps/torch/mergeComp/communicator/ddp_allgather_twolayer.py, memory/topk.py (layers)"
    )
    family: ClassVar[str] = "sparsification"
    levels: ClassVar[str] = (
        "inside a node gradients are reduce-scattered and pairs gathered; across nodes the pairs"
        " of each share are; with exchange all_gather all ranks are one group"
    )
    wire: ClassVar[str] = "(P - 1) * 8 * k"

    density: float = Field(0.001, gt=0, le=1, description="share of values kept, k/n")
    samples: Annotated[int, OnlyWith(select="mstopk")] = Field(
        20, ge=1, le=1000, description="thresholds whose values are counted"
    )
    exchange: Literal["hierarchical", "all_gather"] = Field(
        "hierarchical", description="two layers (HiTopKComm), or all ranks at once"
    )
    inside: Annotated[Literal["pairs", "sums"], OnlyWith(exchange="hierarchical")] = Field(
        "pairs", description="a node gathers pairs, or the sums of each share"
    )
    select: Literal["mstopk", "dgc", "randk"] = Field("mstopk", description="how k are selected")
    dense_below: int = Field(0, ge=0, description="buckets of fewer elements go dense")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the two layers and the selection between them, or selection and gathers."""
        n = bucket.elements
        if n < self.dense_below:
            return [Send("all_reduce", float(FLOAT * n))]
        if self.exchange == "all_gather":
            k = kept(n, self.density)
            return [
                Compute(self._picked(n, world.software), "compress"),
                *gathered(n, k, world.ranks),
            ]
        share = ceil(n / world.gpus_per_node)
        k = kept(share, self.density)
        return hierarchical(n, k, world, self._picked(share, world.software), self.inside)

    def refusal(self, world: MethodContext) -> str:
        """Return why nodes of unequal size are refused, or ""."""
        if self.exchange == "all_gather" or world.ranks == world.nodes * world.gpus_per_node:
            return ""
        return "needs the same number of GPUs on every node; `options` exchange=all_gather does not"

    def _picked(self, elements: int, software: str) -> tuple[Kernel, ...]:
        """Return the kernels of the residual and of the selection."""
        k = kept(elements, self.density)
        residual = elementwise(elements, 5, 2)
        if self.select == "dgc":
            kernel = sampled_threshold(elements, self.density, software)
        elif self.select == "randk":
            kernel = method_code("randk_encode", elements, elementwise(elements, 3, 4))
        else:
            # Two more comparisons, their join, and finding indices: 2 x 1.25 + 0.75 + 0.5.
            passes = 2 + 1 + 1 + 1.5 * self.samples + ABOVE_PASSES + 3.75
            launches = 3 + SAMPLE_LAUNCHES * self.samples + 2 * ABOVE_LAUNCHES + 2
            kernel = elementwise(elements, passes, launches)
        return residual, kernel, elementwise(k, 3, 2)

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the kept values: 8 each."""
        return float((FLOAT + INDEX) * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of a residual of the whole gradient: one fp32 value a parameter."""
        return fp32_bytes(gradients)
