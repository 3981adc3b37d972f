"""Forward times and gradient-ready moments of one profile, from its anchor and its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from perfsim.errors import DataError
from perfsim.models.assemble.anchors import OPTIMIZER_PASSES, AnchorRow
from perfsim.models.assemble.group import LayerGroup, groups
from perfsim.models.assemble.shapes import FORWARD_TO_BACKWARD, source_path, start_ms, weights
from perfsim.models.assemble.traces import read_trace
from perfsim.quantity import Kind

__all__ = ["Times", "times"]

GEMM_SHARE = FORWARD_TO_BACKWARD / (1 + FORWARD_TO_BACKWARD)
OWN_SHARE = 0.99
"""Ready moments count as measured while the derived start is below 1 % of the backward pass."""


@dataclass(frozen=True)
class Times:
    """Milliseconds of one profile: forward by group, ready by tensor, whole iteration, optimizer.

    ``start_ms`` is the derived part before a trace's first gradient; ``own`` says that the ready
    moments are the source's own.
    """

    model: tuple[LayerGroup, ...]
    forward_ms: list[float]
    ready_ms: dict[str, float]
    iteration_ms: float
    optimizer_ms: float
    start_ms: float
    kinds: dict[str, Kind]

    @property
    def backward_total_ms(self) -> float:
        """Length of the backward pass."""
        return max(self.ready_ms.values())

    @property
    def both_ms(self) -> float:
        """Forward and backward pass together."""
        return sum(self.forward_ms) + self.backward_total_ms


@dataclass(frozen=True)
class _Parts:
    forward_ms: list[float]
    ready_ms: dict[str, float]
    start_ms: float = 0.0
    own: bool = False


def _scaled(shape: list[float], total: float, even_share: float = 0.0) -> list[float]:
    even = even_share * total / len(shape)
    return [even + weight * (1 - even_share) * total / sum(shape) for weight in shape]


def _ready(model: tuple[LayerGroup, ...], backward_ms: list[float]) -> dict[str, float]:
    ends = list(accumulate(reversed(backward_ms)))[::-1]
    return {
        tensor: end for group, end in zip(model, ends, strict=True) for tensor, _ in group.tensors
    }


def _from_trace(
    anchor: AnchorRow,
    data: Path,
    model: tuple[LayerGroup, ...],
    bytes_per_s: float,
    both: float | None,
    share: float,
) -> _Parts:
    kind, source = anchor.shape
    trace = read_trace(source_path(data, source), model)
    start = start_ms(trace, model, anchor.batch, bytes_per_s)
    ready = {tensor: moment + start for tensor, moment in trace.ready_ms.items()}
    backward = max(ready.values())
    own = kind == "trace"
    if not own:
        if both is None:
            raise DataError(f"{anchor.name} has no total to scale its trace to")
        factor = both * (1 - share) / backward
        ready = {tensor: moment * factor for tensor, moment in ready.items()}
        start, backward = start * factor, backward * factor
    if anchor.forward_ms is not None:
        total = anchor.forward_ms
    else:
        total = backward * share / (1 - share) if both is None else both - backward
    forward = _scaled(weights(data, anchor.forward_shape, model)[0], total)
    return _Parts(forward, ready, start, own and start < (1 - OWN_SHARE) * backward)


def _from_weights(
    anchor: AnchorRow, data: Path, model: tuple[LayerGroup, ...], both: float, share: float
) -> _Parts:
    ahead, back = weights(data, anchor.shape, model)
    if anchor.forward_ms is not None and anchor.backward_ms is not None:
        totals = anchor.forward_ms, anchor.backward_ms
    else:
        part = share if anchor.split else sum(ahead) / (sum(ahead) + sum(back))
        totals = both * part, both * (1 - part)
    backward = _scaled(back, totals[1], anchor.even_share)
    return _Parts(_scaled(ahead, totals[0], anchor.even_share), _ready(model, backward))


def times(
    anchor: AnchorRow, data: Path, bandwidths: Mapping[str, float], done: Mapping[str, Times]
) -> Times:
    """Return the times of one profile; ``done`` holds the profiles built before it.

    Raises
    ------
    DataError
        If the anchor needs a bandwidth, total, profile or file that is not there.
    """
    model = groups(anchor.model)
    if anchor.gpu not in bandwidths:
        raise DataError(f"no memory bandwidth is known for {anchor.gpu!r} ({anchor.name})")
    passes = OPTIMIZER_PASSES[anchor.optimizer]
    moved_bytes = passes * 4.0 * sum(group.elements for group in model)
    optimizer = moved_bytes / bandwidths[anchor.gpu] * 1e3
    whole = anchor.covers == "iteration"
    both = anchor.figure_ms
    if both is not None and whole:
        both -= optimizer
    share = GEMM_SHARE
    if anchor.split not in ("", "gemm"):
        if anchor.split not in done:
            raise DataError(f"{anchor.name} needs {anchor.split}, which is not built before it")
        like = done[anchor.split]
        share = sum(like.forward_ms) / like.both_ms
    if anchor.shape[0] in ("trace", "scaled-trace"):
        parts = _from_trace(anchor, data, model, bandwidths[anchor.gpu], both, share)
    elif both is None:
        raise DataError(f"{anchor.name} has no total to scale its layers to")
    else:
        parts = _from_weights(anchor, data, model, both, share)
    own: Kind = "measured" if parts.own else "derived"
    given = whole and anchor.figure_ms is not None and anchor.kind == "published"
    kinds: dict[str, Kind] = {
        "forward_ms": "derived",
        "backward_ms": own,
        "ready_ms": own,
        "iteration_ms": "published" if given else "derived",
        "optimizer_ms": "derived",
    }
    total = sum(parts.forward_ms) + max(parts.ready_ms.values()) + optimizer
    iteration = anchor.figure_ms if given and anchor.figure_ms is not None else total
    return Times(
        model, parts.forward_ms, parts.ready_ms, iteration, optimizer, parts.start_ms, kinds
    )
