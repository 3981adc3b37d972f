"""What is known of a model, by place and batch: its profile, the anchors of all GPUs, the GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfsim.anchor_table import Anchor
from perfsim.catalog import Catalog
from perfsim.device import Device, load_device
from perfsim.errors import RequestError
from perfsim.estimate import Estimate, Place, Ratio, merged, rising
from perfsim.profile import PRECISIONS, Profile
from perfsim.quantity import weakest
from perfsim.speed import Step, rate_ratio, speed_ratio

__all__ = ["Ground", "places", "series"]


class Ground(NamedTuple):
    """A profile, the GPU it goes to, and all anchors and GPUs."""

    profile: Profile
    device: Device
    known: Mapping[str, Sequence[Anchor]]
    catalog: Catalog

    @property
    def home(self) -> Place:
        """Where the profile was made."""
        return Place(self.profile.gpu, self.profile.precision)

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

    def ratio(self, step: Step, batch: int) -> Ratio:
        """Return how much longer the second place takes: measured at like batches, or by rates."""
        first, second, chip = step
        if not chip:
            found = speed_ratio(self.known, first, second, batch, self.profile.model)
            if found:
                return found
        here, there = self.gpu(first.gpu), self.gpu(second.gpu)
        return rate_ratio(self.profile, here, first, there, second, chip)


def places(ground: Ground, goal: Place) -> list[Place]:
    """Return all places: this GPU's, this precision's, the profile's own, then the others."""
    home = ground.home
    alike = [Place(gpu, goal.precision) for gpu in (home.gpu, *ground.known)]
    others = [Place(gpu, at) for gpu in ground.known for at in PRECISIONS]
    first = [goal, Place(goal.gpu, home.precision), *alike, home]
    return list(dict.fromkeys([*first, *others]))


def series(ground: Ground, place: Place) -> dict[int, Estimate]:
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
    known = {batch: merged(same) for batch, same in figures.items()}
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
