"""How much longer one GPU or precision takes than another: by measured models, or by rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from perfsim.compute.anchors import (
    SIMILAR_BATCHES,
    Anchor,
    Anchors,
    Estimate,
    GpuPrecision,
    Ratio,
    at_batch,
    combined,
    fixed_share,
    load_anchors,
    read_anchors,
    rising,
)
from perfsim.compute.device import Device, load_device
from perfsim.compute.profile import PRECISIONS, Profile
from perfsim.data.catalog import Catalog
from perfsim.data.tables import repeat_spread
from perfsim.errors import RequestError
from perfsim.quantity import Kind, Quantity, weakest

__all__ = [
    "LAUNCHES_S",
    "Anchor",
    "Anchors",
    "SpeedStep",
    "TransferInputs",
    "TransferSource",
    "TransferredProfile",
    "Ways",
    "all_places",
    "base",
    "boards",
    "family",
    "load_anchors",
    "measured_ways",
    "origin",
    "pin_iteration",
    "rate_ratio",
    "read_anchors",
    "series_at",
    "speed_ratio",
    "transfer",
]

_PRODUCT_KINDS = ("conv", "linear", "lstm", "attention")
"""Layer kinds whose time is matrix products; the rest moves memory."""

_MAX_RATIOS = 3
"""Measured ratios in a row; each adds its error."""


class SpeedStep(NamedTuple):
    """From one place to another: by measured models, or between boards of one chip by rates."""

    first: GpuPrecision
    second: GpuPrecision
    chip: bool = False


Ways = dict[GpuPrecision, list[SpeedStep]]
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
    known: Mapping[str, Sequence[Anchor]],
    first: GpuPrecision,
    second: GpuPrecision,
    batch: int,
    model: str,
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


def _models(
    known: Mapping[str, Sequence[Anchor]], place: GpuPrecision
) -> dict[Named, list[Anchor]]:
    found: dict[Named, list[Anchor]] = {}
    for anchor in known.get(place.gpu, ()):
        if anchor.precision == place.precision:
            found.setdefault((anchor.model, anchor.sequence), []).append(anchor)
    return found


def _fits(a: Anchor, b: Anchor, one_source: bool) -> bool:
    return a.source == b.source if one_source else a.use == b.use == "level"


def _mean(
    pairs: Mapping[Named, Pairs], first: GpuPrecision, second: GpuPrecision, batch: int
) -> Ratio:
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
    return Ratio(value, repeat_spread(list(ratios.values())), note)


def _alike(a: Anchor, b: Anchor) -> bool:
    return a.covers == b.covers and 1 / SIMILAR_BATCHES <= a.batch / b.batch <= SIMILAR_BATCHES


def _distance(a: Anchor, b: Anchor, batch: int) -> tuple[float, float]:
    return abs(math.log(a.batch / b.batch)), abs(math.log(a.batch * b.batch / batch**2))


def measured_ways(
    starts: Sequence[GpuPrecision],
    places: Sequence[GpuPrecision],
    measured: Callable[[GpuPrecision, GpuPrecision], bool],
) -> Ways:
    """Return the shortest way to every place that ratios lead to, fewest measured ratios first.

    ``measured`` tells whether models were measured at both places; at most ``_MAX_RATIOS`` such
    ratios follow each other. A step to another board of the same chip goes before them and
    counts as none. Among ways of one length that of the earlier start.
    """
    ways: Ways = {start: [] for start in starts}
    newest = list(ways)
    for length in range(_MAX_RATIOS + 1):
        if length:
            newest = _further(ways, newest, places, measured)
        for at in list(newest):
            same = {place.gpu for place in places if place.precision == at.precision}
            for gpu in boards(at.gpu, sorted(same)):
                place = GpuPrecision(gpu, at.precision)
                if place not in ways:
                    ways[place] = [*ways[at], SpeedStep(at, place, chip=True)]
                    newest.append(place)
    return ways


def _further(
    ways: Ways,
    newest: Sequence[GpuPrecision],
    places: Sequence[GpuPrecision],
    measured: Callable[[GpuPrecision, GpuPrecision], bool],
) -> list[GpuPrecision]:
    """Add the places that one more ratio leads to, and return them."""
    found: Ways = {}
    for at in newest:
        for place in places:
            if place not in ways and place not in found and measured(at, place):
                found[place] = [*ways[at], SpeedStep(at, place)]
    ways |= found
    return list(found)


def rate_ratio(
    profile: Profile,
    origin: Device,
    first: GpuPrecision,
    device: Device,
    second: GpuPrecision,
    chip: bool,
) -> Ratio:
    """Return how much longer ``second`` takes by rates: products by matrix rate, rest by memory.

    ``chip`` says that both are boards of one chip, where that is no rough guess.
    """
    total_s = profile.forward_s + profile.backward_s
    products_s = sum(
        layer.forward_s + layer.backward_s
        for layer in profile.layers
        if layer.kind.startswith(_PRODUCT_KINDS)
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


class TransferInputs(NamedTuple):
    """A profile, the GPU it goes to, and all anchors and GPUs."""

    profile: Profile
    device: Device
    known: Mapping[str, Sequence[Anchor]]
    catalog: Catalog

    @property
    def home(self) -> GpuPrecision:
        """Where the profile was made."""
        return GpuPrecision(self.profile.gpu, self.profile.precision)

    def gpu(self, name: str) -> Device:
        """Return a GPU by name."""
        if name == self.device.name:
            return self.device
        catalog = self.catalog
        return catalog.once(("device", name), lambda: load_device(name, catalog))

    def optimizer_s(self, gpu: str) -> float:
        """Return the optimizer's time on a GPU: it streams the parameters through its memory."""
        if gpu == self.profile.gpu or not self.profile.optimizer_s:
            return self.profile.optimizer_s
        try:
            home = self.gpu(self.profile.gpu)
        except RequestError:  # a profile of the user's own, of a GPU without a file
            return self.profile.optimizer_s
        ratio = home.memory_bandwidth.value / self.gpu(gpu).memory_bandwidth.value
        return self.profile.optimizer_s * ratio

    def ratio(self, step: SpeedStep, batch: int) -> Ratio:
        """Return how much longer the second place takes: measured at like batches, or by rates."""
        first, second, chip = step
        if not chip:
            found = speed_ratio(self.known, first, second, batch, self.profile.model)
            if found:
                return found
        here, there = self.gpu(first.gpu), self.gpu(second.gpu)
        return rate_ratio(self.profile, here, first, there, second, chip)


def all_places(ground: TransferInputs, goal: GpuPrecision) -> list[GpuPrecision]:
    """Return all places: this GPU's, this precision's, the profile's own, then the others."""
    home = ground.home
    alike = [GpuPrecision(gpu, goal.precision) for gpu in (home.gpu, *ground.known)]
    others = [GpuPrecision(gpu, at) for gpu in ground.known for at in PRECISIONS]
    first = [goal, GpuPrecision(goal.gpu, home.precision), *alike, home]
    return list(dict.fromkeys([*first, *others]))


def series_at(ground: TransferInputs, place: GpuPrecision) -> dict[int, Estimate]:
    """Return what is known of the model at a place, by batch; never falling with the batch.

    The profile fills a gap; where its own total was measured, it goes before what others found.
    """
    profile = ground.profile
    figures: dict[int, list[Estimate]] = {}
    for anchor in ground.known.get(place.gpu, ()):
        if anchor.use == "ratio" or anchor.precision != place.precision:
            continue
        if (anchor.model, anchor.sequence) == (profile.model, profile.sequence):
            partial = anchor.covers == "forward_backward"
            figures.setdefault(anchor.batch, []).append(
                Estimate(
                    anchor.iteration_s + (ground.optimizer_s(place.gpu) if partial else 0.0),
                    weakest([anchor.kind, "derived"]) if partial else anchor.kind,
                    anchor.source,
                    anchor.spread,
                )
            )
    known = {batch: combined(same) for batch, same in figures.items()}
    if place == ground.home:
        kind = profile.kinds.get("iteration_ms", "derived")
        own = Estimate(profile.iteration_s, kind, profile.header.get("source", "the profile"))
        if kind == "measured":
            known = {
                batch: one
                for batch, one in known.items()
                if (batch - profile.batch) * (one.seconds - own.seconds) > 0
            }
        if kind == "measured" or profile.batch not in known:
            known[profile.batch] = own
    return rising(known)


LAUNCHES_S = 0.15e-3
"""Least time a parameter tensor that an iteration takes [s], for launches and host (fitted).

Just below the lowest anchors: MXNet's Inception-v3 at batch 1 on a V100 (0.157 ms;
apache/mxnet@054aeee), and PyTorch's ResNets and DenseNets at batch 12 on an A100 (0.198 to
0.26 ms; ryujaehun/pytorch-gpu-benchmark@3f47a9e).
"""


class TransferSource(NamedTuple):
    """What all batches of a model at one GPU and precision are carried from.

    ``known`` was measured at ``place``; ``series_at`` is the same carried to the goal, each batch
    by ``ratios`` of batches alike, and never falls with the batch. ``least_s`` is the least that
    ``tensors`` launches take.
    """

    model: str
    place: GpuPrecision
    known: Mapping[int, Estimate]
    series: Mapping[int, Estimate]
    ratios: Mapping[int, Sequence[Ratio]]
    share: float
    shown: str
    least_s: float
    tensors: int

    def at(self, batch: int) -> Estimate:
        """Return the iteration at a batch."""
        what = f"{self.model} on {self.place}"
        notes = at_batch(what, self.known, batch, self.share, self.shown).notes
        near = sorted(self.ratios, key=lambda known: abs(math.log(known / batch)))
        ratios = self.ratios[near[0]]
        if batch not in self.known:
            ratios = next((on_way for at in near if (on_way := self.ratios[at])), ())
        found = at_batch(what, self.series, batch, self.share, self.shown)._replace(
            notes=(*notes, *(ratio.note for ratio in ratios)),
        )
        if found.seconds >= self.least_s:
            return found
        note = f"Held at {self.least_s * 1e3:.3g} ms, "
        if self.least_s < LAUNCHES_S * self.tensors:
            note += "the shortest iteration known of the model."
        else:
            note += f"the least for {self.tensors} tensors at {LAUNCHES_S * 1e3:g} ms each."
        return found._replace(
            seconds=self.least_s,
            kind=weakest([found.kind, "fitted", "derived"]),
            extrapolated=True,
            notes=(*found.notes, note),
        )


def origin(ground: TransferInputs, goal: GpuPrecision) -> TransferSource:
    """Return what the model is carried from to the goal, as ``carry`` says.

    What is known there, else at a place that chip, measured ratios or rates lead from.
    """
    profile = ground.profile
    places = {place: series_at(ground, place) for place in all_places(ground, goal)}
    if not places[goal] and goal.precision == "amp-bf16":
        twin = origin(ground, GpuPrecision(goal.gpu, "amp-fp16"))
        note = f"{goal}: no measurement in amp-bf16, taken as amp-fp16 (the same matrix rate)."
        same = Ratio(1.0, None, note)
        return twin._replace(
            series={batch: one.times(same) for batch, one in twin.series.items()},
            ratios={batch: [*ratios, same] for batch, ratios in twin.ratios.items()},
        )
    steps = [] if places[goal] else _steps(ground, goal, places)
    start = steps[0].first if steps else goal
    known = places[start]
    share, shown = fixed_share(next(iter(known)), places, start) if len(known) == 1 else (0.0, "")
    series, ratios = _along(ground, steps, known)
    if not steps and len(known) == 1 and not shown:
        beside, ways = _beside(ground, goal, places)
        known, series, ratios = known | beside, series | beside, ratios | ways
    tensors = len(profile.gradients)
    shortest_s = min(one.seconds for known in places.values() for one in known.values())
    least_s = min(LAUNCHES_S * tensors, shortest_s)
    return TransferSource(
        profile.model, start, known, rising(series), ratios, share, shown, least_s, tensors
    )


def _along(
    ground: TransferInputs, steps: Sequence[SpeedStep], known: Mapping[int, Estimate]
) -> tuple[dict[int, Estimate], dict[int, list[Ratio]]]:
    """Return times by batch carried over the steps, and the ratios of each batch."""
    ratios = {batch: [ground.ratio(step, batch) for step in steps] for batch in known}
    series = dict(known)
    for batch, found in ratios.items():
        for ratio in found:
            series[batch] = series[batch].times(ratio)
    return series, ratios


def _beside(
    ground: TransferInputs,
    goal: GpuPrecision,
    places: Mapping[GpuPrecision, Mapping[int, Estimate]],
) -> tuple[dict[int, Estimate], dict[int, list[Ratio]]]:
    """Return what measurements carry here from elsewhere, to stand beside the lone batch known.

    Only batches that lie apart from it and rise with it: they show how the time goes with the
    batch, where proportion alone would take launches for work.
    """
    [(own, at)] = places[goal].items()
    others = {place: series for place, series in places.items() if place != goal}
    steps = _ways(ground, goal, others).get(goal)
    if not steps:
        return {}, {}
    series, ratios = _along(ground, steps, others[steps[0].first])
    fits = [
        batch
        for batch, one in series.items()
        if max(batch / own, own / batch) >= SIMILAR_BATCHES
        and (batch - own) * (one.seconds - at.seconds) > 0
        and not one.extrapolated
    ]
    return {batch: series[batch] for batch in fits}, {batch: ratios[batch] for batch in fits}


def _ways(
    ground: TransferInputs,
    goal: GpuPrecision,
    places: Mapping[GpuPrecision, Mapping[int, Estimate]],
) -> Ways:
    """Return the ways from places where the model is known, to the goal if there is one.

    A place that shows how the time goes with the batch, and the profile's own, go before others.
    """
    profile, known = ground.profile, ground.known
    between = {GpuPrecision(gpu, a.precision) for gpu in known for a in known[gpu]}
    starts = [place for place, series in places.items() if series]
    sure = sorted(
        (
            place
            for place in starts
            if len(places[place]) > 1 or place.precision == goal.precision or place == ground.home
        ),
        key=lambda place: place.precision != goal.precision,
    )

    def measured(first: GpuPrecision, second: GpuPrecision) -> bool:
        return speed_ratio(known, first, second, profile.batch, profile.model) is not None

    ways: Ways = {}
    for begin in (sure, starts):
        ways = measured_ways(begin, sorted({*between, goal}), measured)
        if goal in ways:
            break
    return ways


def _steps(
    ground: TransferInputs,
    goal: GpuPrecision,
    places: Mapping[GpuPrecision, Mapping[int, Estimate]],
) -> list[SpeedStep]:
    """Return the steps to the goal from a place where the model is known, the last by rates."""
    ways = _ways(ground, goal, places)
    if goal in ways:
        return ways[goal]
    nearest = _nearest(ground, goal, ways)
    return [*ways[nearest], SpeedStep(nearest, goal)]


def _nearest(ground: TransferInputs, goal: GpuPrecision, ways: Ways) -> GpuPrecision:
    """Return home if it computes alike, else the GPU of the fewest steps, then nearest memory."""
    alike = [place for place in ways if place.precision == goal.precision]
    if ground.home in alike or not alike:
        return ground.home
    own = ground.gpu(goal.gpu).memory_bandwidth.value

    def apart(at: GpuPrecision) -> tuple[int, float]:
        bandwidth = ground.gpu(at.gpu).memory_bandwidth.value
        return len(ways[at]), abs(math.log(bandwidth / own))

    return min(alike, key=apart)


_MAX_OPTIMIZER_SHARE = 0.7
"""Most of an iteration that the optimizer takes: Adam passes over the parameters 7 times, and
forward and backward at least 3 (both read them, one writes gradients)."""


class TransferredProfile(NamedTuple):
    """A profile scaled to a GPU, batch and precision, and what its iteration time rests on."""

    profile: Profile
    quantity: Quantity
    extrapolated: bool
    notes: list[str]


def transfer(
    profile: Profile,
    device: Device,
    batch: int,
    precision: str,
    anchors: Catalog | Mapping[str, Sequence[Anchor]],
) -> TransferredProfile:
    """Scale ``profile`` to a GPU, batch and precision; its shape over the layers stays.

    In this order: the profile if its total was measured there; what others measured there
    (several sources: their geometric mean, spread by their disagreement); the profile if its
    total was published or derived for there; a line in batch between known neighbours, or beyond
    them through two that lie apart, its fixed part not below zero; from one batch,
    t = t0 (f + (1 - f) batch / batch0), f the fixed share that other GPUs show. Where nothing is
    known: the same of another place (GPU and precision), times the ratio of boards of one chip,
    or measured speed ratios (fewest first, at most three), or those of matrix rates and memory
    bandwidths. A larger batch never takes less time.

    The optimizer's time goes with memory bandwidth alone; forward and backward take the rest.

    Parameters
    ----------
    anchors : a catalog, or anchors by GPU name (rates of other GPUs are then the shipped ones)

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision or the batch is below 1.
    """
    if batch < 1:
        raise RequestError("batch", f"{batch} is below 1.")
    device.matrix_rate(precision)
    ground = _ground(profile, device, anchors)
    goal = GpuPrecision(device.name, precision)
    return _carried(ground, goal, batch, origin(ground, goal).at(batch))


def pin_iteration(carried: TransferredProfile, seconds: float) -> TransferredProfile:
    """Return a profile held to an iteration that the user measured on one GPU [s].

    The optimizer's time stays; forward, backward and what the host adds take the rest.
    """
    quantity = Quantity(seconds, "s", "measured", "given with the scenario (single_gpu)")
    profile = carried.profile
    return TransferredProfile(
        _stretched(profile, seconds, profile.optimizer_s),
        quantity,
        False,
        ["The single-GPU iteration is the one given; its layers stay in proportion."],
    )


def base(
    profile: Profile,
    device: Device,
    precision: str,
    anchors: Catalog | Mapping[str, Sequence[Anchor]],
) -> TransferSource:
    """Return what all batches of ``profile``'s model are carried from, as ``transfer`` says.

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision.
    """
    device.matrix_rate(precision)
    return origin(_ground(profile, device, anchors), GpuPrecision(device.name, precision))


def _ground(
    profile: Profile, device: Device, anchors: Catalog | Mapping[str, Sequence[Anchor]]
) -> TransferInputs:
    if isinstance(anchors, Catalog):
        return TransferInputs(profile, device, Anchors(anchors), anchors)
    return TransferInputs(profile, device, anchors, Catalog())


def _carried(
    ground: TransferInputs, goal: GpuPrecision, batch: int, found: Estimate
) -> TransferredProfile:
    profile = ground.profile
    same = (profile.gpu, profile.precision, profile.batch) == (*goal, batch)
    scaled = profile
    if not same or not math.isclose(found.seconds, profile.iteration_s, rel_tol=1e-9):
        kinds: dict[str, Kind] = {
            name: weakest([kind, "derived"]) for name, kind in profile.kinds.items()
        }
        kinds["iteration_ms"] = found.kind
        scaled = replace(
            _stretched(profile, found.seconds, ground.optimizer_s(goal.gpu)),
            gpu=goal.gpu,
            precision=goal.precision,
            batch=batch,
            kinds=kinds,
        )
    quantity = Quantity(
        found.seconds,
        "s",
        found.kind,
        found.source,
        found.spread,
        found.low,
        found.high,
        "samples",
    )
    return TransferredProfile(scaled, quantity, found.extrapolated, list(found.notes))


def _stretched(profile: Profile, iteration_s: float, optimizer_s: float) -> Profile:
    """Return the profile at another total: its optimizer as given, all else in proportion."""
    rest_s = profile.iteration_s - profile.optimizer_s
    if rest_s <= 0:
        return profile.scaled(iteration_s / profile.iteration_s)
    optimizer_s = min(optimizer_s, _MAX_OPTIMIZER_SHARE * iteration_s)
    factor = (iteration_s - optimizer_s) / rest_s
    return replace(profile.scaled(factor), iteration_s=iteration_s, optimizer_s=optimizer_s)
