"""How much longer one GPU or precision takes than another: by measured models, or by rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from perfsim.anchor_table import Anchor
from perfsim.device import Device
from perfsim.estimate import ALIKE, Place, Ratio
from perfsim.profile import Profile
from perfsim.table import scatter

__all__ = ["Step", "Ways", "boards", "family", "measured_ways", "rate_ratio", "speed_ratio"]

PRODUCTS = ("conv", "linear", "lstm", "attention")
"""Layer kinds whose time is matrix products; the rest moves memory."""

MOST_RATIOS = 3
"""Measured ratios in a row; each adds its error."""


class Step(NamedTuple):
    """From one place to another: by measured models, or between boards of one chip by rates."""

    first: Place
    second: Place
    chip: bool = False


Ways = dict[Place, list[Step]]
"""Where measurements lead: a place -> the steps to it, none for a place to start from."""


def family(model: str) -> str:
    """Return the family of a model by its name: text, cifar, lstm or image.

    GPUs differ by what they run: small kernels (CIFAR) or large products (text).

    Examples
    --------
    >>> [family(name) for name in ("bert-large", "vit-b16", "resnet50-cifar", "vgg16")]
    ['text', 'text', 'cifar', 'image']
    """
    if model.startswith(("bert", "gpt", "vit")):
        return "text"
    if model.startswith("lstm"):
        return "lstm"
    return "cifar" if model.endswith("-cifar") else "image"


def boards(gpu: str, others: Iterable[str]) -> list[str]:
    """Return the other boards of a GPU's chip: names that agree up to the first hyphen.

    Examples
    --------
    >>> boards("v100", ["a100", "v100", "v100-pcie"])
    ['v100-pcie']
    """
    chip = gpu.partition("-")[0]
    return [one for one in others if one != gpu and one.partition("-")[0] == chip]


def speed_ratio(
    known: Mapping[str, Sequence[Anchor]], first: Place, second: Place, batch: int, model: str
) -> Ratio | None:
    """Return how much longer a sample takes at ``second``, from models measured at both.

    In this order: models of the family of ``model`` that one source measured at both places;
    any such models; the family measured by different sources (use ``level``); any of them. A
    model counts by the pair of batches that are most alike (at most a factor 2 apart), then
    nearest to ``batch``. None where no model was measured at both.
    """
    here, there = _models(known, first), _models(known, second)
    pairs = {
        name: [(a, b) for a in here[name] for b in there[name] if _alike(a, b)]
        for name in sorted(here.keys() & there.keys(), key=str)
    }
    for one_source in (True, False):
        fitting = {
            name: [(a, b) for a, b in found if _fits(a, b, one_source)]
            for name, found in pairs.items()
        }
        fitting = {name: found for name, found in fitting.items() if found}
        near = {name: found for name, found in fitting.items() if family(name[0]) == family(model)}
        if near or fitting:
            return _mean(near or fitting, first, second, batch)
    return None


Named = tuple[str, int | None]
Pairs = list[tuple[Anchor, Anchor]]


def _models(known: Mapping[str, Sequence[Anchor]], place: Place) -> dict[Named, list[Anchor]]:
    found: dict[Named, list[Anchor]] = {}
    for anchor in known.get(place.gpu, ()):
        if anchor.precision == place.precision:
            found.setdefault((anchor.model, anchor.sequence), []).append(anchor)
    return found


def _fits(a: Anchor, b: Anchor, one_source: bool) -> bool:
    return a.source == b.source if one_source else a.use == b.use == "level"


def _mean(pairs: Mapping[Named, Pairs], first: Place, second: Place, batch: int) -> Ratio:
    ratios: dict[str, float] = {}
    sources: list[str] = []
    for (model, sequence), found in pairs.items():
        best = min(_distance(a, b, batch) for a, b in found)
        chosen = [(a, b) for a, b in found if _distance(a, b, batch) == best]
        logs = [math.log(b.iteration_s * a.batch / a.iteration_s / b.batch) for a, b in chosen]
        ratios[model if sequence is None else f"{model} at {sequence} tokens"] = math.exp(
            sum(logs) / len(logs)
        )
        sources += [anchor.source for pair in chosen for anchor in pair]
    value = math.exp(sum(math.log(ratio) for ratio in ratios.values()) / len(ratios))
    note = (
        f"{second} takes {value:.3g} times as long as {first}: mean over"
        f" {', '.join(ratios)} ({'; '.join(dict.fromkeys(sources))})."
    )
    if len(ratios) == 1:
        note += " One model tells nothing of the spread."
    return Ratio(value, scatter(list(ratios.values())), note)


def _alike(a: Anchor, b: Anchor) -> bool:
    return a.covers == b.covers and 1 / ALIKE <= a.batch / b.batch <= ALIKE


def _distance(a: Anchor, b: Anchor, batch: int) -> tuple[float, float]:
    return abs(math.log(a.batch / b.batch)), abs(math.log(a.batch * b.batch / batch**2))


def measured_ways(
    starts: Sequence[Place],
    places: Sequence[Place],
    measured: Callable[[Place, Place], bool],
) -> Ways:
    """Return the shortest way to every place that ratios lead to, fewest measured ratios first.

    ``measured`` tells whether models were measured at both places; at most ``MOST_RATIOS`` such
    ratios follow each other. A step to another board of the same chip goes before them and
    counts as none. Among ways of one length that of the earlier start.
    """
    ways: Ways = {start: [] for start in starts}
    newest = list(ways)
    for length in range(MOST_RATIOS + 1):
        if length:
            newest = _further(ways, newest, places, measured)
        for at in list(newest):
            same = {place.gpu for place in places if place.precision == at.precision}
            for gpu in boards(at.gpu, sorted(same)):
                place = Place(gpu, at.precision)
                if place not in ways:
                    ways[place] = [*ways[at], Step(at, place, chip=True)]
                    newest.append(place)
    return ways


def _further(
    ways: Ways,
    newest: Sequence[Place],
    places: Sequence[Place],
    measured: Callable[[Place, Place], bool],
) -> list[Place]:
    """Add the places that one more ratio leads to, and return them."""
    found: Ways = {}
    for at in newest:
        for place in places:
            if place not in ways and place not in found and measured(at, place):
                found[place] = [*ways[at], Step(at, place)]
    ways |= found
    return list(found)


def rate_ratio(
    profile: Profile, origin: Device, first: Place, device: Device, second: Place, chip: bool
) -> Ratio:
    """Return how much longer ``second`` takes by rates: products by matrix rate, rest by memory.

    ``chip`` says that both are boards of one chip, where that is no rough guess.
    """
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
    why = f"No model was measured on both {first} and {second}"
    if chip:
        why = f"{first} and {second} are boards of one chip"
    note = (
        f"{why}: {value:.3g} times as long by matrix rate ({share:.0%} of the time) and memory"
        f" bandwidth{'' if chip else ', a rough guess'}."
    )
    return Ratio(value, None, note, measured=False)
