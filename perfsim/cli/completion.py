"""Names that a shell completes: of models, GPUs, networks, methods, policies and scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

__all__ = ["COMPLETIONS", "complete_shown_name"]


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in sorted(names) if name.startswith(incomplete)]


def _models(incomplete: str) -> list[str]:
    from perfsim.data.catalog import Catalog
    from perfsim.models import all_models

    return _starting(all_models(Catalog().files("models")), incomplete)


def _gpus(incomplete: str) -> list[str]:
    from perfsim.data.catalog import Catalog

    return _starting(Catalog().files("devices"), incomplete)


def _networks(incomplete: str) -> list[str]:
    """Return networks, and the node types that may stand in their place."""
    from perfsim.data.catalog import Catalog

    catalog = Catalog()
    return _starting({*catalog.files("networks"), *catalog.files("nodes")}, incomplete)


def _nodes(incomplete: str) -> list[str]:
    from perfsim.data.catalog import Catalog

    return _starting(Catalog().files("nodes"), incomplete)


def _methods(incomplete: str) -> list[str]:
    from perfsim.methods import method_names

    return _starting(method_names(), incomplete)


def _fusions(incomplete: str) -> list[str]:
    from perfsim import fusion

    return _starting(list(fusion.policy_names()), incomplete)


def _scenarios(incomplete: str) -> list[str]:
    from perfsim.data.catalog import Catalog

    return _starting(Catalog().scenarios(), incomplete)


COMPLETIONS: dict[str, Callable[[str], list[str]]] = {
    "models": _models,
    "gpus": _gpus,
    "networks": _networks,
    "nodes": _nodes,
    "methods": _methods,
    "fusions": _fusions,
    "scenarios": _scenarios,
}
"""Each kind of thing, and what completes the beginning of a name (see `ScenarioField.complete`)."""

_SHOWN_KINDS = {
    "model": "models",
    "gpu": "gpus",
    "net": "networks",
    "node": "nodes",
    "method": "methods",
    "scenario": "scenarios",
}


def complete_shown_name(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name after ``perfsim show KIND``."""
    kind = _SHOWN_KINDS.get(context.params.get("kind") or "")
    return COMPLETIONS[kind](incomplete) if kind else []
