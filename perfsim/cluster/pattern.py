"""A pattern: which flows run between nodes at once, and which hops wait for one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Flow", "Pattern", "phases"]


class Flow(NamedTuple):
    """Traffic from one node to another; nodes count from 0 in the order of the placement.

    ``weight`` is in bytes a byte of one rank's buffer.
    """

    source: int
    target: int
    weight: float


@dataclass(frozen=True, slots=True)
class Pattern:
    """The flows of a collective between nodes.

    Parameters
    ----------
    phases : flows that run at once, phase after phase; what stays inside a node is left out
    chains : ways through the collective, each the (source, target) hops crossed one after another
    everyone : GPUs on each node where every rank sends 1/P of its buffer to every other: the flows
        of `perfsim.cluster.flows.all_to_all_flows`, N^2 of them, without their list
    """

    phases: tuple[tuple[Flow, ...], ...]
    chains: tuple[tuple[tuple[int, int], ...], ...]
    everyone: tuple[int, ...] = ()


def phases(
    steps: Sequence[Mapping[tuple[int, int], int]], weights: Sequence[float]
) -> tuple[tuple[Flow, ...], ...]:
    """Return one phase a step of (source, target) -> count, without what stays inside a node.

    Examples
    --------
    >>> phases([{(0, 1): 2, (1, 1): 2}], [0.5])
    ((Flow(source=0, target=1, weight=1.0),),)
    """
    found = (
        tuple(Flow(*hop, count * weight) for hop, count in step.items() if hop[0] != hop[1])
        for step, weight in zip(steps, weights, strict=True)
    )
    return tuple(phase for phase in found if phase)
