"""What one GPU holds in training, by part; whether it fits, and the largest batch that does.

`perfsim.compute.memory` has the physics of each part; here a setup is put into its words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from perfsim.compute.device import Device
from perfsim.compute.execution import execution_of
from perfsim.compute.host_offload import CHECKPOINTS, activation_blocks, offloaded
from perfsim.compute.memory import (
    Activations,
    State,
    StateShares,
    activation_bytes,
    fsdp_sharding,
    largest_batch,
    narrow_elements,
    overhead_bytes,
    peak_parts,
    state_bytes,
)
from perfsim.compute.profile import (
    AUTOCAST_PRECISIONS,
    OPERAND_BYTES,
    defined_tokens,
    matches_definition,
)
from perfsim.compute.recompute import blocks_again, of_blocks
from perfsim.compute.software import software_era
from perfsim.errors import RequestError
from perfsim.methods.base import HeldState, MethodContext, MethodState
from perfsim.models import ModelLayer, build_model, takes_tokens
from perfsim.models.blocks import block_count
from perfsim.resolve import Setup, kernel_era, resolve
from perfsim.schedule.costs import Costs
from perfsim.sums import sum_in_order
from perfsim.units import format_bytes

if TYPE_CHECKING:
    from perfsim.data.catalog import Catalog
    from perfsim.model_parallel import ModelSplit
    from perfsim.scenario import Scenario

__all__ = [
    "LONG_SAMPLE",
    "UNFIT",
    "MemoryUse",
    "OuterState",
    "check_fits",
    "communicators",
    "fitting_batch",
    "least_change",
    "memory_note",
    "memory_use",
    "one_gpu_holds",
    "optimizer_of",
    "outer_state",
    "stage_memory",
]

_OF_PROFILE = {"plain-sgd": "sgd", "sgd": "momentum", "adamw-by-operation": "adamw"}
"""What a profile calls its optimizer -> its name for memory, where that differs."""
_NEW_GRADIENTS = 2023
"""From software of this year on gradients are set to none between iterations (PyTorch 2.0's
zero_grad)."""


_STATE = ("parameters", "gradients", "optimizer", "copies")
"""Parts of memory that are there whatever the micro-batch."""

UNFIT = "It does not fit into memory"
"""How the note begins that says so."""


class MemoryUse(NamedTuple):
    """Bytes on one GPU at the worst moment of an iteration, by part, and what may be used.

    ``whole`` says whether activations are among the parts: not for a model without layers.
    """

    parts: dict[str, float]
    usable: float
    whole: bool

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return sum_in_order(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether the GPU has as much."""
        return bool(self.total <= self.usable)

    @property
    def state_fits(self) -> bool:
        """Whether the GPU has as much as the state alone needs, whatever the micro-batch."""
        return sum_in_order(self.parts.get(part, 0.0) for part in _STATE) <= self.usable


class OuterState(NamedTuple):
    """What ranks keep from one exchange to the next, where these are many iterations apart.

    ``parts`` are among the method's part of the memory of a GPU, or in the memory of its host.
    """

    parts: tuple[HeldState, ...]

    @property
    def gpu_bytes(self) -> float:
        """Bytes on the GPU of one rank."""
        return sum_in_order(part.gpu_bytes for part in self.parts)

    @property
    def host_bytes(self) -> float:
        """Bytes that one rank keeps in the memory of its host."""
        return sum_in_order(part.host_bytes for part in self.parts)

    @property
    def host_bytes_per_node(self) -> float:
        """Bytes that the ranks of a full node keep in the memory of their host."""
        return sum_in_order(part.ranks * part.host_bytes for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "gpu_bytes": self.gpu_bytes,
            "host_bytes": self.host_bytes,
            "host_bytes_per_node": self.host_bytes_per_node,
            "parts": [
                {
                    "what": part.what,
                    "gpu_bytes": part.gpu_bytes,
                    "host_bytes": part.host_bytes,
                    "ranks_per_node": part.ranks,
                }
                for part in self.parts
            ],
        }


def outer_state(setup: Setup) -> OuterState | None:
    """Return what a rank keeps from one exchange to the next; None where nothing is kept.

    Of a divided model it is that of a rank of the stage that needs the most memory.
    """
    alone = setup.cluster.gpus == 1 and not setup.method.runs_alone
    if not setup.method.interval_option or alone:
        return None
    groups = 1
    if setup.split is None:
        costs = Costs(setup.device, setup.cluster, setup.scenario.algorithm)
        world = costs.context(setup.profile)
    else:
        from perfsim.schedule.model_parallel import stage_costs

        if setup.split.data.gpus == 1:
            return None
        stage = setup.split.parts.stages[stage_memory(setup)[0]]
        world = stage_costs(setup, setup.split).context(stage.profile)
        # Beside each data-parallel rank of a node stand ranks with other parts of the model.
        groups = setup.cluster.gpus_per_node // world.gpus_per_node
    kept = [
        part._replace(ranks=groups * part.ranks)
        for part in setup.method.outer_state(world)
        if part.gpu_bytes or part.host_bytes
    ]
    return OuterState(tuple(kept)) if kept else None


def memory_use(
    setup: Setup, gathered_bytes: Sequence[float] = (), batch: int | None = None
) -> MemoryUse:
    """Return what one GPU holds.

    Parameters
    ----------
    gathered_bytes : messages of other ranks that are held until they are decoded, by stage
    batch : samples of a micro-batch; None for the setup's own
    """
    if setup.split is not None:
        return stage_memory(setup, gathered_bytes, batch)[1]
    defined = matches_definition(setup.profile)
    scenario = setup.scenario
    cluster = setup.cluster.by_site() if setup.method.sites_are_nodes else setup.cluster
    costs = Costs(setup.device, cluster, scenario.algorithm, scenario.protocol)
    world = costs.context(setup.profile, setup.limit_bytes)
    kept = _kept(setup, world)
    precision, era = _regime(setup), kernel_era(scenario)
    state = _state(setup, world, kept, precision, defined=defined)
    overhead = overhead_bytes(era, setup.cluster.gpus)
    works = setup.cluster.gpus > 1 or setup.method.runs_alone
    method = 0.0
    if works and not setup.method.shards_parameters:
        method = setup.method.memory_in(world)
    if defined:
        old = kept.buffered or _gradients_stay(setup)
        one = _undivided_activations(setup, _kept_precision(setup, precision))
        found = Activations(*((batch or setup.profile.batch) * part for part in one))
        peak = peak_parts(state, found, keeps_gradients=old)
    else:
        peak = peak_parts(state._replace(step=0.0), Activations(0.0, 0.0, 0.0))
    parts = _with_method(peak, method, sum_in_order(gathered_bytes))
    parts["overhead"] = overhead.beside(sum_in_order(parts.values()))
    return MemoryUse(parts, _smallest(setup).usable_bytes, defined)


def _with_method(
    peak: Mapping[str, float], held_bytes: float, gathered_bytes: float
) -> dict[str, float]:
    """Return what a GPU holds with what the method holds, and messages that wait to be decoded."""
    messages = gathered_bytes + peak["messages"]
    tensors = {name: size for name, size in peak.items() if name not in ("messages", "step")}
    return {**tensors, "method": held_bytes, "messages": messages, "step": peak["step"]}


def one_gpu_holds(setup: Setup) -> bool:
    """Tell whether one GPU alone has the memory for the whole model.

    It needs no communicator, and no buckets that gradients are sent from.
    """
    use = memory_use(replace(setup, split=None))
    overhead = overhead_bytes(kernel_era(setup.scenario), setup.cluster.gpus)
    shared = overhead.communicator + overhead.reserve * use.parts["messages"]
    return bool(use.total - shared <= use.usable)


def stage_memory(
    setup: Setup, gathered_bytes: Sequence[float] = (), batch: int | None = None
) -> tuple[int, MemoryUse]:
    """Return the stage of a divided model that needs the most memory, and what a GPU holds there.

    Parameters
    ----------
    gathered_bytes, batch : as for `memory_use`
    """
    from perfsim.schedule.model_parallel import laid_out_pipeline

    split = setup.split
    assert split is not None
    held = laid_out_pipeline(setup, split).run.in_flight
    # Of stages that have the same layers, the one that holds most micro-batches needs most.
    fullest: dict[tuple[int, ...], int] = {}
    for stage, part in enumerate(split.parts.stages):
        if part.content not in fullest or held[stage] > held[fullest[part.content]]:
            fullest[part.content] = stage
    uses = {
        stage: _stage_use(
            setup,
            stage,
            gathered_bytes[stage] if gathered_bytes else 0.0,
            batch or setup.profile.batch,
        )
        for stage in sorted(fullest.values())
    }
    worst = max(uses, key=lambda stage: uses[stage].total)
    return worst, uses[worst]


def _stage_use(setup: Setup, stage: int, gathered_bytes: float, batch: int) -> MemoryUse:
    """Return what a GPU of one stage holds; each communicator has buffers of its own."""
    from perfsim.schedule.model_parallel import laid_out_pipeline

    split = setup.split
    assert split is not None
    method = _stage_method(setup, split, stage)
    precision = _regime(setup)
    state = _stage_state(setup, split, stage, method, precision)
    overhead = overhead_bytes(kernel_era(setup.scenario), setup.cluster.gpus)
    one = _stage_activations(setup, split, stage, _kept_precision(setup, precision))
    one = Activations(*(batch * part for part in one))
    held = float(laid_out_pipeline(setup, split).run.in_flight[stage])
    peak = peak_parts(state, one._replace(kept=held * one.kept))
    parts = _with_method(peak, method.held_bytes, gathered_bytes)
    tensors = sum_in_order(parts.values())
    parts["overhead"] = overhead.beside(tensors, communicators(split, stage))
    return MemoryUse(parts, setup.device.usable_bytes, True)


def communicators(split: ModelSplit, stage: int) -> int:
    """Return how many groups a GPU of a stage sends in.

    A group of one rank opens none, nor does a stage between the two that have a tied embedding.
    """
    inner = 0 < stage < split.layout.pp - 1
    groups = [group for axis, group in split.axes.items() if not (inner and axis == "ends")]
    return sum(group.gpus > 1 for group in (split.data, *groups))


class _StageMethod(NamedTuple):
    """What a method says of the memory of a stage's ranks.

    Parameters
    ----------
    kept : how wide it keeps parameters and gradients
    shares, expert_shares : parts of the state that a rank keeps, of experts by themselves
    held_bytes : what it holds besides
    """

    kept: MethodState
    shares: Mapping[str, float]
    expert_shares: Mapping[str, float]
    held_bytes: float


def _stage_method(setup: Setup, split: ModelSplit, stage: int) -> _StageMethod:
    """Return what the method says of the memory of a stage; kept for stages that are alike."""
    from perfsim.schedule.model_parallel import stage_costs

    part, method, scenario = split.parts.stages[stage], setup.method, setup.scenario
    groups = split.data, split.axes.get("experts", split.data)
    key = (
        *("method", method, scenario.accumulate == 1, scenario.exchange_each, split.layout.pp),
        *((group.gpus, group.nodes, group.gpus_per_node) for group in groups),
        *(part.content, setup.profile.precision, scenario.reduce_dtype, setup.device.software),
        *(scenario.master_weights, setup.limit_bytes),
    )

    def asked() -> _StageMethod:
        costs = stage_costs(setup, split)
        world = costs.context(part.profile, setup.limit_bytes)
        shares = among = method.kept_share(world)
        if part.experts:
            among = method.kept_share(replace(costs, cluster=groups[1]).context(part.profile))
        alone = split.data.gpus == 1 or method.shards_parameters
        held_bytes = 0.0 if alone else method.memory_in(world)
        return _StageMethod(_kept(setup, world), shares, among, held_bytes)

    return split.of_layers.once(key, asked)


def _stage_activations(setup: Setup, split: ModelSplit, stage: int, precision: str) -> Activations:
    """Return the activations of one sample on a rank of a stage; kept for stages that are alike."""
    part, era = split.parts.stages[stage], setup.transferred.era
    gathered = split.layout.tp if split.divides_tokens else 1
    recompute = "none"  # a stage without blocks has nothing to compute again
    if any(layer.kind == "attention" for layer in part.layers):
        recompute = setup.scenario.recompute
        if again := blocks_again(recompute):
            recompute = of_blocks(again * len(part.spans))

    def counted() -> Activations:
        head = any(layer.split == "vocabulary" and layer.kind == "linear" for layer in part.layers)
        return activation_bytes(
            part.layers,
            1,
            precision,
            execution_of(era),
            recompute,
            chunked_loss=setup.scenario.chunked_loss,
            gathered=gathered,
            loss=head,
            whole=part.whole,
            **_on_host(on_host, part.whole),
        )

    chunked, on_host = setup.scenario.chunked_loss, setup.scenario.offload
    key = "activations", part.content, precision, era, recompute, chunked, gathered, on_host
    return split.of_layers.once(key, counted)


def _stage_state(
    setup: Setup, split: ModelSplit, stage: int, method: _StageMethod, precision: str
) -> State:
    """Return the state of a stage's parameters, gradients and optimizer on one of its GPUs."""
    part, kept = split.parts.stages[stage], method.kept
    total, experts, frozen = part.elements, part.expert_elements, part.frozen_elements
    whole, among = method.shares, method.expert_shares
    parameters, gradients, optimizer = (
        (whole[name] * (total - experts) + among[name] * experts) / total
        for name in ("parameters", "gradients", "optimizer")
    )
    sharding = StateShares(parameters, gradients, optimizer)
    if setup.method.gathers_units():
        units = split.of_layers.once(
            ("units", part.content), lambda: fsdp_sharding(part.layers, 1, whole=part.whole)
        )
        root = units.root + kept.gathered * (total + frozen - units.root)
        sharding = sharding._replace(unit=units.unit, root=root)
    # Fused optimizers, as codes that divide models have them, need no values of their own.
    state = _kept_state(setup, kept, (total, frozen), precision, sharding, foreach=False)
    return state._replace(copies=state.copies + _weight_copies(setup, part.layers))


def _undivided_activations(setup: Setup, precision: str) -> Activations:
    """Return the activations of one sample of a model that is whole on a GPU."""
    profile, era = setup.profile, setup.transferred.era
    how = setup.scenario.recompute, setup.scenario.chunked_loss, setup.scenario.offload
    return _activations(profile.model, defined_tokens(profile), precision, era, *how)


def _gradients_stay(setup: Setup) -> bool:
    """Tell whether gradients of one pass are there in the next, as the framework keeps them."""
    new = software_era(setup.transferred.era).year >= _NEW_GRADIENTS
    return not new or setup.scenario.accumulate > 1


def _smallest(setup: Setup) -> Device:
    """Return the type of GPU with the least memory."""
    devices = [setup.device, *(part.device for part in setup.parts)]
    return min(devices, key=lambda device: device.usable_bytes)


@cache
def _activations(
    model: str,
    tokens: int | None,
    precision: str,
    era: str,
    recompute: str,
    chunked_loss: bool,
    on_host: str,
) -> Activations:
    """Return the activations of one sample; they grow with the batch."""
    layers, execution = build_model(model, tokens), execution_of(era)
    how = layers, 1, precision, execution, recompute
    return activation_bytes(*how, chunked_loss=chunked_loss, **_on_host(on_host, layers))


def _on_host(words: str, layers: Sequence[ModelLayer]) -> dict[str, Any]:
    """Return what of the activations of some layers is on the host, where `offload` names it."""
    blocks = block_count(layers)
    sent = activation_blocks(words, blocks) if blocks else 0
    return {"offloaded": CHECKPOINTS in offloaded(words), "blocks_on_host": sent}


@cache
def _units(model: str, tokens: int | None) -> tuple[float, float] | None:
    """Return the parameters of the largest unit and of what is in none; None without blocks."""
    layers = build_model(model, tokens)
    if not any(layer.kind == "attention" for layer in layers):
        return None
    found = fsdp_sharding(layers, 1)
    return found.unit, found.root


def _kept(setup: Setup, world: MethodContext) -> MethodState:
    """Return how wide the method keeps parameters and gradients, as it exchanges them here."""
    scenario, method = setup.scenario, setup.method
    each = scenario.accumulate == 1 or method.exchanges_each(scenario.exchange_each)
    return method.state(world, each=each and world.stages == 1)


_HALF = {"amp-fp16": "fp16", "amp-bf16": "bf16", "fp8": "bf16", "nvfp4": "bf16"}
"""Precision of a profile -> that of parameters which have 16 bits themselves."""


def _regime(setup: Setup) -> str:
    """Return how half precision is kept: by autocast, or as 16-bit parameters.

    These are the units that are gathered where a method shards by unit, else all of them.
    """
    precision = setup.profile.precision
    if precision in AUTOCAST_PRECISIONS:
        return precision if setup.autocast else precision.removeprefix("amp-")
    return _HALF.get(precision, precision) if setup.keeps_half else precision


def _kept_precision(setup: Setup, precision: str) -> str:
    """Return the precision of what waits for the backward pass; ``precision`` is `_regime`'s."""
    narrow = setup.profile.precision in OPERAND_BYTES
    return setup.profile.precision if narrow else precision


_COPIES_IN_FP8 = {"Blackwell": 1.0, "RTX Blackwell": 1.0}
"""Bytes of the copies in fp8 that Transformer Engine keeps of a weight, by architecture: where
tensor cores take one of both orders alone, another that is transposed, 2 in all. MXFP8 has two
everywhere (NVIDIA/TransformerEngine issue 1880)."""


def _weight_copies(setup: Setup, layers: Sequence[ModelLayer]) -> float:
    """Return the bytes of the copies in fp8 of a rank's weights, which wait for micro-batches."""
    if setup.profile.precision != "fp8" or not execution_of(setup.transferred.era).keeps_fp8:
        return 0.0
    if setup.method.gathers_units():
        return 0.0
    each = _COPIES_IN_FP8.get(setup.device.architecture, 2.0)
    return each * narrow_elements(layers)


def _state(
    setup: Setup, world: MethodContext, kept: MethodState, precision: str, *, defined: bool
) -> State:
    """Return the state of parameters, gradients and optimizer, as the method shares it."""
    method, profile = setup.method, setup.profile
    shares = method.kept_share(world)
    each = shares["parameters"], shares["gradients"], shares["optimizer"]
    # Codes that keep parameters in 16 bits beside wider gradients have these in one buffer.
    buckets = kept.buckets and setup.cluster.gpus > 1 and not _is_half(setup, precision)
    sharding = StateShares(*each, buckets=buckets)
    if method.gathers_units() and defined:
        units = _units(profile.model, defined_tokens(profile))
        if units is not None:
            every = profile.elements + profile.frozen_elements
            root = units[1] + kept.gathered * (every - units[1])
            sharding = StateShares(*each, unit=units[0], root=root)
    parameters = profile.elements, profile.frozen_elements
    state = _kept_state(setup, kept, parameters, precision, sharding)
    if not defined:
        return state
    layers = build_model(profile.model, defined_tokens(profile))
    return state._replace(copies=state.copies + _weight_copies(setup, layers))


def _kept_state(
    setup: Setup,
    kept: MethodState,
    parameters: tuple[float, float],
    precision: str,
    sharding: StateShares,
    *,
    foreach: bool = True,
) -> State:
    """Return the state of a model or a part of it, as wide as the method and the request keep it.

    ``parameters`` are those that are trained and those that are frozen, ``foreach`` is as for
    `state_bytes`.
    """
    trained, frozen = parameters
    state = state_bytes(
        trained,
        precision,
        optimizer_of(setup),
        sharding,
        gradient_bytes=kept.gradient_bytes if _is_half(setup, precision) else 4.0,
        foreach=foreach,
        master_weights=setup.scenario.master_weights,
        frozen=frozen,
    )
    return state._replace(gradients=state.gradients + kept.whole_bytes * trained)


def _is_half(setup: Setup, precision: str) -> bool:
    """Tell whether parameters have 16 bits beside an fp32 copy; ``precision`` is `_regime`'s."""
    return setup.keeps_half and precision in _HALF.values()


def optimizer_of(setup: Setup) -> str:
    """Return the optimizer that is asked for, else the profile's by the name that one asks by."""
    measured = setup.profile.optimizer
    return setup.scenario.optimizer or _OF_PROFILE.get(measured, measured)


def fitting_batch(setup: Setup, gathered_bytes: Sequence[float] = ()) -> int | None:
    """Return the largest micro-batch that fits, 0 if none does; None where it is not known."""
    if not matches_definition(setup.profile):
        return None
    return largest_batch(lambda batch: memory_use(setup, gathered_bytes, batch).fits)


def memory_note(
    setup: Setup,
    use: MemoryUse,
    gathered_bytes: Sequence[float] = (),
    catalog: Catalog | None = None,
) -> str:
    """Say that a model does not fit, and the least change that would; "" where it fits.

    Parameters
    ----------
    gathered_bytes : as for `memory_use`
    catalog : where other ways to train it are looked up; None tries none
    """
    if use.fits:
        return ""
    without = "" if use.whole else " without activations"
    note = (
        f"{UNFIT}: {format_bytes(use.total)}{without},"
        f" {_smallest(setup).name} has {format_bytes(use.usable)} for it."
    )
    batch = fitting_batch(setup, gathered_bytes)
    if batch:
        return f"{note} The largest `batch` that fits is {batch}."
    change = least_change(setup, catalog) if batch == 0 and catalog else ""
    if change:
        return f"{note} No batch does; {change} would fit."
    if batch == 0:
        cluster = setup.cluster.by_site() if setup.method.sites_are_nodes else setup.cluster
        costs = Costs(setup.device, cluster)
        share = setup.method.kept_share(costs.context(setup.profile))["parameters"]
        shared = setup.method.gathers_units() or share < 1.0
        sharded = not shared and _needs_less(setup, use, {"method": "fsdp", "options": {}}, catalog)
        ways = ["`method` fsdp" + " on more GPUs" * (setup.cluster.gpus == 1)] if sharded else []
        fewer = use.state_fits and setup.scenario.recompute != "full"
        again = fewer and _needs_less(setup, use, {"recompute": "full"}, catalog)
        ways += ["`recompute` full"] if again else []
        ways += [] if sharded else ["more GPUs"]
        return f"{note} No batch does; {' or '.join(ways)} would need less."
    return note


def _needs_less(
    setup: Setup, use: MemoryUse, change: Mapping[str, Any], catalog: Catalog | None
) -> bool:
    """Tell whether a change of how a model is trained needs less; without a catalog it may."""
    if catalog is None:
        return True
    there = _changed(setup.scenario, change, catalog)
    return there is not None and (setup.cluster.gpus == 1 or memory_use(there).total < use.total)


def _changed(asked: Scenario, change: Mapping[str, Any], catalog: Catalog) -> Setup | None:
    """Resolve a scenario with some fields changed; None where that is refused."""
    from perfsim.scenario import with_checked

    try:
        return resolve(with_checked(asked, change), catalog)
    except RequestError:
        return None


_SHARDED = (
    {"method": "zero", "options": {}},
    {"method": "fsdp", "options": {}},
)
_STAGES = (2, 4, 8, 16, 32, 64)
_CONTEXTS = (2, 4, 8, 16)
LONG_SAMPLE = 16_384
"""Tokens of a sample that is long enough to be divided among ranks. No source: chosen."""


def least_change(setup: Setup, catalog: Catalog) -> str:
    """Return the least change of how a model is trained with which it fits; "" where none does.

    Tried, the first that fits: computing activations again; sharding the optimizer (zero), then all
    of the state (fsdp); both; these with a chunked loss of a model over text, and with one sample a
    micro-batch; a sample divided among ranks; tensor-parallel ranks inside a node; stages of a
    pipeline, with these and with a sharded optimizer. Samples of an iteration stay as many. GPUs at
    several sites share no state.

    Examples
    --------
    >>> from perfsim.resolve import resolve
    >>> from perfsim.scenario import Scenario
    >>> from perfsim.session import default_session
    >>> asked = Scenario(model="llama3-70b", gpus=64, node="dgx-h100", net="dgx-h100")
    >>> least_change(resolve(asked, default_session()), default_session())
    '`method` fsdp with `recompute` full'
    """
    asked = setup.scenario
    if setup.parts or setup.beside or not matches_definition(setup.profile):
        return ""
    return catalog.once(("least change", repr(asked)), lambda: _least_change(asked, setup, catalog))


def _least_change(asked: Scenario, setup: Setup, catalog: Catalog) -> str:
    for change in _changes(setup):
        new = {name: value for name, value in change.items() if getattr(asked, name) != value}
        if not new:
            continue
        there = _changed(asked, new, catalog)
        if there is not None and memory_use(there).fits:
            words = [
                f"`{name}`" + ("" if value is True else f" {value}")
                for name, value in new.items()
                if name != "options"
            ]
            return " with ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
    return ""


def _changes(setup: Setup) -> Iterator[dict[str, Any]]:
    """Yield changes of how a model is trained, the least first."""
    asked, batch = setup.scenario, setup.profile.batch
    again: list[dict[str, Any]] = [
        {"recompute": one} for one in ("selective", "full") if asked.recompute != "full"
    ]
    sharded: list[dict[str, Any]] = [
        one for one in _SHARDED if asked.method != "fsdp" and asked.site is None
    ]
    in_place = [*again, *sharded, *({**shard, **one} for one in again for shard in sharded)]
    yield from in_place
    if takes_tokens(setup.profile.model) and not asked.chunked_loss:
        yield from ({**one, "chunked_loss": True} for one in ({}, *in_place))
    if batch > 1 and asked.site is None:
        one_by_one = {"batch": 1, "accumulate": batch * asked.accumulate}
        yield from ({**one_by_one, **one} for one in in_place)
    if (setup.profile.sequence or 0) >= LONG_SAMPLE:
        ranks = [cp for cp in _CONTEXTS if asked.cp < cp <= setup.cluster.gpus]
        yield from ({"cp": cp, **one} for cp in ranks for one in ({}, *again))
    degrees = [tp for tp in (2, 4, 8) if asked.tp < tp <= setup.cluster.gpus_per_node]
    yield from ({"tp": tp} for tp in degrees)
    zero = _SHARDED[0] if asked.method == "ssgd" else {}
    yield from ({"tp": tp, **zero} for tp in degrees)
    most = max([asked.tp, *degrees])
    for pp in _STAGES:
        if pp > asked.pp:
            more = {"tp": most, "pp": pp, "accumulate": max(asked.accumulate, 2 * pp)}
            yield {**more, **zero}
            yield from ({**more, **zero, **one} for one in again)


def check_fits(setup: Setup, use: MemoryUse) -> None:
    """Refuse what does not fit.

    Raises
    ------
    RequestError
        If it needs more memory than the GPU has.
    """
    note = memory_note(setup, use)
    if note:
        raise RequestError("", f"{note} `ignore_memory` takes it nevertheless.")
