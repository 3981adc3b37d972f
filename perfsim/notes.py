"""The notes of a prediction: what was derived, assumed, extrapolated or not modelled."""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.collectives import find_algorithm
from perfsim.compute.execution import execution_of
from perfsim.compute.node_load import INPUTS
from perfsim.compute.profile import defined_tokens, matches_definition
from perfsim.compute.slowest_gpu import GPU_SPREAD
from perfsim.compute.software import DTENSOR, EFFICIENT, LOOP, WITH, may_loop, may_mask, without
from perfsim.conditions.words import condition_notes
from perfsim.errors import any_of
from perfsim.interval import Uncertainty
from perfsim.libraries import AUTO, DEFAULT_LIBRARY
from perfsim.memory import optimizer_of
from perfsim.methods import method_name
from perfsim.models import build_model, has_experts
from perfsim.models.layers import is_expert
from perfsim.network.network_file import Network, noticed_by_kind
from perfsim.network.route import over_nics
from perfsim.note import assumption, warning
from perfsim.quantity import Term
from perfsim.resolve import Setup
from perfsim.scenario import Scenario
from perfsim.schedule.beside_messages import channels_beside
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.costs import Costs
from perfsim.schedule.model_parallel import stage_costs
from perfsim.simulate.sync import Neighbours
from perfsim.simulate.timeline import Timeline
from perfsim.units import format_rate, format_seconds

__all__ = ["TIME_ONLY", "notes_of"]

TIME_ONLY = "Time per iteration only"
"""How the note begins that a method may need more iterations than S-SGD."""


def notes_of(
    setup: Setup,
    rounds: Sequence[CostedGraph],
    timelines: Sequence[Timeline],
    terms: Sequence[Term],
    unfit: str,
    known: Uncertainty | None,
) -> list[str]:
    """Return the notes of a prediction.

    Parameters
    ----------
    terms : the numbers behind its costs
    unfit : that it does not fit into memory, if so; it comes first
    known : the record of errors that the interval is made of, if there is one
    """
    cluster = setup.cluster
    optimizer = setup.scenario.optimizer or setup.profile_in_node.optimizer
    notes: list[str] = [warning(unfit)] if unfit else []
    notes += _noticed_notes(setup)
    notes += _divided_muon(setup) if optimizer == "muon" else []
    notes += setup.notes
    if cluster.gpus == 1 and setup.method.runs_alone:
        notes.append("One GPU: nothing is sent; the method's own kernels run.")
    elif cluster.gpus == 1:
        notes.append("One GPU: nothing is sent, and the method's kernels do not run.")
    elif setup.method.lossy:
        notes.append(
            warning(
                f"{TIME_ONLY}: a lossy method may need more iterations than ssgd for the"
                " same accuracy.",
                f"{setup.scenario.method} learns otherwise than S-SGD and may need more iterations"
                " (`perfsim compare` has what is known)",
            )
        )
    inside = cluster.intra.transport if cluster.intra else ""
    caution = setup.method.caution(optimizer_of(setup), inside) if cluster.gpus > 1 else ""
    notes += [warning(caution)] if caution else []
    notes += [
        warning(
            f"No steady state after {timeline.periods} periods: the mean of the last"
            f" {timeline.averaged} is given."
        )
        for timeline in timelines
        if not timeline.steady
    ]
    notes += _mixed_notes(setup, rounds)
    beyond = [term.term for term in terms if term.extrapolated]
    if beyond:
        notes.append(
            warning(
                f"Outside the range it was measured in: {'; '.join(beyond)}.",
                f"{len(beyond)} of the {len(terms)} costs of network and kernels lie outside the"
                " range they were measured in",
            )
        )
    if setup.scenario.overlap_slowdown > 1 and cluster.gpus > 1:
        notes.append(
            f"The backward pass takes {setup.scenario.overlap_slowdown:g} times as long while"
            " messages are under way (overlap_slowdown)."
        )
    else:
        notes += _slowing_notes(setup)
    notes += _node_notes(setup)
    notes += _tensor_notes(setup)
    notes += _scores_notes(setup)
    notes += [*_experts_notes(setup), *_dtensor_notes(setup), *_hooks_notes(setup)]
    asked = setup.scenario
    notes += condition_notes(
        setup.conditions, asked.background, asked.seed, cluster.nodes, rounds, timelines
    )
    interval = known.words() if known else _interval_note(setup, rounds)
    return [*notes, *_site_notes(setup), *_network_notes(setup), interval]


def _divided_muon(setup: Setup) -> list[str]:
    """Warn that Muon's gathers are left out where a method divides its matrices among ranks."""
    method, split = setup.method, setup.split
    if setup.data_cluster.gpus == 1 or method.owns_whole_tensors:
        return []
    costs = stage_costs(setup, split) if split else Costs(setup.device, setup.cluster)
    if method.kept_share(costs.context(setup.profile))["optimizer"] >= 1:
        return []
    name = method_name(setup.scenario.method)
    return [
        warning(
            f"{name} divides matrices among the GPUs, and Muon orthogonalises whole ones: the"
            " gathers that this needs are left out, and the update may take longer;"
            " `method` distributed_muon has such gathers.",
            f"the gathers that Muon needs with {name} are left out; distributed_muon has them",
        )
    ]


def _tensor_notes(setup: Setup) -> list[str]:
    """Warn that tensor-parallel ranks go over nodes, where nobody asked for a layout."""
    tp, per_node = setup.scenario.tp, setup.cluster.gpus_per_node
    if setup.split is None or tp <= per_node or setup.scenario.layout is not None:
        return []
    each = f"{per_node} GPU{'s' * (per_node > 1)}"
    return [
        warning(
            f"`tp` {tp} goes over nodes of {each}: each layer waits for messages between nodes;"
            " `pp` sends less.",
            f"tensor-parallel ranks go over nodes of {each}",
        )
    ]


def _scores_notes(setup: Setup) -> list[str]:
    """Say what runs attention where PyTorch's kernel lacks its scores or gets a mask."""
    software, profile = setup.transferred.era, setup.profile
    execution = execution_of(software)
    if not execution.flash or not matches_definition(profile):
        return []
    layers = build_model(profile.model, defined_tokens(profile))
    scores = next((layer.scores for layer in layers if layer.kind == "attention"), None)
    if scores is not None and execution.masked and execution.in_one_kernel(scores):
        return _mask_notes(setup)
    if not scores or execution.in_one_kernel(scores):
        return []
    other = without(EFFICIENT, software)
    masked = f"{other}{WITH}{EFFICIENT}"
    takes = may_mask(software) and execution_of(masked).in_one_kernel(scores)
    as_mask = f", {masked} PyTorch's with the bias as a mask" if takes else ""
    why = {
        "softcap": "caps its scores",
        "sinks": "has sinks beside its scores",
        "relative": "adds a learned bias to its scores",
        "alibi": "adds ALiBi's bias to its scores",
    }[scores]
    return [
        assumption(
            f"Attention of {profile.model} {why}, which PyTorch's kernel does not: {software} runs"
            f" it by single operations, as {_BY_OPERATIONS.get(scores, 'transformers by default')}"
            f" does; `software` {other}{WITH}flash2 is one kernel that does{as_mask}.",
            "attention by single operations",
        )
    ]


_BY_OPERATIONS = {"relative": "transformers up to 5.0"}


def _mask_notes(setup: Setup) -> list[str]:
    """Say which kernel attention with a mask runs by, and where newer PyTorch takes another."""
    text = (
        "Attention gets a mask: PyTorch's memory-efficient kernel computes all scores, and each"
        " layer keeps a mask of its own."
    )
    if setup.device.architecture not in ("Hopper", "Blackwell"):
        return [text]
    newer = "PyTorch 2.9 and since 2.11 takes cuDNN's there, whose rate with a mask is not known."
    brief = "memory-efficient attention; PyTorch 2.9 and since 2.11 takes cuDNN's"
    return [assumption(f"{text} {newer}", brief)]


def _experts_notes(setup: Setup) -> list[str]:
    """Warn that grouped products run experts where older software has a loop in Python."""
    software, profile = setup.transferred.era, setup.profile
    if not may_loop(software) or not matches_definition(profile):
        return []
    if execution_of(software).looped or not has_experts(profile.model):
        return []
    return [
        warning(
            f"Experts of {profile.model} run in grouped products, as in transformers 5 with PyTorch"
            " 2.9 or newer. Before, a loop in Python ran them one by one, which may take several"
            f" times as long: `software` {software}{WITH}{LOOP}.",
            f"experts in grouped products; those of transformers before 5: {software}{WITH}{LOOP}",
        )
    ]


def _dtensor_notes(setup: Setup) -> list[str]:
    """Say by what eager PyTorch divides products among tensor-parallel ranks."""
    software, divided = setup.transferred.era, setup.scenario.tp > 1
    if not execution_of(software).dtensor:
        if not (divided and may_loop(software)):
            return []
        return [
            "Tensor parallelism is by plain tensors, as in DeepSpeed's AutoTP; by DTensor, as in"
            f" torchtitan and transformers, the host takes longer: `software` {software}{WITH}"
            f"{DTENSOR}."
        ]
    if not divided:
        return [f"`software` {WITH}{DTENSOR} changes nothing without `tp`."]
    return [
        "DTensor's host takes 5 to 12 ms longer for a block than plain tensors', as it was measured"
        " on one host (tests/scripts/dtensor_host.txt)."
    ]


def _slowing_notes(setup: Setup) -> list[str]:
    """Say what messages take from computation beside them."""
    device, cluster = setup.device, setup.cluster
    channels = channels_beside(device, cluster)
    if not setup.scenario.overlap or cluster.gpus == 1 or not channels:
        return []
    amd = device.architecture.startswith("CDNA")
    link, fewer = ("xGMI", "") if amd else ("NVLink", ", fewer from registered buffers")
    return [
        f"Messages over {link} slow both passes while they are under way: they take {channels} of"
        f" {device.multiprocessors:g} multiprocessors{fewer}, and a part of"
        " the memory's rate (perfsim/schedule/beside_messages.py; overlap_slowdown is a factor of"
        " your own)."
    ]


def _hooks_notes(setup: Setup) -> list[str]:
    """Say what hooks around modules take of the host."""
    if setup.split is not None or not setup.hooks_s:
        return []
    took = format_seconds(setup.hooks_s)
    text = (
        f"Hooks around modules take the host {took} in both passes, as on one host without a GPU"
        " (tests/scripts/sharding_host.txt)."
    )
    before, after = (
        one.forward_s + one.backward_s for one in (setup.profile_in_node, setup.profile_of_method)
    )
    if after <= before:
        return [text]
    return [warning(text, f"hooks around modules take the host {took}, which sets the pace")]


def _site_notes(setup: Setup) -> list[str]:
    """Say what a method makes of sites."""
    if setup.cluster.wide is None:
        return []
    if setup.method.sites_are_nodes:
        return [
            "A site takes the place of a node in the method: it trains as one worker, and its GPUs"
            " exchange inside it."
        ]
    return ["All GPUs of all sites take part in what the method does; its nodes are machines."]


def _node_notes(setup: Setup) -> list[str]:
    """Say what GPUs that train together cost each other, and what unequal samples would."""
    notes = []
    if setup.node_load > 1.0:
        load, count = INPUTS[setup.input], setup.gpus_of_host
        of = "node" if count == setup.cluster.gpus_per_node else "tray"
        notes.append(
            f"Both passes take {setup.node_load - 1.0:.1%} longer than on one GPU:"
            f" {count} GPUs of a {of} share its host (`input` {setup.input}:"
            f" {load.share:.1%} a doubling, {load.low:.1%} to {load.high:.1%})."
        )
    if setup.slowest_gpu > 1.0:
        notes.append(
            f"What the GPU computes takes {setup.slowest_gpu - 1.0:.1%} longer than on one GPU: all"
            f" wait for the slowest of {setup.cluster.gpus:,}, and GPUs of one type differ by"
            f" {GPU_SPREAD:.1%} (standard deviation)."
        )
    unpadded = execution_of(setup.transferred.era).unpadded and setup.input == "tokens"
    if unpadded and setup.cluster.gpus > 1 and setup.conditions is None:
        notes.append(
            "Padding is not computed, so a GPU with longer samples makes the others wait. That is"
            " not charged: `jitter` sequence-lengths does (as measured on 32 replicas,"
            " ByteDance-Seed/StragglerAnalysis@8efcd7f3)."
        )
    return notes


def _mixed_notes(setup: Setup, rounds: Sequence[CostedGraph]) -> list[str]:
    """Say how GPUs of several types train together."""
    parts = setup.parts
    if not parts:
        return []
    each = ", ".join(
        f"{part.count} {part.device.name} ({format_seconds(part.alone_s)} an iteration alone)"
        for part in parts
    )
    notes = [
        f"GPUs of several types, whole nodes of each in this order: {each}. All have the same batch"
        " and wait for the slowest at every exchange; the times shown are those of the"
        " type that ends last. Scaling efficiency is over what all GPUs train alone, each at its"
        " own rate. The network is taken to be the same for all nodes."
    ]
    if any(isinstance(task.scope, Neighbours) for costed in rounds for task in costed.graph.tasks):
        notes.append(
            "No GPU waits for all the others, but in the long run all go at the pace of the slowest"
            " type."
        )
    return notes


def _networks_in_use(setup: Setup) -> dict[str, Network]:
    """Return the networks that messages cross, by name."""
    cluster = setup.cluster
    in_use = {setup.network.name: setup.network} if cluster.inter else {}
    if cluster.intra:
        inside = setup.intra_network or setup.network
        in_use[inside.name] = inside
    return in_use


def _noticed_notes(setup: Setup) -> list[str]:
    """Return what calibration noticed of the networks in use: the reason of what else looks odd."""
    return [
        warning(f"{name}, when it was calibrated: {noticed.text}", f"{name}: {noticed.brief}")
        for name, network in _networks_in_use(setup).items()
        for noticed in noticed_by_kind(network.noticed)
    ]


_MPI_RATE = 1.34e9
"""The highest rate of all-reduces by Open MPI that was measured [B/s]: 32 RTX 2080 Ti, 100 Gbit/s
InfiniBand, buffers on GPUs (profiles/networks/hkbu-2080ti-ib100-mpi.toml)."""


def _network_notes(setup: Setup) -> list[str]:
    """Return the notes of the links in use, and whether the one inside a node is slower."""
    cluster, in_use = setup.cluster, _networks_in_use(setup)
    inter, intra = cluster.inter, cluster.intra
    notes = [f"{name}: {note}" for name, network in in_use.items() for note in network.notes]
    scenario = setup.scenario
    files = [name for name, network in in_use.items() if network.path]
    if files and cluster.library != cluster.fitted_on:
        notes.append(
            f"The numbers of {' and '.join(files)} were fitted on {cluster.fitted_on}; for"
            f" {cluster.library} they are derived."
        )
    notes += _asked_notes(setup)
    if files and scenario.protocol != AUTO:
        notes.append(
            f"The numbers of {' and '.join(files)} are for NCCL's own choice of protocol; those of"
            f" {scenario.protocol} are derived by the ratios of NCCL's tuner, except where a"
            " measurement fixed it."
        )
    if cluster.library == "mpi" != cluster.fitted_on and inter and inter.rate.value > _MPI_RATE:
        notes.append(
            warning(
                f"Open MPI reached {format_rate(_MPI_RATE)} at most on the clusters that were"
                " measured (hkbu-2080ti-ib100-mpi), 0.48 to 1 GB/s where buffers lie in the host's"
                f" memory; {format_rate(inter.rate.value)} between nodes is taken as stated.",
                f"Open MPI was seen at {format_rate(_MPI_RATE)} at most,"
                f" {format_rate(inter.rate.value)} is taken as stated",
            )
        )
    nics = cluster.nics_in_use
    if inter and intra and intra.rate.value < nics * over_nics(inter, nics).rate.value:
        notes.append(
            f"The link inside a node ({intra.name}, {format_rate(intra.rate.value)}) is slower than"
            " the network and sets the pace of rings; `intra_net` changes it."
        )
    return notes


_NEEDS = {
    **dict.fromkeys(("stage_layers", "schedule", "virtual_stages"), ("pp",)),
    **dict.fromkeys(("tp_overlap", "sequence_parallel", "etp"), ("tp",)),
    **dict.fromkeys(("dispatcher", "ep_overlap", "imbalance"), ("ep",)),
    "cp_comm": ("cp",),
    "layout": ("tp", "pp", "cp", "ep"),
    "exchange_each": ("accumulate",),
}
"""Fields that say how a model is divided or its gradients exchanged, and the degrees of which one
must be above 1 for that."""


def _asked_notes(setup: Setup) -> list[str]:
    """Say what a field needs that no file states, and where one has no effect."""
    cluster, scenario = setup.cluster, setup.scenario
    notes: list[str] = []
    if scenario.algorithm != AUTO and cluster.library == DEFAULT_LIBRARY and cluster.gpus > 1:
        needs = find_algorithm("all_reduce", scenario.algorithm).needs
        if needs:
            notes.append(
                warning(
                    f"`algorithm` {scenario.algorithm} takes {needs}; no file says it is there."
                )
            )
    if scenario.oversubscription is not None and cluster.nodes == 1:
        notes.append(warning("`oversubscription` has no effect: all GPUs stand on one node."))
    for name, degrees in _NEEDS.items():
        asked = getattr(scenario, name) != Scenario.model_fields[name].default
        if asked and all(getattr(scenario, degree) == 1 for degree in degrees):
            notes.append(warning(_without(setup, name, degrees)))
    return notes


def _without(setup: Setup, name: str, degrees: Sequence[str]) -> str:
    """Say that a field has no effect without one of some degrees, or with no experts."""
    profile = setup.profile
    if degrees == ("ep",) and matches_definition(profile):
        layers = build_model(profile.model, defined_tokens(profile))
        if not any(map(is_expert, layers)):
            return f"`{name}` has no effect: {profile.model} has no experts."
    needed = any_of([f"`{degree}`" for degree in degrees])
    return f"`{name}` has no effect without {needed}."


def _interval_note(setup: Setup, rounds: Sequence[CostedGraph]) -> str:
    """Say what the interval comes from without a record, and which costs add nothing to it."""
    known = setup.transferred.quantity.spread is not None
    missing = [] if known else ["the single-GPU iteration"]
    unknown = {
        charge.cause
        for costed in rounds
        for charge in costed.charges
        if charge.spread is None and charge.cause in ("network", "compression")
    }
    missing += sorted(
        {"network": "part of the network", "compression": "kernels"}[c] for c in unknown
    )
    tail = f"; no spread is known for {', '.join(missing)}, which adds nothing" if missing else ""
    measured = setup.cluster.known is not None
    network = ", of collectives also from how wrong extrapolated ones have been" if measured else ""
    return (
        f"The interval comes from fit residuals and repeats only{network}, not from the errors of"
        f" such predictions{tail}."
    )
