"""A bucket, what a fusion policy may know when it forms buckets, and filling to a limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from perfsim.by_size import TimesBySize
from perfsim.compute.profile import Gradient

__all__ = ["Bucket", "FusionContext", "FusionPolicy", "fill", "fill_up"]


@dataclass(frozen=True)
class Bucket:
    """Gradients fused into one message, ready when its last gradient is."""

    gradients: tuple[Gradient, ...]
    ready_s: float

    @classmethod
    def of(cls, gradients: Sequence[Gradient]) -> Bucket:
        """Return the bucket of some gradients, ready when the last of them is."""
        return cls(tuple(gradients), max([gradient.ready_s for gradient in gradients]))

    @cached_property
    def elements(self) -> int:
        """Number of values."""
        return sum([gradient.elements for gradient in self.gradients])

    @property
    def size_bytes(self) -> float:
        """Bytes as it is sent."""
        return self.gradients[0].value_bytes * self.elements


def _no_negotiation(tensors: int) -> float:
    return 0.0


def _one_rank() -> int:
    return 1


@dataclass(frozen=True, slots=True)
class FusionContext:
    """What a policy may look at besides the gradients.

    Parameters
    ----------
    limit_bytes : the bucket size asked for; None: the policy's own default
    backward_s : length of the backward pass
    message_bytes : what the method sends for a gradient
    known_bytes : returns the same of each gradient that the policy gets, where somebody keeps it
    by_size : of a collective among all ranks, what tells its time by a size
    options : the policy's own, as texts with units, which the policy parses
    negotiation_s : how long the ranks negotiate over a number of tensors before these are sent
    forward_s : length of each layer's forward pass, by the layer's number
    count_ranks : counts the ranks that exchange the gradients, when asked
    """

    limit_bytes: float | None
    backward_s: float
    message_bytes: Callable[[Gradient], float]
    by_size: Callable[[str], TimesBySize]
    options: Mapping[str, str] = field(default_factory=dict)
    negotiation_s: Callable[[int], float] = _no_negotiation
    forward_s: Sequence[float] = ()
    count_ranks: Callable[[], int] = _one_rank
    known_bytes: Callable[[], tuple[float, ...]] | None = None

    def sizes_bytes(self, gradients: Sequence[Gradient]) -> tuple[float, ...]:
        """Return what the method sends for each of the gradients that the policy gets."""
        known = self.known_bytes
        return tuple(map(self.message_bytes, gradients)) if known is None else known()


FusionPolicy = Callable[[Sequence[Gradient], FusionContext], list[Bucket]]
"""The function of a policy: gradients in ready order and a context to buckets in order."""


def fill(
    gradients: Sequence[Gradient], size_bytes: Callable[[Gradient], float], limit_bytes: float
) -> list[Bucket]:
    """Fill buckets in order, closing each before it would exceed ``limit_bytes``.

    A gradient larger than the limit has a bucket of its own.

    Examples
    --------
    >>> tensors = [Gradient(name, (2,), 0.0, 0) for name in "abc"]
    >>> [bucket.elements for bucket in fill(tensors, lambda gradient: gradient.size_bytes, 16.0)]
    [4, 2]
    """
    groups: list[list[Gradient]] = []
    total_bytes = 0.0
    for gradient in gradients:
        size = size_bytes(gradient)
        if groups and total_bytes + size <= limit_bytes:
            groups[-1].append(gradient)
            total_bytes += size
        else:
            groups.append([gradient])
            total_bytes = size
    return [Bucket.of(group) for group in groups]


def fill_up(
    gradients: Sequence[Gradient],
    size_bytes: Callable[[Gradient], float],
    limit_bytes: float,
    first_bytes: float | None = None,
) -> list[Bucket]:
    """Fill buckets in order, closing each with the gradient that reaches ``limit_bytes``.

    ``first_bytes`` is the limit of the first one, where it has another.

    Examples
    --------
    >>> tensors = [Gradient(name, (2,), 0.0, 0) for name in "abc"]
    >>> [one.elements for one in fill_up(tensors, lambda gradient: gradient.size_bytes, 12.0)]
    [4, 2]
    """
    buckets: list[Bucket] = []
    group: list[Gradient] = []
    total_bytes = 0.0
    limit = limit_bytes if first_bytes is None else first_bytes
    for gradient in gradients:
        group.append(gradient)
        total_bytes += size_bytes(gradient)
        if total_bytes >= limit:
            buckets.append(Bucket.of(group))
            group, total_bytes, limit = [], 0.0, limit_bytes
    return [*buckets, Bucket.of(group)] if group else buckets
