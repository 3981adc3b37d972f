"""Predict what a report shows around one prediction: other methods, GPU counts and bandwidths.

All are predictions of the same scenario with one or two fields changed; beside them stand
published values of the same question. How many predictions there are follows from what one costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any

from perfsim.data.catalog import Catalog
from perfsim.errors import PerfsimError, RequestError
from perfsim.interval import NO_METHOD, uncertainties
from perfsim.methods import method_name
from perfsim.methods.fusion_settings import for_method
from perfsim.planning.gpu_counts import counts_around, gpu_counts, tasks_of, thinned
from perfsim.prediction import Prediction, predict
from perfsim.ranking import Ranking, refusal_reason
from perfsim.resolve import ResolvedScenario, Setup, resolve
from perfsim.scenario import Scenario, make_scenario, parse_types
from perfsim.session import default_session
from perfsim.validate.cases import Case, nested_fields, shipped_cases
from perfsim.validate.mapping import RULES_FILE, read_rules, role_of

if TYPE_CHECKING:
    from perfsim.network.wide_area import WideArea

__all__ = [
    "GridCell",
    "PublishedValue",
    "ReportContext",
    "ReportCounts",
    "bandwidths",
    "is_heavy",
    "map_side",
    "measured_like",
    "report_context",
]

_BASELINE = "ssgd"

_SHOWN_METHODS = (_BASELINE, "powersgd", "acpsgd", "dgc", "signsgd", "localsgd")
"""Methods shown beside the one asked for: one or two of each family that saves bytes."""

_MAX_METHODS = 6
_MAX_CURVES = 3
"""Methods whose scaling is drawn: S-SGD, the one asked for, then the fastest others."""

_MAX_MAP_METHODS = 4
"""Methods of the break-even map."""

_GBIT_PER_S = 1e9 / 8
"""Bytes a second in a Gbit/s."""

_SOLD_GBIT_PER_S = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0)
"""Ethernet and InfiniBand rates that are sold."""

_LINE_GBIT_PER_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Rates of lines between sites that a map has. No source: chosen, slow to fast ones of runs."""

_MAP_TASKS = 40_000
"""Tasks that a map may have in all: about a second for 5,000."""

_MAX_MAP_TASKS_A_METHOD = 1_500
"""A method whose prediction has more tasks is left out of the map."""

_MAP_SIDES = (3, 7)
"""The fewest and the most rates, and GPU counts, of a map."""

_MAX_DOUBLINGS = 6
"""How often sites are doubled or halved in a map at most."""

_FIRST_FIELDS = ("model", "gpu", "net", "method")
"""Fields that a measurement is compared by before its files are read."""

_SAME_FIELDS = ("model", "gpu", "batch", "precision", "net", "intra_net", "method")
"""Fields of the resolved scenario that must be equal; a curve runs over GPUs."""

_SAME_BYTES = 1e-9
"""Bytes that differ by less than this share are the same."""

_SAME_TRAINING = (
    *("autocast", "accumulate", "recompute", "optimizer", "reduce_dtype"),
    *("master_weights", "chunked_loss", "lora", "lora_layers", "lora_base", "residual_dtype"),
    *("lora_dtype", "lora_dropout"),
    *("offload", "document_tokens"),
)
"""The same, of those that nothing fills in."""

_COUNT_COLUMNS = {"gpus": "gpus", "gpus_per_node": "gpus_per_node", "batch": "batch_per_gpu"}
"""Counts of a scenario, and the columns of a measurement that have them."""

ReportCounts = Callable[[int, int], None]
"""Called after each prediction with how many are done, and of how many."""


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One published throughput [samples/s], with its row's id and source.

    ``options`` are those of the method that its row or rule states differently from the question.
    """

    gpus: int
    gpus_per_node: int
    samples_per_s: float
    id: str
    source: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class GridCell:
    """One cell of the break-even map: its GPUs, its link's rate, and the methods there.

    The link is that between sites where there are several, else that between nodes.
    """

    gpus: int
    rate_bytes_per_s: float
    ranking: Ranking


@dataclass(frozen=True)
class ReportContext:
    """The predictions around one.

    Parameters
    ----------
    methods : predictions by method, fastest first, with the one that was asked for
    refused : methods that do not apply here, and why
    scaling : by method, then by GPUs
    cells : of the break-even map, by rate, then by GPUs; empty where there is none
    mapped : the methods of the map
    measured : published values of the same model, GPU, network and method
    notes : sentences about the curves and the map
    between : what the map's link is between: "nodes" or "sites"
    """

    methods: dict[str, Prediction]
    refused: dict[str, str]
    scaling: dict[str, dict[int, Prediction]]
    cells: list[GridCell]
    mapped: list[str]
    measured: list[PublishedValue]
    notes: list[str]
    between: str = "nodes"


def report_context(
    scenario: Scenario,
    prediction: Prediction,
    catalog: Catalog | None = None,
    names: Sequence[str] | None = None,
    progress: ReportCounts | None = None,
) -> ReportContext:
    """Predict what is around a prediction of ``scenario``.

    Parameters
    ----------
    names : methods to show beside it, instead of a few of each family
    progress : called after each prediction

    Examples
    --------
    >>> scenario = Scenario(model="resnet18", gpus=2, net="1gbe")
    >>> context = report_context(scenario, predict(scenario), names=["dgc"])
    >>> list(context.methods), list(context.scaling["ssgd"])
    (['ssgd', 'dgc'], [1, 2, 4, 8, 16, 32, 64])
    """
    catalog = catalog or default_session()
    asked = method_name(scenario.method)
    methods, refused = _methods(scenario, asked, prediction, catalog, names or _SHOWN_METHODS)
    lines = _first(asked, methods, _MAX_CURVES)
    heavy = [name for name, one in methods.items() if is_heavy(one)]
    light = {name: one for name, one in methods.items() if name not in heavy}
    mapped = _first(asked, light, _MAX_MAP_METHODS)
    counts = gpu_counts(prediction.scenario.gpus, prediction.scenario.gpus_per_node)
    places, notes = _places(scenario, counts, [methods[name] for name in mapped], catalog)
    kept = {name: thinned(counts, methods[name]) for name in lines}
    count = sum(map(len, kept.values())) + len(places) * len(mapped)
    predictor = _Predictor(scenario, asked, catalog, progress, count)
    scaling = {name: predictor.curve(name, kept[name], methods[name]) for name in lines}
    if places and heavy:
        notes.append(f"Left out of the map, as they would take long: {', '.join(heavy)}.")
    if scenario.placement and not scenario.site:
        notes.append("At other GPU counts, all nodes have as many GPUs.")
    if len(parse_types(scenario.gpu)) > 1:
        notes.append("Other GPU counts are not predicted: the GPUs are of several types.")
    return ReportContext(
        methods,
        refused,
        scaling,
        predictor.cells(places, mapped),
        mapped if places else [],
        measured_like(prediction.scenario, catalog),
        notes,
        "sites" if len(scenario.site or ()) > 1 else "nodes",
    )


def _methods(
    scenario: Scenario, asked: str, prediction: Prediction, catalog: Catalog, names: Sequence[str]
) -> tuple[dict[str, Prediction], dict[str, str]]:
    """Return the predictions to show by method, fastest first, and why others do not apply."""
    predictions, refused = {asked: prediction}, {}
    for name in dict.fromkeys((_BASELINE, *names)):
        if name in predictions or len(predictions) == _MAX_METHODS:
            continue
        try:
            predictions[name] = predict(_with_method(scenario, asked, name), catalog)
        except RequestError as error:
            refused[name] = f"{refusal_reason(name, error)}."
    order = sorted(predictions, key=lambda name: (predictions[name].iteration_s, name))
    return {name: predictions[name] for name in order}, refused


def _with_method(scenario: Scenario, asked: str, name: str) -> Scenario:
    """Return the scenario for a method: unchanged for the one asked for, else with its defaults."""
    if name == asked:
        return scenario
    plain = scenario.model_copy(update={"options": {}, "single_gpu_kernels": None})
    return for_method(plain, name)[0]


def _first(asked: str, methods: Mapping[str, Prediction], count: int) -> list[str]:
    """Return S-SGD, the method asked for, then the fastest others."""
    kept = [name for name in dict.fromkeys((_BASELINE, asked)) if name in methods]
    return [*kept, *(name for name in methods if name not in kept)][:count]


def _places(
    scenario: Scenario, counts: Sequence[int], mapped: Sequence[Prediction], catalog: Catalog
) -> tuple[list[tuple[int, float, Scenario]], list[str]]:
    """Return GPUs, rate and scenario of each cell of the map, or why there is no map."""
    resolved = resolve(scenario, catalog)
    if resolved.cluster.wide is not None:
        return _places_of_sites(scenario, resolved, resolved.cluster.wide, mapped)
    own = resolved.network.links.get("inter")
    each = max(resolved.cluster.placement)
    several = [count for count in counts if count > each]
    if own is None or not several:
        return [], ["No break-even map: all GPUs are in one node, so no network is used."]
    why = _too_long(scenario, mapped)
    if why:
        return [], [why]
    side = min(map_side(mapped), len(several) + 2)
    held: dict[str, Any] = {"gpu": resolved.scenario.gpu, "placement": None, "gpus_per_node": each}
    network, field, latency, own_rate = resolved.network, "net", "", own.rate.value
    if network.node_type is not None and network.node_type.nics is not None:
        field, own_rate = "nic", network.node_type.nics.rate
        note = f"The map's rates are those of a NIC of {network.name} by its data sheet"
    else:
        latency_s = own.ring.at(0.0)
        latency = f",{latency_s:.6g}s"
        held["intra_net"] = resolved.resolved_scenario().intra_net
        held["library"] = resolved.cluster.library
        note = (
            "Measured curves are not used in the map, whose link between nodes has the latency of"
            f" {network.name} ({latency_s * 1e6:.3g} us a hop)"
        )
    cells = []
    for rate in bandwidths(own_rate, side):
        for gpus in counts_around(several, scenario.gpus, side):
            changes = {**held, field: f"{rate * 8:g}bit/s{latency}", "gpus": gpus}
            cells.append((gpus, rate, scenario.model_copy(update=changes)))
    count = _nics_per_node((one for _, _, one in cells), catalog)
    nics = {0: "", 1: "; each node has one NIC"}.get(count, f"; each node has {count} NICs")
    return cells, [f"{note}{nics}."]


def _too_long(scenario: Scenario, mapped: Sequence[Prediction]) -> str:
    """Say why a map would take too long; "" where it would not."""
    if scenario.beside:
        return "No break-even map: with other jobs on the network it would take too long."
    return "" if mapped else "No break-even map: it would take too long for these methods."


def _places_of_sites(
    scenario: Scenario, resolved: Setup, wide: WideArea, mapped: Sequence[Prediction]
) -> tuple[list[tuple[int, float, Scenario]], list[str]]:
    """Return the same where a job is on several sites: the rate is that of the slowest link.

    The links of the other sites stay as many times faster as they are, and at other GPU counts all
    sites change alike, by whole nodes.
    """
    why = _too_long(scenario, mapped)
    if why:
        return [], [why]
    each, sizes = max(resolved.cluster.placement), wide.sizes
    held: dict[str, Any] = {"gpu": resolved.scenario.gpu}
    if not scenario.placement:
        held["gpus_per_node"] = each
    powers = [] if scenario.placement else range(-_MAX_DOUBLINGS, _MAX_DOUBLINGS + 1)
    grown = [tuple(size * 2.0**power for size in sizes) for power in powers]
    whole = [tuple(map(int, one)) for one in grown if not any(size % each for size in one)]
    by_count = {sum(one): one for one in sorted({sizes, *whole}, key=sum)}
    side = min(map_side(mapped), len(by_count) + 2)
    cells = []
    for rate in bandwidths(wide.slowest_rate, side, _LINE_GBIT_PER_S):
        links = [link.faster(rate / wide.slowest_rate) for link in wide.links]
        wan = ";".join(link._replace(measured=False).text() for link in links)
        for gpus in counts_around(list(by_count), scenario.gpus, side):
            changes = {**held, "wan": wan, "gpus": gpus, "site": by_count[gpus]}
            cells.append((gpus, rate, scenario.model_copy(update=changes)))
    unlike = len({(link.up, link.down) for link in wide.links}) > 1
    which = "the slowest site's link; other links change alike" if unlike else "each site's link"
    growth = " At other GPU counts all sites change alike." if len(by_count) > 1 else ""
    return cells, [
        f"The map's rates are those of {which}. Delays and what is inside the sites stay as they"
        f" are.{growth}"
    ]


def _nics_per_node(scenarios: Iterable[Scenario], catalog: Catalog) -> int:
    """Return the NICs of a node of the first scenario that is not refused; 0 where all are."""
    for scenario in scenarios:
        with suppress(RequestError):
            return resolve(scenario, catalog).network.nics_per_node
    return 0


@dataclass
class _Predictor:
    """Predicts the curves and the map around one scenario, and reports how many are done."""

    scenario: Scenario
    asked: str
    catalog: Catalog
    progress: ReportCounts | None
    count: int
    done: int = 0

    def predict(self, scenario: Scenario, name: str) -> Prediction | None:
        """Return a method's prediction, None where it does not apply."""
        self._report_one()
        try:
            return predict(_with_method(scenario, self.asked, name), self.catalog)
        except RequestError:
            return None

    def _report_one(self) -> None:
        self.done += 1
        if self.progress:
            self.progress(self.done, self.count)

    def curve(self, name: str, counts: Sequence[int], known: Prediction) -> dict[int, Prediction]:
        """Return a method's predictions by GPUs."""
        curve: dict[int, Prediction] = {}
        for gpus in counts:
            if gpus == known.scenario.gpus:
                self._report_one()
                curve[gpus] = known
                continue
            each = min(gpus, known.scenario.gpus_per_node)
            changes = {"gpus": gpus, "gpus_per_node": each, "placement": None}
            one = self.predict(self.scenario.model_copy(update=changes), name)
            if one is not None:
                curve[gpus] = one
        return curve

    def cells(
        self, places: Sequence[tuple[int, float, Scenario]], mapped: Sequence[str]
    ) -> list[GridCell]:
        """Return the cells of the map in which at least one method applies."""
        known = uncertainties(self.catalog).get(NO_METHOD)
        cells = []
        for gpus, rate, scenario in places:
            every = {name: self.predict(scenario, name) for name in mapped}
            applying = {name: one for name, one in every.items() if one is not None}
            if applying:
                order = sorted(applying, key=lambda name: applying[name].iteration_s)
                ranking = Ranking({name: applying[name] for name in order}, {}, known=known)
                cells.append(GridCell(gpus, rate, ranking))
        return cells


def bandwidths(
    rate_bytes_per_s: float, count: int, sold: Sequence[float] = _SOLD_GBIT_PER_S
) -> list[float]:
    """Return the ``count`` rates on sale nearest to a rate [B/s].

    Parameters
    ----------
    sold : the rates on sale [Gbit/s], ascending

    Examples
    --------
    >>> [rate * 8 / 1e9 for rate in bandwidths(1.17e9, 3)]
    [5.0, 10.0, 25.0]
    """
    own = rate_bytes_per_s / _GBIT_PER_S
    nearest = min(range(len(sold)), key=lambda index: abs(sold[index] / own - 1.0))
    first = max(0, min(nearest - count // 2, len(sold) - count))
    return [rate * _GBIT_PER_S for rate in sold[first : first + count]]


def map_side(predictions: Iterable[Prediction]) -> int:
    """Return how many rates, and as many GPU counts, a map of these methods can afford."""
    tasks = sum(tasks_of(one) for one in predictions)
    return max(_MAP_SIDES[0], min(_MAP_SIDES[1], isqrt(_MAP_TASKS // tasks)))


def is_heavy(prediction: Prediction) -> bool:
    """Say whether a map of this method would take too long."""
    return tasks_of(prediction) > _MAX_MAP_TASKS_A_METHOD


def measured_like(scenario: ResolvedScenario, catalog: Catalog) -> list[PublishedValue]:
    """Return published values of a resolved scenario at any number of GPUs, by GPUs.

    Fusion, overlap and GPUs a node may differ, as each source uses its best; so may options
    that do not change what a GPU sends.
    """
    rules_path = catalog.beside("measurements", "", RULES_FILE)
    if rules_path is None:
        return []
    rules = read_rules(rules_path)
    values = []
    for case in shipped_cases(catalog):
        try:
            fields = nested_fields(role_of(case, rules).fields, catalog)
        except RequestError:
            continue  # it names a scenario that is not here
        if any(str(fields.get(name, "")) != str(getattr(scenario, name)) for name in _FIRST_FIELDS):
            continue
        for name, column in _COUNT_COLUMNS.items():
            count = case.whole(column)
            if count:
                fields.setdefault(name, count)
        value = _published(case, fields, scenario, catalog)
        if value is not None:
            values.append(value)
    return sorted(values, key=lambda one: (one.gpus, one.id))


def _published(
    case: Case, fields: dict[str, Any], scenario: ResolvedScenario, catalog: Catalog
) -> PublishedValue | None:
    """Return a case as a published value; None where it answers another question."""
    try:
        row = make_scenario(fields)
        setup = resolve(row, catalog)
        known = setup.resolved_scenario()
        if any(getattr(known, name) != getattr(scenario, name) for name in _SAME_FIELDS):
            return None
        if any(known.further.get(name) != scenario.further.get(name) for name in _SAME_TRAINING):
            return None
        own, asked = known.options, scenario.options
        others = {name: value for name, value in own.items() if asked.get(name) != value}
        if own != asked and not _sends_alike(row, asked, catalog):
            return None
    except PerfsimError:
        return None
    samples = setup.replicas * setup.samples
    rates = {
        "throughput": case.value,
        "throughput_per_gpu": case.value * known.gpus,
        "iteration_s": samples / case.value if case.value else 0.0,
    }
    rate = rates.get(case.metric, 0.0)
    if rate <= 0:
        return None
    return PublishedValue(known.gpus, known.gpus_per_node, rate, case.id, case.source, others)


def _sends_alike(row: Scenario, asked: Mapping[str, Any], catalog: Catalog) -> bool:
    """Say whether a GPU sends as many bytes with the options that were asked for."""
    other = row.model_copy(update={"options": dict(asked)})
    sent = [predict(one, catalog).communication["bytes_per_gpu"] for one in (row, other)]
    return abs(sent[0] - sent[1]) <= _SAME_BYTES * max(sent)
