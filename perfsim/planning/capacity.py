"""plan(): which cluster and method train a model in time and within a budget.

A run is an iteration's prediction times the iterations that the target's samples and epochs need,
times what is known of the epochs that the method needs beside S-SGD (`perfsim.time_to_accuracy`);
its cost is GPU hours times the prices of a file that the user keeps. Of models that fit on no GPU
whole, each cluster is planned with its fastest parallelism that fits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from perfsim.compute.device import device_named
from perfsim.data.catalog import Catalog
from perfsim.data.tables import options_cell
from perfsim.data.toml import Text, TomlModel, WrongValue, plain_number, read_toml
from perfsim.display import Displayed
from perfsim.errors import (
    DataError,
    MissingFileError,
    PerfsimError,
    RequestError,
    UnknownNameError,
    any_of,
    nearest,
    shown,
    spelled,
    unknown,
    unspelled,
)
from perfsim.hardware.nodes import names_network, with_usual_network
from perfsim.interval import NO_METHOD, uncertainties
from perfsim.memory import MemoryUse
from perfsim.methods import method_name
from perfsim.models import has_attention, is_defined
from perfsim.network.node_network import load_any_network
from perfsim.note import NoteGrade, of_grade, warning
from perfsim.notes import TIME_ONLY
from perfsim.planning.divisions import SEARCHED_FIELDS, fixed_fields
from perfsim.planning.parallelism import (
    NothingFitsError,
    TriedDivision,
    fastest_division,
    predicted_division,
)
from perfsim.prediction import PredictedIteration, Prediction, predict
from perfsim.quantity import NumberLimit
from perfsim.ranking import Ranking, few, median_errors
from perfsim.resolve import ResolvedScenario, as_named, first_device, resolve, with_gpu
from perfsim.scenario import Scenario, as_scenario, parse_types
from perfsim.session import fresh
from perfsim.time_to_accuracy import (
    AS_MANY_EPOCHS,
    EpochsFactor,
    EpochsFactors,
    check_epochs_of,
    learning_notes,
    parse_epochs_of,
)
from perfsim.units import format_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = [
    "DATASETS",
    "HOUR_S",
    "ClusterPlan",
    "ParetoChoice",
    "Price",
    "Prices",
    "Target",
    "find_prices",
    "parse_budget",
    "parse_epochs",
    "parse_power",
    "parse_samples",
    "parse_tokens",
    "plan",
    "read_prices",
]

PLAN_SCHEMA = "perfsim/plan/1"
PRICES_SCHEMA = "perfsim/prices/1"

HOUR_S = 3600.0

DATASETS = {
    "imagenet": (1_281_167, "ILSVRC2012 training set, Russakovsky et al. 2015, arXiv 1409.0575"),
    "cifar10": (50_000, "Krizhevsky 2009, Learning Multiple Layers of Features, section 3"),
    "cifar100": (50_000, "Krizhevsky 2009, Learning Multiple Layers of Features, section 3"),
    "squad": (87_599, "SQuAD 1.1 training questions, Rajpurkar et al. 2016, arXiv 1606.05250"),
}
"""Samples of a training set, and the source of the number."""

_PRICE_FILE = "prices.toml"
_PRICE_LIMIT = NumberLimit(math.ulp(0.0), math.nextafter(1e6, 0.0), "above 0 and below 1e6")


class PriceTable(TomlModel):
    """A ``[[price]]``; ``net`` is empty where the price holds on any network."""

    gpu: Text
    net: Text = ""
    per_gpu_hour: Annotated[float, plain_number(_PRICE_LIMIT)]
    source: Text
    date: Text


class PriceFile(TomlModel):
    """The keys of a file of prices."""

    SCHEMA = PRICES_SCHEMA
    currency: Text
    price: list[PriceTable] = Field(default_factory=list)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        named = [(row.gpu, row.net) for row in self.price]
        for index, pair in enumerate(named):
            if pair in named[:index]:
                twice = f"{' on '.join(map(shown, filter(None, pair)))} stands twice"
                raise WrongValue(twice, "price", index, "gpu")
        return self


_SAMPLES = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*(samples|tokens)\s*")
_POWER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(kW|W)\s*")
_MONEY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]{3})\s*")


@dataclass(frozen=True)
class Target:
    """A training run, and its limits (None: no limit).

    Parameters
    ----------
    samples, epochs : the size of the training set, and the passes over it that S-SGD needs
    epochs_of : epochs by method as multiples of ``epochs``, in place of what is known
    data : the training set's name, one of ``DATASETS``; "" where it has none
    deadline_s, budget, currency : limits on time and on cost
    gpu_power_w : the power of one GPU while it trains [W]
    tokens : those of the training set, where its size was given so
    deadline : the limit on time as it was given; "" writes it in hours or minutes
    """

    samples: int
    epochs: float
    epochs_of: Mapping[str, float] = field(default_factory=dict)
    data: str = ""
    deadline_s: float | None = None
    budget: float | None = None
    currency: str = ""
    gpu_power_w: float | None = None
    tokens: float | None = None
    deadline: str = ""

    def __post_init__(self) -> None:
        """Refuse numbers that no training run has.

        Raises
        ------
        RequestError
            If a size, a duration or a limit is no finite number above zero.
        """
        for name in ("samples", "epochs", "deadline_s", "budget", "gpu_power_w", "tokens"):
            value = getattr(self, name)
            needed = name in ("samples", "epochs")
            if not needed and value is None:
                continue
            if not isinstance(value, Real) or not 0.0 < float(value) < math.inf:
                why = f"{shown(value)} is not allowed: it must be a number above 0."
                raise RequestError(name, why, value=value)

    @property
    def data_words(self) -> str:
        """Return the size of the training set as it was given: in samples, or in tokens."""
        if self.tokens is not None:
            return f"{self.tokens:,.0f} tokens"
        return f"{self.samples:,.0f} samples"

    @property
    def deadline_words(self) -> str:
        """Return the limit on time as it was given; "" where there is none."""
        return self.deadline or ("" if self.deadline_s is None else _span(self.deadline_s))

    @property
    def limit_words(self) -> str:
        """Say the limits on time and on cost; "" where there are none.

        Examples
        --------
        >>> Target(1000, 1.0, deadline_s=86400.0, budget=50.0, currency="EUR").limit_words
        'within 24 h for at most 50 EUR'
        """
        limits = []
        if self.deadline_s is not None:
            limits.append(f"within {self.deadline_words}")
        if self.budget is not None:
            limits.append(f"for at most {self.budget:g} {self.currency}")
        return " ".join(limits)

    @property
    def words(self) -> str:
        """Say what is to be trained, and the limits.

        Examples
        --------
        >>> Target(1_281_167, 90.0, deadline_s=7200.0).words, Target(1000, 1.0).words
        ('1,281,167 samples, 90 epochs of S-SGD within 2 h', '1,000 samples, 1 epoch of S-SGD')
        """
        epochs = f"{self.epochs:,g} epoch{'s' * (self.epochs != 1)} of S-SGD"
        return f"{self.data_words}, {epochs} {self.limit_words}".rstrip()

    @property
    def limited(self) -> bool:
        """Whether there is a limit that a choice may miss."""
        return self.deadline_s is not None or self.budget is not None


@dataclass(frozen=True, slots=True)
class Price:
    """One GPU for one hour, on one network between nodes or on any ("")."""

    gpu: str
    net: str
    per_gpu_hour: float
    source: str
    date: str


@dataclass(frozen=True)
class Prices:
    """A price table: its currency, its prices and the file."""

    currency: str
    prices: tuple[Price, ...]
    path: Path

    def of(self, gpu: str, net: str) -> Price | None:
        """Return the price of a GPU on a network, else its price on any network."""
        matching = [one for one in self.prices if one.gpu == gpu and one.net in (net, "")]
        return max(matching, key=lambda one: bool(one.net), default=None)


@dataclass(frozen=True, eq=False)
class ParetoChoice:
    """One cluster and method: how long the run takes, and its cost if there is a price.

    ``learning`` is what is known of the epochs that the method needs; where that is nothing,
    ``seconds`` are those of S-SGD's epochs. ``divided`` is how training is divided there, where
    that was searched.
    """

    prediction: PredictedIteration
    seconds: float
    interval_s: tuple[float, float]
    cost: float | None
    learning: EpochsFactor = AS_MANY_EPOCHS
    power_w: float | None = None
    divided: TriedDivision | None = None

    @property
    def energy_kwh(self) -> float | None:
        """The energy of all GPUs [kWh]; None if no power was given."""
        return None if self.power_w is None else self.gpu_hours * self.power_w / 1000.0

    @property
    def scenario(self) -> ResolvedScenario:
        """The cluster, method and options that were predicted."""
        return self.prediction.scenario

    @property
    def gpu_hours(self) -> float:
        """GPUs times hours."""
        return self.scenario.gpus * self.seconds / HOUR_S

    @property
    def spent(self) -> float:
        """What is paid for the run: money if there is a price, else GPU hours."""
        return self.gpu_hours if self.cost is None else self.cost

    @property
    def words(self) -> str:
        """Return cluster and method in words."""
        asked = self.scenario
        where = "in one node" if asked.nodes == 1 else f"over {asked.net}"
        how = f", {self.divided.division.words}" if self.divided else ""
        return f"{asked.method} on {asked.gpus} {asked.gpu} {where}{how}"

    def excess(self, target: Target) -> float:
        """Return the larger ratio of time or cost to its limit; up to 1 meets the target."""
        late = self.seconds / target.deadline_s if target.deadline_s else 0.0
        dear = self.cost / target.budget if target.budget and self.cost is not None else 0.0
        return max(late, dear)

    def row(self, target: Target) -> dict[str, Any]:
        """Return it as a row of the plan, units in the names."""
        low, high = self.interval_s
        asked = self.scenario
        return {
            "gpu": asked.gpu,
            "gpus": asked.gpus,
            "net": asked.net,
            "method": asked.method,
            "hours": self.seconds / HOUR_S,
            "hours_low": low / HOUR_S,
            "hours_high": high / HOUR_S if math.isfinite(high) else None,
            "gpu_hours": self.gpu_hours,
            "cost": self.cost,
            "energy_kwh": self.energy_kwh,
            "epochs": target.epochs * (self.learning.middle or 1.0),
            "learning": self.learning.to_dict(),
            "iteration_time_only": not self.learning.known,
            "iteration_s": self.prediction.iteration_s,
            "scaling_efficiency": self.prediction.scaling_efficiency,
            "meets": self.excess(target) <= 1.0,
            "surely_in_time": target.deadline_s is None or high <= target.deadline_s,
            **({"parallelism": self.divided.to_dict()} if self.divided else {}),
        }


def _notes_of(choice: ParetoChoice, grade: NoteGrade) -> list[str]:
    """Return the notes of a grade on a choice; those of a searched division are the search's."""
    found = choice.prediction
    notes = of_grade(found.notes, grade) if isinstance(found, Prediction) else []
    # Where its learning is known, the plan counts what it needs.
    return [one for one in notes if not (choice.learning.known and one.startswith(TIME_ONLY))]


@dataclass(frozen=True, repr=False)
class ClusterPlan(Displayed):
    """All clusters and methods that were predicted, and which cannot be used, with the reason.

    ``searched`` says why parallelism was searched, "" where it was not; ``global_batch`` is what
    was asked of such a search. ``close`` are the methods on the fastest's cluster that are too
    close to it to call.
    """

    target: Target
    choices: list[ParetoChoice]
    left_out: dict[str, str]
    prices: Prices
    searched: str = ""
    global_batch: int | None = None
    close: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the question and the answer on one line."""
        count, kept = len(self.choices), len(self.within_target)
        asked = f"{self.target.data_words}, {self.target.epochs:g} epochs"
        best = ""
        if kept:
            best = f"; fastest {self._priced(self.fastest)}; cheapest {self._priced(self.cheapest)}"
        words = f"{kept} of {count} choices meet the target"
        if not self.target.limited:
            words = f"{count} choice{'s' * (count != 1)}"
        return f"<ClusterPlan {asked}: {words}{best}>"

    def _priced(self, choice: ParetoChoice) -> str:
        return f"{choice.words}: {_span(choice.seconds)}, {choice.spent:.4g} {self.unit}"

    @property
    def unit(self) -> str:
        """What a run's cost is counted in: the currency of the prices, or GPU hours."""
        priced = any(one.cost is not None for one in self.choices)
        return self.prices.currency if priced else "GPU h"

    @property
    def learning_known(self) -> bool:
        """Whether anything says how many epochs a method needs, of one of them at least."""
        return any(one.learning.known for one in self.choices)

    @property
    def known(self) -> list[ParetoChoice]:
        """Those of methods whose learning is known; all, if it is known of none."""
        return [one for one in self.choices if one.learning.known] or self.choices

    @property
    def by_iteration_only(self) -> list[ParetoChoice]:
        """Those that stand apart, fastest first: nothing says how many epochs they need."""
        known = set(self.known)
        apart = (one for one in self.choices if one not in known)
        return sorted(apart, key=lambda one: (one.seconds, one.spent))

    @property
    def within_target(self) -> list[ParetoChoice]:
        """Those of methods whose learning is known that keep the deadline and the budget."""
        return [one for one in self.known if one.excess(self.target) <= 1.0]

    @property
    def fastest(self) -> ParetoChoice:
        """The fastest of those that meet the target."""
        return min(self.within_target, key=lambda one: (one.seconds, one.spent))

    @property
    def cheapest(self) -> ParetoChoice:
        """The one that costs least of those that meet the target; without prices, GPU hours."""
        return min(self.within_target, key=lambda one: (one.spent, one.seconds))

    @property
    def front(self) -> list[ParetoChoice]:
        """The Pareto front: nothing else is both faster and cheaper; fastest first."""
        front: list[ParetoChoice] = []
        for one in sorted(self.known, key=lambda one: (one.seconds, one.spent)):
            if not front or one.spent < front[-1].spent:
                front.append(one)
        return front

    @property
    def front_title(self) -> str:
        """What the front is of: time to S-SGD's accuracy, or iteration time where no more is known.

        Examples
        --------
        >>> from perfsim import Scenario, Target, plan
        >>> asked = [Scenario(model="resnet50", gpus=8, method="topk")]
        >>> plan(asked, Target(samples=1_281_167, epochs=90)).front_title
        'Pareto front by iteration time only'
        """
        return f"Pareto front{'' if self.learning_known else ' by iteration time only'}"

    @property
    def notes(self) -> list[str]:
        """What the plan assumes, in words."""
        notes = [
            *self._learning(),
            "A larger global batch may need more epochs: that is not counted.",
            "What does not fit into a GPU's memory is left out unless `ignore_memory` is given;"
            " activations count where perfsim has the model's layers.",
        ]
        notes += [self.searched] if self.searched else []
        if self.global_batch is not None and not self.searched:
            why = "parallelism was not searched, and each GPU has `batch` samples"
            notes.append(warning(f"`global_batch` {self.global_batch} has no effect: {why}."))
        if self.target.gpu_power_w is None:
            notes.append("For the energy, give the power of a GPU (`gpu_power` 250W).")
        else:
            notes.append(
                f"Energy is that of the GPUs at {self.target.gpu_power_w:g} W each, as given;"
                " hosts, network and cooling are not counted."
            )
        if not any(one.cost is not None for one in self.choices):
            gpus = {one.scenario.gpu for one in self.choices if self._unpriced(one)}
            none = f"is no price of {', '.join(sorted(gpus))} in {self.prices.path}"
            none = none if self.prices.prices else "are no prices"
            said = f"There {none}, so the least GPU hours count as the cheapest."
            notes.append(warning(said) if self.prices.prices else said)
        else:
            used = {self._price(one) for one in self.choices if one.cost is not None}
            notes += sorted(f"Price of {gpu}: {source}, {date}." for gpu, source, date in used)
        return [*notes, *self._risks(), *self._assumptions()]

    def _risks(self) -> list[str]:
        """Warn of what the fastest and the cheapest may miss, and of what is known against them."""
        notes: dict[str, str] = {}
        if self.close:
            tie = (
                f"{few(self.close)} on the same cluster: too close to {self.fastest.words} to call"
            )
            notes[tie] = warning(f"{tie}, by the recorded errors.", tie)
        for one in (self.fastest, self.cheapest):
            high_s, deadline_s = one.interval_s[1], self.target.deadline_s
            if deadline_s is not None and one.seconds <= deadline_s < high_s:
                late = (
                    f"{one.words} may miss the deadline: its 90 % interval ends at"
                    f" {high_s / HOUR_S:.4g} hours."
                )
                notes.setdefault(late, warning(late))
            for note in _notes_of(one, "warning"):
                brief = getattr(note, "brief", note)
                text = f"{one.scenario.gpus} {one.scenario.gpu}: {note}"
                notes.setdefault(
                    note, warning(text, f"{one.scenario.gpus} {one.scenario.gpu}: {brief}")
                )
        return [*notes.values()]

    def _assumptions(self) -> list[str]:
        """Return what was assumed of the fastest and the cheapest, each once."""
        every = (_notes_of(one, "assumption") for one in (self.fastest, self.cheapest))
        return [*dict.fromkeys(note for notes in every for note in notes)]

    def _unpriced(self, choice: ParetoChoice) -> bool:
        asked = choice.scenario
        return self.prices.of(asked.gpu, asked.net) is None

    def _learning(self) -> list[str]:
        """Say what each method's epochs are taken from, and what is known against it.

        Where that depends on the workers, it is said for each number of GPUs.
        """
        each: dict[str, dict[EpochsFactor, list[int]]] = {}
        for one in self.choices:
            of_method = each.setdefault(one.scenario.method, {})
            of_method.setdefault(one.learning, []).append(one.scenario.gpus)
        factors = {}
        for method, by_factor in each.items():
            for factor, gpus in by_factor.items():
                counts = ", ".join(f"{count:,}" for count in sorted(set(gpus)))
                name = method if len(by_factor) == 1 else f"{method} on {counts} GPUs"
                factors[name] = factor
        return learning_notes(factors)

    def _price(self, choice: ParetoChoice) -> tuple[str, str, str]:
        price = self.prices.of(choice.scenario.gpu, choice.scenario.net)
        assert price is not None
        return price.gpu, price.source, price.date

    def records(self) -> list[dict[str, Any]]:
        """Return each cluster and method as a flat record, units in the names.

        Times are those of the whole run, to S-SGD's accuracy where ``iteration_time_only`` is
        false. ``cost_`` has the currency of the prices, and is left out where there are none.
        """
        front = set(self.front)
        return [_record(one, self.target, self.prices, one in front) for one in self.choices]

    def plot(self, kind: Literal["front"] = "front") -> Figure:
        """Draw the time of each choice over its cost with Plotly: the Pareto front and the others.

        Parameters
        ----------
        kind : "front": hours of the whole run over money, or over GPU hours where no price is known

        Raises
        ------
        RequestError
            If Plotly is not installed, or there is no such kind.

        Examples
        --------
        >>> from perfsim import Scenario, Target, plan
        >>> asked = [Scenario(model="resnet50", gpus=count, net="ib100") for count in (8, 64)]
        >>> plan(asked, Target(samples=1_281_167, epochs=90)).plot().layout.yaxis.title.text
        'time of the run [h]'
        """
        return self._plotted(kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, by the contract perfsim/plan/1."""
        target = self.target
        return {
            "schema": PLAN_SCHEMA,
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
            "iteration_time_only": [one.row(target) for one in self.by_iteration_only],
            "rows": [one.row(target) for one in self.choices],
            "left_out": self.left_out,
            "notes": self.notes,
        }


def _record(one: ParetoChoice, target: Target, prices: Prices, on_front: bool) -> dict[str, Any]:
    """Return a choice as a flat record."""
    row, (low, high) = one.row(target), one.interval_s
    return {
        **{name: row[name] for name in ("gpu", "gpus", "net", "method")},
        "options": options_cell(one.scenario.options),
        "parallelism": one.divided.division.words if one.divided else "",
        "time_s": one.seconds,
        "time_s_low": low,
        "time_s_high": high,
        "gpu_hours": one.gpu_hours,
        **({f"cost_{prices.currency}": one.cost} if prices.prices else {}),
        "energy_kwh": one.energy_kwh,
        "epochs": row["epochs"],
        "epochs_ratio": one.learning.middle,
        "epochs_basis": one.learning.basis,
        "iteration_s": row["iteration_s"],
        "scaling_efficiency": row["scaling_efficiency"],
        **{name: row[name] for name in ("meets", "surely_in_time", "iteration_time_only")},
        "on_front": on_front,
    }


def plan(
    scenarios: Iterable[Scenario | Mapping[str, Any]],
    target: Target,
    prices: Prices | None = None,
    catalog: Catalog | None = None,
    tell: Callable[[int, int], None] | None = None,
    *,
    ignore_memory: bool = False,
    parallelism: bool | None = None,
    global_batch: int | None = None,
) -> ClusterPlan:
    """Predict every cluster and method, and compare them with a target.

    Parameters
    ----------
    scenarios : what to choose from, or dicts of their fields
    target : samples, epochs, deadline and budget
    prices : what a GPU costs for an hour; None: nothing is known of it. Where some clusters have
        none, GPU hours are compared; with a budget they are left out
    catalog : where profiles are; None: the session that Python's API shares
    tell : called with how many are done, and of how many
    ignore_memory : whether what needs more memory than the GPU has may be chosen
    parallelism : whether the fastest parallelism of each cluster is searched; None: where the
        state of the training fits nowhere otherwise
    global_batch : samples of an iteration over all GPUs, where parallelism is searched; None: as
        many as the scenario asks for

    Raises
    ------
    DataError
        If a price is of a GPU or a network that nobody knows, or stands twice under two names.
    RequestError
        If a budget is given without a price or in another currency, if ``global_batch`` is given
        where parallelism is not to be searched, if nothing can be predicted,
        or if nothing meets the target; the message says what comes nearest.

    Examples
    --------
    >>> from perfsim import Scenario, Target, plan
    >>> asked = [Scenario(model="resnet50", gpus=count, net="ib100") for count in (8, 64)]
    >>> found = plan(asked, Target(samples=1_281_167, epochs=90, deadline_s=6 * 3600))
    >>> found.cheapest.scenario.gpus
    64
    """
    scenarios = _listed(scenarios)
    if not isinstance(target, Target):
        why = f"{shown(target)} is no target; give Target(samples=..., epochs=...)."
        raise RequestError("target", why, value=target)
    if not isinstance(prices, Prices | None):
        why = f"{shown(prices)} is no table of prices; perfsim.planning.capacity.read_prices reads"
        raise RequestError("prices", f"{why} a file.", value=prices)
    prices = prices or Prices("", (), Path())
    catalog = fresh(catalog)
    prices = _with_names_of_profiles(prices, catalog)
    _check_global_batch(global_batch, parallelism)
    _check_budget(target, prices)
    if not parallelism:
        check_epochs_of(target.epochs_of, (method_name(one.method) for one in scenarios))
    for scenario in scenarios:
        check_one_type(scenario.gpu)
        _check_names(scenario, catalog)
    tried = _Tried(catalog, ignore_memory, global_batch)
    searched = ""
    if parallelism:
        searched = f"Each cluster has its fastest parallelism that fits{tried.batch_words}."
        predictions = _counted(map(tried.divided, scenarios), len(scenarios), tell)
    else:
        predictions = _counted(map(tried.predicted, scenarios), len(scenarios), tell)
        if not predictions and parallelism is None and tried.state_fits_nowhere:
            searched = (
                "The training fits nowhere with the model whole on each GPU: each cluster has its"
                f" fastest parallelism that fits{tried.batch_words}."
            )
            tried = _Tried(catalog, ignore_memory, global_batch)
            predictions = _counted(map(tried.divided, scenarios), len(scenarios), tell)
    left = tried.left
    factors: dict[str, EpochsFactors] = {}
    choices = []
    for prediction, divided in predictions:
        model = prediction.scenario.model
        if model not in factors:
            factors[model] = EpochsFactors(catalog, model, target.data, target.epochs_of)
        choices.append(_choice(prediction, divided, target, prices, factors[model]))
    choices = _priced_alike(choices, target, prices, left)
    if not choices:
        raise RequestError("", f"no cluster can be used: {_reasons(left, tried.large)}.")
    left_out = {name: spelled(why) for name, why in left.items()}
    result = ClusterPlan(target, choices, left_out, prices, searched, global_batch)
    if not result.within_target:
        raise RequestError("", _nothing_meets(result))
    return replace(result, close=_too_close(result, catalog))


def _too_close(found: ClusterPlan, catalog: Catalog) -> tuple[str, ...]:
    """Return the methods on the fastest's cluster that are too close to it to call.

    None where parallelism was searched: the search itself says what is close.
    """
    first = found.fastest
    here = first.scenario
    same = {
        one.scenario.method: one
        for one in found.known
        if (one.scenario.gpus, one.scenario.gpu, one.scenario.net)
        == (here.gpus, here.gpu, here.net)
    }
    predictions = {
        name: one.prediction
        for name, one in {here.method: first, **same}.items()
        if isinstance(one.prediction, Prediction)
    }
    if found.searched or here.method not in predictions:
        return ()
    ranking = Ranking(
        predictions,
        {},
        median_errors(catalog),
        known=uncertainties(catalog).get(NO_METHOD),
        learning={name: one.learning for name, one in same.items()},
    )
    others = [name for name in predictions if name != here.method]
    return tuple(name for name in others if not ranking.sooner(here.method, name))


def _listed(given: Iterable[Scenario | Mapping[str, Any]]) -> list[Scenario]:
    """Return the scenarios to choose from; one alone is a list of one."""
    if isinstance(given, Scenario | Mapping | str) or not isinstance(given, Iterable):
        given = [given]
    found = [as_scenario(one, "scenarios") for one in given]
    if not found:
        raise RequestError("scenarios", "is empty; give a list of clusters to choose from.")
    return found


_Divided = tuple[PredictedIteration, TriedDivision | None]
"""A prediction, and how training is divided where that was searched."""


def _counted(
    found: Iterator[_Divided | None], count: int, tell: Callable[[int, int], None] | None
) -> list[_Divided]:
    """Return what can be used, telling how many are done."""
    kept = []
    for done, one in enumerate(found, 1):
        if tell is not None:
            tell(done, count)
        if one is not None:
            kept.append(one)
    return kept


def check_one_type(gpu: str | None) -> None:
    """Check that all GPUs of a cluster are of one type.

    Raises
    ------
    RequestError
        If they are of several types.
    """
    if len(parse_types(gpu)) > 1:
        raise RequestError(
            "gpu",
            f"{gpu!r} mixes several types; a plan compares clusters of one type each. Name one, or"
            " several clusters by `gpu_types`.",
            value=gpu,
        )


def _with_names_of_profiles(prices: Prices, catalog: Catalog) -> Prices:
    """Return prices with each GPU and network under the name of its file, where an alias may stand.

    A name that nobody knows is refused: its price would never be used.
    """
    named: dict[tuple[str, str], Price] = {}
    for number, price in enumerate(prices.prices, 1):
        gpu, net = device_named(price.gpu, catalog), as_named("net", price.net, catalog)
        field, why = "gpu", ""
        if gpu is None:
            why = unknown("gpu", price.gpu, catalog.files("devices"), "gpus").why
        elif (gpu, net) in named:
            twice = " on ".join(map(shown, filter(None, (gpu, net))))
            why = f"{twice} stands twice, as {shown(price.gpu)} too"
        else:
            field, why = "net", _unknown_network(net, catalog)
        if gpu is None or why:
            raise DataError(f"price[{number}].{field}: {why}", path=prices.path)
        named[gpu, net] = replace(price, gpu=gpu, net=net)
    return replace(prices, prices=tuple(named.values()))


def _unknown_network(net: str, catalog: Catalog) -> str:
    """Say that nobody knows a network; "" of one that there is, and of every network."""
    if not net:
        return ""
    try:
        load_any_network(net, catalog, "net")
    except RequestError as error:
        return error.why
    return ""


def _priced_alike(
    choices: list[ParetoChoice], target: Target, prices: Prices, left: dict[str, str]
) -> list[ParetoChoice]:
    """Return the choices with a price each, or none: money is not compared with GPU hours.

    With a budget those without a price are ``left`` out.
    """
    if target.budget is None:
        priced = all(one.cost is not None for one in choices)
        return choices if priced else [replace(one, cost=None) for one in choices]
    for one in choices:
        if one.cost is None:
            left[one.words] = f"no price of {one.scenario.gpu} in {prices.path}"
    return [one for one in choices if one.cost is not None]


def _check_names(scenario: Scenario, catalog: Catalog) -> None:
    """Refuse a name that does not exist; what does not go together is left out later."""
    try:
        resolve(scenario, catalog)
    except UnknownNameError:
        raise
    except PerfsimError:
        return


def _check_global_batch(global_batch: int | None, parallelism: bool | None) -> None:
    if global_batch is not None and not (isinstance(global_batch, Integral) and global_batch > 0):
        why = f"{shown(global_batch)} is not allowed: it must be a whole number above 0."
        raise RequestError("global_batch", why, value=global_batch)
    if global_batch is not None and parallelism is False:
        why = "is for `parallelism`, which is switched off; leave one of the two out."
        raise RequestError("global_batch", why, value=global_batch)


def _check_budget(target: Target, prices: Prices) -> None:
    if target.budget is None:
        return
    if not prices.prices:
        raise RequestError(
            "budget",
            f"{prices.path} has no prices; write what you pay into a copy of it and give it as"
            ' `prices` FILE: [[price]], gpu = "h100", per_gpu_hour = 2.5, source = "...",'
            ' date = "2026-11-01", a line each.',
        )
    if target.currency != prices.currency:
        raise RequestError(
            "budget",
            f"is in {target.currency}, the prices of {prices.path} are in {prices.currency}.",
        )


class _TooLarge(NamedTuple):
    """A training that does not fit: bytes needed, bytes that a GPU has for it, what would help."""

    needed: float
    usable: float
    helps: Sequence[str]


def _reasons(left: Mapping[str, str], large: Mapping[str, _TooLarge]) -> str:
    """Say why nothing can be used: each reason once, memory by what needs least."""
    reasons = {why.removesuffix(".") for name, why in left.items() if name not in large}
    if large:
        name = min(large, key=lambda one: large[one].needed)
        least = large[name]
        reasons.add(
            f"the training does not fit into memory; {name} needs least,"
            f" {format_bytes(least.needed)}, and the GPU has {format_bytes(least.usable)} for it"
            f" ({any_of(least.helps)} would help)"
        )
    return "; ".join(sorted(reasons))


def _helps(
    scenario: Scenario, batch: int, model: str, *, searched: bool, state_fits: bool
) -> list[str]:
    """Return what would make a training fit that does not, but for what is set so already.

    Parameters
    ----------
    batch, model : samples of a micro-batch and the name of the model, as predicted
    searched : whether its parallelism was searched, with all that the scenario does not fix
    state_fits : whether its state alone fits, so that fewer activations would do
    """
    free = set(SEARCHED_FIELDS) - fixed_fields(scenario) if searched else set()
    blocks = is_defined(model) and has_attention(model)
    helps = {
        "a smaller `batch`": state_fits and batch > 1 and "batch" not in free,
        "`recompute` full": state_fits
        and blocks
        and scenario.recompute != "full"
        and "recompute" not in free,
        "`parallelism`": blocks and not searched,
        "more `gpus`": searched,
        "`ignore_memory`": True,
    }
    return [words for words, would in helps.items() if would]


class _Tried:
    """Predicts scenarios, and keeps why some cannot be used.

    ``left`` has the reasons by cluster and method, fields in backticks; ``large`` the bytes needed
    and those there where it is for memory.
    """

    def __init__(self, catalog: Catalog, ignore_memory: bool, global_batch: int | None) -> None:
        self.catalog, self.ignore_memory = catalog, ignore_memory
        self.global_batch = global_batch
        self.left: dict[str, str] = {}
        self.large: dict[str, _TooLarge] = {}
        self._states_fit: list[bool] = []

    @property
    def batch_words(self) -> str:
        """Say how many samples an iteration has where parallelism is searched."""
        if self.global_batch is None:
            return "; an iteration has as many samples as asked for (`batch` on each GPU)"
        return f" at {self.global_batch:,} samples an iteration"

    @property
    def state_fits_nowhere(self) -> bool:
        """Whether all that was predicted lacks memory for its state alone."""
        return bool(self._states_fit) and not any(self._states_fit)

    def predicted(self, scenario: Scenario) -> _Divided | None:
        """Return a scenario's prediction; None if it cannot be used."""
        name = self._name(scenario, scenario.method)
        try:
            prediction = predict(scenario, self.catalog)
        except MissingFileError:
            raise
        except RequestError as error:
            self.left[name] = unspelled(error)
            return None
        model = prediction.scenario.model
        memory = prediction.memory_usable_bytes or math.inf
        use = MemoryUse(prediction.memory_bytes, memory, is_defined(model))
        self._states_fit.append(use.state_fits)
        if not use.fits and not self.ignore_memory:
            batch, fits = prediction.scenario.batch, use.state_fits
            helps = _helps(scenario, batch, model, searched=False, state_fits=fits)
            self.large[name] = _TooLarge(use.total, memory, helps)
            self.left[name] = (
                f"needs {format_bytes(use.total)} of memory; the GPU has {format_bytes(memory)} for"
                " it (`ignore_memory` takes it nevertheless)"
            )
            return None
        return prediction, None

    def divided(self, scenario: Scenario) -> _Divided | None:
        """Return the prediction of a scenario's fastest parallelism; None if none can be used."""
        method = scenario.method if "method" in fixed_fields(scenario) else "parallelism"
        name = self._name(scenario, method)
        try:
            best = fastest_division(
                scenario,
                self.catalog,
                global_batch=self.global_batch,
                ignore_memory=self.ignore_memory,
            )
            return predicted_division(best, self.catalog)[0], best
        except NothingFitsError as error:
            batch, fits = scenario.batch or 1, error.state_fits
            helps = _helps(scenario, batch, scenario.model, searched=True, state_fits=fits)
            self.large[name] = _TooLarge(error.needed, error.usable, helps)
            self.left[name] = unspelled(error)
        except MissingFileError:
            raise
        except RequestError as error:
            self.left[name] = unspelled(error)
        return None

    def _name(self, scenario: Scenario, method: str) -> str:
        asked = with_gpu(scenario, self.catalog)[0]
        if not names_network(asked):
            asked = with_usual_network(asked, first_device(asked, self.catalog), self.catalog)
        return f"{method} on {asked.gpus} {asked.gpu} over {asked.net}"


def _choice(
    prediction: PredictedIteration,
    divided: TriedDivision | None,
    target: Target,
    prices: Prices,
    factors: EpochsFactors,
) -> ParetoChoice:
    asked = prediction.scenario
    learning = factors.of_scenario(asked)
    iterations = (
        target.samples * target.epochs / (prediction.samples_per_s * prediction.iteration_s)
    )
    seconds = iterations * prediction.iteration_s * (learning.middle or 1.0)
    low, high = (
        iterations * end * (times or 1.0)
        for end, times in zip(
            prediction.iteration_s_interval, (learning.low, learning.high), strict=True
        )
    )
    price = prices.of(asked.gpu, asked.net)
    hours = asked.gpus * seconds / HOUR_S
    return ParetoChoice(
        prediction,
        seconds,
        (low, high),
        price.per_gpu_hour * hours if price else None,
        learning,
        target.gpu_power_w,
        divided,
    )


def _nothing_meets(plan: ClusterPlan) -> str:
    target = plan.target
    near = min(plan.known, key=lambda one: (one.excess(target), one.seconds))
    cost = "" if near.cost is None else f" and costs {near.cost:.4g} {plan.prices.currency}"
    told = (
        f"nothing is done {target.limit_words}; the nearest is {near.words}, which takes"
        f" {_span(near.seconds)}{cost}"
    )
    if not plan.learning_known:
        return f"{told} by iteration time alone (its epochs are not known)."
    for one in plan.by_iteration_only:
        if one.excess(target) <= 1.0:
            return f"{told}; {one.words} would meet it by iteration time alone (epochs not known)."
    return f"{told}."


def _span(seconds: float) -> str:
    """Write a time as a deadline is written."""
    return f"{seconds / HOUR_S:.4g} h" if seconds >= HOUR_S else f"{seconds / 60.0:.4g} min"


_MAX_SAMPLES = 1e18
"""Samples or tokens of a data set at most, far more than anyone has."""


def parse_samples(text: str, tokens: int | None = None) -> int:
    """Return the samples of a data set: a name, or a number with its unit.

    Parameters
    ----------
    tokens : those of a sample, for a number of tokens; None for a model that takes none

    Raises
    ------
    RequestError
        If it is neither, or a number of tokens where the model takes none.

    Examples
    --------
    >>> parse_samples("imagenet"), parse_samples("3e6 samples"), parse_samples("3e6tokens", 2048)
    (1281167, 3000000, 1465)
    """
    if text.lower() in DATASETS:
        return DATASETS[text.lower()][0]
    match = _SAMPLES.fullmatch(text)
    if match is None or not 1 <= float(match[1]) <= _MAX_SAMPLES:
        near = nearest(text, DATASETS)
        hint = f"; did you mean {near!r}?" if near else ";"
        raise RequestError(
            "dataset",
            f"no {shown(text)}{hint} allowed: {', '.join(DATASETS)}, or a number of"
            " samples such as '1281167samples', or of tokens such as '3e9tokens', 1 to 1e18.",
        )
    if match[2] == "samples":
        return int(float(match[1]))
    if tokens is None:
        raise RequestError("dataset", f"{shown(text)}: the model is not over text; give samples.")
    return math.ceil(float(match[1]) / tokens)


def parse_tokens(text: str) -> float | None:
    """Return the tokens of a data set that is given so; None of any other.

    Examples
    --------
    >>> parse_tokens("3e9tokens"), parse_tokens("imagenet")
    (3000000000.0, None)
    """
    match = _SAMPLES.fullmatch(text)
    return float(match[1]) if match is not None and match[2] == "tokens" else None


def parse_epochs(text: str, of: Sequence[str] = ()) -> tuple[float, dict[str, float]]:
    """Return the epochs of S-SGD, and those of single methods as multiples of them.

    Raises
    ------
    RequestError
        If one is no number above zero.

    Examples
    --------
    >>> parse_epochs("90", ["topk=1.2", "dgc=99epochs"])
    (90.0, {'topk': 1.2, 'dgc': 1.1})
    """
    try:
        epochs = float(text)
    except ValueError:
        epochs = 0.0
    if not 0 < epochs < 1e9:
        why = f"{shown(text)} is not a number of epochs; it must be above 0 and below 1e9."
        raise RequestError("epochs", why)
    return epochs, parse_epochs_of(of, epochs)


def parse_budget(text: str) -> tuple[float, str]:
    """Return an amount and its currency, in three letters.

    Raises
    ------
    RequestError
        If it is no amount with a currency: a bare number has no unit.

    Examples
    --------
    >>> parse_budget("500usd")
    (500.0, 'usd')
    """
    match = _MONEY.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise RequestError(
            "budget", f"{shown(text)} is not an amount with its currency, as 500usd."
        )
    return float(match[1]), match[2].lower()


def parse_power(text: str) -> float:
    """Return a power [W].

    Raises
    ------
    RequestError
        If it is no power above zero with its unit.

    Examples
    --------
    >>> parse_power("250W"), parse_power("0.7 kW")
    (250.0, 700.0)
    """
    match = _POWER.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise RequestError("gpu_power", f"{shown(text)} is not a power with its unit, as 250W.")
    return float(match[1]) * (1000.0 if match[2] == "kW" else 1.0)


def find_prices(catalog: Catalog, path: Path | None) -> Prices:
    """Return the prices of a file, or of the first prices.toml in the folders of profiles.

    Raises
    ------
    DataError
        If the file cannot be read or breaks the format.
    """
    if path is None:
        path = catalog.beside("", "", _PRICE_FILE)
    return Prices("", (), Path(_PRICE_FILE)) if path is None else read_prices(path)


def read_prices(path: Path) -> Prices:
    """Return the prices of a file.

    Raises
    ------
    DataError
        If the file cannot be read, a key is unknown or lacks, or a price is not above zero.
    """
    file = read_toml(path, PriceFile)
    prices = tuple(
        Price(row.gpu, row.net, row.per_gpu_hour, row.source, row.date) for row in file.price
    )
    return Prices(file.currency.lower(), prices, path)
