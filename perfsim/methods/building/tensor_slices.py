"""Slices of tensors: how tensors are cut, and how parameter servers exchange the slices."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.compute.kernel import FLOAT
from perfsim.compute.profile import Gradient
from perfsim.methods.base import Send

__all__ = [
    "MAX_PARTS",
    "PUSH_PULL",
    "each_way",
    "push_pull",
    "split_evenly",
    "split_whole",
    "too_many",
]

PUSH_PULL = "(1 + (P - 2) * max(P - servers, 0) / (P * P + min(servers, P) * (P - 2))) * 4 * n"
"""Bytes that a rank sends, as the mean over ranks, with servers on nodes and on other machines."""


MAX_PARTS = 20_000
"""Most messages in an iteration, so that a prediction takes seconds, not minutes."""


def split_evenly(gradient: Gradient, part_values: int) -> list[int]:
    """Return the values in each part of a gradient that is cut along its first axis.

    A part has about ``part_values`` values, but at least one row. The rows are divided equally; the
    last parts have one more row if the division leaves a remainder.

    Examples
    --------
    >>> split_evenly(Gradient("w", (5, 100), 0.0, 0), 200)
    [100, 200, 200]
    >>> split_evenly(Gradient("w", (2, 1000), 0.0, 0), 300)
    [1000, 1000]
    """
    count = min(-(-gradient.elements // part_values), gradient.shape[0])
    rows, longer = divmod(gradient.shape[0], count)
    row = gradient.elements // gradient.shape[0]
    return [row * (rows + (part >= count - longer)) for part in range(count)]


def split_whole(elements: int, part_values: int) -> list[int]:
    """Return the values in each part of a tensor cut into parts of ``part_values`` values.

    The last part has the remainder.

    Examples
    --------
    >>> split_whole(250, 100)
    [100, 100, 50]
    """
    return [min(part_values, elements - start) for start in range(0, elements, part_values)]


def too_many(elements: int, part_values: int, option: str) -> str:
    """Return why a model cannot be cut into parts of ``part_values`` values each, or "".

    Examples
    --------
    >>> too_many(10**8, 100, "slice")
    'would cut 100,000,000 parameters into more than 20,000 parts; set slice to at least 5,000'
    """
    if elements <= MAX_PARTS * part_values:
        return ""
    return (
        f"would cut {elements:,} parameters into more than {MAX_PARTS:,} parts; set {option} to"
        f" at least {-(-elements // MAX_PARTS):,}"
    )


def each_way(push: Send, pull: Send) -> tuple[Send, Send]:
    """Return a push and a pull of different sizes, as they go between workers and servers.

    Servers on the workers' nodes send and receive for both over the same NICs, so that both run on
    one stream. A server on a machine of its own receives pushes and sends pulls: each has a stream,
    and takes what the busiest NIC takes for it.
    """
    if not push.servers:
        return push, pull
    return (
        push._replace(stream="pushes", algorithm="one_way"),
        pull._replace(stream="pulls", algorithm="one_way"),
    )


def push_pull(
    parts: Sequence[int], priority: int, servers: int, value_bytes: float = FLOAT
) -> list[Send]:
    """Return push and pull of each part, given its number of values, each of ``value_bytes``.

    No part waits for another's pull. Both run on one stream: servers on the workers' nodes answer
    pulls over the same NICs that push. A push costs half of both at once (see ``push_sharded``).
    """
    both = {
        part: [
            Send(
                collective,
                float(value_bytes * part),
                awaited=awaited,
                priority=priority,
                servers=servers,
            )
            for collective, awaited in (("push", True), ("pull", False))
        ]
        for part in set(parts)
    }
    return [send for part in parts for send in both[part]]
