"""Which cluster and method train a model in time and within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perfsim.catalog import Catalog
from perfsim.device import load_device
from perfsim.errors import RequestError
from perfsim.gpu_names import parse_types
from perfsim.planning.choice import HOUR_S, Choice
from perfsim.planning.prices import Prices
from perfsim.planning.target import Target
from perfsim.prediction import Prediction, predict
from perfsim.scenario import Scenario
from perfsim.units import format_bytes

__all__ = ["Choice", "Plan", "plan"]

SCHEMA = "perfsim/plan/1"


@dataclass(frozen=True)
class Plan:
    """All clusters and methods asked for, and what cannot be used with the reason."""

    target: Target
    choices: list[Choice]
    left_out: dict[str, str]
    prices: Prices

    @property
    def meeting(self) -> list[Choice]:
        """Those that keep the deadline and the budget."""
        return [one for one in self.choices if one.excess(self.target) <= 1.0]

    @property
    def fastest(self) -> Choice:
        """The fastest of those that meet the target."""
        return min(self.meeting, key=lambda one: (one.seconds, one.spent))

    @property
    def cheapest(self) -> Choice:
        """The one that costs least of those that meet the target; without prices, GPU hours."""
        return min(self.meeting, key=lambda one: (one.spent, one.seconds))

    @property
    def front(self) -> list[Choice]:
        """The Pareto front: nothing else is both faster and cheaper; fastest first."""
        found: list[Choice] = []
        for one in sorted(self.choices, key=lambda one: (one.seconds, one.spent)):
            if not found or one.spent < found[-1].spent:
                found.append(one)
        return found

    @property
    def notes(self) -> list[str]:
        """What a plan rests on, in words."""
        told = [
            "Time an epoch, not convergence: every method is given the same epochs unless"
            " --epochs-of says otherwise, and a larger global batch may need more of them.",
            "Of memory, weights, gradients, the optimizer's and the method's are counted, no"
            " activations.",
        ]
        if self.target.gpu_power_w is None:
            told.append("No GPU's power is known here: give it (--gpu-power 250W) for the energy.")
        else:
            told.append(
                f"Energy is that of the GPUs at {self.target.gpu_power_w:g} W each, as given;"
                " hosts, network and cooling are not in it."
            )
        if not any(one.cost is not None for one in self.choices):
            told.append("No price is known: least is counted in GPU hours.")
        else:
            used = {self._price(one) for one in self.choices if one.cost is not None}
            told += sorted(f"Price of {gpu}: {source}, {date}." for gpu, source, date in used)
        return told

    def _price(self, one: Choice) -> tuple[str, str, str]:
        price = self.prices.of(str(one.scenario["gpu"]), str(one.scenario["net"]))
        assert price is not None
        return price.gpu, price.source, price.date

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as ``--json`` prints it."""
        target = self.target
        return {
            "schema": SCHEMA,
            "target": {
                "samples": target.samples,
                "epochs": target.epochs,
                "epochs_of": dict(target.epochs_of),
                "deadline_s": target.deadline_s,
                "budget": target.budget,
                "currency": self.prices.currency,
                "gpu_power_w": target.gpu_power_w,
            },
            "fastest": self.fastest.row(target),
            "cheapest": self.cheapest.row(target),
            "front": [one.row(target) for one in self.front],
            "rows": [one.row(target) for one in self.choices],
            "left_out": self.left_out,
            "notes": self.notes,
        }


def plan(
    scenarios: Sequence[Scenario],
    target: Target,
    prices: Prices,
    catalog: Catalog,
    tell: Callable[[int, int], None] | None = None,
) -> Plan:
    """Predict every cluster and method, and weigh them against a target.

    Parameters
    ----------
    scenarios : what to choose from
    target : samples, epochs, deadline and budget
    prices : what a GPU costs for an hour
    catalog : where profiles are; a session reads each file once
    tell : called with how many are done, of how many

    Raises
    ------
    RequestError
        If a budget is given and no price fits or the currency differs, if nothing can be
        predicted, or if nothing meets the target: the message says what comes nearest.
    """
    _check_budget(target, prices)
    for scenario in scenarios:
        check_one_type(scenario.gpu)
    left: dict[str, str] = {}
    choices = []
    for place, found in enumerate(_predicted(scenarios, catalog, left), 1):
        if tell is not None:
            tell(place, len(scenarios))
        if found is not None:
            choices.append(_choice(found, target, prices))
    if target.budget is not None:
        for one in choices:
            if one.cost is None:
                left[one.words] = f"no price of {one.scenario['gpu']} in {prices.path}"
        choices = [one for one in choices if one.cost is not None]
    if not choices:
        raise RequestError(f"plan: nothing can be chosen: {'; '.join(sorted(set(left.values())))}.")
    made = Plan(target, choices, left, prices)
    if not made.meeting:
        raise RequestError(_nothing_meets(made))
    return made


def check_one_type(gpu: str) -> None:
    """Check that a cluster's GPUs are of one type, whose price and memory are known.

    Raises
    ------
    RequestError
        If they are of several.
    """
    if len(parse_types(gpu)) > 1:
        raise RequestError(
            f"--gpu: {gpu!r} is several types, and a plan weighs clusters of one, by its price and"
            " its memory; name one (--gpu-types for several clusters)."
        )


def _check_budget(target: Target, prices: Prices) -> None:
    if target.budget is None:
        return
    if not prices.prices:
        raise RequestError(
            f"--budget: {prices.path} holds no price; write those that you pay into a copy of it"
            " (profiles/prices.toml, or --prices FILE)."
        )
    if target.currency != prices.currency:
        raise RequestError(
            f"--budget: is in {target.currency}, the prices of {prices.path} are in"
            f" {prices.currency}."
        )


def _predicted(
    scenarios: Sequence[Scenario], catalog: Catalog, left: dict[str, str]
) -> Iterator[Prediction | None]:
    """Yield a prediction for each scenario, None for what cannot be used; ``left`` takes why."""
    for scenario in scenarios:
        name = f"{scenario.method} on {scenario.gpus} {scenario.gpu} over {scenario.net}"
        try:
            found = predict(scenario, catalog)
        except RequestError as error:
            left[name] = str(error)
            yield None
            continue
        needed = sum(found.memory_bytes.values())
        has = load_device(str(found.scenario["gpu"]), catalog).memory_bytes
        if needed > has:
            left[name] = f"needs {format_bytes(needed)} of memory, the GPU has {format_bytes(has)}"
            yield None
            continue
        yield found


def _choice(found: Prediction, target: Target, prices: Prices) -> Choice:
    samples = target.samples_of(str(found.scenario["method"]))
    iterations = samples / (found.samples_per_s * found.iteration_s)
    seconds = iterations * found.iteration_s
    low, high = (iterations * end for end in found.iteration_s_interval)
    price = prices.of(str(found.scenario["gpu"]), str(found.scenario["net"]))
    hours = int(found.scenario["gpus"]) * seconds / HOUR_S
    return Choice(
        found,
        seconds,
        (low, high),
        price.per_gpu_hour * hours if price else None,
        target.gpu_power_w,
    )


def _nothing_meets(made: Plan) -> str:
    target = made.target
    limits = []
    if target.deadline_s is not None:
        limits.append(_span(target.deadline_s))
    if target.budget is not None:
        limits.append(f"{target.budget:g} {target.currency}")
    near = min(made.choices, key=lambda one: (one.excess(target), one.seconds))
    cost = "" if near.cost is None else f" and costs {near.cost:.4g} {made.prices.currency}"
    return (
        f"plan: nothing meets {' and '.join(limits)}; nearest is {near.words}, which takes"
        f" {_span(near.seconds)}{cost}."
    )


def _span(seconds: float) -> str:
    """Return a time as a deadline is written."""
    return f"{seconds / HOUR_S:.4g} h" if seconds >= HOUR_S else f"{seconds / 60.0:.4g} min"
