"""Scenario and data to task graphs: one worker's iterations, a graph a round of the method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from perfsim.compute.device import Device
from perfsim.compute.profile import Gradient, Profile
from perfsim.conditions.ranks import exchanges, plans_joined, plans_under
from perfsim.conditions.spec import Conditions
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket, FusionContext, FusionPolicy
from perfsim.methods.base import LOCAL_ITERATION, Job, Method, MethodContext, Round
from perfsim.network.cluster import Cluster
from perfsim.schedule.build import issue, late_launches_s
from perfsim.schedule.costs import Costs
from perfsim.schedule.plan import CostedGraph
from perfsim.session import JobCache, RecordedCosts

__all__ = ["schedule"]


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
    kept: JobCache | None = None,
    shared: bool = False,
    joins: str = "",
) -> list[CostedGraph]:
    """Return a plan for each round of ``method``'s period on ``cluster``.

    Parameters
    ----------
    algorithm, protocol : of all-reduces among all ranks, of everything that is sent
    overlap_slowdown : factor on backward tasks when communication runs beside them (the gamma
        of Agarwal et al. 2022, arXiv 2103.00543, section 4)
    limit_bytes : bucket size asked for, None for the policy's own default
    kernels_s : what the method's kernels take in an iteration that exchanges, on one GPU, where
        that was measured: kernels here cost as much longer as these
    kept : jobs of other scenarios, taken over where nothing that they depend on differs
    shared : whether other jobs send over the links between nodes too
    joins : the flag for which iterations without exchange come in the graph of the one that does
        exchange, if any

    Raises
    ------
    RequestError
        If the method cannot run on this cluster or model.
    """
    costs = Costs(device, cluster, algorithm, protocol, shared=shared)
    slowdown = overlap_slowdown if overlap and cluster.gpus > 1 else 1.0
    given = (limit_bytes, tuple(sorted((fusion_options or {}).items())))
    rounds = _Rounds(profile, method, fuse, costs, given, kept, overlap=overlap, slowdown=slowdown)
    refusal = method.refusal(rounds.world) if cluster.gpus > 1 else ""
    if refusal:
        raise RequestError("method", f"{type(method).__module__.rpartition('.')[2]} {refusal}.")
    if kernels_s is not None and cluster.gpus > 1:
        rounds.hold(kernels_s)

    def met(iteration: int) -> bool:
        return exchanges(rounds.jobs(iteration), cluster.nodes)

    if joins:
        return plans_joined(conditions, method, rounds.plan, met, joins)
    if conditions is not None:
        return plans_under(conditions, method, rounds.plan, met)
    return [rounds.plan(one) for one in method.rounds()]


FusionRequest = tuple[float | None, tuple[tuple[str, str], ...]]
"""What is asked of the fusion policy: its limit [B] and its options."""


class _Rounds:
    """The rounds of a method on one model and cluster, each planned when it is asked for.

    ``kept`` has jobs and plans of other scenarios; where kernels are held at what was measured,
    none of them is taken over, and none is kept.
    """

    def __init__(
        self,
        profile: Profile,
        method: Method,
        fuse: FusionPolicy,
        costs: Costs,
        given: FusionRequest,
        kept: JobCache | None,
        *,
        overlap: bool,
        slowdown: float,
    ) -> None:
        self.profile, self.method, self.costs, self.kept = profile, method, costs, kept
        self.overlap, self.slowdown = overlap, slowdown
        world = costs.world(profile)
        asked = self.asked = RecordedCosts(world, costs.all_reduce_s)
        self.world = world if kept is None else asked.world
        limit_bytes, options = given
        self.fused = partial(
            _fused, profile, method, fuse, limit_bytes, dict(options), asked.all_reduce_s
        )
        ranks = (self.world.ranks, self.world.nodes, self.world.gpus_per_node)
        self.key = (method, id(profile), fuse, *given, *ranks)

    def hold(self, kernels_s: float) -> None:
        """Let the method's kernels take what was measured on one GPU."""
        self.costs = _held(
            self.costs, kernels_s, self.method, partial(self.fused, self.world), self.world
        )
        self.world, self.kept = self.costs.world(self.profile), None

    def jobs(self, iteration: int) -> list[Job]:
        """Return the jobs of an iteration; none on one GPU, or where nothing is exchanged."""

        def make() -> list[Job]:
            return self.method.jobs(self.fused(self.world, iteration), self.world, iteration)

        if self.costs.cluster.gpus == 1 or iteration == LOCAL_ITERATION:
            return []
        if self.kept is None:
            return make()
        return self.kept.of((*self.key, iteration), self.profile, self.asked, make)

    def plan(self, one: Round) -> CostedGraph:
        """Return the plan of a round."""
        profile, method, costs = self.profile, self.method, self.costs
        overlap, slowdown = self.overlap, self.slowdown
        jobs = [self.jobs(iteration) for iteration in one.iterations]

        def make() -> CostedGraph:
            return issue(
                profile, method, costs, jobs, one.count, overlap=overlap, slowdown=slowdown
            )

        if self.kept is None:
            return make()
        launches_s = late_launches_s(profile, method, costs)
        cluster = costs.cluster
        stand = (cluster.nodes, cluster.gpus_per_node, cluster.uneven)
        key = (method, one, id(profile), *stand, overlap, slowdown, launches_s)
        return self.kept.plan(key, profile, jobs, costs, make)


def _fused(
    profile: Profile,
    method: Method,
    fuse: FusionPolicy,
    limit_bytes: float | None,
    options: Mapping[str, str],
    all_reduce_s: Callable[[float], float],
    world: MethodContext,
    iteration: int,
) -> list[Bucket]:
    """Return the gradients of an iteration in buckets."""

    def message_bytes(gradient: Gradient) -> float:
        return method.message_bytes(gradient, iteration)

    context = FusionContext(
        limit_bytes=limit_bytes,
        backward_s=profile.backward_s,
        message_bytes=message_bytes,
        all_reduce_s=all_reduce_s,
        options=options,
        negotiation_s=lambda tensors: method.negotiation_s(tensors, world),
    )
    return list(fuse(profile.in_ready_order(), context))


def _held(
    costs: Costs,
    kernels_s: float,
    method: Method,
    fused: Callable[[int], list[Bucket]],
    world: MethodContext,
) -> Costs:
    """Return costs by which the method's kernels take what was measured on one GPU."""
    exchanging = (
        one for part in method.rounds() for one in part.iterations if one != LOCAL_ITERATION
    )
    first = next(exchanging)
    alone = replace(world, ranks=1, nodes=1, gpus_per_node=1, collective_s=lambda *_: 0.0)
    return costs.held(kernels_s, method.jobs(fused(first), alone, first))
