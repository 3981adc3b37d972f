"""A scenario to the data it names: profile, device, cluster, method and fusion policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import log
from pathlib import Path
from typing import Any

from perfsim import fusion
from perfsim.anchor import Carried, carry, held
from perfsim.catalog import Catalog
from perfsim.cluster.cluster import Cluster
from perfsim.cluster.network import Network
from perfsim.conditions.conditions import Conditions, parse_straggler
from perfsim.device import Device, load_device
from perfsim.errors import DataError, RequestError, unknown, unknown_option
from perfsim.method import Method
from perfsim.methods import load_method, method_name
from perfsim.platform import platform
from perfsim.positions import BESIDE, read_positions, registered
from perfsim.profile import Profile
from perfsim.profile_file import read_profile
from perfsim.quantity import Grade
from perfsim.scenario import Scenario
from perfsim.units import parse_bytes, parse_iteration, parse_seconds

__all__ = ["Resolved", "find_profile", "model_names", "resolve"]


@dataclass
class Resolved:
    """Everything a prediction is made of, checked and loaded."""

    scenario: Scenario
    carried: Carried
    device: Device
    network: Network
    intra_network: Network | None
    cluster: Cluster
    method: Method
    policy_name: str
    policy: fusion.Policy
    limit_bytes: float | None
    notes: list[str]

    @property
    def kernels_s(self) -> float | None:
        """What the method's kernels take in an iteration on one GPU, where that was given [s]."""
        given = self.scenario.single_gpu_kernels
        return None if given is None else parse_seconds(given, "--single-gpu-kernels")

    @property
    def conditions(self) -> Conditions | None:
        """How the ranks differ; None where nothing was asked."""
        scenario = self.scenario
        if not scenario.straggler and not scenario.jitter:
            return None
        slow = tuple(parse_straggler(one) for one in scenario.straggler)
        return Conditions(scenario.gpus, slow, scenario.jitter, scenario.seed)

    @property
    def profile(self) -> Profile:
        """The profile as it is on this GPU at this batch size and precision."""
        return self.carried.profile

    @property
    def grade(self) -> Grade:
        """What computation rests on: given, measured on this GPU at this batch, or carried."""
        if self.scenario.single_gpu:
            return "given"
        known = self.carried.quantity.kind in ("measured", "published")
        return "measured" if known and not self.carried.extrapolated else "carried"

    def fields(self) -> dict[str, Any]:
        """Return the scenario with every default filled in, as --json prints it."""
        scenario = self.scenario
        placement = self.cluster.placement
        return {
            "model": scenario.model,
            "gpus": scenario.gpus,
            "gpus_per_node": max(placement),
            "nodes": len(placement),
            "placement": list(placement) if len(set(placement)) > 1 else None,
            "net": scenario.net,
            "intra_net": self.intra_network.name if self.intra_network else self.network.name,
            "gpu": self.device.name,
            "batch": self.profile.batch,
            "precision": self.profile.precision,
            "method": method_name(scenario.method),
            "options": self.method.in_effect(),
            "fusion": self.policy_name,
            "fusion_options": dict(scenario.fusion_options),
            "bucket_bytes": self.limit_bytes or self.policy.LIMIT_BYTES,
            "algorithm": scenario.algorithm,
            "protocol": scenario.protocol,
            "library": self.cluster.library,
            "oversubscription": scenario.oversubscription,
            "straggler": list(scenario.straggler),
            "jitter": scenario.jitter,
            "background": scenario.background,
            "seed": scenario.seed,
            "overlap": scenario.overlap,
            "overlap_slowdown": scenario.overlap_slowdown,
            "single_gpu_s": self.carried.quantity.value if scenario.single_gpu else None,
            "single_gpu_kernels_s": self.kernels_s,
            "profile": Path(self.profile.path).name,
        }


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


def resolve(scenario: Scenario, catalog: Catalog) -> Resolved:
    """Load and check everything that ``scenario`` names.

    Raises
    ------
    RequestError
        If a name is unknown or the combination is impossible.
    DataError
        If a data file is damaged.
    """
    named, options = scenario.method, scenario.options
    method = catalog.once(
        ("method", named, *((name, repr(value)) for name, value in sorted(options.items()))),
        lambda: load_method(named, options),
    )
    policy_name = scenario.fusion or method.default_fusion()
    policy = catalog.once(("fusion", policy_name), lambda: fusion.load(policy_name))
    _check_fusion_options(policy_name, policy.OPTIONS, scenario.fusion_options)
    gpu = scenario.gpu
    device = catalog.once(("device", gpu), lambda: load_device(gpu, catalog))
    network, intra_network, cluster, notes = platform(scenario, device, catalog)
    asked = (scenario.model, gpu, scenario.batch, scenario.precision)
    profile, carried, noted = catalog.once(
        ("computation", *asked), lambda: _computation(scenario, device, catalog)
    )
    if scenario.single_gpu:
        batch = carried.profile.batch
        carried = held(carried, parse_iteration(scenario.single_gpu, batch, "--single-gpu"))
    limit_bytes = _limit_bytes(scenario, policy_name, policy.LIMIT_BYTES is None)
    own = _own_notes(profile, device, network, catalog)
    return Resolved(
        scenario,
        carried,
        device,
        network,
        intra_network,
        cluster,
        method,
        policy_name,
        policy,
        limit_bytes,
        [*notes, *noted, *own, *carried.notes],
    )


def _computation(
    scenario: Scenario, device: Device, catalog: Catalog
) -> tuple[Profile, Carried, list[str]]:
    """Return the profile as it was taken and as it is carried, and what is to be said."""
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


def _limit_bytes(scenario: Scenario, policy_name: str, sizes_its_own: bool) -> float | None:
    """Return the size of a bucket that is asked for, if any."""
    if not scenario.bucket:
        return None
    if sizes_its_own:
        origin = f"--fusion {policy_name}"
        if not scenario.fusion:
            origin = f"{policy_name!r}, the fusion policy of {method_name(scenario.method)}"
        raise RequestError(
            f"--bucket: {scenario.bucket!r} has no meaning with {origin}, which sets its own sizes;"
            " leave --bucket out."
        )
    return parse_bytes(scenario.bucket, "--bucket")


def _own_notes(profile: Profile, device: Device, network: Network, catalog: Catalog) -> list[str]:
    """Return which of the user's own files are read in place of shipped ones."""
    used = {
        "models": Path(profile.path).name.removesuffix(".csv"),
        "devices": device.name,
        "networks": network.name,
    }
    if not network.path:  # a link of the user's own: no file
        del used["networks"]
    owned = (
        (name, catalog.once(("shadowed", kind, name), partial(catalog.shadowed, kind, name)))
        for kind, name in used.items()
    )
    return [
        f"{name} is read from {own}, in place of the shipped one."
        for name, own in owned
        if own is not None
    ]


def _check_fusion_options(name: str, known: Mapping[str, str], given: Mapping[str, str]) -> None:
    for option in given:
        if option not in known:
            raise unknown_option("--set: ", f"fusion policy {name!r}", option, known)


def _precision(profile: Profile, device: Device, notes: list[str]) -> str:
    """Return the profile's precision where the GPU has it, else fp32."""
    if profile.precision in device.rates:
        return profile.precision
    notes.append(
        f"fp32, since {device.name} does not compute in {profile.precision} as the profile does."
    )
    return "fp32"
