"""Setup -> list[CostedGraph]: the rounds of a method's period as task graphs with costs.

A method's period has one or more rounds, such as nine local iterations and one that exchanges.
Each round becomes one graph: its iterations' gradients go into buckets (`perfsim.fusion`), the
method makes jobs of these, and `perfsim.schedule.build` issues the jobs as tasks. `build_rounds` is
the way in; `baseline_rounds` does the same for S-SGD with DDP's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perfsim import fusion
from perfsim.conditions.ranks import exchanges, joined_rounds, rounds_under, under
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket, FusionContext, FusionPolicy, SentGradients
from perfsim.libraries import AUTO
from perfsim.methods import load_method, method_name
from perfsim.methods.base import (
    LOCAL_ITERATION,
    Group,
    Job,
    Method,
    MethodContext,
    Round,
    Send,
)
from perfsim.schedule.beside_messages import slows_computation
from perfsim.schedule.build import (
    issue,
    late_launches_s,
    optimizer_share,
    slowed_by_messages,
)
from perfsim.schedule.costs import Costs
from perfsim.schedule.identity import HashedOnce
from perfsim.schedule.job_structure import PassSeconds
from perfsim.schedule.run import most_frequent
from perfsim.schedule.stage_passes import WHOLE_MODEL, StagePasses
from perfsim.session import JobCache, RecordedCosts

if TYPE_CHECKING:
    from perfsim.compute.device import Device
    from perfsim.compute.profile import Profile
    from perfsim.conditions.spec import Conditions
    from perfsim.model_parallel import ModelSplit
    from perfsim.network.cluster import Cluster
    from perfsim.resolve import Setup
    from perfsim.schedule.costed_graph import CostedGraph

__all__ = [
    "baseline_rounds",
    "baseline_setup",
    "build_rounds",
    "is_baseline",
    "schedule",
    "stage_rounds",
]

Scheduler = Callable[..., "list[CostedGraph]"]
"""Builds the rounds of a setup with a fusion policy; takes ``cache``, ``shared`` and ``joins``."""


def build_rounds(
    setup: Setup,
    cache: JobCache | None = None,
    rounds: Sequence[Round] = (),
    *,
    timing_only: bool = False,
) -> list[CostedGraph]:
    """Build the task graph of each round of the method's period, or of ``rounds`` instead.

    ``cache`` has the jobs of other scenarios, and with ``timing_only`` messages need only their
    times (see `schedule`).
    """
    scheduler: Scheduler = partial(_schedule_method, rounds=rounds) if rounds else _schedule_method
    return _build(setup, scheduler, setup.policy.fuse, cache, timing_only)


def stage_rounds(setup: Setup, split: ModelSplit, stage: int) -> list[CostedGraph]:
    """Build the rounds of a stage of a divided model, whose ranks do not differ."""
    from perfsim.schedule.model_parallel import of_stage

    one = of_stage(setup, split, stage)
    return _schedule_method(setup, setup.policy.fuse, conditions=None, timing_only=True, **one)


def baseline_rounds(
    setup: Setup, cache: JobCache | None = None, *, timing_only: bool = False
) -> list[CostedGraph]:
    """Build the rounds of S-SGD with DDP's buckets and overlap, under the same conditions.

    ``cache`` and ``timing_only`` are those of `build_rounds`.
    """
    usual = baseline_setup(setup)
    return _build(usual, _schedule_ssgd, fusion.load_policy("size").fuse, cache, timing_only)


def baseline_setup(setup: Setup) -> Setup:
    """Return the setup of S-SGD in the same conditions, with the model as its code computes it.

    Its collectives are those that the library chooses, whatever was asked for the method. Fusion
    and overlap are left as they are: `baseline_rounds` takes DDP's.
    """
    usual = {"algorithm": AUTO, "protocol": AUTO, "method": "ssgd", "options": {}}
    model = {} if setup.ssgd is None else setup.ssgd._asdict()
    scenario = setup.scenario.model_copy(update=usual)
    return replace(setup, scenario=scenario, method=load_method("ssgd", {}), **model)


def is_baseline(setup: Setup) -> bool:
    """Tell whether what is asked is the baseline itself."""
    scenario = setup.scenario
    set_here = scenario.bucket or scenario.fusion_options or scenario.single_gpu_kernels
    usual = setup.policy_name == "size" and scenario.overlap and not set_here
    usual = usual and scenario.algorithm == scenario.protocol == AUTO
    alone = not setup.beside and not setup.parts
    return usual and alone and setup.method == load_method("ssgd", {})


def _build(
    setup: Setup,
    scheduler: Scheduler,
    fuse: FusionPolicy,
    cache: JobCache | None,
    timing_only: bool,
) -> list[CostedGraph]:
    """Build rounds, with those of other types of GPU and of other jobs where there are any.

    With these the rounds depend on more than the key of a cache has, so that none is used.
    """
    if setup.parts:
        return _build_mixed(setup, scheduler, fuse)
    if not setup.beside:
        return _stages_or_whole(setup, scheduler, fuse, cache=cache, timing_only=timing_only)
    others = tuple(
        most_frequent(
            _stages_or_whole(job, _schedule_method, job.policy.fuse, shared=True, joins=True)
        )
        for job in setup.beside
    )
    rounds = _stages_or_whole(setup, scheduler, fuse, shared=True, joins=True)
    return [replace(costed, beside=others) for costed in rounds]


def _stages_or_whole(
    setup: Setup, scheduler: Scheduler, fuse: FusionPolicy, **more: Any
) -> list[CostedGraph]:
    """Build the rounds of a rank that has the whole model, or of the busiest stage."""
    if setup.split is None:
        return scheduler(setup, fuse, **more)
    from perfsim.schedule.model_parallel import busiest_stage

    return busiest_stage(setup, setup.split, partial(scheduler, setup, fuse, **more))


def _build_mixed(setup: Setup, scheduler: Scheduler, fuse: FusionPolicy) -> list[CostedGraph]:
    """Build the rounds of the slowest type of GPU, with those of the other types."""
    from perfsim.compute.gpu_types import types_of_ranks
    from perfsim.conditions.mixed_gpus import mixed_rounds

    order = sorted(setup.parts, key=lambda part: part.device.name != setup.device.name)
    schedulers = [
        (
            part.device.name,
            partial(
                scheduler,
                replace(setup, device=part.device, transferred=part.transferred),
                joins=True,
            ),
        )
        for part in order
    ]
    types = types_of_ranks([part.count for part in setup.parts])
    positions = [order.index(part) for part in setup.parts]
    kinds = tuple(positions[kind] for kind in types)
    return mixed_rounds(schedulers, fuse, kinds, method_name(setup.scenario.method))


def _schedule_method(
    setup: Setup, fuse: FusionPolicy, *, profile: Profile | None = None, **more: Any
) -> list[CostedGraph]:
    """Schedule the method that is asked for, as it is asked for; ``profile`` is that of a stage."""
    return schedule(
        profile or setup.profile_of_method,
        setup.method,
        fuse,
        setup.device,
        setup.data_cluster,
        overlap=setup.scenario.overlap,
        limit_bytes=setup.limit_bytes,
        fusion_options=setup.scenario.fusion_options,
        kernels_s=setup.kernels_s,
        **(_circumstances(setup, setup.method_key) | more),
    )


def _schedule_ssgd(
    setup: Setup, fuse: FusionPolicy, *, profile: Profile | None = None, **more: Any
) -> list[CostedGraph]:
    """Schedule S-SGD with DDP's defaults."""
    return schedule(
        profile or setup.profile_in_node,
        load_method("ssgd", {}),
        fuse,
        setup.device,
        setup.data_cluster,
        **(_circumstances(setup, setup.profile_key) | more),
    )


def _circumstances(setup: Setup, profile_key: tuple[Hashable, ...]) -> dict[str, Any]:
    """Return what holds for the method and for the baseline alike, and the key of the profile."""
    scenario = setup.scenario
    return {
        "algorithm": scenario.algorithm,
        "protocol": scenario.protocol,
        "overlap_slowdown": scenario.overlap_slowdown,
        "conditions": setup.conditions,
        "profile_key": profile_key,
        "micro_batches": scenario.accumulate,
        "exchange_each": scenario.exchange_each,
    }


def schedule(
    profile: Profile,
    method: Method,
    fuse: FusionPolicy,
    device: Device,
    cluster: Cluster,
    *,
    algorithm: str = "auto",
    protocol: str = "auto",
    overlap: bool = True,
    overlap_slowdown: float = 1.0,
    limit_bytes: float | None = None,
    fusion_options: Mapping[str, str] | None = None,
    kernels_s: float | None = None,
    conditions: Conditions | None = None,
    cache: JobCache | None = None,
    profile_key: Hashable = None,
    shared: bool = False,
    joins: bool = False,
    micro_batches: int = 1,
    exchange_each: bool | None = None,
    stage: StagePasses = WHOLE_MODEL,
    axes: Mapping[str, Cluster] | None = None,
    rounds: Sequence[Round] = (),
    timing_only: bool = False,
) -> list[CostedGraph]:
    """Build the task graph of each round of ``method``'s period on ``cluster``.

    Parameters
    ----------
    algorithm, protocol : of all-reduces among all ranks, of everything that is sent
    overlap_slowdown : factor on the backward pass while messages are under way (the gamma
        of Agarwal et al. 2022, arXiv 2103.00543, section 4); 1: both passes lose what these
        messages take from computation (`perfsim.schedule.beside_messages`)
    limit_bytes : bucket size asked for, None for the policy's own default
    kernels_s : what the method's kernels take in an iteration that exchanges, on one GPU, where
        that was measured: each kernel here costs as much longer as these do
    cache : jobs and graphs of other scenarios, taken over where nothing that they depend on differs
    profile_key : what tells the profile from any other in that cache
    shared : whether other jobs send over the links between nodes too
    micro_batches : of an iteration, whose gradients are added up before the update
    exchange_each : whether gradients are exchanged after each of them; None as the method does
    joins : whether iterations without exchange come in the graph of the one that exchanges after
        them
    stage : what a rank of a divided model does in its passes besides computing
    axes : the groups of a divided model beside its data-parallel ranks, which ``cluster`` has
    rounds : what to build in place of the method's period, each by itself
    timing_only : whether messages need only their times: no what-if is asked, no number listed

    Raises
    ------
    RequestError
        If the method cannot run on this cluster or model.
    ValueError
        If a cache has no key, or ``rounds`` are asked for where they cannot be run by themselves.
    """
    if cache is not None and profile_key is None:
        raise ValueError("a cache needs the key of the profile")
    if method.sites_are_nodes:
        cluster = cluster.by_site()
    costs = Costs(
        device,
        cluster,
        algorithm,
        protocol,
        shared=shared,
        axes=axes or {},
        stages=stage.stages,
        timing_only=timing_only,
    )
    slowdown = overlap_slowdown if overlap and cluster.gpus > 1 else 1.0
    options = dict(sorted((fusion_options or {}).items()))
    each = method.exchanges_each(exchange_each) and stage.stages == 1
    builder = _Builder(
        profile,
        method,
        partial(_fuse, method, fuse, limit_bytes, options),
        costs,
        cache,
        (profile_key, fuse, limit_bytes, *options.items()),
        overlap=overlap,
        slowdown=slowdown,
        micro_batches=micro_batches,
        exchange_each=each,
        stage=stage,
        durations_only=timing_only and conditions is None and stage is WHOLE_MODEL,
    )
    if builder.durations_only and kernels_s is None and not rounds and not joins:
        return builder.rounds()
    builder.check()
    if kernels_s is not None and builder.works:
        builder.pin_kernels(kernels_s)

    def exchanging(iteration: int) -> bool:
        return exchanges(builder.jobs(iteration), cluster.nodes)

    if rounds and (joins or (conditions is not None and conditions.varies)):
        raise ValueError("rounds depend on each other under these conditions")
    if rounds:
        return [under(builder.build(one), conditions) for one in rounds]
    if joins:
        return joined_rounds(conditions, method, builder.build, exchanging)
    if conditions is not None:
        return rounds_under(conditions, method, builder.build, exchanging)
    return [builder.build(one) for one in method.rounds()]


def _frozen_refusal(method: Method, world: MethodContext) -> str:
    """Return why a method does not train adapters beside these frozen parameters, or ""."""
    frozen = world.profile is not None and world.profile.frozen
    if frozen and not method.gathers_frozen and method.kept_share(world)["parameters"] < 1.0:
        return "is not known to gather frozen parameters, as fsdp and zero do; leave out lora"
    return ""


def _fuse(
    method: Method,
    fuse: FusionPolicy,
    limit_bytes: float | None,
    options: Mapping[str, str],
    costs: Costs | RecordedCosts,
    context: MethodContext,
    iteration: int,
    sent: SentGradients | None = None,
) -> list[Bucket]:
    """Put the gradients of an iteration in buckets; ``sent`` is that of `FusionContext`."""
    profile = context.profile
    assert profile is not None
    asked = FusionContext(
        limit_bytes=limit_bytes,
        backward_s=profile.backward_s,
        message_bytes=partial(method.message_bytes, iteration=iteration),
        by_size=costs.by_size,
        options=options,
        negotiation_s=lambda tensors: method.negotiation_s(tensors, context),
        forward_s=profile.forward_of_layers_s,
        count_ranks=lambda: context.ranks,
        sent=sent,
    )
    return fuse(sent.gradients if sent else profile.in_ready_order(), asked)


def _among(job: Job, group: Group) -> Job:
    """Return a job of the experts' gradients, sent among the ranks that have the same experts."""
    stages = tuple(
        stage._replace(group=group) if isinstance(stage, Send) and stage.group == "all" else stage
        for stage in job.stages
    )
    needs = tuple(f"experts {name}" for name in job.needs)
    return replace(job, name=f"experts {job.name}", stages=stages, needs=needs)


class _Builder:
    """Builds the rounds of a method on one model and cluster.

    Where kernels are pinned to what was measured, no cache is used.
    """

    def __init__(
        self,
        profile: Profile,
        method: Method,
        fuse: Callable[..., list[Bucket]],
        costs: Costs,
        cache: JobCache | None,
        key: tuple[Hashable, ...],
        *,
        overlap: bool,
        slowdown: float,
        micro_batches: int,
        exchange_each: bool,
        stage: StagePasses,
        durations_only: bool,
    ) -> None:
        self.profile, self.method, self.costs, self.cache = profile, method, costs, cache
        self.stage, self.fuse_by, self.durations_only = stage, fuse, durations_only
        self.experts = stage.experts
        self.overlap, self.slowdown = overlap, slowdown
        none_asked = isinstance(slowdown, float) and slowdown == 1.0
        self.slowed = overlap and none_asked and slows_computation(costs)
        self.micro_batches, self.exchange_each = micro_batches, exchange_each
        self.works = costs.cluster.gpus > 1 or method.runs_alone
        self.context = costs.context(profile)
        self.recorded = RecordedCosts(self.context, costs)
        profile_key, *asked = key
        self.profile_key = HashedOnce(profile_key)
        of_context = self.context.software, self.context.stages
        self.key = HashedOnce((method, self.profile_key, *asked, *of_context))

    def check(self) -> None:
        """Refuse a method that cannot run here."""
        if not self.works:
            return
        method, world = self.method, self.context
        refusal = _frozen_refusal(method, world) or method.refusal(world)
        if refusal:
            raise RequestError("method", f"{type(method).__module__.rpartition('.')[2]} {refusal}.")

    def rounds(self) -> list[CostedGraph]:
        """Return the rounds of the method's period, from the cache or new, at what they take here.

        Only times are asked of them.
        """
        if self.cache is None or self.slowed or self.slowdown != 1.0:
            return self._make_rounds()
        several = self.costs.cluster.gpus > 1
        key = (self.key, self.overlap, several, self.micro_batches, self.exchange_each)
        if not self.cache.may_know(key):
            return self._make_rounds()
        recorded = self.recorded

        def make() -> list[CostedGraph]:
            # What is asked while jobs are looked for is asked of what records it for the rounds.
            self.context = recorded.context
            self.recorded = RecordedCosts(self.context, recorded, recorded.shape)
            return self._make_rounds()

        found = self.cache.rounds(key, recorded, self.costs, make)
        for costed in found:
            costed.any_shape = not recorded.asked_cluster
        return found

    def _make_rounds(self) -> list[CostedGraph]:
        """Return the rounds of the method's period, checked and built."""
        self.check()
        return [self.build(one) for one in self.method.rounds()]

    def pin_kernels(self, kernels_s: float) -> None:
        """Let the method's kernels take what was measured on one GPU [s]."""
        rounds = self.method.rounds()
        first = next(it for one in rounds for it in one.iterations if it != LOCAL_ITERATION)
        alone = replace(
            self.context, ranks=1, nodes=1, gpus_per_node=1, collective_s=lambda *_: 0.0
        )
        jobs = self.method.jobs(self.fuse_by(self.recorded, self.context, first), alone, first)
        self.costs = self.costs.with_kernels(kernels_s, jobs)
        self.context, self.cache = self.costs.context(self.profile), None

    def jobs(self, iteration: int) -> list[Job]:
        """Return the jobs of an iteration; none where nothing is exchanged.

        On one GPU there are jobs only of a method that works alone.
        """
        if not self.works or iteration == LOCAL_ITERATION:
            return []
        if self.cache is None or self.experts:
            return self._make_jobs(iteration)
        key = (self.key, iteration)
        return self.cache.jobs(key, self.recorded, lambda: self._make_jobs(iteration))

    def _make_jobs(self, iteration: int) -> list[Job]:
        if self.experts:
            return self._jobs_beside_experts(iteration)
        method, cache = self.method, self.cache
        if cache is None:
            return method.jobs(
                self.fuse_by(self.recorded, self.context, iteration), self.context, iteration
            )
        context = self.recorded.context
        sent = cache.sent(self.profile, self.profile_key, method, iteration)
        buckets = self.fuse_by(self.recorded, context, iteration, sent)
        make = partial(method.jobs, buckets, context, iteration)
        key = self.key, iteration
        return cache.jobs_of(lambda: sent.told_apart(buckets), key, self.recorded, make)

    def _jobs_beside_experts(self, iteration: int) -> list[Job]:
        """Return the jobs of all other weights, then those of experts among ranks with the same.

        What a method sends among some neighbouring ranks only, it sends among these.
        """
        jobs: list[Job] = []
        among = replace(self.costs, cluster=self.costs.axes["experts"])
        for costs, own in ((self.costs, False), (among, True)):
            if costs.cluster.gpus == 1:
                continue
            some = [one for one in self.profile.gradients if (one.name in self.experts) == own]
            context = costs.context(replace(self.profile, gradients=tuple(some)))
            if not some:
                continue
            buckets = self.fuse_by(costs, context, iteration)
            made = self.method.jobs(buckets, context, iteration)
            jobs += [_among(job, "experts") for job in made] if own else made
        return jobs

    def build(self, one: Round) -> CostedGraph:
        """Build the task graph of a round, or price anew the one that the cache has."""
        method, costs = self.method, self.costs
        jobs, fixed, decided = [], self.durations_only, False
        for iteration in one.iterations:
            jobs.append(self.jobs(iteration))
            fixed = fixed and not self.recorded.asked_times
            decided = decided or self.recorded.method_asked
        make = partial(
            issue,
            self.profile,
            method,
            costs,
            jobs,
            one.count,
            overlap=self.overlap,
            slowdown=self.slowdown,
            micro_batches=self.micro_batches,
            exchange_each=self.exchange_each,
            stage=self.stage,
        )
        if self.cache is None or self.slowdown != 1.0:  # it depends on what messages take
            costed = self._slowed(make(), jobs)
            costed.decided_by_costs = decided
            return costed
        launches_s = late_launches_s(self.profile, method, costs)
        share = optimizer_share(self.profile, method, costs, self.stage, self.context)
        accumulated = self.micro_batches, self.exchange_each, self.stage
        passes = self.overlap, launches_s, share
        order = type(method), method.order, method.delay(), method.first_needed_first
        key = (*order, self.profile_key, one, *passes, *accumulated)
        costed = self.cache.graph(
            key, jobs, costs, make, passes_s=self._passes_s, durations_only=self.durations_only
        )
        costed = self._slowed(costed, jobs)
        # What else is sent would slow the passes by something else.
        costed.fixed_jobs, costed.decided_by_costs = fixed and not self.slowed, decided
        costed.any_shape = False  # until it is known what was asked for all rounds
        return costed

    @property
    def _passes_s(self) -> PassSeconds | None:
        """What both passes take, where an iteration has one of each and sends nothing in them."""
        if self.micro_batches > 1 or self.stage is not WHOLE_MODEL:
            return None
        return {"forward": self.profile.forward_s, "backward": self.profile.backward_s}

    def _slowed(self, costed: CostedGraph, jobs: Sequence[Sequence[Job]]) -> CostedGraph:
        """Return a round with its passes slowed by its messages, where nobody asked otherwise."""
        if not self.slowed:
            return costed
        durations_only = self.durations_only and self.cache is not None
        slow = partial(
            slowed_by_messages,
            costed,
            self.profile,
            self.method,
            self.costs,
            jobs,
            micro_batches=self.micro_batches,
            exchange_each=self.exchange_each,
            durations_only=durations_only,
        )
        return slow() if self.cache is None or durations_only else self.cache.slowed(costed, slow)
