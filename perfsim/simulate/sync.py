"""Whom a rank waits for in a collective: groups of ranks, or neighbours in a circle.

``functools.cache`` here stands on functions of ranks and groups, which never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Moments: TypeAlias = NDArray[np.float64]

__all__ = [
    "Blocks",
    "Groups",
    "Neighbours",
    "SyncGroups",
    "SyncScope",
    "joins_all",
    "largest_of_blocks",
]


class SyncGroups:
    """Ranks in groups, each of which waits for its own members only."""

    __slots__ = ()

    def labels(self, ranks: int) -> Sequence[int]:
        """Return the group of each rank."""
        raise NotImplementedError

    def partners(self, rank: int, ranks: int, period: int) -> list[int]:
        """Return the ranks that one rank waits for, itself among them."""
        return _members(self, rank, ranks)

    def meet(self, moments: Moments, period: int) -> Moments:
        """Return for each rank (the last axis) the latest moment of its group."""
        return _latest(self, moments)

    def together(self, seconds: Moments) -> Moments:
        """Return how long a collective takes on each rank: as on the slowest of its group."""
        return _latest(self, seconds)


@dataclass(frozen=True, slots=True)
class Groups(SyncGroups):
    """The ranks of a node among themselves, or those of one place on every node.

    Parameters
    ----------
    placement : ranks on each node
    which : "node", or "across": the ranks that have the same place on their nodes
    """

    placement: tuple[int, ...]
    which: Literal["node", "across"] = "node"

    def __hash__(self) -> int:
        """Return the same number for equal groups, without a look at every node."""
        return hash((len(self.placement), self.placement[0], self.which))

    def meet(self, moments: Moments, period: int) -> Moments:
        """Return for each rank (the last axis) the latest moment of its group."""
        return self.together(moments)

    def together(self, seconds: Moments) -> Moments:
        """Return how long a collective takes on each rank: as on the slowest of its group."""
        nodes, size = len(self.placement), self.placement[0]
        if self.placement.count(size) < nodes:
            return _latest(self, seconds)
        return _latest_of_block(seconds, *((size, 1) if self.which == "node" else (nodes, size)))

    def labels(self, ranks: int) -> Sequence[int]:
        """Return the group of each rank."""
        if self.which == "node":
            return [node for node, count in enumerate(self.placement) for _ in range(count)]
        return [place for count in self.placement for place in range(count)]


@dataclass(frozen=True, slots=True)
class Blocks(SyncGroups):
    """``count`` ranks that stand ``stride`` apart, all such groups at once.

    Examples
    --------
    >>> Blocks(2, 2).labels(8)
    [0, 1, 0, 1, 4, 5, 4, 5]
    """

    count: int
    stride: int = 1

    def labels(self, ranks: int) -> Sequence[int]:
        """Return the group of each rank."""
        block = self.count * self.stride
        return [rank // block * block + rank % self.stride for rank in range(ranks)]

    def meet(self, moments: Moments, period: int) -> Moments:
        """Return for each rank (the last axis) the latest moment of its group."""
        return self.together(moments)

    def together(self, seconds: Moments) -> Moments:
        """Return how long a collective takes on each rank: as on the slowest of its group."""
        if seconds.shape[-1] % (self.count * self.stride):
            return _latest(self, seconds)
        return _latest_of_block(seconds, self.count, self.stride)


class Neighbours(NamedTuple):
    """Ranks, or whole nodes, at some distances on either side, counted in a circle.

    A rank waits for those that it sends to and those that it receives from, and for no other. It
    ends when its own exchange has ended.

    Parameters
    ----------
    distances : how far away the partners are
    by_turns : one distance a period, in turn; else all of them at once
    placement : ranks on each node where nodes exchange, by their first ranks; () for ranks

    Examples
    --------
    >>> Neighbours((1,)).partners(0, 8, period=5)
    [0, 1, 7]
    >>> Neighbours((1, 2, 4), by_turns=True).partners(0, 8, period=5)
    [0, 4]
    """

    distances: tuple[int, ...]
    by_turns: bool = False
    placement: tuple[int, ...] = ()

    def _now(self, period: int) -> tuple[int, ...]:
        if not self.by_turns:
            return self.distances
        return (self.distances[period % len(self.distances)],)

    def partners(self, rank: int, ranks: int, period: int) -> list[int]:
        """Return the ranks that one rank waits for, itself among them."""
        places = _first_ranks(self.placement) or tuple(range(ranks))
        own = sum(first <= rank for first in places) - 1
        sides = [side * one for one in self._now(period) for side in (0, 1, -1)]
        return sorted({rank, *(places[(own + side) % len(places)] for side in sides)})

    def meet(self, moments: Moments, period: int) -> Moments:
        """Return for each rank (the last axis) the latest moment of its own and its neighbours'."""
        import numpy as np

        firsts = list(_first_ranks(self.placement))
        heads = moments[..., firsts] if firsts else moments
        latest = heads
        for distance in self._now(period):
            for side in (distance, -distance):
                latest = np.maximum(latest, np.roll(heads, side, axis=-1))
        if not firsts:
            return latest
        return np.maximum(moments, np.repeat(latest, self.placement, axis=-1))

    def together(self, seconds: Moments) -> Moments:
        """Return how long an exchange takes: each rank its own."""
        return seconds


SyncScope: TypeAlias = SyncGroups | Neighbours


@cache
def joins_all(scopes: frozenset[SyncScope], ranks: int) -> bool:
    """Tell whether groups, one after the other, make all ranks wait for each other.

    Neighbours do not: a delay goes from neighbour to neighbour.

    Examples
    --------
    >>> node, across = Groups((2, 2)), Groups((2, 2), "across")
    >>> joins_all(frozenset([node]), 4), joins_all(frozenset([node, across]), 4)
    (False, True)
    """
    joined = list(range(ranks))

    def head(rank: int) -> int:
        while joined[rank] != rank:
            joined[rank] = joined[joined[rank]]
            rank = joined[rank]
        return rank

    for one in scopes:
        if isinstance(one, SyncGroups):
            for first, *others in _all_members(one, ranks).values():
                root = head(first)
                for other in others:
                    joined[head(other)] = root
    return len({head(rank) for rank in range(ranks)}) == 1


@cache
def _first_ranks(placement: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(accumulate(placement[:-1], initial=0)) if placement else ()


@cache
def _all_members(groups: SyncGroups, ranks: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for rank, label in enumerate(groups.labels(ranks)):
        found.setdefault(label, []).append(rank)
    return found


def _members(groups: SyncGroups, rank: int, ranks: int) -> list[int]:
    return _all_members(groups, ranks)[groups.labels(ranks)[rank]]


@cache
def _sorted(groups: SyncGroups, ranks: int) -> tuple[NDArray[np.intp], ...]:
    """Return the ranks in the order of their groups, where groups begin, and each rank's group."""
    import numpy as np

    labels = np.asarray(groups.labels(ranks))
    order = np.argsort(labels, kind="stable")
    _, begins, group = np.unique(labels[order], return_index=True, return_inverse=True)
    back = np.empty(ranks, dtype=np.intp)
    back[order] = group
    return order, begins, back


def _latest(groups: SyncGroups, moments: Moments) -> Moments:
    import numpy as np

    order, begins, group = _sorted(groups, moments.shape[-1])
    latest: Moments = np.maximum.reduceat(moments[..., order], begins, axis=-1)
    return latest[..., group]


def _latest_of_block(moments: Moments, count: int, stride: int) -> Moments:
    """Return for each rank the latest moment of its group, where all groups are alike."""
    import numpy as np

    latest = largest_of_blocks(moments, count, stride)
    return np.repeat(latest[..., None, :], count, axis=-2).reshape(moments.shape)


def largest_of_blocks(values: Moments, count: int, stride: int = 1) -> Moments:
    """Return the largest value of each group of ``count`` ranks that stand ``stride`` apart.

    The last axis of ``values`` is ranks. In its place are those of blocks and of the groups of one.

    Examples
    --------
    >>> import numpy as np
    >>> largest_of_blocks(np.array([1.0, 4.0, 3.0, 2.0]), 2).tolist()
    [[4.0], [3.0]]
    """
    import numpy as np

    table = values.reshape(*values.shape[:-1], -1, count, stride)
    if count > _FEW:
        largest: Moments = table.max(axis=-2)
        return largest
    # One member after the other: numpy is slow to reduce a short axis.
    return reduce(np.maximum, [table[..., at, :] for at in range(count)])


_FEW = 16
"""Members of a group up to which they are taken one after the other."""
