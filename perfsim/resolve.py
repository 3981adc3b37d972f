"""Scenario -> Setup: load what a scenario names, and check that it fits together.

A `Setup` has the profile, the device, the cluster, the method and the fusion policy; a
`ResolvedScenario` is the scenario with every default filled in, as a prediction shows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import log
from operator import attrgetter
from os.path import basename
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim import fusion
from perfsim.compute.attention import (
    check_kernel,
    check_kernel_precision,
    known_attention,
    usual_kernel,
)
from perfsim.compute.device import Device
from perfsim.compute.documents import documents_note, tokens_of_documents
from perfsim.compute.execution import execution_of
from perfsim.compute.host_offload import (
    NOTHING,
    PARAMETERS,
    HostRanks,
    blocks_note,
    blocks_to_host,
    check_blocks,
    parameters_note,
    updated_on_host,
)
from perfsim.compute.kernel import FLOAT
from perfsim.compute.kernel_time import kernel_rates
from perfsim.compute.micro_batches import added_bytes, with_added
from perfsim.compute.mixed_precision import (
    check_half_weights,
    check_lora_dtype,
    check_value_types,
    notes_on_autocast,
    notes_on_residuals,
)
from perfsim.compute.node_load import node_load
from perfsim.compute.profile import (
    HALF_PRECISIONS,
    POSITIONS_SUFFIX,
    Profile,
    matches_definition,
    model_named,
    own_profile,
    read_profile,
    with_positions,
)
from perfsim.compute.recompute import check_recompute
from perfsim.compute.slowest_gpu import slowest_gpu, with_slowest
from perfsim.compute.software import EFFICIENT, NEWEST, without
from perfsim.compute.transfer import (
    Training,
    TransferredProfile,
    gradient_bytes,
    kernel_profile,
    pin_iteration,
    transfer,
)
from perfsim.conditions.spec import Conditions, parse_straggler
from perfsim.data.catalog import Catalog, unknown_name
from perfsim.data.files import is_there
from perfsim.errors import (
    DataError,
    RequestError,
    UnknownNameError,
    own_name,
    shown,
    unknown,
    unknown_option,
)
from perfsim.hardware.gpus import device_in_era
from perfsim.hardware.networks import measured_on, named_network
from perfsim.hardware.nodes import named_node_type, names_network, with_usual_network
from perfsim.hardware.notes import unused_network
from perfsim.hardware.platform import platform
from perfsim.interval import UNCERTAINTY_FILE
from perfsim.methods import host_options, load_method, method_class, method_name
from perfsim.methods.base import Method, MethodContext
from perfsim.methods.building.host_hooks import with_host
from perfsim.models import (
    MODELS,
    NAMED,
    build_model,
    has_attention,
    has_experts,
    is_defined,
    own_tokens,
    takes_tokens,
)
from perfsim.models.adapters import (
    AS_COMPUTED,
    FLOAT_BITS,
    HALF_BITS,
    WIDE,
    Adapters,
    adapted_name,
    check_adapters,
)
from perfsim.models.named import without_owner
from perfsim.models.specification import canonical_model
from perfsim.network.cluster import Cluster
from perfsim.network.network_file import Network
from perfsim.network.node_type import by_vendor
from perfsim.note import assumption, briefs, warning
from perfsim.quantity import Grade
from perfsim.scenario import (
    DEFAULT_GPU,
    Scenario,
    gpu_words,
    own_values,
    parse_types,
    values_read_by,
)
from perfsim.units import parse_bytes, parse_iteration, parse_seconds

if TYPE_CHECKING:
    from perfsim.compute.gpu_types import GpuGroup
    from perfsim.model_parallel import ModelSplit

__all__ = [
    "ResolvedScenario",
    "Setup",
    "as_named",
    "computation",
    "computations",
    "find_profile",
    "first_device",
    "model_names",
    "resolve",
    "resolve_like",
    "unknown_model",
    "with_gpu",
    "with_own_names",
]

Computation = tuple[Profile, TransferredProfile, list[str]]
"""The profile as it was measured, the profile on the GPU that is asked for, and notes."""


def model_names(stems: Iterable[str]) -> dict[str, list[str]]:
    """Return each model's profile names, of file stems ``model.gpu.precision.bBATCH``."""
    names: dict[str, list[str]] = {}
    for stem in stems:
        names.setdefault(stem.split(".")[0], []).append(stem)
    return names


def _profiles_of(catalog: Catalog) -> dict[str, list[str]]:
    """Return the names of a catalog's profiles by model."""
    return catalog.once(("profiles by model",), lambda: model_names(catalog.files("models")))


def find_profile(
    model: str, gpu: str, batch: int | None, precision: str | None, catalog: Catalog
) -> Profile:
    """Find the profile of ``model`` nearest to what is asked: GPU, then precision, then batch.

    Raises
    ------
    RequestError
        If no profile of that model exists.
    DataError
        If the profile is damaged, or names another GPU than its file's name does, which is none.
    """
    files = catalog.files("models")
    names = _profiles_of(catalog)
    if model not in names:
        raise unknown_model(model, names)
    devices = catalog.files("devices")

    def distance(stem: str) -> tuple[bool, bool, bool, bool, float, str]:
        of_gpu, of_precision, of_batch = (*stem.split("."), "", "", "")[1:4]
        size = int(of_batch[1:]) if of_batch[1:].isdecimal() else 0
        away = abs(log(size / batch)) if size and batch else 0.0
        wanted = precision or "fp32"
        described = of_gpu in devices
        same = of_precision != wanted
        return (of_gpu != gpu, not described, not of_gpu.startswith("v100"), same, away, stem)

    stem = min(names[model], key=distance)
    profile = catalog.once(("profile", stem), lambda: read_profile(files[stem]))
    if profile.gpu not in devices and (*stem.split("."), "")[1] != profile.gpu:
        missing = unknown("gpu", profile.gpu, devices, "gpus")
        raise DataError(f"{missing.field}: {missing.why}", path=profile.path)
    _check_described(profile, model, gpu, catalog)
    return catalog.once(
        ("profile", stem, "positions"),
        lambda: with_positions(profile, catalog.beside("models", model, POSITIONS_SUFFIX)),
    )


def _check_described(profile: Profile, model: str, gpu: str, catalog: Catalog) -> None:
    """Refuse to move a profile from a GPU that nothing but this profile describes."""
    if profile.gpu in (gpu, *catalog.files("devices")):
        return
    raise RequestError(
        "gpu",
        f"the profile of {model} was measured on {profile.gpu}, which no device file describes: it"
        f" says nothing of {gpu}. Allowed: {profile.gpu}; or measure there (`perfsim calibrate"
        " compute`).",
        value=gpu,
    )


_OTHER_WAYS = (
    "give your own: a profile CSV, a config.json, transformer:..., generic:..., or measure it"
    " (`perfsim calibrate compute`)."
)


def with_own_names(scenario: Scenario, catalog: Catalog) -> Scenario:
    """Return a scenario with model, networks and node type named as their files are.

    They may be asked for in any case, with or without dashes, as GPUs and methods are; a model also
    as its weights are on huggingface.co, a node type as its cloud calls it.

    Examples
    --------
    >>> from perfsim.scenario import make_scenario
    >>> asked = make_scenario({"model": "ResNet-50", "gpus": 8, "net": "1GbE"})
    >>> named = with_own_names(asked, Catalog())
    >>> named.model, named.net
    ('resnet50', '1gbe')
    """
    changed = {}
    for field in _NAMES:
        asked = getattr(scenario, field)
        if asked is not None and (named := as_named(field, asked, catalog)) != asked:
            changed[field] = named
    return scenario.model_copy(update=changed) if changed else scenario


_NAMES: Mapping[str, tuple[str, ...]] = {
    "model": (),
    "net": ("networks", "nodes"),
    "intra_net": ("networks", "nodes"),
    "node": ("nodes",),
}
"""Fields that name something that ships or is in a folder of the user's, and in which."""

_STATED = re.compile(r"[,:/\\]")
"""Stands in links, models by their numbers and paths, which are no names."""
_WEIGHTS = re.compile(r"([\w-]+/)?[\w.-]+(?<!\.csv)(?<!\.json)(?<!\.toml)")
"""How weights are named on huggingface.co, with or without their owner."""


def as_named(field: str, name: str, catalog: Catalog) -> str:
    """Return the name of what a field names; a text that is no such name as it is."""
    if field == "model" and name in MODELS:
        return name
    kinds: list[Collection[str]] = [catalog.files(kind) for kind in _NAMES[field]]
    if field == "model":
        kinds = [_profiles_of(catalog), MODELS, NAMED]
    for kind in kinds:
        if name in kind:
            return name
    weights = field == "model" and _WEIGHTS.fullmatch(name) and not os.path.exists(name)
    if (_STATED.search(name) and not weights) or is_there(name):
        return name

    def found() -> str:
        names = {known for kind in kinds for known in kind}
        for one in (name, *(without_owner(name) if weights else ())):
            if (own := own_name(one, names)) in names:
                return own
        return name if field == "model" else by_vendor(name, catalog) or name

    return catalog.once(("own name", field, name), found)


def unknown_model(model: str, names: Iterable[str]) -> RequestError:
    """Return the error for a model that nobody knows, with the ways to state one."""
    from perfsim.scenario_file import is_scenario_file

    if is_scenario_file(model):
        why = (
            f"{shown(model)} is a scenario; give it as `perfsim predict {model}`, or as `scenario`."
        )
        return UnknownNameError("model", why, value=model)
    error = unknown_name("model", model, {*names, *MODELS, *NAMED}, "models")
    return error.or_else(_OTHER_WAYS)


def _stated_profile(
    scenario: Scenario, device: Device, notes: list[str], autocast: bool
) -> Profile:
    """Return the profile of a model without a measured one: its kernels on the GPU asked for."""
    model = canonical_model(scenario.model)
    precision = scenario.precision
    if precision is None:
        precision = next(word for word in _USUAL_PRECISIONS if word in device.rates)
    if scenario.lora is not None:
        kind = _adapted_kind(scenario, precision, autocast=autocast)
        model = adapted_name(model, Adapters(scenario.lora, scenario.lora_layers, *kind))
        build_model(model)
    batch = scenario.batch or 1
    assumed = [] if scenario.batch else ["`batch` 1"]
    assumed += [] if scenario.precision else [f"`precision` {precision}"]
    sequence = None
    if takes_tokens(model):
        sequence = scenario.seq or own_tokens(model)
        assumed += [] if scenario.seq else [f"`seq` {sequence}"]
    if assumed:
        values = ", ".join(assumed)
        text = f"{values}: assumptions, as nothing of the model was measured."
        notes.append(assumption(text, values))
    device.matrix_rate(precision)
    era = scenario.software or NEWEST
    return kernel_profile(
        model, device, batch, precision, era, scenario.seq, sequence, autocast=autocast
    )


def _adapted_kind(
    scenario: Scenario, precision: str, *, autocast: bool
) -> tuple[int, bool, bool, bool]:
    """Return whether a model with adapters is packed and wide, they are fp32, and drop values.

    They cast nothing where all values are fp32 already.
    """
    half = precision in HALF_PRECISIONS
    wide = half and scenario.residual_dtype == WIDE
    packed = 0
    if scenario.lora_base != AS_COMPUTED:
        packed = HALF_BITS if half else FLOAT_BITS
    fp32 = scenario.lora_dtype == WIDE and not (wide and not autocast)
    return packed, wide, fp32, scenario.lora_dropout > 0.0


_USUAL_PRECISIONS = ("amp-bf16", "amp-fp16", "fp32")
"""What a model without a profile is trained in: the first that the GPU has."""


def with_gpu(scenario: Scenario, catalog: Catalog) -> tuple[Scenario, list[str]]:
    """Return the scenario with a GPU, and a note where none was asked for.

    It is the GPU of the node type, that the network was measured on, of the profile that is given
    as the model, that a node type sold with any usually has, or of the model's only profile, the
    first of these that there is. A GPU that only the model's profile describes goes before the
    network's and the usual one: the model can be moved to no other.
    """
    if scenario.gpu is not None:
        return scenario, []
    key = "gpu", *_gpu_follows_from(scenario)
    gpu, note = catalog.once(key, lambda: _usual_gpu(scenario, catalog))
    return scenario.model_copy(update={"gpu": gpu}), [note]


_gpu_follows_from = attrgetter("model", "net", "node", "nic", "nics_per_node")
"""Returns the fields of a scenario that say which GPU is taken where none is named."""


def _usual_gpu(scenario: Scenario, catalog: Catalog) -> tuple[str, str]:
    """Return the GPU of a scenario that names none, and the note on it (see `with_gpu`)."""
    own = own_profile(scenario.model, catalog)
    stems = _profiles_of(catalog).get(scenario.model, [])
    profiled = {own.gpu} if own else {(*stem.split("."), "")[1] for stem in stems}
    node = named_node_type(scenario, catalog)
    gpu = node.gpu if node else ""
    alone = len(profiled) == 1 and profiled.isdisjoint(catalog.files("devices"))
    if not gpu and not alone and scenario.net != scenario.node:
        gpu = measured_on(named_network(scenario.net, "net", catalog), catalog) or ""
    usual = node.usual_gpu if node and not alone and own is None else ""
    if gpu:
        why = f"that of {scenario.node or scenario.net}"
    elif gpu := usual:
        why = f"usual in {scenario.node or scenario.net}, which has any"
    elif len(profiled) == 1 and (gpu := profiled.pop()):
        why = "that of its profile" if own else f"that of the only profile of {scenario.model}"
    else:
        gpu, why = DEFAULT_GPU, "an assumption"
    if node and node.gpu:
        return gpu, f"`gpu` {gpu}, {why}."
    return gpu, assumption(f"`gpu` {gpu}, {why}; name yours.", f"`gpu` {gpu}")


def autocasts(scenario: Scenario, method: Method) -> bool:
    """Tell whether mixed precision casts an fp32 model's values at each operation.

    It is as asked, else as the method's code does. Codes that divide models keep parameters in 16
    bits, as has a model without parameters in fp32, and one beside which adapters alone are fp32.
    """
    if not scenario.master_weights:
        return False
    if scenario.autocast is not None:
        return scenario.autocast
    if scenario.lora_dtype == WIDE:
        return False
    return not _is_divided(scenario) and method.autocasts()


def _is_divided(scenario: Scenario) -> bool:
    """Tell whether the model is divided among ranks."""
    return max(scenario.tp, scenario.pp, scenario.cp, scenario.ep) > 1


def computation(
    scenario: Scenario, device: Device, catalog: Catalog, *, autocast: bool = True
) -> Computation:
    """Find the model's profile and transfer it to the GPU, batch and precision that are asked for.

    ``autocast`` is that of `perfsim.compute.transfer.Training`.

    Raises
    ------
    RequestError
        If no profile of the model exists, it cannot be transferred, or the kernel of attention
        that is asked for does not run there, or on parts of the tokens.
    DataError
        If the profile is damaged or names a GPU that does not exist.
    """
    era = kernel_era(scenario)
    check_kernel(era, device)
    if scenario.cp > 1 and execution_of(era).masked:
        other = without(EFFICIENT, era)
        why = f"PyTorch's context parallelism takes no mask; leave it out, or take {other}."
        raise RequestError("cp", why, value=scenario.cp)
    if device.measured_as:
        device = device_in_era(device.measured_as, device.software, catalog)
    fields = values_read_by("compute", scenario, without="gpu")
    divided = _is_divided(scenario)
    asked = "computation", device.name, autocast, divided, *fields
    return catalog.once(
        asked, lambda: _computed(scenario, device, catalog, autocast, divided=divided)
    )


def _computed(
    scenario: Scenario, device: Device, catalog: Catalog, autocast: bool, *, divided: bool
) -> Computation:
    notes: list[str] = []
    profile = _profile(scenario, device, notes, catalog, autocast=autocast)
    check_recompute(profile, scenario.recompute)
    _check_optimizer(scenario, profile)
    precision = scenario.precision or profile.precision
    check_half_weights(precision, master_weights=scenario.master_weights)
    check_kernel_precision(kernel_era(scenario), precision)
    check_lora_dtype(
        precision,
        kernel_era(scenario),
        scenario.lora_dtype,
        casts=autocast,
        master_weights=scenario.master_weights,
    )
    check_value_types(
        precision,
        kernel_era(scenario),
        scenario.autocast,
        scenario.residual_dtype,
        casts=autocast,
        master_weights=scenario.master_weights,
    )
    document_tokens = tokens_of_documents(scenario.document_tokens, scenario.seq, profile)
    transferred = transfer(
        profile,
        device,
        scenario.batch or profile.batch,
        scenario.precision or _precision(profile, device, notes),
        catalog,
        scenario.software,
        scenario.seq,
        Training(
            scenario.optimizer,
            scenario.recompute,
            scenario.reduce_dtype,
            autocast,
            scenario.master_weights,
            launches_experts=not divided and _launches_experts(scenario, profile),
            document_tokens=document_tokens,
        ),
    )
    if document_tokens is not None:
        notes.append(documents_note(document_tokens, transferred.profile, transferred.era))
    if own_profile(scenario.model, catalog) is not None:
        transferred = _named_after(transferred, scenario.model)
    return profile, transferred, notes


def _named_after(transferred: TransferredProfile, path: str) -> TransferredProfile:
    """Name the user's file first in the sources of its times."""
    profile, quantity = transferred.profile, transferred.quantity
    header = profile.header | {"source": f"{path}: {profile.header['source']}"}
    return transferred._replace(
        profile=replace(profile, header=header),
        quantity=quantity._replace(source=f"{path}: {quantity.source}"),
    )


def _check_optimizer(scenario: Scenario, profile: Profile) -> None:
    """Refuse an update that multiplies matrices where these are not known."""
    if scenario.optimizer == "muon" and not matches_definition(profile):
        why = (
            f"multiplies the matrices of the layers, and perfsim has no layers of {profile.model};"
            " name another."
        )
        raise RequestError("optimizer", why, value=scenario.optimizer)


def _profile(
    scenario: Scenario,
    device: Device,
    notes: list[str],
    catalog: Catalog,
    *,
    autocast: bool = True,
) -> Profile:
    """Return the measured profile of a model, or that of its kernels where nobody measured it."""
    model, own = scenario.model, own_profile(scenario.model, catalog)
    check_adapters(
        scenario.lora,
        scenario.lora_layers,
        scenario.lora_base,
        scenario.residual_dtype,
        scenario.lora_dtype,
        scenario.lora_dropout,
    )
    if scenario.lora is not None:
        _check_adapted(scenario, own)
        return _stated_profile(scenario, device, notes, autocast)
    if own is None and is_defined(model) and model not in _profiles_of(catalog):
        return _stated_profile(scenario, device, notes, autocast)
    if device.name not in catalog.files("devices"):
        notes.append(
            warning(
                f"{device.name} has no device file: its rates are those that the profile shows, and"
                " its memory is not known."
            )
        )
    if own is not None:
        _check_described(own, model, device.name, catalog)
        found = own
    else:
        found = find_profile(model, device.name, scenario.batch, scenario.precision, catalog)
    sequence = _own_sequence(found)
    if scenario.seq is None and sequence is not None:
        notes.append(assumption(f"`seq` {sequence}, that of the profile.", f"`seq` {sequence}"))
    return found


def _launches_experts(scenario: Scenario, profile: Profile) -> bool:
    """Tell whether the software launches the experts of the model one by one."""
    execution = execution_of(scenario.software or NEWEST)
    one_by_one = execution.expert_s > 0.0 or execution.looped
    return one_by_one and is_defined(profile.model) and has_experts(profile.model)


def _own_sequence(profile: Profile) -> int | None:
    """Return the tokens a sample of a profile whose model may take others, else None."""
    model = profile.model
    return profile.sequence if is_defined(model) and takes_tokens(model) else None


def _check_adapted(scenario: Scenario, own: Profile | None) -> None:
    """Refuse adapters beside a model whose layers perfsim does not know."""
    if own is not None or not is_defined(scenario.model):
        why = (
            f"perfsim has no layers of {scenario.model}, beside which adapters stand; leave it out."
        )
        raise RequestError("lora", why, value=scenario.lora)


def computations(
    types: Sequence[tuple[str, int]],
    scenario: Scenario,
    cluster: Cluster,
    catalog: Catalog,
    *,
    autocast: bool = True,
) -> tuple[tuple[GpuGroup, ...], list[str]]:
    """Return the GPUs of each type with the model on them, and the notes on them.

    All have one batch and one precision: as asked, else those of the first type's profile. Where a
    type does not compute in that precision, all take fp32.

    Raises
    ------
    RequestError
        If a type does not fill whole nodes, or the model cannot be transferred to one of them.
    """
    from perfsim.compute.gpu_types import GpuGroup, check_nodes

    check_nodes(types, cluster.placement, scenario.gpus)
    era = kernel_era(scenario)
    devices = [device_in_era(name, era, catalog, scenario.model) for name, _ in types]
    notes: list[str] = []
    first = _profile(scenario, devices[0], notes, catalog)
    precision = scenario.precision or next(
        (_precision(first, one, notes) for one in devices if first.precision not in one.rates),
        first.precision,
    )
    update = {
        "batch": scenario.batch or first.batch,
        "precision": precision,
        "seq": scenario.seq or _own_sequence(first),
    }
    found = []
    for device, (_, count) in zip(devices, types, strict=True):
        asked = scenario.model_copy(update=update)
        _, transferred, noted = computation(asked, device, catalog, autocast=autocast)
        notes += [*noted, *transferred.notes]
        found.append(GpuGroup(count, device, transferred))
    return tuple(found), list(dict.fromkeys(notes))


def _precision(profile: Profile, device: Device, notes: list[str]) -> str:
    """Return the profile's precision where the GPU has it, else fp32."""
    if profile.precision in device.rates:
        return profile.precision
    why = f"fp32, since {device.name} does not compute in {profile.precision} as the profile does."
    notes.append(assumption(why, "`precision` fp32"))
    return "fp32"


class ResolvedScenario(NamedTuple):
    """A scenario with every default filled in: what a prediction is of.

    Its fields, in this order, are the keys of ``scenario`` in the JSON of a prediction.
    ``batch`` is in samples a GPU; ``placement`` has the GPUs of each node where nodes differ;
    ``bucket_bytes`` is None where the fusion policy has no limit; ``single_gpu_s`` and
    ``single_gpu_kernels_s`` are what the user gave [s]; ``profile`` is the name of the file.
    """

    model: str
    gpus: int
    gpus_per_node: int
    nodes: int
    placement: tuple[int, ...] | None
    net: str
    intra_net: str
    gpu: str
    batch: int
    precision: str
    software: str
    input: str
    method: str
    options: Mapping[str, Any]
    fusion: str
    fusion_options: Mapping[str, str]
    bucket_bytes: float | None
    algorithm: str
    protocol: str
    library: str
    oversubscription: float | None
    straggler: tuple[str, ...]
    jitter: float | str
    background: float
    seed: int
    overlap: bool
    overlap_slowdown: float
    single_gpu_s: float | None
    single_gpu_kernels_s: float | None
    profile: str
    beside: tuple[str, ...] = ()
    further: Mapping[str, Any] = MappingProxyType({})
    """Fields of the list that nothing fills in, by their name in JSON: those added to it later."""

    @property
    def place(self) -> str:
        """The model, the GPUs, the network between nodes and the sites, in a few words."""
        sites = len(self.further.get("site") or ())
        apart = f", {sites} sites" if sites > 1 else ""
        return f"{self.model}, {gpu_words(self.gpus, self.gpu)}, {self.net}{apart}"

    @property
    def words(self) -> str:
        """The same with the method behind the model."""
        return f"{self.model}, {self.method}{self.place.removeprefix(self.model)}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; ``beside`` is left out where there are no other jobs."""
        plain = self._asdict()
        further = plain.pop("further")
        plain.update(options=dict(self.options), fusion_options=dict(self.fusion_options))
        plain["placement"] = None if self.placement is None else list(self.placement)
        plain["straggler"] = list(self.straggler)
        if self.beside:
            plain["beside"] = list(self.beside)
        else:
            del plain["beside"]
        return plain | dict(further)


_FITTED_ON_FULL_NODES = ("transformer", "tuned")
"""Evidence for computation that comes from nodes whose GPUs all train (llm-foundry, MLPerf)."""


_RESOLVED_KEYS = frozenset(ResolvedScenario._fields)


class ModelOnGpus(NamedTuple):
    """A model on the GPUs of a cluster, as a method's code computes it.

    Parameters
    ----------
    device, transferred : the GPU, and the profile on it; of several types the slowest
    parts : the GPUs of each type, where there are several
    split : how the model is divided; None where every rank has all of it
    """

    device: Device
    transferred: TransferredProfile
    parts: tuple[GpuGroup, ...] = ()
    split: ModelSplit | None = None


@dataclass
class Setup:
    """Everything that a prediction is made of, loaded and checked.

    ``beside`` are the other jobs on the network. ``device``, ``transferred``, ``parts`` and
    ``split`` are those of `ModelOnGpus`. ``ssgd`` is the model as S-SGD's code computes it, where
    the method's code does otherwise.
    """

    scenario: Scenario
    transferred: TransferredProfile
    device: Device
    network: Network
    intra_network: Network | None
    cluster: Cluster
    method: Method
    policy_name: str
    policy: fusion.Policy
    limit_bytes: float | None
    notes: list[str]
    beside: tuple[Setup, ...] = ()
    parts: tuple[GpuGroup, ...] = ()
    split: ModelSplit | None = None
    ssgd: ModelOnGpus | None = None

    @property
    def first_bucket_bytes(self) -> float | None:
        """DDP's first bucket where its default holds [B]; a size for all would change it."""
        if self.policy_name != "size" or self.limit_bytes is not None:
            return None
        from perfsim.fusion.policies import DDP_FIRST_BUCKET_BYTES

        given = "first_bucket" in self.scenario.fusion_options
        return None if given else DDP_FIRST_BUCKET_BYTES

    @property
    def data_cluster(self) -> Cluster:
        """The ranks that hold the same weights: all GPUs, or a group of them."""
        return self.split.data if self.split else self.cluster

    @property
    def replicas(self) -> int:
        """Copies of the model, each with samples of its own."""
        return self.split.layout.replicas if self.split else self.scenario.gpus

    @property
    def kernels_s(self) -> float | None:
        """Time of the method's kernels in an iteration on one GPU, where it was given [s]."""
        given = self.scenario.single_gpu_kernels
        return None if given is None else parse_seconds(given, "single_gpu_kernels")

    @property
    def conditions(self) -> Conditions | None:
        """How the ranks differ; None where no straggler and no jitter was asked for."""
        scenario = self.scenario
        if not scenario.straggler and not scenario.jitter:
            return None
        slow, split = self.stragglers, self.split
        ranks, each, alike = scenario.gpus, 1, 1
        if split is not None:
            # In a pipeline slow GPUs are part of how its stages run (`schedule.model_parallel`).
            slow = () if split.layout.pp > 1 else split.slow_ranks(slow)
            ranks, each = split.data.gpus, split.layout.tp * split.layout.pp
            alike = split.layout.cp
        if isinstance(scenario.jitter, str):
            from perfsim.conditions.measured import measured_jitter

            measured = measured_jitter(scenario.jitter)
            return Conditions(ranks, slow, measured.spread, scenario.seed, 1, measured, alike)
        return Conditions(ranks, slow, scenario.jitter, scenario.seed, each)

    @property
    def stragglers(self) -> tuple[tuple[int, float], ...]:
        """How many GPUs are slow, the first of all, and how many times slower they compute."""
        return tuple(parse_straggler(one) for one in self.scenario.straggler)

    @property
    def profile(self) -> Profile:
        """The profile as it is on this GPU at this batch size and precision."""
        return self.transferred.profile

    @property
    def input(self) -> str:
        """Where samples come from."""
        model = self.profile.model
        return self.scenario.input or (
            "tokens" if is_defined(model) and takes_tokens(model) else "storage"
        )

    @cached_property
    def node_load(self) -> float:
        """How many times as long both passes take as on a GPU whose node trains on no other.

        It is 1 where computation was fitted on nodes whose GPUs all train.
        """
        fitted = self.grade in _FITTED_ON_FULL_NODES and not self._passes_known
        if fitted or self._by_kernels_alone:
            return 1.0
        return node_load(self.input, self.gpus_of_host)

    @cached_property
    def slowest_gpu(self) -> float:
        """How many times as long the slowest GPU of the run computes as one does on average.

        It is 1 where computation was measured: what GPUs of a node cost each other holds it.
        """
        return slowest_gpu(self.cluster.gpus) if self._by_kernels_alone else 1.0

    @property
    def _by_kernels_alone(self) -> bool:
        """Whether computation is that of a transformer's kernels, and no time of it was given."""
        alone = self.transferred.profile.header.get("kernels") == "alone"
        return alone and self.grade != "given" and has_attention(self.profile.model)

    @property
    def gpus_of_host(self) -> int:
        """GPUs that one operating system drives: those of a node, or of a tray of a rack's node."""
        on_node = self.cluster.gpus_per_node
        return min(on_node, self.device.host_gpus or on_node)

    @cached_property
    def slowed_in_node(self) -> Profile:
        """The profile among the other GPUs of the node."""
        return with_slowest(self.profile.slowed(self.node_load), self.slowest_gpu)

    @property
    def profile_in_node(self) -> Profile:
        """The profile among the other GPUs of the node, with what adds gradients up."""
        profile = self.slowed_in_node
        return with_added(profile, self.added_s) if self.added_s else profile

    @cached_property
    def profile_of_method(self) -> Profile:
        """The profile in its node, with what the method's hooks take of the host.

        What they take in a model that is divided is not known.
        """
        profile = self.profile_in_node
        return profile if self.split else with_host(profile, self.hooks_s)

    @cached_property
    def hooks_s(self) -> float:
        """What the method's hooks take of the host in both passes [s]."""
        if type(self.method).host_s is Method.host_s:  # most have none
            return 0.0
        cluster, profile = self.cluster, self.profile
        software = self.transferred.era
        world = MethodContext(
            cluster.gpus,
            cluster.nodes,
            cluster.gpus_per_node,
            profile=profile,
            software=software,
        )
        return self.method.host_s(world, self.scenario.recompute)

    @cached_property
    def added_s(self) -> float:
        """What adds a micro-batch's gradient of a parameter to those before it, on average [s].

        It is 0 where a part of a divided model has it among its own times, and where gradients of
        each micro-batch go to the host.
        """
        scenario, at = self.scenario, self.transferred
        elsewhere = self.split is not None or self.profile.host_sharing
        if elsewhere or not _adds_gradients(scenario, self.method):
            return 0.0
        casts, count = autocasts(scenario, self.method), scenario.accumulate
        if scenario.master_weights and not casts:
            return 0.0  # casts are priced there that 16-bit parameters do not need
        if (casts and count == 1) or execution_of(at.era).adds_in_products:
            return 0.0  # what was cast is as wide as the sum, which the first one is
        kept = gradient_bytes(scenario.reduce_dtype, master_weights=scenario.master_weights)
        precision = at.profile.precision
        moved = added_bytes(precision, at.era, FLOAT if casts else kept, count, casts_weights=casts)
        return moved / kernel_rates(self.device, precision, at.era).bytes_per_s

    @property
    def profile_key(self) -> tuple[Hashable, ...]:
        """What tells the profile from any other that is made of the same files."""
        scenario = self.scenario
        asked = values_read_by("compute", scenario, without="gpu")
        cast = self.transferred.autocast
        on_host = scenario.offload, self.profile.host_sharing
        times = scenario.single_gpu, self.node_load, self.slowest_gpu, self.added_s
        return (self.device.name, cast, *asked, *times, *on_host)

    @property
    def method_key(self) -> tuple[Hashable, ...]:
        """What tells `profile_of_method` from any other profile of the same files."""
        return self.profile_key if self.split else (*self.profile_key, self.hooks_s)

    @property
    def autocast(self) -> bool:
        """Whether mixed precision casts an fp32 model's values at each operation."""
        return autocasts(self.scenario, self.method)

    @property
    def keeps_half(self) -> bool:
        """Whether in half precision parameters themselves have 16 bits, with an fp32 copy."""
        asked = self.scenario.autocast is False and self.scenario.master_weights
        return self.method.keeps_half or asked

    @property
    def grade(self) -> Grade:
        """The evidence for computation (see `GRADES` in perfsim.interval)."""
        if self.scenario.single_gpu:
            return "given"
        each = self._by_type
        if self._passes_known and not any(one.passes_kind for one in each):
            return "measured"
        if all(one.same_gpu for one in each):
            return "same_gpu"
        if not self.scenario.lora and all(_is_transformer(one, self.device) for one in each):
            return "transformer"
        if self.cluster.gpus == 1:
            return "one_gpu"
        alike = all(execution_of(one.era).tuned or _kernels_alone_in_half(one) for one in each)
        return "tuned" if alike else "carried"

    @property
    def _by_type(self) -> list[TransferredProfile]:
        """The profile on each type of GPU."""
        return [part.transferred for part in self.parts] or [self.transferred]

    @property
    def _passes_known(self) -> bool:
        """Whether what both passes take was measured, on all types of GPU."""
        return all(
            (one.passes_kind or one.quantity.kind) in ("measured", "published")
            and not one.extrapolated
            for one in self._by_type
        )

    @property
    def batch_reach(self) -> float:
        """How far the batch lies outside those whose time is known: ln of the ratio, 0 inside."""
        if self.scenario.single_gpu:
            return 0.0
        return max(one.batch_reach for one in self._by_type)

    @property
    def alone_s(self) -> float:
        """An iteration on one GPU [s]; of several types, on one that is as fast as their mean."""
        if self.parts:
            from perfsim.compute.gpu_types import alone_s

            types = [
                replace(self, device=one.device, transferred=one.transferred, parts=())
                for one in self.parts
            ]
            return alone_s(self.parts, [one.alone_s for one in types])
        profile, count = self.profile, self.scenario.accumulate
        passes_s = profile.forward_s + profile.backward_s
        added_s = count * self.added_s * profile.elements
        return profile.alone_s + (count - 1) * passes_s + added_s

    @property
    def samples(self) -> int:
        """Samples of an iteration on one GPU."""
        return self.profile.batch * self.scenario.accumulate

    def resolved_scenario(self) -> ResolvedScenario:
        """Return the scenario with every default filled in."""
        scenario, cluster = self.scenario, self.cluster
        return ResolvedScenario(
            model=scenario.model,
            gpus=scenario.gpus,
            gpus_per_node=cluster.gpus_per_node,
            nodes=cluster.nodes,
            placement=tuple(cluster.uneven) or None,
            net=scenario.net,
            intra_net=self.intra_network.name if self.intra_network else self.network.name,
            gpu=scenario.gpu if self.parts and scenario.gpu else self.device.name,
            batch=self.profile.batch,
            precision=self.profile.precision,
            software=kernel_era(scenario),
            input=self.input,
            method=method_name(scenario.method),
            options=self.method.in_effect(),
            fusion=self.policy_name,
            fusion_options=dict(scenario.fusion_options),
            bucket_bytes=self.limit_bytes or self.policy.limit_bytes,
            algorithm=scenario.algorithm,
            protocol=scenario.protocol,
            library=cluster.library,
            oversubscription=scenario.oversubscription,
            straggler=scenario.straggler,
            jitter=scenario.jitter,
            background=scenario.background,
            seed=scenario.seed,
            overlap=scenario.overlap,
            overlap_slowdown=scenario.overlap_slowdown,
            single_gpu_s=self.transferred.quantity.value if scenario.single_gpu else None,
            single_gpu_kernels_s=self.kernels_s,
            profile=basename(self.profile.path),
            beside=scenario.beside,
            further=own_values(scenario, _RESOLVED_KEYS),
        )


def _is_transformer(transferred: TransferredProfile, device: Device) -> bool:
    """Tell whether computation is a dense transformer's whose attention is known on that GPU.

    It is none where how much padding the software skips is not known, nor with a mask.
    """
    profile, execution = transferred.profile, execution_of(transferred.era)
    if not is_defined(profile.model) or not takes_tokens(profile.model):
        return False
    if has_experts(profile.model):
        return False
    half = profile.precision in HALF_PRECISIONS
    kernel = execution.attention or usual_kernel(device.architecture)
    known = known_attention(kernel, device) is not None and not execution.masked
    return half and execution.flash and not execution.unpadded and known


def _kernels_alone_in_half(transferred: TransferredProfile) -> bool:
    """Tell whether computation is that of a transformer's kernels alone, in half precision.

    Of these only attention was not measured on the architecture, or runs as several kernels.
    """
    profile = transferred.profile
    alone = profile.header.get("kernels") == "alone" and profile.precision in HALF_PRECISIONS
    return alone and takes_tokens(profile.model) and has_attention(profile.model)


def _usual_options(scenario: Scenario, catalog: Catalog) -> dict[str, Any]:
    """Return the options that the method's paper takes for such a model, where they differ."""
    usual = method_class(scenario.method).over_text
    model = model_named(scenario.model, catalog) if usual else ""
    if not is_defined(model) or not takes_tokens(model):
        return {}
    return dict(usual)


def resolve(scenario: Scenario, catalog: Catalog) -> Setup:
    """Load and check everything that ``scenario`` names.

    Raises
    ------
    RequestError
        If a name is unknown or the combination is impossible.
    DataError
        If a data file is damaged.
    """
    scenario = with_own_names(scenario, catalog)
    method, policy_name, policy = _method_and_policy(scenario, catalog)
    named_net = scenario.net if "net" in scenario.model_fields_set else ""
    scenario, assumed = with_gpu(scenario, catalog)
    types, device = parse_types(scenario.gpu), first_device(scenario, catalog)
    network, intra_network, cluster, notes = platform(scenario, device, catalog)
    if not names_network(scenario) and cluster.nodes > 1:
        scenario = with_usual_network(scenario, device, catalog)
        network, intra_network, cluster, notes = platform(scenario, device, catalog)
        name = network.name
        why = f"nodes that {device.name} usually is in" if network.node_type else "the default"
        brief = f"`net` {name}"
        if brief not in briefs(notes, "assumption"):
            assumed = [*assumed, assumption(f"{brief}, {why}; name yours.", brief)]
    profile, placed, noted = _placed(scenario, method, device, types, cluster, catalog)
    ssgd, usual = None, load_method("ssgd", {})
    if _computes_otherwise(scenario, method, placed, usual):
        ssgd = _placed(scenario, usual, device, types, cluster, catalog)[1]
    device, transferred, parts, split = placed
    limit_bytes = _limit_bytes(scenario, policy_name, policy.limit_bytes is None)
    own = _own_notes(scenario, profile, device, network, catalog)
    own += unused_network(named_net, scenario, cluster, intra_network)
    own += _notes_on_values(scenario, transferred, ssgd)
    beside, others = _beside(scenario, catalog)
    return Setup(
        scenario,
        transferred,
        device,
        network,
        intra_network,
        cluster,
        method,
        policy_name,
        policy,
        limit_bytes,
        [*assumed, *notes, *noted, *own, *([] if parts else transferred.notes), *others],
        beside,
        parts,
        split,
        ssgd,
    )


def resolve_like(
    scenario: Scenario, like: Setup, catalog: Catalog, alike: Setup | None = None
) -> Setup | None:
    """Return the setup of a scenario that is another setup's but for `SCHEDULE_FIELDS`.

    Model, GPU and cluster are taken over, which saves most of the time that `resolve` takes. None
    where more than method and fusion policy may depend on those fields.

    Parameters
    ----------
    scenario : ``like.scenario`` with other values (`perfsim.scenario.with_checked`)
    alike : a setup on another cluster whose method is taken over too if it has the very same
        options

    Raises
    ------
    RequestError
        As `resolve`.
    """
    if like.parts or like.beside or like.split is not None:
        return None
    asked = like.scenario
    if scenario.method == asked.method and scenario.options == asked.options:
        return replace(like, scenario=scenario)
    if alike is not None and _same_method(scenario, alike.scenario):
        method, limit_bytes = alike.method, alike.limit_bytes
        policy_name, policy = alike.policy_name, alike.policy
    else:
        method, policy_name, policy = _method_and_policy(scenario, catalog)
        limit_bytes = _limit_bytes(scenario, policy_name, policy.limit_bytes is None)
    if autocasts(scenario, method) != like.autocast:
        return None
    if method.offloads or like.method.offloads:
        return None
    if like.ssgd is not None and scenario.method != asked.method:  # a note names the method
        return None
    setup = replace(
        like,
        scenario=scenario,
        method=method,
        policy_name=policy_name,
        policy=policy,
        limit_bytes=limit_bytes,
    )
    # Of model and cluster alone.
    setup.node_load, setup.slowest_gpu = like.node_load, like.slowest_gpu
    setup.slowed_in_node = like.slowed_in_node
    return setup


def _same_method(scenario: Scenario, other: Scenario) -> bool:
    """Tell whether two scenarios lead to the same method and policy; their options are the same."""
    # The same object: values that Python takes for equal, as 1 and true, may mean something else.
    return scenario.options is other.options and _read_for(scenario) == _read_for(other)


_read_for = attrgetter(
    *("method", "fusion", "fusion_options", "bucket"),
    *("model", "offload", "master_weights", "autocast"),
)
"""Returns the fields of a scenario that its method and its fusion policy follow from."""


def _method_and_policy(scenario: Scenario, catalog: Catalog) -> tuple[Method, str, fusion.Policy]:
    """Return the method with its options, and the fusion policy with its name, checked."""
    named = scenario.method
    given = _usual_options(scenario, catalog) | scenario.options
    on_host = host_options(named, scenario.offload)
    options = on_host | given
    asked = ("method", named, *((name, repr(value)) for name, value in sorted(options.items())))
    try:
        method = catalog.once(asked, lambda: load_method(named, options))
    except RequestError as error:
        for option in on_host.keys() - given.keys():
            if error.field == f"options.{option}":  # which nobody typed
                why = f"{scenario.offload} needs `options` {method_class(named).condition(option)}"
                raise RequestError("offload", f"{why}; set that, or leave it out.") from None
        raise
    for option in on_host:
        if not getattr(method, option):
            why = f"says otherwise than `offload` {scenario.offload}; leave one of the two out."
            raise RequestError(f"options.{option}", why, value=options[option])
    policy_name = scenario.fusion or method.default_fusion()
    policy = catalog.once(("fusion", policy_name), lambda: fusion.load_policy(policy_name))
    _check_fusion_options(policy_name, policy.options, scenario.fusion_options)
    if not scenario.master_weights:
        _check_state_in_16_bits(scenario, method)
    return method, policy_name, policy


def _check_state_in_16_bits(scenario: Scenario, method: Method) -> None:
    """Refuse a model without parameters in fp32 where something else asks for these."""
    if method.keeps_half:
        name = method_name(scenario.method)
        why = f"{name} keeps a copy of the parameters in fp32; `method` ddp and fsdp need none."
        raise RequestError("master_weights", why, value=False)
    if scenario.autocast:
        why = "autocast casts the values of a model in fp32; leave `autocast` or this out."
        raise RequestError("master_weights", why, value=False)


def _notes_on_values(
    scenario: Scenario, transferred: TransferredProfile, ssgd: ModelOnGpus | None
) -> list[str]:
    """Say how wide values are, where nobody asked; a time that is given holds for any width."""
    if scenario.single_gpu:
        return []
    notes, casts = list[str](), transferred.autocast
    if scenario.autocast is None:
        ssgd_casts = ssgd.transferred.autocast if ssgd else None
        notes += notes_on_autocast(casts, ssgd_casts, method_name(scenario.method))
    if casts is not None and scenario.lora_base != AS_COMPUTED:
        notes += notes_on_residuals(scenario.residual_dtype, casts=casts)
    return notes


def _placed(
    scenario: Scenario,
    method: Method,
    device: Device,
    types: Sequence[tuple[str, int]],
    cluster: Cluster,
    catalog: Catalog,
) -> tuple[Profile, ModelOnGpus, list[str]]:
    """Return the model's own profile, the model on the GPUs as a method computes it, and notes."""
    autocast = autocasts(scenario, method)
    profile, transferred, noted = computation(scenario, device, catalog, autocast=autocast)
    parts: tuple[GpuGroup, ...] = ()
    if len(types) > 1:
        parts, noted = computations(types, scenario, cluster, catalog, autocast=autocast)
        slowest = max(parts, key=lambda part: part.alone_s)
        device, transferred = slowest.device, slowest.transferred
    if scenario.offload != NOTHING or method.offloads:
        if parts:
            why = "is not known of GPUs of several types; leave it out."
            options = [option for option in method.on_host.values() if getattr(method, option)]
            asked = "offload" if scenario.offload != NOTHING else f"options.{options[0]}"
            raise RequestError(asked, why)
        transferred, more = _on_host(scenario, method, device, cluster, transferred)
        noted = [*noted, *more]
    if scenario.single_gpu:
        batch = transferred.profile.batch
        transferred = pin_iteration(
            transferred, parse_iteration(scenario.single_gpu, batch, "single_gpu")
        )
        if scenario.accumulate > 1:
            text = (
                f"`single_gpu` is what one of the {scenario.accumulate} micro-batches takes with an"
                " update."
            )
            noted = [*noted, assumption(text, "`single_gpu` of one micro-batch")]
    split = None
    if _is_divided(scenario):
        from perfsim.model_parallel import model_split

        adds = _adds_gradients(scenario, method)
        split = model_split(scenario, transferred, device, cluster, catalog, adds=adds)
    return profile, ModelOnGpus(device, transferred, parts, split), noted


def _on_host(
    scenario: Scenario,
    method: Method,
    device: Device,
    cluster: Cluster,
    transferred: TransferredProfile,
) -> tuple[TransferredProfile, list[str]]:
    """Return a model with what is offloaded to the host, and the notes on it.

    A rank of a divided model copies what its own blocks keep (`perfsim.model_parallel`).
    """
    profile, notes = transferred.profile, list[str]()
    check_blocks(scenario.offload, profile, scenario.recompute, scenario.pp)
    to_host = blocks_to_host(
        scenario.offload, device, profile, transferred.era, autocast=bool(transferred.autocast)
    )
    if to_host is not None:
        notes.append(blocks_note(scenario.offload, profile, device))
        if not _is_divided(scenario):
            profile = to_host.of_profile(profile)
    how, moved = method.host_update, method.on_host.get(PARAMETERS)
    apart = scenario.tp * scenario.pp
    if moved and getattr(method, moved):
        _check_parameters_on_host(scenario, method, cluster.gpus, apart)
        notes.append(parameters_note(device, how.library if how else "DeepSpeed"))
    if how is not None:
        ranks = max(1, cluster.gpus // apart)  # too few GPUs are refused with the division
        world = MethodContext(ranks, cluster.nodes, max(1, cluster.gpus_per_node // scenario.tp))
        profile, note = updated_on_host(
            profile,
            scenario.optimizer or profile.optimizer,
            how,
            device,
            HostRanks.of(cluster.gpus_per_node, method.update_share(world) / apart, device),
            profile.backward_s / (apart * scenario.cp),
            scenario.accumulate,
        )
        notes.append(note)
    return transferred.with_derived(profile), notes


def _check_parameters_on_host(scenario: Scenario, method: Method, gpus: int, apart: int) -> None:
    """Refuse parameters on the host where no code is known that runs so.

    ``apart`` is into how many parts the model is divided.
    """
    if gpus in (1, apart) and not method.runs_alone:
        alone = "on one GPU" if gpus == 1 else f"where each of {gpus} GPUs has a part of its own"
        why = (
            f"parameters: {method_name(scenario.method)} shards nothing {alone}; give more, or"
            " set `method` zero with `options` stage=3, which copies them there too."
        )
        raise RequestError("offload", why, value=scenario.offload)
    torch = method.host_update is not None and method.host_update.library == "PyTorch"
    if torch and scenario.accumulate > 1 and method.exchanges_each(scenario.exchange_each):
        why = (
            "parameters: PyTorch adds gradients of micro-batches on the CPUs, at a rate that is not"
            " known here; set `exchange_each` false, or leave `accumulate` out."
        )
        raise RequestError("offload", why, value=scenario.offload)


def _computes_otherwise(
    scenario: Scenario, method: Method, placed: ModelOnGpus, usual: Method
) -> bool:
    """Tell whether a method's code computes the model in another way than the usual one's."""
    if placed.transferred.profile.host_sharing:
        return True
    if placed.split is not None:
        return _adds_gradients(scenario, method) != _adds_gradients(scenario, usual)
    return placed.transferred.autocast is False and scenario.autocast is None


def _adds_gradients(scenario: Scenario, method: Method) -> bool:
    """Tell whether a rank adds the gradients of each micro-batch to a sum before it sends them.

    An only micro-batch is added too where the sum is a tensor of its own (see `added_bytes`).
    """
    return not method.exchanges_each(scenario.exchange_each if scenario.accumulate > 1 else None)


def first_device(scenario: Scenario, catalog: Catalog) -> Device:
    """Return the GPU that a scenario names (see `with_gpu`), the first of several types."""
    assert scenario.gpu is not None
    gpu = next((name for name, _ in parse_types(scenario.gpu)), scenario.gpu)
    return device_in_era(gpu, kernel_era(scenario), catalog, scenario.model)


def kernel_era(scenario: Scenario) -> str:
    """Return the software era that prices a method's kernels: the newest where none is named."""
    return scenario.software or NEWEST


def _beside(scenario: Scenario, catalog: Catalog) -> tuple[tuple[Setup, ...], list[str]]:
    """Return the other jobs on the network, loaded, and the notes on them."""
    setups, notes = [], []
    for name in scenario.beside:
        from perfsim.conditions.other_jobs import other_job

        asked, noted = other_job(name, scenario, catalog)
        try:
            setups.append(resolve(asked, catalog))
        except RequestError as error:
            raise error.of_file(basename(name)).within("`beside`") from None
        notes += noted
    return tuple(setups), notes


def _limit_bytes(scenario: Scenario, policy_name: str, sets_own_sizes: bool) -> float | None:
    """Return the bucket size that is asked for, None where none is [bytes]."""
    if not scenario.bucket:
        return None
    if sets_own_sizes:
        origin = f"`fusion` {policy_name}"
        if not scenario.fusion:
            origin = f"{policy_name!r}, the fusion policy of {method_name(scenario.method)}"
        raise RequestError(
            "bucket",
            f"{scenario.bucket!r} has no meaning with {origin}, which sets its own sizes;"
            " leave `bucket` out.",
        )
    return parse_bytes(scenario.bucket, "bucket")


def _own_notes(
    scenario: Scenario, profile: Profile, device: Device, network: Network, catalog: Catalog
) -> list[str]:
    """Return a note for each of the user's own files that is read in place of a shipped one."""
    used = {
        "models": basename(profile.path).removesuffix(".csv"),
        "devices": device.name,
        "networks": network.name,
    }
    if own_profile(scenario.model, catalog) is not None:
        del used["models"]
    if not network.path:  # a link of the user's own: no file
        del used["networks"]
    elif network.node_type is not None:
        used["nodes"] = used.pop("networks")
    owned = (
        (name, catalog.once(("shadowed", kind, name), partial(catalog.shadowed, kind, name)))
        for kind, name in used.items()
    )
    notes: list[str] = [
        warning(f"{name} is read from {own}, in place of the shipped one.")
        for name, own in owned
        if own is not None
    ]
    record = catalog.once(
        ("own record", UNCERTAINTY_FILE),
        partial(catalog.own_record, "measurements", UNCERTAINTY_FILE),
    )
    if record is not None:
        notes.append(warning(f"The interval is made of {record}, in place of the shipped record."))
    return notes


def _check_fusion_options(name: str, known: Mapping[str, str], given: Mapping[str, str]) -> None:
    for option in given:
        if option not in known:
            raise unknown_option(f"fusion policy {name!r}", option, known, field="fusion_options")
