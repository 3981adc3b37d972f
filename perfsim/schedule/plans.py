"""The plans of a scenario and of S-SGD beside it, one for each round of a method's period."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from perfsim import fusion
from perfsim.compute.gpu_types import types_of_ranks
from perfsim.conditions.mixed_gpus import mixed_plans
from perfsim.fusion.buckets import FusionPolicy
from perfsim.methods import load_method, method_name
from perfsim.methods.base import Method
from perfsim.resolve import Setup
from perfsim.schedule.plan import CostedGraph
from perfsim.schedule.run import most_frequent, run
from perfsim.schedule.schedule import schedule
from perfsim.session import JobCache
from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    from perfsim.schedule.run import ContentionResult

__all__ = ["baseline_of", "is_baseline", "plans_among", "plans_of", "run_all"]

Planned = Callable[..., list[CostedGraph]]
"""Makes the plans of a scenario with a fusion policy; takes ``shared`` and ``joins``."""


def plans_among(
    resolved: Setup, planned: Planned, fuse: FusionPolicy, others: Planned
) -> list[CostedGraph]:
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
        most_frequent(others(one, one.policy.fuse, shared=True, joins="beside"))
        for one in resolved.beside
    )
    plans = planned(resolved, fuse, shared=True, joins="beside")
    return [replace(plan, beside=beside) for plan in plans]


def _mixed(resolved: Setup, planned: Planned, fuse: FusionPolicy) -> list[CostedGraph]:
    """Return the plans of the slowest type of GPU, with those of the other types."""
    order = sorted(resolved.parts, key=lambda part: part.device.name != resolved.device.name)
    makes = [
        (
            part.device.name,
            partial(
                planned,
                replace(resolved, device=part.device, carried=part.carried),
                joins="gpu",
            ),
        )
        for part in order
    ]
    types = types_of_ranks([part.count for part in resolved.parts])
    places = [order.index(part) for part in resolved.parts]
    name = method_name(resolved.scenario.method)
    return mixed_plans(makes, fuse, tuple(places[one] for one in types), name)


@cache
def _ssgd() -> Method:
    return load_method("ssgd", {})


def is_baseline(resolved: Setup) -> bool:
    """Tell whether what is asked is the baseline itself."""
    scenario = resolved.scenario
    set_here = scenario.bucket or scenario.fusion_options or scenario.single_gpu_kernels
    usual = resolved.policy_name == "size" and scenario.overlap and not set_here
    alone = not resolved.beside and not resolved.parts
    return usual and alone and resolved.method == _ssgd()


def baseline_of(resolved: Setup, kept: JobCache | None = None) -> list[CostedGraph]:
    """Return the plans of the same with ssgd, DDP buckets and overlap; ``kept`` as `plans_of`'s."""
    return _among(resolved, _planned_ssgd, fusion.load_policy("size").fuse, kept)


def plans_of(resolved: Setup, kept: JobCache | None = None) -> list[CostedGraph]:
    """Return the plans of a scenario, one for each round of its method's period.

    ``kept`` has the jobs of other scenarios (see ``schedule``).
    """
    return _among(resolved, _planned, resolved.policy.fuse, kept)


def _among(
    resolved: Setup,
    planned: Callable[..., list[CostedGraph]],
    fuse: FusionPolicy,
    kept: JobCache | None,
) -> list[CostedGraph]:
    """Return plans, among those of other jobs or other types of GPU if there are any.

    What is planned among others is of these others too, and kept nowhere.
    """
    if not resolved.beside and not resolved.parts:
        return planned(resolved, fuse, kept=kept)

    return plans_among(resolved, planned, fuse, _planned)


def _planned_ssgd(resolved: Setup, fuse: FusionPolicy, **among: Any) -> list[CostedGraph]:
    return _scheduled(resolved, _ssgd(), fuse, **among)


def _planned(resolved: Setup, fuse: FusionPolicy, **among: Any) -> list[CostedGraph]:
    scenario = resolved.scenario
    return _scheduled(
        resolved,
        resolved.method,
        fuse,
        overlap=scenario.overlap,
        limit_bytes=resolved.limit_bytes,
        fusion_options=scenario.fusion_options,
        kernels_s=resolved.kernels_s,
        **among,
    )


def _scheduled(
    resolved: Setup, method: Method, fuse: FusionPolicy, **own: Any
) -> list[CostedGraph]:
    """Return plans on the scenario's data; ``own`` is what only some methods are given."""
    scenario = resolved.scenario
    return schedule(
        resolved.profile,
        method,
        fuse,
        resolved.device,
        resolved.cluster,
        algorithm=scenario.algorithm,
        protocol=scenario.protocol,
        overlap_slowdown=scenario.overlap_slowdown,
        conditions=resolved.conditions,
        **own,
    )


def run_all(
    plans: list[CostedGraph],
) -> tuple[list[Timeline], list[CostedGraph], ContentionResult | None]:
    """Return the runs of plans, the plans that small questions are asked of, and how jobs meet."""
    if not plans[0].beside:
        return [run(plan) for plan in plans], plans, None
    from perfsim.schedule.run import contention_result, pin_messages, together

    runs = [together(plan) for plan in plans]
    timelines = [one[0] for one in runs]
    return timelines, pin_messages(plans, timelines), contention_result(plans, runs)
