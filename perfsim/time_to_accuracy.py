"""Epochs that a method needs for S-SGD's quality, from what others measured.

An iteration's time is predicted; how many iterations a method needs is known from measurements only
(`perfsim.methods.learning`). A time to accuracy is the one times the other. A method for whose
setting and task nothing is known has none: it can be compared by iteration time only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice, product
from math import ceil, exp, inf, isfinite, log, sqrt
from numbers import Real
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perfsim.compute.profile import model_named
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError, shown
from perfsim.methods import method_class, method_name
from perfsim.methods.learning import (
    STATEMENTS_FILE,
    Evidence,
    Statement,
    known_evidence,
    read_statements,
    same_update,
)
from perfsim.models import data_of, task_of
from perfsim.note import warning

if TYPE_CHECKING:
    from perfsim.resolve import ResolvedScenario

__all__ = [
    "AS_MANY_EPOCHS",
    "MAX_BARE_FACTOR",
    "EpochsFactor",
    "EpochsFactors",
    "check_epochs_of",
    "epochs_factor",
    "epochs_ratio",
    "learning_notes",
    "learning_warnings",
    "parse_epochs_of",
    "replicas_of",
    "spread_of_runs",
]

Basis = Literal["same arithmetic", "evidence", "given", "none"]
"""Where a factor is from: a method that changes nothing in training, measurements, the user."""

_SMALL_TEXTS = ("penn treebank", "wikitext", "tinystories")
"""Texts of 1 to some 500 million tokens: what is known on them says nothing of models trained on
the web (Marcus et al. 1993; Merity et al. 2017; Eldan and Li 2023, arXiv 2305.07759)."""

_SET_BY = ("density", "rank", "values", "bits", "levels", "interval", "inverse_interval", "ratio")
"""Options that say how far a method departs from S-SGD: a result that does not state one that its
method has is of another setting."""

_LESS_IS_HARDER = {
    *("density", "topk_ratio", "rank", "values", "bits", "levels", "value_bytes", "dense_share"),
    *("weight_bits", "inner_bits", "outer_bits", "wire_bits", "second_bits"),
    *("two_scale", "warm_start"),
}
_MORE_IS_HARDER = {
    *("interval", "inverse_interval", "factor_interval", "ratio", "group", "sync_delay"),
    *("quantise_weights", "quantise_gradients"),
}
"""Options of which less, or more, takes a method further from S-SGD: it learns no better there."""

_LEARNS_ALIKE = {"index_bytes", "packing", "shared_seed", "fraction", "variant", "warmup_epochs"}
"""Options that leave what is learnt as it is: how the same values are packed, drawn, placed and
sent; and a warm-up, which perfsim's iteration comes after."""

_WORKERS = "workers"
"""What the number of workers is called beside options."""

_TOLD = frozenset({*_SET_BY, _WORKERS})
"""What a result must state to be compared with a setting that has it."""

_SAME_SETTING = 1e-2
"""Values of an option within this part of each other are the same."""

_MAX_SETTINGS = 4
"""Settings of published results that a sentence names."""

_LAW_E, _LAW_B, _LAW_ALPHA, _LAW_BETA = 1.8172, 2085.43, 0.3478, 0.3658
"""Loss = E + A / parameters^alpha + B / tokens^beta [nats]: Besiroglu et al. 2024, Chinchilla
Scaling: A replication attempt, arXiv 2404.10102, Table 1 (a fit of Hoffmann et al. 2022's runs)."""

_TEST_EXAMPLES = {
    "imagenet": 50_000,
    "cifar": 10_000,
    "squad": 10_570,
    "mnli": 9_815,
    "qqp": 40_430,
    "qnli": 5_463,
    "sst-2": 872,
    "mrpc": 408,
    "rte": 277,
}
_FEW_EXAMPLES = 1_000
"""Examples of a test set by its data (ILSVRC 2012 validation, Russakovsky et al. 2015; CIFAR,
Krizhevsky 2009; SQuAD 1.1's development set, Rajpurkar et al. 2016; those of GLUE's tasks, Wang et
al. 2018); elsewhere about as many as CoLA, a middle one of GLUE, has (1,043)."""

_NOISE = 2.0 * sqrt(2.0)
"""Two accuracies differ by chance by up to this many standard errors of one (95 %)."""

_DEVIATION = re.compile(r"sd (\d+(?:\.\d+)?)(?:, baseline (\d+(?:\.\d+)?))?")
"""The standard deviation of a row's runs, and of its baseline's, as its spread states them."""

_FEW_RUNS = 3
"""Fewer runs than these do not show their own spread."""

_RUNS_HELD = 0.9
"""The share of runs that needs no more, and no less, than the ends of a spread."""

MAX_BARE_FACTOR = 10.0
"""A factor above this is written with an x: a bare 90 is meant as epochs."""


class EpochsFactor(NamedTuple):
    """Epochs that a method needs for S-SGD's quality, as a multiple of S-SGD's.

    Parameters
    ----------
    basis : where it is from; "none" where nothing is known
    middle : the median over models and sources; None where nothing is known or most runs fell short
    low, high : between the least and the most that nine of ten runs need; ``high`` is infinite
        where more than one in ten fell short
    runs, short : rows of evidence that it is from, and how many of them fell short
    timed : how many of them measured epochs or a loss, not only that a final accuracy is as good
    workers : the fewest and the most workers of these rows; None where none says how many
    sources : what these rows are, in words
    against : measurements and statements against the method at this setting, in words
    why : why nothing is known; "" where something is
    """

    basis: Basis
    middle: float | None = None
    low: float | None = None
    high: float | None = None
    runs: int = 0
    short: int = 0
    timed: int = 0
    workers: tuple[int, int] | None = None
    sources: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    why: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a number of epochs that a plan can count on."""
        return self.middle is not None

    @property
    def fell_short(self) -> bool:
        """Whether most published results fell short of S-SGD's quality."""
        return self.middle is None and self.short > 0

    def widened(self, spread: float) -> EpochsFactor:
        """Return it as a plan may count on it: wider where few results show its spread.

        Ends are ``spread`` times from the middle at least where fewer than three results measured
        epochs: a final accuracy that is as good shows no spread of them. An advantage counts only
        where nine of ten results have it, of three at least; else a middle below 1 is 1.
        """
        if self.basis != "evidence" or self.middle is None:
            return self
        low, middle, high = self.low or 0.0, self.middle, self.high or inf
        if self.timed < _FEW_RUNS:
            low, high = min(low, middle / spread), max(high, middle * spread)
        if middle < 1.0 and (self.runs < _FEW_RUNS or high >= 1.0):
            middle, high = 1.0, max(high, 1.0)
        return self._replace(middle=middle, low=low, high=high)

    @property
    def words(self) -> str:
        """Return the factor as a table's cell: 1, 1.10 or "?".

        Examples
        --------
        >>> EpochsFactor("evidence", 1.1, 1.0, 1.3).words, EpochsFactor("none").words
        ('1.10', '?')
        """
        if self.middle is None:
            return "short" if self.fell_short else "?"
        return "1" if self.basis == "same arithmetic" else f"{self.middle:.2f}"

    @property
    def sentence(self) -> str:
        """Say what is known, with its spread and its sources."""
        if self.basis == "same arithmetic":
            return "changes nothing in training: as many epochs as S-SGD"
        if self.middle is None:
            return self.why
        if self.basis == "given":
            return f"{self.middle:.3g} times the epochs of S-SGD, as given"
        return f"{self.summary}: {'; '.join(self.sources)}"

    @property
    def summary(self) -> str:
        """Say in one line what published results come to."""
        middle = "" if self.middle is None else f"{self.middle:.2f} times the epochs of S-SGD"
        return f"{middle} ({_ends(self)})"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; an infinite end is None, ``short`` says how many fell short."""
        return {
            "basis": self.basis,
            "epochs_factor": self.middle,
            "epochs_factor_interval": None
            if self.low is None or self.high is None
            else [self.low, self.high if isfinite(self.high) else None],
            "runs": self.runs,
            "fell_short": self.short,
            "workers": None if self.workers is None else list(self.workers),
            "sources": list(self.sources),
            "against": list(self.against),
            "why_unknown": self.why,
        }


AS_MANY_EPOCHS = EpochsFactor("same arithmetic", 1.0, 1.0, 1.0)
"""That of a method that changes nothing in training."""


def _ends(factor: EpochsFactor) -> str:
    low, high = factor.low or 0.0, factor.high or 0.0
    ends = f"{low:.2f} to {high:.2f}" if isfinite(high) else f"{low:.2f} and more"
    results = f"{factor.runs} published result{'s' if factor.runs > 1 else ''}"
    on = "" if factor.workers is None else f" on {_workers_words(*factor.workers)}"
    return f"{ends} in {results}{on}" + (f", {factor.short} fell short" if factor.short else "")


def _workers_words(low: int, high: int) -> str:
    """Say how many workers.

    Examples
    --------
    >>> _workers_words(1, 1), _workers_words(4, 256)
    ('1 worker', '4 to 256 workers')
    """
    if low < high:
        return f"{low} to {high} workers"
    return f"{high} worker{'s' if high > 1 else ''}"


class EpochsFactors:
    """What is known of the epochs of methods for one model, by method and setting.

    Parameters
    ----------
    catalog : where the tables are
    model : the model, which decides what task and data evidence must be of
    data : the training set where it is known, one of `perfsim.planning.capacity.DATASETS`
    given : factors that the user states, by method
    """

    def __init__(
        self,
        catalog: Catalog,
        model: str,
        data: str = "",
        given: Mapping[str, float] | None = None,
    ) -> None:
        self._tables = _tables(catalog)
        model = model_named(model, catalog)
        self._task, self._data = task_of(model), data_of(model)
        if self._task == "image classification" and data in ("imagenet", "cifar10", "cifar100"):
            self._data = data.rstrip("0123456789")
        self._given = {method_name(name): factor for name, factor in (given or {}).items()}

    def of_scenario(self, asked: ResolvedScenario) -> EpochsFactor:
        """Return what is known of a predicted scenario's method, at its options and workers."""
        divided = asked.further
        ranks = asked.gpus // (divided.get("tp", 1) * divided.get("pp", 1) * divided.get("cp", 1))
        nodes = len(divided.get("site") or ()) or asked.nodes
        replicas = replicas_of(asked.method, asked.options, ranks, nodes)
        return self.of(asked.method, asked.options, replicas)

    def of(
        self, method: str, options: Mapping[str, Any], replicas: int | None = None
    ) -> EpochsFactor:
        """Return what is known of a method with the options that it was predicted with.

        ``replicas`` is as for ``epochs_factor``.
        """
        evidence, statements, spread = self._tables
        update = same_update(method)
        told = [
            one
            for one in statements.get(update, [])
            if one.task == self._task and _is_own(one.data.lower(), self._data)
        ]
        found = epochs_factor(
            method, options, evidence.get(update, []), told, self._task, self._data, replicas
        )
        if method in self._given:
            value = self._given[method]
            return EpochsFactor("given", value, value, value, against=found.against)
        return found.widened(spread)


def replicas_of(method: str, options: Mapping[str, Any], ranks: int, nodes: int) -> int | None:
    """Return how many workers of a method train apart between exchanges; None where none does.

    Workers that update late, by the same gradients, stay alike.

    Parameters
    ----------
    options : as they were predicted with, so that they need no check
    ranks, nodes : data-parallel ranks, and their nodes (sites where a wide area network joins some)

    Examples
    --------
    >>> replicas_of("diloco", {}, 64, 8), replicas_of("dgc", {}, 64, 8)
    (8, None)
    """
    kind = method_class(method)
    if kind.family != "fewer exchanges":
        return None
    asked = kind.model_construct(**options)
    if asked.delay():
        return None
    return nodes if asked.sites_are_nodes else ranks


_Tables = tuple[dict[str, list[Evidence]], dict[str, list[Statement]], float]


def _tables(catalog: Catalog) -> _Tables:
    """Return the rows of both tables by method, and the spread of runs, read once by a session.

    Methods that make the same update share their rows.
    """

    def read() -> _Tables:
        evidence: dict[str, list[Evidence]] = {}
        statements: dict[str, list[Statement]] = {}
        for row in known_evidence(catalog):
            evidence.setdefault(same_update(row.method), []).append(row)
        if (path := catalog.beside("learning", "", STATEMENTS_FILE)) is not None:
            for statement in read_statements(path):
                statements.setdefault(same_update(statement.method), []).append(statement)
        return evidence, statements, spread_of_runs(chain.from_iterable(evidence.values()))

    return catalog.once(("learning by method",), read)


def spread_of_runs(evidence: Iterable[Evidence]) -> float:
    """Return by what factor nine of ten runs are within the median of their model and method.

    Runs that fell short, final accuracies, which tell no epochs, and groups of fewer than three do
    not count; 1 where there are none.
    """
    groups: dict[tuple[str, str, str, str], list[float]] = {}
    for row in evidence:
        ratio = epochs_ratio(row)
        if ratio is not None and isfinite(ratio) and row.measure != "final_accuracy":
            groups.setdefault((row.method, row.source, row.model, row.measure), []).append(ratio)
    apart = [
        abs(log(ratio / median(ratios)))
        for ratios in groups.values()
        if len(ratios) >= _FEW_RUNS
        for ratio in ratios
    ]
    if not apart:
        return 1.0
    return exp(sorted(apart)[ceil(_RUNS_HELD * len(apart)) - 1])


def epochs_factor(
    method: str,
    options: Mapping[str, Any],
    evidence: Sequence[Evidence],
    statements: Sequence[Statement] = (),
    task: str | None = None,
    data: str = "",
    replicas: int | None = None,
) -> EpochsFactor:
    """Return what a method's evidence says of the epochs that it needs at a setting.

    Evidence of the same task counts, on the same data, else on larger ones. Of it, results at the
    same setting count; where they are fewer than three, also those that bound them: that reached
    the quality further from S-SGD, or needed more epochs (or fell short) nearer to it. A run's
    final accuracy does not count where its epochs to a quality are known. Each model of each source
    weighs alike: the middle is the median of their medians. A setting needs no more than one with
    results that is further from S-SGD: where it seems to, the middle is that of the one further
    away, and the ends are those of the results at both.

    Parameters
    ----------
    options : those that the method was predicted with
    evidence, statements : of this method
    task : what the model is trained for, None where that is not known
    data : "imagenet", "cifar", "web", "small text", or "" for any
    replicas : workers that train apart between exchanges, which drift apart the more the more they
        are (Charles et al. 2025, arXiv 2503.09799, table 4); None where none does

    Examples
    --------
    >>> row = Evidence("dgc", "", "density=0.001", "image classification", "ResNet-50", "ImageNet",
    ...     None, 8, "epochs_to_quality", "epochs", "yes", "SGD", 80.0, 88.0, None, "", None,
    ...     "published", "a", "b", "MIT", "2020", "")
    >>> epochs_factor("dgc", {"density": 0.01}, [row], task="image classification").middle
    1.1
    >>> epochs_factor("dgc", {"density": 0.0001}, [row], task="image classification").why
    'no published result is at this setting; known: density=0.001'
    """
    if not method_class(method).lossy:
        return AS_MANY_EPOCHS
    asked = {**options, **({} if replicas is None else {_WORKERS: replicas})}
    read = _comparable(evidence, task, data)
    of_data = [(row, ratio) for row, ratio in read if _is_own(row.data.lower(), data)]

    def at(setting: Mapping[str, Any]) -> _Results:
        return _at_setting(of_data, method, setting) or _at_setting(read, method, setting)

    own = at(asked)
    least = min((own, *map(at, _settings_further(evidence, asked, task))), key=_middle)
    both = own + [one for one in least if one not in own]
    if not both:
        why = (_why_unknown(evidence, read, asked, task, data), *_said(statements, "as good"))
        return EpochsFactor("none", against=_said(statements, "worse"), why="; ".join(why))
    return _summed_up(both, _middle(least), statements)


def _settings_further(
    evidence: Iterable[Evidence], asked: Mapping[str, Any], task: str | None
) -> Iterator[Mapping[str, Any]]:
    """Yield the settings further from S-SGD that mix the values of a task's results.

    Of results at interval 30 on 8 workers and at 100 on 4, the one asked for on 8 workers at 30
    needs no more than one at 100 on 8 would. Of each option there is a value beyond all as well:
    results that do not state it count there too.
    """
    further: dict[str, dict[float, Any]] = {}
    for row in evidence:
        stated = _stated(row.options, row.workers) if row.task == task else {}
        for name, value in stated.items():
            ordered = name == _WORKERS or name in _LESS_IS_HARDER or name in _MORE_IS_HARDER
            if ordered and name in asked and _side(name, value, asked[name]) != "easier":
                further.setdefault(name, {})[_number(value)] = value
    ways = []
    for name, values in further.items():
        harder = [one for one in values.values() if _side(name, one, asked[name]) == "harder"]
        beyond = min(values) / 2.0 if name in _LESS_IS_HARDER else 2.0 * max(values)
        ways.append([asked[name], *harder, *([] if isinstance(asked[name], bool) else [beyond])])
    for values_of_each in islice(product(*ways), 1, _MAX_MIXED):
        yield {**asked, **dict(zip(further, values_of_each, strict=True))}


_MAX_MIXED = 200
"""Settings at most that are looked at for one. Chosen: of what is published DiLoCo has most, 40."""


_Results = list[tuple[Evidence, float]]
"""Results, each with its epochs' ratio."""


def _comparable(evidence: Iterable[Evidence], task: str | None, data: str) -> _Results:
    """Return the results of a task, on data as large at least, that have a baseline."""
    return [
        (row, ratio)
        for row in evidence
        if row.task == task
        and _as_large(row.data.lower(), data)
        and (ratio := epochs_ratio(row)) is not None
    ]


def _why_unknown(
    evidence: Sequence[Evidence],
    read: _Results,
    asked: Mapping[str, Any],
    task: str | None,
    data: str,
) -> str:
    """Say why no result tells of a setting; ``read`` are those that are comparable."""
    if not evidence:
        return "no published result"
    if task is None:
        return "what the model is trained for is not known"
    of_task = [row for row in evidence if row.task == task]
    if not of_task:
        return f"published results are of {_each(row.task for row in evidence)} only"
    if not any(_as_large(row.data.lower(), data) for row in of_task):
        return f"published results are on smaller data only: {_each(row.data for row in of_task)}"
    if not read:
        return "published results have no comparable baseline"
    known = _settings([row for row, _ in read], asked)
    return f"no published result is at this setting; known: {known}"


def _at_setting(read: _Results, method: str, asked: Mapping[str, Any]) -> _Results:
    """Return the results at a setting; where they are few, those too that bound what it needs.

    What was needed nearer to S-SGD is a bound from below, which alone promises nothing.
    """
    asked_of = {other: _asked_of(other, method, asked) for other in {row.method for row, _ in read}}
    sides = [(row, ratio, _beside_setting(row, asked_of[row.method])) for row, ratio in read]
    same = [(row, ratio) for row, ratio, side in sides if side == "same"]
    if len(same) >= _FEW_RUNS:
        return same
    above = same + [(row, x) for row, x, side in sides if side == "harder" and isfinite(x)]
    least = 1.0 if above else sys.float_info.max
    return above + [(row, x) for row, x, side in sides if side == "easier" and x > least]


def _settings(rows: Sequence[Evidence], asked: Mapping[str, Any]) -> str:
    """Name the settings of some results, with their workers where these are asked for."""
    workers: dict[str, list[int]] = {}
    for row in rows:
        pairs = [pair for pair in row.options.split("; ") if pair]
        compared = [pair for pair in pairs if pair.split("=")[0] not in _LEARNS_ALIKE]
        told = workers.setdefault(", ".join(compared) or row.setting, [])
        told += [row.workers] if row.workers is not None else []
    words = [
        f"{setting} on {_workers_words(min(told), max(told))}"
        if told and _WORKERS in asked
        else setting
        for setting, told in workers.items()
    ]
    more = len(words) - _MAX_SETTINGS
    return "; ".join(words[:_MAX_SETTINGS]) + (f"; and {more} more" if more > 0 else "")


def _each(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _as_large(trained_on: str, data: str) -> bool:
    """Tell whether a run's data are at least as large as those asked for."""
    if data == "web":
        return not any(text in trained_on for text in _SMALL_TEXTS)
    if data in ("imagenet", "cifar"):
        return "imagenet" in trained_on or data in trained_on
    return True


def _is_own(trained_on: str, data: str) -> bool:
    """Tell whether a run's data are those asked for."""
    if data == "small text":
        return any(text in trained_on for text in _SMALL_TEXTS)
    return _as_large(trained_on, data) if data == "web" else data in trained_on


def _counted(chosen: _Results) -> _Results:
    """Leave out the final accuracies of runs whose epochs to a quality are there too."""
    timed = {_run(row) for row, _ in chosen if row.measure == "epochs_to_quality"}
    return [
        (row, ratio)
        for row, ratio in chosen
        if row.measure == "epochs_to_quality" or _run(row) not in timed
    ]


def _middles(chosen: _Results) -> list[float]:
    """Return the median of each model of each source."""
    by_model: dict[tuple[str, str, str], list[float]] = {}
    for row, ratio in _counted(chosen):
        by_model.setdefault((row.source, row.model, row.data), []).append(ratio)
    return [median(own) for own in by_model.values()]


def _middle(chosen: _Results) -> float:
    """Return the median of the models' medians; infinite where there is none."""
    return median(_middles(chosen)) if chosen else inf


def _summed_up(chosen: _Results, middle: float, statements: Sequence[Statement]) -> EpochsFactor:
    """Return what results say around a middle, with the ends of all of them."""
    counted = _counted(chosen)
    by_source: dict[str, list[Evidence]] = {}
    for row, _ in counted:
        by_source.setdefault(row.source, []).append(row)
    ratios = sorted(ratio for _, ratio in counted)
    most = ceil(_RUNS_HELD * len(ratios))
    short = sum(not isfinite(ratio) for ratio in ratios)
    workers = [row.workers for row, _ in counted if row.workers is not None]
    told = tuple(
        f"{row.model} on {row.data} with {row.setting} {_shortfall(row)} ({row.source})"
        for row, ratio in chosen
        if not isfinite(ratio)
    )
    known = isfinite(middle)
    return EpochsFactor(
        "evidence",
        middle if known else None,
        min(ratios[len(ratios) - most], middle) if known else None,
        max(ratios[most - 1], middle) if known else None,
        len(ratios),
        short,
        sum(row.measure != "final_accuracy" for row, _ in counted),
        (min(workers), max(workers)) if workers else None,
        tuple(f"{_where(rows)} ({source})" for source, rows in by_source.items()),
        told + _said(statements, "worse"),
        "" if known else _short_words(short, len(ratios), _middles(chosen)),
    )


def _run(row: Evidence) -> tuple[str, ...]:
    """Return what tells a row's run from others."""
    return row.source, row.model, row.data, row.setting, row.locator


def _short_words(short: int, runs: int, middles: Sequence[float]) -> str:
    """Say how many results fell short, and of how many models most did."""
    models = sum(not isfinite(one) for one in middles)
    of = f", those of {models} of {len(middles)} models," if models < len(middles) else ""
    results = f"{short} of {runs} published results" if runs > 1 else "the one published result"
    return f"{results}{of} fell short of S-SGD's quality"


def _said(statements: Sequence[Statement], verdict: str) -> tuple[str, ...]:
    """Return the statements of a verdict in words, with their sources."""
    return tuple(f"{one.words} ({one.source})" for one in statements if one.verdict == verdict)


def _where(rows: Sequence[Evidence]) -> str:
    models = list(dict.fromkeys(f"{row.model} on {row.data}" for row in rows))
    return models[0] if len(models) == 1 else f"{models[0]} and {len(models) - 1} more"


def _shortfall(row: Evidence) -> str:
    """Say how a run fell short."""
    if row.value is None:
        return f"never reached {row.baseline}"
    if row.measure == "final_accuracy":
        return f"ended {row.baseline_value - row.value:.1f} points below {row.baseline}"
    return f"ended at {row.value:g} {row.unit} for {row.baseline_value:g} of {row.baseline}"


def _asked_of(other: str, method: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a setting of a method as that of another which makes the same update.

    A method that makes it in another way has no option for what the other does by default.
    """
    if other == method:
        return asked
    defaults = {name: one.default for name, one in method_class(other).model_fields.items()}
    return {**defaults, **asked}


def _beside_setting(
    row: Evidence, asked: Mapping[str, Any]
) -> Literal["same", "harder", "easier", "other"]:
    """Say how far from S-SGD a row's setting takes its method, beside the one asked of it."""
    stated = _stated(row.options, row.workers)
    if (_TOLD & asked.keys()) - stated.keys():
        return "other"
    sides = set()
    for name in (stated.keys() & asked.keys()) - _LEARNS_ALIKE:
        side = _side(name, stated[name], asked[name])
        if side == "other":
            return side
        sides.add(side)
    sides.discard("same")
    if len(sides) > 1:
        return "other"
    return "harder" if "harder" in sides else "easier" if sides else "same"


def _side(name: str, stated: str, asked: Any) -> Literal["same", "harder", "easier", "other"]:
    """Say how far from S-SGD an option's value takes a method, beside the one asked for."""
    less, more = name in _LESS_IS_HARDER, name in _MORE_IS_HARDER or name == _WORKERS
    if not less and not more:
        return "same" if stated == str(asked).lower() else "other"
    own, wanted = _number(stated), _number(str(asked))
    if abs(own - wanted) <= _SAME_SETTING * abs(wanted):
        return "same"
    return "harder" if (own < wanted) == less else "easier"


@cache  # a row is compared with many settings
def _stated(options: str, workers: int | None) -> Mapping[str, str]:
    """Return the options that a row states, and its workers."""
    stated = dict(pair.split("=", 1) for pair in options.split("; ") if pair)
    return stated if workers is None else stated | {_WORKERS: str(workers)}


def _number(text: str) -> float:
    """Return an option's value as a number: 0 and 1 for false and true."""
    flags = {"false": 0.0, "true": 1.0}
    return flags[text.lower()] if text.lower() in flags else float(text)


def epochs_ratio(row: Evidence) -> float | None:
    """Return the epochs of a run for its baseline's quality, as a multiple of its baseline's.

    Infinite where it fell short; None where it cannot be told.

    A final accuracy within what chance makes of two runs is as good: two standard errors of the
    difference, by the size of the test set or by the stated deviation of the runs. It took as many
    epochs as the baseline's, or as small a part of them as the row says. Of a language
    model's final loss, the scaling law of Hoffmann et al. 2022 says how many more tokens would have
    made up for it, by the tokens of the run (where they are not stated, those that are optimal for
    its compute).

    Examples
    --------
    >>> row = Evidence("diloco", "H=30", "interval=30", "language model pretraining", "2.4B", "C4",
    ...     4.8e10, 2, "final_loss", "nats", "yes", "data parallel", 2.326, 2.336, None, "", None,
    ...     "published", "a", "b", "paper", "2025", "")
    >>> round(epochs_ratio(row), 3)
    1.114
    """
    if row.comparable == "no":
        return None
    if row.measure == "epochs_to_quality":
        return inf if row.value is None else row.value / row.baseline_value
    assert row.value is not None
    if row.measure == "final_accuracy":
        as_good = row.baseline_value - row.value <= _chance_points(row)
        return (row.trained_ratio or 1.0) if as_good else inf
    if row.task != "language model pretraining":
        return None
    losses = row.baseline_value, row.value
    base, loss = map(log, losses) if row.measure == "final_perplexity" else losses
    if row.tokens is not None:
        by_data = _LAW_B / row.tokens**_LAW_BETA
    elif base > _LAW_E:  # optimal: alpha A / N^alpha = beta B / D^beta
        by_data = (base - _LAW_E) * _LAW_ALPHA / (_LAW_ALPHA + _LAW_BETA)
    else:
        return None
    left = 1.0 - (loss - base) / by_data
    return float(left ** (-1.0 / _LAW_BETA)) if left > 0.0 else inf


def _chance_points(row: Evidence) -> float:
    """Return by how many points two accuracies of a row differ by chance."""
    examples = next(
        (count for name, count in _TEST_EXAMPLES.items() if name in row.data.lower()),
        _FEW_EXAMPLES,
    )
    share = min(row.baseline_value / 100.0, 1.0)
    by_examples = 100.0 * sqrt(share * (1.0 - share) / examples)
    stated = _DEVIATION.fullmatch(row.spread)
    by_runs = 0.0
    if stated:
        own, baseline = float(stated[1]), float(stated[2] or stated[1])
        by_runs = sqrt((own**2 + baseline**2) / 2.0 / (row.runs or 1))
    return _NOISE * max(by_examples, by_runs)


def learning_notes(factors: Mapping[str, EpochsFactor]) -> list[str]:
    """Say where each method's epochs are from, whose are not known and why, and what is against it.

    Methods with the same evidence share a sentence.

    Parameters
    ----------
    factors : by the method's name, or what else it is called

    Examples
    --------
    >>> for note in learning_notes({"a": EpochsFactor("none", why="of CIFAR-10 only")}): print(note)
    Iteration time only for a: of CIFAR-10 only.
    `epochs_of` METHOD=FACTOR states the epochs of a method yourself.
    """
    told = _together(factors, lambda one: one.sentence if one.known else "", ("evidence", "given"))
    unknown = _together(factors, lambda one: "" if one.known else one.why)
    notes = [f"Epochs of {', '.join(names)}: {sentence}." for sentence, names in told.items()]
    notes += [
        f"Iteration time only for {', '.join(names)}: {why}."
        for why, names in sorted(unknown.items(), key=lambda item: -len(item[1]))
    ]
    if unknown:
        notes.append("`epochs_of` METHOD=FACTOR states the epochs of a method yourself.")
    return [*notes, *learning_warnings(factors)]


def learning_warnings(factors: Mapping[str, EpochsFactor]) -> list[str]:
    """Say what is known against methods at their settings; see ``learning_notes``.

    A warning in brief has the first thing that is known of each.
    """
    against = _together(factors, lambda one: _AND.join(one.against))
    found: list[str] = []
    for words, names in against.items():
        whose, (first, *others) = f"Against {', '.join(names)}", words.split(_AND)
        more = f" and {len(others)} more" if others else ""
        found.append(warning(f"{whose}: {words}.", f"{whose}: {first}{more}"))
    return found


_AND = "; "
"""Between the things that are known against a method."""


def _together(
    factors: Mapping[str, EpochsFactor],
    words: Callable[[EpochsFactor], str],
    of: Sequence[Basis] = ("evidence", "given", "none"),
) -> dict[str, list[str]]:
    """Group names by the words that are said of them."""
    found: dict[str, list[str]] = {}
    for name, factor in sorted(factors.items()):
        if factor.basis in of and words(factor):
            found.setdefault(words(factor), []).append(name)
    return found


def parse_epochs_of(of: Sequence[str], epochs: float | None = None) -> dict[str, float]:
    """Return the factors that a user states for single methods (``METHOD=FACTOR``).

    A factor is a number, with or without an x: 1.2 or 1.2x. ``100epochs`` are a factor where the
    epochs of S-SGD are known.

    Parameters
    ----------
    of : METHOD=FACTOR, each
    epochs : those of S-SGD, None where they are not known

    Raises
    ------
    RequestError
        If one is no such factor, or its method does not exist.

    Examples
    --------
    >>> parse_epochs_of(["topk=1.2", "dgc=99epochs"], 90.0)
    {'topk': 1.2, 'dgc': 1.1}
    """
    factors = {}
    for pair in of:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise RequestError(
                "epochs_of", f"{shown(pair)} is not METHOD=FACTOR, such as topk=1.2."
            )
        method, factor = method_name(name, "epochs_of"), _factor(value, epochs)
        _check_unit(method, factor)
        factors[method] = factor
    return factors


def _check_unit(method: str, factor: float) -> None:
    """Refuse another number than 1 for S-SGD, in whose epochs all others are counted."""
    if method == "ssgd" and factor != 1.0:
        why = "ssgd is what the epochs of others are multiples of; its own are 1."
        raise RequestError("epochs_of", why, value=factor)


def check_epochs_of(epochs_of: Mapping[str, float] | None, methods: Iterable[str]) -> None:
    """Check that epochs are stated of methods that are asked of only.

    Raises
    ------
    RequestError
        If a method with epochs is not among ``methods``, S-SGD has others than its own, or one is
        no number above zero.
    """
    asked = list(dict.fromkeys(methods))
    if not isinstance(epochs_of, Mapping | None):
        why = f"{shown(epochs_of)} is not a table of methods and factors, such as {{'topk': 1.2}}."
        raise RequestError("epochs_of", why, value=epochs_of)
    for name, factor in (epochs_of or {}).items():
        if not isinstance(factor, Real) or not 0 < float(factor) < 1e9:
            why = f"{shown(factor)} of {name} is no factor above 0 and below 1e9: 1.2 is 1.2 times"
            raise RequestError("epochs_of", f"{why} the epochs of S-SGD.", value=factor)
        _check_unit(method_name(name, "epochs_of"), factor)
        if method_name(name) not in asked:
            raise RequestError(
                "epochs_of", f"{name} is not among the methods asked of: {', '.join(asked)}."
            )


def _factor(text: str, epochs: float | None) -> float:
    number, marked = text, text.endswith("x")
    in_epochs = text.endswith("epochs")
    if in_epochs:
        number = text.removesuffix("epochs").strip()
    elif marked:
        number = text.removesuffix("x").strip()
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise RequestError(
            "epochs_of",
            f"{shown(text)} is no factor above 0 and below 1e9: 1.2 is 1.2 times the epochs of"
            " S-SGD.",
            value=text,
        )
    if in_epochs:
        if epochs is None:
            raise RequestError(
                "epochs_of",
                f"{shown(text)}: the epochs of S-SGD are not known here; give a factor"
                " such as 1.2.",
                value=text,
            )
        return value / epochs
    if value > MAX_BARE_FACTOR and not marked:
        raise RequestError(
            "epochs_of",
            f"{shown(text)} would be {value:g} times the epochs of S-SGD; write {value:g}epochs for"
            f" epochs, or {value:g}x for that factor.",
            value=text,
        )
    return value
