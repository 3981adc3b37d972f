"""Any method on a model of one matrix: its plans, and what its documented formula gives."""

from __future__ import annotations

from math import ceil, lcm, log2
from typing import Any

from perfsim import fusion
from perfsim.methods.base import Method
from perfsim.methods.building.sparsify import kept
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import schedule
from support.builders import hand_device, profile, ring_cluster

__all__ = ["COLUMNS", "ROWS", "by_formula", "mean", "one_matrix"]

ROWS, COLUMNS = 384, 256


def one_matrix(method: Method, ranks: int, link: str = "1GB/s,20us") -> list[CostedGraph]:
    """Return the plans for a model of one matrix on equal hops."""
    return schedule(
        profile([(ROWS, COLUMNS)], [0.010], backward_s=0.012, forward_s=0.006, optimizer_s=0.001),
        method,
        fusion.load_policy(method.default_fusion()).fuse,
        hand_device(),
        ring_cluster(ranks, link),
        algorithm="ring",
    )


def mean(plans: list[CostedGraph], what: str) -> float:
    """Return the mean of a plan's figure an iteration of the period."""
    total = sum(plan.iterations for plan in plans)
    return float(sum(plan.count * getattr(plan, what) for plan in plans) / total)


def by_formula(method: Method, ranks: int) -> float:
    """Return what the method's documented expression gives for the one matrix."""
    options: dict[str, Any] = method.model_dump() | method.wire_names()
    n = ROWS * COLUMNS
    names = {"P": ranks, "n": n, "rows": ROWS, "columns": COLUMNS} | options
    names["k"] = kept(n, options.get("density", 1.0))
    names["r"] = min(options.get("rank", ROWS), ROWS, COLUMNS)
    functions = {"log2": log2, "ceil": ceil, "lcm": lcm, "min": min, "max": max}
    return float(eval(method.wire, {"__builtins__": {}}, names | functions))
