"""Rows of ``list``: one a thing of a kind, in short."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from perfsim.catalog import Catalog
from perfsim.errors import unknown
from perfsim.units import format_rate, format_seconds

__all__ = ["ROWS", "in_short", "rows"]


def rows(kind: str, catalog: Catalog) -> list[dict[str, Any]]:
    """Return one row a thing of ``kind``.

    Raises
    ------
    RequestError
        If there is no such kind.
    """
    if kind not in ROWS:
        raise unknown("list", kind, ROWS)
    return ROWS[kind](catalog)


def in_short(kind: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as a person is shown them: without what ``--json`` has besides."""
    names = SHOWN.get(kind)
    return [{name: row[name] for name in names} for row in found] if names else found


def _models(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.profile_file import read_profile

    found = []
    for stem, path in catalog.files("models").items():
        profile = read_profile(path)
        found.append(
            {
                "model": profile.model,
                "gpu": profile.gpu,
                "precision": profile.precision,
                "batch": profile.batch,
                "parameters": profile.elements,
                "tensors": len(profile.gradients),
                "iteration_ms": round(profile.iteration_s * 1e3, 3),
                "layer times": profile.kinds["ready_ms"],
                "total": profile.kinds["iteration_ms"],
                "profile": stem,
            }
        )
    return found


def _gpus(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.device import read_device

    found = []
    for name, path in catalog.files("devices").items():
        device = read_device(path)
        bandwidth = device.memory_bandwidth
        found.append(
            {
                "gpu": name,
                "title": device.title,
                "memory bandwidth": format_rate(bandwidth.value),
                "kind": bandwidth.kind,
                "measured kernels": ", ".join(sorted(device.points)) or "none",
            }
        )
    return found


def _networks(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.cluster.network import read_network

    found = []
    for name, path in catalog.files("networks").items():
        network = read_network(path)
        for of, link in network.links.items():
            found.append(
                {
                    "network": name,
                    "link": of,
                    "rate": format_rate(link.rate.value),
                    "latency 1 KB": format_seconds(link.ring.at(1e3), 3),
                    "kind": link.rate.kind,
                    "ranks": "-".join(map(str, link.ranks)) if link.ranks else "",
                    "title": network.title,
                }
            )
    return found


def _methods(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.method import FAMILIES
    from perfsim.methods import method_class, method_names

    record = _record(catalog)
    found = []
    for name in method_names():
        cls = method_class(name)
        found.append(
            {
                "method": name,
                "family": cls.family,
                "what": cls.summary,
                "paper": _paper(cls.citation),
                "needs": cls.needs or "-",
                "record": record.get(name, "no measured row"),
            }
        )
    return sorted(found, key=lambda row: (FAMILIES.index(row["family"]), row["method"]))


def _paper(citation: str) -> str:
    """Return the first paper of a citation in short: its authors and year."""
    match = re.search(
        r"(?<![\w/@])[A-Z][A-Za-z\u00e0-\u00ff'&, .-]{0,80}? (?:19|20)\d\d\b", citation
    )
    return match[0] if match else citation


def _record(catalog: Catalog) -> dict[str, str]:
    """Return how wrong predictions of each method have been, as last recorded."""
    from perfsim.validate.measurements.record import RECORD, read_record

    path = catalog.beside("methods", "", RECORD)
    return {} if path is None else {line.method: line.words() for line in read_record(path)}


def _collectives(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.collectives import algorithms

    return [
        {"collective": collective, "algorithms": ", ".join(sorted(names))}
        for collective, names in sorted(algorithms().items())
    ]


def _fusion(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim import fusion

    return [{"fusion": name, "what": fusion.load(name).SUMMARY} for name in fusion.policies()]


def _scenarios(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.scenario_file import read_file

    files = {name: read_file(path) for name, path in catalog.scenarios().items()}
    found = [
        {"scenario": name, **{key: file.get(key, "") for key in ("title", "question", "command")}}
        for name, file in files.items()
    ]
    return sorted(found, key=lambda row: not row["question"])


def _measurements(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.validate.measurements.source import shipped_cases

    return [
        {
            "id": one.id,
            "role": one.role,
            "system": one.system,
            "model": one.model,
            "gpus": f"{one.gpus} x {one.gpu}",
            "network": one.network,
            "metric": one.metric,
            "value": f"{one.value:g}",
            "scenario": one.scenario,
            "note": "; ".join(filter(None, (one.reason or one.notes, one.notice))),
        }
        for one in shipped_cases(catalog)
    ]


SHOWN = {
    "models": ("model", "gpu", "precision", "batch", "parameters", "iteration_ms", "layer times"),
    "measurements": ("id", "role", "model", "gpus", "metric", "value", "system", "network"),
}
"""Columns that a person is shown where there are more."""

ROWS: dict[str, Callable[[Catalog], list[dict[str, Any]]]] = {
    "models": _models,
    "gpus": _gpus,
    "networks": _networks,
    "methods": _methods,
    "collectives": _collectives,
    "fusion": _fusion,
    "scenarios": _scenarios,
    "measurements": _measurements,
}
