"""How much longer one GPU or precision takes than another: by measured models, or by rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfsim.anchor_table import Anchor
from perfsim.device import Device
from perfsim.estimate import ALIKE, Place, Ratio
from perfsim.profile import Profile
from perfsim.table import scatter

__all__ = ["measured_path", "rate_ratio", "speed_ratio"]

PRODUCTS = ("conv", "linear", "lstm", "attention")
"""Layer kinds whose time is matrix products; the rest moves memory."""


def speed_ratio(
    known: Mapping[str, Sequence[Anchor]], first: Place, second: Place, batch: int
) -> Ratio | None:
    """Return how much longer a sample takes at ``second``, from models measured at both.

    A model counts by the pair of batches that are most alike (at most a factor 2 apart), then
    nearest to ``batch``; figures of one source on both sides go before any others. None where no
    model was measured at both.
    """
    ratios: dict[str, float] = {}
    sources: list[str] = []
    models = {(a.model, a.sequence) for a in known.get(first.gpu, ())}
    for model, sequence in sorted(models, key=str):
        here, there = (
            [
                anchor
                for anchor in known.get(place.gpu, ())
                if (anchor.model, anchor.sequence, anchor.precision)
                == (model, sequence, place.precision)
            ]
            for place in (first, second)
        )
        pairs = [(a, b) for a in here for b in there if _alike(a, b)]
        pairs = [(a, b) for a, b in pairs if a.source == b.source] or [
            (a, b) for a, b in pairs if a.use == b.use == "level"
        ]
        if not pairs:
            continue
        best = min(_distance(a, b, batch) for a, b in pairs)
        chosen = [(a, b) for a, b in pairs if _distance(a, b, batch) == best]
        logs = [math.log(b.iteration_s * a.batch / a.iteration_s / b.batch) for a, b in chosen]
        ratios[model if sequence is None else f"{model} at {sequence} tokens"] = math.exp(
            sum(logs) / len(logs)
        )
        sources += [anchor.source for pair in chosen for anchor in pair]
    if not ratios:
        return None
    value = math.exp(sum(math.log(ratio) for ratio in ratios.values()) / len(ratios))
    note = (
        f"{second} takes {value:.3g} times as long as {first}: mean over"
        f" {', '.join(ratios)} ({'; '.join(dict.fromkeys(sources))})."
    )
    if len(ratios) == 1:
        note += " One model tells nothing of the spread."
    return Ratio(value, scatter(list(ratios.values())), note, len(ratios))


def measured_path(
    known: Mapping[str, Sequence[Anchor]], starts: Sequence[Place], goal: Place, batch: int
) -> tuple[Place, list[Ratio]] | None:
    """Return a start and the measured ratios that lead from it to the goal: one, else two.

    Of several ways over one place between, that with the most models. None where there is none.
    """
    for start in starts:
        direct = speed_ratio(known, start, goal, batch)
        if direct:
            return start, [direct]
    ways: list[tuple[Place, list[Ratio]]] = []
    places = {Place(gpu, a.precision) for gpu in known for a in known[gpu]}
    for between in sorted(places) if known.get(goal.gpu) else ():
        second = speed_ratio(known, between, goal, batch)
        for start in starts if second else ():
            first = speed_ratio(known, start, between, batch)
            if first and second:
                ways.append((start, [first, second]))
    return max(ways, key=lambda way: sorted(ratio.models for ratio in way[1]), default=None)


def _alike(a: Anchor, b: Anchor) -> bool:
    return a.covers == b.covers and 1 / ALIKE <= a.batch / b.batch <= ALIKE


def _distance(a: Anchor, b: Anchor, batch: int) -> tuple[float, float]:
    return abs(math.log(a.batch / b.batch)), abs(math.log(a.batch * b.batch / batch**2))


def rate_ratio(
    profile: Profile, origin: Device, first: Place, device: Device, second: Place
) -> Ratio:
    """Return how much longer ``second`` takes by rates: products by matrix rate, rest by memory."""
    total_s = profile.forward_s + profile.backward_s
    products_s = sum(
        layer.forward_s + layer.backward_s
        for layer in profile.layers
        if layer.kind.startswith(PRODUCTS)
    )
    share = products_s / total_s if total_s > 0 else 1.0
    matrix = origin.matrix_rate(first.precision), device.matrix_rate(second.precision)
    memory = origin.memory_bandwidth.value / device.memory_bandwidth.value
    value = share * matrix[0].value / matrix[1].value + (1 - share) * memory
    note = (
        f"No model was measured on both {first} and {second}: {value:.3g} times as long by matrix"
        f" rate ({share:.0%} of the time) and memory bandwidth, a rough guess."
    )
    return Ratio(value, None, note)
