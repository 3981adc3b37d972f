"""What perfsim knows, as typed objects: rows for `list`, everything of one thing for `show`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import exp, prod
from typing import TYPE_CHECKING, Any, ClassVar

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError, unknown
from perfsim.sums import sum_in_order
from perfsim.units import (
    format_bit_rate,
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
)

if TYPE_CHECKING:
    from perfsim.compute.profile import Profile
    from perfsim.network.link import Link
    from perfsim.network.measured import CollectiveCurve
    from perfsim.network.node_network import DerivedCollectives
    from perfsim.network.node_type import NodeType
    from perfsim.network.tuner_fit import TunedChoice
    from perfsim.quantity import Cost
    from perfsim.validate.claims import Claim

__all__ = [
    "DESCRIBED_KINDS",
    "LISTED_KINDS",
    "InventoryItem",
    "MethodDescription",
    "MethodOption",
    "ScenarioDescription",
    "ScenarioRow",
    "describe_node",
    "describe_thing",
    "list_rows",
    "named_algorithm",
    "nics_words",
]

_MAX_TENSORS_NAMED = 5
"""The largest gradients of a model that its description names."""


class InventoryItem:
    """A row of `list`, what `show` describes, or a part of either.

    Subclasses are frozen dataclasses. A field that is None by default is left out of JSON and of
    tables where it is None.
    """

    JSON_KEYS: ClassVar[Mapping[str, str]] = {}
    """Field -> its key in JSON and its head in tables, where these differ from its name."""

    SHOWN_COLUMNS: ClassVar[tuple[str, ...]] = ()
    """Keys that a person is shown in a table; none: all."""

    BRIEF_COLUMNS: ClassVar[tuple[str, ...]] = ()
    """Those of them that are shown where not everything was asked for; none: all."""

    NUMBERS: ClassVar[tuple[str, ...]] = ()
    """Fields that say in JSON, as a number, what another says in words."""

    def to_dict(self, *, numbers: bool = True) -> dict[str, Any]:
        """Return it as JSON has it; without ``numbers``, only what a person is shown."""
        return {
            self.JSON_KEYS.get(field.name, field.name): _plain(getattr(self, field.name), numbers)
            for field in fields(self)  # type: ignore[arg-type]
            if (field.default is not None or getattr(self, field.name) is not None)
            and (numbers or field.name not in self.NUMBERS)
        }

    def shown(self, *, brief: bool = False) -> dict[str, Any]:
        """Return the columns that a person is shown; JSON has all of them."""
        row = self.to_dict(numbers=False)
        keys = (self.BRIEF_COLUMNS if brief else ()) or self.SHOWN_COLUMNS
        return {key: row[key] for key in keys} or row


def _plain(value: Any, numbers: bool) -> Any:
    """Return a value as JSON has it: objects as mappings, also those in lists."""
    if isinstance(value, list):
        return [_plain(item, numbers) for item in value]
    if isinstance(value, InventoryItem):
        return value.to_dict(numbers=numbers)
    return value.to_dict() if hasattr(value, "to_dict") else value


# Rows of `list`.


def list_rows(kind: str, catalog: Catalog) -> Sequence[InventoryItem]:
    """Return one row for each thing of a kind (see ``LISTED_KINDS``).

    Raises
    ------
    RequestError
        If there is no such kind.
    """
    if kind not in LISTED_KINDS:
        raise unknown("list", kind, LISTED_KINDS)
    return LISTED_KINDS[kind](catalog)


@dataclass(frozen=True, slots=True)
class ProfileRow(InventoryItem):
    """One profile: a model on a GPU."""

    JSON_KEYS: ClassVar = {"layer_times": "layer times"}
    SHOWN_COLUMNS: ClassVar = (
        *("model", "gpu", "precision", "batch", "parameters", "iteration_ms", "layer times"),
    )

    model: str
    gpu: str
    precision: str
    batch: int | None
    parameters: int
    tensors: int
    iteration_ms: float | None
    layer_times: str
    total: str
    profile: str


def _models(catalog: Catalog) -> list[ProfileRow]:
    """Return the profiles of all models, and the models that have none but their layers."""
    from perfsim.compute.profile import read_profile
    from perfsim.models import MODELS, NAMED, build_model

    rows = []
    for stem, path in catalog.files("models").items():
        profile = read_profile(path)
        rows.append(
            ProfileRow(
                model=profile.model,
                gpu=profile.gpu,
                precision=profile.precision,
                batch=profile.batch,
                parameters=profile.elements,
                tensors=len(profile.gradients),
                iteration_ms=round(profile.iteration_s * 1e3, 3),
                layer_times=profile.kinds["ready_ms"],
                total=profile.kinds["iteration_ms"],
                profile=stem,
            )
        )
    have = {row.model for row in rows}
    for name in (*MODELS, *NAMED):
        if name in have:
            continue
        layers = build_model(name)
        rows.append(
            ProfileRow(
                model=name,
                gpu="any",
                precision="any",
                batch=None,
                parameters=sum(layer.elements for layer in layers),
                tensors=sum(len(layer.tensors) for layer in layers),
                iteration_ms=None,
                layer_times="derived",
                total="derived",
                profile="",
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class GpuRow(InventoryItem):
    """One GPU type."""

    JSON_KEYS: ClassVar = {
        "memory_bandwidth": "memory bandwidth",
        "measured_kernels": "measured kernels",
    }
    SHOWN_COLUMNS: ClassVar = (
        *("gpu", "architecture", "board", "memory", "memory bandwidth", "power", "title"),
        *("link", "derived", "measured kernels"),
    )
    BRIEF_COLUMNS: ClassVar = ("gpu", "memory", "memory bandwidth", "power", "title")
    NUMBERS: ClassVar = ("memory_bytes", "memory_bandwidth_bytes_per_s", "power_w")

    gpu: str
    title: str
    memory: str
    memory_bandwidth: str
    kind: str
    power: str
    board: str
    architecture: str
    link: str
    precisions: str
    derived: str
    measured_kernels: str
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    power_w: float | None


def _gpus(catalog: Catalog) -> list[GpuRow]:
    from perfsim.compute.device import read_device

    rows = []
    for name, path in catalog.files("devices").items():
        device = read_device(path)
        bandwidth = device.memory_bandwidth
        kernels = ", ".join(sorted(device.points)) or "none"
        rate = format_rate(bandwidth.value)
        rows.append(
            GpuRow(
                name,
                device.title,
                format_bytes(device.memory_bytes),
                rate,
                bandwidth.kind,
                f"{device.power_w:g} W" if device.power_w else "",
                device.board,
                device.architecture,
                device.link,
                ", ".join(device.rates),
                ", ".join(device.derived) or "none",
                kernels,
                device.memory_bytes,
                bandwidth.value,
                device.power_w,
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class LinkRow(InventoryItem):
    """One link of a network: between its nodes or inside one."""

    JSON_KEYS: ClassVar = {"latency_1kb": "latency 1 KB"}
    BRIEF_COLUMNS: ClassVar = ("network", "link", "rate", "title")
    NUMBERS: ClassVar = ("rate_bytes_per_s", "latency_1_kb_s")

    network: str
    link: str
    rate: str
    latency_1kb: str
    kind: str
    ranks: str
    title: str
    rate_bytes_per_s: float
    latency_1_kb_s: float


def _networks(catalog: Catalog) -> list[LinkRow]:
    from perfsim.network.network_file import read_network

    rows = []
    for name, path in catalog.files("networks").items():
        network = read_network(path)
        for link_class, link in network.links.items():
            rows.append(
                LinkRow(
                    network=name,
                    link=link_class,
                    rate=format_rate(link.rate.value),
                    latency_1kb=format_seconds(link.ring.at(1e3), 3),
                    kind=link.rate.kind,
                    ranks="-".join(map(str, link.ranks)) if link.ranks else "",
                    title=network.title,
                    rate_bytes_per_s=link.rate.value,
                    latency_1_kb_s=link.ring.at(1e3),
                )
            )
    return rows


@dataclass(frozen=True, slots=True)
class NodeRow(InventoryItem):
    """One node type: its GPUs, what joins them, and its NICs."""

    BRIEF_COLUMNS: ClassVar = ("node", "gpu", "title")

    node: str
    gpu: str
    gpus: int
    inside: str
    nics: str
    transport: str
    title: str


def _nodes(catalog: Catalog) -> list[NodeRow]:
    from perfsim.network.node_type import read_node_type

    rows = []
    for name, path in catalog.files("nodes").items():
        node = read_node_type(path)
        nics = node.nics
        rows.append(
            NodeRow(
                node=name,
                gpu=node.gpu or "any",
                gpus=node.gpus,
                inside=_inside_words(node),
                nics=f"{nics.number} x {format_bit_rate(nics.rate)}" if nics else "none",
                transport=nics.transport if nics else "-",
                title=node.title,
            )
        )
    return rows


def _inside_words(node: NodeType) -> str:
    """Say what joins the GPUs of a node, as data sheets do."""
    inside = node.inside
    if inside.link == "none":
        return "one GPU"
    through = ", switch" if inside.switch else "" if inside.peer_access else ", through the host"
    shared = inside.gpus_per_switch > 1 and not inside.peer_access
    through += f", {inside.gpus_per_switch} GPUs a PCIe switch" if shared else ""
    return f"{inside.link} {format_rate(inside.rate)}{through}"


@dataclass(frozen=True, slots=True)
class MethodRow(InventoryItem):
    """One method, and how wrong its predictions have been."""

    BRIEF_COLUMNS: ClassVar = ("method", "what")

    method: str
    family: str
    what: str
    paper: str
    needs: str
    record: str


def _methods(catalog: Catalog) -> list[MethodRow]:
    from perfsim.methods import ALIASES, method_class, method_names
    from perfsim.methods.base import FAMILIES
    from perfsim.methods.describe import fidelity

    record = _accuracy_record(catalog)
    rows = []
    for name in method_names():
        cls = method_class(name)
        also = ", ".join(other for other, own in ALIASES.items() if own == name)
        usual = fidelity(cls)
        rows.append(
            MethodRow(
                method=name,
                family=cls.family,
                what=cls.summary
                + (f"; by default {usual}" if usual else "")
                + (f"; also as {also}" if also else ""),
                paper=_paper(cls.citation),
                needs=cls.needs or "-",
                record=record.get(name, _NO_RECORD),
            )
        )
    return sorted(rows, key=lambda row: (FAMILIES.index(row.family), row.method))


_NO_RECORD = "no measured row"
"""What is said of a method of which no prediction was held against a measurement."""


def _accuracy_record(catalog: Catalog) -> dict[str, str]:
    """Return how wrong predictions of each method have been, as last recorded, in words."""
    from perfsim.validate.accuracy import recorded_accuracy

    return {name: one.words() for name, one in recorded_accuracy(catalog).items()}


def _paper(citation: str) -> str:
    """Return the first paper of a citation in short: its authors and year."""
    match = re.search(
        r"(?<![\w/@])[A-Z][A-Za-z\u00e0-\u00ff'&, .-]{0,80}? (?:19|20)\d\d\b", citation
    )
    return match[0] if match else citation


@dataclass(frozen=True, slots=True)
class CollectiveRow(InventoryItem):
    """One collective."""

    collective: str
    algorithms: str


def _collectives(catalog: Catalog) -> list[CollectiveRow]:
    from perfsim.collectives import algorithms

    return [
        CollectiveRow(collective, ", ".join(sorted(names)))
        for collective, names in sorted(algorithms().items())
    ]


@dataclass(frozen=True, slots=True)
class FusionRow(InventoryItem):
    """One fusion policy."""

    fusion: str
    what: str


def _fusion(catalog: Catalog) -> list[FusionRow]:
    from perfsim import fusion

    return [FusionRow(name, fusion.load_policy(name).summary) for name in fusion.policy_names()]


@dataclass(frozen=True, slots=True)
class ScenarioRow(InventoryItem):
    """One scenario file; ``question`` and ``command`` are empty where it asks none."""

    scenario: str
    title: str
    question: str
    command: str


def _scenarios(catalog: Catalog) -> list[ScenarioRow]:
    from perfsim.scenario_file import read_scenario

    files = {name: read_scenario(path) for name, path in catalog.scenarios().items()}
    rows = [
        ScenarioRow(name, *(file.get(key, "") for key in ("title", "question", "command")))
        for name, file in files.items()
    ]
    return sorted(rows, key=lambda row: not row.question)


@dataclass(frozen=True, slots=True)
class MeasurementRow(InventoryItem):
    """One measured value of a training run."""

    BRIEF_COLUMNS: ClassVar = ("id", "model", "gpus", "metric", "value", "system")
    SHOWN_COLUMNS: ClassVar = (
        "id",
        "role",
        "model",
        "gpus",
        "metric",
        "value",
        "system",
        "network",
    )

    id: str
    role: str
    system: str
    model: str
    gpus: str
    network: str
    metric: str
    value: str
    scenario: str
    note: str


def _measurements(catalog: Catalog) -> list[MeasurementRow]:
    from perfsim.validate.cases import shipped_cases

    return [
        MeasurementRow(
            id=case.id,
            role=case.role,
            system=case.system,
            model=case.model,
            gpus=f"{case.gpus} x {case.gpu}",
            network=case.network,
            metric=case.metric,
            value=f"{case.value:g}",
            scenario=case.scenario,
            note="; ".join(filter(None, (case.reason or case.notes, case.notice))),
        )
        for case in shipped_cases(catalog)
    ]


LISTED_KINDS: dict[str, Callable[[Catalog], Sequence[InventoryItem]]] = {
    "models": _models,
    "gpus": _gpus,
    "networks": _networks,
    "nodes": _nodes,
    "methods": _methods,
    "collectives": _collectives,
    "fusion": _fusion,
    "scenarios": _scenarios,
    "measurements": _measurements,
}
"""Each kind of thing that `list` takes, and what makes its rows."""


# Descriptions of `show`.


def describe_thing(kind: str, name: str, catalog: Catalog) -> InventoryItem:
    """Return all that is known of one thing of a kind (see ``DESCRIBED_KINDS``).

    Raises
    ------
    RequestError
        If there is no such kind or name.
    """
    if kind not in DESCRIBED_KINDS:
        raise unknown("show", kind, DESCRIBED_KINDS)
    try:
        return DESCRIBED_KINDS[kind](name, catalog)
    except RequestError as error:
        if error.field != kind:
            raise
        # The name itself is wrong, which is no field of a scenario here.
        refusal = type(error)("", error.why, value=error.value, nearest=error.nearest)
        raise refusal.within(kind) from None


@dataclass(frozen=True, slots=True)
class GradientSize(InventoryItem):
    """One of a model's largest gradients."""

    tensor: str
    shape: str
    bytes: str


@dataclass(frozen=True, slots=True)
class ProfileTimes(InventoryItem):
    """The times of one profile, each with its kind."""

    JSON_KEYS: ClassVar = {"ready_times": "ready times"}
    NUMBERS: ClassVar = ("iteration_s", "forward_s", "backward_s", "update_s")

    gpu: str
    precision: str
    batch: int
    iteration: str
    forward: str
    backward: str
    ready_times: str
    update: str
    iteration_s: float
    forward_s: float
    backward_s: float
    update_s: float


@dataclass(frozen=True, slots=True)
class MeasuredIteration(InventoryItem):
    """A measured iteration of a whole model on one GPU."""

    gpu: str
    precision: str
    batch: int
    tokens: int | str
    iteration: str
    software: str
    covers: str
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class ModelDescription(InventoryItem):
    """One model: its gradients, and what is known of it on each GPU."""

    model: str
    parameters: str
    sample: str
    forward: str
    gradients: str
    matrices: int
    largest_gradients: list[GradientSize]
    profiles: list[ProfileTimes]
    measured_iterations: list[MeasuredIteration]
    sources: list[str]


def _model(name: str, catalog: Catalog) -> ModelDescription:
    from perfsim.compute.profile import own_profile, read_profile
    from perfsim.resolve import as_named, model_names

    files = catalog.files("models")
    names = model_names(files)
    own = own_profile(name, catalog)
    name = as_named("model", name, catalog)
    if own is None and name not in names:
        from perfsim.models import is_defined

        if is_defined(name):
            return _defined_model(name, catalog)
        from perfsim.resolve import unknown_model

        raise unknown_model(name, names)
    profiles = [own] if own else [read_profile(files[stem]) for stem in names[name]]
    first = profiles[0]
    largest = sorted(first.gradients, key=lambda gradient: -gradient.elements)[:_MAX_TENSORS_NAMED]
    return ModelDescription(
        model=name,
        parameters=format_count(first.elements),
        sample=_sample(first),
        forward=_forward_work(first.model),
        gradients=f"{len(first.gradients)}, {format_bytes(first.size_bytes)} in fp32",
        matrices=sum(1 for gradient in first.gradients if len(gradient.shape) > 1),
        largest_gradients=[
            GradientSize(
                gradient.name, "x".join(map(str, gradient.shape)), format_bytes(gradient.size_bytes)
            )
            for gradient in largest
        ],
        profiles=[_profile(profile) for profile in profiles],
        measured_iterations=_anchors(name, catalog),
        sources=[
            f"{profile.gpu} b{profile.batch}: {profile.header['source']}"
            + (f" -- {profile.header['notes']}" if profile.header.get("notes") else "")
            for profile in profiles
        ],
    )


def _defined_model(name: str, catalog: Catalog) -> ModelDescription:
    """Describe a model that perfsim defines, layer by layer, and that nobody profiled."""
    from perfsim.models import build_model, own_tokens, takes_tokens
    from perfsim.models.specification import canonical_model

    model = canonical_model(name)
    layers = build_model(model)
    tensors = [(tensor, shape) for layer in layers for tensor, shape in layer.tensors]
    sizes = {tensor: prod(shape) for tensor, shape in tensors}
    elements = sum(sizes.values())
    shapes = dict(tensors)
    largest = sorted(sizes, key=lambda tensor: -sizes[tensor])[:_MAX_TENSORS_NAMED]
    sample = "not over text"
    if takes_tokens(model):
        sample = f"{own_tokens(model)} tokens; `seq` chooses others"
    return ModelDescription(
        model=name,
        parameters=format_count(elements),
        sample=sample,
        forward=_forward_work(model),
        gradients=f"{len(tensors)}, {format_bytes(4.0 * elements)} in fp32",
        matrices=sum(1 for _, shape in tensors if len(shape) > 1),
        largest_gradients=[
            GradientSize(
                tensor, "x".join(map(str, shapes[tensor])), format_bytes(4.0 * sizes[tensor])
            )
            for tensor in largest
        ],
        profiles=[],
        measured_iterations=_anchors(name, catalog),
        sources=["its layers alone: times are those of its kernels on the GPU asked for"],
    )


def _sample(profile: Profile) -> str:
    """Return what a sample of a model is: its tokens, where it is over text."""
    from perfsim.models import is_defined, takes_tokens

    if profile.sequence is None:
        return "not over text"
    free = is_defined(profile.model) and takes_tokens(profile.model)
    return f"{profile.sequence} tokens" + ("; `seq` chooses others" if free else "")


def _forward_work(model: str) -> str:
    """Return the work of a sample's forward pass, by the network's definition."""
    from perfsim.models import build_model, is_defined

    if not is_defined(model):
        return "not known: perfsim has no definition of this network"
    flops = sum_in_order(layer.flops for layer in build_model(model))
    return f"{flops / 1e9:.4g} GFLOP a sample (2 a multiply-add)"


def _anchors(name: str, catalog: Catalog) -> list[MeasuredIteration]:
    """Return the measured iterations of the whole model, by GPU."""
    from perfsim.compute.anchors import load_anchors

    return [
        MeasuredIteration(
            gpu=gpu,
            precision=anchor.precision,
            batch=anchor.batch,
            tokens=anchor.sequence or "",
            iteration=format_seconds(anchor.iteration_s),
            software=anchor.software,
            covers=anchor.covers,
            kind=anchor.kind,
            source=anchor.source,
        )
        for gpu in catalog.files("devices")
        for anchor in load_anchors(gpu, catalog)
        if anchor.model == name
    ]


def _profile(profile: Profile) -> ProfileTimes:
    return ProfileTimes(
        gpu=profile.gpu,
        precision=profile.precision,
        batch=profile.batch,
        iteration=f"{format_seconds(profile.iteration_s)} {profile.kinds['iteration_ms']}",
        forward=f"{format_seconds(profile.forward_s)} {profile.kinds['forward_ms']}",
        backward=f"{format_seconds(profile.backward_s)} {profile.kinds['backward_ms']}",
        ready_times=profile.kinds["ready_ms"],
        update=f"{format_seconds(profile.optimizer_s)} {profile.kinds['optimizer_ms']}",
        iteration_s=profile.iteration_s,
        forward_s=profile.forward_s,
        backward_s=profile.backward_s,
        update_s=profile.optimizer_s,
    )


@dataclass(frozen=True, slots=True)
class GpuDescription(InventoryItem):
    """One GPU type: its figures in words, by name, and some of them as numbers."""

    figures: dict[str, str]
    numbers: dict[str, Any]

    def to_dict(self, *, numbers: bool = True) -> dict[str, Any]:
        """Return the figures."""
        return self.figures | (self.numbers if numbers else {})


def _gpu(name: str, catalog: Catalog) -> GpuDescription:
    from perfsim.compute.device import load_device

    device = load_device(name, catalog)
    numbers = {
        "memory_bytes": device.memory_bytes,
        "memory_bandwidth_bytes_per_s": device.memory_bandwidth.value,
        "power_w": device.power_w,
        "kernel_launch_s": device.launch_s.value,
        "matrix_rates_flop_per_s": {name: rate.value for name, rate in device.rates.items()},
    }
    return GpuDescription(device.describe(), numbers)


@dataclass(frozen=True, slots=True)
class LinkValue(InventoryItem):
    """One number of a link, with its range and source; ``number`` is in ``unit``."""

    NUMBERS: ClassVar = ("number", "unit")

    link: str
    what: str
    value: str
    kind: str
    range: str
    source: str
    number: float
    unit: str


@dataclass(frozen=True, slots=True)
class CurveSummary(InventoryItem):
    """One measured curve of a collective."""

    collective: str
    ranks: int
    nodes: int
    held: str
    points: int
    range: str
    time: str
    kind: str
    spread: str
    source: str


@dataclass(frozen=True, slots=True)
class TunerSummary(InventoryItem):
    """How NCCL chooses algorithms on a network."""

    JSON_KEYS: ClassVar = {
        "gpus": "GPUs",
        "bus_bandwidth": "bus bandwidth between nodes",
        "two_nodes": "on two nodes",
        "plain_tree": "plain tree",
        "ll128": "LL128 between nodes",
    }

    version: str
    gpus: str
    inside: str
    bus_bandwidth: str
    two_nodes: str
    plain_tree: str
    ll128: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkDescription(InventoryItem):
    """One network: its nodes, fabrics, measured curves and every number of its links."""

    network: str
    title: str
    transport: str
    library: str
    gpus_per_node: int | str
    nics_per_node: int
    fabric_between_nodes: str
    fabric_inside_nodes: str
    inside: str
    ranks_measured: dict[str, str]
    curves: list[CurveSummary] | None = None
    nccl_tuner: TunerSummary | None = None
    values: list[LinkValue]
    warnings: list[str]
    notes: list[str]


def _network(name: str, catalog: Catalog) -> NetworkDescription:
    from perfsim.network.node_network import load_any_network
    from perfsim.network.self_check import self_check

    network = load_any_network(name, catalog, "net")
    known = network.known
    return NetworkDescription(
        network=network.name,
        title=network.title,
        transport=network.transport,
        library=network.library,
        gpus_per_node=network.gpus_per_node or "not stated",
        nics_per_node=network.nics_per_node,
        fabric_between_nodes=network.fabric.words() if network.fabric else "not stated",
        fabric_inside_nodes=network.node.words() if network.node else "not stated",
        inside=network.inside or ("its own" if "intra" in network.links else "not stated"),
        ranks_measured={
            link_class: f"{link.ranks[0]} to {link.ranks[1]}" if link.ranks else "none"
            for link_class, link in network.links.items()
        },
        curves=None if known is None else [_curve(curve) for curve in known.curves],
        nccl_tuner=None if known is None or known.tuner is None else _tuner(known.tuner),
        values=[
            value
            for link_class, link in network.links.items()
            for value in _values(link_class, link)
        ],
        warnings=self_check(network),
        notes=list(network.notes),
    )


@dataclass(frozen=True, slots=True)
class DerivedRate(InventoryItem):
    """What one collective is predicted to take on nodes of a type."""

    JSON_KEYS: ClassVar = {"bus_bandwidth": "bus bandwidth", "within": "90 % within"}
    NUMBERS: ClassVar = ("size_bytes", "time_s", "time_s_interval", "bus_bandwidth_bytes_per_s")

    collective: str
    nodes: int
    gpus: int
    size: str
    time: str
    bus_bandwidth: str
    within: str
    algorithm: str
    size_bytes: float
    time_s: float
    time_s_interval: list[float]
    bus_bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class NodeDescription(InventoryItem):
    """One node type: what its data sheet says, and what collectives reach of it."""

    JSON_KEYS: ClassVar = {"gpus_per_node": "GPUs a node", "measured_like_it": "measured like it"}

    node: str
    title: str
    gpu: str
    gpus_per_node: int
    library: str
    inside: str
    nics: str
    rates: list[DerivedRate]
    measured_like_it: list[str]
    sources: list[str]
    notes: list[str]


_SHOWN_NODES = (1, 2, 16)
"""Numbers of nodes for which `show node` says what collectives take."""
_SHOWN_SIZES = (1e6, 64e6, 1e9)
_SHOWN_COLLECTIVES = ("all_reduce", "all_gather")


def describe_node(name: str, catalog: Catalog) -> NodeDescription:
    """Return all that is known of a node type, and what collectives on such nodes reach."""
    from perfsim.hardware.nodes import node_facts
    from perfsim.network.node_network import DerivedCollectives
    from perfsim.network.node_type import load_node_type
    from perfsim.scenario import DEFAULT_GPU
    from perfsim.validate.node_clusters import measured_nodes

    node = load_node_type(name, catalog, "node")
    gpu = node.gpu or DEFAULT_GPU
    derived = DerivedCollectives(node.name, node_facts(node, catalog))
    sources = [f"GPUs: {node.source}", f"inside: {node.inside.source}"]
    if node.nics is not None:
        sources.append(f"NICs: {node.nics.source}")
    return NodeDescription(
        node=node.name,
        title=node.title,
        gpu=node.gpu or f"any; below {gpu}",
        gpus_per_node=node.gpus,
        library=node.library,
        inside=_inside_words(node),
        nics=nics_words(node),
        rates=[
            _derived_rate(derived, node, collective, nodes, size)
            for collective in _SHOWN_COLLECTIVES
            for nodes in (_SHOWN_NODES if node.nics else (1,))
            for size in _SHOWN_SIZES
            if nodes * node.gpus > 1
        ],
        measured_like_it=[
            network for network, there in measured_nodes().items() if there.node == node.name
        ],
        sources=sources,
        notes=list(node.notes),
    )


def nics_words(node: NodeType) -> str:
    """Say how many NICs a node has, and whether they read the memory of GPUs."""
    nics = node.nics
    if nics is None:
        return "none"
    direct = "GPUDirect" if nics.gpudirect else "no GPUDirect"
    return f"{nics.count_words()}, {direct}"


def _derived_rate(
    derived: DerivedCollectives, node: NodeType, collective: str, nodes: int, size: float
) -> DerivedRate:
    from perfsim.calibrate.formats.rows import busbw_factor

    cost = derived.cost(collective, size, (node.gpus,) * nodes, node.library)
    assert cost is not None
    gpus = nodes * node.gpus
    volume = busbw_factor(collective, gpus) * size
    times = exp(cost.spread or 0.0)
    return DerivedRate(
        collective=collective,
        nodes=nodes,
        gpus=gpus,
        size=format_bytes(size, 3),
        time=format_seconds(cost.seconds, 3),
        bus_bandwidth=format_rate(volume / cost.seconds, 3),
        within=f"x{1.0 / times:.2g} to x{times:.2g}",
        algorithm=named_algorithm(cost),
        size_bytes=size,
        time_s=cost.seconds,
        time_s_interval=[cost.seconds / times, cost.seconds * times],
        bus_bandwidth_bytes_per_s=volume / cost.seconds,
    )


def named_algorithm(cost: Cost) -> str:
    """Return the algorithm that the law of node types took."""
    return cost.terms[0].quantity.source.rpartition("; ")[2]


def _values(link_class: str, link: Link) -> list[LinkValue]:
    """Return every number of a link with its range and source."""
    quantities = [("rate", link.rate), ("tree rate", link.tree_rate), ("gamma", link.gamma)]
    for algorithm, curve in (("ring", link.ring), ("tree", link.tree)):
        quantities += [
            (f"{algorithm} latency at {format_bytes(size)}", curve.quantity(alpha_s))
            for size, alpha_s in zip(curve.size_bytes, curve.alpha_s, strict=True)
        ]
    return [
        LinkValue(
            link=link_class,
            what=what,
            value=str(quantity),
            kind=quantity.kind,
            range=_range(quantity.low, quantity.high),
            source=quantity.source,
            number=quantity.value,
            unit=quantity.unit,
        )
        for what, quantity in quantities
    ]


def _curve(curve: CollectiveCurve) -> CurveSummary:
    return CurveSummary(
        collective=curve.collective,
        ranks=curve.ranks,
        nodes=curve.nodes,
        held=" ".join(word for word in (curve.algorithm, curve.protocol) if word) or "auto",
        points=len(curve.size_bytes),
        range=_range(curve.size_bytes[0], curve.size_bytes[-1]),
        time=f"{format_seconds(curve.seconds[0])} to {format_seconds(curve.seconds[-1])}",
        kind=curve.kind,
        spread="" if curve.spread is None else f"{curve.spread:.1%}",
        source=curve.source,
    )


def _tuner(tuner: TunedChoice) -> TunerSummary:
    return TunerSummary(
        version=tuner.of.version,
        gpus=tuner.of.architecture,
        inside=tuner.of.intra,
        bus_bandwidth=f"{tuner.bus_bandwidth:.4g} GB/s",
        two_nodes=f"{tuner.two_nodes:g} times that",
        plain_tree="yes" if tuner.plain_tree else "no",
        ll128="yes" if tuner.near_nic else "no",
    )


@dataclass(frozen=True, slots=True)
class MethodOption(InventoryItem):
    """One option of a method; ``only_with`` says which other options it needs."""

    option: str
    default: Any
    allowed: str
    what: str
    only_with: str


@dataclass(frozen=True, slots=True)
class MethodDescription(InventoryItem):
    """One method, as its own file describes it (see `perfsim.methods.describe`).

    Parameters
    ----------
    levels : what it exchanges inside a node and what across nodes
    wire : bytes that a rank sends, as a formula in the symbols of ``wire_symbols``
    wire_by_default : the same with the default options
    also_called : other names that are taken for it
    fidelity : how much of a gradient it keeps by default: density, rank or bits
    code_base, update : the code it runs in, and how that launches the update
    learning : what is known of how it learns, a sentence for each source and measure
    evidence : the rows of `profiles/learning/evidence.csv` behind these sentences
    accuracy_record : how wrong its predictions have been
    """

    method: str
    summary: str
    what_is_sent: str
    kernels: str
    bytes_a_rank: str
    memory: str
    left_out: str
    remarks: str
    levels: str
    wire: str
    wire_by_default: str
    wire_symbols: str
    options: list[MethodOption]
    default_fusion: str
    also_called: list[str]
    fidelity: str
    code_base: str
    update: str
    family: str
    learns_as_ssgd: bool
    learning: list[str]
    evidence: list[dict[str, Any]]
    needs: str
    source: str
    accuracy_record: str


def _method(name: str, catalog: Catalog) -> MethodDescription:
    from perfsim.methods.describe import describe_method

    described = describe_method(name, catalog)
    options = [MethodOption(**option) for option in described["options"]]
    record = _accuracy_record(catalog).get(described["method"], _NO_RECORD)
    return MethodDescription(**{**described, "options": options, "accuracy_record": record})


@dataclass(frozen=True, slots=True)
class VariedField(InventoryItem):
    """A field that a sweep of a scenario varies, and its values as the file states them."""

    field: str
    values: Any


@dataclass(frozen=True, slots=True)
class MeasuredAnswer(InventoryItem):
    """A row of a scenario's answer, and the id of its measurement."""

    row: str
    measurement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioDescription(InventoryItem):
    """One scenario file; what the file does not state is None."""

    name: str
    question: str | None = None
    command: str | None = None
    title: Any = None
    source: Any = None
    notes: Any = None
    scenario: dict[str, Any]
    varied: list[VariedField] | None = None
    measured: list[MeasuredAnswer] | None = None
    claims: list[Claim] | None = None


def _scenario(name: str, catalog: Catalog) -> ScenarioDescription:
    from perfsim.methods import AUTO_METHOD, load_method
    from perfsim.scenario import make_scenario
    from perfsim.scenario_file import read_scenario
    from perfsim.validate.claims import claims_of

    data = read_scenario(catalog.scenario(name))
    scenario = make_scenario(data["scenario"], name)
    if scenario.method.lower() != AUTO_METHOD:
        try:
            load_method(scenario.method, scenario.options)
        except RequestError as error:
            raise error.of_file(name) from None
    varied = [VariedField(field, values) for field, values in data.get("sweep", {}).items()]
    measured = [MeasuredAnswer(row, id_) for row, id_ in data.get("measured", {}).items()]
    return ScenarioDescription(
        name=name,
        question=data.get("question"),
        command=data.get("command"),
        title=data.get("title"),
        source=data.get("source"),
        notes=data.get("notes"),
        scenario=scenario.model_dump(exclude_none=True, mode="json"),
        varied=varied or None,
        measured=measured or None,
        claims=claims_of(name, catalog) or None,
    )


DESCRIBED_KINDS: dict[str, Callable[[str, Catalog], InventoryItem]] = {
    "model": _model,
    "gpu": _gpu,
    "net": _network,
    "node": describe_node,
    "method": _method,
    "scenario": _scenario,
}
"""Each kind of thing that `show` takes, and what describes it."""


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{format_bytes(low)} to {format_bytes(high)}"
