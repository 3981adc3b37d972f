"""An iteration over the network's rate: planned once, where what things cost had no say in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from perfsim.cluster.cluster import Cluster
from perfsim.errors import RequestError
from perfsim.library import AUTO
from perfsim.plan import Plan
from perfsim.quantity import Cost
from perfsim.run import run
from perfsim.stage import Group
from perfsim.whatif import mean_s, steady_s

__all__ = ["over_clusters"]


class _Message(NamedTuple):
    """What was asked of a cluster when a message was planned."""

    servers: int
    group: Group
    collective: str
    size_bytes: float
    algorithm: str
    protocol: str

    def on(self, cluster: Cluster) -> Cost:
        """Return what it costs on a cluster."""
        return cluster.served(self.servers).of(*self[1:])


@dataclass
class _Log:
    messages: list[_Message] = field(default_factory=list)
    decided: bool = False
    """Whether a fusion policy asked what an all-reduce takes."""


@dataclass(frozen=True)
class _Noted(Cluster):
    """``plain``, with a log of what its costs were asked for."""

    plain: Cluster | None = None
    log: _Log = field(default_factory=_Log)

    def served(self, servers: int) -> Cluster:
        """Return the cluster with so many machines more, and the same log."""
        assert self.plain is not None
        return self if servers == self.servers else _noted(self.plain.served(servers), self.log)

    def of(
        self,
        group: Group,
        collective: str,
        size_bytes: float,
        algorithm: str = AUTO,
        protocol: str = AUTO,
    ) -> Cost:
        """Return what one collective costs, and note that."""
        assert self.plain is not None
        message = _Message(self.servers, group, collective, size_bytes, algorithm, protocol)
        self.log.messages.append(message)
        return self.plain.of(*message[1:])

    def seconds(
        self, collective: str, size_bytes: float, algorithm: str = AUTO, protocol: str = AUTO
    ) -> float:
        """Return the time of a collective [s]; who asks that decides by it."""
        assert self.plain is not None
        self.log.decided = True
        return self.plain.seconds(collective, size_bytes, algorithm, protocol)


def _noted(cluster: Cluster, log: _Log) -> _Noted:
    kept = {
        one.name: getattr(cluster, one.name)
        for one in fields(Cluster)
        if not one.name.startswith("_")
    }
    return _Noted(**kept, plain=cluster, log=log)


def over_clusters(
    cluster: Cluster, plans_on: Callable[[Cluster], list[Plan]]
) -> Callable[[Cluster], float]:
    """Return the iteration time [s] as a function of a cluster that differs from one in costs only.

    ``plans_on`` plans on a cluster. Plans for ``cluster`` serve for all where every cost that was
    asked for is that of a message sent; then only the messages' times change. Where a method or a
    fusion policy looks at costs to decide, each cluster has plans of its own.
    """
    log = _Log()
    try:
        plans = plans_on(_noted(cluster, log))
    except RequestError:
        plans = []
    places = _sent(plans)
    if log.decided or not plans or not _same(plans, places, log.messages, cluster):
        return lambda other: steady_s(plans_on(other))

    different = set(log.messages)

    def time_s(other: Cluster) -> float:
        spent = [[float(task.duration_s) for task in plan.graph.tasks] for plan in plans]
        costs_s = {message: message.on(other).seconds for message in different}
        for (number, index), message in zip(places, log.messages, strict=True):
            spent[number][index] = costs_s[message]
        pairs = zip(plans, spent, strict=True)
        return mean_s(plans, [run(plan, durations, brief=True) for plan, durations in pairs])

    return time_s


def _sent(plans: Sequence[Plan]) -> list[tuple[int, int]]:
    """Return plan and task of each message, in the order in which they were planned."""
    return [
        (number, index)
        for number, plan in enumerate(plans)
        for index, charge in enumerate(plan.charges)
        if charge.cause == "network"
    ]


def _same(
    plans: Sequence[Plan],
    places: Sequence[tuple[int, int]],
    messages: Sequence[_Message],
    cluster: Cluster,
) -> bool:
    """Say whether what was asked for is what is sent, one to one."""
    if len(places) != len(messages) or any(plan.graph.contended for plan in plans):
        return False
    return all(
        plans[number].graph.tasks[index].duration_s == message.on(cluster).seconds
        for (number, index), message in zip(places, messages, strict=True)
    )
