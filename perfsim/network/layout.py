"""Where the ranks of tensor, context, expert, data and pipeline parallelism stand on the nodes.

A layout names the kinds of parallelism, the one whose ranks are nearest to each other first:
``tp-cp-ep-dp-pp`` is Megatron-LM's default order, and that of torchtitan's device mesh read from
its last axis. Ranks fill the nodes in that order. A group is the set of ranks that differ in some
of these kinds only; `ParallelLayout.group` says how many of its ranks stand on each of its nodes,
and how many such groups leave a node at once.

Expert-parallel ranks are data-parallel ranks too, as in Megatron-LM: they hold the same attention
and other experts. So ``dp`` is the group of the replicas that have the same experts, and
``GRADIENTS`` that of all ranks that have the same other weights. Where context- or tensor-parallel
ranks hold other experts too, experts have a layout of their own (`ParallelLayout.of_experts`).
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import NamedTuple

from perfsim.errors import RequestError, shown

__all__ = ["AXES", "DEFAULT_LAYOUT", "GRADIENTS", "GroupPlaces", "ParallelLayout", "parse_layout"]

AXES = ("tp", "cp", "ep", "dp", "pp")
"""Kinds of parallelism: tensor, context, expert, data, pipeline."""
DEFAULT_LAYOUT = "tp-cp-ep-dp-pp"
"""Megatron-LM's order (NVIDIA/Megatron-LM@d98e8a64 megatron/core/parallel_state.py, ``order``)."""
GRADIENTS = ("cp", "ep", "dp")
"""Axes of the ranks that have the same weights, and so add up their gradients; experts: cp, dp."""


class GroupPlaces(NamedTuple):
    """How the ranks of a group stand on nodes, and how many such groups leave a node at once."""

    placement: tuple[int, ...]
    leaving_node: int


class ParallelLayout(NamedTuple):
    """Degrees of parallelism, and the order in which ranks fill the nodes, nearest first.

    Examples
    --------
    >>> layout = ParallelLayout(tp=4, pp=2, dp=4)
    >>> layout.gpus, layout.stride("dp"), layout.stride("pp")
    (32, 4, 16)
    >>> layout.group(("tp",), 8)
    GroupPlaces(placement=(4,), leaving_node=1)
    >>> layout.group(("dp",), 8)
    GroupPlaces(placement=(2, 2), leaving_node=4)
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1
    order: tuple[str, ...] = AXES

    @property
    def gpus(self) -> int:
        """All ranks."""
        return self.tp * self.cp * self.ep * self.dp * self.pp

    @property
    def replicas(self) -> int:
        """Copies of the model, each with samples of its own."""
        return self.ep * self.dp

    def of_experts(self, ep: int, *, whole: bool) -> ParallelLayout:
        """Return how experts are laid out over the same ranks.

        Groups of ``ep`` go over all ranks of a stage, nearest first: over context-parallel ranks,
        and over tensor-parallel ranks where these hold ``whole`` experts (NVIDIA/
        Megatron-LM@d98e8a64 megatron/core/parallel_state.py, expert_decoder_rank_generator;
        torchtitan's mesh is the same). The ranks of a stage must be neighbours then.

        Examples
        --------
        >>> ParallelLayout(tp=4, dp=4, pp=8).of_experts(8, whole=True)[:5]
        (1, 1, 8, 2, 8)
        """
        if ep == self.ep and self.cp == 1 and not whole:
            return self
        tp = 1 if whole else self.tp
        ranks = self.gpus // self.pp
        return ParallelLayout(tp, 1, ep, ranks // (tp * ep), self.pp, self.order)

    def degree(self, axis: str) -> int:
        """Return how many ranks one kind of parallelism has."""
        return int(getattr(self, axis))

    def stride(self, axis: str) -> int:
        """Return how far apart the neighbours of one kind of parallelism are."""
        stride = 1
        for name in self.order:
            if name == axis:
                return stride
            stride *= self.degree(name)
        raise ValueError(f"no axis {axis}")

    def group(self, axes: tuple[str, ...], gpus_per_node: int) -> GroupPlaces:
        """Return how the group of rank 0 that spans some axes stands on nodes.

        Groups that nodes cut unevenly count as the one that is spread widest.
        """
        return _group(self, tuple(sorted(axes)), gpus_per_node)

    def groups(self, axes: tuple[str, ...]) -> list[list[int]]:
        """Return the ranks of every group that spans some axes.

        Examples
        --------
        >>> ParallelLayout(tp=2, dp=2).groups(("dp",))
        [[0, 2], [1, 3]]
        """
        spans = [(self.stride(axis), self.degree(axis)) for axis in axes]
        offsets = [0]
        for stride, count in spans:
            offsets = [rank + stride * at for at in range(count) for rank in offsets]
        firsts = (
            rank
            for rank in range(self.gpus)
            if all(rank // stride % count == 0 for stride, count in spans)
        )
        return [sorted(first + offset for offset in offsets) for first in firsts]

    def pairs(self, axis: str) -> list[list[int]]:
        """Return every two neighbours of one kind of parallelism.

        Examples
        --------
        >>> ParallelLayout(pp=3).pairs("pp")
        [[0, 1], [1, 2]]
        """
        stride, count = self.stride(axis), self.degree(axis)
        return [
            [rank, rank + stride] for rank in range(self.gpus) if rank // stride % count < count - 1
        ]

    def neighbours(self, axis: str, gpus_per_node: int) -> GroupPlaces:
        """Return how two neighbours of one kind of parallelism stand on nodes.

        Counted are the pairs that send out of a node at once. Where some pairs share a node and
        others do not, those that do not set the pace.
        """
        count, stride = self.degree(axis), self.stride(axis)
        if count == 1:
            return GroupPlaces((1,), 1)
        block = count * stride
        crossing = Counter(
            rank // gpus_per_node
            for rank in range(min(self.gpus, block))
            if rank + stride < block and rank // gpus_per_node != (rank + stride) // gpus_per_node
        )
        if not crossing:
            return GroupPlaces((2,), 1)
        per_block = max(crossing.values())
        return GroupPlaces((1, 1), per_block * max(1, gpus_per_node // block))


@cache
def _group(layout: ParallelLayout, axes: tuple[str, ...], gpus_per_node: int) -> GroupPlaces:
    ranks = [0]
    for axis in axes:
        stride, count = layout.stride(axis), layout.degree(axis)
        ranks = [rank + stride * at for at in range(count) for rank in ranks]
    nodes = Counter(rank // gpus_per_node for rank in ranks)
    placement = tuple(nodes[node] for node in sorted(nodes))
    if len(placement) == 1:
        return GroupPlaces(placement, 1)
    here = min(gpus_per_node, layout.gpus)
    return GroupPlaces(placement, max(1, here // max(placement)))


def parse_layout(text: str, field: str = "layout") -> tuple[str, ...]:
    """Return the axes of a layout, nearest first; axes that are left out come last in order.

    Raises
    ------
    RequestError
        If a word is no kind of parallelism or stands twice.

    Examples
    --------
    >>> parse_layout("tp-pp-dp")
    ('tp', 'pp', 'dp', 'cp', 'ep')
    """
    words = [word.strip() for word in text.split("-")]
    wrong = [word for word in words if word not in AXES]
    if wrong or len(set(words)) < len(words):
        what = (
            f"{shown(wrong[0])} is no kind of parallelism" if wrong else "a kind stands there twice"
        )
        raise RequestError(
            field,
            f"{what}; write the kinds nearest first, such as {DEFAULT_LAYOUT} (tp: tensor, cp:"
            " context, ep: expert, dp: data, pp: pipeline).",
            value=text,
        )
    return (*words, *(axis for axis in AXES if axis not in words))
