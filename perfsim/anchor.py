"""A profile carried to another GPU, batch or precision, by measured iterations (anchors).

``carry`` scales a profile to what ``profiles/devices/<gpu>.anchors.csv`` say of a GPU, batch and
precision; the profile keeps its shape over the layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from perfsim.anchor_table import Anchor, Anchors, load_anchors, read_anchors
from perfsim.catalog import Catalog
from perfsim.device import Device
from perfsim.errors import RequestError
from perfsim.estimate import Estimate, Place
from perfsim.ground import Ground
from perfsim.origin import Origin, origin
from perfsim.profile import Profile
from perfsim.quantity import Kind, Quantity, weakest

__all__ = ["Anchor", "Anchors", "Carried", "base", "carry", "held", "load_anchors", "read_anchors"]

OPTIMIZER_MOST = 0.7
"""Most of an iteration that the optimizer takes: Adam passes over the parameters 7 times, and
forward and backward at least 3 (both read them, one writes gradients)."""


class Carried(NamedTuple):
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
        raise RequestError(f"--batch: {batch} is below 1.")
    device.matrix_rate(precision)
    ground = _ground(profile, device, anchors)
    goal = Place(device.name, precision)
    return _carried(ground, goal, batch, origin(ground, goal).at(batch))


def held(carried: Carried, seconds: float) -> Carried:
    """Return a profile held to an iteration that the user measured on one GPU [s].

    The optimizer's time stays; forward, backward and what the host adds take the rest.
    """
    quantity = Quantity(seconds, "s", "measured", "given with the scenario (single_gpu)")
    profile = carried.profile
    return Carried(
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
) -> Origin:
    """Return what all batches of ``profile``'s model are carried from, as ``carry`` says.

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision.
    """
    device.matrix_rate(precision)
    return origin(_ground(profile, device, anchors), Place(device.name, precision))


def _ground(
    profile: Profile, device: Device, anchors: Catalog | Mapping[str, Sequence[Anchor]]
) -> Ground:
    if isinstance(anchors, Catalog):
        return Ground(profile, device, Anchors(anchors), anchors)
    return Ground(profile, device, anchors, Catalog())


def _carried(ground: Ground, goal: Place, batch: int, found: Estimate) -> Carried:
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
    return Carried(scaled, quantity, found.extrapolated, list(found.notes))


def _stretched(profile: Profile, iteration_s: float, optimizer_s: float) -> Profile:
    """Return the profile at another total: its optimizer as given, all else in proportion."""
    rest_s = profile.iteration_s - profile.optimizer_s
    if rest_s <= 0:
        return profile.scaled(iteration_s / profile.iteration_s)
    optimizer_s = min(optimizer_s, OPTIMIZER_MOST * iteration_s)
    factor = (iteration_s - optimizer_s) / rest_s
    return replace(profile.scaled(factor), iteration_s=iteration_s, optimizer_s=optimizer_s)
