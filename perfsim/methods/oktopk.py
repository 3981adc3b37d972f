"""Ok-Topk: thresholds hold for many iterations; values are reduced by regions, then gathered."""

from collections.abc import Sequence
from math import ceil, lcm
from typing import ClassVar

from pydantic import Field

from perfsim.compute.kernel import FLOAT, INDEX, elementwise, scatter_add
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, Round, Send
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import GTOPK, CodeBase
from perfsim.methods.building.sparsify import (
    ABOVE_LAUNCHES,
    ABOVE_PASSES,
    Selection,
    above,
    exact,
    kept,
)

PAIR = FLOAT + INDEX


class Oktopk(Method):
    """Sends each region's values to its owner, which adds them up and keeps the global Top-k.

    The residual is added and copied (5 passes), magnitudes are taken (2), and values above a reused
    threshold are counted. Then each region, one a rank, takes magnitudes, compare, indices and
    values once more (7 launches a region). Ranks exchange the sizes (4 bytes a rank), then the
    pairs: each owner gets the k of its region (an all-to-all of 8 k). The owner adds them into a
    zeroed region (3 launches a rank) and selects what is above the global threshold. Sizes and
    pairs are all-gathered (8 k in all). After the backward pass the gradient is zeroed and filled,
    and the residual is cleared of what was sent and chosen. Every ``threshold_interval`` iterations
    exact Top-k finds both thresholds instead. All sums are gathered for this: P k at most and n at
    most, which is charged. Every ``region_interval`` iterations the regions are made equal in count
    again, by one search more and an all-reduce of P-1 borders. One buffer holds the whole model, so
    nothing overlaps, as in the code.

    Bytes a rank, where thresholds are reused: (P-1)/P x 16 k and 8 bytes of sizes a rank, within
    the 6 k of the paper. Memory: the residual, 4 bytes a parameter. Left out: copies through host
    memory for mpi4py, and the host's waits for them and for the counts of each region; the paper's
    balancing before the gather, which its code leaves out too; counts that drift from k (2/3 to 4/3
    of it) and their correction; the overlap of a source's sums with the next messages; 512 dense
    iterations first (VGG-16).

    ``threshold_interval``: 32 in the code for VGG-16 and LSTM, 128 for BERT.
    """

    summary: ClassVar[str] = "split, reduce and gather of Top-k with reused thresholds (Ok-Topk)"
    citation: ClassVar[str] = (
        "Li & Hoefler 2022, Near-Optimal Sparse Allreduce for Distributed Deep Learning, PPoPP,"
        " arXiv 2201.07598; code Shigangli/Ok-Topk@9763dcc VGG/allreducer.py, VGG/compression.py"
    )
    family: ClassVar[str] = "sparsification"
    runs_in: ClassVar[CodeBase] = GTOPK
    wire: ClassVar[str] = (
        "(P - 1) / P * (8 * k + 8 * P + 8 * k * (1 - 1 / threshold_interval)"
        " + 8 * min(P * k, n) / threshold_interval + 8 * (P - 1) / region_interval)"
    )
    fusion: ClassVar[str] = "whole"

    density: float = Field(0.01, gt=0, le=1, description="share of values kept, k/n")
    threshold_interval: int = Field(32, ge=1, le=10**6, description="iterations a threshold holds")
    region_interval: int = Field(64, ge=1, le=10**6, description="iterations regions hold")
    kernel: Selection = Field("auto", description="PyTorch's top-k; auto: of the `software`")

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return selection, split and reduce, second selection, gather and scatter."""
        n, k, ranks = bucket.elements, kept(bucket.elements, self.density), world.ranks
        exactly = iteration % self.threshold_interval == 0
        select = [
            elementwise(n, 3 + 2 + 2, 3),
            exact(n, self.kernel, world.software) if exactly else above(n),
        ]
        split = [elementwise(n, 2 + ABOVE_PASSES, (1 + ABOVE_LAUNCHES) * ranks)]
        split.append(elementwise(k, 2, ranks))
        divided = iteration % self.region_interval == 0
        region = ceil(n / ranks)
        # Zero the region; for each rank read, add and write its values: 3 launches.
        reduce = [elementwise(region, 1, 3 * ranks), scatter_add(ceil(k / ranks) * ranks)]
        count = min(ranks * k, n) if exactly else k
        owned = [*([] if exactly else [elementwise(region, 2)]), above(region), elementwise(k, 2)]
        chosen = [exact(count, self.kernel, world.software), elementwise(k, 2)] if exactly else []
        fill = [elementwise(n, 1), elementwise(k, 2), scatter_add(k), elementwise(k, 2)]
        stages: list[JobStage] = []
        if divided:
            borders = Compute((elementwise(n, 2), above(n)), "compress")
            stages = [borders, Send("all_reduce", float(INDEX * (ranks - 1)))]
        return [
            Compute(tuple(select), "compress"),
            *stages,
            Compute(tuple(split), "compress", stream="communication" if divided else "compute"),
            Send("all_to_all", float(INDEX * ranks)),
            Send("all_to_all", float(PAIR * k)),
            Compute((*reduce, *owned), "decompress", stream="communication"),
            Send("all_gather", float(INDEX * ranks)),
            Send("all_gather", float(PAIR * count)),
            Compute((*chosen, *fill), "decompress", earliest="backward"),
        ]

    def rounds(self) -> list[Round]:
        """Return the iterations by what they find: thresholds, regions, both or neither."""
        period = lcm(self.threshold_interval, self.region_interval)
        both = Round((0,))
        exactly = Round((self.threshold_interval,), period // self.threshold_interval - 1)
        divided = Round((self.region_interval,), period // self.region_interval - 1)
        plain = Round((1,), period - both.count - exactly.count - divided.count)
        return [each for each in (both, exactly, divided, plain) if each.count]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of the kept values: 8 each."""
        return float(PAIR * kept(gradient.elements, self.density))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the residual: one fp32 value a parameter."""
        return fp32_bytes(gradients)
