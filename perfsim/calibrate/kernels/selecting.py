"""Kernels that pick the values a sparse method sends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from perfsim.calibrate.kernels.bench import Bench, Call, Size, scalars
from perfsim.calibrate.kernels.place import Place
from perfsim.kernel import Kernel, elementwise
from perfsim.merging import exact
from perfsim.sparse import above, kept

__all__ = ["SELECTING"]

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


def _topk(place: Place, size: Size) -> Call:
    magnitudes, k = place.normal(*size.shape).abs(), kept(size.elements, FEW)
    return lambda: place.torch.topk(magnitudes, k, sorted=False)


def _mask_compact(place: Place, size: Size) -> Call:
    magnitudes = place.normal(*size.shape).abs()
    threshold = _normal_threshold(FEW)
    return lambda: place.torch.nonzero(magnitudes > threshold)


def _dgc(place: Place, size: Size) -> Call:
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


def _randk(place: Place, size: Size) -> Call:
    """Draw places, gather the values there, keep the rest."""
    values, k = place.normal(*size.shape), kept(size.elements, SOME)

    def encode() -> object:
        places = place.torch.randint(size.elements, (k,), device=place.device)
        sent = values[places]
        return sent, values.clone().index_fill_(0, places, 0.0)

    return encode


def _dragonn(place: Place, size: Size) -> Call:
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


def _gaussiank(place: Place, size: Size) -> Call:
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


def _sidco(place: Place, size: Size) -> Call:
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
    from perfsim.fusion.bucket import Bucket
    from perfsim.method import Compute, World
    from perfsim.methods.sidco import Sidco
    from perfsim.profile import Gradient

    bucket = Bucket.of([Gradient("values", size.shape, 0.0, 0)])
    first = Sidco(density=FEW, distribution="exponential", fits=size.width).stages(
        bucket, World(2), 0
    )[0]
    return first.kernels if isinstance(first, Compute) else ()


def _sidco_sizes(most: int) -> list[Size]:
    return [Size(one.elements, fits, one.shape) for fits in STAGES for one in scalars(most)]


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
        scalars,
        _topk,
        counted=lambda size: (exact(size.elements, "new"),),
    ),
    Bench(
        "dgc_encode",
        "threshold of a strided 1 % sample, mask, compact, clear; 1 % kept",
        scalars,
        _dgc,
    ),
    Bench("randk_encode", "draw places, gather, copy with them cleared; 1 % kept", scalars, _randk),
    Bench(
        "dragonn_encode",
        "threshold of a random 1 % sample, places into a table by hash, gather; 0.1 % kept; in"
        " PyTorch, not the authors' fused kernel",
        scalars,
        _dragonn,
    ),
    Bench(
        "mask_compact",
        "compare and find places, 0.1 % kept",
        scalars,
        _mask_compact,
        counted=lambda size: (above(size.elements),),
    ),
    Bench(
        "gaussiank_encode",
        "add residual, normal fit, three searches, gather, keep the rest; 0.1 % kept",
        scalars,
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
