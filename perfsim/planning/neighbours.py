"""What a report shows around one prediction: other methods, GPU counts and bandwidths.

All are predictions of the same scenario with one or two fields changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

from perfsim.data.catalog import Catalog
from perfsim.errors import PerfsimError, RequestError
from perfsim.interval import NO_METHOD, uncertainties
from perfsim.methods import method_name
from perfsim.methods.describe import for_method
from perfsim.prediction import Prediction, predict
from perfsim.ranking import Ranking
from perfsim.resolve import resolve
from perfsim.scenario import Scenario, make_scenario, parse_types
from perfsim.session import default_session
from perfsim.validate.cases import Case, nested_fields, shipped_cases
from perfsim.validate.mapping import RULES_FILE, read_rules, role_of

__all__ = [
    "Around",
    "GridCell",
    "PublishedValue",
    "around",
    "bandwidths",
    "gpu_counts",
    "is_heavy",
    "measured_like",
    "nearest",
    "spread",
    "tasks_of",
    "thinned",
]

FIRST = ("model", "gpu", "net", "method")
"""What a row is held to before its files are read."""

SAME = ("model", "gpu", "batch", "precision", "net", "intra_net", "method")
"""Fields of the resolved scenario that must be equal; GPUs are what a curve runs over."""

ALIKE = 1e-9
"""Bytes within this part of each other are the same."""

COUNTED = ("gpus", "gpus_per_node", "batch")


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One published throughput [samples/s], and where it stands.

    ``options`` are those of the method that its rule or row states otherwise than was asked.
    """

    gpus: int
    gpus_per_node: int
    samples_per_s: float
    id: str
    source: str
    options: Mapping[str, Any]


def measured_like(scenario: Mapping[str, Any], catalog: Catalog) -> list[PublishedValue]:
    """Return what was measured of a resolved scenario at any number of GPUs, by GPUs.

    Fusion, overlap and GPUs a node may differ, as sources run each at their best; so may options
    that change nothing in what a GPU sends.
    """
    beside = catalog.beside("measurements", "", RULES_FILE)
    if beside is None:
        return []
    rules = read_rules(beside)
    found = []
    for case in shipped_cases(catalog):
        try:
            fields = nested_fields(role_of(case, rules).fields, catalog)
        except RequestError:
            continue  # it names a scenario that is not here
        if any(str(fields.get(name, "")) != str(scenario[name]) for name in FIRST):
            continue
        for name, column in zip(COUNTED, ("gpus", "gpus_per_node", "batch_per_gpu"), strict=True):
            whole = case.whole(column)
            if whole:
                fields.setdefault(name, whole)
        one = _like(case, fields, scenario, catalog)
        if one is not None:
            found.append(one)
    return sorted(found, key=lambda one: (one.gpus, one.id))


def _like(
    case: Case, fields: dict[str, Any], scenario: Mapping[str, Any], catalog: Catalog
) -> PublishedValue | None:
    try:
        row = make_scenario(fields)
        known = resolve(row, catalog).fields()
        if any(known[name] != scenario[name] for name in SAME):
            return None
        own, asked = known["options"], scenario["options"]
        others = {name: value for name, value in own.items() if asked.get(name) != value}
        if own != asked and not _sends_alike(row, asked, catalog):
            return None
    except PerfsimError:
        return None
    samples = known["gpus"] * known["batch"]
    rates = {
        "throughput": case.value,
        "throughput_per_gpu": case.value * known["gpus"],
        "iteration_s": samples / case.value if case.value else 0.0,
    }
    rate = rates.get(case.metric, 0.0)
    if rate <= 0:
        return None
    return PublishedValue(known["gpus"], known["gpus_per_node"], rate, case.id, case.source, others)


def _sends_alike(row: Scenario, asked: Mapping[str, Any], catalog: Catalog) -> bool:
    """Say whether a GPU sends the same with the options that were asked for."""
    other = row.model_copy(update={"options": dict(asked)})
    sent = [predict(one, catalog).communication["bytes_per_gpu"] for one in (row, other)]
    return abs(sent[0] - sent[1]) <= ALIKE * max(sent)


GBIT = 1e9 / 8
"""Bytes a second in a Gbit/s."""

RATES = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0)
"""Ethernet and InfiniBand rates that are sold [Gbit/s]."""

BEYOND = 8
"""Counts go to so many times the GPUs asked for, at least to ``LEAST``."""

LEAST = 64
MOST_COUNTS = 10

MAP_TASKS = 40_000
CURVE_TASKS = 10_000
"""Tasks that a map, and a method's curve, may have in all: about a second for 5,000."""

HEAVY_TASKS = 1_500
"""A method whose prediction has more is left out of the map."""

TASKS_A_PREDICTION = 100
"""What a prediction takes besides its tasks, in tasks."""

SIDES = (3, 7)


def gpu_counts(gpus: int, gpus_per_node: int) -> list[int]:
    """Return GPU counts for a scaling curve: 1, part of a node, then nodes doubled.

    Examples
    --------
    >>> gpu_counts(24, 4)
    [1, 2, 4, 8, 16, 24, 32, 64, 128]
    """
    most = max(LEAST, BEYOND * gpus)
    found = {1, gpus}
    count = 2
    while count < gpus_per_node:
        found.add(count)
        count *= 2
    count = gpus_per_node
    while count <= most:
        found.add(count)
        count *= 2
    ordered = sorted(found)
    while len(ordered) > MOST_COUNTS:
        ordered.remove(next(count for count in ordered[1:] if count != gpus))
    return ordered


def bandwidths(rate_bytes_per_s: float, count: int) -> list[float]:
    """Return ``count`` rates that are sold, around one [B/s].

    Examples
    --------
    >>> [rate * 8 / 1e9 for rate in bandwidths(1.17e9, 3)]
    [5.0, 10.0, 25.0]
    """
    own = rate_bytes_per_s / GBIT
    nearest = min(range(len(RATES)), key=lambda place: abs(RATES[place] / own - 1.0))
    first = max(0, min(nearest - count // 2, len(RATES) - count))
    return [rate * GBIT for rate in RATES[first : first + count]]


def nearest(counts: Sequence[int], wanted: int, most: int) -> list[int]:
    """Return at most so many of ascending counts, with the one that is wanted in their middle.

    Examples
    --------
    >>> nearest([8, 16, 32, 64, 128], 32, 3), nearest([8, 16, 32], 4, 2)
    ([16, 32, 64], [8, 16])
    """
    place = min(range(len(counts)), key=lambda one: abs(counts[one] - wanted))
    first = max(0, min(place - most // 2, len(counts) - most))
    return list(counts[first : first + most])


def tasks_of(prediction: Prediction) -> int:
    """Return what a prediction costs, in tasks."""
    return TASKS_A_PREDICTION + sum(len(one.graph.tasks) for one in prediction.timelines)


def is_heavy(prediction: Prediction) -> bool:
    """Say whether a map of this method would take too long."""
    return tasks_of(prediction) > HEAVY_TASKS


def spread(predictions: Iterable[Prediction]) -> int:
    """Return how many rates, and how many GPU counts, a map of these methods can afford."""
    tasks = sum(tasks_of(one) for one in predictions)
    return max(SIDES[0], min(SIDES[1], isqrt(MAP_TASKS // tasks)))


def thinned(counts: Sequence[int], prediction: Prediction) -> list[int]:
    """Return the counts that a method's curve can afford: one GPU, that of the prediction, ends."""
    own = int(prediction.scenario["gpus"])
    more = max(0, CURVE_TASKS // tasks_of(prediction))
    others = [count for count in counts if count not in (1, own)]
    if more < len(others):
        step = len(others) / more if more else 0.0
        others = [others[int((place + 1) * step) - 1] for place in range(more)]
    return sorted({1, own, *others})


BASELINE = "ssgd"

FEW = (BASELINE, "powersgd", "acpsgd", "dgc", "signsgd", "localsgd")
"""The methods shown beside the one that is asked for: one or two of a family that saves bytes."""

MOST_METHODS = 6
CURVES = 3
"""Methods whose scaling is drawn: the baseline, the one asked for, then the fastest others."""

MAPPED = 4
"""Methods of the break-even map."""

Progress = Callable[[int, int], None]
"""Told after each prediction how many are done, and of how many."""


@dataclass(frozen=True)
class GridCell:
    """One place of the break-even map: its GPUs, its link's rate, and the methods there."""

    gpus: int
    rate_bytes_per_s: float
    ranking: Ranking


@dataclass(frozen=True)
class Around:
    """The predictions around one.

    Parameters
    ----------
    methods : by name, fastest first, the one that is asked for among them
    refused : methods that do not apply here, and why
    scaling : by method, then by GPUs
    cells : of the break-even map, by rate, then by GPUs; empty where there is none
    mapped : the methods of the map
    measured : published values of the same model, GPU, network and method
    notes : what is to be said of all this
    """

    methods: dict[str, Prediction]
    refused: dict[str, str]
    scaling: dict[str, dict[int, Prediction]]
    cells: list[GridCell]
    mapped: list[str]
    measured: list[PublishedValue]
    notes: list[str]


def around(
    scenario: Scenario,
    prediction: Prediction,
    catalog: Catalog | None = None,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Around:
    """Return what is around a prediction of ``scenario``.

    Parameters
    ----------
    names : methods to show beside it, instead of a few of each family
    progress : told how far it is

    Examples
    --------
    >>> scenario = Scenario(model="resnet18", gpus=2, net="1gbe")
    >>> near = around(scenario, predict(scenario), names=["dgc"])
    >>> list(near.methods), list(near.scaling["ssgd"])
    (['ssgd', 'dgc'], [1, 2, 4, 8, 16, 32, 64])
    """
    catalog = catalog or default_session()
    asked = method_name(scenario.method)
    methods, refused = _methods(scenario, asked, prediction, catalog, names or FEW)
    lines = _first(asked, methods, CURVES)
    heavy = [name for name, one in methods.items() if is_heavy(one)]
    light = {name: one for name, one in methods.items() if name not in heavy}
    mapped = _first(asked, light, MAPPED)
    counts = gpu_counts(prediction.scenario["gpus"], prediction.scenario["gpus_per_node"])
    places, notes = _places(scenario, counts, [methods[name] for name in mapped], catalog)
    kept = {name: thinned(counts, methods[name]) for name in lines}
    ask = _Asker(scenario, asked, catalog, progress, sum(map(len, kept.values())), places, mapped)
    scaling = {name: ask.curve(name, kept[name], methods[name]) for name in lines}
    if places and heavy:
        notes.append(f"Left out of the map, as it would take long: {', '.join(heavy)}.")
    if scenario.placement:
        notes.append("Other GPU counts stand on even nodes.")
    if len(parse_types(scenario.gpu)) > 1:
        notes.append("Other GPU counts are left out: the GPUs are of several types.")
    return Around(
        methods,
        refused,
        scaling,
        ask.cells(),
        mapped if places else [],
        measured_like(prediction.scenario, catalog),
        notes,
    )


def _methods(
    scenario: Scenario, asked: str, prediction: Prediction, catalog: Catalog, names: Sequence[str]
) -> tuple[dict[str, Prediction], dict[str, str]]:
    """Return the predictions of the methods to show, fastest first, and why others are not."""
    found, refused = {asked: prediction}, {}
    for name in dict.fromkeys((BASELINE, *names)):
        if name in found or len(found) == MOST_METHODS:
            continue
        try:
            found[name] = predict(_with_method(scenario, asked, name), catalog)
        except RequestError as error:
            refused[name] = str(error).removeprefix("`method`: ").removeprefix(f"{name} ")
    order = sorted(found, key=lambda name: (found[name].iteration_s, name))
    return {name: found[name] for name in order}, refused


def _with_method(scenario: Scenario, asked: str, name: str) -> Scenario:
    """Return the scenario for a method: as it is for the one asked for, else with its defaults."""
    if name == asked:
        return scenario
    plain = scenario.model_copy(update={"options": {}, "single_gpu_kernels": None})
    return for_method(plain, name)[0]


def _first(asked: str, methods: Mapping[str, Prediction], count: int) -> list[str]:
    """Return the baseline, the method asked for, then the fastest others."""
    kept = [name for name in dict.fromkeys((BASELINE, asked)) if name in methods]
    return [*kept, *(name for name in methods if name not in kept)][:count]


def _places(
    scenario: Scenario, counts: Sequence[int], mapped: Sequence[Prediction], catalog: Catalog
) -> tuple[list[tuple[int, float, Scenario]], list[str]]:
    """Return GPUs, rate and scenario of each cell of the map, or why there is no map."""
    resolved = resolve(scenario, catalog)
    own = resolved.network.links.get("inter")
    each = max(resolved.cluster.placement)
    several = [count for count in counts if count > each]
    if own is None or not several:
        return [], ["No break-even map: the GPUs stand on one node, so no network is crossed."]
    if scenario.beside:
        return [], ["No break-even map: other jobs are on the network, and it would take too long."]
    if not mapped:
        return [], ["No break-even map: it would take too long for these methods."]
    side = min(spread(mapped), len(several) + 2)
    latency_s = own.ring.at(0.0)
    held = {"intra_net": resolved.fields()["intra_net"], "placement": None}
    library = resolved.cluster.library
    cells = []
    for rate in bandwidths(own.rate.value, side):
        link = {"net": f"{rate * 8:g}bit/s,{latency_s:.6g}s", "library": library}
        for gpus in nearest(several, scenario.gpus, side):
            changes = {**held, **link, "gpus": gpus, "gpus_per_node": each}
            cells.append((gpus, rate, scenario.model_copy(update=changes)))
    notes = [
        f"The map's link between nodes has the latency of {resolved.network.name}"
        f" ({latency_s * 1e6:.3g} us a hop) and one NIC a node; measured curves are left aside."
    ]
    return cells, notes


@dataclass
class _Asker:
    """Predicts what is around one scenario, and says how far it is."""

    scenario: Scenario
    asked: str
    catalog: Catalog
    progress: Progress | None
    curves: int
    places: list[tuple[int, float, Scenario]]
    mapped: list[str]
    done: int = 0

    def predict(self, scenario: Scenario, name: str) -> Prediction | None:
        """Return a method's prediction, None where it does not apply."""
        self.tell(self.done + 1)
        try:
            return predict(_with_method(scenario, self.asked, name), self.catalog)
        except RequestError:
            return None

    def tell(self, done: int) -> None:
        """Say how many predictions are done."""
        self.done = done
        if self.progress:
            self.progress(done, self.curves + len(self.places) * len(self.mapped))

    def curve(self, name: str, counts: Sequence[int], known: Prediction) -> dict[int, Prediction]:
        """Return a method's predictions by GPUs."""
        found: dict[int, Prediction] = {}
        each = known.scenario["gpus_per_node"]
        for gpus in counts:
            changes = {"gpus": gpus, "gpus_per_node": min(gpus, each), "placement": None}
            here = gpus == known.scenario["gpus"]
            if here:
                self.tell(self.done + 1)
            one = known if here else self.predict(self.scenario.model_copy(update=changes), name)
            if one is not None:
                found[gpus] = one
        return found

    def cells(self) -> list[GridCell]:
        """Return the cells of the map that at least one method has an answer for."""
        known = uncertainties(self.catalog).get(NO_METHOD)
        found = []
        for gpus, rate, scenario in self.places:
            every = {name: self.predict(scenario, name) for name in self.mapped}
            there = {name: one for name, one in every.items() if one is not None}
            if there:
                order = sorted(there, key=lambda name: there[name].iteration_s)
                ranking = Ranking({name: there[name] for name in order}, {}, known=known)
                found.append(GridCell(gpus, rate, ranking))
        return found
