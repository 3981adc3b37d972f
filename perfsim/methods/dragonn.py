"""DRAGONN: indices of large values written through a hash instead of a prefix sum."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import (
    FLOAT,
    INDEX,
    Kernel,
    Kernels,
    elementwise,
    method_code,
    moved,
    scatter_add,
)
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, JobStage, Method, MethodContext, Send
from perfsim.methods.building.averaging import fp32_bytes
from perfsim.methods.building.code_bases import HOROVOD, CodeBase
from perfsim.methods.building.sparsify import decoded, kept
from perfsim.sums import sum_in_order

_SMALL = 2**17
"""Elements up to which the code keeps one value in a hundred, whatever the density."""


class Dragonn(Method):
    """Compresses large tensors by hashing the indices of large values; small ones go dense.

    The hook works tensor by tensor on the compute stream. First comes momentum correction (multiply
    2 passes, add 3), or a residual (two products and a sum, 7). Then comes one encode, measured as
    one kernel: the threshold from an exact Top-k of a random 1 % sample; one pass that writes the
    index of each value above it into a zeroed table of 4 k by its hash; the gathering of indices
    and values from the table. Then the sent values are cleared, or the residual's rest is taken
    (3). One all-gather of the values and one of the indices follow. After the backward pass the
    pairs of all ranks are scattered into one zeroed tensor each (sparse decoding). Tensors of
    ``compress_above`` elements or fewer are all-reduced dense. Horovod fuses and carries the
    messages.

    Bytes a rank: (P-1) x 8 k, or 2 (P-1)/P x 4 n of a dense tensor.
    Memory: the momentum buffer or the residual, 4 bytes a parameter.
    Left out: values lost where two indices meet in the table (about 1 in 9); 200 dense iterations
    first; the wait for the number of indices found.

    ``compress_above``: 2**20 by default in the code; its example for MLP-Mixer takes 204800.
    ``choose`` "costs": a tensor is compressed where encoding and decoding cost less than they save
    on the wire (the paper's equation 1). ``decoding`` "dense": a tensor a rank, then their sum.
    ``memory``: the authors' command line takes "residual" and "dense" by default; their example of
    DRAGONN takes "none" and "sparse".
    """

    summary: ClassVar[str] = "large values found by a threshold and a hash table (DRAGONN)"
    citation: ClassVar[str] = (
        "Wang et al. 2022, DRAGONN: Distributed Randomized Approximate Gradients of Neural"
        " Networks, ICML, Algorithms 1 and 2, sections 4 and 5; code zhuangwang93/dragonn@045e1b0"
        " compressor/poolatopk.py, communicator/pool_allgather.py, horovod/optimizer.py"
    )
    family: ClassVar[str] = "sparsification"
    runs_in: ClassVar[CodeBase] = HOROVOD
    wire: ClassVar[str] = "2 * (P - 1) / P * 4 * n if n <= compress_above else (P - 1) * 8 * k"
    fusion: ClassVar[str] = "threshold"
    decides: ClassVar[bool] = True

    density: float = Field(0.001, gt=0, le=1, description="share of values kept, k/n")
    compress_above: int = Field(2**20, ge=0, description="elements of the largest dense tensor")
    choose: Literal["size", "costs"] = Field("size", description="what is compressed")
    decoding: Literal["sparse", "dense"] = Field("sparse", description="all pairs, or rank by rank")
    memory: Literal["momentum", "residual", "none"] = Field(
        "momentum", description="error feedback"
    )

    def stages(self, bucket: Bucket, world: MethodContext, iteration: int) -> list[JobStage]:
        """Return the encodes, the dense message, the gathers and the decoding."""
        sparse = [g.elements for g in bucket.gradients if self._compresses(g.elements, world)]
        dense = bucket.elements - sum(sparse)
        stages: list[JobStage] = []
        if sparse:
            encode = tuple(kernel for n in sparse for kernel in self._encoded(n))
            stages.append(Compute(encode, "compress"))
        if dense:
            stages.append(Send("all_reduce", float(FLOAT * dense)))
        if sparse:
            count = sum(map(self._count, sparse)) * world.ranks
            decode = tuple(kernel for n in sparse for kernel in self._decoded(n, world.ranks))
            stages += [
                Send("all_gather", float(FLOAT * count)),
                Send("all_gather", float(INDEX * count)),
                Compute(decode, "decompress", earliest="backward"),
            ]
        return stages

    def _count(self, elements: int) -> int:
        return kept(elements, self.density if elements > _SMALL else 0.01)

    def _encoded(self, elements: int) -> tuple[Kernel, ...]:
        # Where nothing was measured: the tensor once, its sample 8 times, the table 3 times.
        moved_bytes = FLOAT * (1.08 * elements + 3 * 4 * self._count(elements))
        encode = method_code("dragonn_encode", elements, moved(elements, moved_bytes, 14))
        if self.memory == "none":
            return (encode,)
        count = self._count(elements)
        if self.memory == "residual":
            rest = scatter_add(count), elementwise(elements, 3)
            return elementwise(elements, 7, 3), encode, *rest
        return elementwise(elements, 5, 2), encode, elementwise(count, 1)

    def _decoded(self, elements: int, ranks: int) -> Kernels:
        if self.decoding == "dense":
            return decoded([elements], self._count(elements), ranks, "one_by_one")
        return elementwise(elements, 1), scatter_add(self._count(elements) * ranks)

    def _compresses(self, elements: int, world: MethodContext) -> bool:
        """Tell whether a tensor is compressed."""
        if self.choose == "size":
            return elements > self.compress_above
        count = self._count(elements) * world.ranks
        gathers = (("all_gather", float(size * count)) for size in (FLOAT, INDEX))
        sparse_s = sum_in_order(world.collective_s(name, size, "all") for name, size in gathers)
        dense_s = world.collective_s("all_reduce", float(FLOAT * elements), "all")
        kernels = *self._encoded(elements), *self._decoded(elements, world.ranks)
        return sum_in_order(map(world.kernel_s, kernels)) < dense_s - sparse_s

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return 8 bytes a kept value, or the dense tensor; only the size decides here."""
        if gradient.elements <= self.compress_above:
            return gradient.size_bytes
        return float((FLOAT + INDEX) * self._count(gradient.elements))

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of momentum buffer or residual: one fp32 value a parameter."""
        kept_bytes = fp32_bytes(gradients)
        return 0.0 if self.memory == "none" else kept_bytes
