"""Flat buffer."""

from __future__ import annotations

from perfsim.compute.kernel import Kernel, elementwise
from perfsim.methods.base import MethodContext

__all__ = ["packed_buffer", "python_calls", "written_back"]

BACK_LAUNCHES, BACK_VIEWS = 3, 4
"""Calls a tensor when the buffer is emptied, as above."""


PACK_PASSES, BACK_PASSES = 2, 4
"""Concatenate; clear (1) and add (3)."""


def python_calls(launches: int, views: int) -> tuple[Kernel, ...]:
    """Return the host's calls from Python: operations that launch a kernel, and views.

    Examples
    --------
    >>> [(kernel.name, kernel.elements) for kernel in python_calls(3, 0)]
    [('eager_launch', 3)]
    """
    calls = (("eager_launch", launches), ("eager_view", views))
    return tuple(
        Kernel(name, count, 0.0, launches=count if name == "eager_launch" else 0)
        for name, count in calls
        if count
    )


def packed_buffer(elements: int, tensors: int) -> tuple[Kernel, ...]:
    """Return the concatenation of ``tensors`` gradients of ``elements`` values together."""
    return (*python_calls(1, tensors), elementwise(elements, PACK_PASSES, 0))


def written_back(
    elements: int, tensors: int, world: MethodContext, beside_s: float = 0.0
) -> tuple[Kernel, ...]:
    """Return the emptying of the buffer: the host's calls, or the GPU's work where that is longer.

    ``beside_s`` is how long a collective still runs while the host goes through the tensors.

    Examples
    --------
    >>> [kernel.name for kernel in written_back(1000, 2, MethodContext(4))]
    ['elementwise']
    >>> hosted = MethodContext(4, kernel_s=lambda kernel: float(not kernel.moved_bytes))
    >>> [(one.name, one.elements) for one in written_back(1000, 2, hosted)]
    [('eager_launch', 6), ('eager_view', 8)]
    >>> [(one.name, one.elements) for one in written_back(1000, 2, hosted, beside_s=1.0)]
    [('eager_launch', 3), ('eager_view', 4)]
    """
    calls = python_calls(BACK_LAUNCHES * tensors, BACK_VIEWS * tensors)
    host_s = sum(world.kernel_s(call) for call in calls)
    moved = elementwise(elements, BACK_PASSES, 0)
    left = max(0.0, 1.0 - beside_s / host_s) if host_s > 0 else 0.0
    if left * host_s <= world.kernel_s(moved):
        return (moved,)
    return python_calls(*(round(left * call.elements) for call in calls))
