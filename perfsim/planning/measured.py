"""Published values of the same model, GPU, batch, network and method as a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfsim.catalog import Catalog
from perfsim.errors import PerfsimError, RequestError
from perfsim.prediction import predict
from perfsim.resolve import resolve
from perfsim.scenario import Scenario, make_scenario
from perfsim.validate.measurements.ask import told_of
from perfsim.validate.measurements.case import Case
from perfsim.validate.measurements.fields import nested
from perfsim.validate.measurements.report import MAP
from perfsim.validate.measurements.rules import read_rules
from perfsim.validate.measurements.source import shipped_cases

__all__ = ["Measured", "measured_like"]

FIRST = ("model", "gpu", "net", "method")
"""What a row is held to before its files are read."""

SAME = ("model", "gpu", "batch", "precision", "net", "intra_net", "method")
"""Fields of the resolved scenario that must be equal; GPUs are what a curve runs over."""

ALIKE = 1e-9
"""Bytes within this part of each other are the same."""

COUNTED = ("gpus", "gpus_per_node", "batch")


@dataclass(frozen=True, slots=True)
class Measured:
    """One published throughput [samples/s], and where it stands.

    ``options`` are those of the method that its rule or row states otherwise than was asked.
    """

    gpus: int
    gpus_per_node: int
    samples_per_s: float
    id: str
    source: str
    options: Mapping[str, Any]


def measured_like(scenario: Mapping[str, Any], catalog: Catalog) -> list[Measured]:
    """Return what was measured of a resolved scenario at any number of GPUs, by GPUs.

    Fusion, overlap and GPUs a node may differ, as sources run each at their best; so may options
    that change nothing in what a GPU sends.
    """
    beside = catalog.beside("measurements", "", MAP)
    if beside is None:
        return []
    rules = read_rules(beside)
    found = []
    for case in shipped_cases(catalog):
        try:
            fields = nested(told_of(case, rules).fields, catalog)
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
) -> Measured | None:
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
    return Measured(known["gpus"], known["gpus_per_node"], rate, case.id, case.source, others)


def _sends_alike(row: Scenario, asked: Mapping[str, Any], catalog: Catalog) -> bool:
    """Say whether a GPU sends the same with the options that were asked for."""
    other = row.model_copy(update={"options": dict(asked)})
    sent = [predict(one, catalog).communication["bytes_per_gpu"] for one in (row, other)]
    return abs(sent[0] - sent[1]) <= ALIKE * max(sent)
