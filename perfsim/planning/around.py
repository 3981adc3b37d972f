"""What a report shows around one prediction: other methods, GPU counts and bandwidths.

All are predictions of the same scenario with one or two fields changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfsim.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.gpu_names import parse_types
from perfsim.methods import method_name
from perfsim.own_fusion import for_method
from perfsim.planning.measured import Measured, measured_like
from perfsim.planning.space import bandwidths, gpu_counts, is_heavy, nearest, spread, thinned
from perfsim.prediction import Prediction, predict
from perfsim.ranking import Ranking
from perfsim.resolve import resolve
from perfsim.scenario import Scenario
from perfsim.session import standing
from perfsim.uncertainty import NONE, uncertainties

__all__ = ["Around", "Cell", "around"]

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
class Cell:
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
    cells: list[Cell]
    mapped: list[str]
    measured: list[Measured]
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
    catalog = catalog or standing()
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
            refused[name] = str(error).removeprefix("--method: ").removeprefix(f"{name} ")
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

    def cells(self) -> list[Cell]:
        """Return the cells of the map that at least one method has an answer for."""
        known = uncertainties(self.catalog).get(NONE)
        found = []
        for gpus, rate, scenario in self.places:
            every = {name: self.predict(scenario, name) for name in self.mapped}
            there = {name: one for name, one in every.items() if one is not None}
            if there:
                order = sorted(there, key=lambda name: there[name].iteration_s)
                ranking = Ranking({name: there[name] for name in order}, {}, known=known)
                found.append(Cell(gpus, rate, ranking))
        return found
