"""What a comparison of methods says in words beside its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsim.catalog import Catalog
from perfsim.device import load_device
from perfsim.gpu_names import parse_types
from perfsim.method import FAMILIES
from perfsim.methods import load_method, method_class
from perfsim.ranking import Ranking

__all__ = ["notes_of"]

DELAYED = "delayed updates"

MOST_NAMES = 3
"""So many methods with one value of an option are named."""

WORDS = {"dense": "lower precision"}
"""Families whose name does not tell why their lossy methods learn otherwise."""


def notes_of(
    ranking: Ranking,
    options: Mapping[str, Any],
    given: Mapping[str, Mapping[str, Any]],
    catalog: Catalog,
) -> list[str]:
    """Return who learns otherwise, who does not fit, whom options are for, what all rest on.

    ``options`` are those set for all methods, ``given`` those of each.
    """
    found = [*_learning(ranking, given), *_memory(ranking, catalog)]
    for option, value in options.items():
        plain = option.rpartition(".")[2]
        if option == plain:
            having = [name for name in sorted(given) if plain in given[name]]
            found.append(f"--set {option}={value} goes to those that have it: {', '.join(having)}.")
    found += [*_unlike(ranking), *ranking.kept_words()]
    first, *others = ranking.predictions.values()
    alike = set(first.notes).intersection(*(one.notes for one in others))
    return found + [note for note in first.notes if others and note in alike]


def _learning(ranking: Ranking, given: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return which methods change what is learnt, by why, so that time alone cannot rank them."""
    why: dict[str, list[str]] = {}
    for name in sorted(ranking.predictions):
        family = method_class(name).family
        if load_method(name, given[name]).delay():
            why.setdefault(DELAYED, []).append(name)
        elif method_class(name).lossy:
            why.setdefault(WORDS.get(family, family), []).append(name)
    if not why:
        return []
    order = [*(WORDS.get(family, family) for family in FAMILIES), DELAYED]
    groups = "; ".join(f"{group} ({', '.join(why[group])})" for group in order if group in why)
    return [
        "Time per iteration is not convergence: these do not learn as ssgd and may need more"
        f" iterations for the same accuracy, or not reach it: {groups}."
    ]


def _unlike(ranking: Ranking) -> list[str]:
    """Return numbers of one name (density, bits, interval) that the methods do not have alike."""
    values: dict[str, dict[str, list[str]]] = {}
    for name in sorted(ranking.predictions):
        for option, value in ranking.predictions[name].scenario["options"].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                values.setdefault(option, {}).setdefault(f"{value:g}", []).append(name)
    told = [
        f"{option} {', '.join(f'{value} ({_few(names)})' for value, names in sorted(each.items()))}"
        for option, each in sorted(values.items())
        if len(each) > 1
    ]
    if not told:
        return []
    return [f"Not set alike (--set makes them so): {'; '.join(told)}."]


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} methods"


def _memory(ranking: Ranking, catalog: Catalog) -> list[str]:
    """Return which methods need more than the GPU's memory, activations aside."""
    winner = ranking.predictions[ranking.winner]
    gpu = str(winner.scenario["gpu"])
    devices = [load_device(name, catalog) for name, _ in parse_types(gpu) or [(gpu, 0)]]
    device = min(devices, key=lambda one: one.memory_bytes)
    large = [
        name
        for name, one in ranking.predictions.items()
        if sum(one.memory_bytes.values()) > device.memory_bytes
    ]
    return [f"Do not fit into {device.name}'s memory: {', '.join(large)}."] if large else []
