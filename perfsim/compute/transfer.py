"""Move a profile to another GPU, batch or precision.

A profile holds the times of one model's layers at one batch and precision on one GPU. ``transfer``
keeps the proportions of its layers and finds a new total. It takes four steps, in the order of
this file:

1. What is known: whole iterations of the model by batch, at every GPU and precision (``Anchor``s of
   ``profiles/devices/<gpu>.anchors.csv`` and the profile itself).
2. Which way is chosen: times known at the goal come first; else times known elsewhere, moved by
   ratios of models that were measured at both ends (fewest ratios first, at most three); between
   boards of one chip, and where nothing else leads to the goal, by matrix rates and memory
   bandwidths.
3. How times scale with the batch: a line through known batches (see ``anchors.at_batch``), never
   below the time that launching the kernels takes.
4. How the profile stretches: the optimizer's time goes with memory bandwidth, all else shares the
   rest of the new total in proportion.

``TransferredProfile.quantity.kind`` says what the total is: as measured or published at the goal,
else ``derived``. ``extrapolated`` is true for a batch beyond those known, for a ratio by rates and
for a total that launches hold up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean
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
    rising,
)
from perfsim.compute.device import Device, load_device
from perfsim.compute.profile import PRECISIONS, Profile
from perfsim.data.catalog import Catalog, owner_of
from perfsim.data.tables import repeat_spread
from perfsim.errors import RequestError
from perfsim.quantity import Kind, Quantity, weakest

__all__ = [
    "LAUNCHES_S",
    "SpeedStep",
    "TransferInputs",
    "TransferSource",
    "TransferredProfile",
    "pin_iteration",
    "transfer",
    "transfer_source",
]

LAUNCHES_S = 0.15e-3
"""Shortest iteration a parameter tensor [s], for launches and host (fitted).

Just below the lowest anchors: MXNet's Inception-v3 at batch 1 on a V100 (0.157 ms;
apache/mxnet@054aeee), and PyTorch's ResNets and DenseNets at batch 12 on an A100 (0.198 to
0.26 ms; ryujaehun/pytorch-gpu-benchmark@3f47a9e).
"""

_MAX_RATIOS = 3
"""Measured ratios in a row; each adds its error."""

_MAX_OPTIMIZER_SHARE = 0.7
"""Largest share of an iteration that the optimizer takes: Adam passes over the parameters 7 times,
and forward and backward at least 3 (both read them, one writes gradients)."""

_PRODUCT_KINDS = ("conv", "linear", "lstm", "attention")
"""Kinds of layers whose time is matrix products; the others move memory."""


# What the caller asks and gets.


class TransferredProfile(NamedTuple):
    """A profile scaled to a GPU, batch and precision, and the origin of its iteration time.

    ``left_out`` says that only sources that the catalog leaves out know an iteration of the model.
    """

    profile: Profile
    quantity: Quantity
    extrapolated: bool
    notes: list[str]
    left_out: bool = False

    @property
    def batch_reach(self) -> float:
        """How far its batch lies outside those whose time is known: ln of the ratio, 0 inside."""
        low, high = self.quantity.low, self.quantity.high
        if low is None or high is None:
            return 0.0
        batch = self.profile.batch
        return max(0.0, math.log(low / batch), math.log(batch / high))


def transfer(
    profile: Profile,
    device: Device,
    batch: int,
    precision: str,
    anchors: Catalog | Mapping[str, Sequence[Anchor]],
) -> TransferredProfile:
    """Scale ``profile`` to a GPU, batch and precision; its shape over the layers stays.

    The total is the first of these that is known:

    - the profile's own, if it was measured there;
    - what others measured there (several sources: their geometric mean, spread by their
      disagreement);
    - the profile's own, if it was published or derived for there;
    - a line in batch between known neighbours, or beyond them through two that lie apart, its
      fixed part not below zero;
    - from one batch, t = t0 (f + (1 - f) batch / batch0), f the fixed share that other GPUs show;
    - the same of another GPU and precision, times the ratio of boards of one chip, or measured
      speed ratios (fewest first, at most three), or those of matrix rates and memory bandwidths.

    A larger batch never takes less time. The optimizer's time goes with memory bandwidth alone;
    forward and backward take the rest.

    Parameters
    ----------
    anchors : a catalog, or anchors by GPU name (rates of other GPUs are then the shipped ones)

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision or the batch is below 1.
    """
    if batch < 1:
        raise RequestError("batch", f"{batch} is below 1.", value=batch)
    device.matrix_rate(precision)
    inputs = _inputs(profile, device, anchors)
    goal = GpuPrecision(device.name, precision)
    left_out = not inputs.own and not any(_all_iterations(inputs, goal).values())
    inputs = inputs._replace(own=inputs.own or left_out)
    found = _stretched_to(inputs, goal, batch, _source(inputs, goal).at(batch))
    return found._replace(left_out=left_out)


def pin_iteration(transferred: TransferredProfile, seconds: float) -> TransferredProfile:
    """Scale a profile to an iteration that the user measured on one GPU [s].

    The optimizer's time stays; forward, backward and the host share the rest.
    """
    quantity = Quantity(seconds, "s", "measured", "given with the scenario (single_gpu)")
    profile = transferred.profile
    return TransferredProfile(
        _stretched(profile, seconds, profile.optimizer_s),
        quantity,
        False,
        ["The single-GPU iteration is the one given; its layers stay in proportion."],
    )


def transfer_source(
    profile: Profile,
    device: Device,
    precision: str,
    anchors: Catalog | Mapping[str, Sequence[Anchor]],
) -> TransferSource:
    """Return the times from which ``transfer`` derives every batch on a GPU at a precision.

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision.
    """
    device.matrix_rate(precision)
    return _source(_inputs(profile, device, anchors), GpuPrecision(device.name, precision))


# 1. What is known.


class TransferInputs(NamedTuple):
    """Inputs for moving a profile: the profile, the GPU it goes to, all anchors, all GPUs.

    ``own`` says whether the profile's own total counts as a known iteration.
    """

    profile: Profile
    device: Device
    anchors: Mapping[str, Sequence[Anchor]]
    catalog: Catalog
    own: bool = True

    @property
    def home(self) -> GpuPrecision:
        """The GPU and precision of the profile."""
        return GpuPrecision(self.profile.gpu, self.profile.precision)

    def gpu(self, name: str) -> Device:
        """Return a GPU by name."""
        if name == self.device.name:
            return self.device
        catalog = self.catalog
        return catalog.once(("device", name), lambda: load_device(name, catalog))

    def optimizer_s(self, gpu: str) -> float:
        """Return the optimizer's time on a GPU [s]: it streams the parameters through memory."""
        if gpu == self.profile.gpu or not self.profile.optimizer_s:
            return self.profile.optimizer_s
        try:
            home = self.gpu(self.profile.gpu)
        except RequestError:  # a profile of the user's own, of a GPU without a file
            return self.profile.optimizer_s
        ratio = home.memory_bandwidth.value / self.gpu(gpu).memory_bandwidth.value
        return self.profile.optimizer_s * ratio


def _inputs(
    profile: Profile, device: Device, anchors: Catalog | Mapping[str, Sequence[Anchor]]
) -> TransferInputs:
    if isinstance(anchors, Catalog):
        total = profile.header.get("source", "").removeprefix("total:").strip()
        own = owner_of(total) not in anchors.without
        return TransferInputs(profile, device, Anchors(anchors), anchors, own)
    return TransferInputs(profile, device, anchors, Catalog())


def _all_iterations(
    inputs: TransferInputs, goal: GpuPrecision
) -> dict[GpuPrecision, dict[int, Estimate]]:
    """Return the known iterations of the model by batch, at every GPU and precision.

    In this order, by which ties are decided: the goal's GPU, the goal's precision on the profile's
    GPU and on others, the profile's own, then the rest.
    """
    home = inputs.home
    same_precision = [GpuPrecision(gpu, goal.precision) for gpu in (home.gpu, *inputs.anchors)]
    rest = [GpuPrecision(gpu, precision) for gpu in inputs.anchors for precision in PRECISIONS]
    first = [goal, GpuPrecision(goal.gpu, home.precision), *same_precision, home]
    return {at: _known_iterations(inputs, at) for at in dict.fromkeys([*first, *rest])}


def _known_iterations(inputs: TransferInputs, at: GpuPrecision) -> dict[int, Estimate]:
    """Return the model's known iterations at a GPU and precision, never falling with the batch.

    The profile fills a gap. Where its own total was measured, it comes before what others
    measured.
    """
    profile = inputs.profile
    by_batch: dict[int, list[Estimate]] = {}
    for anchor in inputs.anchors.get(at.gpu, ()):
        if anchor.use == "ratio" or anchor.precision != at.precision:
            continue
        if (anchor.model, anchor.sequence) == (profile.model, profile.sequence):
            partial = anchor.covers == "forward_backward"
            by_batch.setdefault(anchor.batch, []).append(
                Estimate(
                    anchor.iteration_s + (inputs.optimizer_s(at.gpu) if partial else 0.0),
                    weakest([anchor.kind, "derived"]) if partial else anchor.kind,
                    anchor.source,
                    anchor.spread,
                )
            )
    known = {batch: combined(estimates) for batch, estimates in by_batch.items()}
    if at == inputs.home and inputs.own:
        kind = profile.kinds.get("iteration_ms", "derived")
        own = Estimate(profile.iteration_s, kind, profile.header.get("source", "the profile"))
        if kind == "measured":
            known = {
                batch: estimate
                for batch, estimate in known.items()
                if (batch - profile.batch) * (estimate.seconds - own.seconds) > 0
            }
        if kind == "measured" or profile.batch not in known:
            known[profile.batch] = own
    return rising(known)


# 2. Which way is chosen: from which GPU and precision, by which ratios.


class SpeedStep(NamedTuple):
    """A ratio from one GPU and precision to another; ``same_chip``: two boards of one chip."""

    first: GpuPrecision
    second: GpuPrecision
    same_chip: bool = False


_Ways = dict[GpuPrecision, list[SpeedStep]]
"""A GPU and precision -> the steps that lead to it; none where the way starts."""


def _source(inputs: TransferInputs, goal: GpuPrecision) -> TransferSource:
    """Return the times from which all batches at the goal are derived, and how.

    Times known at the goal come first, else those that a chip, measured ratios or rates lead from.
    """
    profile = inputs.profile
    known_at = _all_iterations(inputs, goal)
    if not known_at[goal] and goal.precision in ("amp-bf16", "fp8"):
        return _half_or_less(inputs, goal)
    steps = [] if known_at[goal] else _steps_to(inputs, goal, known_at)
    start = steps[0].first if steps else goal
    known = known_at[start]
    share, share_note = 0.0, ""
    if len(known) == 1:
        share, share_note = fixed_share(next(iter(known)), known_at, start)
    series, ratios = _moved(inputs, steps, known)
    if not steps and len(known) == 1 and not share_note:
        more, ways = _other_batches(inputs, goal, known_at)
        known, series, ratios = known | more, series | more, ratios | ways
    tensors = len(profile.gradients)
    shortest_s = min(
        estimate.seconds for series in known_at.values() for estimate in series.values()
    )
    return TransferSource(
        profile.model,
        start,
        known,
        rising(series),
        ratios,
        share,
        share_note,
        min(LAUNCHES_S * tensors, shortest_s),
        tensors,
    )


def _half_or_less(inputs: TransferInputs, goal: GpuPrecision) -> TransferSource:
    """Return bf16 as fp16 on the same GPU, and fp8 as bf16 with products at the rate of fp8."""
    if goal.precision == "amp-bf16":
        near = GpuPrecision(goal.gpu, "amp-fp16")
        note = f"{goal}: no measurement in amp-bf16, taken as amp-fp16 (the same matrix rate)."
        ratio = Ratio(1.0, None, note)
    else:
        near = GpuPrecision(goal.gpu, "amp-bf16")
        ratio = _step_ratio(inputs, SpeedStep(near, goal), inputs.profile.batch)
    source = _source(inputs, near)
    return source._replace(
        series={batch: estimate.times(ratio) for batch, estimate in source.series.items()},
        ratios={batch: [*ratios, ratio] for batch, ratios in source.ratios.items()},
    )


def _steps_to(
    inputs: TransferInputs,
    goal: GpuPrecision,
    known_at: Mapping[GpuPrecision, Mapping[int, Estimate]],
) -> list[SpeedStep]:
    """Return the steps to the goal from where the model is known; the last may be by rates."""
    ways = _ways(inputs, goal, known_at)
    if goal in ways:
        return ways[goal]
    nearest = _nearest(inputs, goal, ways)
    return [*ways[nearest], SpeedStep(nearest, goal)]


def _ways(
    inputs: TransferInputs,
    goal: GpuPrecision,
    known_at: Mapping[GpuPrecision, Mapping[int, Estimate]],
) -> _Ways:
    """Return the ways from where the model is known, to the goal if there is one.

    Starts with several known batches, at the goal's precision or the profile's own come before
    others.
    """
    profile, anchors = inputs.profile, inputs.anchors
    measured = {GpuPrecision(gpu, anchor.precision) for gpu in anchors for anchor in anchors[gpu]}
    starts = [at for at, series in known_at.items() if series]
    preferred = sorted(
        (
            at
            for at in starts
            if len(known_at[at]) > 1 or at.precision == goal.precision or at == inputs.home
        ),
        key=lambda at: at.precision != goal.precision,
    )

    def has_ratio(first: GpuPrecision, second: GpuPrecision) -> bool:
        return _measured_ratio(anchors, first, second, profile.batch, profile.model) is not None

    ways: _Ways = {}
    for begin in (preferred, starts):
        ways = _shortest_ways(begin, sorted({*measured, goal}), has_ratio)
        if goal in ways:
            break
    return ways


def _shortest_ways(
    starts: Sequence[GpuPrecision],
    goals: Sequence[GpuPrecision],
    has_ratio: Callable[[GpuPrecision, GpuPrecision], bool],
) -> _Ways:
    """Return the shortest way to each GPU and precision that ratios lead to.

    ``has_ratio`` tells whether models were measured at both ends; at most ``_MAX_RATIOS`` such
    ratios follow each other. A step to another board of the same chip counts as none and goes
    before them. Of ways of one length, the earlier start wins.
    """
    ways: _Ways = {start: [] for start in starts}
    newest = list(ways)
    for length in range(_MAX_RATIOS + 1):
        if length:
            further: _Ways = {}
            for at in newest:
                for goal in goals:
                    if goal not in ways and goal not in further and has_ratio(at, goal):
                        further[goal] = [*ways[at], SpeedStep(at, goal)]
            ways |= further
            newest = list(further)
        for at in list(newest):
            gpus = {goal.gpu for goal in goals if goal.precision == at.precision}
            for gpu in _boards_of_chip(at.gpu, sorted(gpus)):
                board = GpuPrecision(gpu, at.precision)
                if board not in ways:
                    ways[board] = [*ways[at], SpeedStep(at, board, same_chip=True)]
                    newest.append(board)
    return ways


def _boards_of_chip(gpu: str, others: Iterable[str]) -> list[str]:
    """Return the other boards of a GPU's chip: names that agree up to the first hyphen.

    Examples
    --------
    >>> _boards_of_chip("v100", ["a100", "v100", "v100-pcie"])
    ['v100-pcie']
    """
    chip = gpu.partition("-")[0]
    return [other for other in others if other != gpu and other.partition("-")[0] == chip]


def _nearest(inputs: TransferInputs, goal: GpuPrecision, ways: _Ways) -> GpuPrecision:
    """Return the end of a way from which rates lead to the goal.

    The profile's own GPU if its precision is the goal's, else, at that precision, the GPU of the
    fewest steps and then the nearest memory bandwidth; the profile's own if there is none.
    """
    same_precision = [at for at in ways if at.precision == goal.precision]
    if inputs.home in same_precision or not same_precision:
        return inputs.home
    own = inputs.gpu(goal.gpu).memory_bandwidth.value

    def distance(at: GpuPrecision) -> tuple[int, float]:
        bandwidth = inputs.gpu(at.gpu).memory_bandwidth.value
        return len(ways[at]), abs(math.log(bandwidth / own))

    return min(same_precision, key=distance)


# The ratio of one step.


def _step_ratio(inputs: TransferInputs, step: SpeedStep, batch: int) -> Ratio:
    """Return how much longer the second end takes: measured at like batches, or by rates."""
    first, second, same_chip = step
    if not same_chip:
        measured = _measured_ratio(inputs.anchors, first, second, batch, inputs.profile.model)
        if measured:
            return measured
    devices = inputs.gpu(first.gpu), inputs.gpu(second.gpu)
    return _rate_ratio(inputs.profile, *devices, step)


_ModelName = tuple[str, int | None]
"""A model, and its tokens a sample if it is one over text."""


def _measured_ratio(
    anchors: Mapping[str, Sequence[Anchor]],
    first: GpuPrecision,
    second: GpuPrecision,
    batch: int,
    model: str,
) -> Ratio | None:
    """Return how much longer a sample takes at ``second``, from models measured at both ends.

    In this order: models of the family of ``model`` that one source measured at both ends; any
    such models; the family measured by different sources (use ``level``); any of them. A model
    counts by the pair of batches that are most alike (at most a factor 2 apart), then nearest to
    ``batch``. None where no model was measured at both.
    """
    here, there = _anchors_by_model(anchors, first), _anchors_by_model(anchors, second)
    pairs = {
        name: [
            (a, b)
            for a in here[name]
            for b in there[name]
            if a.covers == b.covers and 1 / SIMILAR_BATCHES <= a.batch / b.batch <= SIMILAR_BATCHES
        ]
        for name in sorted(here.keys() & there.keys(), key=str)
    }
    for same_source in (True, False):
        usable = {
            name: [
                (a, b)
                for a, b in models
                if (a.source == b.source if same_source else a.use == b.use == "level")
            ]
            for name, models in pairs.items()
        }
        usable = {name: models for name, models in usable.items() if models}
        family = {
            name: models
            for name, models in usable.items()
            if _model_family(name[0]) == _model_family(model)
        }
        if family or usable:
            return _mean_ratio(family or usable, first, second, batch)
    return None


def _anchors_by_model(
    anchors: Mapping[str, Sequence[Anchor]], at: GpuPrecision
) -> dict[_ModelName, list[Anchor]]:
    by_model: dict[_ModelName, list[Anchor]] = {}
    for anchor in anchors.get(at.gpu, ()):
        if anchor.precision == at.precision:
            by_model.setdefault((anchor.model, anchor.sequence), []).append(anchor)
    return by_model


def _model_family(model: str) -> str:
    """Return the family of a model by its name: text, cifar, lstm or image.

    The ratio of two GPUs depends on what they run: small kernels (CIFAR) or large products (text).

    Examples
    --------
    >>> [_model_family(name) for name in ("bert-large", "vit-b16", "resnet50-cifar", "vgg16")]
    ['text', 'text', 'cifar', 'image']
    """
    if model.startswith(("bert", "gpt", "vit")):
        return "text"
    if model.startswith("lstm"):
        return "lstm"
    return "cifar" if model.endswith("-cifar") else "image"


def _mean_ratio(
    pairs: Mapping[_ModelName, Sequence[tuple[Anchor, Anchor]]],
    first: GpuPrecision,
    second: GpuPrecision,
    batch: int,
) -> Ratio:
    """Return the geometric mean of the models' ratios of the time of a sample."""

    def distance(a: Anchor, b: Anchor) -> tuple[float, float]:
        return abs(math.log(a.batch / b.batch)), abs(math.log(a.batch * b.batch / batch**2))

    ratios: dict[str, float] = {}
    sources: list[str] = []
    for (model, sequence), anchors in pairs.items():
        best = min(distance(a, b) for a, b in anchors)
        nearest = [(a, b) for a, b in anchors if distance(a, b) == best]
        ratios[model if sequence is None else f"{model} at {sequence} tokens"] = geometric_mean(
            b.iteration_s * a.batch / a.iteration_s / b.batch for a, b in nearest
        )
        sources += [anchor.source for pair in nearest for anchor in pair]
    value = geometric_mean(ratios.values())
    note = (
        f"{second} takes {value:.3g} times as long as {first}: mean over"
        f" {', '.join(ratios)} ({'; '.join(dict.fromkeys(sources))})."
    )
    if len(ratios) == 1:
        note += " One model alone shows no spread."
    return Ratio(value, repeat_spread(list(ratios.values())), note)


def _rate_ratio(profile: Profile, origin: Device, device: Device, step: SpeedStep) -> Ratio:
    """Return how much longer ``device`` takes by rates: products by matrix rate, rest by memory.

    Between two boards of one chip that is no rough guess.
    """
    total_s = profile.forward_s + profile.backward_s
    products_s = sum(
        layer.forward_s + layer.backward_s
        for layer in profile.layers
        if layer.kind.startswith(_PRODUCT_KINDS)
    )
    share = products_s / total_s if total_s > 0 else 1.0
    origin_rate = origin.matrix_rate(step.first.precision).value
    device_rate = device.matrix_rate(step.second.precision).value
    memory = origin.memory_bandwidth.value / device.memory_bandwidth.value
    value = share * origin_rate / device_rate + (1 - share) * memory
    why = f"No model was measured on both {step.first} and {step.second}"
    if step.same_chip:
        why = f"{step.first} and {step.second} are boards of one chip"
    note = (
        f"{why}: {value:.3g} times as long by matrix rate ({share:.0%} of the time) and memory"
        f" bandwidth{'' if step.same_chip else ', a rough guess'}."
    )
    return Ratio(value, None, note, measured=False)


# 3. How times scale: along the steps, then with the batch.


def _moved(
    inputs: TransferInputs, steps: Sequence[SpeedStep], known: Mapping[int, Estimate]
) -> tuple[dict[int, Estimate], dict[int, list[Ratio]]]:
    """Return known times by batch, moved over the steps, and the ratios of each batch."""
    ratios = {batch: [_step_ratio(inputs, step, batch) for step in steps] for batch in known}
    series = dict(known)
    for batch, factors in ratios.items():
        for ratio in factors:
            series[batch] = series[batch].times(ratio)
    return series, ratios


def _other_batches(
    inputs: TransferInputs,
    goal: GpuPrecision,
    known_at: Mapping[GpuPrecision, Mapping[int, Estimate]],
) -> tuple[dict[int, Estimate], dict[int, list[Ratio]]]:
    """Return times moved from elsewhere to join the only batch that is known at the goal.

    Only batches that lie apart from it and whose time rises with it: they show how the time goes
    with the batch, where proportion alone would count launches as work.
    """
    [(own_batch, own)] = known_at[goal].items()
    others = {at: series for at, series in known_at.items() if at != goal}
    steps = _ways(inputs, goal, others).get(goal)
    if not steps:
        return {}, {}
    series, ratios = _moved(inputs, steps, others[steps[0].first])
    batches = [
        batch
        for batch, estimate in series.items()
        if max(batch / own_batch, own_batch / batch) >= SIMILAR_BATCHES
        and (batch - own_batch) * (estimate.seconds - own.seconds) > 0
        and not estimate.extrapolated
    ]
    return {batch: series[batch] for batch in batches}, {batch: ratios[batch] for batch in batches}


class TransferSource(NamedTuple):
    """The times from which every batch of a model at one GPU and precision is derived.

    ``known`` was measured at ``origin``. ``series`` holds the same times moved to the goal, each
    batch by ``ratios`` of similar batches, never falling with the batch. ``share`` is the fixed
    part of a lone batch's time, as ``share_note`` says. ``shortest_s`` is the shortest iteration
    that ``tensors`` launches allow.
    """

    model: str
    origin: GpuPrecision
    known: Mapping[int, Estimate]
    series: Mapping[int, Estimate]
    ratios: Mapping[int, Sequence[Ratio]]
    share: float
    share_note: str
    shortest_s: float
    tensors: int

    def at(self, batch: int) -> Estimate:
        """Return the iteration at a batch."""
        what = f"{self.model} on {self.origin}"
        notes = at_batch(what, self.known, batch, self.share, self.share_note).notes
        near = sorted(self.ratios, key=lambda known: abs(math.log(known / batch)))
        ratios = self.ratios[near[0]]
        if batch not in self.known:
            ratios = next((steps for known in near if (steps := self.ratios[known])), ())
        estimate = at_batch(what, self.series, batch, self.share, self.share_note)._replace(
            notes=(*notes, *(ratio.note for ratio in ratios)),
        )
        if estimate.seconds >= self.shortest_s:
            return estimate
        note = f"Held at {self.shortest_s * 1e3:.3g} ms, "
        if self.shortest_s < LAUNCHES_S * self.tensors:
            note += "the shortest iteration known of the model."
        else:
            note += f"the least for {self.tensors} tensors at {LAUNCHES_S * 1e3:g} ms each."
        return estimate._replace(
            seconds=self.shortest_s,
            kind=weakest([estimate.kind, "fitted", "derived"]),
            extrapolated=True,
            notes=(*estimate.notes, note),
        )


# 4. How the profile stretches to the new total.


def _stretched_to(
    inputs: TransferInputs, goal: GpuPrecision, batch: int, iteration: Estimate
) -> TransferredProfile:
    """Return the profile at the goal and batch with that iteration, and the iteration's origin."""
    profile = inputs.profile
    same = (profile.gpu, profile.precision, profile.batch) == (*goal, batch)
    scaled = profile
    if not same or not math.isclose(iteration.seconds, profile.iteration_s, rel_tol=1e-9):
        kinds: dict[str, Kind] = {
            name: weakest([kind, "derived"]) for name, kind in profile.kinds.items()
        }
        kinds["iteration_ms"] = iteration.kind
        scaled = replace(
            _stretched(profile, iteration.seconds, inputs.optimizer_s(goal.gpu)),
            gpu=goal.gpu,
            precision=goal.precision,
            batch=batch,
            kinds=kinds,
        )
    quantity = Quantity(
        iteration.seconds,
        "s",
        iteration.kind,
        iteration.source,
        iteration.spread,
        iteration.low,
        iteration.high,
        "samples",
    )
    return TransferredProfile(scaled, quantity, iteration.extrapolated, list(iteration.notes))


def _stretched(profile: Profile, iteration_s: float, optimizer_s: float) -> Profile:
    """Return the profile at another total: its optimizer as given, all else in proportion."""
    rest_s = profile.iteration_s - profile.optimizer_s
    if rest_s <= 0:
        return profile.scaled(iteration_s / profile.iteration_s)
    optimizer_s = min(optimizer_s, _MAX_OPTIMIZER_SHARE * iteration_s)
    factor = (iteration_s - optimizer_s) / rest_s
    return replace(profile.scaled(factor), iteration_s=iteration_s, optimizer_s=optimizer_s)
