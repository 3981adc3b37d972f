"""tune(): the value of each thing that can be set which makes an iteration shortest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from perfsim import fusion
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError, unknown
from perfsim.fusion.size import FIRST_LIMIT_BYTES
from perfsim.libraries import AUTO
from perfsim.libraries import library as find_library
from perfsim.methods import load_method, method_class, method_name
from perfsim.prediction import Prediction, predict
from perfsim.resolve import ResolvedScenario, Setup, resolve
from perfsim.scenario import Scenario
from perfsim.schedule.rounds import build_rounds
from perfsim.session import default_session
from perfsim.what_if import steady_s

__all__ = [
    "FLAT",
    "KNOBS",
    "TUNE_SCHEMA",
    "SearchCurve",
    "Tunable",
    "TunableValue",
    "Tuned",
    "Tuning",
    "choices",
    "current",
    "edge",
    "first_bucket",
    "knobs",
    "log_grid",
    "refine",
    "refuse",
    "tune",
    "with_best",
    "with_value",
]

TunableValue = float | str
"""Bytes of a bucket, a share, a whole number (as a float), or an algorithm's name."""


@dataclass(frozen=True, slots=True)
class Tunable:
    """Something that can be set, and where to look for its best value.

    Parameters
    ----------
    name : bucket, density, rank, interval or algorithm
    unit : of its values, for column names ("bytes"; "" for numbers and names)
    low, high : the range looked at; both 0 for names
    factor : from one place of the coarse grid to the next
    whole : whether only whole numbers are allowed
    gentle : which end changes learning least, "high" or "low"; "" where it changes nothing
    why : what it does to learning, as a sentence
    """

    name: str
    unit: str = ""
    low: float = 0.0
    high: float = 0.0
    factor: float = 2.0
    whole: bool = False
    gentle: str = ""
    why: str = ""


KNOBS: dict[str, Tunable] = {
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
"""In the order in which they are shown."""


def knobs(resolved: Setup) -> list[Tunable]:
    """Return what can be tuned in a scenario."""
    options = method_class(resolved.scenario.method).model_fields
    found = []
    for name, knob in KNOBS.items():
        if name == "bucket":
            if resolved.policy.LIMIT_BYTES is not None:
                # Beyond the whole model all sizes are one bucket.
                whole = resolved.profile.size_bytes
                found.append(replace(knob, high=min(knob.high, max(whole, 2.0 * knob.low))))
        elif name == "algorithm" or name in options:
            found.append(knob)
    return found


def current(resolved: Setup, knob: Tunable) -> TunableValue:
    """Return the value that the scenario has."""
    if knob.name == "bucket":
        return resolved.limit_bytes or resolved.policy.LIMIT_BYTES or 0.0
    if knob.name == "algorithm":
        return resolved.scenario.algorithm
    return float(getattr(resolved.method, knob.name))


def choices(resolved: Setup) -> dict[str, str]:
    """Return auto and the algorithms of all-reduce that the library has, with what each needs.

    "" for those that the library takes by itself.
    """
    library = find_library(resolved.cluster.library)
    own = library.considered("all_reduce")
    names = library.names("all_reduce")
    needs = {name: library.algorithm("all_reduce", name).needs for name in names}
    return {AUTO: ""} | {name: "" if name in own else needs[name] for name in names}


def first_bucket(resolved: Setup) -> float | None:
    """Return DDP's first bucket where its default holds, which a size for all would change [B]."""
    if resolved.policy_name != "size" or resolved.limit_bytes is not None:
        return None
    return None if "first_bucket" in resolved.scenario.fusion_options else FIRST_LIMIT_BYTES


def with_value(resolved: Setup, knob: Tunable, value: TunableValue) -> Setup:
    """Return the question with a knob at a value.

    Raises
    ------
    RequestError
        If the method does not take it.
    """
    scenario = resolved.scenario
    if knob.name == "bucket":
        first = first_bucket(resolved)
        if first is not None:
            sizes = {**scenario.fusion_options, "first_bucket": f"{min(first, float(value)):.0f}B"}
            scenario = scenario.model_copy(update={"fusion_options": sizes})
        return replace(resolved, scenario=scenario, limit_bytes=float(value))
    if knob.name == "algorithm":
        changed = scenario.model_copy(update={"algorithm": str(value)})
        return replace(resolved, scenario=changed)
    given = str(int(value)) if knob.whole else value
    options = {**scenario.options, knob.name: given}
    method = load_method(method_name(scenario.method), options)
    changed = scenario.model_copy(update={"options": options})
    return replace(resolved, scenario=changed, method=method)


def refuse(knob: str, resolved: Setup) -> RequestError:
    """Return the error for something that this scenario cannot be tuned over."""
    found = [one.name for one in knobs(resolved)]
    method = method_name(resolved.scenario.method)
    if knob not in KNOBS:
        return unknown("over", knob, KNOBS)
    if knob == "bucket":
        return RequestError(
            "over",
            f"'bucket' has no meaning with fusion {resolved.policy_name!r}, which sets its"
            f" own sizes; here: {', '.join(found)}.",
        )
    return RequestError("over", f"{method!r} has no {knob}; it has {', '.join(found)}.")


GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

SearchCurve = dict[float, float | None]
"""Place to value; None where the function has none."""


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
    value_at: Callable[[float], float | None],
    steps: int,
    *,
    whole: bool = False,
) -> None:
    """Look for a smaller value between the neighbours of the least one, by golden section.

    Asks ``value_at`` at most ``steps`` times more and adds what it says to ``curve``. In the
    logarithm of the place; at whole numbers only if asked. Of a function with one dip the place is
    found to the neighbours' distance times 0.618 a step; of another, what was on the curve already
    is never lost.

    Examples
    --------
    >>> curve = {1.0: 9.0, 10.0: 4.0, 100.0: 8.0}
    >>> refine(curve, lambda place: (place - 20.0) ** 2, 25)
    >>> round(min(curve, key=curve.get), 1)
    20.0
    """

    def at(log_place: float) -> float:
        place = math.exp(log_place)
        place = float(round(place)) if whole else place
        if place not in curve:
            curve[place] = value_at(place)
        found = curve[place]
        return math.inf if found is None else found

    held = [place for place in sorted(curve) if curve[place] is not None]
    if len(held) < 2:
        return
    middle = held.index(_least(curve))
    low = math.log(held[max(0, middle - 1)])
    high = math.log(held[min(len(held) - 1, middle + 1)])
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    before, after = at(left), at(right)
    for _ in range(max(0, steps - 2)):
        if before <= after:
            high, right, after = right, left, before
            left = high - GOLDEN * (high - low)
            before = at(left)
        else:
            low, left, before = left, right, after
            right = low + GOLDEN * (high - low)
            after = at(right)


def edge(
    curve: SearchCurve,
    value_at: Callable[[float], float | None],
    limit: float,
    *,
    rising: bool,
    steps: int,
    whole: bool = False,
) -> float:
    """Return the farthest place from the least on that side whose value is within ``limit``.

    Goes from the least along the curve (up if ``rising``) as long as values are within the limit,
    then halves the last gap ``steps`` times, in the logarithm.

    Examples
    --------
    >>> places = {1.0: 1.0, 10.0: 1.0, 100.0: 10.0}
    >>> found = edge(places, lambda place: place / 10.0, 2.0, rising=True, steps=30)
    >>> round(found, 3)
    20.0
    """

    def within(place: float) -> bool:
        found = curve[place]
        return found is not None and found <= limit

    order: Sequence[float] = sorted(curve, reverse=not rising)
    near = _least(curve)
    beyond = None
    for place in order[order.index(near) + 1 :]:
        if not within(place):
            beyond = place
            break
        near = place
    for _ in range(steps if beyond is not None else 0):
        assert beyond is not None
        middle = math.sqrt(near * beyond)
        middle = float(round(middle)) if whole else middle
        if middle in (near, beyond):
            break
        curve[middle] = curve[middle] if middle in curve else value_at(middle)
        if within(middle):
            near = middle
        else:
            beyond = middle
    return near


def _least(curve: SearchCurve) -> float:
    return min(
        (place for place in curve if curve[place] is not None),
        key=lambda place: (curve[place], place),
    )


FLAT = 0.01
"""Times within this share of the least are as good."""

NOTHING = 1e-9
"""Times nearer than this share are the same."""


@dataclass(frozen=True)
class Tuned:
    """One thing tuned, all else as asked.

    Parameters
    ----------
    knob : what it is
    asked, asked_s : its value in the scenario, and the iteration then [s]
    curve : (value, iteration [s]), by value; names fastest first
    fastest, fastest_s : the value with the shortest iteration, of names those that need nothing
    advised, advised_s : the same; where the value changes convergence, the gentlest value whose
        iteration is within 1 % of the shortest
    low, high : ends of the range around the fastest that is within 1 %; None for names
    beside : fusion policies that size buckets themselves, with their iterations [s]
    refused : names that cannot be used here, and why
    needs : names that the library does not take by itself, and what each needs; never advised
    """

    knob: Tunable
    asked: TunableValue
    asked_s: float
    curve: list[tuple[TunableValue, float]]
    fastest: TunableValue
    fastest_s: float
    advised: TunableValue
    advised_s: float
    low: float | None
    high: float | None
    beside: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    needs: dict[str, str] = field(default_factory=dict)

    @property
    def flat(self) -> bool:
        """Whether the optimum is flat: a factor of two in the value, or several names, tell 1 %."""
        if self.low is not None and self.high is not None:
            return self.high >= 2.0 * self.low
        return len(self.as_good) > 1

    @property
    def as_good(self) -> list[TunableValue]:
        """The values at hand whose iteration is within 1 % of the shortest."""
        limit_s = self.fastest_s * (1.0 + FLAT)
        return [
            value
            for value, seconds in self.curve
            if seconds <= limit_s and str(value) not in self.needs
        ]

    @property
    def faster_elsewhere(self) -> list[tuple[TunableValue, float]]:
        """The values that would be faster, had the cluster or the program what they need."""
        return [one for one in self.curve if str(one[0]) in self.needs and one[1] < self.fastest_s]

    @property
    def idle(self) -> bool:
        """Whether it makes no difference at all."""
        times = [seconds for _, seconds in self.curve]
        return max(times) <= min(times) * (1.0 + NOTHING)

    @property
    def at_end(self) -> bool:
        """Whether the fastest is an end of what was looked at."""
        ends = (self.curve[0][0], self.curve[-1][0])
        return self.low is not None and self.fastest in ends

    @property
    def gain(self) -> float:
        """Share of the iteration that the advised value saves over the one asked for."""
        return 1.0 - self.advised_s / self.asked_s

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; ``value_unit`` is that of every value."""
        return {
            "name": self.knob.name,
            "value_unit": self.knob.unit,
            "asked": {"value": self.asked, "iteration_s": self.asked_s},
            "fastest": {"value": self.fastest, "iteration_s": self.fastest_s},
            "advised": {"value": self.advised, "iteration_s": self.advised_s},
            "flat": self.flat,
            "within_1_percent": None if self.low is None else [self.low, self.high],
            "changes_convergence": bool(self.knob.gentle),
            "caution": self.knob.why,
            "curve": [{"value": value, "iteration_s": seconds} for value, seconds in self.curve],
            "beside": [{"fusion": name, "iteration_s": one} for name, one in self.beside.items()],
            "refused": self.refused,
            "needs": self.needs,
        }


TUNE_SCHEMA = "perfsim/tune/1"

STEPS = 16
"""Places that are tried between those of the coarse grid."""

BESIDE = ("mgwfbp", "optimal")
"""Fusion policies that size buckets by themselves, shown beside the best size."""


@dataclass(frozen=True)
class Tuning:
    """What `tune` found; `to_dict` is what ``tune --json`` prints."""

    scenario: ResolvedScenario
    iteration_s: float
    tuned: list[Tuned]
    notes: list[str]

    @property
    def best(self) -> Tuned:
        """The one change that saves most, the first of several."""
        return max(self.tuned, key=lambda one: one.gain)

    def to_dict(self) -> dict[str, Any]:
        """Return the tuning as plain data, by the contract perfsim/tune/1."""
        return {
            "schema": TUNE_SCHEMA,
            "scenario": self.scenario.to_dict(),
            "iteration_s": self.iteration_s,
            "tuned": [one.to_dict() for one in self.tuned],
            "notes": list(self.notes),
        }


def tune(scenario: Scenario, over: Sequence[str] = (), catalog: Catalog | None = None) -> Tuning:
    """Return the best value of each of ``over``, one at a time (default: all the method has).

    Sizes, densities, ranks and intervals are tried on a coarse grid in their logarithm, then by
    golden section between the neighbours of the best; algorithms all.

    Raises
    ------
    RequestError
        If the scenario cannot be predicted, or has nothing of a name in ``over``.
    DataError
        If a data file is damaged.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> found = tune(Scenario(model="resnet50", gpus=64, net="1gbe"), ["bucket"]).tuned[0]
    >>> found.fastest_s <= min(seconds for _, seconds in found.curve)
    True
    """
    resolved = resolve(scenario, catalog or default_session())
    has = {knob.name: knob for knob in knobs(resolved)}
    for name in over:
        if name not in has:
            raise refuse(name, resolved)
    if resolved.cluster.gpus == 1:
        raise RequestError("gpus", "1 GPU exchanges nothing, so that there is nothing to tune.")
    asked_s = _iteration_s(resolved)
    names = [name for name in KNOBS if name in (over or has)]
    tuned, notes = [], []
    for name in names:
        try:
            tuned.append(_tuned(resolved, has[name], asked_s))
        except RequestError as error:
            if over:
                raise
            notes.append(f"{name} is left out: {error}")
    return Tuning(resolved.resolved_scenario(), asked_s, tuned, [*notes, *_notes(resolved, tuned)])


def with_best(scenario: Scenario, found: Tuning, catalog: Catalog | None = None) -> Prediction:
    """Return the prediction of a scenario with the one change that saves most.

    Examples
    --------
    >>> from perfsim.scenario import Scenario
    >>> asked = Scenario(model="resnet50", gpus=64, net="1gbe", method="powersgd")
    >>> found = tune(asked, ["rank"])
    >>> with_best(asked, found).iteration_s == found.best.advised_s
    True
    """
    catalog = catalog or Catalog()
    knob, value = found.best.knob, found.best.advised
    changed = with_value(resolve(scenario, catalog), knob, value).scenario
    if knob.name == "bucket" and value != found.best.asked:
        changed = changed.model_copy(update={"bucket": f"{float(value)!r}B"})
    return predict(changed if value != found.best.asked else scenario, catalog)


def _iteration_s(resolved: Setup) -> float:
    return steady_s(build_rounds(resolved))


def _tuned(resolved: Setup, knob: Tunable, asked_s: float) -> Tuned:
    return (_names if knob.name == "algorithm" else _numbers)(resolved, knob, asked_s)


def _names(resolved: Setup, knob: Tunable, asked_s: float) -> Tuned:
    """Return the algorithms, fastest first."""
    curve: list[tuple[TunableValue, float]] = []
    refused: dict[str, str] = {}
    needs = {name: why for name, why in choices(resolved).items() if why}
    for name in choices(resolved):
        try:
            curve.append((name, _iteration_s(with_value(resolved, knob, name))))
        except RequestError as error:
            refused[name] = str(error).removeprefix("`algorithm`: ").removesuffix(".")
    curve.sort(key=lambda one: one[1])
    asked = current(resolved, knob)
    at_hand = [one for one in curve if one[0] not in needs]
    # A name must be worth it: where nothing is gained, the asked one stays.
    advised = (asked, asked_s)
    if at_hand and at_hand[0][1] < asked_s / (1.0 + FLAT):
        advised = at_hand[0]
    fastest = (at_hand or curve)[0]
    return Tuned(
        knob, asked, asked_s, curve, *fastest, *advised, None, None, refused=refused, needs=needs
    )


def _numbers(resolved: Setup, knob: Tunable, asked_s: float) -> Tuned:
    """Return the curve over numbers, its least value and the range within 1 % of it."""
    why: list[RequestError] = []

    def value_at(value: float) -> float | None:
        try:
            return _iteration_s(with_value(resolved, knob, value))
        except RequestError as error:
            why.append(error)
            return None

    asked = float(current(resolved, knob))
    curve: SearchCurve = {}
    for place in (*log_grid(knob.low, knob.high, knob.factor), asked):
        one = float(round(place)) if knob.whole else place
        if one not in curve:
            curve[one] = value_at(one)
    if all(found is None for found in curve.values()):
        raise why[0]
    refine(curve, value_at, STEPS, whole=knob.whole)
    least_s = min(found for found in curve.values() if found is not None)
    limit = least_s * (1.0 + FLAT)
    search = partial(edge, curve, value_at, limit, steps=STEPS, whole=knob.whole)
    low, high = search(rising=False), search(rising=True)
    held = sorted((place, found) for place, found in curve.items() if found is not None)
    fastest, fastest_s = min(held, key=lambda one: (one[1], one[0]))
    times = dict(held)
    advised = {"high": high, "low": low, "": fastest}[knob.gentle]
    beside = _beside(resolved) if knob.name == "bucket" else {}
    return Tuned(
        knob,
        asked,
        asked_s,
        [*held],
        fastest,
        fastest_s,
        advised,
        times[advised],
        low,
        high,
        beside,
    )


def _beside(resolved: Setup) -> dict[str, float]:
    """Return the iteration with fusion policies that size buckets by themselves [s]."""
    found = {}
    for name in BESIDE:
        scenario = resolved.scenario.model_copy(update={"fusion_options": {}})
        other = replace(
            resolved,
            scenario=scenario,
            policy_name=name,
            policy=fusion.load(name),
            limit_bytes=None,
        )
        try:
            found[name] = _iteration_s(other)
        except RequestError:
            continue
    return found


def _notes(resolved: Setup, tuned: Sequence[Tuned]) -> list[str]:
    notes = ["Each is tuned alone, all else as asked."] if len(tuned) > 1 else []
    if any(one.knob.name == "bucket" for one in tuned) and first_bucket(resolved) is not None:
        notes.append(
            "The first bucket stays at 1 MiB, as in PyTorch's default; `bucket` alone would change"
            " it too: add `options` fusion.first_bucket=1MiB."
        )
    if resolved.scenario.single_gpu_kernels and any(one.knob.gentle for one in tuned):
        notes.append(
            "The kernels take what `single_gpu_kernels` says at every value; leave it out to let"
            " them change."
        )
    if any(one.knob.gentle for one in tuned):
        notes.append(
            "What changes convergence is advised at its gentlest value within 1 % of the shortest"
            " iteration; whether it learns as well is for training to say."
        )
    elif method_class(resolved.scenario.method).lossy:
        notes.append("Time per iteration only: the method changes what is learnt.")
    return [*notes, *resolved.notes]
