"""Exchanges that are H iterations apart: what one costs, what of it shows, and which H hides it.

A method with an interval computes H iterations and exchanges once. Where an exchange takes the same
whatever H is, H iterations take H times an iteration between exchanges and the exposed part of one
exchange. This closed form gives the interval at which something is reached. The simulator then has
the last word: it is asked there and just below, and the interval is searched where it disagrees.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite
from typing import Any, NamedTuple, cast

from annotated_types import Le

from perfsim.conditions.ranks import slowed
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.methods import load_method, method_name
from perfsim.methods.base import Compute, Round, Send
from perfsim.methods.learning import Evidence, known_evidence, summaries
from perfsim.planning.break_even import on_scaled_network, scaled_rate
from perfsim.resolve import Setup
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import run
from perfsim.session import JobCache
from perfsim.sums import sum_in_order
from perfsim.time_to_accuracy import EpochsFactor, EpochsFactors, replicas_of
from perfsim.what_if import steady_s

__all__ = [
    "EXPOSED_LIMITS",
    "ExchangeCost",
    "ExchangeInterval",
    "ExchangeTime",
    "IntervalBreakEven",
    "IntervalChoice",
    "PeriodTime",
    "RateBreakEven",
    "exchange_cost",
    "interval_choices",
    "interval_of",
    "interval_within",
    "known_of_intervals",
    "mean_iteration_s",
    "period_time",
    "rate_within",
    "smallest_interval",
    "why_unknown",
    "with_interval",
]

EXPOSED_LIMITS = (0.1, 0.01)
"""What exposed exchanges may add to the iterations between them, as a share of these."""

_COPIES = ("copy_to_host", "copy_to_gpu")
"""Kernels that copy between a GPU and its host."""

_RATE_FACTOR = 1024.0
"""The network's rate is searched from so many times slower to so many times faster."""

_RATE_WIDTH = 1e-4
"""Relative accuracy of a rate."""

_STATED = re.compile(r"\bH=([0-9]{1,9})\b")
"""How the setting of a row of evidence states the interval."""

_SAME = 1e-12
"""A share below this is a rounding error."""


class ExchangeInterval(NamedTuple):
    """The option of a method that says how many iterations pass from one exchange to the next.

    ``asked`` is its value, ``longest`` the largest that is allowed. ``share`` is how much of
    training has such an interval: a method may begin with another phase.
    """

    option: str
    asked: int
    longest: int
    share: float


class PeriodTime(NamedTuple):
    """From one exchange to the next.

    Parameters
    ----------
    iterations : how many they are, on average
    inner_s : an iteration in which workers exchange nothing with each other [s]
    exposed_s : the exposed part of the exchange [s]: what it adds to the iterations
    """

    iterations: float
    inner_s: float
    exposed_s: float

    @property
    def added(self) -> float:
        """What the exposed exchange adds to the iterations, as a share of these."""
        return self.exposed_s / (self.iterations * self.inner_s)


class ExchangeTime(NamedTuple):
    """What the exchanges of one interval take, part by part; some may run beside others [s].

    Parameters
    ----------
    copies_s : copies between GPU and host
    kernels_s : the method's other kernels, and work of the host's CPUs
    network_s : collectives
    optimizer_s : the step of the outer optimizer
    """

    copies_s: float
    kernels_s: float
    network_s: float
    optimizer_s: float

    @property
    def busy_s(self) -> float:
        """All parts together [s]."""
        return sum_in_order(self)


@dataclass(frozen=True, slots=True)
class IntervalBreakEven:
    """The smallest interval at which something is reached.

    Parameters
    ----------
    limit : what exposed exchanges may add to the iterations between them, as a share of these;
        None where the iteration is to take no longer than S-SGD's
    interval : the value of the option; None where no allowed one reaches it
    iteration_s : the mean iteration there [s], at the longest interval where none reaches it
    added : what exposed exchanges add to the iterations there
    by_formula : whether the closed form gives the same
    predictions : how many were made to find it
    """

    limit: float | None
    interval: int | None
    iteration_s: float
    added: float
    by_formula: bool
    predictions: int


@dataclass(frozen=True, slots=True)
class RateBreakEven:
    """The rate of the network from which on exposed exchanges add at most a share.

    Parameters
    ----------
    limit : that share of the iterations between exchanges
    link : which link that is: "between sites", where there are none "between nodes", and where
        there is one node only "inside the node"
    rate : its own rate (`perfsim.planning.break_even.scaled_rate`) [B/s]
    low, high : the range that was searched, as factors of that rate
    factor : where in the range it is reached; None where nowhere, ``low`` where everywhere
    predictions : how many were made to find it
    """

    limit: float
    link: str
    rate: float | None
    low: float
    high: float
    factor: float | None
    predictions: int


@dataclass(frozen=True, slots=True)
class ExchangeCost:
    """What exchanging every so many iterations costs.

    Parameters
    ----------
    interval : the option and its value
    exchanges : in an interval: one for each part of the model that is exchanged by itself
    time : what they take, part by part
    period : from one to the next
    iteration_s, baseline_s : the mean iteration of the method and that of S-SGD [s]
    break_even : the intervals at which something is reached
    rate : the rate of the network that is enough for the interval asked for
    why_not : why nothing of this is known here, else ""
    """

    interval: ExchangeInterval
    exchanges: int = 0
    time: ExchangeTime | None = None
    period: PeriodTime | None = None
    iteration_s: float = 0.0
    baseline_s: float = 0.0
    break_even: tuple[IntervalBreakEven, ...] = ()
    rate: RateBreakEven | None = None
    why_not: str = ""

    @property
    def per_iteration(self) -> float:
        """How many intervals there are in an iteration, on average over training."""
        return self.interval.share / self.period.iterations if self.period else 0.0

    @property
    def share(self) -> float:
        """Share of a mean iteration in which exchanges are exposed."""
        if self.period is None:
            return 0.0
        return self.period.exposed_s * self.per_iteration / self.iteration_s

    @property
    def hidden_s(self) -> float:
        """What computation, or other parts of the exchange, hide of it [s]."""
        if self.time is None or self.period is None:
            return 0.0
        hidden_s = self.time.busy_s - self.period.exposed_s
        return hidden_s if hidden_s > _SAME * self.time.busy_s else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the costs as plain data."""
        interval = {
            "option": self.interval.option,
            "iterations": self.interval.asked,
            "longest_iterations": self.interval.longest,
            "share_of_training": self.interval.share,
        }
        if self.period is None or self.time is None:
            return interval | {"why_not": self.why_not}
        exposed_s = self.period.exposed_s
        return interval | {
            "mean_iterations": self.period.iterations,
            "inner_iteration_s": self.period.inner_s,
            "exchanges": self.exchanges,
            "exchange": self.time._asdict()
            | {
                "busy_s": self.time.busy_s,
                "exposed_s": exposed_s,
                "hidden_s": self.hidden_s,
            },
            "exposed_s_per_iteration": exposed_s * self.per_iteration,
            "share_of_iteration": self.share,
            "added_share": self.period.added,
            "break_even": [
                {
                    "against": "ssgd" if one.limit is None else "inner_iterations",
                    "added_share_limit": one.limit,
                    "iterations": one.interval,
                    "iteration_s": one.iteration_s,
                    "added_share": one.added,
                    "by_formula": one.by_formula,
                    "predictions": one.predictions,
                }
                for one in self.break_even
            ],
            "bandwidth": None if self.rate is None else _rate_block(self.rate),
        }


def _rate_block(found: RateBreakEven) -> dict[str, Any]:
    known = found.rate is not None and found.factor is not None
    return {
        "link": found.link,
        "added_share_limit": found.limit,
        "searched_factor": [found.low, found.high],
        "factor": found.factor,
        "rate_bytes_per_s": found.rate * found.factor if known else None,  # type: ignore[operator]
        "network_rate_bytes_per_s": found.rate,
        "predictions": found.predictions,
    }


@dataclass(frozen=True, slots=True)
class IntervalChoice:
    """An interval that may be taken.

    Parameters
    ----------
    interval : the value of the option
    iteration_s : the mean iteration with it [s]
    added : what exposed exchanges add to the iterations between them, as a share of these
    used_by : papers and codes that use it, "default" for the method's own
    evidence : rows of what is known of learning with it
    learning : what these rows say, a sentence for each source and measure
    epochs : what is known of the epochs that training needs with it
    """

    interval: int
    iteration_s: float
    added: float
    used_by: tuple[str, ...]
    evidence: int
    learning: tuple[str, ...]
    epochs: EpochsFactor

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as plain data."""
        return {
            "iterations": self.interval,
            "iteration_s": self.iteration_s,
            "added_share": self.added,
            "used_by": list(self.used_by),
            "evidence_rows": self.evidence,
            "learning": list(self.learning),
            "epochs": self.epochs.to_dict(),
        }


def known_of_intervals(setup: Setup, catalog: Catalog) -> dict[int, list[Evidence]]:
    """Return the rows of what is known of a method's learning, by the interval that they state.

    Rows that state none, or one that adapts, are left out.
    """
    name, option = method_name(setup.scenario.method), setup.method.interval_option
    found: dict[int, list[Evidence]] = {}
    for row in known_evidence(catalog):
        if row.method != name:
            continue
        stated = re.search(rf"\b{option}=([0-9]{{1,9}})\b", getattr(row, "options", ""))
        stated = stated or _STATED.search(row.setting)
        if stated:
            found.setdefault(int(stated[1]), []).append(row)
    return found


def interval_choices(
    setup: Setup, catalog: Catalog, more: Sequence[int] = ()
) -> list[IntervalChoice]:
    """Return what intervals cost, shortest first: powers of two, and those that are in use.

    Parameters
    ----------
    more : further intervals

    Raises
    ------
    RequestError
        If the method cannot run.
    """
    interval, method, jobs = interval_of(setup), setup.method, JobCache()
    assert interval is not None
    known = known_of_intervals(setup, catalog)
    factors = EpochsFactors(catalog, setup.scenario.model)
    own, options = method_name(setup.scenario.method), method.in_effect()
    cluster = setup.cluster.by_site() if method.sites_are_nodes else setup.cluster
    replicas = replicas_of(own, options, cluster.gpus, cluster.nodes)
    default = type(method).model_fields[interval.option].default
    used: dict[int, list[str]] = {default: ["default"]}
    for count, name in method.published_intervals.items():
        used.setdefault(count, []).append(name)
    # What others use is shown where the other options allow just that.
    exact = [one for one in (*used, *known) if method.interval_from(one) == one]
    powers = [2**power for power in range(interval.longest.bit_length())]
    counts = {method.interval_from(power) for power in (*powers, interval.longest)}
    counts |= {interval.asked, *exact, *more}
    choices = []
    for count in sorted(count for count in counts if count <= interval.longest):
        there, rows = with_interval(setup, count), known.get(count, [])
        choices.append(
            IntervalChoice(
                count,
                mean_iteration_s(there, jobs),
                period_time(there, jobs).added,
                tuple(used.get(count, ())),
                len(rows),
                tuple(summaries(rows)),
                factors.of(own, options | {interval.option: count}, replicas),
            )
        )
    return choices


def interval_of(setup: Setup) -> ExchangeInterval | None:
    """Return the interval of a setup's method; None where it exchanges in every iteration.

    Examples
    --------
    >>> from perfsim.resolve import resolve
    >>> from perfsim.scenario import Scenario
    >>> from perfsim.session import default_session
    >>> asked = Scenario(model="resnet50", gpus=16, net="1gbe", method="localsgd")
    >>> interval_of(resolve(asked, default_session()))
    ExchangeInterval(option='interval', asked=8, longest=1000000, share=1.0)
    """
    method = setup.method
    apart = method.interval_rounds()
    if not apart or setup.cluster.gpus == 1:
        return None
    option = method.interval_option
    field = type(method).model_fields[option]
    longest = next(int(cast("int", one.le)) for one in field.metadata if isinstance(one, Le))
    kinds = {kind for one in apart for kind in one.iterations}
    parts = [(one, one.count * len(one.iterations)) for one in method.rounds()]
    within = sum_in_order(count for one, count in parts if kinds.issuperset(one.iterations))
    share = within / sum_in_order(count for _, count in parts)
    return ExchangeInterval(option, int(getattr(method, option)), longest, share)


def with_interval(setup: Setup, count: int) -> Setup:
    """Return the setup with another interval.

    Raises
    ------
    RequestError
        If the method does not take it.
    """
    scenario, option = setup.scenario, setup.method.interval_option
    options = {**scenario.options, option: str(count)}
    method = load_method(method_name(scenario.method), options)
    changed = scenario.model_copy(update={"options": options})
    return replace(setup, scenario=changed, method=method)


def why_unknown(setup: Setup) -> str:
    """Return why exchanges cannot be priced apart from the iterations between them, or ""."""
    if setup.beside:
        return "other jobs are on the network, so that each exchange takes another time"
    if setup.parts:
        return "GPUs are of several types, and wait for each other at exchanges only"
    if setup.conditions is not None and setup.conditions.varies:
        return "GPUs vary by chance, and wait for each other at exchanges only"
    return ""


def period_time(setup: Setup, jobs: JobCache | None = None) -> PeriodTime:
    """Return what the iterations from one exchange to the next take."""
    return _period(*_rounds_apart(setup, jobs))


class _Apart(NamedTuple):
    """An iteration between exchanges, the rounds of an interval that exchange, and its length."""

    inner: CostedGraph
    exchanging: list[CostedGraph]
    iterations: float


def _rounds_apart(setup: Setup, jobs: JobCache | None) -> _Apart:
    """Build an iteration between exchanges and the rounds of an interval that exchange."""
    between, rounds = setup.method.between, setup.method.interval_rounds()
    exchanging = [one for one in rounds if set(one.iterations) != {between}]
    inner, *costed = build_rounds(setup, jobs, [Round((between,)), *exchanging])
    return _Apart(inner, costed, sum_in_order(one.count * len(one.iterations) for one in rounds))


def _period(inner: CostedGraph, exchanging: Sequence[CostedGraph], iterations: float) -> PeriodTime:
    inner_s = float(run(inner, brief=True).mean_period_s)
    exposed_s = sum_in_order(
        one.count * (float(run(one, brief=True).mean_period_s) - one.graph.iterations * inner_s)
        for one in exchanging
    )
    return PeriodTime(iterations, inner_s, exposed_s if exposed_s > _SAME * inner_s else 0.0)


def _exchange_time(setup: Setup, inner: CostedGraph, costed: Sequence[CostedGraph]) -> ExchangeTime:
    """Return what rounds have that as many inner iterations have not, part by part."""
    plain, parts = _parts(setup, inner), [0.0] * 4
    for one in costed:
        for at, (all_s, inner_s) in enumerate(zip(_parts(setup, one), plain, strict=True)):
            more_s = all_s - one.graph.iterations * inner_s
            parts[at] += one.count * (more_s if more_s > _SAME * all_s else 0.0)
    return ExchangeTime(*parts)


def _parts(setup: Setup, costed: CostedGraph) -> list[float]:
    """Return how long the tasks of a method take in a round: see ``ExchangeTime`` [s]."""
    copies_s = kernels_s = network_s = optimizer_s = 0.0
    for seconds, work in zip(slowed(costed), costed.work, strict=True):
        if work is None:
            continue
        if isinstance(work.stage, Send):
            network_s += seconds
            continue
        assert isinstance(work.stage, Compute)
        each = [(one, count * setup.device.cost(one).seconds) for one, count in work.kernels]
        total_s = sum_in_order(one_s for _, one_s in each)
        for kernel, one_s in each:
            spent_s = seconds * one_s / total_s if total_s else 0.0
            if kernel.outer:
                optimizer_s += spent_s
            elif kernel.name in _COPIES:
                copies_s += spent_s
            else:
                kernels_s += spent_s
    return [copies_s, kernels_s, network_s, optimizer_s]


def mean_iteration_s(setup: Setup, jobs: JobCache | None = None) -> float:
    """Return the mean iteration of a setup over all of training [s]."""
    return steady_s(build_rounds(setup, jobs, timing_only=True))


def smallest_interval(
    reaches: Callable[[int], bool],
    guess: float,
    longest: int,
    allowed: Callable[[int], int] = lambda count: count,
) -> tuple[int | None, int]:
    """Return the smallest interval that reaches something, and how many were tried.

    What one interval reaches, longer ones reach too. The search starts at ``guess``, goes up or
    down in steps that double, and halves the last step.

    Parameters
    ----------
    reaches : whether an interval reaches it
    guess : where it is expected; infinity where nowhere
    longest : the longest interval
    allowed : the shortest allowed interval of at least so many iterations

    Examples
    --------
    >>> smallest_interval(lambda count: count >= 300, 300.0, 10**6)
    (300, 2)
    >>> smallest_interval(lambda count: count >= 300, 20.0, 10**6, lambda count: -(-count // 7) * 7)
    (301, 14)
    >>> smallest_interval(lambda count: False, 20.0, 1000)[0] is None
    True
    """
    tried: dict[int, bool] = {}

    def at(count: int) -> bool:
        value = allowed(count)
        if value not in tried:
            tried[value] = reaches(value)
        return tried[value]

    last = longest
    while last > 1 and allowed(last) > longest:
        last -= 1
    if allowed(last) > longest:
        return None, 0
    start = min(last, max(1, ceil(guess))) if isfinite(guess) else last
    below, above, step = 0, last + 1, 1
    if at(start):
        above = start
        while above - 1 > below:
            count = max(1, above - step)
            if not at(count):
                below = count
                break
            above, step = count, 2 * step
    elif not at(last):
        return None, len(tried)
    else:
        below = start
        while below + 1 < above:
            count = min(last, below + step)
            if at(count):
                above = count
                break
            below, step = count, 2 * step
    while above - below > 1:
        middle = (above + below) // 2
        if at(middle):
            above = middle
        else:
            below = middle
    return (None if above > last else allowed(above)), len(tried)


def interval_within(
    setup: Setup,
    limit: float,
    jobs: JobCache | None = None,
    known: PeriodTime | None = None,
) -> IntervalBreakEven:
    """Return the smallest interval at which exposed exchanges add at most a share.

    Parameters
    ----------
    limit : that share of the iterations between exchanges
    known : what an interval takes as asked
    """
    period = known or period_time(setup, jobs)
    guess = period.exposed_s / (limit * period.inner_s)
    times: dict[int, PeriodTime] = {}

    def reaches(count: int) -> bool:
        times[count] = period_time(with_interval(setup, count), jobs)
        return times[count].added <= limit

    return _found(setup, limit, guess, reaches, lambda count: times[count], jobs)


def _as_fast(
    setup: Setup, interval: ExchangeInterval, cost: ExchangeCost, jobs: JobCache | None
) -> IntervalBreakEven:
    """Return the smallest interval at which the iteration takes no longer than S-SGD's."""
    period, limit_s = cost.period, cost.baseline_s
    assert period is not None
    exposed_s = interval.share * period.exposed_s
    spare_s = limit_s - cost.iteration_s
    # The mean iteration is what the longest interval leaves, and the exchange over the interval.
    inverse = 1.0 / period.iterations + (spare_s / exposed_s if exposed_s else spare_s)
    guess = 1.0 / inverse if inverse > 0 else float("inf")

    def reaches(count: int) -> bool:
        return mean_iteration_s(with_interval(setup, count), jobs) <= limit_s * (1 + _SAME)

    def there(count: int) -> PeriodTime:
        return period_time(with_interval(setup, count), jobs)

    return _found(setup, None, guess, reaches, there, jobs)


def _found(
    setup: Setup,
    limit: float | None,
    guess: float,
    reaches: Callable[[int], bool],
    period_at: Callable[[int], PeriodTime],
    jobs: JobCache | None,
) -> IntervalBreakEven:
    """Search an interval from where the closed form says it is."""
    interval = interval_of(setup)
    assert interval is not None
    allowed = setup.method.interval_from
    result, predictions = smallest_interval(reaches, guess, interval.longest, allowed)
    expected = None
    if isfinite(guess) and guess <= interval.longest:
        expected = allowed(max(1, ceil(guess * (1.0 - _SAME))))
    at = result
    if at is None:
        at = interval.longest
        while allowed(at) > interval.longest:
            at -= 1
    return IntervalBreakEven(
        limit,
        result,
        mean_iteration_s(with_interval(setup, at), jobs),
        period_at(at).added,
        expected == result,
        predictions,
    )


def rate_within(setup: Setup, limit: float) -> RateBreakEven:
    """Return the rate of the network from which on exposed exchanges add at most a share.

    The links between sites are scaled, without sites those between nodes, and on one node those
    inside it (see `perfsim.planning.break_even.on_scaled_network`); the library chooses anew.

    Parameters
    ----------
    limit : that share of the iterations between exchanges
    """
    cluster, jobs, tried = setup.cluster, JobCache(), 0

    def reaches(factor: float) -> bool:
        nonlocal tried
        tried += 1
        return period_time(on_scaled_network(setup, factor), jobs).added <= limit

    low, high = 1.0 / _RATE_FACTOR, _RATE_FACTOR
    link = "between nodes" if cluster.nodes > 1 else "inside the node"
    link = link if cluster.wide is None else "between sites"
    if not reaches(high):
        return RateBreakEven(limit, link, scaled_rate(setup), low, high, None, tried)
    if reaches(low):
        return RateBreakEven(limit, link, scaled_rate(setup), low, high, low, tried)
    below, above = low, high
    while above > below * (1.0 + _RATE_WIDTH):
        middle = (below * above) ** 0.5
        if reaches(middle):
            above = middle
        else:
            below = middle
    return RateBreakEven(limit, link, scaled_rate(setup), low, high, above, tried)


def exchange_cost(setup: Setup, iteration_s: float, baseline_s: float) -> ExchangeCost | None:
    """Return what exchanging every so many iterations costs; None where each iteration does.

    Parameters
    ----------
    iteration_s, baseline_s : the mean iteration of the method and of S-SGD [s]

    Raises
    ------
    RequestError
        If the method cannot run.

    Examples
    --------
    >>> from perfsim.prediction import predict
    >>> from perfsim.resolve import resolve
    >>> from perfsim.scenario import Scenario
    >>> from perfsim.session import default_session
    >>> asked = Scenario(model="resnet50", gpus=16, net="1gbe", method="localsgd")
    >>> found = predict(asked)
    >>> times = found.iteration_s, found.baseline_s
    >>> cost = exchange_cost(resolve(asked, default_session()), *times)
    >>> period = cost.period
    >>> round((8 * period.inner_s + period.exposed_s) / 8 / found.iteration_s, 9)
    1.0
    """
    interval = interval_of(setup)
    if interval is None:
        return None
    why_not = why_unknown(setup)
    if why_not:
        return ExchangeCost(interval, why_not=why_not)
    jobs = JobCache()
    apart = _rounds_apart(setup, jobs)
    between = setup.method.between
    exchanges = sum_in_order(
        one.count * sum(kind != between for kind in one.iterations)
        for one in setup.method.interval_rounds()
    )
    cost = ExchangeCost(
        interval,
        round(exchanges),
        _exchange_time(setup, apart.inner, apart.exchanging),
        _period(*apart),
        iteration_s,
        baseline_s,
    )
    even = [_as_fast(setup, interval, cost, jobs)]
    even += [interval_within(setup, limit, jobs, cost.period) for limit in EXPOSED_LIMITS]
    try:
        rate = rate_within(setup, EXPOSED_LIMITS[0])
    except RequestError:
        rate = None
    return replace(cost, break_even=tuple(even), rate=rate)
