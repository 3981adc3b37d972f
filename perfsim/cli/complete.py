"""Names for shell completion."""

from __future__ import annotations

import typer

__all__ = ["fusions", "gpus", "methods", "models", "networks", "scenarios", "things"]


def _starting(names: list[str], incomplete: str) -> list[str]:
    return [name for name in sorted(names) if name.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Complete a model's name."""
    from perfsim.catalog import Catalog

    return _starting(list({stem.split(".")[0] for stem in Catalog().files("models")}), incomplete)


def gpus(incomplete: str) -> list[str]:
    """Complete a GPU's name."""
    from perfsim.catalog import Catalog

    return _starting(list(Catalog().files("devices")), incomplete)


def networks(incomplete: str) -> list[str]:
    """Complete a network's name."""
    from perfsim.catalog import Catalog

    return _starting(list(Catalog().files("networks")), incomplete)


def methods(incomplete: str) -> list[str]:
    """Complete a method's name."""
    from perfsim.methods import method_names

    return _starting(method_names(), incomplete)


def fusions(incomplete: str) -> list[str]:
    """Complete a fusion policy's name."""
    from perfsim import fusion

    return _starting(list(fusion.policies()), incomplete)


def scenarios(incomplete: str) -> list[str]:
    """Complete a shipped scenario's name."""
    from perfsim.catalog import Catalog

    return _starting(list(Catalog().scenarios()), incomplete)


def things(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of what ``perfsim show`` is asked for."""
    kinds = {
        "model": models,
        "gpu": gpus,
        "net": networks,
        "method": methods,
        "scenario": scenarios,
    }
    complete = kinds.get(context.params.get("kind") or "")
    return complete(incomplete) if complete else []
