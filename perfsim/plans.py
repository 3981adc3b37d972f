"""The plans of a scenario and of S-SGD beside it, one for each round of a method's period."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from perfsim import fusion
from perfsim.fusion.bucket import FusionPolicy
from perfsim.kept_jobs import KeptJobs
from perfsim.method import Method
from perfsim.methods import load_method
from perfsim.plan import Plan
from perfsim.resolve import Resolved
from perfsim.run import run
from perfsim.schedule import schedule
from perfsim.simulate.timeline import Timeline

if TYPE_CHECKING:
    from perfsim.conditions.beside import Meeting

__all__ = ["baseline_of", "is_baseline", "plans_of", "run_all"]


@cache
def _ssgd() -> Method:
    return load_method("ssgd", {})


def is_baseline(resolved: Resolved) -> bool:
    """Tell whether what is asked is the baseline itself."""
    scenario = resolved.scenario
    set_here = scenario.bucket or scenario.fusion_options or scenario.single_gpu_kernels
    usual = resolved.policy_name == "size" and scenario.overlap and not set_here
    alone = not resolved.beside and not resolved.parts
    return usual and alone and resolved.method == _ssgd()


def baseline_of(resolved: Resolved, kept: KeptJobs | None = None) -> list[Plan]:
    """Return the plans of the same with ssgd, DDP buckets and overlap; ``kept`` as `plans_of`'s."""
    return _among(resolved, _planned_ssgd, fusion.load("size").fuse, kept)


def plans_of(resolved: Resolved, kept: KeptJobs | None = None) -> list[Plan]:
    """Return the plans of a scenario, one for each round of its method's period.

    ``kept`` has the jobs of other scenarios (see ``schedule``).
    """
    return _among(resolved, _planned, resolved.policy.fuse, kept)


def _among(
    resolved: Resolved,
    planned: Callable[..., list[Plan]],
    fuse: FusionPolicy,
    kept: KeptJobs | None,
) -> list[Plan]:
    """Return plans, among those of other jobs or other types of GPU if there are any.

    What is planned among others is of these others too, and kept nowhere.
    """
    if not resolved.beside and not resolved.parts:
        return planned(resolved, fuse, kept=kept)
    from perfsim.among import plans_among

    return plans_among(resolved, planned, fuse, _planned)


def _planned_ssgd(resolved: Resolved, fuse: FusionPolicy, **among: Any) -> list[Plan]:
    return _scheduled(resolved, _ssgd(), fuse, **among)


def _planned(resolved: Resolved, fuse: FusionPolicy, **among: Any) -> list[Plan]:
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


def _scheduled(resolved: Resolved, method: Method, fuse: FusionPolicy, **own: Any) -> list[Plan]:
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


def run_all(plans: list[Plan]) -> tuple[list[Timeline], list[Plan], Meeting | None]:
    """Return the runs of plans, the plans that small questions are asked of, and how jobs meet."""
    if not plans[0].beside:
        return [run(plan) for plan in plans], plans, None
    from perfsim.conditions.beside import held, meeting, together

    runs = [together(plan) for plan in plans]
    timelines = [one[0] for one in runs]
    return timelines, held(plans, timelines), meeting(plans, runs)
