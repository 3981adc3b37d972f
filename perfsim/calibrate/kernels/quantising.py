"""Kernels that make values narrower: casts, signs, levels; and back."""

from __future__ import annotations

from typing import Any

from perfsim.calibrate.kernels.bench import Bench, Call, Size, scalars
from perfsim.calibrate.kernels.place import Place
from perfsim.calibrate.kernels.scattering import QUEUE
from perfsim.kernel import elementwise

__all__ = ["QUANTISING"]

GROUP = 512
LEVELS = 127


def _cast(place: Place, size: Size) -> Call:
    values = place.normal(*size.shape)
    return values.half  # type: ignore[no-any-return]


def _uncast(place: Place, size: Size) -> Call:
    values = place.normal(*size.shape).half()
    return values.float  # type: ignore[no-any-return]


def _bits(place: Place) -> Any:
    """Return 1, 2, 4, ... 128: the places of eight signs in a byte."""
    return place.torch.tensor([2**bit for bit in range(8)], dtype=place.torch.uint8).to(
        place.device
    )


def _packed(place: Place, flags: Any, bits: Any) -> Any:
    return (flags.view(-1, 8) * bits).sum(1, dtype=place.torch.uint8)


def _flags(packed: Any, bits: Any) -> Any:
    return packed.unsqueeze(1).bitwise_and(bits).ne(0).view(-1)


def _efsign(place: Place, size: Size) -> Call:
    values, bits = place.normal(*size.shape), _bits(place)
    return lambda: (_packed(place, values >= 0, bits), values.abs().mean())


def _efsign_back(place: Place, size: Size) -> Call:
    values, bits = place.normal(*size.shape), _bits(place)
    packed, mean = _packed(place, values >= 0, bits), values.abs().mean()
    return lambda: _flags(packed, bits).float().mul_(2).sub_(1).mul_(mean)


def _onebit(place: Place, size: Size) -> Call:
    values, bits = place.normal(*size.shape), _bits(place)

    def encode() -> object:
        up = values >= 0
        return values[up].mean(), values[~up].mean(), _packed(place, up, bits)

    return encode


def _onebit_back(place: Place, size: Size) -> Call:
    values, bits = place.normal(*size.shape), _bits(place)
    up = values >= 0
    packed, high, low = _packed(place, up, bits), values[up].mean(), values[~up].mean()

    def decode() -> object:
        signs = _flags(packed, bits)
        return signs * high + ~signs * low

    return decode


def _qsgd(place: Place, size: Size) -> Call:
    """Return stochastic rounding to 8 bits with a norm every 512 values."""
    torch, values = place.torch, place.normal(*size.shape).view(-1, GROUP)

    def encode() -> object:
        norms = values.norm(dim=1, keepdim=True)
        levels = values.abs() / norms * LEVELS
        whole = levels.floor()
        up = torch.rand_like(values) < levels - whole
        return ((whole + up) * values.sign()).to(torch.int8), norms

    return encode


def _terngrad(place: Place, size: Size) -> Call:
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
    return Bench(name, does, scalars, make), Bench(
        f"{name}_queued", behind, scalars, make, loop=QUEUE
    )


QUANTISING = (
    Bench("fp16_cast", "fp32 to fp16", scalars, _cast),
    Bench("fp16_uncast", "fp16 to fp32", scalars, _uncast),
    Bench(
        "efsign_encode",
        "signs packed eight to a byte (weighted sum of bytes, PyTorch has no packbits), mean"
        " magnitude",
        scalars,
        _efsign,
    ),
    *_with_queue("efsign_decode", "unpack, cast, twice, minus one, times mean", _efsign_back),
    Bench("onebit_encode", "signs packed eight to a byte, the mean of each sign", scalars, _onebit),
    *_with_queue("onebit_decode", "unpack, other mask, two products, sum", _onebit_back),
    Bench(
        "qsgd_encode",
        f"8 bits by stochastic rounding, a norm every {GROUP} values",
        scalars,
        _qsgd,
        counted=lambda size: (elementwise(size.elements, 1, 2), elementwise(size.elements, 24, 11)),
    ),
    Bench(
        "terngrad_encode",
        "-1, 0 or 1 drawn by magnitude, a byte each, no clipping",
        scalars,
        _terngrad,
        counted=lambda size: (elementwise(size.elements, 15.75, 9),),
    ),
)
"""``qsgd_encode`` and ``terngrad_encode`` are read by no method: methods count their passes."""
