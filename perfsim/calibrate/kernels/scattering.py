"""Kernels that put sent values back to their places."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.calibrate.kernels.bench import Bench, Call, Size, scalars
from perfsim.calibrate.kernels.place import Place
from perfsim.kernel import scatter_add
from perfsim.sparse import kept

__all__ = ["QUEUE", "SCATTERING"]

QUEUE = 16
"""Messages decoded one right behind the other, where a loop over messages is meant."""
DENSITY = 0.01
DENSE = 32
"""Values of the target for each pair: 32 ranks that keep 0.1 % each."""


def _decode(place: Place, size: Size) -> Call:
    """Zero a tensor and scatter 1 % of its values into it."""
    count = kept(size.elements, DENSITY)
    values, places = place.normal(count), place.places(count, size.elements)

    def decode() -> object:
        dense = place.torch.zeros(size.elements, device=place.device)
        dense[places] = values
        return dense

    return decode


def _add(place: Place, size: Size) -> Call:
    dense = place.torch.zeros(DENSE * size.elements, device=place.device)
    values = place.normal(size.elements)
    places = place.places(size.elements, DENSE * size.elements)
    return lambda: dense.scatter_add_(0, places, values)


def _pairs(most: int) -> Sequence[Size]:
    return scalars(most // DENSE)


SCATTERING = (
    Bench(
        "scatter_add",
        f"pairs (fp32, int64) added at random places of {DENSE} values a pair",
        _pairs,
        _add,
        counted=lambda size: (scatter_add(size.elements),),
    ),
    Bench("dgc_decode", "zero a tensor, scatter 1 % into it", scalars, _decode),
    Bench("randk_decode", "zero a tensor, scatter 1 % into it", scalars, _decode),
    Bench(
        "dgc_decode_queued",
        f"zero a tensor, scatter 1 % into it; {QUEUE} right behind one another",
        scalars,
        _decode,
        loop=QUEUE,
    ),
)
