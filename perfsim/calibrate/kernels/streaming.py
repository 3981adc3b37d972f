"""Memory bandwidth, launches, and copies between a GPU and its host."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.calibrate.kernels.bench import Bench, Call, Size, scalars
from perfsim.calibrate.kernels.place import Place

__all__ = ["LAUNCHES", "PASSES", "STREAMING"]

PASSES = {"stream_add": 3, "stream_copy": 2, "stream_scale": 2}
"""Reads and writes of the three kernels that a device file's memory bandwidth is taken from."""
LAUNCHES = 100
"""Launches between two marks: what one costs in a chain of them, which is how methods pay it."""
TINY = 1024


def _add(place: Place, size: Size) -> Call:
    one, two, out = (place.normal(*size.shape) for _ in range(3))
    return lambda: place.torch.add(one, two, out=out)


def _copy(place: Place, size: Size) -> Call:
    one, out = (place.normal(*size.shape) for _ in range(2))
    return lambda: out.copy_(one)


def _scale(place: Place, size: Size) -> Call:
    one, out = (place.normal(*size.shape) for _ in range(2))
    return lambda: place.torch.mul(one, 0.5, out=out)


def _launch(place: Place, size: Size) -> Call:
    values = place.normal(*size.shape)
    return lambda: values.add_(1.0)


def _to_host(place: Place, size: Size) -> Call:
    values = place.normal(*size.shape)
    host = place.torch.empty(size.elements, pin_memory=True)
    return lambda: host.copy_(values, non_blocking=True)


def _to_gpu(place: Place, size: Size) -> Call:
    values = place.normal(*size.shape)
    host = place.torch.empty(size.elements, pin_memory=True)
    return lambda: values.copy_(host, non_blocking=True)


def _sum(place: Place, size: Size) -> Call:
    held, come = (place.normal(*size.shape) for _ in range(2))
    return lambda: held.add_(come)


def _tiny(most: int) -> Sequence[Size]:
    return (Size(TINY, 0, (TINY,)),) if most >= TINY else ()


STREAMING = (
    Bench("stream_add", "c = a + b", scalars, _add),
    Bench("stream_copy", "b = a", scalars, _copy),
    Bench("stream_scale", "b = a / 2", scalars, _scale),
    Bench(
        "launch_queued",
        f"one tiny kernel of {LAUNCHES} right behind one another",
        _tiny,
        _launch,
        loop=LAUNCHES,
    ),
    Bench("launch_alone", "one tiny kernel after a synchronisation", _tiny, _launch),
    Bench("copy_to_host", "fp32 to pinned host memory", scalars, _to_host, only="cuda"),
    Bench("copy_to_gpu", "fp32 from pinned host memory", scalars, _to_gpu, only="cuda"),
    Bench(
        "cpu_sum", "fp32 added in place by all threads of this process", scalars, _sum, only="host"
    ),
)
"""Of these methods read the copies and cpu_sum."""
