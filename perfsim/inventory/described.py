"""Descriptions of ``show``: all that is known of one thing, with its sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfsim.catalog import Catalog
from perfsim.errors import RequestError, unknown
from perfsim.inventory.network import network
from perfsim.units import format_bytes, format_count, format_seconds

__all__ = ["DESCRIPTIONS", "describe"]

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
    from perfsim.computation import model_names
    from perfsim.profile_file import read_profile

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


def _method(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.method_description import describe_method

    return describe_method(name, catalog)


def _scenario(name: str, catalog: Catalog) -> dict[str, Any]:
    from perfsim.methods import AUTO, load_method
    from perfsim.scenario import make_scenario
    from perfsim.scenario_file import read_file
    from perfsim.validate.claim import claims_of

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
