"""What perfsim knows: rows for ``list`` and descriptions for ``show``, with sources."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsim.catalog import Catalog
from perfsim.errors import RequestError, unknown
from perfsim.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from perfsim.cluster.growth.choice import TunedChoice
    from perfsim.cluster.measured import Curve
    from perfsim.report.network import Picture

__all__ = ["describe", "network_picture", "rows"]

SHOWN_TENSORS = 5

DRAWN_NODES = 8
"""Nodes of a picture where a file states a fabric but no number of nodes: enough to show it."""


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


def describe(kind: str, name: str, catalog: Catalog) -> dict[str, Any]:
    """Return all that is known of one thing.

    Raises
    ------
    RequestError
        If there is no such kind or name.
    """
    if kind not in DESCRIPTIONS:
        raise unknown("show", kind, DESCRIPTIONS)
    return DESCRIPTIONS[kind](name, catalog)


def _models(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.profile import read_profile

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
    match = re.search(r"(?<![\w/@])[A-Z][A-Za-z\u00e0-\u00ff'&, .-]*? (?:19|20)\d\d\b", citation)
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
    from perfsim.scenario import read_file

    return [
        {"scenario": name, "title": read_file(path).get("title", "")}
        for name, path in catalog.scenarios().items()
    ]


def _measurements(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.measurement import load_measurements

    return [
        {
            "id": one.id,
            "role": one.role,
            "model": one.model,
            "gpus": f"{one.gpus} x {one.gpu}",
            "network": one.network,
            "value": f"{one.value:g} {one.unit}"
            + (f" +-{one.deviation:g}" if one.deviation is not None else ""),
            "scenario": one.scenario,
            "note": one.note,
        }
        for one in load_measurements(catalog)
    ]


def _model(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.profile import read_profile
    from perfsim.resolve import model_names

    files = catalog.files("models")
    names = model_names(files)
    if name not in names:
        raise unknown("show model", name, names, "models")
    profiles = [read_profile(files[stem]) for stem in names[name]]
    first = profiles[0]
    largest = sorted(first.gradients, key=lambda gradient: -gradient.elements)[:SHOWN_TENSORS]
    return {
        "model": name,
        "parameters": format_count(first.elements),
        "gradients": f"{len(first.gradients)}, {format_bytes(first.size_bytes)} in fp32",
        "matrices": sum(1 for gradient in first.gradients if len(gradient.shape) > 1),
        "largest_gradients": [
            {
                "tensor": gradient.name,
                "shape": "x".join(map(str, gradient.shape)),
                "bytes": format_bytes(gradient.size_bytes),
            }
            for gradient in largest
        ],
        "profiles": [_profile(profile) for profile in profiles],
        "measured_iterations": _anchors(name, catalog),
        "sources": [
            f"{profile.gpu} b{profile.batch}: {profile.header['source']}"
            + (f" -- {profile.header['notes']}" if profile.header.get("notes") else "")
            for profile in profiles
        ],
    }


def _anchors(name: str, catalog: Catalog) -> list[dict[str, Any]]:
    """Return what was measured of the whole model, by GPU."""
    from perfsim.anchor import load_anchors

    return [
        {
            "gpu": gpu,
            "precision": anchor.precision,
            "batch": anchor.batch,
            "tokens": anchor.sequence or "",
            "iteration": format_seconds(anchor.iteration_s),
            "covers": anchor.covers,
            "kind": anchor.kind,
            "source": anchor.source,
        }
        for gpu in catalog.files("devices")
        for anchor in load_anchors(gpu, catalog)
        if anchor.model == name
    ]


def _profile(profile: Any) -> dict[str, Any]:
    return {
        "gpu": profile.gpu,
        "precision": profile.precision,
        "batch": profile.batch,
        "iteration": f"{format_seconds(profile.iteration_s)} {profile.kinds['iteration_ms']}",
        "forward": f"{format_seconds(profile.forward_s)} {profile.kinds['forward_ms']}",
        "backward": f"{format_seconds(profile.backward_s)} {profile.kinds['backward_ms']}",
        "ready times": profile.kinds["ready_ms"],
        "update": f"{format_seconds(profile.optimizer_s)} {profile.kinds['optimizer_ms']}",
    }


def _gpu(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.device import load_device

    return load_device(name, catalog).describe()


def _network(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.cluster.network import load_network
    from perfsim.cluster.selfcheck import self_check

    network = load_network(name, catalog, "show net")
    values = []
    for of, link in network.links.items():
        quantities = [("rate", link.rate), ("tree rate", link.tree_rate), ("gamma", link.gamma)]
        for algorithm, curve in (("ring", link.ring), ("tree", link.tree)):
            quantities += [
                (f"{algorithm} latency at {format_bytes(size)}", curve.quantity(alpha_s))
                for size, alpha_s in zip(curve.size_bytes, curve.alpha_s, strict=True)
            ]
        values += [
            {
                "link": of,
                "what": what,
                "value": str(quantity),
                "kind": quantity.kind,
                "range": _range(quantity.low, quantity.high),
                "source": quantity.source,
            }
            for what, quantity in quantities
        ]
    known = network.known
    found: dict[str, Any] = {
        "network": network.name,
        "title": network.title,
        "transport": network.transport,
        "library": network.library,
        "gpus_per_node": network.gpus_per_node or "not stated",
        "nics_per_node": network.nics_per_node,
        "fabric_between_nodes": network.fabric.words() if network.fabric else "not stated",
        "fabric_inside_nodes": network.node.words() if network.node else "not stated",
        "inside": network.inside or ("its own" if "intra" in network.links else "not stated"),
        "ranks_measured": {
            of: f"{link.ranks[0]} to {link.ranks[1]}" if link.ranks else "none"
            for of, link in network.links.items()
        },
    }
    if known is not None:
        found["curves"] = [_curve(curve) for curve in known.curves]
        if known.tuner is not None:
            found["nccl_tuner"] = _tuner(known.tuner)
    return found | {
        "values": values,
        "warnings": self_check(network),
        "notes": list(network.notes),
    }


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "collective": curve.collective,
        "ranks": curve.ranks,
        "nodes": curve.nodes,
        "held": " ".join(word for word in (curve.algorithm, curve.protocol) if word) or "auto",
        "points": len(curve.size_bytes),
        "range": _range(curve.size_bytes[0], curve.size_bytes[-1]),
        "time": f"{format_seconds(curve.seconds[0])} to {format_seconds(curve.seconds[-1])}",
        "kind": curve.kind,
        "spread": "" if curve.spread is None else f"{curve.spread:.1%}",
        "source": curve.source,
    }


def _tuner(tuner: TunedChoice) -> dict[str, Any]:
    return {
        "version": tuner.of.version,
        "GPUs": tuner.of.architecture,
        "inside": tuner.of.intra,
        "bus bandwidth between nodes": f"{tuner.bus_bandwidth:.4g} GB/s",
        "on two nodes": f"{tuner.two_nodes:g} times that",
        "plain tree": "yes" if tuner.plain_tree else "no",
        "LL128 between nodes": "yes" if tuner.near_nic else "no",
    }


def network_picture(name: str, catalog: Catalog) -> Picture:
    """Return what a drawing of a network shows.

    Raises
    ------
    RequestError
        If there is no such network.
    """
    from perfsim.cluster.network import load_network
    from perfsim.report.network import Picture, Wire

    network = load_network(name, catalog, "show net")
    wires = {
        of: Wire(format_rate(link.rate.value), f"{format_seconds(link.ring.at(1e3), 3)} a hop")
        for of, link in network.links.items()
    }
    curves = network.known.curves if network.known else ()
    nodes = max((curve.nodes for curve in curves), default=2) if "inter" in wires else 1
    fabric = network.fabric if "inter" in wires else None
    if fabric is not None:
        nodes = max(nodes, DRAWN_NODES)
    rate = network.links["inter"].rate.value if "inter" in network.links else 1.0
    return Picture(
        f"{network.name}: {network.title}",
        wires.get("inter"),
        wires.get("intra"),
        nodes,
        network.gpus_per_node,
        network.nics_per_node,
        fabric.words() if fabric else "switches not stated",
        network.node.words() if network.node else "not stated",
        fabric.graph(nodes, network.nics_per_node, rate) if fabric else None,
        (f"latency is that of a hop for 1 kB; inside the nodes: {network.inside}",)
        if network.inside
        else (),
    )


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{format_bytes(low)} to {format_bytes(high)}"


def _method(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.method_description import describe_method

    return describe_method(name, catalog)


def _scenario(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.methods import AUTO, load_method
    from perfsim.scenario import make_scenario, read_file
    from perfsim.validate.claim import claims_of

    data = read_file(catalog.scenario(name))
    scenario = make_scenario(data["scenario"], name)
    if scenario.method.lower() != AUTO:
        try:
            load_method(scenario.method, scenario.options)
        except RequestError as error:
            raise RequestError(f"{name}: {error}") from None
    claims = [claim.as_dict() for claim in claims_of(name, catalog)]
    return {
        "name": name,
        **{key: data[key] for key in ("title", "source", "notes") if key in data},
        "scenario": scenario.model_dump(exclude_none=True, mode="json"),
        **({"claims": claims} if claims else {}),
    }


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
DESCRIPTIONS: dict[str, Callable[[str, Catalog], dict[str, Any]]] = {
    "model": _model,
    "gpu": _gpu,
    "net": _network,
    "method": _method,
    "scenario": _scenario,
}
