"""Scenario and data to a task graph: one worker's iteration, over the method's period.

Issue order is part of the model. In an iteration: what the host adds, forward, then backward up
to each bucket's last gradient, the bucket's stages as its method lists them, the rest of the
backward pass, and the update, which waits for everything. A stage on the compute stream that
needs a collective's result is issued after the backward pass, so that it does not hold it up
(unless the method says that the host waits there); such stages go in waves (every bucket's
first, then every bucket's second, ...), as a loop over buckets issues them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfsim.cluster.cluster import Cluster
from perfsim.device import Device
from perfsim.fusion.bucket import Bucket, FusionContext, FusionPolicy
from perfsim.kernel import Kernel
from perfsim.method import Compute, Method, Send, Stage
from perfsim.profile import Gradient, Profile
from perfsim.quantity import Cost, Term
from perfsim.simulate.graph import COMPUTE, TaskGraph, TaskKind

__all__ = ["Charge", "Plan", "schedule"]


@dataclass(frozen=True, slots=True)
class Charge:
    """What one task's duration is made of, for what-ifs and intervals.

    ``cause`` is compute, network, compression, second_order or waiting; ``latency_s`` is the part
    that no bandwidth shrinks; ``spread`` the relative 90 % half-width of the duration.
    """

    cause: str
    latency_s: float = 0.0
    spread: float | None = None


WORK = Charge("compute")
WAIT = Charge("waiting")


@dataclass
class Plan:
    """The task graph of one period with each task's charge, and what a GPU sends in it."""

    graph: TaskGraph
    charges: list[Charge] = field(default_factory=list)
    sent_bytes: float = 0.0
    calls: int = 0
    buckets: int = 0
    terms: dict[str, tuple[bool, float, Term]] = field(default_factory=dict)

    def note(self, terms: tuple[Term, ...], size: float) -> None:
        """Remember where a cost came from: once a term, at the largest size that used it.

        A term is named "what at size" where its value depends on the size; a use outside its
        range wins over one inside.
        """
        for term in terms:
            what = term.term.partition(" at ")[0]
            known = self.terms.get(what)
            if known is None or (term.extrapolated, size) > known[:2]:
                self.terms[what] = (term.extrapolated, size, term)


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
) -> Plan:
    """Return the plan of one period of ``method`` on ``cluster``.

    Parameters
    ----------
    algorithm, protocol : of all-reduces, of everything that is sent
    overlap_slowdown : factor on backward tasks when communication runs beside them (the gamma
        of Agarwal et al. 2022, arXiv 2103.00543, section 4)
    limit_bytes : bucket size asked for, None for the policy's own default
    """
    planner = _Planner(
        profile,
        method,
        device,
        cluster,
        algorithm,
        protocol,
        overlap,
        overlap_slowdown if overlap and cluster.gpus > 1 else 1.0,
    )
    gradients = profile.in_ready_order()
    for iteration in range(method.period):

        def message_bytes(gradient: Gradient, iteration: int = iteration) -> float:
            return method.message_bytes(gradient, iteration)

        context = FusionContext(
            limit_bytes=limit_bytes,
            backward_s=profile.backward_s,
            message_bytes=message_bytes,
            all_reduce_s=lambda size: cluster.cost("all_reduce", size, algorithm, protocol).seconds,
            options=fusion_options or {},
        )
        planner.iteration(fuse(gradients, context), iteration)
    return planner.plan


@dataclass
class _Chain:
    """A bucket's way through its stages: those left, and the task the next one waits for.

    ``loose`` are sends that only the update waits for.
    """

    name: str
    stages: list[Stage]
    last: int
    loose: list[int] = field(default_factory=list)


def _would_hold_up(stage: Stage) -> bool:
    """Tell whether a stage that needs a result is kept out of the backward pass's way."""
    return isinstance(stage, Compute) and stage.stream == COMPUTE and not stage.blocks


@dataclass
class _Planner:
    profile: Profile
    method: Method
    device: Device
    cluster: Cluster
    algorithm: str
    protocol: str
    overlap: bool
    slowdown: float

    def __post_init__(self) -> None:
        self.plan = Plan(TaskGraph(iterations=self.method.period))
        self.costs: dict[Kernel, Cost] = {}

    def iteration(self, buckets: list[Bucket], iteration: int) -> None:
        """Issue one iteration. It follows the one before because the compute stream is in order."""
        profile = self.profile
        self.plan.buckets += len(buckets)
        step = []
        if profile.other_s > 0:
            step = [self.add(f"host {iteration}", COMPUTE, "other", profile.other_s, [])]
        end = self.add(f"forward {iteration}", COMPUTE, "forward", profile.forward_s, step)
        done_s = 0.0
        chains: list[_Chain] = []
        for number, bucket in enumerate(buckets):
            name = f"{iteration}.{number}"
            # A policy that works in cycles sends at a tick: backward goes on until then.
            ready_s = min(bucket.ready_s, profile.backward_s)
            end = self.backward(name, ready_s - done_s, end)
            done_s = max(done_s, ready_s)
            chain = _Chain(name, self.stages(bucket, iteration), end)
            if chain.stages and bucket.ready_s > ready_s:
                wait_s = bucket.ready_s - ready_s
                chain.last = self.add(
                    f"cycle {name}", f"cycle {number}", "other", wait_s, [end], WAIT
                )
            if self.overlap:
                self.issue(chain)
            chains.append(chain)
        end = self.backward(f"{iteration}.end", profile.backward_s - done_s, end)
        while waiting := [chain for chain in chains if chain.stages]:
            for chain in waiting:
                self.issue(chain, end)
        loose = (send for chain in chains for send in chain.loose)
        after = sorted({end, *(chain.last for chain in chains), *loose})
        self.plan.graph.last = self.add(
            f"update {iteration}", COMPUTE, "update", profile.optimizer_s, after
        )

    def stages(self, bucket: Bucket, iteration: int) -> list[Stage]:
        if self.cluster.gpus == 1:
            return []
        return self.method.stages(bucket, self.cluster.gpus, iteration)

    def backward(self, name: str, seconds: float, before: int) -> int:
        if seconds <= 0:
            return before
        return self.add(f"backward {name}", COMPUTE, "backward", seconds * self.slowdown, [before])

    def issue(self, chain: _Chain, backward_end: int | None = None) -> None:
        """Issue the stages of a chain that can go now; the others stay in it."""
        sent = False
        while chain.stages:
            stage = chain.stages[0]
            if sent and _would_hold_up(stage):
                return
            if stage.earliest == "backward" and backward_end is None:
                return
            after = {chain.last} if backward_end is None else {chain.last, backward_end}
            if isinstance(stage, Send):
                sent, task = True, self.send(chain.name, stage, sorted(after))
                if stage.awaited:
                    chain.last = task
                else:
                    chain.loose.append(task)
            else:
                chain.last = self.compute(chain.name, stage, sorted(after))
            chain.stages.pop(0)

    def send(self, name: str, stage: Send, after: list[int]) -> int:
        algorithm = self.algorithm if stage.collective == "all_reduce" else "auto"
        cost = self.cluster.cost(stage.collective, stage.size_bytes, algorithm, self.protocol)
        self.plan.sent_bytes += cost.sent_bytes
        self.plan.calls += 1
        self.plan.note(cost.terms, stage.size_bytes)
        return self.add(
            f"{stage.collective} {name}",
            "communication",
            "communicate",
            cost.seconds,
            after,
            Charge("network", cost.latency_s, cost.spread),
        )

    def compute(self, name: str, stage: Compute, after: list[int]) -> int:
        seconds = latency_s = spread_s = 0.0
        for kernel, count in Counter(stage.kernels).items():
            cost = self.costs.get(kernel)
            if cost is None:
                cost = self.costs[kernel] = self.device.cost(kernel)
                self.plan.note(cost.terms, kernel.elements)
            seconds += count * cost.seconds
            latency_s += count * cost.latency_s
            spread_s += count * cost.seconds * (cost.spread or 0.0)
        cause = "second_order" if stage.kind == "second_order" else "compression"
        charge = Charge(cause, latency_s, spread_s / seconds if spread_s else None)
        return self.add(f"{stage.kind} {name}", stage.stream, stage.kind, seconds, after, charge)

    def add(
        self,
        name: str,
        stream: str,
        kind: TaskKind,
        seconds: float,
        after: list[int],
        charge: Charge = WORK,
    ) -> int:
        self.plan.charges.append(charge)
        collective = kind == "communicate"
        return self.plan.graph.add(name, stream, kind, seconds, after=after, collective=collective)
