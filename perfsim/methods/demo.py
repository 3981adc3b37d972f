"""DeMo: the largest frequencies of the momentum, all-gathered in place of gradients."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar, Literal

from pydantic import Field

from perfsim.compute.kernel import FLOAT, Kernel, elementwise, gemm
from perfsim.compute.profile import Gradient
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, JobStage, MethodContext, PassPoint
from perfsim.methods.building.in_step import InStep
from perfsim.methods.building.sparsify import exact
from perfsim.methods.building.tensor_lists import gathered_in_list
from perfsim.sums import sum_in_order


class Demo(InStep):
    """Exchanges the largest cosine coefficients of the momentum; gradients are not all-reduced.

    All of it runs in the optimizer's step, after the backward pass, one tensor after the other on
    the compute stream; nothing overlaps. The momentum is decayed and the gradient added (5 passes).
    Its chunks are transformed by two small matrix products, each with a copy that reorders the axes
    before it (4 passes). Magnitudes are taken (2); the ``topk`` largest of each chunk are selected
    and gathered. They are put back into zeros and transformed back, and the result is subtracted
    from the momentum (3). Then one all-gather takes the indices and another the values, each into a
    list of P tensors, zeroed before. The lists are concatenated (2 passes over what came in). All
    ranks' values are put into zeros, where those that meet are averaged, and transformed back. The
    gradient is overwritten and its sign taken (4). The update is plain SGD: set `optimizer` sgd.
    All ranks are one group: nothing is added up inside a node first. Tensors go one by one whatever
    the `fusion`. On one GPU the kernels run too.

    A chunk has the largest sides of up to ``chunk`` that divide the tensor's, a vector's one side.
    So half of a vector's values are sent by default. Values are as wide as the gradients
    (`reduce_dtype`). Indices have 8 bytes in the code; other ``index_bytes`` are not in it.

    Bytes a rank: (P-1) topk (index_bytes + 4) for each chunk, 0.094 (P-1) a parameter by default
    where 64 divides both sides of all matrices. A rank receives as much: with 16-bit values it is
    more than a ring all-reduce of 16-bit gradients from 52 ranks on.
    Memory: the momentum, one value a parameter; of the largest tensor what all ranks send, twice
    (the lists, and what they are concatenated into).
    Left out: weight decay (off by default); casts of indices narrower than 8 bytes. Products of
    16-bit values are priced as of fp32, top-k of many short chunks as of one long vector. A tensor
    of more than two axes counts as a matrix of its first axis and the rest: the code takes vectors
    and matrices only.
    """

    summary: ClassVar[str] = "largest DCT coefficients of the momentum, all-gathered in step (DeMo)"
    citation: ClassVar[str] = (
        "Peng, Quesnelle & Kingma 2024, DeMo: Decoupled Momentum Optimization, arXiv 2411.19870;"
        " code bloc97/DeMo@0e48145d demo.py (DeMo.step, TransformDCT, CompressDCT); operations of"
        " einsum traced in PyTorch 2.13, those of scatter_reduce read in pytorch/pytorch"
        " aten/src/ATen/native/TensorAdvancedIndexing.cpp"
    )
    family: ClassVar[str] = "sparsification"
    wire: ClassVar[str] = "(P - 1) * n / chunk**2 * min(topk, chunk**2) * (index_bytes + 4)"
    fusion: ClassVar[str] = "none"
    works_alone: ClassVar[bool] = True
    optimizers: ClassVar[tuple[str, ...]] = ("sgd",)
    holds_gathers: ClassVar[bool] = False

    chunk: int = Field(64, ge=1, le=4096, description="largest side of a chunk")
    topk: int = Field(32, ge=1, le=4096**2, description="coefficients sent of each chunk")
    index_bytes: Literal[2, 4, 8] = Field(8, description="bytes of an index on the wire")

    def sides(self, gradient: Gradient) -> tuple[int, ...]:
        """Return the sides of a gradient's chunks: one of a vector, two of a matrix."""
        axes = gradient.shape if len(gradient.shape) == 1 else gradient.matrix
        return tuple(_largest_divisor(axis, self.chunk) for axis in axes)

    def sent_values(self, gradient: Gradient) -> int:
        """Return how many coefficients of a gradient are sent."""
        size = prod(self.sides(gradient))
        return gradient.elements // size * min(self.topk, size)

    def jobs(self, buckets: Sequence[Bucket], world: MethodContext, iteration: int) -> list[Job]:
        """Return the one job: all tensors, one after the other, after the backward pass."""
        stages: list[JobStage] = []
        for bucket in buckets:
            for gradient in bucket.gradients:
                stages += self.step(gradient, world.ranks)
        return [Job("step", tuple(stages), PassPoint("backward"))] if stages else []

    def step(self, gradient: Gradient, ranks: int) -> list[JobStage]:
        """Return the stages of one tensor, up to its gradient for the update."""
        n, k, width = gradient.elements, self.sent_values(gradient), gradient.value_bytes
        sides, own_bytes = self.sides(gradient), (self.index_bytes * k, width * k)
        received = ranks * sum_in_order(own_bytes)
        own = (
            _passes(n, 5, 2, width),
            *_transform(n, sides, width),
            _passes(n, 2, 1, width),
            exact(n, "new"),
            _moved(k, _INDEX + 2 * width, 1),
            *_put_back(n, k, width),
            *_transform(n, sides, width),
            _passes(n, 3, 1, width),
            _moved(1, received, 2 * ranks),
        )
        mean = (
            _moved(1, 2 * received, 2),
            *_put_back(n, ranks * k, width),
            *_transform(n, sides, width),
            _passes(n, 4, 2, width),
        )
        sends: list[JobStage] = []
        if ranks > 1:
            for part in own_bytes:
                sends += gathered_in_list(part, ranks, "backward")
        return [
            Compute(own, "compress", earliest="backward"),
            *sends,
            Compute(mean, "decompress", earliest="backward"),
        ]

    def message_bytes(self, gradient: Gradient, iteration: int) -> float:
        """Return the bytes of a gradient's indices and values."""
        return (self.index_bytes + gradient.value_bytes) * self.sent_values(gradient)

    def memory_bytes(self, gradients: Sequence[Gradient], ranks: int) -> float:
        """Return the bytes of the momentum, and of the lists of the tensor with most values."""
        lists = max((self.message_bytes(one, 0) for one in gradients), default=0.0)
        return sum_in_order(one.size_bytes for one in gradients) + 2 * ranks * lists


_INDEX = 8
"""Bytes of an index that PyTorch selects, gathers and scatters by."""


def _largest_divisor(side: int, limit: int) -> int:
    """Return the largest divisor of a side that is no more than the limit.

    Examples
    --------
    >>> [_largest_divisor(side, 64) for side in (768, 50257, 1000, 7, 67)]
    [64, 29, 50, 7, 1]
    """
    return next(part for part in range(min(side, limit), 0, -1) if side % part == 0)


def _moved(elements: int, bytes_each: float, launches: int) -> Kernel:
    """Return kernels that move so many bytes an element."""
    return elementwise(elements, bytes_each / FLOAT, launches)


def _passes(elements: int, passes: float, launches: int, width: float) -> Kernel:
    """Return passes over values of a width [bytes]."""
    return _moved(elements, passes * width, launches)


def _transform(elements: int, sides: Sequence[int], width: float) -> tuple[Kernel, ...]:
    """Return a discrete cosine transform of chunks, or its inverse: a product along each side.

    Of a matrix the axes are reordered by a copy before each product. einsum makes no other copy.

    Examples
    --------
    >>> [kernel.name for kernel in _transform(4096, (64, 64), 4)]
    ['elementwise', 'gemm', 'elementwise', 'gemm']
    >>> [kernel.flops for kernel in _transform(4096, (64,), 4)]
    [524288.0]
    """
    kernels: list[Kernel] = []
    for side in sides:
        if len(sides) > 1:
            kernels.append(_passes(elements, 2, 1, width))
        kernels.append(gemm(elements // side, side, side))
    return tuple(kernels)


def _put_back(elements: int, pairs: int, width: float) -> tuple[Kernel, ...]:
    """Return the tensor that has the mean of the values sent to each place, zero elsewhere.

    Zeros and zero counts are made (2 passes), counts compared with zero and set to one there (3
    and a mask twice), and the values divided by them (3). For each pair its place is cleared, the
    value added, a one made and added to the count.

    Examples
    --------
    >>> dense, sparse = _put_back(1000, 10, 4)
    >>> dense.moved_bytes, dense.launches, sparse.moved_bytes, sparse.launches
    (34000.0, 5, 560.0, 4)
    """
    return (
        _moved(elements, (2 + 3 + 3) * width + 2 * _MASK, 5),
        _moved(pairs, 3 * _INDEX + (1 + 3 + 1 + 3) * width, 4),
    )


_MASK = 1
"""Bytes of a truth value."""
