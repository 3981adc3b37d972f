"""predict(): from a scenario to its predicted iteration, with reasons, interval and sources.

The flow is Scenario -> Setup -> list[CostedGraph] -> Timeline -> Prediction, one step a line:
`resolve` loads what the scenario names, `build_rounds` makes a task graph of each round of the
method's period, `run_all` runs them, and the rest is read off their timelines and costs.
`predict_iteration` leaves out what only a report shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypedDict, Unpack

from perfsim.compute.kernel import Kernel
from perfsim.compute.software import neighbour_eras
from perfsim.compute.transfer import TransferredProfile
from perfsim.conditions.ranks import over_draws, shown_draws
from perfsim.data.catalog import Catalog
from perfsim.display import Displayed
from perfsim.hardware.gpus import device_in_era
from perfsim.interval import NO_METHOD, Moves, Uncertainty, extra_moves, uncertainties
from perfsim.memory import OuterState, memory_note, memory_use, one_gpu_holds, outer_state
from perfsim.methods import method_name
from perfsim.note import of_grade, warning
from perfsim.notes import notes_of
from perfsim.quantity import Quantity, Term
from perfsim.resolve import ResolvedScenario, Setup, resolve
from perfsim.scenario import Scenario, as_scenario, table_columns
from perfsim.schedule.costed_graph import CostedGraph, terms_of
from perfsim.schedule.rounds import (
    baseline_rounds,
    baseline_setup,
    build_rounds,
    is_baseline,
    stage_rounds,
)
from perfsim.schedule.run import mean_s, run_all
from perfsim.session import JobCache, default_session, fresh, job_cache
from perfsim.simulate.timeline import Timeline
from perfsim.sums import sum_in_order
from perfsim.throughput import Throughput, setup_throughput
from perfsim.units import format_seconds
from perfsim.what_if import (
    ChangedTimes,
    bottleneck,
    has_kernels,
    kernels_of,
    moves,
    seconds_by_grade,
    spread_interval,
    steady_s,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from perfsim.compute.device import Device
    from perfsim.model_parallel import ParallelSummary
    from perfsim.schedule.run import ContentionResult

__all__ = [
    "PREDICTION_SCHEMA",
    "Baseline",
    "IterationDetails",
    "PredictedIteration",
    "Prediction",
    "baseline_of",
    "communication_of",
    "memory_of",
    "predict",
    "predict_as_read",
    "predict_iteration",
    "spent",
]

PREDICTION_SCHEMA = "perfsim/prediction/1"

_ABOVE_ALL = 1.0005
"""Scaling efficiency that is shown as more than 100.0 %; below, rounding may be all there is."""

_DECODED = ("quantisation", "sparsification")
"""Families whose gathered messages are decoded after the backward pass."""


class StatedDetails(TypedDict, total=False):
    """Details of an iteration that are given; the others are as they are worked out."""

    breakdown_s: dict[str, float]
    communication: dict[str, float]
    moves: Moves
    iteration_s_interval: tuple[float, float]


class IterationDetails:
    """Where the time of an iteration goes, and how far off it may be: worked out when first read.

    A comparison of many methods shows these of a few. All of it comes from the rounds as they ran,
    so that it is of the files as they were then.
    """

    def __init__(self, ran: _Run) -> None:
        self._ran = ran

    def __eq__(self, other: object) -> bool:
        """Tell whether others say the same."""
        if not isinstance(other, IterationDetails):
            return NotImplemented
        names = ("timelines", *StatedDetails.__annotations__)
        return all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        """Return what it says, all of it worked out: the rounds and their session stay behind."""
        names = (*StatedDetails.__annotations__, "held_back")
        said = {name: getattr(self, name) for name in names}
        return {"_draws": [[nearest] for nearest in self.timelines], **said}

    def stating(self, known: StatedDetails) -> IterationDetails:
        """Return these with some details as they are given."""
        made = object.__new__(IterationDetails)
        vars(made).update(vars(self), **known)
        return made

    @cached_property
    def _draws(self) -> list[list[Timeline]]:
        """Of each timeline, the draws whose time is divided."""
        return [shown_draws(timeline) for timeline in self._ran.timelines]

    @property
    def timelines(self) -> list[Timeline]:
        """The timeline of each round: of draws, the one nearest to the mean."""
        return [nearest for nearest, *_ in self._draws]

    @cached_property
    def breakdown_s(self) -> dict[str, float]:
        """What an iteration spends on each part [s]."""
        return spent(self._ran.rounds, self._ran.timelines, self._draws, Timeline.breakdown)

    @cached_property
    def communication(self) -> dict[str, float]:
        """What a GPU sends in an iteration, and what of that time computation hides."""
        return communication_of(self._ran.rounds, self._ran.timelines, self._draws)

    @cached_property
    def moves(self) -> Moves:
        """How far an iteration moves with each part of its uncertainty."""
        return _moves(self._ran, self.communication["hidden_s"])

    @cached_property
    def iteration_s_interval(self) -> tuple[float, float]:
        """The 90 % interval [s]."""
        return _interval(self._ran, self.moves)

    @cached_property
    def held_back(self) -> tuple[str, dict[str, float]]:
        """The cause that holds the iteration back most, and what each cause is worth."""
        return bottleneck(self._ran.changed)


@dataclass
class PredictedIteration:
    """How long an iteration takes, where its time goes, and how far off that may be.

    ``counts`` has how often each round of the method's period is run in it. What ``details`` has is
    read as an attribute here.
    """

    scenario: ResolvedScenario
    iteration_s: float
    samples_per_s: float
    scaling_efficiency: float
    counts: list[float]
    details: IterationDetails

    @property
    def timelines(self) -> list[Timeline]:
        """One for each round of the method's period."""
        return self.details.timelines

    @property
    def breakdown_s(self) -> dict[str, float]:
        """What an iteration spends on each part [s]."""
        return self.details.breakdown_s

    @property
    def communication(self) -> dict[str, float]:
        """What a GPU sends in an iteration, and what of that time computation hides."""
        return self.details.communication

    @property
    def moves(self) -> Moves:
        """How far the iteration moves with each part of its uncertainty."""
        return self.details.moves

    @property
    def iteration_s_interval(self) -> tuple[float, float]:
        """The 90 % interval [s]."""
        return self.details.iteration_s_interval

    def stating(self, **known: Unpack[StatedDetails]) -> Self:
        """Return the iteration with some of its details as they are given, such as an interval."""
        return replace(self, details=self.details.stating(known))


class Baseline(NamedTuple):
    """S-SGD with DDP's defaults in the conditions of a prediction, and what one GPU can hold.

    Parameters
    ----------
    iteration_s : its iteration [s], whether or not it could run
    fits : whether it fits into the memory of the GPUs
    one_gpu_holds : whether one GPU alone, whose rate scaling efficiency is over, holds the model
    """

    iteration_s: float
    fits: bool
    one_gpu_holds: bool

    def unfit_words(self, subject: str = "") -> str:
        """Say after its time that it could not run; nothing where it could."""
        return "" if self.fits else f"; {subject}would not fit into memory"

    def to_dict(self, iteration_s: float) -> dict[str, Any]:
        """Return the baseline as plain data, beside an iteration of that long [s]."""
        return {
            "method": "ssgd",
            "iteration_s": self.iteration_s,
            "speedup": self.iteration_s / iteration_s,
            "fits": self.fits,
        }


@dataclass(repr=False)
class Prediction(PredictedIteration, Displayed):
    """What perfsim answers; `to_dict` is the object as JSON has it, `plot` draws it.

    ``contention`` is how this job and others on the network fare, None where there are no others.
    ``parallel`` is how the model is divided, None where every rank has all of it. ``outer_state``
    is what ranks keep from one exchange to the next where these are many iterations apart, None
    elsewhere. ``memory_usable_bytes`` is what a GPU has for all that is held, None if not known.
    """

    baseline: Baseline
    memory_bytes: dict[str, float]
    notes: list[str]
    terms: list[Term]
    throughput: Throughput
    contention: ContentionResult | None = None
    parallel: ParallelSummary | None = None
    outer_state: OuterState | None = None
    memory_usable_bytes: float | None = None

    def __repr__(self) -> str:
        """Return the question and the answer on one line."""
        low, high = self.iteration_s_interval
        return (
            f"<Prediction {self.scenario.words}: {format_seconds(self.iteration_s)} an iteration"
            f" ({format_seconds(low, 3)} to {format_seconds(high, 3)}), {self.speedup:.2f}x S-SGD>"
        )

    @property
    def warnings(self) -> list[str]:
        """The notes that may change a decision."""
        return of_grade(self.notes, "warning")

    @property
    def assumptions(self) -> list[str]:
        """The notes on values that were not asked for."""
        return of_grade(self.notes, "assumption")

    @property
    def worth(self) -> dict[str, float]:
        """By cause, the share of the iteration saved if that cause were twice as fast."""
        return self.details.held_back[1]

    @property
    def bottleneck(self) -> str:
        """The cause worth most."""
        return self.details.held_back[0]

    @property
    def baseline_s(self) -> float:
        """An iteration of the S-SGD baseline [s]."""
        return self.baseline.iteration_s

    @property
    def speedup(self) -> float:
        """How many times as fast as the S-SGD baseline."""
        return self.baseline_s / self.iteration_s

    def efficiency_words(self) -> str:
        """Say what scaling efficiency is over; nothing where one GPU holds it and is no slower."""
        if self.scenario.gpus == 1:
            return ""
        if not self.baseline.one_gpu_holds:
            return "of one GPU alone, had it the memory"
        return (
            "of one GPU alone, which updates all" if self.scaling_efficiency >= _ABOVE_ALL else ""
        )

    def to_dict(self, *, provenance: bool = True) -> dict[str, Any]:
        """Return the prediction as plain data, by the contract perfsim/prediction/1."""
        result: dict[str, Any] = {
            "schema": PREDICTION_SCHEMA,
            "scenario": self.scenario.to_dict(),
            "iteration_s": self.iteration_s,
            "iteration_s_interval": list(self.iteration_s_interval),
            "samples_per_s": self.samples_per_s,
            "scaling_efficiency": self.scaling_efficiency,
            "throughput": self.throughput.to_dict(),
            "baseline": self.baseline.to_dict(self.iteration_s),
            "breakdown_s": self.breakdown_s,
            "communication": self.communication,
            "memory_bytes": self.memory_bytes,
            "bottleneck": self.bottleneck,
            "notes": self.notes,
        }
        if self.outer_state is not None:
            result["outer_state"] = self.outer_state.to_dict()
        if self.parallel is not None:
            result["parallelism"] = self.parallel.to_dict()
        if self.contention is not None:
            from perfsim.conditions.words import contention_block

            result["beside"] = contention_block(self.scenario, self.contention)
        if provenance:
            result["memory_usable_bytes"] = self.memory_usable_bytes
            result["warnings"] = list(map(str, self.warnings))
            result["assumptions"] = list(map(str, self.assumptions))
            result["provenance"] = [_row(term) for term in self.terms]
        return result

    def records(self) -> list[dict[str, Any]]:
        """Return the prediction as one flat record; `to_pandas` has it as a table of one row.

        A name holds its unit: ``iteration_s``, ``sent_bytes_per_gpu`` (see
        `perfsim.data.tables.flat_record`).
        """
        from perfsim.data.tables import flat_record

        plain = self.to_dict(provenance=False)
        return [flat_record(plain, table_columns(), self.memory_usable_bytes)]

    def plot(self, kind: Literal["breakdown", "timeline", "savings"] = "breakdown") -> Figure:
        """Draw the prediction with Plotly; times are in s, ms or us, by their size.

        Parameters
        ----------
        kind : "breakdown": what the iteration is made of, with its interval; "timeline": what each
            stream does in the steady iteration; "savings": what it saves if one cause were twice as
            fast

        Raises
        ------
        RequestError
            If Plotly is not installed, or there is no such kind.

        Examples
        --------
        >>> from perfsim import Scenario, predict
        >>> figure = predict(Scenario(model="resnet50", gpus=16, net="1gbe")).plot("timeline")
        >>> figure.layout.xaxis.title.text
        'time [s]'
        """
        return self._plotted(kind)


def predict(scenario: Scenario | Mapping[str, Any], catalog: Catalog | None = None) -> Prediction:
    """Predict one scenario; a dict of its fields is one too.

    Files are read as they are now, also where ``catalog`` is a session that has read them before.

    Raises
    ------
    RequestError
        If the scenario names something that does not exist or cannot be combined.
    DataError
        If a data file is damaged.

    Examples
    --------
    >>> from perfsim import Scenario, predict
    >>> prediction = predict(Scenario(model="resnet50", gpus=16, net="1gbe", method="dgc"))
    >>> prediction.speedup > 2
    True
    >>> round(sum(prediction.breakdown_s.values()) / prediction.iteration_s, 9)
    1.0
    """
    return predict_as_read(as_scenario(scenario), fresh(catalog))


def predict_as_read(scenario: Scenario, catalog: Catalog) -> Prediction:
    """Predict a scenario as `predict` does, by files as the catalog has them.

    It is for one of many scenarios: whoever asks refreshes a session once for all of them.
    """
    ran = _run(scenario, catalog)
    iteration = _iteration(ran)
    setup, rounds, contention = ran.setup, ran.rounds, ran.contention
    baseline = baseline_of(setup, ran.iteration_s, catalog)
    gathered, terms = gathered_bytes(setup, rounds), terms_of(rounds)
    memory = memory_use(setup, gathered)
    unfit = memory_note(setup, memory, gathered, catalog)
    notes = notes_of(setup, rounds, ran.timelines, terms, unfit, ran.record)
    notes += _width_notes(scenario, ran)
    notes += _efficiency_notes(setup, iteration, baseline)
    if contention is not None:
        from perfsim.conditions.words import contention_notes

        notes += contention_notes(setup, rounds, contention)
    return Prediction(
        **vars(iteration),
        baseline=baseline,
        memory_bytes=memory.parts,
        notes=notes,
        terms=[*_compute_terms(setup), *terms],
        throughput=setup_throughput(setup, iteration.samples_per_s),
        contention=contention,
        parallel=_parallel(setup, rounds),
        outer_state=outer_state(setup),
        memory_usable_bytes=memory.usable if math.isfinite(memory.usable) else None,
    )


_METHOD_FIELDS = (
    "method",
    "options",
    "fusion",
    "fusion_options",
    "bucket",
    "overlap",
    "single_gpu_kernels",
)
"""Fields of a scenario on which its S-SGD baseline does not depend."""

_baseline_values = attrgetter(
    *[name for name in Scenario.model_fields if name not in _METHOD_FIELDS]
)


def baseline_of(setup: Setup, iteration_s: float, catalog: Catalog) -> Baseline:
    """Return the S-SGD baseline, simulated once for all methods.

    Parameters
    ----------
    iteration_s : of the setup itself [s], which may be the baseline
    """
    key = _baseline_values(setup.scenario)
    if is_baseline(setup):
        fits, alone = catalog.once(("baseline", "memory", *key), lambda: _held(setup))
        return Baseline(iteration_s, fits, alone)
    # A single-GPU time of the user's own makes a profile that is seldom asked for again.
    cache = None if setup.scenario.single_gpu else job_cache(catalog)

    def made() -> Baseline:
        baseline_s = steady_s(baseline_rounds(setup, cache, timing_only=True))
        return Baseline(baseline_s, *_held(baseline_setup(setup)))

    return catalog.once(("baseline", *key), made)


def _held(setup: Setup) -> tuple[bool, bool]:
    """Tell whether a setup of S-SGD fits into memory, and whether one GPU alone holds the model."""
    return memory_use(setup).fits, one_gpu_holds(setup)


def _parallel(setup: Setup, rounds: Sequence[CostedGraph]) -> ParallelSummary | None:
    """Return how the model is divided; None where every rank has all of it."""
    if setup.split is None:
        return None
    from perfsim.model_parallel import parallel_summary
    from perfsim.schedule.model_parallel import laid_out_pipeline

    run = laid_out_pipeline(setup, setup.split).run if setup.split.layout.pp > 1 else None
    return parallel_summary(setup.split, rounds, run)


def predict_iteration(scenario: Scenario, catalog: Catalog | None = None) -> PredictedIteration:
    """Predict an iteration as `predict` does, without what only a report shows.

    It is for holding many scenarios against what was measured. So a session is taken as it is:
    whoever asks refreshes it once for all of them.
    """
    return _iteration(_run(scenario, default_session() if catalog is None else catalog))


class _Run(NamedTuple):
    """The rounds of a scenario as they ran.

    What-ifs are asked of ``changed``, in whose rounds messages take what they took beside others.
    ``eras`` has the GPU in the neighbouring software eras, where the method has kernels.
    """

    setup: Setup
    rounds: list[CostedGraph]
    timelines: list[Timeline]
    iteration_s: float
    record: Uncertainty | None
    contention: ContentionResult | None
    cache: JobCache | None
    catalog: Catalog
    changed: ChangedTimes
    eras: dict[str, Device]


def _run(scenario: Scenario, catalog: Catalog) -> _Run:
    """Load what a scenario names, build its rounds and run them."""
    # A single-GPU time of the user's own makes a profile that is seldom asked for again.
    cache = None if scenario.single_gpu else job_cache(catalog)
    setup = resolve(scenario, catalog)
    rounds = build_rounds(setup, cache)
    timelines, pinned, contention = run_all(rounds)
    iteration_s = mean_s(rounds, timelines)
    pinned_s = iteration_s if contention is None else steady_s(pinned)
    return _Run(
        setup,
        rounds,
        timelines,
        iteration_s,
        uncertainties(catalog).get(NO_METHOD),
        contention,
        cache,
        catalog,
        ChangedTimes(pinned, pinned_s),
        _neighbour_eras(setup, pinned, catalog),
    )


def _width_notes(scenario: Scenario, ran: _Run) -> list[str]:
    """Say so where `reduce_dtype` changes nothing that the method sends."""
    width = scenario.reduce_dtype
    if width == "fp32" or ran.setup.cluster.gpus == 1:
        return []
    wide = scenario.model_copy(update={"reduce_dtype": "fp32"})
    usual = build_rounds(resolve(wide, ran.catalog), ran.cache)
    before, after = ([one.sent_bytes for one in rounds] for rounds in (usual, ran.rounds))
    # The same bytes in other messages round to another sum.
    if len(before) != len(after) or not all(map(math.isclose, before, after)):
        return []
    name = method_name(scenario.method)
    return [warning(f"`reduce_dtype` {width} changes nothing that {name} sends.")]


def _efficiency_notes(setup: Setup, iteration: PredictedIteration, baseline: Baseline) -> list[str]:
    """Say what scaling efficiency is over, where no such GPU could run or it is above 100 %."""
    above = iteration.scaling_efficiency >= _ABOVE_ALL
    if setup.cluster.gpus == 1 or (baseline.one_gpu_holds and not above):
        return []
    note = (
        f"Scaling efficiency is over {setup.cluster.gpus} times the rate of one GPU that trains the"
        f" whole model alone ({format_seconds(setup.alone_s)} an iteration)"
    )
    note += "." if baseline.one_gpu_holds else "; the memory of one GPU could not hold it."
    if above:
        note += " It is above 100 %" + _why_above_all(setup, iteration.scaling_efficiency)
    return [note]


def _why_above_all(setup: Setup, efficiency: float) -> str:
    """Say what one GPU alone does slowly, where scaling efficiency is above 100 %."""
    reasons, update_s = [], setup.profile.optimizer_s
    if update_s > _TELLING_SHARE * setup.alone_s:
        reasons.append(
            f" because that GPU updates all parameters by itself ({format_seconds(update_s)}), and"
            " here the GPUs share the update"
        )
    without_update = efficiency * (1.0 - update_s / setup.alone_s)
    if without_update >= _ABOVE_ALL and setup.scenario.ep > 1:
        reasons.append(
            " because each expert there has the tokens of one GPU, too few for fast products, and"
            f" here those of {setup.scenario.ep} GPUs"
        )
    return ";".join(reasons) + "."


_TELLING_SHARE = 0.02
"""Share of an iteration from which on a part is worth a word. No source: chosen."""


def _iteration(ran: _Run) -> PredictedIteration:
    """Read an iteration off the rounds that ran."""
    setup, iteration_s = ran.setup, ran.iteration_s
    samples_per_s = setup.samples * setup.replicas / iteration_s
    alone_per_s = setup.scenario.gpus * setup.samples / setup.alone_s
    return PredictedIteration(
        scenario=setup.resolved_scenario(),
        iteration_s=iteration_s,
        samples_per_s=samples_per_s,
        scaling_efficiency=samples_per_s / alone_per_s,
        counts=[costed.count for costed in ran.rounds],
        details=IterationDetails(ran),
    )


def _moves(ran: _Run, hidden_s: float) -> Moves:
    """Return how far an iteration moves with each part of its uncertainty."""
    setup, changed = ran.setup, ran.changed
    moved = moves(changed, setup.grade, _era_kernels(ran))
    by_grade = seconds_by_grade(changed.rounds, "network")
    sent_s = sum_in_order(by_grade.values())
    return moved | extra_moves(
        changed.iteration_s,
        {grade: hidden_s * part_s / sent_s for grade, part_s in by_grade.items() if part_s},
        moved.get(f"compute_{setup.grade}", (0.0, 0.0)),
        setup.batch_reach,
        setup.cluster.gpus,
        setup.cluster.gpus_per_node,
    )


def _neighbour_eras(
    setup: Setup, rounds: Sequence[CostedGraph], catalog: Catalog
) -> dict[str, Device]:
    """Return the GPU in the software eras before and after, where the method has kernels."""
    if setup.kernels_s is not None or not has_kernels(rounds):
        return {}
    here, model = setup.device, setup.scenario.model
    eras = neighbour_eras(here.software)
    return {era: device_in_era(here.name, era, catalog, model) for era in eras}


def _era_kernels(ran: _Run) -> list[dict[Kernel, float]]:
    """Return how much longer kernels take in each neighbouring software era [s].

    Left out are kernels that were measured in the era asked for, and a top-k that the options name.
    """
    if not ran.eras:
        return []
    here, named = ran.setup.device, "kernel" in ran.setup.scenario.options
    in_doubt = [
        kernel
        for kernel in kernels_of(ran.changed.rounds)
        if (kernel.name.startswith("topk_") and not named)
        or (kernel.parts and not here.measured_here(kernel))
    ]
    if not in_doubt:
        return []
    from perfsim.methods.building.sparsify import in_era

    found = []
    for era, there in ran.eras.items():
        priced = [(one, there.cost(in_era(one, era)).seconds) for one in in_doubt]
        longer_s = {one: seconds - here.cost(one).seconds for one, seconds in priced}
        if any(longer_s.values()):
            found.append(longer_s)
    return found


def _interval(ran: _Run, moved: Moves) -> tuple[float, float]:
    """Return the 90 % interval by the record of errors; without one, by the costs' spreads [s]."""
    if ran.record is None:
        spread = ran.setup.transferred.quantity.spread
        return spread_interval(ran.changed.rounds, ran.iteration_s, spread)
    return ran.record.interval(moved, ran.iteration_s)


def communication_of(
    rounds: Sequence[CostedGraph],
    timelines: Sequence[Timeline],
    draws: Sequence[Sequence[Timeline]],
) -> dict[str, float]:
    """Return what a GPU sends in an iteration, and what of that time computation hides."""
    period = sum_in_order(costed.iterations for costed in rounds)
    return {
        "bytes_per_gpu": sum_in_order(costed.count * costed.sent_bytes for costed in rounds)
        / period,
        "calls": _whole(sum_in_order(costed.count * costed.calls for costed in rounds) / period),
        **spent(rounds, timelines, draws, Timeline.communication),
    }


def _whole(mean: float) -> float:
    """Return a mean over rounds without its rounding error, where it is a whole number.

    Examples
    --------
    >>> _whole(6467.000000000001), _whole(127.66666666666667)
    (6467.0, 127.66666666666667)
    """
    nearest = round(mean)
    return float(nearest) if math.isclose(mean, nearest, rel_tol=1e-12) else mean


def spent(
    rounds: Sequence[CostedGraph],
    timelines: Sequence[Timeline],
    draws: Sequence[Sequence[Timeline]],
    what: Callable[[Timeline], dict[str, float]],
) -> dict[str, float]:
    """Return what an iteration spends on each part, over all rounds of the period [s].

    ``draws`` are those of each timeline whose time is divided (see `shown_draws`) by ``what``.
    """
    pairs = zip(draws, timelines, strict=True)
    parts = [over_draws(few, one.mean_period_s, what) for few, one in pairs]
    total = sum_in_order(costed.iterations for costed in rounds)
    return {
        key: sum_in_order(
            costed.iterations / total * part[key]
            for costed, part in zip(rounds, parts, strict=True)
        )
        for key in parts[0]
    }


def memory_of(setup: Setup, rounds: Sequence[CostedGraph]) -> dict[str, float]:
    """Return what one GPU holds at the worst moment of an iteration, by part [bytes].

    Without ``activations`` and ``logits`` for a model that perfsim has no layers of. ``messages``
    are what is sent from and what a compressing method gathers from all ranks, held until it is
    decoded; ``copies`` are 16-bit copies of parameters, ``step`` what the update needs for itself.
    """
    return memory_use(setup, gathered_bytes(setup, rounds)).parts


def gathered_bytes(setup: Setup, rounds: Sequence[CostedGraph]) -> tuple[float, ...]:
    """Return the bytes that a compressing method gathers from all ranks before it decodes them.

    They are those of each stage of a pipeline, and nothing of a method that gathers none.

    Parameters
    ----------
    rounds : of the setup, or of its busiest stage
    """
    if not holds_gathered(setup):
        return ()
    split = setup.split
    if split is None or split.layout.pp == 1:
        return (_most_gathered(rounds),)
    found: dict[tuple[int, ...], float] = {}
    for stage, part in enumerate(split.parts.stages):
        if part.content not in found:
            found[part.content] = _most_gathered(stage_rounds(setup, split, stage))
    return tuple(found[part.content] for part in split.parts.stages)


def holds_gathered(setup: Setup) -> bool:
    """Tell whether the method holds what it gathers from all ranks until it is decoded."""
    return setup.method.family in _DECODED and setup.method.holds_gathers


def _most_gathered(rounds: Sequence[CostedGraph]) -> float:
    """Return the most bytes that are gathered in a micro-batch."""
    return max(costed.gathered_bytes / max(1, costed.gathering) for costed in rounds)


def _compute_terms(setup: Setup) -> list[Term]:
    if not setup.parts:
        return _terms_of(setup.transferred)
    return [
        term._replace(term=f"{term.term} on {part.device.name}")
        for part in setup.parts
        for term in _terms_of(part.transferred)
    ]


def _terms_of(transferred: TransferredProfile) -> list[Term]:
    profile = transferred.profile
    source = profile.header["source"]
    backward = Quantity(profile.backward_s, "s", profile.kinds["ready_ms"], source)
    forward = Quantity(profile.forward_s, "s", profile.kinds["forward_ms"], source)
    optimizer = Quantity(profile.optimizer_s, "s", profile.kinds["optimizer_ms"], source)
    return [
        Term("single-GPU iteration", transferred.quantity, transferred.extrapolated),
        Term("forward", forward),
        Term("backward", backward),
        Term("update", optimizer),
    ]


def _row(term: Term) -> dict[str, Any]:
    quantity = term.quantity
    bounds = (
        None if quantity.low is None and quantity.high is None else [quantity.low, quantity.high]
    )
    return {
        "term": term.term,
        "value": quantity.value,
        "unit": quantity.unit,
        "kind": quantity.kind,
        "source": quantity.source,
        "range": bounds,
        "range_unit": quantity.range_unit if bounds else None,
        "extrapolated": term.extrapolated,
    }
