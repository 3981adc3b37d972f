"""How many GPUs stand on each node."""

from __future__ import annotations

from perfsim.errors import RequestError

__all__ = ["DEFAULT_GPUS_PER_NODE", "place"]

DEFAULT_GPUS_PER_NODE = 4

MOST_SHOWN = 64
"""Divisors above this are no node sizes and would only lengthen the message."""


def place(
    gpus: int,
    gpus_per_node: int | None,
    placement: tuple[int, ...] | None,
    stated: int | None = None,
) -> tuple[int, ...]:
    """Return the GPUs on each node.

    Parameters
    ----------
    gpus : all GPUs
    gpus_per_node : as asked for, a divisor of ``gpus``. None: ``stated``, else 4, cut to the
        largest divisor of ``gpus``
    placement : GPUs on each node, as asked for
    stated : GPUs a node of the network's file

    Raises
    ------
    RequestError
        If a number is not positive or the numbers contradict each other.

    Examples
    --------
    >>> place(8, 4, None), place(10, None, None), place(8, None, (3, 5))
    ((4, 4), (2, 2, 2, 2, 2), (3, 5))
    """
    if gpus < 1:
        raise RequestError(f"--gpus: {gpus} is not a number of GPUs; at least 1.")
    if placement is not None:
        if not placement or min(placement) < 1:
            raise RequestError(
                f"--placement: {_shown(placement)} has a node without a GPU; give at least 1 for"
                " every node."
            )
        if sum(placement) != gpus:
            raise RequestError(
                f"--placement: {_shown(placement)} places {sum(placement)} GPUs, --gpus says"
                f" {gpus}; the two must agree."
            )
        if gpus_per_node is not None and gpus_per_node != max(placement):
            raise RequestError(
                f"--gpus-per-node: {gpus_per_node} contradicts --placement {_shown(placement)};"
                " give one of the two."
            )
        return tuple(placement)
    if gpus_per_node is None:
        most = min(stated or DEFAULT_GPUS_PER_NODE, gpus)
        gpus_per_node = next(size for size in range(most, 0, -1) if gpus % size == 0)
    if gpus_per_node < 1:
        raise RequestError(f"--gpus-per-node: {gpus_per_node} is not a number of GPUs; at least 1.")
    if gpus % gpus_per_node:
        divisors = [size for size in range(1, min(gpus, MOST_SHOWN) + 1) if gpus % size == 0]
        raise RequestError(
            f"--gpus-per-node: {gpus} GPUs do not divide by {gpus_per_node}; allowed for {gpus}:"
            f" {', '.join(map(str, divisors))}, or --placement for uneven nodes."
        )
    return (gpus_per_node,) * (gpus // gpus_per_node)


def _shown(placement: tuple[int, ...]) -> str:
    return repr(",".join(map(str, placement)))
