"""What an iteration gains if one thing were twice as good, and its elasticities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfsim.errors import RequestError
from perfsim.plan import Plan
from perfsim.planning.knob import first_bucket
from perfsim.plans import plans_of
from perfsim.resolve import Resolved
from perfsim.units import parse_bytes
from perfsim.whatif import Change, faster, steady_s

__all__ = ["IMPROVEMENTS", "Improvement", "improvements", "with_bucket"]

IMPROVEMENTS: dict[str, tuple[str, ...]] = {
    "bandwidth": ("bandwidth",),
    "latency": ("latency",),
    "gpu": ("compute", "compression", "second_order"),
    "compression": ("compression",),
    "second_order": ("second_order",),
}
"""What can be twice as good, and the causes that it makes twice as fast."""

STEP = 1e-3
"""Elasticities are taken over a change of this share."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """The iteration with one thing twice as good.

    Parameters
    ----------
    what : a name of ``IMPROVEMENTS``, bucket_doubled or bucket_halved
    iteration_s : the iteration then [s]
    saved : share of the iteration that is saved; below 0 where it is longer
    elasticity : per cent of the iteration saved for one per cent faster, None for buckets, whose
        number changes in steps
    """

    what: str
    iteration_s: float
    saved: float
    elasticity: float | None


def improvements(
    resolved: Resolved, plans: Sequence[Plan], iteration_s: float, scale: float = 1.0
) -> list[Improvement]:
    """Return what pays, most first.

    Buckets, algorithms and what a method decided stay as they are, but for the two lines on the
    bucket size (where the fusion takes one). ``gpu`` is all that the GPU does, the method's
    kernels too. As the iteration is made of these and of nothing else, the elasticities of
    bandwidth, latency and gpu sum to 1 (less what only waits). ``scale`` is how many times as long
    as the plans' an iteration is, where these stand for it (beside other jobs).
    """
    charged = {charge.cause for plan in plans for charge in plan.charges}
    charged |= {"bandwidth", "latency"} if "network" in charged else set()
    found = []
    for what, causes in IMPROVEMENTS.items():
        if not charged.intersection(causes):
            continue
        then_s = steady_s(plans, faster(2.0, *causes)) * scale
        # Both ways: the iteration is a maximum of sums and may have a corner here.
        ends = [steady_s(plans, _times(causes, factor)) for factor in (1 + STEP, 1 / (1 + STEP))]
        elasticity = math.log(ends[0] / ends[1]) / (2 * math.log(1 + STEP))
        found.append(Improvement(what, then_s, 1.0 - then_s / iteration_s, elasticity))
    for what, factor in (("bucket_doubled", 2.0), ("bucket_halved", 0.5)):
        sized = with_bucket(resolved, factor)
        if sized is None or "network" not in charged:
            continue
        try:
            then_s = steady_s(plans_of(sized))
        except RequestError:
            continue
        found.append(Improvement(what, then_s, 1.0 - then_s / iteration_s, None))
    return sorted(found, key=lambda one: -one.saved)


def _times(causes: Sequence[str], factor: float) -> Change:
    """Return the change that makes causes take ``factor`` times as long."""
    return faster(1.0 / factor, *causes)


def with_bucket(resolved: Resolved, factor: float) -> Resolved | None:
    """Return the question with buckets ``factor`` times as large; None where fusion sizes its own.

    DDP's first bucket, where no size was asked for, keeps its proportion to the others.
    """
    usual = resolved.policy.LIMIT_BYTES
    if usual is None:
        return None
    options = dict(resolved.scenario.fusion_options)
    first = first_bucket(resolved)
    if "first_bucket" in options:
        first = parse_bytes(options["first_bucket"], "fusion.first_bucket")
    if first is not None:
        options["first_bucket"] = f"{first * factor!r}B"
    scenario = resolved.scenario.model_copy(update={"fusion_options": options})
    limit = (resolved.limit_bytes or usual) * factor
    return replace(resolved, scenario=scenario, limit_bytes=limit)
