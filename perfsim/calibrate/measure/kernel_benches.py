"""Kernels that pick the values a sparse method sends."""

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
    "DECOMPOSING",
    "LAUNCHES",
    "PASSES",
    "PRODUCTS",
    "QUANTISING",
    "QUEUE",
    "RATES",
    "SCATTERING",
    "SELECTING",
    "STREAMING",
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

LEAST = 2**10
STEP = 4
SIDES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class Size:
    """What a point is keyed on (``elements``, ``width``), and the shape that is run there."""

    elements: int
    width: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bench:
    """One kernel to measure.

    Parameters
    ----------
    name : as `perfsim.compute.kernel.Kernel` calls it, or a name that no method reads
    does : what is run, in a few words: the note of its points
    sizes : gives the sizes for the most fp32 values that an input may hold, rising in each width
    make : gives the call for a size
    loop : calls between two marks; more than 1 where kernels wait behind others of their kind
    growth : power of ``elements`` that the time is expected to grow with
    counted : what perfsim takes instead where no point is known; None where it has no such rule
    only : "cuda" where a GPU must be there; "host" where it runs on the CPU, GPU or not
    """

    name: str
    does: str
    sizes: Callable[[int], Sequence[Size]]
    make: Callable[[KernelDevice, Size], Call]
    loop: int = 1
    growth: float = 1.0
    counted: Callable[[Size], Sequence[Kernel]] | None = None
    only: str = ""


def vector_sizes(most: int) -> list[Size]:
    """Return 2^10, 2^12, ... values.

    Examples
    --------
    >>> [size.elements for size in vector_sizes(20000)]
    [1024, 4096, 16384]
    """
    sizes = []
    count = LEAST
    while count <= most:
        sizes.append(Size(count, 0, (count,)))
        count *= STEP
    return sizes


def square_sizes(most: int) -> list[Size]:
    """Return n x n matrices, n from 64 to 8192, keyed on n * n.

    Examples
    --------
    >>> [size.shape for size in square_sizes(20000)]
    [(64, 64), (128, 128)]
    """
    return [Size(side * side, 0, (side, side)) for side in SIDES if side * side <= most]


def sizes_by_rank(rows: Sequence[int], ranks: Sequence[int], most: int) -> list[Size]:
    """Return rows x rank matrices, rank by rank, keyed on rows with the rank as width.

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


DECOMPOSED_ROWS = (64, 256, 1024, 4096, 16384, 65536)
DECOMPOSED_RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DECOMPOSED_TINY = 1e-8


def _factors(most: int) -> list[Size]:
    return sizes_by_rank(DECOMPOSED_ROWS, DECOMPOSED_RANKS, most)


def _qr(place: KernelDevice, size: Size) -> Call:
    matrix = place.normal(*size.shape)
    return lambda: place.torch.linalg.qr(matrix)


def _gram_schmidt(place: KernelDevice, size: Size) -> Call:
    """Return PowerSGD's Gram-Schmidt: a column at a time, each operation a launch, in place."""
    matrix = place.normal(*size.shape)
    rank = size.width

    def run() -> object:
        for at in range(rank):
            column = matrix[:, at : at + 1]
            column /= place.torch.sqrt((column**2).sum()) + DECOMPOSED_TINY
            if at + 1 < rank:
                rest = matrix[:, at + 1 :]
                rest -= (column * rest).sum(dim=0) * column
        return matrix

    return run


def _decomposed_factor(place: KernelDevice, size: Size) -> Any:
    """Return a symmetric matrix without small eigenvalues, as a damped K-FAC factor is."""
    side = size.shape[0]
    rows = place.normal(side, side)
    return rows @ rows.t() / side + place.torch.eye(side, device=place.device)


def _inverse(place: KernelDevice, size: Size) -> Call:
    matrix = _decomposed_factor(place, size)
    return lambda: place.torch.linalg.inv(matrix)


def _cholesky(place: KernelDevice, size: Size) -> Call:
    matrix = _decomposed_factor(place, size)
    return lambda: place.torch.linalg.cholesky(matrix)


def _cholesky_inverse(place: KernelDevice, size: Size) -> Call:
    lower = place.torch.linalg.cholesky(_decomposed_factor(place, size))
    return lambda: place.torch.cholesky_inverse(lower)


def _eigh(place: KernelDevice, size: Size) -> Call:
    matrix = _decomposed_factor(place, size)
    return lambda: place.torch.linalg.eigh(matrix)


DECOMPOSING = (
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


RANKS = (1, 4, 16, 64, 256)
LOW_RANK_SIDES = (256, 1024, 4096, 8192)
ROWS = 4096
"""Rows of X in X^T X: samples times positions of a middle layer."""
RATE_SIDES = (256, 512, 1024, 2048, 4096, 8192)


def _low_rank_sizes(most: int) -> list[Size]:
    return [
        Size(side * side, rank, (side, rank))
        for rank in RANKS
        for side in LOW_RANK_SIDES
        if side * side <= most
    ]


def _p(place: KernelDevice, size: Size) -> Call:
    side, rank = size.shape
    matrix, q = place.normal(side, side), place.normal(side, rank)
    return lambda: matrix @ q


def _q(place: KernelDevice, size: Size) -> Call:
    side, rank = size.shape
    matrix, p = place.normal(side, side), place.normal(side, rank)
    return lambda: matrix.t() @ p


def _rebuilt(place: KernelDevice, size: Size) -> Call:
    side, rank = size.shape
    p, q = place.normal(side, rank), place.normal(side, rank)
    return lambda: p @ q.t()


def _first(size: Size) -> Sequence[Kernel]:
    side, rank = size.shape
    return (gemm(side, side, rank),)


def _last(size: Size) -> Sequence[Kernel]:
    side, rank = size.shape
    return (gemm(side, rank, side),)


def _factor_sizes(most: int) -> list[Size]:
    return [
        Size(ROWS * side**2, 0, (ROWS, side)) for side in SIDES if max(ROWS, side) * side <= most
    ]


def _factor(place: KernelDevice, size: Size) -> Call:
    rows = place.normal(*size.shape)
    return lambda: rows.t() @ rows


def _rate_sizes(most: int) -> list[Size]:
    return [Size(side * side, 0, (side, side)) for side in RATE_SIDES if side * side <= most]


def _square(precision: str) -> Callable[[KernelDevice, Size], Call]:
    def make(place: KernelDevice, size: Size) -> Call:
        torch = place.torch
        kind = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(precision)
        one, two = (place.normal(*size.shape).to(kind or torch.float32) for _ in range(2))
        if precision != "tf32":
            return lambda: one @ two

        def product() -> object:
            torch.backends.cuda.matmul.allow_tf32 = True
            try:
                return one @ two
            finally:
                torch.backends.cuda.matmul.allow_tf32 = False

        return product

    return make


PRODUCTS = (
    Bench(
        "factor",
        f"X^T X, {ROWS} rows",
        _factor_sizes,
        _factor,
        counted=lambda size: (factor_product(*size.shape),),
    ),
    Bench("lowrank_p", "M Q, M square, width: rank", _low_rank_sizes, _p, counted=_first),
    Bench("lowrank_q", "M^T P, M square, width: rank", _low_rank_sizes, _q, counted=_first),
    Bench("lowrank_rebuilt", "P Q^T, width: rank", _low_rank_sizes, _rebuilt, counted=_last),
)
"""Low-rank products are read by no method: a gemm depends on three sizes, a point has two."""

RATES = {
    precision: Bench(
        f"matrix_{precision}",
        f"product of square matrices, {precision}",
        _rate_sizes,
        _square(precision),
        growth=1.5,
    )
    for precision in ("fp32", "tf32", "amp-fp16", "amp-bf16")
}
"""For the matrix rates of a device file; read by no method."""


QUEUE = 16
"""Messages decoded one right behind the other, where a loop over messages is meant."""
DENSITY = 0.01
DENSE = 32
"""Values of the target for each pair: 32 ranks that keep 0.1 % each."""


def _decode(place: KernelDevice, size: Size) -> Call:
    """Zero a tensor and scatter 1 % of its values into it."""
    count = kept(size.elements, DENSITY)
    values, places = place.normal(count), place.places(count, size.elements)

    def decode() -> object:
        dense = place.torch.zeros(size.elements, device=place.device)
        dense[places] = values
        return dense

    return decode


def _scatter_add(place: KernelDevice, size: Size) -> Call:
    dense = place.torch.zeros(DENSE * size.elements, device=place.device)
    values = place.normal(size.elements)
    places = place.places(size.elements, DENSE * size.elements)
    return lambda: dense.scatter_add_(0, places, values)


def _pairs(most: int) -> Sequence[Size]:
    return vector_sizes(most // DENSE)


SCATTERING = (
    Bench(
        "scatter_add",
        f"pairs (fp32, int64) added at random places of {DENSE} values a pair",
        _pairs,
        _scatter_add,
        counted=lambda size: (scatter_add(size.elements),),
    ),
    Bench("dgc_decode", "zero a tensor, scatter 1 % into it", vector_sizes, _decode),
    Bench("randk_decode", "zero a tensor, scatter 1 % into it", vector_sizes, _decode),
    Bench(
        "dgc_decode_queued",
        f"zero a tensor, scatter 1 % into it; {QUEUE} right behind one another",
        vector_sizes,
        _decode,
        loop=QUEUE,
    ),
)


GROUP = 512
LEVELS = 127


def _cast(place: KernelDevice, size: Size) -> Call:
    values = place.normal(*size.shape)
    return values.half  # type: ignore[no-any-return]


def _uncast(place: KernelDevice, size: Size) -> Call:
    values = place.normal(*size.shape).half()
    return values.float  # type: ignore[no-any-return]


def _bits(place: KernelDevice) -> Any:
    """Return 1, 2, 4, ... 128: the places of eight signs in a byte."""
    return place.torch.tensor([2**bit for bit in range(8)], dtype=place.torch.uint8).to(
        place.device
    )


def _packed(place: KernelDevice, flags: Any, bits: Any) -> Any:
    return (flags.view(-1, 8) * bits).sum(1, dtype=place.torch.uint8)


def _flags(packed: Any, bits: Any) -> Any:
    return packed.unsqueeze(1).bitwise_and(bits).ne(0).view(-1)


def _efsign(place: KernelDevice, size: Size) -> Call:
    values, bits = place.normal(*size.shape), _bits(place)
    return lambda: (_packed(place, values >= 0, bits), values.abs().mean())


def _efsign_back(place: KernelDevice, size: Size) -> Call:
    values, bits = place.normal(*size.shape), _bits(place)
    packed, mean = _packed(place, values >= 0, bits), values.abs().mean()
    return lambda: _flags(packed, bits).float().mul_(2).sub_(1).mul_(mean)


def _onebit(place: KernelDevice, size: Size) -> Call:
    values, bits = place.normal(*size.shape), _bits(place)

    def encode() -> object:
        up = values >= 0
        return values[up].mean(), values[~up].mean(), _packed(place, up, bits)

    return encode


def _onebit_back(place: KernelDevice, size: Size) -> Call:
    values, bits = place.normal(*size.shape), _bits(place)
    up = values >= 0
    packed, high, low = _packed(place, up, bits), values[up].mean(), values[~up].mean()

    def decode() -> object:
        signs = _flags(packed, bits)
        return signs * high + ~signs * low

    return decode


def _qsgd(place: KernelDevice, size: Size) -> Call:
    """Return stochastic rounding to 8 bits with a norm every 512 values."""
    torch, values = place.torch, place.normal(*size.shape).view(-1, GROUP)

    def encode() -> object:
        norms = values.norm(dim=1, keepdim=True)
        levels = values.abs() / norms * LEVELS
        whole = levels.floor()
        up = torch.rand_like(values) < levels - whole
        return ((whole + up) * values.sign()).to(torch.int8), norms

    return encode


def _terngrad(place: KernelDevice, size: Size) -> Call:
    torch, values = place.torch, place.normal(*size.shape)

    def encode() -> object:
        magnitudes = values.abs()
        largest = magnitudes.max()
        drawn = torch.rand_like(values) < magnitudes / largest
        return (values.sign() * drawn).to(torch.int8), largest

    return encode


def _with_queue(name: str, does: str, make: Any) -> tuple[Bench, Bench]:
    """Return a decode's bench, and that of decodes right behind one another."""
    behind = f"{does}; {QUEUE} right behind one another"
    return Bench(name, does, vector_sizes, make), Bench(
        f"{name}_queued", behind, vector_sizes, make, loop=QUEUE
    )


QUANTISING = (
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
        f"8 bits by stochastic rounding, a norm every {GROUP} values",
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
"""``qsgd_encode`` and ``terngrad_encode`` are read by no method: methods count their passes."""


FEW = 0.001
"""Density of methods' papers and defaults."""
SOME = 0.01
"""Density at which DGC's and random-k's points were published, so that points compare."""
STAGES = (1, 3)
"""Fits of SIDCo that are measured: what its script runs, and one with later stages."""
FIRST = 0.25
"""SIDCo's first stage of several aims at this share."""
PRIME = 2654435761
"""Knuth's multiplicative hash, The Art of Computer Programming 3, section 6.4."""


def _topk(place: KernelDevice, size: Size) -> Call:
    magnitudes, k = place.normal(*size.shape).abs(), kept(size.elements, FEW)
    return lambda: place.torch.topk(magnitudes, k, sorted=False)


def _mask_compact(place: KernelDevice, size: Size) -> Call:
    magnitudes = place.normal(*size.shape).abs()
    threshold = _normal_threshold(FEW)
    return lambda: place.torch.nonzero(magnitudes > threshold)


def _dgc(place: KernelDevice, size: Size) -> Call:
    """Sample with a stride, take its threshold, compare, compact, clear what is sent."""
    values, memory = place.normal(*size.shape), place.normal(*size.shape)
    stride = round(1 / SOME)
    k = kept(-(-size.elements // stride), SOME)

    def encode() -> object:
        magnitudes = values.abs()
        threshold = place.torch.topk(magnitudes[::stride], k, sorted=False)[0].min()
        places = (magnitudes >= threshold).nonzero().view(-1)
        sent = values[places]
        memory.index_fill_(0, places, 0.0)  # not values: each call must find as many
        return sent

    return encode


def _randk(place: KernelDevice, size: Size) -> Call:
    """Draw places, gather the values there, keep the rest."""
    values, k = place.normal(*size.shape), kept(size.elements, SOME)

    def encode() -> object:
        places = place.torch.randint(size.elements, (k,), device=place.device)
        sent = values[places]
        return sent, values.clone().index_fill_(0, places, 0.0)

    return encode


def _dragonn(place: KernelDevice, size: Size) -> Call:
    """Take a random sample's threshold, write places above it into a table by hash, gather."""
    values, k = place.normal(*size.shape), kept(size.elements, FEW)
    torch, draws = place.torch, kept(size.elements, SOME)

    def encode() -> object:
        sample = values[torch.randint(size.elements, (draws,), device=place.device)].abs()
        threshold = torch.topk(sample, kept(draws, FEW), sorted=False)[0].min()
        found = (values.abs() >= threshold).nonzero().view(-1)
        table = torch.zeros(4 * k, dtype=torch.int64, device=place.device)
        table[found * PRIME % (4 * k)] = found
        places = table[table.nonzero().view(-1)]
        return values[places], places

    return encode


def _gaussiank(place: KernelDevice, size: Size) -> Call:
    """Fit a normal distribution, search above its threshold three times, gather, keep the rest."""
    values, rest = place.normal(*size.shape), place.normal(*size.shape).mul_(0.01)
    deviations = _normal_threshold(FEW)

    def encode() -> object:
        whole = values + rest
        threshold = whole.mean().item() + deviations * whole.std().item()
        magnitudes = whole.abs()
        for _ in range(3):
            places = (magnitudes > threshold).nonzero().view(-1)
        sent = whole[places]
        return sent, whole.clone().index_fill_(0, places, 0.0)

    return encode


def _gaussiank_counted(size: Size) -> Sequence[Kernel]:
    return (
        elementwise(size.elements, 9, 5),
        above(size.elements, 3),
        elementwise(kept(size.elements, FEW), 3, 2),
    )


def _sidco(place: KernelDevice, size: Size) -> Call:
    """Fit an exponential distribution ``width`` times, each on what the last one kept; select."""
    values, rest = place.normal(*size.shape), place.normal(*size.shape).mul_(0.01)
    shares = _shares(size.width)

    def encode() -> object:
        whole = values + rest
        magnitudes = (whole / whole.norm()).abs()
        left, low, threshold = magnitudes.clone(), 0.0, 0.0
        for place_of, share in enumerate(shares):
            if place_of:
                left = left[(left > threshold).nonzero().view(-1)]
                low = left.min().item()
            threshold = low + (left.mean().item() - low) * math.log(1 / share)
        places = (magnitudes > threshold).nonzero().view(-1)
        sent = whole[places]
        return sent, (values * 0.5 + whole * 0.5).index_fill_(0, places, 0.0)

    return encode


def _sidco_counted(size: Size) -> Sequence[Kernel]:
    from perfsim.compute.profile import Gradient
    from perfsim.fusion.bucket import Bucket
    from perfsim.methods.base import Compute, MethodContext
    from perfsim.methods.sidco import Sidco

    bucket = Bucket.of([Gradient("values", size.shape, 0.0, 0)])
    first = Sidco(density=FEW, distribution="exponential", fits=size.width).stages(
        bucket, MethodContext(2), 0
    )[0]
    return first.kernels if isinstance(first, Compute) else ()


def _sidco_sizes(most: int) -> list[Size]:
    return [Size(one.elements, fits, one.shape) for fits in STAGES for one in vector_sizes(most)]


def _shares(fits: int) -> list[float]:
    if fits == 1:
        return [FEW]
    return [FIRST] + [(FEW / FIRST) ** (1 / (fits - 1))] * (fits - 1)


def _normal_threshold(density: float) -> float:
    """Return how many deviations from 0 a share ``density`` of normal values lies outside."""
    return NormalDist().inv_cdf(1 - density / 2)


SELECTING = (
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
"""Exact and estimated selection. Those with ``counted`` but not topk_new are read by no method:
methods count their passes, and these points show how far that is true."""


PASSES = {"stream_add": 3, "stream_copy": 2, "stream_scale": 2}
"""Reads and writes of the three kernels that a device file's memory bandwidth is taken from."""
LAUNCHES = 100
"""Launches between two marks: what one costs in a chain of them, which is how methods pay it."""
TINY = 1024


def _add(place: KernelDevice, size: Size) -> Call:
    one, two, out = (place.normal(*size.shape) for _ in range(3))
    return lambda: place.torch.add(one, two, out=out)


def _copy(place: KernelDevice, size: Size) -> Call:
    one, out = (place.normal(*size.shape) for _ in range(2))
    return lambda: out.copy_(one)


def _scale(place: KernelDevice, size: Size) -> Call:
    one, out = (place.normal(*size.shape) for _ in range(2))
    return lambda: place.torch.mul(one, 0.5, out=out)


def _launch(place: KernelDevice, size: Size) -> Call:
    values = place.normal(*size.shape)
    return lambda: values.add_(1.0)


def _to_host(place: KernelDevice, size: Size) -> Call:
    values = place.normal(*size.shape)
    host = place.torch.empty(size.elements, pin_memory=True)
    return lambda: host.copy_(values, non_blocking=True)


def _to_gpu(place: KernelDevice, size: Size) -> Call:
    values = place.normal(*size.shape)
    host = place.torch.empty(size.elements, pin_memory=True)
    return lambda: values.copy_(host, non_blocking=True)


def _sum(place: KernelDevice, size: Size) -> Call:
    held, come = (place.normal(*size.shape) for _ in range(2))
    return lambda: held.add_(come)


def _tiny(most: int) -> Sequence[Size]:
    return (Size(TINY, 0, (TINY,)),) if most >= TINY else ()


STREAMING = (
    Bench("stream_add", "c = a + b", vector_sizes, _add),
    Bench("stream_copy", "b = a", vector_sizes, _copy),
    Bench("stream_scale", "b = a / 2", vector_sizes, _scale),
    Bench(
        "launch_queued",
        f"one tiny kernel of {LAUNCHES} right behind one another",
        _tiny,
        _launch,
        loop=LAUNCHES,
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
"""Of these methods read the copies and cpu_sum."""


def all_benches(place: KernelDevice) -> list[Bench]:
    """Return the benches that run at a place."""
    rates = [RATES[precision] for precision in place.precisions()]
    all_of_them = (
        *STREAMING,
        *rates,
        *SELECTING,
        *SCATTERING,
        *QUANTISING,
        *PRODUCTS,
        *DECOMPOSING,
    )
    return [bench for bench in all_of_them if place.gpu or bench.only != "cuda"]


def select_benches(place: KernelDevice, names: Sequence[str]) -> list[Bench]:
    """Return the benches of some names, of all where none is given.

    Raises
    ------
    RequestError
        If a name is no bench here.
    """
    benches = all_benches(place)
    known = [bench.name for bench in benches]
    for name in names:
        if name not in known:
            raise unknown("kernels", name, known)
    return [bench for bench in benches if not names or bench.name in names]
