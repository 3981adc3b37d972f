"""The kernels that ``perfsim calibrate kernels`` measures: what is run, at which sizes.

They are the kernels that methods add to training (selection, quantisation, products and
decompositions of matrices), and the streams, launches and products of a device file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from perfsim.calibrate.measure.device import (
    KernelDevice,
)
from perfsim.compute.kernel import (
    Kernel,
    cholesky,
    cholesky_inverse,
    eigh,
    elementwise,
    factor_product,
    gemm,
    gram_schmidt,
    qr,
    scatter_add,
)
from perfsim.errors import unknown
from perfsim.methods.building.sparsify import above, exact, kept

__all__ = [
    "DECOMPOSITION_BENCHES",
    "MATRIX_BENCHES",
    "PRODUCT_BENCHES",
    "QUANTISATION_BENCHES",
    "SCATTER_BENCHES",
    "SELECTION_BENCHES",
    "STREAM_BENCHES",
    "STREAM_PASSES",
    "Bench",
    "Call",
    "Size",
    "all_benches",
    "select_benches",
    "sizes_by_rank",
    "square_sizes",
    "vector_sizes",
]


Call = Callable[[], Any]
"""Runs a kernel once; what it returns is dropped."""


@dataclass(frozen=True, slots=True)
class Size:
    """A point's key (``elements`` and ``width``), and the shape of its input."""

    elements: int
    width: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """One kernel to measure.

    Parameters
    ----------
    name : as `perfsim.compute.kernel.Kernel` calls it, or a name that no method reads
    does : what is run, in a few words, for the note of its points
    sizes : gives the sizes for the most fp32 values that an input may hold, rising in each width
    make : gives the call for a size
    loop : calls between two marks; more than 1 where kernels wait behind others of their kind
    growth : power of ``elements`` that the time is expected to grow with
    counted : kernels that perfsim counts instead if no point is known; None without such a rule
    only : "cuda" if it needs a GPU; "host" if it runs on the CPU, with a GPU or without
    """

    name: str
    does: str
    sizes: Callable[[int], Sequence[Size]]
    make: Callable[[KernelDevice, Size], Call]
    loop: int = 1
    growth: float = 1.0
    counted: Callable[[Size], Sequence[Kernel]] | None = None
    only: str = ""


# Sizes


_SMALLEST_ELEMENTS = 2**10
_ELEMENTS_FACTOR = 4
_SQUARE_SIDES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


def vector_sizes(most: int) -> list[Size]:
    """Return vectors of 2^10, 2^12, ... values, up to ``most``.

    Examples
    --------
    >>> [size.elements for size in vector_sizes(20000)]
    [1024, 4096, 16384]
    """
    sizes = []
    count = _SMALLEST_ELEMENTS
    while count <= most:
        sizes.append(Size(count, 0, (count,)))
        count *= _ELEMENTS_FACTOR
    return sizes


def square_sizes(most: int) -> list[Size]:
    """Return n x n matrices of at most ``most`` values, n from 64 to 8192, keyed on n * n.

    Examples
    --------
    >>> [size.shape for size in square_sizes(20000)]
    [(64, 64), (128, 128)]
    """
    return [Size(side * side, 0, (side, side)) for side in _SQUARE_SIDES if side * side <= most]


def sizes_by_rank(rows: Sequence[int], ranks: Sequence[int], most: int) -> list[Size]:
    """Return rows x rank matrices of at most ``most`` values, keyed on rows, the rank as width.

    Examples
    --------
    >>> [(size.elements, size.width) for size in sizes_by_rank((4, 8), (1, 2), 10)]
    [(4, 1), (8, 1), (4, 2)]
    """
    return [
        Size(count, rank, (count, rank))
        for rank in ranks
        for count in rows
        if rank <= count and count * rank <= most
    ]


# Streams, copies and launches


STREAM_PASSES = {"stream_add": 3, "stream_copy": 2, "stream_scale": 2}
"""Reads and writes of the three kernels that give a device file its memory bandwidth."""
_QUEUED_LAUNCHES = 100
"""Launches between two marks: methods pay a launch in a chain of them. No source: chosen."""
_TINY_ELEMENTS = 1024
"""Values of a kernel whose time is its launch. No source: chosen."""


def _add(device: KernelDevice, size: Size) -> Call:
    a, b, out = (device.normal(*size.shape) for _ in range(3))
    return lambda: device.torch.add(a, b, out=out)


def _copy(device: KernelDevice, size: Size) -> Call:
    values, out = (device.normal(*size.shape) for _ in range(2))
    return lambda: out.copy_(values)


def _scale(device: KernelDevice, size: Size) -> Call:
    values, out = (device.normal(*size.shape) for _ in range(2))
    return lambda: device.torch.mul(values, 0.5, out=out)


def _launch(device: KernelDevice, size: Size) -> Call:
    values = device.normal(*size.shape)
    return lambda: values.add_(1.0)


def _to_host(device: KernelDevice, size: Size) -> Call:
    values = device.normal(*size.shape)
    host = device.torch.empty(size.elements, pin_memory=True)
    return lambda: host.copy_(values, non_blocking=True)


def _to_gpu(device: KernelDevice, size: Size) -> Call:
    values = device.normal(*size.shape)
    host = device.torch.empty(size.elements, pin_memory=True)
    return lambda: values.copy_(host, non_blocking=True)


def _sum(device: KernelDevice, size: Size) -> Call:
    total, received = (device.normal(*size.shape) for _ in range(2))
    return lambda: total.add_(received)


def _tiny(most: int) -> Sequence[Size]:
    return (Size(_TINY_ELEMENTS, 0, (_TINY_ELEMENTS,)),) if most >= _TINY_ELEMENTS else ()


STREAM_BENCHES = (
    Bench("stream_add", "c = a + b", vector_sizes, _add),
    Bench("stream_copy", "b = a", vector_sizes, _copy),
    Bench("stream_scale", "b = a / 2", vector_sizes, _scale),
    Bench(
        "launch_queued",
        f"one tiny kernel of {_QUEUED_LAUNCHES} right behind one another",
        _tiny,
        _launch,
        loop=_QUEUED_LAUNCHES,
    ),
    Bench("launch_alone", "one tiny kernel after a synchronisation", _tiny, _launch),
    Bench("copy_to_host", "fp32 to pinned host memory", vector_sizes, _to_host, only="cuda"),
    Bench("copy_to_gpu", "fp32 from pinned host memory", vector_sizes, _to_gpu, only="cuda"),
    Bench(
        "cpu_sum",
        "fp32 added in place by all threads of this process",
        vector_sizes,
        _sum,
        only="host",
    ),
)
"""Methods read the copies and cpu_sum; the others are for a device file."""


# Matrix products


_LOW_RANKS = (1, 2, 4, 16, 64, 256)
_LOW_RANK_SIDES = (256, 1024, 4096, 8192)
_FACTOR_ROWS = 4096
"""Rows of X in X^T X: samples times positions of a middle layer. No source: chosen."""
_RATE_SIDES = (256, 512, 1024, 2048, 4096, 8192)


def _low_rank_sizes(most: int) -> list[Size]:
    return [
        Size(side * side, rank, (side, rank))
        for rank in _LOW_RANKS
        for side in _LOW_RANK_SIDES
        if side * side <= most
    ]


def _p(device: KernelDevice, size: Size) -> Call:
    matrix, q, out = _low_rank_tensors(device, size)
    return lambda: device.torch.bmm(matrix, q, out=out)


def _q(device: KernelDevice, size: Size) -> Call:
    matrix, p, out = _low_rank_tensors(device, size)
    return lambda: device.torch.bmm(matrix.transpose(1, 2), p, out=out)


def _rebuilt(device: KernelDevice, size: Size) -> Call:
    out, p, q = _low_rank_tensors(device, size)
    return lambda: device.torch.bmm(p, q.transpose(1, 2), out=out)


def _low_rank_tensors(device: KernelDevice, size: Size) -> tuple[Any, Any, Any]:
    """Return a square matrix and two factors of it, each a stack of one, as PowerSGD's hook has."""
    side, rank = size.shape
    matrix = device.normal(1, side, side)
    return matrix, device.normal(1, side, rank), device.normal(1, side, rank)


def _counted_p(size: Size) -> Sequence[Kernel]:
    side, rank = size.shape
    return (gemm(side, side, rank),)


def _counted_rebuilt(size: Size) -> Sequence[Kernel]:
    side, rank = size.shape
    return (gemm(side, rank, side),)


def _factor_sizes(most: int) -> list[Size]:
    return [
        Size(_FACTOR_ROWS * side**2, 0, (_FACTOR_ROWS, side))
        for side in _SQUARE_SIDES
        if max(_FACTOR_ROWS, side) * side <= most
    ]


def _factor(device: KernelDevice, size: Size) -> Call:
    rows = device.normal(*size.shape)
    return lambda: rows.t() @ rows


PRODUCT_BENCHES = (
    Bench(
        "factor",
        f"X^T X, {_FACTOR_ROWS} rows",
        _factor_sizes,
        _factor,
        counted=lambda size: (factor_product(*size.shape),),
    ),
    Bench("lowrank_p", "M Q, M square, width: rank", _low_rank_sizes, _p, counted=_counted_p),
    Bench("lowrank_q", "M^T P, M square, width: rank", _low_rank_sizes, _q, counted=_counted_p),
    Bench(
        "lowrank_rebuilt", "P Q^T, width: rank", _low_rank_sizes, _rebuilt, counted=_counted_rebuilt
    ),
)
"""Low-rank products are keyed on the values of M: next to its sides the rank is small, and M is
read or written once. They run as batched products of a stack of one, as in PyTorch's PowerSGD hook,
which CPU libraries do not make as fast as the matrix rate or memory allow."""


def _rate_sizes(most: int) -> list[Size]:
    return [Size(side * side, 0, (side, side)) for side in _RATE_SIDES if side * side <= most]


def _square(precision: str) -> Callable[[KernelDevice, Size], Call]:
    def make(device: KernelDevice, size: Size) -> Call:
        torch = device.torch
        kind = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(precision)
        a, b = (device.normal(*size.shape).to(kind or torch.float32) for _ in range(2))
        if precision != "tf32":
            return lambda: a @ b

        def product() -> object:
            torch.backends.cuda.matmul.allow_tf32 = True
            try:
                return a @ b
            finally:
                torch.backends.cuda.matmul.allow_tf32 = False

        return product

    return make


MATRIX_BENCHES = {
    precision: Bench(
        f"matrix_{precision}",
        f"product of square matrices, {precision}",
        _rate_sizes,
        _square(precision),
        growth=1.5,
    )
    for precision in ("fp32", "tf32", "amp-fp16", "amp-bf16")
}
"""For the matrix rates of a device file; no method reads them."""


# Decompositions


_DECOMPOSED_ROWS = (64, 256, 1024, 4096, 16384, 65536)
_DECOMPOSED_RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_POWERSGD_EPSILON = 1e-8
"""Added to each norm, as PowerSGD's published code does."""


def _factors(most: int) -> list[Size]:
    return sizes_by_rank(_DECOMPOSED_ROWS, _DECOMPOSED_RANKS, most)


def _qr(device: KernelDevice, size: Size) -> Call:
    matrix = device.normal(*size.shape)
    return lambda: device.torch.linalg.qr(matrix)


def _gram_schmidt(device: KernelDevice, size: Size) -> Call:
    """Orthogonalise in place as PowerSGD does: column by column, each operation a launch."""
    matrix = device.normal(*size.shape)
    rank = size.width

    def run() -> object:
        for index in range(rank):
            column = matrix[:, index : index + 1]
            column /= device.torch.sqrt((column**2).sum()) + _POWERSGD_EPSILON
            if index + 1 < rank:
                rest = matrix[:, index + 1 :]
                rest -= (column * rest).sum(dim=0) * column
        return matrix

    return run


def _decomposed_factor(device: KernelDevice, size: Size) -> Any:
    """Return a symmetric matrix without small eigenvalues, as a damped K-FAC factor is."""
    side = size.shape[0]
    rows = device.normal(side, side)
    return rows @ rows.t() / side + device.torch.eye(side, device=device.device)


def _inverse(device: KernelDevice, size: Size) -> Call:
    matrix = _decomposed_factor(device, size)
    return lambda: device.torch.linalg.inv(matrix)


def _cholesky(device: KernelDevice, size: Size) -> Call:
    matrix = _decomposed_factor(device, size)
    return lambda: device.torch.linalg.cholesky(matrix)


def _cholesky_inverse(device: KernelDevice, size: Size) -> Call:
    lower = device.torch.linalg.cholesky(_decomposed_factor(device, size))
    return lambda: device.torch.cholesky_inverse(lower)


def _eigh(device: KernelDevice, size: Size) -> Call:
    matrix = _decomposed_factor(device, size)
    return lambda: device.torch.linalg.eigh(matrix)


DECOMPOSITION_BENCHES = (
    Bench(
        "qr",
        "torch.linalg.qr, reduced",
        _factors,
        _qr,
        counted=lambda size: (qr(size.elements, size.width),),
    ),
    Bench(
        "gram_schmidt",
        "column by column as PowerSGD, nothing fused",
        _factors,
        _gram_schmidt,
        counted=lambda size: (gram_schmidt(size.elements, size.width),),
    ),
    Bench(
        "cholesky",
        "torch.linalg.cholesky",
        square_sizes,
        _cholesky,
        growth=1.5,
        counted=lambda size: (cholesky(size.shape[0]),),
    ),
    Bench(
        "cholesky_inverse",
        "torch.cholesky_inverse of the lower factor",
        square_sizes,
        _cholesky_inverse,
        growth=1.5,
        counted=lambda size: (cholesky_inverse(size.shape[0]),),
    ),
    Bench("inverse", "torch.linalg.inv", square_sizes, _inverse, growth=1.5),
    Bench(
        "eigh",
        "torch.linalg.eigh",
        square_sizes,
        _eigh,
        growth=1.5,
        counted=lambda size: (eigh(size.shape[0]),),
    ),
)


# Selection of the values that a sparse method sends


_PAPER_DENSITY = 0.001
"""Density in the methods' papers, and their default."""
_PUBLISHED_DENSITY = 0.01
"""Density of the published points of DGC and random-k, so that points compare."""
_SIDCO_FITS = (1, 3)
"""Numbers of fits of SIDCo: what its script runs, and one with later stages."""
_SIDCO_FIRST_SHARE = 0.25
"""Share that the first of several stages of SIDCo aims at."""
_HASH_PRIME = 2654435761
"""Knuth's multiplicative hash, The Art of Computer Programming 3, section 6.4."""


def _topk(device: KernelDevice, size: Size) -> Call:
    magnitudes, k = device.normal(*size.shape).abs(), kept(size.elements, _PAPER_DENSITY)
    return lambda: device.torch.topk(magnitudes, k, sorted=False)


def _mask_compact(device: KernelDevice, size: Size) -> Call:
    magnitudes = device.normal(*size.shape).abs()
    threshold = _normal_threshold(_PAPER_DENSITY)
    return lambda: device.torch.nonzero(magnitudes > threshold)


def _normal_threshold(density: float) -> float:
    """Return the number of deviations that a share ``density`` of normal values exceeds."""
    return NormalDist().inv_cdf(1 - density / 2)


def _dgc(device: KernelDevice, size: Size) -> Call:
    """Sample with a stride, take its threshold, compare, compact, clear what is sent."""
    values, memory = device.normal(*size.shape), device.normal(*size.shape)
    stride = round(1 / _PUBLISHED_DENSITY)
    k = kept(-(-size.elements // stride), _PUBLISHED_DENSITY)

    def encode() -> object:
        magnitudes = values.abs()
        threshold = device.torch.topk(magnitudes[::stride], k, sorted=False)[0].min()
        indices = (magnitudes >= threshold).nonzero().view(-1)
        sent = values[indices]
        memory.index_fill_(0, indices, 0.0)  # not values: each call must find as many
        return sent

    return encode


def _randk(device: KernelDevice, size: Size) -> Call:
    """Draw random indices, gather their values, keep the rest."""
    values, k = device.normal(*size.shape), kept(size.elements, _PUBLISHED_DENSITY)

    def encode() -> object:
        indices = device.torch.randint(size.elements, (k,), device=device.device)
        sent = values[indices]
        return sent, values.clone().index_fill_(0, indices, 0.0)

    return encode


def _dragonn(device: KernelDevice, size: Size) -> Call:
    """Take a random sample's threshold, hash indices above it into a table, gather."""
    values, k = device.normal(*size.shape), kept(size.elements, _PAPER_DENSITY)
    torch, draws = device.torch, kept(size.elements, _PUBLISHED_DENSITY)

    def encode() -> object:
        sample = values[torch.randint(size.elements, (draws,), device=device.device)].abs()
        threshold = torch.topk(sample, kept(draws, _PAPER_DENSITY), sorted=False)[0].min()
        above_it = (values.abs() >= threshold).nonzero().view(-1)
        table = torch.zeros(4 * k, dtype=torch.int64, device=device.device)
        table[above_it * _HASH_PRIME % (4 * k)] = above_it
        indices = table[table.nonzero().view(-1)]
        return values[indices], indices

    return encode


def _gaussiank(device: KernelDevice, size: Size) -> Call:
    """Fit a normal distribution, search above its threshold three times, gather, keep the rest."""
    values, rest = device.normal(*size.shape), device.normal(*size.shape).mul_(0.01)
    deviations = _normal_threshold(_PAPER_DENSITY)

    def encode() -> object:
        whole = values + rest
        threshold = whole.mean().item() + deviations * whole.std().item()
        magnitudes = whole.abs()
        for _ in range(3):
            indices = (magnitudes > threshold).nonzero().view(-1)
        sent = whole[indices]
        return sent, whole.clone().index_fill_(0, indices, 0.0)

    return encode


def _gaussiank_counted(size: Size) -> Sequence[Kernel]:
    return (
        elementwise(size.elements, 9, 5),
        above(size.elements, 3),
        elementwise(kept(size.elements, _PAPER_DENSITY), 3, 2),
    )


def _sidco(device: KernelDevice, size: Size) -> Call:
    """Fit an exponential distribution ``width`` times, each on what the last one kept; select."""
    values, rest = device.normal(*size.shape), device.normal(*size.shape).mul_(0.01)
    shares = _shares(size.width)

    def encode() -> object:
        whole = values + rest
        magnitudes = (whole / whole.norm()).abs()
        left, low, threshold = magnitudes.clone(), 0.0, 0.0
        for fit, share in enumerate(shares):
            if fit:
                left = left[(left > threshold).nonzero().view(-1)]
                low = left.min().item()
            threshold = low + (left.mean().item() - low) * math.log(1 / share)
        indices = (magnitudes > threshold).nonzero().view(-1)
        sent = whole[indices]
        return sent, (values * 0.5 + whole * 0.5).index_fill_(0, indices, 0.0)

    return encode


def _shares(fits: int) -> list[float]:
    if fits == 1:
        return [_PAPER_DENSITY]
    return [_SIDCO_FIRST_SHARE] + [(_PAPER_DENSITY / _SIDCO_FIRST_SHARE) ** (1 / (fits - 1))] * (
        fits - 1
    )


def _sidco_sizes(most: int) -> list[Size]:
    sizes = vector_sizes(most)
    return [Size(size.elements, fits, size.shape) for fits in _SIDCO_FITS for size in sizes]


def _sidco_counted(size: Size) -> Sequence[Kernel]:
    from perfsim.compute.profile import Gradient
    from perfsim.fusion.buckets import Bucket
    from perfsim.methods.base import Compute, MethodContext
    from perfsim.methods.sidco import Sidco

    bucket = Bucket.of([Gradient("values", size.shape, 0.0, 0)])
    first = Sidco(density=_PAPER_DENSITY, distribution="exponential", fits=size.width).stages(
        bucket, MethodContext(2), 0
    )[0]
    return first.kernels if isinstance(first, Compute) else ()


SELECTION_BENCHES = (
    Bench(
        "topk_new",
        "exact top-k of magnitudes, 0.1 % kept, unsorted",
        vector_sizes,
        _topk,
        counted=lambda size: (exact(size.elements, "new"),),
    ),
    Bench(
        "dgc_encode",
        "threshold of a strided 1 % sample, mask, compact, clear; 1 % kept",
        vector_sizes,
        _dgc,
    ),
    Bench(
        "randk_encode",
        "draw places, gather, copy with them cleared; 1 % kept",
        vector_sizes,
        _randk,
    ),
    Bench(
        "dragonn_encode",
        "threshold of a random 1 % sample, places into a table by hash, gather; 0.1 % kept; in"
        " PyTorch, not the authors' fused kernel",
        vector_sizes,
        _dragonn,
    ),
    Bench(
        "mask_compact",
        "compare and find places, 0.1 % kept",
        vector_sizes,
        _mask_compact,
        counted=lambda size: (above(size.elements),),
    ),
    Bench(
        "gaussiank_encode",
        "add residual, normal fit, three searches, gather, keep the rest; 0.1 % kept",
        vector_sizes,
        _gaussiank,
        counted=_gaussiank_counted,
    ),
    Bench(
        "sidco_encode",
        "add residual, exponential fits (width: how many), search, gather, keep the rest; 0.1 %"
        " kept",
        _sidco_sizes,
        _sidco,
        counted=_sidco_counted,
    ),
)
"""Exact and estimated selection. Methods read those without ``counted``, and topk_new. Of the
others they count the passes over memory; these points show how far that holds."""


# Scattering of values that a sparse method received


_QUEUED_DECODES = 16
"""Messages decoded right behind one another, as a loop over messages does. No source: chosen."""
_DECODED_DENSITY = 0.01
"""Share of values that a decoded message holds, as in `_PUBLISHED_DENSITY`."""
_TARGET_VALUES_PER_PAIR = 32
"""Values of the target for each pair: about 32 ranks that keep 0.1 % each."""


def _decode(device: KernelDevice, size: Size) -> Call:
    """Zero a tensor and scatter 1 % of its values into it."""
    count = kept(size.elements, _DECODED_DENSITY)
    values, indices = device.normal(count), device.random_indices(count, size.elements)

    def decode() -> object:
        dense = device.torch.zeros(size.elements, device=device.device)
        dense[indices] = values
        return dense

    return decode


def _scatter_add(device: KernelDevice, size: Size) -> Call:
    dense = device.torch.zeros(_TARGET_VALUES_PER_PAIR * size.elements, device=device.device)
    values = device.normal(size.elements)
    indices = device.random_indices(size.elements, _TARGET_VALUES_PER_PAIR * size.elements)
    return lambda: dense.scatter_add_(0, indices, values)


def _pairs(most: int) -> Sequence[Size]:
    return vector_sizes(most // _TARGET_VALUES_PER_PAIR)


SCATTER_BENCHES = (
    Bench(
        "scatter_add",
        f"pairs (fp32, int64) added at random places of {_TARGET_VALUES_PER_PAIR} values a pair",
        _pairs,
        _scatter_add,
        counted=lambda size: (scatter_add(size.elements),),
    ),
    Bench("dgc_decode", "zero a tensor, scatter 1 % into it", vector_sizes, _decode),
    Bench("randk_decode", "zero a tensor, scatter 1 % into it", vector_sizes, _decode),
    Bench(
        "dgc_decode_queued",
        f"zero a tensor, scatter 1 % into it; {_QUEUED_DECODES} right behind one another",
        vector_sizes,
        _decode,
        loop=_QUEUED_DECODES,
    ),
)


# Quantisation


_QSGD_GROUP = 512
_QSGD_LEVELS = 127
"""Values that share a norm, and levels of 8 bits with a sign: QSGD's 8-bit setting."""


def _cast(device: KernelDevice, size: Size) -> Call:
    values = device.normal(*size.shape)
    return values.half  # type: ignore[no-any-return]


def _uncast(device: KernelDevice, size: Size) -> Call:
    values = device.normal(*size.shape).half()
    return values.float  # type: ignore[no-any-return]


def _bits(device: KernelDevice) -> Any:
    """Return 1, 2, 4, ... 128: the values of a byte's eight bits."""
    return device.torch.tensor([2**bit for bit in range(8)], dtype=device.torch.uint8).to(
        device.device
    )


def _packed(device: KernelDevice, flags: Any, bits: Any) -> Any:
    return (flags.view(-1, 8) * bits).sum(1, dtype=device.torch.uint8)


def _flags(packed: Any, bits: Any) -> Any:
    return packed.unsqueeze(1).bitwise_and(bits).ne(0).view(-1)


def _efsign(device: KernelDevice, size: Size) -> Call:
    values, bits = device.normal(*size.shape), _bits(device)
    return lambda: (_packed(device, values >= 0, bits), values.abs().mean())


def _efsign_back(device: KernelDevice, size: Size) -> Call:
    values, bits = device.normal(*size.shape), _bits(device)
    packed, mean = _packed(device, values >= 0, bits), values.abs().mean()
    return lambda: _flags(packed, bits).float().mul_(2).sub_(1).mul_(mean)


def _onebit(device: KernelDevice, size: Size) -> Call:
    values, bits = device.normal(*size.shape), _bits(device)

    def encode() -> object:
        up = values >= 0
        return values[up].mean(), values[~up].mean(), _packed(device, up, bits)

    return encode


def _onebit_back(device: KernelDevice, size: Size) -> Call:
    values, bits = device.normal(*size.shape), _bits(device)
    up = values >= 0
    packed, high, low = _packed(device, up, bits), values[up].mean(), values[~up].mean()

    def decode() -> object:
        signs = _flags(packed, bits)
        return signs * high + ~signs * low

    return decode


def _qsgd(device: KernelDevice, size: Size) -> Call:
    """Round stochastically to 8 bits, with a norm every 512 values."""
    torch, values = device.torch, device.normal(*size.shape).view(-1, _QSGD_GROUP)

    def encode() -> object:
        norms = values.norm(dim=1, keepdim=True)
        levels = values.abs() / norms * _QSGD_LEVELS
        whole = levels.floor()
        up = torch.rand_like(values) < levels - whole
        return ((whole + up) * values.sign()).to(torch.int8), norms

    return encode


def _terngrad(device: KernelDevice, size: Size) -> Call:
    torch, values = device.torch, device.normal(*size.shape)

    def encode() -> object:
        magnitudes = values.abs()
        largest = magnitudes.max()
        drawn = torch.rand_like(values) < magnitudes / largest
        return (values.sign() * drawn).to(torch.int8), largest

    return encode


def _with_queue(name: str, does: str, make: Any) -> tuple[Bench, Bench]:
    """Return a decode's bench, and the bench of decodes queued behind one another."""
    behind = f"{does}; {_QUEUED_DECODES} right behind one another"
    return Bench(name, does, vector_sizes, make), Bench(
        f"{name}_queued", behind, vector_sizes, make, loop=_QUEUED_DECODES
    )


QUANTISATION_BENCHES = (
    Bench("fp16_cast", "fp32 to fp16", vector_sizes, _cast),
    Bench("fp16_uncast", "fp16 to fp32", vector_sizes, _uncast),
    Bench(
        "efsign_encode",
        "signs packed eight to a byte (weighted sum of bytes, PyTorch has no packbits), mean"
        " magnitude",
        vector_sizes,
        _efsign,
    ),
    *_with_queue("efsign_decode", "unpack, cast, twice, minus one, times mean", _efsign_back),
    Bench(
        "onebit_encode",
        "signs packed eight to a byte, the mean of each sign",
        vector_sizes,
        _onebit,
    ),
    *_with_queue("onebit_decode", "unpack, other mask, two products, sum", _onebit_back),
    Bench(
        "qsgd_encode",
        f"8 bits by stochastic rounding, a norm every {_QSGD_GROUP} values",
        vector_sizes,
        _qsgd,
        counted=lambda size: (elementwise(size.elements, 1, 2), elementwise(size.elements, 24, 11)),
    ),
    Bench(
        "terngrad_encode",
        "-1, 0 or 1 drawn by magnitude, a byte each, no clipping",
        vector_sizes,
        _terngrad,
        counted=lambda size: (elementwise(size.elements, 15.75, 9),),
    ),
)
"""No method reads ``qsgd_encode`` and ``terngrad_encode``: methods count their passes."""


# All of them


def all_benches(device: KernelDevice) -> list[Bench]:
    """Return the benches that run on a device."""
    rates = [MATRIX_BENCHES[precision] for precision in device.precisions()]
    all_of_them = (
        *STREAM_BENCHES,
        *rates,
        *SELECTION_BENCHES,
        *SCATTER_BENCHES,
        *QUANTISATION_BENCHES,
        *PRODUCT_BENCHES,
        *DECOMPOSITION_BENCHES,
    )
    return [bench for bench in all_of_them if device.gpu or bench.only != "cuda"]


def select_benches(device: KernelDevice, names: Sequence[str]) -> list[Bench]:
    """Return the benches of these names, all benches if none is given.

    Raises
    ------
    RequestError
        If there is no bench of a name on this device.
    """
    benches = all_benches(device)
    known = [bench.name for bench in benches]
    for name in names:
        if name not in known:
            raise unknown("kernels", name, known)
    return [bench for bench in benches if not names or bench.name in names]
