"""The computation of a scenario: the nearest profile of its model, carried to what is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

from perfsim.anchor import Carried, carry
from perfsim.catalog import Catalog
from perfsim.cluster.cluster import Cluster
from perfsim.device import Device, load_device
from perfsim.errors import DataError, unknown
from perfsim.positions import BESIDE, read_positions, registered
from perfsim.profile import Profile
from perfsim.profile_file import read_profile
from perfsim.scenario import Scenario

if TYPE_CHECKING:
    from perfsim.gpu_types import Part

__all__ = ["computation", "computations", "find_profile", "model_names"]

Computation = tuple[Profile, Carried, list[str]]
"""The profile as it was taken, as it is carried, and what is to be said."""


def model_names(stems: Iterable[str]) -> dict[str, list[str]]:
    """Return each model's profile names, of file stems ``model.gpu.precision.bBATCH``."""
    names: dict[str, list[str]] = {}
    for stem in stems:
        names.setdefault(stem.split(".")[0], []).append(stem)
    return names


def find_profile(
    model: str, gpu: str, batch: int | None, precision: str | None, catalog: Catalog
) -> Profile:
    """Return the profile of ``model`` nearest to what is asked: GPU, then precision, then batch.

    Raises
    ------
    RequestError
        If no profile of that model exists.
    DataError
        If the profile is damaged or names a GPU that does not exist.
    """
    files = catalog.files("models")
    names = model_names(files)
    if model not in names:
        raise unknown("--model", model, names, "models")

    def distance(stem: str) -> tuple[bool, bool, bool, float, str]:
        of_gpu, of_precision, of_batch = (*stem.split("."), "", "", "")[1:4]
        size = int(of_batch[1:]) if of_batch[1:].isdecimal() else 0
        away = abs(log(size / batch)) if size and batch else 0.0
        wanted = precision or "fp32"
        return (of_gpu != gpu, not of_gpu.startswith("v100"), of_precision != wanted, away, stem)

    stem = min(names[model], key=distance)
    profile = catalog.once(("profile", stem), lambda: read_profile(files[stem]))
    devices = catalog.files("devices")
    if profile.gpu not in devices:
        raise DataError(str(unknown("gpu", profile.gpu, devices, "gpus")), path=profile.path)
    beside = catalog.beside("models", model, BESIDE)
    if beside is None:
        return profile
    layers = [layer.name for layer in profile.layers]
    return replace(profile, positions=read_positions(beside, layers, registered(profile)))


def computation(scenario: Scenario, device: Device, catalog: Catalog) -> Computation:
    """Return the profile as it was taken and as it is carried, and what is to be said.

    Raises
    ------
    RequestError
        If no profile of the model exists, or it cannot be carried to what is asked.
    DataError
        If the profile is damaged or names a GPU that does not exist.
    """
    asked = (scenario.model, device.name, scenario.batch, scenario.precision)
    return catalog.once(("computation", *asked), lambda: _computed(scenario, device, catalog))


def _computed(scenario: Scenario, device: Device, catalog: Catalog) -> Computation:
    notes: list[str] = []
    profile = find_profile(scenario.model, device.name, scenario.batch, scenario.precision, catalog)
    carried = carry(
        profile,
        device,
        scenario.batch or profile.batch,
        scenario.precision or _precision(profile, device, notes),
        catalog,
    )
    return profile, carried, notes


def computations(
    types: Sequence[tuple[str, int]], scenario: Scenario, cluster: Cluster, catalog: Catalog
) -> tuple[tuple[Part, ...], list[str]]:
    """Return the GPUs of each type with the model on them, and what is to be said.

    All have one batch and one precision: as asked, else those of the first type's profile, as far
    as all types compute in that precision.

    Raises
    ------
    RequestError
        If a type does not fill whole nodes, or the model cannot be carried to one of them.
    """
    from perfsim.gpu_types import Part, check_nodes

    check_nodes(types, cluster.placement, scenario.gpus)
    devices = [load_device(name, catalog) for name, _ in types]
    first = find_profile(
        scenario.model, devices[0].name, scenario.batch, scenario.precision, catalog
    )
    notes: list[str] = []
    precision = scenario.precision or next(
        (_precision(first, one, notes) for one in devices if first.precision not in one.rates),
        first.precision,
    )
    update = {"batch": scenario.batch or first.batch, "precision": precision}
    found = []
    for device, (_, count) in zip(devices, types, strict=True):
        _, carried, noted = computation(scenario.model_copy(update=update), device, catalog)
        notes += [*noted, *carried.notes]
        found.append(Part(count, device, carried))
    return tuple(found), list(dict.fromkeys(notes))


def _precision(profile: Profile, device: Device, notes: list[str]) -> str:
    """Return the profile's precision where the GPU has it, else fp32."""
    if profile.precision in device.rates:
        return profile.precision
    notes.append(
        f"fp32, since {device.name} does not compute in {profile.precision} as the profile does."
    )
    return "fp32"
