"""A scenario to the data it names: profile, device, cluster, method and fusion policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsim import fusion
from perfsim.anchor import Carried, held
from perfsim.catalog import Catalog
from perfsim.cluster.cluster import Cluster
from perfsim.cluster.network import Network
from perfsim.computation import computation, computations
from perfsim.conditions.conditions import Conditions, parse_straggler
from perfsim.device import Device, load_device
from perfsim.errors import RequestError, unknown_option
from perfsim.gpu_names import parse_types
from perfsim.method import Method
from perfsim.methods import load_method, method_name
from perfsim.platform import platform
from perfsim.profile import Profile
from perfsim.quantity import Grade
from perfsim.scenario import Scenario
from perfsim.units import parse_bytes, parse_iteration, parse_seconds

if TYPE_CHECKING:
    from perfsim.gpu_types import Part

__all__ = ["Resolved", "resolve"]


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
    beside: tuple[Resolved, ...] = ()
    parts: tuple[Part, ...] = ()

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
        each = [part.carried for part in self.parts] or [self.carried]
        known = all(
            one.quantity.kind in ("measured", "published") and not one.extrapolated for one in each
        )
        return "measured" if known else "carried"

    @property
    def alone_s(self) -> float:
        """An iteration on one GPU [s]; of several types, on one that is as fast as their mean."""
        if self.parts:
            from perfsim.gpu_types import alone_s

            return alone_s(self.parts)
        return self.profile.alone_s

    def fields(self) -> dict[str, Any]:
        """Return the scenario with every default filled in, as --json prints it."""
        scenario = self.scenario
        cluster = self.cluster
        return {
            "model": scenario.model,
            "gpus": scenario.gpus,
            "gpus_per_node": cluster.gpus_per_node,
            "nodes": cluster.nodes,
            "placement": list(cluster.uneven) or None,
            "net": scenario.net,
            "intra_net": self.intra_network.name if self.intra_network else self.network.name,
            "gpu": scenario.gpu if self.parts else self.device.name,
            "batch": self.profile.batch,
            "precision": self.profile.precision,
            "method": method_name(scenario.method),
            "options": self.method.in_effect(),
            "fusion": self.policy_name,
            "fusion_options": dict(scenario.fusion_options),
            "bucket_bytes": self.limit_bytes or self.policy.LIMIT_BYTES,
            "algorithm": scenario.algorithm,
            "protocol": scenario.protocol,
            "library": cluster.library,
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
            **({"beside": list(scenario.beside)} if scenario.beside else {}),
        }


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
    types = parse_types(scenario.gpu)
    gpu = types[0][0] if types else scenario.gpu
    device = catalog.once(("device", gpu), lambda: load_device(gpu, catalog))
    network, intra_network, cluster, notes = platform(scenario, device, catalog)
    profile, carried, noted = computation(scenario, device, catalog)
    parts: tuple[Part, ...] = ()
    if len(types) > 1:
        parts, noted = computations(types, scenario, cluster, catalog)
        slowest = max(parts, key=lambda part: part.alone_s)
        device, carried = slowest.device, slowest.carried
    if scenario.single_gpu:
        batch = carried.profile.batch
        carried = held(carried, parse_iteration(scenario.single_gpu, batch, "--single-gpu"))
    limit_bytes = _limit_bytes(scenario, policy_name, policy.LIMIT_BYTES is None)
    own = _own_notes(profile, device, network, catalog)
    beside, others = _beside(scenario, catalog)
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
        [*notes, *noted, *own, *([] if parts else carried.notes), *others],
        beside,
        parts,
    )


def _beside(scenario: Scenario, catalog: Catalog) -> tuple[tuple[Resolved, ...], list[str]]:
    """Return the other jobs on the network, loaded, and what is to be said of them."""
    found, notes = [], []
    for name in scenario.beside:
        from perfsim.conditions.other_jobs import other_job

        asked, noted = other_job(name, scenario, catalog)
        try:
            found.append(resolve(asked, catalog))
        except RequestError as error:
            raise RequestError(f"--beside: {Path(name).name}: {error}") from None
        notes += noted
    return tuple(found), notes


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
