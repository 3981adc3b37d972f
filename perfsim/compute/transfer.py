"""Move a profile to another GPU, batch, precision, software or length of the sequence.

A profile holds the times of one model's layers at one batch and precision on one GPU. ``transfer``
finds the model's iteration elsewhere, and how its layers share it. It takes three steps, in the
order of this file:

1. What is known: whole iterations of the model at the goal by batch (``Anchor``s of
   ``profiles/devices/<gpu>.anchors.csv`` and the profile itself), and iterations elsewhere.
2. The total. A known batch is as measured; between two, a straight line; beyond them, as the
   model's kernels grow (see ``kernel_time``). Where nothing is known at the goal, the kernels'
   time, corrected by what iterations of the same model, GPU and software say (see ``residuals``).
3. How layers share it: each layer's time goes as its kernels do, from where the profile was
   measured to the goal. The optimizer's time goes with memory bandwidth.

A profile of a network that perfsim has no definition of goes by the rates of its layers' kinds.
``TransferredProfile.quantity.kind`` says what the total is: as measured or published at the goal,
else ``derived``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal, NamedTuple, TypedDict

from perfsim.compute.anchors import Anchor, Anchors, Estimate, GpuPrecision, at_batch, lawful
from perfsim.compute.device import Device, load_rates
from perfsim.compute.execution import execution_of
from perfsim.compute.kernel import FLOAT, HALF
from perfsim.compute.kernel_time import (
    UPDATE_PASSES,
    UPDATES,
    ModelTime,
    kernel_rates,
    kernel_shares,
    layer_times,
    model_time,
    update_passes,
)
from perfsim.compute.profile import (
    AUTOCAST_PRECISIONS,
    FrozenParameter,
    Gradient,
    Layer,
    Profile,
    matches_definition,
)
from perfsim.compute.residuals import IterationSetting, Residual, covariance, estimate
from perfsim.compute.software import (
    BLOCKS,
    DTENSOR,
    ERAS,
    LOOP,
    MULTIHEAD,
    NEWEST,
    WITH,
    software_era,
    without,
)
from perfsim.data.catalog import Catalog, is_changed, owner_of
from perfsim.errors import RequestError
from perfsim.models import build_model, has_attention, has_experts, is_defined, takes_tokens
from perfsim.models.adapters import base_model
from perfsim.models.specification import GENERIC, TRANSFORMER, is_specified
from perfsim.note import warning
from perfsim.quantity import Kind, Quantity, weakest
from perfsim.sums import sum_in_order
from perfsim.units import format_seconds

__all__ = [
    "REDUCE_BYTES",
    "Training",
    "TransferInputs",
    "TransferredProfile",
    "device_of_profile",
    "kernel_profile",
    "known_iterations",
    "pin_iteration",
    "residual_of",
    "transfer",
]

_MAX_OPTIMIZER_SHARE = 0.7
"""Largest share of an iteration that the optimizer takes: Adam passes over the parameters 7 times,
and forward and backward at least 3 (both read them, one writes gradients)."""

_PRODUCT_KINDS = ("conv", "linear", "lstm", "attention")
"""Kinds of layers whose time is matrix products; the others move memory."""

_NINETY = 1.645
"""Standard deviations of a normal distribution's 90 % half-width."""
REPEATS = 0.024
"""Standard deviation of a measured iteration's logarithm, by repeats and boards (fitted with the
``Deviations`` of residuals)."""
_SEEN: tuple[Kind, ...] = ("measured", "published")
"""Kinds of iterations that somebody timed."""
_MAX_CELLS = 4
"""Measured iterations that tell of a goal, for each thing that they share with it: those of the
nearest batches. Each cell left out: 10.5 % (90th percentile 28 %) with 4, 11.8 % (31 %) with 6,
12.0 % (34 %) with 12."""
_USUAL_BATCH = 32
"""Batch near which measured iterations tell of a model that was measured at none. Chosen: 156
published runs of language models are 5.1 % off (90th percentile 14.3 %). With each run's own batch
they are 5.6 % off (13.8 %), but a larger batch could then take less time."""


# What the caller asks and gets.


class Training(NamedTuple):
    """How a model is trained, besides batch and precision.

    ``optimizer`` is a name in ``UPDATES`` (None: that of the profile, AdamW for transformers
    without one), ``recompute`` what the backward pass computes again, of ``RECOMPUTE``,
    ``reduce_dtype`` the type in which gradients are sent. ``autocast`` says whether mixed precision
    casts the values of an fp32 model at each operation, where the software does so.
    ``master_weights`` says whether the optimizer updates parameters in fp32; else these, their
    gradients and its state all have the 16 bits of the values in half precision.
    ``launches_experts`` says whether one GPU's host launches all experts one by one, where software
    does so; in a divided model each rank's launches its own (`perfsim.compute.stages`).
    ``document_tokens`` are those of a document of a packed sample, where attention stays within
    documents; None: it goes over the whole sample.
    """

    optimizer: str | None = None
    recompute: str = "none"
    reduce_dtype: str = "fp32"
    autocast: bool = True
    master_weights: bool = True
    launches_experts: bool = False
    document_tokens: int | None = None


USUAL_TRAINING = Training()
REDUCE_BYTES = {"fp32": FLOAT, "bf16": 2.0, "fp16": 2.0}
"""Bytes of a value of gradients, by the type in which they are sent."""


def gradient_bytes(reduce_dtype: str, *, master_weights: bool) -> float:
    """Return the bytes of a value of gradients as sent: no wider than they are kept.

    ``master_weights`` is that of `Training`.
    """
    return min(REDUCE_BYTES[reduce_dtype], FLOAT if master_weights else 2.0)


class TransferredProfile(NamedTuple):
    """A profile scaled to a GPU, batch and precision, and the origin of its iteration time.

    ``era`` is the software that runs it; ``autocast`` says whether that casts the values of an fp32
    model, None where it makes no difference. ``passes_kind`` is the kind of what both passes take,
    where the host does something else of the iteration; "": that of the whole. ``same_gpu`` says
    whether the time is of measurements on that GPU and software, at that batch or at others.
    """

    profile: Profile
    quantity: Quantity
    extrapolated: bool
    notes: list[str]
    era: str = NEWEST
    autocast: bool | None = None
    passes_kind: Kind | Literal[""] = ""
    same_gpu: bool = False

    @property
    def batch_reach(self) -> float:
        """How far its batch lies outside those whose time is known: ln of the ratio, 0 inside."""
        low, high = self.quantity.low, self.quantity.high
        if low is None or high is None:
            return 0.0
        batch = self.profile.batch
        return max(0.0, math.log(low / batch), math.log(batch / high))

    def with_derived(self, profile: Profile) -> TransferredProfile:
        """Return it with a profile in which other things than its passes take other times."""
        if profile is self.profile:
            return self
        kind = self.quantity.kind
        quantity = self.quantity._replace(value=profile.alone_s, kind=weakest([kind, "derived"]))
        return self._replace(profile=profile, quantity=quantity, passes_kind=kind)


def transfer(
    profile: Profile,
    device: Device,
    batch: int,
    precision: str,
    anchors: Catalog | Mapping[str, Sequence[Anchor]],
    software: str | None = None,
    tokens: int | None = None,
    training: Training = USUAL_TRAINING,
    catalog: Catalog | None = None,
) -> TransferredProfile:
    """Scale ``profile`` to a GPU, batch, precision, software and tokens a sample.

    The total is the first of these that is known, at that GPU and precision:

    - the profile's own if it was measured there, or what others measured there (several sources:
      their geometric mean, spread by their disagreement);
    - a line in batch between known neighbours;
    - beyond them, the nearest known one, times the ratio of the kernels' times at both batches;
    - where none is known, the kernels' time and what iterations elsewhere say of it.

    A larger batch never takes less time, and never more for a sample.

    Parameters
    ----------
    anchors : a catalog, or anchors by GPU name
    software : the era of kernels and launches; None for that of what was measured there, else
        the newest
    tokens : tokens a sample, of a model over text; None for the profile's own
    training : its optimizer, what it computes again, how wide its state is and what it sends
    catalog : has the rates of other GPUs where anchors come by name; None: what ships, read anew

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision, the batch is below 1, there is no such
        software, or the model does not take so many tokens.
    """
    if batch < 1:
        raise RequestError("batch", f"{batch} is below 1.", value=batch)
    device.matrix_rate(precision)
    if software is not None:
        software_era(software)
    inputs = _inputs(profile, device, anchors, tokens, training, catalog)
    plain = inputs._replace(training=_as_measured(training))
    goal = GpuPrecision(device.name, precision)
    era = software or _usual_era(plain, goal)
    if not (is_defined(profile.model) and has_experts(profile.model)):
        era = without(LOOP, era)
    divided, era = era, without(DTENSOR, era)  # the model is whole here
    casts = _may_cast(inputs, goal, era)
    if not casts:
        training = training._replace(autocast=USUAL_TRAINING.autocast)
        inputs = inputs._replace(training=training)
        plain = inputs._replace(training=_as_measured(training))
    total, by_kernels = _total(plain, goal, batch, era)
    own_s = _update_s(plain, goal, era, by_kernels)
    update_s = _update_within(plain, total.seconds, own_s, by_kernels)
    if plain.training != training:
        before_s = by_kernels.later_passes_s
        by_kernels = inputs.by_kernels(goal, batch, era)
        asked_s = _update_s(inputs, goal, era, by_kernels)
        passes = by_kernels.later_passes_s / before_s if before_s else 1.0
        if not math.isclose(asked_s, own_s, rel_tol=1e-9) or passes < 1.0:
            total = _with_update(total, update_s, asked_s, passes, training)
            update_s = asked_s
    found = _stretched_to(inputs, goal, batch, era, total, by_kernels, update_s)
    # Without attention autocast launches casts, and values have 16 bits either way.
    values = casts and has_attention(inputs.profile.model)
    found = found._replace(autocast=training.autocast if values else None, era=divided)
    width = gradient_bytes(training.reduce_dtype, master_weights=training.master_weights)
    if not training.master_weights:
        found = found._replace(profile=replace(found.profile, kept_bytes=HALF))
    return found if width == FLOAT else found._replace(profile=found.profile.sent_in(width))


def pin_iteration(transferred: TransferredProfile, seconds: float) -> TransferredProfile:
    """Scale a profile to an iteration that the user measured on one GPU [s].

    The optimizer's time stays; forward, backward and the host share the rest. The software is still
    that of the profile, and casts as it does.

    Raises
    ------
    RequestError
        If the CPUs of a host alone need longer for the update.
    """
    quantity = Quantity(seconds, "s", "measured", "given with the scenario (single_gpu)")
    profile = transferred.profile
    optimizer_s = profile.optimizer_s
    if not profile.host_sharing:
        optimizer_s = min(optimizer_s, _MAX_OPTIMIZER_SHARE * seconds)
    elif optimizer_s >= seconds:
        why = (
            "an update of all parameters by the CPUs of one host takes"
            f" {format_seconds(optimizer_s)} alone (`offload`); give what an iteration takes with"
            " it."
        )
        raise RequestError("single_gpu", why)
    return TransferredProfile(
        profile.stretched(seconds, optimizer_s),
        quantity,
        False,
        ["The single-GPU iteration is the one given; its layers stay in proportion."],
        transferred.era,
        transferred.autocast,
    )


def kernel_profile(
    model: str,
    device: Device,
    batch: int,
    precision: str,
    era: str,
    tokens: int | None,
    sequence: int | None,
    *,
    autocast: bool = True,
) -> Profile:
    """Return a profile of a defined network made of its kernels alone: nothing of it was measured.

    Parameters
    ----------
    tokens : tokens a sample that are asked for, None for the network's own
    sequence : those that it has then; None where it has none
    autocast : as in `Training`

    Raises
    ------
    RequestError
        If the GPU does not compute at that precision, or the network takes no such tokens.
    """
    rates = kernel_rates(device, precision, era, autocast=autocast)
    layers: list[Layer] = []
    tensors: list[tuple[str, tuple[int, ...], int]] = []
    frozen: list[FrozenParameter] = []
    for layer, (forward_s, backward_s) in zip(
        build_model(model, tokens), layer_times(model, tokens, batch, rates), strict=True
    ):
        if layer.tensors or not layers:
            layers.append(Layer(layer.name, layer.kind, forward_s, backward_s))
            tensors += [(name, shape, len(layers) - 1) for name, shape in layer.trained]
            if layer.frozen:
                frozen += [FrozenParameter(*tensor, len(layers) - 1) for tensor in layer.stored]
            continue
        last = layers[-1]
        layers[-1] = last._replace(
            forward_s=last.forward_s + forward_s, backward_s=last.backward_s + backward_s
        )
    ready_s, done_s = [0.0] * len(layers), 0.0
    for index in range(len(layers) - 1, -1, -1):
        done_s += layers[index].backward_s
        ready_s[index] = done_s
    time = model_time(model, tokens, batch, rates)
    passes_s = sum_in_order(layer.forward_s + layer.backward_s for layer in layers)
    source = "kernels of the model's layers (perfsim/compute/kernel_time.py)"
    header = {"source": source, "software": era, "optimizer": "adam", "kernels": "alone"}
    if sequence is not None:
        header["sequence"] = str(sequence)
    kinds: tuple[str, ...] = ("forward_ms", "backward_ms", "ready_ms", "iteration_ms")
    return Profile(
        model=model,
        gpu=device.name,
        precision=precision,
        batch=batch,
        iteration_s=passes_s + time.update_s,
        optimizer_s=time.update_s,
        layers=tuple(layers),
        gradients=tuple(
            Gradient(name, shape, ready_s[index], index) for name, shape, index in tensors
        ),
        kinds=dict.fromkeys((*kinds, "optimizer_ms"), "derived"),
        header=header,
        positions={layer.name: layer.rows for layer in build_model(model, tokens) if layer.rows},
        frozen=tuple(frozen),
    )


def device_of_profile(profile: Profile, flops: float | None, software: str) -> Device:
    """Return a device that no file describes, as a measured profile shows it.

    Its matrix rate is what the passes reached, its memory bandwidth what the update did. Times on
    it are those of the profile; other batches go by these two.

    Parameters
    ----------
    flops : operations of a sample, forward and backward; None where the network is not known: then
        6 a parameter
    """
    passes_s = profile.forward_s + profile.backward_s
    source = f"what {profile.model} reached in the profile ({profile.header['source']})"
    work = profile.batch * (flops or 6.0 * profile.elements)
    rate = Quantity(work / passes_s, "FLOP/s", "derived", source)
    moved = 4.0 * UPDATE_PASSES.get(profile.optimizer, UPDATE_PASSES["sgd"]) * profile.elements
    update_s = profile.optimizer_s or passes_s
    shortest_s = min(layer.forward_s for layer in profile.layers if layer.forward_s > 0)
    return Device(
        name=profile.gpu,
        title=f"{profile.gpu}, as a profile shows it",
        aliases=(),
        memory_bytes=math.inf,
        memory_bandwidth=Quantity(moved / update_s, "B/s", "derived", source),
        launch_s=Quantity(shortest_s, "s", "derived", source),
        rates={name: rate for name in {"fp32", profile.precision}},
        software=software,
    )


# 1. What is known.


class TransferInputs(NamedTuple):
    """Inputs for moving a profile: the profile, the GPU it goes to, all anchors, all GPUs.

    ``own`` says whether the profile's own total counts as a known iteration; ``own_first`` whether
    it comes before what others measured there: it was measured, or is alone. ``own_alone`` says
    that nothing else of its GPU and precision counts: it is of a file of the user's, who has
    another machine and states no other iterations of theirs. ``defined`` says whether the network
    has a definition with these parameters; ``tokens`` are those a sample at the goal.
    """

    profile: Profile
    device: Device
    anchors: Mapping[str, Sequence[Anchor]]
    catalog: Catalog
    own: bool
    defined: bool
    tokens: int | None = None
    training: Training = USUAL_TRAINING
    own_first: bool = False
    own_alone: bool = False

    @property
    def home(self) -> GpuPrecision:
        """The GPU and precision of the profile."""
        return GpuPrecision(self.profile.gpu, self.profile.precision)

    @property
    def home_era(self) -> str:
        """The software of the profile's total, with its kernel of attention where it was priced."""
        era = self.profile.header.get("software", NEWEST)
        known = era.partition(WITH)[0] if self.by_kernels_alone else era
        return era if known in ERAS else NEWEST

    @property
    def by_kernels_alone(self) -> bool:
        """Whether the profile is of kernels that were priced for the goal: nothing was measured."""
        return self.profile.header.get("kernels") == "alone"

    def gpu(self, name: str) -> Device:
        """Return a GPU by name."""
        if name == self.device.name:
            return self.device
        return load_rates(name, self.catalog)

    def optimizer_s(self, gpu: str, era: str) -> float:
        """Return the optimizer's time on a GPU [s]: it streams the parameters through memory."""
        return self._own_optimizer_s(gpu) * self.update_ratio(era)

    def update_ratio(self, era: str) -> float:
        """Return how many times as long the update takes in an era as the profile's own does."""
        own = self.profile.optimizer
        asked = UPDATES[self.training.optimizer] if self.training.optimizer else own
        width = 1.0 if self.training.master_weights else 2.0 / FLOAT
        before = _update_passes(own, self.home_era)
        return width * _update_passes(asked, era) / before

    def _own_optimizer_s(self, gpu: str) -> float:
        if gpu == self.profile.gpu or not self.profile.optimizer_s:
            return self.profile.optimizer_s
        try:
            home = self.gpu(self.profile.gpu)
        except RequestError:  # a profile of the user's own, of a GPU without a file
            return self.profile.optimizer_s
        ratio = home.memory_bandwidth.value / self.gpu(gpu).memory_bandwidth.value
        return self.profile.optimizer_s * ratio

    def by_kernels(
        self, at: GpuPrecision, batch: int, era: str, training: Training | None = None
    ) -> ModelTime:
        """Return how long the model's kernels and launches take there, trained as is asked.

        Raises
        ------
        RequestError
            If the GPU does not compute at that precision.
        """
        if not self.defined:
            return _by_rates(self, at, batch, era, training or self.training)
        model = self.profile.model
        return self._kernels(
            model, self.tokens, at, batch, era, update=True, training=training or self.training
        )

    def anchor_by_kernels(self, anchor: Anchor, gpu: str) -> ModelTime:
        """Return how long the kernels and launches of a measured iteration take."""
        at = GpuPrecision(gpu, anchor.precision)
        whole = anchor.covers == "iteration"
        return self._kernels(
            anchor.model, anchor.sequence, at, anchor.batch, anchor.software, update=whole
        )

    def _kernels(
        self,
        model: str,
        tokens: int | None,
        at: GpuPrecision,
        batch: int,
        era: str,
        *,
        update: bool,
        training: Training = USUAL_TRAINING,
    ) -> ModelTime:
        optimizer = training.optimizer and UPDATES[training.optimizer]
        again = training.recompute
        autocast, master = training.autocast, training.master_weights
        experts, document = training.launches_experts, training.document_tokens
        how = update, optimizer, again, autocast, master, experts, document
        gpu = self.gpu(at.gpu)
        asked = "kernels", model, tokens, at, gpu.key, batch, era, *how
        if not takes_tokens(model):
            tokens = None
        rates = kernel_rates(gpu, at.precision, era, autocast=autocast, master_weights=master)
        return self.catalog.once(
            asked,
            lambda: model_time(
                model,
                tokens,
                batch,
                rates,
                update=update,
                optimizer=optimizer,
                recompute=again,
                experts=experts,
                document_tokens=document,
            ),
        )


def _update_passes(optimizer: str, era: str) -> float:
    """Return how often an update passes over the parameters in an era."""
    passes = update_passes(execution_of(era))
    return passes.get(optimizer, passes["sgd"])


def _inputs(
    profile: Profile,
    device: Device,
    anchors: Catalog | Mapping[str, Sequence[Anchor]],
    tokens: int | None,
    training: Training = USUAL_TRAINING,
    catalog: Catalog | None = None,
) -> TransferInputs:
    defined = matches_definition(profile)
    if tokens is not None and tokens != profile.sequence:
        if not defined:
            why = f"{profile.model} has no definition in perfsim; its profile has its own tokens."
            raise RequestError("seq", why, value=tokens)
        build_model(profile.model, tokens)
    tokens = tokens or profile.sequence
    own = tokens == profile.sequence and profile.header.get("kernels") != "alone"
    alone = _is_alone(profile, anchors)
    first = alone or profile.kinds.get("iteration_ms") == "measured", alone
    if not isinstance(anchors, Catalog):
        files = catalog or Catalog()
        return TransferInputs(
            profile, device, anchors, files, own, defined, tokens, training, *first
        )
    total = profile.header.get("source", "").removeprefix("total:").strip()
    own = own and owner_of(total) not in anchors.without
    return TransferInputs(
        profile, device, Anchors(anchors), anchors, own, defined, tokens, training, *first
    )


def _is_alone(profile: Profile, anchors: Catalog | Mapping[str, Sequence[Anchor]]) -> bool:
    """Tell whether a profile is of the user's own, and iterations of its GPU are not."""
    if not is_changed(profile.path):
        return False
    if not isinstance(anchors, Catalog):
        return True
    beside = anchors.beside("devices", profile.gpu, ".anchors.csv")
    return beside is None or not is_changed(beside, "devices")


class KnownIteration(NamedTuple):
    """A measured iteration at the goal's GPU and precision, and the software that it ran on."""

    batch: int
    era: str
    estimate: Estimate


def known_iterations(
    inputs: TransferInputs, at: GpuPrecision, era: str | None = None
) -> list[KnownIteration]:
    """Return the model's measured iterations at a GPU and precision, or those that tell of an era.

    The profile fills a gap. Where its own total was measured, it comes before what others measured
    at its batch, and before what breaks the laws of the batch with it; where it is of a file of the
    user's, it is alone. Another network under the name of a defined one shares none of its
    iterations.
    """
    profile = inputs.profile
    known = []
    same = inputs.defined or not is_defined(profile.model)
    for anchor in inputs.anchors.get(at.gpu, ()) if same else ():
        if anchor.use == "ratio" or anchor.precision != at.precision:
            continue
        if (anchor.model, anchor.sequence) == (profile.model, inputs.tokens):
            partial = anchor.covers == "forward_backward"
            update_s = inputs.optimizer_s(at.gpu, anchor.software) if partial else 0.0
            one = Estimate(
                anchor.iteration_s + update_s,
                weakest([anchor.kind, "derived"]) if partial else anchor.kind,
                anchor.source,
                anchor.spread,
                same_gpu=anchor.kind in _SEEN,
            )
            known.append(KnownIteration(anchor.batch, anchor.software, one))
    if at == inputs.home and inputs.own:
        kind = profile.kinds.get("iteration_ms", "derived")
        source = profile.header.get("source", "the profile")
        own = Estimate(profile.iteration_s, kind, source, same_gpu=kind in _SEEN)
        here = [one for one in known if one.batch == profile.batch]
        if inputs.own_alone:
            known = []
        elif inputs.own_first:
            known = [one for one in known if _agrees(profile, one)]
        if inputs.own_first or not here:
            known.append(KnownIteration(profile.batch, inputs.home_era, own))
    if era is None or not inputs.defined:
        return known
    return [one for one in known if _tells_of(one.era, era)]


def _agrees(profile: Profile, one: KnownIteration) -> bool:
    """Tell whether a larger batch takes longer, but no longer for a sample, than the profile's."""
    larger, seconds = one.batch - profile.batch, one.estimate.seconds
    longer = seconds - profile.iteration_s
    longer_a_sample = seconds / one.batch - profile.iteration_s / profile.batch
    return larger * longer > 0 and larger * longer_a_sample <= 0


def _usual_era(inputs: TransferInputs, goal: GpuPrecision) -> str:
    """Return the software that is meant where none is asked for.

    It is that of the profile where its total comes first, else that of most known iterations, the
    newest where there are none.
    """
    if inputs.own_first and inputs.own and goal == inputs.home:
        return inputs.home_era
    counts = Counter(one.era for one in known_iterations(inputs, goal))
    return max(
        counts,
        key=lambda era: (counts[era], list(ERAS).index(software_era(era).name)),
        default=NEWEST,
    )


def _tells_of(measured: str, era: str) -> bool:
    """Tell whether an iteration measured in an era says how long one in another takes.

    What a framework's own kernels take says nothing of those that a vendor tuned for a network.
    """
    return measured == era or execution_of(measured).tuned or not execution_of(era).tuned


# 2. The total.


def _total(
    inputs: TransferInputs,
    goal: GpuPrecision,
    batch: int,
    era: str,
) -> tuple[Estimate, ModelTime]:
    """Return the iteration at the goal, and the same by kernels alone."""
    by_kernels = inputs.by_kernels(goal, batch, era)
    known = known_iterations(inputs, goal, era)
    if not known:
        total = _by_residuals(inputs, goal, batch, era, by_kernels)
        return _not_slower(inputs, goal, batch, era, total), by_kernels
    series = lawful([(one.batch, _in_era(inputs, goal, one, era)) for one in known])
    what = f"{inputs.profile.model} on {goal}"
    low, high = min(series), max(series)
    if low <= batch <= high:
        return at_batch(what, series, batch), by_kernels
    end = low if batch < low else high
    nearest = series[end]
    ratio = _growth(nearest.seconds, inputs.by_kernels(goal, end, era), by_kernels)
    note = (
        f"{what}: batch {batch} from batch {end} ({nearest.source}), {ratio:.3g} times as long by"
        " its kernels."
    )
    total = nearest._replace(
        seconds=nearest.seconds * ratio,
        kind=weakest([nearest.kind, "derived"]),
        extrapolated=True,
        notes=(*nearest.notes, note),
        low=low,
        high=high,
    )
    return total, by_kernels


def _growth(seconds: float, here: ModelTime, there: ModelTime) -> float:
    """Return how many times as long an iteration takes there as the one that was measured here.

    What the measured one is off by is that of the GPU where the GPU binds, else that of the host.
    It tells nothing of the other but that this takes no longer.

    Examples
    --------
    >>> gpu_binds, host_binds = ModelTime(4.0, 0.0, 1.0, 0.0), ModelTime(0.5, 0.0, 1.0, 0.0)
    >>> _growth(4.8, gpu_binds, gpu_binds._replace(passes_s=2.0))
    0.5
    >>> 4.8 * _growth(4.8, gpu_binds, host_binds), 1.2 * _growth(1.2, host_binds, gpu_binds)
    (1.0, 4.0)
    """
    off = seconds / here.iteration_s
    other_s = here.passes_s if here.host_binds else here.host_passes_s
    other = min(1.0, off * here.later_passes_s / other_s) if other_s else 1.0
    gpu, host = (other, off) if here.host_binds else (off, other)
    passes_s = max(gpu * there.passes_s, host * there.host_passes_s)
    return (passes_s + off * there.later_update_s) / seconds


def _in_era(inputs: TransferInputs, goal: GpuPrecision, one: KnownIteration, era: str) -> Estimate:
    """Return a known iteration as it would run on the software of an era, trained as is asked."""
    usual = inputs.training._replace(reduce_dtype=USUAL_TRAINING.reduce_dtype) == USUAL_TRAINING
    if one.era == era and usual:
        return one.estimate
    there = inputs.by_kernels(goal, one.batch, one.era, USUAL_TRAINING)
    ratio = _growth(one.estimate.seconds, there, inputs.by_kernels(goal, one.batch, era))
    asked = era if usual else f"{era}, trained as asked"
    note = f"Batch {one.batch} was measured on {one.era}: {ratio:.3g} times as long on {asked}."
    return one.estimate._replace(
        seconds=one.estimate.seconds * ratio,
        kind=weakest([one.estimate.kind, "derived"]),
        notes=(*one.estimate.notes, note),
        same_gpu=False,
    )


def _by_residuals(
    inputs: TransferInputs, goal: GpuPrecision, batch: int, era: str, by_kernels: ModelTime
) -> Estimate:
    """Return the iteration by kernels, corrected by what iterations elsewhere say.

    Of the host's launches those say something in which the host binds. The correction is the same
    for all batches, so that a larger batch never takes less time.
    """
    profile = inputs.profile
    alone = profile.header.get("kernels") == "alone"
    near = _USUAL_BATCH if alone else profile.batch
    setting = _setting(
        profile.model, inputs.tokens, inputs.gpu(goal.gpu), goal.precision, near, era
    )
    known = _telling(inputs, setting)
    of_host = [one for one in known if one.host_binds]
    (value, deviation), (host_value, host_deviation) = (
        estimate(setting, some) for some in (known, of_host)
    )
    passes_s = by_kernels.passes_s * math.exp(value)
    host_s = by_kernels.host_passes_s * math.exp(host_value)
    seconds = max(passes_s, host_s) + by_kernels.later_update_s * math.exp(value)
    if host_s > passes_s:
        known, value, deviation = of_host, host_value, host_deviation
    sources = dict.fromkeys(one.setting.source.partition(" ")[0] for one in known)
    note = (
        f"No iteration of {_named(profile.model)} on {goal} is known: its kernels and launches on"
        f" {era} take {by_kernels.iteration_s * 1e3:.4g} ms"
        + _shares_words(inputs, goal, batch, era)
    )
    if known:
        note += (
            f", and {len(known)} measured iterations of the same model, GPU or software"
            f" ({', '.join(sources)}) say {math.exp(value):.3g} times that"
        )
    spread = math.expm1(_NINETY * deviation)
    brief = f"nobody timed {_named(profile.model)} on {goal}: computation by its kernels"
    return Estimate(
        seconds,
        "derived",
        "kernels (perfsim/compute/kernel_time.py) and residuals of measured iterations",
        spread,
        notes=(warning(f"{note}, +-{spread:.0%}.", f"{brief}, +-{spread:.0%}"),),
    )


def _shares_words(inputs: TransferInputs, goal: GpuPrecision, batch: int, era: str) -> str:
    """Say which kinds of kernels both passes rest on."""
    model = inputs.profile.model
    if not inputs.defined:
        return ""
    tokens = inputs.tokens if takes_tokens(model) else None
    autocast = inputs.training.autocast
    rates = kernel_rates(inputs.gpu(goal.gpu), goal.precision, era, autocast=autocast)
    document = inputs.training.document_tokens
    shares = kernel_shares(model, tokens, batch, rates, document)
    words = (f"{share:.0%} {word}" for word, share in shares.items() if share >= _WORTH_SAYING)
    return f" (both passes: {', '.join(words)})"


_WORTH_SAYING = 0.01
"""Share of a pass from which a kind of kernel is named."""


def _not_slower(
    inputs: TransferInputs, goal: GpuPrecision, batch: int, era: str, total: Estimate
) -> Estimate:
    """Hold a derived iteration at those of a wider precision and of the GPU before it.

    What iterations elsewhere say of two GPUs or precisions may reverse what their data sheets say.
    A measured narrower precision comes first, so that it alone may be the exception to these laws.
    """
    for narrower in _NARROWER.get(goal.precision, ()):
        other = GpuPrecision(goal.gpu, narrower)
        if not known_iterations(inputs, other, era):
            continue
        then = _iteration(inputs, other, batch, era)
        if then.seconds > total.seconds:
            note = f"Held at the {format_seconds(then.seconds)} measured of {other}."
            total = total._replace(seconds=then.seconds, notes=(*total.notes, note))
    whole = inputs._replace(training=inputs.training._replace(autocast=False))
    for other in _slower_neighbours(inputs, goal):
        wider = other.precision != goal.precision
        if wider and _launches_casts(inputs, goal, batch, era):
            continue
        there = whole if wider else inputs
        then = _iteration(there, other, batch, era)
        # Both passes are no slower, and the update is shorter by what memory is faster.
        before, now = there.by_kernels(other, batch, era), inputs.by_kernels(goal, batch, era)
        update_s = _update_s(there, other, era, before)
        more_s = _update_within(there, then.seconds, update_s, before)
        more_s -= _update_s(inputs, goal, era, now)
        # Launches of an update may take as long on both.
        more_s = min(more_s, before.later_update_s - now.later_update_s)
        most_s = then.seconds - max(0.0, more_s)
        if most_s < total.seconds:
            note = f"Held at the {format_seconds(most_s)} of {other}, which is no faster."
            total = total._replace(seconds=most_s, notes=(*total.notes, note))
    return total


def _may_cast(inputs: TransferInputs, goal: GpuPrecision, era: str) -> bool:
    """Tell whether it makes a difference if autocast casts the values of an fp32 model."""
    if not (inputs.defined and goal.precision in AUTOCAST_PRECISIONS):
        return False
    return execution_of(era).autocasts


def _launches_casts(inputs: TransferInputs, goal: GpuPrecision, batch: int, era: str) -> bool:
    """Tell whether autocast's casts make the host bind, so that a wider precision may be faster."""
    if not (_may_cast(inputs, goal, era) and inputs.training.autocast):
        return False
    whole = inputs.training._replace(autocast=False)
    casts, alone = (
        inputs.by_kernels(goal, batch, era, training) for training in (inputs.training, whole)
    )
    return casts.host_passes_s > max(casts.passes_s, alone.host_passes_s)


def _iteration(inputs: TransferInputs, at: GpuPrecision, batch: int, era: str) -> Estimate:
    """Return the iteration on a GPU in a precision, worked out once."""
    model = inputs.profile.path or inputs.profile.model
    asked = ("iteration", model, inputs.tokens, at, batch, era, inputs.training)

    def found() -> Estimate:
        return _total(inputs, at, batch, era)[0]

    return inputs.catalog.once(asked, found)


def _slower_neighbours(inputs: TransferInputs, goal: GpuPrecision) -> list[GpuPrecision]:
    """Return what is next to a goal and no faster: a wider precision, the GPU before."""
    device = inputs.gpu(goal.gpu)
    slower = [
        GpuPrecision(goal.gpu, wider)
        for wider in _WIDER.get(goal.precision, ())
        if wider in device.rates
    ][:1]
    if device.succeeds and goal.precision in inputs.gpu(device.succeeds).rates:
        slower.append(GpuPrecision(device.succeeds, goal.precision))
    return slower


_WIDER = {
    "nvfp4": ("fp8", "amp-bf16"),
    "fp8": ("amp-bf16",),
    "amp-bf16": ("tf32", "fp32"),
    "amp-fp16": ("tf32", "fp32"),
    "tf32": ("fp32",),
}
"""Precision -> the next wider ones, of which the first that a GPU has counts."""
_NARROWER = {"fp32": ("tf32", "amp-fp16"), "tf32": ("amp-fp16",)}
"""Precision -> those that are no slower on the same GPU."""


def _telling(inputs: TransferInputs, goal: IterationSetting) -> list[Residual]:
    """Return the residuals that tell of a goal: of its model, of its GPU, of its software.

    Of each GPU, precision, model and source, the iteration of the batch nearest to the goal's. Many
    GPUs and precisions tell of a model: those do that have most in common with the goal, as others
    may have its batch by chance.
    """
    shared = _nearest_by_batch(inputs, goal.gpu, goal.batch)
    devices = {gpu: inputs.gpu(gpu) for gpu in dict.fromkeys(gpu for _, gpu, _ in shared)}

    def in_common(one: tuple[Anchor, str, str]) -> float:
        anchor, gpu, _ = one
        return covariance(goal, _setting_of(anchor, devices[gpu]))

    of_model = [one for one in shared if one[0].model == goal.model]
    of_model.sort(key=in_common, reverse=True)  # of those alike the nearest in batch stay first
    chosen: dict[tuple[str, Anchor], None] = {}
    for way in ("model", "gpu", "architecture", "era"):
        sharing = (
            (gpu, anchor)
            for anchor, gpu, family in (of_model if way == "model" else shared)
            if _shares(way, goal, gpu, devices[gpu].architecture or gpu, family, anchor)
        )
        chosen |= dict.fromkeys(islice(sharing, _MAX_CELLS))
    return [residual_of(inputs, anchor, gpu) for gpu, anchor in chosen]


def _nearest_by_batch(
    inputs: TransferInputs, gpu: str, batch: int
) -> list[tuple[Anchor, str, str]]:
    """Return measured iterations with their GPU and family, those nearest to a batch first.

    It is one of each GPU, precision, model and source. An iteration that holds on its own GPU alone
    is left out unless that is ``gpu``.
    """

    def found() -> list[tuple[Anchor, str, str]]:
        nearest: dict[tuple[str, str, str, str, int | None], tuple[float, Anchor, str]] = {}
        for place in inputs.anchors:
            for anchor in inputs.anchors[place]:
                if anchor.use == "ratio" or (anchor.use == "local" and place != gpu):
                    continue
                if not is_defined(anchor.model):
                    continue
                key = (place, anchor.precision, anchor.model, anchor.source, anchor.sequence)
                away = abs(math.log(anchor.batch / batch))
                if key not in nearest or away < nearest[key][0]:
                    nearest[key] = (away, anchor, place)
        ordered = sorted(nearest.values(), key=lambda item: item[0])
        families = {model: _family(model) for model in {anchor.model for _, anchor, _ in ordered}}
        return [(anchor, place, families[anchor.model]) for _, anchor, place in ordered]

    if not isinstance(inputs.anchors, Anchors):
        return found()
    return inputs.catalog.once(("nearest anchors", gpu, batch), found)


def _shares(
    way: str, goal: IterationSetting, gpu: str, architecture: str, family: str, anchor: Anchor
) -> bool:
    """Tell whether a measured iteration shares a goal's model, GPU, architecture or software."""
    if way == "model":
        return anchor.model == goal.model
    if way == "architecture":
        return architecture == goal.architecture
    alike = family == goal.family
    if way == "era":
        return alike and _told_alike(anchor.software) == goal.era
    return alike and (gpu, anchor.precision) == (goal.gpu, goal.precision)


def residual_of(inputs: TransferInputs, anchor: Anchor, gpu: str) -> Residual:
    """Return ln(measured / by kernels) of a measured iteration, and where it ran."""
    by_kernels = inputs.anchor_by_kernels(anchor, gpu)
    setting = _setting_of(anchor, inputs.gpu(gpu))
    off = math.log(anchor.iteration_s / by_kernels.iteration_s)
    return Residual(setting, off, REPEATS, by_kernels.host_binds)


def _setting_of(anchor: Anchor, device: Device) -> IterationSetting:
    """Return where a measured iteration ran."""
    return _setting(
        anchor.model,
        anchor.sequence,
        device,
        anchor.precision,
        anchor.batch,
        anchor.software,
        f"{owner_of(anchor.source)} {anchor.framework}",
    )


def _setting(
    model: str,
    tokens: int | None,
    device: Device,
    precision: str,
    batch: int,
    era: str,
    source: str = "",
) -> IterationSetting:
    model, _ = base_model(model)
    family, gpu = _family(model), device.name
    chip, architecture = _chip(gpu), device.architecture or gpu
    era = _told_alike(era)
    return IterationSetting(
        model, family, tokens, gpu, chip, architecture, precision, batch, era, source
    )


def _told_alike(era: str) -> str:
    """Return the software whose iterations tell as much of an era: that without some ways to run.

    A loss is a small part, and what copies take is counted by itself. Convolutions on maps in
    another layout tell nothing: what such iterations are off by is that layout's.
    """
    for way in (BLOCKS, MULTIHEAD):
        era = without(way, era)
    return era


def _chip(gpu: str) -> str:
    """Return the chip of a GPU's boards: the name up to the first hyphen.

    Examples
    --------
    >>> _chip("a100-pcie-40gb"), _chip("v100")
    ('a100', 'v100')
    """
    return gpu.partition("-")[0]


def _named(model: str) -> str:
    """Return a model's name; of one stated by its numbers, that it is one."""
    base, adapters = base_model(model)
    name = "the stated model" if base.startswith((TRANSFORMER, GENERIC)) else base
    return f"{name} with adapters" if adapters else name


def _family(model: str) -> str:
    """Return the family of a model by its name: text, cifar, lstm or image.

    What a GPU reaches depends on what it runs: small kernels (CIFAR) or large products (text).

    Examples
    --------
    >>> [_family(name) for name in ("bert-large", "vit-b16", "resnet50-cifar", "vgg16")]
    ['text', 'text', 'cifar', 'image']
    """
    model, _ = base_model(model)
    if model.startswith(("bert", "gpt", "vit")) or is_specified(model):
        return "image" if model.startswith(GENERIC) else "text"
    if model.startswith("lstm"):
        return "lstm"
    return "cifar" if model.endswith("-cifar") else "image"


def _by_rates(
    inputs: TransferInputs, at: GpuPrecision, batch: int, era: str, training: Training
) -> ModelTime:
    """Return the times of a network without a definition, by the rates of its layers' kinds.

    Products go by matrix rate, everything else by memory bandwidth, both with the batch.
    """
    profile, goal = inputs.profile, inputs.gpu(at.gpu)
    try:
        home = inputs.gpu(profile.gpu)
        products = home.matrix_rate(profile.precision).value / goal.matrix_rate(at.precision).value
        memory = home.memory_bandwidth.value / goal.memory_bandwidth.value
    except RequestError:  # a profile of the user's own, of a GPU without a file
        products = memory = 1.0
    passes_s = sum_in_order(
        (layer.forward_s + layer.backward_s)
        * (products if layer.kind.startswith(_PRODUCT_KINDS) else memory)
        for layer in profile.layers
    )
    if profile.forward_s + profile.backward_s > 0:
        forward = profile.forward_s / (profile.forward_s + profile.backward_s)
        passes_s *= 1.0 + forward * _AGAIN_SHARES[training.recompute]
    other_s = profile.other_s * memory
    known = execution_of(era)
    tensors = len(profile.gradients)
    update_s = inputs._replace(training=training).optimizer_s(at.gpu, era)
    return ModelTime(
        (passes_s + other_s) * batch / profile.batch,
        update_s,
        tensors * _OPERATIONS_A_TENSOR * known.op_share * known.op_s,
        tensors * known.tensor_s,
    )


_AGAIN_SHARES = {"none": 0.0, "selective": 0.5, "full": 1.0}
"""The share of a forward pass that is computed again, of a network without a definition; of
selective checkpoints derived: every second product, and they are most of it."""
_OPERATIONS_A_TENSOR = 3.0
"""Operations launched for a tensor of an unknown network, both passes: a product and its two
gradients."""


# 3. How the layers share the total.


def _stretched_to(
    inputs: TransferInputs,
    goal: GpuPrecision,
    batch: int,
    era: str,
    iteration: Estimate,
    by_kernels: ModelTime,
    update_s: float,
) -> TransferredProfile:
    """Return the profile at the goal and batch with that iteration, and the iteration's origin."""
    profile = inputs.profile
    own = profile.gpu, profile.precision, profile.batch, profile.sequence
    training = inputs.training
    usual = training.recompute == USUAL_TRAINING.recompute and training.autocast
    usual = usual and training.document_tokens is None
    same = own == (*goal, batch, inputs.tokens) and usual
    scaled = profile
    if not same or not math.isclose(iteration.seconds, profile.iteration_s, rel_tol=1e-9):
        kinds: dict[str, Kind] = {
            name: weakest([kind, "derived"]) for name, kind in profile.kinds.items()
        }
        kinds["iteration_ms"] = iteration.kind
        reshaped = profile if same or not inputs.defined else _reshaped(inputs, goal, batch, era)
        scaled = replace(
            reshaped.stretched(iteration.seconds, update_s),
            gpu=goal.gpu,
            precision=goal.precision,
            batch=batch,
            kinds=kinds,
            **_in_tokens(profile, inputs.tokens),
        )
    quantity = Quantity(
        iteration.seconds,
        "s",
        iteration.kind,
        iteration.source,
        iteration.spread,
        iteration.low,
        iteration.high,
        "samples",
    )
    notes = list(iteration.notes)
    host_s, device_s = by_kernels.host_passes_s, by_kernels.passes_s
    passes_s = scaled.forward_s + scaled.backward_s
    if by_kernels.later_passes_s > 0 and passes_s > 0:
        # What measured iterations say of the one that binds is not said of the other.
        shares = [min(1.0, one_s / passes_s) for one_s in (host_s, device_s)]
        shares[device_s >= host_s] = 1.0
        scaled = replace(scaled, host_share=shares[0], device_share=shares[1])
    if host_s > device_s:
        times = f"both passes take it {format_seconds(host_s)}, the GPU {format_seconds(device_s)}"
        notes.append(
            warning(
                f"The host's launches bind ({era}): {times}.",
                f"the host's launches set the pace: {times}",
            )
        )
    same_gpu = iteration.same_gpu
    return TransferredProfile(
        scaled, quantity, iteration.extrapolated, notes, era, same_gpu=same_gpu
    )


def _update_s(inputs: TransferInputs, goal: GpuPrecision, era: str, by_kernels: ModelTime) -> float:
    """Return the optimizer's time at the goal [s].

    It goes as the profile's own does; where that has none, or another optimizer is asked for that
    multiplies matrices, it is as the kernels say.
    """
    unmeasured = inputs.profile.header.get("kernels") == "alone"
    if unmeasured or (inputs.defined and inputs.training.optimizer == "muon"):
        return by_kernels.update_s
    return inputs.optimizer_s(goal.gpu, era)


def _update_within(
    inputs: TransferInputs, seconds: float, update_s: float, by_kernels: ModelTime
) -> float:
    """Return the part of an iteration that its update takes, which takes so long by itself [s]."""
    most = _MAX_OPTIMIZER_SHARE
    if inputs.by_kernels_alone and by_kernels.iteration_s > 0:
        # Of experts few work for a token, but all are updated.
        most = max(most, by_kernels.update_s / by_kernels.iteration_s)
    return min(update_s, most * seconds)


class _InTokens(TypedDict):
    """What a profile says of its tokens: its header, and the rows of each layer's input."""

    header: dict[str, str]
    positions: Mapping[str, int]


def _as_measured(training: Training) -> Training:
    """Return a training with the profile's own optimizer, which updates parameters in fp32."""
    return training._replace(optimizer=None, master_weights=True)


def _with_update(
    total: Estimate, own_s: float, asked_s: float, passes: float, training: Training
) -> Estimate:
    """Return an iteration with the update that is asked for in place of the profile's own.

    ``passes`` is how many times as long both passes take with it.
    """
    update = f"The update of {training.optimizer}" if training.optimizer else "The update"
    update += "" if training.master_weights else " without master weights"
    note = f"{update} takes {format_seconds(asked_s)}, the profile's own {format_seconds(own_s)}."
    return total._replace(
        seconds=passes * (total.seconds - own_s) + asked_s,
        kind=weakest([total.kind, "derived"]),
        notes=(*total.notes, note),
    )


def _in_tokens(profile: Profile, tokens: int | None) -> _InTokens:
    """Return header and positions of a profile at other tokens a sample."""
    before = profile.sequence
    if tokens is None or before is None or tokens == before:
        return _InTokens(header=profile.header, positions=profile.positions)
    header = {**profile.header, "sequence": str(tokens)}
    rows = {name: tokens if row == before else row for name, row in profile.positions.items()}
    return _InTokens(header=header, positions=rows)


def _reshaped(inputs: TransferInputs, goal: GpuPrecision, batch: int, era: str) -> Profile:
    """Return the profile with each layer's time as its kernels go from its place to the goal."""
    profile = inputs.profile
    training, usual = inputs.training, USUAL_TRAINING
    if inputs.by_kernels_alone:  # priced with autocast as it is asked for, or without
        usual = usual._replace(autocast=training.autocast)
    here = _layers_by_kernels(
        inputs, inputs.home, profile.batch, inputs.home_era, profile.sequence, usual
    )
    there = _layers_by_kernels(inputs, goal, batch, era, inputs.tokens, training)
    forward = [there[layer.name][0] / here[layer.name][0] for layer in profile.layers]
    backward = [
        there[layer.name][1] / here[layer.name][1] if here[layer.name][1] else 1.0
        for layer in profile.layers
    ]  # a frozen embedding has none
    layers = tuple(
        [
            Layer(layer.name, layer.kind, layer.forward_s * ahead, layer.backward_s * back)
            for layer, ahead, back in zip(profile.layers, forward, backward, strict=True)
        ]
    )
    before_s = sum_in_order(layer.backward_s for layer in profile.layers)
    after_s = sum_in_order(layer.backward_s for layer in layers)
    gradients = _ready(profile, backward, after_s / before_s if before_s else 1.0)
    total_s = sum_in_order(layer.forward_s + layer.backward_s for layer in layers)
    passes_s = profile.forward_s + profile.backward_s
    grown = total_s / passes_s if passes_s else 1.0
    iteration_s = total_s + profile.optimizer_s + profile.other_s * grown
    return replace(profile, layers=layers, gradients=gradients, iteration_s=iteration_s)


def _ready(profile: Profile, ratios: Sequence[float], total: float) -> tuple[Gradient, ...]:
    """Return the gradients, each step of the backward pass as long as its layer's kernels say.

    ``total`` is how much longer the whole pass takes; the steps are scaled to fit it.
    """
    gradients = profile.gradients
    moments, at_s, before_s = [0.0] * len(gradients), 0.0, 0.0
    for place in profile.places_by_moment:
        gradient = gradients[place]
        at_s += (gradient.ready_s - before_s) * ratios[gradient.layer]
        before_s = gradient.ready_s
        moments[place] = at_s
    scale = before_s * total / at_s if at_s > 0 else 1.0
    return tuple([one.at(at_s * scale) for one, at_s in zip(gradients, moments, strict=True)])


def _layers_by_kernels(
    inputs: TransferInputs,
    at: GpuPrecision,
    batch: int,
    era: str,
    tokens: int | None,
    training: Training = USUAL_TRAINING,
) -> dict[str, tuple[float, float]]:
    """Return each layer's forward and backward kernels [s].

    Those of a layer without parameters count to the one before it, as profiles have it.
    """
    profile = inputs.profile
    tokens = tokens if takes_tokens(profile.model) else None

    again, autocast, gpu = training.recompute, training.autocast, inputs.gpu(at.gpu)
    document = training.document_tokens

    def found() -> dict[str, tuple[float, float]]:
        rates = kernel_rates(gpu, at.precision, era, autocast=autocast)
        times = layer_times(profile.model, tokens, batch, rates, again, document)
        return dict(_merged(inputs, times))

    how = again, autocast, document
    asked = ("layers by kernels", profile.model, tokens, at, gpu.key, batch, era, *how)
    return inputs.catalog.once(asked, found)


def _merged(
    inputs: TransferInputs, times: Sequence[tuple[float, float]]
) -> Iterator[tuple[str, tuple[float, float]]]:
    layers = build_model(inputs.profile.model)
    name, forward_s, backward_s = layers[0].name, 0.0, 0.0
    for layer, both in zip(layers, times, strict=True):
        if layer.tensors and layer.name != name:
            yield name, (forward_s, backward_s)
            name, forward_s, backward_s = layer.name, 0.0, 0.0
        forward_s, backward_s = forward_s + both[0], backward_s + both[1]
    yield name, (forward_s, backward_s)
