"""One buffer for all gradients, filled and emptied tensor by tensor from Python.

Filling the buffer takes a view of each gradient and one concatenation. Emptying it first clears
each gradient: a number is assigned to a slice, which makes a scalar on the GPU and copies it. Then
the gradient's part of the buffer is added: a slice, a view, a move to the same device, an addition.

The GPU does each of these faster than the host requests them, so that the host's calls set the
time. ``eager_launch`` is an operation that launches a kernel, ``eager_view`` one that launches
none. Their points were measured on the optimizer's step and on the accumulation of gradients. The
same code times these separately from the exchange.

References
----------
vineeths96/Gradient-Compression@e5b61b1e reducer.py (TensorBuffer, NoneAllReducer), trainer.py;
assignment to a slice: PyTorch 1.7, aten/src/ATen/TensorIndexing.h (scalarToTensor, copy_to).
"""

from __future__ import annotations

from perfsim.compute.kernel import Kernel, elementwise
from perfsim.methods.base import MethodContext
from perfsim.sums import sum_in_order

__all__ = ["packed_buffer", "python_calls", "written_back"]

_EMPTY_LAUNCHES, _EMPTY_VIEWS = 3, 4
"""The host's calls per tensor when the buffer is emptied."""


_FILL_PASSES, _EMPTY_PASSES = 2, 4
"""Passes to fill the buffer (concatenate) and to empty it (clear: 1, add: 3)."""


def python_calls(launches: int, views: int) -> tuple[Kernel, ...]:
    """Return the kernels for the host's calls from Python: launching operations and views.

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
    """Return the concatenation of ``tensors`` gradients with ``elements`` values in all."""
    return (*python_calls(1, tensors), elementwise(elements, _FILL_PASSES, 0))


def written_back(
    elements: int, tensors: int, world: MethodContext, overlap_s: float = 0.0
) -> tuple[Kernel, ...]:
    """Return the emptying of the buffer: the host's calls, or the GPU's work if that is longer.

    ``overlap_s`` is how long a collective still runs while the host works on the tensors [s].

    Examples
    --------
    >>> [kernel.name for kernel in written_back(1000, 2, MethodContext(4))]
    ['elementwise']
    >>> hosted = MethodContext(4, kernel_s=lambda kernel: float(not kernel.moved_bytes))
    >>> [(one.name, one.elements) for one in written_back(1000, 2, hosted)]
    [('eager_launch', 6), ('eager_view', 8)]
    >>> [(one.name, one.elements) for one in written_back(1000, 2, hosted, overlap_s=1.0)]
    [('eager_launch', 3), ('eager_view', 4)]
    """
    calls = python_calls(_EMPTY_LAUNCHES * tensors, _EMPTY_VIEWS * tensors)
    host_s = sum_in_order(world.kernel_s(call) for call in calls)
    moved = elementwise(elements, _EMPTY_PASSES, 0)
    left = max(0.0, 1.0 - overlap_s / host_s) if host_s > 0 else 0.0
    if left * host_s <= world.kernel_s(moved):
        return (moved,)
    return python_calls(*(round(left * call.elements) for call in calls))
