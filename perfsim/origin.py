"""What all batches of a model at one GPU and precision are carried from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfsim.estimate import ALIKE, Estimate, Place, Ratio, at_batch, fixed_share, rising
from perfsim.ground import Ground
from perfsim.ground import places as all_places
from perfsim.ground import series as series_at
from perfsim.quantity import weakest
from perfsim.speed import Step, Ways, measured_ways, speed_ratio

__all__ = ["LAUNCHES_S", "Origin", "origin"]

LAUNCHES_S = 0.15e-3
"""Least time a parameter tensor that an iteration takes [s], for launches and host (fitted).

Just below the lowest anchors: MXNet's Inception-v3 at batch 1 on a V100 (0.157 ms;
apache/mxnet@054aeee), and PyTorch's ResNets and DenseNets at batch 12 on an A100 (0.198 to
0.26 ms; ryujaehun/pytorch-gpu-benchmark@3f47a9e).
"""


class Origin(NamedTuple):
    """What all batches of a model at one GPU and precision are carried from.

    ``known`` was measured at ``place``; ``series`` is the same carried to the goal, each batch
    by ``ratios`` of batches alike, and never falls with the batch. ``least_s`` is the least that
    ``tensors`` launches take.
    """

    model: str
    place: Place
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


def origin(ground: Ground, goal: Place) -> Origin:
    """Return what the model is carried from to the goal, as ``carry`` says.

    What is known there, else at a place that chip, measured ratios or rates lead from.
    """
    profile = ground.profile
    places = {place: series_at(ground, place) for place in all_places(ground, goal)}
    if not places[goal] and goal.precision == "amp-bf16":
        twin = origin(ground, Place(goal.gpu, "amp-fp16"))
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
    return Origin(
        profile.model, start, known, rising(series), ratios, share, shown, least_s, tensors
    )


def _along(
    ground: Ground, steps: Sequence[Step], known: Mapping[int, Estimate]
) -> tuple[dict[int, Estimate], dict[int, list[Ratio]]]:
    """Return times by batch carried over the steps, and the ratios of each batch."""
    ratios = {batch: [ground.ratio(step, batch) for step in steps] for batch in known}
    series = dict(known)
    for batch, found in ratios.items():
        for ratio in found:
            series[batch] = series[batch].times(ratio)
    return series, ratios


def _beside(
    ground: Ground, goal: Place, places: Mapping[Place, Mapping[int, Estimate]]
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
        if max(batch / own, own / batch) >= ALIKE
        and (batch - own) * (one.seconds - at.seconds) > 0
        and not one.extrapolated
    ]
    return {batch: series[batch] for batch in fits}, {batch: ratios[batch] for batch in fits}


def _ways(ground: Ground, goal: Place, places: Mapping[Place, Mapping[int, Estimate]]) -> Ways:
    """Return the ways from places where the model is known, to the goal if there is one.

    A place that shows how the time goes with the batch, and the profile's own, go before others.
    """
    profile, known = ground.profile, ground.known
    between = {Place(gpu, a.precision) for gpu in known for a in known[gpu]}
    starts = [place for place, series in places.items() if series]
    sure = sorted(
        (
            place
            for place in starts
            if len(places[place]) > 1 or place.precision == goal.precision or place == ground.home
        ),
        key=lambda place: place.precision != goal.precision,
    )

    def measured(first: Place, second: Place) -> bool:
        return speed_ratio(known, first, second, profile.batch, profile.model) is not None

    ways: Ways = {}
    for begin in (sure, starts):
        ways = measured_ways(begin, sorted({*between, goal}), measured)
        if goal in ways:
            break
    return ways


def _steps(
    ground: Ground, goal: Place, places: Mapping[Place, Mapping[int, Estimate]]
) -> list[Step]:
    """Return the steps to the goal from a place where the model is known, the last by rates."""
    ways = _ways(ground, goal, places)
    if goal in ways:
        return ways[goal]
    nearest = _nearest(ground, goal, ways)
    return [*ways[nearest], Step(nearest, goal)]


def _nearest(ground: Ground, goal: Place, ways: Ways) -> Place:
    """Return home if it computes alike, else the GPU of the fewest steps, then nearest memory."""
    alike = [place for place in ways if place.precision == goal.precision]
    if ground.home in alike or not alike:
        return ground.home
    own = ground.gpu(goal.gpu).memory_bandwidth.value

    def apart(at: Place) -> tuple[int, float]:
        bandwidth = ground.gpu(at.gpu).memory_bandwidth.value
        return len(ways[at]), abs(math.log(bandwidth / own))

    return min(alike, key=apart)
