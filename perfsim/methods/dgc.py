"""Deep Gradient Compression: sampled threshold, momentum correction, all-gather."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, KernelLoop, elementwise
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import (
    ONE_GROUP,
    SET,
    Compute,
    JobStage,
    MethodContext,
    OnlyWith,
    Round,
    Send,
)
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.gathers_through_horovod import GathersThroughHorovod
from perfsim.methods.building.sparsify import (
    Decoding,
    SparseSum,
    above,
    exchanged,
    kept,
    sampled_threshold,
    union_estimate,
    worst_case,
)

_PAIR_BYTES = "(value_bytes + index_bytes)"


class Dgc(GathersThroughHorovod):
    """Sends the values above a threshold found on a sample; vectors go dense.

    The hook runs on the compute stream: momentum correction and local accumulation (multiply 2
    passes, add 3, add 3). Then, tensor by tensor as in the code, come the threshold from a strided
    sample, selection and compaction. These were measured as one encode (PyTorch 1.8, density 1 %,
    flat below 2**20 elements; the whole tensor is read whatever the density); in newer software it
    is made of its operations (`perfsim.methods.building.sparsify.sampled_threshold`). Only messages
    are fused. Tensors of one dimension are all-reduced dense in one call a bucket (``vectors``
    "sparse" compresses them like the others, as GRACE and MergeComp do). One all-gather of the
    values and one of the indices follow. After the backward pass the gradient is zeroed, P k pairs
    are scatter-added and the mean is taken (3 passes).

    Bytes a rank: (P-1) x 12 k + 2 (P-1)/P x the vectors.
    Memory: velocity and accumulator, 8 bytes a parameter.
    Left out: ranks that find fewer than k values (at least 0.8 k); the exact Top-k of the values
    found where they are over 1.3 k; launches of the decoding tensor by tensor (a bucket's are
    counted once); the momentum of the vectors; clipping, which the code does only if asked.

    ``value_bytes`` and ``index_bytes``: 4 and 8 are the code's defaults (fp32, int64); 2 (vectors
    too) and 4 are its other settings. The paper packs values of 4 bytes and run lengths of zeros of
    2 bytes; packing is left out here. ResNet-50 and AlexNet then send the paper's 0.35 and 0.39 MB,
    vectors dense.

    ``bounds``: a threshold is tried again until it finds 0.7 or 0.8 to 1.3 times k ("loose": the
    code, GRACE, MergeComp; measured so), or no fewer than k ("tight": DRAGONN, whose encode was
    measured separately; each try waits for the GPU). ``adaptations``: thresholds tried again
    because too few values were found (10 at most), beyond those in the measured encode.

    Warm-up: in epoch e the density is ``warmup_coefficient`` ** (e + 1), never below ``density``. A
    coefficient of 0.25 gives the paper's 0.25, 0.0625, 0.016, 0.004. The code takes density ** (1 /
    (warmup_epochs + 1)) by default; its ImageNet recipe has no warm-up.

    ``exchange`` "all_gather" is the code's. "all_reduce" is the one of the paper's Algorithm 1 and
    of the model behind its speed-ups (there a worker is a node of 4 GPUs): pairs are added up on
    the way, and their number doubles at every step, as no index is shared. "all_reduce_union"
    expects as many indices as independent draws cover (derived, not the paper's). For ``decoding``
    and both sums see `perfsim.methods.building.sparsify`.
    """

    summary: ClassVar[str] = "sampled-threshold sparsification with momentum correction (DGC)"
    citation: ClassVar[str] = (
        "Lin et al. 2018, Deep Gradient Compression, ICLR, Algorithms 1 and 4, sections 3 and 5;"
        " code synxlin/deep-gradient-compression@24673d45 dgc/compression.py, dgc/memory.py;"
        " sparse vectors: sands-lab/grace@fd3a7f42 grace_dl/torch/compressor/dgc.py,"
        " zhuangwang93/mergeComp@82bc96c3 mergeComp_dl/torch/compressor/pooldgc.py"
    )
    family: ClassVar[str] = "sparsification"
    levels: ClassVar[str] = (
        f"{ONE_GROUP}; with exchange all_reduce or all_reduce_union pairs are added up by"
        " doubling, first inside a node, then across nodes"
    )
    wire: ClassVar[str] = (
        f"(P - 1) * {_PAIR_BYTES} * k if exchange == 'all_gather' else"
        f" {worst_case(_PAIR_BYTES)} if exchange == 'all_reduce' else {union_estimate(_PAIR_BYTES)}"
    )

    density: float = Field(0.001, gt=0, le=1, description="share of values kept, k/n")
    value_bytes: Literal[2, 4] = Field(4, description="bytes a value sent")
    index_bytes: Literal[2, 4, 8] = Field(
        8, description="bytes an index sent; 2 for the paper's run lengths"
    )
    adaptations: int = Field(0, ge=0, le=10, description="thresholds tried again for each tensor")
    bounds: Literal["loose", "tight"] = Field(
        "loose", description="how near the count found must come to k"
    )
    vectors: Literal["dense", "sparse"] = Field(
        "dense", description="tensors of one dimension: all-reduced whole, or compressed too"
    )
    exchange: SparseSum = Field(
        "all_gather", description="how pairs are summed: pairs double, or grow as a union"
    )
    decoding: Annotated[Decoding, OnlyWith(exchange="all_gather")] = Field(
        "together", description="all ranks' pairs, or a tensor a rank"
    )
    warmup_epochs: int = Field(0, ge=0, le=100, description="epochs of warm-up")
    warmup_coefficient: Annotated[float, OnlyWith(warmup_epochs=SET)] = Field(
        0.25, gt=0, lt=1, description="density of epoch 0"
    )
    epoch: Annotated[int, OnlyWith(warmup_epochs=SET, epochs=0)] = Field(
        -1, ge=-1, description="epoch to predict; -1: one after the warm-up"
    )
    epochs: Annotated[int, OnlyWith(warmup_epochs=SET)] = Field(
        0, ge=0, description="epochs to average over; 0: one epoch only"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return accumulation and selection, the exchanges, and the scatter-add."""
        matrices = bucket.matrices
        if self.vectors == "sparse":
            matrices = tuple([one.elements for one in bucket.gradients])
        vectors = bucket.elements - sum(matrices)
        stages: list[JobStage] = []
        if matrices:
            density, again = self._density(iteration), (self.bounds == "tight", self.adaptations)
            select, k = _selection(matrices, density, world.software, *again)
            stages.append(select)
        if vectors:
            if self.value_bytes < FLOAT:
                cast = elementwise(vectors, 1.5, len(bucket.gradients) - len(matrices))
                stages.append(Compute((cast,), "compress"))
            stages.append(Send("all_reduce", float(self.value_bytes * vectors)))
        if matrices:
            sizes = self.value_bytes, self.index_bytes
            stages += exchanged(matrices, k, world, *sizes, self.exchange, self.decoding)
        return stages

    def rounds(self) -> list[Round]:
        """Return one iteration for each warm-up epoch and one for the rest, if averaged."""
        warm = min(self.warmup_epochs, self.epochs)
        rest = [Round((warm,), self.epochs - warm)] if self.epochs > warm else []
        return [*(Round((epoch,)) for epoch in range(warm)), *rest] or [Round()]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes that a rank sends for one gradient: sparse matrices, dense vectors."""
        if not self._selects(gradient):
            return float(self.value_bytes * gradient.elements)
        each = self.value_bytes + self.index_bytes
        return float(each * kept(gradient.elements, self._density(iteration)))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return velocity and accumulator: two fp32 values a parameter."""
        return 2.0 * fp32_bytes(gradients)

    def _selects(self, gradient: Gradient) -> bool:
        """Tell whether a tensor is compressed."""
        return self.vectors == "sparse" or len(gradient.shape) > 1

    def _density(self, iteration: int) -> float:
        """Return an epoch's density; where epochs are averaged, each iteration is one epoch."""
        epoch = iteration if self.epochs else self.epoch
        if not 0 <= epoch < self.warmup_epochs:
            return self.density
        return max(self.warmup_coefficient ** (epoch + 1), self.density)


@lru_cache(maxsize=256)  # of its arguments alone, which are the same for any number of ranks
def _selection(
    tensors: tuple[int, ...], density: float, software: str, tight: bool, adaptations: int
) -> tuple[Compute, int]:
    """Return accumulation and the selection of some tensors, and how many values it keeps.

    Half of all samples give a threshold that finds fewer than k values: ``tight`` tries again.
    """
    alike = Counter(tensors)
    tries = (2, "dgc_tight_encode") if tight else ()
    encodes = [
        ((sampled_threshold(n, density, software, *tries),), times) for n, times in alike.items()
    ]
    if adaptations:
        encodes += [((above(n, adaptations),), times) for n, times in alike.items()]
    accumulate = elementwise(sum(tensors), 8, 3 * len(tensors))
    k = sum([times * kept(n, density) for n, times in alike.items()])
    return Compute(KernelLoop([((accumulate,), 1), *encodes]), "compress"), k
