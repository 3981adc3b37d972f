"""Search the best value of what can be set: bucket size, density, rank, interval, algorithm.

Numbers are tried on a coarse logarithmic grid, then between the neighbours of the best value;
algorithms are all tried. Whole predictions are compared: each trial plans and simulates anew.
How the model is divided among GPUs is searched by itself (`perfsim.planning.parallelism`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perfsim import fusion
from perfsim.data.catalog import Catalog
from perfsim.display import Displayed
from perfsim.errors import RequestError, shown, unknown
from perfsim.libraries import AUTO
from perfsim.libraries import library as find_library
from perfsim.memory import check_fits, memory_use
from perfsim.methods import load_method, method_class, method_name
from perfsim.planning.divisions import fixed_fields, with_tp_of_experts
from perfsim.planning.exchange_interval import (
    EXPOSED_LIMITS,
    IntervalBreakEven,
    IntervalChoice,
    interval_choices,
    interval_of,
    interval_within,
    why_unknown,
)
from perfsim.planning.parallelism import (
    FRONT_LIMIT,
    ParallelSearch,
    iteration_as_asked,
    search_parallelism,
)
from perfsim.prediction import Prediction, predict
from perfsim.resolve import ResolvedScenario, Setup, resolve
from perfsim.scenario import Scenario, as_scenario
from perfsim.schedule.rounds import build_rounds
from perfsim.session import fresh
from perfsim.units import format_seconds
from perfsim.what_if import steady_s

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from perfsim.ranking import ReportMethod

__all__ = [
    "FLAT_SHARE",
    "PARALLELISM",
    "TUNABLES",
    "TUNE_SCHEMA",
    "SearchCurve",
    "Tunable",
    "TunableValue",
    "TunedValue",
    "Tuning",
    "choices",
    "current",
    "edge",
    "log_grid",
    "refine",
    "refuse",
    "tunables",
    "tune",
    "tune_parallelism",
    "value_words",
    "with_best",
    "with_value",
]

TUNE_SCHEMA = "perfsim/tune/1"

PARALLELISM = "parallelism"
"""What is searched by itself: how the model and its training are divided among GPUs."""

FLAT_SHARE = 0.01
"""Values whose iteration is within this share of the shortest are as good."""

_SAME_TIME = 1e-9
"""Iterations that differ by less than this share are the same."""

_SEARCH_STEPS = 16
"""Values that are tried between two places of the coarse grid."""

_MAX_RANGE_SEARCHES = 4
"""How often the ends of the flat range are searched, as each search may find a faster value. No
source: chosen; on a curve of steps there is always another."""

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
"""Part of an interval that a step of a golden-section search keeps."""

_SELF_SIZING_FUSION = ("mgwfbp", "optimal")
"""Fusion policies that size buckets by themselves; shown for comparison with the best size."""

TunableValue = float | str
"""Bytes of a bucket, a share, a whole number (as a float), or an algorithm's name."""

SearchCurve = dict[float, float | None]
"""The value of a function by its argument; None where it has none."""


@dataclass(frozen=True, slots=True)
class Tunable:
    """Something that can be set, and the range in which its best value is searched.

    Parameters
    ----------
    name : bucket, density, rank, interval or algorithm
    unit : of its values, for column names ("bytes"; "" for numbers and names)
    low, high : the range that is searched; both 0 for names
    factor : from one value of the coarse grid to the next
    whole : whether only whole numbers are allowed
    gentle : the end that changes training least, "high" or "low"; "" where it changes nothing
    why : what the value does to training, as a sentence
    """

    name: str
    unit: str = ""
    low: float = 0.0
    high: float = 0.0
    factor: float = 2.0
    whole: bool = False
    gentle: str = ""
    why: str = ""

    def shown(self, value: float) -> float:
        """Return the nearest value that reports show in full, so that it can be asked for.

        Examples
        --------
        >>> TUNABLES["bucket"].shown(57_765_432.1) / 2**20, TUNABLES["density"].shown(0.0123456)
        (55.09, 0.0123)
        """
        if self.whole:
            return float(round(value))
        if self.unit == "bytes":
            unit = _unit_of_bytes(value)
            return float(f"{value / unit:.{_BYTE_DIGITS}g}") * unit
        return float(f"{value:.{_DIGITS}g}")


_BYTE_DIGITS, _DIGITS = 4, 3
"""Digits of sizes and of other numbers that reports show."""


def _shown_above(size_bytes: float) -> float:
    """Return the least size no smaller than another that reports show in full."""
    unit = _unit_of_bytes(size_bytes)
    digits = _BYTE_DIGITS - 1 - math.floor(math.log10(size_bytes / unit))
    return math.ceil(size_bytes / unit * 10.0**digits) / 10.0**digits * unit


def _unit_of_bytes(value: float) -> float:
    """Return the unit in which a size is shown: KiB below one MiB."""
    return 2.0**10 if value < 2.0**20 else 2.0**20


TUNABLES: dict[str, Tunable] = {
    "bucket": Tunable("bucket", "bytes", 2.0**16, 2.0**40),
    "density": Tunable(
        "density",
        low=1e-4,
        high=1.0,
        factor=10.0**0.5,
        gentle="high",
        why="A lower density sends less of each gradient and changes convergence: time alone"
        " cannot say which density is best.",
    ),
    "rank": Tunable(
        "rank",
        low=1.0,
        high=256.0,
        whole=True,
        gentle="high",
        why="A lower rank keeps less of each gradient and changes convergence: time alone cannot"
        " say which rank is best.",
    ),
    "interval": Tunable(
        "interval",
        low=1.0,
        high=256.0,
        whole=True,
        gentle="low",
        why="A longer interval lets the models drift apart and changes convergence: time alone"
        " cannot say which interval is best.",
    ),
    "algorithm": Tunable("algorithm"),
}
"""What can be tuned, in the order of the report."""


@dataclass(frozen=True)
class TunedValue:
    """The best value of one thing, with all else as asked.

    Parameters
    ----------
    tunable : what was tuned
    asked, asked_s : its value in the scenario, and the iteration with it [s]
    curve : (value, iteration [s]), by value; names fastest first
    fastest, fastest_s : the value with the shortest iteration; among names, one that needs nothing
    advised, advised_s : the value to take; where it changes convergence, the gentlest value whose
        iteration is within 1 % of the shortest
    low, high : ends of the range around the fastest that is within 1 %; None for names
    other_fusion : fusion policies that size buckets themselves, with their iterations [s]
    intervals : of an interval, what each costs and what is known of its learning
    enough : of an interval, the smallest whose exposed exchanges add little; it is advised, unless
        the user sets another
    fixed : whether the user sets the value, so that it is kept
    beside : the option that must be set beside the advised value, "" for none
    refused : names that cannot be used here, and why
    needs : names that the library does not choose by itself, and what each needs; never advised
    """

    tunable: Tunable
    asked: TunableValue
    asked_s: float
    curve: list[tuple[TunableValue, float]]
    fastest: TunableValue
    fastest_s: float
    advised: TunableValue
    advised_s: float
    low: float | None
    high: float | None
    other_fusion: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    needs: dict[str, str] = field(default_factory=dict)
    intervals: list[IntervalChoice] = field(default_factory=list)
    enough: IntervalBreakEven | None = None
    fixed: bool = False
    beside: str = ""

    @property
    def flat(self) -> bool:
        """Whether a factor of two in the value, or another name, costs less than 1 %."""
        if self.low is not None and self.high is not None:
            return self.high >= 2.0 * self.low
        return len(self.as_good) > 1

    @property
    def as_good(self) -> list[TunableValue]:
        """The values that need nothing and whose iteration is within 1 % of the shortest."""
        limit_s = self.fastest_s * (1.0 + FLAT_SHARE)
        return [
            value
            for value, seconds in self.curve
            if seconds <= limit_s and str(value) not in self.needs
        ]

    @property
    def faster_elsewhere(self) -> list[tuple[TunableValue, float]]:
        """The values that would be faster if the cluster or the program had what they need."""
        return [one for one in self.curve if str(one[0]) in self.needs and one[1] < self.fastest_s]

    @property
    def short(self) -> list[IntervalChoice]:
        """The intervals with which most published results fell short of S-SGD's quality."""
        return [one for one in self.intervals if one.epochs.fell_short]

    @property
    def advised_fell_short(self) -> bool:
        """Whether the advised value is the best by time alone, as results with it fell short."""
        return self.advised in [float(one.interval) for one in self.short]

    @property
    def by_time_alone(self) -> bool:
        """Whether the epochs that training needs with the advised interval are not known."""
        return any(one.interval == self.advised and not one.epochs.known for one in self.intervals)

    @property
    def idle(self) -> bool:
        """Whether the value makes no difference."""
        times = [seconds for _, seconds in self.curve]
        return max(times) <= min(times) * (1.0 + _SAME_TIME)

    @property
    def at_end(self) -> bool:
        """Whether the fastest value is an end of the range that was searched."""
        ends = (self.curve[0][0], self.curve[-1][0])
        return self.low is not None and self.fastest in ends

    @property
    def gain(self) -> float:
        """Share of the iteration that the advised value saves over the one asked for."""
        return 1.0 - self.advised_s / self.asked_s

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data; ``value_unit`` is the unit of every value."""
        result = {
            "name": self.tunable.name,
            "value_unit": self.tunable.unit,
            "asked": {"value": self.asked, "iteration_s": self.asked_s},
            "fastest": {"value": self.fastest, "iteration_s": self.fastest_s},
            "advised": {"value": self.advised, "iteration_s": self.advised_s},
            "flat": self.flat,
            "within_1_percent": None if self.low is None else [self.low, self.high],
            "changes_convergence": bool(self.tunable.gentle),
            "caution": self.tunable.why,
            "curve": [{"value": value, "iteration_s": seconds} for value, seconds in self.curve],
            "beside": [
                {"fusion": name, "iteration_s": seconds}
                for name, seconds in self.other_fusion.items()
            ],
            "refused": self.refused,
            "needs": self.needs,
        }
        if self.enough is not None:
            result["rule"] = {
                "added_share_limit": self.enough.limit,
                "smallest_iterations": self.enough.interval,
                "by_formula": self.enough.by_formula,
                "predictions": self.enough.predictions,
                "kept_as_asked": self.fixed,
                "fell_short": self.advised_fell_short,
            }
            result["intervals"] = [one.to_dict() for one in self.intervals]
        return result


def value_words(tuned: TunedValue, value: TunableValue) -> str:
    """Return a value with its unit."""
    if isinstance(value, str):
        return value
    if tuned.tunable.unit == "bytes":
        unit = _unit_of_bytes(value)
        return f"{value / unit:.{_BYTE_DIGITS}g} {'MiB' if unit == 2.0**20 else 'KiB'}"
    return f"{value:.{_DIGITS}g}" if not tuned.tunable.whole else f"{value:g}"


@dataclass(frozen=True, repr=False)
class Tuning(Displayed):
    """The best value of each thing that was tuned; `to_dict` has it as plain data, `plot` draws it.

    ``iteration_s`` is that of the scenario as asked, None where that trains other samples, does not
    fit in memory or cannot run. ``parallelism`` is what was searched in place of single values.
    """

    scenario: ResolvedScenario
    iteration_s: float | None
    tuned: list[TunedValue]
    notes: list[str]
    parallelism: ParallelSearch | None = None

    def __repr__(self) -> str:
        """Return the question and the answer on one line."""
        scenario, searched = self.scenario, self.parallelism
        as_asked = (
            "" if self.iteration_s is None else f"{format_seconds(self.iteration_s)} as asked"
        )
        if searched is not None:
            way = searched.best.tried
            took = f"{way.method}, {way.division.words}: {format_seconds(way.iteration_s)}"
            return f"<Tuning {scenario.place}: {'; '.join(filter(None, (as_asked, took)))}>"
        if not self.tuned or self.best.gain < FLAT_SHARE:
            return f"<Tuning {scenario.words}: {as_asked}; no value saves 1 %>"
        best = self.best
        learns = ", and changes convergence" if best.tunable.gentle else ""
        learns = ", but published results fell short" if best.advised_fell_short else learns
        return (
            f"<Tuning {scenario.words}: {as_asked}; {best.tunable.name}"
            f" {value_words(best, best.advised)} takes {format_seconds(best.advised_s)}"
            f" (-{best.gain:.1%}{learns})>"
        )

    @property
    def best(self) -> TunedValue:
        """The one change that saves most; the first if several do."""
        return max(self.tuned, key=lambda one: one.gain)

    def records(self) -> list[dict[str, Any]]:
        """Return each value that was tried as a flat record, with units in the names.

        ``value`` is in ``value_unit``; ``saved_ratio`` is the share of the iteration that it saves.
        Where ways to divide training were searched, a record is one of the best or of the front.
        """
        if self.parallelism is not None:
            return self.parallelism.records()
        return [
            {
                "tuned": one.tunable.name,
                "value": value,
                "value_unit": one.tunable.unit,
                "iteration_s": seconds,
                "saved_ratio": 1.0 - seconds / one.asked_s,
                "asked": value == one.asked,
                "fastest": value == one.fastest,
                "advised": value == one.advised,
                "within_1_percent": value in one.as_good,
                "needs": one.needs.get(str(value), ""),
            }
            for one in self.tuned
            for value, seconds in one.curve
        ]

    def plot(self, kind: str = "") -> Figure:
        """Draw the iteration over the values of one thing with Plotly (s, ms or us).

        Parameters
        ----------
        kind : what was tuned, such as "bucket"; "parallelism" for ways to divide training; "": the
            one change that saves most

        Raises
        ------
        RequestError
            If Plotly is not installed, or that was not tuned.

        Examples
        --------
        >>> from perfsim import Scenario, tune
        >>> figure = tune(Scenario(model="resnet50", gpus=64, net="1gbe"), ["bucket"]).plot()
        >>> figure.layout.xaxis.title.text
        'bucket size'
        """
        return self._plotted(kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the tuning as plain data, by the contract perfsim/tune/1."""
        searched = self.parallelism
        return {
            "schema": TUNE_SCHEMA,
            "scenario": self.scenario.to_dict(),
            "iteration_s": self.iteration_s,
            "tuned": [one.to_dict() for one in self.tuned],
            **({} if searched is None else {PARALLELISM: searched.to_dict()}),
            "notes": list(self.notes),
        }


def tune(
    scenario: Scenario | Mapping[str, Any],
    over: str | Sequence[str] = (),
    catalog: Catalog | None = None,
    *,
    ignore_memory: bool = False,
) -> Tuning:
    """Return the best value of each of ``over``, one at a time (default: all the method has).

    A dict of a scenario's fields is one too. ``over`` may be a text: one name, or several with
    commas between them.

    Sizes, densities, ranks and intervals are tried on a coarse grid in their logarithm, then by
    golden section between the neighbours of the best; algorithms all. ``ignore_memory`` tunes what
    needs more memory than the GPU has, too.

    Raises
    ------
    RequestError
        If the scenario cannot be predicted, has nothing of a name in ``over`` or does not fit.
    DataError
        If a data file is damaged.

    Examples
    --------
    >>> from perfsim import Scenario, tune
    >>> found = tune(Scenario(model="resnet50", gpus=64, net="1gbe"), ["bucket"]).tuned[0]
    >>> found.fastest_s <= min(seconds for _, seconds in found.curve)
    True
    """
    scenario, catalog = as_scenario(scenario), fresh(catalog)
    setup = resolve(scenario, catalog)
    available = {tunable.name: tunable for tunable in tunables(setup)}
    if isinstance(over, str):
        over = [name.strip() for name in over.split(",")]
    if not isinstance(over, Iterable):
        why = f"{shown(over)} is not a list of names; here there are {', '.join(available)}."
        raise RequestError("over", why, value=over)
    for name in over:
        if name not in available:
            raise refuse(str(name), setup)
    if setup.cluster.gpus == 1:
        raise RequestError("gpus", "1 GPU exchanges nothing, so there is nothing to tune.", value=1)
    if not ignore_memory:
        check_fits(setup, memory_use(setup))
    asked_s = _iteration_s(setup)
    tuned, notes = [], []
    for name in TUNABLES:
        if name not in (over or available):
            continue
        try:
            tuned.append(_tuned(setup, available[name], asked_s, catalog, fits=not ignore_memory))
        except RequestError as error:
            if over:
                raise
            notes.append(f"{name} is left out: {error}")
    return Tuning(setup.resolved_scenario(), asked_s, tuned, [*notes, *_notes(setup, tuned)])


def tune_parallelism(
    scenario: Scenario | Mapping[str, Any],
    catalog: Catalog | None = None,
    *,
    by: str = "time",
    global_batch: int | None = None,
    gpus_up_to: int | None = None,
    ignore_memory: bool = False,
    tell: ReportMethod | None = None,
) -> Tuning:
    """Return the best ways to divide a model and its training among GPUs.

    The parameters are those of `perfsim.planning.parallelism.search_parallelism`.

    Raises
    ------
    RequestError
        If the model cannot be divided, no division keeps the global batch, or none fits.
    DataError
        If a data file is damaged.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> asked = Scenario(model="llama3-8b", gpus=16, node="dgx-h100", net="dgx-h100", tp=8)
    >>> found = tune_parallelism(asked, global_batch=32).parallelism
    >>> found.best.tried.division.tp, found.best.tried.samples
    (8, 32)
    """
    fields = with_tp_of_experts(scenario) if isinstance(scenario, Mapping) else scenario
    scenario, catalog = as_scenario(fields), fresh(catalog)
    found = search_parallelism(
        scenario,
        catalog,
        by=by,
        global_batch=global_batch,
        gpus_up_to=gpus_up_to,
        ignore_memory=ignore_memory,
        tell=tell,
    )
    asked_s = iteration_as_asked(scenario, found.global_batch, catalog)
    own = resolve(found.best.tried.scenario, catalog).notes
    return Tuning(found.asked, asked_s, [], [*_search_notes(scenario, found), *own], found)


def _search_notes(scenario: Scenario, found: ParallelSearch) -> list[str]:
    """Say what a search of parallelism keeps, and what it leaves out."""
    notes = []
    if found.fixed:
        kept = ", ".join(f"`{name}` {getattr(scenario, name)}" for name in found.fixed)
        notes.append(f"{kept}: as the scenario says; leave it out to have it searched.")
    tokens = f" ({found.tokens * found.global_batch:,} tokens)" if found.tokens else ""
    notes.append(
        f"All ways train {found.global_batch:,} samples{tokens} an iteration (`global_batch`), so"
        " that they learn alike."
    )
    fixed = fixed_fields(scenario)
    if "method" in fixed and method_class(scenario.method).lossy:
        notes.append("Time per iteration only: the method changes what is learnt.")
    if "schedule" not in fixed and max(one.tried.division.pp for one in found.ranked) > 1:
        notes.append("Pipelines are 1f1b or interleaved; `schedule` asks for another.")
    if len(found.gpus) == 1:
        notes.append(f"The front ends at {FRONT_LIMIT:g} times the shortest iteration.")
    return notes


def with_best(scenario: Scenario, tuning: Tuning, catalog: Catalog | None = None) -> Prediction:
    """Return the prediction of a scenario with the one change that saves most, or best divided.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> asked = Scenario(model="resnet50", gpus=64, net="1gbe", method="powersgd")
    >>> tuning = tune(asked, ["rank"])
    >>> with_best(asked, tuning).iteration_s == tuning.best.advised_s
    True
    """
    catalog = fresh(catalog)
    if tuning.parallelism is not None:
        return predict(tuning.parallelism.best.tried.scenario, catalog)
    tunable, value = tuning.best.tunable, tuning.best.advised
    changed = with_value(resolve(scenario, catalog), tunable, value).scenario
    if tunable.name == "bucket" and value != tuning.best.asked:
        changed = changed.model_copy(update={"bucket": f"{float(value)!r}B"})
    return predict(changed if value != tuning.best.asked else scenario, catalog)


def _iteration_s(setup: Setup) -> float:
    return steady_s(build_rounds(setup, timing_only=True))


def _tuned(
    setup: Setup, tunable: Tunable, asked_s: float, catalog: Catalog, *, fits: bool
) -> TunedValue:
    """Tune one thing; ``fits`` says whether a value must fit into memory."""
    if tunable.name == "interval" and interval_of(setup) is not None and not why_unknown(setup):
        return _intervals(setup, tunable, asked_s, catalog)
    if tunable.name == "algorithm":
        return _names(setup, tunable, asked_s)
    return _numbers(setup, tunable, asked_s, fits=fits)


def _intervals(setup: Setup, tunable: Tunable, asked_s: float, catalog: Catalog) -> TunedValue:
    """List intervals; advise the smallest whose exposed exchanges add little, or what is set."""
    enough = interval_within(setup, EXPOSED_LIMITS[0])
    more = [] if enough.interval is None else [enough.interval]
    choices = interval_choices(setup, catalog, more)
    curve: list[tuple[TunableValue, float]] = [
        (float(one.interval), one.iteration_s) for one in choices
    ]
    fastest, fastest_s = min(curve, key=lambda one: (one[1], one[0]))
    good = [float(value) for value, seconds in curve if seconds <= fastest_s * (1.0 + FLAT_SHARE)]
    asked = float(current(setup, tunable))
    fixed = tunable.name in setup.scenario.options
    keep = fixed or enough.interval is None
    advised = asked if keep else float(more[0])
    return TunedValue(
        tunable,
        asked,
        asked_s,
        curve,
        fastest,
        fastest_s,
        advised,
        dict(curve)[advised],
        good[0],
        good[-1],
        intervals=choices,
        enough=enough,
        fixed=fixed,
    )


def _names(setup: Setup, tunable: Tunable, asked_s: float) -> TunedValue:
    """Try all algorithms, and rank them by time."""
    curve: list[tuple[TunableValue, float]] = []
    refused: dict[str, str] = {}
    needs = {name: why for name, why in choices(setup).items() if why}
    for name in choices(setup):
        try:
            curve.append((name, _iteration_s(with_value(setup, tunable, name))))
        except RequestError as error:
            why = error.why if error.field == "algorithm" else str(error)
            refused[name] = why.removesuffix(".")
    curve.sort(key=lambda one: one[1])
    asked = current(setup, tunable)
    usable = [one for one in curve if one[0] not in needs]
    # Another algorithm must be worth the change: where it saves less than 1 %, the asked one stays.
    advised = (asked, asked_s)
    if usable and usable[0][1] < asked_s / (1.0 + FLAT_SHARE):
        advised = usable[0]
    fastest = (usable or curve)[0]
    return TunedValue(
        tunable,
        asked,
        asked_s,
        curve,
        *fastest,
        *advised,
        None,
        None,
        refused=refused,
        needs=needs,
    )


def _numbers(setup: Setup, tunable: Tunable, asked_s: float, *, fits: bool) -> TunedValue:
    """Search the best number of those that fit, and the range around it that is within 1 %."""
    refusals: list[RequestError] = []

    def iteration_s(value: float) -> float | None:
        other = with_value(setup, tunable, value)
        try:
            if fits:
                check_fits(other, memory_use(other))
            return _iteration_s(other)
        except RequestError as error:
            refusals.append(error)
            return None

    asked = float(current(setup, tunable))
    curve: SearchCurve = {}
    for number in (*log_grid(tunable.low, tunable.high, tunable.factor), asked):
        value = number if number == asked else tunable.shown(number)
        if value not in curve:
            curve[value] = iteration_s(value)
    if all(seconds is None for seconds in curve.values()):
        raise refusals[0]
    refine(curve, iteration_s, _SEARCH_STEPS, tunable.shown)
    low, high = _flat_range(curve, iteration_s, tunable.shown)
    fastest = _least(curve)
    tried = dict(sorted((value, one) for value, one in curve.items() if one is not None))
    advised = {"high": high, "low": low, "": fastest}[tunable.gentle]
    return TunedValue(
        tunable,
        asked,
        asked_s,
        [*tried.items()],
        fastest,
        tried[fastest],
        advised,
        tried[advised],
        low,
        high,
        _other_fusion(setup) if tunable.name == "bucket" else {},
        beside=_first_bucket(setup, tunable, advised),
    )


def _first_bucket(setup: Setup, tunable: Tunable, advised: float) -> str:
    """Return the option without which another size of buckets would change the first one too."""
    first = setup.first_bucket_bytes
    if tunable.name != "bucket" or first is None:
        return ""
    return f"fusion.first_bucket={min(first, advised) / 2**20:g}MiB"


def _flat_range(
    curve: SearchCurve,
    function: Callable[[float], float | None],
    shown: Callable[[float], float],
) -> tuple[float, float]:
    """Return the ends of the range around the least result that is within 1 % of it.

    The search for an end may find a smaller result; then both are searched again.
    """
    search = partial(edge, curve, function, sorted(curve), steps=_SEARCH_STEPS, shown=shown)
    low = high = least = math.inf
    for _ in range(_MAX_RANGE_SEARCHES):
        before, least = least, curve[_least(curve)] or 0.0
        if least >= before * (1.0 - _SAME_TIME):
            break
        limit = least * (1.0 + FLAT_SHARE)
        low, high = search(limit, rising=False), search(limit, rising=True)
    return low, high


def _other_fusion(setup: Setup) -> dict[str, float]:
    """Return the iteration with each fusion policy that sizes buckets by itself [s]."""
    times = {}
    for name in _SELF_SIZING_FUSION:
        scenario = setup.scenario.model_copy(update={"fusion_options": {}})
        policy = fusion.load_policy(name)
        other = replace(setup, scenario=scenario, policy_name=name, policy=policy, limit_bytes=None)
        try:
            times[name] = _iteration_s(other)
        except RequestError:
            continue
    return times


def _notes(setup: Setup, tuned: Sequence[TunedValue]) -> list[str]:
    notes = ["Each value is tuned alone, with all else as asked."] if len(tuned) > 1 else []
    if any(one.tunable.name == "bucket" for one in tuned) and setup.first_bucket_bytes is not None:
        notes.append(
            "The first bucket stays at 1 MiB, as in PyTorch's default. `bucket` alone would change"
            " it too: add `options` fusion.first_bucket=1MiB."
        )
    changes_training = any(one.tunable.gentle for one in tuned)
    if setup.scenario.single_gpu_kernels and changes_training:
        notes.append(
            "The kernels take what `single_gpu_kernels` says at every value; leave it out to let"
            " them change."
        )
    if any(one.enough is not None for one in tuned):
        notes.append(
            f"The smallest interval is taken whose exposed exchanges add at most"
            f" {EXPOSED_LIMITS[0]:.0%} to the iterations between them; one that `options` sets is"
            " kept. No interval is best by time alone: a longer one is always as fast, and learns"
            " differently."
        )
    if any(one.tunable.gentle and one.enough is None for one in tuned):
        notes.append(
            "Where a value changes convergence, the gentlest within 1 % of the shortest iteration"
            " is advised. Only training can say whether it learns as well."
        )
    elif method_class(setup.scenario.method).lossy and not changes_training:
        notes.append("Time per iteration only: the method changes what is learnt.")
    return [*notes, *setup.notes]


def tunables(setup: Setup) -> list[Tunable]:
    """Return what can be tuned in a scenario."""
    options = method_class(setup.scenario.method).model_fields
    result = []
    for name, tunable in TUNABLES.items():
        if name == "bucket":
            if setup.policy.limit_bytes is not None:
                # From the whole model's size on there is one bucket.
                whole = max(_shown_above(setup.profile.size_bytes), 2.0 * tunable.low)
                result.append(replace(tunable, high=min(tunable.high, whole)))
        elif name == "algorithm" or name in options:
            result.append(tunable)
    return result


def current(setup: Setup, tunable: Tunable) -> TunableValue:
    """Return the value that the scenario has."""
    if tunable.name == "bucket":
        return setup.limit_bytes or setup.policy.limit_bytes or 0.0
    if tunable.name == "algorithm":
        return setup.scenario.algorithm
    return float(getattr(setup.method, tunable.name))


def choices(setup: Setup) -> dict[str, str]:
    """Return auto and the library's algorithms of all-reduce, with what each needs.

    "" for those that the library chooses by itself.
    """
    library = find_library(setup.cluster.library)
    own = library.considered("all_reduce")
    names = library.names("all_reduce")
    needs = {name: library.algorithm("all_reduce", name).needs for name in names}
    return {AUTO: ""} | {name: "" if name in own else needs[name] for name in names}


def with_value(setup: Setup, tunable: Tunable, value: TunableValue) -> Setup:
    """Return the setup with something set to a value.

    Raises
    ------
    RequestError
        If the method does not take it.
    """
    scenario = setup.scenario
    if tunable.name == "bucket":
        first = setup.first_bucket_bytes
        if first is not None:
            sizes = {**scenario.fusion_options, "first_bucket": f"{min(first, float(value)):.0f}B"}
            scenario = scenario.model_copy(update={"fusion_options": sizes})
        return replace(setup, scenario=scenario, limit_bytes=float(value))
    if tunable.name == "algorithm":
        changed = scenario.model_copy(update={"algorithm": str(value)})
        return replace(setup, scenario=changed)
    given = str(int(value)) if tunable.whole else value
    options = {**scenario.options, tunable.name: given}
    method = load_method(method_name(scenario.method), options)
    changed = scenario.model_copy(update={"options": options})
    return replace(setup, scenario=changed, method=method)


def refuse(name: str, setup: Setup) -> RequestError:
    """Build the error for something that this scenario cannot be tuned over."""
    result = [one.name for one in tunables(setup)]
    method = method_name(setup.scenario.method)
    if name == PARALLELISM:
        return RequestError(
            "over", f"{name!r} is searched by itself; leave the other names out.", value=name
        )
    if name not in TUNABLES:
        return unknown("over", name, (*TUNABLES, PARALLELISM))
    if name == "bucket":
        return RequestError(
            "over",
            f"'bucket' has no meaning with fusion {setup.policy_name!r}, which sizes buckets;"
            f" here: {', '.join(result)}.",
            value=name,
        )
    return RequestError("over", f"{method!r} has no {name}; it has {', '.join(result)}.")


def log_grid(low: float, high: float, factor: float) -> list[float]:
    """Return ``low`` and every ``factor`` times the one before, up to ``high``, which is the last.

    Examples
    --------
    >>> log_grid(1.0, 10.0, 2.0)
    [1.0, 2.0, 4.0, 8.0, 10.0]
    """
    steps = math.ceil(math.log(high / low) / math.log(factor) - 1e-9)
    return [float(f"{low * factor**step:.12g}") for step in range(steps)] + [high]


def refine(
    curve: SearchCurve,
    function: Callable[[float], float | None],
    steps: int,
    shown: Callable[[float], float] = float,
) -> None:
    """Search a smaller result between the neighbours of the least one, by golden section.

    Calls ``function`` at most ``steps`` times and adds its results to ``curve``. Steps are in the
    logarithm of the argument, only at values that ``shown`` returns. A function with one minimum is
    narrowed to 0.618 of the interval a step; for another, the best point so far is never lost.

    It is not scipy.optimize.minimize_scalar, which knows no points that were evaluated before, no
    rounded values, and no arguments at which the function has no value.

    Examples
    --------
    >>> curve = {1.0: 9.0, 10.0: 4.0, 100.0: 8.0}
    >>> refine(curve, lambda value: (value - 20.0) ** 2, 25)
    >>> round(min(curve, key=curve.get), 1)
    20.0
    """

    def at(log_value: float) -> float:
        value = shown(math.exp(log_value))
        if value not in curve:
            curve[value] = function(value)
        result = curve[value]
        return math.inf if result is None else result

    held = [value for value in sorted(curve) if curve[value] is not None]
    if len(held) < 2:
        return
    middle = held.index(_least(curve))
    low = math.log(held[max(0, middle - 1)])
    high = math.log(held[min(len(held) - 1, middle + 1)])
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    before, after = at(left), at(right)
    for _ in range(max(0, steps - 2)):
        if before <= after * (1.0 + _SAME_TIME):
            high, right, after = right, left, before
            left = high - _GOLDEN * (high - low)
            before = at(left)
        else:
            low, left, before = left, right, after
            right = low + _GOLDEN * (high - low)
            after = at(right)


def edge(
    curve: SearchCurve,
    function: Callable[[float], float | None],
    grid: Sequence[float],
    limit: float,
    *,
    rising: bool,
    steps: int,
    shown: Callable[[float], float] = float,
) -> float:
    """Return the argument farthest from the minimum, on one side, with a result within ``limit``.

    Follows the curve from the minimum (upwards if ``rising``) over ``grid`` while results are
    within the limit, half-way between its points too, where there may be a step; then halves the
    last gap ``steps`` times, in the logarithm.

    Examples
    --------
    >>> points = {1.0: 1.0, 10.0: 1.0, 100.0: 10.0}
    >>> result = edge(
    ...     points, lambda value: value / 10.0, [1.0, 10.0, 100.0], 2.0, rising=True, steps=30)
    >>> round(result, 3)
    20.0
    """

    def within(value: float) -> bool:
        if value not in curve:
            curve[value] = function(value)
        result = curve[value]
        return result is not None and result <= limit

    def between(one: float, other: float) -> float:
        return shown(math.sqrt(one * other))

    near = _least(curve)
    order = sorted({*grid, near}, reverse=not rising)
    beyond = None
    for value in order[order.index(near) + 1 :]:
        outside = [one for one in (between(near, value), value) if not within(one)]
        if outside:
            beyond = outside[0]
            break
        near = value
    for _ in range(steps if beyond is not None else 0):
        assert beyond is not None
        middle = between(near, beyond)
        if middle in (near, beyond):
            break
        if within(middle):
            near = middle
        else:
            beyond = middle
    return near


def _least(curve: SearchCurve) -> float:
    """Return the argument of the least result; of those with the same one, the smallest."""
    known = {value: result for value, result in curve.items() if result is not None}
    limit = min(known.values()) * (1.0 + _SAME_TIME)
    return min(value for value, result in known.items() if result <= limit)
