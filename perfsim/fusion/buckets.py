"""A bucket, what a fusion policy may know when it forms buckets, and filling to a limit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from perfsim.by_size import MessageSizes, TimesBySize
from perfsim.compute.profile import Gradient
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Bucket",
    "FusionContext",
    "FusionPolicy",
    "ReadyGradients",
    "SentGradients",
    "fill",
    "fill_up",
]

T = TypeVar("T")


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

    @cached_property
    def shapes(self) -> Hashable:
        """What tells the shapes of the gradients, and the bytes of a value of each, from others.

        Of several gradients it is a text, as Python works out the hash of a text once.
        """
        shapes = [(one.shape, one.value_bytes) for one in self.gradients]
        return shapes[0] if len(shapes) == 1 else repr(shapes)

    @cached_property
    def matrices(self) -> tuple[int, ...]:
        """Number of values of each gradient that has several dimensions."""
        return tuple([one.elements for one in self.gradients if len(one.shape) > 1])

    @property
    def size_bytes(self) -> float:
        """Bytes as it is sent."""
        return self.gradients[0].value_bytes * self.elements


MAX_PARTITIONS = 128
"""Partitions of some gradients that are kept. No source: chosen."""


class ReadyGradients:
    """Gradients in the order in which they are ready, and what follows from them alone.

    Methods that send different bytes for the same gradients have it in common.
    """

    def __init__(self, gradients: Sequence[Gradient]) -> None:
        self.gradients = gradients
        self._buckets: dict[Hashable, list[Bucket]] = {}

    def buckets(self, question: Hashable, form: Callable[[], list[Bucket]]) -> list[Bucket]:
        """Return the buckets that answer a question, formed where it was not asked before."""
        formed = self._buckets.get(question)
        if formed is None:
            if len(self._buckets) >= MAX_PARTITIONS:
                self._buckets.clear()
            formed = self._buckets[question] = form()
        return formed


class SentGradients:
    """Gradients in the order in which they are ready, and what a method sends for each.

    Whoever asks policies for buckets of the same gradients on one network after another keeps this
    for them, so that what depends on the gradients alone is worked out once.

    Parameters
    ----------
    gradients : in ready order
    message_bytes : what is sent for one of them
    ready : the same gradients, where what follows from them alone is kept

    Examples
    --------
    >>> tensors = [Gradient(name, (2,), 0.0, 0) for name in "abc"]
    >>> sent = SentGradients(tensors, lambda gradient: gradient.size_bytes)
    >>> both = sent.buckets([(0, 1), (1, 3)])
    >>> [bucket.elements for bucket in both], sent.buckets([(0, 1), (1, 3)]) is both
    ([2, 4], True)
    """

    def __init__(
        self,
        gradients: Sequence[Gradient],
        message_bytes: Callable[[Gradient], float],
        ready: ReadyGradients | None = None,
    ) -> None:
        self.gradients, self._message_bytes = gradients, message_bytes
        self.ready = ReadyGradients(gradients) if ready is None else ready
        self._answers: dict[Hashable, Any] = {}
        self._buckets: dict[tuple[int, int], Bucket] = {}
        self._partitions: dict[tuple[tuple[int, int], ...], list[Bucket]] = {}
        self._places: dict[int, tuple[list[Bucket], Hashable]] = {}  # by the identity of a list

    @cached_property
    def sizes_bytes(self) -> tuple[float, ...]:
        """What is sent for each of the gradients."""
        return tuple(map(self._message_bytes, self.gradients))

    @cached_property
    def each(self) -> MessageSizes:
        """The sizes as those that are priced together."""
        return MessageSizes.of(self.sizes_bytes)

    @cached_property
    def ready_s(self) -> NDArray[np.float64]:
        """When each of the gradients is ready [s]."""
        import numpy as np

        return np.array([one.ready_s for one in self.gradients])

    @cached_property
    def numbers(self) -> list[int]:
        """The number of each gradient's size among these."""
        number_of = {size: number for number, size in enumerate(self.each.sizes_bytes)}
        return [number_of[size] for size in self.sizes_bytes]

    @cached_property
    def whole_bytes(self) -> float:
        """What is sent for all gradients together."""
        return sum_in_order(self.sizes_bytes)

    def once(self, question: Hashable, work_out: Callable[[], T]) -> T:
        """Return the answer to a question, worked out where it was not asked before."""
        if question not in self._answers:
            self._answers[question] = work_out()
        found: T = self._answers[question]
        return found

    def buckets(self, places: Iterable[tuple[int, int]]) -> list[Bucket]:
        """Return the buckets of the gradients between some places, the same list each time."""
        asked = tuple(places)
        made = self._partitions.get(asked)
        if made is None:
            if len(self._partitions) >= MAX_PARTITIONS:
                for kept in (self._partitions, self._places, self._buckets):
                    kept.clear()
            made = [self._bucket(place) for place in asked]
            self._partitions[asked] = made
            self._places[id(made)] = made, asked
        return made

    def _bucket(self, place: tuple[int, int]) -> Bucket:
        bucket = self._buckets.get(place)
        if bucket is None:
            bucket = self._buckets[place] = Bucket.of(self.gradients[slice(*place)])
        return bucket

    def told_apart(self, buckets: list[Bucket]) -> Hashable:
        """Return what tells these buckets of the gradients from others of the same."""
        made = self._places.get(id(buckets))
        if made is not None and made[0] is buckets:
            return made[1]
        return tuple([(one.ready_s, *[each.name for each in one.gradients]) for one in buckets])


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
    sent : the gradients that the policy gets, where somebody keeps them
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
    sent: SentGradients | None = None

    def sent_of(self, gradients: Sequence[Gradient]) -> SentGradients:
        """Return the gradients that the policy gets with what the method sends for each."""
        return self.sent or SentGradients(gradients, self.message_bytes)


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
