"""One row of a sweep: the iteration time of ``predict()`` without the reasons that cost more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfsim.alone import mean_s
from perfsim.errors import PerfsimError
from perfsim.plan import Plan
from perfsim.plans import plans_of
from perfsim.resolve import Resolved, resolve
from perfsim.run import run
from perfsim.scenario import make_scenario
from perfsim.session import Session

__all__ = ["COLUMNS", "Row", "figures", "light_row"]

COLUMNS = ("iteration_s", "samples_per_s", "scaling_efficiency", "sent_bytes_per_gpu", "reason")
"""What a row tells after the values of its axes; ``reason`` is why it could not be predicted."""

Row = list[Any]


def light_row(fields: Mapping[str, Any], catalog: Session) -> Row:
    """Return the columns of one scenario; what cannot be predicted has only its reason.

    Examples
    --------
    >>> from perfsim.session import Session
    >>> light_row({"model": "resnet50", "gpus": 0}, Session())
    [None, None, None, None, '--gpus: 0 is not allowed: at least 1 is needed.']
    """
    try:
        scenario = make_scenario(fields)
        resolved = resolve(scenario, catalog)
        plans = plans_of(resolved, catalog.jobs)
        iteration_s = mean_s(plans, [run(plan, brief=True) for plan in plans])
    except PerfsimError as error:
        return [*[None] * (len(COLUMNS) - 1), str(error)]
    return [*figures(resolved, plans, iteration_s, resolved.alone_s), ""]


def figures(
    resolved: Resolved, plans: Sequence[Plan], iteration_s: Any, single_s: Any
) -> list[Any]:
    """Return the figures of iterations, as ``predict()`` has them: floats, or arrays of them."""
    batch, gpus = resolved.profile.batch, resolved.scenario.gpus
    samples_per_s = batch * gpus / iteration_s
    efficiency = samples_per_s / (gpus * batch / single_s)
    period = sum(plan.iterations for plan in plans)
    sent_bytes = sum(plan.count * plan.sent_bytes for plan in plans) / period
    return [iteration_s, samples_per_s, efficiency, sent_bytes]
