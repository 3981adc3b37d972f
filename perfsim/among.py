"""Plans among others: other jobs on the network, other types of GPU in the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from perfsim.conditions.beside import most_frequent
from perfsim.fusion.bucket import FusionPolicy
from perfsim.gpu_types import types_of_ranks
from perfsim.methods import method_name
from perfsim.mixed import mixed_plans
from perfsim.plan import Plan
from perfsim.resolve import Resolved

__all__ = ["plans_among"]

Planned = Callable[..., list[Plan]]
"""Makes the plans of a scenario with a fusion policy; takes ``shared`` and ``joins``."""


def plans_among(
    resolved: Resolved, planned: Planned, fuse: FusionPolicy, others: Planned
) -> list[Plan]:
    """Return plans beside those of other jobs, or with those of other types of GPU.

    Parameters
    ----------
    planned : makes the plans of this job
    fuse : its fusion policy
    others : makes those of another job
    """
    if resolved.parts:
        return _mixed(resolved, planned, fuse)
    beside = tuple(
        most_frequent(others(one, one.policy.fuse, shared=True, joins="--beside"))
        for one in resolved.beside
    )
    plans = planned(resolved, fuse, shared=True, joins="--beside")
    return [replace(plan, beside=beside) for plan in plans]


def _mixed(resolved: Resolved, planned: Planned, fuse: FusionPolicy) -> list[Plan]:
    """Return the plans of the slowest type of GPU, with those of the other types."""
    order = sorted(resolved.parts, key=lambda part: part.device.name != resolved.device.name)
    makes = [
        (
            part.device.name,
            partial(
                planned,
                replace(resolved, device=part.device, carried=part.carried),
                joins="--gpu",
            ),
        )
        for part in order
    ]
    types = types_of_ranks([part.count for part in resolved.parts])
    places = [order.index(part) for part in resolved.parts]
    name = method_name(resolved.scenario.method)
    return mixed_plans(makes, fuse, tuple(places[one] for one in types), name)
