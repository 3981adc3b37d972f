"""Search how to divide training among GPUs: the fastest ways that fit in memory.

A division is the degrees of tensor, pipeline, context and expert parallelism, the schedule of the
pipeline, the micro-batch, what the backward pass computes again, and how state is sharded among the
replicas, which have the rest of the GPUs. All divisions train the same samples in an iteration (the
global batch). What the scenario itself sets stays as it is.

The search leaves out only what cannot be among its answers:

- A larger micro-batch needs more memory than a smaller one that does not fit.
- An iteration takes at least its computation with the messages inside a replica. Before anything is
  divided, stages are taken for equal or better: the last one waits for a micro-batch to pass the
  others and back, T >= W / (1 - (1 - 1/m)^p) for m micro-batches of W seconds on p stages (m W / p
  where chunks are interleaved or backward passes are split). W is that of the smallest or of the
  largest micro-batch, whichever takes less time a sample. Once divided, it is the time of the whole
  pipeline. Only what may still be faster than the best so far, or smaller and hardly slower, gets
  a task graph.
- Where gradients are exchanged in every micro-batch, one takes as long as the other: an iteration
  of many is told by one of few, if three of these grow alike.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from perfsim.compute.recompute import RECOMPUTE
from perfsim.compute.slowest_gpu import pace_of
from perfsim.data.catalog import Catalog
from perfsim.data.tables import options_cell
from perfsim.errors import RequestError, spelled, unknown, unspelled
from perfsim.interval import NO_METHOD, Uncertainty, uncertainties
from perfsim.memory import MemoryUse, memory_use
from perfsim.model_parallel import ParallelSummary, parallel_summary
from perfsim.planning.divisions import (
    SEARCHED_FIELDS,
    Division,
    DivisionChain,
    DivisionSpace,
    PipelineSchedule,
    Sharding,
    division_space,
    fixed_fields,
    tokens_of,
    undivided,
    with_fields_set,
    with_gpus,
)
from perfsim.prediction import PredictedIteration, gathered_bytes, predict_iteration
from perfsim.ranking import ReportMethod, median_errors
from perfsim.resolve import ResolvedScenario, Setup, resolve
from perfsim.scenario import Scenario
from perfsim.schedule.model_parallel import laid_out_pipeline
from perfsim.schedule.rounds import build_rounds
from perfsim.session import fresh, job_cache
from perfsim.sums import sum_in_order
from perfsim.units import format_bytes
from perfsim.what_if import steady_s

__all__ = [
    "BY",
    "FRONT_LIMIT",
    "NothingFitsError",
    "ParallelSearch",
    "RankedDivision",
    "SearchCounts",
    "TriedDivision",
    "fastest_division",
    "iteration_as_asked",
    "predicted_division",
    "search_parallelism",
]

BY = ("time", "gpu-hours")
"""What the best division is best by."""

FRONT_LIMIT = 1.25
"""How many times as long as the fastest a division on the front may take. No source: chosen."""

_MAX_RANKED = 10
"""Divisions that are predicted in full."""

_MAX_GROWTH = 64
"""Most times as many GPUs that are tried where nothing fits. No source: chosen."""

_FEW = (2, 3, 4)
"""Micro-batches of the iterations by which one of more is told where each exchanges gradients."""

_SUM_ORDER = 1e-9
"""Sums of the same times in another order differ by less than this share."""

_WHOLE_PASSES = ("1f1b", "gpipe")
"""Schedules whose stages run a micro-batch through all of their blocks at once."""

_HOUR_S = 3600.0
_MILLION = 1e6


class NothingFitsError(RequestError):
    """No division fits into memory.

    Parameters
    ----------
    why : the sentence
    needed, usable : bytes of the division that needs least, and those that a GPU has for it
    state_fits : whether the state alone of any division fits
    """

    def __init__(self, why: str, needed: float, usable: float, *, state_fits: bool) -> None:
        super().__init__("", why)
        self.needed, self.usable, self.state_fits = needed, usable, state_fits


class TriedDivision(NamedTuple):
    """A division that was predicted: its iteration [s], and the memory of its fullest GPU [B]."""

    division: Division
    scenario: Scenario
    iteration_s: float
    memory_bytes: float
    usable_bytes: float
    method: str

    @property
    def gpu_s(self) -> float:
        """GPU seconds of an iteration."""
        return self.division.gpus * self.iteration_s

    @property
    def samples(self) -> int:
        """Samples of an iteration."""
        one = self.division
        return one.replicas * one.batch * one.accumulate

    @property
    def samples_per_s(self) -> float:
        """Samples a second."""
        return self.samples / self.iteration_s

    @property
    def gpu_hours_per_million(self) -> float:
        """GPU hours for a million samples."""
        return self.gpu_s / self.samples * _MILLION / _HOUR_S

    def by(self, what: str) -> float:
        """Return what it is ranked by: its time, or its GPU time [s]."""
        return self.gpu_s if what == "gpu-hours" else self.iteration_s

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, units in the names."""
        one = self.division
        return {
            "gpus": one.gpus,
            **{name: getattr(one, name) for name in ("tp", "pp", "cp", "ep", "etp")},
            "dp": one.replicas,
            "schedule": one.schedule if one.pp > 1 else None,
            "virtual_stages": one.chunks,
            "sharding": one.sharding.name,
            "method": self.method,
            "options": dict(self.scenario.options),
            **{name: getattr(one, name) for name in ("batch", "accumulate", "recompute")},
            "iteration_s": self.iteration_s,
            "samples_per_s": self.samples_per_s,
            "gpu_hours_per_million_samples": self.gpu_hours_per_million,
            "memory_bytes": self.memory_bytes,
            "memory_left_bytes": self.usable_bytes - self.memory_bytes,
        }


class RankedDivision(NamedTuple):
    """One of the best divisions, with its prediction, and the tokens of a sample if it has any.

    ``close`` says whether it may be as good as the best, for the error of such predictions.
    """

    tried: TriedDivision
    prediction: PredictedIteration
    parallel: ParallelSummary | None
    tokens: int | None
    close: bool = False

    @property
    def waits_s(self) -> dict[str, float]:
        """What computation waits for in an iteration [s], by group; ``dp`` is the exchange."""
        waits = dict(self.parallel.waits_s) if self.parallel else {}
        exposed_s = self.prediction.breakdown_s["communication_exposed"]
        return {**waits, "dp": max(0.0, exposed_s - sum_in_order(waits.values()))}

    @property
    def bubble_s(self) -> float:
        """Computation of other stages that it waits for in an iteration [s]."""
        return self.parallel.bubble_s if self.parallel else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, units in the names."""
        tokens_per_s = self.tokens and self.tokens * self.prediction.samples_per_s
        return {
            **self.tried.to_dict(),
            "iteration_s_interval": list(self.prediction.iteration_s_interval),
            "tokens_per_s": tokens_per_s,
            "bubble_s": self.bubble_s,
            "exposed_s": self.waits_s,
            "breakdown_s": self.prediction.breakdown_s,
            "too_close_to_call": self.close,
        }


@dataclass
class SearchCounts:
    """How many divisions there are, and what became of them.

    Parameters
    ----------
    divisions : all that were considered
    predicted : those with a task graph
    too_large : those that do not fit in memory
    slower : those that fit, or may fit, and cannot be among the answers
    refused : those that cannot run, by reason, with fields in backticks
    skipped : layouts that no division can have, by reason
    """

    divisions: int = 0
    predicted: int = 0
    too_large: int = 0
    slower: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, other: SearchCounts) -> None:
        """Add the counts of another search."""
        self.divisions += other.divisions
        self.predicted += other.predicted
        self.too_large += other.too_large
        self.slower += other.slower
        self.refused += other.refused
        self.skipped += other.skipped

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "divisions": self.divisions,
            "predicted": self.predicted,
            "do_not_fit": self.too_large,
            "slower_by_a_bound": self.slower,
            "refused": {spelled(why): count for why, count in self.refused.most_common()},
            "skipped_layouts": dict(self.skipped.most_common()),
        }


@dataclass(frozen=True)
class ParallelSearch:
    """The best divisions of a scenario; `to_dict` has them as plain data.

    Parameters
    ----------
    asked : the scenario with every default filled in, its model undivided
    by : what the best is best by, of ``BY``
    global_batch : samples of an iteration over all GPUs
    tokens : of a sample; None for a model that takes none
    gpus : how many GPUs were tried
    ranked : the best divisions, best first, each with its best schedule
    front : those that nothing else beats in time and memory; of several numbers of GPUs, in time
        and GPU hours; fastest first
    counts : what became of all divisions
    fixed : the fields that the scenario sets, so that they were not searched
    known : whether the errors of such predictions are on record
    """

    asked: ResolvedScenario
    by: str
    global_batch: int
    tokens: int | None
    gpus: tuple[int, ...]
    ranked: list[RankedDivision]
    front: list[TriedDivision]
    counts: SearchCounts
    fixed: tuple[str, ...]
    known: bool

    @property
    def best(self) -> RankedDivision:
        """The best division."""
        return self.ranked[0]

    @property
    def close(self) -> int:
        """How many of the others that are ranked may be as good as the best."""
        return sum(one.close for one in self.ranked)

    def verdict(self) -> str:
        """Say whether the best is surely the best."""
        others = len(self.ranked) - 1
        if not others:
            return "It is the only one that fits."
        why = "the difference is within the error of such predictions"
        if not self.known:
            why = "their 90 % intervals overlap"
        if self.close:
            which = "each" if self.close == others else f"{self.close}"
            return f"Too close to call: {which} of the next {others} may be as good ({why})."
        return "The lead over the next exceeds the error of such predictions."

    def records(self) -> list[dict[str, Any]]:
        """Return the best divisions and the front as flat records, units in the names.

        ``rank`` counts from 1; it and the interval are None of the front's others.
        """
        front = list(self.front)
        rows: list[dict[str, Any]] = []
        for rank, one in enumerate(self.ranked, 1):
            low, high = one.prediction.iteration_s_interval
            held = one.tried in front
            rows.append(_record(rank, one.tried, low, high, one.close, held))
        best = [one.tried for one in self.ranked]
        others = (one for one in front if one not in best)
        return rows + [_record(None, one, None, None, False, True) for one in others]

    def to_dict(self) -> dict[str, Any]:
        """Return the search as plain data."""
        return {
            "by": self.by,
            "global_batch": self.global_batch,
            "tokens_per_iteration": self.tokens and self.tokens * self.global_batch,
            "gpus": list(self.gpus),
            "fixed": list(self.fixed),
            "best": self.best.to_dict(),
            "verdict": self.verdict(),
            "ranked": [one.to_dict() for one in self.ranked],
            "front_of": ["iteration_s", "memory_bytes" if len(self.gpus) == 1 else "gpu_hours"],
            "front": [one.to_dict() for one in self.front],
            "counts": self.counts.to_dict(),
        }


def _record(
    rank: int | None,
    tried: TriedDivision,
    low_s: float | None,
    high_s: float | None,
    close: bool,
    on_front: bool,
) -> dict[str, Any]:
    return {
        "rank": rank,
        **tried.to_dict(),
        "options": options_cell(tried.scenario.options),
        "iteration_s_low": low_s,
        "iteration_s_high": high_s,
        "too_close_to_call": close,
        "on_front": on_front,
    }


_Kind = tuple[PipelineSchedule, str]
"""A schedule and the name of a sharding."""


class _Waiting(NamedTuple):
    """A division that fits, and the least that its iteration takes [s]."""

    least_s: float
    division: Division
    setup: Setup
    use: MemoryUse


class _ChainState(NamedTuple):
    """What is known of a chain's divisions.

    Parameters
    ----------
    left_out : those that no larger micro-batch fits with
    least_bytes : by sharding, what larger micro-batches and other schedules need at least
    """

    left_out: set[_Kind]
    least_bytes: dict[str, float]


class _Search:
    """Finds the fastest divisions of one number of GPUs.

    Parameters
    ----------
    space : the divisions
    keep : how many of the fastest are looked for, apart from their schedules
    front : whether divisions that are slower and need less memory are looked for too
    """

    def __init__(
        self,
        space: DivisionSpace,
        catalog: Catalog,
        *,
        keep: int,
        front: bool,
        ignore_memory: bool = False,
        tell: ReportMethod | None = None,
    ) -> None:
        self.space, self.catalog, self.keep = space, catalog, keep
        self.limit = FRONT_LIMIT if front else 1.0
        self.ignore_memory = ignore_memory
        self.tell = tell
        self.counts = SearchCounts(len(space), skipped=Counter(space.skipped))
        self.tried: list[TriedDivision] = []
        self.fastest_s: dict[tuple[Any, ...], float] = {}
        self.kept_s: list[float] = []
        self.waiting: list[_Waiting] = []
        self.least: tuple[float, Division, float] | None = None
        self.state_fits = False
        self._floors: dict[tuple[Any, ...], float] = {}

    @property
    def last_kept_s(self) -> float:
        """The longest iteration among those that are kept; infinite while there are fewer."""
        return self.kept_s[-1] if len(self.kept_s) == self.keep else float("inf")

    @property
    def cutoff_s(self) -> float:
        """The iteration from which on a division cannot be among the answers [s]."""
        if not self.kept_s:
            return float("inf")
        return max(self.last_kept_s, self.limit * self.kept_s[0])

    def run(self) -> list[TriedDivision]:
        """Return what was predicted: the fastest divisions, and all that are on the front."""
        chains = self.space.chains
        states = [_ChainState(set(), {}) for _ in chains]
        heap = [(self.least_s(chain, 0), number, 0) for number, chain in enumerate(chains)]
        heapq.heapify(heap)
        while heap and heap[0][0] * (1 - _SUM_ORDER) <= self.cutoff_s:
            _, number, at = heapq.heappop(heap)
            chain = chains[number]
            if self.tell is not None:
                self.tell(
                    len(chains) - len(heap), len(chains), f"{self.counts.predicted} predicted"
                )
            if self.try_size(chain, at, states[number]) and at + 1 < len(chain.sizes):
                heapq.heappush(heap, (self.least_s(chain, at + 1), number, at + 1))
        for one in sorted(self.waiting, key=lambda one: one.least_s):
            if one.least_s <= self.cutoff_s and not self.beaten(one.least_s, one.use.total):
                self.predict(one)
        counts = self.counts
        done = counts.predicted + counts.too_large + counts.refused.total()
        counts.slower = counts.divisions - done
        return self.tried

    def try_size(self, chain: DivisionChain, at: int, state: _ChainState) -> bool:
        """Try a micro-batch with each schedule and sharding; tell whether a larger one may do."""
        *_, schedules = chain.sizes[at]
        goes_on = False
        for sharding in chain.shardings:
            for schedule in schedules:
                if (schedule, sharding.name) in state.left_out:
                    continue
                least_bytes = state.least_bytes.get(sharding.name, 0.0)
                if self.beaten(self.least_s(chain, at, schedule, sharding), least_bytes):
                    continue
                use = self.try_division(chain.division(at, schedule, sharding))
                first = schedule == schedules[0]
                if use is None or use.fits or self.ignore_memory:
                    goes_on = True
                    if use is not None and first:
                        state.least_bytes[sharding.name] = use.total
                    continue
                # Chunks keep more micro-batches alive than a stage of one piece.
                larger = {(one, sharding.name) for one in (schedules if first else (schedule,))}
                self.counts.too_large += self.left(chain, at, larger - state.left_out)
                state.left_out.update(larger)
                if first:
                    break
        return goes_on

    @staticmethod
    def left(chain: DivisionChain, at: int, kinds: Collection[_Kind]) -> int:
        """Return how many divisions of some kinds there are from a micro-batch on."""
        return sum(schedule in able for *_, able in chain.sizes[at:] for schedule, _ in kinds)

    def try_division(self, division: Division) -> MemoryUse | None:
        """Predict a division that may be among the answers, and return what it needs.

        None where it cannot run.
        """
        try:
            setup = resolve(self.space.scenario_of(division), self.catalog)
            use = memory_use(setup)
            least_s = _least_s(setup)
        except RequestError as error:
            self.counts.refused[_reason(error)] += 1
            return None
        if not use.fits:
            self.note_large(division, use)
        if use.fits or self.ignore_memory:
            one = _Waiting(least_s, division, setup, use)
            if least_s * (1 - _SUM_ORDER) < self.last_kept_s:
                self.predict(one)
            else:
                self.waiting.append(one)
        return use

    def note_large(self, division: Division, use: MemoryUse) -> None:
        """Remember what does not fit, if it needs less than any other, and whether a state does."""
        self.state_fits = self.state_fits or use.state_fits
        if self.least is None or use.total < self.least[0]:
            self.least = use.total, division, use.usable

    def predict(self, one: _Waiting) -> None:
        """Predict a division."""
        setup = one.setup
        try:
            iteration_s, gathered = _told(setup, self.catalog)
        except RequestError as error:
            self.counts.refused[_reason(error)] += 1
            return
        use = memory_use(setup, gathered) if gathered else one.use
        if not use.fits and not self.ignore_memory:
            self.note_large(one.division, use)
            self.counts.too_large += 1
            return
        self.counts.predicted += 1
        kind = one.division.apart_from_schedule
        if iteration_s < self.fastest_s.get(kind, float("inf")):
            self.fastest_s[kind] = iteration_s
            self.kept_s = sorted(self.fastest_s.values())[: self.keep]
        self.tried.append(
            TriedDivision(
                one.division,
                self.space.scenario_of(one.division),
                iteration_s,
                float(use.total),
                use.usable,
                setup.resolved_scenario().method,
            )
        )

    def refusal(self, catalog: Catalog | None = None) -> RequestError:
        """Return why no division can be used, with the least change that would do if asked.

        ``catalog`` is where other scenarios are looked up; None tries none.
        """
        if self.least is None:
            return RequestError("", f"no division can be used: {'; '.join(self.counts.refused)}.")
        needed, division, usable = self.least
        method = division.sharding.method or self.space.scenario.method
        why = (
            f"nothing fits into memory: {method} with {division.words} needs least,"
            f" {format_bytes(needed)}, and the GPU has {format_bytes(usable)} for it."
        )
        scenario, samples = self.space.scenario, self.space.global_batch
        change = _least_change(scenario, samples, catalog) if catalog else ""
        why += f" {change} would fit." if change else ""
        why += " `ignore_memory` takes it nevertheless."
        return NothingFitsError(why, needed, usable, state_fits=self.state_fits)

    def beaten(self, least_s: float, least_bytes: float) -> bool:
        """Tell whether a division that takes and needs so much at least is not among the answers.

        Enough others are surely as fast, and one of them needs no more memory.
        """
        least_s *= 1 - _SUM_ORDER
        if least_s < self.last_kept_s:
            return False
        if self.limit == 1.0:
            return True
        return any(
            one.iteration_s <= least_s and one.memory_bytes <= least_bytes for one in self.tried
        )

    def least_s(
        self,
        chain: DivisionChain,
        at: int,
        schedule: PipelineSchedule | None = None,
        sharding: Sharding | None = None,
    ) -> float:
        """Return the least that an iteration takes with a micro-batch or a larger one [s].

        ``schedule`` and ``sharding`` are of those that are tried; None: the fastest of them.
        """
        batch, count, schedules = chain.sizes[at]
        shardings = chain.shardings if sharding is None else (sharding,)
        seconds = batch * min(self.floor_s(chain, one) for one in shardings)
        pp = chain.ranks.pp
        if pp == 1:
            return count * seconds
        if all(name in _WHOLE_PASSES for name, _ in ([schedule] if schedule else schedules)):
            return float(seconds / (1.0 - (1.0 - 1.0 / count) ** pp))
        return count * seconds / pp

    def floor_s(self, chain: DivisionChain, sharding: Sharding) -> float:
        """Return the least that both passes of a replica take a sample, on all of its stages [s].

        A model that is divided keeps its parameters in 16 bits, so that one with stages is no
        measure of one without any division, nor the other way round. Without any, the way in which
        state is shared says how wide they are kept.
        """
        ranks = chain.ranks
        whole = ranks.tp == ranks.cp == ranks.ep == 1
        stages = self._least_stages if whole and ranks.pp > 1 else 1
        undivided_with = sharding.name if whole and stages == 1 else ""
        key = ranks.tp, ranks.cp, ranks.ep, ranks.etp, stages, chain.recompute, undivided_with
        if key not in self._floors:
            ends = self._batches[0], self._batches[-1]
            self._floors[key] = min(self.sample_s(chain, sharding, stages, batch) for batch in ends)
        return self._floors[key]

    @cached_property
    def _batches(self) -> list[int]:
        """The micro-batches of all divisions, the smallest first."""
        return sorted({batch for chain in self.space.chains for batch, *_ in chain.sizes})

    @cached_property
    def _least_stages(self) -> int:
        """The fewest stages, two or more, of any division."""
        return min(chain.ranks.pp for chain in self.space.chains if chain.ranks.pp > 1)

    def sample_s(self, chain: DivisionChain, sharding: Sharding, stages: int, batch: int) -> float:
        """Return what both passes of a replica take a sample, on all of so many stages [s]."""
        asked = undivided(self.space.sharded(sharding)).model_copy(
            update={
                **{name: getattr(chain.ranks, name) for name in ("tp", "cp", "ep", "etp")},
                **{"pp": stages, "recompute": chain.recompute, "batch": batch, "accumulate": 1},
            }
        )
        try:
            setup = resolve(asked, self.catalog)
        except RequestError:
            return 0.0
        if setup.split is None:
            return _least_s(setup) / batch
        if asked.layout is None:
            return float(laid_out_pipeline(setup, setup.split).run.busy_s.sum()) / batch
        # In another order of ranks, messages may go another way where there are stages.
        parts = setup.split.parts.stages
        computes_s = sum_in_order(
            pace_of(part.profile, setup.slowest_gpu) * sum_in_order(chunk[:2])
            for part in parts
            for chunk in part.chunks
        )
        return setup.node_load * computes_s / batch


def _least_s(setup: Setup) -> float:
    """Return the least that an iteration takes: its passes, with messages inside a replica [s]."""
    if setup.split is None:
        profile = setup.profile_in_node
        return setup.scenario.accumulate * (profile.forward_s + profile.backward_s)
    return laid_out_pipeline(setup, setup.split).run.total_s


def _told(setup: Setup, catalog: Catalog) -> tuple[float, tuple[float, ...]]:
    """Return an iteration [s], and what a compressing method gathers in each stage [B]."""
    if _repeats(setup):
        few = [_ran(_shortened(setup, count, catalog), catalog) for count in _FEW]
        before_s, each_s = (later[0] - earlier[0] for earlier, later in pairwise(few))
        if abs(each_s - before_s) <= _SUM_ORDER * few[-1][0]:
            more = setup.scenario.accumulate - _FEW[-1]
            return few[-1][0] + more * each_s, few[-1][1]
    return _ran(setup, catalog)


def _ran(setup: Setup, catalog: Catalog) -> tuple[float, tuple[float, ...]]:
    rounds = build_rounds(setup, job_cache(catalog), timing_only=True)
    return steady_s(rounds), gathered_bytes(setup, rounds)


def _repeats(setup: Setup) -> bool:
    """Tell whether an iteration has many micro-batches that exchange gradients one by one."""
    scenario, layout = setup.scenario, setup.split.layout if setup.split else None
    few = scenario.accumulate <= sum(_FEW)
    if few or setup.conditions is not None or (layout is not None and layout.pp > 1):
        return False
    return setup.method.exchanges_each(scenario.exchange_each)


def _shortened(setup: Setup, count: int, catalog: Catalog) -> Setup:
    """Return a setup with fewer micro-batches."""
    return resolve(setup.scenario.model_copy(update={"accumulate": count}), catalog)


def predicted_division(
    tried: TriedDivision, catalog: Catalog
) -> tuple[PredictedIteration, ParallelSummary | None]:
    """Predict a division as `perfsim.prediction.predict_iteration` does, and how it is divided.

    Where its micro-batches repeat each other, all times follow from iterations of fewer, of which
    are the timelines and the share by which the iteration may be off.
    """
    setup = resolve(tried.scenario, catalog)
    if not _repeats(setup):
        return predict_iteration(setup.scenario, catalog), _summary(setup, catalog)
    few = [_shortened(setup, count, catalog) for count in _FEW[-2:]]
    earlier, later = (predict_iteration(one.scenario, catalog) for one in few)
    more = setup.scenario.accumulate - _FEW[-1]

    def grown(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
        return {name: after[name] + more * (after[name] - before[name]) for name in after}

    times = tried.iteration_s / later.iteration_s
    samples_per_s = tried.samples_per_s
    alone_per_s = setup.scenario.gpus * setup.samples / setup.alone_s
    low_s, high_s = later.iteration_s_interval
    prediction = replace(
        later,
        scenario=setup.resolved_scenario(),
        iteration_s=tried.iteration_s,
        samples_per_s=samples_per_s,
        scaling_efficiency=samples_per_s / alone_per_s,
    ).stating(
        iteration_s_interval=(times * low_s, times * high_s),
        breakdown_s=grown(earlier.breakdown_s, later.breakdown_s),
        communication=grown(earlier.communication, later.communication),
        moves=later.moves,
    )
    before, after = (_summary(one, catalog) for one in few)
    if before is None or after is None:
        return prediction, None
    return prediction, after._replace(waits_s=grown(before.waits_s, after.waits_s))


def _summary(setup: Setup, catalog: Catalog) -> ParallelSummary | None:
    """Return how a model is divided; None where every rank has all of it."""
    if setup.split is None:
        return None
    return parallel_summary(setup.split, build_rounds(setup, job_cache(catalog)))


def _reason(error: RequestError) -> str:
    return unspelled(error).removesuffix(".")


def fastest_division(
    scenario: Scenario,
    catalog: Catalog,
    *,
    global_batch: int | None = None,
    ignore_memory: bool = False,
) -> TriedDivision:
    """Return the fastest division that fits in memory.

    Raises
    ------
    RequestError
        If the model cannot be divided, no division keeps the global batch, or none fits
        (`NothingFitsError`).

    Examples
    --------
    >>> from perfsim.scenario import make_scenario
    >>> from perfsim.session import default_session
    >>> asked = {"model": "llama3-70b", "gpus": 64, "node": "dgx-h100", "net": "dgx-h100"}
    >>> found = fastest_division(make_scenario(asked), default_session(), global_batch=64)
    >>> found.memory_bytes <= found.usable_bytes
    True
    """
    space = division_space(scenario, catalog, global_batch=global_batch)
    search = _Search(space, catalog, keep=1, front=False, ignore_memory=ignore_memory)
    tried = search.run()
    if not tried:
        raise search.refusal()
    return min(tried, key=lambda one: one.iteration_s)


def search_parallelism(
    scenario: Scenario,
    catalog: Catalog | None = None,
    *,
    by: str = "time",
    global_batch: int | None = None,
    gpus_up_to: int | None = None,
    ignore_memory: bool = False,
    tell: ReportMethod | None = None,
) -> ParallelSearch:
    """Search the best divisions of a scenario's training.

    Parameters
    ----------
    by : what the best is best by, of ``BY``
    global_batch : samples of an iteration over all GPUs; None: as many as the scenario asks for
    gpus_up_to : the most GPUs; those of the scenario are doubled up to it
    ignore_memory : whether what needs more memory than the GPU has may be chosen
    tell : called as the search goes on: groups of divisions that are done, all, words

    Raises
    ------
    RequestError
        If the model cannot be divided, no division keeps the global batch, or none fits.
    """
    if by not in BY:
        raise unknown("by", by, BY)
    catalog = fresh(catalog)
    counts, tried = SearchCounts(), []
    gpus = _gpu_counts(scenario, gpus_up_to)
    searches: list[_Search] = []
    refusals: list[RequestError] = []
    if global_batch is None:
        global_batch = division_space(scenario, catalog).global_batch
        free = set(scenario.model_fields_set) - {"batch", "accumulate"}
        scenario = with_fields_set(scenario, free)
    for count in gpus:
        asked = with_gpus(scenario, count)
        try:
            space = division_space(asked, catalog, global_batch=global_batch)
        except RequestError as error:
            refusals.append(error)
            continue
        search = _Search(
            space,
            catalog,
            keep=_MAX_RANKED,
            front=len(gpus) == 1,
            ignore_memory=ignore_memory,
            tell=tell,
        )
        tried += search.run()
        searches.append(search)
        counts.add(search.counts)
    if not searches:
        raise refusals[0]
    if not tried:
        raise searches[-1].refusal(catalog)
    ranked = _best(tried, by)[:_MAX_RANKED]
    setup = resolve(undivided(scenario), catalog)
    return ParallelSearch(
        setup.resolved_scenario(),
        by,
        global_batch,
        tokens_of(setup),
        gpus,
        _ranked(ranked, by, catalog),
        _front(tried, several=len(gpus) > 1),
        counts,
        tuple(name for name in SEARCHED_FIELDS if name in fixed_fields(scenario)),
        NO_METHOD in uncertainties(catalog),
    )


def iteration_as_asked(scenario: Scenario, global_batch: int, catalog: Catalog) -> float | None:
    """Return the iteration of a scenario as it is [s].

    None where it trains other samples, does not fit in memory or cannot run.
    """
    try:
        setup = resolve(scenario, catalog)
        if setup.samples * setup.replicas != global_batch or not memory_use(setup).fits:
            return None
        return steady_s(build_rounds(setup, job_cache(catalog), timing_only=True))
    except RequestError:
        return None


def _gpu_counts(scenario: Scenario, up_to: int | None) -> tuple[int, ...]:
    """Return the numbers of GPUs that are tried."""
    if up_to is None:
        return (scenario.gpus,)
    if up_to < scenario.gpus:
        raise RequestError(
            "gpus_up_to",
            f"{up_to} is below the {scenario.gpus} of `gpus`, from which on they are doubled.",
            value=up_to,
        )
    counts = [scenario.gpus]
    while 2 * counts[-1] <= up_to:
        counts.append(2 * counts[-1])
    return tuple(counts)


def _best(tried: Sequence[TriedDivision], by: str) -> list[TriedDivision]:
    """Return the divisions, best first; of those that differ in their schedule only, the best."""
    found: dict[tuple[Any, ...], TriedDivision] = {}
    for one in sorted(tried, key=lambda one: (one.by(by), one.memory_bytes)):
        found.setdefault(one.division.apart_from_schedule, one)
    return list(found.values())


def _ranked(tried: Sequence[TriedDivision], by: str, catalog: Catalog) -> list[RankedDivision]:
    """Predict the best divisions, and say which are too close to the best to call."""
    found: list[RankedDivision] = []
    record = uncertainties(catalog).get(NO_METHOD)
    errors = median_errors(catalog)
    tokens = tokens_of(resolve(tried[0].scenario, catalog))
    for one in tried:
        prediction, parallel = predicted_division(one, catalog)
        close = bool(found) and not _apart(found[0], one, prediction, by, record, errors)
        found.append(RankedDivision(one, prediction, parallel, tokens, close))
    return found


def _apart(
    best: RankedDivision,
    one: TriedDivision,
    prediction: PredictedIteration,
    by: str,
    record: Uncertainty | None,
    errors: Mapping[str, float],
) -> bool:
    """Say whether a division is surely worse than the best one.

    As between methods (`perfsim.ranking.Ranking.apart`), the difference must exceed the recorded
    median error of either method, and the 90 % interval of their ratio: both share the causes of
    their errors. Without a record, their 90 % intervals must not overlap.
    """
    behind = one.by(by) / best.tried.by(by) - 1.0
    every = median(errors.values()) if errors else 0.0
    if behind <= max(errors.get(method, every) for method in (best.tried.method, one.method)):
        return False
    if record is None:
        factor = one.by(by) / one.iteration_s / (best.tried.by(by) / best.tried.iteration_s)
        return factor * prediction.iteration_s_interval[0] > best.prediction.iteration_s_interval[1]
    return behind > record.reach(best.prediction.moves, prediction.moves)


def _front(tried: Sequence[TriedDivision], *, several: bool) -> list[TriedDivision]:
    """Return what nothing else beats in time and in memory, or in GPU hours; fastest first."""

    def second(one: TriedDivision) -> float:
        return one.gpu_s if several else one.memory_bytes

    front: list[TriedDivision] = []
    for one in sorted(tried, key=lambda one: (one.iteration_s, second(one))):
        if not front or second(one) < second(front[-1]):
            front.append(one)
    limit_s = FRONT_LIMIT * front[0].iteration_s
    return [one for one in front if several or one.iteration_s <= limit_s]


def _least_change(scenario: Scenario, global_batch: int, catalog: Catalog) -> str:
    """Return the least change with which a division fits; "" where none of those tried does.

    Tried are, in this order: leaving out one of the settings that the search would choose, more
    GPUs, shorter samples.
    """
    for name in SEARCHED_FIELDS:
        if name not in scenario.model_fields_set:
            continue
        freed = with_fields_set(scenario, set(scenario.model_fields_set) - {name})
        if _any_fits(freed, global_batch, catalog):
            return f"Without `{name}` {getattr(scenario, name)} it"
    factor = 2
    while factor <= _MAX_GROWTH:
        gpus = factor * scenario.gpus
        if _any_fits(with_gpus(scenario, gpus), global_batch, catalog):
            return f"`gpus` {gpus}"
        factor *= 2
    tokens = resolve(undivided(scenario), catalog).profile.sequence
    while tokens and tokens > 1:
        tokens //= 2
        if _any_fits(scenario.model_copy(update={"seq": tokens}), global_batch, catalog):
            return f"`seq` {tokens}"
    return ""


def _any_fits(scenario: Scenario, global_batch: int, catalog: Catalog) -> bool:
    """Tell whether any division fits, of those with the smallest micro-batch."""
    try:
        space = division_space(scenario, catalog, global_batch=global_batch)
    except RequestError:
        return False
    # What needs least is most likely among those that are divided most and compute most again.
    order = {word: place for place, word in enumerate(RECOMPUTE)}
    parts = order["selective"]  # parts of blocks, where the scenario asks for them
    for chain in sorted(
        space.chains,
        key=lambda one: (
            -order.get(one.recompute, parts),
            -one.ranks.tp * one.ranks.cp,
            one.ranks.pp,
        ),
    ):
        for sharding in reversed(chain.shardings):
            *_, schedules = chain.sizes[0]
            try:
                asked = space.scenario_of(chain.division(0, schedules[0], sharding))
                if memory_use(resolve(asked, catalog)).fits:
                    return True
            except RequestError:
                continue
    return False
