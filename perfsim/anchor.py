"""A profile carried to another GPU, batch or precision, by measured iterations (anchors).

``carry`` scales a profile to what ``profiles/devices/<gpu>.anchors.csv`` say of a GPU, batch and
precision; the profile keeps its shape over the layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfsim.anchor_table import Anchor, Anchors, load_anchors, read_anchors
from perfsim.catalog import Catalog
from perfsim.device import Device, load_device
from perfsim.errors import RequestError
from perfsim.estimate import Estimate, Place, Ratio, at_batch, fixed_share, merged
from perfsim.profile import PRECISIONS, Profile
from perfsim.quantity import Kind, Quantity, weakest
from perfsim.speed import measured_path, rate_ratio

__all__ = ["Anchor", "Anchors", "Carried", "carry", "load_anchors", "read_anchors"]


@dataclass(frozen=True)
class Carried:
    """A profile scaled to a GPU, batch and precision, and what its iteration time rests on."""

    profile: Profile
    quantity: Quantity
    extrapolated: bool
    notes: list[str]


def carry(
    profile: Profile,
    device: Device,
    batch: int,
    precision: str,
    anchors: Catalog | Mapping[str, Sequence[Anchor]],
) -> Carried:
    """Scale ``profile`` to a GPU, batch and precision; its shape over the layers stays.

    In this order: the profile if its total was measured there; what others measured there
    (several sources: their geometric mean, spread by their disagreement); the profile if its
    total was published or derived for there; a line in batch between measured
    neighbours, or beyond them through two that lie apart, its fixed part not below zero; from
    one batch, t = t0 (f + (1 - f) batch / batch0), f the fixed share that other GPUs show; else
    the time at another place (GPU and precision) times the speed ratio of models measured at
    both, over one more place if need be, or of matrix rates and memory bandwidths.

    Parameters
    ----------
    anchors : a catalog, or anchors by GPU name (rates of other GPUs are then the shipped ones)

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision or the batch is below 1.
    """
    if batch < 1:
        raise RequestError(f"--batch: {batch} is below 1.")
    device.matrix_rate(precision)
    catalog, known = (
        (anchors, Anchors(anchors)) if isinstance(anchors, Catalog) else (Catalog(), anchors)
    )
    goal = Place(device.name, precision)
    return _carried(profile, goal, batch, _found(profile, device, goal, batch, known, catalog))


def _found(
    profile: Profile,
    device: Device,
    goal: Place,
    batch: int,
    known: Mapping[str, Sequence[Anchor]],
    catalog: Catalog,
) -> Estimate:
    measured = _known(profile, goal, batch, known)
    if measured and not measured.guessed:
        return measured
    if measured is None and goal.precision == "amp-bf16":
        twin = _found(profile, device, Place(goal.gpu, "amp-fp16"), batch, known, catalog)
        note = f"{goal}: no measurement in amp-bf16, taken as amp-fp16 (the same matrix rate)."
        return replace(twin, kind="derived", notes=(*twin.notes, note))
    there = _elsewhere(profile, goal, batch, known)
    # A place measured at this batch goes before one that is itself carried over batches.
    near = sorted(
        (at for at, one in there.items() if not one.guessed), key=lambda at: there[at].extrapolated
    )
    path = measured_path(known, near, goal, batch)
    if path is None and measured is None:
        path = measured_path(known, list(there), goal, batch)
    if path:
        return _chained(there[path[0]], path[1])
    return measured or _by_rates(profile, device, goal, batch, known, catalog)


def _elsewhere(
    profile: Profile, goal: Place, batch: int, known: Mapping[str, Sequence[Anchor]]
) -> dict[Place, Estimate]:
    """Return the iteration at other places: this GPU, this precision, then the profile's own."""
    home = Place(profile.gpu, profile.precision)
    alike = [Place(gpu, goal.precision) for gpu in (home.gpu, *known)]
    places = dict.fromkeys([Place(goal.gpu, home.precision), *alike, home])
    found = {at: _known(profile, at, batch, known) for at in places if at != goal}
    return {at: estimate for at, estimate in found.items() if estimate}


def _chained(estimate: Estimate, ratios: Sequence[Ratio]) -> Estimate:
    for ratio in ratios:
        estimate = estimate.times(ratio, "derived")
    return estimate


def _series(
    profile: Profile, place: Place, known: Mapping[str, Sequence[Anchor]]
) -> dict[int, Estimate]:
    """Return what is known of the model at a place, by batch.

    The profile fills a gap; where its own total was measured, it goes before what others found.
    """
    computed_s = profile.forward_s + profile.backward_s
    whole = profile.iteration_s / computed_s if computed_s > 0 else 1.0
    figures: dict[int, list[Estimate]] = {}
    for anchor in known.get(place.gpu, ()):
        if anchor.use != "level" or anchor.precision != place.precision:
            continue
        if (anchor.model, anchor.sequence) == (profile.model, profile.sequence):
            factor = whole if anchor.covers == "forward_backward" else 1.0
            figures.setdefault(anchor.batch, []).append(
                Estimate(
                    anchor.iteration_s * factor,
                    anchor.kind if factor == 1.0 else weakest([anchor.kind, "derived"]),
                    anchor.source,
                    anchor.spread,
                )
            )
    series = {batch: merged(same) for batch, same in figures.items()}
    if place == Place(profile.gpu, profile.precision):
        kind = profile.kinds.get("iteration_ms", "derived")
        own = Estimate(profile.iteration_s, kind, profile.header.get("source", "the profile"))
        if kind == "measured" or profile.batch not in series:
            series[profile.batch] = own
    return series


def _known(
    profile: Profile, place: Place, batch: int, known: Mapping[str, Sequence[Anchor]]
) -> Estimate | None:
    """Return the iteration at a place from what was measured there, by batch."""
    series = _series(profile, place, known)
    if not series:
        return None
    share, shown = 0.0, ""
    if len(series) == 1 and batch not in series:
        places = [Place(gpu, at) for gpu in known for at in PRECISIONS]
        others = {other: _series(profile, other, known) for other in places}
        share, shown = fixed_share(next(iter(series)), others, place)
    return at_batch(f"{profile.model} on {place}", series, batch, share, shown)


def _by_rates(
    profile: Profile,
    device: Device,
    goal: Place,
    batch: int,
    known: Mapping[str, Sequence[Anchor]],
    catalog: Catalog,
) -> Estimate:
    """Return the iteration by the rates of two GPUs, at one precision where that can be."""
    home = Place(profile.gpu, profile.precision)
    there = _elsewhere(profile, goal, batch, known)
    alike = [at for at, one in there.items() if at.precision == goal.precision and not one.guessed]
    start = _nearest(alike, home, device, catalog)
    ratios: list[Ratio] = []
    estimate = replace(there[start], extrapolated=True)
    if not alike:
        start, ratios = _toward(goal, home, batch, known)
    origin = _device(start, device, catalog)
    return _chained(estimate, [*ratios, rate_ratio(profile, origin, start, device, goal)])


def _device(place: Place, device: Device, catalog: Catalog) -> Device:
    return device if place.gpu == device.name else load_device(place.gpu, catalog)


def _nearest(alike: list[Place], home: Place, device: Device, catalog: Catalog) -> Place:
    """Return home if it computes alike, else the GPU whose memory bandwidth comes nearest."""
    if home in alike or not alike:
        return home

    def apart(at: Place) -> float:
        bandwidth = _device(at, device, catalog).memory_bandwidth.value
        return abs(math.log(bandwidth / device.memory_bandwidth.value))

    return min(alike, key=apart)


def _toward(
    goal: Place, home: Place, batch: int, known: Mapping[str, Sequence[Anchor]]
) -> tuple[Place, list[Ratio]]:
    """Return a GPU at the goal's precision that measurements lead to from home, or home."""
    for gpu in known:
        between = Place(gpu, goal.precision)
        path = measured_path(known, [home], between, batch) if between != goal else None
        if path:
            return between, path[1]
    return home, []


def _carried(profile: Profile, goal: Place, batch: int, found: Estimate) -> Carried:
    same = (profile.gpu, profile.precision, profile.batch) == (*goal, batch)
    factor = found.seconds / profile.iteration_s
    scaled = profile
    if not same or not math.isclose(factor, 1.0, rel_tol=1e-9):
        kinds: dict[str, Kind] = {
            name: weakest([kind, "derived"]) for name, kind in profile.kinds.items()
        }
        kinds["iteration_ms"] = found.kind
        scaled = replace(
            profile.scaled(factor),
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
    return Carried(scaled, quantity, found.extrapolated, list(found.notes))
