"""What perfsim knows, as data: rows for `list`, everything of one thing for `show`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError, unknown
from perfsim.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from perfsim.compute.profile import Profile
    from perfsim.network.link import Link
    from perfsim.network.measured import CollectiveCurve
    from perfsim.network.tuner_fit import TunedChoice
    from perfsim.report.network_drawing import Picture

__all__ = [
    "DESCRIBED_KINDS",
    "LISTED_KINDS",
    "describe_thing",
    "list_rows",
    "network_picture",
    "short_rows",
]

_MAX_TENSORS_NAMED = 5
"""The largest gradients of a model that its description names."""

_DRAWN_NODES = 8
"""Nodes of a picture where a file states a fabric but no number of nodes: enough to show it."""

_SHORT_COLUMNS = {
    "models": ("model", "gpu", "precision", "batch", "parameters", "iteration_ms", "layer times"),
    "measurements": ("id", "role", "model", "gpus", "metric", "value", "system", "network"),
}
"""Columns that a person is shown, of kinds that have more of them."""


# Rows of `list`.


def list_rows(kind: str, catalog: Catalog) -> list[dict[str, Any]]:
    """Return one row for each thing of a kind (see ``LISTED_KINDS``).

    Raises
    ------
    RequestError
        If there is no such kind.
    """
    if kind not in LISTED_KINDS:
        raise unknown("list", kind, LISTED_KINDS)
    return LISTED_KINDS[kind](catalog)


def short_rows(kind: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows with the columns that a person is shown; JSON has all of them."""
    names = _SHORT_COLUMNS.get(kind)
    return [{name: row[name] for name in names} for row in rows] if names else rows


def _models(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.compute.profile import read_profile

    rows = []
    for stem, path in catalog.files("models").items():
        profile = read_profile(path)
        rows.append(
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
    return rows


def _gpus(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.compute.device import read_device

    rows = []
    for name, path in catalog.files("devices").items():
        device = read_device(path)
        bandwidth = device.memory_bandwidth
        rows.append(
            {
                "gpu": name,
                "title": device.title,
                "memory bandwidth": format_rate(bandwidth.value),
                "kind": bandwidth.kind,
                "measured kernels": ", ".join(sorted(device.points)) or "none",
            }
        )
    return rows


def _networks(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.network.network_file import read_network

    rows = []
    for name, path in catalog.files("networks").items():
        network = read_network(path)
        for of, link in network.links.items():
            rows.append(
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
    return rows


def _methods(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.methods import method_class, method_names
    from perfsim.methods.base import FAMILIES

    record = _record(catalog)
    rows = []
    for name in method_names():
        cls = method_class(name)
        rows.append(
            {
                "method": name,
                "family": cls.family,
                "what": cls.summary,
                "paper": _paper(cls.citation),
                "needs": cls.needs or "-",
                "record": record.get(name, "no measured row"),
            }
        )
    return sorted(rows, key=lambda row: (FAMILIES.index(row["family"]), row["method"]))


def _paper(citation: str) -> str:
    """Return the first paper of a citation in short: its authors and year."""
    match = re.search(
        r"(?<![\w/@])[A-Z][A-Za-z\u00e0-\u00ff'&, .-]{0,80}? (?:19|20)\d\d\b", citation
    )
    return match[0] if match else citation


def _record(catalog: Catalog) -> dict[str, str]:
    """Return how wrong predictions of each method have been, as last recorded."""
    from perfsim.validate.accuracy import ACCURACY_FILE, read_accuracy

    path = catalog.beside("methods", "", ACCURACY_FILE)
    return {} if path is None else {line.method: line.words() for line in read_accuracy(path)}


def _collectives(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.collectives import algorithms

    return [
        {"collective": collective, "algorithms": ", ".join(sorted(names))}
        for collective, names in sorted(algorithms().items())
    ]


def _fusion(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim import fusion

    return [
        {"fusion": name, "what": fusion.load_policy(name).summary} for name in fusion.policy_names()
    ]


def _scenarios(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.scenario_file import read_scenario

    files = {name: read_scenario(path) for name, path in catalog.scenarios().items()}
    rows = [
        {"scenario": name, **{key: file.get(key, "") for key in ("title", "question", "command")}}
        for name, file in files.items()
    ]
    return sorted(rows, key=lambda row: not row["question"])


def _measurements(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.validate.cases import shipped_cases

    return [
        {
            "id": case.id,
            "role": case.role,
            "system": case.system,
            "model": case.model,
            "gpus": f"{case.gpus} x {case.gpu}",
            "network": case.network,
            "metric": case.metric,
            "value": f"{case.value:g}",
            "scenario": case.scenario,
            "note": "; ".join(filter(None, (case.reason or case.notes, case.notice))),
        }
        for case in shipped_cases(catalog)
    ]


LISTED_KINDS: dict[str, Callable[[Catalog], list[dict[str, Any]]]] = {
    "models": _models,
    "gpus": _gpus,
    "networks": _networks,
    "methods": _methods,
    "collectives": _collectives,
    "fusion": _fusion,
    "scenarios": _scenarios,
    "measurements": _measurements,
}
"""Each kind of thing that `list` takes, and what makes its rows."""


# Descriptions of `show`.


def describe_thing(kind: str, name: str, catalog: Catalog) -> dict[str, Any]:
    """Return all that is known of one thing of a kind (see ``DESCRIBED_KINDS``).

    Raises
    ------
    RequestError
        If there is no such kind or name.
    """
    if kind not in DESCRIBED_KINDS:
        raise unknown("show", kind, DESCRIBED_KINDS)
    try:
        return DESCRIBED_KINDS[kind](name, catalog)
    except RequestError as error:
        if error.field != kind:
            raise
        # The name itself is wrong, which is no field of a scenario here.
        refusal = RequestError("", error.why, value=error.value, nearest=error.nearest)
        raise refusal.within(kind) from None


def _model(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.compute.profile import read_profile
    from perfsim.resolve import model_names

    files = catalog.files("models")
    names = model_names(files)
    if name not in names:
        raise unknown("model", name, names, "models")
    profiles = [read_profile(files[stem]) for stem in names[name]]
    first = profiles[0]
    largest = sorted(first.gradients, key=lambda gradient: -gradient.elements)[:_MAX_TENSORS_NAMED]
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
    """Return the measured iterations of the whole model, by GPU."""
    from perfsim.compute.anchors import load_anchors

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


def _profile(profile: Profile) -> dict[str, Any]:
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
    from perfsim.compute.device import load_device

    return load_device(name, catalog).describe()


def _network(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.network.network_file import load_network
    from perfsim.network.self_check import self_check

    network = load_network(name, catalog, "net")
    description: dict[str, Any] = {
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
            link_class: f"{link.ranks[0]} to {link.ranks[1]}" if link.ranks else "none"
            for link_class, link in network.links.items()
        },
    }
    if network.known is not None:
        description["curves"] = [_curve(curve) for curve in network.known.curves]
        if network.known.tuner is not None:
            description["nccl_tuner"] = _tuner(network.known.tuner)
    return description | {
        "values": [
            value
            for link_class, link in network.links.items()
            for value in _values(link_class, link)
        ],
        "warnings": self_check(network),
        "notes": list(network.notes),
    }


def _values(link_class: str, link: Link) -> list[dict[str, str]]:
    """Return every number of a link with its range and source."""
    quantities = [("rate", link.rate), ("tree rate", link.tree_rate), ("gamma", link.gamma)]
    for algorithm, curve in (("ring", link.ring), ("tree", link.tree)):
        quantities += [
            (f"{algorithm} latency at {format_bytes(size)}", curve.quantity(alpha_s))
            for size, alpha_s in zip(curve.size_bytes, curve.alpha_s, strict=True)
        ]
    return [
        {
            "link": link_class,
            "what": what,
            "value": str(quantity),
            "kind": quantity.kind,
            "range": _range(quantity.low, quantity.high),
            "source": quantity.source,
        }
        for what, quantity in quantities
    ]


def _curve(curve: CollectiveCurve) -> dict[str, Any]:
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


def _method(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.methods.describe import describe_method

    return describe_method(name, catalog)


def _scenario(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.methods import AUTO_METHOD, load_method
    from perfsim.scenario import make_scenario
    from perfsim.scenario_file import read_scenario
    from perfsim.validate.claims import claims_of

    data = read_scenario(catalog.scenario(name))
    scenario = make_scenario(data["scenario"], name)
    if scenario.method.lower() != AUTO_METHOD:
        try:
            load_method(scenario.method, scenario.options)
        except RequestError as error:
            raise error.within(name) from None
    claims = [claim.to_dict() for claim in claims_of(name, catalog)]
    texts = ("question", "command", "title", "source", "notes")
    varied = [{"field": name, "values": values} for name, values in data.get("sweep", {}).items()]
    measured = [{"row": row, "measurement": id_} for row, id_ in data.get("measured", {}).items()]
    return {
        "name": name,
        **{key: data[key] for key in texts if key in data},
        "scenario": scenario.model_dump(exclude_none=True, mode="json"),
        **({"varied": varied} if varied else {}),
        **({"measured": measured} if measured else {}),
        **({"claims": claims} if claims else {}),
    }


DESCRIBED_KINDS: dict[str, Callable[[str, Catalog], dict[str, Any]]] = {
    "model": _model,
    "gpu": _gpu,
    "net": _network,
    "method": _method,
    "scenario": _scenario,
}
"""Each kind of thing that `show` takes, and what describes it."""


def network_picture(name: str, catalog: Catalog) -> Picture:
    """Return the picture of a network: its links, nodes and switches, to be drawn.

    Raises
    ------
    RequestError
        If there is no such network.
    """
    from perfsim.network.network_file import load_network
    from perfsim.report.network_drawing import DrawnLink, Picture

    network = load_network(name, catalog, "net")
    wires = {
        link_class: DrawnLink(
            format_rate(link.rate.value), f"{format_seconds(link.ring.at(1e3), 3)} a hop"
        )
        for link_class, link in network.links.items()
    }
    curves = network.known.curves if network.known else ()
    nodes = max((curve.nodes for curve in curves), default=2) if "inter" in wires else 1
    fabric = network.fabric if "inter" in wires else None
    if fabric is not None:
        nodes = max(nodes, _DRAWN_NODES)
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
