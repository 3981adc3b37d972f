"""Divide a setup's model: which ranks hold what, and the groups in which they send.

`model_split` reads the degrees of parallelism of a scenario (``tp``, ``pp``, ``cp``, ``ep``, ...),
checks that model and cluster can be divided so, and prices every group where it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.compute.host_offload import blocks_to_host
from perfsim.compute.kernel import FLOAT
from perfsim.compute.kernel_time import kernel_rates
from perfsim.compute.micro_batches import added_bytes
from perfsim.compute.profile import defined_tokens, matches_definition
from perfsim.compute.stages import DividedLayers, ModelParts, RankWork, divide_layers
from perfsim.compute.transfer import gradient_bytes
from perfsim.errors import RequestError
from perfsim.models import build_model, packed_model
from perfsim.models.blocks import NORMS
from perfsim.models.layers import is_expert
from perfsim.models.split import FOLDED, KERNEL_RATES, Degrees, check_schedule, copies_sent
from perfsim.network.layout import (
    DEFAULT_LAYOUT,
    GRADIENTS,
    GroupPlaces,
    ParallelLayout,
    parse_layout,
)
from perfsim.scenario import values_read_by
from perfsim.schedule.stage_passes import AXIS_WORDS, BUBBLE
from perfsim.session import Answers, RememberingCluster
from perfsim.simulate.task import COMPUTE
from perfsim.sums import sum_in_order

if TYPE_CHECKING:
    from perfsim.compute.device import Device
    from perfsim.compute.profile import Profile
    from perfsim.compute.transfer import TransferredProfile
    from perfsim.data.catalog import Catalog
    from perfsim.network.cluster import Cluster
    from perfsim.scenario import Scenario
    from perfsim.schedule.costed_graph import CostedGraph
    from perfsim.schedule.pipeline import PipelineRun

__all__ = [
    "ModelSplit",
    "ParallelSummary",
    "expert_ranks",
    "model_split",
    "parallel_layout",
    "parallel_summary",
]

_CHUNKED = {"interleaved": 2, **dict.fromkeys(FOLDED, 2)}
"""Schedules of a pipeline that need several chunks a stage, and how many they take by default."""


@dataclass(frozen=True)
class ModelSplit:
    """A model divided among ranks, and the groups that these form.

    Parameters
    ----------
    layout : degrees of parallelism and the order of the ranks
    experts : the same of the experts
    parts : what the ranks of each stage compute and send
    data : the ranks that hold the same weights, as a cluster of its own
    axes : the other groups, each as a cluster of its own
    schedule, chunks : of the pipeline
    tied_bytes : gradients of the embedding that the last stage holds too [B]; 0 where it does not
    whole_bytes : by stage, gradients that tensor-parallel ranks add up at the end [B]
    divides_tokens : whether tensor-parallel ranks divide the tokens of what they do not divide
        otherwise (sequence parallelism)
    of_layers : what was worked out about its layers, shared by all splits that divide them alike
    key : what tells it from other divisions of the model
    answers : what was worked out about it
    """

    layout: ParallelLayout
    experts: ParallelLayout
    parts: ModelParts
    data: Cluster
    axes: Mapping[str, Cluster]
    schedule: str
    chunks: int
    tied_bytes: float
    whole_bytes: tuple[float, ...]
    divides_tokens: bool = True
    of_layers: Answers = field(default_factory=Answers, compare=False, repr=False)
    key: tuple[Hashable, ...] = ()
    answers: Answers = field(default_factory=Answers, init=False, compare=False, repr=False)

    def slow_stages(self, stragglers: Sequence[tuple[int, float]]) -> tuple[float, ...]:
        """Return how many times slower each stage computes, where it has a slow GPU.

        Parameters
        ----------
        stragglers : pairs (GPUs, how many times slower), of the first GPUs
        """
        slow = [1.0] * self.layout.pp
        for gpu, factor in _slow_gpus(stragglers):
            stage = gpu // self.layout.stride("pp") % self.layout.pp
            slow[stage] = max(slow[stage], factor)
        return tuple(slow)

    def slow_ranks(self, stragglers: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
        """Return how many data-parallel ranks are slow, and how many times slower they compute.

        A rank waits for its tensor-parallel GPUs at every layer, so that it is as slow as the
        slowest of them.
        """
        slow: dict[tuple[int, ...], float] = {}
        for gpu, factor in _slow_gpus(stragglers):
            place = tuple(
                gpu // self.layout.stride(axis) % self.layout.degree(axis) for axis in GRADIENTS
            )
            slow[place] = max(slow.get(place, 1.0), factor)
        counted = Counter(slow.values())
        return tuple((counted[factor], factor) for factor in sorted(counted, reverse=True))


def _slow_gpus(stragglers: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Yield each slow GPU's number and how many times slower it computes."""
    first = 0
    for count, factor in stragglers:
        yield from ((gpu, factor) for gpu in range(first, first + count))
        first += count


def parallel_layout(scenario: Scenario) -> ParallelLayout:
    """Return the degrees of parallelism of a scenario and the order of its ranks.

    Where experts have a layout of their own (`ParallelLayout.of_experts`), all replicas are in
    ``dp``.

    Raises
    ------
    RequestError
        If they do not multiply to its GPUs.
    """
    each = scenario.tp * scenario.pp * scenario.cp
    if scenario.gpus % each:
        replicas = max(1, round(scenario.gpus / each))
        raise RequestError(
            "gpus",
            f"{scenario.gpus} GPUs do not divide by `tp` {scenario.tp} x `pp` {scenario.pp} x `cp`"
            f" {scenario.cp} = {each}; the nearest that do are {replicas * each}.",
            value=scenario.gpus,
        )
    replicas = scenario.gpus // each
    _check_experts_places(scenario, replicas)
    order = parse_layout(scenario.layout or DEFAULT_LAYOUT)
    whole = whole_experts(scenario)
    apart = scenario.cp > 1 or whole
    if apart and (scenario.ep > 1 or whole) and not _stages_last(scenario):
        why = "experts that stand on `cp` or `tp` ranks too need pp last, as in Megatron-LM."
        raise RequestError("layout", why, value=scenario.layout, nearest=DEFAULT_LAYOUT)
    ep = 1 if apart else scenario.ep
    return ParallelLayout(scenario.tp, scenario.cp, ep, replicas // ep, scenario.pp, order)


def _stages_last(scenario: Scenario) -> bool:
    """Tell whether the ranks of a stage are neighbours: experts may then stand on any of them."""
    return scenario.pp == 1 or parse_layout(scenario.layout or DEFAULT_LAYOUT)[-1] == "pp"


def whole_experts(scenario: Scenario) -> bool:
    """Tell whether tensor-parallel ranks hold whole experts."""
    return scenario.etp == 1 < scenario.tp


def expert_ranks(tp: int, cp: int, replicas: int, *, whole: bool) -> int:
    """Return how many ranks of a stage can hold other experts.

    Examples
    --------
    >>> expert_ranks(4, 2, 8, whole=False), expert_ranks(4, 2, 8, whole=True)
    (16, 64)
    """
    return (tp if whole else 1) * cp * replicas


def _check_experts_places(scenario: Scenario, replicas: int) -> None:
    """Refuse expert-parallel ranks that do not divide those that can hold other experts."""
    ep, sizes = scenario.ep, (scenario.tp, scenario.cp, replicas)
    ranks = expert_ranks(*sizes, whole=whole_experts(scenario))
    if ranks % ep == 0:
        return
    kinds = [
        *(["tensor"] if whole_experts(scenario) else []),
        *(["context"] if scenario.cp > 1 else []),
        "data",
    ]
    nearest = max(size for size in range(1, ranks + 1) if ranks % size == 0 and size <= ep)
    instead = ""
    may = scenario.etp is None and scenario.sequence_parallel and _stages_last(scenario)
    if may and expert_ranks(*sizes, whole=True) % ep == 0:
        instead = f" (with `etp` 1 {ep} does too)"
    raise RequestError(
        "ep",
        f"{ep} does not divide the {ranks} {' and '.join(kinds)}-parallel ranks; the nearest that"
        f" does is {nearest}{instead}.",
        value=ep,
    )


def model_split(
    scenario: Scenario,
    transferred: TransferredProfile,
    device: Device,
    cluster: Cluster,
    catalog: Catalog,
    *,
    adds: bool = False,
) -> ModelSplit:
    """Divide the model of a scenario, which asks for a degree above 1.

    Parameters
    ----------
    adds : whether a rank adds up the gradients of micro-batches before it sends them

    Raises
    ------
    RequestError
        If model or cluster cannot be divided so; says the nearest that works.
    """
    if cluster.uneven:
        raise RequestError("placement", "a divided model needs as many GPUs on each node.")
    layout = parallel_layout(scenario)
    experts = layout.of_experts(scenario.ep, whole=whole_experts(scenario))
    chunks = scenario.virtual_stages or _CHUNKED.get(scenario.schedule, 1)
    if scenario.pp == 1:
        chunks = 1
    check_schedule(scenario.schedule, scenario.pp, chunks, scenario.accumulate)
    profile = transferred.profile
    if not matches_definition(profile):
        asked = next(name for name in ("tp", "pp", "cp", "ep") if getattr(scenario, name) > 1)
        why = f"perfsim has no layers of {profile.model}, so that it cannot be divided."
        raise RequestError(asked, why, value=getattr(scenario, asked))
    degrees = Degrees(
        *(scenario.tp, scenario.cp, scenario.ep, scenario.sequence_parallel, scenario.imbalance),
        scenario.dispatcher,
        *_copies_sent(scenario, profile, experts, cluster.gpus_per_node),
        whole_experts(scenario),
        scenario.cp_comm,
        *_dispatched(scenario, experts, cluster.gpus_per_node),
    )
    added = 0.0
    if adds:
        kept = gradient_bytes(scenario.reduce_dtype, master_weights=scenario.master_weights)
        added = added_bytes(profile.precision, transferred.era, kept, scenario.accumulate)
    key = (
        *("split", profile.model, profile.sequence, profile.batch, profile.precision, device.key),
        *(*_times_read(profile), scenario.optimizer, scenario.reduce_dtype, *degrees, scenario.pp),
        *(chunks, scenario.stage_layers, scenario.tp_overlap, scenario.ep_overlap),
        *(scenario.schedule, layout, experts),
        *(scenario.recompute, transferred.era, added, scenario.autocast, scenario.master_weights),
        scenario.offload,
        *values_read_by("network", scenario),
    )

    def made() -> ModelSplit:
        work = _rank_work(scenario, transferred, device, catalog, degrees, added)
        of_layers = "of layers", *_layers_read(scenario, transferred, degrees)
        answers = catalog.once(of_layers, Answers)
        places = layout, experts
        return _made(scenario, work, answers, device, cluster, catalog, places, chunks, key)

    return catalog.once(key, made)


def _made(
    scenario: Scenario,
    work: RankWork,
    of_layers: Answers,
    device: Device,
    cluster: Cluster,
    catalog: Catalog,
    layouts: tuple[ParallelLayout, ParallelLayout],
    chunks: int,
    key: tuple[Hashable, ...],
) -> ModelSplit:
    layout, experts = layouts
    parts = work.stages(
        scenario.pp, chunks, given=scenario.stage_layers, folded=scenario.schedule in FOLDED
    )
    per_node = cluster.gpus_per_node
    network = values_read_by("network", scenario)

    def placed(places: GroupPlaces) -> Cluster:
        return catalog.once(
            ("group", *network, device.key, *places),
            lambda: RememberingCluster.like(cluster.placed(*places)),
        )

    def spanning(*axes: str, of: ParallelLayout = layout) -> Cluster:
        if cluster.wide is None:
            return placed(of.group(axes, per_node))
        return over_sites(cluster, of.groups(axes))

    axes = {axis: spanning(axis) for axis in ("tp", "cp") if layout.degree(axis) > 1}
    if experts.ep > 1:
        axes["ep"] = spanning("ep", of=experts)
    if experts.ep > 1 or whole_experts(scenario):
        axes["experts"] = spanning("cp", "dp", of=experts)
    if layout.pp > 1 and cluster.wide is None:
        axes["pp"] = placed(layout.neighbours("pp", per_node))
    elif layout.pp > 1:
        axes["pp"] = over_sites(cluster, layout.pairs("pp"))
    tied_bytes = FLOAT * max(stage.copied_elements for stage in parts.stages)
    if tied_bytes:
        axes["ends"] = axes["pp"]
    return ModelSplit(
        layout,
        experts,
        parts,
        spanning(*GRADIENTS),
        axes,
        scenario.schedule,
        chunks,
        tied_bytes,
        _whole_bytes(parts, scenario),
        divides_tokens=scenario.sequence_parallel,
        of_layers=of_layers,
        key=key,
    )


def over_sites(cluster: Cluster, groups: list[list[int]]) -> Cluster:
    """Return the group that is spread widest over sites as a cluster of its own."""
    from perfsim.network.wide_area import widest_group

    assert cluster.wide is not None
    part = cluster.over_sites(widest_group(cluster.wide, groups))
    return RememberingCluster.like(part)


def _rank_work(
    scenario: Scenario,
    transferred: TransferredProfile,
    device: Device,
    catalog: Catalog,
    degrees: Degrees,
    added: float,
) -> RankWork:
    """Return what a rank computes and sends; pipelines of any length share it.

    ``added`` is the traffic that adds a micro-batch's gradient of a parameter to the sum [B].
    """
    profile = transferred.profile
    read = _layers_read(scenario, transferred, degrees)
    model, tokens, document, era, autocast, *_ = read

    def divided() -> DividedLayers:
        layers = packed_model(model, tokens, document)
        return divide_layers(layers, degrees, era, autocast=autocast)

    def work() -> RankWork:
        return RankWork(
            profile,
            catalog.once(("divided layers", *read), divided),
            kernel_rates(
                device,
                profile.precision,
                era,
                autocast=autocast,
                master_weights=scenario.master_weights,
            ),
            scenario.recompute,
            overlapped=scenario.tp_overlap,
            experts_overlapped=scenario.ep_overlap,
            added_bytes=added,
            to_host=blocks_to_host(
                *(scenario.offload, device, profile, era),
                autocast=autocast,
                gathered=degrees.tp if degrees.sequence else 1,
            ),
        )

    asked = (
        *("rank work", profile.model, profile.sequence, profile.batch, profile.precision),
        *(device.key, *_times_read(profile), scenario.optimizer, scenario.reduce_dtype, *degrees),
        *(scenario.tp_overlap, scenario.ep_overlap, scenario.recompute, era, added, autocast),
        *(scenario.master_weights, scenario.offload, document),
    )
    return catalog.once(asked, work)


def _times_read(profile: Profile) -> tuple[float, float, float]:
    """Return what tells a profile's times from those of others of the same layers.

    An update by the host's CPUs depends on how many GPUs a host has, and `single_gpu` pins the sum
    of passes and update alone.
    """
    return profile.iteration_s, profile.optimizer_s, profile.host_sharing


def _layers_read(
    scenario: Scenario, transferred: TransferredProfile, degrees: Degrees
) -> tuple[Any, ...]:
    """Return what the layers of a rank depend on.

    These are model, tokens of a sample and of a document, era, autocast, and degrees.
    """
    profile = transferred.profile
    autocast = bool(scenario.autocast)  # codes that divide models keep parameters in 16 bits
    tokens, document = defined_tokens(profile), scenario.document_tokens
    return profile.model, tokens, document, transferred.era, autocast, *degrees


def _copies_sent(
    scenario: Scenario, profile: Profile, experts: ParallelLayout, per_node: int
) -> tuple[float, float]:
    """Return how many copies of a token leave and come to ranks, for each of its experts."""
    if scenario.ep == 1 or scenario.dispatcher == "alltoall":
        return 1.0, 1.0
    layers = build_model(profile.model, defined_tokens(profile))
    if not any(map(is_expert, layers)):
        return 1.0, 1.0  # refused where the layers are divided
    nodes = len(experts.group(("ep",), per_node).placement)
    received = copies_sent(layers, scenario.ep)
    return copies_sent(layers, nodes) if nodes > 1 else received, received


def _dispatched(scenario: Scenario, experts: ParallelLayout, per_node: int) -> tuple[float, int]:
    """Return what a dispatcher's kernels bring to a rank at most, and whose weights they send.

    HybridEP sends what all experts of a node weigh for a token with each of its copies.
    """
    if scenario.ep == 1 or scenario.dispatcher == "alltoall":
        return inf, 0
    nodes = len(experts.group(("ep",), per_node).placement)
    if scenario.dispatcher == "hybridep":
        return inf, scenario.ep // nodes
    return KERNEL_RATES[scenario.dispatcher][nodes > 1], 0


def _whole_bytes(parts: ModelParts, scenario: Scenario) -> tuple[float, ...]:
    """Return, by stage, the gradients that are whole on ranks with other tokens [B]."""
    if scenario.tp == 1 or not scenario.sequence_parallel:
        return (0.0,) * len(parts.stages)
    found: dict[tuple[int, ...], float] = {}
    for stage in parts.stages:
        if stage.content not in found:
            norms = (layer.elements for layer in stage.layers if layer.kind in NORMS)
            found[stage.content] = FLOAT * sum(norms)
    return tuple([found[stage.content] for stage in parts.stages])


class ParallelSummary(NamedTuple):
    """How a model is divided, and what a rank of the busiest stage waits for.

    Parameters
    ----------
    layout : degrees of parallelism and the order of the ranks
    experts : the same of the experts
    schedule, chunks : of the pipeline
    blocks : of each chunk, in the order of the model
    bubble_s : computation of other stages that it waits for in an iteration [s]
    waits_s : by group, messages that it waits for in an iteration [s]
    run : when each stage computes; None without a pipeline
    """

    layout: ParallelLayout
    experts: ParallelLayout
    schedule: str
    chunks: int
    blocks: tuple[int, ...]
    bubble_s: float
    waits_s: Mapping[str, float]
    run: PipelineRun | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        layout = self.layout
        piped = layout.pp > 1
        return {
            **{axis: layout.degree(axis) for axis in ("tp", "pp", "cp")},
            "ep": self.experts.ep,
            **({"etp": self.experts.tp} if self.experts.tp != layout.tp else {}),
            "dp": layout.replicas,
            "layout": "-".join(layout.order),
            **({"schedule": self.schedule, "chunks": self.chunks} if piped else {}),
            **({"blocks": list(self.blocks), "bubble_s": self.bubble_s} if piped else {}),
            "waits_s": dict(self.waits_s),
        }

    def waits(self) -> dict[str, float]:
        """Return what computation waits for in an iteration, in words [s]."""
        return {AXIS_WORDS[axis]: seconds for axis, seconds in self.waits_s.items() if seconds > 0}

    def words(self) -> str:
        """Say how the model is divided: ``tp 8, pp 4 (1f1b), dp 16``."""
        layout, experts = self.layout, self.experts
        sizes = {"tp": layout.tp, "cp": layout.cp, "ep": experts.ep}
        words = [f"{axis} {size}" for axis, size in sizes.items() if size > 1]
        if experts.tp != layout.tp:
            words.append(f"etp {experts.tp}")
        if layout.pp > 1:
            words.append(f"pp {layout.pp}")
            words[-1] += f" ({self.schedule}{f', {self.chunks} chunks' if self.chunks > 1 else ''})"
        return ", ".join([*words, f"dp {layout.replicas}"])


def parallel_summary(
    split: ModelSplit, rounds: Sequence[CostedGraph], run: PipelineRun | None = None
) -> ParallelSummary:
    """Return what a rank of the busiest stage waits for, mean of all rounds.

    ``run`` is the pipeline, None without one.
    """
    total = sum_in_order(costed.iterations for costed in rounds)
    bubble_s, waits_s = 0.0, dict.fromkeys((axis for axis in AXIS_WORDS if axis in split.axes), 0.0)
    for costed in rounds:
        for task in costed.graph.tasks:
            seconds = costed.count * float(task.duration_s) / total
            if task.stream != COMPUTE:
                continue
            if task.name.startswith(BUBBLE):
                bubble_s += seconds
            elif task.kind == "communicate" and task.group in waits_s:
                waits_s[str(task.group)] += seconds
    return ParallelSummary(
        *(split.layout, split.experts, split.schedule, split.chunks, split.parts.blocks),
        *(bubble_s, waits_s, run),
    )
