"""Rows of ``list``: one a thing of a kind, in short."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfsim.cli.options import JsonFlag, ProfilesFlag, complete_things
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError, unknown
from perfsim.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from perfsim.network.link import Link
    from perfsim.network.measured import CollectiveCurve
    from perfsim.network.tuner_fit import TunedChoice
    from perfsim.report.network_drawing import Picture

__all__ = [
    "DESCRIPTIONS",
    "ROWS",
    "describe",
    "in_short",
    "list_things",
    "network",
    "network_picture",
    "rows",
    "show_thing",
]

LISTED_KINDS = (
    "models",
    "gpus",
    "networks",
    "methods",
    "collectives",
    "fusion",
    "scenarios",
    "measurements",
)


def list_things(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="{" + "|".join(LISTED_KINDS) + "}",
            help="What to list.",
            autocompletion=lambda incomplete: [k for k in LISTED_KINDS if k.startswith(incomplete)],
        ),
    ],
    profiles: ProfilesFlag = None,
    json: JsonFlag = False,
) -> None:
    """List what perfsim knows of one kind, with where it comes from."""
    from perfsim.data.catalog import Catalog

    found = rows(kind, Catalog(profiles))
    if json:
        from perfsim.report.terminal import json_text

        typer.echo(json_text({"schema": "perfsim/list/1", "kind": kind, "rows": found}))
    elif kind == "scenarios":
        from perfsim.report.terminal import print_scenarios

        print_scenarios(found)
    else:
        from perfsim.report.terminal import print_table

        print_table(in_short(kind, found))


KINDS = ("model", "gpu", "net", "method", "scenario")


def show_thing(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="{" + "|".join(KINDS) + "}",
            help="Kind of thing.",
            autocompletion=lambda incomplete: [k for k in KINDS if k.startswith(incomplete)],
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            help="Its name (`perfsim list` shows them).", autocompletion=complete_things
        ),
    ],
    profiles: ProfilesFlag = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Also write a network's picture as a page."),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show all that is known of one model, GPU, network, method or scenario, with sources."""
    from perfsim.data.catalog import Catalog

    catalog = Catalog(profiles)
    found = describe(kind, name, catalog)
    if html is not None:
        if kind != "net":
            raise RequestError(f"--html: only a network has a picture, not a {kind}.")
        from perfsim.report.network_drawing import draw_html

        draw_html(network_picture(name, catalog), html)
    if json:
        from perfsim.report.terminal import json_text

        typer.echo(json_text({"schema": "perfsim/show/1", "kind": kind, **found}))
    elif kind == "method":
        from perfsim.report.terminal import print_method

        print_method(found)
    elif kind == "scenario":
        from perfsim.report.terminal import print_scenario

        print_scenario(found)
    else:
        from perfsim.report.terminal import print_description

        if kind == "net":
            from perfsim.report.network_drawing import draw_text

            typer.echo(draw_text(network_picture(name, catalog)) + "\n")
        print_description(found)


DRAWN_NODES = 8
"""Nodes of a picture where a file states a fabric but no number of nodes: enough to show it."""


def network(name: str, catalog: Catalog) -> dict[str, Any]:
    """Return all that is known of one network.

    Raises
    ------
    RequestError
        If there is no such network.
    """
    from perfsim.network.network_file import load_network
    from perfsim.network.self_check import self_check

    network = load_network(name, catalog, "show net")
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
    if network.known is not None:
        found["curves"] = [_curve(curve) for curve in network.known.curves]
        if network.known.tuner is not None:
            found["nccl_tuner"] = _tuner(network.known.tuner)
    return found | {
        "values": [value for of, link in network.links.items() for value in _values(of, link)],
        "warnings": self_check(network),
        "notes": list(network.notes),
    }


def _values(of: str, link: Link) -> list[dict[str, str]]:
    """Return every number of a link with its range and source."""
    quantities = [("rate", link.rate), ("tree rate", link.tree_rate), ("gamma", link.gamma)]
    for algorithm, curve in (("ring", link.ring), ("tree", link.tree)):
        quantities += [
            (f"{algorithm} latency at {format_bytes(size)}", curve.quantity(alpha_s))
            for size, alpha_s in zip(curve.size_bytes, curve.alpha_s, strict=True)
        ]
    return [
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


def network_picture(name: str, catalog: Catalog) -> Picture:
    """Return what a drawing of a network shows.

    Raises
    ------
    RequestError
        If there is no such network.
    """
    from perfsim.network.network_file import load_network
    from perfsim.report.network_drawing import DrawnLink, Picture

    network = load_network(name, catalog, "show net")
    wires = {
        of: DrawnLink(format_rate(link.rate.value), f"{format_seconds(link.ring.at(1e3), 3)} a hop")
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


SHOWN_TENSORS = 5


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


def _model(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.compute.profile import read_profile
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
    from perfsim.compute.device import load_device

    return load_device(name, catalog).describe()


def _method(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.methods.describe import describe_method

    return describe_method(name, catalog)


def _scenario(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.methods import AUTO, load_method
    from perfsim.scenario import make_scenario, read_file
    from perfsim.validate.claims import claims_of

    data = read_file(catalog.scenario(name))
    scenario = make_scenario(data["scenario"], name)
    if scenario.method.lower() != AUTO:
        try:
            load_method(scenario.method, scenario.options)
        except RequestError as error:
            raise RequestError(f"{name}: {error}") from None
    claims = [claim.to_dict() for claim in claims_of(name, catalog)]
    told = ("question", "command", "title", "source", "notes")
    varied = [{"field": name, "values": values} for name, values in data.get("sweep", {}).items()]
    measured = [{"row": row, "measurement": one} for row, one in data.get("measured", {}).items()]
    return {
        "name": name,
        **{key: data[key] for key in told if key in data},
        "scenario": scenario.model_dump(exclude_none=True, mode="json"),
        **({"varied": varied} if varied else {}),
        **({"measured": measured} if measured else {}),
        **({"claims": claims} if claims else {}),
    }


DESCRIPTIONS: dict[str, Callable[[str, Catalog], dict[str, Any]]] = {
    "model": _model,
    "gpu": _gpu,
    "net": network,
    "method": _method,
    "scenario": _scenario,
}


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
    from perfsim.compute.profile import read_profile

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
    from perfsim.compute.device import read_device

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
    from perfsim.network.network_file import read_network

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
    from perfsim.methods import method_class, method_names
    from perfsim.methods.base import FAMILIES

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

    return [{"fusion": name, "what": fusion.load(name).SUMMARY} for name in fusion.policies()]


def _scenarios(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.scenario import read_file

    files = {name: read_file(path) for name, path in catalog.scenarios().items()}
    found = [
        {"scenario": name, **{key: file.get(key, "") for key in ("title", "question", "command")}}
        for name, file in files.items()
    ]
    return sorted(found, key=lambda row: not row["question"])


def _measurements(catalog: Catalog) -> list[dict[str, Any]]:
    from perfsim.validate.cases import shipped_cases

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
