"""Conditions put on plans, and what cannot be followed under them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from perfsim.conditions.conditions import Conditions
from perfsim.conditions.joined import joined
from perfsim.errors import RequestError
from perfsim.method import Method
from perfsim.plan import Plan
from perfsim.stage import Round

__all__ = ["check_followed", "plans_joined", "plans_under", "under"]


def plans_under(
    conditions: Conditions,
    method: Method,
    planned: Callable[[Round], Plan],
    exchanging: Callable[[int], bool],
) -> list[Plan]:
    """Return the plans of a method's rounds under conditions.

    Parameters
    ----------
    planned : makes the plan of a round
    exchanging : whether ranks wait for each other in an iteration of this number

    Raises
    ------
    RequestError
        If the ranks vary by chance and cannot be followed.
    """
    rounds = method.rounds()
    if not conditions.varies:
        return [under(planned(one), conditions) for one in rounds]
    plans = [
        under(planned(one.round), conditions, one.repeats) for one in joined(rounds, exchanging)
    ]
    check_followed(plans, method)
    return plans


def plans_joined(
    conditions: Conditions | None,
    method: Method,
    planned: Callable[[Round], Plan],
    exchanging: Callable[[int], bool],
    flag: str,
) -> list[Plan]:
    """Return the plans of a method's rounds where it counts when an iteration exchanges.

    Iterations without exchange come before the one that exchanges. ``flag`` is what asks for it;
    the other arguments are those of ``plans_under``.
    """
    rounds = joined(method.rounds(), exchanging, flag)
    return [under(planned(one.round), conditions, one.repeats) for one in rounds]


def under(plan: Plan, conditions: Conditions | None, repeats: tuple[int, ...] = ()) -> Plan:
    """Return the plan under conditions; some of its iterations may stand for several in a row."""
    if all(count == 1 for count in repeats):
        return replace(plan, conditions=conditions)
    tasks = list(plan.graph.tasks)
    ends = [*plan.begins[1:], len(tasks)]
    for begin, end, count in zip(plan.begins, ends, repeats, strict=True):
        for index in range(begin, end):
            tasks[index] = tasks[index]._replace(duration_s=tasks[index].duration_s * count)
    graph = replace(plan.graph, tasks=tasks, iterations=sum(repeats))
    return replace(plan, graph=graph, conditions=conditions, repeats=repeats)


def check_followed(plans: Sequence[Plan], method: Method) -> None:
    """Check that ranks that vary by chance can be followed one by one.

    Raises
    ------
    RequestError
        If what goes first is decided while it runs.
    """
    name = type(method).__module__.rpartition(".")[2]
    if any(plan.order == "priority" for plan in plans):
        raise RequestError(
            f"--method: {name} sends by priority, and --jitter follows messages in the order in"
            " which they are issued only."
        )
    if any(plan.graph.contended for plan in plans):
        raise RequestError(
            f"--method: {name} sends several messages at once over a link that they share, and"
            " --jitter follows one after the other only."
        )
